//! What a program is made of.

use super::results::ResultMemory;
use crate::compile::Plan;
use crate::diag::{Diagnostic, Result};
use crate::fusion::TensorId;
use crate::kernel::BoundLaunch;
use crate::num::Value as Number;
use crate::products::Product;
use crate::segment::{SegmentKind, Segments};
use crate::tensor::TensorMeta;
use crate::util::{PrimaryMap, entity_id, run_jobs, set_of};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;

entity_id!(
    /// A tensor in memory.
    pub struct ValueId, "v"
);

/// A fusion for one call: everything but the data. Immutable and shared.
#[derive(Debug)]
pub struct Program {
    /// Who computes what.
    pub segments: Arc<Segments>,
    /// Every tensor that lies in memory.
    pub values: PrimaryMap<ValueId, Value>,
    /// In order.
    pub steps: Vec<Step>,
    /// The value that each output is, when all steps are done.
    pub outputs: Vec<ValueId>,
    /// Bytes of the memory that values between steps share.
    pub arena_bytes: u64,
}

/// A tensor in memory.
#[derive(Clone, Debug)]
pub struct Value {
    /// The tensor of the whole ([`Segments::fusion`]).
    pub tensor: TensorId,
    /// Type and layout; element 0 is where its storage starts.
    pub meta: TensorMeta,
    /// Whose memory it is.
    pub storage: Storage,
}

/// Whose memory a value is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// The caller's argument of this position.
    Input(u32),
    /// The result of this position.
    Output(u32),
    /// The program's own, from this byte on.
    Arena {
        /// In bytes.
        offset: u64,
    },
    /// That of another value, which is no such itself.
    AliasOf {
        /// The value.
        value: ValueId,
        /// From its element 0, in bytes.
        offset: u64,
    },
}

/// One thing that a device does.
#[derive(Clone, Debug)]
pub enum Step {
    /// A kernel.
    Launch(Launch),
    /// An operation that a library computes.
    Library(LibraryCall),
    /// An operation that the host evaluates: tensors go down, results up.
    Host(HostCall),
    /// A value is written into the places of another.
    Copy(Copy),
}

/// A kernel and what it is given.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The number of its segment.
    pub segment: usize,
    /// The kernel.
    pub plan: Arc<Plan>,
    /// Its numbers. Where its grid is empty, nothing is launched.
    pub launch: BoundLaunch,
    /// The value that each of the kernel's inputs is; none of scalars.
    pub inputs: Vec<Option<ValueId>>,
    /// The values that it writes.
    pub outputs: Vec<ValueId>,
    /// Values that no later step reads.
    pub frees: Vec<ValueId>,
}

/// An operation that the host evaluates.
#[derive(Clone, Debug)]
pub struct HostCall {
    /// The number of its segment, whose fusion is the operation.
    pub segment: usize,
    /// What it is given.
    pub inputs: Vec<HostInput>,
    /// The values that it writes.
    pub outputs: Vec<ValueId>,
    /// Values that no later step reads.
    pub frees: Vec<ValueId>,
}

/// An operation that a library computes.
#[derive(Clone, Debug)]
pub struct LibraryCall {
    /// What it is asked for.
    pub product: Product,
    /// The values that its operands are.
    pub operands: SmallVec<[ValueId; 3]>,
    /// The same as operations, for a device that has no such library. It reads these operands, but a
    /// bias that was repeated as it was.
    pub call: HostCall,
}

/// What a host call is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HostInput {
    /// A tensor.
    Value(ValueId),
    /// A number.
    Scalar(Number),
}

/// A value that is written into the places of another of its type and sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// What is read.
    pub from: ValueId,
    /// What is written.
    pub to: ValueId,
    /// Values that no later step reads.
    pub frees: Vec<ValueId>,
}

impl Copy {
    pub(super) fn new(from: ValueId, to: ValueId) -> Self {
        Self { from, to, frees: Vec::new() }
    }
}

