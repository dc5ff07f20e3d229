//! The pass that gives values memory: arrays of registers, and shared memory.
//!
//! In: the tree. Out: for each tensor that is not one value what array holds it, and for
//! each exchange where it lies. Whether threads may overwrite there what others have still
//! to read is not decided here: `sync` sees from the tree and from these places
//! where a barrier is needed. A ring has as many times the elements of a tile, or of all
//! threads, as it has stages.
//!
//! Mostly each exchange has memory of its own ([`Sharing::Own`]). Then only loops
//! bring threads back to it, and two copies take turns there: the barrier within one
//! iteration's exchange separates two uses of one copy.
//!
//! Where that is too much ([`Sharing::Turns`]), exchanges share. Those that are written before any of them is read
//! share a barrier and are a *group* (`together` makes them), mostly of one. For each element type, and each exchange of
//! it in a group, there are two buffers, as large as the largest user, and groups take them in turn. (One arena of bytes
//! for all types would need accesses of one memory under two types, which kernels do not have.) If two uses of a buffer have
//! another group between them, its barrier separates them:
//!
//! * in straight code, taking turns is enough;
//! * in a loop, the first group of the body has two copies of memory that no
//!   other exchange of the loop uses, and iterations take them in turn: it stands
//!   between the last group of one iteration and the second of the next, and the
//!   others take turns as ever.
//!
//! In nested loops turns are not regular, and there are no copies.

use super::context::identifier;
use super::facts::Facts;
use super::tree::{Body, ExchangeId, ExchangePlace, LoopTree, Node, SharedId, Step};
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::MAX_ACCESS_BYTES;
use crate::num::DType;
use crate::schedule::{AxisId, Memory, TvId};
use crate::util::{PrimaryMap, SecondaryMap};
use std::collections::BTreeMap;

/// Tiles, rings and exchanges are read and written by wide accesses.
const WIDE_ALIGN: u32 = MAX_ACCESS_BYTES as u32;

/// Who uses which exchange memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Each exchange has its own.
    #[default]
    Own,
    /// Exchanges take turns.
    Turns,
}

/// The memory of a kernel.
#[derive(Debug, Default)]
pub(super) struct Storage {
    pub(super) arrays: SecondaryMap<TvId, Option<Array>>,
    pub(super) shared: PrimaryMap<SharedId, Shared>,
}

/// What holds the elements of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Array {
    /// Registers of each thread, so many.
    Registers(i64),
    /// Shared memory, in which each thread has elements of its own.
    PerThread(SharedId),
    /// Shared memory that all threads of a block reach.
    Tile(SharedId),
}

/// An array of shared memory.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) len: i64,
    pub(super) align: u32,
}

/// Which of the buffers of a type that exchanges share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    /// Those of the group whose turn it is, by their number among those of their type.
    Turn(bool, u32),
    /// Those of the first group in a loop's body, in two copies each.
    First(u32),
}

/// Gives all tensors and exchanges of a tree their memory.
pub(super) fn alloc(facts: &Facts<'_>, tree: &mut LoopTree, sharing: Sharing) -> Result<Storage> {
    let mut storage = Storage::default();
    for tv in facts.scheduled.tensors.ids().filter(|tv| !facts.is_global(*tv)) {
        let array = array_of(facts, tv, &mut storage.shared)?;
        storage.arrays.set(tv, Some(array));
    }
    let mut exchanges = Exchanges {
        facts,
        sharing,
        shared: &mut storage.shared,
        buffers: BTreeMap::new(),
        group: Group { turn: true, is_read: true, is_first: false, numbers: BTreeMap::new() },
        loops: Vec::new(),
        first_taken: false,
    };
    let body = std::mem::take(&mut tree.body);
    exchanges.body(tree, &body);
    tree.body = body;
    Ok(storage)
}

