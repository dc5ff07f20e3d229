//! Measures launches by device events.
//!
//! Before measuring, the device works until its clocks are up. Then, for each
//! sample: the second-level cache is overwritten, and the launch is enclosed in
//! two events; a copy of the same traffic follows in the same way, so that both
//! see the same clocks. The overwriting takes longer than the host needs to
//! issue the next launch, and a spinning kernel at the start gives the host its
//! lead, before each sample where that is several launches; so the time between
//! two events is the device's alone.
//!
//! Before each overwriting the device waits for a time of its own. Without, all samples of a process fall into one of two
//! rhythms of the same sequence, launches and copies alike, which differ by up to 3 % (H200, writes of 256 MiB): a
//! process is fast or slow as a whole then, and what takes a little longer gets out of step and into the other one.
//!
//! The copy is the fastest, by median, of the driver's and two vectorised kernels.
//!
//! A launch can be stretched by a share of its own time, to try what judges times on a slowdown that is known: a kernel of
//! one thread waits behind it, for so many cycles. How many is reckoned from the median of the launch, from what a kernel
//! behind another costs at all and from what a cycle takes, each measured before. Twice as many samples are taken then, of
//! which every other one is stretched and the next to it plain: their ratio is what was planted, with an error that has
//! nothing of what varies between processes. Each of them follows a copy, as without stretching.

use super::device::{Device, DeviceBuffer};
use super::driver::check;
use super::launch::{LaunchArgs, LoadedKernel};
use super::nvrtc::{Nvrtc, NvrtcOptions};
use crate::diag::Result;
use crate::util::quantile;
use cudarc::driver::sys;
use std::sync::Arc;

/// Device time spent before measuring, in milliseconds.
const RAMP_MS: f32 = 60.0;
/// How long the device waits for the host at the start, in nanoseconds.
const LEAD_NS: u64 = 400_000;
/// The longest wait before a sample, in nanoseconds: the second-level cache is written back in less.
const PAUSE_NS: u64 = 40_000;
/// What the host takes to issue one of several launches, in nanoseconds: amply.
const ISSUE_NS: u64 = 10_000;
/// Which of four samples are stretched: each beside a plain one, and neither always first.
const STRETCHED: [bool; 4] = [false, true, true, false];
/// Measurements that a wait is reckoned from, and the cycles of a long one.
const RECKONED_FROM: usize = 51;
const LONG_WAIT: u64 = 100_000;

/// How to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimingOptions {
    /// Launches before measuring, besides those that raise the clocks.
    pub warmup: u32,
    /// Measured launches.
    pub samples: u32,
    /// Whether the second-level cache is overwritten before each.
    pub flush_l2: bool,
    /// Bytes that a launch moves, reads and writes together: the traffic of the copy. 0 for no copy.
    pub copy_bytes: u64,
    /// Launches and copies that are issued as one that is measured.
    pub issues: usize,
    /// Millionths of a launch's time by which it is stretched; 0 for none.
    pub stretch_ppm: u32,
}

/// What was measured, in nanoseconds and in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// The launches.
    pub launch_ns: Vec<f64>,
    /// Copies of the same traffic, each after its launch of these.
    pub copy_ns: Vec<f64>,
    /// Launches without a wait, each beside its stretched one; none where nothing is stretched.
    pub unstretched_ns: Vec<f64>,
}

/// The kernels that measuring itself needs, and the memory that it writes.
#[derive(Debug)]
pub struct Timer {
    device: Arc<Device>,
    spin: LoadedKernel,
    wait: LoadedKernel,
    copy_plain: LoadedKernel,
    copy_streaming: LoadedKernel,
    flush: DeviceBuffer,
}

/// `spin` waits by the clock on the wall, `wait` by that of its multiprocessor, which is finer; the copies move 16 bytes per access: one for each thread, or
/// four in flight that leave the caches first.
const TEXT: &str = r#"
extern "C" __global__ void spin(unsigned long long nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

extern "C" __global__ void wait(unsigned long long cycles) {
  const unsigned long long start = clock64();
  while (clock64() - start < cycles) {}
}

extern "C" __global__ void __launch_bounds__(256) copy_plain(
    const uint4* __restrict__ from, uint4* __restrict__ to, unsigned long long words) {
  const unsigned long long i = blockIdx.x * 256ull + threadIdx.x;
  if (i < words) to[i] = from[i];
}

extern "C" __global__ void __launch_bounds__(512) copy_streaming(
    const uint4* __restrict__ from, uint4* __restrict__ to, unsigned long long words) {
  const unsigned long long first = blockIdx.x * 2048ull + threadIdx.x;
  if (first + 1536 < words) {
    uint4 x[4];
    #pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = __ldcs(&from[first + 512 * k]);
    #pragma unroll
    for (int k = 0; k < 4; ++k) __stcs(&to[first + 512 * k], x[k]);
  } else {
    for (unsigned long long i = first; i < words; i += 512) to[i] = from[i];
  }
}
"#;

/// Which copy is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copier {
    Driver,
    Plain,
    Streaming,
}

