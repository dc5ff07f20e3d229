//! What meets itself at other places is computed for each: rows of a tensor that are compared with all rows of the same, or a
//! tensor that is added to its own transpose. One kernel has one place for each tensor that it computes, but reads a tensor
//! in memory wherever it is asked for it. So an operand that would need another place than the operand before it is made
//! again of what lies in memory, a few elementwise operations, in axes of its own from the start.
//!
//! Not, where functions of many instructions would be computed for many more elements than there are, nor where more large tensors
//! would be read again than one is written and read.

use super::make::broadcast;
use super::whole::{Change, Changes, Whole, is_of_none, of_one, operand as first_operand};
use crate::axes::axis_pairs;
use crate::diag::{Diagnostic, Result};
use crate::fusion::{AxisKind, Op, OpId, OpKind, Operand, Rewriter, TensorId};
use crate::num::{BinaryOp, UnaryOp};
use crate::util::order_by_key;
use std::collections::BTreeMap;

/// Elementwise operations that are done again, at most; also how many are looked at behind an operand.
const MOST_AGAIN: usize = 8;
/// Tensors that are looked at behind an operand, at most.
const MOST_SEEN: usize = 4 * MOST_AGAIN;
/// Tensors as large as what is made that are read for it, at most.
const MOST_LARGE: usize = 2;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    let elementwise = whole.fusion.ops.iter().filter(|(_, op)| op.kind.is_elementwise());
    elementwise.filter_map(|(id, _)| Some((id, of_one(meeting(whole, id)?)))).collect()
}

/// Operands of an operation made again, where they meet others at other places.
fn meeting<'a>(whole: &'a Whole<'a>, id: OpId) -> Option<Change<'a>> {
    let op = &whole.fusion.ops[id];
    let operands: Vec<TensorId> = whole.fusion.tensor_inputs(id).collect();
    if operands.len() < 2 {
        return None;
    }
    let all = dimensions(whole, op.output());
    let mut placed: BTreeMap<TensorId, Vec<usize>> = BTreeMap::new();
    let mut again: Vec<Option<Cone>> = Vec::new();
    for &operand in &operands {
        let cone = Cone::of(whole, operand);
        let is_elsewhere = |(tensor, place): (&TensorId, &Vec<usize>)| {
            let known = placed.get(tensor);
            let is_made_again = !cone.ends.contains(tensor);
            is_made_again && known.is_some_and(|known| !is_same_place(whole, *tensor, known, place))
        };
        if !cone.is_mixed && cone.places.iter().any(is_elsewhere) {
            if !cone.pays(whole, operand, all) || enters_sum(whole, id, operand) {
                return None;
            }
            again.push(Some(cone));
        } else {
            placed.extend(cone.places);
            again.push(None);
        }
    }
    if again.iter().all(Option::is_none) {
        return None;
    }
    Some(Box::new(move |r| {
        let rank = whole.rank(op.output());
        let made = operands.iter().zip(&again).map(|(operand, cone)| match cone {
            Some(cone) => cone.again(whole, r, *operand, rank),
            None => r.tensor(*operand),
        });
        let made = made.collect::<Result<Vec<TensorId>>>()?;
        r.write_on(op, &made)
    }))
}

/// What an operand is made of by elementwise operations and moves of axes, as far as it is looked at.
#[derive(Default)]
struct Cone {
    /// For each tensor, which axis of the operand each of its axes is.
    places: BTreeMap<TensorId, Vec<usize>>,
    /// The operations that are seen through.
    ops: Vec<OpId>,
    /// Where it ends.
    ends: Vec<TensorId>,
    /// Whether some tensor has several places in it.
    is_mixed: bool,
}

impl Cone {
    fn of(whole: &Whole<'_>, operand: TensorId) -> Self {
        let fusion = whole.fusion;
        let (mut cone, mut elementwise) = (Self::default(), 0);
        let mut stack = vec![(operand, (0..whole.rank(operand)).collect::<Vec<usize>>())];
        while let Some((tensor, place)) = stack.pop() {
            if let Some(known) = cone.places.get(&tensor) {
                cone.is_mixed |= *known != place;
                continue;
            }
            let seen_through = fusion.definition(tensor).filter(|op| {
                let kind = &fusion.ops[*op].kind;
                elementwise += usize::from(kind.is_elementwise());
                let may_be = kind.is_elementwise() && elementwise <= MOST_AGAIN
                    || matches!(kind, OpKind::Broadcast { .. } | OpKind::Permute { .. });
                may_be && cone.places.len() < MOST_SEEN
            });
            match seen_through {
                Some(op) => {
                    cone.ops.push(op);
                    let kind = &fusion.ops[op].kind;
                    for (position, input) in fusion.ops[op].inputs.iter().enumerate() {
                        let Operand::Tensor(input) = *input else { continue };
                        let mut own = vec![0; whole.rank(input)];
                        for (a, b) in axis_pairs(kind, position, own.len(), place.len()) {
                            own[a] = place[b];
                        }
                        stack.push((input, own));
                    }
                }
                None => cone.ends.push(tensor),
            }
            cone.places.insert(tensor, place);
        }
        cone
    }

