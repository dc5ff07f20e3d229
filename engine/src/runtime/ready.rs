//! A program on a GPU with all that does not change from call to call in place.
//!
//! In: a [`Program`], whose kernels are loaded here. Out: [`Ready`], which issues the
//! program's steps for given addresses: it copies a block of parameters that was made
//! before, puts addresses and scalars into it, and launches. Nothing of that allocates,
//! hashes or looks anything up, unless an operation is the host's.

use super::device_tensor::DeviceArg;
use super::executor::evaluate;
use super::on_cuda::{CudaBackend, Loaded, workspace_bytes};
use crate::backend::cuda::{
    Device, DeviceBuffer, Graph, GraphNode, PlannedProduct, ProductAddresses, Stream, scalar_words,
};
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::{BoundParam, BufId, ParamId, ParamKind};
use crate::num::{DType, Value};
use crate::options::CompileCx;
use crate::program::{HostCall, Launch, LibraryCall, Program, ResultMemory, Step, Storage, ValueId};
use crate::tensor::{CopyRows, TensorMeta, copy_rows};
use crate::util::SecondaryMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// What workspaces start at multiples of, in bytes.
const WORKSPACE_ALIGN: usize = 256;
/// Words of parameters that need no memory of their own.
const FEW_WORDS: usize = 64;

/// A program, ready to be issued.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) program: Arc<Program>,
    device: Arc<Device>,
    steps: Vec<ReadyStep>,
    /// Of each output.
    pub(super) outputs: Vec<ReadyOutput>,
    /// Bytes of the program's own memory: values between steps, and workspaces.
    pub(super) own_bytes: usize,
    /// Bytes that are zero when it is issued.
    pub(super) zeroed_bytes: usize,
}

/// An output of a program.
#[derive(Debug)]
pub(super) struct ReadyOutput {
    pub(super) meta: TensorMeta,
    pub(super) bytes: usize,
    pub(super) memory: ResultMemory,
    /// Whether other results lie in its memory.
    pub(super) is_shared: bool,
}

#[derive(Debug)]
enum ReadyStep {
    Launch(ReadyLaunch),
    Copy {
        from: Place,
        to: Place,
        rows: Vec<CopyRows>,
        /// The number of the program's step.
        step: usize,
    },
    Multiply(Box<ReadyProduct>),
    /// The number of the program's step.
    Host(usize),
}

#[derive(Debug)]
struct ReadyProduct {
    planned: PlannedProduct,
    /// Both operands, then the bias if there is one.
    operands: SmallVec<[Place; 3]>,
    result: Place,
    workspace: Place,
    /// The number of the program's step.
    step: usize,
}

#[derive(Debug)]
struct ReadyLaunch {
    loaded: Arc<Loaded>,
    grid: [u32; 3],
    block: [u32; 3],
    /// Parameters in words, the number of parts that a call replaces among them.
    slots: Vec<u64>,
    addresses: Vec<(u32, Place)>,
    /// Of parameters that hang on scalars of the caller: first word, and type.
    scalars: Vec<(u32, ParamId, DType)>,
    /// The counter of the kernel's grid barrier: the call's own, since calls on two streams may
    /// run at once.
    barrier: Option<Place>,
    /// The number of the program's step.
    step: usize,
}

/// Where something is: so many bytes behind a start that a call says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    base: Base,
    offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Argument(u32),
    Output(u32),
    Own,
    Zeroed,
}

/// The addresses of a call.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    /// Element 0 of each argument; of scalars, nothing.
    pub(super) arguments: SmallVec<[u64; 32]>,
    /// Of each output, those included that are arguments.
    pub(super) outputs: SmallVec<[u64; 16]>,
    pub(super) own: u64,
    pub(super) zeroed: u64,
}

