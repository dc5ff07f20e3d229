//! The index algebra, driven without a heuristic: elementwise fusions under
//! random splits, merges, shifts, bindings and loop orders. Whatever the
//! schedule, every element of every output is written exactly once (the
//! simulator reports races and unwritten elements) and has the right value.

#![allow(clippy::unwrap_used, reason = "a test: what fails here is the finding")]

use crate::property::property;
use arbtest::arbitrary::{Result as Drawn, Unstructured};
use engine::backend::sim;
use engine::diag::{Kind, Result};
use engine::fusion::{Dim, Fusion, FusionBuilder, bind};
use engine::kernel::{self, Block, Expr, ExprId, Kernel, StmtKind};
use engine::lower;
use engine::num::{BinaryOp, DType, Value};
use engine::options::{Options, SimOptions, SimSchedule};
use engine::refeval;
use engine::schedule::heuristic::Sizes;
use engine::schedule::{
    ArgClass, AxisId, Extent, Memory, ParallelType, ScheduleBuilder, ScheduledFusion, TvId, scheduled_fusion,
};
use engine::tensor::{Arg, ArgMeta, HostTensor, TensorMeta};

/// `x + y` where `y` has some of the axes, beside `-y`, which is smaller.
fn fusion(thin: &[bool], order: &[i64]) -> Fusion {
    let mut b = FusionBuilder::new("f");
    let x = b.tensor("x", DType::I32, &vec![Dim::Symbolic; thin.len()]).unwrap();
    let dims: Vec<Dim> = thin.iter().map(|thin| if *thin { Dim::Broadcast } else { Dim::Symbolic }).collect();
    let y = b.tensor("y", DType::I32, &dims).unwrap();
    let small = b.neg(y).unwrap();
    let sum = b.add(x, y).unwrap();
    let moved = b.permute(sum, order).unwrap();
    b.output(small).unwrap();
    b.output(sum).unwrap();
    b.output(moved).unwrap();
    b.finish().unwrap()
}

fn tensor(u: &mut Unstructured<'_>, sizes: &[i64]) -> Drawn<HostTensor> {
    let mut strides = vec![1; sizes.len()];
    let mut next = 1;
    for (axis, size) in sizes.iter().enumerate().rev() {
        next += if u.ratio(1, 6)? { u.int_in_range(1..=4)? } else { 0 };
        strides[axis] = next;
        next *= size.max(&1);
    }
    let mut count = 0;
    let meta = TensorMeta { dtype: DType::I32, sizes: sizes.to_vec(), strides };
    let tensor = HostTensor::strided(meta, |_| {
        count += 1;
        Value::Int(count * 7 % 1009)
    });
    Ok(tensor.unwrap())
}

/// The extent of an axis for the given sizes.
fn extent(scheduled: &ScheduledFusion, sizes: &Sizes, axis: AxisId) -> i64 {
    sizes.extent(scheduled, axis)
}

/// Splits, merges and shifts leaves at random. Returns the leaves.
fn transform(u: &mut Unstructured<'_>, b: &mut ScheduleBuilder, sizes: &Sizes) -> Drawn<Vec<AxisId>> {
    let mut leaves: Vec<AxisId> = b.state().axes.ids().collect();
    let globals: Vec<TvId> =
        b.state().tensors.iter().filter(|(_, tv)| tv.memory == Memory::Global).map(|(tv, _)| tv).collect();
    for _ in 0..u.int_in_range(0..=7)? {
        let at = u.choose_index(leaves.len())?;
        let axis = leaves[at];
        let n = extent(b.state(), sizes, axis);
        let made: Result<Vec<AxisId>> = match u.int_in_range(0..=5)? {
            0..=2 => {
                let factor = u.int_in_range(1..=9)?;
                b.split(axis, factor, n % factor == 0 && u.ratio(1, 2)?).map(|(outer, inner)| vec![outer, inner])
            }
            3 => {
                let count = u.int_in_range(1..=5)?;
                let factor = (n + count - 1) / count;
                let exact = factor > 0 && factor * count == n;
                b.split_cover(axis, count, factor.max(1), exact).map(|(outer, inner)| vec![outer, inner])
            }
            4 => {
                let other = u.choose_index(leaves.len())?;
                if other == at {
                    continue;
                }
                let merged = b.merge(axis, leaves[other]).map(|merged| vec![merged]);
                if merged.is_ok() {
                    let other = leaves[other];
                    leaves.retain(|leaf| *leaf != other);
                }
                merged
            }
            _ => b.align(axis, *u.choose(&[2, 4, 8])?, *u.choose(&globals)?, None).map(|shifted| vec![shifted]),
        };
        // What a primitive refuses leaves no trace.
        if let Ok(made) = made {
            leaves.retain(|leaf| *leaf != axis);
            leaves.extend(made);
        }
    }
    Ok(leaves)
}

