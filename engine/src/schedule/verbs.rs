//! The verbs of schedules as they are written: one table, of which the parser takes its words
//! and the documentation its list.

/// A verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verb {
    /// The first word of its lines.
    pub name: &'static str,
    /// How it is written; what may be left out stands in brackets.
    pub form: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

const fn verb(name: &'static str, form: &'static str, meaning: &'static str) -> Verb {
    Verb { name, form, meaning }
}

/// All verbs, in the order in which schedules mostly use them.
pub const VERBS: &[Verb] = &[
    verb("cache_after", "cache_after %t", "All who read `%t` read a copy in registers instead: `%t_r`."),
    verb("cache_before", "cache_before %t", "`%t` is computed in registers first, as `%t_r`, and copied."),
    verb(
        "cache_fork",
        "cache_fork %t for %u, ...",
        "Those named read a computation of `%t` of their own: `%t_fN`, N the number of tensors before.",
    ),
    verb(
        "phase_after",
        "phase_after %t",
        "Ends a phase: `%t` is written to `%t_w` in memory of the device, and who reads it does so when all blocks have come so far.",
    ),
    verb(
        "split",
        "split A by N [count N] [exact]",
        "`A = A.o * N + A.i`. The parts are as many as cover `A`, or so many; `exact`: no index is outside.",
    ),
    verb(
        "split",
        "split A into N [per B] [exact]",
        "As many equal parts as N places hold, for each index of `B` if given: decided at the launch.",
    ),
    verb(
        "split",
        "split A in turns of N [per B]",
        "The same parts take one index each in turn: `A.o` counts the turns, `A.i` the parts.",
    ),
    verb(
        "at_least",
        "at_least A N",
        "The schedule is for all sizes of `A` from N on, whatever divides them. Of parts of a constant size those are not tested that are full then.",
    ),
    verb("merge", "merge A, B", "`A*B`, the second one fastest."),
    verb(
        "align",
        "align A to N of %t [by B]",
        "`A.a`: rows of `%t` along `A` are moved on to multiples of N elements; `B` counts the rows of a dense tensor.",
    ),
    verb(
        "window",
        "window A at B by N width M [left L] [align V of %t]",
        "`A.w`: of each index of `B`, M indices of `A` from `B * N - L` on, in rows that are moved on as by `align`.",
    ),
    verb(
        "window",
        "window A at B by N per C",
        "`A.w`: side by side, of each index of `B` as many indices of `A` as N times `C` has.",
    ),
    verb("parallelize", "parallelize A PLACE", "What runs over `A` where `propagate` puts it among loops."),
    verb(
        "rfactor",
        "rfactor %t over A, ...",
        "Two steps of a reduction: `%t_pN` reduces over these, N from 1 on, and `%t` over the rest.",
    ),
    verb(
        "rfactor_max",
        "rfactor_max %t over A, ...",
        "The same of a reduction by `max_sum_exp`: the maximum over these first, then the sum below it. For elements that are held.",
    ),
    verb(
        "propagate",
        "propagate [A, ...]",
        "Loops of every tensor, outer to inner: of these the axes that it has, and all that run over threads or blocks.",
    ),
    verb(
        "loops",
        "loops %t [A [-> PLACE], ...]",
        "Loops of one tensor, outer to inner; serial ones where nothing is said.",
    ),
    verb(
        "reorder",
        "reorder [%t] A, ...",
        "Puts these loops of a tensor, or of every one, in this order, in the places that they take among its loops.",
    ),
    verb(
        "recompute_in",
        "recompute_in %t A",
        "`%t` is computed anew in each iteration over `A`, which it does not depend on, where its users have that loop.",
    ),
    verb("set_memory", "set_memory %t MEMORY", "Holds the value in `local` or `shared` memory."),
    verb(
        "alloc",
        "alloc %t A, ... [rotate N every N]",
        "Elements in shared memory that all threads of a block reach, by these axes; the innermost rotated by N every N rows.",
    ),
    verb(
        "alloc",
        "alloc %t A, ... skew N every N",
        "The same; every N rows the innermost, and all rows behind, are moved on by N.",
    ),
    verb(
        "alloc",
        "alloc %t A, ... swizzle N every N",
        "The same; groups of 16 bytes change places: group G of a row with G xor (row / every mod N), N a power of two.",
    ),
    verb("inline_at", "inline_at %t N", "Computes `%t` inside of the first N loops of those who read it."),
    verb(
        "inline_most",
        "inline_most [keep %t N, ...]",
        "Inlines every value as deeply as can be, these to N loops at most; recorded as an `inline_at` of each.",
    ),
    verb(
        "compute_with",
        "compute_with %t N",
        "Computes `%t` inside of the first N loops of the first that reads it, more than `inline_at` says, and holds it for the others.",
    ),
    verb(
        "circular_buffer",
        "circular_buffer %t N",
        "Loads `%t` N - 1 iterations ahead of its use: in shared memory N is 2 to 8, in registers 2. In shared memory N may be 1: each element of the next iteration is loaded as soon as the one in its place was read for the last time.",
    ),
    verb(
        "set_cache_hint",
        "set_cache_hint %t HINT",
        "How accesses to global memory use caches: `default`, `streaming`, `global`, `again`.",
    ),
    verb("min_blocks", "min_blocks N", "Blocks that should fit a multiprocessor at once, which bounds registers."),
];

/// Verbs that are not there yet, and what each needs.
pub(super) const MISSING: &[(&str, &str)] = &[
    ("unswitch", "a branch around a loop for all indices that are inside"),
    ("resize", "loops over a part of an axis"),
    (
        "swizzle",
        "a transform that mixes the indices of two axes; `alloc` rotates, skews and swizzles the columns of a tile",
    ),
];
