//! `events.jsonl`: the reader. It takes what is whole and says what is lost.

use super::events::SCHEMA;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// A longer line is damage: no record comes near it.
const MAX_LINE: u64 = 64 << 20;
/// Problems that are spelled out; the others are counted.
const MAX_PROBLEMS: usize = 100;

/// What is in a log.
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// Records whose checksum is right, in order.
    pub records: Vec<Value>,
    /// What is wrong with the others, by line.
    pub problems: Vec<String>,
    /// Whether the last line was cut off, as a kill in the middle of a write leaves it.
    pub torn: bool,
}

/// What is known of a log apart from its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    /// Whole records.
    pub(crate) records: u64,
    /// Lines that are no record.
    pub(crate) damaged: u64,
    /// Sequence numbers that no record has, and that no mending declared.
    pub(crate) missing: u64,
    /// Such numbers that a mending declared: lost, and known to be.
    pub(crate) mended: u64,
    /// The last line was cut off.
    pub(crate) torn: bool,
    /// The sequence number behind the last record.
    pub(crate) next: u64,
    /// Ranges of missing numbers, the first and the one behind the last.
    pub(crate) gaps: Vec<(u64, u64)>,
    /// The first of the problems, for people.
    pub(crate) problems: Vec<String>,
}

impl Health {
    /// Nothing is lost but what a kill may cut off.
    pub(crate) fn is_whole(&self) -> bool {
        self.damaged == 0 && self.missing == 0
    }

    fn problem(&mut self, text: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(text);
        }
    }

    /// Follows the sequence.
    fn follow(&mut self, line: u64, record: &Value) {
        let seq = record["seq"].as_u64().unwrap_or(u64::MAX);
        if seq > self.next {
            self.gaps.push((self.next, seq));
        } else if seq < self.next {
            self.problem(format!("line {line}: sequence {seq} where {} was due", self.next));
        }
        self.next = seq.wrapping_add(1);
        self.records += 1;
    }

    /// Tells gaps that were declared from those that were not.
    fn close(&mut self, declared: &BTreeSet<(u64, u64)>) {
        for (from, to) in self.gaps.clone() {
            if declared.contains(&(from, to)) {
                self.mended = self.mended.saturating_add(to - from);
                continue;
            }
            self.missing = self.missing.saturating_add(to - from);
            self.problem(match to - from {
                1 => format!("record {from} is missing"),
                _ => format!("records {from} to {} are missing", to - 1),
            });
        }
    }
}

/// Reads a log. A torn last line is not a problem, a damaged line is; a newer
/// schema is refused.
pub fn read(path: &Path) -> io::Result<Events> {
    let mut records = Vec::new();
    let health = scan(path, |record| records.push(record))?;
    Ok(Events { records, problems: health.problems, torn: health.torn })
}

/// The first record of a log, without reading the others.
pub(super) fn first_record(path: &Path) -> Option<Value> {
    let mut line = Vec::new();
    BufReader::new(File::open(path).ok()?).take(MAX_LINE).read_until(b'\n', &mut line).ok()?;
    check(line.strip_suffix(b"\n")?).ok()
}

/// Reads a log record by record.
pub(crate) fn scan(path: &Path, mut each: impl FnMut(Value)) -> io::Result<Health> {
    scan_lines(path, |_, record| {
        if let Some(record) = record {
            each(record);
        }
    })
}

