//! Inner parts, for benchmarks of this crate only.

use crate::crumb::{CrumbWriter, Page};
use engine::options::{Phase, Trace};

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
