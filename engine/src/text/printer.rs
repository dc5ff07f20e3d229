//! Prints a fusion so that parsing gives it back, if [it can be written](can_be_written).
//!
//! Scalars have no names of their own: derived ones are printed as statements
//! `%s0 = ...` before their first use, under names that nothing else has.
//! Constants stand inline where reading them again gives the same type.

use crate::fusion::ops::{Attr, Call, Need, OpParam, OpParamKind};
use crate::fusion::{AxisKind, Fusion, InputLayout, Op, OpKind, Operand, ScalarDef, ScalarId, TensorId};
use crate::num::{DType, DTypeClass, TernaryOp, Value, eval};
use crate::util::SecondaryMap;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The text of a fusion, with a final line end.
pub fn print(fusion: &Fusion) -> String {
    let mut taken: BTreeSet<&str> = fusion.tensors.values().map(|tensor| tensor.name.as_str()).collect();
    taken.extend(fusion.scalars.values().filter_map(|scalar| match &scalar.def {
        ScalarDef::Input { name, .. } => Some(name.as_str()),
        _ => None,
    }));
    let mut printer = FusionPrinter { fusion, taken, names: SecondaryMap::new(), next: 0, out: String::new() };
    printer.header();
    for op in fusion.ops.values() {
        printer.op(op);
    }
    for update in &fusion.updates {
        let target = printer.input_name(update.input);
        let _ = writeln!(printer.out, "  update {target} = {}", printer.tensor(update.tensor));
    }
    let outputs: Vec<String> = fusion.outputs.iter().map(|output| printer.tensor(*output)).collect();
    let _ = write!(printer.out, "  return {}", outputs.join(", "));
    printer.out.truncate(printer.out.trim_end().len());
    printer.out.push_str("\n}\n");
    printer.out
}

/// Whether the text of a fusion means the same fusion. What the compiler makes of
/// `expand` and `triu` moves small floats as they are, with a `where` that text
/// would do in `f32`.
pub fn can_be_written(fusion: &Fusion) -> bool {
    let moves_small = |op: &Op| match (&op.kind, fusion.tensors[op.output()].dtype) {
        (OpKind::Ternary(TernaryOp::Where), dtype) => dtype.compute() != dtype,
        _ => false,
    };
    !fusion.ops.values().any(moves_small)
}

struct FusionPrinter<'a> {
    fusion: &'a Fusion,
    taken: BTreeSet<&'a str>,
    /// Names of the scalars that are printed already.
    names: SecondaryMap<ScalarId, Option<String>>,
    next: u32,
    out: String,
}

