//! Small foundations that every stage uses: typed ids, arenas keyed by them,
//! a stable content hash, a digest of bytes that threads make together, disjoint sets, bounded maps, quantiles, distances of words, jobs on threads,
//! sorts by keys, sets and maps of what is seldom in one, maps that are asked more than added to, assertions of builds that check themselves.
//! Nothing here knows about fusions or kernels.

mod digest;
mod disjoint;
mod distance;
mod hash;
mod ids;
mod jobs;
mod memo;
mod ordered;
mod quantile;
mod self_check;
mod sorted;
pub(crate) mod sync;

pub use digest::{CONSTANTS, WORD, WordSums};
pub use disjoint::DisjointSets;
pub use distance::edit_distance;
pub use hash::{Hash128, StableHasher};
pub(crate) use ids::entity_id;
pub use ids::{EntityId, PrimaryMap, SecondaryMap};
pub use jobs::run_beside;
pub(crate) use jobs::run_jobs;
pub use memo::Memo;
pub(crate) use ordered::{map_of, order_by_key, set_of, sort_by_key};
pub use quantile::quantile;
pub(crate) use self_check::self_check;
pub(crate) use sorted::SortedMap;
