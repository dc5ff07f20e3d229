//! A reduction over a few positions, of which another reduction or parts are made, is computed of its terms:
//! `sum(sqrt(sum(x * x, -1)), 0)` of rows of three is `sum(sqrt(sum_of(x0 * x0, x1 * x1, x2 * x2)), 0)`, so that a
//! kernel has one set of dimensions that are reduced, and stores none of what lies between.
//!
//! In: reductions over one axis of 2 to [`MOST_TERMS`] positions, of what is computed element by element of inputs, of what has one
//! element along the axis, or of tensors that are stacked along it, as the parts of a vector that is normalised. Out: their results, made
//! of a slice of each position, or of each part. Sums of floats are [`Form::SumOf`], which rounds once, as they do; the others
//! combine two by two, in the same order.
//!
//! Left alone: reductions that share their axis with the one behind them; of what is in memory with all its elements those whose result
//! is more than part of one number, since the threads of rows hold or sum those (`summed_rows`); and what takes many operations.

use super::finest::tensor_of;
use super::make::{call as make, join, squeeze, tensor};
use super::whole::{Change, Changes, Whole, call, operand, tensors};
use super::windows::{Made, Terms, Window};
use crate::fusion::ops::{Form, OpArg};
use crate::fusion::{Bindings, Fusion, Op, OpKind, Src, TensorId};
use crate::num::{BinaryOp, DType, ReduceOp};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Positions of such an axis, at most.
const MOST_TERMS: i64 = 8;
/// Operations that the terms are, at most.
const MOST_COMPUTED: usize = 64;
/// How often what terms are added to is added up again, at most: once for each element of what it is multiplied with.
const MOST_AGAIN: i64 = 4;
/// Tensors that are looked through behind a reduction, at most.
const MOST_BEHIND: usize = 32;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    let made = Rc::new(RefCell::new(Made::default()));
    whole.each(&|whole, op| rule(whole, op, &made).or_else(|| of_stack(whole, op, &made)))
}

/// Whether the pass may find something, so that sizes have to be seen: a reduction over few positions, and one over other axes, as
/// one of those behind it has. (Parts are made by joins and slices, for which sizes are seen anyway.)
pub(super) fn may_find(fusion: &Fusion, bindings: &Bindings) -> bool {
    let mut reduced_axes = BTreeSet::new();
    let mut has_few = false;
    for op in fusion.ops.values() {
        let (OpKind::Reduce { op: combine, axes }, Some(x)) = (&op.kind, operand(op)) else { continue };
        let tensor = &fusion.tensors[x];
        reduced_axes.insert((tensor.axes.len(), axes));
        if let [axis] = axes[..] {
            let size = bindings.sizes(fusion, x)[axis as usize];
            has_few |= (2..=MOST_TERMS).contains(&size) && way(*combine, tensor.dtype).is_some();
        }
    }
    has_few && reduced_axes.len() > 1
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op, made: &Rc<RefCell<Made>>) -> Option<Change<'a>> {
    let (OpKind::Reduce { op: combine, axes }, Some(x)) = (&op.kind, operand(op)) else { return None };
    let [axis] = axes[..] else { return None };
    let axis = axis as usize;
    let count = whole.sizes(x)[axis];
    let is_usable = whole.knows_sizes() && (2..=MOST_TERMS).contains(&count) && !whole.is_empty(x);
    let dtype = whole.fusion.tensors[x].dtype;
    let way = way(*combine, dtype).filter(|_| is_usable)?;
    let terms = Terms::of(whole, x, axis)?;
    if terms.operations * count as usize > MOST_COMPUTED || !pays(whole, op, &terms) {
        return None;
    }
    let flags: Vec<bool> = (0..whole.rank(x)).map(|own| own == axis).collect();
    let made = Rc::clone(made);
    Some(Box::new(move |r| {
        let mut parts = Vec::with_capacity(count as usize);
        for position in 0..count {
            parts.push(terms.write(r, position, &mut made.borrow_mut())?);
        }
        let all = match way {
            Way::Together => {
                let list = parts.into_iter().map(Src::Tensor).collect();
                make(&mut r.builder, "sum_of", |args| args.with("tensors", OpArg::Values(list)))?
            }
            Way::ByTwo(combine) => {
                let mut all = parts[0];
                for part in &parts[1..] {
                    all = tensor(r.builder.binary(combine, all, *part)?)?;
                }
                all
            }
        };
        squeeze(&mut r.builder, all, &flags)
    }))
}

/// What is computed of tensors that are stacked, and that others read as well: computed of each, and stacked then. So what is
/// made of them all is in the kernel that stacks them.
fn of_stack<'a>(whole: &'a Whole<'a>, op: &'a Op, made: &Rc<RefCell<Made>>) -> Option<Change<'a>> {
    let output = op.output();
    let goes_on = |reader: &Op| reader.kind.is_elementwise();
    let is_last = whole.is_returned(output) || !whole.readers(output).all(goes_on);
    if !op.kind.is_elementwise() || !is_last || !whole.knows_sizes() || whole.is_empty(output) {
        return None;
    }
    let axis = stacked_axis(whole, output)?;
    let count = whole.sizes(output)[axis];
    let terms = Terms::of(whole, output, axis).filter(|terms| terms.is_stacked)?;
    if !(2..=MOST_TERMS).contains(&count) || terms.operations * count as usize > MOST_COMPUTED {
        return None;
    }
    let made = Rc::clone(made);
    Some(Box::new(move |r| {
        let mut parts = Vec::with_capacity(count as usize);
        for position in 0..count {
            parts.push(terms.write(r, position, &mut made.borrow_mut())?.into());
        }
        join(&mut r.builder, parts, axis)
    }))
}

