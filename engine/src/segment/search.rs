//! Which operations are computed together.
//!
//! In: [`OpFacts`]. Out: groups of operations, in an order in which they can run. An
//! operation joins the group that it reads the most bytes from, if the two can be one
//! kernel ([`check`]); then groups that read or hand over the same tensor are joined,
//! the largest first. Each join saves a tensor's way through memory. Groups stay
//! *convex*: no way leads out of a group and back into it.
//!
//! Which groups that gives depends on the order in which operations are placed, so several are tried
//! ([`order`](super::order)): that of definition, and those that only follow from what is computed. Of
//! groups that move the fewest bytes those of the first order are taken.
//!
//! Then, what a few elementwise operations make of tensors that are in memory anyway
//! is computed again by a group that reads it, where that reads little more: so a
//! cast is not stored wide, and an exponential is not stored to be divided. The same where a group
//! that is refused is cut in two after all: of what it would store for that alone. Then groups are joined
//! once more, of which some may be one kernel now that they repeat what others made of the same tensors.

use super::across::{LARGE, elements};
use super::facts::{OpFacts, is_join};
use super::order::Order;
use super::summary::check;
use crate::axes::MAX_FORKS;
use crate::fusion::{OpId, OpKind, TensorId};
use crate::schedule::widens;
use crate::template::is_scan;
use crate::util::{DisjointSets, EntityId, SecondaryMap, sort_by_key};
use std::collections::{BTreeMap, BTreeSet};

/// Groups that read one tensor and cannot be joined, with which others are tried.
const MOST_HOMES: usize = 4;
/// Operations of the largest fusions that are placed in several orders: each takes about as long as the first.
const MOST_PLACED_AGAIN: usize = 512;
/// Operations that are done again instead of storing their result.
const MOST_REPEATED: usize = 8;
/// And by one group in all: what each of many layers repeats, the next one would repeat with it.
const MOST_REPEATED_IN_ALL: usize = 2 * MOST_REPEATED;
/// What these may read, in parts of their result, if it need not be stored for others:
/// it is neither written nor read then.
const MORE_READ: (i64, i64) = (3, 2);
/// Bytes that are moved while a thread of each core computes a long function: some fifty instructions.
const BYTES_OF_FUNCTION: i64 = 8;
/// A tensor that is so many times smaller than another is stored rather than the other: what a row has once, not its elements.
const SMALLER: i64 = 16;

/// The groups of operations, each in order of definition. Operations that no kernel
/// computes are alone, but for those that a library computes with a product.
pub(super) fn search<'a>(facts: &'a OpFacts<'a>) -> Groups<'a> {
    let least = least_cost(facts);
    let mut best = search_in(facts, &Order::of_definition(facts));
    let mut cost = best.cost();
    for order in Order::BY_STRUCTURE {
        if cost <= least || facts.fusion.ops.len() > MOST_PLACED_AGAIN {
            break;
        }
        let other = search_in(facts, &order(facts));
        let its = other.cost();
        if its < cost {
            (best, cost) = (other, its);
        }
    }
    best
}

/// The groups that one order of placing gives.
fn search_in<'a>(facts: &'a OpFacts<'a>, order: &Order) -> Groups<'a> {
    let mut search = Search { facts, order, groups: Vec::new(), group_of: SecondaryMap::new() };
    for &op in &order.ops {
        search.place(op);
    }
    search.join_readers();
    search.join_neighbours();
    let mut groups = Groups::new(facts, search.in_order());
    // What one group repeats is not stored for another one any more, which may then repeat what it is made of.
    while groups.repeat_cheap() {}
    groups.drop_dead();
    groups.join_again();
    // What a group hands on now, another one need not.
    groups.drop_dead();
    groups
}

/// What no groups cost less than: one kernel that reads once what others make, and writes once what others get.
fn least_cost(facts: &OpFacts<'_>) -> Cost {
    let in_kernel = |op: &OpId| !facts.host[*op];
    let mut cost = Cost::default();
    for tensor in facts.fusion.tensors.ids() {
        let readers = &facts.readers[tensor];
        let is_made = facts.fusion.definition(tensor).as_ref().is_some_and(in_kernel);
        let moves = if is_made {
            facts.returned[tensor] || !readers.iter().all(in_kernel)
        } else {
            readers.iter().any(in_kernel)
        };
        cost.0 = cost.0.saturating_add(if moves { facts.bytes[tensor] } else { 0 });
    }
    cost.add_kernel();
    cost
}

