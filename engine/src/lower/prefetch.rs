//! Loops that load the next iteration's elements before they use this one's,
//! so that memory is busy while threads compute and wait at barriers.
//!
//! Each prefetched array has a twin. Before the loop the twin is loaded for
//! iteration 0; at the top of iteration `i` the twin is copied to the array and
//! then loaded for iteration `i + 1`. After the last iteration nothing is
//! inside, so nothing is read.

use super::context::{Lowering, identifier};
use crate::diag::{Diagnostic, Result};
use crate::kernel::BufId;
use crate::schedule::{AxisId, Loop, TvId};

impl Lowering<'_> {
    /// Emits a loop over `leaf` for a unit in which `ahead` are prefetched.
    pub(super) fn emit_prefetched_loop(
        &mut self,
        unit: &[TvId],
        ahead: &[TvId],
        own: Loop,
        depth: usize,
    ) -> Result<()> {
        let leaf = own.axis;
        let mut twins = Vec::with_capacity(ahead.len());
        for tv in ahead {
            let array = self.local_array(*tv)?;
            let len = self.b.buffer(array).len;
            let data = &self.scheduled.tensors[*tv];
            let unknown = || Diagnostic::bug(format!("the array of {} has no constant length", data.name));
            let len = self.b.exprs().as_int(len).ok_or_else(unknown)?;
            let twin = self.b.local(format!("{}_next", identifier(&data.name)), data.dtype, len);
            twins.push((*tv, array, twin, len));
        }
        let zero = self.b.int(0);
        self.with_leaf(leaf, zero, |lowering| {
            twins.iter().try_for_each(|(tv, _, twin, _)| lowering.load_ahead(*tv, *twin, leaf, depth))
        })?;
        let rest: Vec<TvId> = unit.iter().copied().filter(|tv| !ahead.contains(tv)).collect();
        self.emit_loop(own, |lowering| {
            for (tv, array, twin, len) in &twins {
                lowering.origin(*tv, "prefetch");
                lowering.copy_array(*array, *twin, *len);
            }
            let current = lowering.leaf(leaf)?;
            let one = lowering.b.int(1);
            let next = lowering.b.exprs().add(current, one);
            lowering.with_leaf(leaf, next, |lowering| {
                twins.iter().try_for_each(|(tv, _, twin, _)| lowering.load_ahead(*tv, *twin, leaf, depth))
            })?;
            for (tv, ..) in &twins {
                lowering.fix_up(*tv, depth + 1)?;
            }
            lowering.emit_level(&rest, depth + 1)
        })
    }

    /// Loads a tensor into its twin; the repair of what lies outside waits
    /// until the elements are used.
    fn load_ahead(&mut self, tv: TvId, twin: BufId, leaf: AxisId, depth: usize) -> Result<()> {
        let array = self.buffers[tv];
        self.buffers.set(tv, Some(twin));
        self.ahead = Some(leaf);
        let result = self.emit_unit_once(&[tv], depth + 1);
        self.ahead = None;
        self.buffers.set(tv, array);
        result
    }

    fn copy_array(&mut self, to: BufId, from: BufId, len: i64) {
        let end = self.b.int(len);
        let name = self.b.buffer(to).name.clone();
        self.b.count("k", end, crate::kernel::Unroll::Full, |b, index| {
            let value = b.load(name, from, index);
            b.store(to, index, value);
        });
    }
}
