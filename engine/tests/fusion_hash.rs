//! The structural hash: equal for equal definitions whatever their names,
//! different after any single change.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use engine::fusion::ops::Attr;
use engine::fusion::{AxisKind, Fusion, InputLayout, OpKind, Operand, ScalarDef, TensorDef, Update, hash};
use engine::num::{BinaryOp, DType, ReduceOp, UnaryOp, Value};
use engine::text;
use engine::util::EntityId;
use std::collections::{BTreeMap, BTreeSet};
use testing::Draw;
use testing::fusions::{Limits, generate};

/// Fusions drawn, each with one change.
const PAIRS: u64 = 10_000;

/// Another item of a table.
fn other<T: Copy + PartialEq>(all: &[T], not: T, draw: &mut Draw) -> T {
    let start = draw.below(all.len());
    (0..all.len()).map(|i| all[(start + i) % all.len()]).find(|item| *item != not).unwrap()
}

/// One change somewhere in a fusion, if this kind of change is possible: its name.
fn mutate(fusion: &mut Fusion, draw: &mut Draw) -> Option<&'static str> {
    let tensors: Vec<_> = fusion.tensors.ids().collect();
    let ops: Vec<_> = fusion.ops.ids().collect();
    let scalars: Vec<_> = fusion.scalars.ids().collect();
    match draw.below(9) {
        0 => {
            let tensor = &mut fusion.tensors[tensors[draw.below(tensors.len())]];
            tensor.dtype = other(DType::ALL, tensor.dtype, draw);
            Some("a tensor's type")
        }
        1 => {
            let tensor = &mut fusion.tensors[tensors[draw.below(tensors.len())]];
            let rank = tensor.axes.len();
            let axis = tensor.axes.get_mut(draw.below(rank))?;
            axis.kind = other(&[AxisKind::Iteration, AxisKind::Broadcast, AxisKind::Symbolic], axis.kind, draw);
            Some("an axis's kind")
        }
        2 => {
            let place = draw.below(scalars.len());
            let tensor = &mut fusion.tensors[tensors[draw.below(tensors.len())]];
            let rank = tensor.axes.len();
            let axis = tensor.axes.get_mut(draw.below(rank))?;
            let extent = *scalars.get(place)?;
            (axis.extent != extent).then(|| axis.extent = extent)?;
            Some("an axis's extent")
        }
        3 => {
            let tensor = &mut fusion.tensors[tensors[draw.below(tensors.len())]];
            let rank = tensor.axes.len();
            if !matches!(tensor.def, TensorDef::Input(_)) || rank == 0 {
                return None;
            }
            let contiguity = (0..rank).map(|_| Some(draw.below(2) == 0)).collect();
            tensor.layout = Some(InputLayout { contiguity, order: (0..rank as u32).collect() });
            Some("an input's layout")
        }
        4 => {
            let op = ops[draw.below(ops.len())];
            mutate_kind(&mut fusion.ops[op].kind, draw)
        }
        5 => {
            let op = &mut fusion.ops[ops[draw.below(ops.len())]];
            let count = op.inputs.len();
            let input = op.inputs.get_mut(draw.below(count))?;
            let new = match draw.below(2) {
                0 if !scalars.is_empty() => Operand::Scalar(scalars[draw.below(scalars.len())]),
                _ => Operand::Tensor(tensors[draw.below(tensors.len())]),
            };
            (*input != new).then(|| *input = new)?;
            Some("an operand")
        }
        6 => {
            if scalars.is_empty() {
                return None;
            }
            let scalar = &mut fusion.scalars[scalars[draw.below(scalars.len())]];
            match &mut scalar.def {
                ScalarDef::Const(value) => {
                    *value = match *value {
                        Value::Float(v) => Value::Float(if v == 0.5 { -0.5 } else { 0.5 }),
                        Value::Int(v) => Value::Int(v.wrapping_add(1)),
                        Value::Bool(v) => Value::Bool(!v),
                        Value::Complex(re, im) => Value::Complex(re, im + 1.0),
                    }
                }
                ScalarDef::Size { axis, .. } => *axis += 1,
                ScalarDef::Binary(op, ..) => *op = other(BinaryOp::ALL, *op, draw),
                ScalarDef::Unary(op, _) => *op = other(UnaryOp::ALL, *op, draw),
                _ => scalar.dtype = other(DType::ALL, scalar.dtype, draw),
            }
            Some("a scalar")
        }
        7 => {
            let place = draw.below(fusion.outputs.len());
            let new = tensors[draw.below(tensors.len())];
            (fusion.outputs[place] != new).then(|| fusion.outputs[place] = new)?;
            Some("an output")
        }
        _ => {
            let (input, _) = fusion.input_tensors().next()?;
            fusion.updates.push(Update { tensor: fusion.outputs[0], input: input as u32 });
            Some("an update")
        }
    }
}

