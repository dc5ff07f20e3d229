//! JUnit XML: a suite for each suite of cases, flaky cases as nextest and Maven
//! write them. Whatever workers printed, the result is well-formed XML 1.0.

use crate::outcome::PassedBy;
use crate::record::{Attempt, Concluded, Recorded, RecordedCase, is_failure};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Bytes of one captured stream or reason.
const MAX_TEXT: usize = 64 << 10;

/// The report of a run.
pub(crate) fn junit(run: &Recorded) -> String {
    let mut suites: BTreeMap<&str, Vec<(&str, &RecordedCase)>> = BTreeMap::new();
    let open = not_reached(run);
    let judged = run.cases.iter().filter(|(id, _)| !open.contains_key(*id));
    let cases: BTreeMap<&String, &RecordedCase> = judged.chain(&open).collect();
    for (id, case) in &cases {
        let (suite, name) = id.split_once('.').unwrap_or(("", id));
        suites.entry(suite).or_default().push((name, case));
    }
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let all = SuiteTally::of(cases.into_values(), flaky_fails(run));
    let stamp = run.header.started_utc.as_deref().unwrap_or_default();
    let elapsed = seconds(run.elapsed_ns());
    let _ = writeln!(
        text,
        "<testsuites name={} tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{elapsed}\" timestamp={}>",
        attribute(run.id()),
        all.tests,
        all.failures,
        all.errors,
        attribute(stamp)
    );
    for (suite, cases) in suites {
        self::suite(&mut text, run, suite, &cases, stamp);
    }
    text.push_str("</testsuites>\n");
    text
}

/// What was selected and has no verdict is an error: a report of half a run must not
/// look like one of all of it.
fn not_reached(run: &Recorded) -> BTreeMap<String, RecordedCase> {
    let status = run.status();
    let error = |why: String| {
        let concluded =
            Concluded { verdict: "infra".into(), outcome: "not_run".into(), detail: why, ..Concluded::default() };
        RecordedCase { attempts: Vec::new(), concluded: Some(concluded) }
    };
    let why = format!("the run ended before the verdict on this case: its record says {status}");
    let mut open: BTreeMap<_, _> =
        run.without_verdict().into_iter().map(|id| (id.to_string(), error(why.clone()))).collect();
    // What a malformed file would have had is no pass.
    for broken in run.others.iter().filter(|record| record["k"] == "broken") {
        for mistake in broken["errors"].as_array().into_iter().flatten() {
            let text = |key: &str| mistake[key].as_str().unwrap_or_default();
            let why = format!("{}:{}: {}", text("file"), mistake["line"], text("message"));
            open.entry(format!("harness.{}", text("file"))).or_insert_with(|| error(why));
        }
    }
    if let (Err(why), false) = (run.selection(), run.explores()) {
        open.insert(format!("harness.{}", run.id()), error(why));
    }
    open
}

fn suite(text: &mut String, run: &Recorded, name: &str, cases: &[(&str, &RecordedCase)], stamp: &str) {
    let SuiteTally { tests, failures, errors, skipped, ns } =
        SuiteTally::of(cases.iter().map(|(_, case)| *case), flaky_fails(run));
    let host = run.header.host();
    let _ = writeln!(
        text,
        "  <testsuite name={} tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"{}\" timestamp={} hostname={}>",
        attribute(name),
        seconds(ns),
        attribute(stamp),
        attribute(host)
    );
    properties(text, cases.iter().map(|(_, case)| *case));
    for (case_name, case) in cases {
        let time = seconds(time_ns(case));
        let _ =
            write!(text, "    <testcase name={} classname={} time=\"{time}\"", attribute(case_name), attribute(name));
        let body = body(case, flaky_fails(run));
        match body.is_empty() {
            true => text.push_str("/>\n"),
            false => _ = write!(text, ">\n{body}    </testcase>\n"),
        }
    }
    text.push_str("  </testsuite>\n");
}