/// Bytes that kernels move, and what it takes to launch them in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Cost(i64);

impl Cost {
    fn add_kernel(&mut self) {
        self.0 = self.0.saturating_add(LARGE);
    }
    fn add(&mut self, bytes: &dyn Fn(TensorId) -> i64, tensors: impl IntoIterator<Item = TensorId>) {
        tensors.into_iter().for_each(|tensor| self.0 = self.0.saturating_add(bytes(tensor)));
    }
}

/// Operations that are computed together so far.
struct Group {
    /// In order of definition; empty where another group took them.
    ops: Vec<OpId>,
    is_kernel: bool,
    /// The groups that it depends on, directly or not.
    before: GroupSet,
}

struct Search<'a> {
    facts: &'a OpFacts<'a>,
    order: &'a Order,
    groups: Vec<Group>,
    group_of: SecondaryMap<OpId, usize>,
}

impl Search<'_> {
    /// Puts the next operation into the group of an operand, or a new one, and joins
    /// to that what other operands come from.
    fn place(&mut self, op: OpId) {
        let facts = self.facts;
        if let Some(product) = facts.with_product[op] {
            // It reads nothing but what that group makes.
            let home = self.group_of[product];
            self.groups[home].ops = union(&self.groups[home].ops, &[op]);
            self.group_of.set(op, home);
            return;
        }
        let producers = self.producers(op);
        let is_kernel = !facts.host[op];
        let own = self.groups.len();
        let mut before = GroupSet::default();
        for &group in &producers {
            before.add_all(&self.groups[group].before);
            before.add(group);
        }
        self.groups.push(Group { ops: vec![op], is_kernel, before });
        self.group_of.set(op, own);
        if is_kernel && !facts.cuts[op] {
            let mut home = own;
            for group in producers {
                home = self.join(home, group).unwrap_or(home);
            }
        }
    }

    /// The groups that an operation reads from, the most bytes first.
    fn producers(&self, op: OpId) -> Vec<usize> {
        let mut bytes: BTreeMap<usize, i64> = BTreeMap::new();
        for tensor in self.facts.fusion.tensor_inputs(op) {
            if let Some(definition) = self.facts.fusion.definition(tensor) {
                let known = bytes.entry(self.group_of[definition]).or_default();
                *known = known.saturating_add(self.facts.bytes[tensor]);
            }
        }
        let mut groups: Vec<usize> = bytes.keys().copied().collect();
        sort_by_key(&mut groups, |group| (std::cmp::Reverse(bytes[group]), *group));
        groups
    }

    /// Makes one group of two, if that is one kernel; returns it.
    fn join(&mut self, a: usize, b: usize) -> Option<usize> {
        if a == b || !self.groups[a].is_kernel || !self.groups[b].is_kernel || self.has_way_around(a, b) {
            return None;
        }
        let (keep, gone) = (a.min(b), a.max(b));
        let ops = union(&self.groups[keep].ops, &self.groups[gone].ops);
        if !is_one_kernel(self.facts, &ops) {
            return None;
        }
        for op in std::mem::take(&mut self.groups[gone].ops) {
            self.group_of.set(op, keep);
        }
        self.groups[keep].ops = ops;
        let mut before = std::mem::take(&mut self.groups[gone].before);
        before.add_all(&self.groups[keep].before);
        before.remove(keep);
        before.remove(gone);
        // Whoever depends on either depends on all that both depend on.
        for group in &mut self.groups {
            if group.before.has(gone) || group.before.has(keep) {
                group.before.remove(gone);
                group.before.add(keep);
                group.before.add_all(&before);
            }
        }
        self.groups[keep].before = before;
        if gone + 1 == self.groups.len() {
            self.groups.pop();
        }
        Some(keep)
    }

    /// Whether a third group depends on one of two and the other on it.
    fn has_way_around(&self, a: usize, b: usize) -> bool {
        self.has_way_through(a, b) || self.has_way_through(b, a)
    }

    fn has_way_through(&self, from: usize, to: usize) -> bool {
        let leads_back = |op: &OpId| {
            let inputs = self.facts.fusion.tensor_inputs(*op);
            let groups = inputs.filter_map(|tensor| self.facts.fusion.definition(tensor)).map(|op| self.group_of[op]);
            groups.filter(|group| *group != from && *group != to).any(|group| self.groups[group].before.has(from))
        };
        self.groups[to].before.has(from) && self.groups[to].ops.iter().any(leads_back)
    }

    /// Joins groups that read the same tensor, the largest tensors first. Each is
    /// tried with few of those that could not be joined before it.
    fn join_readers(&mut self) {
        for tensor in self.by_bytes() {
            let readers: BTreeSet<usize> = self.facts.readers[tensor].iter().map(|op| self.group_of[*op]).collect();
            let mut homes: Vec<usize> = Vec::new();
            for group in readers {
                let joined = homes.iter().enumerate().find_map(|(at, home)| Some((at, self.join(*home, group)?)));
                match joined {
                    Some((at, home)) => homes[at] = home,
                    None if homes.len() < MOST_HOMES => homes.push(group),
                    None => {}
                }
            }
        }
    }

    /// Joins groups of which one hands a tensor to the other, the largest first.
    fn join_neighbours(&mut self) {
        for tensor in self.by_bytes() {
            let Some(definition) = self.facts.fusion.definition(tensor) else { continue };
            let mut readers = self.facts.readers[tensor].clone();
            sort_by_key(&mut readers, |reader| self.order.place[*reader]);
            for reader in readers {
                self.join(self.group_of[definition], self.group_of[reader]);
            }
        }
    }

    fn by_bytes(&self) -> Vec<TensorId> {
        let fusion = self.facts.fusion;
        let mut tensors: Vec<TensorId> = fusion.tensors.ids().collect();
        let place = |tensor: TensorId| fusion.definition(tensor).map(|op| self.order.place[op]);
        sort_by_key(&mut tensors, |tensor| {
            (std::cmp::Reverse(self.facts.bytes[*tensor]), place(*tensor), tensor.index())
        });
        tensors
    }

    /// The groups, each after those that it depends on; of several that could be
    /// next, the one whose first operation was placed first.
    fn in_order(self) -> Vec<Vec<OpId>> {
        let mut missing: Vec<usize> = self.groups.iter().map(|group| group.before.len()).collect();
        let is_free = |missing: &[usize], position: usize| missing[position] == 0;
        let first = |position: usize| {
            let places = self.groups[position].ops.iter().map(|op| self.order.place[*op]);
            places.min().map(|place| (place, position))
        };
        let mut ready: BTreeSet<(usize, usize)> =
            (0..self.groups.len()).filter(|position| is_free(&missing, *position)).filter_map(first).collect();
        let mut order = Vec::new();
        while let Some((_, done)) = ready.pop_first() {
            order.push(self.groups[done].ops.clone());
            for (position, group) in self.groups.iter().enumerate().filter(|(_, group)| group.before.has(done)) {
                missing[position] -= 1;
                if is_free(&missing, position) && !group.ops.is_empty() {
                    ready.extend(first(position));
                }
            }
        }
        order
    }
}

