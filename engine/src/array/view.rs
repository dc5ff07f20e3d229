//! Values of intermediate tensors: typed vectors seen through strides.

use super::nest::{Nest, map1};
use super::order::copy_layout;
use super::parallel;
use crate::diag::{Diagnostic, Result};
use crate::num::convert::{
    bf16_to_f32, f4e2m1fn_to_f32, f8e4m3fn_to_f32, f8e5m2_to_f32, f8e8m0fnu_to_f32, f16_to_f32, f32_to_bf16,
    f32_to_f16, f64_to_f4e2m1fn, f64_to_f8e4m3fn, f64_to_f8e5m2, f64_to_f8e8m0fnu,
};
use crate::num::{DType, Value, eval};
use crate::tensor::{HostTensor, TensorMeta};
use std::sync::Arc;

/// So many elements of storage for each one of the tensor are worth reading these alone.
const MIN_GAPS: usize = 16;

/// Elements in a representation that holds every value of their type.
#[derive(Clone, Debug)]
pub enum Data {
    /// `f64`.
    F64(Vec<f64>),
    /// `f32` and the floats of at most 16 bits.
    F32(Vec<f32>),
    /// All integer types; `u64` as its bits.
    Int(Vec<i64>),
    /// `bool`.
    Bool(Vec<bool>),
    /// Complex types: real and imaginary part.
    Complex(Vec<eval::Complex>),
}

/// An element of [`Data`].
pub(crate) trait Element: Copy + Default + Send + Sync + 'static {
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
    eval::Complex => Complex;
}

