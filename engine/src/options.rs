//! Options and the compile context. Options are one immutable value, parsed by
//! the caller and hashed into every cache key; nothing here or below reads the
//! environment.

use crate::util::{Hash128, StableHasher};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;

/// What the caller may choose. Plain data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Force the kernel's index type to 64 bits.
    pub force_index64: bool,
    /// Contract `a * b + c` to a fused multiply-add in generated code.
    pub fmad: bool,
    /// Compile kernels with line numbers, for tools that look into them.
    pub line_info: bool,
    /// Check `parse(print(x)) == x` of the definition, of its parts and of kernels, and bind what
    /// is derived from a definition with all checks again. On in builds for development.
    pub self_check: bool,
    /// Take what views and the host hand on for what it is in memory. Without this it is
    /// taken to be dense and row-major, as results of kernels are: wrong for views, which
    /// is then found where steps are planned or run. For tests of that check.
    pub infer_contiguity: bool,
    /// Return a result that moves no element of an argument, or of another result, as a view: it
    /// lies in that one's memory, with the strides of the view. Without this each result has memory
    /// of its own, but what an input becomes.
    pub alias_results: bool,
    /// Leave products of matrices to a library of the device, where it has one; without this
    /// the host computes them.
    pub libraries: bool,
    /// Parameters of heuristics that the caller sets instead of the heuristic,
    /// for example `pointwise.unroll`; for tuning by measurement. Names and
    /// ranges are those of `schedule::heuristic::SETTINGS`, others are refused.
    pub tuning: BTreeMap<String, i64>,
    /// A schedule as text that takes the place of the heuristic. The whole fusion is then one
    /// kernel, or refused: with what is wrong with the schedule, at its place in this text.
    pub schedule: Option<String>,
    /// Passes over whole fusions that are left out. Names are those of `preseg::PASSES`, others
    /// are refused.
    pub disabled_passes: BTreeSet<String>,
    /// Threads that compile the kernels of a program, the caller's included; 0 for one on each
    /// core, 1 for no others. Programs, texts and results are the same.
    pub compile_threads: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            force_index64: false,
            fmad: true,
            line_info: false,
            self_check: cfg!(self_check),
            infer_contiguity: true,
            alias_results: true,
            libraries: true,
            tuning: BTreeMap::new(),
            schedule: None,
            disabled_passes: BTreeSet::new(),
            compile_threads: 0,
        }
    }
}

impl Options {
    /// The options' part of a cache key.
    pub fn key(&self) -> Hash128 {
        let mut hasher = StableHasher::new();
        self.hash(&mut hasher);
        hasher.finish128()
    }

    /// The number of threads that compile.
    pub(crate) fn threads(&self) -> usize {
        match self.compile_threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads as usize,
        }
    }
}

/// Threads of a warp.
const WARP: u32 = 32;
/// Registers of a thread are given out in groups of so many.
const REGISTER_UNIT: u32 = 8;
/// Parts of a multiprocessor, each with warps and registers of its own.
const PARTITIONS: u32 = 4;
/// Shared memory that the system takes for each block.
const SHARED_OF_SYSTEM: u32 = 1 << 10;

/// A device as data. Heuristics ask this, never a live device, so that
/// schedules for any device are computed and tested on any machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeviceDesc {
    /// Product name.
    pub name: String,
    /// Compute capability, for example (9, 0).
    pub compute_capability: (u32, u32),
    /// Multiprocessors.
    pub sm_count: u32,
    /// Threads resident on a multiprocessor.
    pub max_threads_per_sm: u32,
    /// Threads in a block.
    pub max_threads_per_block: u32,
    /// Blocks resident on a multiprocessor.
    pub max_blocks_per_sm: u32,
    /// 32-bit registers of a multiprocessor.
    pub registers_per_sm: u32,
    /// Shared memory a block may use, opt-in included, in bytes.
    pub shared_per_block: u32,
    /// Shared memory of a multiprocessor in bytes.
    pub shared_per_sm: u32,
    /// Second-level cache in bytes.
    pub l2_bytes: u64,
    /// Device memory bandwidth in bytes per second, by the datasheet.
    pub memory_bandwidth: u64,
    /// Whether there is a library that multiplies matrices on it.
    pub multiplies_matrices: bool,
    /// Operations a second of that library on numbers of 16 bits, where all rows start at multiples of 2, 4, 8 and 16
    /// bytes and are as long.
    pub product_rates: [u64; 4],
}