fn array_of(facts: &Facts<'_>, tv: TvId, shared: &mut PrimaryMap<SharedId, Shared>) -> Result<Array> {
    let data = &facts.scheduled.tensors[tv];
    let mut add = |len, align| shared.push(Shared { name: identifier(&data.name), dtype: data.dtype, len, align });
    let stages = if data.is_ring() { i64::from(data.stages) } else { 1 };
    if let Some(tile) = &data.tile {
        if data.loops[..data.inline_at].iter().any(|own| own.parallel.is_thread()) {
            let message = format!("the tile of {} stands among the threads that share it", data.name);
            return Err(Diagnostic::unsupported(code::SCHEDULE_VERB, message)
                .note("inline it into loops and loops over blocks only"));
        }
        let extents = tile.axes.iter().map(|axis| facts.most_extent(*axis)).collect::<Result<Vec<_>>>()?;
        let rows = extents.iter().rev().skip(1).product();
        let places = tile.columns.places(rows, extents.last().copied().unwrap_or(1));
        let len = places.ok_or_else(|| Diagnostic::bug(format!("the tile of {} has too many places", data.name)))?;
        return Ok(Array::Tile(add(len * stages, WIDE_ALIGN)));
    }
    let len = facts.batch_len(tv)?;
    if data.memory == Memory::Shared {
        let threads = facts.block_threads()?;
        let is_wide = data.is_ring() || facts.lanes_together(tv).is_some();
        let align = if is_wide { WIDE_ALIGN } else { data.dtype.bytes() as u32 };
        return Ok(Array::PerThread(add(len * threads * stages, align)));
    }
    Ok(Array::Registers(len))
}

/// Hands out exchange memory in the order of the tree.
struct Exchanges<'a> {
    facts: &'a Facts<'a>,
    sharing: Sharing,
    shared: &'a mut PrimaryMap<SharedId, Shared>,
    buffers: BTreeMap<(DType, Slot), SharedId>,
    group: Group,
    /// The axes of the open loops.
    loops: Vec<AxisId>,
    /// Whether the open outermost loop has had its first group.
    first_taken: bool,
}

/// The exchanges that were written last, before any of them is read.
#[derive(Debug)]
struct Group {
    turn: bool,
    /// Whether one has been read: then no other is of them.
    is_read: bool,
    /// Whether they are the first of a loop's body.
    is_first: bool,
    /// The number of the latest of each type.
    numbers: BTreeMap<DType, u32>,
}

impl Exchanges<'_> {
    fn body(&mut self, tree: &mut LoopTree, body: &Body) {
        for node in body {
            if let Node::Reduce { step: Step::WriteWarps { exchange, .. } | Step::WriteRows { exchange, .. }, .. } =
                tree.nodes[*node]
            {
                self.place(tree, exchange);
            }
            let reads = matches!(
                tree.nodes[*node],
                Node::Reduce { step: Step::ReadWarps { .. } | Step::HalveRows { .. } | Step::ReadRows { .. }, .. }
            );
            self.group.is_read |= reads;
            let repeats = match &tree.nodes[*node] {
                Node::Loop { own, .. } if self.facts.repeats(*own) => Some(own.axis),
                _ => None,
            };
            if repeats.is_some() && self.loops.is_empty() {
                self.first_taken = false;
            }
            self.loops.extend(repeats);
            for at in 0..tree.bodies(*node).len() {
                let inner = std::mem::take(tree.bodies_mut(*node)[at]);
                self.body(tree, &inner);
                *tree.bodies_mut(*node)[at] = inner;
            }
            if repeats.is_some() {
                self.loops.pop();
            }
        }
    }

    fn place(&mut self, tree: &mut LoopTree, exchange: ExchangeId) {
        let shares = self.sharing == Sharing::Turns;
        if self.group.is_read {
            let is_first = self.loops.len() == 1 && !self.first_taken;
            self.first_taken |= is_first;
            self.group = Group { turn: !self.group.turn, is_read: false, is_first, numbers: BTreeMap::new() };
        }
        let Group { turn, is_first, .. } = self.group;
        let exchange = &mut tree.exchanges[exchange];
        let number = *self.group.numbers.entry(exchange.dtype).and_modify(|number| *number += 1).or_insert(0);
        let place = match *self.loops.as_slice() {
            [axis] if !shares || is_first => {
                let slot = Slot::First(number);
                let shared = self.buffer(&exchange.name, exchange.dtype, slot, 2 * exchange.len);
                ExchangePlace { shared, turns: Some(axis) }
            }
            _ => {
                let shared = self.buffer(&exchange.name, exchange.dtype, Slot::Turn(turn, number), exchange.len);
                ExchangePlace { shared, turns: None }
            }
        };
        exchange.place = Some(place);
    }

    /// The buffer of a slot, at least `len` long. What several exchanges use
    /// bears the name of none.
    fn buffer(&mut self, name: &str, dtype: DType, slot: Slot, len: i64) -> SharedId {
        if let Some(known) = self.buffers.get(&(dtype, slot)) {
            let shared = &mut self.shared[*known];
            (shared.name, shared.len) = (format!("exchange_{dtype}"), shared.len.max(len));
            return *known;
        }
        let shared = self.shared.push(Shared { name: name.to_string(), dtype, len, align: WIDE_ALIGN });
        if self.sharing == Sharing::Turns {
            self.buffers.insert((dtype, slot), shared);
        }
        shared
    }
}
