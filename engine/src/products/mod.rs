//! Products of matrices as a library takes them.
//!
//! In: an operation (`matmul`, `linear`), and how its operands and its result lie in
//! memory. Out: [`Product`], plain numbers: how large the matrices are, in which order each
//! lies, how far one is from the next in a stack. Nothing here knows a library or a device.
//!
//! Invariant: element `(i, j)` of matrix `s` of the result is the sum over `l` of `a(i, l) *
//! b(l, j)` of matrices `s` of the operands, plus `bias(j)`; [`Matrix::place`] says where each lies.

mod matrix;
mod product;
#[cfg(test)]
mod tests;

pub use matrix::{Matrix, Order};
pub use product::{FoundProduct, Product, StackAxis, find_product};