/// A set of groups, a bit for each.
#[derive(Clone, Debug, Default)]
struct GroupSet(Vec<u64>);

impl GroupSet {
    fn has(&self, group: usize) -> bool {
        self.0.get(group / 64).is_some_and(|word| word >> (group % 64) & 1 == 1)
    }
    fn add(&mut self, group: usize) {
        if self.0.len() <= group / 64 {
            self.0.resize(group / 64 + 1, 0);
        }
        self.0[group / 64] |= 1 << (group % 64);
    }
    fn add_all(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }
    fn remove(&mut self, group: usize) {
        if let Some(word) = self.0.get_mut(group / 64) {
            *word &= !(1 << (group % 64));
        }
    }
    fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

/// Groups in an order in which they can run. An operation may be in several.
pub(super) struct Groups<'a> {
    facts: &'a OpFacts<'a>,
    pub(super) ops: Vec<Vec<OpId>>,
    /// The groups that have each operation, in order.
    holders: SecondaryMap<OpId, Vec<usize>>,
}

impl<'a> Groups<'a> {
    pub(super) fn new(facts: &'a OpFacts<'a>, ops: Vec<Vec<OpId>>) -> Self {
        let mut holders: SecondaryMap<OpId, Vec<usize>> = SecondaryMap::new();
        for (position, group) in ops.iter().enumerate() {
            for op in group {
                holders[*op].push(position);
            }
        }
        Self { facts, ops, holders }
    }

