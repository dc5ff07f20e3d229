//! Random schedules as a person might write them, wrong ones among them: each step is drawn
//! as text over the names that there are, and what is refused is left out. What is left is refused as a
//! whole, or computes the fusion.

use crate::data::Draw;
use engine::diag::{Diagnostic, DiagnosticKind, Result};
use engine::fusion::{Fusion, bind, concretize, decompose};
use engine::num::{DType, Value};
use engine::schedule::{
    AxisId, Loop, Memory, ParallelType, ScheduledFusion, TvId, VERBS, fusion_by_hand, schedule_by_text,
};
use engine::tensor::{Arg, ArgMeta, HostTensor};
use engine::text;

/// A fusion with a schedule of random steps.
pub struct WrittenCase {
    /// What it computes.
    pub fusion: Fusion,
    /// The arguments.
    pub args: Vec<Arg>,
    /// The schedule.
    pub schedule: String,
    /// Why steps were refused.
    pub refusals: Vec<Diagnostic>,
}

/// Fusions over integers, so that results are exact: the number of axes of each input, and the body.
const FUSIONS: &[(&[usize], &str)] = &[
    (&[1], "%0 = neg %a\n%1 = abs %0\nreturn %1"),
    (&[2, 2], "%0 = add %a, %b\n%1 = mul %0, %a\nreturn %1, %0"),
    (&[2, 1], "%w = broadcast %b flags(true, false)\n%0 = mul %a, %w\n%1 = sub %0, %w\nreturn %1"),
    (&[2, 1], "%w = broadcast %b flags(false, true)\n%n = neg %b\n%0 = add %a, %w\nreturn %0, %n"),
    (&[2], "%0 = permute %a dims(1, 0)\n%1 = neg %0\nreturn %1"),
    (&[2, 2], "%0 = permute %a dims(1, 0)\n%1 = add %0, %b\nreturn %1"),
    (&[2], "%0 = sum %a axes(1)\nreturn %0"),
    (&[2], "%0 = sum %a axes(0)\nreturn %0"),
    (&[2], "%0 = sum %a axes(0, 1)\nreturn %0"),
    (&[3], "%0 = sum %a axes(0, 2)\n%1 = neg %0\nreturn %1"),
    (&[1], "%0 = max %a axes(0)\n%1 = neg %0\nreturn %1"),
    (&[2], "%m = max %a axes(1) keepdim\n%0 = sub %a, %m\n%s = sum %0 axes(1)\nreturn %s, %0"),
    (
        &[2, 1],
        "%s = sum %a axes(1) keepdim\n%w = broadcast %b flags(true, false)\n%0 = mul %a, %w\n%1 = add %0, %s\nreturn %1",
    ),
    (&[1], "%n = size %a axis(0)\n%0 = neg %a\n%1 = slice %0 starts(1) ends(%n)\nreturn %1"),
    (
        &[2],
        "%n = size %a axis(0)\n%m = size %a axis(1)\n%0 = slice %a starts(0, 1) ends(%n, %m)\n%1 = slice %a starts(0, 0) ends(%n, -1)\n%2 = sub %0, %1\nreturn %2",
    ),
    (
        &[2],
        "%n = size %a axis(0)\n%m = size %a axis(1)\n%0 = slice %a starts(0, 1) ends(%n, %m)\n%1 = slice %a starts(0, 0) ends(%n, 1)\n%2 = cat %0, %1 dim(1)\n%3 = add %2, %a\nreturn %3",
    ),
    (
        &[2],
        "%n = size %a axis(0)\n%m = size %a axis(1)\n%0 = slice %a starts(0, 2) ends(%n, %m)\n%1 = sum %0 axes(1)\nreturn %1",
    ),
    (&[2], "%0 = pad %a, 3 widths(2, 1, 0, 1)\n%1 = neg %0\nreturn %1"),
    (&[2], "%0 = neg %a\n%1 = pad %0 widths(-1, 3)\n%2 = sum %1 axes(0)\nreturn %2"),
    (&[2, 2], "%0 = cat %a, %b, %a dim(1)\n%1 = neg %0\nreturn %1"),
    (&[2, 2], "%0 = neg %a\n%1 = cat %0, %b dim(0)\n%2 = sum %1 axes(1)\nreturn %2"),
    (&[2], "%0 = reshape [-1] %a\n%1 = neg %0\nreturn %1"),
    (
        &[2],
        "%n = size %a axis(0)\n%m = size %a axis(1)\n%0 = reshape [%m, %n] %a\n%1 = permute %0 dims(1, 0)\nreturn %1",
    ),
    (
        &[3],
        "%n = size %a axis(0)\n%m = size %a axis(1)\n%k = size %a axis(2)\n%p = mul %m, %k\n%0 = reshape [%n, %p] %a\n%1 = sum %0 axes(1)\nreturn %1",
    ),
    (&[2], "%s = sum %a axes(1) keepdim\n%0 = sub %a, %s\n%1 = reshape [-1] %0\nreturn %1"),
    (
        &[2, 2],
        "%c = cast %b i64\n%r = abs %c\n%n = size %a axis(1)\n%i = remainder %r, %n\n\
         %0 = take_along_axis %a, %i dim(1)\n%1 = add %0, %b\nreturn %1",
    ),
    (
        &[2, 1],
        "%c = cast %b i64\n%r = abs %c\n%n = size %a axis(0)\n%i = remainder %r, %n\n\
         %0 = index_select %a, %i dim(0)\n%1 = neg %0\n%2 = sum %1 axes(1)\nreturn %1, %2",
    ),
];