impl FusionPrinter<'_> {
    fn header(&mut self) {
        let inputs: Vec<String> = self.fusion.inputs.iter().map(|input| self.input(*input)).collect();
        let _ = writeln!(self.out, "fusion @{}({}) {{", self.fusion.name, inputs.join(", "));
    }

    fn input(&self, input: Operand) -> String {
        match input {
            Operand::Tensor(t) => {
                let tensor = &self.fusion.tensors[t];
                let dims: Vec<String> = tensor
                    .axes
                    .iter()
                    .map(|axis| match (axis.kind, self.fusion.const_scalar(axis.extent)) {
                        (AxisKind::Broadcast, _) => "1".into(),
                        (_, Some(n)) => n.as_i64().to_string(),
                        (_, None) => "?".into(),
                    })
                    .collect();
                let layout = tensor.layout.as_ref().map(layout_text).unwrap_or_default();
                format!("%{}: {}[{}]{layout}", tensor.name, tensor.dtype, dims.join(", "))
            }
            Operand::Scalar(s) => {
                let scalar = &self.fusion.scalars[s];
                let name = if let ScalarDef::Input { name, .. } = &scalar.def { name } else { "" };
                format!("%{name}: {}", scalar.dtype)
            }
        }
    }

    fn input_name(&self, input: u32) -> String {
        match self.fusion.inputs.get(input as usize) {
            Some(Operand::Tensor(t)) => self.tensor(*t),
            _ => "%".into(),
        }
    }

    fn op(&mut self, op: &Op) {
        if let OpKind::Call(call) = &op.kind {
            return self.call(op, call);
        }
        let mut text = format!("  %{} = {}", self.fusion.tensors[op.output()].name, op.kind.name());
        if op.kind.declares_axes() {
            let axes = self.fusion.tensors[op.output()].axes.clone();
            let extents: Vec<String> = axes.iter().map(|axis| self.scalar(axis.extent, true)).collect();
            let _ = write!(text, " [{}]", extents.join(", "));
        }
        for (i, operand) in op.inputs.iter().enumerate() {
            let operand = match *operand {
                Operand::Tensor(t) => self.tensor(t),
                Operand::Scalar(s) => self.scalar(s, self.inline(op, i, s)),
            };
            let comma = if i == 0 { " " } else { ", " };
            let _ = write!(text, "{comma}{operand}");
        }
        let dtype = self.fusion.tensors[op.output()].dtype;
        match &op.kind {
            OpKind::Cast(to) => text.push_str(&format!(" {to}")),
            OpKind::Broadcast { flags } | OpKind::Squeeze { flags } => {
                text.push_str(&format!(" flags({})", list(flags)))
            }
            OpKind::Permute { perm } => text.push_str(&format!(" dims({})", list(perm))),
            // Integers would widen without the type.
            OpKind::Reduce { axes, .. } => {
                let _ = write!(text, " axes({})", list(axes));
                if !dtype.is_float() {
                    let _ = write!(text, " dtype({dtype})");
                }
            }
            OpKind::Full => text.push_str(&format!(" {dtype}")),
            OpKind::Index { axis } => text.push_str(&format!(" axis({axis})")),
            _ => {}
        }
        self.out.push_str(&text);
        self.out.push('\n');
    }

    /// A primitive of the table: extents in brackets, the operands that must be
    /// given, the others by name, and attributes that are not the defaults.
    fn call(&mut self, op: &Op, call: &Call) {
        let results: Vec<String> = op.outputs.iter().map(|output| self.tensor(*output)).collect();
        let mut text = format!("  {} = {}", results.join(", "), call.row.name);
        let (mut positional, mut named) = (String::new(), String::new());
        for (param, attr) in call.row.params.iter().zip(&call.attrs) {
            let operands: Vec<String> =
                op.inputs[call.operands(param.name)].iter().copied().map(|x| self.value(x)).collect();
            let listed = operands.join(", ");
            match (param.kind, param.need) {
                (OpParamKind::Shape, _) => {
                    let _ = write!(text, " [{listed}]");
                }
                (OpParamKind::Scalars, _) if operands.is_empty() && param.need != Need::Required => {}
                (OpParamKind::Scalars, _) => {
                    let _ = write!(named, " {}({listed})", param.name);
                }
                (kind, Need::Required) if kind.is_positional() => {
                    let comma = if positional.is_empty() { " " } else { ", " };
                    let _ = write!(positional, "{comma}{listed}");
                }
                (kind, _) if kind.is_positional() => {
                    if !operands.is_empty() {
                        let _ = write!(named, " {}({listed})", param.name);
                    }
                }
                _ if param.need != Need::Required && param.is_default(attr) => {}
                _ => named.push_str(&attribute_text(param, attr)),
            }
        }
        let _ = writeln!(self.out, "{text}{positional}{named}");
    }

    /// An operand of a primitive: a constant stands inline if reading it gives
    /// back the type that a number by itself has.
    fn value(&mut self, operand: Operand) -> String {
        match operand {
            Operand::Tensor(t) => self.tensor(t),
            Operand::Scalar(s) => {
                let dtype = self.fusion.scalars[s].dtype;
                let plain = matches!(dtype, DType::F64 | DType::I64 | DType::Bool);
                self.scalar(s, plain)
            }
        }
    }

    fn tensor(&self, t: TensorId) -> String {
        format!("%{}", self.fusion.tensors[t].name)
    }

    /// Whether a constant operand read as a plain number gets its type back. It
    /// takes the type of the other operands; only `where` on two constants
    /// leaves the type to the numbers themselves.
    fn inline(&self, op: &Op, position: usize, s: ScalarId) -> bool {
        let (OpKind::Ternary(TernaryOp::Where), 1..) = (&op.kind, position) else { return true };
        let typed = |operand: &Operand| match operand {
            Operand::Tensor(_) => true,
            Operand::Scalar(s) => self.fusion.const_scalar(*s).is_none(),
        };
        let default = match self.fusion.scalars[s].dtype.class() {
            DTypeClass::Complex => DType::C64,
            DTypeClass::Float => DType::F32,
            DTypeClass::Int => DType::I64,
            DTypeClass::Bool => DType::Bool,
        };
        op.inputs[1..].iter().any(typed) || self.fusion.scalars[s].dtype == default
    }

    /// The text of a scalar operand; prints its definition first where it has none yet.
    fn scalar(&mut self, root: ScalarId, inline: bool) -> String {
        if let (true, Some(value)) = (inline, self.fusion.const_scalar(root)) {
            return literal(value, self.fusion.scalars[root].dtype);
        }
        let mut stack = vec![root];
        while let Some(&id) = stack.last() {
            let waiting = stack.len();
            if self.names[id].is_none() {
                // Constants below the root stand inline and need no name.
                let unnamed = |s: &ScalarId| self.names[*s].is_none() && self.fusion.const_scalar(*s).is_none();
                stack.extend(self.fusion.scalars[id].def.operands().rev().filter(unnamed));
                if stack.len() > waiting {
                    continue;
                }
                self.define_scalar(id);
            }
            stack.pop();
        }
        self.operand(root)
    }

    /// A scalar that is a constant or has its name.
    fn operand(&self, id: ScalarId) -> String {
        match (&self.names[id], self.fusion.const_scalar(id)) {
            (Some(name), _) => format!("%{name}"),
            (None, Some(value)) => literal(value, self.fusion.scalars[id].dtype),
            (None, None) => "%".into(),
        }
    }

    fn define_scalar(&mut self, id: ScalarId) {
        let fusion = self.fusion;
        let scalar = &fusion.scalars[id];
        let dtype = scalar.dtype;
        let body = match &scalar.def {
            ScalarDef::Input { name, .. } => {
                self.names.set(id, Some(name.clone()));
                return;
            }
            ScalarDef::Const(value) => format!("cast {} {dtype}", literal(*value, dtype)),
            ScalarDef::Size { input, axis } => match fusion.inputs.get(*input as usize) {
                Some(Operand::Tensor(t)) => format!("size {} axis({axis})", self.tensor(*t)),
                _ => "size".into(),
            },
            ScalarDef::Unary(op, a) => format!("{op} {}", self.operand(*a)),
            ScalarDef::Binary(op, a, b) => format!("{op} {}, {}", self.operand(*a), self.operand(*b)),
            ScalarDef::Ternary(op, a, b, c) => {
                format!("{op} {}, {}, {}", self.operand(*a), self.operand(*b), self.operand(*c))
            }
            ScalarDef::Cast(a) => format!("cast {} {dtype}", self.operand(*a)),
        };
        let name = self.fresh();
        let _ = writeln!(self.out, "  %{name} = {body}");
        self.names.set(id, Some(name));
    }

    fn fresh(&mut self) -> String {
        loop {
            let name = format!("s{}", self.next);
            self.next += 1;
            if !self.taken.contains(name.as_str()) {
                return name;
            }
        }
    }
}

