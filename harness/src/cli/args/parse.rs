//! Words to [`Args`]: command, options and operands in any order, then the
//! environment for what the words do not say.

use super::super::Failure;
use super::command::{COMMANDS, Command, SELECTS, row_of};
use super::given::{GivenOption, SEE_HELP, usage};
use super::help;
use super::launch;
use super::model::Args;
use super::select::{self, Select};
use super::table::{DEVICES, HELP, OptionRow, Over, VERSION, Value, rows};
use crate::case::suggest;
use crate::compilers::Clients;
use crate::escape;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// The outcome of parsing.
pub(crate) enum Parsed {
    Args(Box<Args>),
    Help(String),
    Worker {
        fd: RawFd,
        crumb_fd: RawFd,
        evidence_fd: RawFd,
    },
    Compiler {
        from: Clients,
        folders: Vec<PathBuf>,
    },
    /// A task of a launched run: the folder of its job, and its number.
    Task {
        folder: PathBuf,
        task: usize,
    },
}

/// Looks a variable of the environment up.
pub(super) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Parses the arguments without the program's name.
pub(crate) fn parse(argv: &[String]) -> Result<Parsed, Failure> {
    parse_with(argv, &|name| std::env::var(name).ok(), true)
}

/// Parses the command line of a recorded run, with what its environment gave. Which
/// cases were meant its record tells: a list of them is not read again.
pub(crate) fn parse_recorded(argv: &[String], from_env: &[String]) -> Result<Parsed, Failure> {
    let given =
        |name: &str| from_env.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(String::from);
    parse_with(argv, &given, false)
}

/// Parses words without what the environment says beside them.
pub(crate) fn parse_words(argv: &[String]) -> Result<Parsed, Failure> {
    parse_with(argv, &|_| None, true)
}

/// The command line of each task of a launched run: what was asked for, in words and by the environment, but for the
/// options of who launches.
pub(crate) fn task_words(argv: &[String], from_env: &[String]) -> Result<Vec<String>, Failure> {
    let command = words(argv)?.args.command;
    let mut all = vec![command.word().to_string()];
    for (row, value) in recorded(argv, from_env)?.into_iter().filter(|(row, _)| !launch::OWN.contains(&row.name)) {
        if row.name == select::FROM_FILE && value.as_deref() == Some("-") {
            return Err(usage("tasks cannot read standard input", "--from-file FILE, which all nodes see"));
        }
        all.extend(shown(row, value.as_deref()));
    }
    Ok(all)
}

/// The options of a command that repeats an earlier run: what belongs to the run's
/// cases and devices, as its words and its environment gave it, and in front of
/// that the words of now. Where those choose devices, none of the run's options on
/// devices counts. `settle` makes what the run gave as a path one that means the
/// same here.
pub(crate) fn parse_over(
    now: &Args,
    argv: &[String],
    from_env: &[String],
    settle: &dyn Fn(&str) -> String,
) -> Result<Args, Failure> {
    let said = words(&now.argv)?.values;
    let devices = said.iter().any(|(row, _)| row.group == DEVICES);
    let taken = |row: &OptionRow| match row.over {
        Over::No => false,
        Over::Case | Over::Place => true,
        Over::Device => !devices,
    };
    let free = |row: &OptionRow| row.commands.has(now.command) && !said.iter().any(|(other, _)| row.decides(other));
    let mut all: Vec<String> = Vec::new();
    for (row, value) in recorded(argv, from_env)?.into_iter().filter(|(row, _)| taken(row) && free(row)) {
        let value = value.map(|value| if row.is_path(&value) { settle(&value) } else { value });
        all.extend(shown(row, value.as_deref()));
    }
    // Options may stand before the command, and the last of a name counts.
    all.extend(now.argv.iter().cloned());
    match parse_with(&all, &|name| std::env::var(name).ok(), false)? {
        // Which cases are meant is said now; a list of them is not read twice.
        Parsed::Args(args) => Ok(Args { select: Select { wanted: now.select.wanted.clone(), ..args.select }, ..*args }),
        _ => Ok(now.clone()),
    }
}