impl Step {
    /// The values that it reads.
    pub fn reads(&self) -> Vec<ValueId> {
        match self {
            Self::Launch(launch) => launch.inputs.iter().copied().flatten().collect(),
            Self::Library(library) => library.reads(),
            Self::Host(call) => call.inputs.iter().filter_map(HostInput::value).collect(),
            Self::Copy(copy) => vec![copy.from],
        }
    }
    /// The values that it writes.
    pub fn writes(&self) -> &[ValueId] {
        match self {
            Self::Launch(launch) => &launch.outputs,
            Self::Library(library) => &library.call.outputs,
            Self::Host(call) => &call.outputs,
            Self::Copy(copy) => std::slice::from_ref(&copy.to),
        }
    }
    /// The values that nothing reads after it.
    pub fn frees(&self) -> &[ValueId] {
        match self {
            Self::Launch(launch) => &launch.frees,
            Self::Library(library) => &library.call.frees,
            Self::Host(call) => &call.frees,
            Self::Copy(copy) => &copy.frees,
        }
    }
}

impl LibraryCall {
    fn reads(&self) -> Vec<ValueId> {
        let mut reads = self.operands.to_vec();
        let others = self.call.inputs.iter().filter_map(HostInput::value);
        reads.extend(others.filter(|value| !self.operands.contains(value)));
        reads
    }
}

impl HostInput {
    /// The tensor, if it is one.
    pub fn value(&self) -> Option<ValueId> {
        match self {
            Self::Value(value) => Some(*value),
            Self::Scalar(_) => None,
        }
    }
}

impl Program {
    /// The name of the fusion.
    pub fn name(&self) -> &str {
        &self.segments.fusion.name
    }
    /// The name of a value's tensor.
    pub fn name_of(&self, value: ValueId) -> &str {
        &self.segments.fusion.tensors[self.values[value].tensor].name
    }
    /// The value whose memory a value is in, and where in it, in bytes.
    pub fn root(&self, value: ValueId) -> (ValueId, u64) {
        root(&self.values, value)
    }
    /// The kernels in order.
    pub fn launches(&self) -> impl DoubleEndedIterator<Item = &Launch> {
        self.steps.iter().filter_map(|step| match step {
            Step::Launch(launch) => Some(launch),
            Step::Library(_) | Step::Host(_) | Step::Copy(_) => None,
        })
    }
    /// Does a job for each different kernel that is launched, on so many threads at most; what the
    /// jobs return, in the order of first launches. Their errors are told together, each with its segment.
    pub(crate) fn for_kernels<R: Send>(
        &self,
        threads: impl FnOnce() -> usize,
        is_wanted: &dyn Fn(&Plan) -> bool,
        job: &(dyn Fn(&Plan) -> Result<R> + Sync),
    ) -> Result<Vec<R>> {
        let mut seen = BTreeSet::new();
        let launched = self.launches().filter(|launch| !launch.launch.is_empty());
        let wanted = |launch: &&Launch| seen.insert(launch.plan.kernel_hash()) && is_wanted(&launch.plan);
        let launches: Vec<&Launch> = launched.filter(wanted).collect();
        let threads = if launches.len() > 1 { threads() } else { 1 };
        let results = run_jobs(threads, launches.len(), &|number| job(&launches[number].plan));
        let (mut done, mut errors) = (Vec::with_capacity(launches.len()), Vec::new());
        for (result, launch) in results.into_iter().zip(launches) {
            match result {
                Ok(result) => done.push(result),
                Err(error) => errors.push(error.note(self.segments.place(launch.segment))),
            }
        }
        Diagnostic::together(errors).map_or(Ok(done), Err)
    }
    /// The only step, if that is a kernel.
    pub fn one_kernel(&self) -> Option<&Launch> {
        match &self.steps[..] {
            [Step::Launch(launch)] => Some(launch),
            _ => None,
        }
    }
    /// Who computes its segments, in words: heuristics and the host, in order.
    pub fn made_by(&self) -> String {
        let names: Vec<&str> = self.segments.segments.iter().map(|segment| segment.kind.name()).collect();
        names.join(" + ")
    }
    /// Why operations are on the host, in order.
    pub fn on_host(&self) -> impl Iterator<Item = &Diagnostic> {
        self.segments.segments.iter().filter_map(|segment| match &segment.kind {
            SegmentKind::Host(why) => Some(&**why),
            SegmentKind::Kernel(_) | SegmentKind::View | SegmentKind::Joined | SegmentKind::Library(_) => None,
        })
    }
    /// The calls of libraries, in order.
    pub fn library_calls(&self) -> impl Iterator<Item = &LibraryCall> {
        self.steps.iter().filter_map(|step| match step {
            Step::Library(library) => Some(library),
            Step::Launch(_) | Step::Host(_) | Step::Copy(_) => None,
        })
    }
    /// Fails with the refusal of the first operation that the host computes.
    pub fn check_on_device(&self) -> Result<()> {
        self.check_no(self.on_host().collect())
    }
    /// Fails with the refusal of the first operation that the host or a library computes.
    pub fn check_kernels_only(&self) -> Result<()> {
        self.check_no(self.segments.segments.iter().filter_map(|segment| segment.kind.refusal()).collect())
    }
    fn check_no(&self, refusals: Vec<&Diagnostic>) -> Result<()> {
        let Some(&why) = refusals.first() else { return Ok(()) };
        let more = match refusals.len() {
            1 => String::new(),
            count => format!(", the first of {count} operations without a kernel"),
        };
        Err(Box::new(why.clone()).note(format!("of fusion @{}{more}", self.name())))
    }
    /// Bytes that operations on the host bring down and up.
    pub fn host_bytes(&self) -> u64 {
        let host = self.steps.iter().filter(|step| matches!(step, Step::Host(_)));
        let values = host.flat_map(|step| step.reads().into_iter().chain(step.writes().iter().copied()));
        values.map(|value| self.values[value].bytes()).sum()
    }
    /// The tensors among the arguments that the device needs: what only the host reads
    /// stays there.
    pub fn device_inputs(&self) -> BTreeSet<u32> {
        let steps = self.steps.iter().filter(|step| !matches!(step, Step::Host(_)));
        let touched = steps.flat_map(|step| step.reads().into_iter().chain(step.writes().iter().copied()));
        let roots = touched.map(|value| self.values[self.root(value).0].storage);
        let input = |storage| if let Storage::Input(position) = storage { Some(position) } else { None };
        set_of(roots.filter_map(input))
    }
    /// The inputs that are updated, with the value that each is.
    pub fn updated(&self) -> impl Iterator<Item = (u32, ValueId)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Copy(copy) => match self.values[copy.to].storage {
                Storage::Input(position) => Some((position, copy.to)),
                _ => None,
            },
            _ => None,
        })
    }
}

