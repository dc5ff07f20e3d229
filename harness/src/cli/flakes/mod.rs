//! The commands about flakes: `hunt`, `replay`, `why`.

mod hunt;
mod log;
mod past;
mod replay;
mod scene;
mod told;
mod why;

pub(super) use hunt::hunt;
pub(super) use replay::replay;
pub(super) use why::why;
