//! Steps of recurrent networks.

use super::args::Args;
use super::row::{OpParamKind, OpRow, req};
use crate::diag::Result;
use crate::fusion::{FusionBuilder, Operand};

pub(super) const ROWS: &[OpRow] = &[OpRow::composite(
    "lstm",
    &[
        req("prev_cell", OpParamKind::Value),
        req("in_x", OpParamKind::Value),
        req("forget_x", OpParamKind::Value),
        req("cell_x", OpParamKind::Value),
        req("out_x", OpParamKind::Value),
    ],
    lstm,
    "Two values: cell = sigmoid(forget_x) * prev_cell + sigmoid(in_x) * tanh(cell_x), and sigmoid(out_x) * tanh(cell).",
    "Hochreiter, Schmidhuber, Long short-term memory; nvFuser's C++ library",
)
.results(2)];

fn lstm(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let input_gate = b.sigmoid(args.src("in_x")?)?;
    let forget_gate = b.sigmoid(args.src("forget_x")?)?;
    let new = b.tanh(args.src("cell_x")?)?;
    let output_gate = b.sigmoid(args.src("out_x")?)?;
    let kept = b.mul(forget_gate, args.src("prev_cell")?)?;
    let gained = b.mul(input_gate, new)?;
    let cell = b.add(kept, gained)?;
    let squashed = b.tanh(cell)?;
    let hidden = b.mul(output_gate, squashed)?;
    Ok(vec![cell, hidden])
}

#[cfg(test)]
mod tests {
    use crate::fusion::ops::checks::{check_close, check_refused, counting, dense, results};
    use crate::num::DType;

    #[test]
    fn a_step_is_the_formula_on_each_element() {
        let parts: Vec<Vec<f64>> =
            (0..5).map(|i| (0..6).map(|j| f64::from(i * 7 + j * 3 - 11) / 9.0).collect()).collect();
        let inputs: Vec<_> = parts.iter().map(|part| dense(DType::F64, &[2, 3], part)).collect();
        let got = results("%r, %s = lstm %a, %b, %c, %d, %e", &inputs);
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let step = |i: usize| {
            let [prev, gate, forget, new, out] = [0, 1, 2, 3, 4].map(|part: usize| parts[part][i]);
            let cell = sigmoid(forget) * prev + sigmoid(gate) * new.tanh();
            (cell, sigmoid(out) * cell.tanh())
        };
        let (cell, hidden): (Vec<f64>, Vec<f64>) = (0..6).map(step).unzip();
        check_close("cell", &got[0], &cell);
        check_close("hidden", &got[1], &hidden);
    }

    #[test]
    fn operands_of_other_extents_are_refused() {
        let inputs = [counting(DType::F32, &[3]), counting(DType::F32, &[4])];
        check_refused("%r, %s = lstm %a, %a, %a, %a, %b", &inputs, "E0204: mul: axis 0 of operand 1 is 3, not 4");
    }
}
