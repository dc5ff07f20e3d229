//! Arguments from their specifications. The value of element `i` in row-major
//! order depends only on the seed, the input's name and `i`, so the same case
//! has the same data on every device, for any layout and number of threads.
//! Random values repeat after [`PERIOD`] elements, a prime, so that big tensors
//! are copied rather than drawn and no row of a usual size repeats in place.
//! What was drawn is kept for later cases ([`Draws`]), which mostly draw the same; a dense tensor is made of it when
//! somebody reads it.

use crate::case::{Case, Dist, InputSpec, Number, Real, TensorSpec, strides, suggest};
use engine::diag::{Diagnostic, Result, code};
use engine::fusion::{Fusion, Operand, ScalarDef};
use engine::num::{DType, DTypeClass, Value, storage};
use engine::tensor::{Arg, ArgMeta, HostBytes, HostTensor, Offsets, TensorMeta};
use rayon::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An argument's specification with its declaration: name and data type.
type DeclaredInput<'a> = (&'a str, DType, &'a InputSpec);

/// The specification of each argument in order; an input that has no entry, an
/// entry that is no input, and a scalar for a tensor are refused.
fn entries<'a>(fusion: &'a Fusion, case: &'a Case) -> Result<Vec<DeclaredInput<'a>>> {
    let declared: Vec<_> = fusion.inputs.iter().map(|operand| declaration(fusion, *operand)).collect();
    for (name, _) in &case.inputs {
        if !declared.iter().any(|(other, ..)| other == name) {
            let hint = suggest(name, declared.iter().map(|(name, ..)| *name));
            let message = format!("`inputs:` gives `{name}`, which is no input of @{}", fusion.name);
            return Err(Diagnostic::user(code::EXTRA_INPUT, message).note(hint));
        }
    }
    let entry = |(name, dtype, operand)| {
        let spec = case.inputs.iter().find(|(other, _)| other == name).map(|(_, spec)| spec).ok_or_else(|| {
            let message = format!("input `%{name}` of @{} has no entry in `inputs:`", fusion.name);
            Diagnostic::user(code::MISSING_INPUT, message)
                .note(format!("add `; inputs: {name} = ...` behind the fusion"))
        })?;
        match (spec, operand) {
            (InputSpec::Scalar(_), Operand::Tensor(_)) => Err(Diagnostic::user(
                code::INPUT_KIND,
                format!("input `%{name}` is a tensor, `inputs:` gives a scalar"),
            )),
            (InputSpec::Tensor(_), Operand::Scalar(_)) => Err(Diagnostic::user(
                code::INPUT_KIND,
                format!("input `%{name}` is a scalar, `inputs:` gives a tensor"),
            )),
            _ => Ok((name, dtype, spec)),
        }
    };
    declared.into_iter().map(entry).collect()
}

/// Builds the arguments of a fusion in order.
pub(super) fn build(fusion: &Fusion, case: &Case, draws: &Draws) -> Result<Vec<Arg>> {
    let made = entries(fusion, case)?.into_iter().map(|(name, dtype, spec)| match spec {
        InputSpec::Scalar(number) => scalar(name, dtype, *number),
        InputSpec::Tensor(spec) => Ok(Arg::Tensor(tensor(name, dtype, spec, draws)?)),
    });
    made.collect()
}

/// Draws what [`build`] will ask for and nobody has drawn, beside a case that runs. What cannot be drawn the case will meet
/// itself.
pub(super) fn draw_ahead(fusion: &Fusion, case: &Case, draws: &Draws) {
    for (name, dtype, spec) in entries(fusion, case).unwrap_or_default() {
        let InputSpec::Tensor(spec) = spec else { continue };
        let draw = Draw { dist: &spec.dist, dtype, seed: seed(name, spec.seed) };
        let count = meta(name, dtype, spec).ok().and_then(|meta| meta.numel());
        // What does not repeat is kept by nobody.
        let bytes = count.and_then(|count| (count as usize).checked_mul(dtype.bytes())).filter(|_| draw.repeats());
        if let Some(bytes) = bytes {
            let _ = draws.drawn(name, &draw, bytes);
        }
    }
}