    /// Whether a group is the first that has an operation, and so hands on its results.
    fn is_first(&self, position: usize, op: OpId) -> bool {
        self.holders[op].first() == Some(&position)
    }

    /// The results of a group that others read or the fusion returns, in order. A
    /// group that has the defining operation itself does not read its result from
    /// another; of several that have it, the first hands the result on.
    pub(super) fn results(&self, position: usize) -> Vec<TensorId> {
        let mut results = Vec::new();
        for &op in &self.ops[position] {
            if !self.is_first(position, op) {
                continue;
            }
            let own = &self.holders[op];
            let is_read = |tensor: TensorId| {
                let readers = self.facts.readers[tensor].iter();
                readers.flat_map(|reader| &self.holders[*reader]).any(|group| !own.contains(group))
            };
            let outputs = self.facts.fusion.ops[op].outputs.iter();
            results.extend(outputs.filter(|tensor| self.facts.returned[**tensor] || is_read(**tensor)));
        }
        results
    }

    /// Adds to groups the cheap operations whose results they read, where what those
    /// read is in memory anyway and not much more; whether there were any.
    fn repeat_cheap(&mut self) -> bool {
        let mut repeated = false;
        let stored = self.stored();
        for position in 0..self.ops.len() {
            repeated |= self.repeat_in(position, &stored, BTreeSet::new(), usize::MAX);
        }
        *self = Self::new(self.facts, std::mem::take(&mut self.ops));
        repeated
    }

    /// What groups leave in memory.
    fn stored(&self) -> BTreeSet<TensorId> {
        (0..self.ops.len()).flat_map(|position| self.results(position)).collect()
    }

    /// Adds to one group what is cheap of what it reads, but for tensors that were tried; it stays smaller than
    /// `limit` operations. Who holds what is not known anew.
    fn repeat_in(
        &mut self,
        position: usize,
        stored: &BTreeSet<TensorId>,
        mut tried: BTreeSet<TensorId>,
        limit: usize,
    ) -> bool {
        if self.ops[position].iter().any(|op| self.facts.host[*op]) {
            return false;
        }
        let is_anothers = |op: &&OpId| !self.is_first(position, **op);
        let mut known = self.ops[position].iter().filter(is_anothers).count();
        let mut repeated = false;
        while let Some(tensor) = self.untried_operand(position, &tried) {
            tried.insert(tensor);
            let Some(cone) = self.cone(&self.ops[position], tensor, stored) else { continue };
            let more = union(&self.ops[position], &cone);
            if known + cone.len() > MOST_REPEATED_IN_ALL || more.len() >= limit {
                continue;
            }
            if is_one_kernel(self.facts, &more) {
                self.ops[position] = more;
                (known, repeated) = (known + cone.len(), true);
            }
        }
        repeated
    }

    /// The bytes that the groups move, and in bytes what it takes to launch them and to compute for nothing.
    pub(super) fn moved_bytes(&self) -> i64 {
        let for_nothing = self.facts.fusion.ops.ids().map(|op| self.bytes_for_nothing(op));
        for_nothing.fold(self.cost_by(&|tensor| self.facts.exact_bytes(tensor)).0, i64::saturating_add)
    }

    /// What could be moved while long functions are computed where they are not used: a kernel that joins what it computes
    /// computes every part for each element.
    pub(super) fn bytes_for_nothing(&self, op: OpId) -> i64 {
        let OpFacts { fusion, bindings, .. } = self.facts;
        let Some(&group) =
            self.holders[op].first().filter(|group| is_join(&fusion.ops[op].kind) && self.is_kernel(**group))
        else {
            return 0;
        };
        let count = |tensor: TensorId| elements(fusion, bindings, tensor);
        let whole = count(fusion.ops[op].output());
        let for_nothing = fusion.tensor_inputs(op).map(|part| {
            self.long_functions(group, part).saturating_mul(whole - count(part)).saturating_mul(BYTES_OF_FUNCTION)
        });
        for_nothing.fold(0, i64::saturating_add)
    }

