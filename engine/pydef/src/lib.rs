//! nvFuser's own form of definitions: reader and printer.
//!
//! nvFuser prints a fusion as a Python function, and its tests and bug reports
//! are scripts around such functions:
//!
//! ```python
//! def nvfuser_fusion(fd : FusionDefinition) -> None :
//!     tv0 = fd.define_tensor(shape=[-1, 8], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
//!     tv1 = fd.ops.mul(tv0, 2.00000)
//!     fd.add_output(tv1)
//!
//! inputs = [torch.randn(48, dtype=torch.float32, device="cuda:0").as_strided((6, 8), (8, 1))]
//! ```
//!
//! [`read`] takes the text and gives a [`Definition`] for each fusion that it
//! makes, with what the script passes to it; no Python is involved. The stages:
//! a lexer that knows lines and indentation; a parser of Python's statements and
//! expressions; a small interpreter that follows numbers, lists, data types,
//! tensors of the script and values of definitions, and carries everything else
//! along as *unknown*, which matters only where a definition or its inputs depend
//! on it. Operations, their argument names and defaults are the rows of
//! [`engine::fusion::ops`]. [`print()`] writes a fusion in this form; reading that
//! gives a fusion of the same structure.
//!
//! All errors of a text come at once, with their places. Whatever the text,
//! nothing here panics, recurses deeper than its stated limits, runs longer than
//! a number of steps, or makes lists beyond a length.

#![warn(missing_docs)]

mod adapt;
mod arith;
mod ast;
mod call;
mod define;
mod draft;
mod embedding;
mod env;
mod eval;
mod expr;
mod interp;
mod lexer;
mod names;
mod opcall;
mod parser;
mod printer;
#[cfg(test)]
#[path = "../../tests/property/mod.rs"]
mod property;
mod reader;
mod recipe;
mod tensor;
#[cfg(test)]
mod tests;
mod torch;
mod typing;
mod value;

pub use names::{dtype_of_torch, torch_name};
pub use printer::print;
pub use reader::{Definition, Generator, MAX_BYTES, read, read_with};
pub use recipe::{Fill, InputRecipe, PyNumber, TensorRecipe};
