//! The diagnostic value.

use super::{Code, code};

/// Result of everything that can be refused.
pub type Result<T, E = Box<Diagnostic>> = std::result::Result<T, E>;

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiagnosticKind {
    /// The input is wrong.
    User,
    /// The input is right, this version cannot do it.
    Unsupported,
    /// An invariant of ours broke.
    Bug,
}

/// A byte range of a source text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// A place in the source with a remark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// What about it; may be empty.
    pub text: String,
}

/// What the CUDA driver said of a call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaError {
    /// The driver's number (`CUresult`), for example 700.
    pub number: u32,
    /// The driver's name, for example `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub name: String,
    /// Whether it broke the context: every later call of the process fails alike.
    pub sticky: bool,
}

/// An error, or a refusal, with everything a user needs to act on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whose fault.
    pub kind: DiagnosticKind,
    /// Stable code.
    pub code: Code,
    /// Lowercase, no trailing period; names the op, the axes and the numbers.
    pub message: String,
    /// Places, the primary one first.
    pub labels: Vec<Label>,
    /// Further facts and ways out.
    pub notes: Vec<String>,
    /// The driver's error behind it, where there is one.
    pub cuda: Option<CudaError>,
}

impl Diagnostic {
    /// A user error.
    pub fn user(code: Code, message: impl Into<String>) -> Box<Self> {
        Self::new(DiagnosticKind::User, code, message)
    }
    /// A valid request that this version cannot serve.
    pub fn unsupported(code: Code, message: impl Into<String>) -> Box<Self> {
        Self::new(DiagnosticKind::Unsupported, code, message)
    }
    /// A broken invariant.
    pub fn bug(message: impl Into<String>) -> Box<Self> {
        Self::new(DiagnosticKind::Bug, code::BUG, message)
    }
    /// A broken invariant with a specific code.
    pub fn bug_code(code: Code, message: impl Into<String>) -> Box<Self> {
        Self::new(DiagnosticKind::Bug, code, message)
    }

    fn new(kind: DiagnosticKind, code: Code, message: impl Into<String>) -> Box<Self> {
        Box::new(Self { kind, code, message: message.into(), labels: Vec::new(), notes: Vec::new(), cuda: None })
    }

    /// Adds a place.
    #[must_use]
    pub fn label(mut self: Box<Self>, span: Span, text: impl Into<String>) -> Box<Self> {
        self.labels.push(Label { span, text: text.into() });
        self
    }
    /// Adds a note.
    #[must_use]
    pub fn note(mut self: Box<Self>, text: impl Into<String>) -> Box<Self> {
        self.notes.push(text.into());
        self
    }
    /// Several errors as one: the first as it is, and what each of the others says below it.
    /// Nothing where there is none.
    pub fn together(errors: Vec<Box<Self>>) -> Option<Box<Self>> {
        let mut errors = errors.into_iter();
        let mut all = errors.next()?;
        for error in errors {
            all.notes.push(format!("also: {error}"));
            // What breaks everything after it must be seen.
            all.cuda = all.cuda.or(error.cuda);
        }
        Some(all)
    }
    /// Adds the driver's error.
    #[must_use]
    pub fn cuda(mut self: Box<Self>, error: CudaError) -> Box<Self> {
        self.cuda = Some(error);
        self
    }
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            DiagnosticKind::User => "error",
            DiagnosticKind::Unsupported => "unsupported",
            DiagnosticKind::Bug => "bug",
        };
        write!(f, "{kind}[{}]: {}", self.code, self.message)?;
        for note in &self.notes {
            write!(f, "\n  note: {note}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}
