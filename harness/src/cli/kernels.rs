//! `kernels`: the kernels of the selected cases against the committed list
//! (`kernels.csv` beside the cases), for both kinds of device. Nothing runs, and
//! no GPU is needed. The texts that stand in case files (`kernel:`, `schedule:`) are
//! compared too. `--bless` writes all of them.

use super::Failure;
use super::args::Args;
use super::session::{self, CaseOptions};
use crate::bless::Blessings;
use crate::case::Case;
use crate::console::print;
use crate::exit;
use crate::outcome::Bless;
use crate::record::replace;
use crate::replay::{Archive, List, ListEntry, case_of, changes, compile, place, report, unified};
use crate::units::show_seconds;
use engine::diag::{Diagnostic, code};
use engine::options::{DeviceDesc, Options, SimOptions};
use engine::runtime::Session;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

const LIST: &str = "kernels.csv";
const TEXTS: &str = "kernels.texts";
/// Texts in case files whose difference is shown, and lines of each.
const SHOWN: usize = 3;
const LINES: usize = 40;

pub(super) fn kernels(args: &Args) -> Result<u8, Failure> {
    let started = Instant::now();
    let options = CaseOptions::of(args);
    let dir = &options.folders.cases;
    if dir.is_file() {
        let message = "the list of kernels lies beside a folder of cases, not a file";
        return Err(Failure::diagnostic(exit::USAGE, &Diagnostic::user(code::USAGE, message)));
    }
    let all = session::load_both(&options)?;
    let known: BTreeSet<String> = all.iter().map(|case| case.id.clone()).collect();
    let cases = session::select(&options, all)?;
    let whole = cases.len() == known.len();
    let Now { list: new, texts: after, goldens, blessings } = compiled(&cases);
    let committed = Committed::read(dir, args.output.bless)?;
    // What is not selected is not judged; where all is, what is gone is told too.
    let mut old = committed.list.clone();
    let selected: BTreeSet<&str> = cases.iter().map(|case| case.id.as_str()).collect();
    old.0.retain(|place, _| {
        let id = case_of(place);
        selected.contains(id) || (whole && !known.contains(id))
    });
    let groups = changes(&old, &new, &committed.texts, &after);
    let changed: usize = groups.iter().map(|group| group.changes.len()).sum();
    let mut text = report(&groups, &committed.texts, &after);
    let lost = if args.output.bless { Vec::new() } else { committed.lost() };
    if let Some(first) = lost.first() {
        text.push_str(&format!("{} texts of the list are not in {TEXTS}, such as that of {first}\n", lost.len()));
    }
    if args.output.bless {
        committed.write(dir, &old, new, after)?;
        text.extend(blessings.apply().iter().map(|line| format!("blessed {line}\n")));
    } else {
        text.push_str(&goldens);
    }
    let elapsed = show_seconds(started.elapsed().as_nanos() as u64);
    let count = cases.len();
    text.push_str(&match (changed, args.output.bless) {
        (0, _) => format!("{count} cases compiled in {elapsed}, all with the kernels of {LIST}\n"),
        (_, true) => format!("{count} cases compiled in {elapsed}, {changed} entries of {LIST} rewritten\n"),
        (_, false) => format!(
            "{count} cases compiled in {elapsed}, {changed} not as in {LIST}; where that is meant: harness kernels --bless\n"
        ),
    });
    print(&text);
    let right = args.output.bless || (changed == 0 && lost.is_empty() && goldens.is_empty());
    Ok(if right { exit::OK } else { exit::FAILED })
}

/// What the compiler makes of the cases now.
struct Now {
    list: List,
    texts: Archive,
    /// Texts of case files that are others, in words.
    goldens: String,
    blessings: Blessings,
}

