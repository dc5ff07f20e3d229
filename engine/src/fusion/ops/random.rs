//! Random tensors: Philox 4x32-10 by element, from a seed and an offset that
//! are always given, so that a definition means the same numbers everywhere.
//! (nvFuser's form may leave both out; its reader then gives the seed 0 and the
//! count of such operations before this one as the offset.)
//!
//! Element `e` of the result, counted in row-major order, takes its words from
//! the block of subsequence `e / 4` and component `e % 4`; of `f64`, which needs
//! two words, `e / 2` and `e % 2`. The offset is the counter's low half, the
//! seed the key. [`eval`](Primitive::eval) computes blocks, four elements at a
//! time; so do kernels, which have a statement for a block.

use super::args::{Args, OpArg};
use super::cx::{EvalCx, MetaCx};
use super::draft::CallDraft;
use super::movement::Movement;
use super::py_form::{PyArgs, PyForm};
use super::row::{OpParam, OpParamKind, OpRow, Primitive, ResultLayout, dtype, req};
use super::table;
use crate::array::{Data, View, parallel};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::meta::Shape;
use crate::fusion::{FusionBuilder, Operand, Src};
use crate::num::philox::{Distribution, block, unit_f32, unit_f64};
use crate::num::{DType, UnaryOp, eval};

const SEED: OpParam = req("rng_seed", OpParamKind::Scalar);
const OFFSET: OpParam = req("rng_offset", OpParamKind::Scalar);
const LIKE: &[OpParam] = &[req("x", OpParamKind::Tensor), SEED, OFFSET];
const PLAIN: &[OpParam] = &[req("shape", OpParamKind::Shape), SEED, OFFSET, dtype("dtype", DType::F32)];
const SOURCE: &str = "N§2; Salmon et al., Parallel random numbers: as easy as 1, 2, 3";

pub(super) const ROWS: &[OpRow] = &[
    OpRow::primitive(
        "uniform",
        &[
            req("minval", OpParamKind::Scalar),
            req("maxval", OpParamKind::Scalar),
            req("shape", OpParamKind::Shape),
            SEED,
            OFFSET,
            dtype("dtype", DType::F32),
        ],
        uniform,
        Primitive { meta, layout: ResultLayout::Dense, eval: uniform_eval, decompose: None, movement: Movement::NEW },
        "Uniform random numbers of [minval, maxval): Philox of the seed and offset; f32 unless a type is given.",
        SOURCE,
    )
    .random(Distribution::Uniform)
    .py(PyForm::args(PyArgs::Generator)),
    OpRow::primitive(
        "normal",
        &[
            req("mean", OpParamKind::Scalar),
            req("std", OpParamKind::Scalar),
            req("shape", OpParamKind::Shape),
            SEED,
            OFFSET,
            dtype("dtype", DType::F32),
        ],
        normal,
        Primitive { meta, layout: ResultLayout::Dense, eval: normal_eval, decompose: None, movement: Movement::NEW },
        "Normal random numbers: Philox of the seed and offset, then Box-Muller; f32 unless a type is given.",
        SOURCE,
    )
    .random(Distribution::Normal)
    .py(PyForm::args(PyArgs::Generator)),
    OpRow::composite(
        "rand_like",
        LIKE,
        |b, args| like(b, args, "uniform", ["minval", "maxval"]),
        "Uniform random numbers of [0, 1) with the extents and type of x.",
        SOURCE,
    )
    .py(PyForm::args(PyArgs::Generator)),
    OpRow::composite(
        "randn_like",
        LIKE,
        |b, args| like(b, args, "normal", ["mean", "std"]),
        "Standard normal random numbers with the extents and type of x.",
        SOURCE,
    )
    .py(PyForm::args(PyArgs::Generator)),
    OpRow::composite(
        "rand",
        PLAIN,
        |b, args| plain(b, args, "uniform", ["minval", "maxval"]),
        "Uniform random numbers of [0, 1); f32 unless a type is given.",
        SOURCE,
    ),
    OpRow::composite(
        "randn",
        PLAIN,
        |b, args| plain(b, args, "normal", ["mean", "std"]),
        "Standard normal random numbers; f32 unless a type is given.",
        SOURCE,
    ),
];

// ---- building ----

fn uniform(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    draft(b, args, ["minval", "maxval"])
}

fn normal(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    draft(b, args, ["mean", "std"])
}

