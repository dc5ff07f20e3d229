//! Values of tensors on the host: typed vectors seen through sizes and strides,
//! and parallel loops over them.
//!
//! A [`View`] is what one operation of the reference evaluator gives to the
//! next. Views share elements: inserting, dropping, reordering and slicing axes
//! costs nothing, as in the storage of a framework, and the strides that come
//! out are the ones that a caller sees. Elements are held in the widest type of
//! their class (`f32` for the small floats, `i64` for all integers), rounded to
//! the tensor's own type, so that every operation reads exact values.

mod format;
mod moves;
pub(crate) mod nest;
mod order;
pub(crate) mod parallel;
pub(crate) mod product;
mod sums;
mod view;

pub(crate) use format::{format_strides, view_strides};
pub(crate) use moves::fold_index;
pub(crate) use order::{
    clone_strides, copy_layout, dense_like, dense_strides_in, elementwise_layout, is_dense, iteration_order, permuted,
    row_major_strides,
};
pub(crate) use sums::Sums;
pub(crate) use view::Element;
pub use view::{Data, Elements, View};
