//! What becomes of a mutant.

use crate::mutation::mutate::Mutant;
use engine::backend::sim::{self, SimMemory};
use engine::diag::{Code, Result};
use engine::kernel::{
    self, AlarmKind, BoundLaunch, BufId, Kernel, ParamKind, ResultTerms, check_order, compare_at, result_terms,
};
use engine::num::{DType, DTypeClass, Value, storage};
use engine::options::SimOptions;
use std::collections::BTreeMap;
use testing::Draw;

/// Draws of inputs for mutants that others do not find out, and that are not proven either.
const MORE_SEEDS: std::ops::Range<u64> = 100..116;

/// How a mutant was found out, or why nobody can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// The verifier refuses it.
    Refused,
    /// The checker of order has an alarm.
    Alarm(AlarmKind),
    /// The simulator finds it.
    Detected(Code),
    /// Results are other than the kernel's.
    Wrong,
    /// In no launch a thread executes the statement: there is nothing to find out.
    Unreached,
    /// Proven: what was removed orders nothing. Without it no two accesses of any launch are out of order.
    OrdersNothing,
    /// Proven: what was changed has the same value in every thread that evaluates it.
    SameValue,
    /// Proven: every element of a result is made of inputs by the same operations.
    SameTerms,
    /// Not found out, and no proof.
    Survives,
}

impl Verdict {
    pub(crate) fn is_caught(self) -> bool {
        matches!(self, Self::Refused | Self::Alarm(_) | Self::Detected(_) | Self::Wrong)
    }
    pub(crate) fn is_proof(self) -> bool {
        matches!(self, Self::OrdersNothing | Self::SameValue | Self::SameTerms)
    }
}

/// A kernel with launches in which it is right.
pub(crate) struct Subject<'a> {
    pub(crate) name: &'a str,
    kernel: &'a Kernel,
    runs: Vec<Run>,
}

/// The elements of each input.
type Inputs = BTreeMap<BufId, Vec<u8>>;

/// A launch, and what the kernel makes of inputs in it.
struct Run {
    launch: BoundLaunch,
    /// Draws of inputs, each with its results.
    draws: Vec<(Inputs, Vec<Vec<u8>>)>,
    terms: ResultTerms,
}

impl<'a> Subject<'a> {
    /// The launches in which the kernel is proven to be in order, and runs.
    pub(crate) fn new(name: &'a str, kernel: &'a Kernel, launches: Vec<BoundLaunch>) -> Self {
        let runs = launches.into_iter().enumerate().filter_map(|(seed, launch)| {
            let in_order = check_order(kernel, &launch).is_ok_and(|report| report.is_proof());
            let terms = in_order.then(|| result_terms(kernel, &launch).ok())??;
            let draw = |numbers| {
                let inputs = inputs(kernel, &launch, numbers, seed as u64);
                let outputs = run(kernel, &launch, &inputs).ok().flatten()?;
                Some((inputs, outputs))
            };
            let draws: Vec<_> = Numbers::ALL.into_iter().filter_map(draw).collect();
            (!draws.is_empty()).then_some(Run { draws, launch, terms })
        });
        Self { name, kernel, runs: runs.collect() }
    }

    pub(crate) fn launches(&self) -> usize {
        self.runs.len()
    }

    /// Looks for a launch in which a mutant does wrong, by the checkers and by the simulator; and for a proof in each
    /// launch in which it does not. The proof that is asked for most is the verdict.
    pub(crate) fn judge(&self, mutant: &Mutant) -> Verdict {
        if kernel::verify(&mutant.kernel).is_err() {
            return Verdict::Refused;
        }
        let mut proof = if mutant.exprs.is_some() { Verdict::Unreached } else { Verdict::OrdersNothing };
        for of in &self.runs {
            let verdict = of.judge(self.kernel, mutant).unwrap_or(Verdict::Survives);
            if verdict.is_caught() {
                return verdict;
            }
            proof = proof.max(verdict);
        }
        proof
    }
}

