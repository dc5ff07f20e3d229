//! A scan with what is computed of elements before and behind it: elementwise operations on tensors that lie along the
//! axes of the scan, or along some of them.
//!
//! In: operations of a fusion, of which one is a scan. Out: two programs, of which the first makes an element that is scanned
//! of elements that are read, and the second elements of results of that, and of the prefix at the same place. What both need
//! is computed twice: operations cost less than registers.
//!
//! A scan of what is moved along its axis by one, with the element that changes nothing in front, is one of what comes before
//! each element; one that goes from the last to the first, with it behind, one of what comes behind.
//!
//! Invariant: each tensor has one map from its axes to those of the scan. Elements of inputs are read at the place of the
//! result alone, so programs cannot fail.

use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::{Call, Form};
use crate::fusion::{Axis, AxisKind, Fusion, Op, OpId, OpKind, Operand, ScalarId, TensorId};
use crate::kernel::{ExprId, KernelBuilder};
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, UnaryOp, Value, eval};
use crate::util::SecondaryMap;
use std::collections::BTreeMap;

/// Tensors that are read, and operations, at most: registers hold an element of each tensor for each of a thread's.
const MOST_READ: usize = 6;
const MOST_OPS: usize = 48;

/// A scan and what is computed of elements around it.
#[derive(Clone, Debug)]
pub(super) struct Around {
    pub(super) op: ReduceOp,
    /// The scan's operand and result, and the axis along which it combines.
    pub(super) x: TensorId,
    pub(super) scanned: TensorId,
    pub(super) axis: usize,
    /// It goes from the last element to the first.
    pub(super) is_reversed: bool,
    /// Prefixes are without the element itself.
    pub(super) is_exclusive: bool,
    pub(super) reads: Vec<Read>,
    /// What makes the scanned element, and the elements of results.
    pub(super) before: Program,
    pub(super) behind: Program,
    /// Each result with its axes among those of the scan.
    pub(super) results: Vec<(TensorId, Vec<usize>)>,
}

/// A tensor that is read: which axis of the scan each of its axes is.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) tensor: TensorId,
    pub(super) axes: Vec<usize>,
    /// Whether the scanned element is made of it.
    pub(super) is_before: bool,
}

/// Operations on single elements, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    steps: Vec<Step>,
    results: Vec<Source>,
}

#[derive(Clone, Debug)]
struct Step {
    compute: Compute,
    operands: Vec<Source>,
    dtype: DType,
    /// A product that is a number of its own, whatever sum it enters.
    is_rounded: bool,
}

#[derive(Clone, Copy, Debug)]
enum Compute {
    Unary(UnaryOp),
    Binary(BinaryOp),
    Ternary(TernaryOp),
    Cast,
    /// The position along an axis of the scan; none of one element.
    Position(Option<usize>),
}

/// Where an operand is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Step(usize),
    /// The number of a tensor that is read.
    Read(usize),
    /// What the scan gives.
    Prefix,
    Scalar(ScalarId),
}

/// What a program computes with.
pub(super) struct Element<'a> {
    /// The elements that are read; of those that the program does not ask for none.
    pub(super) reads: &'a [Option<ExprId>],
    pub(super) prefix: Option<ExprId>,
    /// The position along each axis of the scan.
    pub(super) places: &'a [ExprId],
    pub(super) scalars: &'a BTreeMap<ScalarId, ExprId>,
}

/// Whether operations, in order of definition, are a scan and what may be computed around it in one kernel. `is_result` says
/// of a tensor that they make whether it leaves the kernel.
pub fn is_scan(fusion: &Fusion, ops: &[OpId], is_result: impl Fn(TensorId) -> bool) -> bool {
    let made = ops.iter().flat_map(|op| &fusion.ops[*op].outputs).copied();
    let results: Vec<TensorId> = made.filter(|tensor| is_result(*tensor)).collect();
    Around::of(fusion, ops, &results).is_some()
}

