//! Calls on tensors that are on the device already.
//!
//! In: a fusion, hashed and prepared once, and per call addresses with sizes and strides,
//! scalars, and the caller's stream. Out: results on the device. A call whose sizes, strides
//! and alignments are those of one of the last few goes straight to [`Ready`]: nothing is
//! hashed or allocated on the host, and no lock is held while the driver is called. Anything
//! else is bound, cut and compiled first.
//!
//! Nothing is checked here but what would make memory wrong: layouts of given results, and
//! memory that is written and overlaps other memory of the call.

use super::device_tensor::{DeviceArg, DeviceOutput, DeviceOutputs, DeviceTensor, OutputBuffer};
use super::ready::{Addresses, Ready, scalar_of};
use super::session::{Definition, Session, alignment_of};
use crate::backend::cuda::{DeviceBuffer, Graph, GraphNode, Stream};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::Fusion;
use crate::num::Value;
use crate::options::NoTrace;
use crate::program::{ResultMemory, RngOffset, ScalarUse};
use crate::tensor::{ArgMeta, TensorMeta};
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Programs that are kept ready, of one fusion.
const MAX_KNOWN: usize = 32;
/// What results of a caller are aligned to, in bytes: one vector access.
const OUTPUT_ALIGN: u64 = 16;

/// A fusion that is called again and again with tensors on a GPU.
///
/// `S` is the session: a reference, or an `Arc` where the callable is to live on its own.
pub struct Callable<S: Deref<Target = Session>> {
    session: S,
    fusion: Fusion,
    definition: Definition,
    /// What is ready, last used first.
    known: Mutex<Vec<Arc<Known>>>,
}

/// A program with what its arguments have to be.
#[derive(Debug)]
struct Known {
    args: Vec<KnownArg>,
    ready: Arc<Ready>,
    scalars: ScalarUse,
    /// The arguments that are written.
    updated: Vec<u32>,
}

#[derive(Debug)]
enum KnownArg {
    Tensor { meta: TensorMeta, alignment: u32, bytes: u64 },
    Scalar(Value),
}

impl<S: Deref<Target = Session>> std::fmt::Debug for Callable<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callable").field("fusion", &self.fusion.name).finish_non_exhaustive()
    }
}

impl<S: Deref<Target = Session>> Callable<S> {
    /// A fusion for tensors on the session's GPU.
    pub fn new(session: S, fusion: &Fusion) -> Result<Self> {
        session.gpu_backend()?;
        let definition = session.definition(fusion, &NoTrace)?;
        Ok(Self { session, fusion: fusion.clone(), definition, known: Mutex::default() })
    }

