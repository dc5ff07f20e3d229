//! The axes of a fusion against its dimensions: of fusions in which every axis is one of the
//! operands' or new, classes are dimensions, with the same copies of inputs and the same refusals.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod dimensions;

use crate::property::draws::drawn;
use dimensions::{AxisLabel, DimGraph, DimId, InputUse};
use engine::axes::{self, AxisId, AxisRef, Extent, Forks, FusionAxes};
use engine::fusion::{Fusion, OpKind, Operand, TensorId, bind, concretize, decompose};
use engine::num::Value;
use engine::tensor::{Arg, ArgMeta};
use engine::text;
use std::collections::BTreeMap;
use testing::Draw;
use testing::fusions::{Limits, arguments, generate};

const FUSIONS: u64 = 30_000;

/// Classes and dimensions, one to one.
#[derive(Default)]
struct Pairs {
    axis_of: BTreeMap<DimId, AxisId>,
    dim_of: BTreeMap<AxisId, DimId>,
}

impl Pairs {
    fn check(&mut self, labels: &[AxisLabel], own: &[AxisRef], fusion: &Fusion) {
        assert_eq!(labels.len(), own.len());
        for (label, own) in labels.iter().zip(own) {
            let (AxisRef::Axis(axis) | AxisRef::Broadcast(axis)) = *own else {
                panic!("nothing is looked up");
            };
            assert_eq!(label.concrete, own.indexed().is_some(), "{}", text::print(fusion));
            let known = (*self.axis_of.entry(label.dim).or_insert(axis), *self.dim_of.entry(axis).or_insert(label.dim));
            assert_eq!(known, (axis, label.dim), "{}", text::print(fusion));
        }
    }
}

fn check_same(fusion: &Fusion, axes: &FusionAxes, dims: &DimGraph) {
    let mut pairs = Pairs::default();
    let mut read = 0;
    for value in axes.values.values() {
        let Some(op) = value.op else { continue };
        pairs.check(&dims.labels[value.tensor], &value.axes, fusion);
        for (position, operand) in value.operands.iter().enumerate() {
            let Some(operand) = operand else { continue };
            let source = &axes.values[operand.value];
            assert_eq!(fusion.ops[op].inputs[position], Operand::Tensor(source.tensor));
            let labels = match dims.use_labels.get(&InputUse { op, operand: position }) {
                Some(labels) => {
                    read += 1;
                    labels
                }
                None => &dims.labels[source.tensor],
            };
            pairs.check(labels, &source.axes, fusion);
            assert_eq!(operand.axes, source.axes);
        }
    }
    // Each use of an input has a value of its own, or each input that something reads.
    let inputs = axes.values.values().filter(|value| value.op.is_none()).count();
    match dims.use_labels.is_empty() {
        true => {
            let is_read = |tensor: TensorId| {
                fusion.outputs.contains(&tensor)
                    || fusion.ops.values().any(|op| op.inputs.contains(&Operand::Tensor(tensor)))
            };
            let read = fusion.input_tensors().filter(|(_, tensor)| is_read(*tensor)).count();
            assert_eq!(inputs, read, "{}", text::print(fusion));
        }
        false => assert_eq!((inputs, read), (dims.use_labels.len(), dims.use_labels.len()), "{}", text::print(fusion)),
    }
    for (dim, axis) in &pairs.axis_of {
        let extent = dims.dims[*dim].extent;
        let wanted = match fusion.const_scalar(extent) {
            Some(Value::Int(n)) => Extent::Const(n),
            _ => Extent::Scalar(extent),
        };
        assert_eq!(axes.graph[*axis].extent, wanted, "{}", text::print(fusion));
    }
    assert_eq!(axes.graph.xforms().len(), 0);
}

/// Whether dimensions are defined for an operation: those of others that schedules refuse
/// (`topk`) take operands and results for one, of whatever sizes.
fn is_plain(kind: &OpKind) -> bool {
    match kind {
        OpKind::Call(call) => call.row.random.is_some(),
        _ => true,
    }
}

#[test]
fn classes_of_axes_are_dimensions() {
    let mut draw = Draw::new(11);
    let (mut same, mut by_use, mut refused, mut rescued) = (0, 0, 0, 0);
    let fusions = drawn(FUSIONS).len() as u64;
    for round in 0..fusions {
        let limits =
            Limits { sizes: vec![1, 3, 3, 3, 3], rank: 3, ops: 12, primitives: round % 2 == 1, ..Limits::default() };
        let length = draw.below(120);
        let generated = generate(&draw.bytes(length), &limits);
        let args = arguments(&generated, &mut draw);
        let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
        // As sessions do it: decomposed, then decided.
        let facts_of = |fusion: &Fusion| concretize::facts(fusion, &bind(fusion, &metas).unwrap());
        let simple = decompose(&generated.fusion).unwrap().fusion;
        let fusion = concretize::concretize(&simple, &facts_of(&simple)).unwrap().fusion;
        if !fusion.ops.values().all(|op| is_plain(&op.kind)) {
            // What is more than dimensions has no counterpart, but an answer.
            let _ = axes::analyze(&fusion, Forks::Uses);
            continue;
        }
        match (axes::analyze(&fusion, Forks::Inputs), dimensions::analyze(&fusion)) {
            (Ok(axes), Ok(dims)) => {
                check_same(&fusion, &axes, &dims);
                same += 1;
                by_use += u64::from(!dims.use_labels.is_empty());
            }
            (Err(one), Err(other)) => {
                assert_eq!((one.code, &one.message), (other.code, &other.message), "{}", text::print(&fusion));
                refused += 1;
                rescued += u64::from(axes::analyze(&fusion, Forks::Uses).is_ok());
            }
            (one, other) => {
                panic!("{}\n{:?}\n{:?}", text::print(&fusion), one.map(|_| ()), other.map(|_| ()));
            }
        }
    }
    let rare = by_use > fusions / 1500 && refused > fusions / 1500 && rescued > fusions / 3000;
    assert!(same > fusions / 3 && rare, "{same} {by_use} {refused} {rescued}");
}