impl Around {
    /// Of operations in order of definition, whose results these are.
    pub(super) fn of(fusion: &Fusion, ops: &[OpId], results: &[TensorId]) -> Option<Self> {
        let mut scans = ops.iter().filter(|op| fusion.ops[**op].kind.scanned().is_some());
        let (Some(&scan), None) = (scans.next(), scans.next()) else { return None };
        let ScanOf { op, axis, is_reversed } = scan_of(&fusion.ops[scan].kind)?;
        let (x, scanned) = (fusion.tensor_inputs(scan).next()?, fusion.ops[scan].output());
        if ops.len() > MOST_OPS {
            return None;
        }
        let is_own = |tensor: TensorId| fusion.is_result_of(tensor, ops);
        let moved = fusion.definition(x).filter(|_| is_own(x));
        let moved = moved.and_then(|pad| moved_by_one(fusion, &fusion.ops[pad], op, axis, is_reversed));
        let mut axes = Maps::new(fusion, scanned);
        axes.follow(ops)?;
        let mut writer = Writer { fusion, ops, axes: &axes, scan, reads: Vec::new(), sums: op == ReduceOp::Sum };
        let before = writer.program(&[moved.unwrap_or(x)], Part::Before)?;
        let behind = writer.program(results, Part::Behind)?;
        let reads = std::mem::take(&mut writer.reads);
        // What is moved is at no place for others.
        let is_hidden = || {
            let read = |op: &OpId| *op != scan && fusion.tensor_inputs(*op).any(|tensor| tensor == x);
            !results.contains(&x) && !ops.iter().any(read)
        };
        if reads.is_empty() || reads.len() > MOST_READ || moved.is_some() && !is_hidden() {
            return None;
        }
        let results = results.iter().map(|result| Some((*result, axes.of_result(*result)?)));
        let results = results.collect::<Option<_>>()?;
        let is_exclusive = moved.is_some();
        Some(Self { op, x, scanned, axis, is_reversed, is_exclusive, reads, before, behind, results })
    }

    /// Whether nothing is computed but the scan.
    pub(super) fn is_bare(&self) -> bool {
        self.before.steps.is_empty() && self.behind.steps.is_empty() && !self.is_exclusive
    }

    /// The same, and what is scanned is in memory as it is.
    pub(super) fn is_of_an_input(&self) -> bool {
        self.is_bare() && self.reads.iter().all(|read| read.tensor == self.x)
    }

    /// Fails where a program asks for what a scan of so many axes does not have.
    pub(super) fn check(&self, rank: usize, scalars: &BTreeMap<ScalarId, ExprId>) -> Result<()> {
        let has = [self.reads.len(), rank];
        self.before.check(Part::Before, has, scalars)?;
        self.behind.check(Part::Behind, has, scalars)
    }

    /// The scalars that programs ask for.
    pub(super) fn scalars(&self) -> impl Iterator<Item = ScalarId> + '_ {
        let operands = [&self.before, &self.behind].into_iter().flat_map(|program| &program.steps);
        operands.flat_map(|step| &step.operands).filter_map(|operand| match operand {
            Source::Scalar(scalar) => Some(*scalar),
            _ => None,
        })
    }
}

/// What a scan combines by, along which axis, and whether from the last to the first.
struct ScanOf {
    op: ReduceOp,
    axis: usize,
    is_reversed: bool,
}

fn scan_of(kind: &OpKind) -> Option<ScanOf> {
    let OpKind::Call(call) = kind else { return None };
    let Some(Form::Scan(op)) = call.movement().form else { return None };
    Some(ScanOf { op, axis: call.axis("dim"), is_reversed: call.flag("reverse") })
}

/// What an operation moves by one along an axis, the way that a scan goes, so that what changes nothing in it comes first and the
/// last element is left out.
fn moved_by_one(fusion: &Fusion, pad: &Op, op: ReduceOp, axis: usize, is_reversed: bool) -> Option<TensorId> {
    let OpKind::Call(call) = &pad.kind else { return None };
    if call.movement().form != Some(Form::Pad) {
        return None;
    }
    let [Operand::Tensor(moved)] = pad.inputs[call.operands("x")] else { return None };
    let dtype = fusion.tensors[moved].dtype;
    // The innermost axis comes first.
    let widths = numbers(fusion, pad, call)?;
    let is_moved = widths.chunks_exact(2).rev().enumerate().all(|(own, widths)| match own == axis {
        true => widths == if is_reversed { [-1, 1] } else { [1, -1] },
        false => widths == [0, 0],
    });
    let filled = match pad.inputs[call.operands("value")] {
        [Operand::Scalar(value)] => eval::cast(fusion.scalars[value].dtype, dtype, fusion.constant(value)?),
        _ => eval::cast(DType::Bool, dtype, Value::Bool(false)),
    };
    // Of sums 0 with a sign is another first element.
    let is_neutral =
        filled == eval::reduce_identity(op, dtype) && !(filled.as_f64() == 0.0 && filled.as_f64().is_sign_negative());
    (is_moved && is_neutral).then_some(moved)
}

