//! Help from the tables, within 80 columns.

use super::command::{ALL, COMMANDS, Command, Commands, PLANS, RUNS, SELECTS, STARTS, row_of};
use super::table::{OptionRow, THEMES, Value};
use crate::exit;

const COLUMNS: usize = 80;
/// Where explanations begin.
const INDENT: usize = 27;
const CODES: usize = 9;

/// All commands and options.
pub(super) fn all() -> String {
    let mut text = String::from("harness [COMMAND] [OPTIONS]\n\nCommands:\n");
    for row in COMMANDS {
        entry(&mut text, INDENT, &format!("{} {}", row.word, row.operands.0), row.help);
    }
    options(&mut text, |row| !row.help.is_empty());
    text.push_str("\nAn option on the command line wins over its variable of the environment.\n");
    text.push_str("`harness COMMAND --help` lists only what the command takes.\n");
    exit_codes(&mut text, None);
    text
}

/// One command and its options.
pub(super) fn of(command: Command) -> String {
    let row = row_of(command);
    let operands = if row.operands.0.is_empty() { String::new() } else { format!(" {}", row.operands.0) };
    let mut text = format!("harness {}{operands} [OPTIONS]\n\n", row.word);
    wrap(&mut text, 0, row.help);
    options(&mut text, |row| !row.help.is_empty() && row.commands.has(command));
    exit_codes(&mut text, Some(command));
    text
}

fn options(text: &mut String, shown: impl Fn(&OptionRow) -> bool) {
    for theme in THEMES {
        let rows: Vec<&OptionRow> = theme.rows.iter().filter(|row| shown(row)).collect();
        if rows.is_empty() {
            continue;
        }
        text.push_str(&format!("\n{}:\n", theme.title));
        for row in rows {
            let names: Vec<&str> = row.also.iter().filter(|name| name.len() == 2).chain([&row.name]).copied().collect();
            let value = match row.value {
                Value::Flag => String::new(),
                Value::Needs(shape) => format!(" {shape}"),
                Value::May(shape) => format!("[={shape}]"),
            };
            let env = row.env.first().map_or(String::new(), |_| format!(" [{}]", row.env.join(", ")));
            entry(text, INDENT, &format!("{}{value}", names.join(", ")), &format!("{}{env}", row.help));
        }
    }
}

/// Of all commands, or those that one can end with.
fn exit_codes(text: &mut String, command: Option<Command>) {
    let can = |commands: Commands| command.is_none_or(|command| commands.has(command));
    text.push_str("\nExit codes:\n");
    for (code, meaning) in exit::TABLE.iter().filter(|(code, _)| can(ending_with(*code))) {
        entry(text, CODES, &format!("{code:>3}"), meaning);
    }
    if can(JUDGES.or(STARTS)) {
        entry(text, CODES, "128+N", "ended by signal N after an orderly shutdown");
    }
    if can(JUDGES) {
        text.push_str("Of several, the first of 20, 103, 100, 96, 110, 11, 10, 5 and 6 counts.\n");
    }
}

/// Commands that come to verdicts, or to failures of cases.
const JUDGES: Commands = RUNS.and(&[Command::Resume]);

/// The commands that can end with a code.
fn ending_with(code: u8) -> Commands {
    use Command::{Bench, Check, Compare, Compile, Fmt, Import, Kernels, Quarantine, Report, Resume, Run, Show, Store};
    let only = Commands::of;
    match code {
        exit::UNFORMATTED => only(&[Fmt]),
        exit::NOTHING_SELECTED => SELECTS,
        exit::OUTSTANDING => only(&[Run, Bench, Resume]),
        exit::INCOMPLETE => JUDGES.and(&[Import, Compile]),
        exit::REGRESSED => only(&[Bench, Compare, Resume]),
        exit::FLAKY => JUDGES,
        exit::INFRA => JUDGES.or(STARTS),
        exit::NO_GPU => JUDGES.or(STARTS).or(PLANS).and(&[Import, Compile]),
        exit::BAD_FILTER => SELECTS,
        exit::BAD_CASES => SELECTS.and(&[Fmt, Import, Quarantine, Resume, Show, Store]),
        exit::FAILED => JUDGES.or(STARTS).and(&[Check, Compare, Compile, Import, Kernels]),
        exit::CRASHED => JUDGES,
        exit::BAD_RUN => SELECTS.and(&[Compare, Report, Resume, Store]),
        exit::NO_RECORD => JUDGES.or(STARTS).and(&[Compare, Import, Report, Store]),
        _ => ALL,
    }
}

/// `  head        explanation`, with the explanation wrapped in its column.
fn entry(text: &mut String, indent: usize, head: &str, explanation: &str) {
    let head = head.trim_end();
    text.push_str("  ");
    text.push_str(head);
    if head.len() + 3 > indent {
        text.push('\n');
        text.push_str(&" ".repeat(indent));
    } else {
        text.push_str(&" ".repeat(indent - head.len() - 2));
    }
    wrap(text, indent, explanation);
}

/// Words from the present column on; further lines begin at `indent`.
fn wrap(text: &mut String, indent: usize, words: &str) {
    let mut column = indent;
    for (i, word) in words.split_whitespace().enumerate() {
        if i > 0 && column + 1 + word.len() > COLUMNS {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            column = indent;
        } else if i > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.chars().count();
    }
    text.push('\n');
}
