//! What a row of the table of operations holds.

use super::args::Args;
use super::call::Call;
use super::cx::{EvalCx, LayoutCx, MetaCx};
use super::movement::Movement;
use super::py_form::PyForm;
use crate::array::View;
use crate::diag::Result;
use crate::fusion::meta::Shape;
use crate::fusion::{Fusion, FusionBuilder, Op, Operand};
use crate::num::philox::Distribution;
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, UnaryOp};

/// A row of the table: one operation as users write it.
#[derive(Clone, Copy)]
pub struct OpRow {
    /// The textual name; nvFuser's, where it has the operation.
    pub name: &'static str,
    /// Operands and attributes, in the order of nvFuser's signature.
    pub params: &'static [OpParam],
    /// How many values it defines.
    pub results: usize,
    /// One line on what it computes.
    pub doc: &'static str,
    /// Where its meaning is written down: `N§2`, a paper, PyTorch's page.
    pub source: &'static str,
    /// How it is added to a fusion: checks and casts operands, normalises
    /// attributes, and adds primitives.
    pub build: BuildFn,
    /// What a primitive is; `None` for what `build` expands into others.
    pub primitive: Option<Primitive>,
    /// The scalar operation that the row is about, if it is about one.
    pub scalar: ScalarOp,
    /// Where nvFuser's Python form is not that of the row.
    pub py: PyForm,
    /// What the elements of its result are drawn from, if they are random. Then
    /// the first two operands are the distribution's parameters, and seed and
    /// offset have their names.
    pub random: Option<Distribution>,
    /// Whether it multiplies its first two operands, and sums, where nvFuser does it
    /// on tensor cores: of products of 8-bit floats those keep 14 bits.
    pub tensor_cores: bool,
    /// The uses of a primitive that do not decompose, though others do.
    pub stays: Option<StaysFn>,
}

/// Whether an operation of a fusion stays what it is where others of its row decompose.
pub type StaysFn = fn(&Fusion, &Op, &Call) -> bool;

/// Adds an operation to a fusion under construction.
pub type BuildFn = fn(&mut FusionBuilder, &Args) -> Result<Vec<Operand>>;

/// What a primitive means.
#[derive(Clone, Copy)]
pub struct Primitive {
    /// Types and axes of the results.
    pub meta: fn(&mut MetaCx<'_>) -> Result<Vec<Shape>>,
    /// Strides of the results.
    pub layout: ResultLayout,
    /// Values of the results.
    pub eval: fn(&EvalCx<'_>) -> Result<Vec<View>>,
    /// The same in terms of simpler operations, for back ends that have no
    /// kernel of its own for it.
    pub decompose: Option<BuildFn>,
    /// What it does with elements and axes.
    pub movement: Movement,
}

/// How the results of a primitive lie in memory, as PyTorch's eager operations
/// place them.
#[derive(Clone, Copy)]
pub enum ResultLayout {
    /// New storage, row-major.
    Dense,
    /// New storage, axes in the order of the tensor operands' strides.
    Elementwise,
    /// Strides of each result from the operands'; a view if
    /// [`View`] shares its operand's elements.
    Custom(fn(&LayoutCx<'_>) -> Result<Vec<Vec<i64>>>),
}

/// The scalar operation of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is the table of its name")]
pub enum ScalarOp {
    None,
    Unary(UnaryOp),
    Binary(BinaryOp),
    Ternary(TernaryOp),
    Reduce(ReduceOp),
}

/// A parameter of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpParam {
    /// Its name in the text form; operands have one for messages and for
    /// `name(%value)`.
    pub name: &'static str,
    /// Its keyword in nvFuser's Python form.
    pub py: &'static str,
    /// Its form.
    pub kind: OpParamKind,
    /// Whether it must be given.
    pub need: Need,
    /// Whether a value takes part in the type that the operands have in common.
    pub typed: bool,
}

/// The form of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpParamKind {
    /// An operand that is a tensor.
    Tensor,
    /// An operand that is a scalar.
    Scalar,
    /// An operand that is either.
    Value,
    /// All further operands: tensors.
    Tensors,
    /// Extents in brackets before the operands: integer scalars.
    Shape,
    /// Integer scalars in an attribute: `starts(0, %n)`.
    Scalars,
    /// A word alone: `keepdim`.
    Flag,
    /// A truth value that is not false by default: `largest(false)`.
    Bool,
    /// One integer: `axis(-1)`.
    Int,
    /// Integers: `axes(0, 2)`.
    Ints,
    /// Truth values: `flags(true, false)`.
    Bools,
    /// One number: `eps(1e-5)`.
    Number,
    /// A data type: `dtype(f32)`.
    DType,
    /// A data type alone, after the operands: `cast %x bf16`.
    BareDType,
}

impl OpParamKind {
    /// Whether it takes values of the fusion.
    pub const fn is_operand(self) -> bool {
        use OpParamKind::*;
        matches!(self, Tensor | Scalar | Value | Tensors | Shape | Scalars)
    }
    /// Whether it stands among the operands after the operation's name.
    pub const fn is_positional(self) -> bool {
        use OpParamKind::*;
        matches!(self, Tensor | Scalar | Value | Tensors)
    }
}

/// Whether a parameter must be given, and what it is if not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Need {
    /// It must be given.
    Required,
    /// It may be left out, which means something of its own.
    Optional,
    /// It may be left out: a flag or number.
    Bool(bool),
    /// It may be left out: an integer.
    Int(i64),
    /// It may be left out: a number.
    Number(f64),
    /// It may be left out: a data type.
    DType(DType),
}

/// A required parameter.
pub(super) const fn req(name: &'static str, kind: OpParamKind) -> OpParam {
    OpParam { name, py: name, kind, need: Need::Required, typed: true }
}

/// An optional parameter.
pub(super) const fn opt(name: &'static str, kind: OpParamKind) -> OpParam {
    OpParam { name, py: name, kind, need: Need::Optional, typed: true }
}

/// A word alone, absent unless given.
pub(super) const fn flag(name: &'static str) -> OpParam {
    OpParam { name, py: name, kind: OpParamKind::Flag, need: Need::Bool(false), typed: true }
}

/// A truth value, true unless given.
pub(super) const fn on(name: &'static str) -> OpParam {
    OpParam { name, py: name, kind: OpParamKind::Bool, need: Need::Bool(true), typed: true }
}

/// An integer with a default.
pub(super) const fn int(name: &'static str, default: i64) -> OpParam {
    OpParam { name, py: name, kind: OpParamKind::Int, need: Need::Int(default), typed: true }
}

/// A data type with a default.
pub(super) const fn dtype(name: &'static str, default: DType) -> OpParam {
    OpParam { name, py: name, kind: OpParamKind::DType, need: Need::DType(default), typed: true }
}

impl OpParam {
    /// The same parameter, whose type is its own.
    pub(super) const fn untyped(self) -> Self {
        Self { typed: false, ..self }
    }

