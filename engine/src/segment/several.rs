//! A whole that is no one kernel.
//!
//! In: a whole with its sizes, how arguments and results lie, and which results are views. Out: its segments, and the tensors
//! that are parts of others. First as groups whose kernels write parts of what is joined, if there are such; where one of
//! these is refused, as groups of which some join; and where a kernel of rows and columns is refused, without any such.

use super::aliases::Aliases;
use super::cut::{KernelPlanner, Segment, SegmentCompiler, has_libraries};
use super::derived::Whole;
use super::facts::{OpFacts, argument};
use super::joined::{Joined, Parts};
use super::search::{Groups, search};
use crate::compile::BoundFusion;
use crate::diag::{Diagnostic, Result};
use crate::fusion::Bindings;
use crate::options::Phase;
use crate::tensor::TensorMeta;

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
    pub(super) fn segments(&self, known: Option<OpFacts<'a>>) -> Result<(Vec<Segment>, Parts)> {
        let (facts, nothing) = (known.unwrap_or_else(|| self.facts(true)), Joined::default());
        let cost = |joined: &Joined| {
            let facts = self.facts(true).with_joined(&joined.ops);
            Ok(self.groups(&facts, joined)?.cost_in_bytes())
        };
        let lies = |tensor| argument(&self.whole.fusion, self.bound.args, tensor);
        let joined = Joined::find(&facts, &lies, &self.groups(&facts, &nothing)?, &cost)?;
        if !joined.ops.is_empty()
            && let Some(segments) = self.settle(&self.facts(true).with_joined(&joined.ops), &joined)?
        {
            return Ok((segments, joined.into_parts()));
        }
        if let Some(segments) = self.settle(&facts, &nothing)? {
            return Ok((segments, nothing.into_parts()));
        }
        let refused = || Diagnostic::bug("a kernel of rows alone was taken for one of rows and columns");
        let segments = self.settle(&facts.without_columns(), &nothing)?.ok_or_else(refused)?;
        Ok((segments, nothing.into_parts()))
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

    /// All groups as segments; none where one is refused that is to be known as such.
    fn settle(&self, facts: &OpFacts<'_>, joined: &Joined) -> Result<Option<Vec<Segment>>> {
        let groups = self.groups(facts, joined)?;
        let mut compiler = SegmentCompiler::new(self.planner, self.whole, (facts, joined), self.bound);
        match compiler.set_wanted_strides(self.outputs, self.bound.args) {
            true => compiler.settle(groups),
            false => Ok(None),
        }
    }
}
