//! Exit codes. Stable; 101 is never used on purpose, since a panic returns it.

/// Everything selected is fine.
pub(crate) const OK: u8 = 0;
/// `fmt --check` found files that are not in their canonical form.
pub(crate) const UNFORMATTED: u8 = 1;
/// A malformed command line.
pub(crate) const USAGE: u8 = 2;
/// The filter selects nothing.
pub(crate) const NOTHING_SELECTED: u8 = 4;
/// What ran is fine, and cases outside the selection failed last time.
pub(crate) const OUTSTANDING: u8 = 5;
/// What ran is fine, and not all ran: a deadline or a budget ended it.
pub(crate) const INCOMPLETE: u8 = 6;
/// The definition is right, and this version cannot run it there.
pub(crate) const UNSUPPORTED: u8 = INCOMPLETE;
/// The same case costs more than it did.
pub(crate) const REGRESSED: u8 = 10;
/// A case failed and passed, and flaky cases count as failures.
pub(crate) const FLAKY: u8 = 11;
/// The machine failed: results are not complete.
pub(crate) const INFRA: u8 = 20;
/// GPUs were asked for and there are not that many usable.
pub(crate) const NO_GPU: u8 = 21;
/// A malformed filter.
pub(crate) const BAD_FILTER: u8 = 94;
/// A malformed case file.
pub(crate) const BAD_CASES: u8 = 96;
/// At least one case failed.
pub(crate) const FAILED: u8 = 100;
/// At least one case crashed or hung; outranks [`FAILED`].
pub(crate) const CRASHED: u8 = 103;
/// A run to continue or to repeat is not there, or cannot be read.
pub(crate) const BAD_RUN: u8 = 106;
/// Execution finished, but its record could not be written.
pub(crate) const NO_RECORD: u8 = 110;
/// Ended by a signal after an orderly shutdown: 128 plus its number.
pub(crate) const SIGNAL_BASE: u8 = 128;

/// The codes of runs, from the worst on: what cannot be trusted, what is wrong, what costs more, what is not all.
const WORST_FIRST: [u8; 11] =
    [INFRA, NO_GPU, CRASHED, FAILED, BAD_CASES, NO_RECORD, FLAKY, REGRESSED, OUTSTANDING, INCOMPLETE, OK];

/// What several runs come to. One that a signal ended has not run all; a code that no run should have is worse
/// than all others.
pub(crate) fn worst(codes: impl IntoIterator<Item = u8>) -> u8 {
    let rank = |code: &u8| WORST_FIRST.iter().position(|known| known == code);
    let told = codes.into_iter().map(|code| if code > SIGNAL_BASE { INCOMPLETE } else { code });
    told.min_by_key(rank).unwrap_or(OK)
}

/// All codes but those of signals, with their meaning, for help.
pub(crate) const TABLE: &[(u8, &str)] = &[
    (OK, "everything selected is fine"),
    (UNFORMATTED, "fmt --check: files are not in canonical form"),
    (USAGE, "malformed command line"),
    (NOTHING_SELECTED, "nothing selected"),
    (OUTSTANDING, "what ran is fine; earlier failures outside the selection remain"),
    (INCOMPLETE, "what ran is fine, but not all ran; import: cannot run it there"),
    (REGRESSED, "a case costs more than it did (bench, compare)"),
    (FLAKY, "flaky cases under --flaky fail"),
    (INFRA, "the machine's fault: cases could not be run"),
    (NO_GPU, "no usable GPU, or fewer than asked for"),
    (BAD_FILTER, "malformed filter or expression"),
    (BAD_CASES, "malformed case file (left out, the others run), definition or record, or no case folder"),
    (FAILED, "at least one failure; import: the run differs from its record"),
    (CRASHED, "at least one crash or hang"),
    (BAD_RUN, "a run to continue or repeat is not there or cannot be read"),
    (NO_RECORD, "everything ran, but its record could not be written"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_codes_the_worst_counts() {
        for (codes, wanted) in [
            (&[][..], OK),
            (&[OK, INCOMPLETE, OK], INCOMPLETE),
            (&[INCOMPLETE, REGRESSED], REGRESSED),
            (&[FAILED, INFRA, CRASHED], INFRA),
            (&[OK, SIGNAL_BASE + 15], INCOMPLETE),
            (&[INFRA, 77], 77),
        ] {
            assert_eq!(worst(codes.iter().copied()), wanted, "{codes:?}");
        }
    }
}
