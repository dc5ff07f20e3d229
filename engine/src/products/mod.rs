//! Products of matrices as a library takes them.
//!
//! In: an operation (`matmul`, `linear`), an activation of its result, and how its operands lie in
//! memory. Out: [`Product`], plain numbers: how large the matrices are, in which order each
//! lies, how far one is from the next in a stack. Nothing here knows a library or a device.
//!
//! Invariant: element `(i, j)` of matrix `s` of the result is the sum over `l` of `a(i, l) *
//! b(l, j)` of matrices `s` of the operands, plus `bias(j)`, and of that the activation;
//! [`Matrix::place`] says where each lies.
//!
//! A library rounds once, behind the activation. The language rounds what `matmul` and `linear`
//! return to their type, so an activation is the library's only where both give the same
//! (`activation` says where).
//!
//! Libraries multiply matrices of 16 bits several times slower whose rows start at odd places, or end there.
//! `widen` says which axes are to be made longer, so that they do not; who writes operands does that.

mod activation;
mod matrix;
mod product;
#[cfg(test)]
mod tests;
mod widen;

pub use activation::{Activation, FoundActivation, find_activation};
pub use matrix::{Matrix, Order};
pub use product::{Bias, FoundProduct, Product, StackAxis, find_product};
pub use widen::{Length, MULTIPLE, ProductLengths, Widened, widen};
