//! The tree of an expression, and its canonical text.

use super::property::Property;
use std::fmt;
use std::ops::Range;

/// A parsed expression with its text.
#[derive(Clone, Debug)]
pub struct FilterExpr {
    pub(super) text: String,
    pub(super) root: Node,
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    All,
    None,
    Not(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Test(Test),
}

/// A leaf that looks at a case, with its place in the text.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub(super) what: What,
    pub(super) span: Range<usize>,
}

/// Places do not tell expressions apart.
impl PartialEq for Test {
    fn eq(&self, other: &Self) -> bool {
        self.what == other.what
    }
}

/// What a leaf asks.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    Text(TextField, String),
    Last(Vec<String>),
    Mark(Mark),
    /// In the property's base unit: nanoseconds, bytes, or a plain number.
    Compare(&'static Property, CompareOp, f64),
    Axis(String, CompareOp, String),
    /// A revision or a run, as it was written.
    Changed(String),
}

/// Texts of a case that a pattern is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextField {
    Name,
    Suite,
    Tag,
    File,
    Device,
}

/// Truths about a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Quarantined,
    Perf,
    Refusal,
    Xfail,
}

pub(super) const TEXTS: [(&str, TextField); 5] = [
    ("name", TextField::Name),
    ("suite", TextField::Suite),
    ("tag", TextField::Tag),
    ("file", TextField::File),
    ("device", TextField::Device),
];

pub(super) const MARKS: [(&str, Mark); 4] =
    [("quarantined", Mark::Quarantined), ("perf", Mark::Perf), ("refusal", Mark::Refusal), ("xfail", Mark::Xfail)];

/// A relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl CompareOp {
    /// Longer ones first, so that a prefix is not taken for the whole.
    pub(super) const ALL: [(&str, CompareOp); 7] = [
        ("==", CompareOp::Eq),
        ("!=", CompareOp::Ne),
        ("<=", CompareOp::Le),
        (">=", CompareOp::Ge),
        ("=", CompareOp::Eq),
        ("<", CompareOp::Lt),
        (">", CompareOp::Gt),
    ];

    pub(super) fn holds<T: PartialOrd>(self, a: &T, b: &T) -> bool {
        match self {
            CompareOp::Eq => a == b,
            CompareOp::Ne => a != b,
            CompareOp::Lt => a < b,
            CompareOp::Le => a <= b,
            CompareOp::Gt => a > b,
            CompareOp::Ge => a >= b,
        }
    }

    fn shown(self) -> &'static str {
        match self {
            CompareOp::Eq => "=",
            other => Self::ALL.iter().find(|(_, op)| *op == other).map_or("=", |(text, _)| text),
        }
    }
}

fn word_of<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table.iter().find(|(_, other)| other == value).map_or("", |(word, _)| word)
}

/// `{` `}` of strings that hold more than a bare word may.
struct Bare<'a>(&'a str);

impl fmt::Display for Bare<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match !self.0.is_empty() && self.0.chars().all(super::parse::bare) {
            true => f.write_str(self.0),
            false => write!(f, "\"{}\"", self.0.replace('\\', "\\\\").replace('"', "\\\"")),
        }
    }
}

impl fmt::Display for FilterExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.fmt(f)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = |f: &mut fmt::Formatter<'_>, node: &Node| match node {
            Node::And(_) | Node::Or(_) => write!(f, "({node})"),
            _ => write!(f, "{node}"),
        };
        match self {
            Node::All => f.write_str("all"),
            Node::None => f.write_str("none"),
            Node::Not(node) => f.write_str("!").and_then(|()| inner(f, node)),
            Node::And(nodes) | Node::Or(nodes) => {
                let between = if matches!(self, Node::And(_)) { " & " } else { " | " };
                for (i, node) in nodes.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { between })?;
                    inner(f, node)?;
                }
                Ok(())
            }
            Node::Test(test) => test.what.fmt(f),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Text(text, pattern) => write!(f, "{}({})", word_of(&TEXTS, text), Bare(pattern)),
            What::Last(words) => write!(f, "last({})", words.join(", ")),
            What::Mark(mark) => f.write_str(word_of(&MARKS, mark)),
            What::Compare(property, op, value) => {
                write!(f, "{} {} {value}{}", property.name, op.shown(), property.kind.base())
            }
            What::Changed(since) => write!(f, "changed({})", Bare(since)),
            What::Axis(name, op, value) => write!(f, "axis({name}) {} {}", op.shown(), Bare(value)),
        }
    }
}
