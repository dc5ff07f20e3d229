//! `schedule:` and `kernel:`: the whole text of a stage, in the lines that follow
//! the directive, each behind a marker.
//!
//! ```text
//! ; kernel: dtype=f16,m=8
//! ;| kernel pointwise_Add index i32 {
//! ;| }
//! ```
//!
//! Behind the colon stands the point of the axes that the text belongs to, as in
//! the id, or a part of it; without one it is the text of all points.

use super::cursor::Cursor;
use super::directive::Raw;
use super::model::{Case, Golden};
use super::source::{Fault, Source};

/// What each line of a text begins with.
pub(crate) const MARKER: &str = ";|";

/// Reads a text, if it is that of the case's point.
pub(super) fn read(case: &mut Case, raw: &Raw, c: &mut Cursor<'_>, source: &Source) -> Result<(), Fault> {
    let start = raw.body.start;
    if !raw.alone {
        return Err(Fault::directive(start, format!("`{}:` and its text have lines of their own", raw.keyword)));
    }
    let point = c.line().to_string();
    let axes: Vec<&str> = case.id.split_once('/').map_or(Vec::new(), |(_, point)| point.split(',').collect());
    let wanted: Vec<&str> = point.split(',').map(str::trim).filter(|pair| !pair.is_empty()).collect();
    let name = |pair: &'_ str| pair.split('=').next().map(String::from);
    for pair in &wanted {
        if !pair.contains('=') || (!case.id.is_empty() && !axes.iter().any(|axis| name(axis) == name(pair))) {
            let message = format!("`{pair}` is no axis of this case with its value");
            return Err(Fault::directive(start, message).note("a point is written as in the id: dtype=f32,m=8"));
        }
    }
    if !wanted.iter().all(|pair| axes.contains(pair)) {
        return Ok(());
    }
    let behind = source.text[raw.body.end..].find('\n').map_or(source.text.len(), |at| raw.body.end + at + 1);
    let lines = source.text[behind..].lines().map_while(|line| line.trim_start().strip_prefix(MARKER));
    let text = lines.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect();
    let golden = Golden { line: source.line(start), stage: raw.keyword.into(), text };
    if case.goldens.iter().any(|other| other.stage == golden.stage) {
        let message = format!("the case has two `{}:` texts", golden.stage);
        return Err(Fault::directive(start, message).note("name the points that each belongs to"));
    }
    case.goldens.push(golden);
    Ok(())
}
