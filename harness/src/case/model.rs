//! One expanded case: everything that a worker needs to run it, as plain data
//! that travels over the protocol. Nothing here is substituted any more.

use serde::{Deserialize, Serialize};

/// An expanded case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// `Suite.Name/axis=value,...`.
    pub id: String,
    /// The part before the dot.
    pub suite: String,
    /// The fusion's name.
    pub name: String,
    /// Words to select by.
    pub tags: Vec<String>,
    /// Why the case exists.
    pub about: String,
    /// The file, as shown to the user.
    pub file: String,
    /// Line of the file on which `text` starts, from 1.
    pub line: usize,
    /// The fusion with its comments, substituted.
    pub text: String,
    /// One entry for each named argument, in the order of the directives.
    pub inputs: Vec<(String, InputSpec)>,
    /// How outputs are compared.
    pub check: Check,
    /// What must hold for the compiled fusion.
    pub expects: Vec<Expect>,
    /// What must become of it.
    pub ends: CaseEnd,
    /// Types and sizes of the results, all of them or none.
    pub outputs: Vec<OutputSpec>,
    /// Elements of the results, of all of them or none.
    pub values: Vec<ValuesSpec>,
    /// Another fusion that gives the same results.
    pub same_as: Option<SameAs>,
    /// Lines that must or must not occur in a stage's text.
    pub texts: Vec<TextSpec>,
    /// The whole texts of stages, as they must be.
    pub goldens: Vec<Golden>,
    /// The schedule of its kernel, in place of a heuristic's. Places in it are places in `text`.
    pub schedule: Option<String>,
    /// How the simulator schedules the case.
    pub sim: SimSpec,
    /// Traffic and goal for benchmarks.
    pub perf: Option<PerfSpec>,
    /// A failure that is known.
    pub xfail: Option<Xfail>,
    /// Milliseconds after which the case hangs; the run's default otherwise.
    pub timeout_ms: Option<u64>,
    /// What the device must offer.
    pub require: Require,
    /// A built-in failure of the worker itself, for tests of the harness.
    pub fault: Option<String>,
}

/// What must become of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum CaseEnd {
    /// It runs.
    #[default]
    Runs,
    /// It is refused by all of these, of which there is one at least: it has no results.
    Refused(Vec<ErrorSpec>),
}

impl Case {
    /// Refusals that must happen; none for a case that is right.
    pub fn refusals(&self) -> &[ErrorSpec] {
        match &self.ends {
            CaseEnd::Refused(all) => all,
            CaseEnd::Runs => &[],
        }
    }

    /// The case without what may change and leave it the same.
    pub(crate) fn essence(&self) -> Case {
        let text = self.text.trim_end().to_string();
        Case { line: 0, file: String::new(), about: String::new(), text, ..self.clone() }
    }
}

/// A floating-point number by its bits: JSON has no infinity and no NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Real(u64);

impl Real {
    /// Wraps.
    pub fn new(value: f64) -> Self {
        Self(value.to_bits())
    }
    /// Unwraps.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// A scalar argument before its declared type is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Number {
    /// An integer expression.
    Int(i64),
    /// A floating-point literal.
    Float(Real),
    /// `true` or `false`.
    Bool(bool),
    /// Real and imaginary part: `1.5-2.0i`.
    Complex(Real, Real),
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum InputSpec {
    /// A scalar.
    Scalar(Number),
    /// A generated tensor.
    Tensor(TensorSpec),
}

/// A generated tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorSpec {
    /// How values are drawn.
    pub dist: Dist,
    /// Sizes, outer to inner.
    pub sizes: Vec<i64>,
    /// Seed of the values; by default from the input's name.
    pub seed: Option<u64>,
    /// Layout in memory.
    pub layout: ArgLayout,
}

/// A distribution. None of them is all zeros unless asked for by `full(0)`:
/// zeros hide elements that were never written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Dist {
    /// Mean and standard deviation.
    Normal(Real, Real),
    /// From, to.
    Uniform(Real, Real),
    /// Integers from, up to and including.
    Randint(i64, i64),
    /// Start and step, in row-major order.
    Arange(Real, Real),
    /// One value.
    Full(Real),
    /// 1 with this probability, else 0.
    Bernoulli(Real),
    /// Cycles through NaN, infinities, signed zeros, extremes and small numbers.
    Special,
    /// These values in row-major order.
    List(Vec<Real>),
}

/// The layout of a tensor; contiguous by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgLayout {
    /// Strides in elements, one for each axis.
    pub strides: Option<Vec<i64>>,
    /// Element of the storage at which the view starts.
    pub offset: usize,
    /// Axes from the outermost in memory to the innermost.
    pub permuted: Option<Vec<usize>>,
    /// Axes of stride 0.
    pub expanded: Vec<usize>,
}

