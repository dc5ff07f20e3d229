//! A run as Markdown: for a job summary, a pull request, an issue.

mod costs;

use super::{passed_text, width};
use crate::record::{Recorded, is_failure};
use crate::units::{show_seconds, show_time};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Rows of a table; the record has all.
const ROWS: usize = 50;
const SLOWEST: usize = 10;
/// Columns of a reason.
const REASON: usize = 160;

/// The summary of a run. `repro` gives the command that repeats a case.
pub(crate) fn markdown(run: &Recorded, repro: impl Fn(&str) -> String) -> String {
    if run.explores() {
        return explored(run, &repro);
    }
    let counts = run.counts();
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    let mut text = format!("## {} {}\n\n", code(run.id()), run.word());
    let order = ["pass", "fail", "crash", "hang", "flaky", "quarantined", "skip", "infra"];
    let shown: Vec<&str> = order.into_iter().filter(|name| count(name) > 0).collect();
    let _ = writeln!(text, "| cases | {} | time |", shown.join(" | "));
    let _ = writeln!(text, "|{}", " ---: |".repeat(shown.len() + 2));
    let figures: Vec<String> = shown.iter().map(|name| count(name).to_string()).collect();
    let _ = writeln!(text, "| {} | {} | {} |\n", run.cases.len(), figures.join(" | "), show_seconds(run.elapsed_ns()));
    if let Some(passed) = passed_text(&run.passed_by(), count("pass")) {
        let _ = writeln!(text, "{}.\n", plain(&sentence(&passed)));
    }
    let open = run.without_verdict().len() as u64 + run.unnamed();
    if open > 0 {
        let all = run.selected.len() as u64 + run.unnamed();
        let _ = writeln!(text, "{}: {} of {all} selected cases came to a verdict.\n", plain(run.status()), all - open);
    }
    section(&mut text, run, "Failed", &["infra", "hang", "crash", "fail"], Some(&repro));
    costs::left_out(&mut text, run);
    costs::regressions(&mut text, run);
    section(&mut text, run, "Flaky", &["flaky"], Some(&repro));
    section(&mut text, run, "Quarantined", &["quarantined"], None::<&fn(&str) -> String>);
    skipped(&mut text, run);
    slowest(&mut text, run);
    provenance(&mut text, run);
    text
}

/// Of a hunt what it found, and of others that try cases out what was seen: they
/// come to no verdicts.
fn explored(run: &Recorded, repro: &impl Fn(&str) -> String) -> String {
    let mode = run.header.mode();
    let mut text = format!("## {} {} {}\n\n", code(run.id()), plain(mode), plain(run.status()));
    let _ = writeln!(text, "| case | finding | failed | of attempts | by |\n| --- | --- | ---: | ---: | --- |");
    let failures = |id: &String| run.cases[id].failures();
    let mut cases: Vec<&String> = run.cases.keys().collect();
    cases.sort_by_key(|id| std::cmp::Reverse(failures(id)));
    for id in cases.iter().take(ROWS) {
        let case = &run.cases[*id];
        let finding = run.hunted(id).and_then(|found| found["finding"].as_str()).unwrap_or("-");
        let failed = case.attempts.iter().find(|attempt| is_failure(&attempt.verdict));
        let by = failed.map_or(String::new(), |attempt| code(&attempt.outcome));
        let (failed, tried) = (case.failures(), case.tried());
        let _ = writeln!(text, "| {} | {} | {failed} | {tried} | {by} |", code(id), plain(finding));
    }
    if let Some(more) = cases.len().checked_sub(ROWS).filter(|more| *more > 0) {
        let _ = writeln!(text, "\nand {more} more.");
    }
    if let Some(id) = cases.first().filter(|id| failures(id) > 0) {
        let _ = writeln!(text, "\nAgain, the first:\n\n```sh\n{}\n```", repro(id));
    }
    text.push('\n');
    provenance(&mut text, run);
    text
}

