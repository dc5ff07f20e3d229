//! Every case as a test on the simulator, in worker processes, so that
//! `cargo test`, `cargo nextest` and editors see them. With `BLESS=1` what they
//! expect of generated code is rewritten, as by `harness --bless`.
//!
//! A run that is asked for nothing in particular takes a fifth of them, and says which; it is followed by the next
//! fifth once nothing of this one fails. With `FUSEWRIGHT_DRAWS=all`, as `.ci/run` has it, with any filter, and where
//! expectations are rewritten, all run that are asked for.

#[allow(dead_code, reason = "of the engine's tests, which count draws otherwise")]
#[path = "../../engine/tests/property/draws.rs"]
mod draws;

use harness::background::{Conclusion, Started, start};
use harness::case::{Case, Target, load};
use libtest_mimic::{Arguments, Completion, Trial};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

type Verdicts = Arc<OnceLock<Started>>;

/// Parts of which a run takes one.
const PARTS: u32 = 5;

/// The part of the cases that this run takes.
struct Part {
    number: u32,
    /// Where the number is kept.
    file: PathBuf,
}

impl Part {
    /// None where all are to run that are asked for.
    fn of_run(args: &Arguments, bless: bool) -> Option<Self> {
        let chosen = args.filter.is_some() || !args.skip.is_empty() || args.ignored || args.include_ignored;
        if draws::is_all() || bless || chosen || args.list {
            return None;
        }
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cases-part");
        // Whatever cannot be read is a beginning.
        let kept = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
        Some(Self { number: kept.filter(|number| *number < PARTS).unwrap_or(0), file })
    }

    /// By the case's name alone, so that another case moves none.
    fn has(&self, case: &Case) -> bool {
        crc32fast::hash(case.id.as_bytes()) % PARTS == self.number
    }

    fn text(&self) -> String {
        format!("part {} of {PARTS} of the cases; FUSEWRIGHT_DRAWS=all runs all", self.number + 1)
    }

    /// Leaves the next part to the next run. Where that cannot be, it is this one again.
    fn pass_on(&self) {
        let _ = std::fs::write(&self.file, ((self.number + 1) % PARTS).to_string());
    }
}

#[expect(clippy::print_stdout, reason = "what was rewritten is told beside the verdicts")]
fn main() {
    let args = Arguments::from_args();
    let bless = std::env::var_os("BLESS").is_some_and(|value| value != "0");
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases");
    let loaded = if dir.is_dir() { load(&dir, Target::Sim) } else { Default::default() };
    let part = Part::of_run(&args, bless);
    let verdicts: Verdicts = Arc::default();
    let mut trials = Vec::new();
    if !loaded.errors.is_empty() {
        let text: String = loaded.errors.iter().map(|error| format!("{error}\n")).collect();
        trials.push(Trial::test("case_files", move || Err(text.into())));
    }
    for case in &loaded.cases {
        let (id, verdicts) = (case.id.clone(), verdicts.clone());
        if elsewhere(case) {
            let reason = format!("needs device {}", case.require.device.join(" or "));
            trials.push(Trial::ignorable_test(case.id.clone(), move || Ok(Completion::ignored_with(reason))));
            continue;
        }
        if part.as_ref().is_some_and(|part| !part.has(case)) {
            let other = move || Ok(Completion::ignored_with("of another part"));
            trials.push(Trial::ignorable_test(case.id.clone(), other));
            continue;
        }
        trials.push(Trial::ignorable_test(case.id.clone(), move || conclude(&id, &verdicts)));
    }
    if !args.list {
        // Only what will run: with one process for each test, one case.
        let mut trial_of = trials.iter().rev();
        let mut wanted = loaded.cases;
        wanted.reverse();
        wanted.retain(|_| trial_of.next().is_none_or(|trial| !args.is_filtered_out(trial)));
        wanted.reverse();
        wanted.retain(|case| !elsewhere(case) && part.as_ref().is_none_or(|part| part.has(case)));
        let workers = args.test_threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
        let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cases-{}", std::process::id()));
        let exe = Path::new(env!("CARGO_BIN_EXE_harness"));
        let _ = verdicts.set(start(wanted, exe, workers.min(8), &work, bless));
    }
    let conclusion = libtest_mimic::run(&args, trials);
    if let Some(part) = &part {
        println!("{}", part.text());
        if !conclusion.has_failed() {
            part.pass_on();
        }
    }
    for line in verdicts.get().map(Started::bless).unwrap_or_default() {
        println!("blessed {line}");
    }
    conclusion.exit();
}

/// Whether a case asks for devices of which the simulator is none.
fn elsewhere(case: &Case) -> bool {
    let devices = &case.require.device;
    !devices.is_empty() && !devices.iter().any(|name| name == "sim")
}

fn conclude(id: &str, verdicts: &Verdicts) -> Result<Completion, libtest_mimic::Failed> {
    let pending = verdicts.get().and_then(|all| all.pending.get(id)).ok_or("the case was not started")?;
    match pending.wait() {
        Conclusion::Passed => Ok(Completion::Completed),
        Conclusion::Skipped(reason) => Ok(Completion::ignored_with(reason)),
        Conclusion::Failed(reason) => Err(reason.into()),
    }
}
