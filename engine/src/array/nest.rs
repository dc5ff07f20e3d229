//! Loop nests over strided operands, split into chunks that run in parallel.
//!
//! A nest visits the elements of a dense result in row-major order, and with
//! each the element `sum(index[d] * stride[d])` of each of `N` operands.
//! Adjacent axes that all operands step through uniformly are merged, so that
//! most nests are one or two loops deep.

use super::parallel::{self, CHUNK};

/// A loop nest: sizes, and each operand's strides, outer to inner.
#[derive(Clone, Debug)]
pub(crate) struct Nest<const N: usize> {
    axes: Vec<(usize, [usize; N])>,
    len: usize,
}

impl<const N: usize> Nest<N> {
    /// The nest over `sizes`; `strides[n]` are those of operand `n`.
    pub(crate) fn new(sizes: &[usize], strides: [&[usize]; N]) -> Self {
        if sizes.contains(&0) {
            return Self { axes: vec![(1, [0; N])], len: 0 };
        }
        let mut axes: Vec<(usize, [usize; N])> = Vec::new();
        for (axis, &size) in sizes.iter().enumerate() {
            let inner: [usize; N] = std::array::from_fn(|n| strides[n][axis]);
            if size == 1 {
                continue;
            }
            match axes.last_mut() {
                // i * outer + j * inner is (i * size + j) * inner.
                Some((outer, stride)) if (0..N).all(|n| stride[n] == inner[n] * size) => {
                    *outer *= size;
                    *stride = inner;
                }
                _ => axes.push((size, inner)),
            }
        }
        if axes.is_empty() {
            axes.push((1, [0; N]));
        }
        Self { axes, len: sizes.iter().product() }
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Strides of the innermost loop.
    pub(crate) fn inner_strides(&self) -> [usize; N] {
        self.axes.last().map_or([0; N], |(_, strides)| *strides)
    }

    /// `(position, length, offsets)` of each run along the innermost axis within
    /// elements `start .. start + len`; positions count from `start`.
    pub(crate) fn rows(&self, start: usize, len: usize) -> Rows<'_, N> {
        let mut index = vec![0; self.axes.len()];
        let mut offsets = [0; N];
        let mut rest = start;
        for (d, (size, strides)) in self.axes.iter().enumerate().rev() {
            index[d] = rest % size;
            rest /= size;
            for n in 0..N {
                offsets[n] += index[d] * strides[n];
            }
        }
        Rows { nest: self, index, offsets, position: 0, len }
    }

    /// Advances the axes outside the innermost one.
    fn carry(&self, index: &mut [usize], offsets: &mut [usize; N]) {
        for d in (0..index.len() - 1).rev() {
            let (size, strides) = self.axes[d];
            index[d] += 1;
            if index[d] < size {
                for n in 0..N {
                    offsets[n] += strides[n];
                }
                return;
            }
            index[d] = 0;
            for n in 0..N {
                offsets[n] -= (size - 1) * strides[n];
            }
        }
    }

    /// Fills a dense result: `row(out, offsets)` writes one run.
    pub(crate) fn fill<R: Copy + Default + Send + Sync>(&self, row: impl Fn(&mut [R], [usize; N]) + Sync) -> Vec<R> {
        parallel::filled(self.len, &|start, out| {
            for (position, run, offsets) in self.rows(start, out.len()) {
                row(&mut out[position..position + run], offsets);
            }
        })
    }

    /// Fills a dense result of `W`-byte elements.
    pub(crate) fn fill_bytes<const W: usize>(&self, row: impl Fn(&mut [[u8; W]], [usize; N]) + Sync) -> Vec<u8> {
        let bytes = parallel::filled_over([0; W], self.len, &|start, out| {
            for (position, run, offsets) in self.rows(start, out.len()) {
                row(&mut out[position..position + run], offsets);
            }
        });
        bytes.into_flattened()
    }
}

/// The runs along the innermost axis of a nest, in order.
pub(crate) struct Rows<'a, const N: usize> {
    nest: &'a Nest<N>,
    /// Of the next run's first element.
    index: Vec<usize>,
    offsets: [usize; N],
    /// Elements before the next run, and in all.
    position: usize,
    len: usize,
}