    /// Long functions that a group computes for a tensor.
    fn long_functions(&self, group: usize, tensor: TensorId) -> i64 {
        let fusion = self.facts.fusion;
        let (mut found, mut seen, mut waiting) = (0, BTreeSet::new(), vec![tensor]);
        while let Some(next) = waiting.pop() {
            let made = fusion.definition(next).filter(|made| self.ops[group].binary_search(made).is_ok());
            let Some(made) = made.filter(|made| seen.insert(*made)) else { continue };
            found += i64::from(matches!(fusion.ops[made].kind, OpKind::Unary(function) if function.is_long()));
            waiting.extend(fusion.tensor_inputs(made));
        }
        found
    }

    /// Whether a group that has an operation reduces something.
    pub(super) fn reduce_with(&self, op: OpId) -> bool {
        let reduces = |op: &OpId| matches!(self.facts.fusion.ops[*op].kind, OpKind::Reduce { .. });
        self.holders[op].iter().any(|group| self.ops[*group].iter().any(reduces))
    }

    /// Whether an operation joins what its group reads from other kernels.
    pub(super) fn joins_stored(&self, op: OpId) -> bool {
        let facts = self.facts;
        let kind = &facts.fusion.ops[op].kind;
        let is_stored = |tensor: TensorId| {
            let made = facts.fusion.definition(tensor).filter(|made| !facts.host[*made]);
            made.is_some_and(|made| !self.holders[op].iter().any(|group| self.holders[made].contains(group)))
        };
        is_join(kind) && facts.fusion.tensor_inputs(op).any(is_stored)
    }

    /// What the groups move and launch, about; what no kernel computes costs the same in any groups.
    fn cost(&self) -> Cost {
        self.cost_by(&|tensor| self.facts.bytes[tensor])
    }

    fn cost_by(&self, bytes: &dyn Fn(TensorId) -> i64) -> Cost {
        let mut cost = Cost::default();
        for position in (0..self.ops.len()).filter(|position| self.is_kernel(*position)) {
            cost.add_kernel();
            cost.add(bytes, self.reads(position));
            cost.add(bytes, self.results(position));
        }
        cost
    }

    fn is_kernel(&self, position: usize) -> bool {
        !self.ops[position].iter().any(|op| self.facts.host[*op])
    }

    /// The tensors that a group reads from others.
    fn reads(&self, position: usize) -> BTreeSet<TensorId> {
        self.read_from_outside(&self.ops[position]).collect()
    }

    /// Joins groups that read the same tensor, or of which one hands a tensor to the other, now that they repeat what kept
    /// them apart: those first that share the most bytes.
    fn join_again(&mut self) {
        let mut refused: BTreeSet<(Vec<OpId>, Vec<OpId>)> = BTreeSet::new();
        while let Some((earlier, later)) = self.neighbours().into_iter().find(|(earlier, later)| {
            let pair = (self.ops[*earlier].clone(), self.ops[*later].clone());
            let joins = !refused.contains(&pair)
                && self.between(*earlier, *later).is_some()
                && is_one_kernel(self.facts, &union(&pair.0, &pair.1));
            if !joins {
                refused.insert(pair);
            }
            joins
        }) {
            self.join(earlier, later);
        }
    }

    /// Pairs of kernels that share tensors, those of the most bytes first. Of many that share one, only such as are near.
    fn neighbours(&self) -> Vec<(usize, usize)> {
        let mut touching: BTreeMap<TensorId, BTreeSet<usize>> = BTreeMap::new();
        for position in (0..self.ops.len()).filter(|position| self.is_kernel(*position)) {
            for tensor in self.reads(position).into_iter().chain(self.results(position)) {
                touching.entry(tensor).or_default().insert(position);
            }
        }
        let mut shared: BTreeMap<(usize, usize), i64> = BTreeMap::new();
        for (tensor, groups) in touching {
            let groups: Vec<usize> = groups.into_iter().collect();
            for (at, &earlier) in groups.iter().enumerate() {
                for &later in groups[at + 1..].iter().take(MOST_HOMES) {
                    let bytes = shared.entry((earlier, later)).or_default();
                    *bytes = bytes.saturating_add(self.facts.bytes[tensor]);
                }
            }
        }
        let mut pairs: Vec<(usize, usize)> = shared.keys().copied().collect();
        sort_by_key(&mut pairs, |pair| (std::cmp::Reverse(shared[pair]), *pair));
        pairs
    }