/// Operations a second of a library's products on one multiprocessor of an H200. That for 8 bytes was not measured: it lies
/// between its neighbours.
const PRODUCT_RATES_OF_SM: [u64; 4] = [830_000_000_000, 1_500_000_000_000, 3_000_000_000_000, 4_900_000_000_000];

impl DeviceDesc {
    /// Operations a second of products on so many multiprocessors.
    pub fn product_rates_of(sm_count: u32) -> [u64; 4] {
        PRODUCT_RATES_OF_SM.map(|rate| rate * u64::from(sm_count))
    }

    /// Blocks of so many threads that a multiprocessor holds at once, where a
    /// thread has so many registers and a block so much shared memory. Registers
    /// are given to warps, a unit at a time for each thread, out of the file of
    /// the partition that runs the warp.
    pub fn resident_blocks(&self, threads: u32, registers: u32, shared_bytes: u32) -> u32 {
        let warps = threads.div_ceil(WARP).max(1);
        let of_warp = registers.max(1).next_multiple_of(REGISTER_UNIT) * WARP;
        let by_registers = self.registers_per_sm / PARTITIONS / of_warp * PARTITIONS / warps;
        let by_threads = self.max_threads_per_sm / (warps * WARP);
        let by_shared = self.shared_per_sm / (shared_bytes + SHARED_OF_SYSTEM);
        self.max_blocks_per_sm.min(by_registers).min(by_threads).min(by_shared)
    }

    /// NVIDIA H200 (SXM): figures as its driver reports them.
    pub fn h200() -> Self {
        Self {
            name: "NVIDIA H200".into(),
            compute_capability: (9, 0),
            sm_count: 132,
            max_threads_per_sm: 2048,
            max_threads_per_block: 1024,
            max_blocks_per_sm: 32,
            registers_per_sm: 65_536,
            shared_per_block: 227 << 10,
            shared_per_sm: 228 << 10,
            l2_bytes: 60 << 20,
            memory_bandwidth: 4_800_000_000_000,
            multiplies_matrices: true,
            product_rates: Self::product_rates_of(132),
        }
    }
}

/// The order in which the simulator lets threads run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SimSchedule {
    /// All warps advance together.
    #[default]
    Lockstep,
    /// A random warp at each visible operation.
    Random,
    /// Random priorities with this many changes of priority.
    Pct(u32),
    /// The worst legal moment for everything, one warp starved.
    Adversary,
}

/// How the simulator runs a kernel. Same options, same trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SimOptions {
    /// The order of threads.
    pub schedule: SimSchedule,
    /// Seed of the random choices.
    pub seed: u64,
    /// Whether races, reads of unwritten memory and misalignment are looked for.
    pub detect: bool,
    /// Host threads for the blocks of a grid; 0 for one on each core.
    pub threads: u32,
    /// Whether memory sectors and bank conflicts are counted.
    pub count: bool,
    /// Loop iterations of a warp after which it is taken to hang.
    pub max_steps: u64,
    /// Blocks that the device holds at once; a grid barrier needs all of them.
    pub resident_blocks: u64,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            schedule: SimSchedule::Lockstep,
            seed: 0,
            detect: true,
            threads: 0,
            count: true,
            max_steps: 1 << 30,
            resident_blocks: u64::MAX,
        }
    }
}