impl<const N: usize> Iterator for Rows<'_, N> {
    type Item = (usize, usize, [usize; N]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.position == self.len {
            return None;
        }
        let inner = self.index.len() - 1;
        let (size, strides) = self.nest.axes[inner];
        let (position, offsets) = (self.position, self.offsets);
        let run = (size - self.index[inner]).min(self.len - position);
        self.position += run;
        if self.position < self.len {
            for (offset, stride) in self.offsets.iter_mut().zip(strides) {
                *offset -= self.index[inner] * stride;
            }
            self.index[inner] = 0;
            self.nest.carry(&mut self.index, &mut self.offsets);
        }
        Some((position, run, offsets))
    }
}

/// The elements `offset, offset + stride, ...` of a slice; `count` of them.
fn run<A: Copy>(a: &[A], offset: usize, stride: usize, count: usize) -> impl Iterator<Item = A> + '_ {
    // A stride of 0 repeats one element; `step_by` cannot.
    (0..count).map(move |i| a[offset + i * stride])
}

/// Applies a function to each element.
pub(crate) fn map1<A, R>(nest: &Nest<1>, a: &[A], f: impl Fn(A) -> R + Sync) -> Vec<R>
where
    A: Copy + Sync,
    R: Copy + Default + Send + Sync,
{
    if let Some(planes) = Planes::of(nest) {
        return planes.map(nest, a, f);
    }
    let [stride] = nest.inner_strides();
    nest.fill(|out, [offset]| match stride {
        1 => {
            let a = &a[offset..offset + out.len()];
            out.iter_mut().zip(a).for_each(|(r, &a)| *r = f(a));
        }
        0 => out.fill(f(a[offset])),
        _ => {
            let count = out.len();
            out.iter_mut().zip(run(a, offset, stride, count)).for_each(|(r, a)| *r = f(a));
        }
    })
}

/// Rows of a plane that are written together: as many as lie in a cache line of the operand.
const BAND: usize = 16;
/// Columns of a band that are written before the next row: their lines stay in the nearest cache.
const BLOCK: usize = 256;

/// A nest whose two innermost axes are transposed: the rows of each plane of the result follow
/// each other in the operand, and its columns lie apart. Going along the rows, each element
/// would take a cache line of the operand for itself, and a page's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Planes {
    rows: usize,
    columns: usize,
    /// Between the columns of the operand.
    step: usize,
}

impl Planes {
    /// The planes of a nest, where going through them in bands pays.
    fn of(nest: &Nest<1>) -> Option<Self> {
        let [.., (rows, [1]), (columns, [step])] = nest.axes[..] else { return None };
        let pays = rows >= BAND && columns >= BAND && step >= rows && rows * columns >= CHUNK;
        pays.then_some(Self { rows, columns, step })
    }

    /// Applies a function to each element, band by band: row `r` and column `c` of a plane that
    /// begins at `offset` are element `offset + r + c * step`.
    fn map<A, R>(self, nest: &Nest<1>, a: &[A], f: impl Fn(A) -> R + Sync) -> Vec<R>
    where
        A: Copy + Sync,
        R: Copy + Default + Send + Sync,
    {
        let Self { rows, columns, step } = self;
        let mut result = parallel::defaults(nest.len);
        let mut bands = Vec::new();
        for (number, plane) in result.chunks_mut(rows * columns).enumerate() {
            let start = nest.rows(number * rows * columns, 1).next().map_or(0, |(.., [offset])| offset);
            let places = (0..).step_by(BAND).map(|row| start + row);
            bands.extend(plane.chunks_mut(BAND * columns).zip(places));
        }
        parallel::consume(bands, &|(band, offset)| {
            for block in (0..columns).step_by(BLOCK) {
                for (row, out) in band.chunks_mut(columns).enumerate() {
                    let out = &mut out[block..columns.min(block + BLOCK)];
                    let elements = run(a, offset + row + block * step, step, out.len());
                    out.iter_mut().zip(elements).for_each(|(r, a)| *r = f(a));
                }
            }
        });
        result
    }
}

