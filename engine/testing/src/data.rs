//! Random elements, special ones among them.

use engine::num::{DType, DTypeClass, Value, storage};

/// Numbers drawn from a seed.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// Draws that depend on the seed alone.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n.max(1) as u64) as usize
    }
    /// One of the items; there must be one.
    pub fn choose<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
    /// That many random bytes, which generators of fusions draw from.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.bits() as u8).collect()
    }
    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Numbers at which an integer operation of a type is most likely wrong.
fn special_int(draw: &mut Draw, dtype: DType) -> i64 {
    let bits = 8 * dtype.bytes() as u32;
    let (least, most) = if dtype.is_unsigned() {
        (0, (u64::MAX >> (64 - bits)).cast_signed())
    } else {
        (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits))
    };
    let bits = i64::from(bits);
    draw.choose(&[
        least,
        least + 1,
        most,
        most.wrapping_sub(1),
        most / 2,
        0,
        0,
        1,
        -1,
        -1,
        2,
        -2,
        3,
        -3,
        7,
        bits - 1,
        bits,
        bits + 1,
    ])
}

/// The same of floats.
fn special_float(draw: &mut Draw, dtype: DType) -> f64 {
    let (most, normal, least) = match dtype {
        DType::F16 => (65504.0, 2f64.powi(-14), 2f64.powi(-24)),
        DType::BF16 => (3.389_531_389_251_535_5e38, 2f64.powi(-126), 2f64.powi(-133)),
        DType::F32 => (f64::from(f32::MAX), 2f64.powi(-126), 2f64.powi(-149)),
        DType::F8E4M3FN => (448.0, 2f64.powi(-6), 2f64.powi(-9)),
        DType::F8E5M2 => (57344.0, 2f64.powi(-14), 2f64.powi(-16)),
        DType::F8E8M0FNU => (2f64.powi(127), 2f64.powi(-126), 2f64.powi(-127)),
        DType::F4E2M1FN => (6.0, 1.0, 0.5),
        _ => (f64::MAX, f64::MIN_POSITIVE, 5e-324),
    };
    let magnitude = draw.choose(&[
        f64::NAN,
        f64::INFINITY,
        0.0,
        most,
        normal,
        least,
        normal - least,
        3.0 * least,
        0.5,
        1.0,
        1.5,
        2.5,
        100.0,
        2_147_483_648.0,
        9_223_372_036_854_775_808.0,
        300.0,
    ]);
    if draw.once_in(2) { -magnitude } else { magnitude }
}

/// What a type holds of a value.
pub(crate) fn held(dtype: DType, value: Value) -> Value {
    storage::read(dtype, &storage::encode(dtype, value), 0).unwrap_or(value)
}

/// An element of a type: special, small, of any magnitude, or any bits at all.
pub(crate) fn element(draw: &mut Draw, dtype: DType) -> Value {
    let small = draw.below(33) as i64 - 16;
    let value = match (dtype.class(), draw.below(4)) {
        (DTypeClass::Bool, _) => Value::Bool(small & 1 == 1),
        (DTypeClass::Int, 0) => Value::Int(special_int(draw, dtype)),
        (DTypeClass::Int, 1 | 2) => Value::Int(small),
        (DTypeClass::Int, _) => Value::Int(draw.bits().cast_signed() >> draw.below(64)),
        (DTypeClass::Complex, _) => {
            let [re, im] = [(); 2].map(|()| element(draw, dtype.part()).as_f64());
            Value::Complex(re, im)
        }
        (_, 0) => Value::Float(special_float(draw, dtype)),
        (_, 1 | 2) => Value::Float(small as f64 / 8.0 + draw.below(1 << 20) as f64 / f64::from(1 << 21)),
        (_, _) => {
            let exponent = draw.below(400) as i32 - 200;
            Value::Float((1.0 + draw.below(1 << 24) as f64 / f64::from(1 << 24)) * 2f64.powi(exponent))
        }
    };
    held(dtype, value)
}

/// That many elements of a type as bytes.
pub(crate) fn fill(draw: &mut Draw, dtype: DType, count: usize) -> Vec<u8> {
    let width = dtype.bytes();
    let mut bytes = Vec::with_capacity(count * width);
    for _ in 0..count {
        let value = element(draw, dtype);
        bytes.extend_from_slice(&storage::encode(dtype, value)[..width]);
    }
    bytes
}
