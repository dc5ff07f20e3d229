//! Sums with a scaled term.

use super::args::Args;
use super::row::{OpParam, OpParamKind, OpRow, opt, req};
use crate::diag::Result;
use crate::fusion::{FusionBuilder, Operand, Src};

const ALPHA: &[OpParam] =
    &[req("a", OpParamKind::Value), req("b", OpParamKind::Value), req("alpha", OpParamKind::Value)];

pub(super) const ROWS: &[OpRow] = &[
    OpRow::composite(
        "addcmul",
        &[
            req("x", OpParamKind::Value),
            req("a", OpParamKind::Value),
            req("b", OpParamKind::Value),
            opt("value", OpParamKind::Value).untyped(),
        ],
        addcmul,
        "x + value * a * b; value 1 unless given.",
        "N§2",
    ),
    OpRow::composite("add_alpha", ALPHA, add_alpha, "a + b * alpha.", "N§2, the older frontend"),
    OpRow::composite("sub_alpha", ALPHA, sub_alpha, "a - b * alpha.", "N§2, the older frontend"),
];

fn addcmul(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let value = args.opt("value").unwrap_or(1.into());
    Ok(vec![b.addcmul(args.src("x")?, args.src("a")?, args.src("b")?, value)?])
}

fn add_alpha(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let scaled = b.mul(args.src("b")?, args.src("alpha")?)?;
    Ok(vec![b.add(args.src("a")?, scaled)?])
}

fn sub_alpha(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let scaled = b.mul(args.src("b")?, args.src("alpha")?)?;
    Ok(vec![b.sub(args.src("a")?, scaled)?])
}

impl FusionBuilder {
    /// `x + value * a * b`.
    pub fn addcmul(
        &mut self,
        x: impl Into<Src>,
        a: impl Into<Src>,
        b: impl Into<Src>,
        value: impl Into<Src>,
    ) -> Result<Operand> {
        let scaled = self.mul(a, value)?;
        let product = self.mul(scaled, b)?;
        self.add(x, product)
    }
}

#[cfg(test)]
mod tests {
    use crate::fusion::ops::checks::{check_value, dense};
    use crate::num::DType;

    #[test]
    fn terms_are_scaled_then_added() {
        let x = || dense(DType::F32, &[3], &[1.0, -2.0, 0.5]);
        let y = || dense(DType::F32, &[3], &[4.0, 3.0, -8.0]);
        let small = || dense(DType::BF16, &[3], &[4.0, 3.0, -8.0]);
        check_value("%r = add_alpha %a, %b, 0.5", &[x(), y()], DType::F32, &[3], &[3.0, -0.5, -3.5]);
        check_value("%r = sub_alpha %a, %b, 2", &[x(), small()], DType::F32, &[3], &[-7.0, -8.0, 16.5]);
        check_value("%r = addcmul %a, %a, %b, 2", &[x(), y()], DType::F32, &[3], &[9.0, -14.0, -7.5]);
        check_value("%r = addcmul %a, %a, %b", &[x(), y()], DType::F32, &[3], &[5.0, -8.0, -3.5]);
        let ints = dense(DType::I32, &[2], &[5.0, -3.0]);
        check_value("%r = sub_alpha %a, %a, 3", &[ints], DType::I32, &[2], &[-10.0, 6.0]);
    }
}
