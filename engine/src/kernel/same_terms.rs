//! For tests of passes over kernels: what a pass made writes what it got wrote.

use super::{Kernel, bind, parse, print, result_terms, verify};
use crate::num::DType;
use crate::tensor::{ArgMeta, TensorMeta};

/// A kernel that reads `x`, `m` rows of `n` floats, and writes `y`: what else it declares, with its launch, and its body.
pub(super) fn kernel_of_rows(declared: &str, body: &str) -> Kernel {
    let text = format!(
        "kernel k index i32 {{
  param m: i32 = size(0, 0)
  param n: i32 = size(0, 1)
  param *x = input(0)
  param *y = output(0)
  global x: f32[m * n] align 16
{declared}{body}
}}
"
    );
    let kernel = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    verify(&kernel).unwrap_or_else(|error| panic!("{error}"));
    kernel
}

/// Whether both kernels were followed to their ends on `m` rows of `n` floats, where they write the same.
#[track_caller]
pub(super) fn check_same_terms(before: &Kernel, after: &Kernel, [m, n]: [i64; 2]) -> bool {
    let arg = ArgMeta::Tensor(TensorMeta { dtype: DType::F32, sizes: [m, n].into(), strides: [n, 1].into() });
    let [was, is] = [before, after].map(|kernel| {
        let launch = bind(kernel, std::slice::from_ref(&arg)).unwrap_or_else(|error| panic!("{error}"));
        result_terms(kernel, &launch).unwrap_or_else(|error| panic!("{error}"))
    });
    assert!(was == is, "{m} rows of {n}: {}", print(after));
    was.exhaustive
}
