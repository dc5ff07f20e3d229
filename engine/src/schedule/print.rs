//! Schedules as text: one primitive a line.

use super::ir::{ParallelType, ScheduledFusion, Step};
use std::fmt::{self, Display, Formatter};

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
            Step::CircularBuffer { tensor, stages } => write!(f, "circular_buffer %{tensor} {stages}"),
            Step::SetCacheHint { tensor, hint } => {
                write!(f, "set_cache_hint %{tensor} {}", format!("{hint:?}").to_lowercase())
            }
            Step::MinBlocks(blocks) => write!(f, "min_blocks {blocks}"),
            Step::Parallelize { axis, parallel } => write!(f, "parallelize {axis} {}", parallel.name()),
            Step::CacheAfter { tensor } => write!(f, "cache_after %{tensor}"),
            Step::CacheBefore { tensor } => write!(f, "cache_before %{tensor}"),
            Step::CacheFork { tensor, consumer } => write!(f, "cache_fork %{tensor} for %{consumer}"),
            Step::Rfactor { tensor, axes } => write!(f, "rfactor %{tensor} over {}", axes.join(", ")),
            Step::SetMemory { tensor, memory } => {
                write!(f, "set_memory %{tensor} {}", format!("{memory:?}").to_lowercase())
            }
            Step::Reorder { tensor, axes } => write!(f, "reorder %{tensor} {}", axes.join(", ")),
            Step::Loops { tensor, loops } => {
                write!(f, "loops %{tensor}")?;
                loops.iter().enumerate().try_for_each(|(at, (axis, parallel))| {
                    let comma = if at == 0 { "" } else { "," };
                    write!(f, "{comma} {axis}")?;
                    match parallel {
                        ParallelType::Serial => Ok(()),
                        _ => write!(f, " -> {}", parallel.name()),
                    }
                })
            }
            Step::Alloc { tensor, axes, by, every } => {
                write!(f, "alloc %{tensor} {}", axes.join(", "))?;
                if *by > 0 { write!(f, " rotate {by} every {every}") } else { Ok(()) }
            }
            Step::InlineAt { tensor, position } => write!(f, "inline_at %{tensor} {position}"),
            Step::RecomputeIn { tensor, axis } => write!(f, "recompute_in %{tensor} {axis}"),
            Step::Propagate { order } => write!(f, "propagate {}", order.join(", ")),
        }
    }
}

impl ScheduledFusion {
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
