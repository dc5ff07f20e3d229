//! The program: its arguments, and which part of it they ask for.

use super::Failure;
use super::args::{self, Parsed};
use crate::console::print;
use crate::exit;
use engine::diag::{Diagnostic, code};
use std::ffi::OsString;
use std::io::Write;

/// Runs the harness with the given arguments (without the program's name).
/// Returns the exit code.
pub fn main(arguments: impl Iterator<Item = OsString>) -> u8 {
    crate::os::reset_inherited();
    // Who asks a run what it is at may ask its workers as well, or too early: that ends nobody.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGUSR1, std::sync::Arc::default());
    let result = text(arguments).and_then(|arguments| args::parse(&arguments)).and_then(|parsed| match parsed {
        Parsed::Help(text) => {
            print(&text);
            Ok(exit::OK)
        }
        Parsed::Worker { fd, crumb_fd, evidence_fd } => Ok(crate::worker::main(fd, crumb_fd, evidence_fd)),
        Parsed::Compiler { from, folders } => Ok(crate::compilers::main(from, folders)),
        Parsed::Task { folder, task } => {
            settle();
            super::launch::task(&folder, task)
        }
        Parsed::Args(args) => {
            settle();
            args::run(&args)
        }
    });
    result.unwrap_or_else(|failure| {
        let _ = writeln!(std::io::stderr().lock(), "{}", failure.message.trim_end());
        failure.exit
    })
}

/// Of a process that runs cases, or starts who does.
fn settle() {
    // A limit on the size of files is an error of a write, not the end of the run.
    let noted = std::sync::Arc::default();
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, noted);
    crate::os::raise_file_limit();
}

fn text(arguments: impl Iterator<Item = OsString>) -> Result<Vec<String>, Failure> {
    let not_text = |word: OsString| {
        let message = format!("the argument {word:?} is not UTF-8");
        Failure::diagnostic(exit::USAGE, &Diagnostic::user(code::USAGE, message))
    };
    arguments.map(|word| word.into_string().map_err(not_text)).collect()
}
