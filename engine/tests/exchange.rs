//! The shared memory through which threads exchange values, where reductions take
//! turns with it, and through which tensors pass from one map of threads to another: no
//! run has a race, and without any of the barriers, or without the turns, the simulator
//! reports one. It finds races by ordering, not by chance.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::property::draws;
use engine::compile::compile_fusion;
use engine::diag::{Code, DiagnosticKind, Result, code};
use engine::fusion::{Fusion, bind};
use engine::kernel::{self, Access, Block, BufId, Kernel, Space, StmtKind};
use engine::lower;
use engine::num::{DType, Value};
use engine::options::{CompileCx, DeviceDesc, NoTrace, Options, SimOptions, SimSchedule};
use engine::schedule::heuristic::Sizes;
use engine::schedule::{
    ArgClass, AxisId, Columns, Loop, Memory, ParallelType, ScheduleBuilder, Tile, TvId, scheduled_fusion,
};
use engine::tensor::{Arg, ArgMeta, HostTensor};
use engine::text;
use std::collections::BTreeMap;
use std::fmt::Write;
use testing::random::tuning;
use testing::{Draw, Reference};

/// Runs a kernel under schedules of several kinds and compares.
fn run(fusion: &Fusion, args: &[Arg], kernel: &Kernel) -> Result<()> {
    let reference = Reference::of(fusion, args)?.scaled()?;
    let schedules = [SimSchedule::Lockstep, SimSchedule::Random, SimSchedule::Pct(3), SimSchedule::Adversary];
    schedules.into_iter().enumerate().try_for_each(|(seed, schedule)| {
        let options = SimOptions { schedule, seed: seed as u64, threads: 1, count: false, ..SimOptions::default() };
        reference.check_kernel(kernel, &options)
    })
}

/// Changes each statement of a kernel, in order, or takes it out.
fn edit(block: &mut Block, keep: &mut impl FnMut(&mut StmtKind) -> bool) {
    block.retain_mut(|stmt| {
        match &mut stmt.kind {
            StmtKind::For { body, .. } => edit(body, keep),
            StmtKind::If { then, otherwise, .. } => {
                edit(then, keep);
                edit(otherwise, keep);
            }
            _ => {}
        }
        keep(&mut stmt.kind)
    });
}

fn barriers(kernel: &Kernel) -> usize {
    let mut count = 0;
    edit(&mut kernel.body.clone(), &mut |stmt| {
        count += usize::from(matches!(stmt, StmtKind::Sync(_)));
        true
    });
    count
}

fn without_barrier(kernel: &Kernel, wanted: usize) -> Kernel {
    let (mut mutant, mut seen) = (kernel.clone(), 0);
    edit(&mut mutant.body, &mut |stmt| {
        seen += usize::from(matches!(stmt, StmtKind::Sync(_)));
        !matches!(stmt, StmtKind::Sync(_)) || seen != wanted + 1
    });
    mutant
}

/// Every barrier is needed. Returns how many there are.
#[track_caller]
fn check_barriers(fusion: &Fusion, args: &[Arg], kernel: &Kernel) -> usize {
    if let Err(error) = run(fusion, args, kernel) {
        panic!("{error}\n{}", kernel::print(kernel));
    }
    for barrier in 0..barriers(kernel) {
        let found = run(fusion, args, &without_barrier(kernel, barrier)).map_err(|error| error.code);
        let expected: &[Code] = &[code::RACE, code::UNINITIALISED];
        let told = found.is_err_and(|code| expected.contains(&code));
        assert!(told, "no need of barrier {barrier}: {found:?}\n{}", kernel::print(kernel));
    }
    barriers(kernel)
}

/// The shared arrays through which values are exchanged, by type.
fn exchange_arrays(kernel: &Kernel) -> BTreeMap<DType, Vec<BufId>> {
    let mut found: BTreeMap<DType, Vec<BufId>> = BTreeMap::new();
    for (id, buffer) in kernel.buffers.iter().filter(|(_, b)| b.space == Space::Shared && b.name != "blocks_before") {
        found.entry(buffer.dtype).or_default().push(id);
    }
    found
}

