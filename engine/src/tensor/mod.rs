//! Host tensors: sizes, strides and bytes. What callers pass to and get from
//! the runtime and the reference evaluator.
//!
//! Four-bit elements lie one in a byte here; the packed form of the boundary is
//! a type of its own, converted by `packed` and `unpacked`.
//!
//! Layouts are checked where a tensor enters: a [`HostTensor`] made by its
//! constructors has every element inside its storage. Its fields are public,
//! so users of foreign ones call [`HostTensor::check`] first.

mod bytes;
mod copy;
mod host;
mod layout;
mod packed;

pub use bytes::HostBytes;
pub use copy::{CopyRows, copy_rows};
pub use host::HostTensor;
pub use layout::{MAX_BYTES, Offsets, TensorMeta};

use crate::diag::Result;
use crate::num::Value;

/// What is known of an argument before its values are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ArgMeta {
    /// A tensor's type and layout.
    Tensor(TensorMeta),
    /// A scalar; values of sizes matter for shapes.
    Scalar(Value),
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arg {
    /// A tensor.
    Tensor(HostTensor),
    /// A scalar.
    Scalar(Value),
}

impl Arg {
    /// The argument with one value per element.
    pub fn unpacked(&self) -> Result<Self> {
        match self {
            Arg::Tensor(tensor) => Ok(Arg::Tensor(tensor.unpacked()?)),
            Arg::Scalar(value) => Ok(Arg::Scalar(*value)),
        }
    }

    /// The argument without its values.
    pub fn meta(&self) -> ArgMeta {
        match self {
            Arg::Tensor(tensor) => ArgMeta::Tensor(tensor.meta.clone()),
            Arg::Scalar(value) => ArgMeta::Scalar(*value),
        }
    }
}
