//! Orders in which operations are placed into groups.
//!
//! In: [`OpFacts`]. Out: [`Order`], each operation after those that it reads from. An operation that is placed early
//! is rarely refused, so what is placed first decides what later operations are kept from.
//!
//! Invariant: but for that of definition, orders follow from operands, results and sizes alone. So the same
//! computations written in another order of statements are placed alike.

use super::facts::OpFacts;
use crate::fusion::{OpId, OpKind, TensorId};
use crate::util::{SecondaryMap, sort_by_key};
use std::cmp::Reverse;

/// All operations of a fusion, each after those that it reads from.
pub(super) struct Order {
    pub(super) ops: Vec<OpId>,
    /// The position of each.
    pub(super) place: SecondaryMap<OpId, usize>,
}

impl Order {
    /// Those that only follow from what is computed.
    pub(super) const BY_STRUCTURE: [fn(&OpFacts<'_>) -> Self; 3] =
        [Self::largest_first, Self::by_reductions, Self::smallest_first];

    fn new(ops: Vec<OpId>) -> Self {
        let mut place = SecondaryMap::new();
        for (position, op) in ops.iter().enumerate() {
            place.set(*op, position);
        }
        Self { ops, place }
    }

    /// As the fusion is written.
    pub(super) fn of_definition(facts: &OpFacts<'_>) -> Self {
        Self::new(facts.fusion.ops.ids().collect())
    }

    /// All that the largest result is made of, then what the next one needs beside it: a sum of what a large result is
    /// made of too does not keep that result from its rows.
    fn largest_first(facts: &OpFacts<'_>) -> Self {
        Self::by_results(facts, true)
    }

    /// The other way round: what sums are made of is not kept from them.
    fn smallest_first(facts: &OpFacts<'_>) -> Self {
        Self::by_results(facts, false)
    }

    /// All that a result is made of, operand by operand, and then the next result; from large to small, or back.
    fn by_results(facts: &OpFacts<'_>, from_largest: bool) -> Self {
        let fusion = facts.fusion;
        let updates = fusion.updates.iter().map(|update| &update.tensor);
        let mut results: Vec<TensorId> = fusion.outputs.iter().chain(updates).copied().collect();
        sort_by_key(&mut results, |result| Reverse(facts.bytes[*result]));
        if !from_largest {
            results.reverse();
        }
        let mut seen: SecondaryMap<OpId, bool> = SecondaryMap::new();
        let mut ops = Vec::new();
        // What nobody returns comes last.
        let ends = results.iter().filter_map(|result| fusion.definition(*result)).chain(fusion.ops.ids());
        for end in ends {
            let mut stack = vec![(end, false)];
            while let Some((op, is_done)) = stack.pop() {
                if is_done {
                    ops.push(op);
                } else if !seen[op] {
                    seen.set(op, true);
                    stack.push((op, true));
                    let before: Vec<OpId> =
                        fusion.tensor_inputs(op).filter_map(|tensor| fusion.definition(tensor)).collect();
                    stack.extend(before.into_iter().rev().map(|op| (op, false)));
                }
            }
        }
        Self::new(ops)
    }

    /// What no reduction is behind, then what one is behind, and so on: reductions that do not depend on each other follow
    /// each other.
    fn by_reductions(facts: &OpFacts<'_>) -> Self {
        let fusion = facts.fusion;
        let mut depth: SecondaryMap<OpId, usize> = SecondaryMap::new();
        for op in fusion.ops.ids() {
            let before = fusion.tensor_inputs(op).filter_map(|tensor| fusion.definition(tensor));
            let deepest = before.map(|op| depth[op]).max().unwrap_or(0);
            let is_reduction = matches!(fusion.ops[op].kind, OpKind::Reduce { .. });
            depth.set(op, deepest + usize::from(is_reduction || facts.host[op]));
        }
        let mut ops = Self::largest_first(facts).ops;
        sort_by_key(&mut ops, |op| depth[*op]);
        Self::new(ops)
    }
}