fn draft(b: &mut FusionBuilder, args: &Args, names: [&str; 2]) -> Result<Vec<Operand>> {
    let given = RandomOperands::read(b, args, names)?;
    let draft = CallDraft::new(args)
        .operand(names[0], given.params[0])
        .operand(names[1], given.params[1])
        .operand("rng_seed", given.seed)
        .operand("rng_offset", given.offset);
    b.push_draft(draft)
}

/// The checked operands: the two parameters in the type that arithmetic on the
/// result's type is done in, seed and offset as the 64 bits of an `i64`.
struct RandomOperands {
    params: [Operand; 2],
    seed: Operand,
    offset: Operand,
}

impl RandomOperands {
    fn read(b: &mut FusionBuilder, args: &Args, names: [&str; 2]) -> Result<Self> {
        let name = args.row().name;
        let dtype = float(name, args.dtype("dtype").unwrap_or(DType::F32))?;
        let mut param = |which: &str| {
            let operand = Operand::Scalar(b.scalar_operand(name, args.src(which)?)?);
            b.cast(operand, dtype.compute())
        };
        let params = [param(names[0])?, param(names[1])?];
        let mut bits = |which: &str| {
            let operand = Operand::Scalar(b.scalar_operand(name, args.src(which)?)?);
            let own = b.dtype(operand);
            if !own.is_int() {
                let message = format!("{name}: `{which}` is a {own}, not an integer");
                return Err(Diagnostic::user(code::DTYPE, message).note("cast it to i64"));
            }
            b.cast(operand, DType::I64)
        };
        Ok(Self { params, seed: bits("rng_seed")?, offset: bits("rng_offset")? })
    }
}

/// The types that random numbers have.
fn float(name: &str, dtype: DType) -> Result<DType> {
    if matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16) {
        return Ok(dtype);
    }
    let message = format!("{name}: random numbers of type {dtype} do not exist");
    Err(Diagnostic::user(code::DTYPE, message).note("they are f64, f32, f16 or bf16; cast the result"))
}

/// Numbers with the extents and type of an operand, whose elements do not matter.
fn like(b: &mut FusionBuilder, args: &Args, name: &str, params: [&str; 2]) -> Result<Vec<Operand>> {
    let own = args.row().name;
    let x = b.tensor_operand(own, args.src("x")?)?;
    let dtype = float(own, b.dtype(Operand::Tensor(x)))?;
    let extents: Result<Vec<Src>> = (0..b.rank(x) as i64).map(|axis| Ok(b.size(x, axis)?.into())).collect();
    standard(b, args, (name, params), extents?, dtype)
}

fn plain(b: &mut FusionBuilder, args: &Args, name: &str, params: [&str; 2]) -> Result<Vec<Operand>> {
    let dtype = float(args.row().name, args.dtype("dtype").unwrap_or(DType::F32))?;
    standard(b, args, (name, params), args.list("shape").to_vec(), dtype)
}

/// Numbers of the distribution with the parameters 0 and 1.
fn standard(
    b: &mut FusionBuilder,
    args: &Args,
    (name, params): (&str, [&str; 2]),
    extents: Vec<Src>,
    dtype: DType,
) -> Result<Vec<Operand>> {
    let row = table::find(name).ok_or_else(|| Diagnostic::bug(format!("{}: `{name}` has no row", args.row().name)))?;
    let args = Args::new(row)
        .value(params[0], 0.0)
        .value(params[1], 1.0)
        .with("shape", OpArg::Values(extents))
        .value("rng_seed", args.src("rng_seed")?)
        .value("rng_offset", args.src("rng_offset")?)
        .with("dtype", OpArg::DType(dtype));
    b.apply(&args)
}

// ---- meaning ----

fn meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let dtype = float(cx.name(), cx.call.dtype("dtype").unwrap_or(DType::F32))?;
    let axes = cx.extents("shape").into_iter().map(|extent| cx.axis(extent)).collect();
    Ok(vec![Shape { dtype, axes }])
}

/// What an evaluation is about: result, seed and offset, both parameters.
struct Numbers {
    dtype: DType,
    sizes: Vec<usize>,
    seed: u64,
    offset: u64,
    params: [f64; 2],
}

impl Numbers {
    fn read(cx: &EvalCx<'_>, names: [&str; 2]) -> Result<Self> {
        let scalar = |name: &str| {
            let missing = || Diagnostic::bug(format!("{}: `{name}` is no scalar", cx.call.row.name));
            cx.scalar(name).ok_or_else(missing)
        };
        let (dtype, sizes) = cx.results[0].clone();
        Ok(Self {
            dtype,
            sizes,
            seed: scalar("rng_seed")?.as_i64().cast_unsigned(),
            offset: scalar("rng_offset")?.as_i64().cast_unsigned(),
            params: [scalar(names[0])?.as_f64(), scalar(names[1])?.as_f64()],
        })
    }

