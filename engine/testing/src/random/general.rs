//! Fusions of the general generator in any layout, under parameters that a
//! heuristic would not choose.

use super::grid::strides;
use super::{DrawKind, Drawn, Measure};
use crate::data::Draw;
use crate::fusions::{Limits, generate, scalar_value};
use engine::fusion::{Fusion, Operand, bind};
use engine::num::{DType, DTypeClass, Value};
use engine::options::Options;
use engine::refeval;
use engine::tensor::{Arg, ArgMeta, HostTensor, TensorMeta};
use std::collections::BTreeMap;

/// Elements of the largest tensor.
const MOST_ELEMENTS: i64 = 50_000;

pub(super) fn general(draw: &mut Draw) -> Option<Drawn> {
    let limits = limits(draw);
    let bytes: Vec<u8> = (0..40 + draw.below(160)).map(|_| draw.below(256) as u8).collect();
    let generated = generate(&bytes, &limits);
    let fusion = generated.fusion;
    let args: Vec<Arg> = fusion
        .inputs
        .iter()
        .zip(&generated.sizes)
        .map(|(operand, sizes)| match (*operand, sizes) {
            (Operand::Tensor(t), Some(sizes)) => tensor(draw, fusion.tensors[t].dtype, sizes).map(Arg::Tensor),
            (Operand::Scalar(s), _) => Some(Arg::Scalar(scalar_value(fusion.scalars[s].dtype, draw.below(256) as u8))),
            (Operand::Tensor(_), None) => None,
        })
        .collect::<Option<_>>()?;
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let bindings = bind(&fusion, &metas).ok()?;
    let elements = fusion.tensors.ids().map(|t| bindings.sizes(&fusion, t).iter().product::<i64>()).max();
    if elements.unwrap_or(0) > MOST_ELEMENTS {
        return None;
    }
    let options =
        Options { force_index64: draw.once_in(8), tuning: tuning(draw), self_check: false, ..Options::default() };
    let measure = if limits.tame { Measure::Magnitude(magnitude(&fusion, &args)?) } else { Measure::Exact };
    Some(Drawn { kind: DrawKind::General, fusion, args, options, measure })
}

/// What may be drawn: any operation on integers, those that do not enlarge
/// rounding errors on floats.
fn limits(draw: &mut Draw) -> Limits {
    let floats = vec![DType::F32, DType::BF16, DType::F32, DType::F64, DType::F16];
    let dtypes = match draw.below(8) {
        0 | 1 => vec![DType::F32],
        2 => [floats, vec![DType::F8E4M3FN, DType::F8E5M2]].concat(),
        _ => floats,
    };
    let mut sizes = match draw.below(4) {
        0 => vec![2, 3, 5, 7, 8, 16, 17, 31, 33, 1000],
        1 => vec![2, 4, 8, 16, 32, 64, 256, 4096],
        2 => vec![1, 4, 129, 13, 32, 4097],
        _ => Limits::default().sizes,
    };
    let rank = 1 + draw.below(6);
    let most = [20_000, 141, 27, 12, 7, 5][rank - 1];
    sizes.retain(|size| *size <= most);
    Limits { ops: 8, inputs: 3, rank, sizes, dtypes, tame: true, ..Limits::default() }
}

fn tensor(draw: &mut Draw, dtype: DType, sizes: &[i64]) -> Option<HostTensor> {
    let strides = strides(draw, sizes);
    let special = draw.once_in(16);
    let meta = TensorMeta { dtype, sizes: sizes.to_vec(), strides };
    let value = |_: &[i64]| {
        let number = draw.below(64) as i64 - 32;
        match dtype.class() {
            DTypeClass::Float if special && draw.once_in(32) => {
                Value::Float(draw.choose(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN]))
            }
            DTypeClass::Int => Value::Int(number / 4),
            DTypeClass::Bool => Value::Bool(number & 1 == 1),
            DTypeClass::Float | DTypeClass::Complex => Value::Float(number as f64 / 16.0),
        }
    };
    let mut tensor = HostTensor::strided(meta, value).ok()?;
    let offset = if draw.once_in(5) { draw.below(17) } else { 0 };
    tensor.data.own().splice(0..0, vec![0xff; offset * dtype.bytes()]);
    tensor.offset = offset;
    Some(tensor)
}

/// Parameters of heuristics, half of the time: what is right for one choice
/// must be right for all.
pub fn tuning(draw: &mut Draw) -> BTreeMap<String, i64> {
    const VALUES: [(&str, &[i64]); 33] = [
        ("pointwise.threads", &[1, 3, 32, 64, 96, 256, 1000, 1024]),
        ("pointwise.unroll", &[1, 2, 3, 4, 16]),
        ("pointwise.joined", &[2, 4]),
        ("pointwise.least_folded", &[1]),
        ("folded_columns.choice", &[0, 1, 2, 4, 7]),
        ("folded_columns.least", &[1]),
        ("short_columns.choice", &[0, 1, 3, 8, 40]),
        ("short_columns.least", &[1]),
        ("short_columns.row", &[1, 20, 384]),
        ("short_rows.bytes", &[1, 2, 8, 16]),
        ("short_rows.choice", &[0, 1, 2, 3, 4]),
        ("short_rows.least", &[1]),
        ("short_rows.row", &[1, 20, 384]),
        ("reduction.threads", &[32, 64, 128, 256, 512, 1024]),
        ("reduction.unroll", &[1, 2, 3, 4, 7, 8, 16]),
        ("reduction.blocks_per_sm", &[0, 1, 8, 32]),
        ("reduction.threads_per_sm", &[0, 1, 64, 2048]),
        ("norm.threads_per_sm", &[0, 1, 128, 512, 2048]),
        ("norm.per_thread", &[1, 4, 16, 64]),
        ("norm.ahead", &[0, 1]),
        ("norm.reread", &[0, 1]),
        ("cache.load", &[0, 1]),
        ("cache.store", &[0, 1]),
        ("stacked.rows", &[1, 2, 3, 16]),
        ("stacked.threads", &[32, 96, 1024]),
        ("summed_rows.threads", &[32, 64, 1024]),
        ("stacked.vector", &[1, 2, 16]),
        ("shared.room", &[0]),
        ("transpose.least_bytes", &[0]),
        ("transpose.least_extent", &[1, 2]),
        ("transpose.tile_bytes", &[64, 512, 4096, 32768]),
        ("reduction.own_sums", &[1]),
        ("reduction.sums", &[1, 2, 3, 8]),
    ];
    let mut chosen = BTreeMap::new();
    if draw.once_in(2) {
        return chosen;
    }
    for (name, values) in VALUES {
        if draw.below(values.len() + 1) > 0 {
            chosen.insert(name.to_string(), draw.choose(values));
        }
    }
    chosen
}

/// The largest finite magnitude of any value on the way: rounding errors are
/// relative to it.
fn magnitude(fusion: &Fusion, args: &[Arg]) -> Option<f64> {
    let mut all = fusion.clone();
    all.outputs = all.tensors.ids().collect();
    let values = refeval::evaluate(&all, args).ok()?;
    Some(values.iter().flat_map(|t| t.values()).map(|v| v.as_f64().abs()).filter(|v| v.is_finite()).fold(1.0, f64::max))
}