/// Makes the whole storage of each, as it is sent to a device then: a retry is a second opinion, also on that.
pub(super) fn make_all(args: &mut [Arg]) {
    for arg in args {
        if let Arg::Tensor(tensor) = arg {
            tensor.data.own();
        }
    }
}

/// The arguments' types and layouts without their data, and how the address of
/// each is aligned in bytes.
pub(super) fn metas(fusion: &Fusion, case: &Case) -> Result<(Vec<ArgMeta>, Vec<u32>)> {
    let made = entries(fusion, case)?.into_iter().map(|(name, dtype, spec)| match spec {
        InputSpec::Scalar(number) => Ok((scalar(name, dtype, *number)?.meta(), u32::MAX / 2 + 1)),
        InputSpec::Tensor(spec) => {
            let start = spec.layout.offset.wrapping_mul(dtype.bytes());
            Ok((ArgMeta::Tensor(meta(name, dtype, spec)?), 1 << start.trailing_zeros().min(31)))
        }
    });
    made.collect::<Result<Vec<_>>>().map(|list| list.into_iter().unzip())
}

fn declaration(fusion: &Fusion, operand: Operand) -> (&str, DType, Operand) {
    match operand {
        Operand::Tensor(t) => (&fusion.tensors[t].name, fusion.tensors[t].dtype, operand),
        Operand::Scalar(s) => {
            let name = match &fusion.scalars[s].def {
                ScalarDef::Input { name, .. } => name.as_str(),
                _ => "",
            };
            (name, fusion.scalars[s].dtype, operand)
        }
    }
}

/// Whether a fusion has an input of this name.
pub(super) fn is_input(fusion: &Fusion, name: &str) -> bool {
    fusion.inputs.iter().any(|operand| declaration(fusion, *operand).0 == name)
}

/// A number as a value of a data type; `None` where one class does not stand for the other.
pub(super) fn number(dtype: DType, number: Number) -> Option<Value> {
    Some(match (number, dtype.class()) {
        (Number::Int(v), DTypeClass::Int) => Value::Int(v),
        (Number::Int(v), DTypeClass::Float) => Value::Float(v as f64),
        (Number::Int(v), DTypeClass::Complex) => Value::Complex(v as f64, 0.0),
        (Number::Float(v), DTypeClass::Complex) => Value::Complex(v.get(), 0.0),
        (Number::Float(v), DTypeClass::Float) => Value::Float(v.get()),
        (Number::Bool(v), DTypeClass::Bool) => Value::Bool(v),
        (Number::Complex(re, im), DTypeClass::Complex) => Value::Complex(re.get(), im.get()),
        _ => return None,
    })
}

/// A number as people write it.
pub(super) fn show_number(number: Number) -> String {
    match number {
        Number::Int(v) => v.to_string(),
        Number::Float(v) => v.get().to_string(),
        Number::Bool(v) => v.to_string(),
        Number::Complex(re, im) => format!("{:?}{:+?}i", re.get(), im.get()),
    }
}

fn scalar(name: &str, dtype: DType, given: Number) -> Result<Arg> {
    let value = number(dtype, given).ok_or_else(|| {
        let message = format!("input `%{name}` is {dtype}, `inputs:` gives {}", show_number(given));
        Diagnostic::user(code::INPUT_DTYPE, message)
    })?;
    // What the type can hold is what every device sees.
    let bytes = storage::encode(dtype, value);
    let held = storage::read(dtype, &bytes, 0).unwrap_or(value);
    if dtype.is_int() && held != value {
        return Err(Diagnostic::user(
            code::INPUT_DTYPE,
            format!("input `%{name}` is {dtype}, which cannot hold {}", value.as_i64()),
        ));
    }
    Ok(Arg::Scalar(held))
}

/// Random values repeat after this many elements.
const PERIOD: u64 = 1_048_573;
/// Elements that one thread draws; fewer are not worth another one.
const CHUNK: usize = 1 << 14;

fn overflow(name: &str) -> Box<Diagnostic> {
    Diagnostic::user(code::SIZE_OVERFLOW, format!("the layout of input `%{name}` overflows 64 bits"))
}

