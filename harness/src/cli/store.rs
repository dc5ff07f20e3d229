//! `store`: looks at, mends, thins out, copies and unites recorded runs.

pub(super) mod join;
mod list;

use super::args::{Args, Form, usage};
use super::session::Folders;
use super::{Failure, runs};
use crate::case::suggest;
use crate::console::print;
use crate::evidence::adopt;
use crate::exit;
use crate::record::prune::{self, Limits};
use crate::record::{Recorded, ResultsFolder, RunInfo, RunState, export, merge, rebuild, repair};
use crate::units::{show_bytes, show_seconds};
use engine::diag::{Diagnostic, code};
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// Rows of history that `verify` names.
const WRONG_ROWS: usize = 20;

/// What is to be done with the records.
enum StoreCommand<'a> {
    List { form: Form },
    Info(&'a [String]),
    Verify,
    Repair { dry: bool },
    Prune { limits: Limits, apply: bool },
    Export { form: Form, output: Option<&'a Path>, words: &'a [String] },
    Merge(&'a [String]),
    Join { words: &'a [String], run_id: Option<&'a str> },
}

const WORDS: [&str; 8] = ["list", "info", "verify", "repair", "prune", "export", "merge", "join"];

pub(super) fn store(args: &Args) -> Result<u8, Failure> {
    let results = Folders::of(args).results;
    match StoreCommand::of(args)? {
        StoreCommand::List { form } => list(&runs::layout(&results)?, form),
        StoreCommand::Info(words) => info(&results, words),
        StoreCommand::Verify => verify(&runs::layout(&results)?),
        StoreCommand::Repair { dry } => mend(&runs::layout(&results)?, dry),
        StoreCommand::Prune { limits, apply } => thin_out(&runs::layout(&results)?, limits, apply),
        StoreCommand::Export { form, output, words } => copy_out(&results, form, output, words),
        StoreCommand::Merge(words) => unite(&results, words),
        StoreCommand::Join { words, run_id } => join::join(&results, words, run_id),
    }
}

impl<'a> StoreCommand<'a> {
    /// What the command line asks for.
    fn of(args: &'a Args) -> Result<Self, Failure> {
        let (word, rest) = args.operands.split_first().map_or(("", &[][..]), |(word, rest)| (word.as_str(), rest));
        let records = &args.records;
        if !matches!(word, "info" | "export" | "merge" | "join") && !rest.is_empty() {
            return Err(usage(format!("`store {word}` takes no names"), "it works on the whole folder of records"));
        }
        belong(args, word)?;
        has_form(word, records.form)?;
        match word {
            "list" => Ok(Self::List { form: records.form.unwrap_or(Form::Plain) }),
            "info" => Ok(Self::Info(rest)),
            "verify" => Ok(Self::Verify),
            "repair" => Ok(Self::Repair { dry: records.dry_run }),
            "prune" => {
                let limits = Limits { keep: records.keep, age: records.older_than, bytes: records.max_size };
                Ok(Self::Prune { limits, apply: records.yes && !records.dry_run })
            }
            "export" => {
                let (form, output) = (records.form.unwrap_or(Form::Csv), args.output.file.as_deref());
                Ok(Self::Export { form, output, words: rest })
            }
            "merge" => Ok(Self::Merge(rest)),
            "join" => Ok(Self::Join { words: rest, run_id: records.run_id.as_deref() }),
            _ => Err(usage(
                format!("`store` does not know `{}`", crate::escape::short(word)),
                suggest(word, WORDS.into_iter()),
            )),
        }
    }
}

/// Refuses options of another word: `merge --dry-run` must not merge.
fn belong(args: &Args, word: &str) -> Result<(), Failure> {
    let records = &args.records;
    let given = [
        ("--format", records.form.is_some(), &["list", "export"][..]),
        ("--output", args.output.file.is_some(), &["export"]),
        ("--keep", records.keep.is_some(), &["prune"]),
        ("--older-than", records.older_than.is_some(), &["prune"]),
        ("--max-size", records.max_size.is_some(), &["prune"]),
        ("--yes", records.yes, &["prune"]),
        ("--dry-run", records.dry_run, &["prune", "repair"]),
        ("--run-id", records.run_id.is_some(), &["join"]),
    ];
    let strange = given.into_iter().find(|(_, is_given, words)| *is_given && !words.contains(&word));
    match strange.filter(|_| WORDS.contains(&word)) {
        None => Ok(()),
        Some((option, _, words)) => {
            let takers: Vec<String> = words.iter().map(|word| format!("`store {word}`")).collect();
            let message = format!("`{option}` belongs to {}, not to `store {word}`", takers.join(" and "));
            Err(usage(message, "nothing was done; leave the option out"))
        }
    }
}

/// Refuses a form that another word of `store` has.
fn has_form(word: &str, form: Option<Form>) -> Result<(), Failure> {
    const OF_LIST: &[Form] = &[Form::Plain, Form::Json];
    const OF_EXPORT: &[Form] = &[Form::Csv, Form::Jsonl, Form::Folder];
    let (known, other) = match word {
        "list" => (OF_LIST, "export"),
        "export" => (OF_EXPORT, "list"),
        _ => return Ok(()),
    };
    match form.filter(|form| !known.contains(form)) {
        None => Ok(()),
        Some(form) => {
            let words: Vec<&str> = known.iter().map(|form| form.word()).collect();
            let message = format!("`--format {}` belongs to `store {other}`, not to `store {word}`", form.word());
            Err(usage(message, format!("`store {word}` has {}", words.join(", "))))
        }
    }
}

/// An error of the file system while the store is read or changed.
fn failed(layout: &ResultsFolder, error: &io::Error) -> Failure {
    let message = format!("{}: {error}", layout.root().display());
    Failure::diagnostic(exit::NO_RECORD, &Diagnostic::user(code::RESULTS, message))
}

fn list(layout: &ResultsFolder, form: Form) -> Result<u8, Failure> {
    let all = layout.list().map_err(|error| failed(layout, &error))?;
    list::list(&all, layout.latest().as_deref(), form);
    Ok(exit::OK)
}

fn info(results: &Path, words: &[String]) -> Result<u8, Failure> {
    let words = if words.is_empty() { vec!["latest".to_string()] } else { words.to_vec() };
    for word in words {
        let info = runs::find(results, &word)?;
        let run = runs::load(&info)?;
        print(&info_text(&info, &run));
    }
    Ok(exit::OK)
}

fn info_text(info: &RunInfo, run: &Recorded) -> String {
    let header = &run.header;
    let mut text = format!("{}\n", info.id);
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            text.push_str(&format!("  {name:10} {}\n", crate::escape::escape(&value, "")));
        }
    };
    let own = |value: &Option<String>| value.clone().unwrap_or_default();
    row("state", info.state.name().into());
    row("folder", info.dir.display().to_string());
    row("started", own(&header.started_utc));
    row("ended", own(&header.ended_utc));
    row("time", show_seconds(run.elapsed_ns()));
    let words = header.argv.iter().flatten().map(|word| crate::report::quoted(word));
    row("command", words.collect::<Vec<_>>().join(" "));
    row("from env", header.from_env.clone().unwrap_or_default().join(" "));
    row("device", run.device().unwrap_or_default());
    row("seed", header.seed.map_or_else(String::new, |seed| seed.to_string()));
    let changes = if header.is_dirty() { " with local changes" } else { "" };
    row("commit", format!("{}{changes}", header.commit()));
    row("host", header.host().into());
    row("resumes", own(&header.resumes));
    let shard = header.shard.clone().unwrap_or_default();
    let of = |(index, count)| format!("{index} of {count}, dealt out by {}", own(&shard.split));
    row("shard", shard.index.zip(shard.count).map(of).unwrap_or_default());
    let joins = header.joins.iter().flatten().filter_map(|part| part.run_id.as_deref());
    row("joins", joins.collect::<Vec<_>>().join(" "));
    let counts: Vec<String> = run.counts().iter().map(|(name, n)| format!("{n} {name}")).collect();
    let open = run.selected.iter().filter(|id| !run.cases.contains_key(*id)).count();
    row("cases", format!("{} of {} recorded: {}", run.cases.len(), run.cases.len() + open, counts.join(", ")));
    let passed = run.counts().get("pass").copied().unwrap_or(0);
    row("passed", crate::report::passed_text(&run.passed_by(), passed).unwrap_or_default());
    row("records", run.health.records.to_string());
    row("lost", lost_text(&run.health).unwrap_or_default());
    row("not whole", own(&header.record_error));
    row("size", show_bytes(info.bytes));
    text
}

