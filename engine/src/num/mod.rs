//! Numbers: data types, the scalar operations that fusions and kernels share,
//! bit-exact conversions, promotion, and the host's exact evaluation of one
//! scalar operation ([`eval`]), which is the meaning that the reference
//! evaluator and the simulator are held to.

mod dtype;
mod op;
mod promote;
mod value;

pub use dtype::{DType, DTypeClass};
pub use op::{BinaryOp, ReduceOp, TernaryOp, UnaryOp};
pub use promote::{promote, promote_all};
pub use value::Value;