/// The options of a recorded command line, with what its environment gave beside them.
fn recorded(argv: &[String], from_env: &[String]) -> Result<Vec<(&'static OptionRow, Option<String>)>, Failure> {
    let Words { args, mut values, .. } = words(argv)?;
    let given =
        |name: &str| from_env.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(String::from);
    let mut rows: Vec<&'static OptionRow> = values.iter().map(|(row, _)| *row).collect();
    let variables = environment(args.command, &mut rows, &given)?;
    values.extend(variables.into_iter().map(|variable| (variable.row, variable.value)));
    Ok(values)
}

/// What a command line says, before it is known which options the command has.
struct Words {
    args: Args,
    /// An option may mean something else to each command.
    values: Vec<(&'static OptionRow, Option<String>)>,
    /// The option that prints something and ends.
    asked: Option<&'static str>,
    command: Option<Command>,
}

fn words(argv: &[String]) -> Result<Words, Failure> {
    let mut args = Args { argv: argv.to_vec(), ..Args::default() };
    let (mut command, mut values, mut asked) = (None, Vec::new(), None);
    let mut rest = argv.iter();
    while let Some(word) = rest.next() {
        if word == "--" {
            rest.by_ref().try_for_each(|word| operand(word, &mut command, &mut args))?;
        } else if !word.starts_with('-') || word == "-" {
            operand(word, &mut command, &mut args)?;
        } else {
            let (row, value) = option(word, &mut rest)?;
            match row.name {
                HELP | VERSION => asked = asked.or(Some(row.name)),
                _ => values.push((row, value)),
            }
        }
    }
    for (row, _) in &mut values {
        *row = rows().find(|other| other.name == row.name && other.commands.has(args.command)).unwrap_or(row);
    }
    Ok(Words { args, values, asked, command })
}

pub(super) fn parse_with(argv: &[String], env: Env<'_>, read_files: bool) -> Result<Parsed, Failure> {
    match argv.first().map(String::as_str) {
        Some("__worker") => return worker(&argv[1..]),
        Some("__compiler") => return compiler(&argv[1..]),
        Some("__task") => return task(&argv[1..]),
        _ => {}
    }
    // As people ask other programs: `help`, `help run`.
    if let Some(("help", rest)) = argv.split_first().map(|(word, rest)| (word.as_str(), rest)) {
        let words: Vec<String> = rest.iter().cloned().chain([HELP.to_string()]).collect();
        return parse_with(&words, env, read_files);
    }
    let Words { mut args, values, asked, command } = words(argv)?;
    match asked {
        Some(HELP) => return Ok(Parsed::Help(command.map_or_else(help::all, help::of))),
        Some(_) => return Ok(Parsed::Help(format!("harness {}\n", env!("CARGO_PKG_VERSION")))),
        None => {}
    }
    let mut given: Vec<&'static OptionRow> = Vec::new();
    for (row, value) in values {
        if row.commands.has(args.command) && (read_files || row.name != select::FROM_FILE) {
            (row.set)(&mut args, &GivenOption { name: row.name, value: value.as_deref() })?;
            keep(&mut args, row, value.as_deref());
        }
        if !given.iter().any(|other| std::ptr::eq(*other, row)) {
            given.push(row);
        }
    }
    belong(&args, &given)?;
    from_env(&mut args, &mut given, env)?;
    Ok(Parsed::Args(Box::new(args)))
}

/// Notes an option that belongs to a repetition of a case. The last of a name counts.
fn keep(args: &mut Args, row: &OptionRow, value: Option<&str>) {
    if row.over == Over::Case {
        // The case may be run again from another folder.
        let path = value.filter(|value| row.is_path(value)).and_then(|path| std::path::absolute(path).ok());
        let path = path.map(|path| path.to_string_lossy().into_owned());
        let words = shown(row, path.as_deref().or(value));
        let name = |words: &[String]| words[0].split('=').next().map(String::from);
        args.again.retain(|other| name(other) != name(&words));
        args.again.push(words);
    }
}

/// An option as words.
fn shown(row: &OptionRow, value: Option<&str>) -> Vec<String> {
    match (row.value, value) {
        (_, None) => vec![row.name.into()],
        (Value::May(_), Some(value)) => vec![format!("{}={value}", row.name)],
        (_, Some(value)) => vec![row.name.into(), value.into()],
    }
}

/// Those of the options which make a repeated case the same that a command takes.
/// The seed is not among them: each attempt has its own.
pub(crate) fn again_for(again: &[Vec<String>], command: Command) -> impl Iterator<Item = &[String]> {
    let taken = move |words: &&Vec<String>| {
        let named = |row: &&OptionRow| row.is(words[0].split('=').next().unwrap_or_default());
        words[0] != "--seed" && rows().filter(named).any(|row| row.commands.has(command))
    };
    again.iter().filter(taken).map(Vec::as_slice)
}

/// The first word is the command, the others are its operands.
fn operand(word: &str, command: &mut Option<Command>, args: &mut Args) -> Result<(), Failure> {
    if command.is_none() {
        let Some(row) = COMMANDS.iter().find(|row| row.word == word) else {
            let hint = match word.len() {
                0..=40 => suggest(word, COMMANDS.iter().map(|row| row.word)),
                _ => SEE_HELP.into(),
            };
            return Err(usage(format!("unknown command `{}`", escape::short(word)), hint));
        };
        (*command, args.command) = (Some(row.command), row.command);
    } else if args.operands.len() < row_of(args.command).operands.2 {
        args.operands.push(word.into());
    } else {
        let selects = SELECTS.has(args.command);
        let note = if selects { "cases are selected by --filter or --exact" } else { SEE_HELP };
        return Err(usage(format!("unexpected argument `{}`", escape::short(word)), note));
    }
    Ok(())
}

/// The row of an option, and its value.
fn option<'a>(
    word: &str,
    rest: &mut impl Iterator<Item = &'a String>,
) -> Result<(&'static OptionRow, Option<String>), Failure> {
    let (name, inline) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value.to_string())),
        None => (word, None),
    };
    let Some(row) = rows().find(|row| row.is(name)) else {
        let known: Vec<&str> = rows().filter(|row| !row.help.is_empty()).map(|row| row.name).collect();
        let hint = if name.len() <= 40 { suggest(name, known.into_iter()) } else { String::new() };
        let hint = if hint.starts_with("did you mean") { hint } else { SEE_HELP.into() };
        return Err(usage(format!("unknown option `{}`", escape::short(name)), hint));
    };
    let value = match (row.value, inline) {
        (Value::Flag, Some(value)) => {
            return Err(usage(format!("`{name}` takes no value, `{}` given", escape::short(&value)), SEE_HELP));
        }
        (Value::Flag | Value::May(_), None) => None,
        (_, Some(value)) => Some(value),
        (Value::Needs(shape), None) => match rest.next() {
            Some(value) => Some(value.clone()),
            None => return Err(usage(format!("`{name}` needs a value: {shape}"), SEE_HELP)),
        },
    };
    Ok((row, value))
}