/// The elements of a view, from its first one on.
#[derive(Clone, Copy, Debug)]
pub enum Elements<'a> {
    /// `f64`.
    F64(&'a [f64]),
    /// `f32` and the floats of at most 16 bits.
    F32(&'a [f32]),
    /// All integer types; `u64` as its bits.
    Int(&'a [i64]),
    /// `bool`.
    Bool(&'a [bool]),
    /// Complex types: real and imaginary part.
    Complex(&'a [eval::Complex]),
}

/// A tensor: shared elements seen through sizes and strides, from an offset on.
/// Views (broadcast, slice, permute, moving casts) share their operand's elements.
#[derive(Clone, Debug)]
pub struct View {
    pub(crate) dtype: DType,
    pub(crate) data: Arc<Data>,
    pub(crate) sizes: Vec<usize>,
    pub(crate) strides: Vec<usize>,
    pub(crate) offset: usize,
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
    pub(crate) fn dense(dtype: DType, sizes: Vec<usize>, data: Data) -> Self {
        let strides = dense_strides(&sizes);
        Self { dtype, data: Arc::new(data), sizes, strides, offset: 0 }
    }

    /// A scalar seen as a tensor of any sizes.
    pub(crate) fn repeated(dtype: DType, value: Value, sizes: Vec<usize>) -> Self {
        let data = match value {
            Value::Float(v) if dtype == DType::F64 => Data::F64(vec![v]),
            Value::Float(v) => Data::F32(vec![v as f32]),
            Value::Int(v) => Data::Int(vec![v]),
            Value::Bool(v) => Data::Bool(vec![v]),
            Value::Complex(re, im) => Data::Complex(vec![(re, im)]),
        };
        let strides = vec![0; sizes.len()];
        Self { dtype, data: Arc::new(data), sizes, strides, offset: 0 }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes, outer to inner.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.sizes.contains(&0)
    }

    /// Whether elements lie dense in row-major order from the first on.
    pub(crate) fn is_dense(&self) -> bool {
        self.strides == dense_strides(&self.sizes)
    }

    /// Type, sizes and strides as a caller sees them.
    pub fn meta(&self) -> TensorMeta {
        TensorMeta { dtype: self.dtype, sizes: signed(&self.sizes), strides: signed(&self.strides) }
    }

    /// The elements from the view's first one on.
    pub fn elements(&self) -> Elements<'_> {
        match &*self.data {
            Data::F64(a) => Elements::F64(from(a, self.offset)),
            Data::F32(a) => Elements::F32(from(a, self.offset)),
            Data::Int(a) => Elements::Int(from(a, self.offset)),
            Data::Bool(a) => Elements::Bool(from(a, self.offset)),
            Data::Complex(a) => Elements::Complex(from(a, self.offset)),
        }
    }

    /// The elements from the view's first one on, of a known representation.
    pub(crate) fn slice<T: Element>(&self) -> Result<&[T]> {
        let all = T::slice(&self.data);
        all.map(|all| from(all, self.offset))
            .ok_or_else(|| Diagnostic::bug(format!("elements of {} in a foreign form", self.dtype)))
    }

    /// The same elements seen through other sizes and strides, from an element
    /// of this view on.
    pub(crate) fn seen(&self, sizes: Vec<usize>, strides: Vec<usize>, offset: usize) -> Self {
        Self { dtype: self.dtype, data: Arc::clone(&self.data), sizes, strides, offset: self.offset + offset }
    }

    /// The axes in another order.
    pub(crate) fn permuted(&self, order: &[usize]) -> Self {
        self.seen(super::permuted(&self.sizes, order), super::permuted(&self.strides, order), 0)
    }

    /// Repeated along axes of size 1 up to `sizes`.
    pub(crate) fn expanded(&self, sizes: &[usize]) -> Self {
        self.seen(sizes.to_vec(), self.strides_in(sizes), 0)
    }

    /// Strides with which this tensor takes part in a result of `sizes`: 0
    /// where its axis of size 1 repeats.
    pub(crate) fn strides_in(&self, sizes: &[usize]) -> Vec<usize> {
        let repeat = |((&own, &stride), &size): ((&usize, &usize), &usize)| if own == size { stride } else { 0 };
        self.sizes.iter().zip(&self.strides).zip(sizes).map(repeat).collect()
    }

    /// The elements in row-major order.
    pub(crate) fn values(&self) -> Vec<Value> {
        let nest = Nest::new(&self.sizes, [&self.strides]);
        let [step] = nest.inner_strides();
        let mut values = Vec::with_capacity(nest.len());
        macro_rules! collect {
            ($a:ident, $wrap:expr) => {
                for (_, run, [offset]) in nest.rows(0, nest.len()) {
                    values.extend((0..run).map(|i| $wrap($a[offset + i * step])))
                }
            };
        }
        match self.elements() {
            Elements::F64(a) => collect!(a, Value::Float),
            Elements::F32(a) => collect!(a, |v: f32| Value::Float(v.into())),
            Elements::Int(a) => collect!(a, Value::Int),
            Elements::Bool(a) => collect!(a, Value::Bool),
            Elements::Complex(a) => collect!(a, |(re, im)| Value::Complex(re, im)),
        }
        values
    }

    /// A dense tensor of values in row-major order, each rounded to the type.
    pub(crate) fn from_values(dtype: DType, sizes: Vec<usize>, values: &[Value]) -> Self {
        let rounded = |v: &Value| eval::cast(v.home_type(), dtype, *v);
        let data = match dtype {
            DType::F64 => Data::F64(values.iter().map(|v| rounded(v).as_f64()).collect()),
            _ if dtype.is_float() => Data::F32(values.iter().map(|v| rounded(v).as_f64() as f32).collect()),
            DType::Bool => Data::Bool(values.iter().map(|v| v.as_bool()).collect()),
            _ if dtype.is_complex() => Data::Complex(values.iter().map(|v| rounded(v).as_complex()).collect()),
            _ => Data::Int(values.iter().map(|v| rounded(v).as_i64()).collect()),
        };
        Self::dense(dtype, sizes, data)
    }

    /// The elements in row-major order as `f64`; complex ones lose their imaginary part.
    pub(crate) fn to_f64(&self) -> Vec<f64> {
        let nest = Nest::new(&self.sizes, [&self.strides]);
        match self.elements() {
            Elements::F64(a) => map1(&nest, a, |v| v),
            Elements::F32(a) => map1(&nest, a, f64::from),
            Elements::Int(a) if self.dtype == DType::U64 => map1(&nest, a, |v| v.cast_unsigned() as f64),
            Elements::Int(a) => map1(&nest, a, |v| v as f64),
            Elements::Bool(a) => map1(&nest, a, |v| f64::from(u8::from(v))),
            Elements::Complex(a) => map1(&nest, a, |(re, _)| re),
        }
    }

    /// A dense copy in `f64`.
    pub(crate) fn to_type_f64(&self) -> Self {
        Self::dense(DType::F64, self.sizes.clone(), Data::F64(self.to_f64()))
    }

    /// The elements in row-major order as integers.
    pub(crate) fn to_i64(&self) -> Vec<i64> {
        let nest = Nest::new(&self.sizes, [&self.strides]);
        match self.elements() {
            Elements::F64(a) => map1(&nest, a, |v| v as i64),
            Elements::F32(a) => map1(&nest, a, |v| v as i64),
            Elements::Int(a) => map1(&nest, a, |v| v),
            Elements::Bool(a) => map1(&nest, a, i64::from),
            Elements::Complex(a) => map1(&nest, a, |(re, _)| re as i64),
        }
    }

    /// A dense tensor of floats in row-major order, each rounded once to a
    /// floating-point type.
    pub(crate) fn from_f64(dtype: DType, sizes: Vec<usize>, values: &[f64]) -> Self {
        let data = match dtype {
            DType::F64 => Data::F64(values.to_vec()),
            _ => Data::F32(map1(&Nest::new(&[values.len()], [&[1]]), values, |v| eval::round_float(dtype, v) as f32)),
        };
        Self::dense(dtype, sizes, data)
    }

    /// A dense tensor of integers in row-major order.
    pub(crate) fn from_i64(dtype: DType, sizes: Vec<usize>, values: Vec<i64>) -> Self {
        match dtype {
            DType::Bool => Self::dense(dtype, sizes, Data::Bool(values.iter().map(|&v| v != 0).collect())),
            _ => Self::dense(dtype, sizes, Data::Int(values)),
        }
    }

    /// A dense tensor whose element `i`, in row-major order, is this view's
    /// element at the storage position `place(i)` (see [`Self::place`]), or
    /// `fill` where there is none.
    pub(crate) fn gathered(
        &self,
        sizes: Vec<usize>,
        fill: Value,
        place: impl Fn(usize) -> Option<usize> + Sync,
    ) -> Self {
        let len: usize = sizes.iter().product();
        // Only where elements come from is generic; to move them is not.
        let places = |start: usize, places: &mut [Option<usize>]| {
            places.iter_mut().enumerate().for_each(|(i, at)| *at = place(start + i));
        };
        let data = match self.elements() {
            Elements::F64(a) => Data::F64(at_places(a, len, fill.as_f64(), &places)),
            Elements::F32(a) => Data::F32(at_places(a, len, fill.as_f64() as f32, &places)),
            Elements::Int(a) => Data::Int(at_places(a, len, fill.as_i64(), &places)),
            Elements::Bool(a) => Data::Bool(at_places(a, len, fill.as_bool(), &places)),
            Elements::Complex(a) => Data::Complex(at_places(a, len, fill.as_complex(), &places)),
        };
        Self::dense(self.dtype, sizes, data)
    }

    /// All elements of the storage from this view's first one on, one after another.
    pub(crate) fn stored(&self) -> Self {
        let len = match self.elements() {
            Elements::F64(a) => a.len(),
            Elements::F32(a) => a.len(),
            Elements::Int(a) => a.len(),
            Elements::Bool(a) => a.len(),
            Elements::Complex(a) => a.len(),
        };
        self.seen(vec![len], vec![1], 0)
    }

    /// The storage position of an index, from the view's first element.
    pub(crate) fn place(&self, index: &[usize]) -> usize {
        index.iter().zip(&self.strides).map(|(&i, &stride)| i * stride).sum()
    }

    /// A copy in row-major order.
    pub(crate) fn to_dense(&self) -> Self {
        let nest = Nest::new(&self.sizes, [&self.strides]);
        let data = match self.elements() {
            Elements::F64(a) => Data::F64(map1(&nest, a, |v| v)),
            Elements::F32(a) => Data::F32(map1(&nest, a, |v| v)),
            Elements::Int(a) => Data::Int(map1(&nest, a, |v| v)),
            Elements::Bool(a) => Data::Bool(map1(&nest, a, |v| v)),
            Elements::Complex(a) => Data::Complex(map1(&nest, a, |v| v)),
        };
        Self::dense(self.dtype, self.sizes.clone(), data)
    }

    /// A copy whose axes lie in memory in `order`, outermost first.
    pub(crate) fn to_order(&self, order: &[usize]) -> Self {
        let dense = self.permuted(order).to_dense();
        let mut strides = vec![0; order.len()];
        for (place, &axis) in order.iter().enumerate() {
            strides[axis] = dense.strides[place];
        }
        dense.seen(self.sizes.clone(), strides, 0)
    }

    /// Reads a checked host tensor with its layout.
    pub(crate) fn load(tensor: &HostTensor) -> Self {
        let (sizes, strides) = (unsigned(tensor.sizes()), unsigned(tensor.strides()));
        let (span, bytes) = storage(tensor);
        let data = decode(tensor.dtype(), bytes, &Nest::new(&[span], [&[1]]));
        Self { dtype: tensor.dtype(), data: Arc::new(data), sizes, strides, offset: 0 }
    }

    /// Reads the elements of a checked host tensor, without what lies between them: its axes lie in memory in the
    /// same order. Nothing where its strides do not tell the order, or where it has gaps too few to be worth it.
    pub(crate) fn load_without_gaps(tensor: &HostTensor) -> Option<Self> {
        let (sizes, strides) = (unsigned(tensor.sizes()), unsigned(tensor.strides()));
        let (order, dense) = copy_layout(tensor.sizes(), tensor.strides());
        let is_told = order.windows(2).all(|pair| strides[pair[0]] > strides[pair[1]]);
        // Of axes of size 1 the stride tells nothing, and is kept.
        if !is_told || strides.contains(&0) || sizes.iter().any(|&size| size < 2) {
            return None;
        }
        let (span, bytes) = storage(tensor);
        if span / MIN_GAPS < sizes.iter().product() {
            return None;
        }
        let in_order = |of: &[usize]| order.iter().map(|&axis| of[axis]).collect::<Vec<_>>();
        let data = decode(tensor.dtype(), bytes, &Nest::new(&in_order(&sizes), [&in_order(&strides)]));
        Some(Self { dtype: tensor.dtype(), data: Arc::new(data), sizes, strides: unsigned(&dense), offset: 0 })
    }

    /// Writes a host tensor of the same layout. What lies between the elements
    /// of a view is whatever its storage holds there.
    pub(crate) fn store(&self) -> Result<HostTensor> {
        let meta = self.meta();
        let span = meta.span().and_then(|span| usize::try_from(span).ok()).unwrap_or(0);
        meta.span_bytes()?;
        let nest = Nest::new(&[span], [&[1]]);
        let data = match self.dtype {
            DType::F64 => encode(&nest, self.slice::<f64>()?, |v| v.to_le_bytes()),
            DType::F32 => encode(&nest, self.slice::<f32>()?, |v| v.to_le_bytes()),
            DType::F16 => encode(&nest, self.slice::<f32>()?, |v| f32_to_f16(v).to_le_bytes()),
            DType::BF16 => encode(&nest, self.slice::<f32>()?, |v| f32_to_bf16(v).to_le_bytes()),
            DType::F8E4M3FN => encode(&nest, self.slice::<f32>()?, |v| [f64_to_f8e4m3fn(v.into())]),
            DType::F8E5M2 => encode(&nest, self.slice::<f32>()?, |v| [f64_to_f8e5m2(v.into())]),
            DType::F8E8M0FNU => encode(&nest, self.slice::<f32>()?, |v| [f64_to_f8e8m0fnu(v.into())]),
            DType::F4E2M1FN => encode(&nest, self.slice::<f32>()?, |v| [f64_to_f4e2m1fn(v.into())]),
            DType::C64 => encode(&nest, self.slice::<eval::Complex>()?, |(re, im)| {
                let (re, im) = ((re as f32).to_bits(), (im as f32).to_bits());
                (u64::from(re) | u64::from(im) << 32).to_le_bytes()
            }),
            DType::C128 => encode(&nest, self.slice::<eval::Complex>()?, |(re, im)| {
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
        Ok(HostTensor { meta, data: data.into(), offset: 0 })
    }
}

/// `len` elements of `a`, each from where `places` says, or `fill`.
fn at_places<T: Element>(
    a: &[T],
    len: usize,
    fill: T,
    places: &(dyn Fn(usize, &mut [Option<usize>]) + Sync),
) -> Vec<T> {
    parallel::filled(len, &|start, out| {
        let mut found = vec![None; out.len()];
        places(start, &mut found);
        for (element, at) in out.iter_mut().zip(found) {
            *element = at.and_then(|at| a.get(at)).copied().unwrap_or(fill);
        }
    })
}

/// The rest of a slice; nothing past its end, where only empty views start.
fn from<T>(all: &[T], offset: usize) -> &[T] {
    all.get(offset..).unwrap_or(&[])
}

fn signed(sizes: &[usize]) -> Vec<i64> {
    sizes.iter().map(|&size| size as i64).collect()
}

/// Sizes or strides of a checked tensor.
fn unsigned(numbers: &[i64]) -> Vec<usize> {
    numbers.iter().map(|&number| usize::try_from(number).unwrap_or(0)).collect()
}

/// From the first to the last element of a checked tensor: how many there are, gaps included, and their bytes.
fn storage(tensor: &HostTensor) -> (usize, &[u8]) {
    let width = tensor.dtype().bytes();
    let span = tensor.meta.span().and_then(|span| usize::try_from(span).ok()).unwrap_or(0);
    let start = tensor.offset * width;
    (span, tensor.data.get(start..start + span * width).unwrap_or(&[]))
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
    R: Copy + Default + Send + Sync,
{
    let (elements, _) = bytes.as_chunks::<W>();
    map1(nest, elements, f)
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