/// How outputs are compared; `None` means by data type and reduction length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Relative tolerance.
    pub rel: Option<Real>,
    /// Absolute tolerance.
    pub abs: Option<Real>,
    /// Bits must agree (all NaNs are one).
    pub exact: bool,
}

/// A fact about the compiled fusion that must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expect {
    /// Line of the file, for messages and rewriting.
    pub line: usize,
    /// Which fact: see [`super::FACTS`].
    pub fact: String,
    /// The relation.
    pub op: Relation,
    /// Right side; several for `in`.
    pub values: Vec<String>,
}

/// The relation of an expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Relation {
    /// `=` or `==`.
    Eq,
    /// `!=`.
    Ne,
    /// `<`.
    Lt,
    /// `<=`.
    Le,
    /// `>`.
    Gt,
    /// `>=`.
    Ge,
    /// `in (..)`.
    In,
}

/// A refusal that must happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorSpec {
    /// The diagnostic's code.
    pub code: String,
    /// Text that the message must contain; may be empty.
    pub contains: String,
    /// Line of the file at which the refusal must point; `None` when the
    /// directive stands alone on its line.
    pub line: Option<usize>,
    /// Line of the directive itself.
    pub at: usize,
}

impl ErrorSpec {
    /// As it stands in a case file.
    pub(crate) fn written(&self) -> String {
        match self.contains.as_str() {
            "" => self.code.clone(),
            part => format!("{} {part:?}", self.code),
        }
    }
}

/// Type, sizes and perhaps strides of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSpec {
    /// Line of the file.
    pub line: usize,
    /// Name of the data type.
    pub dtype: String,
    /// Sizes, outer to inner.
    pub sizes: Vec<i64>,
    /// Strides in elements.
    pub strides: Option<Vec<i64>>,
}

/// Elements of a result in row-major order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValuesSpec {
    /// Line of the file.
    pub line: usize,
    /// The first elements.
    pub values: Vec<Number>,
    /// Whether more elements follow, of any value.
    pub open: bool,
}

/// Another fusion of the file that computes the same by other means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SameAs {
    /// Line of the directive.
    pub line: usize,
    /// The fusion's name.
    pub name: String,
    /// The fusion, substituted.
    pub text: String,
    /// Line of the file on which `text` starts.
    pub text_line: usize,
}

/// A condition on a stage's text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextSpec {
    /// Line of the file.
    pub line: usize,
    /// `cuda`, `kernel` or `schedule`.
    pub stage: String,
    /// Whether the text must be there or must not.
    pub present: bool,
    /// The text, matched with runs of white space taken as one space.
    pub text: String,
}

/// The text of a stage, line for line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Golden {
    /// Line of the file on which the directive stands; the text follows it.
    pub line: usize,
    /// `kernel` or `schedule`.
    pub stage: String,
    /// The text, without the marker of its lines.
    pub text: String,
}

/// How the simulator schedules a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimSpec {
    /// Names of schedules.
    pub schedules: Vec<String>,
    /// Seeds for each seeded schedule.
    pub seeds: u32,
}

/// The schedules every case runs under unless it says otherwise.
pub const SCHEDULES: [&str; 4] = ["lockstep", "random", "pct", "adversary"];

impl Default for SimSpec {
    fn default() -> Self {
        Self { schedules: SCHEDULES.map(String::from).to_vec(), seeds: 1 }
    }
}

impl SimSpec {
    /// Seeds of a schedule. Lockstep draws nothing, so one is enough for it.
    pub(crate) fn seeds_of(&self, schedule: &str) -> u32 {
        if schedule == "lockstep" { 1 } else { self.seeds }
    }

    /// Runs of the case.
    pub(crate) fn runs(&self) -> usize {
        self.schedules.iter().map(|schedule| self.seeds_of(schedule) as usize).sum()
    }
}

/// Traffic and goal of a benchmark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerfSpec {
    /// Names of tensors that are moved once; empty means inputs and outputs.
    pub bytes: Vec<String>,
    /// Least share of the measured copy bandwidth.
    pub dram: Option<Real>,
}

/// A failure that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xfail {
    /// Why.
    pub reason: String,
    /// Where it is tracked.
    pub issue: String,
    /// `YYYY-MM-DD` after which the failure counts; may be empty.
    pub until: String,
}

/// What the device must offer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Require {
    /// `sim`, `cuda` or `ref`; empty means any.
    pub device: Vec<String>,
    /// Least compute capability, for example 90.
    pub arch: Option<u32>,
    /// Free device memory in bytes.
    pub memory: Option<u64>,
    /// Devices that the run must have.
    pub gpus: Option<usize>,
}
