//! NVML with a limit on the time for which its answers are waited for: in a driver
//! that is stuck a call may never return, and the run must end all the same.
//!
//! Questions are asked on threads of their own. One that does not return is left
//! alone; until it does, nothing more is asked of its GPU, so that at most one
//! thread for each GPU, and one for the events, is lost, and one for the survey.

use super::gpu::{Gpu, Nvidia};
use super::nvml::{CaseStep, Nvml, NvmlNews, Silent};
use crate::proto::DeviceSpec;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A well driver answers within milliseconds, one that wakes a GPU within a second.
const PATIENCE: Duration = Duration::from_secs(2);
/// The first question opens the driver, which initialises each GPU that nobody has
/// open: seconds for each, one after the other.
const OPENING: Duration = Duration::from_secs(60);

type Answer = Result<Gpu, Silent>;

/// NVML that may not answer.
pub(super) struct Patient {
    inner: Arc<dyn Nvml>,
    patience: Duration,
    /// The same for all GPUs at once, at the start.
    opening: Duration,
    /// Questions without an answer, by GPU.
    open: Mutex<BTreeMap<String, Receiver<Answer>>>,
    /// Holds a sender while a thread waits for events.
    events: Mutex<Option<Receiver<()>>>,
}

fn no_answer(patience: Duration) -> String {
    format!("no answer within {} s", patience.as_secs_f64())
}

/// All GPUs, or why there are none: a start must not wait for ever for a driver that is
/// stuck. What it then was at is what hangs.
pub(super) fn survey(inner: &Arc<dyn Nvml>, limit: Duration) -> Nvidia {
    let problem = |why: String| Nvidia { problems: vec![why], ..Nvidia::default() };
    let (sender, answer) = sync_channel(1);
    let asked = inner.clone();
    let ask = move || drop(sender.send(asked.survey()));
    if let Err(error) = std::thread::Builder::new().name("nvml-survey".into()).spawn(ask) {
        return problem(format!("no thread can be started to ask NVML: {error}"));
    }
    match answer.recv_timeout(limit) {
        Ok(found) => found,
        // It panicked.
        Err(RecvTimeoutError::Disconnected) => problem("NVML gave no answer".into()),
        Err(RecvTimeoutError::Timeout) => problem(format!(
            "the driver hangs: NVML gave {} while {}; the kernel's log (`dmesg`) may say why, and a reset of the GPU or \
             of the machine may help",
            no_answer(limit),
            inner.doing()
        )),
    }
}

impl Patient {
    pub(super) fn new(inner: Arc<dyn Nvml>) -> Self {
        Self { inner, patience: PATIENCE, opening: OPENING, open: Mutex::default(), events: Mutex::default() }
    }

    /// For a played driver that hangs: nothing is gained by waiting long for it.
    pub(super) fn hasty(inner: Arc<dyn Nvml>) -> Self {
        Self { opening: PATIENCE, ..Self::new(inner) }
    }

    /// Whether the thread that waited for events last is still stuck in its wait.
    fn is_stuck(&self) -> bool {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.as_ref().is_some_and(|thread| thread.try_recv() == Err(TryRecvError::Empty))
    }
}

impl Nvml for Patient {
    fn survey(&self) -> Nvidia {
        survey(&self.inner, self.opening)
    }

    fn doing(&self) -> String {
        self.inner.doing()
    }

    fn look(&self, uuid: &str) -> Answer {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.get(uuid).is_some_and(|last| last.try_recv() == Err(TryRecvError::Empty)) {
            return Err(Silent::Failed("it has not answered the last question".into()));
        }
        open.remove(uuid);
        drop(open);
        let (sender, answer) = sync_channel(1);
        let (inner, asked) = (self.inner.clone(), uuid.to_string());
        let ask = move || drop(sender.send(inner.look(&asked)));
        if let Err(error) = std::thread::Builder::new().name("nvml-look".into()).spawn(ask) {
            return Err(Silent::Failed(format!("no thread can be started to ask: {error}")));
        }
        match answer.recv_timeout(self.patience) {
            Ok(answer) => answer,
            Err(_) => {
                let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
                open.insert(uuid.to_string(), answer);
                Err(Silent::Failed(no_answer(self.patience)))
            }
        }
    }