    /// Of the groups between two those that depend on the earlier one; none where the later one depends on one of them.
    fn between(&self, earlier: usize, later: usize) -> Option<BTreeSet<usize>> {
        let mut after: BTreeSet<usize> = BTreeSet::new();
        let makers = |position: usize| {
            let made = self.read_from_outside(&self.ops[position]).filter_map(|t| self.facts.fusion.definition(t));
            made.filter_map(|op| self.holders[op].first().copied())
        };
        for position in earlier + 1..later {
            if makers(position).any(|maker| maker == earlier || after.contains(&maker)) {
                after.insert(position);
            }
        }
        (!makers(later).any(|maker| after.contains(&maker))).then_some(after)
    }

    /// Makes one group of two, between those that it depends on and those that depend on it.
    fn join(&mut self, earlier: usize, later: usize) {
        let after = self.between(earlier, later).unwrap_or_default();
        let mut all: Vec<Vec<OpId>> = std::mem::take(&mut self.ops);
        let rest = all.split_off(later + 1);
        let last = all.pop().unwrap_or_default();
        let (mut joined, mut behind) = (Vec::new(), Vec::new());
        for (position, group) in all.into_iter().enumerate() {
            match position {
                _ if position == earlier => joined = union(&group, &last),
                _ if after.contains(&position) => behind.push(group),
                _ => self.ops.push(group),
            }
        }
        self.ops.push(joined);
        self.ops.extend(behind.into_iter().chain(rest));
        *self = Self::new(self.facts, std::mem::take(&mut self.ops));
    }

    /// A tensor that a group reads from another.
    fn untried_operand(&self, position: usize, tried: &BTreeSet<TensorId>) -> Option<TensorId> {
        let is_made = |tensor: &TensorId| self.facts.fusion.definition(*tensor).is_some();
        self.read_from_outside(&self.ops[position]).find(|tensor| !tried.contains(tensor) && is_made(tensor))
    }

    /// What operations read that they do not make.
    fn read_from_outside<'g>(&'g self, group: &'g [OpId]) -> impl Iterator<Item = TensorId> + 'g {
        let fusion = self.facts.fusion;
        let read = group.iter().flat_map(|op| fusion.tensor_inputs(*op));
        read.filter(move |tensor| !fusion.is_result_of(*tensor, group))
    }

    /// The operations that make a tensor of what is in memory, if they are few and
    /// cheap, and what they read beside what the group reads anyway is little enough.
    fn cone(&self, group: &[OpId], tensor: TensorId, stored: &BTreeSet<TensorId>) -> Option<Vec<OpId>> {
        let facts = self.facts;
        let (mut cone, mut read): (Vec<OpId>, i64) = (Vec::new(), 0);
        let (mut seen, mut stack) = (BTreeSet::new(), vec![tensor]);
        while let Some(next) = stack.pop() {
            if !seen.insert(next) {
                continue;
            }
            let is_there = next != tensor && stored.contains(&next);
            let Some(op) = facts.fusion.definition(next).filter(|_| !is_there) else {
                let is_read = group.iter().any(|op| facts.fusion.tensor_inputs(*op).any(|input| input == next));
                read = read.saturating_add(if is_read { 0 } else { facts.bytes[next] });
                continue;
            };
            // What the group has of it are operations that it repeats already.
            if group.binary_search(&op).is_ok() {
                continue;
            }
            let is_small = next != tensor && facts.bytes[next].saturating_mul(SMALLER) <= facts.bytes[tensor];
            if is_small && self.is_costly(next, stored) {
                read = read.saturating_add(facts.bytes[next].saturating_mul(2));
                continue;
            }
            if cone.len() >= MOST_REPEATED || !is_cheap(facts, op) {
                return None;
            }
            cone.push(op);
            stack.extend(facts.fusion.tensor_inputs(op));
        }
        let bytes = facts.bytes[tensor];
        // One that is stored for others is read instead of what it is made of.
        let stays = facts.returned[tensor] || facts.readers[tensor].iter().any(|op| facts.host[*op] || facts.cuts[*op]);
        let most = if stays { bytes - 1 } else { bytes.saturating_mul(MORE_READ.0) / MORE_READ.1 };
        (!cone.is_empty() && read <= most).then_some(cone)
    }