impl Timer {
    /// Compiles and loads what measuring needs.
    pub fn new(device: &Arc<Device>, nvrtc: &Nvrtc) -> Result<Self> {
        let options = NvrtcOptions::new(device.desc().compute_capability, true);
        let cubin = nvrtc.compile_text(TEXT, "timing", &options)?;
        let flush_bytes = 2 * device.desc().l2_bytes.max(1 << 20) as usize;
        Ok(Self {
            device: Arc::clone(device),
            spin: LoadedKernel::load_entry(device, &cubin.bytes, "spin", 0, 1)?,
            wait: LoadedKernel::load_entry(device, &cubin.bytes, "wait", 0, 1)?,
            copy_plain: LoadedKernel::load_entry(device, &cubin.bytes, "copy_plain", 0, 3)?,
            copy_streaming: LoadedKernel::load_entry(device, &cubin.bytes, "copy_streaming", 0, 3)?,
            flush: device.alloc_kept(flush_bytes)?,
        })
    }

    /// Measures `launch`, which issues one launch on the device and must not
    /// wait for it. It gets the number of the launch, so that it can rotate its
    /// buffers.
    pub fn measure(&mut self, options: &TimingOptions, mut launch: impl FnMut(usize) -> Result<()>) -> Result<Samples> {
        let mut copy_buffers = self.copy_buffers(options.copy_bytes)?;
        self.ramp(&mut launch)?;
        for number in 0..options.warmup as usize {
            launch(number)?;
        }
        let copier = match &mut copy_buffers {
            Some(buffers) => Some(self.fastest_copier(buffers)?),
            None => None,
        };
        self.device.synchronize()?;
        let wait = match options.stretch_ppm {
            0 => None,
            ppm => Some(self.cycles_to_wait(options, ppm, &mut launch)?),
        };
        let samples = options.samples.max(1) as usize * (1 + usize::from(wait.is_some()));
        let events = self.events(4 * samples)?;
        let is_stretched = |number: usize| STRETCHED[number % STRETCHED.len()];
        self.lead(LEAD_NS)?;
        for (number, events) in events.chunks_exact(4).enumerate() {
            let wait = wait.filter(|_| is_stretched(number));
            self.pause(2 * number)?;
            self.timed(options, events, |timer| {
                launch(number)?;
                wait.map_or(Ok(()), |cycles| timer.wait(cycles))
            })?;
            if let (Some(copier), Some(buffers)) = (copier, &mut copy_buffers) {
                self.pause(2 * number + 1)?;
                self.flush(options.flush_l2)?;
                events[2].record()?;
                self.copy(copier, buffers)?;
                events[3].record()?;
            }
        }
        self.device.synchronize()?;
        let mut result = Samples::default();
        for (number, events) in events.chunks_exact(4).enumerate() {
            let ns = events[0].nanoseconds_to(&events[1])?;
            if wait.is_some() && !is_stretched(number) {
                result.unstretched_ns.push(ns);
                continue;
            }
            result.launch_ns.push(ns);
            if copier.is_some() {
                result.copy_ns.push(events[2].nanoseconds_to(&events[3])?);
            }
        }
        Ok(result)
    }

    fn events(&self, count: usize) -> Result<Vec<Event>> {
        (0..count).map(|_| Event::new(&self.device)).collect()
    }

    /// Encloses what `work` issues in the first two of `events`.
    fn timed(
        &mut self,
        options: &TimingOptions,
        events: &[Event],
        work: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        // One launch is issued while the cache is flushed; several need more of a lead.
        if options.issues > 1 {
            self.lead(LEAD_NS + options.issues as u64 * ISSUE_NS)?;
        }
        self.flush(options.flush_l2)?;
        events[0].record()?;
        work(self)?;
        events[1].record()
    }

    fn wait(&self, cycles: u64) -> Result<()> {
        self.wait.launch([1; 3], [1; 3], &LaunchArgs::words(&[cycles]))
    }

    /// How many cycles to wait behind a launch, so that it takes so many millionths longer.
    fn cycles_to_wait(
        &mut self,
        options: &TimingOptions,
        ppm: u32,
        launch: &mut impl FnMut(usize) -> Result<()>,
    ) -> Result<u64> {
        // Beside the launch: a wait for nothing, two of them, and a long one behind one for nothing.
        let waits: [&[u64]; 3] = [&[0], &[0, 0], &[0, LONG_WAIT]];
        let events = self.events(8 * RECKONED_FROM)?;
        self.lead(LEAD_NS)?;
        for (number, events) in events.chunks_exact(8).enumerate() {
            self.timed(options, events, |_| launch(number))?;
            for (waits, events) in waits.iter().zip(events[2..].chunks_exact(2)) {
                self.timed(options, events, |timer| waits.iter().try_for_each(|cycles| timer.wait(*cycles)))?;
            }
        }
        self.device.synchronize()?;
        let median = |what: usize| -> Result<f64> {
            let times = events.chunks_exact(8).map(|events| events[2 * what].nanoseconds_to(&events[2 * what + 1]));
            Ok(quantile(&times.collect::<Result<Vec<_>>>()?, 0.5).unwrap_or_default())
        };
        let [plain, one, two, long] = [median(0)?, median(1)?, median(2)?, median(3)?];
        let wanted = plain * f64::from(ppm) / 1e6 - (two - one);
        let cycle = (long - two) / LONG_WAIT as f64;
        Ok((wanted / cycle).clamp(0.0, 1e9) as u64)
    }