/// More than any index is: past 32 bits once doubled, once read, and past 64 once doubled.
const LARGE: [i64; 4] = [1 << 20, i32::MAX as i64, 4_000_000_000, i64::MAX];

/// Draws a fusion, sizes and steps. An error is a defect.
pub fn draw_steps(seed: u64) -> Result<WrittenCase> {
    let mut draw = Draw::new(seed);
    let (ranks, body) = draw.choose(FUSIONS);
    let dtype = draw.choose(&[DType::I32, DType::I32, DType::I64, DType::F32, DType::I16, DType::U32]);
    let fusion = fusion(ranks, body, dtype)?;
    let most = ranks.iter().copied().max().unwrap_or(1);
    let sizes: Vec<i64> =
        (0..most).map(|_| draw.choose(&[0, 1, 2, 3, 4, 7, 8, 12, 16, 17, 32, 33, 40, 61, 64])).collect();
    // What is sliced or cut has to have so much; of eight there is enough.
    let drawn = arguments(dtype, (ranks, body), &sizes)?;
    let (args, unscheduled) = match unscheduled(&fusion, &drawn) {
        Ok(unscheduled) => (drawn, unscheduled),
        Err(error) if error.kind == DiagnosticKind::Bug => return Err(error),
        Err(_) => {
            let args = arguments(dtype, (ranks, body), &vec![8; most])?;
            let unscheduled = unscheduled(&fusion, &args)?;
            (args, unscheduled)
        }
    };
    let state = unscheduled.clone();
    let mut steps = Steps { draw, unscheduled, state, schedule: String::new(), refusals: Vec::new() };
    match steps.draw.below(4) {
        0 => steps.staged(),
        1 => steps.tame(),
        _ => steps.all(),
    }
    let Steps { schedule, refusals, .. } = steps;
    Ok(WrittenCase { fusion, args, schedule, refusals })
}

/// The inputs, of so many axes each, for these sizes.
fn arguments(dtype: DType, (ranks, body): (&[usize], &str), sizes: &[i64]) -> Result<Vec<Arg>> {
    let mut args: Vec<Arg> = Vec::new();
    for rank in ranks {
        // A vector has the axis along which its broadcast leaves it.
        let mut own = match (rank, sizes.len()) {
            (1, 2) if body.contains("flags(true, false)") => vec![sizes[1]],
            _ => sizes[..*rank].to_vec(),
        };
        if body.contains("add %0, %b") && !args.is_empty() {
            own.reverse();
        }
        let mut count = 0;
        let tensor = HostTensor::from_fn(dtype, &own, |_| {
            count += 1;
            let value = count * 7 % 101 - 50;
            if dtype.is_float() { Value::Float(value as f64) } else { Value::Int(value) }
        })?;
        args.push(Arg::Tensor(tensor));
    }
    Ok(args)
}

