//! Finds case files and loads them all, within limits that are checked before
//! anything is used: no path outside the folder, bounded files, ids, bytes and
//! mistakes; nothing but regular files is opened for reading.
//!
//! Files are read and expanded on several threads, a few at a time, and taken in the
//! order of their paths: what comes out does not depend on the threads.

use super::expand::{Target, bytes_of, expand};
use super::model::Case;
use super::python;
use super::source::{CaseError, Source};
use crate::escape::escape;
use engine::diag::{Code, code};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a case file.
pub const MAX_FILE_BYTES: u64 = 1 << 20;
/// Expanded ids of all files.
pub const MAX_IDS: usize = 100_000;
/// Bytes of all cases of all files after substitution.
const MAX_BYTES: usize = 512 << 20;
const MAX_FILES: usize = 20_000;
/// Names of any kind below the case folder.
const MAX_ENTRIES: usize = 200_000;
const MAX_DEPTH: usize = 16;
/// Mistakes after which no further file is read.
const MAX_ERRORS: usize = 1000;
/// Threads that expand files, at most: with more, starting them takes as long as they save.
const MAX_THREADS: usize = 16;
/// As much as the first thread has: a file is read alike on any of them.
const STACK: usize = 8 << 20;
/// Files for each thread between two looks at the limits, and bytes of their cases after which no further one is
/// expanded before that.
const FILES_A_THREAD: usize = 4;
const BYTES_AHEAD: usize = 64 << 20;

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

/// Ids taken so far, with the case of each.
type Taken = HashMap<String, usize>;

/// Loads all `*.fuse` and `*.py` files below `dir`, or one file.
pub fn load(dir: &Path, target: Target) -> Loaded {
    let mut loaded = Loaded::default();
    let paths = files(dir, &mut loaded.errors);
    let mut taken = Taken::new();
    let mut crc = crc32fast::Hasher::new();
    let mut bytes = 0;
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(MAX_THREADS);
    'files: for some in paths.chunks(threads * FILES_A_THREAD) {
        for (path, file) in some.iter().zip(expand_ahead(some, threads, target)) {
            let file = file.into_inner().unwrap_or_else(|| ExpandedFile::of(path, target));
            bytes += file.bytes();
            loaded.errors.extend(file.errors);
            let Some(source) = file.source else { continue };
            loaded.files += 1;
            crc.update(source.display.as_bytes());
            crc.update(source.text.as_bytes());
            take(file.cases, &mut taken, &mut loaded);
            if let Some(message) = beyond(&loaded, bytes) {
                let note = "split the axes, or name a smaller folder or one file: --cases PATH";
                loaded.errors.push(whole(path, code::CASE_LIMIT, message, note));
                break 'files;
            }
        }
    }
    loaded.fingerprint = crc.finalize();
    loaded
}

/// The limit that all files together exceed, if they do.
fn beyond(loaded: &Loaded, bytes: usize) -> Option<String> {
    if loaded.cases.len() > MAX_IDS {
        Some(format!("the case folder expands to more than {MAX_IDS} ids"))
    } else if bytes > MAX_BYTES {
        Some(format!("the cases of the folder have more than {MAX_BYTES} bytes of text together"))
    } else if loaded.errors.len() > MAX_ERRORS {
        Some(format!("more than {MAX_ERRORS} mistakes: further files are not read"))
    } else {
        None
    }
}

/// A file that was read, as far as it could be.
#[derive(Default)]
struct ExpandedFile {
    source: Option<Source>,
    cases: Vec<Case>,
    errors: Vec<CaseError>,
}

impl ExpandedFile {
    fn of(path: &Path, target: Target) -> Self {
        let mut errors = Vec::new();
        let Some(source) = read(path, &mut errors) else { return Self { errors, ..Self::default() } };
        let (cases, more) = expand_any(&source, target);
        errors.extend(more);
        Self { source: Some(source), cases, errors }
    }

    /// Of its cases.
    fn bytes(&self) -> usize {
        self.cases.iter().map(bytes_of).sum()
    }
}

