//! A whole that is no one kernel.
//!
//! In: a whole with its sizes, how arguments and results lie, and which results are views. Out: its segments, and the tensors
//! that have places in others. First as groups whose kernels write what is joined in place, where that pays, and reduce over rows
//! and columns; then without what of that is refused, until nothing is.

use super::aliases::Aliases;
use super::cut::{KernelPlanner, Segment, SegmentCompiler, has_libraries};
use super::derived::Whole;
use super::facts::{OpFacts, is_join};
use super::joined::{Joined, Places};
use super::search::{Groups, search};
use super::settle::{Settled, Undo};
use crate::compile::BoundFusion;
use crate::diag::{Diagnostic, Result};
use crate::fusion::{Bindings, Fusion, OpKind};
use crate::options::Phase;
use crate::tensor::TensorMeta;

/// Whether something is joined, and long functions are computed, maybe of that.
pub(super) fn has_joins_and_long_functions(fusion: &Fusion) -> bool {
    let kinds = || fusion.ops.values().map(|op| &op.kind);
    kinds().any(is_join) && kinds().any(|kind| matches!(kind, OpKind::Unary(function) if function.is_long()))
}

/// Whether one kernel of all would compute long functions of what it joins that are not used, so that others may be better.
pub(super) fn computes_for_nothing(facts: &OpFacts<'_>) -> bool {
    let one = Groups::new(facts, vec![facts.fusion.ops.ids().collect()]);
    facts.fusion.ops.ids().any(|op| one.bytes_for_nothing(op) > 0)
}

/// What is cut.
pub(super) struct Several<'a> {
    pub(super) planner: KernelPlanner<'a>,
    pub(super) whole: &'a Whole,
    pub(super) bindings: &'a Bindings,
    pub(super) aliases: &'a Aliases,
    /// The definition.
    pub(super) bound: &'a BoundFusion<'a>,
    /// How its results lie.
    pub(super) outputs: &'a [TensorMeta],
}

impl<'a> Several<'a> {
    /// What is known of operations; `with_online` says whether a maximum and a sum may be reduced in one go.
    pub(super) fn facts(&self, with_online: bool) -> OpFacts<'a> {
        let Self { planner: KernelPlanner { cx, .. }, whole, bindings, aliases, bound, outputs } = self;
        let with = (has_libraries(cx), with_online);
        OpFacts::new(cx.device, &whole.fusion, bindings, &whole.cuts, aliases, (bound.args, *outputs), with)
    }

    /// Its segments, given what is known of its operations, if that was asked before.
    pub(super) fn segments(&self, known: Option<OpFacts<'a>>) -> Result<(Vec<Segment>, Places)> {
        let facts = known.unwrap_or_else(|| self.facts(true));
        let moved = |joined: &Joined| {
            let facts = self.facts(true).with_joined(&joined.ops);
            Ok(self.groups(&facts, joined)?.moved_bytes())
        };
        let mut joined = Joined::find(&facts, &self.groups(&facts, &Joined::default())?, &moved)?;
        let mut has_columns = true;
        loop {
            let own = self.facts(true).with_joined(&joined.ops);
            let own = if has_columns { own } else { own.without_columns() };
            let refused = match self.settle(&own, &joined)? {
                Settled::Segments(segments) => return Ok((segments, joined.into_places())),
                Settled::Undo(Undo::Joins(refused)) => refused,
                Settled::Undo(Undo::Columns) if has_columns => {
                    has_columns = false;
                    continue;
                }
                Settled::Undo(Undo::Columns) => {
                    return Err(Diagnostic::bug("a kernel of rows alone was taken for one of rows and columns"));
                }
            };
            let all = joined.ops.len();
            joined = Joined::of(&facts, joined.ops.into_iter().filter(|op| !refused.contains(op)));
            if joined.ops.len() == all {
                return Err(Diagnostic::bug("a kernel was taken for one that writes into a whole"));
            }
        }
    }

    /// The groups of operations, looked for where sizes like these are new.
    fn groups<'f>(&self, facts: &'f OpFacts<'f>, joined: &Joined) -> Result<Groups<'f>> {
        let found = || {
            let groups = search(facts);
            match facts.stores_online(&groups) {
                true => search(&self.facts(false).with_joined(&joined.ops)).ops,
                false => groups.ops,
            }
        };
        let cx = self.planner.cx;
        let groups = self.whole.groups(facts, || cx.span(Phase::Schedule, "segment", 0, found))?;
        Ok(Groups::new(facts, groups.to_vec()))
    }

    /// All groups as segments, or what is refused of how they are thought.
    fn settle(&self, facts: &OpFacts<'_>, joined: &Joined) -> Result<Settled> {
        let groups = self.groups(facts, joined)?;
        let mut compiler = SegmentCompiler::new(self.planner, self.whole, (facts, joined), self.bound);
        let refused = compiler.set_wanted_strides(self.outputs, self.bound.args);
        if refused.is_empty() { compiler.settle(groups) } else { Ok(Settled::Undo(Undo::Joins(refused))) }
    }
}
