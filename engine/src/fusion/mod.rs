//! The program: what is computed, not how.
//!
//! A [`Fusion`] is an immutable value in static single assignment form. It has
//! *tensors* (each with a data type and logical axes), *scalars* (a hash-consed
//! expression DAG; axis extents are scalars, so shapes are symbolic from the
//! start) and *ops* in an order in which definitions come before uses.
//!
//! **Axes.** An axis iterates over an extent or is a *broadcast*: size 1 known
//! at definition. Two tensors of one op have the same rank; a broadcast axis
//! pairs with any axis, two iteration axes of one position must have equal
//! extents (checked when sizes are known). An iteration axis whose run-time
//! size is 1 is still an iteration axis: it does not broadcast.
//!
//! **Types.** Ops take operands of one type; the builder inserts the promoting
//! casts, so a fusion holds them explicitly. `f16` and `bf16` are cast to `f32`
//! by every arithmetic op and the result stays `f32`.
//!
//! **Reductions** drop their axes; `keepdim` is a following broadcast.
//! Composite operations (`var`, `gelu`, `softmax`, ...) are expanded by the
//! builder into the primitives of [`OpKind`].

mod bind;
pub(crate) mod builder;
pub mod concretize;
mod decompose;
mod finish;
pub mod hash;
mod infer;
mod ir;
pub mod meta;
mod methods;
pub mod ops;
mod part;
mod placement;
mod rewrite;
mod scalars;
#[cfg(test)]
pub(crate) mod sketch;
mod strides;
#[cfg(test)]
mod tests;
mod user_ids;

pub use bind::{Bindings, bind, bind_args, bind_derived};
pub use builder::{AxisDecl, FusionBuilder, MAX_OPS, MAX_RANK, Src, is_name};
pub use decompose::{decompose, decomposes};
pub use ir::{
    Axis, AxisKind, Fusion, InputLayout, Op, OpId, OpKind, Operand, Scalar, ScalarDef, ScalarId, Tensor, TensorDef,
    TensorId, Update,
};
pub use part::{Part, part, plainly_named};
pub use placement::placements;
pub(crate) use rewrite::{Rewriter, made_tensor};
pub use rewrite::{Rewritten, permute_outputs};
pub(crate) use strides::moved as moved_strides;
pub use strides::{FoundView, find_view, layouts, may_be_view};
pub use user_ids::UserIds;
