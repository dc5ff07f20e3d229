//! Tests of parsing, help and the environment.

use super::super::Failure;
use super::command::COMMANDS;
use super::help;
use super::parse::{Parsed, again_for, parse_over, parse_with};
use super::table::rows;
use super::{Args, Command, DeviceArg};
use crate::code_cache::CodeCache;
use crate::device::{GpuPolicy, WantedGpus};
use crate::exit;
use crate::report::Color;
use crate::worker::Stage;
use std::time::Duration;

fn parsed(line: &str, env: &[(&str, &str)]) -> Result<Parsed, Failure> {
    let words: Vec<String> = line.split_whitespace().map(String::from).collect();
    let look = |name: &str| env.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_string());
    parse_with(&words, &look, true)
}

fn with_env(line: &str, env: &[(&str, &str)]) -> Result<Args, Failure> {
    parsed(line, env).map(|parsed| match parsed {
        Parsed::Args(args) => *args,
        _ => panic!("not a command"),
    })
}

fn args(line: &str) -> Result<Args, Failure> {
    with_env(line, &[])
}

#[test]
fn documented_lines_parse() {
    let run = args("--gpus 4 --filter *Scheduler*").expect("good");
    assert_eq!(
        (run.command, run.devices.device, run.select.wanted.filters.len()),
        (Command::Run, DeviceArg::Gpus(WantedGpus::Count(4)), 1)
    );
    let gpus =
        args("--gpus GPU-a --gpu-policy exclusive --max-gpu-util 25% --workers-per-gpu 2").expect("good").devices;
    assert_eq!(gpus.device, DeviceArg::Gpus(WantedGpus::Named(vec!["GPU-a".into()])));
    assert_eq!(
        (gpus.gpu.policy, gpus.gpu.max_util, gpus.gpu.workers_per_gpu),
        (GpuPolicy::Exclusive, Some(0.25), Some(2))
    );
    let show = args("show A.b/x=1 --stage=kernel --sim 2").expect("good");
    assert_eq!((show.operand(), show.files.stages.as_slice()), (Some("A.b/x=1"), &[Stage::Kernel][..]));
    assert_eq!(args("run --seed 0xff").expect("good").repeat.seed, 255);
    assert_eq!(args("--timeout 500ms").expect("good").time.timeout, Some(Duration::from_millis(500)));
    assert_eq!(args("fmt a.fuse -- --b.fuse").expect("good").operands, ["a.fuse", "--b.fuse"]);
}

#[track_caller]
fn check_refused_with(line: &str, env: &[(&str, &str)], exit: u8, part: &str) {
    let failure = with_env(line, env).expect_err("refused");
    assert_eq!(failure.exit, exit, "{}", failure.message);
    assert!(failure.message.contains(part), "{}", failure.message);
}

#[track_caller]
fn check_refused(line: &str, exit: u8, part: &str) {
    check_refused_with(line, &[], exit, part);
}

#[test]
fn a_code_cache_goes_with_the_commands_that_repeat_a_case() {
    let cache = |line: &str, env: &[(&str, &str)]| {
        let args = with_env(line, env).expect("good");
        (args.isolation.code_cache, args.again.concat().join(" "))
    };
    let here = std::env::current_dir().expect("a folder").join("kept");
    let kept = (Some(CodeCache::Dir("kept".into())), format!("--code-cache {}", here.display()));
    let env = [("HARNESS_CODE_CACHE", "kept")];
    assert_eq!(cache("hunt --code-cache kept", &[]), kept);
    assert_eq!(cache("selftest", &env), kept);
    assert_eq!(cache("why A.b --code-cache=off", &env), (Some(CodeCache::Off), "--code-cache off".into()));
    assert_eq!(cache("--code-cache run", &env), (Some(CodeCache::Run), "--code-cache run".into()));
    assert_eq!(cache("replay", &[]), (None, String::new()));
    // That all compile is checked without, unless the line says so.
    assert_eq!(cache("compile", &env).0, None);
    assert_eq!(cache("compile --code-cache kept", &env).0, kept.0);
    let then = |line: &str| over("replay", line, &[]).isolation.code_cache;
    assert_eq!(then("hunt --code-cache kept"), Some(CodeCache::Dir("/then/kept".into())));
    assert_eq!(then("hunt --code-cache off"), Some(CodeCache::Off));
    assert_eq!(
        over("why A.b --code-cache run", "run", &["HARNESS_CODE_CACHE=kept"]).isolation.code_cache,
        Some(CodeCache::Run)
    );
    check_refused("--code-cache=", exit::USAGE, "needs a path");
    check_refused("list --code-cache x", exit::USAGE, "belongs to `run`, `bench`, `hunt`");
    check_refused("compile --code-cache run", exit::USAGE, "needs a folder");
}

