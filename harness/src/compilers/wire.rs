//! What clients and compiler processes say to each other, in frames of `frame.rs`.

use engine::backend::cuda::nvrtc::Nvrtc;
use serde::{Deserialize, Serialize};

/// The build of a library, for comparison; nothing where it is not known.
pub(super) fn build_of(nvrtc: &Nvrtc) -> Option<String> {
    nvrtc.fingerprint().ok().map(|build| format!("{:032x}", build.0))
}

/// Said once by the process: the build of the library that it has, as [`build_of`]
/// names it.
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
