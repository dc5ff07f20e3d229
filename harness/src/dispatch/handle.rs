//! One worker process: spawn, run a case, end it one way or the other.

use super::capture::Capture;
use super::fleet::Canary;
use super::home::Home;
use super::job::Job;
use super::kills::{self, Kills, Shortage, Victim};
use super::phase::Watch;
use super::postmortem::{self, Cause};
use super::worker_end::{self, Ending, LeftProcesses, WorkerEnd};
use super::{RunPlan, SlotSpec};
use crate::case::Case;
use crate::code_cache::CodeUse;
use crate::crumb::Page;
use crate::evidence::gpu_core;
use crate::evidence::sanitizer::Sanitizer;
use crate::frame::{Broken, Receiver, send, send_after};
use crate::os;
use crate::os::area::Area;
use crate::outcome::{Death, Outcome, WorkerOutput, clip};
use crate::proto::{CanaryResult, FromWorker, Order, PROTOCOL, ToWorker, Unprepared};
use rustix::process::Signal;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Opening a device may take this long: four CUDA initialisations at once take
/// seconds, a cold driver longer.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// A canary compiles and runs one small kernel.
const CANARY_LIMIT: Duration = Duration::from_secs(60);
/// A dead process is reaped within this, or it is unkillable.
const REAP_LIMIT: Duration = Duration::from_secs(10);
/// How often a stop request is looked for.
const TICK: Duration = Duration::from_millis(50);
/// A process whose socket is closed is about to end by itself: within this.
const END_LIMIT: Duration = Duration::from_secs(2);
/// An orderly end may take this many times the grace of a hanging worker.
const ORDERLY: u32 = 5;
/// What Rust's and C++'s allocators say before they abort.
const NO_MEMORY: [&str; 2] = ["memory allocation of ", "std::bad_alloc"];
/// Why nothing more is waited for.
const GIVEN_UP: &str = "the run is being stopped, or the device is gone";
const PRIOR_CASES: usize = 50;
/// The signal by which the harness ends workers.
const KILLED: i32 = Signal::KILL.as_raw();
/// A tool that has seen its worker end writes its report within this.
const SANITIZER_END: Duration = Duration::from_secs(60);
/// Bytes of a worker's output that a record holds.
const TAIL: usize = 4096;
/// What a worker inherits of the environment.
const ENV_ALLOWED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "RUST_BACKTRACE",
    "VIRTUAL_ENV",
    "SYSTEMROOT",
    #[cfg(feature = "planted")]
    crate::worker::planted_times::VARIABLE,
];

/// A live worker.
pub(super) struct Worker {
    pub(super) id: String,
    child: Child,
    /// How it ended. From then on its number may be another process's.
    ended: Option<ExitStatus>,
    /// Its private folder.
    home: Arc<Home>,
    /// The GPU that it has, if any.
    gpu: Option<String>,
    /// The worker's own process, which is not the child where a tool runs it.
    process: u32,
    receiver: Receiver,
    page: Arc<Page>,
    area: Area,
    stdout: Capture,
    stderr: Capture,
    /// What the worker wrote during the last attempt, if that failed.
    pub(super) output: WorkerOutput,
    /// It could not be killed, and is not waited for a second time.
    abandoned: bool,
    /// The last cases that it ran, the newest last.
    prior: VecDeque<String>,
    /// How it ended between two cases.
    pub(super) ending: Option<Ending>,
    /// What was known of the kernel's kills for memory when the case began.
    kills: Kills,
    /// Its control group when it had ended, if it is known.
    group: Option<String>,
    /// The most memory that it had, in bytes.
    peak: Option<u64>,
    pub(super) cases_run: u64,
    /// What it said last that it shared of compiled kernels.
    code: Option<CodeUse>,
    /// What it had not prepared, as far as is known.
    pub(super) unprepared: Unprepared,
    pub(super) ready_ns: u64,
    pub(super) device: String,
    pub(super) notes: Vec<String>,
}

/// Why there is no worker.
pub(super) enum NoWorker {
    /// Worth another try.
    Failed(String),
    /// The device itself was refused, with a diagnostic code.
    Unusable(String, String),
    /// The worker sees another GPU than the slot's.
    Unpinned(String),
}

