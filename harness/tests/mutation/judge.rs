//! What becomes of a mutant.

use crate::mutation::mutate::Mutant;
use engine::backend::sim::{self, SimMemory, SimProgram};
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
    program: Program<'a>,
    runs: Vec<Run>,
}

/// A kernel, and what the simulator executes of it.
struct Program<'a> {
    kernel: &'a Kernel,
    code: SimProgram,
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
    pub(crate) fn new(name: &'a str, kernel: &'a Kernel, launches: Vec<BoundLaunch>) -> Result<Self> {
        let program = Program::new(kernel)?;
        let runs = launches.into_iter().enumerate().filter_map(|(seed, launch)| {
            let in_order = check_order(kernel, &launch).is_ok_and(|report| report.is_proof());
            let terms = in_order.then(|| result_terms(kernel, &launch).ok())??;
            let draw = |numbers| {
                let inputs = inputs(kernel, &launch, numbers, seed as u64);
                let outputs = program.run(&launch, &inputs).ok().flatten()?;
                Some((inputs, outputs))
            };
            let draws: Vec<_> = Numbers::ALL.into_iter().filter_map(draw).collect();
            (!draws.is_empty()).then_some(Run { draws, launch, terms })
        });
        let runs = runs.collect();
        Ok(Self { name, program, runs })
    }

    pub(crate) fn launches(&self) -> usize {
        self.runs.len()
    }

    /// Looks for a launch in which a mutant does wrong; if there is none, for a proof in each launch. The proof that is
    /// asked for most is the verdict.
    pub(crate) fn judge(&self, mutant: &Mutant) -> Verdict {
        if kernel::verify(&mutant.kernel).is_err() {
            return Verdict::Refused;
        }
        let Ok(program) = Program::new(&mutant.kernel) else { return Verdict::Survives };
        // The checker first where a statement is gone: what it says holds for every order of threads.
        let by_simulator = |of: &Run| of.by_simulator(&program);
        let by_checker = |of: &Run| of.by_checker(&mutant.kernel);
        let simulated = || self.runs.iter().find_map(by_simulator);
        let checked = || self.runs.iter().find_map(by_checker);
        let caught = if mutant.exprs.is_some() { simulated().or_else(checked) } else { checked().or_else(simulated) };
        if let Some(verdict) = caught {
            return verdict;
        }
        let mut left = if mutant.exprs.is_some() { Verdict::Unreached } else { Verdict::OrdersNothing };
        for of in &self.runs {
            let own = of.proof(&self.program, &program, mutant).unwrap_or(Verdict::Survives);
            if own.is_caught() {
                return own;
            }
            left = left.max(own);
        }
        left
    }
}

impl<'a> Program<'a> {
    fn new(kernel: &'a Kernel) -> Result<Self> {
        Ok(Self { kernel, code: sim::compile(kernel)? })
    }

    /// What the kernel makes of inputs; nothing if it leaves elements unwritten.
    fn run(&self, launch: &BoundLaunch, inputs: &Inputs) -> Result<Option<Vec<Vec<u8>>>> {
        let options = SimOptions { threads: 1, count: false, max_steps: 1 << 20, ..SimOptions::default() };
        let mut memory = SimMemory::new(self.kernel, launch);
        for (buffer, bytes) in inputs {
            memory.fill(*buffer, bytes)?;
        }
        let report = sim::run_program(&self.code, self.kernel, launch, &mut memory, &options)?;
        let complete = report.unwritten.iter().all(|(.., missing)| *missing == 0);
        let bytes = |buffer| memory.bytes(buffer).unwrap_or_default().to_vec();
        Ok(complete.then(|| report.unwritten.iter().map(|(_, buffer, _)| bytes(*buffer)).collect()))
    }
}

impl Run {
    /// What the simulator finds, or other results.
    fn by_simulator(&self, mutant: &Program<'_>) -> Option<Verdict> {
        self.draws.iter().find_map(|(inputs, expected)| self.told_by(mutant, inputs, expected))
    }

    /// What one run tells.
    fn told_by(&self, mutant: &Program<'_>, inputs: &Inputs, expected: &[Vec<u8>]) -> Option<Verdict> {
        match mutant.run(&self.launch, inputs) {
            Err(error) => Some(Verdict::Detected(error.code)),
            Ok(outputs) => (outputs.as_deref() != Some(expected)).then_some(Verdict::Wrong),
        }
    }

    /// What the checker of order finds.
    fn by_checker(&self, mutant: &Kernel) -> Option<Verdict> {
        let report = check_order(mutant, &self.launch).ok()?;
        report.alarms.first().map(|alarm| Verdict::Alarm(alarm.kind))
    }

    /// Why nobody can tell the mutant from the kernel in this launch; or what tells it after all.
    fn proof(&self, kernel: &Program<'_>, mutated: &Program<'_>, mutant: &Mutant) -> Result<Verdict> {
        if let Some(exprs) = mutant.exprs {
            let agreement = compare_at(&mutant.kernel, &self.launch, mutant.number, exprs)?;
            if agreement.is_proof() {
                return Ok(if agreement.executed > 0 { Verdict::SameValue } else { Verdict::Unreached });
            }
        } else if check_order(&mutant.kernel, &self.launch)?.is_proof() {
            return Ok(Verdict::OrdersNothing);
        }
        let terms = result_terms(&mutant.kernel, &self.launch)?;
        if terms.exhaustive && terms == self.terms {
            return Ok(Verdict::SameTerms);
        }
        // Which thread has the largest of a row is chance.
        for seed in MORE_SEEDS {
            for numbers in Numbers::ALL {
                let inputs = inputs(kernel.kernel, &self.launch, numbers, seed);
                let Ok(Some(expected)) = kernel.run(&self.launch, &inputs) else { continue };
                if let Some(verdict) = self.told_by(mutated, &inputs, &expected) {
                    return Ok(verdict);
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
    /// No maximum of signed numbers is zero, and hardly any condition holds.
    Negative,
    /// No sum of infinities is NaN, and most conditions hold.
    Positive,
}

impl Numbers {
    const ALL: [Self; 5] = [Self::AroundOne, Self::Wide, Self::Special, Self::Negative, Self::Positive];

    fn draw(self, draw: &mut Draw, dtype: DType) -> Value {
        let unit = draw.bits() as f64 / u64::MAX as f64;
        let special = self == Self::Special && draw.once_in(4);
        let sign = match self {
            Self::Positive => 1.0,
            Self::Negative => -1.0,
            _ if draw.once_in(2) => -1.0,
            _ => 1.0,
        };
        let float = match self {
            _ if special => draw.choose(&[0.0, 1.0, 2.0, f64::INFINITY, f64::NAN]),
            Self::Positive if draw.once_in(32) => f64::INFINITY,
            Self::AroundOne | Self::Special | Self::Negative | Self::Positive => 0.75 + unit / 2.0,
            Self::Wide if draw.once_in(256) => unit * 4000.0,
            Self::Wide => unit * 4.0,
        };
        let number = match self {
            Self::AroundOne | Self::Positive => draw.below(16) as i64 | 1,
            _ if dtype.is_unsigned() => draw.below(200) as i64,
            Self::Negative => -(draw.below(16) as i64 | 1),
            Self::Wide => draw.below(250) as i64 - 125,
            Self::Special => draw.below(4) as i64 - 2,
        };
        match dtype.class() {
            DTypeClass::Bool if self == Self::Negative => Value::Bool(draw.once_in(64)),
            DTypeClass::Bool if self == Self::Positive => Value::Bool(!draw.once_in(64)),
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
