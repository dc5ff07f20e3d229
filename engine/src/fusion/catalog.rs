//! The table of operations as users write them: one row a name, with operands,
//! attributes and meaning. The parser, its suggestions and the documentation
//! read it; the builder has a method for each row.

use crate::num::{BinaryOp, ReduceOp, TernaryOp, UnaryOp};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is the operation of its name")]
pub enum Operation {
    Unary(UnaryOp),
    Binary(BinaryOp),
    Ternary(TernaryOp),
    Reduce(ReduceOp),
    Cast,
    Set,
    Broadcast,
    Squeeze,
    Permute,
    Full,
    Size,
    Mean,
    Var,
    Std,
    VarMean,
    Softmax,
    LogSoftmax,
    RmsNorm,
    LayerNorm,
    Gelu,
    GeluTanh,
    LeakyRelu,
    Softplus,
    Addcmul,
}

/// The form of an attribute's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttrKind {
    /// A word alone: `keepdim`.
    Flag,
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

/// An attribute of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttrInfo {
    /// Its name; for a bare data type, what the documentation calls it.
    pub name: &'static str,
    /// Its form.
    pub kind: AttrKind,
    /// Whether it must be given.
    pub required: bool,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    /// The textual name.
    pub name: &'static str,
    /// What it stands for.
    pub operation: Operation,
    /// The names of its operands; the last `optional` of them may be left out.
    pub operands: &'static [&'static str],
    /// How many operands may be left out, from the end.
    pub optional: usize,
    /// Whether a list of extents in brackets comes first.
    pub shape: bool,
    /// Its attributes.
    pub attrs: &'static [AttrInfo],
    /// How many values it defines.
    pub results: usize,
    /// One line on what it computes.
    pub doc: &'static str,
}

const fn attr(name: &'static str, kind: AttrKind, required: bool) -> AttrInfo {
    AttrInfo { name, kind, required }
}

const AXES: AttrInfo = attr("axes", AttrKind::Ints, false);
const KEEPDIM: AttrInfo = attr("keepdim", AttrKind::Flag, false);
const CORRECTION: AttrInfo = attr("correction", AttrKind::Int, false);
const AXIS: AttrInfo = attr("axis", AttrKind::Int, false);
const EPS: AttrInfo = attr("eps", AttrKind::Number, false);
const REDUCE: &[AttrInfo] = &[AXES, KEEPDIM, attr("dtype", AttrKind::DType, false)];
const MEAN: &[AttrInfo] = &[AXES, KEEPDIM];
const VAR: &[AttrInfo] = &[AXES, CORRECTION, KEEPDIM];
const FLAGS: &[AttrInfo] = &[attr("flags", AttrKind::Bools, true)];

const fn row(
    name: &'static str,
    operation: Operation,
    operands: &'static [&'static str],
    attrs: &'static [AttrInfo],
    doc: &'static str,
) -> OpInfo {
    OpInfo { name, operation, operands, optional: 0, shape: false, attrs, results: 1, doc }
}

const fn optional(info: OpInfo, optional: usize) -> OpInfo {
    OpInfo { optional, ..info }
}

/// The rows that are not in a table of scalar operations.
const OTHERS: &[OpInfo] = &[
    row("cast", Operation::Cast, &["x"], &[attr("to", AttrKind::BareDType, true)], "x converted to a data type."),
    row("set", Operation::Set, &["x"], &[], "A copy of x."),
    row("broadcast", Operation::Broadcast, &["x"], FLAGS, "x with a new axis of size 1 where a flag is true."),
    row("squeeze", Operation::Squeeze, &["x"], FLAGS, "x without the broadcast axes where a flag is true."),
    row(
        "permute",
        Operation::Permute,
        &["x"],
        &[attr("dims", AttrKind::Ints, true)],
        "Result axis i is axis dims[i] of x.",
    ),
    OpInfo {
        shape: true,
        ..row(
            "full",
            Operation::Full,
            &["value"],
            &[attr("dtype", AttrKind::BareDType, true)],
            "A tensor of the extents in brackets, filled with value.",
        )
    },
    row(
        "size",
        Operation::Size,
        &["x"],
        &[attr("axis", AttrKind::Int, true)],
        "The extent of an axis of x: an i64 scalar.",
    ),
    row("mean", Operation::Mean, &["x"], MEAN, "sum / number of elements."),
    row(
        "var",
        Operation::Var,
        &["x"],
        VAR,
        "Variance; the divisor is max(n - correction, 0), correction 1 unless given.",
    ),
    row("std", Operation::Std, &["x"], VAR, "Square root of var."),
    OpInfo { results: 2, ..row("var_mean", Operation::VarMean, &["x"], VAR, "Two values: var and mean.") },
    row(
        "softmax",
        Operation::Softmax,
        &["x"],
        &[AXIS],
        "exp(x - max) / sum(exp(x - max)) along an axis (-1 unless given).",
    ),
    row("log_softmax", Operation::LogSoftmax, &["x"], &[AXIS], "Logarithm of softmax."),
    optional(
        row(
            "rms_norm",
            Operation::RmsNorm,
            &["x", "weight"],
            &[EPS],
            "x * rsqrt(mean(x^2) + eps) * weight over the last axes, as many as weight has (1 without); eps 1e-5 unless given.",
        ),
        1,
    ),
    optional(
        row(
            "layer_norm",
            Operation::LayerNorm,
            &["x", "weight", "bias"],
            &[EPS],
            "(x - mean) * rsqrt(var + eps) * weight + bias over the last axes, as many as weight has (1 without); eps 1e-5 unless given.",
        ),
        2,
    ),
    row("gelu", Operation::Gelu, &["x"], &[], "x * (1 + erf(x / sqrt(2))) / 2."),
    row("gelu_tanh", Operation::GeluTanh, &["x"], &[], "x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2."),
    optional(
        row(
            "leaky_relu",
            Operation::LeakyRelu,
            &["x", "slope"],
            &[],
            "x where x >= 0, else slope * x; slope 0.01 unless given.",
        ),
        1,
    ),
    row("softplus", Operation::Softplus, &["x"], &[], "log(1 + exp(x)), without overflow."),
    optional(
        row("addcmul", Operation::Addcmul, &["x", "a", "b", "value"], &[], "x + value * a * b; value 1 unless given."),
        1,
    ),
];

