//! What commands on records share: the store, runs by name, and where text goes.

use super::Failure;
use super::args::Form;
use super::run::options::RecordOptions;
use crate::console::print;
use crate::exit;
use crate::record::{Recorded, ResultsFolder, RunInfo};
use crate::report::{Format, Look, Progress, TimeLeft, fit};
use engine::diag::{Diagnostic, code};
use std::io::{self, IsTerminal};
use std::path::Path;

/// The results folder.
pub(super) fn layout(root: &Path) -> Result<ResultsFolder, Failure> {
    ResultsFolder::open(root).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => no_run(&format!("{} is no folder of records", root.display()), "no FORMAT is in it"),
        _ => Failure::diagnostic(
            exit::BAD_RUN,
            &Diagnostic::user(code::RESULTS, error.to_string()).note("read it with the version that wrote it"),
        ),
    })
}

/// A run of the results folder, or one that is named by its own folder.
pub(super) fn find(results: &Path, word: &str) -> Result<RunInfo, Failure> {
    let path = Path::new(word);
    if word.contains('/') && path.join("events.jsonl").is_file() {
        return RunInfo::look(path).map_err(|error| no_run(word, &error.to_string()));
    }
    layout(results)?
        .find(word)
        .map_err(|why| no_run(&format!("there is no run `{}`", crate::escape::short(word)), &why))
}

/// Reads a run; a damaged one is read as far as it goes.
pub(super) fn load(info: &RunInfo) -> Result<Recorded, Failure> {
    info.load().map_err(|error| {
        let diagnostic = Diagnostic::user(code::NO_RUN, format!("the run {} cannot be read: {error}", info.id));
        Failure::diagnostic(exit::BAD_RUN, &diagnostic.note("`harness store repair` says what can be mended"))
    })
}

fn no_run(message: &str, note: &str) -> Failure {
    let diagnostic = Diagnostic::user(code::NO_RUN, message).note(note).note("`harness store list` shows the runs");
    Failure::diagnostic(exit::BAD_RUN, &diagnostic)
}

/// The view of a command that runs cases.
pub(super) fn progress(options: &RecordOptions, total: usize, labels: Vec<String>, left: TimeLeft) -> Progress {
    let format = match options.form {
        Some(Form::Bar) => Format::Bar,
        Some(Form::Plain) => Format::Plain,
        Some(Form::Jsonl) => Format::Jsonl,
        _ => Format::Auto,
    };
    Progress::new(Look { format, color: options.color, detail: options.detail }, total, labels, left)
}

/// Prints a text, or writes it where `--output` says.
pub(super) fn deliver(output: Option<&Path>, text: &str) -> Result<(), Failure> {
    match output {
        None => print(text),
        Some(path) => std::fs::write(path, text).map_err(|error| not_written(path, &error))?,
    }
    Ok(())
}

pub(super) fn not_written(path: &Path, error: &io::Error) -> Failure {
    let diagnostic = Diagnostic::user(code::RESULTS, format!("{} cannot be written: {error}", path.display()));
    Failure::diagnostic(exit::NO_RECORD, &diagnostic.note("name another place with --output"))
}

/// The last words of a command that runs cases. Where standard output is for
/// records alone, they go beside it.
pub(super) fn conclude(form: Option<Form>, text: &str) {
    match form {
        Some(Form::Jsonl) => drop(io::Write::write_all(&mut io::stderr().lock(), fit(text, usize::MAX).as_bytes())),
        _ => print(&fitted(text)),
    }
}

/// A text safe to print, and for a terminal no line of prose wider than it.
fn fitted(text: &str) -> String {
    let columns = if std::io::stdout().is_terminal() { columns() } else { usize::MAX };
    fit(text, columns)
}

/// Columns of the terminal. Where there is none nothing is cut: a file has room, and a program reads it.
pub(super) fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let columns = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns >= 20);
    columns.unwrap_or(if std::io::stdout().is_terminal() { 80 } else { usize::MAX })
}