/// The widths of a pad, if they are constants.
fn numbers(fusion: &Fusion, pad: &Op, call: &Call) -> Option<Vec<i64>> {
    let number = |operand: &Operand| match *operand {
        Operand::Scalar(scalar) => fusion.constant(scalar).map(|value| value.as_i64()),
        Operand::Tensor(_) => None,
    };
    pad.inputs[call.operands("widths")].iter().map(number).collect()
}

/// Which axis of the scan each axis of a tensor is.
struct Maps<'a> {
    fusion: &'a Fusion,
    scanned: TensorId,
    known: SecondaryMap<TensorId, Option<Vec<usize>>>,
}

impl<'a> Maps<'a> {
    fn new(fusion: &'a Fusion, scanned: TensorId) -> Self {
        let mut known = SecondaryMap::new();
        known.set(scanned, Some((0..fusion.tensors[scanned].axes.len()).collect()));
        Self { fusion, scanned, known }
    }

    /// Finds those of all tensors that operations read and make; none where one has several, or none.
    fn follow(&mut self, ops: &[OpId]) -> Option<()> {
        // Each way through them maps one tensor more, at least.
        for _ in 0..=ops.len() {
            let mut changed = false;
            for &op in ops.iter().rev().chain(ops) {
                changed |= self.follow_one(&self.fusion.ops[op])?;
            }
            if !changed {
                break;
            }
        }
        let is_known = |tensor: TensorId| self.known[tensor].is_some();
        let all = |op: &OpId| is_known(self.fusion.ops[*op].output()) && self.fusion.tensor_inputs(*op).all(is_known);
        ops.iter().all(all).then_some(())
    }

    fn follow_one(&mut self, op: &Op) -> Option<bool> {
        let output = op.output();
        let rank = self.fusion.tensors[output].axes.len();
        let mut changed = false;
        for input in op.inputs.iter().filter_map(|operand| match *operand {
            Operand::Tensor(input) => Some(input),
            Operand::Scalar(_) => None,
        }) {
            let own = self.fusion.tensors[input].axes.len();
            // Axes of the operand that the result has, in the order of the operand's; and whether it has all of either.
            let to: Vec<usize> = match &op.kind {
                OpKind::Broadcast { flags } => (0..rank).filter(|axis| !flags[*axis]).collect(),
                OpKind::Permute { perm } => {
                    let mut to = vec![0; own];
                    perm.iter().enumerate().for_each(|(axis, from)| to[*from as usize] = axis);
                    to
                }
                _ => (0..own).collect(),
            };
            let is_whole = own == rank;
            if !is_whole && !matches!(op.kind, OpKind::Broadcast { .. }) {
                return None;
            }
            let made = self.known[output].as_ref().map(|axes| to.iter().map(|axis| axes[*axis]).collect::<Vec<_>>());
            if let Some(made) = made {
                changed |= self.learn(input, made)?;
            } else if let Some(given) = self.known[input].clone().filter(|_| is_whole) {
                let mut made = vec![0; rank];
                to.iter().zip(&given).for_each(|(axis, own)| made[*axis] = *own);
                changed |= self.learn(output, made)?;
            }
        }
        Some(changed)
    }

    /// Notes the axes of a tensor; none where it has others, or elements along an axis along which the scan has none.
    fn learn(&mut self, tensor: TensorId, axes: Vec<usize>) -> Option<bool> {
        if let Some(known) = &self.known[tensor] {
            return (*known == axes).then_some(false);
        }
        let kind = |tensor: TensorId, axis: usize| self.fusion.tensors[tensor].axes[axis].kind;
        let moves = |(own, of): (usize, &usize)| {
            kind(tensor, own) == AxisKind::Broadcast || kind(self.scanned, *of) != AxisKind::Broadcast
        };
        if !axes.iter().enumerate().all(moves) {
            return None;
        }
        self.known.set(tensor, Some(axes));
        Some(true)
    }

    fn of(&self, tensor: TensorId) -> Option<&Vec<usize>> {
        self.known[tensor].as_ref()
    }

