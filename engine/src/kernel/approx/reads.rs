//! Variables that hold one value since they are read from one place.

use crate::kernel::ir::{Block, BufId, ExprId, Kernel, Space, StmtKind, VarId};
use crate::util::SecondaryMap;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// For each variable that is read again from a place that has not changed since, the one that was read there first, in
/// the same block. Places are those of a thread's own memory and of buffers that nothing writes, as `is_constant` says;
/// a write to the buffer ends what is known of it, an inner block and what orders or waits for memory all.
pub(super) fn first_reads(kernel: &Kernel, is_constant: &dyn Fn(BufId) -> bool) -> SecondaryMap<VarId, Option<VarId>> {
    let mut first = SecondaryMap::new();
    add(kernel, is_constant, &kernel.body, &mut first);
    first
}

fn add(
    kernel: &Kernel,
    is_constant: &dyn Fn(BufId) -> bool,
    block: &Block,
    first: &mut SecondaryMap<VarId, Option<VarId>>,
) {
    let mut known: BTreeMap<BufId, BTreeMap<ExprId, VarId>> = BTreeMap::new();
    for stmt in block {
        match &stmt.kind {
            StmtKind::Load { var, from, .. }
                if kernel.buffers[from.buffer].space == Space::Local || is_constant(from.buffer) =>
            {
                match known.entry(from.buffer).or_default().entry(from.index) {
                    Entry::Occupied(earlier) => first.set(*var, Some(*earlier.get())),
                    Entry::Vacant(place) => {
                        place.insert(*var);
                    }
                }
            }
            StmtKind::Store { to, .. } | StmtKind::Move { to, .. } => {
                known.remove(&to.buffer);
            }
            StmtKind::For { body, .. } => {
                known.clear();
                add(kernel, is_constant, body, first);
            }
            StmtKind::If { then, otherwise, .. } => {
                known.clear();
                add(kernel, is_constant, then, first);
                add(kernel, is_constant, otherwise, first);
            }
            StmtKind::Let { .. } | StmtKind::Load { .. } | StmtKind::Shuffle { .. } | StmtKind::Random { .. } => {}
            _ => known.clear(),
        }
    }
}
