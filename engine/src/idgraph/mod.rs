//! Which axes of which tensors are the same dimension.
//!
//! Input: a fusion. Output: [`DimGraph`], a label for every axis of every
//! tensor. Two relations are computed by union-find over all axes:
//!
//! * *exact*: iteration axes that an op pairs, so that their extents are equal;
//! * *permissive*: also a broadcast axis with the iteration axis it meets.
//!
//! A [`DimId`] is a permissive class. It is well formed when its iteration axes
//! form one exact class (its broadcasts are concretised uniquely) and no tensor
//! has two axes in it; then one loop over the dimension serves every tensor, and
//! a tensor that is broadcast along it simply does not depend on the loop.
//!
//! An input that is read through two different views (`x + permute(x)`) would
//! identify two dimensions that are not the same. Such inputs are *split by
//! use*: each reading op gets its own copy of the labels.

mod dims;

pub use crate::axes::axis_pairs;
pub use dims::{AxisLabel, DimGraph, DimId, Dimension, InputUse, analyze};
