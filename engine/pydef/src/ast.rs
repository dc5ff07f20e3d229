//! The tree of a Python text, with places. Trees are shallow: the parser
//! refuses what nests deeper than its limits, so recursion over them, dropping
//! included, is bounded.

#![allow(missing_docs, reason = "fields of a variant are described by the variant")]

use engine::diag::Span;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PyExpr {
    pub(super) kind: ExprKind,
    pub(super) span: Span,
    /// Levels below this one.
    pub(super) height: u32,
}

/// What an expression is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExprKind {
    None,
    /// `...`.
    Ellipsis,
    Bool(bool),
    /// An integer; `u64` constants need more than 64 bits.
    Int(i128),
    Float(f64),
    /// `2.5j`.
    Imaginary(f64),
    Str(String),
    Name(String),
    /// `value.name`.
    Attribute(Box<PyExpr>, Name),
    /// `value[index, ...]`.
    Subscript(Box<PyExpr>, Vec<Index>),
    Call(Box<CallExpr>),
    List(Vec<PyExpr>),
    Tuple(Vec<PyExpr>),
    Unary(Sign, Box<PyExpr>),
    Binary(Operator, Box<PyExpr>, Box<PyExpr>),
    /// `*value`, among arguments and elements.
    Starred(Box<PyExpr>),
    /// `value if condition else other`.
    Conditional {
        condition: Box<PyExpr>,
        then: Box<PyExpr>,
        otherwise: Box<PyExpr>,
    },
    /// A form that is Python but has no meaning here; it matters only if its
    /// value does.
    Unreadable(&'static str),
}

/// A name with its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) span: Span,
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CallExpr {
    pub(super) function: PyExpr,
    pub(super) positional: Vec<PyExpr>,
    pub(super) keywords: Vec<(Name, PyExpr)>,
}

/// One part of a subscript.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Index {
    At(PyExpr),
    /// `start:stop:step`.
    Range {
        start: Option<PyExpr>,
        stop: Option<PyExpr>,
        step: Option<PyExpr>,
    },
}

/// An operator in front of its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Plus,
    Minus,
    Invert,
    Not,
}

/// An operator between its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    And,
    In,
    NotIn,
    Is,
    IsNot,
    Lt,
    Le,
    Gt,
    Ge,
    Eq,
    Ne,
    BitOr,
    BitXor,
    BitAnd,
    ShiftLeft,
    ShiftRight,
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    MatMul,
    Pow,
}

impl Operator {
    /// As it is written.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Or => "or",
            Self::And => "and",
            Self::In => "in",
            Self::NotIn => "not in",
            Self::Is => "is",
            Self::IsNot => "is not",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::BitOr => "|",
            Self::BitXor => "^",
            Self::BitAnd => "&",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::FloorDiv => "//",
            Self::Mod => "%",
            Self::MatMul => "@",
            Self::Pow => "**",
        }
    }
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stmt {
    pub(super) kind: StmtKind,
    pub(super) span: Span,
}

/// What a statement is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StmtKind {
    /// `import a.b as c`, `from a import b`: the names that it binds, each with
    /// the dotted path that it stands for.
    Import(Vec<(String, String)>),
    /// `def name(parameters): body`.
    Def(FunctionDef),
    /// `with context as name: body`.
    With { items: Vec<(PyExpr, Option<Name>)>, body: Vec<Stmt> },
    /// `if condition: body else: otherwise`.
    If { condition: PyExpr, body: Vec<Stmt>, otherwise: Vec<Stmt> },
    /// `for target in values: body`.
    For { target: PyExpr, values: PyExpr, body: Vec<Stmt> },
    /// `a = b, c = value`: targets from left to right.
    Assign { targets: Vec<PyExpr>, value: PyExpr },
    /// `target += value`.
    Augmented { target: PyExpr, operator: Operator, value: PyExpr },
    /// An expression for its effect.
    Expr(PyExpr),
    /// `return value`.
    Return(Option<PyExpr>),
    /// `pass`, `assert ...`, `global ...`: nothing happens.
    Nothing,
}

/// A function definition.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FunctionDef {
    pub(super) name: Name,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Vec<Stmt>,
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parameter {
    pub(super) name: Name,
    pub(super) annotation: Option<PyExpr>,
    pub(super) default: Option<PyExpr>,
}
