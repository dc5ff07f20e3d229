//! Whether operations can be one kernel: what a kernel is today, as conditions on
//! the axes of what the operations read and write.
//!
//! In: operations of one fusion. Out: [`check`], which says what is in the way.
//! It knows nothing of the rest of the fusion, so that an `x + x^T` in one place
//! does not touch another. The conditions:
//!
//! * Axes that operations pair are one dimension. No tensor has two axes in one, and
//!   a broadcast meets one dimension only. Where an input that is read by several
//!   operations is in the way of that, each reading counts as a tensor of its own.
//! * All reductions are over the same dimensions; or some over rows and the others over columns, which are all
//!   dimensions between them, where sizes allow it ([`OpFacts::columns`]). What is computed of sums of columns is
//!   then of columns alone.
//! * Some tensor has all dimensions: one loop nest serves all results.
//! * A row that is needed again after its reduction fits a block, and lies along memory in large results if it does where it
//!   is read. A maximum and a sum of exponentials below it are one
//!   reduction, if no other of the operations needs what lies between them.
//! * Where tensors are large, long rows that lack dimensions are not reduced beside such as have all: they would be reduced
//!   again for each element along these.
//! * What is looked up is in memory: none of the operations computes it. Each lookup reads it as a tensor of its own, whose
//!   axis that is looked up is no dimension.
//!
//! What passes may still be refused for a limit that the axes do not show (registers,
//! parameters): whoever cuts a fusion compiles each segment before it counts on it.

use super::facts::OpFacts;
use crate::axes::axis_pairs;
use crate::compile::MaxAndSum;
use crate::fusion::ops::Lookup;
use crate::fusion::{AxisKind, OpId, OpKind, Operand, TensorId};
use crate::schedule::heuristic::{LONGEST_SUMMED_ROW, may_reduce_again};
use crate::util::DisjointSets;
use std::collections::{BTreeMap, BTreeSet};

/// Why operations are not one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    /// A tensor would have one dimension twice, or a broadcast two dimensions.
    Axes,
    /// Two reductions are over different dimensions.
    Reductions,
    /// No tensor has all dimensions.
    Space,
    /// A row is too long to be held.
    Row,
    /// What is reduced lacks dimensions that large tensors have.
    Repeated,
    /// A tensor is computed that is looked up.
    Table,
}

/// Whether operations, in order of definition, can be one kernel.
pub(super) fn check(facts: &OpFacts<'_>, ops: &[OpId]) -> Result<(), Conflict> {
    match Dimensions::new(facts, ops, false).check() {
        Err(Conflict::Axes) => Dimensions::new(facts, ops, true).check(),
        other => other,
    }
}

/// The dimensions of some operations.
struct Dimensions<'a> {
    facts: &'a OpFacts<'a>,
    ops: &'a [OpId],
    /// The node of a tensor's first axis, and of each reading of a tensor from outside
    /// where readings are apart.
    first: BTreeMap<(TensorId, Option<(OpId, usize)>), usize>,
    /// The tensor and axis of each node.
    owner: Vec<(TensorId, usize)>,
    /// Pairs of nodes that are one dimension; whether the axes are of one kind.
    pairs: Vec<(usize, usize, bool)>,
    by_use: bool,
    /// Nodes that are no dimension: axes that are looked up.
    looked_up: BTreeSet<usize>,
}

impl<'a> Dimensions<'a> {
    fn new(facts: &'a OpFacts<'a>, ops: &'a [OpId], by_use: bool) -> Self {
        let (first, owner, pairs) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut this = Self { facts, ops, first, owner, pairs, by_use, looked_up: BTreeSet::new() };
        for &op in ops {
            this.add(op);
        }
        this
    }

    /// The first node of a tensor, as operand `operand` of an operation reads it.
    fn node(&mut self, tensor: TensorId, reading: Option<(OpId, usize)>) -> usize {
        let is_table = |(op, operand): (OpId, usize)| self.lookup(op).is_some_and(|lookup| lookup.table == operand);
        let apart = (self.by_use || reading.is_some_and(is_table)) && !self.facts.fusion.is_result_of(tensor, self.ops);
        let next = self.owner.len();
        let node = *self.first.entry((tensor, reading.filter(|_| apart))).or_insert(next);
        if node == next {
            let rank = self.facts.fusion.tensors[tensor].axes.len();
            self.owner.extend((0..rank).map(|axis| (tensor, axis)));
        }
        node
    }

