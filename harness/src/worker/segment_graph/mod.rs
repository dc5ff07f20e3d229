//! A program's segments as a drawing: `show --stage graph`.
//!
//! Inputs: a [`Program`]. Output: an SVG. Segments and the tensors between them are boxes, so a tensor that several
//! segments read is there once, with its type, sizes and bytes. Only an input that nearly all read stands at each of them.

#[cfg(test)]
mod tests;

use crate::units::{counted, show_bytes};
use engine::fusion::{Operand, TensorId};
use engine::program::{Program, Step};
use engine::segment::{Segment, SegmentKind, Segments};
use engine::tensor::TensorMeta;
use engine::text;
use pages::{BoxId, Diagram, Look};
use std::collections::{BTreeMap, BTreeSet};

/// Columns of a line that names operations.
const ROOM: usize = 44;
/// Segments that read an input's only box.
const MOST_READERS: usize = 4;

pub(super) fn svg(program: &Program) -> String {
    let segments = &*program.segments;
    let mut graph = Graph { program, diagram: Diagram::new(title(program), about(program)), boxes: BTreeMap::new() };
    let common = common_inputs(segments);
    for input in segments.fusion.inputs.iter().filter_map(tensor).filter(|input| !common.contains(input)) {
        graph.tensor(input, Look::Given, &[]);
    }
    for (position, segment) in segments.segments.iter().enumerate() {
        for read in segment.inputs.iter().filter_map(tensor).filter(|read| common.contains(read)) {
            graph.tensor(read, Look::Given, &[]);
        }
        let from: Vec<BoxId> =
            segment.inputs.iter().filter_map(tensor).filter_map(|read| graph.boxes.get(&read).copied()).collect();
        let id = graph.segment(position, segment, &from);
        for output in &segment.outputs {
            let look = if is_result(segments, *output) { Look::Result } else { Look::Passed };
            graph.tensor(*output, look, &[id]);
        }
    }
    graph.diagram.svg()
}

fn tensor(operand: &Operand) -> Option<TensorId> {
    match *operand {
        Operand::Tensor(tensor) => Some(tensor),
        Operand::Scalar(_) => None,
    }
}

/// Inputs that so many segments read that each gets a box of its own: ways from one box would fill the drawing.
fn common_inputs(segments: &Segments) -> BTreeSet<TensorId> {
    let readers = |input: &TensorId| {
        segments.segments.iter().filter(|segment| segment.inputs.contains(&Operand::Tensor(*input))).count()
    };
    segments.fusion.inputs.iter().filter_map(tensor).filter(|input| readers(input) > MOST_READERS).collect()
}

fn is_result(segments: &Segments, tensor: TensorId) -> bool {
    segments.fusion.outputs.contains(&tensor) || segments.fusion.updates.iter().any(|update| update.tensor == tensor)
}

fn title(program: &Program) -> String {
    format!("@{}: {}", program.name(), counted(program.segments.segments.len(), "segment"))
}

/// What computes the segments, and how much they read and write.
fn about(program: &Program) -> String {
    let segments = &program.segments.segments;
    let of = |name: fn(&SegmentKind) -> bool| segments.iter().filter(|segment| name(&segment.kind)).count();
    let moved: u64 = segments.iter().map(|segment| moved(program, segment)).sum();
    let mut parts = vec![counted(of(SegmentKind::is_kernel), "kernel")];
    match of(|kind| matches!(kind, SegmentKind::View)) {
        0 => {}
        views => parts.push(counted(views, "view")),
    }
    match of(|kind| matches!(kind, SegmentKind::Joined)) {
        0 => {}
        joined => parts.push(format!("{joined} joined in place")),
    }
    match of(|kind| matches!(kind, SegmentKind::Library(_))) {
        0 => {}
        calls => parts.push(format!("{calls} by a library")),
    }
    match of(|kind| matches!(kind, SegmentKind::Host(_))) {
        0 => {}
        host => parts.push(format!("{host} on the host")),
    }
    let copies = program.steps.iter().filter(|step| matches!(step, Step::Copy(_))).count();
    let copies = if copies == 0 { String::new() } else { format!(", and {} besides", counted(copies, "copy")) };
    format!("{}; {} read and written{copies}", parts.join(", "), show_bytes(moved))
}