/// Binds leaves to places, orders the loops and inlines.
fn bind_leaves(u: &mut Unstructured<'_>, b: &mut ScheduleBuilder, mut leaves: Vec<AxisId>) -> Drawn<()> {
    use ParallelType::{Bidx, Bidy, Bidz, Tidx, Tidy, Tidz};
    for last in (1..leaves.len()).rev() {
        leaves.swap(last, u.choose_index(last + 1)?);
    }
    let mut threads = 1;
    let mut free = vec![Bidx, Bidy, Bidz, Tidx, Tidy, Tidz];
    for leaf in &leaves {
        let constant = match b.state().axes[*leaf].extent {
            Extent::Const(n) => Some(n),
            _ => None,
        };
        let parallel = match (u.int_in_range(0..=4)?, constant) {
            (0 | 1, _) => u.choose(&free).ok().copied(),
            (2, Some(n)) if n <= 16 => Some(ParallelType::Unroll),
            (3, Some(n)) if n <= 16 => Some(ParallelType::Vectorize),
            _ => None,
        };
        let Some(parallel) = parallel else { continue };
        if parallel.is_thread() {
            match constant {
                Some(n) if n > 0 && n <= 64 && threads * n <= 1024 => threads *= n,
                _ => continue,
            }
        }
        free.retain(|place| *place != parallel);
        b.parallelize(*leaf, parallel).unwrap();
    }
    // Mostly what is bound comes first and vectors last, as heuristics order it.
    if u.ratio(3, 4)? {
        leaves.sort_by_key(|leaf| match b.state().axes[*leaf].parallel {
            ParallelType::Serial => 1,
            ParallelType::Unroll => 2,
            ParallelType::Vectorize => 3,
            _ => 0,
        });
    }
    b.propagate(&leaves).unwrap();
    // Some values are kept for all constant loops at the end of their order.
    let mut keep = Vec::new();
    for tv in b.state().tensors.ids() {
        let data = &b.state().tensors[tv];
        let constant = |leaf: &&AxisId| {
            matches!(b.state().axes[**leaf].extent, Extent::Const(n) if n <= 16)
                && b.state().axes[**leaf].parallel.is_loop()
        };
        let kept = data.loops.iter().rev().take_while(constant).count();
        if data.io.is_none() && u.ratio(1, 2)? {
            keep.push((tv, data.loops.len() - u.int_in_range(0..=kept)?));
        }
    }
    b.inline_most(&keep).unwrap();
    Ok(())
}

/// A scheduled kernel with its arguments and what it should compute.
struct Case {
    fusion: Fusion,
    args: Vec<Arg>,
    kernel: Kernel,
    schedule: String,
}

fn class(fusion: &Fusion, metas: &[ArgMeta]) -> (ArgClass, Sizes) {
    let sizes = Sizes::new(fusion, &bind(fusion, metas).unwrap());
    let aligns = vec![16; metas.len()];
    (ArgClass::new(fusion, metas, &aligns, sizes.elements(), &Options::default()), sizes)
}

fn draw(u: &mut Unstructured<'_>) -> Drawn<Option<Case>> {
    let rank = u.int_in_range(1..=3)?;
    let most = [300, 24, 11][rank - 1];
    let mut sizes = Vec::new();
    let mut thin = Vec::new();
    let mut order: Vec<i64> = (0..rank as i64).collect();
    for axis in 0..rank {
        sizes.push(u.int_in_range(1..=most)?);
        thin.push(u.ratio(1, 3)?);
        order.swap(axis, u.choose_index(axis + 1)?);
    }
    let fusion = fusion(&thin, &order);
    let thin_sizes: Vec<i64> = sizes.iter().zip(&thin).map(|(size, thin)| if *thin { 1 } else { *size }).collect();
    let args = vec![Arg::Tensor(tensor(u, &sizes)?), Arg::Tensor(tensor(u, &thin_sizes)?)];
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let (class, sizes) = class(&fusion, &metas);
    let mut b = ScheduleBuilder::new(scheduled_fusion(&fusion).unwrap());
    let leaves = transform(u, &mut b, &sizes)?;
    for input in b.inputs() {
        b.cache_after(input);
    }
    bind_leaves(u, &mut b, leaves)?;
    let scheduled = b.finish();
    let schedule = format!("{metas:?} order {order:?}\n{}", scheduled.schedule_text());
    match lower::lower(&scheduled, &class, "drawn") {
        Ok(kernel) => Ok(Some(Case { fusion, args, kernel, schedule })),
        Err(error) if error.kind == Kind::Unsupported => Ok(None),
        Err(error) => panic!("{error}\n{schedule}"),
    }
}

