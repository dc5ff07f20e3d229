//! A kernel with a launch, run by the simulator and by its text.

use super::compile::HostKernels;
use super::run::HostMemory;
use crate::data::{Draw, fill};
use engine::backend::cuda::{CudaSource, emit};
use engine::backend::sim;
use engine::diag::{Diagnostic, Result};
use engine::kernel::{Block, BoundLaunch, BufId, Kernel, ParamKind, Scope, Space, StmtKind};
use engine::num::{DType, Value, storage};
use engine::options::SimOptions;
use engine::refeval::{Tolerance, compare};
use engine::tensor::{Arg, HostTensor};
use std::collections::BTreeMap;

/// What the threads of a kernel do together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// They exchange values within a warp.
    pub shuffle: bool,
    /// A block has memory of its own, or waits.
    pub shared: bool,
    /// Blocks tell each other what they did.
    pub grid: bool,
    /// All blocks wait for each other.
    pub barrier: bool,
}

impl Needs {
    /// What a kernel needs.
    pub fn of(kernel: &Kernel) -> Self {
        let mut needs = Self { shared: kernel.buffers.values().any(|b| b.space == Space::Shared), ..Self::default() };
        needs.walk(&kernel.body);
        needs
    }

    fn walk(&mut self, block: &Block) {
        for stmt in block {
            match &stmt.kind {
                StmtKind::Shuffle { .. } | StmtKind::Sync(Scope::Warp) => self.shuffle = true,
                StmtKind::Sync(Scope::Block) | StmtKind::WaitGroup { .. } => self.shared = true,
                StmtKind::Sync(Scope::Team | Scope::Grid) => self.barrier = true,
                StmtKind::Atomic { .. } | StmtKind::Fence(_) => self.grid = true,
                StmtKind::For { body, .. } => self.walk(body),
                StmtKind::If { then, otherwise, .. } => {
                    self.walk(then);
                    self.walk(otherwise);
                }
                _ => {}
            }
        }
    }

    /// Whether every thread runs by itself.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
    /// Whether threads of a block wait for each other.
    fn waits(self) -> bool {
        self.shuffle || self.shared
    }
}

/// A kernel with a launch.
pub struct Subject {
    /// What it is, for messages.
    pub name: String,
    /// The kernel.
    pub kernel: Kernel,
    /// The launch.
    pub launch: BoundLaunch,
    /// The kernel's text.
    pub source: CudaSource,
    /// What its threads do together.
    pub needs: Needs,
    /// Arguments of its own.
    pub expected: Option<Expected>,
    /// Draws of random inputs on which it is compared with the simulator.
    pub draws: u64,
}

/// Arguments with what the reference makes of them, and how exactly.
pub struct Expected {
    /// The arguments.
    pub args: Vec<Arg>,
    /// Each output with its tolerance.
    pub outputs: Vec<(HostTensor, Tolerance)>,
}

impl Subject {
    /// A kernel and the launch that it is run with.
    pub fn new(name: String, kernel: Kernel, launch: BoundLaunch) -> Self {
        let (source, needs) = (emit(&kernel), Needs::of(&kernel));
        Self { name, kernel, launch, source, needs, expected: None, draws: 2 }
    }

    /// Random elements for each input buffer, and for outputs of which some elements stay what they were.
    fn inputs(&self, seed: u64) -> BTreeMap<BufId, Vec<u8>> {
        let mut draw = Draw::new(seed);
        let inputs = self.kernel.params.values().filter_map(|param| match param.kind {
            ParamKind::Input { buffer, .. } => Some(buffer),
            ParamKind::Output { buffer, .. } if self.launch.gaps[buffer] > 0 => Some(buffer),
            _ => None,
        });
        inputs
            .map(|id| {
                let count = self.launch.buffer_lens.get(id).copied().unwrap_or(0) as usize;
                (id, fill(&mut draw, self.kernel.buffers[id].dtype, count))
            })
            .collect()
    }

    /// The buffers of the outputs, in the order of the fusion's results.
    fn outputs(&self) -> BTreeMap<u32, BufId> {
        let outputs = self.kernel.params.values().filter_map(|param| match param.kind {
            ParamKind::Output { output, buffer } => Some((output, buffer)),
            _ => None,
        });
        outputs.collect()
    }