    fn kind(&self, tensor: TensorId, axis: usize) -> AxisKind {
        self.facts.fusion.tensors[tensor].axes[axis].kind
    }

    /// Whether a node is a dimension along which its tensor has elements.
    fn is_moving(&self, node: usize) -> bool {
        let (tensor, axis) = self.owner[node];
        self.kind(tensor, axis) == AxisKind::Iteration && !self.looked_up.contains(&node)
    }

    fn lookup(&self, op: OpId) -> Option<Lookup> {
        self.facts.fusion.ops[op].kind.lookup()
    }

    /// Whether one of the operations computes what another one looks up.
    fn computes_table(&self) -> bool {
        let fusion = self.facts.fusion;
        self.ops.iter().any(|op| match (self.lookup(*op), &fusion.ops[*op].inputs) {
            (Some(lookup), inputs) => matches!(
                inputs.get(lookup.table),
                Some(Operand::Tensor(table)) if fusion.is_result_of(*table, self.ops)
            ),
            (None, _) => false,
        })
    }

    fn add(&mut self, id: OpId) {
        let fusion = self.facts.fusion;
        let op = &fusion.ops[id];
        let output = op.output();
        let to = self.node(output, None);
        for (position, operand) in op.inputs.iter().enumerate() {
            let Operand::Tensor(input) = *operand else { continue };
            let from = self.node(input, Some((id, position)));
            let ranks = [input, output].map(|tensor| fusion.tensors[tensor].axes.len());
            if let Some(lookup) = op.kind.lookup().filter(|lookup| lookup.table == position) {
                self.looked_up.insert(from + lookup.axis);
            }
            for (a, b) in axis_pairs(&op.kind, position, ranks[0], ranks[1]) {
                self.pairs.push((from + a, to + b, self.kind(input, a) == self.kind(output, b)));
            }
        }
    }

    fn check(self) -> Result<(), Conflict> {
        if self.computes_table() {
            return Err(Conflict::Table);
        }
        let mut classes = DisjointSets::new(self.owner.len());
        let mut exact = DisjointSets::new(self.owner.len());
        for &(a, b, same_kind) in &self.pairs {
            classes.union(a, b);
            if same_kind {
                exact.union(a, b);
            }
        }
        let dimensions = self.count(&classes, &exact)?;
        let mut widest = 0;
        for ((tensor, _), &first) in &self.first {
            let axes = 0..self.facts.fusion.tensors[*tensor].axes.len();
            let own: BTreeSet<usize> = axes.clone().map(|axis| classes.root(first + axis)).collect();
            if own.len() != axes.len() {
                return Err(Conflict::Axes);
            }
            widest = widest.max(axes.filter(|axis| self.is_moving(first + axis)).count());
        }
        if widest != dimensions {
            return Err(Conflict::Space);
        }
        self.check_rows(&classes)
    }

    /// How many dimensions there are along which some tensor has elements.
    fn count(&self, classes: &DisjointSets, exact: &DisjointSets) -> Result<usize, Conflict> {
        let mut known: BTreeMap<usize, usize> = BTreeMap::new();
        for node in 0..self.owner.len() {
            let own = exact.root(node);
            if self.is_moving(node) && *known.entry(classes.root(node)).or_insert(own) != own {
                return Err(Conflict::Axes);
            }
        }
        Ok(known.len())
    }

