//! Device memory of a simulated launch.

use super::compile::elem;
use super::heap::{Heap, HeapShare};
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::{Access, Block};
use crate::kernel::{BoundLaunch, BufId, Buffer, Kernel, ParamKind, Space, StmtKind};
use crate::util::SecondaryMap;
use simcore::GlobalBuffer;
use std::sync::Arc;

/// Address granularity of buffers, as of a device allocator.
const GRANULE: u64 = 512;

/// The refusal of something that needs that many bytes, when others hold some.
pub(crate) fn too_little_memory(bytes: u64, held: u64) -> Box<Diagnostic> {
    let held = if held > 0 { format!(", of which {held} are taken") } else { String::new() };
    let message = format!("the launch needs {bytes} bytes, a simulated device has {}{held}", Heap::total());
    Diagnostic::user(code::DEVICE_MEMORY, message)
}

/// The global buffers of one launch. Unless filled, a buffer holds a poison
/// pattern and counts as unwritten.
pub struct SimMemory {
    pub(super) core: simcore::GlobalMemory,
    slots: SecondaryMap<BufId, Option<usize>>,
    /// Bytes before the first element that is the kernel's.
    starts: SecondaryMap<BufId, usize>,
    inputs: Vec<(u32, BufId)>,
    outputs: Vec<(u32, BufId)>,
    /// Bytes that were asked for, if they are too many, and those that others held; then nothing is allocated.
    refused: Option<(u64, u64)>,
    _share: Option<HeapShare>,
}

impl SimMemory {
    /// Allocates every global buffer of a kernel for a launch on a device of its
    /// own. Workspaces that the launch provides zeroed are; everything else is poisoned.
    pub fn new(kernel: &Kernel, launch: &BoundLaunch) -> Self {
        Self::on(&Arc::default(), kernel, launch)
    }

    /// The same on a device that other launches share.
    pub fn on(heap: &Arc<Heap>, kernel: &Kernel, launch: &BoundLaunch) -> Self {
        let (mut slots, mut starts) = (SecondaryMap::new(), SecondaryMap::new());
        let mut core = simcore::GlobalMemory::default();
        let mut next = GRANULE;
        let bytes = |(id, buffer): (BufId, &Buffer)| match buffer.space {
            Space::Global => {
                launch.buffer_lens.get(id).map_or(0, |len| len.saturating_mul(buffer.dtype.bytes() as u64))
            }
            _ => 0,
        };
        let total = kernel.buffers.iter().map(bytes).fold(0, u64::saturating_add);
        let share = heap.take(total);
        let refused = share.is_none().then(|| (total, heap.live()));
        for (id, buffer) in kernel.buffers.iter().filter(|(_, b)| b.space == Space::Global) {
            let len = if refused.is_some() { 0 } else { launch.buffer_lens.get(id).copied().unwrap_or(0) };
            // A buffer that is accessed by wider moves than its alignment allows
            // is placed so that no such move happens to be aligned.
            let skew = if widest_move(kernel, &kernel.body, id) > buffer.align { u64::from(buffer.align) } else { 0 };
            let fill = if buffer.zeroed { 0 } else { super::compile::poison(buffer.dtype) };
            slots.set(id, Some(core.buffers.len()));
            starts.set(id, buffer.start_bytes() as usize);
            core.buffers.push(GlobalBuffer::new(elem(buffer.dtype), len, next + skew, fill, buffer.zeroed));
            let bytes = len.saturating_mul(buffer.dtype.bytes() as u64);
            next = (next + skew).saturating_add(bytes).saturating_add(1).next_multiple_of(GRANULE);
        }
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for (_, param) in kernel.params.iter() {
            match param.kind {
                ParamKind::Input { input, buffer } => inputs.push((input, buffer)),
                ParamKind::Output { output, buffer } => outputs.push((output, buffer)),
                _ => {}
            }
        }
        Self { core, slots, starts, inputs, outputs, refused, _share: share }
    }

    /// Fills a buffer from its first element on; `bytes` holds at least the
    /// whole buffer (a strided view's storage from its first element).
    pub fn fill(&mut self, buffer: BufId, bytes: &[u8]) -> Result<()> {
        self.check_size()?;
        let slot = self.slots[buffer].ok_or_else(|| Diagnostic::bug(format!("{buffer} is not in global memory")))?;
        let global = &mut self.core.buffers[slot];
        let place = global.bytes_mut();
        let Some(bytes) = bytes.get(..place.len()) else {
            let message = format!("buffer {buffer} needs {} bytes, {} were given", place.len(), bytes.len());
            return Err(Diagnostic::bug(message));
        };
        place.copy_from_slice(bytes);
        global.initialised = true;
        Ok(())
    }

    /// Fills the buffers of the fusion's input `input`; none if the kernel does not read it.
    pub fn fill_input(&mut self, input: u32, bytes: &[u8]) -> Result<()> {
        let buffers: Vec<BufId> = self.inputs.iter().filter(|(i, _)| *i == input).map(|&(_, b)| b).collect();
        buffers.into_iter().try_for_each(|buffer| self.fill(buffer, bytes))
    }

    /// The bytes of a buffer.
    pub fn bytes(&self, buffer: BufId) -> Option<&[u8]> {
        self.slots[buffer].map(|slot| self.core.buffers[slot].bytes())
    }

    /// The bytes of the fusion's output `output`, from its first element on.
    pub fn output(&self, output: u32) -> Option<&[u8]> {
        let &(_, buffer) = self.outputs.iter().find(|(o, _)| *o == output)?;
        self.bytes(buffer).and_then(|bytes| bytes.get(self.starts[buffer]..))
    }

    /// Whether the launch fits the simulated device.
    pub(super) fn check_size(&self) -> Result<()> {
        let Some((total, held)) = self.refused else { return Ok(()) };
        Err(too_little_memory(total, held))
    }

    /// The output buffers with the number of the output that each holds.
    pub(super) fn outputs(&self) -> &[(u32, BufId)] {
        &self.outputs
    }

    pub(super) fn slot(&self, buffer: BufId) -> Option<usize> {
        self.slots[buffer]
    }
}

/// Bytes of the widest vector move that touches a buffer.
fn widest_move(kernel: &Kernel, block: &Block, buffer: BufId) -> u32 {
    let width = |to: &Access, from: &Access, lanes: u32| {
        let touches = to.buffer == buffer || from.buffer == buffer;
        if touches { lanes * kernel.buffers[buffer].dtype.bytes() as u32 } else { 0 }
    };
    let widest = |stmt: &crate::kernel::Stmt| match &stmt.kind {
        StmtKind::Move { to, from, lanes, .. } | StmtKind::CopyAsync { to, from, lanes, .. } => width(to, from, *lanes),
        StmtKind::For { body, .. } => widest_move(kernel, body, buffer),
        StmtKind::If { then, otherwise, .. } => {
            widest_move(kernel, then, buffer).max(widest_move(kernel, otherwise, buffer))
        }
        _ => 0,
    };
    block.iter().map(widest).max().unwrap_or(0)
}
