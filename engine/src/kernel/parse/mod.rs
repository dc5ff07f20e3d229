//! Reads the text form of kernels, as [`print`](crate::kernel::print) writes it.
//!
//! Input: text. Output: a kernel, or the first place that does not follow the
//! form. `print(parse(print(k))) == print(k)` but for comments: they name the
//! fusion tensor and the pass that a statement came from, which a text cannot
//! bring back. Names keep the suffixes that made them unique. The kernel is as
//! sound as its text: [`verify`](crate::kernel::verify) judges it.
//!
//! Nothing here panics or recurses without bound, whatever the text.

mod cursor;
mod declarations;
mod expr;
mod kernel;

#[cfg(test)]
mod tests;

pub use kernel::{check_text, parse};
