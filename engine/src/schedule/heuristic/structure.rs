//! What heuristics know of a fusion whatever its sizes: computed once, and asked for
//! each call.

use super::norm_inner::held_of_rows;
use super::residency::ElementBytes;
use crate::diag::Result;
use crate::schedule::{AxisId, Compute, ScheduledFusion, Stages, TvId, TvOp};
use std::collections::BTreeSet;

/// An unscheduled fusion, and facts about it that no size changes.
#[derive(Clone, Debug)]
pub struct Unscheduled {
    /// The fusion, before any scheduling.
    pub scheduled: ScheduledFusion,
    pub(super) structure: Structure,
}

/// Facts about an unscheduled fusion.
#[derive(Clone, Debug)]
pub(super) struct Structure {
    /// Root axes over which the fusion reduces, in id order.
    pub(super) reduced: BTreeSet<AxisId>,
    /// Two reductions over different dimensions, by name, where there are such.
    pub(super) mixed: Option<(String, String)>,
    /// Whether some value varies along a reduced axis after a reduction.
    pub(super) persistent: bool,
    /// All root axes that are in use, but those that are part of another one.
    pub(super) roots: Vec<AxisId>,
    /// Tensors that no other reads.
    pub(super) results: Vec<TvId>,
    /// What a thread holds of a row, where rows are held, by how elements lie in registers.
    pub(super) held: Option<[ElementBytes; 3]>,
}

impl Unscheduled {
    /// An unscheduled fusion with its facts.
    pub fn new(scheduled: ScheduledFusion) -> Result<Self> {
        let structure = Structure::new(&scheduled)?;
        Ok(Self { scheduled, structure })
    }
}

impl Structure {
    fn new(scheduled: &ScheduledFusion) -> Result<Self> {
        let (reduced, mixed) = reduced_roots(scheduled);
        let stages = Stages::new(scheduled);
        let persistent = scheduled
            .tensors
            .iter()
            .any(|(tv, data)| stages.earliest(tv) > 0 && data.indexed().any(|axis| reduced.contains(&axis)));
        let consumers = scheduled.all_consumers();
        let results = scheduled.tensors.ids().filter(|tv| consumers[*tv].is_empty()).collect();
        // Fusions with mixed reductions are refused before anybody asks, and of what the program widens, cuts or
        // regroups no heuristic holds rows.
        let is_asked = mixed.is_none() && !scheduled.axes.has_program_xforms();
        let held = (persistent && is_asked).then(|| held_of_rows(scheduled, &reduced)).transpose()?;
        let roots = whole_roots(scheduled).into_iter().collect();
        Ok(Self { reduced, mixed, persistent, roots, results, held })
    }
}

/// The root axes along which some tensor has elements.
fn roots_in_use(scheduled: &ScheduledFusion) -> BTreeSet<AxisId> {
    let axes = scheduled.tensors.values().flat_map(|tv| &tv.axes);
    axes.filter_map(|axis| axis.indexed()).collect()
}

/// The root axes in use, but for those that are part of another one.
pub(super) fn whole_roots(scheduled: &ScheduledFusion) -> BTreeSet<AxisId> {
    let roots = roots_in_use(scheduled);
    roots.iter().filter_map(|root| whole_of(scheduled, *root)).filter(|whole| roots.contains(whole)).collect()
}

/// The axis that an axis is part of ([`AxisGraph::widest`](crate::axes::AxisGraph::widest)), if loops run over it.
pub(super) fn whole_of(scheduled: &ScheduledFusion, axis: AxisId) -> Option<AxisId> {
    if scheduled.axes.has_program_xforms() { scheduled.axes.widest(axis) } else { Some(axis) }
}

/// The roots over which reductions reduce, and two reductions that do not agree.
fn reduced_roots(scheduled: &ScheduledFusion) -> (BTreeSet<AxisId>, Option<(String, String)>) {
    let mut reductions = scheduled.tensors.values().filter_map(|tv| match &tv.op {
        Some(TvOp { compute: Compute::Reduce { over, .. }, .. }) => {
            Some((over.iter().copied().collect::<BTreeSet<AxisId>>(), &tv.name))
        }
        _ => None,
    });
    let Some((mut all, first)) = reductions.next() else { return (BTreeSet::new(), None) };
    let mut mixed = None;
    for (over, name) in reductions {
        if over != all && mixed.is_none() {
            mixed = Some((first.clone(), name.clone()));
        }
        all.extend(over);
    }
    (all, mixed)
}
