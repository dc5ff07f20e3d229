//! What expressions of a script stand for.

use super::recipe::{PyNumber, TensorRecipe};
use engine::diag::Span;
use engine::fusion::Operand;
use engine::num::DType;
use std::sync::Arc;

/// The value of an expression.
#[derive(Clone, Debug)]
pub(super) enum Py {
    None,
    Ellipsis,
    Number(PyNumber),
    Str(Arc<str>),
    List(Seq),
    Tuple(Seq),
    /// A data type; `None` is `DataType.Null`.
    DType(Option<DType>),
    /// A dotted name of something outside of the script: `torch.testing`.
    Path(Arc<str>),
    /// A tensor that the script makes.
    Tensor(Arc<TensorRecipe>),
    /// A function of the script, by its number.
    Function(usize),
    /// `fd`, by the number of its definition.
    Fd(usize),
    /// `fd.ops`.
    Ops(usize),
    /// A value of a definition.
    Node(usize, Operand),
    /// A slice's bounds.
    Range(Arc<[Py; 3]>),
    /// Something that this reader does not follow; an error where it matters.
    Unknown(Arc<Unknown>),
    /// An error was reported where it comes from.
    Poison,
}

/// Where something unknown comes from.
#[derive(Clone, Debug)]
pub(super) struct Unknown {
    /// What it is: `torch.linspace(...)`.
    pub(super) what: String,
    pub(super) span: Span,
}

/// Values in a row, shared.
#[derive(Clone, Debug)]
pub(super) struct Seq {
    pub(super) items: Arc<Vec<Py>>,
    /// Levels of lists in lists.
    pub(super) depth: u32,
    /// Whether something in it is unknown or poisoned.
    unknown: bool,
}

/// The deepest lists in lists.
pub(super) const MAX_LIST_DEPTH: u32 = 16;
/// The longest list.
pub(super) const MAX_LIST: usize = 1 << 16;

impl Seq {
    /// A row; `None` above the limits.
    pub(super) fn new(items: Vec<Py>) -> Option<Self> {
        let below = |item: &Py| match item {
            Py::List(seq) | Py::Tuple(seq) => seq.depth,
            _ => 0,
        };
        let depth = items.iter().map(below).max().unwrap_or(0) + 1;
        let unknown = items.iter().any(|item| item.find_unknown().is_some());
        (depth <= MAX_LIST_DEPTH && items.len() <= MAX_LIST).then(|| Self { items: Arc::new(items), depth, unknown })
    }
}

impl Py {
    pub(super) fn int(value: impl Into<i128>) -> Self {
        Self::Number(PyNumber::Int(value.into()))
    }

    pub(super) fn float(value: f64) -> Self {
        Self::Number(PyNumber::Float(value))
    }

    pub(super) fn bool(value: bool) -> Self {
        Self::Number(PyNumber::Bool(value))
    }

    pub(super) fn path(path: impl AsRef<str>) -> Self {
        Self::Path(path.as_ref().into())
    }

    pub(super) fn unknown(what: impl Into<String>, span: Span) -> Self {
        Self::Unknown(Arc::new(Unknown { what: what.into(), span }))
    }

    /// Elements of a list or a tuple.
    pub(super) fn items(&self) -> Option<&[Py]> {
        match self {
            Self::List(seq) | Self::Tuple(seq) => Some(&seq.items),
            _ => None,
        }
    }

    /// An integer that fits 64 bits; truth values are 0 and 1.
    pub(super) fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Number(PyNumber::Int(v)) => i64::try_from(*v).ok(),
            Self::Number(PyNumber::Bool(v)) => Some((*v).into()),
            _ => None,
        }
    }

    /// Whether the value or an element of it is unknown or poisoned.
    pub(super) fn find_unknown(&self) -> Option<&Py> {
        match self {
            Self::Unknown(_) | Self::Poison => Some(self),
            Self::List(seq) | Self::Tuple(seq) if seq.unknown => seq.items.iter().find_map(Self::find_unknown),
            _ => None,
        }
    }

    /// What it is, for messages.
    pub(super) fn what(&self) -> String {
        match self {
            Self::None => "None".into(),
            Self::Ellipsis => "`...`".into(),
            Self::Number(PyNumber::Bool(true)) => "True".into(),
            Self::Number(PyNumber::Bool(false)) => "False".into(),
            Self::Number(PyNumber::Int(v)) => format!("the integer {v}"),
            Self::Number(PyNumber::Float(v)) => format!("the number {v:?}"),
            Self::Number(PyNumber::Complex(..)) => "a complex number".into(),
            Self::Str(_) => "a string".into(),
            Self::List(_) => "a list".into(),
            Self::Tuple(_) => "a tuple".into(),
            Self::DType(_) => "a data type".into(),
            Self::Path(path) => format!("`{path}`"),
            Self::Tensor(_) => "a tensor of the script".into(),
            Self::Function(_) => "a function".into(),
            Self::Fd(_) => "a definition".into(),
            Self::Ops(_) => "`fd.ops`".into(),
            Self::Node(_, Operand::Tensor(_)) => "a tensor of the definition".into(),
            Self::Node(_, Operand::Scalar(_)) => "a scalar of the definition".into(),
            Self::Range(_) => "a slice".into(),
            Self::Unknown(unknown) => unknown.what.clone(),
            Self::Poison => "a value that was refused".into(),
        }
    }
}