impl Addresses {
    /// Puts in where the program's own memory is.
    pub(super) fn set_own(&mut self, ready: &Ready, own: Option<&DeviceBuffer>) {
        self.own = own.map_or(0, DeviceBuffer::address);
        self.zeroed = self.own + ready.own_bytes as u64;
    }
    /// Puts in where each output is, given where those are that have memory of their own.
    pub(super) fn set_outputs(&mut self, outputs: &[ReadyOutput], own: impl Fn(usize) -> u64) {
        self.outputs.clear();
        self.outputs.extend(outputs.iter().enumerate().map(|(number, output)| match output.memory {
            ResultMemory::Own => own(number),
            ResultMemory::Argument { position, offset } => self.arguments[position as usize] + offset,
            ResultMemory::Result { position, offset } => own(position as usize) + offset,
        }));
    }
    fn at(&self, place: Place) -> u64 {
        let start = match place.base {
            Base::Argument(position) => self.arguments[position as usize],
            Base::Output(position) => self.outputs[position as usize],
            Base::Own => self.own,
            Base::Zeroed => self.zeroed,
        };
        start + place.offset
    }
}

impl Ready {
    /// Loads what the program needs, and plans its memory.
    pub(super) fn new(gpu: &CudaBackend, cx: &CompileCx<'_>, program: Arc<Program>) -> Result<Self> {
        gpu.load_all(cx, &program)?;
        let arena = usize::try_from(program.arena_bytes).unwrap_or(usize::MAX);
        let mut products =
            program.library_calls().map(|call| gpu.plan_product(call)).collect::<Result<Vec<_>>>()?.into_iter();
        let mut building =
            Building { program: &program, own: arena.next_multiple_of(WORKSPACE_ALIGN), zeroed: 0, steps: Vec::new() };
        // Steps of a call follow each other, so one workspace serves all products.
        let most = products.as_slice().iter().flatten().map(PlannedProduct::workspace_bytes).max();
        let workspace = building.own_place(most.unwrap_or_default(), false);
        for (number, step) in program.steps.iter().enumerate() {
            match step {
                Step::Launch(launch) if launch.launch.is_empty() => {}
                Step::Launch(launch) => building.launch(number, launch, gpu.load(cx, &launch.plan)?)?,
                Step::Library(library) => match products.next().flatten() {
                    Some(planned) => building.product(number, library, planned, workspace)?,
                    None => building.steps.push(ReadyStep::Host(number)),
                },
                Step::Host(_) => building.steps.push(ReadyStep::Host(number)),
                Step::Copy(copy) => {
                    let meta = |value: ValueId| &program.values[value].meta;
                    let rows = copy_rows(meta(copy.from), meta(copy.to));
                    let (from, to) = (program.place(copy.from), program.place(copy.to));
                    building.steps.push(ReadyStep::Copy { from, to, rows, step: number });
                }
            }
        }
        let outputs = outputs(&program)?;
        let Building { own: own_bytes, zeroed: zeroed_bytes, steps, .. } = building;
        Ok(Self { device: Arc::clone(&gpu.device), steps, outputs, own_bytes, zeroed_bytes, program })
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }
    /// Launches and copies of one call, at least: a library may launch several kernels.
    pub(super) fn issues(&self) -> usize {
        let issues =
            |step: &ReadyStep| if let ReadyStep::Multiply(product) = step { product.planned.calls() } else { 1 };
        self.steps.iter().map(issues).sum()
    }
    /// Issues all steps on a stream. `args` are the arguments, whose scalars are passed on;
    /// what is to be zero is zero.
    ///
    /// The caller answers for the addresses, each of memory of this device that is as long as
    /// the program says and stays allocated until the work is done.
    pub(super) fn issue(
        &self,
        cx: &CompileCx<'_>,
        addresses: &Addresses,
        scalar: &dyn Fn(u32) -> Option<Value>,
        stream: Stream,
    ) -> Result<()> {
        self.steps.iter().try_for_each(|step| self.issue_one(step, cx, addresses, scalar, stream))
    }