/// Runs a kernel and compares; says what is wrong.
fn run(case: &Case, kernel: &Kernel) -> std::result::Result<(), String> {
    let metas: Vec<ArgMeta> = case.args.iter().map(Arg::meta).collect();
    kernel::verify(kernel).map_err(|error| error.to_string())?;
    let launch = kernel::bind(kernel, &metas).map_err(|error| error.to_string())?;
    let mut memory = sim::Memory::new(kernel, &launch);
    for (i, arg) in case.args.iter().enumerate() {
        if let Arg::Tensor(tensor) = arg {
            memory.fill_input(i as u32, &tensor.data).map_err(|error| error.to_string())?;
        }
    }
    let options = SimOptions { schedule: SimSchedule::Random, threads: 1, count: false, ..SimOptions::default() };
    let report = sim::run(kernel, &launch, &mut memory, &options).map_err(|error| error.to_string())?;
    if report.unwritten.iter().any(|(.., missing)| *missing > 0) {
        return Err(format!("elements are not written: {:?}", report.unwritten));
    }
    for (i, expected) in refeval::evaluate(&case.fusion, &case.args).unwrap().iter().enumerate() {
        // A kernel writes its results dense, whatever strides the reference gives them.
        if memory.output(i as u32) != Some(&expected.dense_bytes()[..]) {
            return Err(format!("output {i} differs"));
        }
    }
    Ok(())
}

#[test]
fn every_schedule_writes_every_element_once() {
    let (mut ran, mut refused) = (0, 0);
    property(|u| {
        match draw(u)? {
            None => refused += 1,
            Some(case) => {
                ran += 1;
                if let Err(error) = run(&case, &case.kernel) {
                    panic!("{error}\n{}\n{}", case.schedule, kernel::print(&case.kernel));
                }
            }
        }
        Ok(())
    })
    .bytes(64..=400)
    .cases(5000);
    assert!(refused * 4 < ran, "{refused} of {} schedules were refused", ran + refused);
}

/// The terms of a condition.
fn terms(kernel: &Kernel, condition: ExprId) -> Vec<ExprId> {
    match kernel.exprs[condition].expr {
        Expr::Binary(BinaryOp::LogicalAnd, a, b) => [terms(kernel, a), terms(kernel, b)].concat(),
        _ => vec![condition],
    }
}

/// The distinct terms of all branches, in order.
fn all_terms(kernel: &Kernel, block: &Block, found: &mut Vec<ExprId>) {
    for stmt in block {
        match &stmt.kind {
            StmtKind::If { condition, then, otherwise } => {
                for term in terms(kernel, *condition) {
                    if !found.contains(&term) {
                        found.push(term);
                    }
                }
                all_terms(kernel, then, found);
                all_terms(kernel, otherwise, found);
            }
            StmtKind::For { body, .. } => all_terms(kernel, body, found),
            _ => {}
        }
    }
}

/// Takes a term out of every branch.
fn without(kernel: &mut Kernel, block: Block, dropped: ExprId) -> Block {
    let mut out = Vec::with_capacity(block.len());
    for mut stmt in block {
        stmt.kind = match stmt.kind {
            StmtKind::If { condition, then, otherwise } => {
                let mut kept = kernel.exprs.bool(true);
                for term in terms(kernel, condition).into_iter().filter(|term| *term != dropped) {
                    kept = kernel.exprs.and(kept, term);
                }
                let (then, otherwise) = (without(kernel, then, dropped), without(kernel, otherwise, dropped));
                StmtKind::If { condition: kept, then, otherwise }
            }
            StmtKind::For { var, start, end, step, unroll, body } => {
                let body = without(kernel, body, dropped);
                StmtKind::For { var, start, end, step, unroll, body }
            }
            other => other,
        };
        out.push(stmt);
    }
    out
}

