//! Numbers: data types, the scalar operations that fusions and kernels share,
//! their approximations, bit-exact conversions, promotion, random words, elements in memory, and the
//! host's exact evaluation of one scalar operation ([`eval`]), which is the
//! meaning that the reference evaluator and the simulator are held to, and what a
//! device makes of the few that take it several steps ([`stepwise`]).

mod approx;
pub mod convert;
mod dtype;
pub mod eval;
mod op;
pub mod philox;
mod promote;
pub mod stepwise;
pub mod storage;
mod value;

pub use approx::{ApproxOp, ErrorModel};
pub use dtype::{DType, DTypeClass};
pub use op::{BinaryOp, ReduceOp, TernaryOp, UnaryOp};
pub use promote::{promote, promote_all};
pub use value::Value;
