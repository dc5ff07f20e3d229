//! Tensors in host memory.

use super::{HostBytes, Offsets, TensorMeta};
use crate::diag::{Diagnostic, Result, code};
use crate::num::{DType, Value, eval, storage};
use std::borrow::Cow;

/// A tensor in host memory: a view of `data` that starts at element `offset`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTensor {
    /// Type and layout.
    pub meta: TensorMeta,
    /// Storage, little endian, element 0 first. Elements of `f4e2m1fn` have a
    /// byte each, see [`DType::bits`].
    pub data: HostBytes,
    /// Element of the storage at which the view starts.
    pub offset: usize,
}

impl HostTensor {
    /// A view of storage; refused if an element lies outside.
    pub fn new(meta: TensorMeta, data: impl Into<HostBytes>, offset: usize) -> Result<Self> {
        let tensor = Self { meta, data: data.into(), offset };
        tensor.check()?;
        Ok(tensor)
    }

    /// Where element 0 is, in bytes of the storage. Of any offset: saturates.
    pub fn first_byte(&self) -> usize {
        self.offset.saturating_mul(self.dtype().bytes())
    }

    /// A dense tensor over its elements' bytes.
    pub fn contiguous(dtype: DType, sizes: &[i64], data: impl Into<HostBytes>) -> Result<Self> {
        Self::new(TensorMeta::contiguous(dtype, sizes), data, 0)
    }

    /// A dense tensor of zeros.
    pub fn zeros(dtype: DType, sizes: &[i64]) -> Result<Self> {
        Self::from_byte(TensorMeta::contiguous(dtype, sizes), 0)
    }

    /// A tensor of any layout whose storage is all one byte. With 0xff, floats
    /// are NaN and integers -1: what a kernel must overwrite.
    pub fn from_byte(meta: TensorMeta, byte: u8) -> Result<Self> {
        let data = vec![byte; meta.span_bytes()?];
        Ok(Self { meta, data: data.into(), offset: 0 })
    }

    /// A dense tensor filled with one value, converted to the type.
    pub fn filled(dtype: DType, sizes: &[i64], value: Value) -> Result<Self> {
        let meta = TensorMeta::contiguous(dtype, sizes);
        let bytes = meta.dense_bytes()?;
        let element = &storage::encode(dtype, convert(dtype, value))[..dtype.bytes()];
        Ok(Self { meta, data: element.repeat(bytes / dtype.bytes()).into(), offset: 0 })
    }

    /// A dense tensor whose elements are a function of their index, converted
    /// to the type.
    pub fn from_fn(dtype: DType, sizes: &[i64], value: impl FnMut(&[i64]) -> Value) -> Result<Self> {
        Self::strided(TensorMeta::contiguous(dtype, sizes), value)
    }

    /// The same for any layout. Storage that no element refers to is 0xff. Of
    /// elements that share storage, the last one written stays.
    pub fn strided(meta: TensorMeta, mut value: impl FnMut(&[i64]) -> Value) -> Result<Self> {
        let mut data = vec![0xff; meta.span_bytes()?];
        let mut offsets = Offsets::new(&meta);
        while offsets.len() > 0 {
            let element = convert(meta.dtype, value(offsets.index()));
            let offset = offsets.next().expect("the length is not zero");
            storage::write(meta.dtype, &mut data, offset, element);
        }
        Ok(Self { meta, data: data.into(), offset: 0 })
    }

    /// A dense tensor from numbers in row-major order, converted to the type.
    pub fn from_f64(dtype: DType, sizes: &[i64], values: &[f64]) -> Result<Self> {
        Self::from_values(dtype, sizes, values.iter().map(|&v| Value::Float(v)))
    }

    /// A dense tensor from integers in row-major order, converted to the type.
    pub fn from_i64(dtype: DType, sizes: &[i64], values: &[i64]) -> Result<Self> {
        Self::from_values(dtype, sizes, values.iter().map(|&v| Value::Int(v)))
    }

    fn from_values(dtype: DType, sizes: &[i64], values: impl ExactSizeIterator<Item = Value>) -> Result<Self> {
        let meta = TensorMeta::contiguous(dtype, sizes);
        let mut data = vec![0; meta.dense_bytes()?];
        let count = data.len() / dtype.bytes();
        if values.len() != count {
            let given = values.len();
            return Err(Diagnostic::user(
                code::INPUT_EXTENT,
                format!("{given} values were given for a tensor of {sizes:?}, which has {count}"),
            ));
        }
        for (i, value) in values.enumerate() {
            storage::write(dtype, &mut data, i, convert(dtype, value));
        }
        Ok(Self { meta, data: data.into(), offset: 0 })
    }

