//! A tensor written into the places of another, as rows of bytes.
//!
//! In: two layouts of one type and sizes. Out: [`CopyRows`], each of which is a
//! two-dimensional copy as devices have it: `rows` rows of `bytes` bytes, a pitch apart
//! on either side. Two dense layouts of one order are one row.
//!
//! Invariant: each element of the target is written once; what lies between its
//! elements is not touched.

use super::TensorMeta;

/// Rows of bytes that are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRows {
    /// Where the first row starts, in bytes from element 0 of the source.
    pub from: u64,
    /// Where it goes, in bytes from element 0 of the target.
    pub to: u64,
    /// Bytes of a row.
    pub bytes: u64,
    /// How many rows.
    pub rows: u64,
    /// From one row of the source to the next, in bytes.
    pub from_pitch: u64,
    /// From one row of the target to the next, in bytes.
    pub to_pitch: u64,
}

/// An axis of both layouts: its size, and its strides in bytes.
#[derive(Clone, Copy)]
struct CopyAxis {
    size: u64,
    from: u64,
    to: u64,
}

/// The copies that write a tensor of layout `from` into the places of layout `to`,
/// which has the same type and sizes, and no place twice.
pub fn copy_rows(from: &TensorMeta, to: &TensorMeta) -> Vec<CopyRows> {
    if from.sizes.contains(&0) {
        return Vec::new();
    }
    let width = from.dtype.bytes() as u64;
    let mut axes = merged(from, to, width);
    let bytes = match axes.last() {
        Some(axis) if axis.from == width && axis.to == width => axes.pop().map_or(width, |axis| axis.size * width),
        _ => width,
    };
    // The longest axis makes the rows: so the fewest copies are made.
    let longest = (0..axes.len()).max_by_key(|&axis| axes[axis].size);
    let rows = longest.map(|axis| axes.remove(axis)).unwrap_or(CopyAxis { size: 1, from: bytes, to: bytes });
    let mut starts = vec![(0, 0)];
    for axis in axes {
        let steps = |(from, to): (u64, u64)| (0..axis.size).map(move |i| (from + i * axis.from, to + i * axis.to));
        starts = starts.into_iter().flat_map(steps).collect();
    }
    let copy = |(from, to)| CopyRows { from, to, bytes, rows: rows.size, from_pitch: rows.from, to_pitch: rows.to };
    starts.into_iter().map(copy).collect()
}

/// The axes along which there is more than one element, outermost in the target
/// first; those that are one axis in both layouts as one.
fn merged(from: &TensorMeta, to: &TensorMeta, width: u64) -> Vec<CopyAxis> {
    let bytes = |stride: i64| stride.unsigned_abs() * width;
    let all = from.sizes.iter().zip(from.strides.iter().zip(&to.strides));
    let mut axes: Vec<CopyAxis> = all
        .filter(|(size, _)| **size > 1)
        .map(|(size, (from, to))| CopyAxis { size: size.unsigned_abs(), from: bytes(*from), to: bytes(*to) })
        .collect();
    axes.sort_by_key(|axis| std::cmp::Reverse(axis.to));
    let mut merged: Vec<CopyAxis> = Vec::new();
    for axis in axes {
        match merged.last_mut() {
            Some(outer) if outer.from == axis.size * axis.from && outer.to == axis.size * axis.to => {
                *outer = CopyAxis { size: outer.size * axis.size, ..axis };
            }
            _ => merged.push(axis),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::{DType, Value};
    use crate::property::property;
    use crate::tensor::{HostTensor, Offsets};

    fn meta(sizes: &[i64], strides: &[i64]) -> TensorMeta {
        TensorMeta { dtype: DType::I32, sizes: sizes.to_vec(), strides: strides.to_vec() }
    }

    /// Copies a counting tensor, and looks at every byte of the target.
    #[track_caller]
    fn check_copy(sizes: &[i64], from: &[i64], to: &[i64], copies: Option<usize>) {
        let mut next = 0;
        let counting = |_: &[i64]| {
            next += 1;
            Value::Int(next)
        };
        let source = HostTensor::strided(meta(sizes, from), counting).unwrap();
        let target = meta(sizes, to);
        let rows = copy_rows(&source.meta, &target);
        assert!(copies.is_none_or(|copies| copies == rows.len()), "{rows:?}");
        let mut data = vec![0xee_u8; 4 * target.span().unwrap() as usize];
        let mut expected = data.clone();
        for row in &rows {
            for i in 0..row.rows {
                let (from, to) = ((row.from + i * row.from_pitch) as usize, (row.to + i * row.to_pitch) as usize);
                let bytes = row.bytes as usize;
                data[to..to + bytes].copy_from_slice(&source.data[from..from + bytes]);
            }
        }
        for (value, offset) in source.values().zip(Offsets::new(&target)) {
            expected[4 * offset..4 * offset + 4].copy_from_slice(&(value.as_i64() as i32).to_le_bytes());
        }
        assert_eq!(data, expected, "{sizes:?} {from:?} {to:?}");
        let moved: u64 = rows.iter().map(|row| row.rows * row.bytes).sum();
        assert_eq!(moved, 4 * sizes.iter().product::<i64>() as u64);
    }

    #[test]
    fn layouts_become_few_rows() {
        check_copy(&[3, 4], &[4, 1], &[4, 1], Some(1));
        check_copy(&[3, 4], &[1, 3], &[1, 3], Some(1));
        check_copy(&[3, 4], &[4, 1], &[7, 1], Some(1));
        check_copy(&[3, 4], &[4, 1], &[1, 3], Some(3));
        check_copy(&[2, 3, 4], &[12, 4, 1], &[24, 8, 2], Some(1));
        check_copy(&[2, 3, 4], &[12, 4, 1], &[20, 5, 1], Some(2));
        check_copy(&[1, 1], &[9, 9], &[5, 5], Some(1));
        check_copy(&[], &[], &[], Some(1));
        check_copy(&[0, 4], &[4, 1], &[4, 1], Some(0));
    }

    #[test]
    fn any_layout_is_written_into_any_other() {
        property(|u| {
            let rank = u.int_in_range(0..=4)?;
            let sizes: Vec<i64> = (0..rank).map(|_| u.int_in_range(1..=4)).collect::<Result<_, _>>()?;
            let mut layout = || -> Result<Vec<i64>, _> {
                let mut order: Vec<usize> = (0..rank).collect();
                for i in (1..rank).rev() {
                    order.swap(i, u.int_in_range(0..=i)?);
                }
                let (mut strides, mut next) = (vec![0; rank], 1);
                for axis in order {
                    strides[axis] = next;
                    next = next * sizes[axis] + u.int_in_range(0..=2)?;
                }
                Ok(strides)
            };
            let (from, to) = (layout()?, layout()?);
            check_copy(&sizes, &from, &to, None);
            Ok(())
        });
    }
}