/// A kernel under a given schedule of dense arguments.
#[track_caller]
fn scheduled_case(
    fusion: Fusion,
    sizes: &[i64],
    schedule: impl FnOnce(&mut ScheduleBuilder, &[AxisId]) -> Result<Vec<AxisId>>,
) -> Case {
    let input = |k: i64| HostTensor::from_fn(DType::I32, sizes, |i| Value::Int(i[i.len() - 1] * 3 + i[0] * 100 + k));
    let args: Vec<Arg> = (0..2).map(|k| Arg::Tensor(input(k).unwrap())).collect();
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let (class, _) = class(&fusion, &metas);
    let mut b = ScheduleBuilder::new(scheduled_fusion(&fusion).unwrap());
    let roots: Vec<AxisId> = b.state().axes.ids().collect();
    for input in b.inputs() {
        b.cache_after(input);
    }
    let order = schedule(&mut b, &roots).unwrap();
    b.propagate(&order).unwrap();
    let keep: Vec<(TvId, usize)> =
        b.state().tensors.iter().filter(|(_, tv)| tv.io.is_none()).map(|(tv, _)| (tv, order.len() - 1)).collect();
    b.inline_most(&keep).unwrap();
    let scheduled = b.finish();
    let kernel = lower::lower(&scheduled, &class, "drawn").unwrap();
    let case = Case { fusion, args, kernel, schedule: scheduled.schedule_text() };
    if let Err(error) = run(&case, &case.kernel) {
        panic!("{error}\n{}\n{}", case.schedule, kernel::print(&case.kernel));
    }
    case
}

#[test]
fn a_vector_wider_than_its_part_is_not_one_access() {
    scheduled_case(fusion(&[false], &[0]), &[88], |b, roots| {
        let (outer, inner) = b.split(roots[0], 4, true)?;
        let (middle, lane) = b.split(inner, 8, false)?;
        b.parallelize(outer, ParallelType::Bidx)?;
        b.parallelize(lane, ParallelType::Vectorize)?;
        Ok(vec![outer, middle, lane])
    });
}

#[test]
fn lanes_whose_rows_are_shifted_are_not_neighbours() {
    scheduled_case(fusion(&[false, false], &[1, 0]), &[8, 19], |b, roots| {
        let outputs = b.outputs();
        let (outer, lane) = b.split(roots[0], 8, false)?;
        let columns = b.align(roots[1], 8, outputs[1], None)?;
        b.parallelize(columns, ParallelType::Bidx)?;
        b.parallelize(lane, ParallelType::Vectorize)?;
        Ok(vec![columns, outer, lane])
    });
}

#[test]
fn shifts_that_depend_on_each_other_are_refused() {
    let fusion = fusion(&[false, false], &[1, 0]);
    let mut b = ScheduleBuilder::new(scheduled_fusion(&fusion).unwrap());
    let roots: Vec<AxisId> = b.state().axes.ids().collect();
    let outputs = b.outputs();
    b.align(roots[1], 8, outputs[1], None).unwrap();
    assert!(b.align(roots[0], 8, outputs[2], None).is_err());
}

/// 50 elements in parts of 6, those in parts of 4: the test of the whole index
/// and that of the index within a part are both needed, and nothing else is.
#[test]
fn a_double_split_needs_both_predicates() {
    let case = scheduled_case(fusion(&[false], &[0]), &[50], |b, roots| {
        let (outer, inner) = b.split(roots[0], 6, false)?;
        let (middle, least) = b.split(inner, 4, false)?;
        b.parallelize(outer, ParallelType::Bidx)?;
        b.parallelize(middle, ParallelType::Tidy)?;
        b.parallelize(least, ParallelType::Tidx)?;
        Ok(vec![outer, middle, least])
    });
    let mut found = Vec::new();
    all_terms(&case.kernel, &case.kernel.body, &mut found);
    assert_eq!(found.len(), 2, "{}", kernel::print(&case.kernel));
    for term in found {
        let mut mutant = case.kernel.clone();
        let body = std::mem::take(&mut mutant.body);
        mutant.body = without(&mut mutant, body, term);
        let caught = run(&case, &mutant);
        assert!(caught.is_err(), "a missing predicate was not noticed\n{}", kernel::print(&mutant));
    }
}
