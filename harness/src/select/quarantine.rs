//! The quarantine file: known failures that do not gate for the time being.
//!
//! `cases/quarantine.toml` is reviewed like code. Each entry names a case or a
//! glob, an owner, an issue, a reason and a date:
//!
//! ```toml
//! [[case]]
//! id = "ResizeTest.Slice*"
//! owner = "compiler"
//! issue = "https://example.org/issues/12"
//! reason = "fails in 3 % of runs under load"
//! until = "2030-01-31"
//! ```
//!
//! Its cases run as all others. One that fails is reported as quarantined and does
//! not make the run fail; from the day after `until` it fails as
//! `quarantine.expired`. One that passes is told. An entry that names no case is an
//! error, so that nothing is left behind.

use crate::escape::short;
use crate::outcome::{Outcome, Verdict};
use crate::select::{Filter, nearest};
use engine::diag::{Diagnostic, code};
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;
use toml_edit::{DocumentMut, Item, Table, Value};

/// Bytes of the file, and entries in it.
const MAX_BYTES: u64 = 1 << 20;
const MAX_ENTRIES: usize = 4096;

/// What the file says of some cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuarantineEntry {
    /// An id, or a pattern with `*` and `?`.
    pub(crate) id: String,
    pub(crate) owner: String,
    pub(crate) issue: String,
    pub(crate) reason: String,
    /// The last day on which it holds, `YYYY-MM-DD`.
    pub(crate) until: String,
}

impl QuarantineEntry {
    /// Names of the fields in their order.
    const FIELDS: [&str; 5] = ["id", "owner", "issue", "reason", "until"];

    fn fields(&self) -> [&str; 5] {
        [&self.id, &self.owner, &self.issue, &self.reason, &self.until]
    }

    /// What is wrong with it.
    fn problem(&self) -> Option<String> {
        for (name, value) in Self::FIELDS.iter().zip(self.fields()) {
            if value.trim().is_empty() {
                return Some(format!("`{name}` is missing"));
            }
            if value.chars().any(char::is_control) || value.len() > 1000 {
                return Some(format!("`{name}` holds control characters or is too long"));
            }
        }
        if !is_date(&self.until) {
            return Some(format!("`until` must be a date such as 2030-01-31, not `{}`", short(&self.until)));
        }
        pattern(&self.id).is_none().then(|| format!("`{}` is no pattern of ids", short(&self.id)))
    }

    fn is_glob(&self) -> bool {
        self.id.contains(['*', '?'])
    }

    pub(crate) fn expired(&self, today: &str) -> bool {
        today > self.until.as_str()
    }

    fn table(&self) -> Table {
        Self::FIELDS.iter().zip(self.fields()).map(|(name, value)| (*name, value)).collect()
    }
}

/// One pattern of gtest's grammar; the characters that join patterns are no part of it.
fn pattern(id: &str) -> Option<Filter> {
    let joins = id.contains(':') || id.starts_with('-');
    Filter::parse(id).ok().filter(|_| !joins)
}

/// A day that exists.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    let number = |part: &str, len: usize| match part.len() == len && part.bytes().all(|b| b.is_ascii_digit()) {
        true => part.parse::<u32>().ok(),
        false => None,
    };
    let (Some(year), Some(month), Some(day)) = (number(year, 4), number(month, 2), number(day, 2)) else {
        return false;
    };
    let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => 0,
    };
    (1..=days).contains(&day)
}

/// The file's entries. Every case of a run is looked up: ids are found at once,
/// patterns are parsed once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quarantine {
    entries: Vec<QuarantineEntry>,
    /// Places of the entries that are ids.
    exact: HashMap<String, usize>,
    /// Those that are patterns, in order.
    globs: Vec<(usize, Filter)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuarantineFile {
    #[serde(default)]
    case: Vec<RawEntry>,
}

/// As written: what is missing is told by name, all at once.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    #[serde(default)]
    id: String,
    #[serde(default)]
    owner: String,
    #[serde(default)]
    issue: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    until: String,
}

fn bad(message: impl Into<String>, note: impl Into<String>) -> Box<Diagnostic> {
    Diagnostic::user(code::BAD_QUARANTINE, message).note(note)
}