    /// Whether every element lies inside the storage.
    pub fn check(&self) -> Result<()> {
        self.meta.span_bytes()?;
        let span = self.meta.span().expect("its size in bytes was computed from it") as u64;
        let elements = (self.data.len() / self.meta.dtype.bytes()) as u64;
        let offset = self.offset as u64;
        if span == 0 || offset.checked_add(span).is_some_and(|end| end <= elements) {
            return Ok(());
        }
        let TensorMeta { dtype, sizes, strides } = &self.meta;
        Err(Diagnostic::user(
            code::INPUT_STRIDE,
            format!(
                "sizes {sizes:?} with strides {strides:?} from element {offset} reach element {}, the storage holds {elements} of {dtype}",
                offset.saturating_add(span - 1)
            ),
        ))
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.meta.dtype
    }
    /// Sizes, outer to inner.
    pub fn sizes(&self) -> &[i64] {
        &self.meta.sizes
    }
    /// Strides in elements.
    pub fn strides(&self) -> &[i64] {
        &self.meta.strides
    }
    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.meta.rank()
    }
    /// The number of elements.
    pub fn numel(&self) -> usize {
        Offsets::new(&self.meta).len()
    }
    /// Whether the elements lie dense in row-major order.
    pub fn is_contiguous(&self) -> bool {
        self.meta.is_contiguous()
    }

    /// The place of an element in the storage, if the index is in range.
    fn place(&self, index: &[i64]) -> Option<usize> {
        let in_range =
            index.len() == self.rank() && index.iter().zip(self.sizes()).all(|(i, size)| (0..*size).contains(i));
        let inner: i64 = in_range.then(|| index.iter().zip(self.strides()).map(|(i, stride)| i * stride).sum())?;
        self.offset.checked_add(usize::try_from(inner).ok()?)
    }

    /// The element at an index; `None` outside.
    pub fn try_get(&self, index: &[i64]) -> Option<Value> {
        storage::read(self.meta.dtype, &self.data, self.place(index)?)
    }

    /// The element at an index.
    ///
    /// # Panics
    /// If the index is out of range, like indexing a slice.
    pub fn get(&self, index: &[i64]) -> Value {
        match self.try_get(index) {
            Some(value) => value,
            None => panic!("index {index:?} is outside of sizes {:?}", self.sizes()),
        }
    }

    /// Sets the element at an index, converted to the type; whether it was in range.
    pub fn set(&mut self, index: &[i64], value: Value) -> bool {
        let dtype = self.meta.dtype;
        self.place(index).is_some_and(|place| storage::write(dtype, &mut self.data, place, convert(dtype, value)))
    }

    /// The elements in row-major order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = Value> + '_ {
        Offsets::new(&self.meta).map(|offset| {
            storage::read(self.meta.dtype, &self.data, self.offset + offset).expect("the layout fits the storage")
        })
    }

    /// The elements in row-major order as floats, of complex ones the real parts.
    pub fn to_f64(&self) -> Vec<f64> {
        self.values().map(|value| eval::to_f64(self.meta.dtype, value)).collect()
    }

    /// The elements' bytes in row-major order; copied only if they do not lie so.
    pub fn dense_bytes(&self) -> Cow<'_, [u8]> {
        let width = self.meta.dtype.bytes();
        if self.is_contiguous() {
            let start = self.offset.saturating_mul(width);
            let bytes = self.data.get(start..).and_then(|rest| rest.get(..self.numel() * width));
            return Cow::Borrowed(bytes.unwrap_or(&[]));
        }
        let mut bytes = Vec::with_capacity(self.numel() * width);
        for offset in Offsets::new(&self.meta) {
            let start = (self.offset + offset) * width;
            bytes.extend_from_slice(&self.data[start..start + width]);
        }
        Cow::Owned(bytes)
    }

    /// A dense copy.
    #[must_use]
    pub fn to_contiguous(&self) -> Self {
        let meta = TensorMeta::contiguous(self.meta.dtype, self.sizes());
        Self { meta, data: self.dense_bytes().into_owned().into(), offset: 0 }
    }

    /// A view whose axis `i` is axis `perm[i]` of this one.
    pub fn permuted(mut self, perm: &[usize]) -> Result<Self> {
        let mut sorted = perm.to_vec();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..self.rank()) {
            let rank = self.rank();
            return Err(Diagnostic::user(code::AXIS, format!("{perm:?} does not name each of the {rank} axes once")));
        }
        self.meta.sizes = perm.iter().map(|&axis| self.meta.sizes[axis]).collect::<Vec<_>>();
        self.meta.strides = perm.iter().map(|&axis| self.meta.strides[axis]).collect();
        Ok(self)
    }

    /// A view in which axes of size 1 have the given sizes, with stride 0.
    pub fn expanded(mut self, sizes: &[i64]) -> Result<Self> {
        let fits = sizes.len() == self.rank()
            && sizes.iter().zip(self.sizes()).all(|(new, old)| new == old || (*old == 1 && *new >= 0));
        if !fits {
            let old = self.sizes();
            return Err(Diagnostic::user(code::INPUT_EXTENT, format!("sizes {old:?} cannot be expanded to {sizes:?}")));
        }
        for (axis, &size) in sizes.iter().enumerate() {
            if self.meta.sizes[axis] != size {
                self.meta.sizes[axis] = size;
                self.meta.strides[axis] = 0;
            }
        }
        Ok(self)
    }

    /// Whether type, sizes and every element's bits are equal; layouts may differ.
    pub fn bits_equal(&self, other: &Self) -> bool {
        self.meta.dtype == other.meta.dtype
            && self.sizes() == other.sizes()
            && self.dense_bytes() == other.dense_bytes()
    }
}