    /// Whether all reductions are over one set of dimensions, and what is needed of a
    /// row after them can be held.
    fn check_rows(mut self, classes: &DisjointSets) -> Result<(), Conflict> {
        let fusion = self.facts.fusion;
        let mut sets: Vec<BTreeSet<usize>> = Vec::new();
        let mut reductions: Vec<(OpId, usize)> = Vec::new();
        for &id in self.ops {
            let op = &fusion.ops[id];
            if let (OpKind::Reduce { axes, .. }, Some(Operand::Tensor(input))) = (&op.kind, op.inputs.first()) {
                let first = self.node(*input, Some((id, 0)));
                let moving = axes.iter().filter(|axis| self.kind(*input, **axis as usize) == AxisKind::Iteration);
                let over: BTreeSet<usize> = moving.map(|axis| classes.root(first + *axis as usize)).collect();
                if over.is_empty() {
                    continue;
                }
                let known = sets.iter().position(|set| *set == over);
                reductions.push((id, known.unwrap_or(sets.len())));
                if known.is_none() {
                    sets.push(over);
                }
            }
        }
        let of = |set: usize| reductions.iter().filter(move |(_, own)| *own == set).map(|(id, _)| *id);
        let rows = match sets.len() {
            0 => return Ok(()),
            1 => 0,
            2 => {
                if let Some(rows) = self.summed_first(classes, &sets, &reductions) {
                    let is_held = of(rows).all(|id| self.row(id) <= LONGEST_SUMMED_ROW);
                    return if is_held { Ok(()) } else { Err(Conflict::Row) };
                }
                let is_columns = |set: usize| of(set).all(|id| self.facts.columns[id]);
                let rows = usize::from(is_columns(0));
                let all: BTreeSet<usize> = self.moving(classes).collect();
                let are_sides = sets[0].is_disjoint(&sets[1]) && sets[0].len() + sets[1].len() == all.len();
                let columns: BTreeSet<OpId> = of(1 - rows).collect();
                if !is_columns(1 - rows) || !are_sides || !self.are_last(classes, &columns, &sets[1 - rows]) {
                    return Err(Conflict::Reductions);
                }
                rows
            }
            _ => return Err(Conflict::Reductions),
        };
        if self.repeats(classes, &of(rows).collect::<Vec<_>>()) {
            return Err(Conflict::Repeated);
        }
        let is_long = of(rows).any(|id| self.facts.long_rows[id]);
        let after = self.after(&of(rows).collect());
        let held = self.varies(classes, &after, &sets[rows]);
        let is_read_along = of(rows).any(|id| self.facts.rows_along[id]);
        let is_across = held && is_read_along && self.writes_across(classes, &sets[rows]);
        if held && is_long || is_across { Err(Conflict::Row) } else { Ok(()) }
    }

    /// Which of two sets of dimensions rows are of, where the other has a few positions that are all summed before a row is
    /// reduced, and no result has them.
    fn summed_first(
        &self,
        classes: &DisjointSets,
        sets: &[BTreeSet<usize>],
        reductions: &[(OpId, usize)],
    ) -> Option<usize> {
        let fusion = self.facts.fusion;
        let of = |set: usize| reductions.iter().filter(move |(_, own)| *own == set).map(|(id, _)| *id);
        let is_first = |few: &usize| {
            let made = self.ops.iter().flat_map(|op| &fusion.ops[*op].outputs).copied();
            let results = made.filter(|tensor| fusion.is_result_of(*tensor, self.ops));
            let later: BTreeSet<TensorId> = self.after(&of(1 - few).collect()).into_iter().chain(results).collect();
            of(*few).all(|id| self.facts.few[id]) && !self.varies(classes, &later, &sets[*few])
        };
        sets[0].is_disjoint(&sets[1]).then(|| (0..2).find(is_first).map(|few| 1 - few)).flatten()
    }

    /// Whether a large result has rows that lie across memory: neighbours there are of other rows. Threads hold neighbours
    /// of one row, so each access would write a sector for an element.
    fn writes_across(&self, classes: &DisjointSets, rows: &BTreeSet<usize>) -> bool {
        let fusion = self.facts.fusion;
        self.first.iter().any(|((tensor, reading), first)| {
            let nearest = self.facts.nearest[*tensor].filter(|_| reading.is_none());
            let class = |axis: usize| classes.root(first + axis);
            let has_rows = || {
                (0..fusion.tensors[*tensor].axes.len())
                    .any(|axis| self.is_moving(first + axis) && rows.contains(&class(axis)))
            };
            nearest.is_some_and(|axis| !rows.contains(&class(axis)))
                && fusion.is_result_of(*tensor, self.ops)
                && has_rows()
        })
    }

