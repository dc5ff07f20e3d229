//! The end of a command that ran cases: the last record, the exit code, and the
//! lines that say where the record is.

use crate::exit;
use crate::record::{RunStore, utc_stamp};
use serde_json::{Value, json};
use std::time::Instant;

/// What a command came to.
pub(super) struct CommandEnd {
    pub(super) code: u8,
    pub(super) elapsed_ns: u64,
    /// What workers shared, whether a signal stopped it, and where its record is, for people.
    pub(super) text: String,
}

/// Ends the record with the command's own `summary`. A signal (`stopped`, 0 for
/// none) outranks the command's exit code, which a record that is not complete may
/// outrank.
pub(super) fn end(store: &mut RunStore, stopped: usize, started: Instant, code: u8, summary: Value) -> CommandEnd {
    let code = match stopped {
        0 => code,
        signal => exit::SIGNAL_BASE + signal as u8,
    };
    let elapsed_ns = started.elapsed().as_nanos() as u64;
    let mut fields = json!({ "exit_code": code, "elapsed_ns": elapsed_ns, "ended": utc_stamp(false) });
    if let (Some(fields), Value::Object(more)) = (fields.as_object_mut(), summary) {
        fields.extend(more);
    }
    store.finish(if stopped == 0 { "complete" } else { "aborted" }, &fields);
    let mut text = store.shared_text();
    if stopped != 0 {
        text.push_str(&format!("stopped by signal {stopped}\n"));
    }
    let code = match store.error() {
        None => {
            text.push_str(&format!("record {}\n", store.dir().display()));
            code
        }
        Some(error) => {
            text.push_str(&format!("the record in {} is not complete: {error}\n", store.root().display()));
            without_record(code)
        }
    };
    CommandEnd { code, elapsed_ns, text }
}

/// The exit code where a record or a report could not be written: that outranks
/// all that is not a failure.
pub(super) fn without_record(code: u8) -> u8 {
    if code < exit::INFRA { exit::NO_RECORD } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_signal_and_a_record_that_is_not_there_outrank_success() {
        let root = Scratch::new("ending");
        let file = root.join("file");
        std::fs::write(&file, "no folder").expect("writes");
        let check = |results: &std::path::Path, stopped, code, wanted: (u8, &str)| {
            let mut store = RunStore::create(results, crate::record::Header::default());
            let ended = end(&mut store, stopped, Instant::now(), code, json!({ "more": 1 }));
            assert_eq!(ended.code, wanted.0, "{}", ended.text);
            assert!(ended.text.contains(wanted.1), "{}", ended.text);
            store
        };
        let store = check(&root.join("results"), 0, exit::OK, (exit::OK, "record "));
        let events = crate::record::read_events(&store.dir().join("events.jsonl")).expect("reads");
        let last = &events.records[events.records.len() - 1];
        let summary = &last["summary"];
        assert_eq!(
            (&last["status"], &summary["exit_code"], &summary["more"]),
            (&"complete".into(), &0.into(), &1.into())
        );
        check(&root.join("results"), 2, exit::FAILED, (130, "stopped by signal 2\nrecord "));
        check(&file, 0, exit::OK, (exit::NO_RECORD, "is not complete"));
        check(&file, 0, exit::FAILED, (exit::FAILED, "is not complete"));
    }
}