/// Reads a log line by line: the bytes with their end of line, and the record if they are one.
pub(super) fn scan_lines(path: &Path, mut each: impl FnMut(&[u8], Option<Value>)) -> io::Result<Health> {
    let mut reader = BufReader::new(File::open(path)?);
    let (mut health, mut declared) = (Health::default(), BTreeSet::new());
    let (mut number, mut raw) = (0u64, Vec::new());
    loop {
        raw.clear();
        if (&mut reader).take(MAX_LINE).read_until(b'\n', &mut raw)? == 0 {
            break;
        }
        number += 1;
        let checked = match raw.strip_suffix(b"\n") {
            Some(line) => check(line),
            None if raw.len() as u64 == MAX_LINE => {
                skip_line(&mut reader)?;
                Err(format!("longer than {MAX_LINE} bytes"))
            }
            None => {
                health.torn = true;
                each(&raw, None);
                break;
            }
        };
        match checked {
            Ok(record) => {
                if record["v"].as_u64().is_none_or(|v| v > u64::from(SCHEMA)) {
                    let message = format!("line {number}: schema {} is newer than {SCHEMA}", record["v"]);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                }
                if record["k"] == "repair" {
                    declared.extend(declared_gaps(&record));
                }
                health.follow(number, &record);
                each(&raw, Some(record));
            }
            Err(what) => {
                health.damaged += 1;
                health.problem(format!("line {number}: {what}"));
                each(&raw, None);
            }
        }
    }
    health.close(&declared);
    Ok(health)
}

fn declared_gaps(record: &Value) -> Vec<(u64, u64)> {
    let gaps = record["gaps"].as_array().map(Vec::as_slice).unwrap_or_default();
    gaps.iter().filter_map(|gap| Some((gap[0].as_u64()?, gap[1].as_u64()?))).collect()
}

/// Reads over the rest of a line.
fn skip_line(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        let (len, found) = match buffer.iter().position(|b| *b == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        reader.consume(len);
        if found {
            return Ok(());
        }
    }
}

fn check(raw: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(raw).map_err(|_| "not UTF-8")?;
    let (head, tail) = text.rsplit_once(",\"crc\":\"").ok_or("no checksum")?;
    let claimed =
        tail.strip_suffix("\"}").and_then(|hex| u32::from_str_radix(hex, 16).ok()).ok_or("malformed checksum")?;
    if crc32fast::hash(head.as_bytes()) != claimed {
        return Err("wrong checksum".into());
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::events::EventLog;
    use super::*;
    use crate::scratch::Scratch;
    use serde_json::json;

    /// A log in a folder of its own, and its bytes.
    fn log(name: &str) -> (Scratch, std::path::PathBuf, Vec<u8>) {
        let dir = Scratch::new(&format!("reader-{name}"));
        let path = dir.join("events.jsonl");
        let mut log = EventLog::create(&path).expect("creates");
        for i in 0..5 {
            let fields = json!({ "case_id": format!("A.b/ü={i}"), "detail": "x\n\",\"crc\":\"", "n": i });
            log.append("attempt", &fields).expect("writes");
        }
        log.append("end", &json!({})).expect("writes");
        let bytes = std::fs::read(&path).expect("reads");
        (dir, path, bytes)
    }

    #[test]
    fn readable_after_a_cut_at_any_byte() {
        let (_dir, path, bytes) = log("cut");
        for cut in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..cut]).expect("writes");
            let events = read(&path).expect("reads");
            let whole = bytes[..cut].iter().filter(|b| **b == b'\n').count();
            assert_eq!((events.records.len(), events.problems.len()), (whole, 0), "cut at {cut}");
            assert_eq!(events.torn, cut > 0 && bytes[cut - 1] != b'\n', "cut at {cut}");
        }
    }

    #[test]
    fn a_flipped_byte_costs_one_record() {
        let (_dir, path, bytes) = log("flip");
        for at in (0..bytes.len()).step_by(7).filter(|at| bytes[*at] != b'\n') {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).expect("writes");
            let events = read(&path).expect("reads");
            assert!(!events.problems.is_empty(), "flip at {at}");
            assert!(events.records.len() >= 4, "flip at {at}: {:?}", events.problems);
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let (_dir, path, good) = log("any");
        crate::property::property(|u| {
            let mut bytes = good.clone();
            for _ in 0..u.int_in_range(1..=8usize)? {
                let at = u.choose_index(bytes.len())?;
                bytes[at] = u.arbitrary()?;
            }
            bytes.truncate(u.int_in_range(0..=bytes.len())?);
            std::fs::write(&path, &bytes).expect("writes");
            if let Ok(events) = read(&path) {
                // Only whole records come back.
                assert!(events.records.iter().all(|r| matches!(r["k"].as_str(), Some("attempt" | "end"))));
            }
            Ok(())
        })
        .cases(1000);
    }
}
