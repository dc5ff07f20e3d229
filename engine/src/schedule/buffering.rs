//! Tensors that are loaded some iterations ahead of their use: what `circular_buffer` asks for.
//!
//! In: a scheduled fusion, a tensor, a number of stages. Out: why it cannot be, or nothing. The
//! verb asks when it is said, and the check of the whole schedule once more, since later verbs
//! may move what it was about.
//!
//! In registers there are two stages, the second of them for one load of the whole array. In
//! shared memory there are up to [`MAX_STAGES`], filled by asynchronous copies, which move 4, 8
//! or 16 bytes from an input as they are. With one stage the elements of the next iteration follow upon those of
//! this one, so they are elements of one thread.

use super::ir::{Compute, Io, Memory, ParallelType, ScheduledFusion, TvId, TvOp};
use crate::kernel::{CacheHint, MAX_ACCESS_BYTES, MIN_ASYNC_BYTES};

/// Stages of a ring at most.
const MAX_STAGES: u32 = 8;

/// Why a tensor cannot be loaded ahead.
pub(super) struct StagesRefusal {
    pub(super) what: String,
    pub(super) way_out: &'static str,
}

impl ScheduledFusion {
    /// What keeps a tensor from being loaded ahead in so many stages.
    pub(super) fn stages_refused(&self, tv: TvId, stages: u32) -> Option<StagesRefusal> {
        let data = &self.tensors[tv];
        let refuse = |what: String, way_out| Some(StagesRefusal { what, way_out });
        let is_input = |from: &TvId| matches!(self.tensors[*from].io, Some(Io::Input(_)));
        let copies = matches!(&data.op, Some(TvOp { compute: Compute::Copy, .. })) && data.memory != Memory::Global;
        if !copies || !self.producers(tv).first().is_some_and(is_input) {
            return refuse("it is no copy of an input".into(), "`cache_after` of an input makes one");
        }
        let last = data.inline_at.checked_sub(1).map(|last| data.loops[last]);
        let Some(own) = last.filter(|own| own.parallel == ParallelType::Serial) else {
            return refuse(
                "the innermost loop that it shares with its readers is no serial one".into(),
                "`inline_at` says how many loops it shares",
            );
        };
        match data.memory {
            Memory::Shared => self.ring_refused(tv, stages, own.axis),
            // A single value is a variable, which has no second place.
            _ if !data.loops[data.inline_at..].iter().any(|own| own.parallel.is_loop()) => {
                refuse("it is a single value in that loop".into(), "give it a loop of its own inside")
            }
            _ if stages != 2 => refuse(
                "two stages of a register copy are available".into(),
                "`set_memory` to shared makes a ring of up to 8 stages of it",
            ),
            _ => None,
        }
    }

    /// The same for shared memory, in a loop over an axis.
    fn ring_refused(&self, tv: TvId, stages: u32, axis: super::AxisId) -> Option<StagesRefusal> {
        let data = &self.tensors[tv];
        let name = &self.axes[axis].name;
        let refuse = |what: String, way_out| Some(StagesRefusal { what, way_out });
        if !(1..=MAX_STAGES).contains(&stages) {
            return refuse(
                format!("a ring has 1 to {MAX_STAGES} stages"),
                "say from 1 to 8; without circular_buffer nothing is loaded ahead",
            );
        }
        if stages == 1 && data.tile.is_some() {
            return refuse(
                "other threads may still read what one stage would lose to the next iteration".into(),
                "say from 2 to 8, or leave `alloc` out",
            );
        }
        if !data.indexed().any(|own| self.axes.derives_from(axis, own)) {
            return refuse(
                format!("its elements are the same in each iteration over {name}"),
                "inline it into the loops that it depends on, or hold it without stages",
            );
        }
        let (least, most) = (MIN_ASYNC_BYTES, MAX_ACCESS_BYTES);
        let element = data.dtype.bytes() as i64;
        let lanes = data.loops.last().filter(|own| own.parallel == ParallelType::Vectorize);
        let lanes = lanes.and_then(|own| self.axes.constant_extent(own.axis)).unwrap_or(1);
        let chunk = lanes.min(most / element);
        let in_chunks = lanes % chunk == 0 && chunk & (chunk - 1) == 0;
        if element < least && (!in_chunks || chunk * element < least) {
            return refuse(
                format!(
                    "asynchronous copies move {least} to {most} bytes, a power of two, and {lanes} elements of {} are {}",
                    data.dtype,
                    lanes * element
                ),
                "vectorize its innermost loop over a power of two of elements, of 4 bytes at least",
            );
        }
        if !matches!(data.cache_hint, CacheHint::Default | CacheHint::Global) {
            return refuse(
                "no asynchronous copy has its cache hint".into(),
                "copies go through the first-level cache (`default`) or past it (`global`)",
            );
        }
        None
    }
}
