//! Chains of operations that only move axes become the shortest chain that does the same:
//! axes dropped, then permuted, then inserted. What brings everything back to its place is the
//! tensor itself. A reshape that only inserts or drops axes of size 1 is such an operation, which
//! kernels take and fuse; as a reshape it would be a segment of its own, which stays where nothing fuses with it.
//!
//! A chain is made anew only where that takes fewer operations, those counted that others still need.
//! A copy that is returned stays one: somebody asked for it.

use super::make::{broadcast, squeeze, tensor};
use super::steps::{Trace, step, traces};
use super::whole::{Change, Changes, Whole, operand};
use crate::diag::Result;
use crate::fusion::{Op, OpKind, Operand, Rewriter, TensorId};
use crate::util::SecondaryMap;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    let traces = traces(whole);
    whole.each(&|whole, op| rule(whole, op, &traces))
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op, traces: &SecondaryMap<TensorId, Option<Trace>>) -> Option<Change<'a>> {
    let output = op.output();
    let trace = traces[output].clone()?;
    let way = Way::of(whole, &trace);
    if way.is_nothing() {
        return of_nothing(whole, op, &trace);
    }
    let is_view = matches!(op.kind, OpKind::Call(_));
    if is_view && !fuses(whole, op) {
        return None;
    }
    if way.steps() < trace.steps && way.steps() <= trace.own {
        return Some(way.change(trace.source));
    }
    if !is_view {
        return None;
    }
    let (x, axes) = (operand(op)?, step(whole, op)?);
    let way = Way::of(whole, &Trace { source: x, axes, steps: 1, own: 1 });
    (!way.is_nothing()).then(|| way.change(x))
}

/// Whether a view is better computed: by the kernel that computes what it looks at, or by those that
/// read it, but as a table, which is in memory. Elsewhere it costs nothing as it is.
fn fuses(whole: &Whole<'_>, op: &Op) -> bool {
    let output = op.output();
    let x = operand(op).filter(|x| whole.is_read_once(*x));
    let made = x.and_then(|x| whole.maker(x)).is_some_and(is_computed);
    let mut readers = whole.readers(output).peekable();
    made || readers.peek().is_some() && readers.all(|reader| is_computed(reader) && !reads_table(reader, output))
}

/// Whether an operation looks a tensor up.
fn reads_table(op: &Op, tensor: TensorId) -> bool {
    op.kind.lookup().is_some_and(|lookup| op.inputs.get(lookup.table) == Some(&Operand::Tensor(tensor)))
}

/// Whether kernels compute an operation.
pub(super) fn is_computed(op: &Op) -> bool {
    match &op.kind {
        OpKind::Call(call) => {
            let looks_up = call.lookup().is_some();
            looks_up
                || call.row.random.is_some()
                || call.primitive().is_some_and(|primitive| primitive.decompose.is_some())
        }
        _ => true,
    }
}

/// A chain that leads back to its start.
fn of_nothing<'a>(whole: &'a Whole<'a>, op: &'a Op, trace: &Trace) -> Option<Change<'a>> {
    let (output, source) = (op.output(), trace.source);
    let is_set = matches!(op.kind, OpKind::Set);
    if !whole.is_alike(output, source) {
        return None;
    }
    if whole.stands_for(output, source) && !(is_set && whole.is_returned(output)) {
        return Some(Box::new(move |r| r.tensor(source)));
    }
    // A copy is a kernel, which a view is not.
    let shorter = if is_set { trace.steps > 1 } else { !matches!(op.kind, OpKind::Call(_)) };
    shorter.then(|| -> Change<'a> { Box::new(move |r| tensor(r.builder.set(r.tensor(source)?)?)) })
}

/// The shortest chain that moves axes like this.
struct Way {
    /// The axes that are dropped.
    dropped: Vec<bool>,
    /// The others in the order of the result.
    order: Vec<i64>,
    /// The axes of the result that are inserted.
    inserted: Vec<bool>,
}

impl Way {
    fn of(whole: &Whole<'_>, trace: &Trace) -> Self {
        let kept: Vec<usize> = trace.axes.iter().copied().flatten().collect();
        let dropped: Vec<bool> = (0..whole.rank(trace.source)).map(|axis| !kept.contains(&axis)).collect();
        let place = |axis: &usize| dropped[..*axis].iter().filter(|dropped| !**dropped).count() as i64;
        let order = kept.iter().map(place).collect();
        Self { order, dropped, inserted: trace.axes.iter().map(Option::is_none).collect() }
    }

    fn permutes(&self) -> bool {
        !self.order.is_sorted()
    }

    fn is_nothing(&self) -> bool {
        self.steps() == 0
    }

    fn steps(&self) -> usize {
        let steps = [self.dropped.contains(&true), self.permutes(), self.inserted.contains(&true)];
        steps.into_iter().filter(|needed| *needed).count()
    }

    fn change<'a>(self, source: TensorId) -> Change<'a> {
        Box::new(move |r| self.make(r, source))
    }

    fn make(self, r: &mut Rewriter<'_>, source: TensorId) -> Result<TensorId> {
        let old = r.tensor(source)?;
        let mut x = squeeze(&mut r.builder, old, &self.dropped)?;
        if self.permutes() {
            x = tensor(r.builder.permute(x, &self.order)?)?;
        }
        broadcast(&mut r.builder, x, &self.inserted)
    }
}