    /// The elements, `LANES` of them from each block.
    fn fill<T: Copy + Default + Send, const LANES: usize>(&self, f: impl Fn([u32; 4], usize) -> T + Sync) -> Vec<T> {
        /// Blocks of one parallel task.
        const BLOCKS: usize = 1 << 12;
        let mut values = vec![T::default(); self.sizes.iter().product()];
        parallel::chunks(&mut values, BLOCKS * LANES, &|task, out| {
            for (i, out) in out.chunks_mut(LANES).enumerate() {
                let words = block(self.seed, self.offset, (task * BLOCKS + i) as u64);
                out.iter_mut().enumerate().for_each(|(lane, value)| *value = f(words, lane));
            }
        });
        values
    }

    fn view(self, data: Data) -> Vec<View> {
        vec![View::dense(self.dtype, self.sizes, data)]
    }
}

/// `lo + (hi - lo) * u`, each step rounded; what rounds to `hi` is `lo`.
fn uniform_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let numbers = Numbers::read(cx, ["minval", "maxval"])?;
    let [lo, hi] = numbers.params;
    if numbers.dtype == DType::F64 {
        let range = hi - lo;
        let value = |words: [u32; 4], lane: usize| lo + range * half_open_f64(words[2 * lane], words[2 * lane + 1]);
        let values = numbers.fill::<f64, 2>(value);
        return Ok(numbers.view(Data::F64(values)));
    }
    let (lo, hi) = (lo as f32, hi as f32);
    let range = hi - lo;
    if numbers.dtype == DType::F32 {
        let values = numbers.fill::<f32, 4>(|words, lane| lo + range * half_open_f32(words[lane]));
        return Ok(numbers.view(Data::F32(values)));
    }
    let narrow = |v: f32| eval::round_float(numbers.dtype, v.into()) as f32;
    let (first, last) = (narrow(lo), narrow(hi));
    let values = numbers.fill::<f32, 4>(|words, lane| {
        let value = narrow(lo + range * unit_f32(words[lane]));
        if value == last { first } else { value }
    });
    Ok(numbers.view(Data::F32(values)))
}

/// Box-Muller: `sqrt(-2 ln u) * sin(2 pi v)` in even components, `cos` in odd
/// ones, of the two numbers that the pair of components shares; then
/// `z * std + mean`. Each step is rounded.
fn normal_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let numbers = Numbers::read(cx, ["mean", "std"])?;
    let [mean, std] = numbers.params;
    let (ln, sin, cos) = (eval::unary_f64(UnaryOp::Log), eval::unary_f64(UnaryOp::Sin), eval::unary_f64(UnaryOp::Cos));
    if numbers.dtype == DType::F64 {
        let values = numbers.fill::<f64, 2>(|[a, b, c, d], lane| {
            let (u, v) = (half_open_f64(a, b), half_open_f64(c, d) * std::f64::consts::TAU);
            let wave = if lane == 0 { sin(v) } else { cos(v) };
            (ln(u) * -2.0).sqrt() * wave * std + mean
        });
        return Ok(numbers.view(Data::F64(values)));
    }
    let (mean, std) = (mean as f32, std as f32);
    let narrow = |v: f32| eval::round_float(numbers.dtype, v.into()) as f32;
    let values = numbers.fill::<f32, 4>(|words, lane| {
        let pair = lane / 2 * 2;
        let (u, v) = (half_open_f32(words[pair]), half_open_f32(words[pair + 1]) * std::f32::consts::TAU);
        let wave = if lane % 2 == 0 { sin(v.into()) } else { cos(v.into()) } as f32;
        narrow((ln(u.into()) as f32 * -2.0).sqrt() * wave * std + mean)
    });
    Ok(numbers.view(Data::F32(values)))
}

/// [`unit_f32`] with 0 for 1: a number of [0, 1).
fn half_open_f32(x: u32) -> f32 {
    let unit = unit_f32(x);
    if unit == 1.0 { 0.0 } else { unit }
}

/// [`unit_f64`] with 0 for 1: a number of [0, 1).
fn half_open_f64(x: u32, y: u32) -> f64 {
    let unit = unit_f64(x, y);
    if unit == 1.0 { 0.0 } else { unit }
}

#[cfg(test)]
mod tests;