    /// Whether what is reduced has all dimensions.
    fn is_of_all(&self, classes: &DisjointSets, reduction: OpId) -> bool {
        let Some(input) = self.facts.fusion.tensor_inputs(reduction).next() else { return true };
        let own = |node: &usize| self.owner[*node].0 == input && self.is_moving(*node);
        let own: BTreeSet<usize> = (0..self.owner.len()).filter(own).map(|node| classes.root(node)).collect();
        self.moving(classes).all(|dimension| own.contains(&dimension))
    }

    /// Whether rows are reduced again and again, since they lack dimensions, where that costs more than a kernel.
    fn repeats(&self, classes: &DisjointSets, reductions: &[OpId]) -> bool {
        let lacking: Vec<OpId> = reductions.iter().copied().filter(|id| !self.is_of_all(classes, *id)).collect();
        let bytes = self.first.keys().map(|(tensor, _)| self.facts.bytes[*tensor]).max().unwrap_or(0);
        let beside_others = lacking.len() < reductions.len();
        let hold_up = |id: OpId| beside_others || self.facts.uneven[id];
        lacking.iter().any(|id| !may_reduce_again(self.row(*id), bytes, hold_up(*id)))
    }

    /// Elements of a row that is reduced.
    fn row(&self, reduction: OpId) -> i64 {
        let fusion = self.facts.fusion;
        let elements = |tensor: TensorId| self.facts.bytes[tensor] / fusion.tensors[tensor].dtype.bytes().max(1) as i64;
        let made = elements(fusion.ops[reduction].output()).max(1);
        fusion.tensor_inputs(reduction).map(|input| elements(input) / made).max().unwrap_or(1)
    }

    /// Dimensions along which some tensor has elements.
    fn moving(&self, classes: &DisjointSets) -> impl Iterator<Item = usize> {
        (0..self.owner.len()).filter(|node| self.is_moving(*node)).map(|node| classes.root(node))
    }

    /// Whether some of these tensors has elements along some of these dimensions.
    fn varies(&self, classes: &DisjointSets, tensors: &BTreeSet<TensorId>, along: &BTreeSet<usize>) -> bool {
        self.owner.iter().enumerate().any(|(node, (tensor, _))| {
            tensors.contains(tensor) && self.is_moving(node) && along.contains(&classes.root(node))
        })
    }

    /// What operations make, and what is computed of that.
    fn after(&self, first: &BTreeSet<OpId>) -> BTreeSet<TensorId> {
        let fusion = self.facts.fusion;
        let mut after: BTreeSet<TensorId> = BTreeSet::new();
        for &id in self.ops {
            let is_after = || fusion.tensor_inputs(id).any(|tensor| after.contains(&tensor));
            if first.contains(&id) || !self.is_online(id) && is_after() {
                after.extend(&fusion.ops[id].outputs);
            }
        }
        after
    }

    /// Whether an operation is the difference between rows and their maxima, of which these make sums of exponentials and
    /// nothing else: the kernel reduces both in one go.
    fn is_online(&self, difference: OpId) -> bool {
        let Some(MaxAndSum { exponential, sum, .. }) = self.facts.online[difference] else { return false };
        let feeds = |from: OpId, to: OpId| {
            let made = self.facts.fusion.ops[from].output();
            let readers = &self.facts.readers[made];
            self.ops.contains(&to)
                && !self.facts.returned[made]
                && readers.iter().all(|reader| *reader == to || !self.ops.contains(reader))
        };
        feeds(difference, exponential) && feeds(exponential, sum)
    }

    /// Whether what is computed of sums of columns is neither reduced nor of rows.
    fn are_last(&self, classes: &DisjointSets, columns: &BTreeSet<OpId>, over: &BTreeSet<usize>) -> bool {
        let after = self.after(columns);
        let is_reduced = |op: &OpId| {
            let fusion = self.facts.fusion;
            let reads = || fusion.tensor_inputs(*op).any(|tensor| after.contains(&tensor));
            matches!(fusion.ops[*op].kind, OpKind::Reduce { .. }) && reads()
        };
        !self.ops.iter().any(is_reduced) && !self.varies(classes, &after, over)
    }
}