/// The fusion that a schedule is about, as a session makes it for arguments.
fn unscheduled(fusion: &Fusion, args: &[Arg]) -> Result<ScheduledFusion> {
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    bind(fusion, &metas)?;
    let simple = decompose(fusion)?.fusion;
    let facts = concretize::facts_of_all(&simple, &bind(&simple, &metas)?);
    fusion_by_hand(&concretize::concretize(&simple, &facts)?.fusion)
}

fn fusion(ranks: &[usize], body: &str, dtype: DType) -> Result<Fusion> {
    let tensor = |(name, rank): (&str, &usize)| format!("%{name}: {dtype}[{}]", vec!["?"; *rank].join(", "));
    let inputs: Vec<String> = ["a", "b"].into_iter().zip(ranks).map(tensor).collect();
    let text = format!("fusion @f({}) {{\n{body}\n}}", inputs.join(", "));
    text::parse_one(&text).map_err(|errors| Diagnostic::bug(format!("{errors:?}\n{text}")))
}

struct Steps {
    draw: Draw,
    unscheduled: ScheduledFusion,
    state: ScheduledFusion,
    schedule: String,
    refusals: Vec<Diagnostic>,
}

impl Steps {
    /// Takes a step if it is not refused.
    fn step(&mut self, line: &str) -> bool {
        let text = format!("{}{line}\n", self.schedule);
        match schedule_by_text(&self.unscheduled, &text) {
            Ok(state) => (self.state, self.schedule) = (state, text),
            Err(error) => {
                self.refusals.push(*error);
                return false;
            }
        }
        true
    }

    /// A quarter of all schedules: parts of constant length of every axis, outer ones in turn, and inputs in
    /// stages, in loops that some of them do not depend on.
    fn staged(&mut self) {
        for input in self.tensors(|state, tv| state.tensors[tv].op.is_none()) {
            self.step(&format!("cache_after %{input}"));
        }
        let (mut turns, mut parts) = (Vec::new(), Vec::new());
        for axis in self.leaves() {
            let line = format!("split {} by {}", self.name(axis), self.draw.choose(&[4, 8, 16]));
            if self.step(&line) {
                parts.extend(self.leaves().last().copied());
            }
        }
        if let Some(part) = parts.pop() {
            let line = format!("split {} by {} exact", self.name(part), self.draw.choose(&[2, 4]));
            match self.draw.once_in(2) && self.step(&line) {
                true => parts.extend(self.leaves().split_off(self.leaves().len() - 2)),
                false => parts.push(part),
            }
        }
        turns.extend(self.leaves().into_iter().filter(|axis| !parts.contains(axis)));
        if let Some(part) = parts.last() {
            let place = self.draw.choose(&["block_x", "block_x", "vectorize", "unroll", "serial"]);
            let line = format!("parallelize {} {place}", self.name(*part));
            self.step(&line);
        }
        let order: Vec<String> = turns.iter().chain(&parts).map(|axis| self.name(*axis)).collect();
        self.step(&format!("propagate {}", order.join(", ")));
        self.recompute();
        self.step("inline_most");
        for _ in 0..1 + self.draw.below(3) {
            self.ring();
        }
    }

    /// A quarter of all schedules have the usual order, and nothing strange in it.
    fn tame(&mut self) {
        for input in self.tensors(|state, tv| state.tensors[tv].op.is_none()) {
            self.step(&format!("cache_after %{input}"));
        }
        for _ in 0..self.draw.below(5) {
            self.transform();
        }
        self.factors();
        self.places();
        let order = self.order(true);
        self.step(&format!("propagate {}", order.join(", ")));
        if self.draw.once_in(2) {
            self.recompute();
        }
        let (tensor, at) = (self.tensor(), self.draw.below(5));
        self.step(&format!("inline_most keep %{tensor} {at}"));
        for _ in 0..self.draw.below(4) {
            self.ring();
        }
    }

