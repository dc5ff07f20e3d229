//! The manual page, from the tables of commands, options and exit codes.
//!
//! Output: roff with the macros of `man`.

use super::command::{COMMANDS, Commands};
use super::table::{OptionRow, THEMES, Value};
use crate::exit;
use std::fmt::Write;

/// The page `harness(1)`.
pub(crate) fn page() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!(".TH HARNESS 1 \"\" \"harness {version}\" \"Fusewright\"\n");
    text.push_str(".SH NAME\nharness \\- runs, measures and hunts cases of the fusion compiler\n");
    text.push_str(".SH SYNOPSIS\n.B harness\n[\\fICOMMAND\\fR] [\\fIOPTIONS\\fR]\n");
    text.push_str(".SH DESCRIPTION\n");
    text.push_str(
        "Finds cases, runs each in a worker process on a GPU, on the simulator or on the reference, and turns what comes \
         back, or what does not, into verdicts and records. Without a command, \\fBrun\\fR is meant.\n",
    );
    text.push_str(".SH COMMANDS\n");
    for row in COMMANDS {
        let operands =
            if row.operands.0.is_empty() { String::new() } else { format!(" \\fI{}\\fR", roff(row.operands.0)) };
        let _ = writeln!(text, ".TP\n\\fB{}\\fR{operands}\n{}", roff(row.word), roff(&sentence(row.help)));
    }
    text.push_str(".SH OPTIONS\n");
    for theme in THEMES {
        let shown: Vec<&OptionRow> = theme.rows.iter().filter(|row| !row.help.is_empty()).collect();
        if !shown.is_empty() {
            let _ = writeln!(text, ".SS {}", roff(theme.title));
            shown.into_iter().for_each(|row| option(&mut text, row));
        }
    }
    text.push_str(
        ".SH ENVIRONMENT\nA variable gives an option where the command line does not; the command line wins.\n",
    );
    for row in THEMES.iter().flat_map(|theme| theme.rows).filter(|row| !row.help.is_empty() && !row.env.is_empty()) {
        let _ = writeln!(text, ".TP\n\\fB{}\\fR\n{}", roff(&row.env.join(", ")), roff(row.name));
    }
    text.push_str(".SH EXIT STATUS\n");
    for (code, meaning) in exit::TABLE {
        let _ = writeln!(text, ".TP\n.B {code}\n{}", roff(&sentence(meaning)));
    }
    text.push_str(".TP\n.B 128+N\nEnded by signal N after an orderly shutdown.\n");
    text.push_str(
        ".SH FILES\n.TP\n.I cases/\nCase files, the list of kernels, the baseline of counters, the quarantine file.\n",
    );
    text.push_str(".TP\n.I results/\nRecords of runs, and the history of each kind of device.\n");
    text
}

fn option(text: &mut String, row: &OptionRow) {
    let value = match row.value {
        Value::Flag => String::new(),
        Value::Needs(shape) => format!(" \\fI{}\\fR", roff(shape)),
        Value::May(shape) => format!("[=\\fI{}\\fR]", roff(shape)),
    };
    let names: Vec<String> = std::iter::once(row.name)
        .chain(row.also.iter().copied())
        .map(|name| format!("\\fB{}\\fR", roff(name)))
        .collect();
    let _ = writeln!(text, ".TP\n{}{value}\n{}", names.join(", "), roff(&sentence(row.help)));
    if !row.commands.is_all() {
        let _ = writeln!(text, "Taken by {}.", roff(&shown(row.commands)));
    }
}

/// The commands of an option, without the quotes of messages.
fn shown(commands: Commands) -> String {
    commands.shown().replace('`', "")
}

/// With a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
    let end = if text.ends_with(['.', '?']) { "" } else { "." };
    format!("{first}{}{end}", chars.as_str())
}

/// Text that roff leaves alone: no escapes, hyphens as they are typed, no request at the start of a line.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
    if escaped.starts_with('.') { format!("\\&{escaped}") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::super::table::rows;
    use super::*;

    #[test]
    fn the_page_has_every_command_option_and_code() {
        let page = page();
        for row in COMMANDS {
            assert!(page.contains(&format!(".TP\n\\fB{}\\fR", roff(row.word))), "{}", row.word);
        }
        for row in rows().filter(|row| !row.help.is_empty()) {
            assert!(page.contains(&format!("\\fB{}\\fR", roff(row.name))), "{}", row.name);
        }
        for (code, _) in exit::TABLE {
            assert!(page.contains(&format!(".B {code}\n")), "{code}");
        }
        // Only macros that are known begin a line with a dot.
        let known = [".TH ", ".SH ", ".SS ", ".TP", ".B ", ".I "];
        let wrong = page
            .lines()
            .find(|line| line.starts_with(['.', '\'']) && !known.iter().any(|known| line.starts_with(known)));
        assert_eq!(wrong, None);
    }
}
