//! What holds a case to what it cost before: the committed baseline of the simulator's exact counters, the history
//! of times on GPUs, and which difference is a regression.
//!
//! - `counter` names the counters and says of which of them more is worse;
//! - `baseline` is the committed table, a row for each case;
//! - `judge` compares the counters of a run with it;
//! - `timing` compares times with those of earlier runs, by what each case's noise allows;
//! - `in_turns` has a kept binary measured beside this one, as often as that needs.
//!
//! Invariant: exact counters need no statistics. The same counters are no difference, a cost that rose by one
//! is a regression, whatever the kernel's or the case's text has become meanwhile.

mod baseline;
mod counter;
mod in_turns;
mod judge;
mod timing;

pub(crate) use baseline::{Baseline, BaselineRow, Blessing};
pub(crate) use counter::{COSTS, CounterChange, CounterChanges};
pub(crate) use in_turns::{InTurns, SecondLook, Verdict as SecondVerdict};
pub(crate) use judge::{Counted, CounterGate};
pub(crate) use timing::{Code, PastTime, TimeFinding, TimeHistory, Timed, TimingGate, TimingRow, Together};
