//! Launches of a kernel: that of its case, and those of smaller and larger tensors.
//!
//! Sizes and strides that are equal change together, so that what was one axis stays one. Everything that depends on
//! them is computed again. A launch in which the kernel itself is not in order breaks a promise that it was made under,
//! and is left out by who asks.

use engine::kernel::{BoundLaunch, BoundParam, Kernel, ParamId, ParamKind, eval_over, gcd, reciprocal};
use engine::num::Value;
use std::collections::BTreeMap;

/// Launches besides that of the case.
const MORE: usize = 10;
/// Threads of such a launch, at most, and elements of its buffers.
const MAX_THREADS: u64 = 1 << 12;
const MAX_ELEMENTS: u64 = 1 << 16;

/// The launch of a case, and others.
pub(crate) fn launches(kernel: &Kernel, launch: &BoundLaunch) -> Vec<BoundLaunch> {
    // Each size with what divides all parameters that hold it.
    let mut sizes: BTreeMap<i64, i64> = BTreeMap::new();
    for (param, bound) in kernel.params.values().zip(&launch.params) {
        if let (ParamKind::Size { .. }, BoundParam::Scalar { value: Value::Int(size), .. }) = (param.kind, bound) {
            let step = param.multiple_of.max(1);
            sizes.entry(*size).and_modify(|own| *own = *own / gcd(*own, step) * step).or_insert(step);
        }
    }
    let mut all = vec![launch.clone()];
    // One less of each cuts off what was whole; large ones need all blocks and warps that may meet.
    for form in 0..6 {
        for (&size, &step) in sizes.iter().rev() {
            let whole = |size: i64| size / step * step;
            let new = match form {
                0 => size - step,
                1 => size + step,
                2 => whole(size * 5),
                3 => whole(size / 2),
                4 => whole(size * 17),
                _ => step,
            };
            if all.len() <= MORE
                && let Some(other) = with_size(kernel, launch, size, new).filter(|_| new > 0 && new != size)
                && other.blocks() * u64::from(other.threads()) <= MAX_THREADS
                && other.buffer_lens.values().sum::<u64>() <= MAX_ELEMENTS
                && !all.contains(&other)
            {
                all.push(other);
            }
        }
    }
    all
}

/// The launch with one size, wherever it is one, replaced.
fn with_size(kernel: &Kernel, launch: &BoundLaunch, old: i64, new: i64) -> Option<BoundLaunch> {
    let mut values: BTreeMap<ParamId, Value> = BTreeMap::new();
    let mut made = launch.clone();
    for ((id, param), bound) in kernel.params.iter().zip(&mut made.params) {
        let BoundParam::Scalar { value, .. } = bound else { continue };
        let of = |expr| eval_over(kernel, expr, &|id| Ok(values[&id])).ok();
        *value = match (param.kind, *value) {
            (ParamKind::Size { .. } | ParamKind::Stride { .. }, Value::Int(size)) if size == old => Value::Int(new),
            (ParamKind::Derived(expr), _) => of(expr)?,
            (ParamKind::Reciprocal(expr), _) => Value::Int(reciprocal(of(expr)?.as_i64())),
            (_, value) => value,
        };
        if matches!(*value, Value::Int(number) if number % param.multiple_of.max(1) != 0) {
            return None;
        }
        values.insert(id, *value);
    }
    let of =
        |expr| eval_over(kernel, expr, &|id| Ok(values[&id])).ok().and_then(|value| u32::try_from(value.as_i64()).ok());
    for i in 0..3 {
        made.grid[i] = of(kernel.launch.grid[i]).filter(|n| *n > 0)?;
        made.block[i] = of(kernel.launch.block[i]).filter(|n| *n > 0)?;
    }
    for ((_, buffer), len) in kernel.buffers.iter().zip(made.buffer_lens.values_mut()) {
        *len = u64::from(of(buffer.len)?);
    }
    Some(made)
}
