"""Layouts of tensor arguments, and the strides that PyTorch gives to results.

Strides are asked of PyTorch on stand-ins: tensors of a type that every operator
takes, with the same sizes and strides. They do not depend on the data type.
"""

import torch

from .data import In, dense_strides


def strided(sizes, order, pad=0):
    """Strides with axes in memory in `order`, outermost first, each axis but the
    outermost with `pad` places more than it needs."""
    strides, step = [0] * len(sizes), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(sizes[axis], 1) + pad
    return strides


def layouts(sizes):
    """Named (sizes, strides, offset) of one tensor: every kind of layout."""
    rank = len(sizes)
    forward, backward = list(range(rank)), list(range(rank))[::-1]
    inner_gap = [2 * s + (1 if i == 0 else 0) for i, s in enumerate(strided(sizes, forward, 1))]
    yield "dense", sizes, None, 0
    yield "offset", sizes, dense_strides(sizes), 5
    yield "gaps", sizes, inner_gap, 3
    yield "sliced", sizes, strided(sizes, forward, 2), 7
    if rank > 1:
        yield "permuted", sizes, strided(sizes, backward), 0
        yield "permuted_gaps", sizes, strided(sizes, backward[1:] + backward[:1], 1), 1
        for axis in (0, rank - 1):
            rest = strided([1 if i == axis else n for i, n in enumerate(sizes)], forward)
            yield f"expanded{axis}", sizes, [0 if i == axis else s for i, s in enumerate(rest)], 2
        yield "all_expanded", sizes, [0] * rank, 1
        yield "empty", [0, *sizes[1:]], None, 0
        yield "empty_inner", [*sizes[:-1], 0], None, 3
    yield "one", [1] * rank, [7 * (i + 1) for i in range(rank)], 4
    thin = [1 if i == rank - 1 else n for i, n in enumerate(sizes)]
    yield "thin", thin, strided(thin, backward, 2), 0


def same_shape_pairs(sizes):
    """Layouts of two tensors of one shape."""
    rank = len(sizes)
    forward, backward = list(range(rank)), list(range(rank))[::-1]
    dense, back, gaps = dense_strides(sizes), strided(sizes, backward), strided(sizes, forward, 2)
    yield "dense", sizes, (dense, dense)
    yield "dense_permuted", sizes, (dense, back)
    yield "permuted_dense", sizes, (back, dense)
    yield "permuted", sizes, (back, back)
    yield "gaps_permuted", sizes, (gaps, strided(sizes, backward, 1))
    yield "expanded", sizes, ([0] + dense_strides(sizes[1:]), back)
    empty = [0, *sizes[1:]]
    yield "empty", empty, (dense_strides(empty), strided(empty, backward))
    one = [1] * rank
    yield "one", one, ([5] * rank, [3] * rank)


def stand_in(x, cast=False):
    """A tensor of the layout of an input; with `cast`, of its conversion."""
    like = torch.zeros(x.length).as_strided(x.sizes, x.strides, x.offset)
    return like.to(torch.float64) if cast else like


def tensors(dtype, sizes, table="special", seed=1):
    """One tensor in every layout."""
    for name, shape, strides, offset in layouts(sizes):
        yield name, In(dtype, shape, strides, offset, table, seed)
