//! Random fusions, layouts and thread orders: what the simulator computes is
//! held to the reference, and every index of shared and local memory is proven
//! in range. A refusal as unsupported is counted, everything else
//! that is not the right answer fails with a text that reproduces it.

use crate::property::draws::drawn;
use engine::fusion::Operand;
use engine::kernel::check_bounds;
use engine::num::{DType, Value};
use engine::options::{DeviceDesc, NoTrace, Options, SimOptions, SimSchedule};
use engine::runtime::Session;
use engine::tensor::{Arg, HostTensor, TensorMeta};
use testing::fusions::{Generated, Limits, generate, scalar_value};
use testing::{Draw, Reference};

/// Strides of a layout: mostly dense, else padded, permuted, or with an axis of stride 0.
fn strides(sizes: &[i64], draw: &mut Draw) -> Vec<i64> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    let (mut pad, mut expanded) = (0, None);
    match draw.below(6) {
        0 => pad = draw.below(4) as i64,
        1 => order.reverse(),
        2 if !sizes.is_empty() => expanded = Some(draw.below(sizes.len())),
        _ => {}
    }
    let mut strides = vec![0; sizes.len()];
    let mut next = 1;
    for axis in order.into_iter().rev() {
        if expanded != Some(axis) {
            strides[axis] = next;
            next = next * sizes[axis].max(1) + pad;
        }
    }
    strides
}

fn arguments(generated: &Generated, draw: &mut Draw) -> Vec<Arg> {
    let fusion = &generated.fusion;
    let argument = |(operand, sizes): (&Operand, &Option<Vec<i64>>)| match (*operand, sizes) {
        (Operand::Tensor(t), Some(sizes)) => {
            let dtype = fusion.tensors[t].dtype;
            let strides = strides(sizes, draw);
            let value = |draw: &mut Draw| match dtype {
                DType::Bool => Value::Bool(draw.once_in(2)),
                DType::U8 => Value::Int(draw.below(5) as i64),
                dtype if dtype.is_int() => Value::Int(draw.below(7) as i64 - 3),
                _ => Value::Float((draw.below(17) as f64 - 8.0) * 0.25),
            };
            let meta = TensorMeta { dtype, sizes: sizes.clone(), strides };
            let mut tensor = HostTensor::strided(meta, |_| value(draw)).expect("the layout is valid");
            // From an element that need not be aligned.
            tensor.offset = draw.choose(&[0, 0, 0, 1, 2, 3, 8]);
            tensor.data.own().splice(0..0, vec![0xff; tensor.offset * dtype.bytes()]);
            Arg::Tensor(tensor)
        }
        (Operand::Tensor(t), None) => panic!("tensor {t} has no sizes"),
        (Operand::Scalar(s), _) => Arg::Scalar(scalar_value(fusion.scalars[s].dtype, draw.bits() as u8)),
    };
    fusion.inputs.iter().zip(&generated.sizes).map(argument).collect()
}

/// What came of one drawn fusion.
enum Verdict {
    Right,
    Unsupported,
    Wrong(String),
}

fn judge(session: &Session, seed: u64, limits: &Limits) -> Verdict {
    let mut draw = Draw::new(seed);
    let length = draw.below(120);
    let bytes = draw.bytes(length);
    run(session, seed, &generate(&bytes, limits), limits.tame, &mut draw)
}

fn run(session: &Session, seed: u64, generated: &Generated, tame: bool, draw: &mut Draw) -> Verdict {
    let fusion = &generated.fusion;
    let args = arguments(generated, draw);
    let show = |what: String| {
        let sizes: Vec<_> = args
            .iter()
            .map(|arg| match arg {
                Arg::Tensor(t) => format!("{:?} strides {:?} offset {}", t.meta.sizes, t.meta.strides, t.offset),
                Arg::Scalar(v) => format!("{v:?}"),
            })
            .collect();
        Verdict::Wrong(format!("seed {seed}: {what}\n{}{}", engine::text::print(fusion), sizes.join("\n")))
    };
    let reference = Reference::of(fusion, &args).expect("drawn fusions are valid");
    // Beyond the tame operations a last bit may decide everything.
    let reference = if tame { reference } else { reference.without_floats() };
    let drawn = [SimSchedule::Random, SimSchedule::Pct(3)][draw.below(2)];
    let schedules = [SimSchedule::Lockstep, SimSchedule::Adversary, drawn];
    let sims = schedules.map(|schedule| SimOptions { schedule, seed, threads: 1, ..SimOptions::default() });
    for run in session.run_many(fusion, &args, &sims, &NoTrace) {
        let outcome = match run {
            Ok(outcome) => outcome,
            Err(error) if error.kind == engine::diag::DiagnosticKind::Unsupported => {
                return Verdict::Unsupported;
            }
            Err(error) => return show(error.to_string()),
        };
        // By a checker that lowering knows nothing of.
        for plan in outcome.program.launches().map(|launch| &launch.plan) {
            let bounds = check_bounds(plan.kernel());
            if let Some(access) = bounds.open.first().or(bounds.outside.first()) {
                return show(format!("not provably in range: {access}\n{}", plan.kernel_text()));
            }
        }
        if let Err(error) = reference.compare_all(&outcome.outputs) {
            return show(error.to_string());
        }
    }
    Verdict::Right
}

fn check_random(count: u64, first: u64, limits: &Limits) {
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default());
    let (mut right, mut unsupported, mut wrong) = (0, 0, Vec::new());
    let seeds = drawn(count);
    let count = seeds.len();
    for seed in seeds.iter().map(|seed| first + seed) {
        match judge(&session, seed, limits) {
            Verdict::Right => right += 1,
            Verdict::Unsupported => unsupported += 1,
            Verdict::Wrong(text) => wrong.push(text),
        }
    }
    assert!(wrong.is_empty(), "{} of {count} are wrong\n{}", wrong.len(), wrong.join("\n"));
    assert!(right * 2 > count, "{right} of {count} ran, {unsupported} were refused as unsupported");
}

#[test]
fn random_fusions_compute_the_reference_on_the_simulator() {
    let dtypes = vec![DType::F32, DType::BF16, DType::F16, DType::I32, DType::I64, DType::F64, DType::Bool];
    check_random(600, 0, &Limits { ops: 5, inputs: 3, rank: 3, dtypes, tame: true, ..Limits::default() });
}

/// A plan that was made for some sizes is used for others of the same class:
/// what it took for granted must hold for all of them.
#[test]
fn plans_serve_other_sizes() {
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default());
    let sizes = [
        vec![1, 2, 3, 5, 7, 8, 16, 17, 31, 33, 64, 130],
        vec![32, 16, 33, 8, 1, 31, 2, 64, 0, 130, 7, 12],
        vec![2, 4, 8, 16, 32, 64, 128, 3, 1, 0, 48, 96],
    ];
    let mut wrong = Vec::new();
    for seed in drawn(300) {
        let mut draw = Draw::new(seed ^ 77 << 32);
        let length = draw.below(90);
        let bytes = draw.bytes(length);
        for sizes in &sizes {
            let limits =
                Limits { ops: 5, rank: 3, tame: true, constants: false, sizes: sizes.clone(), ..Limits::default() };
            if let Verdict::Wrong(text) = run(&session, seed, &generate(&bytes, &limits), true, &mut draw) {
                wrong.push(text);
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_operation_compiles_and_runs_on_every_type() {
    let sizes = vec![1, 2, 3, 5, 7, 8, 17, 33, 64, 130];
    check_random(600, 1000, &Limits { ops: 8, rank: 3, sizes, ..Limits::default() });
}
