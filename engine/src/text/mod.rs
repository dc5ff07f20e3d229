//! The text form of fusions: [`parse`] and [`print`].
//!
//! ```text
//! fusion @norm(%x: bf16[?, 1024], %w: f32[1024], %eps: f64) {
//!   %rows = rms_norm %x, %w eps(1e-6)   ; comments run to the end of the line
//!   %y = cast %rows bf16
//!   return %y
//! }
//! ```
//!
//! A statement is one line. Operations, their operands and attributes are the
//! rows of [`crate::fusion::ops`]; composites are accepted and expanded, so
//! the printer prints primitives only. `parse_one(&print(f)) == f` for every
//! fusion. All errors of a text come at once, each with its place; nothing
//! here recurses or panics, whatever the text.

mod apply;
mod attrs;
mod comments;
mod cursor;
mod format;
mod lexer;
mod parser;
mod printer;
mod scanner;
mod statement;
mod suggest;
#[cfg(test)]
mod tests;

pub use comments::Comment;
pub use format::format;
pub use parser::{MAX_BYTES, ParsedFile, ParsedFusion, Statement, comments, parse, parse_lossy, parse_one};
pub use printer::{can_be_written, print};
pub use scanner::{Scanner, is_word};
pub use suggest::nearest;