/// What is wrong with a log, in one line.
fn lost_text(health: &crate::record::Health) -> Option<String> {
    let mut parts = Vec::new();
    if health.damaged > 0 {
        parts.push(format!("{} damaged lines", health.damaged));
    }
    if health.missing > 0 {
        parts.push(format!("{} records missing", health.missing));
    }
    if health.mended > 0 {
        parts.push(format!("{} records lost before it was mended", health.mended));
    }
    if health.torn {
        parts.push("the last line is torn".into());
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Reads everything; ends with a code of its own if something is wrong.
fn verify(layout: &ResultsFolder) -> Result<u8, Failure> {
    let (mut text, mut bad, mut records) = (String::new(), 0, 0);
    let all = layout.list().map_err(|error| failed(layout, &error))?;
    let mut tell = |text: &mut String, what: String| {
        bad += 1;
        text.push_str(&format!("{}\n", crate::escape::escape(&what, "")));
    };
    for info in &all {
        let id = &info.id;
        if info.state == RunState::Live {
            text.push_str(&format!("{id}: a harness is writing it, not looked at\n"));
            continue;
        }
        match info.load() {
            Err(error) => tell(&mut text, format!("{id}: {error}")),
            Ok(run) => {
                records += run.health.records;
                if !run.health.is_whole() || run.health.torn {
                    tell(&mut text, format!("{id}: {}", lost_text(&run.health).unwrap_or_default()));
                    for problem in run.health.problems.iter().take(5) {
                        text.push_str(&format!("  {problem}\n"));
                    }
                }
                let cut = run.cut_short();
                // One that could not be written, or was mended, says so itself.
                let silent = info.finished() && run.header.record_error.is_none();
                if silent && (run.end.is_none() || cut.is_some()) {
                    let what = cut.map_or(String::new(), |what| format!(": {what} are missing"));
                    tell(&mut text, format!("{id}: its record lacks its tail{what}"));
                }
                if info.state == RunState::Killed {
                    tell(&mut text, format!("{id}: was killed: {} cases are recorded", run.cases.len()));
                }
                if !info.headed {
                    tell(&mut text, format!("{id}: run.json cannot be read"));
                }
            }
        }
    }
    let wanted = repair::repair(layout, true).map_err(|error| failed(layout, &error))?;
    let of = |what: &str| all.iter().map(|run| format!("{}:", run.id)).find(|start| what.starts_with(start));
    for what in wanted.done.iter().filter(|what| of(what).is_none()) {
        tell(&mut text, what.clone());
    }
    // What could not be looked at is no good news.
    for what in &wanted.left {
        if of(what).is_none_or(|start| !text.lines().any(|line| line.starts_with(&start))) {
            tell(&mut text, what.clone());
        }
    }
    let wrong: Vec<&String> = wanted.tables.iter().flat_map(|table| &table.wrong).collect();
    for what in wrong.iter().take(WRONG_ROWS) {
        text.push_str(&format!("  {}\n", crate::escape::escape(what, "")));
    }
    if wrong.len() > WRONG_ROWS {
        text.push_str(&format!("  and {} more rows\n", wrong.len() - WRONG_ROWS));
    }
    let sum = |of: fn(&rebuild::MendedTable) -> usize| wanted.tables.iter().map(of).sum::<usize>();
    let (rows, unjudged) = (sum(|table| table.rows), sum(|table| table.unjudged));
    if unjudged > 0 {
        let why = "the runs that they tell of are not here, or were cut short";
        text.push_str(&format!("{unjudged} of {rows} rows of history cannot be judged: {why}\n"));
    }
    text.push_str(&format!("{} runs, {records} records, {bad} problems\n", all.len()));
    if bad > 0 {
        text.push_str("`harness store repair` mends what can be mended; --dry-run says how\n");
    }
    print(&text);
    Ok(if bad > 0 { exit::BAD_CASES } else { exit::OK })
}

fn mend(layout: &ResultsFolder, dry: bool) -> Result<u8, Failure> {
    let report = repair::repair(layout, dry).map_err(|error| failed(layout, &error))?;
    let mut text = String::new();
    for line in &report.done {
        text.push_str(&format!("{line}\n"));
    }
    for line in &report.left {
        text.push_str(&format!("left as it is: {line}\n"));
    }
    let verb = if dry { "would be mended" } else { "mended" };
    text.push_str(&format!("{} things {verb}, {} left\n", report.done.len(), report.left.len()));
    print(&text);
    Ok(if report.left.is_empty() { exit::OK } else { exit::BAD_CASES })
}

fn thin_out(layout: &ResultsFolder, limits: Limits, apply: bool) -> Result<u8, Failure> {
    if limits == Limits::default() {
        return Err(usage("`store prune` needs a limit", "--keep N, --older-than 30d or --max-size 2GiB"));
    }
    let all = layout.list().map_err(|error| failed(layout, &error))?;
    let victims = prune::plan(&all, layout.latest().as_deref(), limits, SystemTime::now());
    let (mut text, mut freed, mut removed, mut kept) = (String::new(), 0, 0, 0);
    for victim in &victims {
        let line = format!("{}  {:>8}  {}", victim.run.id, show_bytes(victim.run.bytes), victim.why);
        match if apply { prune::remove(layout, &victim.run) } else { Ok(()) } {
            Ok(()) => {
                (freed, removed) = (freed + victim.run.bytes, removed + 1);
                text.push_str(&format!("{line}\n"));
            }
            Err(error) => {
                kept += 1;
                text.push_str(&format!("{line}: stays, {error}\n"));
            }
        }
    }
    let verb = if apply { "removed" } else { "would go (--yes removes them)" };
    text.push_str(&format!("{removed} of {} runs {verb}, {}\n", all.len(), show_bytes(freed)));
    print(&text);
    Ok(if kept > 0 { exit::NO_RECORD } else { exit::OK })
}

fn copy_out(results: &Path, form: Form, output: Option<&Path>, words: &[String]) -> Result<u8, Failure> {
    let chosen = match words {
        [] => runs::layout(results)?.list().map_err(|error| failed_at(results, &error))?,
        words => words.iter().map(|word| runs::find(results, word)).collect::<Result<_, _>>()?,
    };
    if form == Form::Folder {
        let Some(to) = output else {
            return Err(usage("a folder needs a place", "store export --format folder --output DIR"));
        };
        export::folder(&chosen, to).map_err(|error| runs::not_written(to, &error))?;
        print(&format!("{} runs in {}; `harness store merge` reads it\n", chosen.len(), to.display()));
        return Ok(exit::OK);
    }
    let mut out = Vec::new();
    if form == Form::Jsonl {
        for info in &chosen {
            let told = export::jsonl(&info.id, &info.dir.join("events.jsonl"), &mut out);
            told.map_err(|error| runs::not_written(&info.dir, &error))?;
        }
    } else {
        let loaded = chosen.iter().map(runs::load).collect::<Result<Vec<Recorded>, _>>()?;
        let ids = chosen.iter().map(|info| info.id.as_str());
        export::csv(ids.zip(&loaded), &mut out).map_err(|error| runs::not_written(Path::new("export"), &error))?;
    }
    runs::deliver(output, &String::from_utf8_lossy(&out))?;
    Ok(exit::OK)
}

fn failed_at(path: &Path, error: &io::Error) -> Failure {
    let message = format!("{}: {error}", path.display());
    Failure::diagnostic(exit::BAD_RUN, &Diagnostic::user(code::RESULTS, message))
}

fn unite(root: &Path, words: &[String]) -> Result<u8, Failure> {
    if words.is_empty() {
        return Err(usage("`store merge` needs folders", "store merge DIR...: results folders, or folders of runs"));
    }
    let layout = ResultsFolder::claim(root).map_err(|error| failed_at(root, &error))?;
    std::fs::create_dir_all(layout.runs()).map_err(|error| failed(&layout, &error))?;
    let (mut text, mut counts, mut refused) = (String::new(), [0usize; 3], Vec::new());
    let told = crate::record::join::told(&layout).map_err(|error| failed(&layout, &error))?;
    for word in words {
        let path = Path::new(word);
        for run in merge::runs_at(path).map_err(|error| failed_at(path, &error))? {
            let taken = merge::take(&layout, &run).map_err(|error| failed(&layout, &error))?;
            if taken == merge::Merged::Copied && !told.contains(&run.id) {
                let crashes = run.load().and_then(|recorded| adopt(layout.root(), &recorded, &run.dir, &run.id));
                crashes.map_err(|error| failed(&layout, &error))?;
            }
            let (index, what) = match taken {
                merge::Merged::Copied => (0, "copied".to_string()),
                merge::Merged::Grown => (1, "replaces a shorter record of itself".into()),
                merge::Merged::Duplicate => (2, "is here already".into()),
                merge::Merged::Refused(why) => {
                    refused.push(format!("{} of {word}: {why}", run.id));
                    continue;
                }
            };
            counts[index] += 1;
            text.push_str(&format!("{}: {what}\n", run.id));
        }
    }
    let mended =
        rebuild::mend(&layout, &crate::record::utc_stamp(true), false).map_err(|error| failed(&layout, &error))?;
    // A folder that had no run names none yet.
    repair::link(&layout, false).map_err(|error| failed(&layout, &error))?;
    let rows: usize = mended.iter().map(|table| table.added).sum();
    let [copied, grown, here] = counts;
    text.push_str(&format!("{copied} runs copied, {grown} replaced, {here} were here, {rows} rows of history added\n"));
    print(&text);
    if refused.is_empty() {
        return Ok(exit::OK);
    }
    let diagnostic = Diagnostic::user(code::RUN_CONFLICT, format!("{} runs were not taken", refused.len()));
    let diagnostic = refused.into_iter().fold(diagnostic, Diagnostic::note);
    Err(Failure::diagnostic(exit::BAD_CASES, &diagnostic))
}
