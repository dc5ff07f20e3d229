//! Inner parts, for benchmarks of this crate only.

use crate::case::Case;
use crate::crumb::{CrumbWriter, Page};
use crate::worker;
use engine::backend::cuda::emit;
use engine::options::{DeviceDesc, Options, Phase, SimOptions, Trace};
use engine::runtime::Session;
use std::time::{Duration, Instant};

/// The time from a case's text to the CUDA text of all of its kernels, in a session that has met nothing; none
/// where the case is refused.
pub fn own_compile_time(case: &Case) -> Option<Duration> {
    let options = Options { self_check: false, compile_threads: 1, ..Options::default() };
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), options);
    let started = Instant::now();
    let program = worker::program(case, &session).ok()?;
    let texts: usize = program.launches().map(|launch| emit(launch.plan.kernel()).text().len()).sum();
    let elapsed = started.elapsed();
    (texts > 0).then_some(elapsed)
}

/// A breadcrumb page with its writer, as a worker has it.
pub struct Crumbs {
    _page: Page,
    writer: CrumbWriter,
}

impl Crumbs {
    /// A new page.
    pub fn new() -> std::io::Result<Self> {
        let page = Page::create()?;
        let writer = CrumbWriter::open(page.share()?)?;
        Ok(Self { _page: page, writer })
    }

    /// Writes one breadcrumb.
    pub fn enter(&self, name: &str) {
        self.writer.enter(Phase::Lower, name, 7);
    }
}