    /// The axes of a result, which has an element for each of the scan.
    fn of_result(&self, tensor: TensorId) -> Option<Vec<usize>> {
        let axes = self.of(tensor)?;
        let [own, scanned] = [tensor, self.scanned].map(|tensor| &self.fusion.tensors[tensor].axes);
        let is_alike = |(own, of): (&Axis, &usize)| own.kind == scanned[*of].kind;
        (own.len() == scanned.len() && own.iter().zip(axes).all(is_alike)).then(|| axes.clone())
    }
}

/// Whose elements a program makes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Before,
    Behind,
}

/// Makes programs of operations.
struct Writer<'a> {
    fusion: &'a Fusion,
    ops: &'a [OpId],
    axes: &'a Maps<'a>,
    scan: OpId,
    reads: Vec<Read>,
    /// Whether the scan adds.
    sums: bool,
}

impl Writer<'_> {
    /// The program that makes an element of each of some tensors.
    fn program(&mut self, results: &[TensorId], part: Part) -> Option<Program> {
        let needed = self.needed(results);
        let mut program = Program::default();
        let mut known: BTreeMap<TensorId, Source> = BTreeMap::new();
        for &op in self.ops.iter().filter(|op| needed.contains(op)) {
            let output = self.fusion.ops[op].output();
            let source = if op == self.scan { Source::Prefix } else { self.step(op, part, &known, &mut program)? };
            known.insert(output, source);
        }
        for &result in results {
            let source = self.source(result, part, &known);
            program.results.push(source);
        }
        (part == Part::Behind || !program.results.contains(&Source::Prefix)).then_some(program)
    }

    /// Operations that results are made by, up to the scan.
    fn needed(&self, results: &[TensorId]) -> Vec<OpId> {
        let mut needed: Vec<OpId> = Vec::new();
        let mut open = results.to_vec();
        while let Some(tensor) = open.pop() {
            let op = self.fusion.definition(tensor).filter(|op| self.ops.contains(op) && !needed.contains(op));
            if let Some(op) = op {
                needed.push(op);
                open.extend(self.fusion.tensor_inputs(op).filter(|_| op != self.scan));
            }
        }
        needed
    }

    /// Where an element of a tensor is from.
    fn source(&mut self, tensor: TensorId, part: Part, known: &BTreeMap<TensorId, Source>) -> Source {
        if let Some(source) = known.get(&tensor) {
            return *source;
        }
        let at = self.reads.iter().position(|read| read.tensor == tensor).unwrap_or_else(|| {
            let axes = self.axes.of(tensor).cloned().unwrap_or_default();
            self.reads.push(Read { tensor, axes, is_before: part == Part::Before });
            self.reads.len() - 1
        });
        self.reads[at].is_before |= part == Part::Before;
        Source::Read(at)
    }

    /// Adds an operation to a program; where its element is from then.
    fn step(
        &mut self,
        id: OpId,
        part: Part,
        known: &BTreeMap<TensorId, Source>,
        program: &mut Program,
    ) -> Option<Source> {
        let op = &self.fusion.ops[id];
        let operands = op.inputs.iter().map(|operand| match *operand {
            Operand::Tensor(tensor) => self.source(tensor, part, known),
            Operand::Scalar(scalar) => Source::Scalar(scalar),
        });
        let mut operands: Vec<Source> = operands.collect();
        let output = op.output();
        let compute = match &op.kind {
            OpKind::Broadcast { .. } | OpKind::Permute { .. } => return operands.pop(),
            OpKind::Unary(op) => Compute::Unary(*op),
            OpKind::Binary(op) => Compute::Binary(*op),
            OpKind::Ternary(op) => Compute::Ternary(*op),
            OpKind::Cast(_) | OpKind::Set => Compute::Cast,
            OpKind::Full => {
                operands.truncate(1);
                Compute::Cast
            }
            OpKind::Index { axis } => {
                operands.clear();
                let is_one = self.fusion.tensors[output].axes[*axis as usize].kind == AxisKind::Broadcast;
                let axes = self.axes.of(output)?;
                Compute::Position((!is_one).then(|| axes[*axis as usize]))
            }
            OpKind::Squeeze { .. } | OpKind::Reduce { .. } | OpKind::Call(_) => return None,
        };
        let dtype = self.fusion.tensors[output].dtype;
        program.steps.push(Step { compute, operands, dtype, is_rounded: self.is_rounded(id) });
        Some(Source::Step(program.steps.len() - 1))
    }

    /// Whether a product has several uses, and a sum is one of them: joined with it in one operation it would be another
    /// number there.
    fn is_rounded(&self, product: OpId) -> bool {
        let fusion = self.fusion;
        if fusion.ops[product].kind != OpKind::Binary(BinaryOp::Mul) {
            return false;
        }
        let (mut uses, mut is_added, mut names) = (0, false, vec![fusion.ops[product].output()]);
        while let Some(name) = names.pop() {
            for reader in self.ops.iter().filter(|op| fusion.tensor_inputs(**op).any(|tensor| tensor == name)) {
                let count = fusion.tensor_inputs(*reader).filter(|tensor| *tensor == name).count();
                let (more, adds) = match &fusion.ops[*reader].kind {
                    OpKind::Broadcast { .. } | OpKind::Permute { .. } | OpKind::Set => {
                        names.push(fusion.ops[*reader].output());
                        (0, false)
                    }
                    OpKind::Binary(BinaryOp::Add | BinaryOp::Sub) | OpKind::Ternary(TernaryOp::Lerp) => (count, true),
                    // An element enters several prefixes.
                    OpKind::Call(_) => (2, self.sums),
                    _ => (count, false),
                };
                (uses, is_added) = (uses + more, is_added || adds);
            }
        }
        is_added && uses > 1
    }
}