    /// The same parameter under another keyword in nvFuser's form.
    pub const fn py(self, py: &'static str) -> Self {
        Self { py, ..self }
    }

    /// How it is written, where it is not an operand among the first.
    fn form(&self) -> String {
        let name = self.name;
        match self.kind {
            OpParamKind::Flag => name.to_string(),
            OpParamKind::Int => format!("{name}(n)"),
            OpParamKind::Ints => format!("{name}(n, ...)"),
            OpParamKind::Bools => format!("{name}(true|false, ...)"),
            OpParamKind::Bool => format!("{name}(true|false)"),
            OpParamKind::Number => format!("{name}(x)"),
            OpParamKind::DType => format!("{name}(T)"),
            OpParamKind::BareDType => "T".to_string(),
            OpParamKind::Scalars => format!("{name}(%n, ...)"),
            _ => format!("{name}(%v)"),
        }
    }
}

impl OpRow {
    /// A row that `build` expands into other operations.
    pub const fn composite(
        name: &'static str,
        params: &'static [OpParam],
        build: BuildFn,
        doc: &'static str,
        source: &'static str,
    ) -> Self {
        Self {
            name,
            params,
            results: 1,
            doc,
            source,
            build,
            primitive: None,
            scalar: ScalarOp::None,
            random: None,
            tensor_cores: false,
            stays: None,
            py: PyForm::SAME,
        }
    }

    /// A row of a primitive.
    pub const fn primitive(
        name: &'static str,
        params: &'static [OpParam],
        build: BuildFn,
        primitive: Primitive,
        doc: &'static str,
        source: &'static str,
    ) -> Self {
        Self { primitive: Some(primitive), ..Self::composite(name, params, build, doc, source) }
    }

    /// The same row with another number of results.
    pub const fn results(self, results: usize) -> Self {
        Self { results, ..self }
    }

    /// The same row in another Python form.
    pub(super) const fn py(self, py: PyForm) -> Self {
        Self { py, ..self }
    }

    /// The same row with random elements.
    pub const fn random(self, distribution: Distribution) -> Self {
        Self { random: Some(distribution), ..self }
    }

    /// The same row with products that nvFuser leaves to tensor cores.
    pub(super) const fn tensor_cores(self) -> Self {
        Self { tensor_cores: true, ..self }
    }

    /// The same row, some uses of which do not decompose.
    pub(super) const fn stays_if(self, stays: StaysFn) -> Self {
        Self { stays: Some(stays), ..self }
    }

    /// The position of a parameter.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|param| param.name == name)
    }

    /// How to write it: `sum x axes(...) keepdim dtype(T)`.
    pub fn signature(&self) -> String {
        let mut text = self.name.to_string();
        if self.params.iter().any(|param| param.kind == OpParamKind::Shape) {
            text.push_str(" [extents]");
        }
        let mut comma = " ";
        for param in self.params.iter().filter(|param| param.kind.is_positional()) {
            let more = if param.kind == OpParamKind::Tensors { ", ..." } else { "" };
            let name = param.name;
            match param.need {
                Need::Required => text.push_str(&format!("{comma}{name}{more}")),
                _ => text.push_str(&format!("[{comma}{name}{more}]")),
            }
            comma = ", ";
        }
        let attribute = |param: &&OpParam| !param.kind.is_positional() && param.kind != OpParamKind::Shape;
        for param in self.params.iter().filter(attribute) {
            let form = param.form();
            text.push_str(&if param.need == Need::Required { format!(" {form}") } else { format!(" [{form}]") });
        }
        text
    }
}

impl std::fmt::Debug for OpRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}
