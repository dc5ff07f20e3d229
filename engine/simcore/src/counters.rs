//! Exact, repeatable counts of what a run did.

use crate::op::Opcode;
use crate::program::{Program, SpaceKind};

/// Classes of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Class {
    /// 32-bit and 64-bit integer, conversion and move.
    Integer,
    /// Floating point.
    Float,
    /// Transcendental and other library functions.
    Special,
    /// Branches and loops.
    Control,
    /// Local memory held in registers.
    Local,
    /// Global memory, plain.
    Global,
    /// Shared memory, plain.
    Shared,
    /// Atomics.
    Atomic,
    /// Shuffles.
    Shuffle,
    /// Barriers and fences.
    Sync,
}

impl Class {
    /// All classes in order.
    pub const ALL: [Class; 10] = [
        Class::Integer,
        Class::Float,
        Class::Special,
        Class::Control,
        Class::Local,
        Class::Global,
        Class::Shared,
        Class::Atomic,
        Class::Shuffle,
        Class::Sync,
    ];
    /// A name for records.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Integer => "integer",
            Class::Float => "float",
            Class::Special => "special",
            Class::Control => "control",
            Class::Local => "local",
            Class::Global => "global",
            Class::Shared => "shared",
            Class::Atomic => "atomic",
            Class::Shuffle => "shuffle",
            Class::Sync => "sync",
        }
    }
}

/// The class of an operation.
pub(crate) fn class(program: &Program, pc: usize) -> Class {
    let inst = program.code[pc];
    match inst.op {
        Opcode::End | Opcode::If | Opcode::Join | Opcode::Loop | Opcode::Next => Class::Control,
        Opcode::LocalGet | Opcode::LocalSet | Opcode::LocalLoad | Opcode::LocalStore => Class::Local,
        Opcode::Load | Opcode::Store | Opcode::MoveIn | Opcode::MoveOut => match program.buffers[inst.b as usize].space
        {
            SpaceKind::Global => Class::Global,
            SpaceKind::Shared { .. } => Class::Shared,
        },
        Opcode::CopyAsync => Class::Global,
        Opcode::Atomic => Class::Atomic,
        Opcode::Shuffle => Class::Shuffle,
        Opcode::Sync | Opcode::Fence | Opcode::CommitGroup | Opcode::WaitGroup => Class::Sync,
        Opcode::CallF32 | Opcode::CallF64 | Opcode::Host | Opcode::Random => Class::Special,
        Opcode::RsqrtF32
        | Opcode::SqrtF32
        | Opcode::SqrtF64
        | Opcode::RecipF32
        | Opcode::RecipF64
        | Opcode::DivF32
        | Opcode::DivF64 => Class::Special,
        op => {
            let name = format!("{op:?}");
            let float = name.ends_with("F32") || name.ends_with("F64");
            if float && !name.contains("To") { Class::Float } else { Class::Integer }
        }
    }
}

/// Counts of a launch. Sums over blocks, so they do not depend on the order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Instructions of warps by [`Class`].
    pub warp_instructions: [u64; 10],
    /// The same times active lanes; a move of `n` elements counts `n` times.
    pub lane_operations: [u64; 10],
    /// 32-byte sectors of global memory that loads touched.
    pub load_sectors: u64,
    /// The least number that could have held the same elements.
    pub load_sectors_ideal: u64,
    /// Sectors that stores touched.
    pub store_sectors: u64,
    /// The least number that could have held the same elements.
    pub store_sectors_ideal: u64,
    /// Bytes that loads of global memory asked for.
    pub load_bytes: u64,
    /// Bytes that stores to global memory wrote.
    pub store_bytes: u64,
    /// Wavefronts of shared memory.
    pub shared_wavefronts: u64,
    /// Those beyond what the size of the accesses needs: bank conflicts.
    pub bank_conflicts: u64,
    /// Block barriers completed.
    pub block_barriers: u64,
    /// Grid barriers completed.
    pub grid_barriers: u64,
    /// Branches that a warp took both ways.
    pub divergent_branches: u64,
    /// Blocks run.
    pub blocks: u64,
}

impl Counters {
    /// All lane operations.
    pub fn total_lane_operations(&self) -> u64 {
        self.lane_operations.iter().sum()
    }
    /// All warp instructions.
    pub fn total_warp_instructions(&self) -> u64 {
        self.warp_instructions.iter().sum()
    }

    pub(crate) fn add(&mut self, other: &Counters) {
        for (a, b) in self.warp_instructions.iter_mut().zip(other.warp_instructions) {
            *a += b;
        }
        for (a, b) in self.lane_operations.iter_mut().zip(other.lane_operations) {
            *a += b;
        }
        self.load_sectors += other.load_sectors;
        self.load_sectors_ideal += other.load_sectors_ideal;
        self.store_sectors += other.store_sectors;
        self.store_sectors_ideal += other.store_sectors_ideal;
        self.load_bytes += other.load_bytes;
        self.store_bytes += other.store_bytes;
        self.shared_wavefronts += other.shared_wavefronts;
        self.bank_conflicts += other.bank_conflicts;
        self.block_barriers += other.block_barriers;
        self.grid_barriers += other.grid_barriers;
        self.divergent_branches += other.divergent_branches;
        self.blocks += other.blocks;
    }
}