    /// Issues what there is of one of the program's steps.
    pub(super) fn issue_step(
        &self,
        cx: &CompileCx<'_>,
        addresses: &Addresses,
        scalar: &dyn Fn(u32) -> Option<Value>,
        stream: Stream,
        number: usize,
    ) -> Result<()> {
        let mut steps = self.steps.iter().filter(|step| step.number() == number);
        steps.try_for_each(|step| self.issue_one(step, cx, addresses, scalar, stream))
    }

    /// Issues all steps on a stream that is being recorded. The launches that hang on scalars, by
    /// their place among the steps.
    pub(super) fn record(
        &self,
        cx: &CompileCx<'_>,
        addresses: &Addresses,
        scalar: &dyn Fn(u32) -> Option<Value>,
        stream: Stream,
    ) -> Result<Vec<(usize, GraphNode)>> {
        let mut nodes = Vec::new();
        for (position, step) in self.steps.iter().enumerate() {
            self.issue_one(step, cx, addresses, scalar, stream)?;
            if matches!(step, ReadyStep::Launch(launch) if !launch.scalars.is_empty()) {
                nodes.push((position, Graph::last_recorded(stream)?));
            }
        }
        Ok(nodes)
    }

    /// Gives recorded launches other scalars.
    pub(super) fn set_recorded(
        &self,
        graph: &Graph,
        nodes: &[(usize, GraphNode)],
        addresses: &Addresses,
        scalar: &dyn Fn(u32) -> Option<Value>,
    ) -> Result<()> {
        for &(position, node) in nodes {
            if let Some(ReadyStep::Launch(launch)) = self.steps.get(position) {
                let slots = launch.slots(&self.program, addresses, scalar)?;
                launch.loaded.kernel.set_recorded(graph, node, &slots, launch.barrier(addresses))?;
            }
        }
        Ok(())
    }

    /// Fails where the host takes part: by the refusal of an operation of its own, or since the
    /// library has no algorithm for a product.
    pub(super) fn check_on_device(&self) -> Result<()> {
        self.program.check_on_device()?;
        let left = self.steps.iter().find_map(|step| match step {
            ReadyStep::Host(number) => Some(&self.program.steps[*number]),
            _ => None,
        });
        match left {
            Some(Step::Library(library)) => {
                let message = format!("cuBLASLt has no algorithm for {}", library.product);
                Err(Diagnostic::unsupported(code::NO_ALGORITHM, message))
            }
            _ => Ok(()),
        }
    }

    /// Launches and copies of one of the program's steps.
    pub(super) fn issues_of(&self, number: usize) -> usize {
        let issues = |step: &ReadyStep| match step {
            ReadyStep::Launch(_) => 1,
            ReadyStep::Multiply(product) => product.planned.calls(),
            ReadyStep::Copy { rows, .. } => rows.len(),
            ReadyStep::Host(_) => 0,
        };
        self.steps.iter().filter(|step| step.number() == number).map(issues).sum()
    }

    fn issue_one(
        &self,
        step: &ReadyStep,
        cx: &CompileCx<'_>,
        addresses: &Addresses,
        scalar: &dyn Fn(u32) -> Option<Value>,
        stream: Stream,
    ) -> Result<()> {
        match step {
            ReadyStep::Launch(launch) => launch.issue(&self.program, addresses, scalar, stream),
            ReadyStep::Copy { from, to, rows, .. } => {
                let (from, to) = (addresses.at(*from), addresses.at(*to));
                rows.iter().try_for_each(|row| self.device.copy_rows(to, from, row, stream))
            }
            ReadyStep::Multiply(product) => product.issue(addresses, stream),
            ReadyStep::Host(number) => match &self.program.steps[*number] {
                Step::Host(call) => self.evaluate(cx, call, addresses, stream),
                Step::Library(library) => self.evaluate(cx, &library.call, addresses, stream),
                _ => Err(Diagnostic::bug(format!("step {number} is not the host's"))),
            },
        }
    }

