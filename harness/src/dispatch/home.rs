//! The private folder of one worker: its `TMPDIR`, the driver's cache, reports of
//! tools, core dumps. It goes away when nobody refers to it any more, which is
//! after what it holds of evidence has been kept, so that a run needs no more room
//! than its live workers do.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

/// Variables of a worker's environment, and the folders that they name.
const FOLDERS: [(&str, &str); 2] = [("TMPDIR", "tmp"), ("CUDA_CACHE_PATH", "cuda-cache")];

/// The folder.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    kept: AtomicBool,
}

impl Home {
    /// Makes the folder of a worker below `work_dir`, or in the system's temporary
    /// folder where there is no room, or none any more.
    pub(super) fn make(work_dir: &Path, id: &str) -> io::Result<Self> {
        let first = Self::at(std::path::absolute(work_dir.join(id))?);
        first.or_else(|error| {
            // Containers that share the folder may have processes of one number.
            let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
            let spare = std::env::temp_dir().join(format!("harness-{}-{now}-{id}", std::process::id()));
            Self::at(spare).map_err(|other| io::Error::new(error.kind(), format!("{error}; {other}")))
        })
    }

    fn at(path: PathBuf) -> io::Result<Self> {
        // Removed again, as far as it came, if something of it cannot be made.
        let home = Self { path, kept: AtomicBool::new(false) };
        for (_, folder) in FOLDERS {
            let folder = home.path.join(folder);
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
            std::fs::create_dir_all(&folder).map_err(named)?;
        }
        Ok(home)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        FOLDERS.iter().map(|(key, folder)| (*key, self.path.join(folder)))
    }

    /// Leaves it there: its worker could not be killed, and may still use it.
    pub(super) fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !self.kept.load(Ordering::Relaxed) {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_folder_goes_away_with_its_last_user() {
        let dir = Scratch::new("home-kept");
        let home = Home::make(&dir, "sim0-w0").expect("made");
        assert_eq!(home.path(), dir.join("sim0-w0"));
        assert!(home.variables().all(|(_, folder)| folder.is_dir()));
        drop(home);
        assert!(!dir.join("sim0-w0").exists());
        let kept = Home::make(&dir, "sim0-w1").expect("made");
        kept.keep();
        drop(kept);
        assert!(dir.join("sim0-w1/tmp").is_dir());
    }

    #[test]
    fn where_none_can_be_made_it_is_in_the_temporary_folder() {
        let dir = Scratch::new("home-spare");
        let file = dir.join("file");
        std::fs::write(&file, "no folder").expect("a file");
        let home = Home::make(&file, "sim0-w0").expect("made");
        assert!(home.path().starts_with(std::env::temp_dir()) && !home.path().starts_with(&file));
        assert!(home.variables().all(|(_, folder)| folder.is_dir()));
        let path = home.path().to_path_buf();
        drop(home);
        assert!(!path.exists());
        std::fs::remove_file(&file).expect("removes");
        let error = Home::make(&file, &"x".repeat(300)).expect_err("too long a name");
        assert!(error.to_string().contains(&"x".repeat(300)), "{error}");
    }
}
