//! Which cases are meant.

use super::options::RunOptions;
use super::{carry, setup};
use crate::case::{CaseError, Loaded};
use crate::cli::broken::or_malformed;
use crate::cli::devices::Devices;
use crate::cli::{Failure, session};
use crate::record::Resumed;
use crate::select::Chosen;
use crate::select::quarantine::Quarantine;
use std::collections::BTreeSet;

/// The cases that are meant, and where they come from.
pub(super) struct Meant {
    /// Mistakes of the files that are left out.
    pub(super) broken: Vec<CaseError>,
    pub(super) chosen: Chosen,
    pub(super) quarantine: Quarantine,
    pub(super) files: usize,
    pub(super) fingerprint: u32,
    /// Ids that there are.
    pub(super) known: BTreeSet<String>,
}

impl Meant {
    /// Of those that were loaded for the devices.
    pub(super) fn of(
        options: &RunOptions,
        loaded: Loaded,
        devices: &Devices,
        resumed: Option<&Resumed>,
    ) -> Result<Self, Failure> {
        let broken = loaded.errors;
        let (files, fingerprint) = (loaded.files, loaded.fingerprint);
        let known = loaded.cases.iter().map(|case| case.id.clone()).collect();
        // What a broken file would have had is not missing.
        let quarantine = match broken.is_empty() {
            true => session::quarantine(&options.cases.folders, &loaded.cases, devices.target)?,
            false => session::read_quarantine(&options.cases.folders)?,
        };
        let chosen = match resumed {
            Some(resumed) => carry::selected(resumed, loaded.cases, fingerprint),
            None => session::choose(&options.cases, loaded.cases, &devices.history)
                .map(|chosen| setup::sample(options, chosen)),
        };
        let chosen = chosen.map_err(|why| or_malformed(&broken, why))?;
        Ok(Self { broken, chosen, quarantine, files, fingerprint, known })
    }
}
