//! What each statement does.

use super::eval::Counter;
use super::events::{Event, Kind};
use super::guards::{GuardId, ROOT};
use super::mask::Mask;
use super::memory::element;
use super::report::AlarmKind;
use super::run::{Count, Fence, Run};
use super::word::{Val, Word, mix};
use crate::kernel::ir::{Access, AtomicOp, Block, ExprId, Scope, ShuffleMode, Space, Stmt, StmtKind, VarId};

impl<'a> Run<'a> {
    pub(super) fn stmt(&mut self, stmt: &'a Stmt, number: u32, threads: &Mask, guard: GuardId) {
        match stmt.kind {
            StmtKind::Let { var, value } => {
                if self.slice.vars[var] {
                    let value = self.eval.of(value);
                    self.eval.set(var, value);
                }
            }
            StmtKind::Load { var, from, .. } => {
                let index = self.touch(from, (1, true), Kind::Read, number, threads, guard);
                if self.slice.vars[var] {
                    let value = self.memory.load(from.buffer, &index, 0);
                    self.eval.set(var, value);
                }
            }
            StmtKind::Store { to, value, .. } => {
                let index = self.touch(to, (1, true), Kind::Write, number, threads, guard);
                if self.slice.buffers[to.buffer] {
                    let value = self.eval.of(value);
                    self.memory.store((to.buffer, &index, 0), &value, threads, (&self.guards, guard));
                }
            }
            StmtKind::Move { to, from, lanes, aligned: true, .. } => {
                self.copy(to, from, lanes, number, threads, guard);
            }
            // To an output, wherever it begins.
            StmtKind::Move { to, from, lanes, .. } if self.kernel.buffers[to.buffer].space == Space::Global => {
                let source = self.touch(from, (lanes, true), Kind::Read, number, threads, guard);
                self.write_lanes((to, (lanes, false)), (from, &source), number, threads, guard);
            }
            // From an input, which nobody writes, and nothing outside of it.
            StmtKind::Move { to, from, lanes, .. } => {
                let source = self.eval.of(from.index);
                self.write_lanes((to, (lanes, true)), (from, &source), number, threads, guard);
            }
            StmtKind::CopyAsync { to, from, lanes, .. } => {
                let index = self.copy(to, from, lanes, number, threads, guard);
                if !self.report.is_over() {
                    let places = self.launch.threads() as usize;
                    let first = |t| index.at(t).int().filter(|_| threads.has(t));
                    let first = (0..places).map(|t| first(t).map_or(0, |index| element(to.buffer, index)));
                    let known = threads.filter(|t| index.at(t).int().is_some());
                    self.flights.start(first.collect(), lanes, &known, number, guard);
                }
            }
            StmtKind::CommitGroup => self.flights.end(threads),
            StmtKind::WaitGroup { open } => {
                for landed in self.flights.wait(threads, open) {
                    for lane in 0..u64::from(landed.lanes) {
                        self.note(landed.first + lane, landed.thread, Kind::Write, landed.stmt, guard);
                    }
                }
            }
            StmtKind::For { var, start, end, step, ref body, .. } => {
                self.for_loop(var, (start, end, step), body, number, threads, guard);
            }
            StmtKind::If { condition, ref then, ref otherwise } => {
                self.branch(condition, [then, otherwise], number, threads, guard);
            }
            StmtKind::Shuffle { var, value, mode, lane } => {
                self.meet(number, threads.is_of_whole_warps(), guard);
                if self.slice.vars[var] {
                    let value = self.shuffled(value, mode, lane);
                    self.eval.set(var, value);
                }
            }
            StmtKind::Random { ref vars, seed, offset, subsequence } => {
                if vars.iter().any(|var| self.slice.vars[*var]) {
                    let [seed, offset, subsequence] = [seed, offset, subsequence].map(|id| self.eval.of(id));
                    for (i, var) in vars.iter().enumerate() {
                        let word = |t| Word::term(mix(&[12, i as u64]), &[seed.at(t), offset.at(t), subsequence.at(t)]);
                        self.eval.set(*var, Val::from_fn(self.launch.threads() as usize, word));
                    }
                }
            }
            StmtKind::Sync(scope) => self.sync(scope, number, threads, guard),
            StmtKind::Fence(Scope::Grid) => {
                self.published.fences.push(Fence { time: self.time, threads: threads.clone(), guard });
            }
            StmtKind::Fence(_) => {}
            StmtKind::Atomic { var, op, to, value } => self.atomic(var, op, to, value, number, threads, guard),
        }
    }

