//! A fusion in nvFuser's form. Reading the text gives a fusion of the same
//! structure.
//!
//! Names of values are kept where Python and the form allow them. Floats are
//! printed as nvFuser does, with six digits, where these are the whole value,
//! and in full otherwise. Scalars have no names of their own: each is printed
//! before its first use, constants inline where reading them gives back their type.

use super::names::py_name;
use super::parser::is_keyword;
use engine::fusion::ops::{Attr, Call, Need, OpParamKind};
use engine::fusion::{AxisKind, Fusion, InputLayout, Op, OpKind, Operand, ScalarDef, ScalarId, Tensor, TensorId};
use engine::num::{DType, ReduceOp, TernaryOp, Value};
use engine::util::SecondaryMap;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The text of a fusion, with a final line end.
pub fn print(fusion: &Fusion) -> String {
    let mut printer = PyPrinter {
        fusion,
        taken: BTreeSet::new(),
        tensors: SecondaryMap::new(),
        scalars: SecondaryMap::new(),
        next_tensor: 0,
        next_scalar: 0,
        out: String::new(),
    };
    let name = if is_free(&fusion.name) { fusion.name.as_str() } else { "nvfuser_fusion" };
    let _ = writeln!(printer.out, "def {name}(fd : FusionDefinition) -> None :");
    printer.name_values();
    for &input in &fusion.inputs {
        printer.input(input);
    }
    for op in fusion.ops.values() {
        printer.op(op);
    }
    for update in &fusion.updates {
        let target = match fusion.inputs.get(update.input as usize) {
            Some(&Operand::Tensor(t)) => printer.tensor(t),
            _ => "None".into(),
        };
        let line = format!("fd.add_output({}, {target})", printer.tensor(update.tensor));
        printer.line(&line);
    }
    for &output in &fusion.outputs {
        let line = format!("fd.add_output({})", printer.tensor(output));
        printer.line(&line);
    }
    printer.out
}

/// Words that mean something in a text of this form.
const RESERVED: [&str; 9] = ["fd", "torch", "DataType", "FusionDefinition", "inputs", "inf", "nan", "float", "complex"];

/// Whether a name can be a variable of the text.
fn is_free(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && name != "_" && !is_keyword(name) && !RESERVED.contains(&name)
}

struct PyPrinter<'a> {
    fusion: &'a Fusion,
    taken: BTreeSet<String>,
    tensors: SecondaryMap<TensorId, Option<String>>,
    /// Names of the scalars that are printed already.
    scalars: SecondaryMap<ScalarId, Option<String>>,
    next_tensor: u32,
    next_scalar: u32,
    out: String,
}