/// Bytes of the elements that a segment reads and writes.
fn moved(program: &Program, segment: &Segment) -> u64 {
    if segment.kind.is_nothing() {
        return 0;
    }
    let reads = segment.inputs.iter().filter_map(tensor);
    reads.chain(segment.outputs.iter().copied()).filter_map(|tensor| meta(program, tensor)).map(bytes).sum()
}

fn meta(program: &Program, tensor: TensorId) -> Option<&TensorMeta> {
    program.values.values().find(|value| value.tensor == tensor).map(|value| &value.meta)
}

/// Of the elements that are there: repeated ones count once, gaps do not.
fn bytes(meta: &TensorMeta) -> u64 {
    let elements = meta.numel().unwrap_or(0).min(meta.span().unwrap_or(0));
    elements.unsigned_abs() * meta.dtype.bytes() as u64
}

struct Graph<'a> {
    program: &'a Program,
    diagram: Diagram,
    boxes: BTreeMap<TensorId, BoxId>,
}

impl Graph<'_> {
    fn segment(&mut self, position: usize, segment: &Segment, from: &[BoxId]) -> BoxId {
        let mut lines = vec![format!("{position}: {}", segment.kind.name()), operations(segment)];
        let mut tip = text::print(&segment.fusion);
        let look = match &segment.kind {
            SegmentKind::Kernel(_) => Look::Work,
            SegmentKind::View | SegmentKind::Joined => Look::Free,
            SegmentKind::Library(part) => {
                lines.push(part.found.product.to_string());
                tip = format!("{}\n{tip}", part.why.message);
                Look::Work
            }
            SegmentKind::Host(why) => {
                lines[0] = format!("{position}: host, {}", why.code.0);
                tip = format!("{}\n{tip}", why.message);
                Look::Detour
            }
        };
        if let Some(launch) = self.program.launches().find(|launch| launch.segment == position) {
            let [x, y, z] = launch.launch.grid;
            lines.push(format!("grid {x}x{y}x{z} of {}", counted(launch.launch.threads(), "thread")));
        }
        if look != Look::Free {
            lines.push(format!("{} read and written", show_bytes(moved(self.program, segment))));
        }
        let scalars = segment.inputs.iter().filter(|input| tensor(input).is_none());
        let scalars: Vec<String> = scalars.map(|scalar| self.program.segments.shown(*scalar)).collect();
        if !scalars.is_empty() {
            lines.push(cut(format!("with {}", scalars.join(", "))));
        }
        self.diagram.add(look, lines, tip, from)
    }

    fn tensor(&mut self, tensor: TensorId, look: Look, from: &[BoxId]) {
        let fusion = &self.program.segments.fusion;
        let mut lines = vec![format!("%{}", fusion.tensors[tensor].name)];
        if let Some(meta) = meta(self.program, tensor) {
            lines.push(format!("{}{:?} {}", meta.dtype, meta.sizes, show_bytes(bytes(meta))));
            if *meta != TensorMeta::contiguous(meta.dtype, &meta.sizes) {
                lines.push(format!("strides {:?}", meta.strides));
            }
        }
        for (position, _) in fusion.outputs.iter().enumerate().filter(|(_, output)| **output == tensor) {
            lines.push(format!("result {position}"));
        }
        for update in fusion.updates.iter().filter(|update| update.tensor == tensor) {
            let input = fusion.inputs.get(update.input as usize).map(|input| self.program.segments.shown(*input));
            lines.extend(input.map(|input| format!("becomes {input}")));
        }
        let id = self.diagram.add(look, lines, "", from);
        self.boxes.insert(tensor, id);
    }
}

/// The names of a segment's operations, without those that only say where elements are if there are others.
fn operations(segment: &Segment) -> String {
    let names: Vec<&str> = segment.fusion.ops.values().map(|op| op.kind.name()).collect();
    let telling =
        names.iter().copied().filter(|name| !matches!(*name, "broadcast" | "squeeze" | "cast" | "set" | "full"));
    let telling: Vec<&str> = telling.collect();
    cut(if telling.is_empty() { names } else { telling }.join(" "))
}

/// At most so much of a line that all of it is readable.
fn cut(line: String) -> String {
    match line.char_indices().nth(ROOM) {
        None => line,
        Some((end, _)) => format!("{}...", &line[..end]),
    }
}