/// Some files, expanded on several threads; a place is empty where that would have been too much at a time.
fn expand_ahead(paths: &[PathBuf], threads: usize, target: Target) -> Vec<OnceLock<ExpandedFile>> {
    let done: Vec<OnceLock<ExpandedFile>> = paths.iter().map(|_| OnceLock::new()).collect();
    let (next, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while bytes.load(Ordering::Relaxed) < BYTES_AHEAD {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = paths.get(at) else { return };
            let file = ExpandedFile::of(path, target);
            bytes.fetch_add(file.bytes(), Ordering::Relaxed);
            let _ = done[at].set(file);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(paths.len()) {
            if std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    done
}

/// All `*.fuse` and `*.py` files below `dir`, or the one file, in order.
pub(crate) fn files(dir: &Path, errors: &mut Vec<CaseError>) -> Vec<PathBuf> {
    // A file that the user names may be a link to anywhere.
    if dir.is_file() {
        return vec![dir.to_path_buf()];
    }
    let root = match dir.canonicalize() {
        Ok(root) => root,
        Err(error) => {
            let note = "run in the root of the checkout, or name the folder: --cases DIR";
            errors.push(whole(dir, code::CASE_PATH, format!("cannot open the case folder: {error}"), note));
            return Vec::new();
        }
    };
    let mut walk = CaseWalk { root, paths: Vec::new(), entries: 0, errors };
    walk.folder(dir, 0);
    let mut paths = walk.paths;
    paths.sort();
    paths
}

/// Adds the cases whose ids are new.
fn take(cases: Vec<Case>, taken: &mut Taken, loaded: &mut Loaded) {
    for case in cases {
        match taken.entry(case.id.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(loaded.cases.len());
                loaded.cases.push(case);
            }
            Entry::Occupied(entry) => {
                let other = &loaded.cases[*entry.get()];
                let message = format!("the id `{}` is already taken by {}:{}", case.id, other.file, other.line);
                let note = "rename the suite, the fusion or an axis value";
                let mut error = whole(Path::new(&case.file), code::CASE_DUPLICATE, message, note);
                (error.line, error.col) = (case.line, 1);
                loaded.errors.push(error);
            }
        }
    }
}

fn expand_any(source: &Source, target: Target) -> (Vec<Case>, Vec<CaseError>) {
    if source.display.ends_with(".py") { python::expand(source) } else { expand(source, target) }
}

/// Expands one text that is in memory already.
pub(super) fn expand_one(source: &Source, target: Target) -> (Vec<Case>, Vec<CaseError>) {
    let mut loaded = Loaded::default();
    let (cases, errors) = expand_any(source, target);
    loaded.errors.extend(errors);
    take(cases, &mut Taken::new(), &mut loaded);
    (loaded.cases, loaded.errors)
}

fn whole(path: &Path, code: Code, message: impl Into<String>, note: &str) -> CaseError {
    let file = path.display().to_string();
    CaseError { file, line: 0, col: 0, code: code.0, message: message.into(), note: note.into() }
}

/// Collects the paths of case files below a folder.
struct CaseWalk<'a> {
    root: PathBuf,
    paths: Vec<PathBuf>,
    /// Names looked at.
    entries: usize,
    errors: &'a mut Vec<CaseError>,
}

impl CaseWalk<'_> {
    fn fail(&mut self, path: &Path, code: Code, message: impl Into<String>, note: &str) {
        self.errors.push(whole(path, code, message, note));
    }

    fn folder(&mut self, dir: &Path, depth: usize) {
        if depth > MAX_DEPTH {
            return self.fail(
                dir,
                code::CASE_LIMIT,
                format!("folders nest deeper than {MAX_DEPTH}"),
                "flatten the folder",
            );
        }
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) => {
                let note = "make it readable, or name another folder: --cases DIR";
                return self.fail(dir, code::CASE_PATH, format!("cannot read the folder: {error}"), note);
            }
        };
        let mut children = Vec::new();
        for entry in entries.flatten() {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                // Told once, and the walk ends.
                if self.entries == MAX_ENTRIES + 1 {
                    let message = format!("the case folder holds more than {MAX_ENTRIES} names");
                    self.fail(dir, code::CASE_LIMIT, message, "name a smaller folder: --cases DIR");
                }
                return;
            }
            if let (false, Ok(kind)) = (entry.file_name().as_encoded_bytes().starts_with(b"."), entry.file_type()) {
                children.push((entry.path(), kind));
            }
        }
        children.sort_by(|a, b| a.0.cmp(&b.0));
        for (path, kind) in children {
            let is_case = path.extension().is_some_and(|ext| ext == "fuse" || ext == "py");
            if kind.is_symlink() {
                self.link(&path, is_case);
            } else if kind.is_dir() {
                if self.named(&path) {
                    self.folder(&path, depth + 1);
                }
            } else if is_case {
                match kind.is_file() {
                    true => self.file(&path),
                    false => {
                        let note = "a pipe, socket or device is never read; remove it";
                        self.fail(&path, code::CASE_PATH, "not a regular file", note);
                    }
                }
            }
        }
    }

    /// A link may point to a file inside; a folder inside is found where it is.
    fn link(&mut self, path: &Path, is_case: bool) {
        match path.canonicalize() {
            Ok(real) if !real.starts_with(&self.root) => {
                let what = if real.is_dir() { "folder" } else { "file" };
                if is_case || real.is_dir() {
                    let message = format!("the {what} is a link that leaves the case folder");
                    self.fail(path, code::CASE_PATH, message, "copy what it points to inside");
                }
            }
            Ok(real) if is_case && !real.is_dir() => self.file(path),
            Ok(_) => {}
            Err(error) if is_case => {
                self.fail(path, code::CASE_PATH, format!("the link leads nowhere: {error}"), "remove it");
            }
            Err(_) => {}
        }
    }

    fn file(&mut self, path: &Path) {
        if !self.named(path) {
            return;
        }
        match self.paths.len() {
            0..MAX_FILES => self.paths.push(path.to_path_buf()),
            MAX_FILES if !self.errors.iter().any(|error| error.message.starts_with("more than")) => {
                self.fail(path, code::CASE_LIMIT, format!("more than {MAX_FILES} case files"), "join files");
            }
            _ => {}
        }
    }

    /// Whether the name can stand in messages, records and on command lines.
    fn named(&mut self, path: &Path) -> bool {
        let good = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| escape(name, "") == name);
        if !good {
            let message = "the name holds control characters or is not UTF-8";
            self.fail(path, code::CASE_PATH, message, "rename it");
        }
        good
    }
}