impl PyPrinter<'_> {
    /// Own names first, so that made ones avoid them.
    fn name_values(&mut self) {
        let fusion = self.fusion;
        for (id, tensor) in fusion.tensors.iter() {
            if is_free(&tensor.name) && self.taken.insert(tensor.name.clone()) {
                self.tensors.set(id, Some(tensor.name.clone()));
            }
        }
        for (id, scalar) in fusion.scalars.iter() {
            if let ScalarDef::Input { name, .. } = &scalar.def
                && is_free(name)
                && self.taken.insert(name.clone())
            {
                self.scalars.set(id, Some(name.clone()));
            }
        }
        for id in fusion.tensors.ids() {
            if self.tensors[id].is_none() {
                let name = fresh("tv", &mut self.next_tensor, &self.taken);
                self.tensors.set(id, Some(name));
            }
        }
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "    {text}");
    }

    fn tensor(&self, t: TensorId) -> String {
        self.tensors[t].clone().unwrap_or_default()
    }

    // ---- inputs ----

    fn input(&mut self, input: Operand) {
        match input {
            Operand::Tensor(t) => {
                let line = format!("{} = {}", self.tensor(t), self.declaration(&self.fusion.tensors[t]));
                self.line(&line);
            }
            Operand::Scalar(s) => {
                let name = match &self.scalars[s] {
                    Some(name) => name.clone(),
                    None => fresh("c", &mut self.next_scalar, &self.taken),
                };
                let dtype = py_name(self.fusion.scalars[s].dtype);
                self.line(&format!("{name} = fd.define_scalar(None, dtype=DataType.{dtype})"));
                self.scalars.set(s, Some(name));
            }
        }
    }

    fn declaration(&self, tensor: &Tensor) -> String {
        let sizes: Vec<String> = tensor
            .axes
            .iter()
            .map(|axis| match (axis.kind, self.fusion.const_scalar(axis.extent)) {
                (AxisKind::Broadcast, _) => "1".into(),
                (_, Some(n)) => n.as_i64().to_string(),
                (_, None) => "-1".into(),
            })
            .collect();
        let any = InputLayout {
            contiguity: tensor.axes.iter().map(|axis| (axis.kind != AxisKind::Broadcast).then_some(false)).collect(),
            order: (0..tensor.axes.len() as u32).collect(),
        };
        let layout = tensor.layout.as_ref().unwrap_or(&any);
        let mut text = format!(
            "fd.define_tensor(shape=[{}], contiguity=[{}], dtype=DataType.{}, is_cpu=False",
            sizes.join(", "),
            joined(&layout.contiguity, |flag| flag.map_or("None", boolean).into()),
            py_name(tensor.dtype)
        );
        // Without an order, no contiguity at all means any layout.
        if layout.order != any.order || (tensor.layout.is_some() && layout.contiguity == any.contiguity) {
            let rank = layout.order.len();
            let mut stride_order = vec![0; rank];
            for (place, &axis) in layout.order.iter().enumerate() {
                stride_order[axis as usize] = rank - 1 - place;
            }
            let _ = write!(text, ", stride_order=[{}]", joined(&stride_order, usize::to_string));
        }
        text.push(')');
        text
    }

    // ---- operations ----

    fn op(&mut self, op: &Op) {
        let results: Vec<String> = op.outputs.iter().map(|&output| self.tensor(output)).collect();
        let call = match &op.kind {
            OpKind::Call(call) => self.call(op, call),
            _ => self.core(op),
        };
        self.line(&format!("{} = fd.ops.{call}", results.join(", ")));
    }

    fn core(&mut self, op: &Op) -> String {
        let dtype = self.fusion.tensors[op.output()].dtype;
        let name = op.kind.name();
        if let OpKind::Full | OpKind::Index { .. } = op.kind {
            let axes = self.fusion.tensors[op.output()].axes.clone();
            let extents: Vec<String> = axes.iter().map(|axis| self.scalar(axis.extent, true)).collect();
            let extents = extents.join(", ");
            if let OpKind::Index { axis } = op.kind {
                return format!("{name}(shape=[{extents}], dim={axis})");
            }
            let value = match op.inputs.first() {
                Some(&Operand::Scalar(s)) => self.scalar(s, true),
                _ => "None".into(),
            };
            return format!("{name}(shape=[{extents}], fill_value={value}, dtype=DataType.{})", py_name(dtype));
        }
        let mut arguments: Vec<String> = Vec::new();
        for (position, &operand) in op.inputs.iter().enumerate() {
            arguments.push(match operand {
                Operand::Tensor(t) => self.tensor(t),
                Operand::Scalar(s) => self.scalar(s, self.takes_type(op, position)),
            });
        }
        match &op.kind {
            OpKind::Cast(to) => arguments.push(format!("dtype=DataType.{}", py_name(*to))),
            OpKind::Broadcast { flags } => {
                arguments.push(format!("is_broadcast_dim=[{}]", joined(flags, |flag| boolean(*flag).into())));
            }
            OpKind::Squeeze { flags } => {
                let dims: Vec<usize> = (0..flags.len()).filter(|&axis| flags[axis]).collect();
                arguments.push(format!("dims=[{}]", joined(&dims, usize::to_string)));
            }
            OpKind::Permute { perm } => arguments.push(format!("dims=[{}]", joined(perm, u32::to_string))),
            OpKind::Reduce { op, axes } => {
                arguments.push(format!("dims=[{}]", joined(axes, u32::to_string)));
                // Sums of small integers would widen without the type.
                if matches!(op, ReduceOp::Sum | ReduceOp::Prod) {
                    arguments.push(format!("dtype=DataType.{}", py_name(dtype)));
                }
            }
            OpKind::Unary(_) | OpKind::Binary(_) | OpKind::Ternary(_) | OpKind::Set => {}
            // Printed above, and by `call`.
            OpKind::Full | OpKind::Index { .. } | OpKind::Call(_) => {}
        }
        format!("{name}({})", arguments.join(", "))
    }

    /// Whether a constant at this place takes its type from a tensor beside it.
    fn takes_type(&self, op: &Op, position: usize) -> bool {
        // The condition of `where` has a type of its own.
        let first = usize::from(matches!(op.kind, OpKind::Ternary(TernaryOp::Where)));
        let peers = op.inputs.iter().skip(first);
        position >= first && peers.into_iter().any(|operand| matches!(operand, Operand::Tensor(_)))
    }

    /// A primitive of the table: operands that must be given by position, the
    /// rest by keyword.
    fn call(&mut self, op: &Op, call: &Call) -> String {
        let (mut positional, mut named) = (Vec::new(), Vec::new());
        for (param, attr) in call.row.params.iter().zip(&call.attrs) {
            let operands: Vec<String> =
                op.inputs[call.operands(param.name)].iter().copied().map(|operand| self.operand(operand)).collect();
            let text = match param.kind {
                OpParamKind::Tensors | OpParamKind::Shape | OpParamKind::Scalars => {
                    // An empty list and none at all are told apart by the need.
                    if operands.is_empty() && param.need != Need::Required {
                        continue;
                    }
                    format!("[{}]", operands.join(", "))
                }
                kind if kind.is_operand() => match operands.first() {
                    Some(operand) => operand.clone(),
                    None => continue,
                },
                _ if param.need != Need::Required && param.is_default(attr) => continue,
                _ => attribute(attr),
            };
            let required = matches!(param.need, Need::Required);
            if required && param.kind.is_positional() && named.is_empty() {
                positional.push(text);
            } else {
                named.push(format!("{}={text}", param.py));
            }
        }
        positional.append(&mut named);
        format!("{}({})", call.row.name, positional.join(", "))
    }

    /// An operand of a primitive: constants inline if Python's number has their type.
    fn operand(&mut self, operand: Operand) -> String {
        match operand {
            Operand::Tensor(t) => self.tensor(t),
            Operand::Scalar(s) => self.scalar(s, false),
        }
    }

    // ---- scalars ----

    /// The text of a scalar; prints its definition first where it has none yet.
    /// `typed` says that the place gives a constant its type.
    fn scalar(&mut self, root: ScalarId, typed: bool) -> String {
        let mut stack = vec![root];
        while let Some(&id) = stack.last() {
            let waiting = stack.len();
            let typed = typed && id == root;
            if self.scalars[id].is_none() && self.constant(id, typed).is_none() {
                let fusion = self.fusion;
                let unnamed = |s: &ScalarId| self.scalars[*s].is_none() && self.constant(*s, false).is_none();
                stack.extend(fusion.scalars[id].def.operands().rev().filter(unnamed));
                if stack.len() > waiting {
                    continue;
                }
                self.define_scalar(id);
            }
            stack.pop();
        }
        self.shown(root, typed)
    }

    /// A constant that stands inline.
    fn constant(&self, id: ScalarId, typed: bool) -> Option<String> {
        let dtype = self.fusion.scalars[id].dtype;
        let value = self.fusion.const_scalar(id)?;
        let own = matches!(dtype, DType::F64 | DType::I64 | DType::Bool | DType::C128);
        (typed || own).then(|| number(value, dtype))
    }

    fn shown(&self, id: ScalarId, typed: bool) -> String {
        let constant = || self.constant(id, typed);
        self.scalars[id].clone().or_else(constant).unwrap_or_else(|| "None".into())
    }

    fn define_scalar(&mut self, id: ScalarId) {
        let fusion = self.fusion;
        let scalar = &fusion.scalars[id];
        let operand = |s: &ScalarId| self.shown(*s, false);
        let dtype = py_name(scalar.dtype);
        let body = match &scalar.def {
            // Inputs are declared first.
            ScalarDef::Input { .. } => return,
            ScalarDef::Const(value) => {
                format!("fd.define_scalar({}, dtype=DataType.{dtype})", number(*value, scalar.dtype))
            }
            ScalarDef::Size { input, axis } => match fusion.inputs.get(*input as usize) {
                Some(&Operand::Tensor(t)) => format!("fd.ops.size({}, dim={axis})", self.tensor(t)),
                _ => "None".into(),
            },
            ScalarDef::Unary(op, a) => format!("fd.ops.{op}({})", operand(a)),
            ScalarDef::Binary(op, a, b) => format!("fd.ops.{op}({}, {})", operand(a), operand(b)),
            ScalarDef::Ternary(op, a, b, c) => {
                format!("fd.ops.{op}({}, {}, {})", operand(a), operand(b), operand(c))
            }
            ScalarDef::Cast(a) => format!("fd.ops.cast({}, dtype=DataType.{dtype})", operand(a)),
        };
        let name = fresh("c", &mut self.next_scalar, &self.taken);
        self.line(&format!("{name} = {body}"));
        self.scalars.set(id, Some(name));
    }
}

