//! What kernels assume of parameters although no proof needs it.
//!
//! Lowering states what the class of the arguments says of every size and stride: a
//! power of two that divides it. In: a kernel that verifies. Out: the same with the
//! weakest assumptions with which it still does. So kernels that differ in what is true of
//! their arguments, but not in what they do, are one text.
//!
//! What a kernel's values rest on is not for `verify` to see: that a split is exact is a
//! part of the choice that led to the kernel, and never was an assumption about a parameter.
//! Random numbers are drawn as assumptions allow (a vector whose numbers start a block needs
//! no shift), so kernels that draw keep theirs.

use super::verify::verifies;
use super::visit::for_each_stmt;
use super::{Kernel, ParamId, StmtKind};

/// Assumptions that are weakened one by one; beyond, a kernel is verified too often.
const MOST_TRIED: usize = 32;

/// Weakens assumptions as far as the kernel still verifies. One that does not verify as it is
/// stays as it is.
pub fn weaken_assumptions(kernel: &mut Kernel) {
    let assumed: Vec<(ParamId, i64)> =
        kernel.params.iter().map(|(id, param)| (id, param.multiple_of)).filter(|(_, factor)| *factor > 1).collect();
    let assume = |kernel: &mut Kernel, assumed: &[(ParamId, i64)]| {
        assumed.iter().for_each(|&(id, factor)| kernel.params[id].multiple_of = factor);
    };
    if assumed.is_empty() || draws_random_numbers(kernel) || !verifies(kernel) {
        return;
    }
    // Most kernels need none.
    assume(kernel, &assumed.iter().map(|(id, _)| (*id, 1)).collect::<Vec<_>>());
    if verifies(kernel) {
        return;
    }
    assume(kernel, &assumed);
    for (id, factor) in assumed.into_iter().take(MOST_TRIED) {
        let weaker = (0..factor.trailing_zeros()).map(|power| 1 << power);
        for factor in weaker.chain([factor]) {
            kernel.params[id].multiple_of = factor;
            if verifies(kernel) {
                break;
            }
        }
    }
}

/// Whether a kernel draws random numbers.
fn draws_random_numbers(kernel: &Kernel) -> bool {
    let mut found = false;
    for_each_stmt(&kernel.body, &mut |stmt| found |= matches!(stmt.kind, StmtKind::Random { .. }));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{parse, print};

    /// Copies rows of four elements, `s` apart.
    const ROWS: &str = "\
kernel rows index i64 {
  param n: i64 = size(0, 0) multiple of 8
  param s: i64 = stride(0, 0) multiple of 16
  param *x = input(0)
  param *y = output(0)
  global x: f32[n * s] align 16
  global y: f32[n * s] align 16
  local lanes: f32[4] align 16
  launch grid (n, 1, 1) block (1, 1, 1) max_threads 1 min_blocks 1
  move f32x4 lanes[0] = x[i64(blockIdx.x) * s]
  move f32x4 y[i64(blockIdx.x) * s] = lanes[0]
}
";

    #[test]
    fn assumptions_are_as_weak_as_proofs_allow() {
        let mut kernel = parse(ROWS).unwrap();
        assert_eq!(print(&kernel), ROWS);
        weaken_assumptions(&mut kernel);
        let weak = ROWS.replace("size(0, 0) multiple of 8", "size(0, 0)").replace("multiple of 16", "multiple of 4");
        assert_eq!(print(&kernel), weak);
    }
}
