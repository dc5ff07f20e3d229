//! What is known about a worker that died or hangs: raw facts that its signal
//! handlers left, stacks interpreted outside, and what people need to act on it.

mod adopt;
mod bucket;
pub(crate) mod gpu_core;
pub(crate) mod hang;
mod keeper;
mod ledger;
mod modules;
pub(crate) mod sanitizer;
mod script;
mod stack;
pub(crate) mod threads;
mod unwind;

pub(crate) use adopt::adopt;
pub(crate) use keeper::Keeper;
pub(crate) use pages::Sight;
pub(crate) use script::Context;
pub(crate) use stack::stacks;
