//! The way from a scheduled fusion to its kernel.

use super::alloc::{Sharing, alloc};
use super::cleanup::cleanup;
use super::context::{Lowering, identifier};
use super::facts::Facts;
use super::outside::Outside;
use super::pipeline::pipeline;
use super::place::place;
use super::predicate::predicate;
use super::sync::sync;
use super::together::together;
use super::tree::{Node, NodeId};
use crate::diag::{Diagnostic, Result};
use crate::kernel::{self, IndexOp, Kernel, Launch};
use crate::schedule::{ArgClass, ParallelType, ScheduledFusion, TvId};
use crate::util::Hash128;

/// Reductions of a block that wait together where each has memory of its own, and where they share it.
const MOST_TOGETHER: usize = 8;
const MOST_SHARING: usize = 2;

/// Lowers a scheduled fusion. The kernel's name is `scheduler_fusion_hash`.
pub fn lower(scheduled: &ScheduledFusion, class: &ArgClass, scheduler: &str) -> Result<Kernel> {
    lower_as(scheduled, class, scheduler, Sharing::Own)
}

/// The same with as little shared memory as may be: reductions use the same, and
/// some wait for each other at barriers that [`lower`] does without.
pub fn lower_sharing(scheduled: &ScheduledFusion, class: &ArgClass, scheduler: &str) -> Result<Kernel> {
    lower_as(scheduled, class, scheduler, Sharing::Turns)
}

fn lower_as(scheduled: &ScheduledFusion, class: &ArgClass, scheduler: &str, sharing: Sharing) -> Result<Kernel> {
    let class = class.shared_by_sizes(scheduled);
    let facts = Facts::new(scheduled, &class)?;
    let computed: Vec<TvId> =
        scheduled.topological().into_iter().filter(|tv| scheduled.tensors[*tv].op.is_some()).collect();
    if computed.len() + lowering_inputs(scheduled) != scheduled.tensors.len() {
        return Err(Diagnostic::bug("tensors of the schedule depend on each other in a circle"));
    }
    let mut tree = place(&facts, &computed)?;
    let outside = Outside::new(&facts);
    predicate(&facts, &outside, &mut tree)?;
    pipeline(&facts, &mut tree);
    let most = if sharing == Sharing::Own { MOST_TOGETHER } else { MOST_SHARING };
    together(&facts, &mut tree, most);
    let storage = alloc(&facts, &mut tree, sharing)?;
    sync(&facts, &storage, &mut tree)?;
    let mut lowering = Lowering::new(&facts, scheduler, outside, storage);
    for leaf in scheduled.axes.ids().filter(|axis| scheduled.axes.is_leaf(*axis)) {
        lowering.extent(leaf)?;
    }
    lowering.emit_body(&tree, &tree.body)?;
    let waits = |node: &NodeId| matches!(tree.nodes[*node], Node::GridBarrier { .. });
    let launch = lowering.launch(tree.inside(&tree.body).iter().any(waits))?;
    let mut kernel = lowering.b.finish(launch);
    kernel.body = cleanup(kernel.body, &kernel.exprs);
    kernel::approximate(&mut kernel);
    kernel::mask_lanes(&mut kernel);
    kernel::look_up_by_row(&mut kernel);
    kernel::branch_by_part(&mut kernel);
    kernel::weaken_assumptions(&mut kernel);
    kernel::add_reciprocals(&mut kernel);
    let hash = Hash128::of(kernel::print(&kernel).as_bytes());
    kernel.name = format!("{scheduler}_{}_{}", identifier(&scheduled.fusion.name), hash.short());
    Ok(kernel)
}

fn lowering_inputs(scheduled: &ScheduledFusion) -> usize {
    scheduled.tensors.values().filter(|tv| tv.op.is_none()).count()
}

impl Lowering<'_> {
    fn launch(&mut self, cooperative: bool) -> Result<Launch> {
        use ParallelType::{Bidx, Bidy, Bidz, Tidx, Tidy, Tidz};
        let mut dims = [self.b.int(1); 6];
        for (dim, parallel) in dims.iter_mut().zip([Bidx, Bidy, Bidz, Tidx, Tidy, Tidz]) {
            let axes = self.facts.places.get(&parallel).cloned().unwrap_or_default();
            for (at, axis) in axes.into_iter().enumerate() {
                let extent = self.extent(axis)?;
                *dim = if at == 0 { extent } else { self.b.exprs().index(IndexOp::Max, *dim, extent) };
            }
        }
        let threads = self.facts.block_threads()?;
        let [gx, gy, gz, bx, by, bz] = dims;
        Ok(Launch {
            grid: [gx, gy, gz],
            block: [bx, by, bz],
            max_threads: u32::try_from(threads).map_err(|_| Diagnostic::bug("a block has too many threads"))?,
            min_blocks: self.scheduled.min_blocks,
            cooperative,
        })
    }
}