/// Asked now and then whether waiting has lost its sense.
type GiveUp<'g> = &'g dyn Fn() -> bool;

/// The worker's next message before `deadline`; `Err(None)` if `give_up` says so first.
fn receive(receiver: &mut Receiver, deadline: Instant, give_up: GiveUp) -> Result<FromWorker, Option<Broken>> {
    loop {
        match receiver.next(Some((Instant::now() + TICK).min(deadline))) {
            Err(Broken::Timeout) if give_up() => return Err(None),
            Err(Broken::Timeout) if Instant::now() < deadline => {}
            other => return other.map_err(Some),
        }
    }
}

/// How an attempt went.
pub(super) enum Attempt {
    /// The worker ended the case; whether the worker should be replaced.
    Ended(Outcome, bool),
    /// The worker is gone.
    Lost(Outcome, Box<Death>),
    /// The worker was gone before the case began: nobody's fault yet, unless a
    /// thread died that worked for another case.
    NotBegun(String, Option<(Outcome, Box<Death>)>),
    /// The result would be void, whatever it is: the device is to blame.
    Void(Outcome),
    /// The run is being stopped.
    Stopped,
}

/// What a worker of the slot is told first.
fn init(slot: &SlotSpec, plan: &RunPlan, compilers: Option<&str>) -> ToWorker {
    ToWorker::Init {
        device: slot.device.clone(),
        knobs: plan.knobs.clone(),
        sharers: plan.slots.iter().filter(|other| other.device == slot.device).count() as u32,
        sanitized: plan.sanitizer.is_some(),
        compilers: compilers.map(String::from),
    }
}

/// An attempt that is under way.
struct Running<'c> {
    job: &'c Job,
    plan: &'c RunPlan,
    /// Asked now and then whether the result could count at all.
    void: &'c dyn Fn() -> Option<Outcome>,
    /// Time that the case may take, and when that is over.
    limit: Duration,
    deadline: Instant,
    watch: Watch<'c>,
    begun: bool,
    /// When the worker is ended although the case has not, since the run is stopped.
    stop_at: Option<Instant>,
}

impl<'c> Running<'c> {
    /// It begins now.
    fn new(job: &'c Job, plan: &'c RunPlan, void: &'c dyn Fn() -> Option<Outcome>) -> Self {
        let own = job.case.timeout_ms.map(Duration::from_millis);
        let usual = own.unwrap_or(plan.default_timeout);
        let usual = plan.sanitizer.as_ref().map_or(usual, |tool| tool.scaled(usual));
        let limit = plan.forced_timeout.unwrap_or(usual);
        let (now, watch) = (Instant::now(), Watch::new(&plan.phase_limits, Instant::now()));
        Self { job, plan, void, limit, deadline: now + limit, watch, begun: false, stop_at: None }
    }
}