fn meta(name: &str, dtype: DType, spec: &TensorSpec) -> Result<TensorMeta> {
    let strides = strides(spec).ok_or_else(|| overflow(name))?;
    Ok(TensorMeta { dtype, sizes: spec.sizes.clone(), strides })
}

/// Bytes that are set at a time. Few: rayon holds one by value wherever it divides the work, and a thread that waits takes
/// on other parts of it, on the same stack.
const WORD: usize = 64;

fn no_memory(name: &str, count: usize) -> Box<Diagnostic> {
    let message = format!("input `%{name}` needs {count} bytes of host memory, which are not there");
    Diagnostic::user(code::TENSOR_TOO_LARGE, message)
}

/// So many equal bytes, set by all threads where they are many. Refused where there is no memory for them.
fn bytes_of(name: &str, count: usize, byte: u8) -> Result<Vec<u8>> {
    let mut words: Vec<[u8; WORD]> = Vec::new();
    words.try_reserve_exact(count.div_ceil(WORD)).map_err(|_| no_memory(name, count))?;
    if count > CHUNK {
        rayon::iter::repeat_n([byte; WORD], count / WORD).with_min_len(CHUNK / WORD).collect_into_vec(&mut words);
    }
    let mut data = words.into_flattened();
    data.resize(count, byte);
    Ok(data)
}

/// Whether the storage of a tensor is its elements and nothing else.
fn is_dense(meta: &TensorMeta, spec: &TensorSpec) -> bool {
    spec.layout.offset == 0 && meta.is_contiguous()
}

fn tensor(name: &str, dtype: DType, spec: &TensorSpec, draws: &Draws) -> Result<HostTensor> {
    let overflow = || overflow(name);
    let meta = meta(name, dtype, spec)?;
    let draw = Draw { dist: &spec.dist, dtype, seed: seed(name, spec.seed) };
    let (offset, width) = (spec.layout.offset, dtype.bytes());
    let bytes = (meta.span().ok_or_else(overflow)? as usize)
        .checked_add(offset)
        .and_then(|n| n.checked_mul(width))
        .ok_or_else(overflow)?;
    if is_dense(&meta, spec) {
        return HostTensor::new(meta, draws.dense(name, &draw, bytes)?, offset);
    }
    // Storage outside the view is 0xff: NaN or -1, so that a stray read shows.
    let count = meta.numel().ok_or_else(overflow)? as usize;
    let mut tensor = HostTensor::new(meta, bytes_of(name, bytes, 0xff)?, offset)?;
    let drawn = draws.drawn(name, &draw, count.checked_mul(width).ok_or_else(overflow)?)?;
    let (elements, data) = (drawn.chunks_exact(width).cycle(), tensor.data.own());
    // In row-major order: of several elements in one place the last stays.
    for (element, at) in elements.zip(Offsets::new(&tensor.meta)) {
        data[(offset + at) * width..][..width].copy_from_slice(element);
    }
    Ok(tensor)
}

/// Draws elements from number `first` on.
fn fill_drawn(data: &mut [u8], draw: &Draw<'_>, first: usize) {
    let width = draw.dtype.bytes();
    let fill = |(n, part): (usize, &mut [u8])| {
        for (i, element) in part.chunks_exact_mut(width).enumerate() {
            let encoded = storage::encode(draw.dtype, draw.value((first + n * CHUNK + i) as u64));
            element.copy_from_slice(&encoded[..width]);
        }
    };
    match data.len() > CHUNK * width {
        true => data.par_chunks_mut(CHUNK * width).enumerate().for_each(fill),
        // One thread does it before others are awake.
        false => fill((0, data)),
    }
}

/// Bytes of drawn elements that are kept. The suite draws 1.1e9 elements, 0.1e9 different ones.
const ROOM_DRAWN: usize = 256 << 20;
/// Bytes of tensors that are kept, at most. With the suite's, large ones first, a third of all bytes is written where all
/// are read.
const ROOM_TENSORS: usize = 2 << 30;
/// Smaller tensors are as soon made again.
const LEAST_TENSOR: usize = 1 << 16;

