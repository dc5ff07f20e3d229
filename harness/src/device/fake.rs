//! A machine of GPUs that a file describes. Cases on them run on the simulator,
//! so that everything about many GPUs, and about their loss, is tried without one.

use super::gpu::{Gpu, Nvidia};
use super::machine::{self, Happening, Machine, When};
use super::nvml::{CaseStep, Nvml, NvmlNews, Silent};
use crate::proto::DeviceSpec;
use engine::diag::Result;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The played machine.
pub(super) struct Fake {
    state: Mutex<PlayedState>,
    news: Condvar,
}

struct PlayedState {
    machine: Machine,
    /// Set when the run begins to listen.
    since: Option<Instant>,
    /// Cases that run on each GPU, and that have ended there.
    running: Vec<u64>,
    ended: Vec<u64>,
    /// Which lines of the script have happened.
    done: Vec<bool>,
    news: VecDeque<NvmlNews>,
    /// The lost GPU for which each wait fails from now on.
    deaf: Option<String>,
    /// NVML's own failure.
    failed: Option<String>,
}

impl Fake {
    pub(super) fn read(path: &Path) -> Result<Self> {
        Ok(Self::of(machine::read(path)?))
    }

    /// Whether it never answers.
    pub(super) fn is_stuck(&self) -> bool {
        self.lock().machine.stuck
    }

    fn of(machine: Machine) -> Self {
        let (running, ended) = (vec![0; machine.gpus.len()], vec![0; machine.gpus.len()]);
        let done = vec![false; machine.script.len()];
        let news = VecDeque::new();
        let state = PlayedState { machine, since: None, running, ended, done, news, deaf: None, failed: None };
        Self { state: Mutex::new(state), news: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, PlayedState> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.pass_time();
        state
    }
}

impl PlayedState {
    /// The GPU that the UUID, or one of its MIG parts' UUIDs, names.
    fn index(&self, uuid: &str) -> Option<usize> {
        let names = |gpu: &Gpu| gpu.uuid == uuid || gpu.mig_devices.iter().any(|part| part.uuid == uuid);
        self.machine.gpus.iter().position(|played| names(&played.gpu))
    }

    fn pass_time(&mut self) {
        let Some(since) = self.since else { return };
        let now = since.elapsed().as_millis() as u64;
        self.happen(|happening| matches!(happening.when, When::Millis(at) if at <= now));
    }

    fn happen(&mut self, due: impl Fn(&Happening) -> bool) {
        for at in 0..self.done.len() {
            if !self.done[at] && due(&self.machine.script[at]) {
                self.done[at] = true;
                let happening = self.machine.script[at].clone();
                self.apply(happening);
            }
        }
    }

    fn apply(&mut self, happening: Happening) {
        let played = &mut self.machine.gpus[happening.gpu];
        let gpu = &mut played.gpu;
        let more: u64 = happening.procs.iter().filter_map(|process| process.mem_bytes).sum();
        gpu.procs.get_or_insert_default().extend(happening.procs);
        gpu.mem_used_bytes = happening.used.or_else(|| Some(gpu.mem_used_bytes? + more));
        gpu.ecc_uncorrected = happening.ecc.or(gpu.ecc_uncorrected);
        if let Some(clocks) = happening.clocks {
            gpu.clock_event_reasons = clocks;
        }
        played.bad_canaries = happening.bad_canaries.unwrap_or(played.bad_canaries);
        let uuid = gpu.uuid.clone();
        if happening.lost {
            gpu.lost = Some("the GPU is lost".into());
            self.news.push_back(NvmlNews::Lost { uuid: Some(uuid.clone()) });
            self.deaf = happening.deaf.then(|| uuid.clone()).or(self.deaf.take());
        }
        self.news.extend(happening.xid.map(|code| NvmlNews::Xid { uuid, code }));
        if let Some(words) = happening.nvml {
            self.failed = Some(words.clone());
            self.news.push_back(NvmlNews::Failed(words));
        }
    }
}

impl Nvml for Fake {
    fn survey(&self) -> Nvidia {
        while self.is_stuck() {
            std::thread::park();
        }
        let state = self.lock();
        let mut found = state.machine.nvidia.clone();
        match &state.failed {
            Some(words) => found.problems.push(words.clone()),
            None => found.gpus = state.machine.gpus.iter().map(|played| played.gpu.clone()).collect(),
        }
        found
    }

    fn look(&self, uuid: &str) -> Result<Gpu, Silent> {
        let state = self.lock();
        if let Some(words) = &state.failed {
            return Err(Silent::Failed(words.clone()));
        }
        let index = state.index(uuid).ok_or_else(|| Silent::Failed(format!("there is no {uuid}")))?;
        let gpu = &state.machine.gpus[index].gpu;
        match &gpu.lost {
            Some(words) => Err(Silent::Lost(words.clone())),
            None => Ok(gpu.part(uuid).unwrap_or_else(|| gpu.clone())),
        }
    }