/// Options against the command and against each other, and the operands' number.
fn belong(args: &Args, given: &[&'static OptionRow]) -> Result<(), Failure> {
    let command = row_of(args.command);
    if let Some(row) = given.iter().find(|row| !row.commands.has(args.command)) {
        let takers =
            rows().filter(|other| other.name == row.name).fold(row.commands, |set, other| set.or(other.commands));
        let message = format!("`{}` belongs to {}, not to `{}`", row.name, takers.shown(), command.word);
        return Err(usage(message, format!("harness {} --help lists its options", command.word)));
    }
    for row in given.iter().filter(|row| !row.group.is_empty()) {
        if given.iter().any(|other| other.group == row.group && other.name != row.name) {
            let names: Vec<&str> = rows().filter(|other| other.group == row.group).map(|other| other.name).collect();
            let (last, first) = names.split_last().map_or(("", &[][..]), |(last, first)| (*last, first));
            let message = format!("only one of {} and {last} can be given", first.join(", "));
            return Err(usage(message, SEE_HELP));
        }
    }
    if args.launch.launcher.is_none() && (args.launch.tasks.is_some() || !args.launch.sbatch.is_empty()) {
        return Err(usage("`--tasks` and `--sbatch` belong to `--launcher`", "--launcher slurm runs on a cluster"));
    }
    let (shape, least, _) = command.operands;
    if args.operands.len() < least {
        let hint = format!("harness {} {shape}; `harness {} --help` lists its options", command.word, command.word);
        return Err(usage(format!("`{}` needs {shape}", command.word), hint));
    }
    Ok(())
}

/// Sets the options that the words leave open and the environment gives.
fn from_env(args: &mut Args, given: &mut Vec<&'static OptionRow>, env: Env<'_>) -> Result<(), Failure> {
    for Variable { row, name, value } in environment(args.command, given, env)? {
        (row.set)(args, &GivenOption { name, value: value.as_deref() })?;
        keep(args, row, value.as_deref());
        let variable = format!("{name}={}", value.as_deref().unwrap_or("1"));
        if select::narrows(row) {
            args.select.wanted.variables.push(variable.clone());
        }
        args.from_env.push(variable);
    }
    if SELECTS.has(args.command) && !select::is_whole(args.command, given) {
        let used = select::shard_from_env(&mut args.select, env)?;
        args.select.wanted.variables.extend(used.iter().cloned());
        args.from_env.extend(used);
    }
    Ok(())
}

/// An option that a variable of the environment gives.
struct Variable {
    row: &'static OptionRow,
    name: &'static str,
    value: Option<String>,
}

/// Options that are not given and that a variable gives, with its name. Variables
/// that the command has no use for are not looked at, nor those that select where
/// the words name the whole selection.
fn environment(command: Command, given: &mut Vec<&'static OptionRow>, env: Env<'_>) -> Result<Vec<Variable>, Failure> {
    let whole = select::is_whole(command, given);
    let mut found = Vec::new();
    for row in rows().filter(|row| row.commands.has(command) && !(whole && select::narrows(row))) {
        if given.iter().any(|other| row.decides(other)) {
            continue;
        }
        let set = row.env.iter().find_map(|name| Some((*name, env(name)?))).filter(|(_, value)| !value.is_empty());
        let Some((name, value)) = set else { continue };
        let value = match (row.value, value.as_str()) {
            (Value::Flag, "0" | "false" | "no") => continue,
            (Value::Flag, "1" | "true" | "yes") => None,
            (Value::Flag, _) => return Err(GivenOption { name, value: Some(&value) }.wrong("1 or 0")),
            _ => Some(value),
        };
        found.push(Variable { row, name, value });
        given.push(row);
    }
    Ok(found)
}

/// The worker's own arguments: started by the dispatcher only.
fn worker(words: &[String]) -> Result<Parsed, Failure> {
    let number = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1)?.parse().ok()
    };
    match (number("--fd"), number("--crumb-fd"), number("--evidence-fd")) {
        (Some(fd), Some(crumb_fd), Some(evidence_fd)) => Ok(Parsed::Worker { fd, crumb_fd, evidence_fd }),
        _ => Err(usage("`__worker` is started by the dispatcher only", SEE_HELP)),
    }
}

/// A compiler process's own arguments.
fn compiler(words: &[String]) -> Result<Parsed, Failure> {
    let (from, folders) = match words {
        [word, folders @ ..] if word == "--stdin" => (Some(Clients::Stdin), folders),
        [word, fd, folders @ ..] if word == "--fd" => (fd.parse().ok().map(Clients::Listener), folders),
        _ => (None, words),
    };
    let folders = folders.iter().map(PathBuf::from).collect();
    from.map(|from| Parsed::Compiler { from, folders })
        .ok_or_else(|| usage("`__compiler` is started by this program only", SEE_HELP))
}

/// A task's own arguments.
fn task(words: &[String]) -> Result<Parsed, Failure> {
    let number = words.get(1).and_then(|word| word.parse().ok()).filter(|number| *number > 0);
    let parsed = words.first().zip(number).map(|(folder, task)| Parsed::Task { folder: folder.into(), task });
    parsed.ok_or_else(|| usage("`__task` is started by `--launcher` only", SEE_HELP))
}
