//! Schedules that somebody wrote: whatever the steps, they are refused with a code, or the
//! kernel computes the fusion. And the table of verbs is what `cases/README.md` says.

#![allow(clippy::unwrap_used, reason = "a test: what fails here is the finding")]

use crate::blessed;
use crate::property::draws::drawn;
use engine::diag::{Diagnostic, DiagnosticKind};
use engine::options::{DeviceDesc, NoTrace, Options, SimOptions, SimSchedule};
use engine::runtime::Session;
use engine::schedule::VERBS;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use testing::Reference;
use testing::random::{WrittenCase, draw_steps};

/// Schedules of a run that draws all.
const SCHEDULES: u64 = 3000;

/// What became of a schedule: refused, or run.
fn run(seed: u64) -> Result<bool, String> {
    let session = Session::simulator(
        DeviceDesc::h200(),
        SimOptions { schedule: SimSchedule::Random, seed, threads: 1, count: false, ..SimOptions::default() },
        Options::default(),
    );
    let case = draw_steps(seed).map_err(|error| error.to_string())?;
    let WrittenCase { fusion, args, schedule, refusals } = &case;
    let told = |error: &Diagnostic| format!("{error}\n{}\n{schedule}", engine::text::print(fusion));
    if let Some(error) = refusals.iter().find(|error| error.kind == DiagnosticKind::Bug) {
        return Err(told(error));
    }
    match session.scheduled(schedule.as_str()).run(fusion, args, &NoTrace) {
        Err(error) if error.kind == DiagnosticKind::Bug => Err(told(&error)),
        Err(_) => Ok(false),
        Ok(run) => {
            let reference = Reference::of(fusion, args).map_err(|error| told(&error))?;
            let outputs = run.outputs.iter().enumerate();
            outputs
                .map(|(at, output)| reference.compare(at, output))
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| told(&error))?;
            Ok(true)
        }
    }
}

/// Runs the schedules of some seeds; how many ran.
fn check(seeds: impl IntoIterator<Item = u64>) -> u64 {
    let mut ran = 0;
    let mut wrong = Vec::new();
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| run(seed))) {
            Ok(Ok(did)) => ran += u64::from(did),
            Ok(Err(what)) => wrong.push(format!("seed {seed}: {what}")),
            Err(_) => wrong.push(format!("seed {seed}: panic")),
        }
    }
    assert!(wrong.is_empty(), "{} are wrong\n{}", wrong.len(), wrong[..wrong.len().min(12)].join("\n"));
    ran
}

#[test]
fn every_written_schedule_computes_the_fusion_or_is_refused() {
    let seeds = drawn(SCHEDULES);
    let schedules = seeds.len() as u64;
    let ran = check(seeds);
    // Most steps are drawn to be refused, or to be of no use to the others.
    assert!(ran * 6 > schedules, "{ran} of {schedules} schedules ran");
}

/// `STEPS=3000..30000 cargo test ... -- --ignored steps_for_long`
#[test]
#[ignore = "as many as it is told"]
fn steps_for_long() {
    let range = std::env::var("STEPS").unwrap_or_else(|_| "3000..30000".into());
    let (first, last) = range.split_once("..").unwrap();
    assert!(check(first.parse().unwrap()..last.parse().unwrap()) > 0);
}

const START: &str = "<!-- verbs: from the table in engine/src/schedule/verbs.rs; a test compares -->\n";
const END: &str = "<!-- end of verbs -->";

#[test]
fn the_documentation_lists_every_verb() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../cases/README.md");
    let readme = std::fs::read_to_string(path).unwrap();
    let (head, rest) = readme.split_once(START).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    let mut table = String::from("| form | meaning |\n|---|---|\n");
    for verb in VERBS {
        let _ = writeln!(table, "| `{}` | {} |", verb.form, verb.meaning);
    }
    blessed::check_file(Path::new(path), &format!("{head}{START}{table}{END}{tail}"));
}