/// What a run is checked for besides its results. Measurements check nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunChecks {
    /// Writes outside of any buffer of device memory: inputs, outputs,
    /// workspaces, and what a kernel keeps between launches. The simulator looks
    /// at every access and needs no zones.
    pub red_zones: bool,
    /// Inputs that do not come back as they were given.
    pub inputs: bool,
    /// Elements of outputs that no thread wrote.
    pub unwritten: bool,
    /// Indices that data hold and that are none of the axis that they look up: kernels keep them
    /// within it, and say nothing.
    pub indices: bool,
}

impl RunChecks {
    /// Everything.
    pub const ALL: Self = Self { red_zones: true, inputs: true, unwritten: true, indices: true };
    /// Nothing.
    pub const NONE: Self = Self { red_zones: false, inputs: false, unwritten: false, indices: false };
}

impl Default for RunChecks {
    fn default() -> Self {
        Self::ALL
    }
}

/// A phase of work on a fusion, for traces and breadcrumbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Phase {
    /// Reading text and building the fusion.
    Parse = 1,
    /// Choosing and applying a schedule.
    Schedule = 2,
    /// Lowering to kernel IR and verifying it.
    Lower = 3,
    /// Printing and compiling for a device.
    Codegen = 4,
    /// Loading a compiled kernel.
    Load = 5,
    /// Running.
    Launch = 6,
    /// Looking at what a launch did to memory.
    Verify = 7,
    /// Bringing arguments to the device.
    Upload = 8,
    /// Bringing results to the host.
    Download = 9,
    /// Finding or making the program of a call; schedules and kernels that are new are phases of their own within it.
    Plan = 10,
}

impl Phase {
    /// The stable name used in records.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Parse => "parse",
            Phase::Schedule => "schedule",
            Phase::Lower => "lower",
            Phase::Codegen => "codegen",
            Phase::Load => "load",
            Phase::Launch => "launch",
            Phase::Verify => "verify",
            Phase::Upload => "upload",
            Phase::Download => "download",
            Phase::Plan => "plan",
        }
    }
}

/// Receives spans. One implementation writes breadcrumbs, another the timing
/// report. Called from any thread; must not block.
pub trait Trace: Send + Sync {
    /// A span begins: the phase, the pass or kernel name, and a number that
    /// identifies the object (segment index or kernel hash).
    fn enter(&self, phase: Phase, name: &str, id: u64);
    /// The innermost open span of this phase ends.
    fn exit(&self, phase: Phase);
}

/// A trace that records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTrace;

impl Trace for NoTrace {
    fn enter(&self, _phase: Phase, _name: &str, _id: u64) {}
    fn exit(&self, _phase: Phase) {}
}

/// Everything a compilation depends on besides the fusion. First argument of
/// every stage; there is no ambient state.
#[derive(Clone, Copy)]
pub struct CompileCx<'a> {
    /// Options.
    pub options: &'a Options,
    /// The target.
    pub device: &'a DeviceDesc,
    /// Where spans go.
    pub trace: &'a dyn Trace,
}

impl CompileCx<'_> {
    /// Runs `body` inside a span.
    pub fn span<T>(&self, phase: Phase, name: &str, id: u64, body: impl FnOnce() -> T) -> T {
        self.trace.enter(phase, name, id);
        let result = body();
        self.trace.exit(phase);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_given_by_partition() {
        let device = DeviceDesc::h200();
        let blocks = |threads, registers, shared| device.resident_blocks(threads, registers, shared);
        // Three warps a block: 24 warps fit with 80 registers each, not the 25 of one file for all.
        assert_eq!([blocks(96, 80, 0), blocks(96, 96, 0), blocks(128, 128, 0)], [8, 6, 4]);
        assert_eq!([blocks(512, 72, 0), blocks(512, 64, 0), blocks(1024, 64, 0), blocks(1024, 65, 0)], [1, 2, 1, 0]);
        // Other limits: threads, blocks, shared memory with what the system takes of it.
        assert_eq!([blocks(1024, 16, 0), blocks(32, 16, 0), blocks(128, 32, 100 << 10)], [2, 32, 2]);
    }
}
