//! Tensors that are joined of what kernels make: each kernel writes its part where that lies in the whole, so that no part is
//! stored by itself and read again to be joined.
//!
//! In: what is known of operations, and groups of them, in which an operation that joins tensors reads some of what other
//! groups make. Out: [`Joined`], the operations that nobody computes for that, with the place of each part; none unless
//! groups without them move fewer bytes.
//!
//! An argument among what is joined is copied to its place, where that takes few copies of long rows.
//!
//! Invariants: each part is made by a kernel and is a part of one whole, of which it is not all; it is no result, and read by
//! kernels alone beside; it has elements. A whole is dense and row-major, and some kernel writes a part of it.

use super::across::LARGE;
use super::cut::{ALIGN, Segment, SegmentCompiler, SegmentKind, new_segment};
use super::facts::OpFacts;
use super::search::Groups;
use crate::array::row_major_strides;
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::Form;
use crate::fusion::{OpId, OpKind, TensorId};
use crate::tensor::{CopyRows, TensorMeta, copy_rows};
use crate::util::SecondaryMap;

/// Operations that are tried; each takes a search.
const MOST_TRIED: usize = 4;
/// Bytes of memory that are written at once: what a part has less of at the ends of its runs costs as much.
const SECTOR_BYTES: i64 = 32;
/// Bytes of the widest access.
const ACCESS_BYTES: i64 = 16;

/// What it costs to shift rows into place, and to put vectors together from two, in parts of what is written: a norm of
/// 129x197x771 bf16 behind a row each takes 78 us so on an H200, and 63 where it is stored and joined by another kernel.
const SHIFTED: f64 = 0.5;
const UNALIGNED: f64 = 3.0;
/// What a copy of an argument takes, in halves of its bytes: in one run, and in rows, which the driver copies at half of that speed.
const COPY: i64 = 5;
const COPY_OF_ROWS: i64 = 9;
/// Copies of one argument, and bytes of their rows: with more copies, or shorter rows, a kernel takes less.
const MOST_COPIES: usize = 2;
const LEAST_ROW_BYTES: u64 = 1024;

/// Tensors that are joined of what kernels make.
#[derive(Clone, Debug, Default)]
pub(super) struct Joined {
    /// The operations, in order.
    pub(super) ops: Vec<OpId>,
    parts: SecondaryMap<TensorId, Option<PartOf>>,
    /// The arguments among what is joined, with their places; one may have several.
    copied: Vec<(TensorId, PartOf)>,
}

/// Tensors that kernels write into others, and arguments that are copied there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) written: SecondaryMap<TensorId, Option<PartOf>>,
    pub(crate) copied: Vec<(TensorId, PartOf)>,
}

/// How an argument lies.
pub(super) type Lies<'a> = &'a dyn Fn(TensorId) -> Option<&'a TensorMeta>;

/// A tensor that a kernel writes into its place in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartOf {
    /// The tensor that it is a part of, and how that lies.
    pub(crate) whole: TensorId,
    pub(crate) whole_meta: TensorMeta,
    /// How the part lies.
    pub(crate) meta: TensorMeta,
    /// Where its element 0 is in the whole, in bytes.
    pub(crate) offset: u64,
}

impl PartOf {
    /// Alignment of its element 0, where that of the whole is `most`.
    pub(super) fn align(&self, most: u32) -> u32 {
        if self.offset == 0 { most } else { most.min(1 << self.offset.trailing_zeros().min(most.trailing_zeros())) }
    }

    /// What it costs more to write this than as many elements side by side, in parts of its own size: where runs are no
    /// whole sectors those are written all the same; rows that start elsewhere are shifted; and where element 0 does, no
    /// shift helps, and each vector is put together from two.
    fn extra(&self) -> f64 {
        if !self.offset.is_multiple_of(ACCESS_BYTES as u64) {
            return UNALIGNED;
        }
        let bytes = self.meta.dtype.bytes() as i64;
        let dense = row_major_strides(&self.meta.sizes);
        // The innermost axis along which it has gaps, and so what is one run.
        let is_gap = |axis: &usize| self.meta.sizes[*axis] > 1 && self.meta.strides[*axis] != dense[*axis];
        let Some(gap) = (0..dense.len()).rev().find(is_gap) else { return 0.0 };
        let (run, pitch) = (dense[gap] * bytes, self.meta.strides[gap] * bytes);
        let starts = |unit: i64| pitch % unit == 0 && self.offset.is_multiple_of(unit as u64);
        let touched = match starts(SECTOR_BYTES) {
            true => (run + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES,
            false => run + SECTOR_BYTES,
        };
        let is_shifted = run % ACCESS_BYTES == 0 && !starts(ACCESS_BYTES);
        (touched - run) as f64 / run.max(1) as f64 + if is_shifted { SHIFTED } else { 0.0 }
    }
}

impl Joined {
    /// Where a tensor is a part of another, that place.
    pub(super) fn part(&self, tensor: TensorId) -> Option<&PartOf> {
        self.parts[tensor].as_ref()
    }

