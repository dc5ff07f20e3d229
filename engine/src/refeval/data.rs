//! Values of intermediate tensors: typed vectors seen through strides.

use super::nest::Nest;
use crate::diag::{Diagnostic, Result};
use crate::num::convert::{
    bf16_to_f32, f4e2m1fn_to_f32, f8e4m3fn_to_f32, f8e5m2_to_f32, f8e8m0fnu_to_f32, f16_to_f32, f32_to_bf16,
    f32_to_f16, f64_to_f4e2m1fn, f64_to_f8e4m3fn, f64_to_f8e5m2, f64_to_f8e8m0fnu,
};
use crate::num::{DType, Value};
use crate::tensor::{HostTensor, TensorMeta};
use std::sync::Arc;

/// Elements in a representation that holds every value of their type.
#[derive(Clone, Debug)]
pub(super) enum Data {
    /// `f64`.
    F64(Vec<f64>),
    /// `f32` and the floats of at most 16 bits.
    F32(Vec<f32>),
    /// All integer types; `u64` as its bits.
    Int(Vec<i64>),
    /// `bool`.
    Bool(Vec<bool>),
    /// Complex types, real and imaginary part.
    Complex(Vec<(f64, f64)>),
}

/// An element of [`Data`].
pub(super) trait Element: Copy + Default + Send + Sync + 'static {
    fn wrap(data: Vec<Self>) -> Data;
    fn slice(data: &Data) -> Option<&[Self]>;
}

macro_rules! elements {
    ($($type:ty => $variant:ident;)*) => {
        $(impl Element for $type {
            fn wrap(data: Vec<Self>) -> Data {
                Data::$variant(data)
            }
            fn slice(data: &Data) -> Option<&[Self]> {
                match data {
                    Data::$variant(data) => Some(data),
                    _ => None,
                }
            }
        })*
    };
}

elements! {
    f64 => F64;
    f32 => F32;
    i64 => Int;
    bool => Bool;
    (f64, f64) => Complex;
}

/// A tensor: shared elements seen through sizes and strides. Views (broadcast,
/// squeeze, permute, moving casts) share their operand's elements.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) dtype: DType,
    pub(super) data: Arc<Data>,
    pub(super) sizes: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

/// Row-major strides.
fn dense_strides(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    for i in (1..sizes.len()).rev() {
        strides[i - 1] = strides[i] * sizes[i].max(1);
    }
    strides
}

impl View {
    /// A dense tensor.
    pub(super) fn dense(dtype: DType, sizes: Vec<usize>, data: Data) -> Self {
        let strides = dense_strides(&sizes);
        Self { dtype, data: Arc::new(data), sizes, strides }
    }

    /// A scalar seen as a tensor of any sizes.
    pub(super) fn repeated(dtype: DType, value: Value, sizes: Vec<usize>) -> Self {
        let data = match value {
            Value::Float(v) if dtype == DType::F64 => Data::F64(vec![v]),
            Value::Float(v) => Data::F32(vec![v as f32]),
            Value::Int(v) => Data::Int(vec![v]),
            Value::Bool(v) => Data::Bool(vec![v]),
            Value::Complex(re, im) => Data::Complex(vec![(re, im)]),
        };
        let strides = vec![0; sizes.len()];
        Self { dtype, data: Arc::new(data), sizes, strides }
    }

    /// The elements, of a known representation.
    pub(super) fn slice<T: Element>(&self) -> Result<&[T]> {
        T::slice(&self.data).ok_or_else(|| Diagnostic::bug(format!("elements of {} in a foreign form", self.dtype)))
    }

    /// Strides with which this tensor takes part in a result of `sizes`: 0
    /// where its axis of size 1 repeats.
    pub(super) fn strides_in(&self, sizes: &[usize]) -> Vec<usize> {
        let repeat = |((&own, &stride), &size): ((&usize, &usize), &usize)| if own == size { stride } else { 0 };
        self.sizes.iter().zip(&self.strides).zip(sizes).map(repeat).collect()
    }

    /// Reads a checked host tensor. Expanded axes stay expanded; the others
    /// become dense.
    pub(super) fn load(tensor: &HostTensor) -> Self {
        let size = |size: i64| usize::try_from(size).unwrap_or(0);
        let sizes: Vec<_> = tensor.sizes().iter().map(|&s| size(s)).collect();
        let source: Vec<_> = tensor.strides().iter().map(|&s| size(s)).collect();
        let empty = sizes.contains(&0);
        let kept: Vec<_> =
            sizes.iter().zip(&source).map(|(&size, &stride)| if stride == 0 && !empty { 1 } else { size }).collect();
        let mut strides = dense_strides(&kept);
        for (stride, &from) in strides.iter_mut().zip(&source) {
            if from == 0 && !empty {
                *stride = 0;
            }
        }
        let nest = Nest::new(&kept, [&source]);
        let start = if empty { 0 } else { tensor.offset * tensor.dtype().bytes() };
        let bytes = tensor.data.get(start..).unwrap_or(&[]);
        Self { dtype: tensor.dtype(), data: Arc::new(decode(tensor.dtype(), bytes, &nest)), sizes, strides }
    }

