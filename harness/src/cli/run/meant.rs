//! Which cases are meant.

use super::options::RunOptions;
use super::{carry, setup};
use crate::cli::devices::Devices;
use crate::cli::{Failure, session};
use crate::record::Resumed;
use crate::select::Chosen;
use crate::select::quarantine::Quarantine;

/// The cases that are meant, and where they come from.
pub(super) struct Meant {
    pub(super) chosen: Chosen,
    pub(super) quarantine: Quarantine,
    pub(super) files: usize,
    pub(super) fingerprint: u32,
    /// Cases that there are.
    pub(super) total: usize,
}

impl Meant {
    pub(super) fn of(options: &RunOptions, devices: &Devices, resumed: Option<&Resumed>) -> Result<Self, Failure> {
        let loaded = session::load_all(&options.cases, devices.target)?;
        let (files, fingerprint, total) = (loaded.files, loaded.fingerprint, loaded.cases.len());
        let quarantine = session::quarantine(&options.cases.folders, &loaded.cases, devices.target)?;
        let chosen = match resumed {
            Some(resumed) => carry::selected(resumed, loaded.cases, fingerprint)?,
            None => setup::sample(options, session::choose(&options.cases, loaded.cases, &devices.history)?),
        };
        Ok(Self { chosen, quarantine, files, fingerprint, total })
    }
}