    /// Brings what an operation reads down, and its results up.
    fn evaluate(&self, cx: &CompileCx<'_>, call: &HostCall, addresses: &Addresses, stream: Stream) -> Result<()> {
        let read = |value: ValueId| {
            let mut data = vec![0; self.program.values[value].bytes() as usize];
            let address = addresses.at(self.program.place(value));
            self.device.download_from(address, &mut data, stream).map(|()| data)
        };
        let mut write = |value: ValueId, data: Vec<u8>| {
            self.device.upload_to(addresses.at(self.program.place(value)), &data, stream)
        };
        evaluate(cx, &self.program, call, &read, &mut write)
    }
}

impl ReadyStep {
    /// The number of the program's step.
    fn number(&self) -> usize {
        match self {
            Self::Launch(launch) => launch.step,
            Self::Multiply(product) => product.step,
            Self::Copy { step, .. } | Self::Host(step) => *step,
        }
    }
}

impl ReadyLaunch {
    fn issue(
        &self,
        program: &Program,
        addresses: &Addresses,
        scalar: &dyn Fn(u32) -> Option<Value>,
        stream: Stream,
    ) -> Result<()> {
        let slots = self.slots(program, addresses, scalar)?;
        self.loaded.kernel.launch_on(stream, self.grid, self.block, &slots, self.barrier(addresses))
    }

    /// Its parameters in words.
    fn slots(
        &self,
        program: &Program,
        addresses: &Addresses,
        scalar: &dyn Fn(u32) -> Option<Value>,
    ) -> Result<SmallVec<[u64; FEW_WORDS]>> {
        let mut slots = SmallVec::from_slice(&self.slots);
        for &(slot, place) in &self.addresses {
            slots[slot as usize] = addresses.at(place);
        }
        if let (false, Step::Launch(launch)) = (self.scalars.is_empty(), &program.steps[self.step]) {
            for &(slot, param, dtype) in &self.scalars {
                let words = scalar_words(dtype, program.scalar_param(launch, param, scalar)?);
                slots.iter_mut().skip(slot as usize).zip(words).for_each(|(slot, word)| *slot = word);
            }
        }
        Ok(slots)
    }

    fn barrier(&self, addresses: &Addresses) -> u64 {
        self.barrier.map_or(0, |place| addresses.at(place))
    }
}

impl ReadyProduct {
    fn issue(&self, addresses: &Addresses, stream: Stream) -> Result<()> {
        let operand = |number: usize| self.operands.get(number).map_or(0, |place| addresses.at(*place));
        let (d, workspace) = (addresses.at(self.result), addresses.at(self.workspace));
        let at = ProductAddresses { a: operand(0), b: operand(1), bias: operand(2), d, workspace };
        self.planned.issue(&at, stream)
    }
}

impl Program {
    /// Where a value's element 0 is.
    fn place(&self, value: ValueId) -> Place {
        let (root, within) = self.root(value);
        match self.values[root].storage {
            Storage::Input(position) => Place { base: Base::Argument(position), offset: within },
            Storage::Output(position) => Place { base: Base::Output(position), offset: within },
            Storage::Arena { offset } => Place { base: Base::Own, offset: offset + within },
            // A root is no alias.
            Storage::AliasOf { offset, .. } => Place { base: Base::Own, offset },
        }
    }
}

/// A program that is made ready.
struct Building<'a> {
    program: &'a Program,
    own: usize,
    zeroed: usize,
    steps: Vec<ReadyStep>,
}