impl Worker {
    /// Spawns from the calling thread, which must outlive the worker. `spawned`
    /// hears of the process before anything is asked of it. `give_up` ends the
    /// wait for a device that opens slowly. `compilers` is where it reaches compiler
    /// processes.
    pub(super) fn spawn(
        id: String,
        slot: &SlotSpec,
        plan: &RunPlan,
        compilers: Option<&str>,
        give_up: GiveUp,
        spawned: impl FnOnce(u32, Arc<Page>),
    ) -> Result<Self, NoWorker> {
        let failed = |what: &str, error: io::Error| NoWorker::Failed(format!("{what}: {error}"));
        let start = Instant::now();
        let (ours, theirs) = UnixStream::pair().map_err(|e| failed("cannot make a socket", e))?;
        let _ = ours.set_write_timeout(Some(Duration::from_secs(10)));
        let page = Page::create().map_err(|e| failed("cannot make a breadcrumb page", e))?;
        let home = Home::make(&plan.work_dir, &id).map_err(|e| failed("cannot prepare a worker", e))?;
        let mut command = command(&id, &home, slot, plan).map_err(|e| failed("cannot prepare a worker", e))?;
        let area = Area::create().map_err(|e| failed("cannot make an area for evidence", e))?;
        let fds = [theirs.as_raw_fd(), page.raw_fd(), area.raw_fd()];
        for (option, fd) in ["--fd", "--crumb-fd", "--evidence-fd"].iter().zip(fds) {
            command.arg(option).arg(fd.to_string());
        }
        let mut child =
            worker_end::spawn(&mut command, &fds, plan.memory).map_err(|e| failed("cannot start a worker", e))?;
        drop(theirs);
        let drained =
            Capture::start(child.stdout.take()).and_then(|stdout| Ok((stdout, Capture::start(child.stderr.take())?)));
        let (stdout, stderr) = drained.map_err(|error| {
            os::signal_group(&child, Signal::KILL);
            let _ = child.wait();
            failed("cannot read what a worker writes", error)
        })?;
        let mut worker = Self {
            id,
            child,
            ended: None,
            home: Arc::new(home),
            gpu: slot.gpu.as_ref().map(|gpu| gpu.uuid.clone()),
            process: 0,
            receiver: Receiver::new(ours),
            page: Arc::new(page),
            area,
            stdout,
            stderr,
            output: WorkerOutput::default(),
            abandoned: false,
            prior: VecDeque::new(),
            ending: None,
            kills: Kills::default(),
            group: None,
            peak: None,
            cases_run: 0,
            code: None,
            unprepared: Unprepared::default(),
            ready_ns: 0,
            device: String::new(),
            notes: Vec::new(),
        };
        spawned(worker.pid(), Arc::clone(&worker.page));
        worker.handshake(slot, &init(slot, plan, compilers), start + READY_LIMIT, give_up)?;
        worker.ready_ns = start.elapsed().as_nanos() as u64;
        Ok(worker)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn handshake(
        &mut self,
        slot: &SlotSpec,
        init: &ToWorker,
        deadline: Instant,
        give_up: GiveUp,
    ) -> Result<(), NoWorker> {
        let mut result = send(self.receiver.stream(), init).map_err(|error| error.to_string());
        while result.is_ok() {
            match receive(&mut self.receiver, deadline, give_up) {
                Ok(FromWorker::Hello { proto: PROTOCOL, pid }) => self.process = pid,
                Ok(FromWorker::Ready { device, uuid, notes }) => {
                    (self.device, self.notes) = (device, notes);
                    return self.pinned(slot, uuid.as_deref());
                }
                Ok(FromWorker::Unusable { code, message }) => {
                    self.kill();
                    return Err(NoWorker::Unusable(code, message));
                }
                Ok(other) => result = Err(format!("unexpected message {other:?}")),
                Err(None) => result = Err(GIVEN_UP.into()),
                Err(Some(Broken::Timeout)) => result = Err("the device was not opened in time".into()),
                Err(Some(Broken::Eof)) => result = Err("the worker ended before it was ready".into()),
                Err(Some(Broken::Garbage(what))) => result = Err(what),
            }
        }
        let crumb = self.page.read();
        let status = self.kill();
        let mut death = Death { crumb, ..Death::default() };
        postmortem::fill(&mut death, status);
        let stderr = self.stderr.at_end(Duration::from_millis(200)).tail(1000);
        let how = death.signal.map_or_else(|| format!("{:?}", death.exit_code), |signal| signal.to_uppercase());
        Err(NoWorker::Failed(format!("{} ({how}) {}", result.err().unwrap_or_default(), stderr.trim())))
    }

    /// The worker must see the GPU that the slot means, and no other.
    fn pinned(&mut self, slot: &SlotSpec, seen: Option<&str>) -> Result<(), NoWorker> {
        let Some(gpu) = &slot.gpu else { return Ok(()) };
        // The two print the same bytes, a MIG device with another prefix.
        let bytes = |uuid: &str| uuid.trim_start_matches("GPU-").trim_start_matches("MIG-").to_ascii_lowercase();
        if seen.is_some_and(|seen| bytes(seen) == bytes(&gpu.uuid)) {
            return Ok(());
        }
        self.kill();
        let seen = seen.unwrap_or("no GPU");
        Err(NoWorker::Unpinned(format!("the worker was pinned to {} and CUDA shows it {seen}", gpu.uuid)))
    }

    /// Has coming cases compiled ahead. A worker that cannot be told will be
    /// found out by the next case.
    pub(super) fn prepare<'c>(&mut self, cases: impl Iterator<Item = &'c Case>) {
        let cases: Vec<&Case> = cases.collect();
        if !cases.is_empty() {
            self.unprepared.waiting += cases.len();
            let _ = send(self.receiver.stream(), &Order::Ahead { cases });
        }
    }

