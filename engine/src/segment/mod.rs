//! Cuts a fusion into segments that can run one after the other.
//!
//! In: a definition and its arguments' types and layouts. Out: [`Segments`]:
//! each [`Segment`] is a fusion of its own with maps to the values of the whole, and
//! says who computes it: one kernel, nobody (a view), or a library or the host, where no kernel can. A library
//! may compute an activation with a product (`products::find_activation`). So every
//! fusion has segments but one that is wrong, and a fusion of one kernel has one.
//!
//! * `derived` is what does not depend on sizes, kept for the next call: what passes made
//!   of the definition, that with decided axes, parts of it as fusions of their own;
//! * `moments` has means and variances of rows that nobody holds computed in one go;
//! * `partial` reduces what others reduced already, rather than the tensor again;
//! * `facts` is what is known of each operation, `summary` says whether some
//!   operations can be one kernel, `search` finds the groups, placing operations in each `order`;
//! * `several` tries groups of which kernels write parts of a whole, and others where one of these is refused;
//! * `cut` makes fusions of them and compiles each before it counts on it. A
//!   group that is refused after all is cut in two;
//! * `aliases` says which results are views of arguments or of other results, if these may;
//! * `joined` says of which tensors kernels write the parts where they lie, so that nobody joins them;
//! * `ahead` compiles the groups that are expected to be kernels on several threads before that.
//!
//! How values are known: [`UserIds`](crate::fusion::UserIds) numbers those of the definition, inputs first,
//! then results; the extents of input tensors have negative numbers. The whole that
//! is cut is the definition with its axes decided ([`Segments::fusion`]), and
//! [`Segments::ids`] has the numbers in it. A segment's inputs and outputs are values
//! of that whole. A caller who keeps a table from values to arguments starts with the
//! inputs, gives each segment what it asks for, stores what it returns, and drops
//! what [`Segment::last_uses`] names.
//!
//! Invariants: segments stand in an order in which they can run; each output of the
//! whole, and each tensor that is written into an input, is an output of exactly one
//! segment; a scalar never depends on a tensor's elements, so all of them are known
//! before the first segment runs ([`Segments::scalar`]).

mod across;
mod ahead;
mod aliases;
mod copies;
mod cut;
mod derived;
mod facts;
mod joined;
mod moments;
mod order;
mod partial;
mod search;
mod settle;
mod several;
mod summary;
#[cfg(test)]
pub(crate) mod tests;

pub use cut::{LibraryPart, Segment, SegmentKind, Segments};
pub(crate) use cut::{one_kernel, segment};
pub(crate) use derived::Derived;
pub(crate) use joined::Place;
