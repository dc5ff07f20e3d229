//! The rate under the conditions of the failure, on all devices and on each.

use super::setting::Workers;
use crate::flake::factors::{FactorChange, LEVEL};
use crate::flake::rule::Tally;

/// Trials as it failed.
#[derive(Default)]
pub(super) struct Base {
    pub(super) all: Tally,
    /// With the devices' names.
    by_device: Vec<(String, Tally)>,
}

impl Base {
    /// Counts more trials; the devices are always the same.
    pub(super) fn add(&mut self, all: Tally, by_device: Vec<(String, Tally)>) {
        self.all += all;
        if self.by_device.is_empty() {
            self.by_device = by_device;
            return;
        }
        for ((_, known), (_, more)) in self.by_device.iter_mut().zip(by_device) {
            *known += more;
        }
    }

    /// Whether devices differ.
    pub(super) fn devices(&self) -> Option<FactorChange> {
        FactorChange::among("device", &self.by_device)
    }

    /// The slot for trials on one device: where devices differ, one of that on which
    /// it fails most, since the others show nothing.
    pub(super) fn home(&self, slots: &[usize]) -> usize {
        let worst = self.devices().filter(|change| change.p < LEVEL).and_then(|change| {
            let device = self.by_device.iter().position(|(name, _)| *name == change.from)?;
            slots.iter().position(|of| *of == device)
        });
        worst.unwrap_or(0)
    }

    /// The trials on the devices that are at work: on `device` where only one is.
    pub(super) fn of(&self, workers: Workers, device: Option<&usize>) -> Tally {
        let one = || self.by_device.get(*device?).map(|(_, tally)| *tally);
        match workers.are_on_one_device() {
            true => one().unwrap_or(self.all),
            false => self.all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(failures: u64, runs: u64) -> Tally {
        Tally { failures, passes: runs - failures }
    }

    /// On which slot trials with one worker are made, and with what they are compared.
    #[track_caller]
    fn check(devices: &[Tally], slots: &[usize], home: usize, one: Tally) {
        let mut base = Base::default();
        let mut all = Tally::default();
        devices.iter().for_each(|tally| all += *tally);
        let named: Vec<_> = devices.iter().enumerate().map(|(i, tally)| (format!("gpu{i}"), *tally)).collect();
        // Half of the trials are counted later.
        let (half, zero) = (named.iter().map(|(name, _)| (name.clone(), Tally::default())), Tally::default());
        base.add(zero, half.collect());
        base.add(all, named);
        assert_eq!(base.home(slots), home);
        let device = slots.get(home);
        assert_eq!(base.of(Workers::One, device), one);
        assert_eq!(base.of(Workers::Shared, device), one);
        assert_eq!(base.of(Workers::All, device), all);
    }

    #[test]
    fn one_worker_is_compared_with_its_own_device() {
        // A failure of one GPU alone: that GPU with one worker fails as before.
        check(&[tally(0, 20), tally(12, 20)], &[0, 1], 1, tally(12, 20));
        check(&[tally(12, 20), tally(0, 20)], &[0, 1, 0], 0, tally(12, 20));
        // Nothing speaks for a difference: the first slot, and what it had.
        check(&[tally(5, 20), tally(7, 20)], &[0, 1], 0, tally(5, 20));
        check(&[tally(12, 20)], &[0, 0], 0, tally(12, 20));
    }
}