/// A value of any class in the type's class and range. Integers are those of
/// `i64`, which for `u64` are its bits.
fn convert(dtype: DType, value: Value) -> Value {
    let from = match value {
        Value::Float(_) => DType::F64,
        Value::Int(_) => DType::I64,
        Value::Bool(_) => DType::Bool,
        Value::Complex(..) => DType::C128,
    };
    eval::cast(from, dtype, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructors_agree() {
        let by_fn = HostTensor::from_fn(DType::F32, &[2, 3], |index| Value::Int(10 * index[0] + index[1])).unwrap();
        let by_list = HostTensor::from_f64(DType::F32, &[2, 3], &[0.0, 1.0, 2.0, 10.0, 11.0, 12.0]).unwrap();
        assert_eq!(by_fn, by_list);
        assert_eq!(by_fn.get(&[1, 2]), Value::Float(12.0));
        assert_eq!(by_fn.try_get(&[2, 0]), None);
        let filled = HostTensor::filled(DType::BF16, &[3], Value::Float(1.5)).unwrap();
        assert_eq!(filled.to_f64(), [1.5; 3]);
        assert_eq!(HostTensor::zeros(DType::I8, &[2, 0]).unwrap().numel(), 0);
        let scalar = HostTensor::from_i64(DType::I64, &[], &[7]).unwrap();
        assert_eq!((scalar.numel(), scalar.get(&[])), (1, Value::Int(7)));
        let nan = HostTensor::from_byte(TensorMeta::contiguous(DType::F16, &[4]), 0xff).unwrap();
        assert!(nan.to_f64().iter().all(|v| v.is_nan()));
    }

    #[test]
    fn views_see_the_same_elements() {
        let x = HostTensor::from_i64(DType::I32, &[2, 3], &[1, 2, 3, 4, 5, 6]).unwrap();
        let transposed = x.clone().permuted(&[1, 0]).unwrap();
        assert_eq!(transposed.to_f64(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert!(!transposed.is_contiguous());
        assert!(transposed.bits_equal(&transposed.to_contiguous()));
        assert!(transposed.to_contiguous().is_contiguous());
        assert!(!transposed.bits_equal(&x));
        let row = HostTensor::from_i64(DType::I32, &[1, 2], &[8, 9]).unwrap().expanded(&[3, 2]).unwrap();
        assert_eq!(row.to_f64(), [8.0, 9.0, 8.0, 9.0, 8.0, 9.0]);
        let mut tail = HostTensor::new(TensorMeta::contiguous(DType::I32, &[2]), x.data.clone(), 4).unwrap();
        assert_eq!(tail.to_f64(), [5.0, 6.0]);
        assert!(tail.set(&[1], Value::Int(-1)) && !tail.set(&[2], Value::Int(0)));
        assert_eq!(tail.to_f64(), [5.0, -1.0]);
    }

    #[test]
    fn views_outside_the_storage_are_refused() {
        let check = |sizes: &[i64], strides: &[i64], offset: usize, expected: Option<&str>| {
            let meta = TensorMeta { dtype: DType::F32, sizes: sizes.to_vec(), strides: strides.to_vec() };
            let result = HostTensor::new(meta, vec![0; 24], offset);
            assert_eq!(result.err().map(|e| e.code.0), expected, "{sizes:?} {strides:?} {offset}");
        };
        check(&[2, 3], &[3, 1], 0, None);
        check(&[2, 3], &[3, 1], 1, Some("E0305"));
        check(&[2, 3], &[4, 1], 0, Some("E0305"));
        check(&[3, 3], &[0, 1], 3, None);
        check(&[0, 3], &[3, 1], 99, None);
        check(&[2], &[-1], 0, Some("E0305"));
        check(&[2, 2], &[1], 0, Some("E0305"));
        check(&[1], &[1], usize::MAX, Some("E0305"));
        let x = HostTensor::zeros(DType::F32, &[2, 3]).unwrap();
        assert!(x.clone().expanded(&[4, 3]).is_err() && x.clone().permuted(&[0, 0]).is_err());
        assert!(HostTensor::from_f64(DType::F32, &[2], &[1.0]).is_err());
        assert!(HostTensor::zeros(DType::F64, &[1 << 40, 1 << 40]).is_err());
    }
}