/// What a worker has drawn, on any of its threads, for its later cases: elements depend on distribution, type, seed and
/// number alone, and most cases draw the same. Of each draw that repeats the longest part is kept, whose beginning the
/// shorter ones are. Dense tensors are made of it where they are read, which on a GPU few are; the storage of the last one
/// that was, which nobody changes, is the next one's if that is no longer.
#[derive(Debug)]
pub(crate) struct Draws {
    drawn: Mutex<Shelf<Arc<Vec<u8>>>>,
    tensors: Mutex<Shelf<Vec<u8>>>,
}

impl Default for Draws {
    /// For a single case: no tensors are kept.
    fn default() -> Self {
        Self { drawn: Mutex::new(Shelf::of(ROOM_DRAWN)), tensors: Mutex::new(Shelf::of(0)) }
    }
}

impl Draws {
    /// For many cases of a process that may have so much memory.
    pub(super) fn of_worker(memory: Option<u64>) -> Self {
        let share = memory.map_or(usize::MAX, |bytes| usize::try_from(bytes / 8).unwrap_or(usize::MAX));
        let [drawn, tensors] = [ROOM_DRAWN, ROOM_TENSORS].map(|room| room.min(share));
        Self { drawn: Mutex::new(Shelf::of(drawn)), tensors: Mutex::new(Shelf::of(tensors)) }
    }

    /// The storage of a dense tensor of so many bytes.
    fn dense(&self, name: &str, draw: &Draw<'_>, bytes: usize) -> Result<HostBytes> {
        let drawn = self.drawn(name, draw, bytes)?;
        let storage = HostBytes::repeating(drawn, bytes).ok_or_else(|| no_memory(name, bytes))?;
        let made = if storage.part().is_some() { lock(&self.tensors).take(draw) } else { None };
        // A small tensor shall not hold the memory of a large one.
        Ok(match made.filter(|made| made.capacity() <= 2 * bytes) {
            Some(made) => storage.made_before(made),
            None => storage,
        })
    }

    /// The first so many bytes of a draw, or more, without those that repeat them.
    fn drawn(&self, name: &str, draw: &Draw<'_>, bytes: usize) -> Result<Arc<Vec<u8>>> {
        if !draw.repeats() {
            return drawn_on(name, draw, &[], bytes).map(Arc::new);
        }
        let bytes = bytes.min(PERIOD as usize * draw.dtype.bytes());
        // Nobody waits for who draws: of two threads that come for the same together both do.
        let known = lock(&self.drawn).get(draw);
        if let Some(known) = known.as_ref().filter(|known| known.len() >= bytes) {
            return Ok(Arc::clone(known));
        }
        let known = known.as_deref().map_or(&[][..], Vec::as_slice);
        let drawn = Arc::new(drawn_on(name, draw, known, bytes)?);
        let mut shelf = lock(&self.drawn);
        if shelf.get(draw).is_none_or(|other| other.len() < drawn.len()) {
            shelf.put(draw, Arc::clone(&drawn));
        }
        Ok(drawn)
    }

    /// Takes the arguments of a case back that [`build`] made, for later cases.
    pub(super) fn give_back(&self, fusion: &Fusion, case: &Case, args: Vec<Arg>) {
        let Ok(entries) = entries(fusion, case) else { return };
        for ((name, dtype, spec), arg) in entries.into_iter().zip(args) {
            let (InputSpec::Tensor(spec), Arg::Tensor(tensor)) = (spec, arg) else { continue };
            if let Some(made) = tensor.data.into_made().filter(|made| made.len() >= LEAST_TENSOR) {
                let draw = Draw { dist: &spec.dist, dtype, seed: seed(name, spec.seed) };
                lock(&self.tensors).put(&draw, made);
            }
        }
    }
}

fn lock<D>(shelf: &Mutex<Shelf<D>>) -> MutexGuard<'_, Shelf<D>> {
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The beginnings of draws, up to so many bytes: beyond them what was put there first goes.
#[derive(Debug)]
struct Shelf<D> {
    room: usize,
    kept: Vec<Kept<D>>,
}

#[derive(Debug)]
struct Kept<D> {
    dist: Dist,
    dtype: DType,
    seed: u64,
    data: D,
}

impl<D: AsRef<Vec<u8>>> Shelf<D> {
    fn of(room: usize) -> Self {
        Self { room, kept: Vec::new() }
    }

