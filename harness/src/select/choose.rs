//! The selection as a whole: positive parts first, then what narrows them,
//! then the shard. Nothing selected is an error, with the reason that is nearest.

use super::past::Past;
use super::rerun::{FromRun, Rerun};
use super::shard::{Part, Shard};
use super::{Filter, FilterExpr, IdList, expr::FilterSubject, selected};
use crate::case::{Case, suggest};
use crate::escape::short;
use engine::diag::{Diagnostic, Result, code};
use std::collections::{BTreeSet, HashSet};

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Each must select the id.
    pub filters: Vec<Filter>,
    /// Ids, beside what filters select.
    pub exact: Vec<String>,
    /// Tags of which a case must have each.
    pub tags: Vec<String>,
    /// Expressions that must hold; they narrow ids as well.
    pub exprs: Vec<FilterExpr>,
    /// Ids from a file, like `exact`.
    pub(crate) listed: Option<IdList>,
    /// Only what earlier runs left.
    pub(crate) rerun: Option<Rerun>,
    /// Only what can be measured: no refusals, and without other wishes only
    /// cases that state their traffic or a goal.
    pub bench: bool,
    /// The part of the selection that is meant.
    pub shard: Option<Shard>,
    /// Variables of the environment that narrow the selection, as `NAME=value`: nobody
    /// sees them on the command line, so they are told.
    pub(crate) variables: Vec<String>,
}

/// What was chosen.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// In the order of the files.
    pub cases: Vec<Case>,
    /// For `--rerun`: cases that are left, and are not among the chosen.
    pub outstanding: Vec<String>,
    /// What the user should know; for an empty choice, why that is fine.
    pub notes: Vec<String>,
    /// Of a shard: what it is a part of.
    pub part: Option<Part>,
}

impl Wanted {
    /// Whether anything but the shard narrows the selection.
    pub(crate) fn narrowed(&self) -> bool {
        !(self.filters.is_empty() && self.exact.is_empty() && self.tags.is_empty() && self.exprs.is_empty())
            || self.listed.is_some()
            || self.rerun.is_some()
    }

    /// What the environment does to the selection, if anything.
    fn environment_note(&self) -> Option<String> {
        let shown = || self.variables.iter().map(|variable| short(variable)).collect::<Vec<_>>().join(" ");
        (!self.variables.is_empty()).then(|| format!("selected by the environment: {}", shown()))
    }
}

/// Chooses. `run` is the record that `--rerun` names, if it needs one.
pub fn choose(wanted: &Wanted, cases: Vec<Case>, past: &Past, run: &FromRun) -> Result<Chosen> {
    let total = cases.len();
    let ids: HashSet<&str> = cases.iter().map(|case| case.id.as_str()).collect();
    check_words(wanted, &cases, &ids)?;
    let named: HashSet<&str> = names(wanted).filter(|id| ids.contains(id)).collect();
    let left = |id: &str| wanted.rerun.as_ref().is_none_or(|rerun| rerun.takes(id, past, run));
    let all_left: Vec<String> = match &wanted.rerun {
        Some(_) => ids.iter().filter(|id| left(id)).map(|id| id.to_string()).collect(),
        None => Vec::new(),
    };
    let positive = |case: &Case| {
        let tagged = wanted.tags.iter().all(|tag| case.tags.contains(tag));
        let by_filter = !wanted.filters.is_empty() && selected(&wanted.filters, &case.id);
        // A tag alone selects all that have it, ids alone nothing else.
        let all = wanted.filters.is_empty() && (named.is_empty() || !wanted.tags.is_empty());
        tagged && (all || by_filter) || named.contains(case.id.as_str())
    };
    let holds = |case: &Case| {
        let quarantined = past.quarantined.contains(&case.id);
        let subject = FilterSubject { case, last: past.last(&case.id), quarantined, changed: &past.changed };
        wanted.exprs.iter().all(|expr| expr.matches(&subject))
    };
    let mut matching: Vec<bool> = cases.iter().map(|case| positive(case) && holds(case)).collect();
    if wanted.bench && matching.contains(&true) {
        measurable(wanted, &cases, &mut matching)?;
    }
    let keep: Vec<bool> = cases.iter().zip(&matching).map(|(case, fits)| *fits && left(&case.id)).collect();
    let (matches, count) = (matching.iter().filter(|fits| **fits).count(), keep.iter().filter(|fits| **fits).count());
    if matches == 0 {
        return Err(nothing(wanted, total));
    }
    let mut chosen = Chosen { notes: wanted.environment_note().into_iter().collect(), ..Chosen::default() };
    if count == 0 {
        empty_rerun(wanted, past, matches, all_left.len(), &mut chosen)?;
    }
    let mut flags = keep.into_iter();
    chosen.cases = cases;
    chosen.cases.retain(|_| flags.next().unwrap_or(false));
    let taken: HashSet<&str> = chosen.cases.iter().map(|case| case.id.as_str()).collect();
    // What the quarantine file allows to fail is not waited for.
    let awaited = |id: &String| !taken.contains(id.as_str()) && !past.quarantined.contains(id);
    chosen.outstanding = all_left.into_iter().filter(awaited).collect();
    chosen.outstanding.sort();
    if let Some(shard) = wanted.shard {
        in_shard(shard, past, &mut chosen);
    }
    Ok(chosen)
}