    /// Whether more than a few cheap operations make a tensor of what is in memory.
    fn is_costly(&self, tensor: TensorId, stored: &BTreeSet<TensorId>) -> bool {
        let (mut seen, mut stack) = (BTreeSet::new(), vec![tensor]);
        while let Some(next) = stack.pop() {
            let Some(op) = self.facts.fusion.definition(next).filter(|_| !stored.contains(&next)) else { continue };
            if !seen.insert(op) {
                continue;
            }
            if seen.len() > MOST_REPEATED || !is_cheap(self.facts, op) {
                return true;
            }
            stack.extend(self.facts.fusion.tensor_inputs(op));
        }
        false
    }

    /// Takes out of a group what it repeats of groups before it; whether there was any.
    pub(super) fn read_instead(&mut self, position: usize) -> bool {
        let all = self.ops[position].len();
        let mut ops = std::mem::take(&mut self.ops);
        ops[position].retain(|op| self.holders[*op].first() == Some(&position));
        let some = ops[position].len() < all;
        *self = Self::new(self.facts, ops);
        some
    }

    /// Makes two groups of one that repeats nothing; what no library computes with a product may be a kernel. The second
    /// makes again what is cheap of the first, and what only that needs leaves the first.
    pub(super) fn halve(&mut self, position: usize) {
        let all = self.ops[position].len();
        // In memory whether it is cut or not.
        let mut kept: BTreeSet<TensorId> = self.results(position).into_iter().collect();
        kept.extend(self.read_from_outside(&self.ops[position]));
        let mut ops = std::mem::take(&mut self.ops);
        let is_with_product = ops[position].iter().any(|op| self.facts.with_product[*op].is_some());
        let middle = if is_with_product { 1 } else { ops[position].len() / 2 };
        let second = ops[position].split_off(middle);
        ops.insert(position + 1, second);
        *self = Self::new(self.facts, ops);
        let stored = self.stored();
        // With all of the first it would be what was refused.
        if self.repeat_in(position + 1, &stored, kept, all) {
            *self = Self::new(self.facts, std::mem::take(&mut self.ops));
            self.drop_dead_in(position);
        }
    }

    /// Adds to the two groups that were one what is cheap of what they read from others: that group was refused with it, but each of
    /// these does less. Whether there was any, so that groups before them hand on something else.
    pub(super) fn repeat_in_halves(&mut self, position: usize) -> bool {
        let stored = self.stored();
        // What the second might have of the first it has.
        let of_first = self.results(position).into_iter().collect();
        let mut repeated = self.repeat_in(position, &stored, BTreeSet::new(), usize::MAX);
        repeated |= self.repeat_in(position + 1, &stored, of_first, usize::MAX);
        *self = Self::new(self.facts, std::mem::take(&mut self.ops));
        if repeated {
            self.drop_dead();
        }
        repeated
    }

    /// Drops what no result needs.
    fn drop_dead(&mut self) {
        // From the last to the first: what a group does not read any more, those before
        // it need not hand on.
        (0..self.ops.len()).rev().for_each(|position| self.drop_dead_in(position));
        let ops = std::mem::take(&mut self.ops).into_iter().filter(|group| !group.is_empty()).collect();
        *self = Self::new(self.facts, ops);
    }

    /// The same in one group, which may be left empty.
    fn drop_dead_in(&mut self, position: usize) {
        let mut needed: BTreeSet<TensorId> = self.results(position).into_iter().collect();
        let mut alive = Vec::new();
        for &op in self.ops[position].iter().rev() {
            if self.facts.fusion.ops[op].outputs.iter().any(|output| needed.contains(output)) {
                needed.extend(self.facts.fusion.tensor_inputs(op));
                alive.push(op);
            } else {
                self.holders[op].retain(|holder| *holder != position);
            }
        }
        alive.reverse();
        self.ops[position] = alive;
    }
}

/// The operations of both, each once, in order of definition.
fn union(some: &[OpId], others: &[OpId]) -> Vec<OpId> {
    let mut ops: Vec<OpId> = some.iter().chain(others).copied().collect();
    ops.sort_unstable();
    ops.dedup();
    ops
}