impl Quarantine {
    /// Reads the file; one that is not there is empty.
    pub(crate) fn read(path: &Path) -> Result<Self, Box<Diagnostic>> {
        let shown = crate::escape::path(path);
        let fail =
            |error: std::io::Error| bad(format!("{shown} cannot be read: {error}"), "it is TOML with [[case]] tables");
        match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(fail(error)),
            Ok(meta) if meta.len() > MAX_BYTES => {
                return Err(bad(format!("{shown} is larger than 1 MiB"), "take out old entries"));
            }
            Ok(_) => {}
        }
        let text = std::fs::read_to_string(path).map_err(fail)?;
        Self::parse(&text, &shown)
    }

    fn parse(text: &str, name: &str) -> Result<Self, Box<Diagnostic>> {
        let file: QuarantineFile = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            bad(format!("{name}:{line}: {}", error.message()), "[[case]] with id, owner, issue, reason, until")
        })?;
        if file.case.len() > MAX_ENTRIES {
            return Err(bad(format!("{name} holds more than {MAX_ENTRIES} entries"), "a glob covers many cases"));
        }
        let entry = |RawEntry { id, owner, issue, reason, until }| QuarantineEntry { id, owner, issue, reason, until };
        let entries: Vec<QuarantineEntry> = file.case.into_iter().map(entry).collect();
        for (i, entry) in entries.iter().enumerate() {
            if let Some(problem) = entry.problem() {
                let message = format!("{name}: entry {} (`{}`): {problem}", i + 1, short(&entry.id));
                return Err(bad(message, "all of id, owner, issue, reason and until are required"));
            }
        }
        Ok(Self::of(entries))
    }

    /// With these entries.
    pub(crate) fn of(entries: Vec<QuarantineEntry>) -> Self {
        let (mut exact, mut globs) = (HashMap::new(), Vec::new());
        for (at, entry) in entries.iter().enumerate() {
            match pattern(&entry.id).filter(|_| entry.is_glob()) {
                Some(filter) => globs.push((at, filter)),
                None => _ = exact.entry(entry.id.clone()).or_insert(at),
            }
        }
        Self { entries, exact, globs }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &QuarantineEntry> {
        self.entries.iter()
    }

    /// How many cases and patterns it names.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry of a case: one with its id before any glob.
    pub(crate) fn entry(&self, id: &str) -> Option<&QuarantineEntry> {
        let glob = || self.globs.iter().find(|(_, glob)| glob.matches(id)).map(|(at, _)| at);
        self.exact.get(id).or_else(glob).map(|at| &self.entries[*at])
    }

    /// The entries, and how many of these cases each of them names.
    pub(crate) fn counts<'a>(
        &self,
        ids: impl Iterator<Item = &'a str>,
    ) -> impl Iterator<Item = (&QuarantineEntry, usize)> {
        let mut counts = vec![0; self.entries.len()];
        for id in ids {
            let globs = self.globs.iter().filter(|(_, glob)| glob.matches(id)).map(|(at, _)| at);
            self.exact.get(id).into_iter().chain(globs).for_each(|at| counts[*at] += 1);
        }
        // An id that stands twice names the same cases twice.
        let at = |at: usize, entry: &QuarantineEntry| self.exact.get(&entry.id).copied().unwrap_or(at);
        self.entries.iter().enumerate().map(move |(i, entry)| (entry, counts[at(i, entry)]))
    }

    /// Entries that name no case among all that there are.
    pub(crate) fn idle<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Vec<&QuarantineEntry> {
        self.counts(ids).filter(|(_, count)| *count == 0).map(|(entry, _)| entry).collect()
    }

    /// Changes how a failure of a quarantined case counts.
    pub(crate) fn apply(&self, id: &str, verdict: &mut Verdict, outcome: &mut Outcome, today: &str) {
        let gates = matches!(verdict, Verdict::Fail | Verdict::Crash | Verdict::Hang | Verdict::Flaky);
        let Some(entry) = self.entry(id).filter(|_| gates) else { return };
        let QuarantineEntry { owner, issue, reason, until, .. } = entry;
        let was = format!("{} ({})", outcome.outcome, verdict.name());
        let detail = std::mem::take(&mut outcome.detail);
        if entry.expired(today) {
            *verdict = Verdict::Fail;
            outcome.outcome = "quarantine.expired".into();
            outcome.detail = format!("{was}; quarantined until {until} only: {reason} ({owner}, {issue})\n{detail}");
        } else {
            *verdict = Verdict::Quarantined;
            outcome.detail = format!("{was}; quarantined until {until}: {reason} ({owner}, {issue})\n{detail}");
        }
        outcome.verdict = *verdict;
    }
}