/// The value whose memory a value is in, and where in it, in bytes.
pub(super) fn root(values: &PrimaryMap<ValueId, Value>, value: ValueId) -> (ValueId, u64) {
    match values[value].storage {
        Storage::AliasOf { value, offset } => (value, offset),
        _ => (value, 0),
    }
}

impl Value {
    /// Bytes from its first element to its last.
    pub fn bytes(&self) -> u64 {
        self.meta.span().map_or(0, |elements| elements.unsigned_abs()) * self.meta.dtype.bytes() as u64
    }
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |value: &ValueId| format!("{value} `%{}`", self.name_of(*value));
        let list = |values: &[ValueId]| values.iter().map(name).collect::<Vec<_>>().join(", ");
        writeln!(f, "program @{}: {} bytes of its own", self.name(), self.arena_bytes)?;
        for (id, value) in self.values.iter() {
            let TensorMeta { dtype, sizes, strides } = &value.meta;
            writeln!(f, "  {} {dtype}{sizes:?} strides {strides:?} in {}", name(&id), value.storage)?;
        }
        for (position, step) in self.steps.iter().enumerate() {
            let what = match step {
                Step::Launch(Launch { segment, plan, launch, .. }) => {
                    let [x, y, z] = launch.grid;
                    let kernel = &plan.kernel().name;
                    format!("segment {segment}, launch {kernel} grid {x}x{y}x{z} threads {}", launch.threads())
                }
                Step::Library(library) => format!("segment {}, library, {}", library.call.segment, library.product),
                Step::Host(call) => format!("segment {}, host", call.segment),
                Step::Copy(_) => "copy".into(),
            };
            writeln!(f, "step {position}: {what}")?;
            writeln!(f, "  reads {}", list(&step.reads()))?;
            writeln!(f, "  writes {}", list(step.writes()))?;
            if !step.frees().is_empty() {
                writeln!(f, "  frees {}", list(step.frees()))?;
            }
        }
        writeln!(f, "returns {}", list(&self.outputs))?;
        for (position, memory) in self.result_memories().enumerate().filter(|(_, m)| *m != ResultMemory::Own) {
            writeln!(f, "  result {position} is in {memory}")?;
        }
        Ok(())
    }
}

impl std::fmt::Display for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Input(position) => write!(f, "argument {position}"),
            Self::Output(position) => write!(f, "result {position}"),
            Self::Arena { offset } => write!(f, "own memory at {offset}"),
            Self::AliasOf { value, offset } => write!(f, "{value} at {offset}"),
        }
    }
}