/// Whether operations can be one kernel, and no cut of the fusion lies among them.
fn is_one_kernel(facts: &OpFacts<'_>, ops: &[OpId]) -> bool {
    let fusion = facts.fusion;
    let reads_inside = |op: OpId| fusion.tensor_inputs(op).any(|tensor| fusion.is_result_of(tensor, ops));
    let is_cut = ops.iter().any(|op| facts.cuts[*op] && reads_inside(*op));
    if ops.iter().any(|op| fusion.ops[*op].kind.scanned().is_some()) {
        return !is_cut && is_scan(fusion, ops, |tensor| leaves(facts, ops, tensor));
    }
    !is_cut && can_widen(facts, ops) && check(facts, ops).is_ok()
}

/// Whether somebody else gets what operations make.
fn leaves(facts: &OpFacts<'_>, ops: &[OpId], tensor: TensorId) -> bool {
    facts.returned[tensor] || facts.readers[tensor].iter().any(|reader| ops.binary_search(reader).is_err())
}

/// Whether what operations pad or join is widened in one kernel: it iterates over the widened results, so nothing is stored of what
/// goes into them, which may be widened as well, and nothing is reduced.
fn can_widen(facts: &OpFacts<'_>, ops: &[OpId]) -> bool {
    let kind = |op: OpId| &facts.fusion.ops[op].kind;
    if !ops.iter().any(|op| widens(kind(*op))) {
        return true;
    }
    // Operations that go into a widened result, from the last to the first.
    let mut parts: BTreeSet<OpId> = BTreeSet::new();
    for &op in ops.iter().rev() {
        let readers = || facts.fusion.ops[op].outputs.iter().flat_map(|tensor| &facts.readers[*tensor]);
        let goes_in =
            |reader: &OpId| ops.binary_search(reader).is_ok() && (widens(kind(*reader)) || parts.contains(reader));
        if !readers().any(goes_in) {
            continue;
        }
        let is_returned = facts.fusion.ops[op].outputs.iter().any(|tensor| facts.returned[*tensor]);
        let calls_another = matches!(kind(op), OpKind::Call(call) if call.lookup().is_none()) && !widens(kind(op));
        if is_returned || !readers().all(goes_in) || calls_another {
            return false;
        }
        parts.insert(op);
    }
    if parts.iter().any(|op| widens(kind(*op))) && !has_few_readings(facts, ops) {
        return false;
    }
    !ops.iter().any(|op| matches!(kind(*op), OpKind::Reduce { .. })) && is_one_space(facts, ops, &parts)
}

/// Whether nothing from outside is read at more places than have axes of their own: what is widened, and widened again, would not
/// be one kernel, and its parts would be cut anywhere.
fn has_few_readings(facts: &OpFacts<'_>, ops: &[OpId]) -> bool {
    let mut readings: BTreeMap<TensorId, usize> = BTreeMap::new();
    for tensor in ops.iter().flat_map(|op| facts.fusion.tensor_inputs(*op)) {
        *readings.entry(tensor).or_default() += usize::from(!facts.fusion.is_result_of(tensor, ops));
    }
    readings.values().all(|places| *places <= MAX_FORKS + 1)
}

/// Whether operations hang together by what they hand to each other, but for those that go into a widened result. Readers of one
/// input are not joined by it: it has axes of its own for each.
fn is_one_space(facts: &OpFacts<'_>, ops: &[OpId], parts: &BTreeSet<OpId>) -> bool {
    let mut spaces = DisjointSets::new(ops.len());
    for (position, op) in ops.iter().enumerate().filter(|(_, op)| !parts.contains(op)) {
        let made = facts.fusion.tensor_inputs(*op).filter_map(|tensor| facts.fusion.definition(tensor));
        for other in made.filter(|other| !parts.contains(other)).filter_map(|other| ops.binary_search(&other).ok()) {
            spaces.union(position, other);
        }
    }
    let whole: BTreeSet<usize> =
        (0..ops.len()).filter(|at| !parts.contains(&ops[*at])).map(|at| spaces.root(at)).collect();
    whole.len() <= 1
}

/// Whether an operation is cheaper than a way of its result through memory.
fn is_cheap(facts: &OpFacts<'_>, op: OpId) -> bool {
    let kind = &facts.fusion.ops[op].kind;
    let moves = matches!(kind, OpKind::Broadcast { .. } | OpKind::Squeeze { .. } | OpKind::Permute { .. });
    let fills = matches!(kind, OpKind::Full | OpKind::Index { .. });
    !facts.host[op] && !facts.cuts[op] && (moves || fills || kind.is_elementwise())
}
