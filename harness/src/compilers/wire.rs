//! What clients and compiler processes say to each other, in frames of `frame.rs`.

use serde::{Deserialize, Serialize};

/// Said once by the process: the build of the library that it has, as
/// [`super::build_of`] names it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) build: String,
}

/// A text to compile.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) arch: String,
    pub(super) fmad: bool,
    pub(super) line_info: bool,
    pub(super) text: String,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Response {
    pub(super) log: String,
    pub(super) error: Option<String>,
    /// Bytes of machine code that follow.
    pub(super) code: usize,
}