    fn listen(&self, uuids: &[String], tick: Duration, hear: &mut dyn FnMut(NvmlNews) -> bool) {
        if self.is_stuck() {
            hear(NvmlNews::Failed("the last wait for events has not ended".into()));
            return;
        }
        let (sender, news) = sync_channel(1);
        let (alive, thread) = sync_channel::<()>(1);
        let (inner, uuids) = (self.inner.clone(), uuids.to_vec());
        let wait = move || {
            let _alive = alive;
            inner.listen(&uuids, tick, &mut |heard| sender.send(heard).is_ok());
        };
        if let Err(error) = std::thread::Builder::new().name("nvml-events".into()).spawn(wait) {
            hear(NvmlNews::Failed(format!("no thread can be started to listen: {error}")));
            return;
        }
        *self.events.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        loop {
            let heard = match news.recv_timeout(tick + self.patience) {
                Ok(heard) => heard,
                Err(RecvTimeoutError::Timeout) => NvmlNews::Failed(no_answer(self.patience)),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let last = matches!(heard, NvmlNews::Failed(_));
            if !hear(heard) || last {
                return;
            }
        }
    }

    fn worker_device(&self, uuid: &str, threads: u32) -> DeviceSpec {
        self.inner.worker_device(uuid, threads)
    }

    fn step(&self, uuid: &str, step: CaseStep<'_>) -> bool {
        self.inner.step(uuid, step)
    }

    fn spoils_canary(&self, uuid: &str) -> bool {
        self.inner.spoils_canary(uuid)
    }

    fn is_fake(&self) -> bool {
        self.inner.is_fake()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    /// A driver that is stuck: no call returns while somebody holds the lock.
    #[derive(Default)]
    struct Stuck {
        lock: Mutex<()>,
        asked: AtomicUsize,
    }

    impl Stuck {
        fn wait(&self) {
            self.asked.fetch_add(1, Ordering::SeqCst);
            drop(self.lock.lock());
        }
    }

    impl Nvml for Stuck {
        fn survey(&self) -> Nvidia {
            self.wait();
            Nvidia { gpus: vec![Gpu::default()], ..Nvidia::default() }
        }
        fn doing(&self) -> String {
            "GPU 3 was read".into()
        }
        fn look(&self, uuid: &str) -> Answer {
            self.wait();
            Ok(Gpu { uuid: uuid.into(), ..Gpu::default() })
        }
        fn listen(&self, _: &[String], _: Duration, hear: &mut dyn FnMut(NvmlNews) -> bool) {
            while hear(NvmlNews::Nothing) {
                self.wait();
            }
        }
        fn worker_device(&self, _: &str, _: u32) -> DeviceSpec {
            DeviceSpec::Reference
        }
    }

    /// On a busy machine a well driver's thread may take a while to be heard.
    fn patient(stuck: &Arc<Stuck>) -> Patient {
        let patience = Duration::from_millis(700);
        Patient { patience, opening: patience, ..Patient::new(stuck.clone()) }
    }

    /// What is heard until the listening ends, at most so much.
    fn heard(nvml: &Patient, most: usize) -> Vec<NvmlNews> {
        let mut all = Vec::new();
        nvml.listen(&["GPU-a".into()], Duration::from_millis(1), &mut |heard| {
            all.push(heard);
            all.len() < most
        });
        all
    }

    #[test]
    fn a_stuck_driver_is_not_waited_for() {
        let stuck = Arc::new(Stuck::default());
        let nvml = patient(&stuck);
        let held = stuck.lock.lock().expect("free");
        let started = Instant::now();
        assert!(nvml.look("GPU-a").is_err());
        for _ in 0..100 {
            assert!(nvml.look("GPU-a").is_err());
        }
        assert_eq!(stuck.asked.load(Ordering::SeqCst), 1, "not asked again");
        assert!(nvml.look("GPU-b").is_err(), "each GPU is asked once");
        assert_eq!(stuck.asked.load(Ordering::SeqCst), 2);
        assert!(matches!(&heard(&nvml, 100)[..], [NvmlNews::Nothing, NvmlNews::Failed(_)]));
        assert!(matches!(&heard(&nvml, 100)[..], [NvmlNews::Failed(_)]));
        assert_eq!(stuck.asked.load(Ordering::SeqCst), 3);
        let found = nvml.survey();
        assert!(found.gpus.is_empty() && found.problems[0].contains("no answer within 0.7 s while GPU 3 was read"));
        assert!(started.elapsed() < Duration::from_secs(30));
        drop(held);
        // Once it answers again it is asked again.
        let deadline = Instant::now() + Duration::from_secs(10);
        while nvml.look("GPU-a").is_err() || nvml.is_stuck() {
            assert!(Instant::now() < deadline, "it answers");
        }
        assert_eq!(nvml.look("GPU-a").map(|gpu| gpu.uuid), Ok("GPU-a".into()));
        assert_eq!((nvml.survey().gpus.len(), nvml.survey().problems), (1, vec![]));
        assert_eq!(heard(&nvml, 5), vec![NvmlNews::Nothing; 5]);
    }
}
