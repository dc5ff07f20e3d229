//! Reductions in a fixed order.
//!
//! The elements that one result combines are taken in row-major order of the
//! reduced axes, in blocks of [`BLOCK`]. A block is combined left to right, the
//! blocks' partial results as a balanced binary tree. The order depends only on
//! the number of elements: not on threads, and not on which of the two loop
//! orders below is used for speed.

use crate::array::nest::Nest;
use crate::array::{Data, Element, Elements, View, parallel};
use crate::diag::{Diagnostic, Result};
use crate::num::{DType, ReduceOp, eval};

/// Elements combined left to right.
const BLOCK: usize = 1024;
/// Partial results of one parallel task.
const TILE: usize = 256;

/// `op` over `axes`, which are dropped.
pub(super) fn reduce(op: ReduceOp, axes: &[u32], x: &View) -> Result<View> {
    let picked = |reduced: bool, of: &[usize]| -> Vec<usize> {
        (0..of.len()).filter(|&i| axes.contains(&(i as u32)) == reduced).map(|i| of[i]).collect()
    };
    let sizes = picked(false, &x.sizes);
    let kept = Nest::new(&sizes, [&picked(false, &x.strides)]);
    let reduced = Nest::new(&picked(true, &x.sizes), [&picked(true, &x.strides)]);
    let plan = ReductionNests { kept, reduced };
    let data = match x.elements() {
        Elements::F32(a) => Data::F32(float(op, &plan, a, |v: f32| v.into(), |v| v as f32)?),
        Elements::F64(a) => Data::F64(float(op, &plan, a, |v: f64| v, |v| v)?),
        Elements::Int(a) => Data::Int(int(op, &plan, a, x.dtype)?),
        Elements::Complex(a) => {
            let round = |v| eval::round_complex(x.dtype, v);
            let f = eval::combine_complex(op);
            Data::Complex(plan.run(a, eval::reduce_identity(op, x.dtype).as_complex(), |v| v, f, round))
        }
        Elements::Bool(a) => match op {
            ReduceOp::Max => Data::Bool(plan.run(a, false, |v| v, |a, b| a | b, |v| v)),
            ReduceOp::Min => Data::Bool(plan.run(a, true, |v| v, |a, b| a & b, |v| v)),
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::MaxSumExp => return Err(undefined(op, x.dtype)),
        },
    };
    Ok(View::dense(x.dtype, sizes, data))
}

fn float<T: Element>(
    op: ReduceOp,
    plan: &ReductionNests,
    a: &[T],
    lift: impl Fn(T) -> f64 + Sync + Copy,
    round: impl Fn(f64) -> T + Sync + Copy,
) -> Result<Vec<T>> {
    Ok(match op {
        ReduceOp::Sum => plan.run(a, 0.0, lift, |a, b| a + b, round),
        ReduceOp::Prod => plan.run(a, 1.0, lift, |a, b| a * b, round),
        ReduceOp::Max => plan.run(a, f64::NEG_INFINITY, lift, eval::maximum, round),
        ReduceOp::Min => plan.run(a, f64::INFINITY, lift, eval::minimum, round),
        ReduceOp::MaxSumExp => return Err(undefined(op, DType::F64)),
    })
}

fn int(op: ReduceOp, plan: &ReductionNests, a: &[i64], dtype: DType) -> Result<Vec<i64>> {
    let identity = eval::reduce_identity(op, dtype).as_i64();
    let wrap = |v| eval::wrap(dtype, v);
    Ok(match op {
        ReduceOp::Sum => plan.run(a, identity, |v| v, i64::wrapping_add, wrap),
        ReduceOp::Prod => plan.run(a, identity, |v| v, i64::wrapping_mul, wrap),
        ReduceOp::Max if dtype == DType::U64 => {
            plan.run(a, identity, |v| v, |a, b| a.cast_unsigned().max(b.cast_unsigned()).cast_signed(), wrap)
        }
        ReduceOp::Min if dtype == DType::U64 => {
            plan.run(a, identity, |v| v, |a, b| a.cast_unsigned().min(b.cast_unsigned()).cast_signed(), wrap)
        }
        ReduceOp::Max => plan.run(a, identity, |v| v, i64::max, wrap),
        ReduceOp::Min => plan.run(a, identity, |v| v, i64::min, wrap),
        ReduceOp::MaxSumExp => return Err(undefined(op, dtype)),
    })
}

