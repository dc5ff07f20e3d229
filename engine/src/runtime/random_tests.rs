//! Random fusions on random layouts, against the reference, on the simulator
//! under random schedules with all detectors on; and every index of shared and
//! local memory is proven in range by a checker that lowering knows nothing of.

use super::Session;
use crate::diag::Kind;
use crate::fusion::random::{Limits, generate};
use crate::fusion::{Fusion, Operand, bind_args};
use crate::kernel::check_bounds;
use crate::num::{DType, DTypeClass, Value};
use crate::options::{DeviceDesc, NoTrace, Options, SimOptions, SimSchedule};
use crate::refeval::{Tolerance, compare, evaluate};
use crate::tensor::{Arg, HostTensor, TensorMeta};

/// Numbers drawn from a seed.
struct Draw(u64);

impl Draw {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % below
    }
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next(256) as u8).collect()
    }
}

/// A tensor of the sizes in any layout: dense, padded, permuted, expanded, and
/// from an element that need not be aligned.
fn tensor(draw: &mut Draw, dtype: DType, sizes: &[i64]) -> HostTensor {
    let mut order: Vec<usize> = (0..sizes.len()).rev().collect();
    if draw.next(4) == 0 && order.len() > 1 {
        let (a, b) = (draw.next(order.len() as u64), draw.next(order.len() as u64));
        order.swap(a as usize, b as usize);
    }
    let (mut strides, mut next) = (vec![0; sizes.len()], 1);
    for axis in order {
        let expanded = draw.next(12) == 0;
        strides[axis] = if expanded { 0 } else { next };
        let padding = if draw.next(6) == 0 { draw.next(4) as i64 } else { 0 };
        next = if expanded { next } else { (next * sizes[axis].max(1)) + padding };
    }
    let meta = TensorMeta { dtype, sizes: sizes.to_vec(), strides };
    let mut count = draw.next(7) as i64;
    let value = |_: &[i64]| {
        count += 1;
        Value::Float((count * 5 % 23) as f64 / 8.0 - 1.0)
    };
    let mut tensor = HostTensor::strided(meta, value).unwrap();
    let offset = [0, 0, 0, 1, 2, 3, 8][draw.next(7) as usize];
    tensor.data.splice(0..0, vec![0xff; offset * dtype.bytes()]);
    tensor.offset = offset;
    tensor
}

fn arguments(draw: &mut Draw, fusion: &Fusion, sizes: &[Option<Vec<i64>>]) -> Vec<Arg> {
    let argument = |(operand, sizes): (&Operand, &Option<Vec<i64>>)| match (*operand, sizes) {
        (Operand::Tensor(t), Some(sizes)) => Arg::Tensor(tensor(draw, fusion.tensors[t].dtype, sizes)),
        (Operand::Scalar(s), _) => Arg::Scalar(match fusion.scalars[s].dtype.class() {
            DTypeClass::Float => Value::Float(0.75),
            DTypeClass::Int => Value::Int(3),
            DTypeClass::Bool => Value::Bool(true),
            DTypeClass::Complex => Value::Complex(0.75, -0.5),
        }),
        (Operand::Tensor(t), None) => panic!("{t} has no sizes"),
    };
    fusion.inputs.iter().zip(sizes).map(argument).collect()
}

/// What became of one random fusion: whether it ran, or why it is wrong.
fn attempt(session: &Session, seed: u64) -> Result<bool, String> {
    let mut draw = Draw(seed);
    let limits = Limits { tame: true, ..Limits::default() };
    let generated = generate(&draw.bytes(200), &limits);
    let fusion = &generated.fusion;
    let args = arguments(&mut draw, fusion, &generated.sizes);
    // Sizes that the reference refuses are no test.
    let (Ok(bindings), Ok(expected)) = (bind_args(fusion, &args), evaluate(fusion, &args)) else { return Ok(false) };
    let schedules = [SimSchedule::Lockstep, SimSchedule::Random, SimSchedule::Pct(3), SimSchedule::Adversary];
    let sim = SimOptions { schedule: schedules[draw.next(4) as usize], seed, threads: 1, ..SimOptions::default() };
    let run = match session.run_many(fusion, &args, &[sim], &NoTrace).remove(0) {
        Ok(run) => run,
        Err(error) if error.kind == Kind::Unsupported => return Ok(false),
        Err(error) => return Err(error.to_string()),
    };
    let bounds = check_bounds(run.plan.kernel());
    if let Some(access) = bounds.open.first().or(bounds.outside.first()) {
        return Err(format!("not provably in range: {access}"));
    }
    for (i, (found, expected)) in run.outputs.iter().zip(&expected).enumerate() {
        let tolerance = Tolerance::for_output(fusion, &bindings, fusion.outputs[i]);
        let comparison = compare(found, expected, tolerance).map_err(|error| error.to_string())?;
        if !comparison.passed() {
            return Err(format!("output {i} of {}: {comparison:?}", run.plan.scheduler()));
        }
    }
    Ok(true)
}

/// The fusion of a seed with everything made from it, for a failure's message.
fn describe(session: &Session, seed: u64) -> String {
    let mut draw = Draw(seed);
    let limits = Limits { tame: true, ..Limits::default() };
    let generated = generate(&draw.bytes(200), &limits);
    let args = arguments(&mut draw, &generated.fusion, &generated.sizes);
    let metas: Vec<_> = args.iter().map(Arg::meta).collect();
    let kernel = session.compile(&generated.fusion, &metas, &NoTrace);
    let kernel = kernel.map_or_else(|error| error.to_string(), |plan| plan.kernel_text());
    format!("{}\n{metas:?}\n{kernel}", crate::text::print(&generated.fusion))
}

#[test]
fn random_fusions_agree_with_the_reference() {
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default());
    let (mut ran, seeds) = (0, 400);
    for seed in 0..seeds {
        match attempt(&session, seed) {
            Ok(true) => ran += 1,
            Ok(false) => {}
            Err(error) => panic!("seed {seed}: {error}\n{}", describe(&session, seed)),
        }
    }
    assert!(ran * 2 > seeds, "only {ran} of {seeds} random fusions ran");
}
