//! Applies steps to an unscheduled fusion, through the verbs of the [`ScheduleBuilder`].
//!
//! In: the working copy, steps with their places. Out: the scheduled fusion. What a verb
//! refuses is told at the step's line, what names nothing at the name. Invariant: the steps that
//! a builder recorded give the same scheduled fusion again.

use super::builder::ScheduleBuilder;
use super::ir::{Loop, ScheduledFusion, Step, Tile, TvId};
use super::parse::{PlacedStep, parse_schedule, parse_steps};
use super::windows::Windows;
use crate::axes::{AxisId, Parts};
use crate::diag::{Diagnostic, Result, code};
use crate::util::{SecondaryMap, edit_distance, sort_by_key};
use std::collections::BTreeMap;

/// Names of a fusion that an error tells.
const MAX_TOLD: usize = 24;

/// Schedules a fusion as a text says.
pub fn schedule_by_text(unscheduled: &ScheduledFusion, text: &str) -> Result<ScheduledFusion> {
    replay(unscheduled, &parse_schedule(text)?)
}

/// Checks that a schedule reads back from its text, and gives the same when it is applied again.
pub fn check_text(unscheduled: &ScheduledFusion, scheduled: &ScheduledFusion) -> Result<()> {
    let text = scheduled.schedule_text();
    let same = match parse_steps(&text) {
        Ok(steps) => {
            steps.iter().map(|placed| &placed.step).eq(&scheduled.steps) && replay(unscheduled, &steps)? == *scheduled
        }
        Err(_) => false,
    };
    if same {
        return Ok(());
    }
    let message = format!("the schedule of fusion @{} does not read back from its text", scheduled.fusion.name);
    Err(Diagnostic::bug(message).note(text))
}

/// Applies steps to an unscheduled fusion.
pub fn replay(unscheduled: &ScheduledFusion, steps: &[PlacedStep]) -> Result<ScheduledFusion> {
    let mut replay = Replay {
        builder: ScheduleBuilder::new(unscheduled.clone()),
        axes: BTreeMap::new(),
        tensors: BTreeMap::new(),
        known: (0, 0),
        consumers: None,
    };
    for placed in steps {
        replay.learn();
        replay.apply(placed).map_err(|error| match error.labels.is_empty() {
            true => error.label(placed.span, ""),
            false => error,
        })?;
    }
    Ok(replay.builder.finish())
}

struct Replay {
    builder: ScheduleBuilder,
    axes: BTreeMap<String, AxisId>,
    tensors: BTreeMap<String, TvId>,
    /// Axes and tensors whose names are known.
    known: (usize, usize),
    /// Those of all tensors, from one step on that inlines until one that does something else: a
    /// schedule has one such step for each tensor.
    consumers: Option<SecondaryMap<TvId, Vec<TvId>>>,
}

impl Replay {
    /// Takes in the names of what was made since.
    fn learn(&mut self) {
        let state = self.builder.state();
        let (axes, tensors) = (state.axes.len() - self.known.0, state.tensors.len() - self.known.1);
        self.axes.extend(state.axes.iter().rev().take(axes).map(|(axis, data)| (data.name.clone(), axis)));
        self.tensors.extend(state.tensors.iter().rev().take(tensors).map(|(tv, data)| (data.name.clone(), tv)));
        self.known = (state.axes.len(), state.tensors.len());
    }

    fn axis(&self, placed: &PlacedStep, name: &str) -> Result<AxisId> {
        let found = self.axes.get(name).copied();
        found.ok_or_else(|| unknown(placed, name, format!("there is no axis {name}"), self.axes.keys()))
    }

    fn parts(&self, placed: &PlacedStep, places: i64, beside: Option<&str>) -> Result<Parts> {
        Ok(Parts { places, beside: beside.map(|beside| self.axis(placed, beside)).transpose()? })
    }

    fn all_axes(&self, placed: &PlacedStep, names: &[String]) -> Result<Vec<AxisId>> {
        names.iter().map(|name| self.axis(placed, name)).collect()
    }

    fn tensor(&self, placed: &PlacedStep, name: &str) -> Result<TvId> {
        let found = self.tensors.get(name).copied();
        found.ok_or_else(|| unknown(placed, name, format!("there is no tensor %{name}"), self.tensors.keys()))
    }

