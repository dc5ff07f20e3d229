//! A resident block: its shared memory and what its barriers order.

use crate::clocks::BlockSync;
use crate::program::{LaunchConfig, Program, SpaceKind};
use crate::shadow::Shadow;
use crate::warp::{Warp, WarpState};
use std::cell::UnsafeCell;

pub(crate) struct BlockState {
    /// Position in the grid, x fastest.
    pub(crate) linear: u32,
    shared: Box<[UnsafeCell<u128>]>,
    /// Shadows of shared buffers, by position in the program.
    pub(crate) shadows: Vec<Option<Shadow>>,
    /// Accesses of this block before this event are ordered before everything it does now.
    pub(crate) ordered_before: u64,
    pub(crate) sync: BlockSync,
}

impl BlockState {
    /// Shared memory at a byte offset.
    #[inline(always)]
    pub(crate) fn shared_at(&self, offset: u32) -> *mut u8 {
        // Within the allocation, which has `shared_bytes`; no dereference here.
        self.shared.as_ptr().cast_mut().cast::<u8>().wrapping_add(offset as usize)
    }
}

/// A slot in which blocks run one after the other.
pub(crate) struct BlockSlot {
    pub(crate) block: BlockState,
    pub(crate) warps: Vec<Warp>,
    /// Whether a block is in it.
    pub(crate) busy: bool,
}

impl BlockSlot {
    pub(crate) fn new(program: &Program, launch: &LaunchConfig, detect: bool) -> Self {
        let threads = launch.threads();
        let shadow = |decl: &crate::BufferDecl| match decl.space {
            SpaceKind::Shared { .. } if detect => {
                let shadow = Shadow::new(decl.len, decl.read, decl.written, decl.atomic, false);
                if decl.landed { shadow.map(|shadow| shadow.with_landings(decl.len)) } else { shadow }
            }
            _ => None,
        };
        Self {
            block: BlockState {
                linear: 0,
                shared: (0..(program.shared_bytes as usize).div_ceil(16)).map(|_| UnsafeCell::new(0)).collect(),
                shadows: program.buffers.iter().map(shadow).collect(),
                ordered_before: 0,
                sync: BlockSync::default(),
            },
            warps: (0..threads.div_ceil(32)).map(|index| Warp::new(program, launch, index)).collect(),
            busy: false,
        }
    }

    /// Puts a block in.
    pub(crate) fn start(&mut self, program: &Program, launch: &LaunchConfig, linear: u64, communicating: bool) {
        self.block.linear = linear as u32;
        self.block.ordered_before = 0;
        if communicating {
            self.block.sync = BlockSync::new(launch.threads());
        }
        for (decl, shadow) in program.buffers.iter().zip(&mut self.block.shadows) {
            if let SpaceKind::Shared { offset } = decl.space {
                let (first, bytes) = (offset as usize, decl.len as usize * decl.elem.bytes());
                // SAFETY: validation keeps the buffer inside shared memory; nothing runs now.
                unsafe { self.block.shared.as_mut_ptr().cast::<u8>().add(first).write_bytes(decl.poison, bytes) };
            }
            if let Some(shadow) = shadow {
                shadow.clear();
            }
        }
        let at = launch.block_at(linear);
        for warp in &mut self.warps {
            warp.start(program, at);
        }
        self.busy = true;
    }

    pub(crate) fn finished(&self) -> bool {
        self.warps.iter().all(|warp| warp.state == WarpState::Done)
    }
}