    /// Source and target of a copy that moves `bytes` in all.
    fn copy_buffers(&self, bytes: u64) -> Result<Option<(DeviceBuffer, DeviceBuffer)>> {
        let half = (bytes / 2).next_multiple_of(16) as usize;
        if bytes == 0 {
            return Ok(None);
        }
        let (mut from, to) = (self.device.alloc(half)?, self.device.alloc(half)?);
        from.fill(0, half, 0x3c)?;
        Ok(Some((from, to)))
    }

    /// Works until the clocks are up: an idle device runs at a fraction of its speed.
    fn ramp(&mut self, launch: &mut impl FnMut(usize) -> Result<()>) -> Result<()> {
        let (start, end) = (Event::new(&self.device)?, Event::new(&self.device)?);
        start.record()?;
        for batch in 0.. {
            for _ in 0..20 {
                self.flush(true)?;
            }
            launch(batch)?;
            end.record()?;
            self.device.synchronize()?;
            if start.nanoseconds_to(&end)? > f64::from(RAMP_MS) * 1e6 {
                break;
            }
        }
        Ok(())
    }

    /// Lets the device wait, so that the host gets ahead of it.
    fn lead(&self, nanoseconds: u64) -> Result<()> {
        self.spin.launch([1; 3], [1; 3], &LaunchArgs::words(&[nanoseconds]))
    }

    /// Lets the device wait for a time that differs from sample to sample, and is the same in each measurement: golden sections
    /// of the longest one spread evenly.
    fn pause(&self, number: usize) -> Result<()> {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let share = (number as u64 + 1).wrapping_mul(GOLDEN) >> 32;
        self.lead((share * PAUSE_NS) >> 32)
    }

    fn flush(&mut self, enabled: bool) -> Result<()> {
        let bytes = self.flush.len();
        if enabled { self.flush.fill(0, bytes, 0) } else { Ok(()) }
    }

    fn copy(&self, copier: Copier, (from, to): &mut (DeviceBuffer, DeviceBuffer)) -> Result<()> {
        let bytes = from.len();
        let (kernel, threads, accesses) = match copier {
            Copier::Driver => return to.copy_from(from, bytes),
            Copier::Plain => (&self.copy_plain, 256, 1),
            Copier::Streaming => (&self.copy_streaming, 512, 4),
        };
        let words = (bytes / 16) as u64;
        let blocks = u32::try_from(words.div_ceil(u64::from(threads * accesses))).unwrap_or(u32::MAX);
        let args = LaunchArgs::words(&[from.address(), to.address(), words]);
        kernel.launch([blocks, 1, 1], [threads, 1, 1], &args)
    }

    fn fastest_copier(&mut self, buffers: &mut (DeviceBuffer, DeviceBuffer)) -> Result<Copier> {
        let mut best = (f64::INFINITY, Copier::Driver);
        for copier in [Copier::Driver, Copier::Plain, Copier::Streaming] {
            let mut times = Vec::new();
            for _ in 0..7 {
                let (start, end) = (Event::new(&self.device)?, Event::new(&self.device)?);
                self.flush(true)?;
                start.record()?;
                self.copy(copier, buffers)?;
                end.record()?;
                self.device.synchronize()?;
                times.push(start.nanoseconds_to(&end)?);
            }
            let median = quantile(&times, 0.5).unwrap_or(f64::INFINITY);
            if median < best.0 {
                best = (median, copier);
            }
        }
        Ok(best.1)
    }
}

/// A point in the device's stream, with its time.
struct Event {
    device: Arc<Device>,
    raw: sys::CUevent,
}

impl Event {
    fn new(device: &Arc<Device>) -> Result<Self> {
        device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current; the event is destroyed when dropped.
        let status = unsafe { sys::cuEventCreate(&mut raw, sys::CUevent_flags::CU_EVENT_DEFAULT as u32) };
        check(status, "create an event")?;
        Ok(Self { device: Arc::clone(device), raw })
    }
    fn record(&self) -> Result<()> {
        self.device.enter()?;
        // SAFETY: the event and the stream are alive and of one context.
        check(unsafe { sys::cuEventRecord(self.raw, self.device.stream().raw()) }, "record an event")
    }
    /// Both events must have happened.
    fn nanoseconds_to(&self, later: &Self) -> Result<f64> {
        self.device.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive and were recorded.
        let status = unsafe { sys::cuEventElapsedTime_v2(&mut milliseconds, self.raw, later.raw) };
        check(status, "read a time")?;
        Ok(f64::from(milliseconds) * 1e6)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: the event was created by this value and is destroyed once.
            let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}
