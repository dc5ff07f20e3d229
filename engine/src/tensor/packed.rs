//! Tensors of `f4e2m1fn` at the boundary: two values in a byte there, one in
//! the engine.
//!
//! The axis of stride 1 (the last one, if several have it) is the packed one:
//! its size in values is twice that in bytes. All other strides and the offset
//! double with it, since they count elements.

use super::{HostTensor, TensorMeta};
use crate::diag::{Diagnostic, Result, code};
use crate::num::DType;
use crate::num::convert::{pack_f4e2m1fn, unpack_f4e2m1fn};

impl TensorMeta {
    fn innermost(&self) -> Option<usize> {
        self.strides.iter().rposition(|&stride| stride == 1)
    }

    /// The type and layout of a tensor of `f4e2m1fn_x2` with one value per
    /// element; the same for any other type.
    pub fn unpacked(&self) -> Result<Self> {
        if !self.dtype.is_packed() {
            return Ok(self.clone());
        }
        let Some(inner) = self.innermost() else {
            let message =
                format!("{}: no axis of strides {:?} has stride 1, along which it is packed", self.dtype, self.strides);
            return Err(Diagnostic::user(code::INPUT_STRIDE, message).note("make the tensor contiguous"));
        };
        let double = |value: i64| value.checked_mul(2).ok_or_else(|| self.too_large());
        let mut meta = Self { dtype: DType::F4E2M1FN, ..self.clone() };
        meta.sizes[inner] = double(meta.sizes[inner])?;
        for (axis, stride) in meta.strides.iter_mut().enumerate().filter(|(axis, _)| *axis != inner) {
            *stride = double(self.strides[axis])?;
        }
        Ok(meta)
    }

    fn too_large(&self) -> Box<Diagnostic> {
        let Self { sizes, strides, .. } = self;
        let message = format!("the number of values of packed sizes {sizes:?} and strides {strides:?} overflows");
        Diagnostic::user(code::SIZE_OVERFLOW, message)
    }
}

impl HostTensor {
    /// A tensor of `f4e2m1fn_x2` with one value per element; any other tensor
    /// as it is.
    pub fn unpacked(&self) -> Result<Self> {
        if !self.dtype().is_packed() {
            return Ok(self.clone());
        }
        let meta = self.meta.unpacked()?;
        let offset = self.offset.checked_mul(2).ok_or_else(|| self.meta.too_large())?;
        Self::new(meta, unpack_f4e2m1fn(&self.data), offset)
    }

