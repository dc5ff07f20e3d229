//! Tensors that are joined of what kernels make: each kernel writes its part where that lies in the whole, so that no part is
//! stored by itself and read again to be joined.
//!
//! In: what is known of operations, and groups of them, in which an operation that joins tensors reads some of what other
//! groups make. Out: [`Joined`], the operations that nobody computes for that, with the place of each part: those with which
//! groups move fewer bytes than with others of them, or with none.
//!
//! An argument among what is joined is copied to its place by a kernel ([`copies`](super::copies)).
//!
//! Invariants: each part is made by a kernel and is a part of one whole, of which it is not all; it is no result, and read by
//! kernels alone beside; it has elements. A whole is dense and row-major, and some kernel writes a part of it.

use super::cut::{ALIGN, Segment, SegmentCompiler, SegmentKind, new_segment};
use super::facts::OpFacts;
use super::search::Groups;
use crate::array::row_major_strides;
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::Form;
use crate::fusion::{OpId, OpKind, TensorId};
use crate::schedule::PlacedOutput;
use crate::tensor::TensorMeta;
use crate::util::SecondaryMap;
use std::collections::BTreeSet;

/// Operations that are tried; each takes a search.
const MOST_TRIED: usize = 4;
/// Bytes of memory that are written at once: what a part has less of at the ends of its runs costs as much.
const SECTOR_BYTES: i64 = 32;
/// Bytes of the widest access.
const ACCESS_BYTES: i64 = 16;

/// What it costs to shift rows into place, in parts of what is written.
const SHIFTED: f64 = 0.5;
/// Elements of rows that are reduced, at most, which kernels move as runs of memory where many are one
/// (`schedule::heuristic::short_rows`), so many at least, and bytes that may be moved in the time that each takes more by itself:
/// 200000 rows of 37 and 64 elements of bf16 beside each other take 106 us so on an H200, and 56 where they are stored and joined by
/// another kernel, 300000 of 48 and 24 take 64 and 52.
const SHORT_ROW: i64 = 384;
const MANY_ROWS: i64 = 4096;
const BYTES_OF_SHORT_ROW: i64 = 800;

/// Tensors that are joined of what kernels make.
#[derive(Clone, Debug, Default)]
pub(super) struct Joined {
    /// The operations, in order.
    pub(super) ops: Vec<OpId>,
    places: Places,
}

/// The places of tensors in others, into which kernels write them.
pub(crate) type Places = SecondaryMap<TensorId, Option<Place>>;

/// Where a tensor lies in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The tensor that it is a part of, and how that lies.
    pub(crate) whole: TensorId,
    pub(crate) whole_meta: TensorMeta,
    /// How the part lies.
    pub(crate) meta: TensorMeta,
    /// Where its element 0 is in the whole, in bytes.
    pub(crate) offset: u64,
}

impl Place {
    /// Alignment of its element 0, where that of the whole is `most`.
    pub(super) fn align(&self, most: u32) -> u32 {
        if self.offset == 0 { most } else { most.min(1 << self.offset.trailing_zeros().min(most.trailing_zeros())) }
    }

    /// How a kernel writes it.
    fn placed(&self) -> PlacedOutput {
        let start = self.offset % u64::from(ALIGN) / self.meta.dtype.bytes() as u64;
        PlacedOutput { meta: self.meta.clone(), start: start as u32 }
    }

