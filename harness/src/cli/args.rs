//! Arguments. Written by hand: one table gives parsing, help and the nearest
//! name to a typo, and a parser crate would cost more build time than all of
//! this crate's own code.

use super::Failure;
use crate::case::suggest;
use crate::device::{GpuOptions, Wanted};
use crate::dispatch::Isolation;
use crate::exit;
use crate::filter::Filter;
use crate::report::Format;
use crate::units;
use crate::worker::Stage;
use engine::diag::{Diagnostic, code};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

/// What to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Command {
    #[default]
    Run,
    List,
    Show,
    Doctor,
    Bench,
    Compile,
    Check,
    Explain,
    Fmt,
    Import,
}

impl Command {
    /// The word that selects it.
    pub(crate) fn word(self) -> &'static str {
        COMMANDS.iter().find(|(_, which, _)| *which == self).map_or("run", |(name, ..)| name)
    }
}

/// What `import` runs a definition on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    #[default]
    Reference,
    Simulator,
    Gpu,
}

/// Which devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeviceArg {
    /// A GPU if there is one, the simulator otherwise.
    #[default]
    Auto,
    Gpus(Wanted),
    Sim(usize),
    Reference,
}

/// The command line, checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Args {
    pub(crate) command: Command,
    /// Files and folders of `fmt`.
    pub(crate) paths: Vec<PathBuf>,
    /// For `fmt`: write nothing, say what would change.
    pub(crate) check: bool,
    /// The case of `show`, the code of `explain`, the file of `import`.
    pub(crate) operand: Option<String>,
    pub(crate) filters: Vec<Filter>,
    pub(crate) exact: Vec<String>,
    /// Tags of which a case must have each.
    pub(crate) tags: Vec<String>,
    pub(crate) device: DeviceArg,
    /// Which GPUs are refused, and how many workers each has.
    pub(crate) gpu: GpuOptions,
    /// A file in the place of NVML.
    pub(crate) nvml: Option<PathBuf>,
    pub(crate) cases: Option<PathBuf>,
    pub(crate) results: Option<PathBuf>,
    pub(crate) seed: u64,
    pub(crate) timeout: Option<Duration>,
    pub(crate) grace: Option<Duration>,
    pub(crate) jobs: Option<usize>,
    pub(crate) bless: bool,
    pub(crate) format: Format,
    pub(crate) isolation: Isolation,
    /// For `show`, in the order in which they are printed.
    pub(crate) stages: Vec<Stage>,
    /// For `import`: arrays and records of a run, where to run, what to write.
    pub(crate) inputs: Option<PathBuf>,
    pub(crate) records: Option<PathBuf>,
    pub(crate) place: Place,
    pub(crate) output: Option<PathBuf>,
    /// For `list`: why each case exists.
    pub(crate) about: bool,
    /// Adds the built-in fault cases; for tests of the harness.
    pub(crate) faults: bool,
    /// As given, for the record.
    pub(crate) argv: Vec<String>,
}

/// The outcome of parsing.
pub(super) enum Parsed {
    Args(Box<Args>),
    Help(String),
    Worker { fd: RawFd, crumb_fd: RawFd },
}

const COMMANDS: &[(&str, Command, &str)] = &[
    ("run", Command::Run, "run the selected cases (the default command)"),
    ("list", Command::List, "print the ids of the selected cases, one a line"),
    ("show", Command::Show, "print a stage of one case: show CASE --stage kernel"),
    ("bench", Command::Bench, "run and measure: GPU timings, or the simulator's counters"),
    ("compile", Command::Compile, "compile the selected cases' kernels with NVRTC for an H200; needs no GPU"),
    ("check", Command::Check, "read the selected cases and bind their sizes, without running anything"),
    ("fmt", Command::Fmt, "give case files their canonical form: fmt [--check] [FILES|FOLDERS]"),
    ("explain", Command::Explain, "say what a diagnostic code means: explain E0203; without a code, list all"),
    ("import", Command::Import, "read a definition in nvFuser's form, and print it as a case: import FILE.py"),
    ("doctor", Command::Doctor, "say what this machine has and what is missing for which feature"),
];