    /// Issues the fusion on a stream, with memory for its results; returns before it is done.
    /// The memory of arguments stays allocated, and as it is, until then.
    pub fn call<'a>(&self, args: &[DeviceArg<'a>], stream: Stream) -> Result<DeviceOutputs<'a>> {
        let known = self.known(args)?;
        let (mut addresses, outputs) = known.place_outputs(args, stream)?;
        self.issue(&known, &mut addresses, args, stream)?;
        Ok(outputs)
    }

    /// The same with results in memory that is given: one tensor for each output, dense as
    /// [`Callable::results`] says; for one that an argument becomes, or that is a view
    /// ([`DeviceOutput::memory`]), the place where it is.
    pub fn call_into(&self, args: &[DeviceArg<'_>], outputs: &[DeviceTensor<'_>], stream: Stream) -> Result<()> {
        let known = self.known(args)?;
        let mut addresses = known.given_outputs(args, outputs)?;
        self.issue(&known, &mut addresses, args, stream)
    }

    /// Type and layout of each result for such arguments.
    pub fn results(&self, args: &[DeviceArg<'_>]) -> Result<Vec<TensorMeta>> {
        Ok(self.known(args)?.ready.outputs.iter().map(|output| output.meta.clone()).collect())
    }

    /// Records a call, to be issued at once as often as wanted: for these addresses and these
    /// values of scalars, but that each launch draws other random numbers ([`CallGraph::launch`]).
    /// Refused where the host takes part.
    pub fn capture<'a>(&self, args: &[DeviceArg<'a>]) -> Result<CallGraph<'a>> {
        let known = self.known(args)?;
        let ready = &known.ready;
        ready.check_on_device()?;
        let offsets = ready.program.rng_offsets()?;
        let stream = self.session.stream()?;
        let (mut addresses, outputs) = known.place_outputs(args, stream)?;
        let own = own_memory(ready, stream)?;
        addresses.set_own(ready, own.as_ref());
        let mut nodes = Vec::new();
        let graph = Graph::record(ready.device(), |stream| {
            ready.device().fill_at(addresses.zeroed, ready.zeroed_bytes, 0, stream)?;
            let scalar = |position| scalar_of(args, position);
            nodes = ready.record(&self.session.cx(&NoTrace), &addresses, &scalar, stream)?;
            Ok(())
        })?;
        let scalars = (0..args.len() as u32).map(|position| scalar_of(args, position)).collect();
        let next = Mutex::new(NextScalars { scalars, are_set: true });
        Ok(CallGraph { graph, outputs, offsets, nodes, addresses, next, _own: own, ready: Arc::clone(ready) })
    }

    /// Programs that are ready at present.
    pub fn kept(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Known>>> {
        // A panic elsewhere leaves the list whole: entries are swapped and pushed.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program for such arguments; made if it is new.
    fn known(&self, args: &[DeviceArg<'_>]) -> Result<Arc<Known>> {
        {
            let mut known = self.lock();
            if let Some(found) = known.iter().position(|known| known.fits(args)) {
                known[..=found].rotate_right(1);
                return Ok(Arc::clone(&known[0]));
            }
        }
        let made = Arc::new(self.make_known(args)?);
        let mut known = self.lock();
        known.truncate(MAX_KNOWN - 1);
        known.insert(0, Arc::clone(&made));
        Ok(made)
    }

    fn make_known(&self, args: &[DeviceArg<'_>]) -> Result<Known> {
        let metas: Vec<ArgMeta> = args.iter().enumerate().map(meta_of).collect::<Result<_>>()?;
        let alignments: Vec<u32> = args.iter().map(address_alignment).collect();
        let session = &*self.session;
        let program = session.program_for_call(&self.definition, &self.fusion, &metas, &alignments, &NoTrace)?;
        let ready = Ready::new(session.gpu_backend()?, &session.cx(&NoTrace), Arc::clone(&program))?;
        let known = |(meta, alignment): (ArgMeta, u32)| match meta {
            ArgMeta::Tensor(meta) => Ok(KnownArg::Tensor { bytes: meta.span_bytes()? as u64, meta, alignment }),
            ArgMeta::Scalar(value) => Ok(KnownArg::Scalar(value)),
        };
        let args = metas.into_iter().zip(alignments).map(known).collect::<Result<_>>()?;
        let updated = program.updated().map(|(position, _)| position).collect();
        Ok(Known { args, ready: Arc::new(ready), scalars: program.scalar_use(), updated })
    }

    fn issue(&self, known: &Known, addresses: &mut Addresses, args: &[DeviceArg<'_>], stream: Stream) -> Result<()> {
        let ready = &known.ready;
        // Given back when the work is issued: later work on the stream comes after it.
        let own = own_memory(ready, stream)?;
        addresses.set_own(ready, own.as_ref());
        ready.device().fill_at(addresses.zeroed, ready.zeroed_bytes, 0, stream)?;
        ready.issue(&self.session.cx(&NoTrace), addresses, &|position| scalar_of(args, position), stream)
    }
}

/// Memory that a program has for itself, on a stream.
fn own_memory(ready: &Ready, stream: Stream) -> Result<Option<DeviceBuffer>> {
    let bytes = ready.own_bytes + ready.zeroed_bytes;
    if bytes == 0 { Ok(None) } else { ready.device().alloc_on(bytes, stream).map(Some) }
}

impl Known {
    /// Whether the program is one for these arguments.
    fn fits(&self, args: &[DeviceArg<'_>]) -> bool {
        self.args.len() == args.len()
            && self.args.iter().zip(args).all(|pair| match pair {
                (KnownArg::Tensor { meta, alignment, .. }, DeviceArg::Tensor(given)) => {
                    given.lies_as(meta) && alignment_of(given.address) == *alignment
                }
                (KnownArg::Scalar(own), DeviceArg::Scalar(given)) => match self.scalars {
                    ScalarUse::Passed => own.class() == given.class(),
                    ScalarUse::Decide => same_bits(*own, *given),
                },
                _ => false,
            })
    }

    fn arguments(&self, args: &[DeviceArg<'_>]) -> Addresses {
        let address = |arg: &DeviceArg<'_>| match arg {
            DeviceArg::Tensor(tensor) => tensor.address,
            DeviceArg::Scalar(_) => 0,
        };
        Addresses { arguments: args.iter().map(address).collect(), ..Addresses::default() }
    }

    /// Memory for results.
    fn place_outputs<'a>(&self, args: &[DeviceArg<'a>], stream: Stream) -> Result<(Addresses, DeviceOutputs<'a>)> {
        self.check_updated(args)?;
        let mut addresses = self.arguments(args);
        self.check_overlaps(&addresses, 0)?;
        let (ready, expected) = (&self.ready, &self.ready.outputs);
        let mut outputs = DeviceOutputs::new();
        for (position, own) in expected.iter().enumerate() {
            let buffer = match own.memory {
                ResultMemory::Own if own.is_shared => {
                    OutputBuffer::Shared(Arc::new(ready.device().alloc_on(own.bytes, stream)?))
                }
                ResultMemory::Own => OutputBuffer::Own(ready.device().alloc_on(own.bytes, stream)?),
                // Found below, of a result that may come later.
                ResultMemory::Result { .. } | ResultMemory::Argument { .. } => OutputBuffer::Argument,
            };
            let read_only =
                matches!(own.memory, ResultMemory::Argument { position, .. } if is_read_only(args, position));
            let ready = Arc::clone(ready);
            outputs.push(DeviceOutput { buffer, address: 0, stream, ready, position, read_only, args: PhantomData });
        }
        addresses.set_outputs(expected, |own| outputs[own].buffer.address());
        for (position, own) in expected.iter().enumerate() {
            outputs[position].address = addresses.outputs[position];
            if let ResultMemory::Result { position: other, .. } = own.memory
                && let OutputBuffer::Shared(buffer) = &outputs[other as usize].buffer
            {
                outputs[position].buffer = OutputBuffer::Shared(Arc::clone(buffer));
            }
        }
        Ok((addresses, outputs))
    }

    /// Results in memory of the caller.
    fn given_outputs(&self, args: &[DeviceArg<'_>], outputs: &[DeviceTensor<'_>]) -> Result<Addresses> {
        self.check_updated(args)?;
        let mut addresses = self.arguments(args);
        let expected = &self.ready.outputs;
        if outputs.len() != expected.len() {
            let message = format!("memory is given for {} results, there are {}", outputs.len(), expected.len());
            return Err(Diagnostic::user(code::DEVICE_TENSOR, message));
        }
        for (position, (given, own)) in outputs.iter().zip(expected).enumerate() {
            if !given.lies_as(&own.meta) || given.read_only {
                let (is, writable) = (given.meta(), if given.read_only { ", read-only" } else { "" });
                let message = format!("result {position} is {:?}, memory is given for {is:?}{writable}", own.meta);
                return Err(Diagnostic::user(code::DEVICE_TENSOR, message).note("`results` says what is needed"));
            }
            if own.memory == ResultMemory::Own && !given.address.is_multiple_of(OUTPUT_ALIGN) {
                let message = format!("memory for result {position} starts at {:#x}", given.address);
                return Err(Diagnostic::user(code::DEVICE_TENSOR, message)
                    .note(format!("results start at multiples of {OUTPUT_ALIGN} bytes")));
            }
        }
        addresses.set_outputs(expected, |own| outputs[own].address);
        for (position, (given, own)) in outputs.iter().zip(expected).enumerate() {
            if given.address != addresses.outputs[position] {
                let message = format!("result {position} lies in {}, memory is given elsewhere", own.memory);
                return Err(Diagnostic::user(code::DEVICE_TENSOR, message).note("give the memory where it is"));
            }
        }
        self.check_overlaps(&addresses, outputs.len())?;
        Ok(addresses)
    }

    fn check_updated(&self, args: &[DeviceArg<'_>]) -> Result<()> {
        match self.updated.iter().find(|position| is_read_only(args, **position)) {
            Some(position) => {
                let message = format!("argument {position} is read-only, and the fusion updates it");
                Err(Diagnostic::user(code::DEVICE_TENSOR, message).note("pass a copy"))
            }
            None => Ok(()),
        }
    }

    /// Fails where memory that is written overlaps other memory of the call. The first `given`
    /// outputs are the caller's; others have memory of their own.
    fn check_overlaps(&self, addresses: &Addresses, given: usize) -> Result<()> {
        let argument = |position: usize| match self.args.get(position) {
            Some(KnownArg::Tensor { bytes, .. }) => (addresses.arguments[position], *bytes),
            _ => (0, 0),
        };
        let output = |position: usize| match &self.ready.outputs[position] {
            own if own.memory == ResultMemory::Own => (addresses.outputs[position], own.bytes as u64),
            // Looked at as the argument or result that it is in.
            _ => (0, 0),
        };
        for &updated in &self.updated {
            let written = argument(updated as usize);
            let others = (0..self.args.len()).filter(|other| *other != updated as usize);
            if let Some(other) = others.into_iter().find(|other| have_common_bytes(written, argument(*other))) {
                return Err(overlap(format!("argument {updated}, which is updated,"), format!("argument {other}")));
            }
        }
        for position in 0..given {
            let written = output(position);
            if let Some(other) = (0..self.args.len()).find(|other| have_common_bytes(written, argument(*other))) {
                return Err(overlap(format!("the memory of result {position}"), format!("argument {other}")));
            }
            if let Some(other) = (0..position).find(|other| have_common_bytes(written, output(*other))) {
                return Err(overlap(format!("the memory of result {position}"), format!("that of result {other}")));
            }
        }
        Ok(())
    }
}

/// Whether an argument is a tensor that may not be updated.
fn is_read_only(args: &[DeviceArg<'_>], position: u32) -> bool {
    matches!(args.get(position as usize), Some(DeviceArg::Tensor(tensor)) if tensor.read_only)
}

/// Whether two runs of bytes have one in common.
fn have_common_bytes((a, a_bytes): (u64, u64), (b, b_bytes): (u64, u64)) -> bool {
    a_bytes > 0 && b_bytes > 0 && a < b.saturating_add(b_bytes) && b < a.saturating_add(a_bytes)
}

fn overlap(written: String, other: String) -> Box<Diagnostic> {
    Diagnostic::user(code::OVERLAP, format!("{written} overlaps {other}"))
}

/// NaN is as good a key as any.
fn same_bits(a: Value, b: Value) -> bool {
    let bits = |value: Value| match value {
        Value::Float(x) => [x.to_bits(), 0],
        Value::Int(x) => [x as u64, 0],
        Value::Bool(x) => [x.into(), 0],
        Value::Complex(re, im) => [re.to_bits(), im.to_bits()],
    };
    a.class() == b.class() && bits(a) == bits(b)
}

fn meta_of((position, arg): (usize, &DeviceArg<'_>)) -> Result<ArgMeta> {
    match arg {
        DeviceArg::Scalar(value) => Ok(ArgMeta::Scalar(*value)),
        DeviceArg::Tensor(tensor) if tensor.sizes.len() != tensor.strides.len() => {
            let (sizes, strides) = (tensor.sizes, tensor.strides);
            let message = format!("argument {position} has sizes {sizes:?} and strides {strides:?}");
            Err(Diagnostic::user(code::DEVICE_TENSOR, message).note("give a stride for each size"))
        }
        // An element is read by one instruction, which wants it aligned.
        DeviceArg::Tensor(tensor) if !tensor.address.is_multiple_of(tensor.dtype.bytes() as u64) => {
            let (dtype, bytes) = (tensor.dtype, tensor.dtype.bytes());
            let message = format!("argument {position} of {dtype} starts at {:#x}", tensor.address);
            Err(Diagnostic::user(code::DEVICE_TENSOR, message)
                .note(format!("elements of {dtype} start at multiples of {bytes} bytes; pass a copy")))
        }
        DeviceArg::Tensor(tensor) => Ok(ArgMeta::Tensor(tensor.meta())),
    }
}

fn address_alignment(arg: &DeviceArg<'_>) -> u32 {
    match arg {
        DeviceArg::Tensor(tensor) => alignment_of(tensor.address),
        DeviceArg::Scalar(_) => alignment_of(0),
    }
}

/// A call that is recorded, with the memory that it uses.
///
/// The scalars that random operations take their offsets from are parameters of its kernels. They
/// are replaced between launches, which the driver takes for later ones only, so kernels are
/// those of any call, and no call reads an offset from the device.
#[derive(Debug)]
pub struct CallGraph<'a> {
    graph: Graph,
    outputs: DeviceOutputs<'a>,
    offsets: Vec<RngOffset>,
    /// The launches that hang on scalars.
    nodes: Vec<(usize, GraphNode)>,
    addresses: Addresses,
    next: Mutex<NextScalars>,
    _own: Option<DeviceBuffer>,
    ready: Arc<Ready>,
}

/// The scalars of a recorded call's next launch.
#[derive(Debug)]
struct NextScalars {
    scalars: SmallVec<[Option<Value>; 8]>,
    /// Whether the graph has them.
    are_set: bool,
}

impl<'a> CallGraph<'a> {
    /// Issues the call on a stream: it reads the arguments where they were when it was
    /// recorded, and writes the same results again. Its random numbers are those of a call with
    /// the scalars that it was recorded for; those of the next launch have the offsets behind them.
    /// Offsets that are no arguments stay, and so do their numbers, as in calls.
    pub fn launch(&self, stream: Stream) -> Result<()> {
        if self.offsets.is_empty() {
            return self.graph.launch(stream);
        }
        // Nothing is half done where a launch fails: it is tried with the same scalars again.
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if !next.are_set {
            let scalar = |position: u32| next.scalars.get(position as usize).copied().flatten();
            self.ready.set_recorded(&self.graph, &self.nodes, &self.addresses, &scalar)?;
            next.are_set = true;
        }
        self.graph.launch(stream)?;
        next.advance(&self.offsets);
        Ok(())
    }
    /// Whether all launches are the same call: no random numbers go on.
    pub fn repeats(&self) -> bool {
        self.offsets.is_empty()
    }
    /// The results, which each launch writes again.
    pub fn outputs(&self) -> &DeviceOutputs<'a> {
        &self.outputs
    }
}

impl NextScalars {
    fn advance(&mut self, offsets: &[RngOffset]) {
        for RngOffset { position, count } in offsets {
            if let Some(Some(Value::Int(offset))) = self.scalars.get_mut(*position as usize) {
                *offset = offset.wrapping_add_unsigned(*count);
            }
        }
        self.are_set = false;
    }
}