    /// Looks at an access of some threads, which starts at a multiple of its lanes or anywhere; the index of the first
    /// element.
    fn touch(
        &mut self,
        access: Access,
        (lanes, aligned): (u32, bool),
        kind: Kind,
        number: u32,
        threads: &Mask,
        guard: GuardId,
    ) -> Val {
        let index = self.eval.of(access.index);
        let buffer = &self.kernel.buffers[access.buffer];
        let (len, wide) = (self.launch.buffer_lens[access.buffer], i64::from(lanes));
        let (mut outside, mut skewed, mut senseless, mut unknown) = (None, None, None, false);
        let asked_for = if aligned && buffer.space != Space::Local { wide } else { 1 };
        let mut judge = |t: usize, word: Word| match word {
            Word::Int(i) if i < 0 || i.saturating_add(wide) as u64 > len => outside = Some((t, i)),
            Word::Int(i) if asked_for != 1 && i % asked_for != 0 => skewed = Some((t, i)),
            Word::Int(_) => {}
            Word::Term(_) => unknown = true,
            Word::Any => senseless = Some((t, 0)),
        };
        // What is the same in all threads is judged once.
        match (&index, threads.first()) {
            (Val::One(word), Some(first)) => {
                judge(first, *word);
                self.touched += 1;
            }
            (Val::One(_), None) => {}
            _ => {
                threads.each(|t| judge(t, index.at(t)));
                self.touched += threads.count() as u64;
            }
        }
        let wrong =
            [(AlarmKind::OutOfBounds, outside), (AlarmKind::Misaligned, skewed), (AlarmKind::Meaningless, senseless)];
        for (kind, found) in wrong {
            if let Some((thread, i)) = found {
                let (text, block) = (self.text(number), self.block);
                let what = || match kind {
                    AlarmKind::Meaningless => format!("index of `{text}` by thread {thread} of block {block:?}"),
                    _ => format!("`{text}` at {}[{i}] of {len} by thread {thread} of block {block:?}", buffer.name),
                };
                if self.guards.is_private(guard) {
                    self.report.undecided += 1;
                } else {
                    self.report.alarm(kind, Some(number), what);
                }
            }
        }
        let meets = match buffer.space {
            Space::Local => false,
            Space::Shared => true,
            Space::Global => self.memory.is_written(access.buffer),
        };
        if unknown && meets {
            self.report.undecided += 1;
            self.grid.scattered.set(access.buffer, true);
        } else if unknown {
            self.report.gathers += 1;
        }
        if meets && outside.is_none() {
            let is_followed = buffer.space == Space::Shared || !self.flights.is_empty();
            threads.each(|t| {
                if let Word::Int(i) = index.at(t) {
                    for lane in i..i + wide {
                        if is_followed {
                            self.reach(access, lane, t, kind, number, guard);
                        }
                        self.note(element(access.buffer, lane), t, kind, number, guard);
                    }
                }
            });
        }
        index
    }

    /// One thread comes to one element: is a copy on its way to it, does it hold anything?
    fn reach(&mut self, access: Access, index: i64, thread: usize, kind: Kind, number: u32, guard: GuardId) {
        let coming = if self.flights.is_empty() { None } else { self.flights.over(element(access.buffer, index)) };
        if let Some(coming) = coming {
            let name = &self.kernel.buffers[access.buffer].name;
            let block = self.block;
            if self.guards.is_private(guard) || self.guards.is_private(coming.guard) {
                self.report.undecided += 1;
            } else if !self.guards.excludes(guard, coming.guard) {
                let (text, copy) = (self.text(number), self.text(coming.stmt));
                self.report.alarm(AlarmKind::Race, Some(number), || {
                    let place = format!("`{text}` at {name}[{index}] by thread {thread} of block {block:?}");
                    format!("{place} and `{copy}` of thread {}, which has not landed", coming.thread)
                });
            }
        }
        if let Some(initialised) = self.initialised[access.buffer].get_mut(index as usize) {
            if kind == Kind::Read && !*initialised {
                let (text, block, name) = (self.text(number), self.block, &self.kernel.buffers[access.buffer].name);
                self.report.alarm(AlarmKind::Uninitialised, Some(number), || {
                    format!("`{text}` at {name}[{index}] by thread {thread} of block {block:?}")
                });
            } else {
                *initialised = true;
            }
        }
    }

    fn note(&mut self, element: u64, thread: usize, kind: Kind, stmt: u32, guard: GuardId) {
        self.touched += 1;
        self.interval.events.push(Event { element, time: self.time, thread: thread as u16, kind, guard, stmt });
    }