/// Leaves what `bench` can measure; an error if that is nothing.
fn measurable(wanted: &Wanted, cases: &[Case], matching: &mut [bool]) -> Result<()> {
    let mut only = |fits: fn(&Case) -> bool, message: &str, note: &str| {
        matching.iter_mut().zip(cases).for_each(|(keep, case)| *keep &= fits(case));
        match matching.contains(&true) {
            true => Ok(()),
            false => Err(Diagnostic::user(code::NOTHING_SELECTED, message).note(note)),
        }
    };
    if !wanted.narrowed() {
        let note = "`bench --filter '*'` measures any case";
        only(|case| case.perf.is_some(), "no case has a `; perf:` directive", note)?;
    }
    let message = "every selected case is a refusal, which has nothing to measure";
    only(|case| case.refusals().is_empty(), message, "`run` checks refusals")
}

fn names(wanted: &Wanted) -> impl Iterator<Item = &str> {
    let listed = wanted.listed.iter().flat_map(|list| &list.ids).map(|(_, id)| id.as_str());
    wanted.exact.iter().map(String::as_str).chain(listed)
}

/// Ids, tags and words of expressions that fit nothing are mistakes.
fn check_words(wanted: &Wanted, cases: &[Case], ids: &HashSet<&str>) -> Result<()> {
    let nearest = |id: &str| nearest(id, cases.iter().map(|case| case.id.as_str()));
    for id in &wanted.exact {
        if !ids.contains(id.as_str()) {
            let message = format!("there is no case `{}`", short(id));
            return Err(Diagnostic::user(code::NOTHING_SELECTED, message).note(nearest(id)));
        }
    }
    if let Some(list) = &wanted.listed {
        list.check(|id| ids.contains(id), nearest)?;
    }
    if !wanted.tags.is_empty() {
        let known: BTreeSet<&str> = cases.iter().flat_map(|case| &case.tags).map(String::as_str).collect();
        if let Some(tag) = wanted.tags.iter().find(|tag| !known.contains(tag.as_str())) {
            let message = format!("no case has the tag `{}`", short(tag));
            return Err(Diagnostic::user(code::NOTHING_SELECTED, message).note(short(&suggest(tag, known.into_iter()))));
        }
    }
    wanted.exprs.iter().try_for_each(|expr| expr.check(cases))
}

/// A rerun of nothing: fine where nothing is left at all, an error where the
/// selection leaves out what is left, or where nothing is recorded.
fn empty_rerun(wanted: &Wanted, past: &Past, matches: usize, left: usize, chosen: &mut Chosen) -> Result<()> {
    let what = wanted.rerun.as_ref().map_or(String::new(), Rerun::shown);
    let needs_past = matches!(wanted.rerun, Some(Rerun::Failed | Rerun::Flaky));
    if needs_past && past.cases.is_empty() {
        let message = "nothing selected: no earlier run is recorded for these devices";
        return Err(Diagnostic::user(code::NOTHING_SELECTED, message).note("run once without --rerun"));
    }
    if left > 0 {
        let message = format!("nothing selected: none of {matches} cases that match {what}, but {left} others do");
        return Err(Diagnostic::user(code::NOTHING_SELECTED, message).note("leave the filter out"));
    }
    chosen.notes.push(format!("nothing is left: no case {what}"));
    Ok(())
}

/// Keeps the shard's cases. An empty shard is fine, and says so.
fn in_shard(shard: Shard, past: &Past, chosen: &mut Chosen) {
    let part = Part::new(shard, chosen.cases.iter().map(|case| case.id.clone()).collect(), past);
    let total = chosen.cases.len();
    let mut homes = part.homes.iter();
    chosen.cases.retain(|_| homes.next() == Some(&shard.index));
    let count = chosen.cases.len();
    let empty = if count == 0 { "; with fewer cases than shards that is fine" } else { "" };
    let blind = if part.is_blind { "; no duration is recorded of them, so they are dealt out in turn" } else { "" };
    chosen.notes.push(format!("shard {shard}: {count} of {total} selected cases{empty}{blind}"));
    chosen.part = Some(part);
}

