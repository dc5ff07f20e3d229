//! Small foundations that every stage uses: typed ids, arenas keyed by them,
//! and a stable content hash. Nothing here knows about fusions or kernels.

mod hash;
mod ids;

pub use hash::{Hash128, StableHasher};
pub(crate) use ids::entity_id;
pub use ids::{EntityId, PrimaryMap, SecondaryMap};