/// Name, value (empty for a flag), help (empty for a hidden one).
const OPTIONS: &[(&str, &str, &str)] = &[
    ("--filter", "GLOBS", "select ids, gtest syntax: 'A*:B*-C*'; repeated filters intersect"),
    ("--exact", "ID", "select one id; may be repeated"),
    ("--tag", "NAME", "select cases whose file has the tag; narrows --filter, may be repeated"),
    ("--gpus", "N|all|UUID,...", "run on the N quietest GPUs, on all, or on those named"),
    ("--gpu-policy", "idle|any|exclusive", "refuse GPUs in use; exclusive: also other harnesses (default: any)"),
    ("--max-gpu-util", "SHARE", "refuse GPUs that are busier: 0.10"),
    ("--max-gpu-mem-used", "BYTES", "refuse GPUs with more memory in use: 500MiB"),
    ("--workers-per-gpu", "K", "worker processes on each GPU (default: 1)"),
    ("--sim", "N", "run on N simulated devices"),
    ("--ref", "", "run on the reference evaluator only"),
    ("--jobs", "N", "worker processes at a time (default: one for each device)"),
    ("--cases", "DIR", "folder of case files, or one file (default: cases)"),
    ("--results", "DIR", "folder of records (default: results)"),
    ("--seed", "N", "seed of the simulator's schedules (default: 0)"),
    ("--timeout", "TIME", "limit of each case, for example 30s; wins over the case's own (default: 60s)"),
    ("--grace", "TIME", "between TERM and KILL of a hanging worker (default: 2s)"),
    ("--isolation", "worker|case", "keep workers warm, or a fresh one for each case (default: worker)"),
    ("--format", "auto|bar|plain", "progress on a terminal or as lines (default: auto)"),
    ("--bless", "", "rewrite expectations in the case files (also: BLESS=1)"),
    ("--stage", "STAGE,...", "for show: fusion python schedule kernel cuda sim ref"),
    ("--check", "", "for fmt: change nothing, list the files that would change, and end with code 1"),
    ("--inputs", "FILE.npz", "for import: recorded inputs and outputs; runs the definition and compares"),
    ("--records", "FILE.jsonl", "for import: types, sizes and strides of what is recorded, one run a line"),
    ("--on", "ref|sim|gpu", "for import: where to run (default: ref)"),
    ("--output", "FILE", "for import: write the case there instead of printing it (also: -o)"),
    ("--about", "", "for list: behind each id, why the case exists"),
    ("--help", "", "print this"),
    ("--version", "", "print the version"),
    ("--with-faults", "", ""),
    ("--nvml", "FILE", ""),
    ("--fd", "N", ""),
    ("--crumb-fd", "N", ""),
];

fn usage(message: impl Into<String>, note: impl Into<String>) -> Failure {
    Failure::diagnostic(exit::USAGE, &Diagnostic::user(code::USAGE, message).note(note))
}

const SEE_HELP: &str = "harness --help lists commands and options";

/// Parses the arguments without the program's name.
pub(super) fn parse(argv: &[String]) -> Result<Parsed, Failure> {
    let mut args =
        Args { argv: argv.to_vec(), bless: std::env::var_os("BLESS").is_some_and(|v| v == "1"), ..Args::default() };
    let (mut fd, mut crumb_fd) = (None, None);
    let mut command = None;
    let mut rest = argv.iter();
    while let Some(word) = rest.next() {
        if word == "__worker" && command.is_none() {
            command = Some("__worker");
            continue;
        }
        if !word.starts_with('-') || word == "-" {
            positional(word, &mut command, &mut args)?;
            continue;
        }
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (word.as_str(), None),
        };
        let name = match name {
            "-h" => "--help",
            "-o" => "--output",
            other => other,
        };
        let Some((name, wanted, _)) = OPTIONS.iter().find(|(option, ..)| *option == name) else {
            let hint = suggest(name, OPTIONS.iter().filter(|o| !o.2.is_empty()).map(|o| o.0));
            return Err(usage(format!("unknown option `{name}`"), hint));
        };
        let value = match (wanted.is_empty(), inline) {
            (true, None) => String::new(),
            (true, Some(value)) => return Err(usage(format!("`{name}` takes no value, `{value}` given"), SEE_HELP)),
            (false, Some(value)) => value,
            (false, None) => {
                rest.next().cloned().ok_or_else(|| usage(format!("`{name}` needs a value: {wanted}"), SEE_HELP))?
            }
        };
        match *name {
            "--help" => return Ok(Parsed::Help(help())),
            "--version" => return Ok(Parsed::Help(format!("harness {}\n", env!("CARGO_PKG_VERSION")))),
            "--fd" => fd = value.parse().ok(),
            "--crumb-fd" => crumb_fd = value.parse().ok(),
            _ => option(name, &value, &mut args)?,
        }
    }
    match (command, fd, crumb_fd) {
        (Some("__worker"), Some(fd), Some(crumb_fd)) => Ok(Parsed::Worker { fd, crumb_fd }),
        (Some("__worker"), ..) => Err(usage("`__worker` is started by the dispatcher only", SEE_HELP)),
        _ => {
            check(&args)?;
            Ok(Parsed::Args(Box::new(args)))
        }
    }
}

