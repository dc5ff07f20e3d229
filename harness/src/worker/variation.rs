//! How alike the results of repeated runs are.

use crate::outcome::{Determinism, Variation};
use engine::tensor::HostTensor;

/// The worst class of any run against the first, and what differs there.
pub(super) fn of_runs<'a>(names: &[&str], mut runs: impl Iterator<Item = (&'a str, &'a [HostTensor])>) -> Variation {
    let mut worst = Variation { class: Determinism::Bitwise, detail: String::new() };
    let Some((_, first)) = runs.next() else { return worst };
    for (what, run) in runs {
        for (number, (a, b)) in first.iter().zip(run).enumerate() {
            let class = of_pair(a, b);
            if class > worst.class {
                let name = names.get(number).copied().unwrap_or_default();
                worst = Variation { class, detail: format!("{what}: output %{name}: {}", differences(a, b, class)) };
            }
        }
    }
    worst
}

fn of_pair(a: &HostTensor, b: &HostTensor) -> Determinism {
    if a.data == b.data {
        return Determinism::Bitwise;
    }
    let sorted = |tensor: &HostTensor| {
        let mut elements: Vec<Vec<u8>> = tensor.data.chunks(width(tensor)).map(<[u8]>::to_vec).collect();
        elements.sort_unstable();
        elements
    };
    if sorted(a) == sorted(b) { Determinism::Order } else { Determinism::Tolerance }
}

fn width(tensor: &HostTensor) -> usize {
    tensor.dtype().bytes().max(1)
}

fn differences(a: &HostTensor, b: &HostTensor, class: Determinism) -> String {
    let pairs = || a.data.chunks(width(a)).zip(b.data.chunks(width(b)));
    let count = pairs().filter(|(a, b)| a != b).count();
    let first = pairs().position(|(a, b)| a != b).unwrap_or(0);
    let how = match class {
        Determinism::Order => "the same elements in another order",
        _ => "other bits",
    };
    format!("{how} in {count} of {} elements, the first is element {first} in the order of memory", pairs().count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::num::DType;

    fn tensor(values: &[f32]) -> HostTensor {
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        HostTensor::contiguous(DType::F32, &[values.len() as i64], data).expect("a tensor")
    }

    #[track_caller]
    fn check(other: &[f32], wanted: Determinism, detail: &str) {
        let (first, same, other) = ([tensor(&[1.0, 2.0, 3.0])], [tensor(&[1.0, 2.0, 3.0])], [tensor(other)]);
        let runs: [(&str, &[HostTensor]); 3] = [("one", &first), ("two", &same), ("three", &other)];
        let found = of_runs(&["y"], runs.into_iter());
        assert_eq!((found.class, found.detail.as_str()), (wanted, detail));
    }

    #[test]
    fn classes_of_results() {
        check(&[1.0, 2.0, 3.0], Determinism::Bitwise, "");
        check(
            &[1.0, 2.5, 3.0],
            Determinism::Tolerance,
            "three: output %y: other bits in 1 of 3 elements, the first is element 1 in the order of memory",
        );
        check(
            &[2.0, 1.0, 3.0],
            Determinism::Order,
            "three: output %y: the same elements in another order in 2 of 3 elements, the first is element 0 in the order of memory",
        );
        // Bits count: signs of zero and payloads of NaN differ.
        assert_eq!(of_pair(&tensor(&[0.0]), &tensor(&[-0.0])), Determinism::Tolerance);
        assert_eq!(of_pair(&tensor(&[f32::NAN]), &tensor(&[f32::NAN])), Determinism::Bitwise);
    }
}
