//! `-E EXPR`: a small typed language over the properties of cases.
//!
//! ```text
//! expr  = and { "|" and }             also: or, ||
//! and   = unary { "&" unary }         also: and, &&
//! unary = { "!" } primary             also: not
//! primary = "(" expr ")" | all | none
//!         | name(GLOB) suite(GLOB) tag(GLOB) file(GLOB) device(sim|cuda|ref)
//!         | last(pass|fail|crash|hang|flaky|skip|infra|never|OUTCOME, ...)
//!         | changed(REVISION or RUN)
//!         | quarantined | perf | refusal | xfail
//!         | PROPERTY OP VALUE | axis(NAME) OP VALUE      OP: = != < <= > >=
//! PROPERTY = dur timeout (times) | memory (bytes) | arch gpus inputs rank elements runs
//! ```
//!
//! A comparison with something that is not there (`dur` of a case that never
//! ran, an axis that a case does not have) is false, also `!=`.
//!
//! Every mistake is found before anything runs: words and types when the text
//! is parsed, tags, suites and axes that no case has when the cases are known.

mod check;
mod eval;
mod model;
mod parse;
mod property;
mod show;
#[cfg(test)]
mod tests;

pub use eval::FilterSubject;
pub use model::FilterExpr;
#[cfg(test)]
pub(crate) use parse::condition_names;