/// The text of a file with one more entry. What stands there stays as it is.
pub(crate) fn with_entry(text: &str, entry: &QuarantineEntry, name: &str) -> Result<String, Box<Diagnostic>> {
    if let Some(problem) = entry.problem() {
        return Err(bad(problem, "all of id, owner, issue, reason and until are required"));
    }
    let known = Quarantine::parse(text, name)?.entries;
    if known.iter().any(|other| other.id == entry.id) {
        return Err(bad(
            format!("`{}` is in quarantine already", short(&entry.id)),
            "harness quarantine rm ID takes it out",
        ));
    }
    let (mut file, mut table) = (document(text, name)?, entry.table());
    match file.get_mut("case") {
        // Tables cannot follow an array of inline ones.
        Some(Item::Value(Value::Array(array))) => array.push(table.into_inline_table()),
        case => {
            let mut tables = case.and_then(|case| case.as_array_of_tables().cloned()).unwrap_or_default();
            // What stands at the end of the file stays in front of the entry.
            let above = file.trailing().as_str().unwrap_or_default().trim_end().to_string();
            let gap = if above.is_empty() && tables.is_empty() { "" } else { "\n" };
            table.decor_mut().set_prefix(if above.is_empty() { gap.into() } else { format!("{above}\n{gap}") });
            file.set_trailing("");
            tables.push(table);
            file.insert("case", Item::ArrayOfTables(tables));
        }
    }
    readable(file.to_string(), name)
}

/// The text of a file without the entry of that id, and the comment lines that
/// stand directly above it.
pub(crate) fn without_entry(text: &str, id: &str, name: &str) -> Result<String, Box<Diagnostic>> {
    let known = Quarantine::parse(text, name)?;
    let Some(at) = known.entries.iter().position(|entry| entry.id == id) else {
        let ids: Vec<&str> = known.entries.iter().map(|entry| entry.id.as_str()).collect();
        let note = if ids.is_empty() { "the file has no entries".into() } else { nearest(id, ids.into_iter()) };
        return Err(bad(format!("`{}` is not in quarantine", short(id)), note));
    };
    let mut file = document(text, name)?;
    match file.get_mut("case") {
        Some(Item::Value(Value::Array(array))) => drop(array.remove(at)),
        Some(Item::ArrayOfTables(tables)) => {
            let above = tables.get(at).map_or(String::new(), |table| others_above(&comments(table)));
            tables.remove(at);
            match tables.get_mut(at) {
                // A blank line stays between two entries.
                Some(_) if above.is_empty() && at > 0 => {}
                Some(next) => {
                    let own = comments(next);
                    next.decor_mut().set_prefix(format!("{above}{}", own.trim_start_matches('\n')));
                }
                None => file.set_trailing(format!("{above}{}", file.trailing().as_str().unwrap_or_default())),
            }
        }
        _ => {}
    }
    if known.entries.len() == 1 {
        file.remove("case");
    }
    let rest = file.to_string();
    readable(if rest.trim().is_empty() { String::new() } else { format!("{}\n", rest.trim_end()) }, name)
}

/// What stands between a table and the one before it.
fn comments(table: &Table) -> String {
    table.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default().to_string()
}

/// What stands above an entry and is not about it: all but the comment lines directly above.
fn others_above(prefix: &str) -> String {
    let lines: Vec<&str> = prefix.split_inclusive('\n').collect();
    let own = lines.iter().rev().take_while(|line| line.trim_start().starts_with('#')).count();
    let others = lines[..lines.len() - own].concat();
    if others.trim().is_empty() { String::new() } else { format!("{}\n\n", others.trim_end()) }
}

/// The file with its comments and blanks.
fn document(text: &str, name: &str) -> Result<DocumentMut, Box<Diagnostic>> {
    text.parse().map_err(|error: toml_edit::TomlError| bad(format!("{name}: {}", error.message()), "it is TOML"))
}