    /// Runs the text; its outputs in order, or what it did that a text must not.
    fn run(
        &self,
        kernels: &HostKernels,
        index: usize,
        inputs: &BTreeMap<BufId, Vec<u8>>,
    ) -> Result<std::result::Result<BTreeMap<u32, Vec<u8>>, String>> {
        let mut memory = HostMemory::new(&self.kernel, &self.launch);
        for (id, bytes) in inputs {
            memory.fill(*id, bytes)?;
        }
        if let Some(wrong) = kernels.run(index, &self.source, &self.launch, &mut memory, self.needs.waits())? {
            return Ok(Err(wrong));
        }
        let bytes = |id: BufId| memory.bytes(id).unwrap_or_default().to_vec();
        Ok(Ok(self.outputs().into_iter().map(|(output, id)| (output, bytes(id))).collect()))
    }

    /// Runs the simulator and the text on random inputs. An error is ours; a
    /// text says how the two differ.
    pub fn differs(&self, kernels: &HostKernels, index: usize, seed: u64) -> Result<Option<String>> {
        let inputs = self.inputs(seed);
        let mut simulated = sim::SimMemory::new(&self.kernel, &self.launch);
        for (id, bytes) in &inputs {
            simulated.fill(*id, bytes)?;
        }
        let options = SimOptions { threads: 1, count: false, detect: false, ..SimOptions::default() };
        sim::run(&self.kernel, &self.launch, &mut simulated, &options)?;
        let outputs = match self.run(kernels, index, &inputs)? {
            Ok(outputs) => outputs,
            Err(wrong) => return Ok(Some(wrong)),
        };
        for (id, host) in self.outputs().into_values().zip(outputs.values()) {
            let facts = &self.kernel.buffers[id];
            let Some(simulated) = simulated.bytes(id) else {
                return Err(Diagnostic::bug(format!("output {id} of {} has no memory", self.name)));
            };
            if let Some(text) = Self::difference(facts.dtype, host, simulated) {
                return Ok(Some(format!("{} differs, seed {seed}: {text}", facts.name)));
            }
        }
        Ok(None)
    }

    /// Runs the text on its own arguments, where it has any, and compares with
    /// what the reference expects.
    pub fn is_unexpected(&self, kernels: &HostKernels, index: usize) -> Result<Option<String>> {
        let Some(expected) = &self.expected else { return Ok(None) };
        let inputs = self.kernel.params.values().filter_map(|param| match param.kind {
            ParamKind::Input { input, buffer } => match expected.args.get(input as usize) {
                Some(Arg::Tensor(tensor)) => {
                    Some((buffer, tensor.data[tensor.offset * tensor.dtype().bytes()..].to_vec()))
                }
                _ => None,
            },
            _ => None,
        });
        let outputs = match self.run(kernels, index, &inputs.collect())? {
            Ok(outputs) => outputs,
            Err(wrong) => return Ok(Some(wrong)),
        };
        for (i, found) in outputs {
            let Some((wanted, tolerance)) = expected.outputs.get(i as usize) else { continue };
            // A kernel may lay out the others in another order of axes, or write what repeats once.
            if !wanted.is_contiguous() || found.len() != wanted.numel() * wanted.dtype().bytes() {
                continue;
            }
            let comparison = compare(&HostTensor::new(wanted.meta.clone(), found, 0)?, wanted, *tolerance)?;
            if !comparison.passed() {
                return Ok(Some(format!("output {i} is not the reference's: {comparison}")));
            }
        }
        Ok(None)
    }
}

impl Subject {
    /// The first element in which two buffers differ. One NaN is as good as another.
    fn difference(dtype: DType, host: &[u8], simulated: &[u8]) -> Option<String> {
        let alike = |a: Option<Value>, b: Option<Value>| match (a, b) {
            (Some(Value::Float(a)), Some(Value::Float(b))) => a.is_nan() && b.is_nan(),
            (Some(Value::Complex(a, b)), Some(Value::Complex(c, d))) => {
                [(a, c), (b, d)].into_iter().all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan())
            }
            _ => false,
        };
        let width = dtype.bytes();
        let pairs = host.chunks_exact(width).zip(simulated.chunks_exact(width)).enumerate();
        let mut differing = pairs.filter(|(_, (a, b))| a != b).filter_map(|(i, _)| {
            let (a, b) = (storage::read(dtype, host, i), storage::read(dtype, simulated, i));
            (!alike(a, b)).then_some((i, a, b))
        });
        let (i, a, b) = differing.next()?;
        let shown = |value: Option<Value>| value.map_or_else(String::new, |value| value.shown(dtype));
        let more = differing.count();
        Some(format!("element {i} is {} of the text and {} of the simulator, {more} more", shown(a), shown(b)))
    }
}
