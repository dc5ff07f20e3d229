//! Where the NVRTC library is. The engine reads no environment, so the places
//! that only the environment tells are found here and handed to the workers.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What was found, in the order of preference, and where it was looked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct NvrtcFiles {
    pub(crate) found: Vec<PathBuf>,
    pub(crate) searched: Vec<String>,
}

impl NvrtcFiles {
    /// The folders of what was found.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = Vec::new();
        for folder in self.found.iter().filter_map(|file| file.parent()) {
            if !folders.iter().any(|known| known == folder) {
                folders.push(folder.to_path_buf());
            }
        }
        folders
    }
}

/// Folders from a wheel's library up to `site-packages`.
const WHEEL_DEPTH: usize = 4;
/// Below `site-packages`.
const WHEELS: [&str; 2] = ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"];

/// Looks in the folders that variables name, in those of installers, and in the
/// `site-packages` of `python3`.
pub(crate) fn find() -> NvrtcFiles {
    let mut places: Vec<(String, Vec<PathBuf>)> = Vec::new();
    for variable in ["NVRTC_PATH", "LD_LIBRARY_PATH"] {
        if let Some(value) = std::env::var_os(variable) {
            places.push((format!("${variable}"), std::env::split_paths(&value).collect()));
        }
    }
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        if let Some(root) = std::env::var_os(variable).map(PathBuf::from) {
            let folders = ["lib64", "lib", "targets/x86_64-linux/lib"].map(|folder| root.join(folder));
            places.push((format!("${variable}"), folders.to_vec()));
        }
    }
    let system = ["/usr/local/cuda/lib64", "/opt/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"];
    places.push((system.join(" "), system.map(PathBuf::from).to_vec()));
    let packages = site_packages();
    let shown = packages.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(" ");
    let shown = if shown.is_empty() { "python3 (not found)".into() } else { format!("python3 site-packages: {shown}") };
    places.push((shown, packages.iter().flat_map(|root| WHEELS.map(|wheel| root.join(wheel))).collect()));
    let mut files = NvrtcFiles::default();
    for (name, folders) in places {
        files.searched.push(name);
        files.found.extend(folders.iter().flat_map(|folder| libraries(folder)));
    }
    files
}

/// `libnvrtc.so*` of a folder, versioned names first and newest first.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    if folder.is_file() {
        return vec![folder.to_path_buf()];
    }
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let named = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("libnvrtc.so"))
    };
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(named).collect();
    found.sort();
    found.reverse();
    found.truncate(1);
    found
}

/// The version of the library in a folder, without loading it: a toolkit's file is named by all of it, a wheel
/// has it beside the package.
pub(crate) fn version(folder: &Path) -> Option<String> {
    let file = libraries(folder).pop()?;
    let file = std::fs::canonicalize(&file).unwrap_or(file);
    let named = file.file_name()?.to_str()?.strip_prefix("libnvrtc.so").unwrap_or_default().trim_start_matches('.');
    if named.contains('.') {
        return Some(named.into());
    }
    let of_wheel = |folder: &Path| {
        let mut names: Vec<String> =
            std::fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        let versions = names.iter().filter_map(|name| {
            name.strip_prefix("nvidia_cuda_nvrtc")?.strip_suffix(".dist-info")?.split_once('-').map(|(_, is)| is)
        });
        versions.max().map(String::from)
    };
    let wheel = file.ancestors().skip(1).take(WHEEL_DEPTH).find_map(of_wheel);
    wheel.or_else(|| Some(named.to_string()).filter(|named| !named.is_empty()))
}

/// The package folders of `python3`, or nothing.
fn site_packages() -> Vec<PathBuf> {
    let script = "import site, sysconfig\nfor p in dict.fromkeys([sysconfig.get_paths()['purelib'], *site.getsitepackages(), site.getusersitepackages()]): print(p)";
    let output = Command::new("python3").args(["-c", script]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let Ok(output) = output else { return Vec::new() };
    String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).filter(|path| path.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[track_caller]
    fn check_version(files: &[&str], folder: &str, wanted: Option<&str>) {
        let root = Scratch::new("nvrtc-version");
        for file in files {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, "").expect("writes");
        }
        assert_eq!(version(&root.join(folder)).as_deref(), wanted);
    }

    #[test]
    fn a_version_is_told_by_the_file_or_the_wheel() {
        check_version(&["lib64/libnvrtc.so.13.0.88"], "lib64", Some("13.0.88"));
        let wheel = ["nvidia/cu13/lib/libnvrtc.so.13", "nvidia_cuda_nvrtc-13.0.88.dist-info/METADATA"];
        check_version(&wheel, "nvidia/cu13/lib", Some("13.0.88"));
        check_version(&["lib/libnvrtc.so.13"], "lib", Some("13"));
        check_version(&["lib/libcudart.so.13"], "lib", None);
    }
}