/// The text of a case file, if it is one that may be read. What is opened is
/// what is looked at, and a pipe does not make it wait.
pub(crate) fn read(path: &Path, errors: &mut Vec<CaseError>) -> Option<Source> {
    let mut fail = |code, message: String, note: &str| {
        errors.push(whole(path, code, message, note));
        None
    };
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let opened = std::fs::File::options().read(true).custom_flags(flags).open(path);
    let (file, meta) = match opened.and_then(|file| file.metadata().map(|meta| (file, meta))) {
        Ok(opened) => opened,
        Err(error) => {
            return fail(code::CASE_PATH, format!("cannot open the file: {error}"), "make it readable, or remove it");
        }
    };
    if !meta.is_file() {
        return fail(code::CASE_PATH, "not a regular file".into(), "a pipe, socket or device is never read; remove it");
    }
    if meta.len() > MAX_FILE_BYTES {
        let message = format!("the file has {} bytes, more than {MAX_FILE_BYTES}", meta.len());
        return fail(code::CASE_LIMIT, message, "split it");
    }
    let mut bytes = Vec::with_capacity(meta.len() as usize);
    if let Err(error) = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes) {
        return fail(code::CASE_PATH, format!("cannot read the file: {error}"), "make it readable, or remove it");
    }
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return fail(code::CASE_LIMIT, format!("the file has more than {MAX_FILE_BYTES} bytes"), "split it");
    }
    match String::from_utf8(bytes) {
        Ok(text) => Some(Source::new(path.display().to_string(), text)),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            fail(code::CASE_HEADER, format!("the file is not UTF-8 from byte {at} on"), "save it as UTF-8")
        }
    }
}