fn section(text: &mut String, run: &Recorded, title: &str, verdicts: &[&str], repro: Option<&impl Fn(&str) -> String>) {
    let of = |verdict: &str| verdicts.iter().position(|known| *known == verdict);
    let mut cases: Vec<_> = run.cases.iter().filter(|(_, case)| of(case.verdict().0).is_some()).collect();
    if cases.is_empty() {
        return;
    }
    cases.sort_by_key(|(_, case)| of(case.verdict().0));
    let _ = writeln!(text, "### {title}\n\n| case | outcome | attempts | why |\n| --- | --- | ---: | --- |");
    for (id, case) in cases.iter().take(ROWS) {
        let (_, outcome, detail) = case.verdict();
        let (tried, failures) = (case.tried(), case.failures());
        let attempts = if tried > 1 { format!("{failures} of {tried} failed") } else { tried.to_string() };
        let why = width::cut(detail.lines().next().unwrap_or_default(), REASON);
        let _ = writeln!(text, "| {} | {} | {attempts} | {} |", code(id), code(outcome), plain(&why));
    }
    if let Some(more) = cases.len().checked_sub(ROWS).filter(|more| *more > 0) {
        let _ = writeln!(text, "\nand {more} more.");
    }
    if let (Some(repro), Some((id, _))) = (repro, cases.first()) {
        let _ = writeln!(text, "\nAgain, the first:\n\n```sh\n{}\n```", repro(id));
    }
    text.push('\n');
}

/// With a capital.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

fn skipped(text: &mut String, run: &Recorded) {
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    for case in run.cases.values() {
        let (verdict, outcome, detail) = case.verdict();
        if verdict == "skip" {
            *reasons.entry(format!("{outcome}: {}", detail.lines().next().unwrap_or_default())).or_default() += 1;
        }
    }
    if reasons.is_empty() {
        return;
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let _ = writeln!(text, "### Skipped\n\n| cases | why |\n| ---: | --- |");
    for (reason, count) in reasons.iter().take(ROWS) {
        let _ = writeln!(text, "| {count} | {} |", plain(&width::cut(reason, REASON)));
    }
    text.push('\n');
}

fn slowest(text: &mut String, run: &Recorded) {
    let mut cases: Vec<_> = run.cases.iter().map(|(id, case)| (case.dur_ns(), id)).collect();
    cases.sort_by(|a, b| b.cmp(a));
    let _ = writeln!(text, "<details><summary>Slowest</summary>\n\n| case | time |\n| --- | ---: |");
    for (ns, id) in cases.iter().take(SLOWEST) {
        let _ = writeln!(text, "| {} | {} |", code(id), show_time(*ns));
    }
    text.push_str("\n</details>\n\n");
}

fn provenance(text: &mut String, run: &Recorded) {
    let header = &run.header;
    let source = header.provenance.clone().unwrap_or_default();
    let commit = source.git_sha.map(|sha| {
        let dirty = if source.git_dirty == Some(true) { " with local changes" } else { "" };
        format!("commit {}{dirty}", code(&sha.chars().take(12).collect::<String>()))
    });
    let seed = header.seed.map(|seed| format!("seed {seed}"));
    let device = run.device().map(|device| plain(&device));
    let host = source.host.map(|host| plain(&host));
    let parts: Vec<String> = [device, commit, seed, host, header.started_utc.clone()].into_iter().flatten().collect();
    let _ = writeln!(text, "{}", parts.join(", "));
    if !run.health.is_whole() {
        let _ = writeln!(
            text,
            "\nThe record is damaged: {} lines, {} records missing.",
            run.health.damaged, run.health.missing
        );
    }
    if let Some(error) = &header.record_error {
        let _ = writeln!(text, "\nThe record is not complete: {}", plain(error));
    }
}

/// Text in a code span within a table.
pub(super) fn code(text: &str) -> String {
    let safe = crate::escape::escape(text, "").replace('`', "'").replace('|', "\\|");
    format!("`{safe}`")
}

/// Text that Markdown and HTML leave alone.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in crate::escape::escape(text, "").chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' | '~' | '@' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Header;
    use serde_json::json;

    #[test]
    fn a_damaged_header_is_shown_as_far_as_it_goes() {
        let header = Header::of(json!({ "provenance": { "git_sha": "aüüüüüüüüüüüüüüü" } })).expect("an object");
        let text = markdown(&Recorded { header, ..Recorded::default() }, |_| String::new());
        assert!(text.contains("commit `aüüüüüüüüüüü`"), "{text}");
    }
}
