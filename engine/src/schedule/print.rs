//! Schedules as text: one primitive a line.

use super::ir::{Columns, Loop, ParallelType, ScheduledFusion, Step, TvId};
use crate::kernel::CacheHint;
use std::fmt::{self, Display, Formatter};

/// Cache hints by name.
pub(super) const HINTS: [(&str, CacheHint); 4] = [
    ("default", CacheHint::Default),
    ("streaming", CacheHint::Streaming),
    ("global", CacheHint::Global),
    ("again", CacheHint::Again),
];

fn hint_name(hint: CacheHint) -> &'static str {
    HINTS.iter().find(|(_, known)| *known == hint).map_or("", |(name, _)| name)
}

/// Writes items with a separator between them.
fn listed<T>(
    f: &mut Formatter<'_>,
    items: &[T],
    mut item: impl FnMut(&mut Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    items.iter().enumerate().try_for_each(|(at, one)| {
        f.write_str(if at == 0 { " " } else { ", " })?;
        item(f, one)
    })
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Step::Split { axis, factor, count, exact } => {
                write!(f, "split {axis} by {factor}")?;
                if let Some(count) = count {
                    write!(f, " count {count}")?;
                }
                if *exact { write!(f, " exact") } else { Ok(()) }
            }
            Step::SplitParts { axis, places, beside, exact } => {
                write!(f, "split {axis} into {places}")?;
                if let Some(beside) = beside {
                    write!(f, " per {beside}")?;
                }
                if *exact { write!(f, " exact") } else { Ok(()) }
            }
            Step::Merge { outer, inner } => write!(f, "merge {outer}, {inner}"),
            Step::Align { axis, vector, reference, rows } => {
                write!(f, "align {axis} to {vector} of %{reference}")?;
                rows.as_ref().map_or(Ok(()), |rows| write!(f, " by {rows}"))
            }
            Step::Window { axis, outer, step, width, left, aligned } => {
                write!(f, "window {axis} at {outer} by {step} width {width}")?;
                if *left > 0 {
                    write!(f, " left {left}")?;
                }
                aligned.as_ref().map_or(Ok(()), |(vector, tensor)| write!(f, " align {vector} of %{tensor}"))
            }
            Step::CircularBuffer { tensor, stages } => write!(f, "circular_buffer %{tensor} {stages}"),
            Step::SetCacheHint { tensor, hint } => {
                write!(f, "set_cache_hint %{tensor} {}", hint_name(*hint))
            }
            Step::MinBlocks(blocks) => write!(f, "min_blocks {blocks}"),
            Step::Parallelize { axis, parallel } => write!(f, "parallelize {axis} {}", parallel.name()),
            Step::CacheAfter { tensor } => write!(f, "cache_after %{tensor}"),
            Step::CacheBefore { tensor } => write!(f, "cache_before %{tensor}"),
            Step::CacheFork { tensor, consumer } => write!(f, "cache_fork %{tensor} for %{consumer}"),
            Step::Rfactor { tensor, axes } => write!(f, "rfactor %{tensor} over {}", axes.join(", ")),
            Step::SetMemory { tensor, memory } => {
                write!(f, "set_memory %{tensor} {}", memory.name())
            }
            Step::Reorder { tensor, axes } => {
                f.write_str("reorder")?;
                tensor.as_ref().map_or(Ok(()), |tensor| write!(f, " %{tensor}"))?;
                write!(f, " {}", axes.join(", "))
            }
            Step::Loops { tensor, loops } => {
                write!(f, "loops %{tensor}")?;
                listed(f, loops, |f, (axis, parallel)| match parallel {
                    ParallelType::Serial => f.write_str(axis),
                    _ => write!(f, "{axis} -> {}", parallel.name()),
                })
            }
            Step::Alloc { tensor, axes, columns } => {
                write!(f, "alloc %{tensor} {}", axes.join(", "))?;
                match columns {
                    Columns::InOrder => Ok(()),
                    Columns::Rotated { by, every } => write!(f, " rotate {by} every {every}"),
                    Columns::Swizzled { groups, every } => write!(f, " swizzle {groups} every {every}"),
                }
            }
            Step::InlineAt { tensor, position } => write!(f, "inline_at %{tensor} {position}"),
            Step::RecomputeIn { tensor, axis } => write!(f, "recompute_in %{tensor} {axis}"),
            Step::InlineMost { keep } => {
                f.write_str(if keep.is_empty() { "inline_most" } else { "inline_most keep" })?;
                listed(f, keep, |f, (tensor, position)| write!(f, "%{tensor} {position}"))
            }
            Step::Propagate { order } => {
                f.write_str("propagate")?;
                listed(f, order, |f, axis| f.write_str(axis))
            }
        }
    }
}

impl ScheduledFusion {
    /// The loops of a tensor in words.
    pub(super) fn loops_text(&self, tv: TvId) -> String {
        let data = &self.tensors[tv];
        if data.loops.is_empty() {
            return format!("%{} has no loops", data.name);
        }
        let one = |own: &Loop| match own.parallel {
            ParallelType::Serial => self.axes[own.axis].name.clone(),
            parallel => format!("{} -> {}", self.axes[own.axis].name, parallel.name()),
        };
        let loops: Vec<String> = data.loops.iter().map(one).collect();
        format!("%{} has loops over {}", data.name, loops.join(", "))
    }

    /// The schedule as text.
    pub fn schedule_text(&self) -> String {
        let mut text = String::new();
        for step in &self.steps {
            text.push_str(&step.to_string());
            text.push('\n');
        }
        text
    }
}
