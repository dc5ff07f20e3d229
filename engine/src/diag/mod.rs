//! Errors as values. Three kinds that are never mixed:
//! *user* (the input is wrong), *unsupported* (the input is right, this version
//! cannot do it, and says what is missing) and *bug* (an invariant of ours broke).
//!
//! Each diagnostic has a stable code (`E0203`), a lowercase message without a
//! trailing period, an optional place in a source text, and notes that name a
//! way out. Codes are listed in one table ([`code`]) so that they never collide.

mod codes;
mod diagnostic;
mod render;

pub use codes::{CODES, Code, CodeInfo, Example, code};
pub use diagnostic::{CudaError, Diagnostic, DiagnosticKind, Label, Result, Span};
pub use render::render;
