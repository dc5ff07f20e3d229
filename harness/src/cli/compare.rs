//! `compare`: what changed between two runs.

use super::args::{Args, Form};
use super::session::Folders;
use super::{Failure, runs};
use crate::exit;

pub(super) fn compare(args: &Args) -> Result<u8, Failure> {
    let results = Folders::of(args).results;
    let run = |word: &String| runs::load(&runs::find(&results, word)?);
    let found = crate::report::compare(&run(&args.operands[0])?, &run(&args.operands[1])?);
    let text = match args.records.form.unwrap_or(Form::Plain) {
        Form::Md => found.markdown(),
        Form::Json => format!("{:#}\n", found.json()),
        _ => found.plain(runs::columns()),
    };
    runs::deliver(args.output.file.as_deref(), &text)?;
    Ok(match () {
        () if found.is_failing() => exit::FAILED,
        () if found.is_dearer() => exit::REGRESSED,
        () => exit::OK,
    })
}