    fn apply(&mut self, placed: &PlacedStep) -> Result<()> {
        if !matches!(placed.step, Step::InlineAt { .. }) {
            self.consumers = None;
        }
        match &placed.step {
            Step::Split { axis, factor, count, exact } => {
                let axis = self.axis(placed, axis)?;
                match count {
                    Some(count) => self.builder.split_cover(axis, *count, *factor, *exact).map(drop),
                    None => self.builder.split(axis, *factor, *exact).map(drop),
                }
            }
            Step::SplitParts { axis, places, beside, exact } => {
                let (axis, parts) = (self.axis(placed, axis)?, self.parts(placed, *places, beside.as_deref())?);
                self.builder.split_parts(axis, parts, *exact).map(drop)
            }
            Step::SplitTurns { axis, places, beside } => {
                let (axis, parts) = (self.axis(placed, axis)?, self.parts(placed, *places, beside.as_deref())?);
                self.builder.split_turns(axis, parts).map(drop)
            }
            Step::Merge { outer, inner } => {
                let (outer, inner) = (self.axis(placed, outer)?, self.axis(placed, inner)?);
                self.builder.merge(outer, inner).map(drop)
            }
            Step::Align { axis, vector, reference, rows } => {
                let (axis, reference) = (self.axis(placed, axis)?, self.tensor(placed, reference)?);
                let rows = rows.as_ref().map(|rows| self.axis(placed, rows)).transpose()?;
                self.builder.align(axis, *vector, reference, rows).map(drop)
            }
            Step::Window { axis, outer, step, width, left, aligned } => {
                let (axis, outer) = (self.axis(placed, axis)?, self.axis(placed, outer)?);
                let aligned = match aligned {
                    Some((vector, of)) => Some((*vector, self.tensor(placed, of)?)),
                    None => None,
                };
                let windows = Windows { step: *step, width: *width, left: *left, aligned };
                self.builder.window(axis, outer, windows).map(drop)
            }
            Step::WindowsBeside { axis, outer, indices, of } => {
                let [axis, outer, of] = [axis, outer, of].map(|axis| self.axis(placed, axis));
                self.builder.windows_beside(axis?, outer?, *indices, of?).map(drop)
            }
            Step::AtLeast { axis, least } => {
                let axis = self.axis(placed, axis)?;
                self.builder.at_least(axis, *least)
            }
            Step::Parallelize { axis, parallel } => {
                let axis = self.axis(placed, axis)?;
                self.builder.parallelize(axis, *parallel)
            }
            Step::Propagate { order } => {
                let order = self.all_axes(placed, order)?;
                self.builder.propagate(&order)
            }
            Step::MinBlocks(blocks) => self.builder.min_blocks(*blocks),
            Step::InlineMost { keep } => {
                let keep = keep.iter().map(|(tensor, position)| Ok((self.tensor(placed, tensor)?, *position)));
                let keep = keep.collect::<Result<Vec<_>>>()?;
                self.builder.inline_most(&keep)
            }
            Step::Reorder { tensor: None, axes } => {
                let axes = self.all_axes(placed, axes)?;
                self.builder.reorder_all(&axes)
            }
            Step::CacheAfter { tensor }
            | Step::CacheBefore { tensor }
            | Step::CacheFork { tensor, .. }
            | Step::Rfactor { tensor, .. }
            | Step::RfactorMax { tensor, .. }
            | Step::SetMemory { tensor, .. }
            | Step::Reorder { tensor: Some(tensor), .. }
            | Step::InlineAt { tensor, .. }
            | Step::ComputeWith { tensor, .. }
            | Step::PhaseAfter { tensor }
            | Step::Loops { tensor, .. }
            | Step::Alloc { tensor, .. }
            | Step::RecomputeIn { tensor, .. }
            | Step::CircularBuffer { tensor, .. }
            | Step::SetCacheHint { tensor, .. } => {
                let tv = self.tensor(placed, tensor)?;
                self.apply_to(placed, tv)
            }
        }
    }

    /// A step that is about one tensor.
    fn apply_to(&mut self, placed: &PlacedStep, tv: TvId) -> Result<()> {
        match &placed.step {
            Step::CacheAfter { .. } => self.builder.cache_after(tv).map(drop),
            Step::CacheBefore { .. } => self.builder.cache_before(tv).map(drop),
            Step::CacheFork { consumers, .. } => {
                let consumers: Vec<TvId> =
                    consumers.iter().map(|consumer| self.tensor(placed, consumer)).collect::<Result<_>>()?;
                self.builder.cache_fork(tv, &consumers).map(drop)
            }
            Step::Rfactor { axes, .. } => {
                let axes = self.all_axes(placed, axes)?;
                self.builder.rfactor(tv, &axes).map(drop)
            }
            Step::RfactorMax { axes, .. } => {
                let axes = self.all_axes(placed, axes)?;
                self.builder.rfactor_max(tv, &axes).map(drop)
            }
            Step::SetMemory { memory, .. } => self.builder.set_memory(tv, *memory),
            Step::Reorder { axes, .. } => {
                let axes = self.all_axes(placed, axes)?;
                self.builder.reorder(tv, &axes)
            }
            Step::InlineAt { position, .. } => {
                let state = self.builder.state();
                let consumers = self.consumers.get_or_insert_with(|| state.all_consumers());
                self.builder.inline_with_consumers(tv, *position, &consumers[tv])
            }
            Step::PhaseAfter { .. } => self.builder.phase_after(tv).map(drop),
            Step::ComputeWith { position, .. } => self.builder.compute_with(tv, *position),
            Step::Loops { loops, .. } => {
                let own = |(axis, parallel): &(String, _)| {
                    self.axis(placed, axis).map(|axis| Loop { axis, parallel: *parallel })
                };
                let loops = loops.iter().map(own).collect::<Result<Vec<_>>>()?;
                self.builder.set_loops(tv, &loops)
            }
            Step::Alloc { axes, columns, .. } => {
                let axes = self.all_axes(placed, axes)?;
                self.builder.alloc(tv, Tile { axes, columns: *columns })
            }
            Step::RecomputeIn { axis, .. } => {
                let axis = self.axis(placed, axis)?;
                self.builder.recompute_in(tv, axis)
            }
            Step::CircularBuffer { stages, .. } => self.builder.circular_buffer(tv, *stages),
            Step::SetCacheHint { hint, .. } => self.builder.set_cache_hint(tv, *hint),
            other => Err(Diagnostic::bug(format!("`{other}` is about no tensor"))),
        }
    }
}

/// A name that nothing has, with those that there are, the most similar ones first.
fn unknown<'a>(
    placed: &PlacedStep,
    name: &str,
    message: String,
    known: impl Iterator<Item = &'a String>,
) -> Box<Diagnostic> {
    let mut known: Vec<&str> = known.map(String::as_str).collect();
    sort_by_key(&mut known, |known| (edit_distance(known, name), *known));
    let more = if known.len() > MAX_TOLD { ", ..." } else { "" };
    known.truncate(MAX_TOLD);
    Diagnostic::user(code::SCHEDULE_NAME, message)
        .label(placed.place_of(name), "")
        .note(format!("there are {}{more}", known.join(", ")))
}
