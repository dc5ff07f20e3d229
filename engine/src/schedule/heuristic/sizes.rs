//! Concrete sizes, for heuristics.

use crate::fusion::{Bindings, Fusion, ScalarDef, ScalarId};
use crate::num::{DType, Value};
use crate::schedule::{AxisId, Extent, ScheduledFusion, Xform};
use crate::util::SecondaryMap;

/// The values of a fusion's integer scalars for one set of arguments.
#[derive(Clone, Debug)]
pub struct Sizes {
    values: SecondaryMap<ScalarId, i64>,
    elements: (i64, i64),
}

impl Sizes {
    /// The sizes that the arguments give.
    pub fn new(fusion: &Fusion, bindings: &Bindings) -> Self {
        let mut values = SecondaryMap::new();
        for (scalar, data) in fusion.scalars.iter() {
            let needed = data.dtype == DType::I64 && !matches!(data.def, ScalarDef::Input { .. })
                || fusion.tensors.values().any(|tensor| tensor.axes.iter().any(|axis| axis.extent == scalar));
            if needed && let Value::Int(value) = bindings.scalar(scalar) {
                values.set(scalar, value);
            }
        }
        let count = |tensor| {
            let sizes = bindings.sizes(fusion, tensor);
            if sizes.contains(&0) { 0 } else { sizes.iter().fold(1i64, |n, size| n.saturating_mul(*size)) }
        };
        let elements =
            fusion.tensors.ids().map(count).fold((i64::MAX, 0), |(least, most), n| (least.min(n), most.max(n)));
        Self { values, elements }
    }

    /// The numbers of elements of the smallest and the largest tensor.
    pub fn elements(&self) -> (i64, i64) {
        self.elements
    }

    /// The extent of an axis.
    pub fn extent(&self, scheduled: &ScheduledFusion, axis: AxisId) -> i64 {
        match scheduled.axes[axis].extent {
            Extent::Const(value) => value,
            Extent::Scalar(scalar) => self.values[scalar],
            Extent::CeilDiv(of, factor) => (self.extent(scheduled, of) + factor - 1) / factor,
            Extent::Product(a, b) => self.extent(scheduled, a).saturating_mul(self.extent(scheduled, b)),
            Extent::Plus(of, more) => self.extent(scheduled, of) + more,
            Extent::Times(of, times) => self.extent(scheduled, of).saturating_mul(times),
            Extent::Share(of, parts) => {
                let beside = parts.beside.map_or(1, |beside| self.extent(scheduled, beside));
                parts.share(self.extent(scheduled, of), beside)
            }
            Extent::Shares(of, share) => {
                let (of, share) = (self.extent(scheduled, of), self.extent(scheduled, share));
                of / share + i64::from(of % share != 0)
            }
        }
    }

    /// Where an axis starts in the one that it is part of ([`AxisGraph::widest`](crate::axes::AxisGraph::widest)); none where
    /// numbers that are no sizes say so.
    pub fn place(&self, scheduled: &ScheduledFusion, axis: AxisId) -> Option<i64> {
        let whole = scheduled.axes.widest(axis)?;
        let (mut at, mut place) = (axis, 0i64);
        while at != whole {
            let step = scheduled.axes.uses(at).find_map(|xform| match *xform {
                Xform::Resize { left, output, .. } => Some((left, output)),
                _ => None,
            });
            let (left, output) = step?;
            let left = &scheduled.axes[left];
            place = place.checked_add(left.constant)?;
            for (factor, scalar) in &left.terms {
                if matches!(scheduled.fusion.scalars[*scalar].def, ScalarDef::Input { .. }) {
                    return None;
                }
                place = place.checked_add(factor.checked_mul(self.values[*scalar])?)?;
            }
            at = output;
        }
        Some(place)
    }
}
