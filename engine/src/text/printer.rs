//! Prints a fusion so that parsing gives it back.
//!
//! Scalars have no names of their own: derived ones are printed as statements
//! `%s0 = ...` before their first use, under names that nothing else has.
//! Constants stand inline where reading them again gives the same type.

use crate::fusion::{AxisKind, Fusion, Op, OpKind, Operand, ScalarDef, ScalarId, TensorId};
use crate::num::{DType, DTypeClass, TernaryOp, Value};
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
    let mut printer = Printer { fusion, taken, names: SecondaryMap::new(), next: 0, out: String::new() };
    printer.header();
    for op in fusion.ops.values() {
        printer.op(op);
    }
    let outputs: Vec<String> = fusion.outputs.iter().map(|output| printer.tensor(*output)).collect();
    let _ = write!(printer.out, "  return {}\n}}\n", outputs.join(", "));
    printer.out
}

struct Printer<'a> {
    fusion: &'a Fusion,
    taken: BTreeSet<&'a str>,
    /// Names of the scalars that are printed already.
    names: SecondaryMap<ScalarId, Option<String>>,
    next: u32,
    out: String,
}

impl Printer<'_> {
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
                        (AxisKind::Iteration, Some(n)) => n.as_i64().to_string(),
                        (AxisKind::Iteration, None) => "?".into(),
                    })
                    .collect();
                format!("%{}: {}[{}]", tensor.name, tensor.dtype, dims.join(", "))
            }
            Operand::Scalar(s) => {
                let scalar = &self.fusion.scalars[s];
                let name = if let ScalarDef::Input { name, .. } = &scalar.def { name } else { "" };
                format!("%{name}: {}", scalar.dtype)
            }
        }
    }

    fn op(&mut self, op: &Op) {
        let mut text = format!("  %{} = {}", self.fusion.tensors[op.output].name, op.kind.name());
        if let OpKind::Full = op.kind {
            let axes = self.fusion.tensors[op.output].axes.clone();
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
        let dtype = self.fusion.tensors[op.output].dtype;
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
            _ => {}
        }
        self.out.push_str(&text);
        self.out.push('\n');
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
                match &self.fusion.scalars[id].def {
                    ScalarDef::Unary(_, a) | ScalarDef::Cast(a) => stack.extend([*a].iter().filter(|s| unnamed(s))),
                    ScalarDef::Binary(_, a, b) => stack.extend([*b, *a].iter().filter(|s| unnamed(s))),
                    _ => {}
                }
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
            // The short form of an f32 is read as an f64 and rounded again,
            // which may in principle differ: then the long form is printed.
            let short = format!("{:?}", v as f32);
            let reads_back = short.parse::<f64>().is_ok_and(|read| f64::from(read as f32).to_bits() == v.to_bits());
            if dtype != DType::F64 && reads_back { short } else { format!("{v:?}") }
        }
    }
}