    /// Writes a dense host tensor.
    pub(super) fn store(&self) -> Result<HostTensor> {
        let nest = Nest::new(&self.sizes, [&self.strides]);
        let data = match self.dtype {
            DType::F64 => encode(&nest, self.slice::<f64>()?, |v| v.to_le_bytes()),
            DType::F32 => encode(&nest, self.slice::<f32>()?, |v| v.to_le_bytes()),
            DType::F16 => encode(&nest, self.slice::<f32>()?, |v| f32_to_f16(v).to_le_bytes()),
            DType::BF16 => encode(&nest, self.slice::<f32>()?, |v| f32_to_bf16(v).to_le_bytes()),
            DType::F8E4M3FN => encode(&nest, self.slice::<f32>()?, |v| [f64_to_f8e4m3fn(v.into())]),
            DType::F8E5M2 => encode(&nest, self.slice::<f32>()?, |v| [f64_to_f8e5m2(v.into())]),
            DType::F8E8M0FNU => encode(&nest, self.slice::<f32>()?, |v| [f64_to_f8e8m0fnu(v.into())]),
            DType::F4E2M1FN => encode(&nest, self.slice::<f32>()?, |v| [f64_to_f4e2m1fn(v.into())]),
            DType::C64 => encode(&nest, self.slice::<(f64, f64)>()?, |(re, im)| {
                let (re, im) = ((re as f32).to_bits(), (im as f32).to_bits());
                (u64::from(re) | u64::from(im) << 32).to_le_bytes()
            }),
            DType::C128 => encode(&nest, self.slice::<(f64, f64)>()?, |(re, im)| {
                (u128::from(re.to_bits()) | u128::from(im.to_bits()) << 64).to_le_bytes()
            }),
            DType::I64 | DType::U64 | DType::Index => encode(&nest, self.slice::<i64>()?, |v| v.to_le_bytes()),
            DType::I32 | DType::U32 => encode(&nest, self.slice::<i64>()?, |v| (v as i32).to_le_bytes()),
            DType::I16 | DType::U16 => encode(&nest, self.slice::<i64>()?, |v| (v as i16).to_le_bytes()),
            DType::I8 | DType::U8 | DType::F4E2M1FNX2 => {
                encode(&nest, self.slice::<i64>()?, |v| (v as u8).to_le_bytes())
            }
            DType::Bool => encode(&nest, self.slice::<bool>()?, |v| [u8::from(v)]),
        };
        let sizes: Vec<_> = self.sizes.iter().map(|&size| size as i64).collect();
        Ok(HostTensor { meta: TensorMeta::contiguous(self.dtype, &sizes), data, offset: 0 })
    }
}

fn decode(dtype: DType, bytes: &[u8], nest: &Nest<1>) -> Data {
    match dtype {
        DType::F64 => Data::F64(gather(nest, bytes, f64::from_le_bytes)),
        DType::F32 => Data::F32(gather(nest, bytes, f32::from_le_bytes)),
        DType::F16 => Data::F32(gather(nest, bytes, |b| f16_to_f32(u16::from_le_bytes(b)))),
        DType::BF16 => Data::F32(gather(nest, bytes, |b| bf16_to_f32(u16::from_le_bytes(b)))),
        DType::F8E4M3FN => Data::F32(gather(nest, bytes, |[b]| f8e4m3fn_to_f32(b))),
        DType::F8E5M2 => Data::F32(gather(nest, bytes, |[b]| f8e5m2_to_f32(b))),
        DType::F8E8M0FNU => Data::F32(gather(nest, bytes, |[b]| f8e8m0fnu_to_f32(b))),
        DType::F4E2M1FN => Data::F32(gather(nest, bytes, |[b]| f4e2m1fn_to_f32(b))),
        DType::C64 => Data::Complex(gather(nest, bytes, |b| {
            let word = u64::from_le_bytes(b);
            let part = |bits: u64| f64::from(f32::from_bits(bits as u32));
            (part(word), part(word >> 32))
        })),
        DType::C128 => Data::Complex(gather(nest, bytes, |b| {
            let word = u128::from_le_bytes(b);
            (f64::from_bits(word as u64), f64::from_bits((word >> 64) as u64))
        })),
        DType::I64 | DType::U64 | DType::Index => Data::Int(gather(nest, bytes, i64::from_le_bytes)),
        DType::U32 => Data::Int(gather(nest, bytes, |b| u32::from_le_bytes(b).into())),
        DType::I16 => Data::Int(gather(nest, bytes, |b| i16::from_le_bytes(b).into())),
        DType::U16 => Data::Int(gather(nest, bytes, |b| u16::from_le_bytes(b).into())),
        DType::I32 => Data::Int(gather(nest, bytes, |b| i32::from_le_bytes(b).into())),
        DType::I8 => Data::Int(gather(nest, bytes, |b| i8::from_le_bytes(b).into())),
        DType::U8 | DType::F4E2M1FNX2 => Data::Int(gather(nest, bytes, |b| u8::from_le_bytes(b).into())),
        DType::Bool => Data::Bool(gather(nest, bytes, |[b]| b != 0)),
    }
}

fn gather<const W: usize, R>(nest: &Nest<1>, bytes: &[u8], f: impl Fn([u8; W]) -> R + Sync) -> Vec<R>
where
    R: Copy + Default + Send,
{
    let (elements, _) = bytes.as_chunks::<W>();
    super::nest::map1(nest, elements, f)
}

fn encode<const W: usize, A: Copy + Sync>(nest: &Nest<1>, a: &[A], f: impl Fn(A) -> [u8; W] + Sync) -> Vec<u8> {
    let [stride] = nest.inner_strides();
    nest.fill_bytes(|out, [offset]| {
        if stride == 1 {
            let a = &a[offset..offset + out.len()];
            out.iter_mut().zip(a).for_each(|(r, &a)| *r = f(a));
        } else {
            out.iter_mut().enumerate().for_each(|(i, r)| *r = f(a[offset + i * stride]));
        }
    })
}