    fn all(&mut self) {
        for input in self.tensors(|state, tv| state.tensors[tv].op.is_none()) {
            if !self.draw.once_in(12) {
                self.step(&format!("cache_after %{input}"));
            }
        }
        for _ in 0..self.draw.below(3) {
            self.anything();
        }
        for _ in 0..self.draw.below(7) {
            self.transform();
        }
        self.factors();
        if self.draw.once_in(6) {
            self.phase();
        }
        self.places();
        let wanted = self.draw.below(8);
        let order = self.order(wanted > 0);
        self.step(&format!("propagate {}", order.join(", ")));
        for _ in 0..self.draw.below(5) {
            self.anything();
        }
        match self.draw.below(4) {
            0 => (0..self.draw.below(6)).for_each(|_| self.inline()),
            1 => drop(self.step("inline_most")),
            _ => {
                let (tensor, at) = (self.tensor(), self.draw.below(5));
                self.step(&format!("inline_most keep %{tensor} {at}"));
            }
        }
        for _ in 0..self.draw.below(3) {
            self.anything();
        }
    }

    fn tensors(&self, wanted: impl Fn(&ScheduledFusion, TvId) -> bool) -> Vec<String> {
        let ids = self.state.tensors.ids().filter(|tv| wanted(&self.state, *tv));
        ids.map(|tv| self.state.tensors[tv].name.clone()).collect()
    }

    fn tensor(&mut self) -> String {
        let at = self.draw.below(self.state.tensors.len());
        self.tensors(|_, _| true).swap_remove(at)
    }

    fn name(&self, axis: AxisId) -> String {
        self.state.axes[axis].name.clone()
    }

    /// Axes that nothing was made of: loops over them lead to all others.
    fn leaves(&self) -> Vec<AxisId> {
        let axes = &self.state.axes;
        axes.ids().filter(|axis| axes.is_leaf(*axis) && !axes.goes_on(*axis)).collect()
    }

    /// Mostly an axis that nothing was made of, if there is one.
    fn axis(&mut self) -> String {
        let mut axes = if self.draw.once_in(6) { Vec::new() } else { self.leaves() };
        if axes.is_empty() {
            axes = self.state.axes.ids().collect();
        }
        let axis = axes[self.draw.below(axes.len())];
        self.name(axis)
    }

    fn transform(&mut self) {
        let (axis, other) = (self.axis(), self.axis());
        let (n, exact) =
            (self.draw.choose(&[0, 1, 2, 3, 4, 5, 8, 16, 32, 64]), self.draw.choose(&["", "", "", " exact"]));
        let line = match self.draw.below(13) {
            0..=5 => format!("split {axis} by {n}{exact}"),
            6 => format!("split {axis} by {n} count {}", self.draw.below(20)),
            7 => format!("split {axis} into {n} per {other}"),
            8..=10 => format!("merge {axis}, {other}"),
            11 => format!("at_least {axis} {}", self.draw.below(20)),
            _ => format!("align {axis} to 4 of %{}", self.tensor()),
        };
        self.step(&line);
    }

    /// A number that is large now and then; none that a loop runs to.
    fn number(&mut self, end: usize) -> i64 {
        if self.draw.once_in(8) { self.draw.choose(&LARGE) } else { self.draw.below(end) as i64 }
    }

    /// Values computed anew in loops that they do not depend on, users before what they use.
    fn recompute(&mut self) {
        for axis in self.leaves() {
            if !self.state.bindings[axis].is_loop() || self.draw.once_in(4) {
                continue;
            }
            for tv in self.state.topological().into_iter().rev() {
                let data = &self.state.tensors[tv];
                if data.op.is_some() && data.io.is_none() && !self.state.depends(tv, axis) {
                    let line = format!("recompute_in %{} {}", data.name, self.name(axis));
                    self.step(&line);
                }
            }
        }
    }

    /// Reductions in steps.
    fn factors(&mut self) {
        for _ in 0..3 {
            let reductions: Vec<TvId> = self.state.tensors.ids().filter(|tv| self.state.is_reduction(*tv)).collect();
            if reductions.is_empty() || self.draw.once_in(3) {
                return;
            }
            let tv = self.draw.choose(&reductions);
            let leaves = self.state.reduced_leaves(tv);
            let some: Vec<String> = leaves
                .iter()
                .filter(|_| self.draw.once_in(2))
                .map(|leaf| self.state.axes[*leaf].name.clone())
                .collect();
            if !some.is_empty() {
                let line = format!("rfactor %{} over {}", self.state.tensors[tv].name, some.join(", "));
                self.step(&line);
            }
        }
    }

