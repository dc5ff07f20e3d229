//! The commands: words, operands, help and what each calls.

use super::super::{
    Failure, check, compare, compile, doctor, explain, flakes, fmt, import, kernels, list, manual, plan, quarantine,
    report, resume, run as runs, selftest, show, store,
};
use super::model::Args;

/// What to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Command {
    #[default]
    Run,
    List,
    Plan,
    Show,
    Doctor,
    Bench,
    Compile,
    Kernels,
    Check,
    Explain,
    Fmt,
    Import,
    Selftest,
    Resume,
    Report,
    Compare,
    Store,
    Hunt,
    Replay,
    Why,
    Quarantine,
    Completions,
    Man,
}

impl Command {
    /// The word that selects it.
    pub(crate) fn word(self) -> &'static str {
        row_of(self).word
    }
}

/// A set of commands: the column of an option that says who takes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Commands(u64);

impl Commands {
    pub(super) const fn of(list: &[Command]) -> Self {
        Self(0).and(list)
    }
    pub(super) const fn and(self, list: &[Command]) -> Self {
        let (mut bits, mut i) = (self.0, 0);
        while i < list.len() {
            bits |= 1 << list[i] as u64;
            i += 1;
        }
        Self(bits)
    }
    pub(super) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    pub(super) const fn has(self, command: Command) -> bool {
        self.0 & (1 << command as u64) != 0
    }
    /// Whether all commands are in it.
    pub(super) fn is_all(self) -> bool {
        COMMANDS.iter().all(|row| self.has(row.command))
    }
    /// `` `run` and `bench` ``.
    pub(super) fn shown(self) -> String {
        let words: Vec<String> =
            COMMANDS.iter().filter(|row| self.has(row.command)).map(|row| format!("`{}`", row.word)).collect();
        match words.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
            None => "no command".into(),
        }
    }
}

/// Commands that run cases.
pub(super) const RUNS: Commands = VERDICTS.and(&[Command::Hunt, Command::Replay, Command::Why]);
/// Commands that judge each case once, with retries.
pub(super) const VERDICTS: Commands = Commands::of(&[Command::Run, Command::Bench]);
/// Commands that repeat cases to learn how often they fail.
pub(super) const FLAKES: Commands = Commands::of(&[Command::Hunt, Command::Replay, Command::Why]);
/// Commands that choose devices for cases.
pub(super) const PLANS: Commands = RUNS.and(&[Command::Plan]);
/// Commands that work on selected cases.
pub(super) const SELECTS: Commands = PLANS.and(&[Command::List, Command::Compile, Command::Kernels, Command::Check]);
/// Commands that start workers.
pub(super) const STARTS: Commands = RUNS.and(&[Command::Selftest]);
/// Every command.
pub(super) const ALL: Commands = Commands(u64::MAX);

/// A command.
pub(super) struct CommandRow {
    pub(super) word: &'static str,
    pub(super) command: Command,
    /// Operands as help shows them, with the least and the greatest number.
    pub(super) operands: (&'static str, usize, usize),
    pub(super) help: &'static str,
    call: fn(&Args) -> Result<u8, Failure>,
}

const NONE: (&str, usize, usize) = ("", 0, 0);

const fn row(
    word: &'static str,
    command: Command,
    operands: (&'static str, usize, usize),
    help: &'static str,
    call: fn(&Args) -> Result<u8, Failure>,
) -> CommandRow {
    CommandRow { word, command, operands, help, call }
}

pub(super) const COMMANDS: &[CommandRow] = &[
    row("run", Command::Run, NONE, "run the selected cases (the default command)", runs::run),
    row("bench", Command::Bench, NONE, "run and measure: GPU timings, or the simulator's counters", runs::run),
    row(
        "hunt",
        Command::Hunt,
        NONE,
        "repeat the selected cases until each is clean or known to be flaky",
        flakes::hunt,
    ),
    row(
        "replay",
        Command::Replay,
        NONE,
        "run the cases of a dead worker again, and find those to blame",
        flakes::replay,
    ),
    row(
        "quarantine",
        Command::Quarantine,
        ("list | add ID | rm ID", 1, 2),
        "known failures that do not gate, until a date",
        quarantine::quarantine,
    ),
    row("why", Command::Why, ("CASE", 1, 1), "which condition changes the failure rate of a case", flakes::why),
    row("list", Command::List, NONE, "print the selected cases: ids, or with --format more", list::list),
    row("plan", Command::Plan, NONE, "say what `run` would do: slots, order, time, what is skipped", plan::plan),
    row("show", Command::Show, ("CASE", 1, 1), "print a stage of one case: show CASE --stage kernel", show::show),
    row(
        "compile",
        Command::Compile,
        NONE,
        "compile the selected cases' kernels with NVRTC for an H200; needs no GPU",
        compile::compile,
    ),
    row(
        "kernels",
        Command::Kernels,
        NONE,
        "compare the selected cases' kernels with the committed list; --bless writes it",
        kernels::kernels,
    ),
    row(
        "check",
        Command::Check,
        NONE,
        "read the selected cases and bind their sizes, without running anything",
        check::check,
    ),
    row("fmt", Command::Fmt, ("[FILE|FOLDER...]", 0, usize::MAX), "give case files their canonical form", fmt::fmt),
    row(
        "import",
        Command::Import,
        ("FILE.py", 1, 1),
        "read a definition in nvFuser's form, and print it as a case",
        import::import,
    ),
    row(
        "explain",
        Command::Explain,
        ("[CODE]", 0, 1),
        "say what a diagnostic code means; without a code, list all",
        explain::explain,
    ),
    row(
        "selftest",
        Command::Selftest,
        NONE,
        "commit every built-in fault among innocent cases, and check what is said of each",
        selftest::selftest,
    ),
    row("resume", Command::Resume, ("[RUN]", 0, 1), "go on with a run that was killed or stopped", resume::resume),
    row("report", Command::Report, ("[RUN...]", 0, usize::MAX), "recorded runs in another form", report::report),
    row(
        "compare",
        Command::Compare,
        ("RUN RUN", 2, 2),
        "what changed between two runs, each named by its id, latest~N, a day or a commit",
        compare::compare,
    ),
    row(
        "store",
        Command::Store,
        ("list|info|verify|repair|prune|export|merge|join [RUN...]", 1, usize::MAX),
        "look at, mend, thin out, copy or unite recorded runs, or folders of them; join makes one run of shards",
        store::store,
    ),
    row(
        "completions",
        Command::Completions,
        ("bash|zsh|fish", 1, 1),
        "print the completions of commands, options, cases and runs for a shell",
        manual::completions,
    ),
    row("man", Command::Man, NONE, "print the manual page: harness man | man -l -", manual::man),
    row("doctor", Command::Doctor, NONE, "say what this machine has and what is missing for what", doctor::doctor),
];

pub(super) fn row_of(command: Command) -> &'static CommandRow {
    COMMANDS.iter().find(|row| row.command == command).unwrap_or(&COMMANDS[0])
}

/// Does what is asked.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    (row_of(args.command).call)(args)
}
