//! The nouns of a run: the verdict on a case and what led to it, one attempt and all
//! of them, the death of a worker and what it left, what earlier runs say.
//!
//! Plain values that every room above speaks of. Nothing here runs, records or shows
//! anything.

mod death;
mod digest;
mod output;
mod past;
mod result;
mod stack;
mod verdict;

pub(crate) use death::Death;
pub use digest::Digest;
pub(crate) use output::{Captured, WorkerOutput};
pub(crate) use past::Known;
pub use past::{Last, LastVerdict};
pub(crate) use result::{CaseResult, Conclusion};
pub(crate) use stack::{Frame, Stack};
pub use verdict::{
    Bless, CodeFrom, CudaFault, Determinism, HeldTo, Leak, MAX_DETAIL, Numerics, Outcome, PassedBy, Perf, Variation,
    Verdict,
};
pub(crate) use verdict::{apply_learnt, apply_xfail, clip};
