//! Properties held on random draws: the same draws in every run, new ones when
//! asked for. A test that draws something new each time tells of a fault on
//! somebody else's change; finding new faults is a job of its own.
//!
//! `FUSEWRIGHT_FUZZ=30` tries new draws for 30 seconds a property, and a draw
//! that fails says its seed, which `ARBTEST_SEED=0x...` plays again.
//! How many of the draws are made, and of those that other tests count by seeds, says [`draws`].
//!
//! Shared by the unit tests of both crates and by integration tests.

#[allow(dead_code, reason = "not every test binary counts draws by seeds")]
pub(crate) mod draws;

use arbtest::arbitrary::{Result, Unstructured};
use std::time::Duration;

/// Holds `property` on [`Property::cases`] draws of growing size when dropped.
/// A draw that runs out of random bytes does not count, but one must not.
pub(crate) fn property<P>(property: P) -> Property<P>
where
    P: FnMut(&mut Unstructured<'_>) -> Result<()>,
{
    Property { property, smallest: 32, largest: 65_536, cases: 1000 }
}

pub(crate) struct Property<P>
where
    P: FnMut(&mut Unstructured<'_>) -> Result<()>,
{
    property: P,
    smallest: u32,
    largest: u32,
    cases: u32,
}

impl<P> Property<P>
where
    P: FnMut(&mut Unstructured<'_>) -> Result<()>,
{
    /// Random bytes of the first and of the largest draws.
    #[allow(dead_code, reason = "not every test binary asks for it")]
    pub(crate) fn bytes(mut self, sizes: std::ops::RangeInclusive<u32>) -> Self {
        (self.smallest, self.largest) = sizes.into_inner();
        self
    }

    /// Draws of a run that asks for all and for no new ones.
    #[allow(dead_code, reason = "not every test binary asks for it")]
    pub(crate) fn cases(mut self, cases: u32) -> Self {
        self.cases = cases;
        self
    }

    /// The draws that are made, in order: seed in the upper half, bytes in the
    /// lower, as `arbtest` reads them.
    fn seeds(&self) -> impl Iterator<Item = u64> + use<P> {
        let (mut size, largest) = (self.smallest, self.largest);
        let all = (0..self.cases).map(move |case| {
            if case > 0 && case % 3 == 0 {
                size = (u64::from(size) * 5 / 4).min(u64::from(largest)) as u32;
            }
            // Consecutive numbers would make a generator of few bits start alike.
            let mixed = u64::from(case + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ mixed >> 29) & !0xffff_ffff | u64::from(size)
        });
        all.step_by(draws::step(self.cases.into()) as usize)
    }
}

impl<P> Drop for Property<P>
where
    P: FnMut(&mut Unstructured<'_>) -> Result<()>,
{
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let seeds = self.seeds();
        let (smallest, largest) = (self.smallest, self.largest);
        if std::env::var_os("ARBTEST_SEED").is_some() {
            arbtest::arbtest(&mut self.property).run();
        } else if let Ok(text) = std::env::var("FUSEWRIGHT_FUZZ") {
            let seconds = text.parse().unwrap_or_else(|_| panic!("FUSEWRIGHT_FUZZ={text}: not a number of seconds"));
            let search = arbtest::arbtest(&mut self.property).size_min(smallest).size_max(largest);
            search.budget(Duration::from_secs_f64(seconds)).run();
        } else {
            let mut held = false;
            for seed in seeds {
                let draw = |u: &mut Unstructured<'_>| {
                    held |= (self.property)(u).is_ok();
                    Ok(())
                };
                arbtest::arbtest(draw).seed(seed).run();
            }
            assert!(held, "every draw ran out of random bytes");
        }
    }
}