    /// Copies elements; the index of the first one that is written.
    fn copy(&mut self, to: Access, from: Access, lanes: u32, number: u32, threads: &Mask, guard: GuardId) -> Val {
        let source = self.touch(from, (lanes, true), Kind::Read, number, threads, guard);
        self.write_lanes((to, (lanes, true)), (from, &source), number, threads, guard)
    }

    /// Writes lanes that were read from `source` on; returns where.
    fn write_lanes(
        &mut self,
        (to, (lanes, aligned)): (Access, (u32, bool)),
        (from, source): (Access, &Val),
        number: u32,
        threads: &Mask,
        guard: GuardId,
    ) -> Val {
        let target = self.touch(to, (lanes, aligned), Kind::Write, number, threads, guard);
        if self.slice.buffers[to.buffer] {
            for lane in 0..lanes {
                let value = self.memory.load(from.buffer, source, lane);
                self.memory.store((to.buffer, &target, lane), &value, threads, (&self.guards, guard));
            }
        }
        target
    }

    fn for_loop(
        &mut self,
        var: VarId,
        (start, end, step): (ExprId, ExprId, i64),
        body: &'a Block,
        number: u32,
        threads: &Mask,
        guard: GuardId,
    ) {
        let (start, end) = (self.eval.of(start), self.eval.of(end));
        if let (Some(first), Some(end)) = (start.as_one(), end.as_one()) {
            let mut counter = first;
            while counter < end && !self.report.is_over() {
                self.eval.set(var, Val::int(counter));
                self.block(body, number + 1, threads, guard);
                counter = counter.saturating_add(step);
            }
            return;
        }
        self.decides(&start, number, threads);
        self.decides(&end, number, threads);
        let known = |val: &Val| threads.all(|t| val.at(t).int().is_some());
        if !known(&start) || !known(&end) {
            self.report.by_data = true;
            return;
        }
        let places = self.launch.threads() as usize;
        let number_at = |val: &Val, t: usize| val.at(t).int().unwrap_or(0);
        let mut counters: Vec<i64> = (0..places).map(|t| number_at(&start, t)).collect();
        loop {
            let running = threads.filter(|t| counters[t] < number_at(&end, t));
            if running.is_empty() || self.report.is_over() {
                return;
            }
            self.eval.set(var, Val::Ints(counters.clone().into()));
            self.block(body, number + 1, &running, guard);
            counters.iter_mut().for_each(|counter| *counter = counter.saturating_add(step));
        }
    }

    /// A value decides where threads go.
    fn decides(&mut self, value: &Val, number: u32, threads: &Mask) {
        let is_senseless = match value {
            Val::One(word) => *word == Word::Any && !threads.is_empty(),
            Val::Ints(_) => false,
            Val::Words(words) => !threads.all(|t| words[t] != Word::Any),
        };
        if is_senseless {
            let (text, block) = (self.text(number), self.block);
            self.report.alarm(AlarmKind::Meaningless, Some(number), || format!("`{text}` in block {block:?}"));
        }
    }