    fn place(&mut self) -> &'static str {
        self.draw.choose(&ParallelType::ALL).name()
    }

    fn places(&mut self) {
        for axis in self.leaves() {
            if self.draw.once_in(2) {
                let line = format!("parallelize {} {}", self.name(axis), self.place());
                self.step(&line);
            }
        }
    }

    /// All leaves; mostly what is bound first, and vectors last.
    fn order(&mut self, mostly: bool) -> Vec<String> {
        let mut leaves = self.leaves();
        if self.draw.once_in(8) {
            // Loops over what others follow from lead on to them as well.
            leaves = self.state.axes.ids().filter(|axis| self.state.axes.is_leaf(*axis)).collect();
            leaves.retain(|_| self.draw.below(4) > 0);
        }
        for last in (1..leaves.len()).rev() {
            leaves.swap(last, self.draw.below(last + 1));
        }
        let threads = if self.draw.once_in(4) { 2 } else { 0 };
        if mostly {
            leaves.sort_by_key(|leaf| match self.state.bindings[*leaf] {
                ParallelType::Serial => 1,
                ParallelType::Unroll => 3,
                ParallelType::Vectorize => 4,
                parallel if parallel.is_thread() => threads,
                _ => 0,
            });
        }
        leaves.into_iter().map(|leaf| self.name(leaf)).collect()
    }

    fn inline(&mut self) {
        let (tensor, at) = (self.tensor(), self.draw.below(6));
        let verb = if self.draw.once_in(3) { "compute_with" } else { "inline_at" };
        self.step(&format!("{verb} %{tensor} {at}"));
    }

    /// The loops of a tensor with some places and orders changed.
    fn loops(&mut self) -> String {
        let tvs: Vec<TvId> = self.state.tensors.ids().collect();
        let tv = self.draw.choose(&tvs);
        let mut loops = self.state.tensors[tv].loops.clone();
        for _ in 0..self.draw.below(3) {
            let n = loops.len();
            if n > 0 {
                match self.draw.below(3) {
                    0 => loops.swap(self.draw.below(n), self.draw.below(n)),
                    1 => loops[self.draw.below(n)].parallel = self.draw.choose(&ParallelType::ALL),
                    _ => drop(loops.remove(self.draw.below(n))),
                }
            }
        }
        let one = |own: &Loop| format!("{} -> {}", self.name(own.axis), own.parallel.name());
        let loops: Vec<String> = loops.iter().map(one).collect();
        format!("loops %{} {}", self.state.tensors[tv].name, loops.join(", "))
    }

    /// A step of any kind.
    fn anything(&mut self) {
        let (tensor, axis, other) = (self.tensor(), self.axis(), self.axis());
        let n = self.number(5);
        let line = match self.draw.below(21) {
            0 | 1 => self.loops(),
            2 => format!("set_memory %{tensor} {}", self.draw.choose(&["shared", "shared", "local", "global"])),
            3 => format!("alloc %{tensor} {axis}, {other}"),
            4 => format!("alloc %{tensor} {axis}{}", self.columns()),
            5 => format!("recompute_in %{tensor} {axis}"),
            6 => format!("reorder %{tensor} {axis}, {other}"),
            7 => format!("reorder {axis}, {other}"),
            8 if self.draw.once_in(2) => return self.ring(),
            8 => format!("circular_buffer %{tensor} {n}"),
            9 => format!("set_cache_hint %{tensor} {}", self.draw.choose(&["streaming", "global", "again"])),
            10 => format!("min_blocks {n}"),
            11 if self.draw.once_in(2) => format!("cache_fork %{tensor} for %{}, %{}", self.tensor(), self.tensor()),
            11 => format!("cache_fork %{tensor} for %{}", self.tensor()),
            12 => format!("cache_before %{tensor}"),
            13 => format!("cache_after %{tensor}"),
            14 => format!("rfactor %{tensor} over {axis}"),
            15 => return self.tile(),
            16 => return self.transform(),
            17 => format!("compute_with %{tensor} {n}"),
            18 => return self.phase(),
            _ => {
                let words = [self.draw.choose(VERBS).name, &axis, "by", "4", ",", "%a", "->", "block_x"];
                (0..1 + self.draw.below(5)).map(|_| self.draw.choose(&words)).collect::<Vec<_>>().join(" ")
            }
        };
        self.step(&line);
    }

    /// A value that one phase leaves to the next.
    fn phase(&mut self) {
        let tensor = self.tensor();
        if self.step(&format!("phase_after %{tensor}")) {
            self.step(&format!("cache_after %{tensor}_w"));
        }
    }

    /// A copy of an input in stages in shared memory, of each thread or of all of them.
    fn ring(&mut self) {
        let copies = self.tensors(|state, tv| {
            let from = state.producers(tv);
            state.tensors[tv].memory == Memory::Local && from.iter().any(|from| state.tensors[*from].op.is_none())
        });
        let Some(copy) = copies.get(self.draw.below(copies.len())).cloned() else { return };
        let found = self.state.tensors.iter().find(|(_, data)| data.name == copy);
        let loops = found.map(|(_, data)| data.loops.clone()).unwrap_or_default();
        let serial = |at: &usize| loops[at - 1].parallel == ParallelType::Serial;
        let places: Vec<usize> = (1..=loops.len()).filter(serial).collect();
        let at = places.get(self.draw.below(places.len())).copied().unwrap_or_default();
        self.step(&format!("set_memory %{copy} shared"));
        self.step(&format!("inline_at %{copy} {at}"));
        let shares = loops[..at].iter().all(|own| !own.parallel.is_thread()) && self.draw.below(3) > 0;
        if shares {
            self.alloc(&copy, &loops[at..]);
        }
        let stages = 1 + self.draw.below(5);
        self.step(&format!("circular_buffer %{copy} {stages}"));
    }

    /// A copy of a value in shared memory, in all its axes of constant extent.
    fn tile(&mut self) {
        let tensor = self.tensor();
        if !self.step(&format!("cache_after %{tensor}")) {
            return;
        }
        let tile = self.tensors(|_, _| true).pop().unwrap_or_default();
        let Some((_, data)) = self.state.tensors.iter().last() else { return };
        let inside: Vec<Loop> = data.loops.iter().filter(|own| !own.parallel.is_block()).copied().collect();
        self.step(&format!("set_memory %{tile} shared"));
        self.alloc(&tile, &inside);
    }

    /// A tile of what a tensor has along some loops, sometimes with an axis too many, its columns
    /// sometimes in another order.
    fn alloc(&mut self, tensor: &str, loops: &[Loop]) {
        let Some((tv, _)) = self.state.tensors.iter().find(|(_, data)| data.name == tensor) else { return };
        let own = loops.iter().filter(|own| self.state.depends(tv, own.axis));
        let mut axes: Vec<String> = own.map(|own| self.name(own.axis)).collect();
        if self.draw.once_in(5) {
            let constant = |axis: &AxisId| self.state.axes.constant_extent(*axis).is_some();
            let all: Vec<AxisId> = self.state.axes.ids().filter(constant).collect();
            if !all.is_empty() {
                let (axis, at) = (self.draw.choose(&all), self.draw.below(axes.len() + 1));
                axes.insert(at, self.name(axis));
            }
        }
        let (axes, columns) = (axes.join(", "), self.columns());
        // Most rows have no groups to change places.
        if !self.step(&format!("alloc %{tensor} {axes}{columns}")) && !columns.is_empty() {
            self.step(&format!("alloc %{tensor} {axes}"));
        }
    }

    /// What is said of the columns of a tile.
    fn columns(&mut self) -> String {
        let (n, every) = (self.number(5), self.number(4));
        match self.draw.below(4) {
            0 => format!(" rotate {n} every {every}"),
            2 => format!(" skew {n} every {every}"),
            1 => format!(" swizzle {} every {every}", self.draw.choose(&[1, 2, 2, 4, 8, 3])),
            _ => String::new(),
        }
    }
}