fn positional<'a>(word: &'a str, command: &mut Option<&'a str>, args: &mut Args) -> Result<(), Failure> {
    if command.is_none() {
        let Some((name, which, _)) = COMMANDS.iter().find(|(name, ..)| *name == word) else {
            let hint = suggest(word, COMMANDS.iter().map(|c| c.0));
            return Err(usage(format!("unknown command `{word}`"), hint));
        };
        (*command, args.command) = (Some(*name), *which);
    } else if args.command == Command::Fmt {
        args.paths.push(word.into());
    } else if matches!(args.command, Command::Show | Command::Explain | Command::Import) && args.operand.is_none() {
        args.operand = Some(word.into());
    } else {
        let note = if args.command == Command::Run { "cases are selected by --filter or --exact" } else { SEE_HELP };
        return Err(usage(format!("unexpected argument `{word}`"), note));
    }
    Ok(())
}

fn option(name: &str, value: &str, args: &mut Args) -> Result<(), Failure> {
    let count = |what: &str| match value.parse::<usize>() {
        Ok(n @ 1..=256) => Ok(n),
        _ => Err(usage(format!("`{name}` needs a number of {what} from 1 to 256, not `{value}`"), SEE_HELP)),
    };
    let time = || match units::duration_ms(value) {
        Some(ms) if ms > 0 => Ok(Duration::from_millis(ms)),
        _ => Err(usage(format!("`{name}` needs a time such as 30s or 500ms, not `{value}`"), SEE_HELP)),
    };
    let one_of =
        |known: &[&str]| usage(format!("`{name}` does not know `{value}`"), suggest(value, known.iter().copied()));
    if args.gpu.option(name, value).map_err(|d| Failure::diagnostic(exit::USAGE, &d))? {
        return Ok(());
    }
    match name {
        "--filter" => {
            let filter = Filter::parse(value).map_err(|d| Failure::diagnostic(exit::BAD_FILTER, &d))?;
            args.filters.push(filter);
        }
        "--exact" => args.exact.push(value.into()),
        "--tag" => args.tags.push(value.into()),
        "--gpus" | "--sim" | "--ref" => {
            let device = match (name, value) {
                ("--gpus", _) => {
                    DeviceArg::Gpus(Wanted::parse(value).map_err(|d| Failure::diagnostic(exit::USAGE, &d))?)
                }
                ("--sim", _) => DeviceArg::Sim(count("simulated devices")?),
                _ => DeviceArg::Reference,
            };
            if args.device != DeviceArg::Auto {
                return Err(usage("only one of --gpus, --sim and --ref can be given", SEE_HELP));
            }
            args.device = device;
        }
        "--nvml" => args.nvml = Some(value.into()),
        "--jobs" => args.jobs = Some(count("processes")?),
        "--cases" => args.cases = Some(value.into()),
        "--results" => args.results = Some(value.into()),
        "--seed" => {
            let parsed = match value.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => value.parse(),
            };
            args.seed = parsed.map_err(|_| usage(format!("`--seed` needs a number, not `{value}`"), SEE_HELP))?;
        }
        "--timeout" => args.timeout = Some(time()?),
        "--grace" => args.grace = Some(time()?),
        "--isolation" => {
            args.isolation = match value {
                "worker" => Isolation::Worker,
                "case" => Isolation::Case,
                _ => return Err(one_of(&["worker", "case"])),
            }
        }
        "--format" => {
            args.format = match value {
                "auto" => Format::Auto,
                "bar" => Format::Bar,
                "plain" => Format::Plain,
                "json" => Format::Json,
                _ => return Err(one_of(&["auto", "bar", "plain", "json"])),
            }
        }
        "--stage" => {
            for word in value.split(',') {
                let stage = Stage::ALL.iter().find(|(name, _)| *name == word).map(|(_, stage)| *stage);
                args.stages.push(stage.ok_or_else(|| one_of(&Stage::ALL.map(|(name, _)| name)))?);
            }
        }
        "--inputs" => args.inputs = Some(value.into()),
        "--records" => args.records = Some(value.into()),
        "--output" => args.output = Some(value.into()),
        "--on" => {
            args.place = match value {
                "ref" => Place::Reference,
                "sim" => Place::Simulator,
                "gpu" => Place::Gpu,
                _ => return Err(one_of(&["ref", "sim", "gpu"])),
            }
        }
        "--bless" => args.bless = true,
        "--about" => args.about = true,
        "--check" => args.check = true,
        _ => args.faults = true,
    }
    Ok(())
}

