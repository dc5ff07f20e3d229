//! Two faults of the kind that a test suite has by accident, to try the harness
//! on: only in builds with the feature `planted`, never by default.
//!
//! *A race*: each case sets a process-wide option when it starts and puts it back
//! when it ends, as a test fixture may; the old storage is freed. A compile thread that looked the
//! option up when it began to schedule and uses it when it lowers reads freed
//! memory if a case started or ended meanwhile. Only [`RACER`] reads it, only threads that
//! compile ahead can be in between.
//!
//! *A job that outlives its owner*: [`POLLUTER`] gives a job to a thread that is
//! there from the start, as a library's are. The job goes on after the case and
//! writes into a buffer that is lent to one case after the other; the results of
//! [`VICTIM`] pass through that buffer.

use crate::case::Case;
use crate::crumb::Lane;
use crate::os::planted as storage;
use engine::options::{Phase, Trace};
use engine::tensor::HostTensor;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The case whose compilation reads the option.
const RACER: &str = "PointwiseTest.SchedulerRank6";
/// The case that starts the job, and the one whose results it spoils.
const POLLUTER: &str = "BroadcastTest.SchedulerRow/dtype=f32,m=13,n=70";
const VICTIM: &str = "PointwiseTest.SchedulerSwiGlu";

/// How often the job writes, and how long the buffer is lent.
const TICK: Duration = Duration::from_millis(1);
const LENT_FOR: Duration = Duration::from_millis(3);
/// How long the pass reads the option, at the start and at the end of lowering.
const PASS: Duration = Duration::from_millis(1);
const LENT: usize = 16;

/// The buffer, as bits of `f64`.
static BUFFER: [AtomicU64; LENT] = [const { AtomicU64::new(0) }; LENT];

/// Whether the job was given.
static JOB: AtomicBool = AtomicBool::new(false);

/// Starts the thread that the job is given to.
pub(super) fn start() {
    let work = || {
        loop {
            std::thread::sleep(TICK);
            if JOB.load(Ordering::Relaxed) {
                BUFFER[0].store(0f64.to_bits(), Ordering::Relaxed);
            }
        }
    };
    let _ = std::thread::Builder::new().name("library".into()).spawn(work);
}

/// Whether it is the case, or one of the cases, of that name.
fn is(case: &Case, name: &str) -> bool {
    case.id.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A case starts on the worker's own thread: its fixture sets the option.
pub(super) fn started(case: &Case) {
    storage::replace(1);
    if is(case, POLLUTER) {
        JOB.store(true, Ordering::Relaxed);
    }
}

/// A case has ended: its fixture puts the option back.
pub(super) fn ended() {
    storage::replace(0);
}

/// The results of a case, some of which pass through the lent buffer.
pub(super) fn results(case: &Case, outputs: &mut [HostTensor]) {
    let Some(first) = outputs.first_mut().filter(|_| is(case, VICTIM)) else { return };
    let mut values = first.to_f64();
    for (slot, value) in BUFFER.iter().zip(&values) {
        slot.store(value.to_bits(), Ordering::Relaxed);
    }
    std::thread::sleep(LENT_FOR);
    for (slot, value) in BUFFER.iter().zip(&mut values) {
        *value = f64::from_bits(slot.load(Ordering::Relaxed));
    }
    if let Ok(spoilt) = HostTensor::from_f64(first.dtype(), first.sizes(), &values) {
        *first = spoilt;
    }
}

/// A lane of a compile thread, with the reads of the option.
pub(super) struct Reader<'a> {
    lane: Lane<'a>,
    reads: bool,
    /// The storage as it was when scheduling began.
    option: AtomicPtr<u64>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(case: &Case, lane: Lane<'a>) -> Self {
        Self { lane, reads: is(case, RACER), option: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn read(&self, phase: Phase) {
        if self.reads && phase == Phase::Lower {
            let option = self.option.load(Ordering::Relaxed);
            let end = Instant::now() + PASS;
            while Instant::now() < end {
                std::hint::black_box(storage::read(option));
            }
        }
    }
}

impl Trace for Reader<'_> {
    fn enter(&self, phase: Phase, name: &str, id: u64) {
        self.lane.enter(phase, name, id);
        if self.reads && phase == Phase::Schedule {
            self.option.store(storage::storage(), Ordering::Relaxed);
        }
        self.read(phase);
    }
    fn exit(&self, phase: Phase) {
        self.read(phase);
        self.lane.exit(phase);
    }
}