    /// The places of all parts.
    pub(super) fn into_parts(self) -> Parts {
        Parts { written: self.parts, copied: self.copied }
    }

    /// The wholes with their layouts, and the parts with the strides that they have there.
    pub(super) fn strides<'a>(&'a self, facts: &'a OpFacts<'_>) -> impl Iterator<Item = (TensorId, &'a [i64])> {
        let parts = self.ops.iter().flat_map(|op| facts.fusion.tensor_inputs(*op));
        parts.filter_map(|tensor| self.part(tensor).map(|part| (tensor, &part.meta.strides[..])))
    }

    /// The whole that an operation joins.
    pub(super) fn whole(&self, facts: &OpFacts<'_>, op: OpId) -> Option<&TensorMeta> {
        facts.fusion.tensor_inputs(op).find_map(|part| self.part(part)).map(|part| &part.whole_meta)
    }

    /// What pays to be joined so, given the groups that there are otherwise. `search` has the groups where some operations are.
    pub(super) fn find(
        facts: &OpFacts<'_>,
        lies: Lies<'_>,
        groups: &Groups<'_>,
        search: &dyn Fn(&Self) -> Result<i64>,
    ) -> Result<Self> {
        let mut candidates: Vec<OpId> = facts.fusion.ops.ids().filter(|op| groups.joins_stored(*op)).collect();
        candidates.truncate(MOST_TRIED);
        let (mut best, mut least) = (Self::default(), groups.cost_in_bytes());
        // All together first: of most programs all pay.
        let all = candidates.iter().fold(Self::default(), |joined, op| joined.and(facts, lies, *op));
        let mut try_one = |joined: Self| {
            if joined.ops.len() > best.ops.len() {
                let cost = search(&joined)?.saturating_add(joined.extra_bytes(facts));
                if cost < least {
                    (best, least) = (joined, cost);
                }
            }
            Ok::<_, Box<Diagnostic>>(best.clone())
        };
        let (several, mut found) = (all.ops.len() > 1, try_one(all)?);
        for op in candidates.into_iter().filter(|_| several) {
            if !found.ops.contains(&op) {
                found = try_one(found.and(facts, lies, op))?;
            }
        }
        Ok(found)
    }

    /// With one more operation, if what it joins may be written so.
    fn and(mut self, facts: &OpFacts<'_>, lies: Lies<'_>, op: OpId) -> Self {
        let Some(places) = places(facts, op) else { return self };
        let is_argument = |part: TensorId| facts.fusion.definition(part).is_none();
        let (copied, parts): (Vec<_>, Vec<_>) = places.into_iter().partition(|(part, _)| is_argument(*part));
        let is_copy =
            |(part, place): &(TensorId, PartOf)| lies(*part).is_some_and(|meta| is_cheap_copy(meta, &place.meta));
        let may_be_parts = parts.iter().all(|(part, _)| self.may_be_part(facts, op, *part));
        if !parts.is_empty() && may_be_parts && copied.iter().all(is_copy) {
            self.ops.push(op);
            self.copied.extend(copied);
            parts.into_iter().for_each(|(part, place)| self.parts.set(part, Some(place)));
        }
        self
    }

    /// Whether a tensor that an operation joins may be written into its place.
    fn may_be_part(&self, facts: &OpFacts<'_>, op: OpId, part: TensorId) -> bool {
        let Some(made) = facts.fusion.definition(part) else { return false };
        let is_kernels =
            |reader: &OpId| *reader == op || !facts.host[*reader] && !facts.cuts[*reader] && !self.ops.contains(reader);
        !facts.host[made]
            && !self.ops.contains(&made)
            && !facts.returned[part]
            && self.parts[part].is_none()
            && facts.readers[part].iter().all(is_kernels)
    }