fn nothing(wanted: &Wanted, total: usize) -> Box<Diagnostic> {
    let note = match (total, wanted.exprs.first()) {
        (0, _) => "the case folder holds no case file (*.fuse)".into(),
        (_, Some(expr)) => format!("`harness list` prints the ids; the expression was read as {expr}"),
        _ => "`harness list` prints the ids; `*` matches any run of characters".into(),
    };
    let message = format!("nothing selected: none of {total} cases matches");
    let error = Diagnostic::user(code::NOTHING_SELECTED, message).note(note);
    match wanted.environment_note() {
        Some(told) => error.note(told),
        None => error,
    }
}

/// The id that was meant, or a few that begin alike: there may be thousands.
pub(crate) fn nearest<'a>(id: &str, ids: impl Iterator<Item = &'a str> + Clone) -> String {
    suggest(id, nearest_ids(id, ids).into_iter())
}

/// Ids worth proposing: the few that begin alike, of those that share the name
/// before the first slash if there are any.
fn nearest_ids<'a>(id: &str, all: impl Iterator<Item = &'a str> + Clone) -> Vec<&'a str> {
    let stem = id.split('/').next().unwrap_or(id);
    let ids = || all.clone();
    let mut list: Vec<&str> = ids().filter(|other| other.starts_with(stem)).take(2000).collect();
    if list.is_empty() {
        list = ids().collect();
    }
    let common = |other: &&str| id.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    list.sort_by_cached_key(|other| std::cmp::Reverse(common(other)));
    list.truncate(4);
    list
}

#[cfg(test)]
mod tests {
    use super::super::IdList;
    use super::*;
    use crate::outcome::Last;
    use crate::record::Recorded;
    use serde_json::json;

    fn cases() -> Vec<Case> {
        let ids = ["A.one/n=1", "A.one/n=2", "A.two", "B.one", "B.two"];
        let tags = |id: &str| if id.ends_with("two") { vec!["pair".to_string()] } else { Vec::new() };
        ids.map(|id| Case { id: id.into(), tags: tags(id), suite: id[..1].into(), ..Case::default() }).to_vec()
    }

    fn past(outcomes: &[(&str, &str)]) -> Past {
        let last = |outcome: &str| Last { outcome: outcome.into(), dur_ns: None, runs: 1 };
        let cases = outcomes.iter().map(|(id, outcome)| (id.to_string(), last(outcome))).collect();
        Past { cases, ..Past::default() }
    }

    fn run(wanted: &Wanted, past: &Past) -> Result<Chosen> {
        choose(wanted, cases(), past, &FromRun::default())
    }

    #[track_caller]
    fn check(wanted: Wanted, expected: &[&str]) {
        let chosen = run(&wanted, &Past::default()).unwrap_or_else(|error| panic!("{error}"));
        let ids: Vec<&str> = chosen.cases.iter().map(|case| case.id.as_str()).collect();
        assert_eq!(ids, expected);
    }

    #[track_caller]
    fn check_refused(wanted: Wanted, past: &Past, part: &str) {
        let error = run(&wanted, past).expect_err("refused").to_string();
        assert!(error.contains(part), "{error}");
    }

    fn filter(text: &str) -> Vec<Filter> {
        vec![Filter::parse(text).expect("good")]
    }

    fn expr(text: &str) -> Vec<FilterExpr> {
        vec![FilterExpr::parse(text).expect("good")]
    }

    #[test]
    fn parts_of_the_selection_add_and_narrow() {
        let none = Wanted::default;
        check(none(), &["A.one/n=1", "A.one/n=2", "A.two", "B.one", "B.two"]);
        check(Wanted { filters: filter("A.*"), ..none() }, &["A.one/n=1", "A.one/n=2", "A.two"]);
        check(Wanted { filters: filter("A.*"), tags: vec!["pair".into()], ..none() }, &["A.two"]);
        check(Wanted { exact: vec!["B.two".into()], ..none() }, &["B.two"]);
        check(Wanted { exact: vec!["B.two".into()], filters: filter("*=1"), ..none() }, &["A.one/n=1", "B.two"]);
        check(Wanted { exprs: expr("suite(B) & tag(pair)"), filters: filter("*"), ..none() }, &["B.two"]);
        let listed = Some(IdList::parse("list", "# twos\nA.two # why\n\n  B.two\r\n"));
        check(Wanted { listed: listed.clone(), ..none() }, &["A.two", "B.two"]);
        check(Wanted { listed, exprs: expr("suite(A)"), ..none() }, &["A.two"]);
        check(Wanted { shard: Shard::parse("2/2").ok(), ..none() }, &["A.one/n=2", "B.one"]);
        check(Wanted { shard: Shard::parse("5/9").ok(), filters: filter("A.*"), ..none() }, &[]);
    }

