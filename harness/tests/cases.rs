//! Every case as a test on the simulator, in worker processes, so that
//! `cargo test`, `cargo nextest` and editors see them. With `BLESS=1` what they
//! expect of generated code is rewritten, as by `harness --bless`.

use harness::background::{Conclusion, Started, start};
use harness::case::{Case, Target, load};
use libtest_mimic::{Arguments, Completion, Trial};
use std::path::Path;
use std::sync::{Arc, OnceLock};

type Verdicts = Arc<OnceLock<Started>>;

#[expect(clippy::print_stdout, reason = "what was rewritten is told beside the verdicts")]
fn main() {
    let args = Arguments::from_args();
    let bless = std::env::var_os("BLESS").is_some_and(|value| value != "0");
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases");
    let loaded = if dir.is_dir() { load(&dir, Target::Sim) } else { Default::default() };
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
        trials.push(Trial::ignorable_test(case.id.clone(), move || conclude(&id, &verdicts)));
    }
    if !args.list {
        // Only what will run: with one process for each test, one case.
        let mut trial_of = trials.iter().rev();
        let mut wanted = loaded.cases;
        wanted.reverse();
        wanted.retain(|_| trial_of.next().is_none_or(|trial| !args.is_filtered_out(trial)));
        wanted.reverse();
        wanted.retain(|case| !elsewhere(case));
        let workers = args.test_threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
        let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cases-{}", std::process::id()));
        let exe = Path::new(env!("CARGO_BIN_EXE_harness"));
        let _ = verdicts.set(start(wanted, exe, workers.min(8), &work, bless));
    }
    let conclusion = libtest_mimic::run(&args, trials);
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
