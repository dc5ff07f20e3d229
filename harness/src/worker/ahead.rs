//! Prepares coming cases on threads of their own while the worker runs one: compiles
//! them, and draws their inputs. What they compile stays in the session, and what they
//! draw in the worker's draws, where the case finds it; what goes wrong is forgotten,
//! since the case will meet it again itself.
//!
//! Where there are compiler processes, each thread leaves the texts to one of them, which it looks for when it has the
//! first: of kernels whose code is stored, which after the first run are most, none is needed.

use super::args::Draws;
use super::device::Device;
use super::jitter::{Disturbed, Jitter};
use super::{args, fault, pipeline};
use crate::case::Case;
use crate::compilers::Way;
use crate::crumb::{CrumbWriter, Lane};
use crate::proto::Unprepared;
use engine::backend::cuda::CompilerClient;
use engine::backend::cuda::nvrtc::{CompileText, Cubin, NvrtcOptions};
use engine::diag::{Diagnostic, Result};
use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Scope;
use std::time::Duration;

/// Cases that may wait; the dispatcher offers far fewer.
const MAX_WAITING: usize = 1024;

/// The name of the threads. What goes wrong on them is not the running case's affair.
pub(super) const THREAD: &str = "compile-ahead";
/// At the end threads are waited for this long.
const LAST_MOMENT: Duration = Duration::from_millis(100);

/// Where the threads work, and what they share with the case that runs.
#[derive(Clone, Copy)]
pub(super) struct Place<'env> {
    pub(super) device: &'env Device,
    pub(super) crumbs: &'env CrumbWriter,
    pub(super) draws: &'env Draws,
}

/// Coming cases, and those that are being compiled.
#[derive(Default)]
pub(super) struct Ahead {
    state: Mutex<AheadState>,
    changed: Condvar,
}

#[derive(Default)]
struct AheadState {
    waiting: VecDeque<Case>,
    /// Ids under way.
    running: BTreeSet<String>,
    closed: bool,
}

