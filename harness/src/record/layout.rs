//! What lies where in a results folder, and how files in it are replaced.

use std::io;
use std::path::{Path, PathBuf};

const FORMAT: &str = "harness-store 1\n";
/// Of the schema; readers of the same major number read any minor one.
pub(super) const MINOR: u32 = 3;
/// Bytes of the longest name of a run.
const MAX_ID: usize = 100;

/// A results folder that exists and is of this format.
#[derive(Clone, Debug)]
pub(crate) struct ResultsFolder {
    root: PathBuf,
}

impl ResultsFolder {
    /// A folder to write in; made if it is not there. Nothing is made in a
    /// folder that belongs to another format.
    pub(crate) fn claim(root: &Path) -> io::Result<Self> {
        match Self::open(root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(root)?;
                replace(&root.join("FORMAT"), FORMAT.as_bytes())?;
                Ok(Self { root: root.to_path_buf() })
            }
            other => other,
        }
    }

    /// A folder that is there.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let format = root.join("FORMAT");
        let text = std::fs::read_to_string(&format)?;
        // A torn file is as good as none.
        if text.trim_end() != FORMAT.trim_end() && !(FORMAT.starts_with(&text) && text.len() < FORMAT.len() - 1) {
            let (found, ours) = (text.trim(), FORMAT.trim());
            let message = format!("{} says {found:?}, this harness writes {ours:?}", format.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(Self { root: root.to_path_buf() })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    pub(crate) fn history(&self) -> PathBuf {
        self.root.join("history")
    }

    /// The lock of tables, the link and the list of runs.
    pub(crate) fn lock(&self) -> io::Result<crate::os::FileLock> {
        crate::os::FileLock::acquire(&self.root.join("lock"))
    }

    /// The run that `latest` names.
    pub(crate) fn latest(&self) -> Option<String> {
        let target = std::fs::read_link(self.root.join("latest")).ok()?;
        Some(target.file_name()?.to_str()?.to_string())
    }
}

/// Whether a text can name a run: it becomes a folder.
pub(crate) fn check_id(id: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
    match () {
        () if id.is_empty() || id.len() > MAX_ID => {
            Err(format!("it has {} characters, 1 to {MAX_ID} are allowed", id.len()))
        }
        // Tables guard a cell that begins with a plus: spreadsheets take it for a formula.
        () if id.starts_with(['.', '-', '+']) => Err("it begins with a dot, a hyphen or a plus".into()),
        () if id == "latest" => Err("`latest` means the last finished run".into()),
        () => match id.chars().find(|c| !good(*c)) {
            Some(c) => Err(format!("it holds {c:?}; letters, digits and . _ - + are allowed")),
            None => Ok(()),
        },
    }
}

/// Whether a word can mean a run: a name or a part of one, `latest`, or `latest~2`.
pub(crate) fn names_run(word: &str) -> bool {
    let back = word.strip_prefix("latest~").is_some_and(|back| back.parse::<usize>().is_ok());
    back || word == "latest" || check_id(word).is_ok()
}

/// Makes `latest` name a run.
pub(super) fn link_latest(root: &Path, id: &str) -> io::Result<()> {
    let fresh = root.join(format!(".latest-{id}-{}", std::process::id()));
    let _ = std::fs::remove_file(&fresh);
    std::os::unix::fs::symlink(Path::new("runs").join(id), &fresh)?;
    std::fs::rename(&fresh, root.join("latest")).inspect_err(|_| drop(std::fs::remove_file(&fresh)))
}

/// Replaces a file in one step: readers see the old or the new content, also after
/// a kill. Its permissions stay; where it is a link, what that names is replaced.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let fresh = path.with_extension(format!("tmp{}", std::process::id()));
    let write = || {
        let mut file = std::fs::File::create(&fresh)?;
        io::Write::write_all(&mut file, bytes)?;
        if let Ok(old) = std::fs::metadata(path) {
            file.set_permissions(old.permissions())?;
        }
        file.sync_data()?;
        std::fs::rename(&fresh, path)
    };
    write().inspect_err(|_| drop(std::fs::remove_file(&fresh)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_file_is_replaced_whole_and_stays_what_it_was() {
        use std::os::unix::fs::PermissionsExt;
        let dir = Scratch::new("replace");
        let [file, link, old] = ["file.txt", "link.txt", "old.txt"].map(|name| dir.join(name));
        std::fs::write(&file, "old").expect("writes");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).expect("sets");
        std::os::unix::fs::symlink("file.txt", &link).expect("links");
        std::fs::hard_link(&file, &old).expect("links");
        replace(&link, b"new").expect("replaces");
        let text = |path: &Path| std::fs::read_to_string(path).expect("reads");
        assert_eq!((text(&file).as_str(), text(&link).as_str(), text(&old).as_str()), ("new", "new", "old"));
        assert!(link.is_symlink() && file.metadata().is_ok_and(|data| data.permissions().mode() & 0o777 == 0o640));
        assert_eq!(std::fs::read_dir(&dir).expect("lists").count(), 3);
    }

    #[test]
    fn a_format_is_known_without_its_end_of_line() {
        let root = Scratch::new("format");
        let opens = |text: &str| {
            std::fs::write(root.join("FORMAT"), text).expect("writes");
            ResultsFolder::open(&root).map(drop).map_err(|error| error.to_string())
        };
        for ours in ["harness-store 1\n", "harness-store 1", "harness-store 1\r\n", "harness-st", ""] {
            assert_eq!(opens(ours), Ok(()), "{ours:?}");
        }
        for other in ["harness-store 2\n", "harness-store 12", "other"] {
            assert!(opens(other).is_err_and(|why| why.contains(other.trim())), "{other:?}");
        }
    }

    #[test]
    fn names_of_runs_are_names_of_folders() {
        for good in ["20260101T000000Z-abcdef", "nightly+3", "a"] {
            assert_eq!(check_id(good), Ok(()), "{good}");
        }
        for bad in ["", ".", "..", "../x", "a/b", "a b", "-a", "+a", "latest", "ü", "a\nb", &"x".repeat(101)] {
            assert!(check_id(bad).is_err(), "{bad:?}");
        }
    }
}