/// All exchanges of a type through one array, large enough for each.
fn without_turns(kernel: &Kernel) -> Kernel {
    let mut mutant = kernel.clone();
    for arrays in exchange_arrays(kernel).values() {
        let largest = arrays.iter().max_by_key(|id| kernel.exprs.as_int(kernel.buffers[**id].len)).unwrap();
        let to = |access: &mut Access| {
            if arrays.contains(&access.buffer) {
                access.buffer = *largest;
            }
        };
        edit(&mut mutant.body, &mut |stmt| {
            match stmt {
                StmtKind::Load { from, .. } => to(from),
                StmtKind::Store { to: place, .. } => to(place),
                _ => {}
            }
            true
        });
    }
    mutant
}

fn compiled(fusion: &Fusion, metas: &[ArgMeta], device: &DeviceDesc, room: Option<i64>) -> Result<Kernel> {
    // Rows that are held are taken in turn: without the loop there is one barrier less.
    let in_turn = ("norm.threads_per_sm".to_string(), 1024);
    let tuning = room.map(|room| ("shared.room".to_string(), room)).into_iter().chain([in_turn]).collect();
    let options = Options { tuning, ..Options::default() };
    let cx = CompileCx { options: &options, device, trace: &NoTrace };
    Ok(compile_fusion(&cx, fusion, metas, &vec![16; metas.len()])?.kernel)
}

/// A fusion of one tensor `x: f32[?, ?]`; each line is an operation.
fn parsed(lines: &[String], results: &[String]) -> Fusion {
    let mut text = "fusion @F(%x: f32[?, ?]) {\n".to_string();
    lines.iter().enumerate().for_each(|(i, line)| writeln!(text, "  %{i} = {line}").unwrap());
    writeln!(text, "  return {}\n}}", results.join(", ")).unwrap();
    text::parse_one(&text).unwrap()
}

fn input(dtype: DType, sizes: &[i64]) -> Arg {
    let value = |i: &[i64]| (i[0] * 37 + i[1] * 11) % 64 - 20;
    let value = |i: &[i64]| if dtype.is_float() { Value::Float(value(i) as f64 / 8.0) } else { Value::Int(value(i)) };
    Arg::Tensor(HostTensor::from_fn(dtype, sizes, value).unwrap())
}

/// Compiles with and without turns for a device of few multiprocessors, so that
/// blocks take rows in turn, and holds both to the reference. `expected` are the barriers of
/// either, and `race` tells whether arrays would race if they were one.
#[track_caller]
fn check_turns(fusion: &Fusion, sizes: [i64; 2], expected: [usize; 2], race: bool) {
    let device = DeviceDesc { sm_count: 4, ..DeviceDesc::h200() };
    let args = [input(DType::F32, &sizes)];
    let metas = [args[0].meta()];
    let own = compiled(fusion, &metas, &device, None).unwrap();
    let turns = compiled(fusion, &metas, &device, Some(0)).unwrap();
    let (most, least) = (kernel::shared_bytes(&own), kernel::shared_bytes(&turns));
    assert!(least < most, "{least} of {most} bytes\n{}", kernel::print(&turns));
    assert_eq!([&own, &turns].map(barriers), expected, "{}", kernel::print(&turns));
    for kernel in [&own, &turns] {
        run(fusion, &args, kernel).unwrap_or_else(|error| panic!("{error}\n{}", kernel::print(kernel)));
    }
    let found = run(fusion, &args, &without_turns(&turns)).map_err(|error| error.code);
    assert_eq!(found, if race { Err(code::RACE) } else { Ok(()) }, "{}", kernel::print(&turns));
    // A device that has room for turns only gets them, and one that has not refuses.
    let small = |bytes: u64| DeviceDesc { shared_per_block: bytes as u32, ..device.clone() };
    assert_eq!(compiled(fusion, &metas, &small(most), None).unwrap().name, own.name);
    assert_eq!(compiled(fusion, &metas, &small(most - 1), None).unwrap().name, turns.name);
    let error = compiled(fusion, &metas, &small(least - 1), None).unwrap_err();
    assert_eq!((error.kind, error.code), (DiagnosticKind::Unsupported, code::LAUNCH_LIMIT), "{error}");
}

const KINDS: [&str; 5] = ["sum", "max", "min", "sum", "max"];

/// Reductions of `x` plus something, each of the type that `types` gives it.
fn side_by_side(axis: usize, types: &[&str]) -> Fusion {
    let (mut lines, mut results) = (Vec::new(), Vec::new());
    for (i, dtype) in types.iter().enumerate() {
        lines.push(format!("add %x, {i}.5"));
        lines.push(format!("cast %{} {dtype}", lines.len() - 1));
        lines.push(format!("{} %{} axes({axis})", KINDS[i % KINDS.len()], lines.len() - 1));
        results.push(format!("%{}", lines.len() - 1));
    }
    parsed(&lines, &results)
}

