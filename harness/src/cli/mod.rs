//! The command line: parse, dispatch to a command, turn errors into messages
//! and exit codes.

mod args;
mod bench_table;
mod bless;
mod check;
mod compare;
mod compile;
mod devices;
mod doctor;
mod ending;
mod explain;
mod flakes;
mod fmt;
mod import;
mod list;
mod plan;
mod quarantine;
mod report;
mod resume;
mod run;
mod runs;
mod selftest;
mod session;
mod show;
mod since;
mod store;

use crate::exit;
pub(crate) use args::Color;
use args::Parsed;
use engine::diag::{Diagnostic, code};
use std::ffi::OsString;
use std::io::Write;

/// An error with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: u8, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }
    fn diagnostic(exit: u8, diagnostic: &Diagnostic) -> Self {
        Self::new(exit, diagnostic.to_string())
    }
}

/// Runs the harness with the given arguments (without the program's name).
/// Returns the exit code.
pub fn main(arguments: impl Iterator<Item = OsString>) -> u8 {
    crate::os::reset_inherited();
    let result = text(arguments).and_then(|arguments| args::parse(&arguments)).and_then(|parsed| match parsed {
        Parsed::Help(text) => {
            print(&text);
            Ok(exit::OK)
        }
        Parsed::Worker { fd, crumb_fd, evidence_fd } => Ok(crate::worker::main(fd, crumb_fd, evidence_fd)),
        Parsed::Compiler { fd, folders } => Ok(crate::compilers::main(fd, folders)),
        Parsed::Args(args) => {
            // A limit on the size of files is an error of a write, not the end of the run.
            let noted = std::sync::Arc::default();
            let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, noted);
            crate::os::raise_file_limit();
            args::run(&args)
        }
    });
    result.unwrap_or_else(|failure| {
        let _ = writeln!(std::io::stderr().lock(), "{}", failure.message.trim_end());
        failure.exit
    })
}

fn text(arguments: impl Iterator<Item = OsString>) -> Result<Vec<String>, Failure> {
    let not_text = |word: OsString| {
        let message = format!("the argument {word:?} is not UTF-8");
        Failure::diagnostic(exit::USAGE, &Diagnostic::user(code::USAGE, message))
    };
    arguments.map(|word| word.into_string().map_err(not_text)).collect()
}

/// Says something beside what is printed, on standard error.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints to standard output; a reader that went away is not an error.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
