"""Random layouts: tensors of rank 0 to 5 with axes in any order, gaps, repeated
axes and axes of size 0 and 1, through operations whose results' strides depend
on their operands'. PyTorch works on the very tensors, so strides are its own.
"""

import random

import torch
import torch.nn.functional as F

from .data import Family, In
from .layouts import strided

CASES = 4000
# The operation that a draw is about, where it has another name.
ABOUT = {"sub_broadcast": "sub", "scalar": "mul", "max_keep": "max", "chain": "mul", "permuted": "permute"}
ABOUT["index_put"] = "index_put_accumulate"


def sizes_of(rng, rank):
    return [rng.choice([1, 1, 2, 2, 3, 3, 4, 0] if rng.random() < 0.15 else [1, 2, 2, 3, 3, 4]) for _ in range(rank)]


def layout_of(rng, sizes):
    """Strides of a random layout; often row-major, channels last, or all alike."""
    rank, kind = len(sizes), rng.random()
    if kind < 0.2:
        return strided(sizes, range(rank))
    if kind < 0.35 and rank >= 4:
        return strided(sizes, [0, *range(2, rank), 1])
    order = list(range(rank))
    rng.shuffle(order)
    pad = rng.choice([0, 0, 1])
    strides = strided(sizes, order, pad)
    for axis in range(rank):
        if sizes[axis] == 1 and rng.random() < 0.5:
            strides[axis] = rng.randrange(1, 30)
        elif rng.random() < 0.12:
            strides[axis] = 0
    return strides


def tensor(rng, sizes, dtype="f32", strides=None, decl=None, table="small"):
    return In(
        dtype,
        sizes,
        layout_of(rng, sizes) if strides is None else strides,
        rng.randrange(3),
        table,
        rng.randrange(1000),
        decl,
    )


def paired(rng, sizes):
    """A tensor that pairs with one of `sizes`: some axes declared of size 1."""
    thin = [rng.random() < 0.25 for _ in sizes]
    own = [1 if t else n for t, n in zip(thin, sizes)]
    return tensor(rng, own, decl=[1 if t else "?" for t in thin])


def draw(rng, family, i):
    sizes = sizes_of(rng, rng.choice([1, 2, 3, 3, 4, 4, 5]))
    rank, x = len(sizes), tensor(rng, sizes)
    same = tensor(rng, sizes, strides=x.strides if rng.random() < 0.3 else None)
    op = rng.choice(
        [
            "neg",
            "cast",
            "set",
            "add",
            "add",
            "sub_broadcast",
            "where",
            "scalar",
            "sum",
            "reshape",
            "flatten",
            "cat",
            "pad",
            "max_keep",
            "chain",
            "permuted",
            "triu",
            "argsort",
            "cumsum",
            "index_put",
        ]
    )
    ident = f"{ABOUT.get(op, op)}_drawn/{i}/" + "x".join(map(str, sizes))
    full = lambda: tensor(rng, sizes)
    match op:
        case "neg":
            family.case(ident, [x], "neg %a", torch.neg(x.t))
        case "cast":
            family.case(ident, [x], "cast %a f64", x.t.to(torch.float64))
        case "set":
            family.case(ident, [x], "set %a", x.t.clone())
        case "add":
            family.case(ident, [x, same], "add %a, %b", x.t + same.t)
        case "sub_broadcast":
            # Each axis is whole in one of the two.
            y = paired(rng, sizes)
            a, b = (x, y) if rng.random() < 0.5 else (y, x)
            family.case(ident, [a, b], "sub %a, %b", a.t - b.t)
        case "where":
            condition = tensor(rng, sizes, "bool")
            y = paired(rng, sizes)
            family.case(ident, [condition, x, y], "where %a, %b, %c", torch.where(condition.t, x.t, y.t))
        case "scalar":
            family.case(ident, [x], "mul %a, 2.0", x.t * 2.0)
        case "sum" | "max_keep":
            axes = sorted(rng.sample(range(rank), rng.randrange(1, rank + 1)))
            if any(sizes[axis] == 0 for axis in axes) or 0 in sizes:
                return
            text = f"axes({', '.join(map(str, axes))})"
            if op == "sum":
                family.case(ident, [x], f"sum %a {text}", torch.sum(x.t, axes))
            else:
                family.case(ident, [x], f"max %a {text} keepdim", torch.amax(x.t, axes, True))
        case "reshape":
            to, axis = list(sizes), rng.randrange(rank)
            if axis + 1 < rank and rng.random() < 0.7:
                to[axis : axis + 2] = [to[axis] * to[axis + 1]]
            elif to[axis] % 2 == 0:
                to[axis : axis + 1] = [2, to[axis] // 2]
            if rng.random() < 0.3:
                to.insert(rng.randrange(len(to) + 1), 1)
            family.case(ident, [x], f"reshape [{', '.join(map(str, to))}] %a", x.t.reshape(to))
        case "flatten":
            start = rng.randrange(rank)
            end = rng.randrange(start, rank)
            if start != end:
                family.case(ident, [x], f"flatten %a start({start}) end({end})", x.t.flatten(start, end))
        case "cat":
            dim, other = rng.randrange(rank), list(sizes)
            other[dim] = rng.choice([1, 2, 3])
            y = tensor(rng, other)
            family.case(ident, [x, y], f"cat %a, %b dim({dim})", torch.cat([x.t, y.t], dim))
        case "pad":
            widths = [rng.choice([0, 1, 2]) for _ in range(2 * rng.randrange(1, rank + 1))]
            family.case(ident, [x], f"pad %a widths({', '.join(map(str, widths))})", F.pad(x.t, widths))
        case "chain":
            y = full()
            z = full()
            lines = ["%u = mul %a, %b", "%v = add %u, %c", "%r = neg %v"]
            family.case(ident, [x, y, z], lines, -(x.t * y.t + z.t))
        case "permuted":
            dims = list(range(rank))
            rng.shuffle(dims)
            inverse = [dims.index(axis) for axis in range(rank)]
            lines = [
                f"%u = permute %a dims({', '.join(map(str, dims))})",
                "%v = neg %u",
                f"%r = permute %v dims({', '.join(map(str, inverse))})",
            ]
            family.case(ident, [x], lines, torch.neg(x.t.permute(dims)).permute(inverse))
        case "triu":
            if rank >= 2:
                family.case(ident, [x], "triu %a diagonal(0)", torch.triu(x.t))
        case "argsort":
            dim = rng.randrange(rank)
            family.case(ident, [x], f"argsort %a dim({dim}) stable", torch.argsort(x.t, dim=dim, stable=True))
        case "cumsum":
            dim = rng.randrange(rank)
            family.case(ident, [x], f"cumsum %a dim({dim})", torch.cumsum(x.t, dim))
        case "index_put":
            if 0 in sizes or 0 in x.strides:
                return
            count = rng.randrange(1, 4)
            index, value = In("i64", [count], table=f"below:{sizes[0]}", seed=i), tensor(rng, [count, *sizes[1:]])
            result = torch.index_put(x.t, (index.t,), value.t, accumulate=True)
            family.case(ident, [x, index, value], "index_put_accumulate %a, %b, %c", result)


def families():
    family, rng = Family("drawn"), random.Random(11)
    for i in range(CASES):
        draw(rng, family, i)
    return [family]