/// An attribute as it is written.
fn attribute_text(param: &OpParam, attr: &Attr) -> String {
    let name = param.name;
    match attr {
        Attr::Bool(value) if param.kind == OpParamKind::Flag => {
            if *value {
                format!(" {name}")
            } else {
                String::new()
            }
        }
        Attr::Bool(value) => format!(" {name}({value})"),
        Attr::Int(value) => format!(" {name}({value})"),
        Attr::Ints(values) => format!(" {name}({})", list(values)),
        Attr::Bools(values) => format!(" {name}({})", list(values)),
        Attr::Number(value) => format!(" {name}({})", literal(*value, DType::F64)),
        Attr::DType(dtype) if param.kind == OpParamKind::BareDType => format!(" {dtype}"),
        Attr::DType(dtype) => format!(" {name}({dtype})"),
        Attr::None | Attr::Operands(_) => String::new(),
    }
}

fn layout_text(layout: &InputLayout) -> String {
    let flag = |flag: &Option<bool>| flag.map_or("_".to_string(), |flag| flag.to_string());
    let flags: Vec<String> = layout.contiguity.iter().map(flag).collect();
    format!(" contiguity({}) order({})", flags.join(", "), list(&layout.order))
}

fn list<T: std::fmt::Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// A number that reads back as this value of this type.
pub(super) fn literal(value: Value, dtype: DType) -> String {
    match value {
        Value::Int(v) if dtype == DType::U64 && v < 0 => format!("{v:#x}"),
        Value::Int(v) => v.to_string(),
        Value::Bool(v) => v.to_string(),
        Value::Float(v) if v.is_nan() => "nan".into(),
        Value::Complex(re, im) => {
            let part = |v| literal(Value::Float(v), dtype.part());
            let sign = if im.is_nan() || im.is_sign_positive() { "+" } else { "" };
            format!("{}{sign}{}i", part(re), part(im))
        }
        Value::Float(v) => {
            // The short form of an f32 is read as an f64 and rounded to the type,
            // which may differ: then the long form is printed.
            let short = format!("{:?}", v as f32);
            let rounded = |read| eval::round_float(dtype, read).to_bits();
            let reads_back = short.parse::<f64>().is_ok_and(|read| rounded(read) == v.to_bits());
            if dtype != DType::F64 && reads_back { short } else { format!("{v:?}") }
        }
    }
}
