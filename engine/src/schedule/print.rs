//! Schedules as text: one primitive a line.

use super::graph::fusion_by_hand;
use super::ir::{Columns, Loop, ParallelType, ScheduledFusion, Step, TvId};
use super::replay::schedule_by_text;
use crate::axes::{AxisId, AxisRef, Offset, Xform};
use crate::diag::Result;
use crate::fusion::{Fusion, Operand, ScalarDef, ScalarId};
use crate::kernel::CacheHint;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// How deep a scalar is written out.
const MOST_NESTED: u32 = 3;

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
            Step::SplitTurns { axis, places, beside } => {
                write!(f, "split {axis} in turns of {places}")?;
                beside.as_ref().map_or(Ok(()), |beside| write!(f, " per {beside}"))
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
            Step::WindowsBeside { axis, outer, indices, of } => {
                write!(f, "window {axis} at {outer} by {indices} per {of}")
            }
            Step::AtLeast { axis, least } => write!(f, "at_least {axis} {least}"),
            Step::CircularBuffer { tensor, stages } => write!(f, "circular_buffer %{tensor} {stages}"),
            Step::SetCacheHint { tensor, hint } => {
                write!(f, "set_cache_hint %{tensor} {}", hint_name(*hint))
            }
            Step::MinBlocks(blocks) => write!(f, "min_blocks {blocks}"),
            Step::Parallelize { axis, parallel } => write!(f, "parallelize {axis} {}", parallel.name()),
            Step::CacheAfter { tensor } => write!(f, "cache_after %{tensor}"),
            Step::CacheBefore { tensor } => write!(f, "cache_before %{tensor}"),
            Step::CacheFork { tensor, consumers } => write!(f, "cache_fork %{tensor} for %{}", consumers.join(", %")),
            Step::Rfactor { tensor, axes } => write!(f, "rfactor %{tensor} over {}", axes.join(", ")),
            Step::RfactorMax { tensor, axes } => write!(f, "rfactor_max %{tensor} over {}", axes.join(", ")),
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
                    Columns::Skewed { by, every } => write!(f, " skew {by} every {every}"),
                    Columns::Swizzled { groups, every } => write!(f, " swizzle {groups} every {every}"),
                }
            }
            Step::InlineAt { tensor, position } => write!(f, "inline_at %{tensor} {position}"),
            Step::ComputeWith { tensor, position } => write!(f, "compute_with %{tensor} {position}"),
            Step::PhaseAfter { tensor } => write!(f, "phase_after %{tensor}"),
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
        match data.loops.is_empty() {
            true => format!("%{} has no loops", data.name),
            false => format!("%{} has loops over {}", data.name, self.loops_list(tv)),
        }
    }

    /// The axes of a tensor in words.
    pub(super) fn axes_text(&self, tv: TvId) -> String {
        let data = &self.tensors[tv];
        let axes: Vec<&str> = data.indexed().map(|axis| self.axes[axis].name.as_str()).collect();
        format!("%{} has axes {}", data.name, axes.join(", "))
    }

    fn loops_list(&self, tv: TvId) -> String {
        let one = |own: &Loop| match own.parallel {
            ParallelType::Serial => self.axes[own.axis].name.clone(),
            parallel => format!("{} -> {}", self.axes[own.axis].name, parallel.name()),
        };
        let loops: Vec<String> = self.tensors[tv].loops.iter().map(one).collect();
        loops.join(", ")
    }

    /// How the fusion's operations make axes of others, a line each: `d2 = 3 + d0 + 1` is an axis with three indices before those
    /// of `d0` and one behind them, `d2 = d0 * d1` two that are one, `d0 * d1 = d2` one that is two.
    fn relations_text(&self) -> String {
        let name = |axis: AxisId| self.axes[axis].name.as_str();
        let line = |xform: &Xform| match *xform {
            Xform::Resize { input, output, left, right } => {
                let [left, right] = [left, right].map(|by| self.offset_text(&self.axes[by]));
                format!("{} = {left} + {} + {right}\n", name(output), name(input))
            }
            Xform::Merge { outer, inner, output } => format!("{} = {} * {}\n", name(output), name(outer), name(inner)),
            Xform::Split { input, outer, inner, .. } => {
                format!("{} * {} = {}\n", name(outer), name(inner), name(input))
            }
            Xform::Align { input, output, .. } => format!("{} = {} aligned\n", name(output), name(input)),
            Xform::Window { input, inner, .. } => format!("{} = windows of {}\n", name(inner), name(input)),
        };
        self.axes.program_xforms().map(line).collect()
    }

    /// `3`, `-1`, `(size(%x, 0) + -1)`.
    fn offset_text(&self, offset: &Offset) -> String {
        if let Some(number) = offset.known() {
            return number.to_string();
        }
        let term = |(factor, id): &(i64, ScalarId)| {
            let scalar = scalar_text(&self.fusion, *id, MOST_NESTED);
            match factor {
                1 => scalar,
                -1 => format!("-{scalar}"),
                factor => format!("{factor} * {scalar}"),
            }
        };
        let number = Some(offset.constant).filter(|number| *number != 0).map(|number| number.to_string());
        let terms: Vec<String> = offset.terms.iter().map(term).chain(number).collect();
        format!("({})", terms.join(" + "))
    }

    /// What the steps make of each tensor, a line each: the number by which statements of the kernel
    /// name it (that of the fusion's tensor), its name, its axes (in parentheses where one element
    /// serves all indices, between < and > where data says which), where it lives, its loops, and how many of them enclose its users too.
    fn tensors_text(&self) -> String {
        let mut text = self.relations_text();
        let mut first: BTreeMap<String, &str> = BTreeMap::new();
        for (tv, data) in self.tensors.iter() {
            let axis = |axis: &AxisRef| match *axis {
                AxisRef::Axis(axis) => self.axes[axis].name.clone(),
                AxisRef::Broadcast(axis) => format!("({})", self.axes[axis].name),
                AxisRef::Indirect(axis) => format!("<{}>", self.axes[axis].name),
            };
            let axes: Vec<String> = data.axes.iter().map(axis).collect();
            text.push_str(&format!("{} %{} [{}] {}", data.source, data.name, axes.join(", "), data.memory.name()));
            if data.op.is_some() {
                let loops = self.loops_list(tv);
                match first.get(&loops) {
                    Some(other) => text.push_str(&format!(", loops of %{other}")),
                    None => text.push_str(&format!(", loops [{loops}]")),
                }
                first.entry(loops).or_insert(&data.name);
                text.push_str(&format!(", inline_at {}", data.inline_at));
                if data.compute_with > 0 {
                    text.push_str(&format!(", compute_with {}", data.compute_with));
                }
            }
            text.push('\n');
        }
        text
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

/// A scalar in words, in terms of sizes and inputs as far as that is short.
fn scalar_text(fusion: &Fusion, scalar: ScalarId, nested: u32) -> String {
    let of = |id: ScalarId| match nested {
        0 => "..".to_string(),
        _ => scalar_text(fusion, id, nested - 1),
    };
    match &fusion.scalars[scalar].def {
        ScalarDef::Input { name, .. } => name.clone(),
        ScalarDef::Const(value) => value.shown(fusion.scalars[scalar].dtype),
        ScalarDef::Size { input, axis } => match fusion.inputs.get(*input as usize) {
            Some(Operand::Tensor(tensor)) => format!("size(%{}, {axis})", fusion.tensors[*tensor].name),
            _ => "size".to_string(),
        },
        ScalarDef::Unary(op, a) => format!("{op}({})", of(*a)),
        ScalarDef::Binary(op, a, b) => format!("{op}({}, {})", of(*a), of(*b)),
        ScalarDef::Ternary(op, a, b, c) => format!("{op}({}, {}, {})", of(*a), of(*b), of(*c)),
        ScalarDef::Cast(a) => of(*a),
    }
}

/// How axes follow from others by the fusion's operations, and what a schedule makes of each tensor: a line each.
pub fn scheduled_tensors(fusion: &Fusion, text: &str) -> Result<String> {
    Ok(schedule_by_text(&fusion_by_hand(fusion)?, text)?.tensors_text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fusion::{bind, concretize, decompose};
    use crate::num::DType;
    use crate::tensor::{ArgMeta, TensorMeta};

    #[test]
    fn tensors_have_their_axes_and_loops() {
        let text = "fusion @turned(%x: f32[?, ?], %w: f32[1, ?]) {\n  %0 = add %x, %w\n  %1 = permute %0 dims(1, 0)\n  return %1\n}\n";
        let fusion = crate::text::parse_one(text).unwrap();
        let steps = "cache_after %x\nparallelize d0 grid_x\npropagate d0, d1\ninline_at %0 1\n";
        let lines = scheduled_tensors(&fusion, steps).unwrap();
        let expected = [
            "t0 %x [d0, d1] global",
            "t1 %w [(d0), d1] global",
            "t2 %0 [d0, d1] local, loops [d0 -> grid_x, d1], inline_at 1",
            "t3 %1 [d1, d0] local, loops of %0, inline_at 0",
            "t3 %1_out0 [d1, d0] global, loops of %0, inline_at 0",
            "t0 %x_r [d0, d1] local, loops of %0, inline_at 0",
        ];
        assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn axes_follow_from_others() {
        let text = "fusion @moved(%x: f32[?, ?]) {\n  %s = size %x axis(1)\n  %n = sub %s, 1\n  %0 = pad %x widths(1, 2, 3, 0)\n  %1 = slice %x starts(0, 1) ends(4, %n)\n  %2 = reshape [-1] %x\n  return %0, %1, %2\n}\n";
        let fusion = crate::text::parse_one(text).unwrap();
        let argument = ArgMeta::Tensor(TensorMeta::contiguous(DType::F32, &[4, 6]));
        let facts = concretize::facts(&fusion, &bind(&fusion, &[argument]).unwrap());
        let concrete = concretize::concretize(&fusion, &facts).unwrap().fusion;
        let state = fusion_by_hand(&decompose(&concrete).unwrap().fusion).unwrap();
        expect_test::expect![[r#"
            d6 = d0 * d1
            d2 = 3 + d0 + 0
            d3 = 1 + d1 + 2
            d4 = 0 + d0 + (minimum(size(%x, 0), 4) + -size(%x, 0))
            d5 = (-minimum(size(%x, 1), 1)) + d1 + (maximum(minimum(size(%x, 1), maximum(add(.., ..), 0)), minimum(size(%x, 1), 1)) + -size(%x, 1))
        "#]].assert_eq(&state.relations_text());
    }
}