/// How many cases of a suite passed by what: the count of tests alone would say that all of them ran.
fn properties<'a>(text: &mut String, cases: impl Iterator<Item = &'a RecordedCase>) {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for by in cases.filter_map(RecordedCase::passed_by) {
        *counts.entry(by).or_default() += 1;
    }
    if counts.is_empty() {
        return;
    }
    text.push_str("    <properties>\n");
    for (by, count) in counts {
        let _ = writeln!(text, "      <property name={} value=\"{count}\"/>", attribute(&format!("passed_by.{by}")));
    }
    text.push_str("    </properties>\n");
}

/// Of all attempts. A record may hold any number.
fn time_ns(case: &RecordedCase) -> u64 {
    case.attempts.iter().fold(0, |sum, attempt| sum.saturating_add(attempt.dur_ns))
}

/// Whether the run was told that flaky cases are failures.
fn flaky_fails(run: &Recorded) -> bool {
    run.header.flaky_fails()
}

#[derive(Default)]
struct SuiteTally {
    tests: usize,
    failures: usize,
    errors: usize,
    skipped: usize,
    ns: u64,
}

impl SuiteTally {
    fn of<'a>(cases: impl Iterator<Item = &'a RecordedCase>, flaky_fails: bool) -> Self {
        let mut tally = Self::default();
        for case in cases {
            tally.tests += 1;
            tally.ns = tally.ns.saturating_add(time_ns(case));
            match case.verdict().0 {
                "fail" => tally.failures += 1,
                "flaky" if flaky_fails => tally.failures += 1,
                "crash" | "hang" | "infra" => tally.errors += 1,
                "skip" | "quarantined" => tally.skipped += 1,
                _ => {}
            }
        }
        tally
    }
}

/// What is inside of a `testcase`.
fn body(case: &RecordedCase, flaky_fails: bool) -> String {
    let mut text = String::new();
    if let Some(by) = case.passed_by().filter(|by| *by != PassedBy::Kernel.name()) {
        let property = format!("<property name=\"passed_by\" value={}/>", attribute(by));
        let _ = writeln!(text, "      <properties>{property}</properties>");
    }
    let (verdict, outcome, detail) = case.verdict();
    let first = detail.lines().next().unwrap_or_default();
    let failed: Vec<&Attempt> = case.attempts.iter().filter(|a| is_failure(&a.verdict)).collect();
    match verdict {
        "skip" | "quarantined" => {
            let _ = writeln!(text, "      <skipped message={}/>", attribute(&format!("{outcome}: {first}")));
        }
        "flaky" => {
            let again = if flaky_fails { "rerun" } else { "flaky" };
            if flaky_fails {
                let _ = writeln!(text, "      <failure type={} message={}/>", attribute(outcome), attribute(first));
            }
            failed.iter().for_each(|attempt| rerun(&mut text, again, attempt));
        }
        _ if is_failure(verdict) => {
            let tag = tag(verdict);
            let (kind, message) = (attribute(outcome), attribute(first));
            let _ = writeln!(text, "      <{tag} type={kind} message={message}>{}</{tag}>", element(detail));
            // The last one is the failure itself.
            let earlier = failed.len().saturating_sub(1);
            failed.iter().take(earlier).for_each(|attempt| rerun(&mut text, "rerun", attempt));
        }
        _ => {}
    }
    if let Some(last) = failed.last().filter(|_| is_failure(verdict)) {
        streams(&mut text, "      ", last);
    }
    text
}

fn tag(verdict: &str) -> &'static str {
    if verdict == "fail" { "failure" } else { "error" }
}

/// `flakyFailure`, `flakyError`, `rerunFailure` or `rerunError`.
fn rerun(text: &mut String, again: &str, attempt: &Attempt) {
    let tag = format!("{again}{}", if attempt.verdict == "fail" { "Failure" } else { "Error" });
    let message = attempt.detail.lines().next().unwrap_or_default();
    let _ = writeln!(
        text,
        "      <{tag} type={} message={} time=\"{}\">",
        attribute(&attempt.outcome),
        attribute(message),
        seconds(attempt.dur_ns)
    );
    let _ = writeln!(text, "        <stackTrace>{}</stackTrace>", element(&attempt.detail));
    streams(text, "        ", attempt);
    let _ = writeln!(text, "      </{tag}>");
}