    /// Has the worker run its canary. An error says why that came to no end; the worker is
    /// killed then.
    pub(super) fn run_canary(&mut self, canary: Canary, give_up: GiveUp) -> Result<CanaryResult, String> {
        let sent = send(self.receiver.stream(), &ToWorker::Canary { spoil: canary == Canary::Spoilt });
        let result = match sent.map_err(|error| error.to_string()) {
            Err(error) => Err(error),
            Ok(()) => match receive(&mut self.receiver, Instant::now() + CANARY_LIMIT, give_up) {
                Ok(FromWorker::Canary(result)) => return Ok(result),
                Ok(other) => Err(clip(format!("unexpected message {other:?}"), 300)),
                Err(None) => Err(GIVEN_UP.into()),
                Err(Some(Broken::Timeout)) => Err(format!("no end within {} s", CANARY_LIMIT.as_secs())),
                Err(Some(Broken::Eof)) => Err("the worker died of it".into()),
                Err(Some(Broken::Garbage(what))) => Err(what),
            },
        };
        self.kill();
        result
    }

    /// Runs one case. `waits` is called before anything is waited for, as a rule when
    /// the worker has the case; `void` is asked now and then whether the result could
    /// count at all.
    pub(super) fn run(
        &mut self,
        job: &Job,
        plan: &RunPlan,
        waits: &dyn Fn(),
        void: &dyn Fn() -> Option<Outcome>,
    ) -> Attempt {
        self.stdout.mark();
        self.stderr.mark();
        self.kills = Kills::before();
        let message = Order::Run {
            case: &*job.case,
            attempt: job.attempt,
            repeat: job.repeat,
            seed: job.seed,
            mode: plan.mode,
            bless: plan.bless,
            // A retry is a second opinion, also on what is right.
            known: plan.verified.as_ref().filter(|_| job.attempt == 0).and_then(|verified| verified.known(&job.case)),
        };
        let sent = send_after(self.receiver.stream(), &message, waits);
        waits();
        if let Err(error) = sent {
            return self.lost_before(format!("the worker was gone: {error}"), plan);
        }
        let mut running = Running::new(job, plan, void);
        loop {
            let tick = (Instant::now() + TICK).min(running.deadline);
            let message = self.receiver.next(Some(tick));
            if let Some(attempt) = self.on_message(&mut running, message) {
                return attempt;
            }
        }
    }

    /// Something of the case was heard, or nothing for a while. What the attempt came
    /// to, once that is known.
    fn on_message(&mut self, running: &mut Running<'_>, message: Result<FromWorker, Broken>) -> Option<Attempt> {
        let Running { job, plan, begun, .. } = *running;
        let over = running.watch.look(&self.page, Instant::now());
        if let (true, Some(over), Err(Broken::Timeout)) = (begun, over, &message) {
            return Some(self.post_mortem(Cause::Hung { limit: over.limit, phase: Some(over.name.clone()) }, plan));
        }
        let same = |case_id: &str, attempt: u32| case_id == job.case.id && attempt == job.attempt;
        Some(match message {
            Ok(FromWorker::Begin { case_id, attempt }) if !begun && same(&case_id, attempt) => {
                running.begun = true;
                return None;
            }
            Ok(FromWorker::End { case_id, attempt, outcome, tainted, code, unprepared })
                if begun && same(&case_id, attempt) =>
            {
                (self.code, self.unprepared) = (code, unprepared);
                self.count_case(case_id);
                if let Some(verified) = &plan.verified {
                    verified.learn(&job.case, &outcome);
                }
                self.ended(*outcome, tainted, plan, running.void)
            }
            Err(Broken::Timeout) => return self.on_silence(running),
            Err(Broken::Eof) if !begun => self.lost_before("the worker died between two cases".into(), plan),
            // What comes before `begin` is not of this case.
            Err(Broken::Garbage(what)) if !begun => self.protocol_broken(what),
            Ok(other) if !begun => self.protocol_broken(format!("unexpected message {other:?}")),
            Err(Broken::Eof) => self.post_mortem(Cause::Died, plan),
            Err(Broken::Garbage(what)) => self.post_mortem(Cause::Protocol(what), plan),
            Ok(other) => self.post_mortem(Cause::Protocol(clip(format!("unexpected message {other:?}"), 300)), plan),
        })
    }