#[test]
fn mistakes_are_named() {
    check_refused("--fliter x", exit::USAGE, "did you mean `--filter`?");
    check_refused("--filter", exit::USAGE, "needs a value");
    check_refused("rn", exit::USAGE, "did you mean `run`?");
    check_refused("run A.b", exit::USAGE, "--exact");
    check_refused("--sim 0", exit::USAGE, "from 1 to 256");
    check_refused("--sim 1 --gpus 2", exit::USAGE, "only one of");
    check_refused("--gpus -1", exit::USAGE, "from 1 to 256");
    check_refused("--gpus GPU-a,4", exit::USAGE, "or UUIDs");
    check_refused("--gpu-policy idel", exit::USAGE, "did you mean `idle`?");
    check_refused("--max-gpu-util 50", exit::USAGE, "10%");
    check_refused("--max-gpu-mem-used much", exit::USAGE, "500MiB");
    check_refused("--workers-per-gpu 0", exit::USAGE, "from 1");
    check_refused("--timeout soon", exit::USAGE, "500ms");
    check_refused("--bless=yes", exit::USAGE, "takes no value");
    for command in ["hunt", "replay", "why A.b"] {
        check_refused(&format!("{command} --bless"), exit::USAGE, "`--bless` belongs to `run`, `bench` and `kernels`");
        check_refused(&format!("{command} --cross"), exit::USAGE, "`--cross` belongs to `run`, `bench` and `plan`");
    }
    assert!(!with_env("hunt", &[("BLESS", "1")]).expect("good").output.bless);
    check_refused("show", exit::USAGE, "needs CASE");
    check_refused("show a b", exit::USAGE, "unexpected argument `b`");
    check_refused("--stage kernel", exit::USAGE, "belongs to `show`");
    check_refused("doctor --filter x", exit::USAGE, "belongs to `run`, `bench`");
    check_refused("show x --stage karnel", exit::USAGE, "did you mean `kernel`?");
    check_refused("--format table", exit::USAGE, "does not know `table`");
    check_refused("list --format bar", exit::USAGE, "known: table, json, names");
    check_refused("selftest --format bar", exit::USAGE, "known: auto, plain, jsonl");
    check_refused("explain --format bar", exit::USAGE, "belongs to `run`, `bench`");
    check_refused("--filter=", exit::BAD_FILTER, "empty");
    check_refused("__worker", exit::USAGE, "dispatcher");
    check_refused("--\x1b[31m", exit::USAGE, "unknown option `--\\x1b[31m`");
    check_refused(&"x".repeat(1_000_000), exit::USAGE, "xxx...");
}

#[test]
fn the_environment_fills_what_the_line_leaves_open() {
    let env = [("HARNESS_FILTER", "A.*"), ("GTEST_FILTER", "B.*"), ("HARNESS_GPUS", "2"), ("BLESS", "1")];
    let run = with_env("", &env).expect("good");
    assert!(run.select.wanted.filters[0].matches("A.x") && !run.select.wanted.filters[0].matches("B.x"));
    assert_eq!((run.devices.device, run.output.bless), (DeviceArg::Gpus(WantedGpus::Count(2)), true));
    assert_eq!(run.from_env, ["HARNESS_FILTER=A.*", "HARNESS_GPUS=2", "BLESS=1"]);
    let wins = with_env("--sim 3 --filter C.*", &env).expect("good");
    assert_eq!((wins.devices.device, wins.select.wanted.filters.len()), (DeviceArg::Sim(3), 1));
    assert!(wins.select.wanted.filters[0].matches("C.x"));
    assert!(with_env("explain", &[("HARNESS_GPUS", "nonsense")]).is_ok());
    assert!(!with_env("", &[("BLESS", "0")]).expect("good").output.bless);
    check_refused_with("", &[("HARNESS_GPUS", "many")], exit::USAGE, "`HARNESS_GPUS` needs a number of GPUs");
    check_refused_with("", &[("BLESS", "maybe")], exit::USAGE, "1 or 0");
}