/// Reductions of `x` plus something, all made before any is used, and used for what follows: so many one after the other.
fn groups(n: usize, groups: usize, types: &[&str]) -> Fusion {
    let mut lines = Vec::new();
    let mut value = "%x".to_string();
    let mut add = |line: String| {
        lines.push(line);
        format!("%{}", lines.len() - 1)
    };
    for _ in 0..groups {
        let mut sums = Vec::new();
        for i in 0..n {
            let plus = add(format!("add {value}, {i}.5"));
            let cast = add(format!("cast {plus} {}", types[i % types.len()]));
            sums.push(add(format!("{} {cast} axes(1) keepdim", KINDS[(i + 1) % KINDS.len()])));
        }
        for sum in sums {
            let cast = add(format!("cast {sum} f32"));
            let left = add(format!("sub {value}, {cast}"));
            value = add(format!("mul {left}, 0.25"));
        }
    }
    parsed(&lines, &[value])
}

/// Each row is held, and each reduction needs the one before it.
fn one_after_another(n: usize) -> Fusion {
    let mut lines = Vec::new();
    let mut value = "%x".to_string();
    for kind in KINDS.iter().cycle().take(n) {
        lines.push(format!("{kind} {value} axes(1) keepdim"));
        lines.push(format!("sub {value}, %{}", lines.len() - 1));
        lines.push(format!("mul %{}, 0.25", lines.len() - 1));
        value = format!("%{}", lines.len() - 1);
    }
    parsed(&lines, &[value])
}

#[test]
fn turns_in_straight_code() {
    check_turns(&side_by_side(0, &["f32"; 5]), [40, 64], [25, 25], true);
    check_turns(&side_by_side(1, &["f32"; 5]), [7, 777], [1, 3], true);
    check_turns(&side_by_side(1, &["f32", "f64", "i64", "f32", "f64", "i64", "f32"]), [3, 777], [1, 4], true);
}

#[test]
fn turns_of_rows_in_turn() {
    for n in 2..=5 {
        check_turns(&one_after_another(n), [97, 3001], [n, n], true);
    }
}

#[test]
fn reductions_that_need_no_other_wait_together() {
    let device = DeviceDesc { sm_count: 4, ..DeviceDesc::h200() };
    let mut saved = 0;
    for (sizes, types) in [([5, 1501], vec!["f32"]), ([97, 1501], vec!["f32"]), ([97, 1501], vec!["f32", "f64", "i64"])]
    {
        for (n, number) in [(2, 1), (3, 1), (5, 1), (2, 2), (3, 3), (5, 2)] {
            let fusion = groups(n, number, &types);
            let args = [input(DType::F32, &sizes)];
            let metas = [args[0].meta()];
            for room in [None, Some(0)] {
                let kernel = compiled(&fusion, &metas, &device, room).unwrap();
                run(&fusion, &args, &kernel).unwrap_or_else(|error| panic!("{error}\n{}", kernel::print(&kernel)));
                saved += usize::from(barriers(&kernel) < n * number);
            }
        }
    }
    assert!(saved > 18, "{saved} of 36 kernels have fewer barriers than reductions");
}

/// Two reductions of the rows of one tensor, each in loops of its own over `loops`
/// parts of the rows of a block.
fn separate_loops(loops: usize, sharing: bool) -> (Fusion, Vec<Arg>, Kernel) {
    let fusion = parsed_i32();
    let args = vec![input(DType::I32, &[18, 70])];
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let sizes = Sizes::new(&fusion, &bind(&fusion, &metas).unwrap());
    let class = ArgClass::new(&fusion, &metas, &[16], sizes.elements(), &Options::default());
    let mut b = ScheduleBuilder::new(scheduled_fusion(&fusion).unwrap());
    let x = b.inputs()[0];
    let cache = b.cache_after(x).unwrap();
    for user in b.state().consumers(cache).into_iter().skip(1) {
        b.cache_fork(cache, &[user]).unwrap();
    }
    let roots: Vec<AxisId> = b.state().tensors[x].indexed().collect();
    let (mut rows, mut order) = (roots[0], Vec::new());
    for _ in 0..loops {
        let (outer, inner) = b.split(rows, 3, false).unwrap();
        rows = outer;
        order.insert(0, inner);
    }
    b.parallelize(rows, ParallelType::Bidx).unwrap();
    let (part, thread) = b.split(roots[1], 64, false).unwrap();
    b.parallelize(thread, ParallelType::Tidx).unwrap();
    order.splice(0..0, [rows, thread]);
    order.push(part);
    let reductions: Vec<TvId> = b.state().tensors.ids().filter(|tv| b.state().is_reduction(*tv)).collect();
    for tv in reductions {
        b.rfactor(tv, &[part]).unwrap();
    }
    b.propagate(&order).unwrap();
    b.inline_most(&[]).unwrap();
    let scheduled = b.finish();
    let lower = if sharing { lower::lower_sharing } else { lower::lower };
    let kernel = lower(&scheduled, &class, "drawn").unwrap();
    kernel::verify(&kernel).unwrap();
    (fusion, args, kernel)
}

