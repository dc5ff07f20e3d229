//! `events.jsonl`: the writer.
//!
//! Each line is `{"v":1,"seq":N,"t_ns":N,"k":"...",...,"crc":"8 hex digits"}`,
//! where the checksum is the CRC-32 of all bytes of the line before `,"crc"`.
//!
//! Invariants: a record is one write; what a kill of this process leaves behind
//! is whole records and at most one torn line at the end. A record that cannot be
//! written leaves no bytes, only a gap in the sequence, and does not stop the
//! next ones: a disk may be full for a moment only.

use super::syncer::Syncer;
use serde::Serialize;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Version of the record schema.
pub(crate) const SCHEMA: u32 = 1;
/// After a failed write the next records are counted as lost for so long.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the log asks whether its file is still where it was.
const LOOK: Duration = Duration::from_secs(1);
/// Milliseconds that somebody else's lock on a new log is waited for.
const LOCK_TRIES: u32 = 200;

/// The log of a run that is under way. While it lives, its file is locked: tools
/// that mend or remove runs keep off.
#[derive(Debug)]
pub struct EventLog {
    file: File,
    path: PathBuf,
    seq: u64,
    start: Instant,
    /// Bytes of whole records.
    whole: u64,
    /// Bytes of a failed write could not be taken back.
    soiled: bool,
    lost: u64,
    /// No write is tried before.
    resume_at: Option<Instant>,
    looked: Instant,
    /// The folder was removed while the run went on.
    removed: bool,
    syncer: Syncer,
    line: Vec<u8>,
}

impl EventLog {
    /// Makes a new log; an existing file is an error.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = open_locked(path)?;
        let syncer = Syncer::start(&file);
        let now = Instant::now();
        Ok(Self {
            file,
            path: path.to_path_buf(),
            seq: 0,
            start: now,
            whole: 0,
            soiled: false,
            lost: 0,
            resume_at: None,
            looked: now,
            removed: false,
            syncer,
            line: Vec::new(),
        })
    }

    /// Appends one record in one write.
    pub fn append(&mut self, kind: &str, fields: &impl Serialize) -> io::Result<()> {
        let seq = self.seq;
        self.seq += 1;
        let result = self.try_append(seq, kind, fields);
        self.lost += u64::from(result.is_err());
        result
    }

    fn try_append(&mut self, seq: u64, kind: &str, fields: &impl Serialize) -> io::Result<()> {
        let now = Instant::now();
        if self.resume_at.is_some_and(|at| now < at) {
            return Err(io::Error::other("the write before failed"));
        }
        if now.duration_since(self.looked) >= LOOK {
            if let Err(error) = self.look() {
                // What is written before it is there again would be lost without being counted.
                self.resume_at = Some(now + PAUSE);
                return Err(error);
            }
            self.looked = now;
        }
        let t_ns = now.duration_since(self.start).as_nanos() as u64;
        let mut line = std::mem::take(&mut self.line);
        let result = render(&mut line, seq, t_ns, kind, fields).and_then(|()| self.write(&line));
        self.line = line;
        match result {
            Ok(()) => {
                self.resume_at = None;
                self.syncer.wrote();
                Ok(())
            }
            Err(error) => {
                self.resume_at = Some(now + PAUSE);
                Err(error)
            }
        }
    }

    /// One write. What a failed one left is cut off again.
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.soiled {
            self.file.write_all(b"\n")?;
            self.soiled = false;
            self.whole = self.file.metadata()?.len();
        }
        let result = self.file.write_all(line);
        match &result {
            Ok(()) => self.whole += line.len() as u64,
            Err(_) => self.soiled = self.file.set_len(self.whole).is_err(),
        }
        result
    }

    /// Writes the log again if its folder was removed.
    fn look(&mut self) -> io::Result<()> {
        if self.file.metadata()?.nlink() > 0 {
            return Ok(());
        }
        self.removed = true;
        if let Some(dir) = self.path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let mut fresh = open_locked(&self.path)?;
        let copied = self.file.try_clone().and_then(|mut old| {
            old.seek(SeekFrom::Start(0))?;
            io::copy(&mut old.take(self.whole), &mut fresh)
        });
        // A part of the log would keep the next try from making it.
        copied.inspect_err(|_| drop(std::fs::remove_file(&self.path)))?;
        self.syncer = Syncer::start(&fresh);
        self.file = fresh;
        Ok(())
    }

    /// Makes what was written survive a power cut, soon and without waiting.
    pub fn sync_soon(&self) {
        self.syncer.now();
    }

    /// The last word: tries to write even right after a failure, and waits until
    /// everything is on the disk.
    pub fn end(&mut self, fields: &impl Serialize) -> io::Result<()> {
        self.resume_at = None;
        if let Err(error) = self.look() {
            // The file has no name: nothing of it is left.
            self.seq += 1;
            self.lost = self.seq;
            return Err(error);
        }
        self.append("end", fields)?;
        self.file.sync_data()?;
        self.syncer.error().map_or(Ok(()), Err)
    }

    /// Records that could not be written.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Records that were to be written.
    pub fn due(&self) -> u64 {
        self.seq
    }

    /// Whether the folder was removed, and the log written again.
    pub fn removed(&self) -> bool {
        self.removed
    }
}

