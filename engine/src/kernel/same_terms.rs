//! For tests of passes over kernels: what a pass made writes what it got wrote.

use super::{Kernel, bind, print, result_terms};
use crate::num::DType;
use crate::tensor::{ArgMeta, TensorMeta};

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
