//! Kernel IR: what one GPU kernel does, and the only thing both back ends read.
//!
//! **Expressions** are pure, typed and hash-consed in an arena; they form a DAG
//! and have no place in time. **Statements** have effects and form a tree; the
//! order of statements is the order of execution in each thread. A value that
//! depends on memory enters an expression through the variable that a statement
//! bound ([`StmtKind::Load`], [`StmtKind::Let`], [`StmtKind::Random`], ...).
//! A variable is assigned by exactly one statement and is visible in the rest
//! of that statement's block.
//!
//! **Memory** is a set of buffers with linear element indices: kernel arguments
//! in *global* memory, block-wide *shared* arrays, and per-thread *local* arrays
//! (registers when every index is constant after unrolling). Mutable state, such
//! as an accumulator, is a local buffer.
//!
//! **Types.** Indices of global memory are `i32` or `i64` throughout one kernel
//! ([`Kernel::index_type`]). Operands of an operation have one type. `f16` and
//! `bf16` values only move and convert.
//!
//! **Indices and data.** An integer expression is about indices or about data
//! ([`ValueKind`]), by what it is made of, and the two have arithmetic of their
//! own: [`Expr::Index`] never overflows and divides only non-negative numbers by
//! positive ones (but leaves the last bits of any), so that device code may be plain arithmetic; [`Expr::Binary`]
//! wraps and has a rule for zero divisors. [`Expr::AsData`] and [`Expr::AsIndex`]
//! lead from one to the other. Accesses, loops, launch sizes and buffer lengths
//! take indices; memory holds data.
//!
//! **Approximations.** A function is exact to a few units in the last place unless
//! [`Expr::Approx`] says how else it is computed; [`approximate`] is the pass that
//! decides it.
//!
//! **Roundings.** A compiler may make one operation of a product and a sum that it enters, with one rounding. Where
//! the product has other uses too, [`Expr::Rounded`] forbids it, so that all see one number; lowering decides it.
//!
//! **Lanes.** Which lanes of a vector lie in a row that starts at an odd place is asked of a mask, which all rows of
//! a thread share: [`mask_lanes`] is the pass that makes it.
//!
//! **Rows.** What a row has once is loaded for the two rows that a vector touches, and its lanes choose: [`look_up_by_row`]
//! is the pass that finds such loads.
//!
//! **Divisions.** Index arithmetic divides by what sizes decide as often as not. A parameter may hold
//! what replaces such a division by a multiplication ([`ParamKind::Reciprocal`]); [`add_reciprocals`] is
//! the pass that adds them.
//!
//! **Launch.** Grid, block and parameters derived from sizes are expressions
//! over parameters, evaluated on the host by [`bind`](crate::kernel::bind) once for each set of shapes.
//!
//! A kernel that passed [`verify`](crate::kernel::verify) never makes a back end fail or panic.

mod approx;
mod assumptions;
mod bind;
mod bounds;
mod build;
mod by_part;
mod by_row;
mod exprs;
mod facts;
mod ir;
mod lane_masks;
mod limits;
mod order;
mod parse;
mod print;
mod ranges;
mod reciprocals;
#[cfg(test)]
mod same_terms;
mod verify;
mod visit;
mod words;

pub use approx::{approximate, casts_within};
pub use assumptions::weaken_assumptions;
pub use bind::{BoundLaunch, BoundParam, bind, eval_over, shared_layout};
pub use bounds::{BoundsReport, check_bounds};
pub use build::KernelBuilder;
pub use by_part::branch_by_part;
pub use by_row::look_up_by_row;
pub use exprs::{ExprArena, ExprNode};
pub use facts::{Multiples, gcd};
pub use ir::{
    Access, AtomicOp, Block, BufId, Buffer, CacheHint, Dim, Expr, ExprId, IndexOp, Kernel, Launch, MAX_ACCESS_BYTES,
    MIN_ASYNC_BYTES, MIN_UNALIGNED_BYTES, Origin, Param, ParamId, ParamKind, Scope, ShuffleMode, Space, Special, Stmt,
    StmtKind, Unroll, ValueKind, Var, VarId,
};
pub use lane_masks::mask_lanes;
pub use limits::{MAX_PARAM_BYTES, check_limits, shared_bytes};
pub use order::{Agreement, Alarm, AlarmKind, OrderReport, ResultTerms, check_order, compare_at, result_terms};
pub use parse::{check_text, parse};
pub use print::{print, print_stmt};
pub use reciprocals::{add_reciprocals, reciprocal};
pub use verify::{MAX_EXPR_DEPTH, MAX_EXPR_NODES, verify};
pub(crate) use visit::statement_exprs;
