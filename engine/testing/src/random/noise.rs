//! Random numbers of any seed and offset, given and derived.

use super::{DrawKind, Drawn, Measure};
use crate::data::{Draw, element};
use engine::fusion::ops::{self, Args};
use engine::fusion::{AxisDecl, FusionBuilder, Src};
use engine::num::{DType, Value};
use engine::options::Options;
use engine::tensor::{Arg, HostTensor};

/// `x` plus random numbers, or masked by them.
pub(super) fn noise(draw: &mut Draw) -> Option<Drawn> {
    let mut b = FusionBuilder::new("noise");
    let sizes = [draw.choose(&[1, 3, 5]), draw.choose(&[1, 7, 64, 130])];
    let dtype = draw.choose(&[DType::F32, DType::BF16, DType::F64]);
    let x = b.tensor("x", dtype, &[AxisDecl::Symbolic, AxisDecl::Symbolic]).ok()?;
    let mut args = vec![Arg::Tensor(HostTensor::from_fn(dtype, &sizes, |i| Value::Int(i[0] + i[1] % 5)).ok()?)];
    let mut number = |b: &mut FusionBuilder, draw: &mut Draw| -> Option<Src> {
        let value = element(draw, DType::I64);
        if draw.once_in(2) {
            return Some(value.into());
        }
        let scalar = b.scalar(&format!("a{}", args.len()), DType::I64).ok()?;
        args.push(Arg::Scalar(value));
        if draw.once_in(2) { b.add(scalar, 1).ok().map(Src::from) } else { Some(scalar.into()) }
    };
    let (seed, offset) = (number(&mut b, draw)?, number(&mut b, draw)?);
    let name = draw.choose(&["rand_like", "randn_like", "dropout"]);
    let call = Args::new(ops::find(name)?).value("x", x).value("rng_seed", seed).value("rng_offset", offset);
    let call = if name == "dropout" { call.value("prob", Value::Float(0.25)) } else { call };
    let made = b.apply(&call).ok()?;
    let first = *made.first()?;
    let sum = b.add(first, x).ok()?;
    b.output(sum).ok()?;
    if let Some(mask) = made.get(1) {
        b.output(*mask).ok()?;
    }
    let fusion = b.finish().ok()?;
    let options = Options { self_check: false, ..Options::default() };
    Some(Drawn { kind: DrawKind::Noise, fusion, args, options, measure: Measure::Magnitude(1.0) })
}