impl Building<'_> {
    fn launch(&mut self, step: usize, launch: &Launch, loaded: Arc<Loaded>) -> Result<()> {
        let kernel = launch.plan.kernel();
        let mut places: SecondaryMap<BufId, Option<Place>> = SecondaryMap::new();
        for param in kernel.params.values() {
            let (buffer, place) = match param.kind {
                ParamKind::Input { input, buffer } => (buffer, self.read(launch, input)?),
                ParamKind::Output { output, buffer } => {
                    let Place { base, offset } = self.program.place(launch.outputs[output as usize]);
                    (buffer, Place { base, offset: offset - kernel.buffers[buffer].start_bytes() })
                }
                ParamKind::Workspace { buffer } => (buffer, self.workspace(launch, buffer)?),
                _ => continue,
            };
            places.set(buffer, Some(place));
        }
        let (mut slots, mut addresses, mut scalars) = (Vec::new(), Vec::new(), Vec::new());
        let hanging = self.program.scalar_params(launch);
        for (param, bound) in kernel.params.ids().zip(&launch.launch.params) {
            let slot = slots.len() as u32;
            match *bound {
                BoundParam::Pointer(buffer) => {
                    let place = places[buffer].ok_or_else(|| Diagnostic::bug(format!("{buffer} is nowhere")))?;
                    addresses.push((slot, place));
                    slots.push(0);
                }
                BoundParam::Scalar { dtype, value } => {
                    slots.extend(scalar_words(dtype, value));
                    if hanging.contains(&param) {
                        scalars.push((slot, param, dtype));
                    }
                }
            }
        }
        let barrier = loaded.kernel.barrier().map(|counters| self.own_place(counters.len(), true));
        let (grid, block) = (launch.launch.grid, launch.launch.block);
        let ready = ReadyLaunch { loaded, grid, block, slots, addresses, scalars, barrier, step };
        self.steps.push(ReadyStep::Launch(ready));
        Ok(())
    }

    fn product(&mut self, step: usize, library: &LibraryCall, planned: PlannedProduct, workspace: Place) -> Result<()> {
        let Some(&result) = library.call.outputs.first() else {
            return Err(Diagnostic::bug("a product has no result"));
        };
        let operands = library.operands.iter().map(|value| self.program.place(*value)).collect();
        let result = self.program.place(result);
        self.steps.push(ReadyStep::Multiply(Box::new(ReadyProduct { planned, operands, result, workspace, step })));
        Ok(())
    }

    fn read(&self, launch: &Launch, input: u32) -> Result<Place> {
        let value = launch.inputs.get(input as usize).copied().flatten();
        let missing = || Diagnostic::bug(format!("argument {input} of a kernel is no tensor"));
        value.map(|value| self.program.place(value)).ok_or_else(missing)
    }

    fn workspace(&mut self, launch: &Launch, buffer: BufId) -> Result<Place> {
        Ok(self.own_place(workspace_bytes(launch, buffer)?, launch.plan.kernel().buffers[buffer].zeroed))
    }

    /// Memory of the call itself.
    fn own_place(&mut self, bytes: usize, zeroed: bool) -> Place {
        let (base, end) = if zeroed { (Base::Zeroed, &mut self.zeroed) } else { (Base::Own, &mut self.own) };
        let offset = *end as u64;
        *end += bytes.next_multiple_of(WORKSPACE_ALIGN);
        Place { base, offset }
    }
}

/// What the caller gets.
fn outputs(program: &Program) -> Result<Vec<ReadyOutput>> {
    let memories: Vec<ResultMemory> = program.result_memories().collect();
    let lies_in = |memory: &ResultMemory, own: usize| matches!(memory, ResultMemory::Result { position, .. } if *position as usize == own);
    let output = |(own, meta): (usize, &TensorMeta)| {
        let place = program.place(program.outputs[own]);
        if memories[own] == ResultMemory::Own && place != (Place { base: Base::Output(own as u32), offset: 0 }) {
            return Err(Diagnostic::bug(format!("result {own} of @{} does not lie in its memory", program.name())));
        }
        let is_shared = memories.iter().any(|memory| lies_in(memory, own));
        Ok(ReadyOutput { meta: meta.clone(), bytes: meta.span_bytes()?, memory: memories[own], is_shared })
    };
    program.result_metas().enumerate().map(output).collect()
}

/// The scalar among the arguments of a call at a position.
pub(super) fn scalar_of(args: &[DeviceArg<'_>], position: u32) -> Option<Value> {
    match args.get(position as usize) {
        Some(DeviceArg::Scalar(value)) => Some(*value),
        _ => None,
    }
}