fn parsed_i32() -> Fusion {
    text::parse_one("fusion @F(%x: i32[?, ?]) {\n  %0 = max %x axes(1)\n  %1 = min %x axes(1)\n  return %0, %1\n}")
        .unwrap()
}

#[test]
fn barriers_around_loops() {
    // A barrier in each of two exchanges, and, if they share, one between the loops.
    for (loops, sharing, expected) in [(1, false, 2), (1, true, 3), (2, false, 4), (2, true, 4)] {
        let (fusion, args, kernel) = separate_loops(loops, sharing);
        let arrays: usize = exchange_arrays(&kernel).values().map(Vec::len).sum();
        assert_eq!(arrays, if sharing && loops == 1 { 1 } else { 2 }, "{}", kernel::print(&kernel));
        assert_eq!(check_barriers(&fusion, &args, &kernel), expected, "{}", kernel::print(&kernel));
    }
}

/// A fusion of up to seven reductions along one axis, each of `x` or of what came
/// of the one before it, of some type.
fn drawn(draw: &mut Draw) -> Fusion {
    let (axis, held) = (draw.below(2), draw.once_in(2));
    let (mut lines, mut results) = (Vec::new(), Vec::new());
    let mut value = "%x".to_string();
    for i in 0..2 + draw.below(6) {
        let dtype = draw.choose(&["f32", "f32", "f64", "i64"]);
        lines.push(format!("add {value}, {i}.25"));
        lines.push(format!("cast %{} {dtype}", lines.len() - 1));
        lines.push(format!("{} %{} axes({axis}) keepdim", draw.choose(&KINDS), lines.len() - 1));
        let reduced = format!("%{}", lines.len() - 1);
        if held && draw.once_in(2) {
            lines.push(format!("cast {reduced} f32"));
            lines.push(format!("mul %{}, 0.015625", lines.len() - 1));
            lines.push(format!("sub {value}, %{}", lines.len() - 1));
            value = format!("%{}", lines.len() - 1);
        }
        results.push(reduced);
    }
    if value != "%x" {
        results.push(value);
    }
    parsed(&lines, &results)
}

#[test]
fn turns_of_random_fusions() {
    let (mut ran, mut shared, seeds) = (0, 0, draws::drawn(100));
    for &seed in &seeds {
        let mut draw = Draw::new(seed);
        let fusion = drawn(&mut draw);
        let args = [input(DType::F32, &[1 + draw.below(80) as i64, 1 + draw.below(900) as i64])];
        let metas = [args[0].meta()];
        let device = DeviceDesc { sm_count: draw.choose(&[1, 4, 16, 132]), ..DeviceDesc::h200() };
        let mut options = Options { tuning: tuning(&mut draw), ..Options::default() };
        options.tuning.insert("shared.room".to_string(), 0);
        let cx = CompileCx { options: &options, device: &device, trace: &NoTrace };
        let Ok(compiled) = compile_fusion(&cx, &fusion, &metas, &[16]) else { continue };
        let kernel = compiled.kernel;
        run(&fusion, &args, &kernel).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", kernel::print(&kernel)));
        ran += 1;
        shared += usize::from(kernel.buffers.values().any(|buffer| buffer.name.starts_with("exchange_")));
    }
    assert!(ran * 2 > seeds.len() && shared * 5 > seeds.len(), "{shared} of {ran} kernels share memory");
}

/// Tensors that run along both dimensions, as a fusion over `x: f32[m, n]` and `y: f32[n, m]`.
fn turned(lines: &[&str], results: &str) -> Fusion {
    let lines: Vec<String> = lines.iter().enumerate().map(|(i, line)| format!("  %{i} = {line}\n")).collect();
    text::parse_one(&format!("fusion @F(%x: f32[?, ?], %y: f32[?, ?]) {{\n{}  return {results}\n}}", lines.concat()))
        .unwrap()
}