/// Types that an operation does not have are refused before anything is evaluated.
fn undefined(op: ReduceOp, dtype: DType) -> Box<Diagnostic> {
    Diagnostic::bug(format!("{op} of {dtype} after binding"))
}

/// Where the elements of a reduction are: element `r` of result `k` is at
/// `kept(k) + reduced(r)`.
struct ReductionNests {
    kept: Nest<1>,
    reduced: Nest<1>,
}

impl ReductionNests {
    fn run<T: Element, A: Copy + Default + Send + Sync>(
        &self,
        elements: &[T],
        identity: A,
        lift: impl Fn(T) -> A + Sync,
        combine: impl Fn(A, A) -> A + Sync,
        round: impl Fn(A) -> T + Sync,
    ) -> Vec<T> {
        let results = self.kept.len();
        let blocks = self.reduced.len().div_ceil(BLOCK);
        if results == 0 || blocks == 0 {
            return vec![round(identity); results];
        }
        // partials[block * results + k]
        let mut partials = vec![identity; results * blocks];
        parallel::chunks(&mut partials, TILE, &|chunk, out| {
            let mut done = 0;
            while done < out.len() {
                let (block, k) = ((chunk * TILE + done) / results, (chunk * TILE + done) % results);
                let count = (results - k).min(out.len() - done);
                self.block(elements, block, k, &mut out[done..done + count], &lift, &combine);
                done += count;
            }
        });
        let mut output = vec![T::default(); results];
        parallel::chunks(&mut output, TILE, &|chunk, out| {
            for (i, result) in out.iter_mut().enumerate() {
                *result = round(tree(&partials[chunk * TILE + i..], results, blocks, &combine));
            }
        });
        output
    }

    /// Combines one block of results `k ..` into `out`, which holds identities.
    fn block<T: Element, A: Copy>(
        &self,
        elements: &[T],
        block: usize,
        k: usize,
        out: &mut [A],
        lift: impl Fn(T) -> A,
        combine: impl Fn(A, A) -> A,
    ) {
        let start = block * BLOCK;
        let len = BLOCK.min(self.reduced.len() - start);
        let [step] = self.reduced.inner_strides();
        let [kept_step] = self.kept.inner_strides();
        for (position, count, [base]) in self.kept.rows(k, out.len()) {
            let out = &mut out[position..position + count];
            for (_, run, [offset]) in self.reduced.rows(start, len) {
                if kept_step == 1 && step != 1 {
                    // Neighbouring results are neighbours in memory: row by row.
                    for r in 0..run {
                        let from = base + offset + r * step;
                        let row = &elements[from..from + count];
                        out.iter_mut().zip(row).for_each(|(acc, &v)| *acc = combine(*acc, lift(v)));
                    }
                    continue;
                }
                for (i, acc) in out.iter_mut().enumerate() {
                    let from = base + offset + i * kept_step;
                    *acc = if step == 1 {
                        elements[from..from + run].iter().fold(*acc, |acc, &v| combine(acc, lift(v)))
                    } else {
                        (0..run).fold(*acc, |acc, r| combine(acc, lift(elements[from + r * step])))
                    };
                }
            }
        }
    }
}

/// Combines `partials[0], partials[stride], ...` as a balanced tree.
fn tree<A: Copy>(partials: &[A], stride: usize, count: usize, combine: &impl Fn(A, A) -> A) -> A {
    if count == 1 {
        return partials[0];
    }
    let half = count.div_ceil(2);
    combine(tree(partials, stride, half, combine), tree(&partials[half * stride..], stride, count - half, combine))
}
