//! The state of a warp.

use crate::LANES;
use crate::async_copy::AsyncCopies;
use crate::lanes::{Files, V32, V64, V128};
use crate::program::{File, LaunchConfig, PreloadSource, Program};

/// An open branch or loop: lanes to restore at its end, and for a branch the
/// side that still has to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) saved: u32,
    pub(crate) pending: u32,
    pub(crate) pending_pc: u32,
}

/// What a warp can do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WarpState {
    Ready,
    /// Waits at the barrier of this scope (1 block, 2 grid) at this instruction.
    Waiting {
        scope: u32,
        pc: u32,
    },
    Done,
}

pub(crate) struct Warp {
    r32: Box<[V32]>,
    r64: Box<[V64]>,
    r128: Box<[V128]>,
    /// Lanes in which each local slot holds a value.
    pub(crate) init: Vec<u32>,
    pub(crate) mask: u32,
    pub(crate) live: u32,
    pub(crate) pc: u32,
    pub(crate) steps: u64,
    pub(crate) stack: Vec<Frame>,
    pub(crate) state: WarpState,
    pub(crate) copies: AsyncCopies,
    /// Accesses of this warp before this event are ordered among its lanes.
    pub(crate) ordered_before: u64,
    pub(crate) index: u32,
}

impl Warp {
    /// Warp `index` of a block; registers that no block changes are set here.
    pub(crate) fn new(program: &Program, launch: &LaunchConfig, index: u32) -> Self {
        let mut warp = Self {
            r32: vec![V32([0; LANES]); program.regs32 as usize + 1].into(),
            r64: vec![V64([0; LANES]); program.regs64 as usize + 1].into(),
            r128: vec![V128([0; LANES]); program.regs128 as usize + 1].into(),
            init: vec![0; program.local_slots as usize],
            mask: 0,
            live: 0,
            pc: 0,
            steps: 0,
            stack: Vec::new(),
            state: WarpState::Done,
            copies: AsyncCopies::default(),
            ordered_before: 0,
            index,
        };
        let first = index * LANES as u32;
        let threads = launch.threads();
        let count = threads.saturating_sub(first).min(LANES as u32);
        warp.live = if count == 32 { u32::MAX } else { (1 << count) - 1 };
        for preload in &program.preloads {
            if !matches!(preload.source, PreloadSource::BlockIdx(_)) {
                warp.preload(preload.reg, preload.file, |lane| {
                    let thread = first + lane;
                    let [x, y, _] = launch.block;
                    match preload.source {
                        PreloadSource::Const(bits) => bits,
                        PreloadSource::Param(param) => launch.params[param as usize],
                        PreloadSource::ThreadIdx(0) => (thread % x).into(),
                        PreloadSource::ThreadIdx(1) => (thread / x % y).into(),
                        PreloadSource::ThreadIdx(_) => (thread / x / y).into(),
                        PreloadSource::BlockDim(dim) => launch.block[dim as usize].into(),
                        PreloadSource::GridDim(dim) => launch.grid[dim as usize].into(),
                        PreloadSource::BlockIdx(_) => 0,
                    }
                });
            }
        }
        warp
    }

    fn preload(&mut self, reg: u16, file: File, value: impl Fn(u32) -> u128) {
        for lane in 0..LANES {
            let bits = value(lane as u32);
            match file {
                File::R32 => self.r32[reg as usize].0[lane] = bits as u32,
                File::R64 => self.r64[reg as usize].0[lane] = bits as u64,
                File::R128 => self.r128[reg as usize].0[lane] = bits,
            }
        }
    }

    /// Starts a block: program counter, masks, block index, local memory.
    pub(crate) fn start(&mut self, program: &Program, block: [u32; 3]) {
        for preload in &program.preloads {
            if let PreloadSource::BlockIdx(dim) = preload.source {
                self.preload(preload.reg, preload.file, |_| block[dim as usize].into());
            }
        }
        // NaN in every float type, so that a wrong use shows.
        let (first, count) = program.locals32;
        for reg in &mut self.r32[first as usize..(first + count) as usize] {
            reg.0 = [u32::MAX; LANES];
        }
        let (first, count) = program.locals64;
        for reg in &mut self.r64[first as usize..(first + count) as usize] {
            reg.0 = [u64::MAX; LANES];
        }
        let (first, count) = program.locals128;
        for reg in &mut self.r128[first as usize..(first + count) as usize] {
            reg.0 = [u128::MAX; LANES];
        }
        if !self.init.is_empty() {
            self.init.fill(0);
        }
        self.stack.clear();
        self.copies.clear();
        self.mask = self.live;
        self.pc = 0;
        self.steps = 0;
        self.ordered_before = 0;
        self.state = WarpState::Ready;
    }

    #[inline(always)]
    pub(crate) fn files(&mut self) -> Files {
        Files { r32: self.r32.as_mut_ptr(), r64: self.r64.as_mut_ptr(), r128: self.r128.as_mut_ptr() }
    }
}