#[test]
fn tiles_need_their_barriers() {
    let one = turned(&["permute %x dims(1, 0)", "add %0, %y"], "%1");
    let two = turned(&["permute %x dims(1, 0)", "add %0, %y", "permute %y dims(1, 0)", "mul %2, %x"], "%1, %3");
    for (fusion, barriers) in [(&one, 1), (&two, 2)] {
        for [m, n] in [[64, 96], [33, 70], [128, 9], [1, 40]] {
            let args = [input(DType::F32, &[m, n]), input(DType::F32, &[n, m])];
            let metas = args.each_ref().map(Arg::meta);
            let tuning = [("transpose.least_bytes", 0), ("transpose.least_extent", 1), ("transpose.tile_bytes", 1024)];
            let tuning = tuning.map(|(name, value)| (name.to_string(), value)).into_iter().collect();
            let options = Options { tuning, ..Options::default() };
            let cx = CompileCx { options: &options, device: &DeviceDesc::h200(), trace: &NoTrace };
            let kernel = compile_fusion(&cx, fusion, &metas, &[16, 16]).unwrap().kernel;
            assert!(kernel.name.starts_with("transpose"), "{}", kernel.name);
            assert_eq!(check_barriers(fusion, &args, &kernel), barriers, "{}", kernel::print(&kernel));
        }
    }
}

#[test]
fn loops_and_tiles_that_do_not_hold_a_tensor_are_refused() {
    let fusion = turned(&["add %x, 1.0", "mul %0, 2.0"], "%1");
    let mut b = ScheduleBuilder::new(scheduled_fusion(&fusion).unwrap());
    let x = b.inputs()[0];
    let value = b.state().consumers(x)[0];
    let roots: Vec<AxisId> = b.state().tensors[x].indexed().collect();
    let (blocks, rows) = b.split(roots[0], 8, false).unwrap();
    let of = |axis, parallel| Loop { axis, parallel };
    let serial = ParallelType::Serial;
    let check = |error: Result<()>, told: &str| {
        let error = error.unwrap_err();
        assert!(error.kind == DiagnosticKind::User && error.message.contains(told), "{error}\nwanted {told}");
    };
    let all = [of(blocks, ParallelType::Bidx), of(rows, ParallelType::Tidx), of(roots[1], serial)];
    check(b.set_loops(value, &all[..2]), "leave out a part of");
    check(b.set_loops(value, &[all[0], all[2]]), "leave out a part of");
    check(b.set_loops(value, &[all[0], all[1], all[2], all[1]]), "have an axis twice");
    check(b.set_loops(value, &[all[0], all[1], of(roots[1], ParallelType::Tidx)]), "two axes to one place");
    check(b.set_loops(value, &[all[0], all[1], of(roots[1], ParallelType::Unroll)]), "whose extent is not constant");
    b.set_loops(value, &all).unwrap();
    let tile = |axes: &[AxisId], by, every| Tile { axes: axes.to_vec(), columns: Columns::Rotated { by, every } };
    check(b.alloc(value, tile(&[rows], 0, 1)), "not in shared memory");
    b.set_memory(value, Memory::Shared).unwrap();
    check(b.alloc(value, tile(&[rows, roots[1]], 0, 1)), "is not constant");
    check(b.alloc(value, tile(&[], 0, 1)), "needs an axis");
    for by in [-1, 8, i64::from(i32::MAX), i64::MAX, i64::MIN] {
        check(b.alloc(value, tile(&[rows], by, 1)), &format!("less than the 8 elements of a row, not by {by}"));
    }
    for every in [0, -1, 2, i64::MAX] {
        check(b.alloc(value, tile(&[rows], 1, every)), &format!("every 1 to 1 rows, not every {every}"));
    }
    b.alloc(value, tile(&[rows], 1, 1)).unwrap();
    let skewed = |by, every| Tile { axes: vec![rows], columns: Columns::Skewed { by, every } };
    for by in [-1, 9, i64::MAX, i64::MIN] {
        check(b.alloc(value, skewed(by, 1)), &format!("at most the 8 elements of a row, not by {by}"));
    }
    check(b.alloc(value, skewed(1, 2)), "every 1 to 1 rows, not every 2");
    b.alloc(value, skewed(8, 1)).unwrap();
}