impl Program {
    /// Whether a tensor that is read is asked for.
    pub(super) fn asks_for(&self, read: usize) -> bool {
        let operands = self.steps.iter().flat_map(|step| &step.operands);
        operands.chain(&self.results).any(|operand| *operand == Source::Read(read))
    }

    /// Fails where a source is missing, so that nothing is computed of another number instead: in a kernel of so many tensors
    /// that are read, axes, and scalars, with a prefix or not.
    fn check(&self, part: Part, [reads, rank]: [usize; 2], scalars: &BTreeMap<ScalarId, ExprId>) -> Result<()> {
        let is_there = |source: &Source, steps: usize| match *source {
            Source::Step(step) => step < steps,
            Source::Read(read) => read < reads,
            Source::Prefix => part == Part::Behind,
            Source::Scalar(scalar) => scalars.contains_key(&scalar),
        };
        let is_whole = |(number, step): (usize, &Step)| {
            let has_place = !matches!(step.compute, Compute::Position(Some(axis)) if axis >= rank);
            has_place && step.operands.iter().all(|source| is_there(source, number))
        };
        let is_whole = self.steps.iter().enumerate().all(is_whole)
            && self.results.iter().all(|source| is_there(source, self.steps.len()));
        if is_whole { Ok(()) } else { Err(Diagnostic::bug("a program around a scan has an operand from nowhere")) }
    }

    /// Emits it for an element: what it makes. Its sources are there ([`Around::check`]).
    pub(super) fn emit(&self, b: &mut KernelBuilder, element: &Element<'_>) -> Vec<ExprId> {
        let mut made: Vec<ExprId> = Vec::with_capacity(self.steps.len());
        let of = |b: &mut KernelBuilder, made: &[ExprId], source: Source| {
            let found = match source {
                Source::Step(step) => made.get(step).copied(),
                Source::Read(read) => element.reads.get(read).copied().flatten(),
                Source::Prefix => element.prefix,
                Source::Scalar(scalar) => element.scalars.get(&scalar).copied(),
            };
            found.unwrap_or_else(|| b.int(0))
        };
        for step in &self.steps {
            let operands: Vec<ExprId> = step.operands.iter().map(|operand| of(b, &made, *operand)).collect();
            let value = step.value(b, &operands, element.places);
            let value = b.let_("v", value);
            made.push(value);
        }
        self.results.iter().map(|result| of(b, &made, *result)).collect()
    }
}

impl Step {
    fn value(&self, b: &mut KernelBuilder, operands: &[ExprId], places: &[ExprId]) -> ExprId {
        let value = match (self.compute, operands) {
            (Compute::Unary(op), [x]) => b.exprs().unary(op, *x),
            (Compute::Binary(op), [x, y]) => b.exprs().binary(op, *x, *y),
            (Compute::Ternary(op), [x, y, z]) => b.exprs().ternary(op, *x, *y, *z),
            (Compute::Position(axis), _) => {
                let place = axis.and_then(|axis| places.get(axis).copied()).unwrap_or_else(|| b.int(0));
                b.exprs().as_data(place)
            }
            (_, operands) => operands[0],
        };
        let value = if self.is_rounded { b.exprs().rounded(value) } else { value };
        b.exprs().cast(value, self.dtype)
    }
}
