//! `compare`: what changed between two runs.

use super::args::{Args, Form};
use super::{Failure, runs};
use crate::exit;

pub(super) fn compare(args: &Args) -> Result<u8, Failure> {
    let form = args.records.form.unwrap_or(Form::Plain);
    let [before, after] = [&args.operands[0], &args.operands[1]];
    let (before, after) = (runs::load(&runs::find(args, before)?)?, runs::load(&runs::find(args, after)?)?);
    let found = crate::report::compare(&before, &after);
    let text = match form {
        Form::Md => found.markdown(),
        _ => found.plain(runs::columns()),
    };
    runs::deliver(args, &text)?;
    Ok(if found.is_worse() { exit::FAILED } else { exit::OK })
}