    fn listen(&self, uuids: &[String], tick: Duration, hear: &mut dyn FnMut(NvmlNews) -> bool) {
        self.lock().since.get_or_insert_with(Instant::now);
        loop {
            let mut state = self.lock();
            if state.news.is_empty() {
                let waited = self.news.wait_timeout(state, tick);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                state.pass_time();
            }
            // A wait for a set with such a GPU tells nothing but its loss.
            let deaf = state.deaf.clone().filter(|uuid| uuids.contains(uuid));
            let ends = deaf.is_some();
            let lost = deaf.map(|uuid| NvmlNews::Lost { uuid: Some(uuid) });
            let heard = lost.or_else(|| state.news.pop_front()).unwrap_or(NvmlNews::Nothing);
            drop(state);
            // Others' events are theirs, as in an event set.
            let ours = match &heard {
                NvmlNews::Xid { uuid, .. } | NvmlNews::Lost { uuid: Some(uuid) } => uuids.contains(uuid),
                _ => true,
            };
            let last = ends || matches!(heard, NvmlNews::Failed(_));
            if !hear(if ours { heard } else { NvmlNews::Nothing }) || last {
                return;
            }
        }
    }

    fn worker_device(&self, uuid: &str, threads: u32) -> DeviceSpec {
        let state = self.lock();
        let seen = state.index(uuid).and_then(|index| state.machine.gpus[index].seen_as.clone());
        DeviceSpec::Played { uuid: seen.unwrap_or_else(|| uuid.into()), threads, times: state.machine.times.clone() }
    }

    fn step(&self, uuid: &str, step: CaseStep<'_>) -> bool {
        let mut state = self.lock();
        let Some(index) = state.index(uuid) else { return false };
        match step {
            CaseStep::Began { .. } => state.running[index] += 1,
            CaseStep::Ended => {
                state.running[index] = state.running[index].saturating_sub(1);
                state.ended[index] += 1;
            }
        }
        let (running, ended) = (state.running[index], state.ended[index]);
        state.happen(|happening| {
            happening.gpu == index
                && match (&happening.when, step) {
                    (When::At(filter), CaseStep::Began { case_id }) => filter.matches(case_id),
                    (When::Running(n), CaseStep::Began { .. }) => *n <= running,
                    (When::Cases(n), CaseStep::Ended) => *n <= ended,
                    _ => false,
                }
        });
        let news = !state.news.is_empty();
        drop(state);
        self.news.notify_all();
        news
    }

    fn spoils_canary(&self, uuid: &str) -> bool {
        let mut state = self.lock();
        let Some(index) = state.index(uuid) else { return false };
        let left = &mut state.machine.gpus[index].bad_canaries;
        let spoils = *left > 0;
        *left = left.saturating_sub(1);
        spoils
    }

    fn is_fake(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(text: &str) -> Fake {
        Fake::of(machine::parse(text).expect("a machine"))
    }

    const TWO: &str = r#"
        [[gpu]]
        uuid = "GPU-a"
        [[gpu]]
        uuid = "GPU-b"
        bad_canaries = 1
        [[event]]
        gpu = 1
        after_cases = 2
        xid = 79
        lost = true
        [[event]]
        at = "A.slow*"
        procs = [{ pid = 7, memory = "3GiB" }]
        clocks = ["hw_slowdown"]
        xid = 13
        [[event]]
        after_cases = 1
        nvml = "the driver went away"
    "#;

    /// What is heard until the first silence.
    fn news(fake: &Fake) -> Vec<NvmlNews> {
        let mut all = Vec::new();
        let uuids = ["GPU-a".to_string(), "GPU-b".to_string()];
        fake.listen(&uuids, Duration::from_millis(1), &mut |heard| {
            let go_on = heard != NvmlNews::Nothing;
            all.push(heard);
            go_on
        });
        all.retain(|heard| *heard != NvmlNews::Nothing);
        all
    }

    #[test]
    fn the_script_happens_in_its_time() {
        let fake = machine(TWO);
        assert_eq!(news(&fake), []);
        fake.step("GPU-b", CaseStep::Began { case_id: "A.slow/1" });
        fake.step("GPU-b", CaseStep::Ended);
        assert_eq!(news(&fake), []);
        fake.step("GPU-b", CaseStep::Ended);
        let b = || "GPU-b".to_string();
        assert_eq!(news(&fake), [NvmlNews::Lost { uuid: Some(b()) }, NvmlNews::Xid { uuid: b(), code: 79 }]);
        assert!(matches!(fake.look("GPU-b"), Err(Silent::Lost(_))));
        fake.step("GPU-a", CaseStep::Began { case_id: "A.slow/1" });
        assert_eq!(news(&fake), [NvmlNews::Xid { uuid: "GPU-a".into(), code: 13 }]);
        let gpu = fake.look("GPU-a").expect("is there");
        assert_eq!((gpu.mem_used_bytes, gpu.clock_event_reasons.len()), (Some(3 << 30), 1));
        fake.step("GPU-a", CaseStep::Ended);
        assert_eq!(news(&fake), [NvmlNews::Failed("the driver went away".into())]);
        assert!(matches!(fake.look("GPU-a"), Err(Silent::Failed(_))));
        assert!(fake.survey().gpus.is_empty());
    }

    #[test]
    fn time_passes_once_the_run_listens() {
        let fake = machine("[[gpu]]\nuuid = \"GPU-a\"\n[[event]]\nafter_ms = 0\nxid = 31");
        assert_eq!(fake.survey().gpus.len(), 1);
        assert_eq!(news(&fake), [NvmlNews::Xid { uuid: "GPU-a".into(), code: 31 }]);
        assert_eq!(news(&fake), []);
    }

    #[test]
    fn canaries_fail_as_often_as_said() {
        let fake = machine(TWO);
        assert_eq!([(); 3].map(|()| fake.spoils_canary("GPU-b")), [true, false, false]);
        assert!(!fake.spoils_canary("GPU-a"));
    }
}
