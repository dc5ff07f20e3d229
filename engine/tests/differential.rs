//! Random fusions, layouts and thread orders: what the simulator computes is
//! held to the reference. A refusal as unsupported is counted, everything else
//! that is not the right answer fails with a text that reproduces it.

use engine::fusion::random::{Generated, Limits, generate, scalar_value};
use engine::fusion::{Operand, bind_args};
use engine::num::{DType, Value};
use engine::options::{DeviceDesc, NoTrace, Options, SimOptions, SimSchedule};
use engine::refeval::{Tolerance, compare, evaluate};
use engine::runtime::Session;
use engine::tensor::{Arg, HostTensor, TensorMeta};

/// A small generator of random bytes: the test is the same on every machine.
struct Bytes(u64);

impl Bytes {
    fn next(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 56) as u8
    }
    fn pick(&mut self, n: i64) -> i64 {
        i64::from(self.next()) % n
    }
}

/// Strides of a layout: mostly dense, else padded, permuted, or with an axis of stride 0.
fn strides(sizes: &[i64], random: &mut Bytes) -> Vec<i64> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    let (mut pad, mut expanded) = (0, None);
    match random.pick(6) {
        0 => pad = random.pick(4),
        1 => order.reverse(),
        2 if !sizes.is_empty() => expanded = Some(random.pick(sizes.len() as i64) as usize),
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

fn arguments(generated: &Generated, random: &mut Bytes) -> Vec<Arg> {
    let fusion = &generated.fusion;
    let argument = |(operand, sizes): (&Operand, &Option<Vec<i64>>)| match (*operand, sizes) {
        (Operand::Tensor(t), Some(sizes)) => {
            let dtype = fusion.tensors[t].dtype;
            let strides = strides(sizes, random);
            let value = |random: &mut Bytes| match dtype {
                DType::Bool => Value::Bool(random.pick(2) == 1),
                DType::U8 => Value::Int(random.pick(5)),
                dtype if dtype.is_int() => Value::Int(random.pick(7) - 3),
                _ => Value::Float((random.pick(17) - 8) as f64 * 0.25),
            };
            let meta = TensorMeta { dtype, sizes: sizes.clone(), strides };
            Arg::Tensor(HostTensor::strided(meta, |_| value(random)).expect("the layout is valid"))
        }
        (Operand::Tensor(t), None) => panic!("tensor {t} has no sizes"),
        (Operand::Scalar(s), _) => Arg::Scalar(scalar_value(fusion.scalars[s].dtype, random.next())),
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
    let mut random = Bytes(seed);
    let length = random.pick(120);
    let bytes: Vec<u8> = (0..length).map(|_| random.next()).collect();
    run(session, seed, &generate(&bytes, limits), limits.tame, &mut random)
}

fn run(session: &Session, seed: u64, generated: &Generated, tame: bool, random: &mut Bytes) -> Verdict {
    let fusion = &generated.fusion;
    let args = arguments(generated, random);
    let show = |what: String| {
        let sizes: Vec<_> = args
            .iter()
            .map(|arg| match arg {
                Arg::Tensor(t) => format!("{:?} strides {:?}", t.meta.sizes, t.meta.strides),
                Arg::Scalar(v) => format!("{v:?}"),
            })
            .collect();
        Verdict::Wrong(format!("seed {seed}: {what}\n{}{}", engine::text::print(fusion), sizes.join("\n")))
    };
    let expected = evaluate(fusion, &args).expect("drawn fusions are valid");
    let bindings = bind_args(fusion, &args).expect("drawn sizes agree");
    let schedules = [SimSchedule::Lockstep, SimSchedule::Adversary];
    let sims = schedules.map(|schedule| SimOptions { schedule, seed, threads: 1, ..SimOptions::default() });
    for run in session.run_many(fusion, &args, &sims, &NoTrace) {
        let outcome = match run {
            Ok(outcome) => outcome,
            Err(error) if error.kind == engine::diag::Kind::Unsupported => {
                return Verdict::Unsupported;
            }
            Err(error) => return show(error.to_string()),
        };
        for ((output, got), wanted) in fusion.outputs.iter().zip(&outcome.outputs).zip(&expected) {
            let tolerance = Tolerance::for_output(fusion, &bindings, *output);
            match compare(got, wanted, tolerance) {
                Ok(result) if result.passed() => {}
                // Beyond the tame operations a last bit may decide everything.
                Ok(_) if !tame && fusion.tensors[*output].dtype.is_float() => {}
                Ok(result) => return show(format!("%{}: {result}", fusion.tensors[*output].name)),
                Err(error) => return show(error.to_string()),
            }
        }
    }
    Verdict::Right
}

fn check_random(count: u64, first: u64, limits: &Limits) {
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default());
    let (mut right, mut unsupported, mut wrong) = (0, 0, Vec::new());
    for seed in first..first + count {
        match judge(&session, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), limits) {
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
    check_random(400, 0, &Limits { ops: 5, inputs: 3, rank: 3, dtypes, tame: true, ..Limits::default() });
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
    for seed in 0..300u64 {
        let mut random = Bytes(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 77);
        let bytes: Vec<u8> = (0..random.pick(90)).map(|_| random.next()).collect();
        for sizes in &sizes {
            let limits =
                Limits { ops: 5, rank: 3, tame: true, constants: false, sizes: sizes.clone(), ..Limits::default() };
            if let Verdict::Wrong(text) = run(&session, seed, &generate(&bytes, &limits), true, &mut random) {
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