fn open_locked(path: &Path) -> io::Result<File> {
    let file = File::options().create_new(true).read(true).append(true).open(path)?;
    lock(&file);
    Ok(file)
}

/// Locks a log. Who asks whether a run lives holds a shared lock for a moment:
/// that is waited for. Where locks are not supported, tools see a run without
/// one: only its age tells them that it lives.
fn lock(file: &File) {
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            Ok(()) | Err(TryLockError::Error(_)) => break,
        }
    }
}

/// The bytes of one record.
pub(super) fn render(line: &mut Vec<u8>, seq: u64, t_ns: u64, kind: &str, fields: &impl Serialize) -> io::Result<()> {
    line.clear();
    write!(line, "{{\"v\":{SCHEMA},\"seq\":{seq},\"t_ns\":{t_ns},\"k\":\"{kind}\"")?;
    let at = line.len();
    serde_json::to_writer(&mut *line, fields)?;
    if line.get(at) != Some(&b'{') || line.last() != Some(&b'}') {
        return Err(io::Error::other("a record must be an object"));
    }
    line.pop();
    // The object's opening brace becomes the comma behind the kind.
    match line.len() > at + 1 {
        true => line[at] = b',',
        false => line.truncate(at),
    }
    let crc = crc32fast::hash(line);
    writeln!(line, ",\"crc\":\"{crc:08x}\"}}")
}

#[cfg(test)]
mod tests {
    use super::super::reader::read;
    use super::*;
    use crate::scratch::Scratch;
    use serde_json::json;

    /// The place of a log, in a folder below the test's own.
    fn place(name: &str) -> (Scratch, PathBuf) {
        let own = Scratch::new(&format!("events-{name}"));
        let path = own.join("log/events.jsonl");
        std::fs::create_dir(path.parent().expect("a folder")).expect("makes");
        (own, path)
    }

    fn remove(path: &Path) {
        std::fs::remove_dir_all(path.parent().expect("a folder")).expect("removes");
    }

    #[test]
    fn records_of_any_form_come_back() {
        let (_own, path) = place("forms");
        let mut log = EventLog::create(&path).expect("creates");
        log.append("empty", &json!({})).expect("writes");
        log.append("full", &json!({ "text": "x\n\",\"crc\":\"", "n": u64::MAX })).expect("writes");
        log.append("list", &json!([1])).expect_err("no object");
        log.resume_at = None;
        log.append("last", &json!({ "none": null })).expect("writes");
        let events = read(&path).expect("reads");
        let kinds: Vec<_> = events.records.iter().map(|r| r["k"].as_str().expect("a kind")).collect();
        assert_eq!(kinds, ["empty", "full", "last"]);
        assert_eq!(events.records[1]["n"], u64::MAX);
        assert_eq!((log.lost(), log.due()), (1, 4));
    }

    #[test]
    fn a_removed_folder_is_written_again() {
        let (_own, path) = place("removed");
        let mut log = EventLog::create(&path).expect("creates");
        log.append("first", &json!({})).expect("writes");
        remove(&path);
        log.append("second", &json!({})).expect("writes");
        log.end(&json!({})).expect("ends");
        let events = read(&path).expect("reads");
        assert_eq!((events.records.len(), events.problems.len(), log.removed()), (3, 0, true));
    }

    #[test]
    fn records_that_would_go_nowhere_are_counted() {
        let (_own, path) = place("nowhere");
        let dir = path.parent().expect("a folder");
        let mut log = EventLog::create(&path).expect("creates");
        log.append("first", &json!({})).expect("writes");
        remove(&path);
        std::fs::write(dir, "in the way").expect("writes");
        log.looked -= LOOK;
        log.append("second", &json!({})).expect_err("has no place");
        log.append("third", &json!({})).expect_err("neither");
        assert_eq!(log.lost(), 2);
        std::fs::remove_file(dir).expect("removes");
        log.resume_at = None;
        log.append("fourth", &json!({})).expect("writes");
        let events = read(&path).expect("reads");
        let kinds: Vec<_> = events.records.iter().map(|r| r["k"].as_str().expect("a kind")).collect();
        assert_eq!((kinds, log.lost()), (vec!["first", "fourth"], 2));
        remove(&path);
        std::fs::write(dir, "in the way").expect("writes");
        log.end(&json!({})).expect_err("has no place");
        assert_eq!((log.lost(), log.due()), (5, 5));
    }

    #[test]
    fn a_log_is_locked_although_somebody_looks_at_it() {
        let (_own, path) = place("looked");
        let (file, other) = (File::create(&path).expect("creates"), File::open(&path).expect("opens"));
        other.try_lock_shared().expect("locks");
        let held = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            drop(other);
        });
        super::lock(&file);
        held.join().expect("ends");
        assert!(File::open(&path).expect("opens").try_lock_shared().is_err());
    }

    #[test]
    fn a_log_in_use_is_locked_until_its_process_lets_go() {
        let (_own, path) = place("lock");
        let log = EventLog::create(&path).expect("creates");
        let other = File::open(&path).expect("opens");
        assert!(other.try_lock().is_err());
        drop(log);
        // The thread that syncs lets go a moment later.
        other.lock().expect("is free");
    }
}