fn check(args: &Args) -> Result<(), Failure> {
    match args.command {
        Command::Show if args.operand.is_none() => Err(usage(
            "`show` needs the id of a case",
            "show CASE --stage fusion|python|schedule|kernel|cuda|sim|ref; `harness list` prints ids",
        )),
        Command::Show => Ok(()),
        Command::Import if args.operand.is_none() => Err(usage("`import` needs a file", "harness import FILE.py")),
        _ if args.format == Format::Json && args.command != Command::Doctor => {
            Err(usage("`--format json` belongs to `doctor`", SEE_HELP))
        }
        _ if args.about && args.command != Command::List => Err(usage("`--about` belongs to `list`", SEE_HELP)),
        _ if args.check && args.command != Command::Fmt => Err(usage("`--check` belongs to `fmt`", SEE_HELP)),
        _ if !args.stages.is_empty() => Err(usage("`--stage` belongs to `show`", SEE_HELP)),
        _ => Ok(()),
    }
}

fn help() -> String {
    let mut text = String::from("harness [COMMAND] [OPTIONS]\n\nCommands:\n");
    for (name, _, help) in COMMANDS {
        text.push_str(&format!("  {name:<28}{help}\n"));
    }
    text.push_str("\nOptions:\n");
    for (name, value, help) in OPTIONS.iter().filter(|option| !option.2.is_empty()) {
        text.push_str(&format!("  {:<28}{help}\n", format!("{name} {value}")));
    }
    text.push_str("\nExit codes: 0 fine, 1 files to format, 2 usage, 4 nothing selected, 20 infrastructure, 21 no usable GPU, 94 bad filter,\n96 bad case file, 100 failures, 103 crashes or hangs, 110 the record could not be written.\n");
    text.push_str("\nExit codes: 0 fine, 2 usage, 4 nothing selected, 6 cannot run it there,\n20 infrastructure, 21 no usable GPU, 94 bad filter, 96 bad case file, 100 failures, 103 crashes or hangs, 110 the record could not be written.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Result<Args, Failure> {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        parse(&words).map(|parsed| match parsed {
            Parsed::Args(args) => *args,
            _ => panic!("not a command"),
        })
    }

    #[test]
    fn documented_lines_parse() {
        let run = args("--gpus 4 --filter *Scheduler*").expect("good");
        assert_eq!((run.command, run.device, run.filters.len()), (Command::Run, DeviceArg::Gpus(Wanted::Count(4)), 1));
        let show = args("show A.b/x=1 --stage=kernel --sim 2").expect("good");
        assert_eq!((show.operand.as_deref(), show.stages), (Some("A.b/x=1"), vec![Stage::Kernel]));
        assert_eq!(args("run --seed 0xff").expect("good").seed, 255);
        assert_eq!(args("--timeout 500ms").expect("good").timeout, Some(Duration::from_millis(500)));
    }

    #[track_caller]
    fn check_refused(line: &str, exit: u8, part: &str) {
        let failure = args(line).expect_err("refused");
        assert_eq!(failure.exit, exit, "{}", failure.message);
        assert!(failure.message.contains(part), "{}", failure.message);
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
        check_refused("--timeout soon", exit::USAGE, "500ms");
        check_refused("--bless=yes", exit::USAGE, "takes no value");
        check_refused("show", exit::USAGE, "needs the id");
        check_refused("--stage kernel", exit::USAGE, "belongs to `show`");
        check_refused("show x --stage karnel", exit::USAGE, "did you mean `kernel`?");
        check_refused("--filter=", exit::BAD_FILTER, "empty");
        check_refused("__worker", exit::USAGE, "dispatcher");
    }
}