    /// Whether to make it again costs less than to store it, for elements along so many dimensions.
    fn pays(&self, whole: &Whole<'_>, operand: TensorId, all: usize) -> bool {
        let own = dimensions(whole, operand);
        let large = self.ends.iter().filter(|end| dimensions(whole, **end) >= own).count();
        let kinds = || self.ops.iter().map(|op| &whole.fusion.ops[*op].kind);
        let heavy = kinds().any(|kind| matches!(kind, OpKind::Unary(op) if !op.is_one_instruction()));
        large <= MOST_LARGE && (!heavy || all == own)
    }

    /// The operand anew, of so many axes, of what the cone ends with.
    fn again(&self, whole: &Whole<'_>, r: &mut Rewriter<'_>, operand: TensorId, rank: usize) -> Result<TensorId> {
        let lost = || Diagnostic::bug("what is made again has no result");
        let mut made: BTreeMap<TensorId, TensorId> = BTreeMap::new();
        for &end in &self.ends {
            let new = match whole.maker(end).filter(|op| is_of_none(op)) {
                Some(op) => *r.write_again(op)?.first().ok_or_else(lost)?,
                None => r.tensor(end)?,
            };
            made.insert(end, at(r, new, &self.places[&end], rank)?);
        }
        let mut ops = self.ops.clone();
        ops.sort_unstable();
        for id in ops {
            let op = &whole.fusion.ops[id];
            let read = whole.fusion.tensor_inputs(id).map(|tensor| made.get(&tensor).copied());
            let read = read.collect::<Option<Vec<TensorId>>>().ok_or_else(lost)?;
            let new = if op.kind.is_elementwise() { r.write_on(op, &read)? } else { *read.first().ok_or_else(lost)? };
            made.insert(op.output(), new);
        }
        made.get(&operand).copied().ok_or_else(lost)
    }
}

/// Whether an operand is a product of floats that enters a sum, which a compiler may make one operation of, with one rounding: it would
/// be another number than the same product elsewhere, and the difference of both not 0.
fn enters_sum(whole: &Whole<'_>, sum: OpId, operand: TensorId) -> bool {
    let fusion = whole.fusion;
    let mut product = operand;
    while let Some(op) = whole.maker(product) {
        let is_seen_through = matches!(op.kind, OpKind::Broadcast { .. } | OpKind::Permute { .. } | OpKind::Set)
            || op.kind == OpKind::Unary(UnaryOp::Neg);
        match first_operand(op).filter(|_| is_seen_through) {
            Some(of) => product = of,
            None => break,
        }
    }
    let is_exact = |factor: &Operand| match *factor {
        // A power of two.
        Operand::Scalar(scalar) => fusion.constant(scalar).is_some_and(|factor| factor.as_f64().to_bits() << 12 == 0),
        Operand::Tensor(_) => false,
    };
    let is_rounded = |op: &Op| op.kind == OpKind::Binary(BinaryOp::Mul) && !op.inputs.iter().any(is_exact);
    let adds = match fusion.ops[sum].kind {
        OpKind::Binary(op) => matches!(op, BinaryOp::Add | BinaryOp::Sub),
        _ => true,
    };
    adds && !fusion.tensors[product].dtype.is_int() && whole.maker(product).is_some_and(is_rounded)
}

/// A new tensor with its axes at these places among so many.
fn at(r: &mut Rewriter<'_>, tensor: TensorId, places: &[usize], rank: usize) -> Result<TensorId> {
    let order = order_by_key(places.len(), |axis| places[axis]);
    let mut tensor = tensor;
    if !order.is_sorted() {
        let dims: Vec<i64> = order.iter().map(|axis| *axis as i64).collect();
        tensor = super::make::tensor(r.builder.permute(tensor, &dims)?)?;
    }
    let flags: Vec<bool> = (0..rank).map(|place| !places.contains(&place)).collect();
    broadcast(&mut r.builder, tensor, &flags)
}

/// Whether the axes of a tensor along which it has elements are at the same places.
fn is_same_place(whole: &Whole<'_>, tensor: TensorId, a: &[usize], b: &[usize]) -> bool {
    (0..a.len()).all(|axis| a[axis] == b[axis] || whole.kind(tensor, axis) != AxisKind::Iteration)
}

/// Dimensions along which a tensor has elements.
fn dimensions(whole: &Whole<'_>, tensor: TensorId) -> usize {
    (0..whole.rank(tensor)).filter(|axis| whole.kind(tensor, *axis) == AxisKind::Iteration).count()
}
