//! Private folders of unit tests.

use std::ops::Deref;
use std::path::{Path, PathBuf};

/// An empty folder that goes away with the value, also when its test fails.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// `name` is one test's. What an earlier process of the same number left there goes.
    pub(crate) fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("harness-test-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a folder");
        Self(dir)
    }
}

impl Deref for Scratch {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        self
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