    /// Nothing was heard for a while: whether waiting still has a sense.
    fn on_silence(&mut self, running: &mut Running<'_>) -> Option<Attempt> {
        let Running { plan, limit, deadline, void, .. } = *running;
        if Instant::now() >= deadline {
            return Some(self.post_mortem(Cause::Hung { limit, phase: None }, plan));
        }
        let attempt = match plan.stop.load(Ordering::Relaxed) {
            0 => Attempt::Void(void()?),
            _ => {
                // A case that is about to end may do so.
                let end = *running.stop_at.get_or_insert_with(|| Instant::now() + plan.grace);
                (Instant::now() >= end).then_some(Attempt::Stopped)?
            }
        };
        self.kill();
        Some(attempt)
    }

    /// The worker has ended the case.
    fn ended(
        &mut self,
        outcome: Outcome,
        tainted: bool,
        plan: &RunPlan,
        void: &dyn Fn() -> Option<Outcome>,
    ) -> Attempt {
        let outcome = match &plan.sanitizer {
            Some(tool) if self.wait_for_report(plan, void) => tool.judge(self.home.path(), outcome),
            Some(_) => return void().map_or(Attempt::Stopped, Attempt::Void),
            None => outcome,
        };
        if outcome.verdict.is_failure() {
            let (stdout, stderr) = (self.stdout.so_far(), self.stderr.so_far());
            self.output = WorkerOutput { stdout, stderr, files: self.files() };
        }
        Attempt::Ended(outcome, tainted)
    }

    /// Notes a case that has ended.
    fn count_case(&mut self, case_id: String) {
        self.cases_run += 1;
        if self.prior.len() == PRIOR_CASES {
            self.prior.pop_front();
        }
        self.prior.push_back(case_id);
    }

    /// It broke the protocol before the case began: by an earlier one.
    fn protocol_broken(&mut self, what: String) -> Attempt {
        let what = clip(what, 300);
        self.ending = Some(Ending::Broke(what.clone()));
        Attempt::NotBegun(format!("the worker broke the protocol between two cases: {what}"), None)
    }

    /// The worker died before the case began.
    fn lost_before(&mut self, why: String, plan: &RunPlan) -> Attempt {
        let Attempt::Lost(outcome, death) = self.post_mortem(Cause::Died, plan) else {
            return Attempt::NotBegun(why, None);
        };
        // Without a status of its own it lived on and was killed just now.
        if death.signal.is_some() || death.exit_code.is_some() {
            self.ending = self.ended.map(Ending::Exited);
        }
        let why = format!("{why}: {}", outcome.detail.lines().next().unwrap_or_default());
        Attempt::NotBegun(why, (death.crumb.lane > 0).then_some((outcome, death)))
    }

    /// Has the tool around the worker write its report, which is complete when the
    /// worker has ended. False if the run is stopped or the result void before.
    fn wait_for_report(&mut self, plan: &RunPlan, void: &dyn Fn() -> Option<Outcome>) -> bool {
        let _ = send(self.receiver.stream(), &ToWorker::Drain);
        let deadline = Instant::now() + SANITIZER_END;
        let mut stop_at = None;
        while self.wait(TICK).is_none() {
            let now = Instant::now();
            let stopped = plan.stop.load(Ordering::Relaxed) != 0;
            let cut = void().is_some() || (stopped && now >= *stop_at.get_or_insert(now + plan.grace));
            if cut || now >= deadline {
                self.kill();
                return !cut;
            }
        }
        true
    }

    /// Files of the worker that are evidence.
    fn files(&self) -> Vec<PathBuf> {
        let report = Sanitizer::report(self.home.path());
        let mut files = gpu_core::collect(self.home.path());
        files.extend(report.is_file().then_some(report));
        files
    }

