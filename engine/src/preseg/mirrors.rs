//! A scan of what is read from the last element to the first, whose prefixes are read so again: a scan that goes from the last to
//! the first itself. Its kernel reads and writes each element at its place, where two kernels more would turn lines round.
//!
//! In the way: somebody else who reads the prefixes as they are, and what is scanned but for elementwise operations if something in
//! it is not turned round.

use super::known::Known;
use super::make::{call as make, pad_made, pads_to};
use super::places::progression;
use super::whole::{Change, Changes, Whole, call, operand};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::{Form, IndexAxes, OpArg};
use crate::fusion::{Fusion, Op, OpId, OpKind, Operand, Rewriter, ScalarId, TensorId};
use std::collections::{BTreeMap, BTreeSet};

/// Operations between what is turned round and the scan, at most.
const MOST_OPS: usize = 16;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(&rule)
}

/// Whether the rule could find something, of which it needs sizes: a scan, and a lookup of which something in the fusion says where.
pub(super) fn may_find(fusion: &Fusion) -> bool {
    let is_mirror = |op: &Op| {
        let lookup = op.kind.lookup().filter(|lookup| lookup.axes == IndexAxes::InPlace);
        let index = lookup.map(|lookup| op.inputs[lookup.index]);
        matches!(index, Some(Operand::Tensor(index)) if fusion.definition(index).is_some())
    };
    fusion.ops.values().any(|op| op.kind.scanned().is_some()) && fusion.ops.values().any(is_mirror)
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let scanned = operand(op)?;
    let scan = whole.maker(scanned)?;
    let (OpKind::Call(own), Some(dim)) = (&scan.kind, scan.kind.scanned()) else { return None };
    turned_round(whole, op, dim)?;
    let are_turned = whole.readers(scanned).all(|reader| turned_round(whole, reader, dim).is_some());
    if whole.is_returned(scanned) || !are_turned || !whole.is_alike(op.output(), scanned) {
        return None;
    }
    let x = operand(scan)?;
    let turned = Turned::of(whole, x, dim)?;
    let (name, is_reversed) = (own.row.name, own.flag("reverse"));
    Some(Box::new(move |r| {
        let x = turned.write(r, x)?;
        make(&mut r.builder, name, |args| {
            let args = args.value("x", x).with("dim", OpArg::Int(dim as i64));
            args.with("reverse", OpArg::Bool(!is_reversed))
        })
    }))
}

/// What an operation reads from the last element along an axis to the first.
fn turned_round(whole: &Whole<'_>, op: &Op, dim: usize) -> Option<TensorId> {
    let lookup = op.kind.lookup().filter(|lookup| lookup.axes == IndexAxes::InPlace && lookup.axis == dim)?;
    let (Operand::Tensor(table), Operand::Tensor(index)) = (op.inputs[lookup.table], op.inputs[lookup.index]) else {
        return None;
    };
    let length = whole.sizes(table)[dim];
    if length < 1 || whole.sizes(op.output())[dim] != length || !whole.is_alike(op.output(), table) {
        return None;
    }
    let places = progression(whole, index, length).or_else(|| Known::of(whole, index)?.progression())?;
    (places == (length - 1, -1)).then_some(table)
}

/// What is scanned, of what is not turned round.
struct Turned<'a> {
    whole: &'a Whole<'a>,
    dim: usize,
    /// Operations that are done to what is not turned round instead, in order of definition.
    ops: BTreeSet<OpId>,
    /// What stands for a tensor that they read.
    given: BTreeMap<TensorId, TensorId>,
}

impl<'a> Turned<'a> {
    fn of(whole: &'a Whole<'a>, x: TensorId, dim: usize) -> Option<Self> {
        let (mut ops, mut given, mut is_turned) = (BTreeSet::new(), BTreeMap::new(), false);
        let mut waiting = vec![x];
        while let Some(next) = waiting.pop() {
            if given.contains_key(&next) {
                continue;
            }
            // What is one element along the axis is so in either direction.
            if whole.is_broadcast(next, dim) {
                given.insert(next, next);
                continue;
            }
            let id = whole.fusion.definition(next)?;
            let op = &whole.fusion.ops[id];
            if let Some(table) = turned_round(whole, op, dim) {
                given.insert(next, table);
                is_turned = true;
                continue;
            }
            let is_moved = op.kind.is_elementwise() && op.outputs.len() == 1 || Moved::of(whole, op).is_some();
            if !is_moved || ops.len() == MOST_OPS {
                return None;
            }
            if ops.insert(id) {
                waiting.extend(whole.fusion.tensor_inputs(id));
            }
        }
        is_turned.then_some(Self { whole, dim, ops, given })
    }

    fn write(self, r: &mut Rewriter<'_>, x: TensorId) -> Result<TensorId> {
        let fusion = self.whole.fusion;
        let mut made: BTreeMap<TensorId, TensorId> = BTreeMap::new();
        for (own, table) in &self.given {
            made.insert(*own, r.tensor(*table)?);
        }
        let of = |made: &BTreeMap<TensorId, TensorId>, old: TensorId| {
            made.get(&old).copied().ok_or_else(|| Diagnostic::bug("what is turned back is made late"))
        };
        for &id in &self.ops {
            let op = &fusion.ops[id];
            let new = match Moved::of(self.whole, op) {
                Some(moved) => {
                    let x = of(&made, moved.x)?;
                    moved.write(r, x, self.dim)?
                }
                None => {
                    let read: Vec<TensorId> =
                        fusion.tensor_inputs(id).map(|read| of(&made, read)).collect::<Result<_>>()?;
                    r.write_on(op, &read)?
                }
            };
            made.insert(op.output(), new);
        }
        of(&made, x)
    }
}

/// A pad, of constant widths.
struct Moved {
    x: TensorId,
    widths: Vec<(i64, i64)>,
    fill: Option<ScalarId>,
}

impl Moved {
    fn of(whole: &Whole<'_>, op: &Op) -> Option<Self> {
        let own = call(op, Form::Pad)?;
        let x = operand(op)?;
        let numbers = whole.numbers(op, own, "widths")?;
        // The innermost axis comes first.
        let widths: Vec<(i64, i64)> = numbers.chunks_exact(2).rev().map(|pair| (pair[0], pair[1])).collect();
        let fill = match op.inputs[own.operands("value")] {
            [Operand::Scalar(fill)] => Some(fill),
            _ => None,
        };
        (widths.len() == whole.rank(x) && pads_to(whole, op.output(), x, &widths)).then_some(Self { x, widths, fill })
    }

    /// The same of what is turned round along an axis.
    fn write(mut self, r: &mut Rewriter<'_>, x: TensorId, dim: usize) -> Result<TensorId> {
        let (before, after) = self.widths[dim];
        self.widths[dim] = (after, before);
        pad_made(r, x, &self.widths, self.fill)
    }
}
