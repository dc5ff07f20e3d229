//! The loop tree: what a kernel does, before it has expressions.
//!
//! Nodes lie in an arena; a body is a list of them. `place` makes the tree from the
//! tensors' loops and inline positions, `predicate`, `pipeline`, `alloc` and `sync`
//! rewrite or annotate it, and `emit` walks it once.
//!
//! Invariants: each node stands in one body. A node that names a tensor stands inside
//! loops that bind every axis of the tensor's loops. Bodies of loops are not empty.

use crate::kernel::Unroll;
use crate::num::DType;
use crate::schedule::{AxisId, Loop, TvId};
use crate::util::{PrimaryMap, entity_id};

entity_id!(
    /// A node of the tree.
    pub(super) struct NodeId, "n"
);
entity_id!(
    /// A passage of values among the threads of a block: written, then read by others.
    pub(super) struct ExchangeId, "x"
);
entity_id!(
    /// An array of shared memory.
    pub(super) struct SharedId, "s"
);

/// Nodes in the order in which they run.
pub(super) type Body = Vec<NodeId>;

/// The tree of one kernel.
#[derive(Debug, Default)]
pub(super) struct LoopTree {
    pub(super) nodes: PrimaryMap<NodeId, Node>,
    pub(super) exchanges: PrimaryMap<ExchangeId, Exchange>,
    pub(super) body: Body,
}

/// What is done at a place.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Runs over an axis: a loop, or the index of a thread or block.
    Loop { own: Loop, unroll: Unroll, body: Body },
    /// Runs with the index of a loop one iteration ahead, where the loop may end: before
    /// the loop with its first index. Loads go to the twins of their arrays.
    Ahead { axis: AxisId, at: Iteration, loads: Vec<TvId>, body: Body },
    /// Copies the twins of arrays, which were loaded ahead, to the arrays.
    Advance { loads: Vec<TvId> },
    /// Starts to copy to the stages of rings what an iteration ahead reads, if there is such an one.
    Fill { axis: AxisId, at: Iteration, body: Body },
    /// Ends a group of asynchronous copies, whether or not there are any in it.
    Commit,
    /// Waits until no more than the latest `open` groups are on their way: then the stages of these
    /// rings for the current iteration are there, as far as this thread filled them.
    Wait { rings: Vec<TvId>, open: u32 },
    /// Sets a reduction's array to the neutral element.
    Init { tv: TvId },
    /// Combines one element into a reduction's array; with a test, only what is inside.
    Accumulate { tv: TvId, tested: bool },
    /// Names the only value of a reduction's array.
    Finish { tv: TvId },
    /// Computes one element into a register, an array or a tile.
    Compute { tv: TvId },
    /// Reads one element of a tensor in global memory.
    Load { load: Load },
    /// Writes one element of an output, at index 0 of the axes that it does not have.
    Store { tv: TvId, firsts: Vec<AxisId> },
    /// Moves or draws all lanes of a loop at once where that is proved possible; else the
    /// loop, which is `single`.
    Wide { wide: Wide, own: Loop, single: NodeId },
    /// What a load left, if it turns out to read over an end.
    Repair { tv: TvId, body: Body },
    /// Loads the lanes of one vector that reaches over the end of its buffer and, if somebody relies on them, replaces those that
    /// are outside.
    RepairLanes { load: Load, own: Loop, is_relied_on: bool },
    /// `inside` where all lanes of a loop pass the tests of some accumulations, and
    /// `otherwise` where not; only `otherwise` if no test depends on the lane.
    Lanes { own: Loop, tested: Vec<TvId>, inside: Body, otherwise: Body },
    /// A step of a reduction across threads or blocks.
    Reduce { tv: TvId, pass: &'static str, step: Step },
    /// Reductions across blocks that are made together.
    Grid { tvs: Vec<TvId>, body: Body },
    /// What only the block runs that counted itself last.
    LastBlock { body: Body },
    /// A barrier of the block, for a tensor's sake.
    Barrier { tv: TvId, pass: &'static str },
    /// A barrier of all blocks, or of those of each team.
    GridBarrier { of_teams: bool },
}

/// A load from global memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) tv: TvId,
    pub(super) from: TvId,
    /// Whether it fills the twin of its array.
    pub(super) twin: bool,
    /// Whether vectors that reach over the end of their buffer are loaded by [`Node::RepairLanes`], behind all others.
    pub(super) ends_later: bool,
}

/// Which iteration is loaded ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Iteration {
    /// This one, before the loop.
    Before(i64),
    /// The one so many after the current one.
    After(i64),
}

/// What takes all lanes of a loop at once.
#[derive(Clone, Debug)]
pub(super) enum Wide {
    /// A load from global memory.
    Load(Load),
    /// A store to global memory from registers.
    Store { tv: TvId, from: TvId, firsts: Vec<AxisId> },
    /// A copy between registers and a tile.
    Tile { tv: TvId, from: TvId },
    /// Random numbers.
    Random { tv: TvId },
}