/// The axis along which what an elementwise operation reads is stacked of tensors that others read as well.
fn stacked_axis(whole: &Whole<'_>, result: TensorId) -> Option<usize> {
    let is_read_twice = |tensor: TensorId| whole.readers(tensor).count() > 1;
    let is_shared = |part: TensorId| {
        let spread = whole.maker(part).filter(|maker| matches!(maker.kind, OpKind::Broadcast { .. })).and_then(operand);
        is_read_twice(part) || spread.is_some_and(is_read_twice)
    };
    let (mut waiting, mut seen) = (vec![result], BTreeSet::new());
    while let Some(next) = waiting.pop() {
        let Some(maker) = whole.maker(next).filter(|_| seen.len() < MOST_BEHIND && seen.insert(next)) else { continue };
        if let Some(cat) = call(maker, Form::Cat) {
            let (dim, parts) = (cat.axis("dim"), tensors(maker, cat, "tensors"));
            if parts.iter().all(|part| whole.is_broadcast(*part, dim)) && parts.into_iter().any(is_shared) {
                return Some(dim);
            }
        } else if maker.kind.is_elementwise() {
            waiting.extend(maker.inputs.iter().filter_map(tensor_of));
        }
    }
    None
}

/// How terms are combined.
#[derive(Clone, Copy)]
enum Way {
    Together,
    ByTwo(BinaryOp),
}

fn way(op: ReduceOp, dtype: DType) -> Option<Way> {
    let is_float = matches!(dtype, DType::F32 | DType::F64);
    let is_integer = matches!(dtype, DType::I32 | DType::I64);
    match op {
        ReduceOp::Sum if is_float => Some(Way::Together),
        ReduceOp::Sum if is_integer => Some(Way::ByTwo(BinaryOp::Add)),
        ReduceOp::Max if is_float || is_integer => Some(Way::ByTwo(BinaryOp::Maximum)),
        ReduceOp::Min if is_float || is_integer => Some(Way::ByTwo(BinaryOp::Minimum)),
        _ => None,
    }
}

/// What lies behind a reduction.
#[derive(Default)]
struct Behind {
    /// Another one, over axes that the first one left.
    reduces: bool,
    /// Parts.
    cuts: bool,
    /// Something else than reductions over all of these axes.
    others: bool,
    /// A reduction of so many elements that each result is needed again and again: it is better stored.
    repeats: bool,
}

impl Behind {
    /// What is made of a result element by element.
    fn of(whole: &Whole<'_>, result: TensorId) -> Self {
        let mut behind = Self::default();
        let elements = |tensor: TensorId| whole.sizes(tensor).iter().copied().fold(1, i64::saturating_mul);
        // Of each axis whether it is one of the result's.
        let own: Vec<bool> = (0..whole.rank(result)).map(|axis| !whole.is_broadcast(result, axis)).collect();
        let (mut waiting, mut seen) = (vec![(result, own)], BTreeSet::new());
        while let Some((x, own)) = waiting.pop() {
            if !seen.insert((x, own.clone())) {
                continue;
            }
            behind.others |= seen.len() > MOST_BEHIND || whole.is_returned(x);
            if seen.len() > MOST_BEHIND {
                break;
            }
            for reader in whole.readers(x) {
                if let OpKind::Reduce { axes, .. } = &reader.kind {
                    let is_over = |axis: usize| axes.contains(&(axis as u32));
                    behind.reduces |= own.iter().enumerate().any(|(axis, own)| *own && is_over(axis));
                    behind.repeats |= elements(x) > elements(result).saturating_mul(MOST_AGAIN);
                    behind.others |= own.iter().enumerate().any(|(axis, own)| *own && !is_over(axis));
                } else if Window::of(whole, reader).is_some_and(|window| !matches!(window, Window::Pad(_))) {
                    behind.cuts = true;
                } else if let Some(next) = through(reader, &own) {
                    waiting.push((reader.output(), next));
                } else {
                    behind.others = true;
                }
            }
        }
        behind
    }
}

/// Which axes of what an operation makes are those of its operand with a flag.
fn through(op: &Op, own: &[bool]) -> Option<Vec<bool>> {
    Some(match &op.kind {
        OpKind::Broadcast { flags } => {
            let mut kept = own.iter();
            flags.iter().map(|inserted| !*inserted && kept.next() == Some(&true)).collect()
        }
        OpKind::Squeeze { flags } => {
            own.iter().zip(flags).filter(|(_, dropped)| !**dropped).map(|(own, _)| *own).collect()
        }
        OpKind::Permute { perm } => perm.iter().map(|axis| own[*axis as usize]).collect(),
        kind if kind.is_elementwise() || call(op, Form::SumOf).is_some() => own.to_vec(),
        _ => return None,
    })
}

/// Whether a kernel does more with terms: in one of what is in memory the threads of a row sum first (`summed_rows`), or hold the row,
/// unless one number is made of all.
fn pays(whole: &Whole<'_>, op: &Op, terms: &Terms<'_>) -> bool {
    let behind = Behind::of(whole, op.output());
    match terms.is_spread {
        _ if behind.repeats => false,
        _ if terms.is_stacked => true,
        true => behind.reduces || behind.cuts,
        false => behind.reduces && !behind.cuts && !behind.others,
    }
}
