//! Back ends: they read a verified [`Kernel`](crate::kernel::Kernel) and nothing else.

pub mod cuda;
pub(crate) mod findings;
pub mod sim;
