use crate::fusion::ops::checks::{check_refused, check_value, counting, dense, refusal, result};
use crate::num::DType::*;
use crate::tensor::HostTensor;

fn ints(sizes: &[i64], values: &[f64]) -> HostTensor {
    dense(I64, sizes, values)
}

/// `[[0, 1, 2], [3, 4, 5]]`.
fn table() -> HostTensor {
    dense(F32, &[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
}

#[test]
fn rows_are_looked_up() {
    let words = ints(&[2, 2], &[1.0, 0.0, 0.0, 1.0]);
    let rows = [3.0, 4.0, 5.0, 0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    let inputs = [words, table()];
    check_value("%0 = embedding_fwd %a, %b", &inputs, F32, &[2, 2, 3], &rows);
    let options = "padding_idx(0) norm_type(2) scale_grad_by_freq(true) sparse(false)";
    check_value(&format!("%0 = embedding_fwd %a, %b {options}"), &inputs, F32, &[2, 2, 3], &rows);
    let point = [dense(I32, &[], &[1.0]), dense(F64, &[2, 2], &[0.5, 0.0, 3.0, 4.0])];
    let limited = result("%0 = embedding_fwd %a, %b max_norm(1.0)", &point).to_f64();
    assert!((limited[0] - 0.6).abs() < 1e-7 && (limited[1] - 0.8).abs() < 1e-7, "{limited:?}");
    let sums = result("%0 = embedding_fwd %a, %b max_norm(3.5) norm_type(1)", &point).to_f64();
    assert!((sums[0] - 1.5).abs() < 1e-6 && (sums[1] - 2.0).abs() < 1e-6, "{sums:?}");
    check_refused(
        "%0 = embedding_fwd %a, %b",
        &[ints(&[1], &[0.0]), counting(F32, &[3])],
        "E0203: embedding_fwd: the weight has rank 1, not 2",
    );
    let message = "E0310: embedding_fwd: index[0] is 9, axis 0 has 2 elements";
    assert_eq!(refusal("%0 = embedding_fwd %a, %b", &[ints(&[1], &[9.0]), table()]), message);
}