    /// What it costs more to write this than as many elements side by side, in bytes: where runs are no whole sectors those are
    /// written all the same, rows that start elsewhere are shifted, and short ones that are reduced are moved one by one.
    fn extra_bytes(&self, is_reduced: bool) -> i64 {
        let bytes = self.meta.dtype.bytes() as i64;
        let dense = row_major_strides(&self.meta.sizes);
        // The innermost axis along which it has gaps, and so what is one run.
        let is_gap = |axis: &usize| self.meta.sizes[*axis] > 1 && self.meta.strides[*axis] != dense[*axis];
        let Some(gap) = (0..dense.len()).rev().find(is_gap) else { return 0 };
        let (run, pitch) = (dense[gap] * bytes, self.meta.strides[gap] * bytes);
        let rows = self.meta.sizes[..=gap].iter().fold(1i64, |rows, size| rows.saturating_mul(*size));
        let starts = |unit: i64| pitch % unit == 0 && self.offset.is_multiple_of(unit as u64);
        let touched = match starts(SECTOR_BYTES) {
            true => (run + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES,
            false => run + SECTOR_BYTES,
        };
        let shifted = if run % ACCESS_BYTES == 0 && !starts(ACCESS_BYTES) { (run as f64 * SHIFTED) as i64 } else { 0 };
        let divides = run.count_ones() == 1 && starts(ACCESS_BYTES);
        let is_short = is_reduced && dense[gap] <= SHORT_ROW && rows >= MANY_ROWS && !divides;
        let alone = if is_short { BYTES_OF_SHORT_ROW } else { 0 };
        rows.saturating_mul(touched - run + shifted + alone)
    }
}

impl Joined {
    /// Where a kernel writes a tensor into another, that place.
    pub(super) fn place_of(&self, tensor: TensorId) -> Option<&Place> {
        self.places[tensor].as_ref()
    }

    /// The places of all tensors.
    pub(super) fn into_places(self) -> Places {
        self.places
    }

    /// What kernels write in place of what an operation joins.
    fn written<'a>(&'a self, facts: &'a OpFacts<'_>, op: OpId) -> impl Iterator<Item = (TensorId, &'a Place)> {
        facts.fusion.tensor_inputs(op).filter_map(|tensor| Some((tensor, self.place_of(tensor)?)))
    }

    /// The strides of the whole that an operation joins, and of what kernels write there.
    pub(super) fn strides<'a>(
        &'a self,
        facts: &'a OpFacts<'_>,
        op: OpId,
    ) -> impl Iterator<Item = (TensorId, &'a [i64])> {
        let whole = self.written(facts, op).next().map(|(_, place)| (place.whole, &place.whole_meta.strides[..]));
        whole.into_iter().chain(self.written(facts, op).map(|(tensor, place)| (tensor, &place.meta.strides[..])))
    }

    /// The whole that an operation joins.
    pub(super) fn whole<'a>(&'a self, facts: &'a OpFacts<'_>, op: OpId) -> Option<&'a TensorMeta> {
        self.written(facts, op).next().map(|(_, place)| &place.whole_meta)
    }

    /// The operations that join some of these tensors.
    pub(super) fn joins_of(&self, facts: &OpFacts<'_>, tensors: &[TensorId]) -> Vec<OpId> {
        let wholes: BTreeSet<TensorId> =
            tensors.iter().filter_map(|tensor| self.place_of(*tensor)).map(|place| place.whole).collect();
        self.ops.iter().copied().filter(|op| wholes.contains(&facts.fusion.ops[*op].output())).collect()
    }

    /// With all of some operations that may be joined so.
    pub(super) fn of(facts: &OpFacts<'_>, ops: impl IntoIterator<Item = OpId>) -> Self {
        ops.into_iter().fold(Self::default(), |joined, op| joined.and(facts, op))
    }

    /// What pays to be joined so, given the groups that there are otherwise. `search` has what groups move where some operations are.
    pub(super) fn find(
        facts: &OpFacts<'_>,
        groups: &Groups<'_>,
        search: &dyn Fn(&Self) -> Result<i64>,
    ) -> Result<Self> {
        let may_pay = |op: &OpId| groups.joins_stored(*op) || groups.bytes_for_nothing(*op) > 0;
        let mut candidates: Vec<OpId> = facts.fusion.ops.ids().filter(may_pay).collect();
        candidates.truncate(MOST_TRIED);
        let (mut best, mut least) = (Self::default(), groups.moved_bytes());
        let mut try_ops = |best: &mut Self, ops: Vec<OpId>| {
            let joined = Self::of(facts, ops);
            if joined.ops != best.ops {
                let extra =
                    joined.ops.iter().map(|op| joined.extra_bytes(facts, groups, *op)).fold(0, i64::saturating_add);
                let cost = search(&joined)?.saturating_add(extra);
                if cost < least {
                    (*best, least) = (joined, cost);
                }
            }
            Ok::<_, Box<Diagnostic>>(())
        };
        // All together first: of most programs all pay.
        try_ops(&mut best, candidates.clone())?;
        for &op in candidates.iter().filter(|_| candidates.len() > 1) {
            let is_in = best.ops.contains(&op);
            // What costs nothing is no loss that others hide.
            if !is_in || best.extra_bytes(facts, groups, op) > 0 {
                let other = candidates.iter().copied().filter(|own| best.ops.contains(own) != (*own == op)).collect();
                try_ops(&mut best, other)?;
            }
        }
        Ok(best)
    }

    /// With one more operation, if what it joins may be written so.
    fn and(mut self, facts: &OpFacts<'_>, op: OpId) -> Self {
        if let Some(places) = places(facts, op)
            && places.iter().all(|(part, _)| self.may_be_part(facts, op, *part))
        {
            self.ops.push(op);
            places.into_iter().for_each(|(part, place)| self.places.set(part, Some(place)));
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
            && self.place_of(part).is_none()
            && facts.readers[part].iter().all(is_kernels)
    }

    /// What it costs to write what an operation joins in its places, and not as many elements side by side. `groups` are those
    /// that make it.
    fn extra_bytes(&self, facts: &OpFacts<'_>, groups: &Groups<'_>, op: OpId) -> i64 {
        let is_reduced = |part: TensorId| facts.fusion.definition(part).is_some_and(|made| groups.reduce_with(made));
        let extra = self.written(facts, op).map(|(part, place)| place.extra_bytes(is_reduced(part)));
        extra.fold(0, i64::saturating_add)
    }
}

