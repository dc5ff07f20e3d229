//! Case files: text in, expanded [`Case`] values or places of errors out.
//!
//! A file is `---`, TOML front matter, `---`, then fusions, each followed by
//! its directives (see the modules `header`, `directive`, `inputs` and `results` for
//! the grammar). `$axis` and `${axis}` are replaced in the fusion and in its
//! directives; a fusion is repeated for each point of the axes that it names.

mod cursor;
mod definition;
mod directive;
mod discover;
mod expand;
mod format;
mod front;
mod golden;
mod header;
mod inputs;
mod model;
mod python;
mod results;
mod schedule;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use definition::case_text;
pub use directive::FACTS;
pub use discover::{Loaded, MAX_FILE_BYTES, MAX_IDS, load};
pub(crate) use discover::{files, read};
pub use expand::{MAX_IDS_PER_FILE, Target};
pub(crate) use format::format;
pub(crate) use golden::MARKER;
pub(crate) use inputs::strides;
pub use model::{
    ArgLayout, Case, CaseEnd, Check, Dist, ErrorSpec, Expect, Golden, InputSpec, Number, OutputSpec, PerfSpec, Real,
    Relation, Require, SCHEDULES, SameAs, SimSpec, TensorSpec, TextSpec, ValuesSpec, Xfail,
};
pub use source::CaseError;
pub(crate) use source::suggest;

/// Expands one text as if it were a file of that name.
pub(crate) fn read_text(name: &str, text: &str, target: Target) -> (Vec<Case>, Vec<CaseError>) {
    discover::expand_one(&source::Source::new(name.into(), text.into()), target)
}

/// Reads one text as a case file and drops what it finds: for fuzzing.
pub fn parse_only(name: &str, text: &str) {
    drop(read_text(name, text, Target::Sim));
}