impl Ahead {
    fn lock(&self) -> MutexGuard<'_, AheadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the threads, disturbed by `jitter`. They end after [`Ahead::close`].
    pub(super) fn start<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        place: Place<'env>,
        threads: u32,
        jitter: Option<u64>,
        ways: Vec<Way>,
    ) {
        let Place { device, crumbs, .. } = place;
        let mut ways = ways.into_iter();
        for thread in 0..threads {
            // Lane 0 is the case's own thread.
            let lane = crumbs.lane(thread as usize + 1);
            let between = Jitter::between(jitter, thread);
            let beside = ways.next().map(|way| Beside { way: Mutex::new(Some(way)), device, client: OnceLock::new() });
            let work = move || {
                while let Some(case) = self.next() {
                    between.iter().for_each(Jitter::point);
                    // A panic is the case's own affair: it will come again in its run.
                    lane.case(&case.id);
                    let _ = catch_unwind(AssertUnwindSafe(|| prepare(&case, place, beside.as_ref(), lane, jitter)));
                    lane.case("");
                    self.lock().running.remove(&case.id);
                    self.changed.notify_all();
                }
            };
            // With fewer threads, or none, cases compile more themselves.
            if std::thread::Builder::new().name(THREAD.into()).spawn_scoped(scope, work).is_err() {
                return;
            }
        }
    }

    fn next(&self) -> Option<Case> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(case) = state.waiting.pop_front() {
                state.running.insert(case.id.clone());
                return Some(case);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Adds cases that will come.
    pub(super) fn offer(&self, cases: impl IntoIterator<Item = Case>) {
        let mut state = self.lock();
        for case in cases {
            let known = state.running.contains(&case.id) || state.waiting.iter().any(|other| other.id == case.id);
            if !known && state.waiting.len() < MAX_WAITING {
                state.waiting.push_back(case);
            }
        }
        self.changed.notify_all();
    }

    /// What is not compiled of what was offered.
    pub(super) fn unprepared(&self) -> Unprepared {
        let state = self.lock();
        Unprepared { waiting: state.waiting.len(), under_way: state.running.iter().cloned().collect() }
    }

    /// The case is about to run: takes it from the list, or waits until it is compiled.
    pub(super) fn claim(&self, id: &str) {
        let mut state = self.lock();
        state.waiting.retain(|case| case.id != id);
        while state.running.contains(id) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the threads end after what they are at; whether they are at nothing
    /// any more within a moment. What else they do is for nobody, and may last.
    pub(super) fn close(&self) -> bool {
        let mut state = self.lock();
        state.closed = true;
        state.waiting.clear();
        self.changed.notify_all();
        let at_work = |state: &mut AheadState| !state.running.is_empty();
        let waited = self.changed.wait_timeout_while(state, LAST_MOMENT, at_work);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// Ways to compiler processes, one for each thread. Fewer, if there are not so many.
pub(super) fn ways(address: &str, threads: u32) -> Vec<Way> {
    (0..threads).map_while(|_| Way::to(address).ok()).collect()
}

/// A compiler process, connected to when there is something to compile; where there is none, or another compiler than the
/// worker's own, or it went away, that.
struct Beside<'a> {
    way: Mutex<Option<Way>>,
    device: &'a Device,
    client: OnceLock<Option<CompilerClient>>,
}

impl CompileText for Beside<'_> {
    fn compile_text(&self, text: &str, name: &str, options: &NvrtcOptions) -> Result<Cubin> {
        let session = if let Device::Session { session, .. } = self.device { session.gpu() } else { None };
        let Some((_, own)) = session else { return Err(Diagnostic::bug("a text is compiled for no GPU")) };
        let way = || self.way.lock().unwrap_or_else(PoisonError::into_inner).take();
        let connect = || way()?.take().ok().filter(|client| client.has(own));
        match self.client.get_or_init(connect) {
            Some(client) if !client.is_gone() => client.compile_text(text, name, options),
            _ => own.compile_text(text, name, options),
        }
    }
}

/// Draws the inputs of a case, compiles and loads its kernels.
fn prepare(case: &Case, place: Place<'_>, beside: Option<&Beside<'_>>, lane: Lane<'_>, jitter: Option<u64>) {
    if let Some(fault) = &case.fault {
        return fault::commit_ahead(fault, lane);
    }
    let Device::Session { session, .. } = place.device else { return };
    let Ok(fusion) = pipeline::parse(case) else { return };
    args::draw_ahead(&fusion, case, place.draws);
    let Ok((metas, alignments)) = args::metas(&fusion, case) else { return };
    #[cfg(feature = "planted")]
    let lane = super::planted::Reader::new(case, lane);
    let spans = Disturbed { spans: lane, jitter: Jitter::ahead(jitter, &case.id) };
    let compiler = beside.map(|beside| beside as &dyn CompileText);
    let own = pipeline::scheduled(case, session);
    let _ = own.as_ref().unwrap_or(session).preload(&fusion, &metas, &alignments, compiler, &spans);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    fn case(id: &str) -> Case {
        Case { id: id.into(), ..Case::default() }
    }

    #[test]
    fn a_claimed_case_is_not_compiled_and_one_under_way_is_waited_for() {
        let ahead = Ahead::default();
        ahead.offer(vec![case("a"), case("b"), case("a")]);
        ahead.claim("b");
        let taken = ahead.next().expect("a case");
        assert_eq!(taken.id, "a");
        ahead.offer(vec![case("c")]);
        assert_eq!(ahead.unprepared(), Unprepared { waiting: 1, under_way: vec!["a".into()] });
        ahead.claim("c");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                done.store(true, Ordering::SeqCst);
                ahead.lock().running.remove("a");
                ahead.changed.notify_all();
            });
            ahead.claim("a");
            assert!(done.load(Ordering::SeqCst));
        });
        ahead.offer(vec![case("late")]);
        assert_eq!(ahead.next().expect("a case").id, "late");
        ahead.offer(vec![case("never")]);
        let started = Instant::now();
        assert!(!ahead.close() && started.elapsed() < Duration::from_secs(10));
        assert!(ahead.next().is_none());
        ahead.lock().running.clear();
        assert!(ahead.close());
    }
}
