//! `completions` and `man`: what the tables of commands and options tell shells and readers.

use super::Failure;
use super::args::{Args, Shell, man_page, usage};
use crate::case::suggest;
use crate::console::print;
use crate::escape::short;
use crate::exit;

pub(super) fn completions(args: &Args) -> Result<u8, Failure> {
    let word = args.operand().unwrap_or_default();
    let Some((_, shell)) = Shell::ALL.iter().find(|(name, _)| *name == word) else {
        let hint = suggest(word, Shell::ALL.iter().map(|(name, _)| *name));
        return Err(usage(format!("no completions for the shell `{}`", short(word)), hint));
    };
    print(&shell.script());
    Ok(exit::OK)
}

pub(super) fn man(_: &Args) -> Result<u8, Failure> {
    print(&man_page());
    Ok(exit::OK)
}
