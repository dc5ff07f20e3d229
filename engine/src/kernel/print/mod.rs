//! The text of a kernel: readable, deterministic, one to one with the IR. It is
//! not CUDA; the CUDA back end has its own printer.
//!
//! Order: parameters, buffers, launch, body. A name that two things share gets
//! its id as suffix (`x.v3`); constants whose type is not the index type carry
//! it (`1f32`). Arithmetic is written alike on indices and on data, since operands
//! tell which is meant; where they do not, it is a call of `index.add` or
//! `data.add`. Expressions are written inline; one too large for that is cut
//! into named pieces (`#17`) that stand in a `where` section at the end, so
//! that the text is never longer than the expression DAG demands.

mod expr;
mod kernel;
mod names;

pub use kernel::{print, print_stmt};
