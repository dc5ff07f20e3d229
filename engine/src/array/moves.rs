//! Copies of elements to other places: into another layout, and from several
//! tensors into one.

use super::{Data, Element, View, parallel};
use crate::diag::{Diagnostic, Result};
use crate::util::order_by_key;

/// The sum of `term(axis, coordinate)` over the axes of element `i` of a
/// row-major tensor of `sizes`; none if a term is none.
pub(crate) fn fold_index(
    mut i: usize,
    sizes: &[usize],
    mut term: impl FnMut(usize, usize) -> Option<usize>,
) -> Option<usize> {
    let mut sum = 0;
    for (axis, size) in sizes.iter().enumerate().rev() {
        sum += term(axis, i % size)?;
        i /= size;
    }
    Some(sum)
}

impl View {
    /// A copy with strides that leave no holes: those of a dense layout in any
    /// order of axes, where axes of size 1 may have any.
    pub(crate) fn laid(&self, strides: &[i64]) -> Self {
        let order = order_by_key(self.sizes.len(), |axis| (self.sizes[axis] == 1, std::cmp::Reverse(strides[axis])));
        let strides = strides.iter().map(|&stride| usize::try_from(stride).unwrap_or(0)).collect();
        self.to_order(&order).seen(self.sizes.clone(), strides, 0)
    }

    /// The axes with one of them moved to the end, so that its elements follow
    /// each other.
    pub(crate) fn axis_last(&self, axis: usize) -> Self {
        let rank = self.sizes.len();
        let order: Vec<usize> = (0..rank).filter(|&other| other != axis).chain([axis]).collect();
        self.permuted(&order)
    }

    /// The axes with the last one moved to where [`Self::axis_last`] took it.
    pub(crate) fn axis_back(&self, axis: usize) -> Self {
        let mut order: Vec<usize> = (0..self.sizes.len()).collect();
        if let Some(last) = order.pop() {
            order.insert(axis, last);
        }
        self.permuted(&order)
    }

    /// A dense tensor whose element `i`, in row-major order, is that of
    /// `parts[n]` at the storage position `at` from its first element, where
    /// `pick(i) = (n, at)`. All parts have one type.
    pub(crate) fn picked(
        parts: &[&View],
        sizes: Vec<usize>,
        pick: impl Fn(usize) -> (usize, usize) + Sync,
    ) -> Result<Self> {
        let Some(first) = parts.first() else {
            return Err(Diagnostic::bug("elements are picked from no tensor"));
        };
        let len = sizes.iter().product();
        // Only where elements come from is generic; to move them is not.
        let places = |start: usize, places: &mut [(usize, usize)]| {
            places.iter_mut().enumerate().for_each(|(i, place)| *place = pick(start + i));
        };
        let data = match &*first.data {
            Data::F64(_) => pick_all::<f64>(parts, len, &places)?,
            Data::F32(_) => pick_all::<f32>(parts, len, &places)?,
            Data::Int(_) => pick_all::<i64>(parts, len, &places)?,
            Data::Bool(_) => pick_all::<bool>(parts, len, &places)?,
            Data::Complex(_) => pick_all::<(f64, f64)>(parts, len, &places)?,
        };
        Ok(Self::dense(first.dtype, sizes, data))
    }
}

/// The part and the place in it of each element from a position on.
type Places<'a> = &'a (dyn Fn(usize, &mut [(usize, usize)]) + Sync);

fn pick_all<T: Element>(parts: &[&View], len: usize, places: Places<'_>) -> Result<Data> {
    let slices: Vec<&[T]> = parts.iter().map(|part| part.slice::<T>()).collect::<Result<_>>()?;
    Ok(T::wrap(parallel::filled(len, &|start, out| {
        let mut found = vec![(0, 0); out.len()];
        places(start, &mut found);
        for (element, (part, at)) in out.iter_mut().zip(found) {
            *element = slices.get(part).and_then(|slice| slice.get(at)).copied().unwrap_or_default();
        }
    })))
}
