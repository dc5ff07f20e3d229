//! `events.jsonl`: writer and reader.
//!
//! Each line is `{"v":1,"seq":N,"t_ns":N,"k":"...",...,"crc":"8 hex digits"}`,
//! where the checksum is the CRC-32 of all bytes of the line before `,"crc"`.

use crate::crc::crc32;
use serde::Serialize;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

/// Version of the record schema.
pub(crate) const SCHEMA: u32 = 1;

/// The log of a run that is under way.
pub(crate) struct EventLog {
    file: File,
    seq: u64,
    start: Instant,
}

impl EventLog {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().create_new(true).append(true).open(path)?;
        Ok(Self { file, seq: 0, start: Instant::now() })
    }

    /// Appends one record in one write.
    pub(crate) fn append(&mut self, kind: &str, fields: &impl Serialize) -> io::Result<()> {
        let t_ns = self.start.elapsed().as_nanos() as u64;
        let line = line(self.seq, t_ns, kind, fields)?;
        self.file.write_all(line.as_bytes())?;
        self.seq += 1;
        Ok(())
    }

    /// Makes what was written survive a power cut.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn line(seq: u64, t_ns: u64, kind: &str, fields: &impl Serialize) -> io::Result<String> {
    let body = serde_json::to_string(fields)?;
    let inner = body.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let inner = inner.ok_or_else(|| io::Error::other("a record must be an object"))?;
    let comma = if inner.is_empty() { "" } else { "," };
    let head = format!("{{\"v\":{SCHEMA},\"seq\":{seq},\"t_ns\":{t_ns},\"k\":\"{kind}\"{comma}{inner}");
    let crc = crc32(head.as_bytes());
    Ok(format!("{head},\"crc\":\"{crc:08x}\"}}\n"))
}

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

/// Reads a log. A torn last line is not a problem, a damaged line is; a newer
/// schema is refused.
pub fn read(path: &Path) -> io::Result<Events> {
    let bytes = std::fs::read(path)?;
    let mut events = Events::default();
    let mut wanted = 0;
    for (number, raw) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
        let Some(raw) = raw.strip_suffix(b"\n") else {
            events.torn = true;
            break;
        };
        match check(raw) {
            Ok(record) => {
                if record["v"].as_u64().is_none_or(|v| v > u64::from(SCHEMA)) {
                    let message = format!("line {}: schema {} is newer than {SCHEMA}", number + 1, record["v"]);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                }
                let seq = record["seq"].as_u64().unwrap_or(u64::MAX);
                if seq != wanted {
                    events.problems.push(format!("line {}: sequence {seq} where {wanted} was due", number + 1));
                }
                wanted = seq.wrapping_add(1);
                events.records.push(record);
            }
            Err(what) => {
                events.problems.push(format!("line {}: {what}", number + 1));
                wanted += 1;
            }
        }
    }
    Ok(events)
}

fn check(raw: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(raw).map_err(|_| "not UTF-8")?;
    let (head, tail) = text.rsplit_once(",\"crc\":\"").ok_or("no checksum")?;
    let claimed =
        tail.strip_suffix("\"}").and_then(|hex| u32::from_str_radix(hex, 16).ok()).ok_or("malformed checksum")?;
    if crc32(head.as_bytes()) != claimed {
        return Err("wrong checksum".into());
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn log(name: &str) -> (std::path::PathBuf, Vec<u8>) {
        let path = std::env::temp_dir().join(format!("harness-events-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut log = EventLog::create(&path).expect("creates");
        for i in 0..5 {
            log.append("attempt", &json!({ "case_id": format!("A.b/ü={i}"), "detail": "x\n\",\"crc\":\"", "n": i }))
                .expect("writes");
        }
        log.append("end", &json!({})).expect("writes");
        let bytes = std::fs::read(&path).expect("reads");
        (path, bytes)
    }

    #[test]
    fn readable_after_a_cut_at_any_byte() {
        let (path, bytes) = log("cut");
        for cut in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..cut]).expect("writes");
            let events = read(&path).expect("reads");
            let whole = bytes[..cut].iter().filter(|b| **b == b'\n').count();
            assert_eq!((events.records.len(), events.problems.len()), (whole, 0), "cut at {cut}");
        }
        std::fs::remove_file(&path).expect("removes");
    }

    #[test]
    fn a_flipped_byte_costs_one_record() {
        let (path, bytes) = log("flip");
        for at in (0..bytes.len()).step_by(7).filter(|at| bytes[*at] != b'\n') {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).expect("writes");
            let Ok(events) = read(&path) else { continue };
            assert!(!events.problems.is_empty(), "flip at {at}");
            assert!(events.records.len() >= 4, "flip at {at}: {:?}", events.problems);
        }
        std::fs::remove_file(&path).expect("removes");
    }
}
