//! cuBLASLt: products of matrices by NVIDIA's library.
//!
//! In: a [`Product`](crate::products::Product). Out: [`PlannedProduct`], an algorithm that the library
//! chose for it, to be issued on any stream for given addresses. The library is found like NVRTC, by
//! files that the caller's folders or the toolkit have; a device without it has no library steps.
//!
//! The library names matrices by columns: what is `d = a b` by rows is `d' = b' a'` to it, each a
//! matrix of the same bytes seen the other way round. Sums are at least `f32`, and `f32` is never
//! rounded to TF32. Algorithms that split sums add their parts in one order, so results do not vary
//! from call to call.

mod functions;
mod plan;

pub use functions::CublasLt;
pub use plan::{PlannedProduct, ProductAddresses};