impl SegmentCompiler<'_> {
    /// A group of an operation that joins what kernels wrote in place, and how that is aligned.
    pub(super) fn join(&self, groups: &Groups<'_>, position: usize) -> Result<Option<(Segment, u32)>> {
        let [op] = groups.ops[position][..] else { return Ok(None) };
        let Some(whole) = self.joined.whole(self.facts, op).filter(|_| self.facts.joined[op]) else { return Ok(None) };
        let is_there = |part: TensorId| {
            let known = self.metas[part].as_ref().map(|known| &known.meta);
            known.is_some() && known == self.joined.place_of(part).map(|place| &place.meta)
        };
        if !self.facts.fusion.tensor_inputs(op).all(is_there) {
            return Err(Diagnostic::bug("a part of what is joined was not written where it lies"));
        }
        let part = self.part(groups, position)?;
        Ok(Some((new_segment(&part.part, SegmentKind::Joined, vec![whole.clone()]), ALIGN)))
    }

    /// How kernels write tensors that have places in others.
    pub(super) fn placed(&self, tensors: &[TensorId]) -> Vec<Option<PlacedOutput>> {
        tensors.iter().map(|tensor| self.joined.place_of(*tensor).map(Place::placed)).collect()
    }
}

/// Where what an operation joins lies in the whole; nothing where it joins nothing, or the same twice, or nothing of something.
fn places(facts: &OpFacts<'_>, op: OpId) -> Option<Vec<(TensorId, Place)>> {
    let OpFacts { fusion, bindings, .. } = facts;
    let OpKind::Call(call) = &fusion.ops[op].kind else { return None };
    if call.movement().form != Some(Form::Cat) || facts.cuts[op] || facts.host[op] {
        return None;
    }
    let (whole, dim) = (fusion.ops[op].output(), call.axis("dim"));
    let whole_meta = TensorMeta::contiguous(fusion.tensors[whole].dtype, &bindings.sizes(fusion, whole));
    let bytes = whole_meta.dtype.bytes() as i64;
    let (mut found, mut start): (Vec<(TensorId, Place)>, i64) = (Vec::new(), 0);
    for part in fusion.tensor_inputs(op) {
        let sizes = bindings.sizes(fusion, part);
        if sizes.contains(&0) || found.iter().any(|(other, _)| *other == part) {
            return None;
        }
        let offset = u64::try_from(start.checked_mul(whole_meta.strides[dim])?.checked_mul(bytes)?).ok()?;
        start += sizes[dim];
        let meta = TensorMeta { dtype: whole_meta.dtype, sizes, strides: whole_meta.strides.clone() };
        found.push((part, Place { whole, whole_meta: whole_meta.clone(), meta, offset }));
    }
    (found.len() > 1).then_some(found)
}
