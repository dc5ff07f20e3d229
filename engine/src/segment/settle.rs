//! Groups that become segments, one after the other.
//!
//! In: groups in order, and what is known of their operations. Out: [`Settled`], a segment for each group, or what is not to be
//! done as it was thought. A group that is refused as a kernel is cut in two, down to single operations, which are views, or
//! are computed by a library or the host.
//!
//! Invariant: a kernel is accepted before anything reads what it writes, so that readers know how that lies.

use super::ahead::{Ahead, Candidate};
use super::cut::{ALIGN, Segment, SegmentCompiler, SegmentKind, place};
use super::facts::OpFacts;
use super::search::Groups;
use crate::diag::{Diagnostic, Result};
use crate::fusion::OpId;

/// What becomes of groups.
pub(super) enum Settled {
    Segments(Vec<Segment>),
    Undo(Undo),
}

/// What is not to be done, since a kernel is refused that would do it.
pub(super) enum Undo {
    /// Operations whose parts kernels were to write in place.
    Joins(Vec<OpId>),
    /// Reductions over rows and columns in one kernel.
    Columns,
}

/// What becomes of one group.
enum Outcome {
    /// A segment, and how its results are aligned.
    Segment(Segment, u32),
    /// It is other groups now.
    Cut,
    /// Groups before it hand on what it does not repeat any more: all begins anew.
    Anew,
    Undo(Undo),
    /// Something is wrong with it. Those behind it are compiled as if it were not: there may be more to tell.
    Wrong(Box<Diagnostic>, Box<Candidate>),
    /// Something is wrong with it, and nothing is known of what it would return: nothing behind it is compiled.
    Ends(Box<Diagnostic>),
}

impl<'a> SegmentCompiler<'a> {
    /// All groups as segments. What is wrong with several is told together.
    pub(super) fn settle(&mut self, mut groups: Groups<'a>) -> Result<Settled> {
        let mut ahead = Ahead::new(self, &groups);
        let mut segments: Vec<Segment> = Vec::new();
        let mut errors: Vec<Box<Diagnostic>> = Vec::new();
        while segments.len() + errors.len() < groups.ops.len() {
            match self.group(&mut groups, segments.len() + errors.len(), &mut ahead)? {
                Outcome::Segment(segment, align) => {
                    self.know(&segment.outputs, &segment.metas, align);
                    segments.push(segment);
                }
                Outcome::Cut => {}
                Outcome::Anew => {
                    segments.clear();
                    errors.clear();
                }
                Outcome::Undo(undo) => return Ok(Settled::Undo(undo)),
                Outcome::Wrong(error, candidate) => {
                    errors.push(error);
                    self.know(&candidate.part.part.outputs, &candidate.metas, ALIGN);
                }
                Outcome::Ends(error) => {
                    errors.push(error);
                    break;
                }
            }
        }
        Diagnostic::together(errors).map_or_else(|| Ok(Settled::Segments(segments)), Err)
    }

    /// What becomes of one group.
    fn group(&self, groups: &mut Groups<'a>, position: usize, ahead: &mut Ahead) -> Result<Outcome> {
        if let Some((segment, align)) = self.join(groups, position)? {
            return Ok(Outcome::Segment(segment, align));
        }
        if let Some((segment, align)) = self.alias(groups, position)? {
            return Ok(Outcome::Segment(segment, align));
        }
        let (candidate, planned) = match ahead.kernel(self, groups, position) {
            Ok(found) => found,
            Err(error) => return Ok(Outcome::Ends(error)),
        };
        match planned {
            Ok(Ok(plan)) => Ok(Outcome::Segment(candidate.into_segment(SegmentKind::Kernel(plan)), ALIGN)),
            Ok(Err(refusal)) => self.refused(groups, position, &candidate, refusal),
            Err(error) => {
                let error = error.note(place(self.facts.fusion, position, &candidate.part.part.fusion));
                Ok(Outcome::Wrong(error, Box::new(candidate)))
            }
        }
    }

    /// What becomes of a group that is refused as a kernel.
    fn refused(
        &self,
        groups: &mut Groups<'a>,
        position: usize,
        candidate: &Candidate,
        refusal: Box<Diagnostic>,
    ) -> Result<Outcome> {
        let joins = self.joined.joins_of(self.facts, &candidate.part.part.outputs);
        if !joins.is_empty() {
            return Ok(Outcome::Undo(Undo::Joins(joins)));
        }
        if self.facts.has_columns_beside_rows(&groups.ops[position]) {
            return Ok(Outcome::Undo(Undo::Columns));
        }
        if groups.read_instead(position) {
            return Ok(Outcome::Anew);
        }
        if !self.is_off_kernel(groups, position, candidate)? {
            groups.halve(position);
            return Ok(if groups.repeat_in_halves(position) { Outcome::Anew } else { Outcome::Cut });
        }
        Ok(self
            .alone(groups, position, refusal)
            .map_or_else(Outcome::Ends, |(own, align)| Outcome::Segment(own, align)))
    }

    /// Whether a group that is no kernel is not to be cut any more: it is one operation, or a library's.
    fn is_off_kernel(&self, groups: &Groups<'_>, position: usize, candidate: &Candidate) -> Result<bool> {
        let ops = &groups.ops[position];
        let is_with_product = |op: &OpId| self.facts.with_product[*op] == ops.first().copied();
        Ok(ops.len() == 1 || (ops[1..].iter().all(is_with_product) && self.library(&candidate.part.part)?.is_some()))
    }

    /// An operation that is no kernel, and how its result is aligned.
    fn alone(&self, groups: &Groups<'_>, position: usize, refusal: Box<Diagnostic>) -> Result<(Segment, u32)> {
        match self.view(groups, position, true)? {
            Some(view) => Ok(view),
            None => Ok((self.without_kernel(groups, position, refusal)?, ALIGN)),
        }
    }

    /// A group of an operation whose result is a view of what it reads: one that is returned, if that
    /// lies as it was expected to, or that products see, if nothing is copied for it.
    fn alias(&self, groups: &Groups<'_>, position: usize) -> Result<Option<(Segment, u32)>> {
        let OpFacts { fusion, aliases, seen_by_products, .. } = self.facts;
        match groups.ops[position][..] {
            [op] if seen_by_products[op] => self.view(groups, position, false),
            [op] if aliases.ops[op] => {
                let view = self.view(groups, position, true)?;
                Ok(view.filter(|(view, _)| aliases.fits(fusion.ops[op].output(), &view.metas[0])))
            }
            _ => Ok(None),
        }
    }
}