/// A step of a reduction across threads or blocks, on the batch of a thread's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Copies the operands into the batch.
    Gather,
    /// Combines among neighbouring lanes of a warp, so many.
    Shuffle { width: i64 },
    /// Lane 0 of each warp writes its values; `warps` are a row.
    WriteWarps { exchange: ExchangeId, warps: i64 },
    /// Every thread combines what the warps of its row wrote; where lane 0 alone has use for it, the first warp does.
    ReadWarps { exchange: ExchangeId, warps: i64 },
    /// Combines among the rows of a warp, so many, of `width` lanes each.
    ShuffleRows { width: i64, rows: i64 },
    /// Of each `of` rows the first writes its values by row and column.
    WriteRows { exchange: ExchangeId, of: i64 },
    /// The first `half` of these combine theirs with those of `half` further on.
    HalveRows { exchange: ExchangeId, of: i64, half: i64 },
    /// Every thread reads those of row 0.
    ReadRows { exchange: ExchangeId },
    /// Names the result of a batch of one value.
    Publish,
    /// Writes this block's values to scratch memory.
    WritePartial,
    /// Makes them visible to other blocks.
    Release,
    /// One thread counts the block, and leaves the count where all read it.
    CountBlock,
    /// Makes those of other blocks visible.
    Acquire,
    /// Combines the partial results of all blocks, each sharer some of them.
    CombineBlocks,
}

/// A passage of values through shared memory.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    /// Named for the reduction.
    pub(super) name: String,
    pub(super) dtype: DType,
    /// Elements.
    pub(super) len: i64,
    /// Where they lie, once `alloc` has decided it.
    pub(super) place: Option<ExchangePlace>,
}

/// Where an exchange lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExchangePlace {
    pub(super) shared: SharedId,
    /// The loop whose iterations take two copies in turn.
    pub(super) turns: Option<AxisId>,
}

impl Node {
    fn bodies(&self) -> Vec<&Body> {
        match self {
            Node::Loop { body, .. }
            | Node::Ahead { body, .. }
            | Node::Fill { body, .. }
            | Node::Repair { body, .. }
            | Node::Grid { body, .. }
            | Node::LastBlock { body } => vec![body],
            Node::Lanes { inside, otherwise, .. } => vec![inside, otherwise],
            _ => Vec::new(),
        }
    }

    fn bodies_mut(&mut self) -> Vec<&mut Body> {
        match self {
            Node::Loop { body, .. }
            | Node::Ahead { body, .. }
            | Node::Fill { body, .. }
            | Node::Repair { body, .. }
            | Node::Grid { body, .. }
            | Node::LastBlock { body } => vec![body],
            Node::Lanes { inside, otherwise, .. } => vec![inside, otherwise],
            _ => Vec::new(),
        }
    }
}

impl LoopTree {
    /// Adds a node, which stands nowhere yet.
    pub(super) fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(node)
    }

    /// The bodies of a node, in the order in which they are written down.
    pub(super) fn bodies(&self, node: NodeId) -> Vec<&Body> {
        self.nodes[node].bodies()
    }

    /// The same, to be rewritten.
    pub(super) fn bodies_mut(&mut self, node: NodeId) -> Vec<&mut Body> {
        self.nodes[node].bodies_mut()
    }

    /// The nodes of a body and all inside them, outer before inner.
    pub(super) fn inside(&self, body: &[NodeId]) -> Vec<NodeId> {
        let mut found = Vec::new();
        let mut open: Vec<NodeId> = body.iter().rev().copied().collect();
        while let Some(node) = open.pop() {
            found.push(node);
            if let Node::Wide { single, .. } = self.nodes[node] {
                open.push(single);
            }
            for body in self.bodies(node).into_iter().rev() {
                open.extend(body.iter().rev());
            }
        }
        found
    }

    /// The load that a nest of loops with nothing else in it makes, and the number of those loops.
    pub(super) fn nest_of_load(&self, root: NodeId) -> Option<(TvId, usize)> {
        let (mut node, mut loops) = (root, 0);
        loop {
            match &self.nodes[node] {
                Node::Load { load } => return Some((load.tv, loops)),
                Node::Wide { wide: Wide::Load(load), .. } => return Some((load.tv, loops + 1)),
                Node::Loop { body, .. } => match *body.as_slice() {
                    [only] => (node, loops) = (only, loops + 1),
                    _ => return None,
                },
                _ => return None,
            }
        }
    }

    /// A copy of a subtree, each node of which `change` may replace as a whole.
    pub(super) fn copy(&mut self, body: &[NodeId], change: &dyn Fn(&Node) -> Option<Node>) -> Body {
        let mut copies = Vec::with_capacity(body.len());
        for node in body {
            let mut node = self.nodes[*node].clone();
            let changed = change(&node);
            if changed.is_none() {
                for body in node.bodies_mut() {
                    *body = self.copy(body, change);
                }
                if let Node::Wide { single, .. } = &mut node
                    && let [copied] = *self.copy(&[*single], change).as_slice()
                {
                    *single = copied;
                }
            }
            copies.push(self.add(changed.unwrap_or(node)));
        }
        copies
    }
}
