//! Expected texts in files: compared, or written where `BLESS=1` asks for it, as for
//! every expectation of this repository.

use std::path::Path;

/// Whether expectations are to be rewritten.
pub(crate) fn asked() -> bool {
    std::env::var_os("BLESS").is_some_and(|value| value != "0")
}

/// Holds a text to the one in a file.
#[track_caller]
pub(crate) fn check_file(path: &Path, text: &str) {
    if asked() {
        std::fs::write(path, text).expect("the expectation can be written");
        return;
    }
    let wanted = std::fs::read_to_string(path).expect("the expectation is there");
    if wanted == text {
        return;
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (wanted.lines().collect(), text.lines().collect());
    let gone = old.iter().filter(|line| !new.contains(line)).map(|line| format!("-{line}\n"));
    let come = new.iter().filter(|line| !old.contains(line)).map(|line| format!("+{line}\n"));
    let lines: String = gone.chain(come).collect();
    panic!("{} is another; BLESS=1 rewrites it where that is meant\n{lines}", path.display());
}