/// The next name with this beginning that nothing else has.
fn fresh(head: &str, next: &mut u32, taken: &BTreeSet<String>) -> String {
    loop {
        let name = format!("{head}{next}");
        *next += 1;
        if !taken.contains(&name) {
            return name;
        }
    }
}

fn boolean(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

fn joined<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// An attribute as it is written.
fn attribute(attr: &Attr) -> String {
    match attr {
        Attr::None | Attr::Operands(_) => "None".into(),
        Attr::Bool(value) => boolean(*value).into(),
        Attr::Int(value) => value.to_string(),
        Attr::Ints(values) => format!("[{}]", joined(values, i64::to_string)),
        Attr::Bools(values) => format!("[{}]", joined(values, |flag| boolean(*flag).into())),
        Attr::Number(value) => number(*value, DType::F64),
        Attr::DType(dtype) => format!("DataType.{}", py_name(*dtype)),
    }
}

/// A number that reads back as this value of this type.
fn number(value: Value, dtype: DType) -> String {
    match value {
        Value::Bool(v) => boolean(v).into(),
        Value::Int(v) if dtype == DType::U64 => v.cast_unsigned().to_string(),
        Value::Int(v) => v.to_string(),
        Value::Float(v) => float(v, dtype),
        Value::Complex(re, im) => {
            // Python adds a zero to the parts of `re+imj`, which only the signs of zeros show.
            let plain = |v: f64| v.is_finite() && (v != 0.0 || v.is_sign_positive());
            let (a, b) = (float(re, dtype.part()), float(im, dtype.part()));
            if plain(re) && plain(im) { format!("{a}+{b}j") } else { format!("complex({a}, {b})") }
        }
    }
}

/// A float with six digits, if they are the whole value.
fn float(v: f64, dtype: DType) -> String {
    if v.is_nan() {
        return "float(\"nan\")".into();
    }
    if v.is_infinite() {
        return format!("float(\"{}inf\")", if v < 0.0 { "-" } else { "" });
    }
    let narrow = |read: f64| if dtype == DType::F64 { read } else { f64::from(read as f32) };
    let reads_back = |text: &str| text.parse().is_ok_and(|read: f64| narrow(read).to_bits() == v.to_bits());
    let six = six_digits(v);
    let short = format!("{:?}", v as f32);
    match () {
        () if reads_back(&six) => six,
        () if dtype != DType::F64 && reads_back(&short) => short,
        () => format!("{v:?}"),
    }
}

/// C's `%#.6g`: `1.00000`, `0.0883883`, `100000.`, `1.00000e-05`.
fn six_digits(v: f64) -> String {
    let scientific = format!("{v:.5e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let digits = (5 - exponent) as usize;
    let point = if digits == 0 { "." } else { "" };
    format!("{v:.digits$}{point}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_printed_as_by_a_c_stream() {
        for (value, expected) in [
            (1.0, "1.00000"),
            (0.0, "0.00000"),
            (-0.0, "-0.00000"),
            (0.1, "0.100000"),
            (0.0883883, "0.0883883"),
            (100000.0, "100000."),
            (1e6, "1.00000e+06"),
            (1e-5, "1.00000e-05"),
            (0.0001, "0.000100000"),
            (f64::INFINITY, "float(\"inf\")"),
            (f64::NEG_INFINITY, "float(\"-inf\")"),
            (f64::NAN, "float(\"nan\")"),
            // Six digits are not the whole value.
            (1.0 / 3.0, "0.3333333333333333"),
            (1234567.0, "1234567.0"),
        ] {
            assert_eq!(float(value, DType::F64), expected);
        }
        assert_eq!(float(f64::from(0.1f32), DType::F32), "0.100000");
        assert_eq!(float(f64::from(1.0f32 / 3.0), DType::F32), "0.33333334");
    }
}