    /// The case did not end: collect the evidence, end the worker.
    fn post_mortem(&mut self, cause: Cause, plan: &RunPlan) -> Attempt {
        let mut death = Death { crumb: self.page.case(), ..Death::default() };
        let status = match &cause {
            Cause::Hung { limit, .. } => {
                let gpu = self.gpu.as_deref();
                let gpu = gpu.and_then(|uuid| Some((plan.nvml.as_deref()?, uuid)));
                postmortem::hang(&mut death, self.process, gpu, *limit, &self.page, &self.area, &plan.worker_exe);
                death.gpu_core = gpu_core::poke(self.home.path()).map(|dumped| match dumped {
                    Ok(file) => file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                    Err(why) => why,
                });
                self.terminate(plan.grace)
            }
            // A status of its own is worth waiting for: a driver's part of the exit may take long.
            Cause::Died => {
                self.wait(END_LIMIT).or_else(|| self.kill().filter(|status| status.signal() != Some(KILLED)))
            }
            Cause::Protocol(_) => self.kill(),
        };
        death.unkillable = self.wait(Duration::ZERO).is_none();
        if death.unkillable {
            death.proc_state = postmortem::proc_state(self.pid());
        }
        if matches!(cause, Cause::Died) {
            postmortem::fill(&mut death, status);
            postmortem::crash(&mut death, &self.area, &self.page, &plan.worker_exe);
            death.gpu_core = gpu_core::dump(self.home.path());
            if plan.sanitizer.is_some() && death.caught.is_some() {
                // The tool ends with a code of its own.
                (death.signal, death.exit_code) = (death.caught.clone(), None);
            }
        }
        if death.signal.as_deref() == Some("sigkill") {
            let (group, peak) = (self.group.take(), self.peak);
            let victim = Victim { pids: [self.pid(), self.process], group, peak };
            let Shortage { killed, note } = self.kills.judge(&victim);
            (death.oom_killed, death.oom_note) = (killed, note);
        }
        self.collect_output(&mut death);
        let outcome = postmortem::outcome(&cause, &death);
        let outcome = match &plan.sanitizer {
            Some(tool) => tool.judge(self.home.path(), outcome),
            None => outcome,
        };
        Attempt::Lost(outcome, Box::new(death))
    }

    /// Takes what it printed, and says what that and the cases before tell of its death.
    fn collect_output(&mut self, death: &mut Death) {
        let wait = Duration::from_millis(200);
        let (stdout, stderr) = (self.stdout.at_end(wait), self.stderr.at_end(wait));
        self.output = WorkerOutput { stdout, stderr, files: self.files() };
        let stderr = self.output.stderr.bytes();
        let stderr = String::from_utf8_lossy(&stderr);
        death.no_memory = NO_MEMORY.iter().any(|text| stderr.contains(text));
        death.stderr_tail = self.output.stderr.tail(TAIL);
        death.stdout_tail = self.output.stdout.tail(TAIL);
        death.prior_cases = self.prior.iter().cloned().collect();
    }

    /// TERM, a moment of grace, KILL; never waits for a child that cannot die.
    fn terminate(&mut self, grace: Duration) -> Option<ExitStatus> {
        if self.wait(Duration::ZERO).is_none() {
            os::signal_group(&self.child, Signal::TERM);
        }
        self.wait(grace).or_else(|| self.kill())
    }

    /// Kills the worker with its whole group.
    fn kill(&mut self) -> Option<ExitStatus> {
        if self.ended.is_some() {
            return self.ended;
        }
        os::signal_group(&self.child, Signal::KILL);
        let limit = if self.abandoned { Duration::ZERO } else { REAP_LIMIT };
        let status = self.wait(limit);
        self.abandoned = status.is_none();
        status
    }

