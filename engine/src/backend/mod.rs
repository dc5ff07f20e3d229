//! Back ends: they read a verified [`Kernel`](crate::kernel::Kernel) and nothing else.

pub(crate) mod checks;
pub mod cuda;
pub mod sim;