/// How often each straight run of code was entered: `warps` by how many warps,
/// `lanes` by how many active lanes. Indexed by the first instruction. Cheaper
/// than counting each instruction, and as exact.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    pub(crate) warps: Vec<u64>,
    pub(crate) lanes: Vec<u64>,
}

impl Segments {
    pub(crate) fn new(program: &Program) -> Self {
        Self { warps: vec![0; program.code.len() + 1], lanes: vec![0; program.code.len() + 1] }
    }

    #[inline(always)]
    pub(crate) fn enter(&mut self, pc: u32, mask: u32) {
        self.warps[pc as usize] += 1;
        self.lanes[pc as usize] += u64::from(mask.count_ones());
    }

    /// Turns entries into counts of instructions; `executed` gets the warps
    /// that executed each instruction.
    pub(crate) fn tally(&self, program: &Program, counters: &mut Counters, executed: &mut [u64]) {
        for start in 0..program.code.len() {
            if self.warps[start] == 0 {
                continue;
            }
            for (pc, inst) in program.code.iter().enumerate().skip(start) {
                let class = class(program, pc) as usize;
                let width = match inst.op {
                    Opcode::MoveIn | Opcode::MoveOut => u64::from(inst.c),
                    Opcode::CopyAsync => u64::from(inst.imm),
                    _ => 1,
                };
                counters.warp_instructions[class] += self.warps[start];
                executed[pc] += self.warps[start];
                counters.lane_operations[class] += self.lanes[start] * width;
                if matches!(inst.op, Opcode::End | Opcode::If | Opcode::Join | Opcode::Loop | Opcode::Next) {
                    break;
                }
            }
        }
    }
}

/// Sectors of 32 bytes that elements `[address, address + bytes)` touch, given
/// in any order, and the least number that could hold the distinct ones.
pub fn sectors(addresses: &mut [u64], bytes: u64) -> (u64, u64) {
    if !addresses.is_sorted() {
        addresses.sort_unstable();
    }
    let cut = addresses.iter().fold(0, |all, address| all | address) & (bytes - 1);
    if bytes.is_power_of_two() && bytes <= 32 && cut == 0 {
        return whole_sectors(addresses, bytes);
    }
    let (mut touched, mut distinct) = (0, 0);
    let mut next_free = 0; // First sector not yet counted.
    let mut last = u64::MAX;
    for &address in addresses.iter() {
        if address == last {
            continue;
        }
        last = address;
        distinct += 1;
        let (first, end) = (address / 32, (address + bytes - 1) / 32 + 1);
        touched += end.saturating_sub(next_free.max(first));
        next_free = next_free.max(end);
    }
    (touched, (distinct * bytes).div_ceil(32))
}

/// The same of sorted elements of which none lies in two sectors, as nearly all do: without a branch for each.
fn whole_sectors(addresses: &[u64], bytes: u64) -> (u64, u64) {
    let some = u64::from(!addresses.is_empty());
    let (mut touched, mut distinct) = (some, some);
    for (before, own) in addresses.iter().zip(addresses.iter().skip(1)) {
        touched += u64::from(before / 32 != own / 32);
        distinct += u64::from(before != own);
    }
    (touched, (distinct * bytes).div_ceil(32))
}

/// Wavefronts of one access to shared memory: lanes go in groups that together
/// ask for at most 128 bytes; a group needs as many passes as the most distinct
/// words in one of the 32 banks. Returns (wavefronts, those beyond one a group).
pub fn wavefronts(lanes: &[(u32, u64)], bytes: u64) -> (u64, u64) {
    let group_lanes = if bytes <= 4 { 32 } else { 128 / bytes as u32 };
    let (mut total, mut groups) = (0, 0);
    let mut begin = 0;
    while begin < lanes.len() {
        // One division a group: lanes are in order.
        let behind = (lanes[begin].0 / group_lanes + 1) * group_lanes;
        let end = begin + lanes[begin..].iter().take_while(|(lane, _)| *lane < behind).count();
        groups += 1;
        let (addresses, before) = (lanes[begin..end].iter().map(|(_, address)| *address), begin);
        begin = end;
        // Words of one stretch of all banks lie in one each. Most groups ask for such.
        let (least, most) = addresses.fold((u64::MAX, 0), |(least, most), own| (own.min(least), own.max(most)));
        if (most + bytes - 1) / 4 - least / 4 < 32 {
            total += 1;
            continue;
        }
        // The first word seen in each bank, and the further ones, each once.
        let (mut load, mut first) = ([0u64; 32], [0u64; 32]);
        let (mut further, mut count) = ([0u64; 32], 0);
        for &(_, address) in &lanes[before..end] {
            for word in address / 4..=(address + bytes - 1) / 4 {
                let bank = (word % 32) as usize;
                if load[bank] == 0 {
                    first[bank] = word;
                } else if first[bank] == word || further[..count].contains(&word) {
                    continue;
                } else if count < further.len() {
                    further[count] = word;
                    count += 1;
                }
                load[bank] += 1;
            }
        }
        total += load.iter().copied().max().unwrap_or(0);
    }
    (total, total - groups)
}