    /// What it costs to write parts, and not as many elements side by side.
    fn extra_bytes(&self, facts: &OpFacts<'_>) -> i64 {
        let parts = self.ops.iter().flat_map(|op| facts.fusion.tensor_inputs(*op));
        let extra = |part: TensorId| self.part(part).map(|place| (facts.bytes[part] as f64 * place.extra()) as i64);
        let copies = self.copied.iter().map(|(part, place)| {
            let halves = if place.meta.is_contiguous() { COPY } else { COPY_OF_ROWS };
            facts.bytes[*part].saturating_mul(halves).saturating_div(2).saturating_add(LARGE)
        });
        parts.filter_map(extra).chain(copies).fold(0, i64::saturating_add)
    }
}

impl SegmentCompiler<'_> {
    /// A group of an operation that joins what kernels wrote in place, and how that is aligned.
    pub(super) fn join(&self, groups: &Groups<'_>, position: usize) -> Result<Option<(Segment, u32)>> {
        let [op] = groups.ops[position][..] else { return Ok(None) };
        let Some(whole) = self.joined.whole(self.facts, op).filter(|_| self.facts.joined[op]) else { return Ok(None) };
        let is_there = |part: TensorId| {
            let known = self.metas[part].as_ref().map(|(meta, _)| meta);
            let is_copied = self.facts.fusion.definition(part).is_none();
            is_copied || known.is_some() && known == self.joined.part(part).map(|place| &place.meta)
        };
        if !self.facts.fusion.tensor_inputs(op).all(is_there) {
            return Err(Diagnostic::bug("a part of what is joined was not written where it lies"));
        }
        let part = self.part(groups, position)?;
        Ok(Some((new_segment(&part.part, SegmentKind::Joined, vec![whole.clone()]), ALIGN)))
    }

    /// Whether some tensor is a part of something else.
    pub(super) fn has_parts(&self, tensors: &[TensorId]) -> bool {
        tensors.iter().any(|tensor| self.joined.part(*tensor).is_some())
    }

    /// How tensors lie that are parts of something else, and how each is aligned.
    pub(super) fn parts(&self, tensors: &[TensorId]) -> Vec<Option<(TensorMeta, u32)>> {
        let place = |tensor: &TensorId| self.joined.part(*tensor).map(|part| (part.meta.clone(), part.align(ALIGN)));
        tensors.iter().map(place).collect()
    }
}

/// Whether an argument is copied to its place in few long rows.
fn is_cheap_copy(from: &TensorMeta, to: &TensorMeta) -> bool {
    let are_few = |rows: &[CopyRows]| rows.len() <= MOST_COPIES && rows.iter().all(|row| row.bytes >= LEAST_ROW_BYTES);
    from.is_contiguous() && are_few(&copy_rows(from, to))
}

/// Where what an operation joins lies in the whole; nothing where it joins nothing, or the same twice, or nothing of something.
fn places(facts: &OpFacts<'_>, op: OpId) -> Option<Vec<(TensorId, PartOf)>> {
    let OpFacts { fusion, bindings, .. } = facts;
    let OpKind::Call(call) = &fusion.ops[op].kind else { return None };
    if call.movement().form != Some(Form::Cat) || facts.cuts[op] || facts.host[op] {
        return None;
    }
    let (whole, dim) = (fusion.ops[op].output(), call.axis("dim"));
    let whole_meta = TensorMeta::contiguous(fusion.tensors[whole].dtype, &bindings.sizes(fusion, whole));
    let bytes = whole_meta.dtype.bytes() as i64;
    let (mut found, mut start): (Vec<(TensorId, PartOf)>, i64) = (Vec::new(), 0);
    for part in fusion.tensor_inputs(op) {
        let sizes = bindings.sizes(fusion, part);
        if sizes.contains(&0) || found.iter().any(|(other, _)| *other == part) {
            return None;
        }
        let offset = u64::try_from(start.checked_mul(whole_meta.strides[dim])?.checked_mul(bytes)?).ok()?;
        start += sizes[dim];
        let meta = TensorMeta { dtype: whole_meta.dtype, sizes, strides: whole_meta.strides.clone() };
        found.push((part, PartOf { whole, whole_meta: whole_meta.clone(), meta, offset }));
    }
    (found.len() > 1).then_some(found)
}
