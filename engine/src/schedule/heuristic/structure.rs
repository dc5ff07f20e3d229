//! What heuristics know of a fusion whatever its sizes: computed once, and asked for
//! each call.

use super::norm_inner::held_of_rows;
use super::residency::ElementBytes;
use crate::diag::{Diagnostic, Result};
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
    /// Reductions over different dimensions, where there are such.
    pub(super) mixed: Option<Mixed>,
    /// Whether some value varies along a reduced axis after a reduction.
    pub(super) persistent: bool,
    /// All root axes that are in use, but those that are part of another one.
    pub(super) roots: Vec<AxisId>,
    /// Tensors that no other reads.
    pub(super) results: Vec<TvId>,
    /// What a thread holds of a row, where rows are held, by how elements lie in registers.
    pub(super) held: Option<[ElementBytes; 3]>,
}

/// Reductions over different dimensions.
#[derive(Clone, Debug)]
pub(super) struct Mixed {
    /// Two of them, by name.
    pub(super) first: String,
    pub(super) second: String,
    /// Their dimensions, where they are over two sets that have none in common.
    pub(super) two: Option<[BTreeSet<AxisId>; 2]>,
    /// Where each is over all dimensions but those of the others: the two sets.
    pub(super) sides: Option<[Side; 2]>,
}

/// Dimensions over which some of the reductions are.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) reduced: BTreeSet<AxisId>,
    /// What a thread holds, were they a row.
    pub(super) held: ElementBytes,
}

impl Unscheduled {
    /// An unscheduled fusion with its facts.
    pub fn new(scheduled: ScheduledFusion) -> Result<Self> {
        let structure = Structure::new(&scheduled)?;
        Ok(Self { scheduled, structure })
    }

    /// Whether some value varies along a reduced axis after a reduction.
    pub fn holds_rows(&self) -> bool {
        self.structure.persistent
    }
}

impl Structure {
    fn new(scheduled: &ScheduledFusion) -> Result<Self> {
        let roots: Vec<AxisId> = whole_roots(scheduled).into_iter().collect();
        let (reduced, mixed) = reduced_roots(scheduled, &roots)?;
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

/// The roots over which reductions reduce, and what there is to say where these do not agree.
fn reduced_roots(scheduled: &ScheduledFusion, roots: &[AxisId]) -> Result<(BTreeSet<AxisId>, Option<Mixed>)> {
    let mut sets: Vec<(BTreeSet<AxisId>, &String)> = Vec::new();
    for tv in scheduled.tensors.values() {
        if let Some(TvOp { compute: Compute::Reduce { over, .. }, .. }) = &tv.op {
            let over: BTreeSet<AxisId> = over.iter().copied().collect();
            if sets.iter().all(|(known, _)| *known != over) {
                sets.push((over, &tv.name));
            }
        }
    }
    let all: BTreeSet<AxisId> = sets.iter().flat_map(|(over, _)| over).copied().collect();
    let [(some, first), (others, second), ..] = &sets[..] else { return Ok((all, None)) };
    let are_two = sets.len() == 2 && some.is_disjoint(others);
    let are_sides = are_two && all.iter().eq(roots);
    let side = |reduced: &BTreeSet<AxisId>| {
        let [_, held, _] = held_of_rows(scheduled, reduced)?;
        Ok::<_, Box<Diagnostic>>(Side { reduced: reduced.clone(), held })
    };
    let is_asked = are_sides && !scheduled.axes.has_program_xforms();
    let sides = if is_asked { Some([side(some)?, side(others)?]) } else { None };
    let two = are_two.then(|| [some.clone(), others.clone()]);
    Ok((all, Some(Mixed { first: (*first).clone(), second: (*second).clone(), two, sides })))
}