/// The row of a name.
pub fn find(name: &str) -> Option<OpInfo> {
    if let Some(info) = OTHERS.iter().find(|info| info.name == name) {
        return Some(*info);
    }
    UnaryOp::from_name(name)
        .map(unary_row)
        .or_else(|| BinaryOp::from_name(name).map(binary_row))
        .or_else(|| TernaryOp::from_name(name).map(ternary_row))
        .or_else(|| ReduceOp::from_name(name).map(reduce_row))
}

/// All rows: unary, binary, ternary, reductions, then the others.
pub fn all() -> Vec<OpInfo> {
    let unary = UnaryOp::ALL.iter().copied().map(unary_row);
    let binary = BinaryOp::ALL.iter().copied().map(binary_row);
    let ternary = TernaryOp::ALL.iter().copied().map(ternary_row);
    let reduce = ReduceOp::ALL.iter().copied().map(reduce_row);
    unary.chain(binary).chain(ternary).chain(reduce).chain(OTHERS.iter().copied()).collect()
}

fn unary_row(op: UnaryOp) -> OpInfo {
    row(op.name(), Operation::Unary(op), &["x"], &[], op.doc())
}

fn binary_row(op: BinaryOp) -> OpInfo {
    row(op.name(), Operation::Binary(op), &["a", "b"], &[], op.doc())
}

fn ternary_row(op: TernaryOp) -> OpInfo {
    let operands: &[&str] = match op {
        TernaryOp::Where => &["condition", "a", "b"],
        TernaryOp::Clamp => &["x", "low", "high"],
        TernaryOp::Lerp => &["start", "end", "weight"],
        TernaryOp::Threshold => &["x", "t", "v"],
    };
    row(op.name(), Operation::Ternary(op), operands, &[], op.doc())
}

fn reduce_row(op: ReduceOp) -> OpInfo {
    row(op.name(), Operation::Reduce(op), &["x"], REDUCE, op.doc())
}

impl OpInfo {
    /// How to write it: `sum x axes(...) keepdim dtype(T)`.
    pub fn signature(&self) -> String {
        let mut text = self.name.to_string();
        if self.shape {
            text.push_str(" [extents]");
        }
        let needed = self.operands.len() - self.optional;
        for (i, operand) in self.operands.iter().enumerate() {
            let comma = if i == 0 { " " } else { ", " };
            if i >= needed {
                text.push_str(&format!("[{comma}{operand}]"));
            } else {
                text.push_str(&format!("{comma}{operand}"));
            }
        }
        for attr in self.attrs {
            let form = match attr.kind {
                AttrKind::Flag => attr.name.to_string(),
                AttrKind::Int => format!("{}(n)", attr.name),
                AttrKind::Ints => format!("{}(n, ...)", attr.name),
                AttrKind::Bools => format!("{}(true|false, ...)", attr.name),
                AttrKind::Number => format!("{}(x)", attr.name),
                AttrKind::DType => format!("{}(T)", attr.name),
                AttrKind::BareDType => "T".to_string(),
            };
            text.push_str(&if attr.required { format!(" {form}") } else { format!(" [{form}]") });
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_row() {
        let rows = all();
        let names: std::collections::BTreeSet<_> = rows.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), rows.len(), "a name is declared twice");
        for row in rows {
            assert_eq!(find(row.name).map(|found| found.operation), Some(row.operation), "{}", row.name);
            assert!(row.doc.ends_with('.'), "{}", row.name);
        }
    }

    #[test]
    fn signatures_show_what_may_be_left_out() {
        let signature = |name| find(name).map(|row| row.signature()).unwrap();
        assert_eq!(signature("layer_norm"), "layer_norm x[, weight][, bias] [eps(x)]");
        assert_eq!(signature("full"), "full [extents] value T");
        assert_eq!(signature("sum"), "sum x [axes(n, ...)] [keepdim] [dtype(T)]");
    }
}
