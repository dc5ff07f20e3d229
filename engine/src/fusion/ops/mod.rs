//! The table of operations as users write them: one row each, with everything
//! there is to know of it. The parser and printer of both text forms, their
//! suggestions, the documentation, the rules of shapes and strides and the
//! reference evaluator read it; to add an operation is to add its row.
//!
//! A row is a *composite*, which `build` expands into others, or a *primitive*
//! with rules of its own:
//!
//! - `build` checks and casts operands and counts axes from the start, so that
//!   what stands in a fusion is canonical;
//! - `meta` gives types and axes of the results, on symbols and on numbers;
//! - `layout` gives their strides, `eval` their values;
//! - `decompose` says the same in simpler operations, for back ends.
//!
//! The elementwise, axis-moving and reducing operations are variants of
//! [`super::OpKind`], because schedules are about them; their rows only build.

mod activation;
mod args;
mod attention;
mod batch;
mod bitcast;
mod call;
#[cfg(test)]
mod checks;
mod cx;
mod draft;
mod dropout;
mod elementwise;
mod embedding;
mod extents;
mod factory;
mod grouped;
mod index;
mod lookup;
mod matmul;
mod movement;
mod norm;
mod py_form;
mod quant;
mod random;
mod reduce;
mod reshape;
mod resize;
mod rnn;
mod row;
mod scaled;
mod scan;
mod shape;
mod softmax;
mod sort;
mod stats;
mod swizzle;
mod table;
mod views;

pub use args::{Args, OpArg, form};
pub use call::{Attr, Call};
pub use cx::{EvalCx, EvalOperand, LayoutCx, LayoutOperand, MetaCx};
pub use draft::CallDraft;
pub use grouped::{Experts, check_experts, check_groups, grouped_of_nothing};
pub use index::accumulate::{adds_rows, check_ends, check_runs, widens_rows};
pub use index::check_positions;
pub use lookup::{IndexAxes, Lookup};
pub use movement::{AxisMap, Form, Library, Movement, Reads, ViewPlace, ViewRule};
pub use py_form::{PyArgs, PyForm, PyResult};
pub use row::{BuildFn, Need, OpParam, OpParamKind, OpRow, Primitive, ResultLayout, ScalarOp, StaysFn};
pub(crate) use sort::NETWORK;
pub use table::{all, find};

pub(crate) use args::arity_error;