    /// How it ended, if that is within the time.
    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        let mut pause = Duration::from_micros(200);
        loop {
            let (group, peak) = (&mut self.group, &mut self.peak);
            let look = |child: &Child| (*group, *peak) = (kills::group_of(child.id()), os::peak_memory(child));
            self.ended = self.ended.or_else(|| worker_end::reap(&mut self.child, look));
            if self.ended.is_some() {
                return self.ended;
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    /// Lets a healthy worker go.
    pub(super) fn retire(mut self, plan: &RunPlan) -> WorkerEnd {
        let told = Instant::now();
        let _ = send(self.receiver.stream(), &ToWorker::Drain);
        let limit = plan.grace * ORDERLY;
        let deadline = Instant::now() + limit;
        let said = self.receiver.next::<FromWorker>(Some(deadline));
        if let Ok(FromWorker::Bye { code, .. }) = &said {
            self.code.clone_from(code);
        }
        let ending = match said {
            Ok(FromWorker::Bye { .. }) | Err(Broken::Eof) => match self.wait(limit) {
                Some(status) => Ending::Exited(status),
                None => Ending::Hung(limit),
            },
            Err(Broken::Timeout) => Ending::Hung(limit),
            Err(Broken::Garbage(what)) => Ending::Broke(what),
            Ok(other) => Ending::Broke(clip(format!("unexpected message {other:?}"), 300)),
        };
        self.ending = Some(ending);
        let going_ns = told.elapsed().as_nanos() as u64;
        WorkerEnd { going_ns: Some(going_ns), ..self.dismiss(plan) }
    }

    /// What is to be told about a worker that has ended, or is to be killed now:
    /// how it ended, where that was between two cases, and what it left behind.
    pub(super) fn dismiss(mut self, plan: &RunPlan) -> WorkerEnd {
        let mut worker_end = WorkerEnd { code: self.code.take(), ..WorkerEnd::default() };
        if let Some(ending) = self.ending.take() {
            let mut death = Death { crumb: self.page.read(), ..Death::default() };
            if let Ending::Exited(status) = &ending {
                postmortem::fill(&mut death, Some(*status));
                postmortem::crash(&mut death, &self.area, &self.page, &plan.worker_exe);
            }
            self.kill();
            if worker_end::crashed(&ending) {
                self.collect_output(&mut death);
                worker_end.crash = Some(Box::new((postmortem::teardown(&ending, &death), death)));
            }
        }
        self.kill();
        let well = self.ended.is_some_and(|status| status.success());
        let LeftProcesses { own, unclear } = worker_end::left_by(self.pid(), &self.id, well);
        (worker_end.leaks, worker_end.unclear) = (own, unclear);
        worker_end.home = Some(self.home.clone());
        worker_end
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        match self.kill() {
            Some(_) => worker_end::over(self.pid()),
            None => self.home.keep(),
        }
    }
}

fn command(id: &str, home: &Home, slot: &SlotSpec, plan: &RunPlan) -> io::Result<Command> {
    let mut command = match &plan.sanitizer {
        Some(tool) if slot.gpu.is_some() => tool.command(&plan.worker_exe, home.path()),
        _ => Command::new(&plan.worker_exe),
    };
    if plan.sanitizer.is_none() {
        command.arg0("harness-worker");
    }
    command.arg("__worker");
    inherit_env(&mut command);
    command.envs(home.variables());
    command.env("HARNESS_WORKER", id).env("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    if slot.gpu.is_some() {
        command.envs(plan.core_dump.env(home.path())?);
    }
    command.envs(slot.env.iter().map(|(key, value)| (key, value)));
    command.current_dir(home.path());
    Ok(command)
}

/// Leaves of the environment what a process of ours may know.
pub(super) fn inherit_env(command: &mut Command) {
    command.env_clear();
    for key in ENV_ALLOWED {
        if let Some(value) = std::env::var_os(key) {
            command.env(key, value);
        }
    }
    command.env("HARNESS", "1");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_worker_ends_when_it_has_lost_its_sense() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut receiver = Receiver::new(ours);
        let far = Instant::now() + Duration::from_secs(60);
        assert!(matches!(receive(&mut receiver, far, &|| true), Err(None)));
        let near = Instant::now() + 2 * TICK;
        assert!(matches!(receive(&mut receiver, near, &|| false), Err(Some(Broken::Timeout))));
        assert!(Instant::now() >= near && Instant::now() < far);
        send(&theirs, &FromWorker::Bye { cases_run: 1, code: None }).expect("sends");
        // What has come is heard, even then.
        assert!(matches!(receive(&mut receiver, far, &|| true), Ok(FromWorker::Bye { cases_run: 1, code: None })));
        drop(theirs);
        assert!(matches!(receive(&mut receiver, far, &|| false), Err(Some(Broken::Eof))));
    }
}
