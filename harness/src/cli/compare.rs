//! `compare`: what changed between two runs.

use super::args::{Args, Form};
use super::session::Folders;
use super::{Failure, pair, runs};
use crate::exit;
use crate::record::History;
use crate::report::Learnt;

pub(super) fn compare(args: &Args) -> Result<u8, Failure> {
    let results = Folders::of(args).results;
    let words = [args.operands[0].clone(), args.operands[1].clone()];
    let [before, after] = pair::pair(&results, &words)?;
    let (before, after) = (runs::load(&before)?, runs::load(&after)?);
    let history = after.device().map(|device| History::of(&results, &device));
    let learnt = history.map_or_else(Learnt::default, |history| Learnt {
        kernels: history.times(),
        durations: history.duration_noise(),
    });
    let found = crate::report::compare(&before, &after, learnt);
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
