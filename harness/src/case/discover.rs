//! Finds case files and loads them all, within limits that are checked before
//! anything is used: no path outside the folder, bounded files and ids.

use super::expand::{Target, expand};
use super::model::Case;
use super::python;
use super::source::{CaseError, Source};
use engine::diag::{Code, code};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Bytes of a case file.
pub const MAX_FILE_BYTES: u64 = 1 << 20;
/// Expanded ids of all files.
pub const MAX_IDS: usize = 100_000;
const MAX_FILES: usize = 20_000;
const MAX_DEPTH: usize = 16;

/// Every case below a folder, in the order of paths, or every error.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The cases.
    pub cases: Vec<Case>,
    /// What is wrong, by file and line.
    pub errors: Vec<CaseError>,
    /// Files read.
    pub files: usize,
    /// CRC of all files' names and contents, for provenance.
    pub fingerprint: u32,
}

/// Ids taken so far, with the place of each.
type Taken = BTreeMap<String, String>;

/// Loads all `*.fuse` and `*.py` files below `dir`, or one file.
pub fn load(dir: &Path, target: Target) -> Loaded {
    let mut loaded = Loaded::default();
    let paths = files(dir, &mut loaded.errors);
    let mut taken = Taken::new();
    let mut bytes_crc = crate::crc::Crc32::new();
    for path in paths {
        let Some(source) = read(&path, &mut loaded.errors) else { continue };
        loaded.files += 1;
        bytes_crc.update(source.display.as_bytes());
        bytes_crc.update(source.text.as_bytes());
        let (cases, errors) =
            if source.display.ends_with(".py") { python::expand(&source) } else { expand(&source, target) };
        loaded.errors.extend(errors);
        take(cases, &mut taken, &mut loaded);
        if loaded.cases.len() > MAX_IDS {
            let message = format!("the case folder expands to more than {MAX_IDS} ids");
            loaded.errors.push(whole(&path, code::CASE_LIMIT, message, "split the axes"));
            break;
        }
    }
    loaded.fingerprint = bytes_crc.finish();
    loaded
}

/// All `*.fuse` files below `dir`, or the one file, in order.
pub(crate) fn files(dir: &Path, errors: &mut Vec<CaseError>) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    // The parent of a bare file name is the empty path, which cannot be opened.
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let root = if dir.is_file() { parent } else { dir };
    match root.canonicalize() {
        Ok(real) if dir.is_file() => collect_file(dir, &real, &mut paths, errors),
        Ok(real) => walk(dir, &real, 0, &mut paths, errors),
        Err(error) => {
            let note = "run in the root of the checkout, or name the folder: --cases DIR";
            errors.push(whole(dir, code::CASE_PATH, format!("cannot open the case folder: {error}"), note));
        }
    }
    paths.sort();
    paths
}

/// Adds the cases whose ids are new.
fn take(cases: Vec<Case>, taken: &mut Taken, loaded: &mut Loaded) {
    for case in cases {
        let place = format!("{}:{}", case.file, case.line);
        let Some(other) = taken.insert(case.id.clone(), place) else {
            loaded.cases.push(case);
            continue;
        };
        let message = format!("the id `{}` is already taken by {other}", case.id);
        let note = "rename the suite, the fusion or an axis value";
        let mut error = whole(Path::new(&case.file), code::CASE_DUPLICATE, message, note);
        (error.line, error.col) = (case.line, 1);
        loaded.errors.push(error);
    }
}

/// Expands one text that is in memory already.
pub(super) fn expand_one(source: &Source, target: Target) -> (Vec<Case>, Vec<CaseError>) {
    let mut loaded = Loaded::default();
    let (cases, errors) = expand(source, target);
    loaded.errors.extend(errors);
    take(cases, &mut Taken::new(), &mut loaded);
    (loaded.cases, loaded.errors)
}

fn whole(path: &Path, code: Code, message: impl Into<String>, note: &str) -> CaseError {
    let file = path.display().to_string();
    CaseError { file, line: 0, col: 0, code: code.0, message: message.into(), note: note.into() }
}

fn walk(dir: &Path, root: &Path, depth: usize, paths: &mut Vec<PathBuf>, errors: &mut Vec<CaseError>) {
    if depth > MAX_DEPTH {
        errors.push(whole(
            dir,
            code::CASE_LIMIT,
            format!("folders nest deeper than {MAX_DEPTH}"),
            "flatten the folder",
        ));
        return;
    }
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            errors.push(whole(dir, code::CASE_PATH, format!("cannot read the folder: {error}"), ""));
            return;
        }
    };
    let mut children: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    children.sort();
    for path in children {
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
            continue;
        }
        if path.is_dir() {
            let inside = path.canonicalize().is_ok_and(|real| real.starts_with(root));
            match inside {
                true if !path.is_symlink() => walk(&path, root, depth + 1, paths, errors),
                true => {} // A link to a folder inside: its files are found where they are.
                false => errors.push(whole(
                    &path,
                    code::CASE_PATH,
                    "the folder is a link that leaves the case folder",
                    "move the files inside",
                )),
            }
        } else if path.extension().is_some_and(|ext| ext == "fuse" || ext == "py") {
            collect_file(&path, root, paths, errors);
        }
    }
}

fn collect_file(path: &Path, root: &Path, paths: &mut Vec<PathBuf>, errors: &mut Vec<CaseError>) {
    match path.canonicalize() {
        Ok(real) if !real.starts_with(root) => {
            errors.push(whole(
                path,
                code::CASE_PATH,
                "the file is a link that leaves the case folder",
                "copy the file inside",
            ));
        }
        Ok(_) if paths.len() >= MAX_FILES => {
            if paths.len() == MAX_FILES {
                errors.push(whole(path, code::CASE_LIMIT, format!("more than {MAX_FILES} case files"), "join files"));
            }
        }
        Ok(_) => paths.push(path.to_path_buf()),
        Err(error) => errors.push(whole(path, code::CASE_PATH, format!("cannot open the file: {error}"), "")),
    }
}

/// The text of a case file, if it is one that may be read.
pub(crate) fn read(path: &Path, errors: &mut Vec<CaseError>) -> Option<Source> {
    let meta = std::fs::metadata(path).ok();
    if meta.as_ref().is_some_and(|meta| !meta.is_file()) {
        errors.push(whole(path, code::CASE_PATH, "not a regular file", ""));
        return None;
    }
    if let Some(len) = meta.map(|meta| meta.len()).filter(|len| *len > MAX_FILE_BYTES) {
        errors.push(whole(
            path,
            code::CASE_LIMIT,
            format!("the file has {len} bytes, more than {MAX_FILE_BYTES}"),
            "split it",
        ));
        return None;
    }
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            errors.push(whole(path, code::CASE_PATH, format!("cannot read the file: {error}"), ""));
            return None;
        }
    };
    match String::from_utf8(bytes) {
        Ok(text) => Some(Source::new(path.display().to_string(), text)),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            errors.push(whole(
                path,
                code::CASE_HEADER,
                format!("the file is not UTF-8 from byte {at} on"),
                "save it as UTF-8",
            ));
            None
        }
    }
}
