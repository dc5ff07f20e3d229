//! Dropout and its gradient. Numbers come from [`super::random`]: the seed and
//! offset are given.

use super::args::Args;
use super::row::{OpParamKind, OpRow, opt, req};
use super::table;
use crate::diag::{Diagnostic, Result};
use crate::fusion::{FusionBuilder, Operand, Src};

pub(super) const ROWS: &[OpRow] = &[
    OpRow::composite(
        "dropout",
        &[
            req("x", OpParamKind::Tensor),
            req("prob", OpParamKind::Scalar),
            req("rng_seed", OpParamKind::Scalar),
            req("rng_offset", OpParamKind::Scalar),
            opt("scale", OpParamKind::Scalar),
        ],
        dropout,
        "Two values: x * mask * scale, and the mask: rand_like x below the probability to keep. That is prob where scale is given, else 1 - prob with its inverse as the scale.",
        "nvFuser's C++ library",
    )
    .results(2),
    OpRow::composite(
        "dropout_backward",
        &[req("dy", OpParamKind::Tensor), req("mask", OpParamKind::Tensor), req("scale", OpParamKind::Scalar)],
        dropout_backward,
        "Gradient of dropout: dy * mask * scale.",
        "nvFuser's C++ library",
    ),
];

fn dropout(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let x = args.src("x")?;
    let prob = args.src("prob")?;
    let (keep, scale) = match args.opt("scale") {
        Some(scale) => (prob, scale),
        None => {
            let keep = b.sub(1.0, prob)?;
            // Nothing is kept with probability 0: the scale is 1, not infinite.
            let nothing = b.eq(keep, 0.0)?;
            let divisor = b.add(keep, nothing)?;
            let scale = b.reciprocal(divisor)?;
            (keep.into(), scale.into())
        }
    };
    let row = table::find("rand_like").ok_or_else(|| Diagnostic::bug("dropout: `rand_like` has no row"))?;
    let random = Args::new(row)
        .value("x", x)
        .value("rng_seed", args.src("rng_seed")?)
        .value("rng_offset", args.src("rng_offset")?);
    let random = b.apply(&random)?[0];
    let mask = b.lt(random, keep)?;
    Ok(vec![masked(b, x, mask.into(), scale)?, mask])
}

fn dropout_backward(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![masked(b, args.src("dy")?, args.src("mask")?, args.src("scale")?)?])
}

fn masked(b: &mut FusionBuilder, x: Src, mask: Src, scale: Src) -> Result<Operand> {
    let kept = b.mul(x, mask)?;
    b.mul(kept, scale)
}

#[cfg(test)]
mod tests {
    use crate::fusion::ops::checks::{check_refused, check_value, counting, dense, results};
    use crate::num::DType;

    /// Kept elements, scaled, and the mask.
    fn check_dropout(statement: &str, keep: f64, scale: f64) {
        let x: Vec<f64> = (0..1000).map(f64::from).collect();
        let got = results(statement, &[dense(DType::F64, &[4, 250], &x)]);
        let uniform = results("%r = uniform [4, 250] 0, 1, 9, 3 dtype(f64)", &[]);
        let mask: Vec<f64> = uniform[0].to_f64().iter().map(|&u| f64::from(u8::from(u < keep))).collect();
        let kept: Vec<f64> = x.iter().zip(&mask).map(|(x, mask)| x * mask * scale).collect();
        assert_eq!((got[1].dtype(), got[1].to_f64()), (DType::Bool, mask), "{statement}");
        assert_eq!(got[0].to_f64(), kept, "{statement}");
    }

    #[test]
    fn elements_are_kept_with_the_probability() {
        check_dropout("%r, %s = dropout %a, 0.25, 9, 3", 0.75, 1.0 / 0.75);
        check_dropout("%r, %s = dropout %a, 0.25, 9, 3 scale(4.0)", 0.25, 4.0);
        check_dropout("%r, %s = dropout %a, 1.0, 9, 3", 0.0, 1.0);
        check_dropout("%r, %s = dropout %a, 0.0, 9, 3", 1.0, 1.0);
    }

    #[test]
    fn the_gradient_passes_where_elements_were_kept() {
        let (dy, mask) =
            (dense(DType::BF16, &[4], &[1.0, -2.0, 3.0, 0.5]), dense(DType::Bool, &[4], &[1.0, 0.0, 1.0, 1.0]));
        check_value("%r = dropout_backward %a, %b, 2.0", &[dy, mask], DType::F32, &[4], &[2.0, 0.0, 6.0, 1.0]);
    }

    #[test]
    fn integers_are_refused() {
        let x = [counting(DType::I64, &[3])];
        let expected = "E0202: rand_like: random numbers of type i64 do not exist";
        check_refused("%r, %s = dropout %a, 0.5, 0, 0", &x, expected);
    }
}