/// Applies a function to each pair of elements.
pub(crate) fn map2<A, B, R>(nest: &Nest<2>, a: &[A], b: &[B], f: impl Fn(A, B) -> R + Sync) -> Vec<R>
where
    A: Copy + Sync,
    B: Copy + Sync,
    R: Copy + Default + Send + Sync,
{
    let [sa, sb] = nest.inner_strides();
    nest.fill(|out, [oa, ob]| {
        let count = out.len();
        match (sa, sb) {
            (1, 1) => {
                let (a, b) = (&a[oa..oa + count], &b[ob..ob + count]);
                out.iter_mut().zip(a.iter().zip(b)).for_each(|(r, (&a, &b))| *r = f(a, b));
            }
            (1, 0) => {
                let b = b[ob];
                out.iter_mut().zip(&a[oa..oa + count]).for_each(|(r, &a)| *r = f(a, b));
            }
            (0, 1) => {
                let a = a[oa];
                out.iter_mut().zip(&b[ob..ob + count]).for_each(|(r, &b)| *r = f(a, b));
            }
            _ => {
                let pairs = run(a, oa, sa, count).zip(run(b, ob, sb, count));
                out.iter_mut().zip(pairs).for_each(|(r, (a, b))| *r = f(a, b));
            }
        }
    })
}

/// Applies a function to each triple of elements.
pub(crate) fn map3<A, B, C, R>(nest: &Nest<3>, a: &[A], b: &[B], c: &[C], f: impl Fn(A, B, C) -> R + Sync) -> Vec<R>
where
    A: Copy + Sync,
    B: Copy + Sync,
    C: Copy + Sync,
    R: Copy + Default + Send + Sync,
{
    let [sa, sb, sc] = nest.inner_strides();
    nest.fill(|out, [oa, ob, oc]| {
        for (i, r) in out.iter_mut().enumerate() {
            *r = f(a[oa + i * sa], b[ob + i * sb], c[oc + i * sc]);
        }
    })
}

/// Replaces each element by a function of it.
pub(crate) fn update1<A: Copy + Send + Sync>(a: &mut [A], f: impl Fn(A) -> A + Sync) {
    parallel::chunks(a, CHUNK, &|_, a| a.iter_mut().for_each(|a| *a = f(*a)));
}

