//! The axis graph against what its transforms mean, point by point.

mod brute;
mod covers;
mod draw;
mod maps;
mod moved;
mod numbers;
mod programs;
mod terms;