    /// A tensor of `f4e2m1fn` with two values per byte; any other tensor as it
    /// is. Refused if the size along the innermost axis is odd. A layout whose
    /// strides cannot be halved becomes dense.
    pub fn packed(&self) -> Result<Self> {
        if self.dtype() != DType::F4E2M1FN {
            return Ok(self.clone());
        }
        let Some(inner) = self.meta.innermost().or(self.rank().checked_sub(1)) else {
            let message = "a tensor of f4e2m1fn without axes cannot be packed two by two";
            return Err(Diagnostic::user(code::INPUT_RANK, message).note("give it an axis of even size"));
        };
        if self.sizes()[inner] % 2 != 0 {
            let message =
                format!("axis {inner} of f4e2m1fn {:?} is of odd size, it is packed two by two", self.sizes());
            return Err(Diagnostic::user(code::INPUT_EXTENT, message).note("pad the axis to an even size"));
        }
        let mut meta = TensorMeta { dtype: DType::F4E2M1FNX2, ..self.meta.clone() };
        meta.sizes[inner] /= 2;
        let others = (0..self.rank()).filter(|&axis| axis != inner);
        let halves = self.strides()[inner] == 1
            && self.offset.is_multiple_of(2)
            && self.data.len().is_multiple_of(2)
            && others.clone().all(|axis| self.strides()[axis] % 2 == 0);
        if halves {
            for axis in others {
                meta.strides[axis] /= 2;
            }
            return Self::new(meta, pack_f4e2m1fn(&self.data).unwrap_or_default(), self.offset / 2);
        }
        // Row-major, with the packed axis last in memory.
        let mut order: Vec<usize> = others.collect();
        order.push(inner);
        let moved = self.clone().permuted(&order)?.to_contiguous();
        let sizes: Vec<i64> = order.iter().map(|&axis| meta.sizes[axis]).collect();
        let bytes = pack_f4e2m1fn(&moved.data).unwrap_or_default();
        let mut back = vec![0; order.len()];
        for (place, &axis) in order.iter().enumerate() {
            back[axis] = place;
        }
        Self::contiguous(DType::F4E2M1FNX2, &sizes, bytes)?.permuted(&back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(tensor: &HostTensor) -> Vec<u8> {
        tensor.dense_bytes().into_owned()
    }

    fn check_unpacked(sizes: &[i64], strides: &[i64], expected: (&[i64], &[i64])) {
        let meta = TensorMeta { dtype: DType::F4E2M1FNX2, sizes: sizes.to_vec(), strides: strides.to_vec() };
        let unpacked = meta.unpacked().unwrap();
        assert_eq!((unpacked.dtype, &*unpacked.sizes, &*unpacked.strides), (DType::F4E2M1FN, expected.0, expected.1));
        let bytes: Vec<u8> = (0..meta.span_bytes().unwrap()).map(|i| (7 * i + 1) as u8).collect();
        let packed = HostTensor::new(meta, bytes, 0).unwrap();
        let tensor = packed.unpacked().unwrap();
        // Both values of each byte are neighbours along the doubled axis.
        let inner = (0..sizes.len()).find(|&axis| sizes[axis] != expected.0[axis]);
        let mut index = vec![0; sizes.len()];
        for byte in packed.values() {
            let mut code = 0;
            for half in 0..2 {
                let mut at = index.clone();
                let inner = inner.expect("an axis with elements doubled");
                at[inner] = 2 * at[inner] + half;
                let place: i64 = at.iter().zip(&unpacked.strides).map(|(i, stride)| i * stride).sum();
                code |= i64::from(tensor.data[place as usize]) << (4 * half);
            }
            assert_eq!(byte, crate::num::Value::Int(code), "{index:?}");
            for axis in (0..index.len()).rev() {
                index[axis] += 1;
                if index[axis] < sizes[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
        let again = tensor.packed().unwrap();
        assert_eq!(codes(&again), codes(&packed));
        assert_eq!(again.sizes(), sizes);
    }

    #[test]
    fn the_axis_of_stride_one_holds_two_values_in_a_byte() {
        check_unpacked(&[2, 3], &[3, 1], (&[2, 6], &[6, 1]));
        check_unpacked(&[2, 3], &[1, 2], (&[4, 3], &[1, 4]));
        check_unpacked(&[4, 1], &[1, 1], (&[4, 2], &[2, 1]));
        check_unpacked(&[2, 3], &[5, 1], (&[2, 6], &[10, 1]));
        check_unpacked(&[2, 3], &[0, 1], (&[2, 6], &[0, 1]));
        check_unpacked(&[3, 0], &[1, 1], (&[3, 0], &[2, 1]));
    }

    #[test]
    fn layouts_that_cannot_be_halved_become_dense() {
        let x = HostTensor::from_f64(DType::F4E2M1FN, &[2, 4], &[0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -6.0]).unwrap();
        assert_eq!(codes(&x.packed().unwrap()), [0x21, 0x43, 0x65, 0xf7]);
        let wide = TensorMeta { strides: vec![5, 1], ..x.meta.clone() };
        let mut values = x.values();
        let odd = HostTensor::strided(wide, |_| values.next().unwrap()).unwrap();
        assert_eq!(codes(&odd.packed().unwrap()), [0x21, 0x43, 0x65, 0xf7]);
        assert_eq!(codes(&odd.packed().unwrap().unpacked().unwrap()), codes(&x));
    }

    #[test]
    fn what_cannot_be_packed_is_refused() {
        let code = |result: Result<HostTensor>| result.unwrap_err().code.0;
        assert_eq!(code(HostTensor::zeros(DType::F4E2M1FN, &[2, 3]).unwrap().packed()), "E0304");
        assert_eq!(code(HostTensor::zeros(DType::F4E2M1FN, &[]).unwrap().packed()), "E0303");
        let meta = TensorMeta { dtype: DType::F4E2M1FNX2, sizes: vec![2], strides: vec![2] };
        assert_eq!(code(HostTensor::new(meta, vec![0; 3], 0).unwrap().unpacked()), "E0305");
        let huge = TensorMeta::contiguous(DType::F4E2M1FNX2, &[i64::MAX]);
        assert_eq!(huge.unpacked().unwrap_err().code, code::SIZE_OVERFLOW);
    }
}