/// A new text of the file, which the next run must be able to read.
fn readable(text: String, name: &str) -> Result<String, Box<Diagnostic>> {
    if text.len() as u64 > MAX_BYTES {
        return Err(bad(format!("{name} would be larger than 1 MiB"), "take out old entries"));
    }
    Quarantine::parse(&text, name).map(|_| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, until: &str) -> QuarantineEntry {
        let [owner, issue, reason] = ["compiler", "#12", "a \"race\""].map(String::from);
        QuarantineEntry { id: id.into(), owner, issue, reason, until: until.into() }
    }

    impl QuarantineEntry {
        fn text(&self) -> String {
            format!("[[case]]\n{}", self.table())
        }
    }

    #[track_caller]
    fn check(verdict: Verdict, until: &str, wanted: (Verdict, &str)) {
        let quarantine = Quarantine::of(vec![entry("A.*", until)]);
        let mut outcome = Outcome::of(verdict, "as.was", "detail");
        let mut counts = verdict;
        quarantine.apply("A.b/m=1", &mut counts, &mut outcome, "2030-06-15");
        assert_eq!((counts, outcome.outcome.as_str()), wanted);
        let mut other = Outcome::of(verdict, "as.was", "detail");
        let mut counts = verdict;
        quarantine.apply("B.b", &mut counts, &mut other, "2030-06-15");
        assert_eq!((counts, other.detail.as_str()), (verdict, "detail"));
    }

    #[test]
    fn failures_do_not_gate_until_the_date() {
        check(Verdict::Fail, "2030-06-15", (Verdict::Quarantined, "as.was"));
        check(Verdict::Crash, "2031-01-01", (Verdict::Quarantined, "as.was"));
        check(Verdict::Flaky, "2031-01-01", (Verdict::Quarantined, "as.was"));
        check(Verdict::Hang, "2030-06-14", (Verdict::Fail, "quarantine.expired"));
        check(Verdict::Pass, "2030-06-14", (Verdict::Pass, "as.was"));
        check(Verdict::Infra, "2031-01-01", (Verdict::Infra, "as.was"));
    }

    #[track_caller]
    fn refused(text: &str, part: &str) {
        let error = Quarantine::parse(text, "cases/quarantine.toml").expect_err("is refused").to_string();
        assert!(error.contains("E0508") && error.contains(part), "{error}");
    }

    #[test]
    fn nothing_may_be_missing() {
        let whole = entry("A.b", "2030-01-31").text();
        assert_eq!(Quarantine::parse(&whole, "f").expect("reads").entries, [entry("A.b", "2030-01-31")]);
        for field in QuarantineEntry::FIELDS {
            let less: String = whole.split_inclusive('\n').filter(|line| !line.starts_with(field)).collect();
            refused(&less, &format!("`{field}` is missing"));
        }
        for date in ["2030-02-29", "2030-13-01", "30-01-01", "tomorrow", "2030-1-1"] {
            refused(&entry("A.b", date).text(), "must be a date");
        }
        assert!(is_date("2032-02-29"));
        refused(&entry("A:B", "2030-01-31").text(), "no pattern");
        refused("[[case]]\nid = 3\n", "cases/quarantine.toml:2");
        refused("[[case]]\nidd = \"x\"\n", "unknown field");
        refused("[[case]\n", "cases/quarantine.toml:1");
    }

    #[test]
    fn entries_that_name_nothing_are_found() {
        let quarantine = Quarantine::of(vec![entry("A.*", "2030-01-31"), entry("B.c", "2030-01-31")]);
        let idle = |ids: &[&str]| quarantine.idle(ids.iter().copied()).iter().map(|e| e.id.clone()).collect::<Vec<_>>();
        assert_eq!(idle(&["A.x", "B.c"]), Vec::<String>::new());
        assert_eq!(idle(&["A.x", "B.cc"]), ["B.c"]);
        assert_eq!(idle(&[]), ["A.*", "B.c"]);
    }

    #[test]
    fn an_id_goes_before_patterns_and_the_first_of_them_before_others() {
        let ids = ["A.*", "*b", "A.b", "C.c"];
        let quarantine = Quarantine::of(ids.iter().map(|id| entry(id, "2030-01-31")).collect());
        let found = |id: &str| quarantine.entry(id).map(|entry| entry.id.clone());
        assert_eq!(found("A.b").as_deref(), Some("A.b"));
        assert_eq!(found("A.bb").as_deref(), Some("A.*"));
        assert_eq!(found("B.b").as_deref(), Some("*b"));
        assert_eq!(found("C.cc"), None);
        let counts = |ids: &[&str]| quarantine.counts(ids.iter().copied()).map(|(_, count)| count).collect::<Vec<_>>();
        assert_eq!(counts(&["A.b", "A.x", "B.b", "C.c"]), [2, 2, 1, 1]);
        let twice = Quarantine::of(vec![entry("A.b", "2030-01-31"), entry("A.b", "2031-01-31")]);
        assert_eq!(twice.entry("A.b").map(|entry| entry.until.as_str()), Some("2030-01-31"));
        assert!(twice.idle(["A.b"].into_iter()).is_empty());
    }

    /// A file of inline tables takes an entry and gives one up, and stays readable.
    #[test]
    fn inline_tables_are_edited() {
        let inline = |ids: &[&str]| {
            let table = |id: &&str| {
                format!("{{id = \"{id}\", owner = \"o\", issue = \"i\", reason = \"r\", until = \"2030-01-31\"}}")
            };
            format!("case = [{}]\n", ids.iter().map(table).collect::<Vec<_>>().join(", "))
        };
        let ids = |text: &str| {
            let known = Quarantine::parse(text, "f").expect("reads");
            known.entries.iter().map(|entry| entry.id.clone()).collect::<Vec<_>>()
        };
        for old in [&["A.a"][..], &["A.a", "B.b"], &[]] {
            let more = with_entry(&inline(old), &entry("C.c", "2030-01-31"), "f").expect("adds");
            assert_eq!(ids(&more), [old, &["C.c"]].concat());
            let less = without_entry(&more, "C.c", "f").expect("takes out");
            assert_eq!(ids(&less), old);
        }
        let less = without_entry(&inline(&["A.a", "B.b"]), "A.a", "f").expect("takes out");
        assert_eq!(ids(&less), ["B.b"]);
    }

    /// What could not be read again is not written.
    #[test]
    fn a_full_file_takes_no_more() {
        let full: String = (0..MAX_ENTRIES).map(|i| entry(&format!("A.c{i}"), "2030-01-31").text()).collect();
        let refused = with_entry(&full, &entry("B.b", "2030-01-31"), "f").expect_err("is full").to_string();
        assert!(refused.contains("more than 4096 entries"), "{refused}");
    }

    #[test]
    fn editing_keeps_comments_and_order() {
        let text = "# known flakes\n\n# the first\n[[case]]\nid = \"A.a\" # here\nowner = \"o\"\nissue = \"i\"\nreason = \"r\"\nuntil = \"2030-01-31\"\n";
        let more = with_entry(text, &entry("B.*", "2030-01-31"), "f").expect("adds");
        assert!(more.starts_with(text) && more.ends_with("until = \"2030-01-31\"\n"), "{more}");
        assert!(with_entry(&more, &entry("B.*", "2031-01-31"), "f").is_err());
        assert!(with_entry(text, &entry("B.*", "soon"), "f").is_err());
        assert_eq!(without_entry(&more, "B.*", "f").expect("removes"), text);
        let second = with_entry("", &entry("B.*", "2030-01-31"), "f").expect("adds");
        assert_eq!(without_entry(&more, "A.a", "f").expect("removes"), format!("# known flakes\n\n{second}"));
        assert!(without_entry(text, "A.b", "f").expect_err("is not there").to_string().contains("A.a"));
        let inline =
            "case = [{ id = \"A.a\", owner = \"o\", issue = \"i\", reason = \"r\", until = \"2030-01-31\" }]\n";
        assert_eq!(without_entry(inline, "A.a", "f").expect("removes"), "");
        // Comments of an array stay as well, and those of a file without entries above the first.
        let noted = format!("# known\n{}", inline.replace("[{", "[\n  # the first\n  {").replace("}]", "},\n]"));
        let more = with_entry(&noted, &entry("B.b", "2030-01-31"), "f").expect("adds");
        assert!(more.contains("# known\n") && more.contains("  # the first\n"), "{more}");
        let first = with_entry("# known\n", &entry("B.b", "2030-01-31"), "f").expect("adds");
        assert!(first.starts_with("# known\n\n[[case]]\nid = \"B.b\"\n"), "{first}");
    }
}
