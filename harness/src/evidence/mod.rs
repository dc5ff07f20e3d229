//! What is known about a worker that died or hangs: raw facts that its signal
//! handlers left, stacks interpreted outside, and what people need to act on it.

pub(crate) mod area;
pub(crate) mod hang;
mod modules;
mod stack;
pub(crate) mod threads;
mod unwind;

pub(crate) use stack::{Frame, Stack, lines, stacks};
