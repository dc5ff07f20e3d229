//! Why a command did not do what it was asked.

use engine::diag::Diagnostic;

/// An error with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: u8, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    pub(super) fn diagnostic(exit: u8, diagnostic: &Diagnostic) -> Self {
        Self::new(exit, diagnostic.to_string())
    }
}