/// A line that names its cases does the same in a job that is one shard of many.
#[test]
fn variables_do_not_select_where_cases_are_named() {
    let env = [
        ("HARNESS_FILTER", "A.*"),
        ("HARNESS_EXPR", "tag(slow)"),
        ("GTEST_TOTAL_SHARDS", "4"),
        ("GTEST_SHARD_INDEX", "1"),
        ("HARNESS_SEED", "7"),
    ];
    let narrowed = |line: &str| {
        let args = with_env(line, &env).expect("good");
        // Others are looked at all the same.
        assert_eq!(args.repeat.seed, if line.starts_with("list") { 0 } else { 7 }, "{line}");
        let wanted = args.select.wanted;
        (wanted.filters.len(), wanted.exprs.len(), wanted.shard.is_some())
    };
    assert_eq!(narrowed("run"), (1, 1, true));
    for line in ["run --exact A.x", "list --exact A.x", "replay --worker W0@latest", "why A.x"] {
        assert_eq!(narrowed(line), (0, 0, false), "{line}");
    }
    assert_eq!(narrowed("run --exact A.x --filter B.* --shard 1/2"), (1, 0, true));
}

/// What `now` is under the options of a run, with its words as they are settled.
fn over(now: &str, then: &str, env: &[&str]) -> Args {
    let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    let env: Vec<String> = env.iter().map(|line| line.to_string()).collect();
    parse_over(&args(now).expect("good"), &words(then), &env, &|path| format!("/then/{path}")).expect("good")
}

#[test]
fn a_command_that_repeats_a_run_has_its_options() {
    let then = "run --sim 2 --jobs 4 --phase-timeout compile=5s --timeout 7s --memory 1GiB --retries 5 --cases mine \
                --filter B.* --run-id nightly --format bar --bless --deadline 3s";
    let env = ["HARNESS_SEED=9", "HARNESS_EXPR=runs = 1"];
    let same = over("replay --exact A.x --color never", then, &env);
    assert_eq!((same.command, same.repeat.seed, same.time.phases.len()), (Command::Replay, 9, 1));
    assert_eq!((same.devices.device.clone(), same.devices.jobs), (DeviceArg::Sim(2), Some(4)));
    assert_eq!((same.time.timeout, same.isolation.memory), (Some(Duration::from_secs(7)), Some(1 << 30)));
    assert_eq!(same.select.cases.as_deref(), Some("/then/mine".as_ref()));
    // Selections, records and ends of runs are a run's own.
    assert_eq!((same.select.wanted.exact.len(), same.select.wanted.filters.len()), (1, 0));
    assert_eq!((same.records.run_id, same.records.form, same.repeat.retries), (None, None, None));
    assert!(!same.output.bless && same.time.deadline.is_none() && same.records.color == Color::Never);
    assert!(same.from_env.is_empty());
    // What is said now counts, whichever option it is, and is repeated with the rest.
    let now = "replay --memory 128MiB --sanitize memcheck --twice --gpu-coredump light --seed 3 --cases here";
    let other = over(now, then, &env);
    assert_eq!((other.isolation.memory, other.repeat.seed), (Some(128 << 20), 3));
    assert!(other.evidence.sanitize.is_some() && other.repeat.twice);
    assert_eq!(other.select.cases.as_deref(), Some("here".as_ref()));
    let again = |args: &Args, command| again_for(&args.again, command).flatten().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(
        again(&other, Command::Replay),
        "--phase-timeout compile=5s --timeout 7s --memory 128MiB --sanitize memcheck --twice --gpu-coredump light"
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    );
    // Other devices are others in all.
    let elsewhere = over("why A.x --ref", then, &env);
    assert_eq!((elsewhere.devices.device, elsewhere.devices.jobs), (DeviceArg::Reference, None));
    // What a record of this command holds is enough to repeat it once more.
    let words = same.argv.join(" ");
    let once_more = over("why A.x", &words, &[]);
    assert_eq!((once_more.time.timeout, once_more.isolation.memory), (same.time.timeout, same.isolation.memory));
}

