//! Reductions over blocks, and which blocks need their values.
//!
//! In: a scheduled fusion. Out: whether its blocks wait for each other. The value of a reduction over blocks is known
//! in the block that counts itself last. Where that is enough nobody waits. It is not where something that is
//! computed of the value runs over the same blocks, or is reduced over blocks itself: then all blocks meet at a
//! barrier, and each combines what all of them have left.

use super::ir::{ScheduledFusion, TvId};
use crate::axes::AxisId;
use std::collections::BTreeSet;

impl ScheduledFusion {
    /// The block axes over which a tensor is reduced.
    pub fn reduced_blocks(&self, tv: TvId) -> Vec<AxisId> {
        if !self.is_reduction(tv) {
            return Vec::new();
        }
        let over = self.reduced_leaves(tv);
        self.tensors[tv]
            .loops
            .iter()
            .filter(|own| own.parallel.is_block() && over.contains(&own.axis))
            .map(|own| own.axis)
            .collect()
    }

    /// Whether all blocks need the value of some reduction over blocks.
    pub fn blocks_wait(&self) -> bool {
        let blocks: BTreeSet<AxisId> = self.tensors.ids().flat_map(|tv| self.reduced_blocks(tv)).collect();
        if blocks.is_empty() {
            return false;
        }
        let mut behind: BTreeSet<TvId> = BTreeSet::new();
        for tv in self.topological() {
            let is_over = !self.reduced_blocks(tv).is_empty();
            let follows = self.producers(tv).iter().any(|from| behind.contains(from));
            if follows && (is_over || blocks.iter().any(|axis| self.depends(tv, *axis))) {
                return true;
            }
            if follows || is_over {
                behind.insert(tv);
            }
        }
        false
    }
}