    fn take(&mut self, draw: &Draw<'_>) -> Option<D> {
        let is_same = |kept: &Kept<D>| (kept.seed, kept.dtype) == (draw.seed, draw.dtype) && kept.dist == *draw.dist;
        let at = self.kept.iter().rposition(is_same)?;
        Some(self.kept.remove(at).data)
    }

    /// The data stays, as the last that was put there.
    fn get(&mut self, draw: &Draw<'_>) -> Option<D>
    where
        D: Clone,
    {
        let data = self.take(draw)?;
        self.put(draw, data.clone());
        Some(data)
    }

    fn put(&mut self, draw: &Draw<'_>, data: D) {
        self.take(draw);
        self.kept.push(Kept { dist: draw.dist.clone(), dtype: draw.dtype, seed: draw.seed, data });
        let held: usize = self.kept.iter().map(|kept| kept.data.as_ref().capacity()).sum();
        let mut beyond = held.saturating_sub(self.room);
        let goes = self.kept.iter().take_while(|kept| {
            let goes = beyond > 0;
            beyond = beyond.saturating_sub(kept.data.as_ref().capacity());
            goes
        });
        let count = goes.count();
        self.kept.drain(..count);
    }
}

/// The first `bytes` bytes of a draw, of which the first are known.
fn drawn_on(name: &str, draw: &Draw<'_>, known: &[u8], bytes: usize) -> Result<Vec<u8>> {
    let mut elements = bytes_of(name, bytes, 0)?;
    elements[..known.len()].copy_from_slice(known);
    fill_drawn(&mut elements[known.len()..], draw, known.len() / draw.dtype.bytes());
    Ok(elements)
}

fn seed(name: &str, given: Option<u64>) -> u64 {
    let name = u64::from(crc32fast::hash(name.as_bytes()));
    mix(name ^ mix(given.unwrap_or(0x5eed)))
}

/// Splitmix64's output function: a bijection whose outputs for consecutive
/// inputs are independent for our purposes.
pub(crate) fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[derive(Clone, Copy)]
struct Draw<'a> {
    dist: &'a Dist,
    dtype: DType,
    seed: u64,
}

