//! Folders of tests, for the store and for what uses it.

use crate::backend::cuda::CodeStore;
use crate::util::Hash128;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// Bytes that no test comes near to.
pub(super) const LIMIT: u64 = 1 << 30;

/// The place of a store, not made yet, in a folder that goes away with the value,
/// also when its test fails.
pub(in crate::backend::cuda) struct Folder {
    own: PathBuf,
    place: PathBuf,
}

impl Folder {
    /// `name` is one test's. What an earlier process of the same number left there goes.
    pub(in crate::backend::cuda) fn new(name: &str) -> Self {
        let own = std::env::temp_dir().join(format!("engine-test-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&own);
        std::fs::create_dir_all(&own).expect("a folder");
        Self { place: own.join("code"), own }
    }

    /// A store there; each is another process's, for what they know of each other.
    pub(in crate::backend::cuda) fn store(&self) -> CodeStore {
        CodeStore::new(&self.place, LIMIT)
    }

    /// Where the entry of a key is.
    pub(super) fn entry(&self, key: Hash128) -> PathBuf {
        self.join(format!("{key}.code"))
    }

    /// The names of all files of the store, sorted.
    pub(in crate::backend::cuda) fn files(&self) -> Vec<String> {
        let items = std::fs::read_dir(&self.place).into_iter().flatten().flatten();
        let mut names: Vec<String> = items.map(|item| item.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Deref for Folder {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.place
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        self
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        use std::os::unix::fs::PermissionsExt;
        // A test may have ended before it gave back what it took.
        let _ = std::fs::set_permissions(&self.place, std::fs::Permissions::from_mode(0o755));
        let _ = std::fs::remove_dir_all(&self.own);
    }
}