    #[test]
    fn selecting_nothing_says_why() {
        let none = Past::default();
        check_refused(Wanted { filters: filter("C.*"), ..Wanted::default() }, &none, "none of 5 cases");
        check_refused(Wanted { exprs: expr("none | perf"), ..Wanted::default() }, &none, "read as none | perf");
        check_refused(Wanted { exact: vec!["A.tow".into()], ..Wanted::default() }, &none, "did you mean `A.two`?");
        check_refused(Wanted { tags: vec!["pairs".into()], ..Wanted::default() }, &none, "did you mean `pair`?");
        let listed = Some(IdList::parse("list", "A.two\nB.tow\nC\n"));
        check_refused(Wanted { listed, ..Wanted::default() }, &none, "list:2: there is no case `B.tow`, and 1 more");
        check_refused(Wanted { bench: true, ..Wanted::default() }, &none, "perf:");
        check_refused(Wanted { rerun: Some(Rerun::Failed), ..Wanted::default() }, &none, "no earlier run");
    }

    #[test]
    fn a_rerun_takes_what_is_left() {
        let past = past(&[
            ("A.two", "pass"),
            ("B.one", "crash.sigsegv"),
            ("B.two", "fail.numerics"),
            ("A.one/n=1", "flaky.x"),
        ]);
        let rerun = |rerun, filters| {
            let chosen = run(&Wanted { rerun: Some(rerun), filters, ..Wanted::default() }, &past).expect("chooses");
            (chosen.cases.into_iter().map(|case| case.id).collect::<Vec<_>>(), chosen.outstanding)
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(rerun(Rerun::Failed, vec![]), (vec!["B.one".into(), "B.two".into()], none.clone()));
        assert_eq!(rerun(Rerun::Failed, filter("*.two")), (vec!["B.two".into()], vec!["B.one".into()]));
        assert_eq!(rerun(Rerun::Flaky, vec![]), (vec!["A.one/n=1".into()], none.clone()));
        assert_eq!(rerun(Rerun::NotRun, vec![]), (vec!["A.one/n=2".into()], none));
        let failed = Wanted { rerun: Some(Rerun::Failed), filters: filter("A.*"), ..Wanted::default() };
        check_refused(failed, &past, "but 2 others do");
    }

    #[test]
    fn a_rerun_of_nothing_is_fine() {
        let wanted = Wanted { rerun: Some(Rerun::Failed), ..Wanted::default() };
        let chosen = run(&wanted, &past(&[("A.two", "pass")])).expect("fine");
        assert!(chosen.cases.is_empty() && chosen.notes == ["nothing is left: no case failed last time"]);
    }

    #[test]
    fn a_record_tells_failed_from_not_run() {
        let from = FromRun::of(&recorded("run", &["A.two", "B.one", "B.two"], 3)).expect("tells");
        let wanted = Wanted { rerun: Some(Rerun::Run("x".into())), ..Wanted::default() };
        let chosen = choose(&wanted, cases(), &Past::default(), &from).expect("chooses");
        let ids: Vec<&str> = chosen.cases.iter().map(|case| case.id.as_str()).collect();
        assert_eq!(ids, ["B.one", "B.two"]);
    }

    /// A run that selected `of` cases; the first passed, the second hung.
    fn recorded(mode: &str, selected: &[&str], of: u64) -> Recorded {
        let mut run = Recorded::default();
        run.push(json!({ "k": "run", "mode": mode }));
        run.push(json!({ "k": "selected", "of": of, "ids": selected }));
        for (id, verdict, outcome) in [("A.two", "pass", "pass"), ("B.one", "hang", "hang.host")] {
            run.push(json!({ "k": "verdict", "case_id": id, "verdict": verdict, "outcome": outcome }));
        }
        run
    }

    #[test]
    fn a_case_that_was_cancelled_is_not_done() {
        for (verdict, outcome) in [
            ("skip", "not_run.cancelled"),
            ("skip", "not_run.fail_fast"),
            ("skip", "skip.deadline"),
            ("infra", "infra.gpu_lost"),
        ] {
            let mut run = recorded("run", &["A.two", "B.one", "B.two"], 3);
            run.push(json!({ "k": "verdict", "case_id": "B.two", "verdict": verdict, "outcome": outcome }));
            let from = FromRun::of(&run).expect("tells");
            assert!(from.not_run.contains("B.two") && !from.failed.contains("B.two"), "{outcome}");
        }
    }

    #[test]
    fn a_record_that_cannot_tell_what_is_left_is_refused() {
        let why = |mode, of| FromRun::of(&recorded(mode, &["A.two", "B.one"], of)).err().unwrap_or_default();
        assert_eq!(why("run", 2), "");
        assert!(why("run", 502).contains("of the 502 cases that it selected its record names 2"));
        assert!(why("hunt", 2).contains("no verdicts"));
    }
}
