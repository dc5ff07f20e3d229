//! The index algebra, driven without a heuristic: elementwise fusions under
//! random splits, merges, shifts, bindings and loop orders. Whatever the
//! schedule, every element of every output is written exactly once (the
//! simulator reports races and unwritten elements) and has the right value.

#![allow(clippy::unwrap_used, reason = "a test: what fails here is the finding")]

use crate::property::draws::drawn;
use engine::diag::Result;
use engine::fusion::{Fusion, bind};
use engine::kernel::{self, Block, Expr, ExprId, Kernel, StmtKind};
use engine::lower;
use engine::num::{BinaryOp, DType, Value};
use engine::options::{Options, SimOptions, SimSchedule};
use engine::schedule::heuristic::Sizes;
use engine::schedule::{ArgClass, AxisId, ParallelType, ScheduleBuilder, TvId, scheduled_fusion};
use engine::tensor::{Arg, ArgMeta, HostTensor};
use std::collections::BTreeMap;
use testing::Reference;
use testing::check::{CheckTarget, DrawOutcome};
use testing::random::sums;

/// Schedules of a run that draws all.
const SCHEDULES: u64 = 5000;

/// `x + y` where `y` has some of the axes, beside `-y` and the sum in another order of axes.
fn fusion(thin: &[bool], order: &[i64]) -> Fusion {
    sums(DType::I32, thin, order).unwrap()
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

/// Runs a kernel and compares; says what is wrong.
fn run(case: &Case, kernel: &Kernel) -> Result<()> {
    let options = SimOptions { schedule: SimSchedule::Random, threads: 1, count: false, ..SimOptions::default() };
    Reference::of(&case.fusion, &case.args)?.check_kernel(kernel, &options)
}

#[test]
fn every_schedule_writes_every_element_once() {
    let mut held: BTreeMap<String, u64> = BTreeMap::new();
    let seeds = drawn(SCHEDULES);
    let schedules = seeds.len() as u64;
    for seed in seeds {
        match CheckTarget::Simulator.schedule(seed) {
            DrawOutcome::Agrees(what) => *held.entry(what).or_default() += 1,
            DrawOutcome::Refused(_) | DrawOutcome::Skipped => {}
            DrawOutcome::Differs(what) => panic!("seed {seed}: {what}"),
        }
    }
    let ran: u64 = held.values().sum();
    assert!(ran * 5 > schedules * 4, "{} of {schedules} schedules were refused", schedules - ran);
    for what in ["ring", "shared"] {
        let count = held.get(what).copied().unwrap_or_default();
        assert!(count * 20 > schedules, "{count} of {schedules} schedules have a {what}: {held:?}");
    }
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
        b.cache_after(input).unwrap();
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

/// 12 by 16 by 8 elements of one thread: all unrolled, the assembler would see
/// 1536 copies of each statement and take minutes.
#[test]
fn of_many_unrolled_loops_the_outer_ones_stay_loops() {
    let case = scheduled_case(fusion(&[false], &[0]), &[1536], |b, roots| {
        let (rest, inner) = b.split(roots[0], 8, false)?;
        let (outer, middle) = b.split(rest, 16, false)?;
        let (blocks, outer) = b.split(outer, 12, false)?;
        b.parallelize(blocks, ParallelType::Bidx)?;
        for axis in [outer, middle, inner] {
            b.parallelize(axis, ParallelType::Unroll)?;
        }
        Ok(vec![blocks, outer, middle, inner])
    });
    let text = kernel::print(&case.kernel);
    let loops = |extent: &str, unrolled: bool| {
        let heads = text.lines().filter(|line| line.trim_start().starts_with("for ") && line.contains(extent));
        heads.filter(|line| line.contains("unroll") == unrolled).count()
    };
    assert!(loops("12", false) > 0 && loops("12", true) == 0, "{text}");
    assert!(loops("16", true) > 0 && loops("8", true) > 0, "{text}");
}