/// A line for a command has only options that it takes.
#[test]
fn lines_are_for_their_command() {
    let run = args("run --retries 3 --seed 4 --timeout 5s --timeout 6s --jitter 2").expect("good");
    let again = |command| again_for(&run.again, command).flatten().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(again(Command::Run), "--retries 3 --timeout 6s --jitter 2");
    for command in [Command::Replay, Command::Why, Command::Hunt] {
        assert_eq!(again(command), "--timeout 6s --jitter 2");
    }
}

#[test]
fn help_fits_a_terminal_and_tells_all() {
    for text in COMMANDS.iter().map(|row| help::of(row.command)).chain([help::all()]) {
        let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }
    let all = help::all();
    let codes =
        |text: &str, code: u8| text.lines().filter(|line| line.trim_start().starts_with(&format!("{code} "))).count();
    assert!(exit::TABLE.iter().all(|(code, _)| codes(&all, *code) == 1));
    // A command tells those that it can end with.
    for (command, can, cannot) in [
        (Command::Run, exit::CRASHED, exit::UNFORMATTED),
        (Command::Compare, exit::REGRESSED, exit::CRASHED),
        (Command::Store, exit::NO_RECORD, exit::FLAKY),
        (Command::Explain, exit::USAGE, exit::FAILED),
    ] {
        let text = help::of(command);
        assert_eq!((codes(&text, can), codes(&text, cannot)), (1, 0), "{text}");
    }
    let expressions = rows().find(|row| row.name == "-E").expect("a row").help;
    for name in crate::select::expr::condition_names().filter(|name| !matches!(*name, "all" | "none")) {
        assert!(expressions.split([' ', ',']).any(|word| word == name), "-E says nothing of `{name}`");
    }
    assert!(!help::of(Command::Store).contains("Import:"), "{}", help::of(Command::Store));
    for row in rows().filter(|row| !row.help.is_empty()) {
        assert!(all.contains(row.name), "{}", row.name);
    }
    assert!(COMMANDS.iter().all(|row| all.contains(&format!("\n  {}", row.word))));
    assert!(help::of(Command::Fmt).contains("--check") && !help::of(Command::Fmt).contains("--filter"));
    for asked in ["run --help", "help run"] {
        assert!(matches!(parsed(asked, &[]), Ok(Parsed::Help(text)) if text == help::of(Command::Run)), "{asked}");
    }
    assert!(matches!(parsed("help", &[]), Ok(Parsed::Help(text)) if text == all));
    check_refused("help nope", exit::USAGE, "unknown command `nope`");
}

#[test]
fn names_are_taken_once() {
    for command in COMMANDS {
        let rows = rows().filter(|row| row.commands.has(command.command));
        let names: Vec<&str> = rows.flat_map(|row| row.also.iter().chain([&row.name])).copied().collect();
        let unique: std::collections::BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(unique.len(), names.len(), "{}: {names:?}", command.word);
    }
    assert!(COMMANDS.iter().enumerate().all(|(i, row)| COMMANDS[i + 1..].iter().all(|o| o.word != row.word)));
}

/// A task has what was asked for, also by the environment, but not what concerns who launches it.
#[test]
fn tasks_have_the_options_of_their_run() {
    let task = |line: &str, env: &[&str]| {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let env: Vec<String> = env.iter().map(|line| line.to_string()).collect();
        super::parse::task_words(&words, &env).map(|words| words.join(" ")).map_err(|failure| failure.message)
    };
    let line =
        "bench --launcher slurm --tasks 3 --sbatch=--time=5 --sim 2 --filter A.* --results r --junit j -q --seed 4";
    assert_eq!(task(line, &["HARNESS_EXPR=perf"]), Ok("bench --sim 2 --filter A.* --seed 4 -E perf".into()));
    assert_eq!(task("--ref --tag x", &[]), Ok("run --ref --tag x".into()));
    assert!(task("--from-file -", &[]).is_err_and(|why| why.contains("standard input")));
    check_refused("run --tasks 2", exit::USAGE, "belong to `--launcher`");
    check_refused("__task", exit::USAGE, "`--launcher` only");
}