impl Run {
    fn judge(&self, kernel: &Kernel, mutant: &Mutant) -> Result<Verdict> {
        if let Some(exprs) = mutant.exprs {
            let agreement = compare_at(&mutant.kernel, &self.launch, mutant.number, exprs)?;
            if agreement.is_proof() {
                return Ok(if agreement.executed > 0 { Verdict::SameValue } else { Verdict::Unreached });
            }
        }
        let report = check_order(&mutant.kernel, &self.launch)?;
        if let Some(alarm) = report.alarms.first() {
            return Ok(Verdict::Alarm(alarm.kind));
        }
        for (inputs, expected) in &self.draws {
            match run(&mutant.kernel, &self.launch, inputs) {
                Err(error) => return Ok(Verdict::Detected(error.code)),
                Ok(outputs) if outputs.as_ref() != Some(expected) => return Ok(Verdict::Wrong),
                Ok(_) => {}
            }
        }
        if mutant.exprs.is_none() && report.is_proof() {
            return Ok(Verdict::OrdersNothing);
        }
        let terms = result_terms(&mutant.kernel, &self.launch)?;
        if terms.exhaustive && terms == self.terms {
            return Ok(Verdict::SameTerms);
        }
        // Which thread has the largest of a row is chance.
        for seed in MORE_SEEDS {
            for numbers in Numbers::ALL {
                let inputs = inputs(kernel, &self.launch, numbers, seed);
                if run(kernel, &self.launch, &inputs)? != run(&mutant.kernel, &self.launch, &inputs)? {
                    return Ok(Verdict::Wrong);
                }
            }
        }
        Ok(Verdict::Survives)
    }
}

/// Which numbers are drawn: what hides a change in some kernels shows it in others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbers {
    /// No factor of a long product makes it vanish.
    AroundOne,
    /// Small ones, and few that are far larger than all others: no maximum is that of many.
    Wide,
    /// What predicates ask for.
    Special,
}

impl Numbers {
    const ALL: [Self; 3] = [Self::AroundOne, Self::Wide, Self::Special];

    fn draw(self, draw: &mut Draw, dtype: DType) -> Value {
        let unit = draw.bits() as f64 / u64::MAX as f64;
        let special = self == Self::Special && draw.once_in(4);
        let sign = if draw.once_in(2) { -1.0 } else { 1.0 };
        let float = match self {
            _ if special => draw.choose(&[0.0, 1.0, 2.0, f64::INFINITY, f64::NAN]),
            Self::AroundOne | Self::Special => 0.75 + unit / 2.0,
            Self::Wide if draw.once_in(256) => unit * 4000.0,
            Self::Wide => unit * 4.0,
        };
        let number = match self {
            Self::AroundOne => draw.below(16) as i64 | 1,
            Self::Wide | Self::Special if dtype.is_unsigned() => draw.below(200) as i64,
            Self::Wide => draw.below(250) as i64 - 125,
            Self::Special => draw.below(4) as i64 - 2,
        };
        match dtype.class() {
            DTypeClass::Bool => Value::Bool(draw.once_in(2)),
            DTypeClass::Int => Value::Int(number),
            DTypeClass::Float => Value::Float(sign * float),
            DTypeClass::Complex => Value::Complex(sign * float, 0.5),
        }
    }
}

/// Random elements of each input.
fn inputs(kernel: &Kernel, launch: &BoundLaunch, numbers: Numbers, seed: u64) -> Inputs {
    let mut draw = Draw::new(seed);
    let mut inputs = BTreeMap::new();
    for param in kernel.params.values() {
        let ParamKind::Input { buffer, .. } = param.kind else { continue };
        let (dtype, mut bytes) = (kernel.buffers[buffer].dtype, Vec::new());
        for _ in 0..launch.buffer_lens[buffer] {
            let value = numbers.draw(&mut draw, dtype);
            bytes.extend_from_slice(&storage::encode(dtype, value)[..dtype.bytes()]);
        }
        inputs.insert(buffer, bytes);
    }
    inputs
}

/// What a kernel makes of inputs; nothing if it leaves elements unwritten.
fn run(kernel: &Kernel, launch: &BoundLaunch, inputs: &Inputs) -> Result<Option<Vec<Vec<u8>>>> {
    let options = SimOptions { threads: 1, count: false, max_steps: 1 << 20, ..SimOptions::default() };
    let mut memory = SimMemory::new(kernel, launch);
    for (buffer, bytes) in inputs {
        memory.fill(*buffer, bytes)?;
    }
    let report = sim::run(kernel, launch, &mut memory, &options)?;
    let complete = report.unwritten.iter().all(|(.., missing)| *missing == 0);
    let bytes = |buffer| memory.bytes(buffer).unwrap_or_default().to_vec();
    Ok(complete.then(|| report.unwritten.iter().map(|(_, buffer, _)| bytes(*buffer)).collect()))
}