impl Draw<'_> {
    /// Whether values repeat after [`PERIOD`] elements.
    fn repeats(&self) -> bool {
        !matches!(self.dist, Dist::Arange(..) | Dist::List(_))
    }

    /// Element `i` before conversion to the data type.
    fn value(&self, i: u64) -> Value {
        let i = if self.repeats() { i % PERIOD } else { i };
        if self.dtype.is_complex() {
            let imaginary = Draw { dtype: self.dtype.part(), seed: mix(!self.seed), ..*self };
            let real = Draw { seed: self.seed, ..imaginary };
            return Value::Complex(real.value(i).as_f64(), imaginary.value(i).as_f64());
        }
        let at = |k: u64| mix(self.seed ^ mix(2 * i + k));
        // 53 random bits in (0, 1): never 0, so that a logarithm exists.
        let unit = |k: u64| ((at(k) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let real = |v: Real| v.get();
        let number = match self.dist {
            Dist::Normal(mean, sd) => {
                let radius = (-2.0 * unit(0).ln()).sqrt();
                real(*mean) + real(*sd) * radius * (std::f64::consts::TAU * unit(1)).cos()
            }
            Dist::Uniform(lo, hi) => real(*lo) + (real(*hi) - real(*lo)) * unit(0),
            Dist::Randint(lo, hi) => {
                // 2^64 numbers are all there are.
                let span = hi.wrapping_sub(*lo).cast_unsigned().wrapping_add(1);
                let above = at(0).checked_rem(span).unwrap_or_else(|| at(0));
                return self.int(lo.wrapping_add_unsigned(above));
            }
            Dist::Arange(start, step) => real(*start) + real(*step) * i as f64,
            Dist::Full(value) => real(*value),
            Dist::Bernoulli(p) => f64::from(u8::from(unit(0) < real(*p))),
            Dist::List(values) => values.get(i as usize).map_or(0.0, |v| v.get()),
            Dist::Special => return self.special(i),
        };
        match self.dtype.class() {
            DTypeClass::Float => Value::Float(number),
            DTypeClass::Int => Value::Int(number.round() as i64),
            DTypeClass::Bool => Value::Bool(number > 0.0),
            DTypeClass::Complex => Value::Complex(number, 0.0),
        }
    }

    fn int(&self, value: i64) -> Value {
        match self.dtype.class() {
            DTypeClass::Float => Value::Float(value as f64),
            DTypeClass::Int => Value::Int(value),
            DTypeClass::Bool => Value::Bool(value != 0),
            DTypeClass::Complex => Value::Complex(value as f64, 0.0),
        }
    }

    fn special(&self, i: u64) -> Value {
        let (largest, tiny, smallest) = match self.dtype {
            DType::F16 => (65504.0, 6.103515625e-5, 5.960464477539063e-8),
            DType::BF16 => (3.3895313892515355e38, 1.1754943508222875e-38, 9.183549615799121e-41),
            DType::F32 => (f64::from(f32::MAX), f64::from(f32::MIN_POSITIVE), 1.401298464324817e-45),
            DType::F8E4M3FN => (448.0, 0.015625, 0.001953125),
            DType::F8E5M2 => (57344.0, 6.103515625e-5, 1.52587890625e-5),
            DType::F8E8M0FNU => (2f64.powi(127), 2f64.powi(-126), 2f64.powi(-127)),
            DType::F4E2M1FN => (6.0, 1.0, 0.5),
            _ => (f64::MAX, f64::MIN_POSITIVE, 5e-324),
        };
        let floats = [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -2.5,
            largest,
            -largest,
            tiny,
            -tiny,
            smallest,
            3.0,
            -1e-3,
        ];
        let bits = self.dtype.bytes() as u32 * 8;
        let unsigned = self.dtype.is_unsigned();
        // As the 64 bits of the number, which is all that `u64` has.
        let (min, max) = match unsigned {
            true => (0, u64::MAX >> (64 - bits)),
            false => ((i64::MIN >> (64 - bits)).cast_unsigned(), (i64::MAX >> (64 - bits)).cast_unsigned()),
        };
        let last = if unsigned { 1 << (bits - 1) } else { u64::MAX };
        let ints = [min, max, 0, 1, max - 1, min + 1, 2, 7, max / 2, last].map(u64::cast_signed);
        match self.dtype.class() {
            DTypeClass::Float => Value::Float(floats[(i % floats.len() as u64) as usize]),
            DTypeClass::Int => Value::Int(ints[(i % ints.len() as u64) as usize]),
            DTypeClass::Bool => Value::Bool(mix(self.seed ^ i) & 1 == 1),
            DTypeClass::Complex => Value::Complex(0.0, 0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::ArgLayout;

    fn spec(dist: Dist, sizes: &[i64], layout: ArgLayout) -> TensorSpec {
        TensorSpec { dist, sizes: sizes.to_vec(), seed: Some(1), layout }
    }
    fn tensor(name: &str, dtype: DType, spec: &TensorSpec) -> Result<HostTensor> {
        super::tensor(name, dtype, spec, &Draws::default())
    }
    fn normal() -> Dist {
        Dist::Normal(Real::new(0.0), Real::new(1.0))
    }

    #[test]
    fn layouts_do_not_change_values() {
        let dense = tensor("x", DType::F32, &spec(normal(), &[3, 5], ArgLayout::default())).expect("dense");
        let layouts = [
            ArgLayout { strides: Some(vec![1, 7]), ..ArgLayout::default() },
            ArgLayout { offset: 3, ..ArgLayout::default() },
            ArgLayout { permuted: Some(vec![1, 0]), offset: 1, ..ArgLayout::default() },
        ];
        for layout in layouts {
            let other = tensor("x", DType::F32, &spec(normal(), &[3, 5], layout.clone())).expect("made");
            assert!(dense.bits_equal(&other), "{layout:?}");
            assert_eq!(other.offset, layout.offset);
        }
        let expanded = ArgLayout { expanded: vec![0], ..ArgLayout::default() };
        let rows = tensor("x", DType::F32, &spec(normal(), &[4, 5], expanded)).expect("made");
        assert_eq!(rows.strides(), [0, 1]);
        assert_eq!(rows.get(&[0, 2]), rows.get(&[3, 2]));
    }

    #[test]
    fn big_tensors_repeat_after_the_period_in_any_layout() {
        let rows = PERIOD as i64 / 1000 + 3;
        let dense = tensor("x", DType::BF16, &spec(normal(), &[rows, 1000], ArgLayout::default())).expect("made");
        let padded = ArgLayout { strides: Some(vec![1001, 1]), ..ArgLayout::default() };
        let strided = tensor("x", DType::BF16, &spec(normal(), &[rows, 1000], padded)).expect("made");
        assert!(dense.bits_equal(&strided));
        let at = |i: i64| dense.get(&[i / 1000, i % 1000]);
        assert_eq!(at(PERIOD as i64 + 7), at(7));
    }

    /// Tensors of one type, of so many seeds, by draws that know what was drawn before, of other types too.
    fn check_drawn_before(dtype: DType, seeds: u64) {
        let draws = Draws::of_worker(None);
        for other in [DType::BF16, DType::I8, DType::F64].into_iter().filter(|other| *other != dtype) {
            super::tensor("x", other, &spec(normal(), &[900], ArgLayout::default()), &draws).expect("made");
        }
        let (period, word) = (PERIOD as i64, WORD as i64);
        let sizes = [0, 1, 7, word, 4099, 5, CHUNK as i64 + 1, 3, period - 1, period, 3 * period + 5, 2 * period, 900];
        for dist in [normal(), Dist::Special, Dist::Randint(-3, 3), Dist::Arange(Real::new(1.0), Real::new(2.0))] {
            for size in sizes {
                for seed in 1..=seeds {
                    let spec = TensorSpec { seed: Some(seed), ..spec(dist.clone(), &[size], ArgLayout::default()) };
                    let shared = super::tensor("x", dtype, &spec, &draws).expect("made");
                    assert!(shared == tensor("x", dtype, &spec).expect("made"), "{spec:?} {dtype}");
                }
            }
        }
        // Of each draw the longest part is kept, and what does not repeat is not.
        let kept = lock(&draws.drawn).kept.iter().map(|kept| kept.data.len() / PERIOD as usize).collect::<Vec<_>>();
        let kept: Vec<usize> = kept.into_iter().filter(|width| *width > 0).collect();
        assert_eq!(kept, vec![dtype.bytes(); 3 * seeds as usize]);
    }

    // Of seeds one type tells.
    #[test]
    fn what_was_drawn_before_changes_nothing() {
        check_drawn_before(DType::BF16, 2);
    }

    #[test]
    fn what_was_drawn_before_changes_no_bytes() {
        check_drawn_before(DType::I8, 1);
    }

    #[test]
    fn what_was_drawn_before_changes_no_long_numbers() {
        check_drawn_before(DType::F64, 1);
    }

    #[test]
    fn dense_tensors_are_made_of_what_was_drawn() {
        let draws = Draws::of_worker(None);
        let bytes = |dist: Dist, size: usize| {
            let spec = spec(dist, &[size as i64], ArgLayout::default());
            super::tensor("x", DType::BF16, &spec, &draws).expect("made").data
        };
        let period = PERIOD as usize;
        let long = bytes(normal(), 2 * period + 5);
        assert_eq!(long.part().map(<[u8]>::len), Some(2 * period));
        // Shorter ones are its beginning, and nobody copies it.
        let short = [900, period].map(|size| bytes(normal(), size));
        assert!(
            short
                .iter()
                .all(|short| short.part().is_none() && short.as_ptr() == long.part().expect("it is longer").as_ptr())
        );
        assert!(long[4 * period..] == short[0][..10] && long[..2 * period] == *short[1]);
        // What does not repeat is drawn as a whole.
        assert!(bytes(Dist::Arange(Real::new(0.0), Real::new(1.0)), 2 * period).part().is_none());
        // What was made of it once serves the next one.
        let made = long.as_ptr();
        lock(&draws.tensors).put(
            &Draw { dist: &normal(), dtype: DType::BF16, seed: seed("x", Some(1)) },
            long.into_made().expect("it was read"),
        );
        assert_eq!(bytes(normal(), 2 * period).as_ptr(), made);
        let permuted = ArgLayout { permuted: Some(vec![1, 0]), ..ArgLayout::default() };
        let turned = super::tensor("x", DType::BF16, &spec(normal(), &[1001, 2500], permuted), &draws).expect("made");
        assert!(turned.data.part().is_none());
    }

    #[test]
    fn what_was_put_on_a_shelf_last_stays() {
        let mut shelf = Shelf::of(400);
        let dist = normal();
        let mut put = |seed: u64, bytes: usize| {
            shelf.put(&Draw { dist: &dist, dtype: DType::F64, seed }, Arc::new(vec![0; bytes]));
            shelf.kept.iter().map(|kept| kept.seed).collect::<Vec<_>>()
        };
        assert_eq!([0, 1, 2, 3].map(|seed| put(seed, 100).len()), [1, 2, 3, 4]);
        assert_eq!(put(1, 100), [0, 2, 3, 1]);
        assert_eq!(put(4, 1), [2, 3, 1, 4]);
        assert_eq!(put(5, 399), [4, 5]);
        assert!(put(6, 401).is_empty());
    }

    #[test]
    fn what_is_drawn_ahead_is_what_cases_ask_for() {
        let text = "---\nversion = 1\nsuite = \"DrawTest\"\nabout = \"why\"\n---\nfusion @both(%x: f32[?, ?], %y: bf16[?, ?]) {\n  \
                    %0 = neg %x\n  %1 = neg %y\n  return %0, %1\n}\n\
                    ; inputs: x = normal[4, 300000], y = randint(-3, 3)[3, 5] strides [7, 1]\n";
        let (cases, errors) = crate::case::read_text("a.fuse", text, crate::case::Target::Cuda);
        assert!(errors.is_empty(), "{errors:?}");
        let fusion = super::super::pipeline::parse(&cases[0]).expect("parses");
        let draws = Draws::of_worker(None);
        let kept = || lock(&draws.drawn).kept.iter().map(|kept| kept.data.clone()).collect::<Vec<_>>();
        draw_ahead(&fusion, &cases[0], &draws);
        let ahead = kept();
        assert_eq!(ahead.iter().map(|drawn| drawn.len()).collect::<Vec<_>>(), [4 * PERIOD as usize, 2 * 15]);
        build(&fusion, &cases[0], &draws).expect("made");
        assert!(kept().iter().zip(&ahead).all(|(now, then)| Arc::ptr_eq(now, then)));
    }

    #[test]
    fn integers_are_drawn_from_any_range() {
        for (lo, hi) in [(-3, 3), (5, 5), (0, i64::MAX), (-1, i64::MAX), (i64::MIN, i64::MAX)] {
            let draw = Draw { dist: &Dist::Randint(lo, hi), dtype: DType::I64, seed: 7 };
            let span = (i128::from(hi) - i128::from(lo) + 1) as u128;
            for i in 0..100 {
                let above = u128::from(mix(draw.seed ^ mix(2 * i))) % span;
                assert_eq!(draw.value(i), Value::Int((i128::from(lo) + above as i128) as i64), "{lo} to {hi}");
            }
        }
    }

    #[test]
    fn distributions_are_what_they_say() {
        let draw =
            |dist, dtype| tensor("x", dtype, &spec(dist, &[10_000], ArgLayout::default())).expect("made").to_f64();
        let values = draw(normal(), DType::F64);
        let mean = values.iter().sum::<f64>() / 1e4;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 1e4;
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        assert!(values.iter().all(|v| *v != 0.0));
        let values = draw(Dist::Randint(-3, 3), DType::I8);
        assert!((-3..=3).all(|v| values.contains(&f64::from(v))));
        assert!(
            draw(Dist::Uniform(Real::new(2.0), Real::new(3.0)), DType::F32).iter().all(|v| (2.0..=3.0).contains(v))
        );
        assert_eq!(draw(Dist::Arange(Real::new(1.0), Real::new(2.0)), DType::I64)[..3], [1.0, 3.0, 5.0]);
        assert!(draw(Dist::Special, DType::BF16).iter().any(|v| v.is_nan()));
        assert_eq!(draw(Dist::Special, DType::I8)[..2], [-128.0, 127.0]);
    }
}