    fn branch(&mut self, condition: ExprId, arms: [&'a Block; 2], number: u32, threads: &Mask, guard: GuardId) {
        let condition = self.eval.of(condition);
        self.decides(&condition, number, threads);
        let numbers = [number + 1, self.behind(arms[0], number + 1)];
        let first = condition.first_term(threads);
        let common = first.filter(|term| threads.all(|t| condition.at(t) == Word::Term(*term)));
        let known = common.and_then(|term| self.guards.known(guard, term));
        // Where the block decides as a whole, each branch begins with the memory that it finds.
        let forks = common.filter(|_| known.is_none()).map(|term| (Word::Term(term), self.memory.contents()));
        let mut held = None;
        for (arm, holds) in [(0, true), (1, false)] {
            if let (Some((_, before)), false) = (&forks, holds) {
                held = Some(self.memory.exchange(before.clone()));
            }
            let here = threads.filter(|t| condition.at(t).int().is_none_or(|truth| (truth != 0) == holds));
            if here.is_empty() || known.is_some_and(|known| known != holds) {
                continue;
            }
            let inner = match first {
                Some(_) if known.is_none() => {
                    let ticket = common.and_then(|term| self.eval.is_ticket.get(&term).copied());
                    self.guards.enter(guard, common, (condition.clone(), holds), self.time, ticket)
                }
                _ => guard,
            };
            self.block(arms[arm], numbers[arm], &here, inner);
        }
        if let (Some((condition, _)), Some(held)) = (forks, held) {
            self.memory.merge(self.kernel, condition, &held);
        }
    }

    /// A barrier or a shuffle, which all threads of a set have to reach; whether they do.
    fn meet(&mut self, number: u32, together: bool, guard: GuardId) -> bool {
        if !together {
            let (text, block) = (self.text(number), self.block);
            self.report.alarm(AlarmKind::Divergence, Some(number), || format!("`{text}` in block {block:?}"));
        } else if self.guards.is_private(guard) {
            self.report.undecided += 1;
        }
        together && !self.guards.is_private(guard)
    }

    fn sync(&mut self, scope: Scope, number: u32, threads: &Mask, guard: GuardId) {
        let together = if scope == Scope::Warp { threads.is_of_whole_warps() } else { threads.is_full() };
        if !self.meet(number, together, guard) {
            return;
        }
        match scope {
            Scope::Warp => self.barrier(guard, Some(threads.clone())),
            Scope::Team | Scope::Grid if guard != ROOT => self.report.undecided += 1,
            Scope::Block | Scope::Team | Scope::Grid => {
                self.published.syncs.push((self.time, guard));
                if scope.is_of_blocks() {
                    self.grid.in_teams |= scope == Scope::Team;
                    self.published.grid_syncs.push(self.time);
                    self.memory.pass_grid();
                }
                if guard == ROOT { self.close_interval() } else { self.barrier(guard, None) }
            }
        }
    }

    /// The value of the lane that each thread asks, or its own where the warp has no such lane.
    fn shuffled(&mut self, value: ExprId, mode: ShuffleMode, lane: ExprId) -> Val {
        let (value, lane) = (self.eval.of(value), self.eval.of(lane));
        let threads = self.launch.threads() as usize;
        Val::from_fn(threads, |t| {
            let (own, Some(asked)) = ((t % 32) as i64, lane.at(t).int()) else {
                return Word::term(mix(&[13, t as u64]), &[lane.at(t)]);
            };
            let source = match mode {
                ShuffleMode::Xor => own ^ asked,
                ShuffleMode::Up => own - asked,
                ShuffleMode::Down => own + asked,
                ShuffleMode::Index => asked,
            };
            let source = if (0..32).contains(&source) { t - t % 32 + source as usize } else { t };
            if source < threads { value.at(source) } else { Word::term(14, &[value.at(t)]) }
        })
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of the statement and where it stands")]
    fn atomic(
        &mut self,
        var: Option<VarId>,
        op: AtomicOp,
        to: Access,
        value: ExprId,
        number: u32,
        threads: &Mask,
        guard: GuardId,
    ) {
        let index = self.touch(to, (1, true), Kind::Atomic, number, threads, guard);
        let value = self.eval.of(value);
        let global = self.kernel.buffers[to.buffer].space == Space::Global;
        let (time, block) = (self.time, self.block.map(u64::from));
        let nth = self.published.counts.len() as u64;
        let mut old = vec![Word::Int(0); self.launch.threads() as usize];
        threads.each(|t| {
            let Some(i) = index.at(t).int() else {
                old[t] = Word::term(mix(&[15, t as u64, time.into()]), &[index.at(t)]);
                return;
            };
            let key: Counter = element(to.buffer, i);
            let zeroed = self.kernel.buffers[to.buffer].zeroed && op == AtomicOp::Inc;
            let term = mix(&[16, key, block[0], block[1], block[2], t as u64, nth]);
            // A count that wraps behind 0 stays there.
            let stays = zeroed && value.at(t) == Word::Int(0);
            old[t] = if stays { Word::Int(0) } else { Word::Term(term) };
            if global {
                let first = self.published.counts.iter().all(|count| count.counter != key);
                let wraps = value.at(t).int().filter(|_| op == AtomicOp::Inc && guard == ROOT);
                self.grid.count(key, wraps, first);
                self.eval.tickets.insert(term, key);
                if guard == ROOT {
                    self.published.counts.push(Count { time, thread: t, counter: key });
                }
                let mut term = mix(&[op as u64, value.at(t).bits()]);
                for guard in self.guards.path(guard) {
                    term = mix(&[term, guard.condition.at(t).bits(), guard.holds.into()]);
                }
                self.memory.count(key, term);
            } else if self.memory.follows(to.buffer) {
                let updated = Val::One(Word::term(mix(&[17, op as u64]), &[old[t], value.at(t)]));
                let own = threads.filter(|other| other == t);
                self.memory.store((to.buffer, &index, 0), &updated, &own, (&self.guards, guard));
            }
        });
        if let Some(var) = var {
            self.eval.set(var, Val::of(old));
        }
    }
}