fn compiled(cases: &[Case]) -> Now {
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default());
    let (mut list, mut texts, mut others) = (List::default(), Archive::default(), Vec::new());
    let mut blessings = Blessings::default();
    for (case, compiled) in cases.iter().zip(compile(cases, &session)) {
        let rows = compiled.entries.iter().filter_map(|entry| match entry {
            ListEntry::Kernel(row) => Some(row),
            ListEntry::View | ListEntry::Library(_) | ListEntry::Host(_) | ListEntry::Refused(_) => None,
        });
        texts.0.extend(rows.map(|row| row.cuda.clone()).zip(compiled.cuda_texts()));
        if let Some(rewritten) = compiled.goldens(case) {
            others.extend(rewritten.iter().map(|edit| difference(case, edit)));
            blessings.add_goldens(case, rewritten);
        }
        let segments = compiled.entries.len();
        let placed = |(position, entry)| (place(&case.id, position, segments), entry);
        list.0.extend(compiled.entries.into_iter().enumerate().map(placed));
    }
    let mut goldens = others.iter().take(SHOWN).map(String::as_str).collect::<String>();
    if others.len() > SHOWN {
        goldens.push_str(&format!("{} further texts of case files are others\n", others.len() - SHOWN));
    }
    Now { list, texts, goldens, blessings }
}

/// A text of a case file beside what it would be.
fn difference(case: &Case, edit: &Bless) -> String {
    let lines = unified(&edit.old, &edit.new, LINES);
    format!("{}:{}: {}: the {} is another\n{lines}", case.file, edit.line, case.id, edit.key)
}

/// What is committed.
struct Committed {
    list: List,
    texts: Archive,
}

impl Committed {
    /// Reads both files. When they are written anew, what cannot be read counts as
    /// empty, so that a conflict of two changes ends by writing them.
    fn read(dir: &Path, anew: bool) -> Result<Self, Failure> {
        let list = read(&dir.join(LIST))
            .and_then(|bytes| List::parse(&String::from_utf8(bytes).map_err(|error| error.to_string())?));
        let texts = read(&dir.join(TEXTS)).and_then(|bytes| Archive::read(&bytes));
        let failure = |(name, why): (&str, String)| {
            let message = format!("{}: {why}", dir.join(name).display());
            let note = "`harness kernels --bless` writes it";
            Failure::diagnostic(exit::BAD_CASES, &Diagnostic::user(code::CASE_PATH, message).note(note))
        };
        match (list, texts) {
            (Ok(list), Ok(texts)) => Ok(Self { list, texts }),
            (list, texts) if anew => Ok(Self { list: list.unwrap_or_default(), texts: texts.unwrap_or_default() }),
            (Err(why), _) => Err(failure((LIST, why))),
            (_, Err(why)) => Err(failure((TEXTS, why))),
        }
    }

    /// Ids whose text is not in the archive.
    fn lost(&self) -> Vec<String> {
        let rows = self.list.0.iter().filter(|(_, entry)| match entry {
            ListEntry::Kernel(row) => !self.texts.0.contains_key(&row.cuda),
            ListEntry::View | ListEntry::Library(_) | ListEntry::Host(_) | ListEntry::Refused(_) => false,
        });
        rows.map(|(id, _)| id.clone()).collect()
    }

    /// Replaces the entries `old` by `new`, and keeps the texts that some entry has.
    fn write(mut self, dir: &Path, old: &List, new: List, after: Archive) -> Result<(), Failure> {
        self.list.0.retain(|id, _| !old.0.contains_key(id));
        self.list.0.extend(new.0);
        self.texts.0.extend(after.0);
        let rows = self.list.0.values().filter_map(|entry| match entry {
            ListEntry::Kernel(row) => Some(row.cuda.as_str()),
            ListEntry::View | ListEntry::Library(_) | ListEntry::Host(_) | ListEntry::Refused(_) => None,
        });
        let used: BTreeSet<&str> = rows.collect();
        self.texts.0.retain(|digest, _| used.contains(digest.as_str()));
        let put = |path: PathBuf, bytes: Result<Vec<u8>, String>| {
            let written = bytes.and_then(|bytes| replace(&path, &bytes).map_err(|error| error.to_string()));
            written.map_err(|why| Failure::new(exit::BAD_CASES, format!("cannot write {}: {why}", path.display())))
        };
        put(dir.join(LIST), self.list.text().map(String::into_bytes))?;
        put(dir.join(TEXTS), self.texts.bytes())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| error.to_string())
}