/// Replaces each element of a dense operand, the first of the nest, by a
/// function of it and of the other operand's element.
pub(crate) fn update2<A, B>(nest: &Nest<2>, a: &mut [A], b: &[B], f: impl Fn(A, B) -> A + Sync)
where
    A: Copy + Send + Sync,
    B: Copy + Sync,
{
    let [_, sb] = nest.inner_strides();
    parallel::chunks(a, CHUNK, &|chunk, a| {
        for (position, count, [_, ob]) in nest.rows(chunk * CHUNK, a.len()) {
            let a = &mut a[position..position + count];
            match sb {
                1 => a.iter_mut().zip(&b[ob..ob + count]).for_each(|(a, &b)| *a = f(*a, b)),
                _ => a.iter_mut().zip(run(b, ob, sb, count)).for_each(|(a, b)| *a = f(*a, b)),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_axes_merge() {
        let dense = Nest::new(&[2, 3, 4], [&[12, 4, 1], &[12, 4, 1]]);
        assert_eq!(dense.axes, [(24, [1, 1])]);
        let row = Nest::new(&[2, 3, 4], [&[12, 4, 1], &[0, 0, 1]]);
        assert_eq!(row.axes, [(6, [4, 0]), (4, [1, 1])]);
        let scalar = Nest::new(&[2, 3], [&[0, 0]]);
        assert_eq!(scalar.axes, [(6, [0])]);
        assert_eq!(Nest::new(&[], [&[]]).axes, [(1, [0])]);
        assert_eq!(Nest::new(&[1, 5, 1], [&[9, 2, 9]]).axes, [(5, [2])]);
    }

    #[test]
    fn any_chunk_of_any_nest_visits_the_right_elements() {
        crate::property::property(|u| {
            let rank = u.int_in_range(0..=4)?;
            let mut draw = |least, most| (0..rank).map(|_| u.int_in_range(least..=most)).collect::<Result<Vec<_>, _>>();
            let (sizes, strides) = (draw(1usize, 4)?, draw(0usize, 5)?);
            let nest = Nest::new(&sizes, [&strides]);
            let mut expected = vec![0];
            for (size, stride) in sizes.iter().zip(&strides) {
                expected = expected.iter().flat_map(|base| (0..*size).map(move |i| base + i * stride)).collect();
            }
            let start = u.int_in_range(0..=expected.len())?;
            let len = u.int_in_range(0..=expected.len() - start)?;
            let mut visited = Vec::new();
            for (position, run, [offset]) in nest.rows(start, len) {
                assert_eq!(position, visited.len());
                visited.extend((0..run).map(|i| offset + i * nest.inner_strides()[0]));
            }
            assert_eq!(visited, expected[start..start + len], "{sizes:?} {strides:?}");
            Ok(())
        });
    }

    /// Transposed planes are gone through in bands, and give what the definition says.
    #[track_caller]
    fn check_transposed(sizes: &[usize], strides: &[usize], in_bands: bool) {
        let nest = Nest::new(sizes, [strides]);
        assert_eq!(Planes::of(&nest).is_some(), in_bands, "{sizes:?} {strides:?}");
        let span: usize = 1 + sizes.iter().zip(strides).map(|(size, stride)| (size - 1) * stride).sum::<usize>();
        let a: Vec<u32> = (0..span as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
        let mut offsets = vec![0];
        for (size, stride) in sizes.iter().zip(strides) {
            offsets = offsets.iter().flat_map(|base| (0..*size).map(move |i| base + i * stride)).collect();
        }
        let expected: Vec<u64> = offsets.iter().map(|offset| u64::from(a[*offset]) + 1).collect();
        assert!(map1(&nest, &a, |v| u64::from(v) + 1) == expected, "{sizes:?} {strides:?}");
    }

    #[test]
    fn transposed_planes_are_read_in_bands() {
        check_transposed(&[300, 517], &[1, 300], true);
        // Whole bands and one more row; more than a block of columns; holes between columns.
        check_transposed(&[257, 256], &[1, 259], true);
        check_transposed(&[16, 1025], &[1, 16], true);
        // Planes in an order of their own, and such as repeat.
        check_transposed(&[3, 5, 131, 129], &[131 * 129, 3 * 131 * 129, 1, 131], true);
        check_transposed(&[4, 130, 130], &[0, 1, 130], true);
        // Rows too few, planes too small, columns that share elements.
        check_transposed(&[15, 4000], &[1, 15], false);
        check_transposed(&[100, 100], &[1, 100], false);
        check_transposed(&[200, 200], &[1, 3], false);
        check_transposed(&[200, 200], &[200, 1], false);
    }

    #[test]
    fn updates_are_maps_into_the_operand() {
        crate::property::property(|u| {
            let sizes = [u.int_in_range(0..=40usize)?, u.int_in_range(0..=900)?];
            let strides = *u.choose(&[[900, 1], [1, 40], [0, 1], [3, 0], [0, 0]])?;
            let (a, b): (Vec<i32>, Vec<i32>) = (0..36_000).map(|i| (i, (i * 7) % 1001)).unzip();
            let nest = Nest::new(&sizes, [&[sizes[1], 1], &strides]);
            let f = |a: i32, b: i32| a - 3 * b;
            let mut updated = a[..sizes[0] * sizes[1]].to_vec();
            update2(&nest, &mut updated, &b, f);
            assert_eq!(updated, map2(&nest, &a, &b, f), "{sizes:?} {strides:?}");
            update1(&mut updated, |v| v + 1);
            assert_eq!(updated, map2(&nest, &a, &b, |a, b| f(a, b) + 1));
            Ok(())
        });
    }
}
