//! Directives about what a fusion computes, held against the reference on every
//! device: they check the oracle itself.
//!
//! ```text
//! outputs: f32[5, $n], i64[3] strides [2]      type and sizes of each result in order
//! values:  [1, 2.5, nan], [true, ...]          elements in row-major order; `...` leaves the rest open
//! same-as: @Other                              a fusion of the same file that gives the same results
//! ```

use super::cursor::Cursor;
use super::directive::comma_separated;
use super::model::{Number, OutputSpec, Real, SameAs, ValuesSpec};
use super::source::{Fault, suggest};
use engine::num::DType;

/// Values of one result that a line may state.
const MAX_VALUES: usize = 4096;

/// `dtype[size, ...] [strides [n, ...]]`, once for each result.
pub(super) fn read_outputs(c: &mut Cursor<'_>, line: usize, outputs: &mut Vec<OutputSpec>) -> Result<(), Fault> {
    comma_separated(c, |c| {
        let at = c.here();
        let word = c.word("a data type such as f32")?;
        let Some(dtype) = DType::from_name(word) else {
            let hint = suggest(word, DType::ALL.iter().map(|dtype| dtype.name()));
            return Err(Fault::directive(at, format!("unknown data type `{word}`")).note(hint));
        };
        let sizes = c.list("[", "]", Cursor::int)?;
        let strides = if c.take("strides") { Some(c.list("[", "]", Cursor::int)?) } else { None };
        if strides.as_ref().is_some_and(|strides| strides.len() != sizes.len()) {
            return Err(Fault::directive(at, format!("one stride for each of {} axes is needed", sizes.len())));
        }
        outputs.push(OutputSpec { line, dtype: dtype.name().into(), sizes, strides });
        Ok(())
    })
}

/// `[value, ...]`, once for each result.
pub(super) fn read_values(c: &mut Cursor<'_>, line: usize, values: &mut Vec<ValuesSpec>) -> Result<(), Fault> {
    comma_separated(c, |c| {
        let at = c.here();
        let mut open = false;
        let items = c.list("[", "]", |c| {
            if open {
                return Err(c.fault("`...` ends the list"));
            }
            if c.take("...") {
                open = true;
                return Ok(None);
            }
            read_number(c).map(Some)
        })?;
        let items: Vec<Number> = items.into_iter().flatten().collect();
        if items.len() > MAX_VALUES {
            return Err(Fault::directive(at, format!("{} values, more than {MAX_VALUES}: use `...`", items.len())));
        }
        values.push(ValuesSpec { line, values: items, open });
        Ok(())
    })
}

fn read_number(c: &mut Cursor<'_>) -> Result<Number, Fault> {
    if c.take("true") {
        return Ok(Number::Bool(true));
    }
    if c.take("false") {
        return Ok(Number::Bool(false));
    }
    if let Some((re, im)) = c.complex() {
        return Ok(Number::Complex(Real::new(re), Real::new(im)));
    }
    if c.next_is_float() {
        return Ok(Number::Float(Real::new(c.real()?)));
    }
    Ok(Number::Int(c.int()?))
}

/// `@Name`; the fusion's text is filled in when the file is expanded.
pub(super) fn read_same_as(c: &mut Cursor<'_>, line: usize) -> Result<SameAs, Fault> {
    if !c.take("@") {
        return Err(c.fault("expected the name of another fusion of this file, such as `@Other`"));
    }
    let name = c.word("the name of a fusion")?.to_string();
    Ok(SameAs { line, name, text: String::new(), text_line: 0 })
}
