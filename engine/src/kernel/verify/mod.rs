//! The verifier: what a kernel must satisfy so that no back end fails on it.
//!
//! Input: any kernel, however broken. Output: nothing, or one
//! [`Bug`](crate::diag::DiagnosticKind::Bug) with code `B0002` and a note for each
//! violation, which shows the guilty statement as printed. All violations are
//! collected, not only the first.
//!
//! **Contract.** A kernel that passes never makes a back end fail or panic:
//! - every id is declared, operands precede users, and every expression is at
//!   most [`MAX_EXPR_DEPTH`] deep and [`MAX_EXPR_NODES`] large when written out, so that
//!   recursion and inlining are safe;
//! - operations have operands of the types they accept; constants fit their type;
//! - indices and data are not mixed: each operation has operands of its own kind,
//!   accesses, loops and launch sizes are indices, and what is written, exchanged
//!   or combined is data;
//! - parameters, launch and buffer lengths can be evaluated on the host in order;
//! - shared and local lengths are constant, positive and within limits; each
//!   global buffer has one pointer; inputs are never written;
//! - a variable is bound once and read only where it is visible;
//! - a vector move has one local side, 1 to 16 bytes, and provable alignment;
//! - barriers and shuffles stand where control flow is uniform over their scope,
//!   shuffles and warp barriers only in blocks of whole warps, or of less than
//!   one where every source exists; grid barriers only in cooperative launches.
//!
//! Not proven here: that indices are in range, that threads do not race, that
//! memory is written before it is read. The simulator detects those. Uniformity
//! of a value read from shared memory is granted on the assumption that there
//! are no races.

mod checker;
mod decls;
mod exprs;
mod stmts;
mod uniform;

#[cfg(test)]
mod tests;

pub(crate) use checker::verifies;
pub use checker::verify;
pub(super) use decls::MAX_LOCAL_BYTES;
pub use exprs::{MAX_EXPR_DEPTH, MAX_EXPR_NODES};