fn mutate_kind(kind: &mut OpKind, draw: &mut Draw) -> Option<&'static str> {
    match kind {
        OpKind::Unary(op) => *op = other(UnaryOp::ALL, *op, draw),
        OpKind::Binary(op) => *op = other(BinaryOp::ALL, *op, draw),
        OpKind::Ternary(_) | OpKind::Set | OpKind::Full => *kind = OpKind::Unary(UnaryOp::Neg),
        OpKind::Cast(to) => *to = other(DType::ALL, *to, draw),
        OpKind::Broadcast { flags } | OpKind::Squeeze { flags } => {
            let place = draw.below(flags.len());
            let flag = flags.get_mut(place)?;
            *flag = !*flag;
        }
        OpKind::Permute { perm } if perm.len() < 2 => return None,
        OpKind::Permute { perm } => perm.swap(0, 1),
        OpKind::Reduce { op, .. } if draw.below(2) == 0 => *op = other(ReduceOp::ALL, *op, draw),
        OpKind::Reduce { axes, .. } => axes.push(draw.below(8) as u32 + 8),
        OpKind::Index { axis } => *axis += 1,
        OpKind::Call(call) => {
            let place = draw.below(call.attrs.len());
            let attr = call.attrs.get_mut(place)?;
            *attr = match attr {
                Attr::Int(v) => Attr::Int(v.wrapping_add(1)),
                Attr::Bool(v) => Attr::Bool(!*v),
                Attr::Operands(n) => Attr::Operands(*n + 1),
                Attr::None => Attr::Int(0),
                _ => Attr::None,
            };
        }
    }
    Some("an operation")
}

#[test]
fn any_single_change_changes_the_hash() {
    let mut draw = Draw::new(7);
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut pairs = 0;
    while pairs < PAIRS {
        let length = draw.below(160);
        let bytes = draw.bytes(length);
        let fusion = generate(&bytes, &Limits::whole_language()).fusion;
        let mut changed = fusion.clone();
        let Some(what) = mutate(&mut changed, &mut draw) else { continue };
        assert_ne!(changed, fusion, "{what}");
        assert_ne!(hash::structure(&changed), hash::structure(&fusion), "{what}\n{}", text::print(&fusion));
        *counts.entry(what).or_default() += 1;
        pairs += 1;
    }
    println!("{pairs} changes: {counts:?}");
    assert_eq!(counts.len(), 9, "{counts:?}");
}

#[test]
fn fusions_read_back_from_their_text_with_the_same_hash() {
    let mut draw = Draw::new(11);
    let (mut accepted, mut rejected) = (0, 0);
    let mut drawn = BTreeSet::new();
    for _ in 0..PAIRS {
        let length = draw.below(160);
        let bytes = draw.bytes(length);
        let generated = generate(&bytes, &Limits::whole_language());
        let fusion = generated.fusion;
        accepted += generated.accepted;
        rejected += generated.rejected;
        drawn.extend(fusion.ops.values().map(|op| op.kind.name()));
        let again =
            text::parse_one(&text::print(&fusion)).unwrap_or_else(|e| panic!("{e:?}\n{}", text::print(&fusion)));
        assert_eq!(again, fusion, "{}", text::print(&fusion));
        assert_eq!(hash::content(&again), hash::content(&fusion));
        let mut renamed = fusion.clone();
        let ids: Vec<_> = renamed.tensors.ids().collect();
        for id in ids {
            renamed.tensors[id].name = format!("other{}", id.index());
        }
        assert_eq!(hash::structure(&renamed), hash::structure(&fusion));
        assert_ne!(hash::content(&renamed), hash::content(&fusion));
    }
    let draws = accepted + rejected;
    println!("{PAIRS} fusions of {} operations, {rejected} of {draws} draws refused", drawn.len());
    let missing: Vec<&str> = engine::fusion::ops::all()
        .filter(|row| row.primitive.is_some() && !drawn.contains(row.name))
        .map(|row| row.name)
        .collect();
    println!("primitives that are not drawn: {missing:?}");
    assert!(rejected * 5 < draws, "{rejected} of {draws} draws were refused");
}
