//! Where libraries of the CUDA toolkit are found.
//!
//! In: the names that a library has, and folders that the caller knows of (the engine reads no
//! environment). Out: the files to try, in order, and the first that loads: on the loader's own path,
//! in the folders where installers put the toolkit, then in the caller's, where a Python environment
//! may have it as a wheel.

use std::path::{Path, PathBuf};

/// Where installers put the toolkit's libraries.
pub(super) const INSTALL_FOLDERS: &[&str] = &[
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/opt/cuda/lib64",
    "/usr/lib/x86_64-linux-gnu",
];

/// A library, as it is looked for.
pub(super) struct LibraryNames {
    /// Sonames, newest first.
    pub(super) names: &'static [&'static str],
    /// Where a Python environment keeps it, below `site-packages`.
    pub(super) wheel_folders: &'static [&'static str],
}

impl LibraryNames {
    /// The library's files in a folder.
    pub(super) fn in_folder(&self, folder: &Path) -> Vec<PathBuf> {
        self.names.iter().map(|name| folder.join(name)).collect()
    }

    /// Every file that would be tried, in order; a bare name goes to the loader.
    pub(super) fn candidates(&self, folders: &[PathBuf]) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.names.iter().map(PathBuf::from).collect();
        files.extend(INSTALL_FOLDERS.iter().flat_map(|folder| self.in_folder(Path::new(folder))));
        for folder in folders {
            files.extend(self.in_folder(folder));
            files.extend(self.wheel_folders.iter().flat_map(|wheel| self.in_folder(&folder.join(wheel))));
        }
        files
    }
}

/// The first of these files that loads, or what was wrong with those that are there. `by_name` says
/// whether bare names are the loader's to find; else they are files like others.
pub(super) fn first<T, E: std::fmt::Display>(
    candidates: &[PathBuf],
    by_name: bool,
    load: impl Fn(&Path) -> Result<T, E>,
) -> Result<T, Vec<String>> {
    let mut failures = Vec::new();
    for file in candidates {
        let is_bare = by_name && file.components().count() == 1;
        if !is_bare && !file.exists() {
            continue;
        }
        match load(file) {
            Ok(library) => return Ok(library),
            // The loader knows no such name.
            Err(_) if is_bare => {}
            Err(reason) => failures.push(format!("{}: {reason}", file.display())),
        }
    }
    Err(failures)
}