/// What the worker printed before it died.
fn streams(text: &mut String, margin: &str, attempt: &Attempt) {
    let Some(death) = &attempt.death else { return };
    for (key, tag) in [("stdout_tail", "system-out"), ("stderr_tail", "system-err")] {
        if let Some(tail) = death[key].as_str().filter(|tail| !tail.is_empty()) {
            let _ = writeln!(text, "{margin}<{tag}>{}</{tag}>", element(tail));
        }
    }
}

fn seconds(ns: u64) -> String {
    format!("{:.6}", ns as f64 / 1e9)
}

/// Text between tags.
fn element(text: &str) -> String {
    escape(text, false)
}

/// A quoted value.
fn attribute(text: &str) -> String {
    format!("\"{}\"", escape(text, true))
}

/// Colours are left out; what XML cannot hold is written as `\x07`.
fn escape(text: &str, quoted: bool) -> String {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut out = String::with_capacity(end + 16);
    let mut chars = text[..end].chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' if chars.peek() == Some(&'[') => {
                chars.next();
                while chars.next_if(|c| !('@'..='~').contains(c)).is_some() {}
                chars.next();
            }
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' if quoted => out.push_str("&quot;"),
            '\t' | '\n' if quoted => _ = write!(out, "&#{};", u32::from(c)),
            '\t' | '\n' => out.push(c),
            // A reader would turn it into a line feed.
            '\r' => out.push_str("&#13;"),
            '\u{fffe}' | '\u{ffff}' => _ = write!(out, "\\u{{{:x}}}", u32::from(c)),
            c if c.is_control() => _ = write!(out, "\\x{:02x}", u32::from(c)),
            c => out.push(c),
        }
    }
    if end < text.len() {
        let _ = write!(out, " ... ({} bytes cut)", text.len() - end);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn header(fields: serde_json::Value) -> crate::record::Header {
        crate::record::Header::of(fields).expect("an object")
    }

    fn parse(text: &str) -> roxmltree::Document<'_> {
        roxmltree::Document::parse(text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
    }

    /// A run with one case that failed and then passed.
    fn flaky(policy: &str) -> Recorded {
        let mut run = Recorded { header: header(json!({ "run_id": "r", "flaky": policy })), ..Recorded::default() };
        let death = json!({ "stdout_tail": "out \u{1b}[31mred\u{1b}[0m", "stderr_tail": "]]> \u{0}\u{fffe} &amp;" });
        let attempt = |verdict: &str, outcome: &str| json!({ "k": "attempt", "case_id": "S.a/n=1", "verdict": verdict, "outcome": outcome, "detail": "why <\nmore", "death": death });
        run.push(attempt("crash", "crash.sigsegv"));
        run.push(attempt("pass", "pass"));
        run.push(json!({ "k": "verdict", "case_id": "S.a/n=1", "verdict": "flaky", "outcome": "crash.sigsegv", "attempts": 2, "failures": 1 }));
        run
    }

    #[test]
    fn a_flaky_case_is_written_as_nextest_does() {
        let text = junit(&flaky("pass"));
        let document = parse(&text);
        let case = document.descendants().find(|node| node.has_tag_name("testcase")).expect("a case");
        assert_eq!((case.attribute("classname"), case.attribute("name")), (Some("S"), Some("a/n=1")));
        let again = case.children().find(|node| node.has_tag_name("flakyError")).expect("an attempt");
        assert_eq!(again.attribute("message"), Some("why <"));
        let stream = |tag: &str| again.children().find(|node| node.has_tag_name(tag)).and_then(|node| node.text());
        assert_eq!(stream("system-out"), Some("out red"));
        assert_eq!(stream("system-err"), Some("]]> \\x00\\u{fffe} &amp;"));
        assert_eq!(document.root_element().attribute("errors"), Some("0"));
        let strict = junit(&flaky("fail"));
        let document = parse(&strict);
        assert!(document.descendants().any(|node| node.has_tag_name("failure")));
        assert!(document.descendants().any(|node| node.has_tag_name("rerunError")));
    }

    /// A killed run is not green, whether its record names the cases or not.
    #[test]
    fn what_was_not_reached_is_an_error() {
        let mut run = Recorded::default();
        let schema = json!({ "major": 1, "minor": 1 });
        run.push(json!({ "k": "run", "run_id": "r", "mode": "run", "cases_selected": 4, "schema": schema }));
        run.push(json!({ "k": "selected", "ids": ["S.a", "S.b", "T.c"], "of": 4 }));
        let attempt = json!({ "k": "attempt", "case_id": "S.b", "verdict": "pass", "outcome": "pass" });
        [json!({ "k": "verdict", "case_id": "S.a", "verdict": "pass", "outcome": "pass" }), attempt]
            .into_iter()
            .for_each(|record| run.push(record));
        let text = junit(&run);
        let document = parse(&text);
        let number = |name: &str| document.root_element().attribute(name).and_then(|n| n.parse::<u32>().ok());
        assert_eq!((number("tests"), number("failures"), number("errors")), (Some(4), Some(0), Some(3)), "{text}");
        let errors = document.descendants().filter(|node| node.has_tag_name("error"));
        let open: Vec<_> = errors
            .map(|node| {
                (node.attribute("type"), node.parent().and_then(|case| case.attribute("name")).unwrap_or_default())
            })
            .collect();
        assert_eq!(open, [(Some("not_run"), "b"), (Some("not_run"), "c"), (Some("not_run"), "r")], "{text}");
    }

    /// Right checksums say nothing of what numbers are.
    #[test]
    fn numbers_at_the_limit_make_no_panic() {
        let mut run = Recorded::default();
        for number in [0, u64::MAX] {
            run.push(
                json!({ "k": "attempt", "case_id": "S.a", "worker_id": "w", "verdict": "fail", "outcome": "fail.x",
                "dur_ns": u64::MAX, "start_ns": number, "t_ns": number, "attempt": u32::MAX, "repeat": u32::MAX,
                "phases": { "parse": u64::MAX, "launch": u64::MAX } }),
            );
        }
        run.push(
            json!({ "k": "verdict", "case_id": "S.a", "verdict": "fail", "outcome": "fail.x", "attempts": u64::MAX,
            "failures": u64::MAX, "t_ns": u64::MAX }),
        );
        run.push(json!({ "k": "worker", "worker_id": "w", "slot": "s", "event": "spawned", "t_ns": u64::MAX }));
        parse(&junit(&run));
        let trace = crate::report::trace(&[run.clone(), run.clone()]);
        assert!(serde_json::from_str::<serde_json::Value>(&trace).is_ok_and(|trace| trace["traceEvents"].is_array()));
        assert!(crate::report::markdown(&run, |_| String::new()).contains("S.a"));
    }

    #[test]
    fn any_text_gives_well_formed_xml() {
        crate::property::property(|u| {
            let (id, detail, tail): (String, String, String) = (u.arbitrary()?, u.arbitrary()?, u.arbitrary()?);
            let mut run = Recorded { header: header(json!({ "run_id": id, "started_utc": tail })), ..Recorded::default() };
            run.push(json!({ "k": "attempt", "case_id": id, "verdict": "crash", "outcome": tail, "detail": detail, "death": { "stdout_tail": tail, "stderr_tail": detail } }));
            let text = junit(&run);
            let document = parse(&text);
            let case = document.descendants().find(|node| node.has_tag_name("testcase")).expect("a case");
            assert_eq!(case.children().filter(|node| node.has_tag_name("error")).count(), 1);
            Ok(())
        })
        .cases(1000);
    }
}
