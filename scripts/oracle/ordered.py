"""Scans, sorts and sequences."""

import numpy as np
import torch

from .data import COMPLEX, F4_VALUES, FLOATS, INTS, NATIVE, SMALL, TYPES, Family, In, Num, Out, narrowed
from .elementwise import by_numpy, compute, torch_type, wide
from .layouts import stand_in, tensors

SCANS = {
    "cumsum": (torch.cumsum, np.cumsum),
    "cumprod": (torch.cumprod, np.cumprod),
    "cummin": (lambda t, dim: torch.cummin(t, dim).values, np.minimum.accumulate),
    "cummax": (lambda t, dim: torch.cummax(t, dim).values, np.maximum.accumulate),
}


def stepwise(op, t, dtype, dim):
    """Scans of small floats round at every step, as PyTorch's loops on a GPU
    do; those on a CPU round once."""
    pair = {"cumsum": torch.add, "cumprod": torch.mul, "cummin": torch.minimum, "cummax": torch.maximum}[op]
    slices = list(t.double().unbind(dim))
    for i in range(1, len(slices)):
        values = narrowed(pair(slices[i - 1], slices[i]), dtype).values
        slices[i] = F4_VALUES[values.long()] if dtype == "f4e2m1fn" else values.double()
    if not slices:
        return narrowed(t.double(), dtype).values
    return narrowed(torch.stack(slices, dim), dtype).values


def scanned(op, t, dtype, dim):
    fn, np_fn = SCANS[op]
    if dtype == "bool":
        whole = fn(t.to(torch.int64), dim)
        return whole.to(torch.bool)
    if dtype in SMALL + ["f16", "bf16"]:
        return stepwise(op, t, dtype, dim)
    if dtype not in NATIVE:
        extra = {"dtype": t.numpy().dtype} if op in ("cumsum", "cumprod") else {}
        return by_numpy(lambda v: np_fn(v, axis=dim, **extra), t)
    if dtype in INTS and op in ("cumsum", "cumprod"):
        return fn(t, dim, dtype=t.dtype)
    return fn(wide(t), dim).to(t.dtype)


def scan_cases(family):
    for op in SCANS:
        types = FLOATS + INTS + SMALL + ["bool"] + (COMPLEX if op in ("cumsum", "cumprod") else [])
        for dtype in types:
            table = "special" if op in ("cummin", "cummax") or dtype in INTS else "small"
            for layout, x in tensors(dtype, [2, 3, 4], table, 7):
                for dim in (0, 1, -1) if dtype in ("f32", "i32") else (1,):
                    strides = SCANS[op][0](stand_in(x), dim).stride()
                    result = scanned(op, x.t, dtype, dim)
                    family.case(f"{op}/{dtype}/{layout}{dim}", [x], f"{op} %a dim({dim})", Out(result, strides, dtype))
    for op in SCANS:
        x = In("f32", [40], table="wide", seed=3)
        family.case(f"{op}/f32/long", [x], f"{op} %a dim(0)", scanned(op, x.t, "f32", 0))
        x = In("f32", [6], table="list:1.0,nan,2.0,inf,-inf,0.5")
        family.case(f"{op}/f32/special", [x], f"{op} %a dim(0)", scanned(op, x.t, "f32", 0))


def sort_cases(family):
    for dtype in FLOATS + INTS + SMALL + ["bool"]:
        for layout, x in tensors(dtype, [2, 3, 8], "special", 7):
            for dim in (0, -1) if dtype in ("f32", "i64") else (-1,):
                for descending in (False, True):
                    order = {"dim": dim, "stable": True, "descending": descending}
                    strides = torch.argsort(stand_in(x), **order).stride()
                    if dtype in NATIVE or dtype in SMALL:
                        result = torch.argsort(x.t if dtype in NATIVE else x.t.float(), **order)
                    else:
                        result = torch.argsort(
                            x.t.to(torch.int64) if dtype != "u64" else x.t.view(torch.int64) ^ (-(2**63)), **order
                        )
                    text = f"argsort %a dim({dim}){' descending' if descending else ''} stable"
                    family.case(
                        f"argsort/{dtype}/{layout}{dim}{'down' if descending else 'up'}",
                        [x],
                        text,
                        Out(result, strides),
                    )
        # Without ties the order is the only one.
        if dtype == "bool" or dtype in SMALL:
            continue
        for layout, x in tensors(dtype, [2, 3, 8], "walk:distinct", 7):
            if layout in ("expanded0", "expanded2", "all_expanded", "one", "thin", "empty_inner"):
                continue
            for dim in (1, -1) if dtype in ("f32", "i64") else (-1,):
                for largest in (True, False):
                    k = 3 if dim == -1 else 2
                    own = x.t if dtype in NATIVE else x.t.to(torch.int64)
                    values, places = torch.topk(own, k, dim, largest, True)
                    places_strides = torch.topk(stand_in(x), k, dim, largest, True).indices.stride()
                    text = f"%v, %i = topk %a, {k} dim({dim}) largest({str(largest).lower()}) sorted"
                    outs = [Out(values.to(torch_type(dtype)), places_strides), Out(places, places_strides)]
                    family.case(
                        f"topk/{dtype}/{layout}{dim}{'most' if largest else 'least'}", [x], [text], outs, "%v, %i"
                    )


def sequence_cases(family):
    for dtype in ["i64", "i32", "f32", "f64"]:
        for length, start, step in [(5, 0, 1), (4, 3, 2), (6, 10, -3), (0, 1, 1), (1, 7, 5)]:
            if dtype[0] == "f":
                start, step = start + 0.5, step * 0.25
            values = torch.arange(length, dtype=torch.float64) * step + start
            body = f"iota {length}, {start}, {step} dtype({dtype})"
            family.case(f"iota/{dtype}/{length}-{start}-{step}", [], body, values.to(torch_type(dtype)))
    family.case("iota/i64/plain", [], "iota 5", torch.arange(5))
    family.case("iota/i64/argument", [Num("i64", 6)], "iota %a, 2", torch.arange(2, 8))
    for name, numbers in [
        ("up", (2, 9, 3)),
        ("down", (5, -4, -2)),
        ("none", (3, 3, 1)),
        ("part", (0, 1, 0.3)),
        ("end", (1.0, 2.0, 0.25)),
    ]:
        for dtype in ["i64", "f32", "f64", "i32"] if name in ("up", "down", "none") else ["f32", "f64"]:
            result = torch.arange(*numbers, dtype=torch.float64).to(torch_type(dtype))
            family.case(f"arange/{dtype}/{name}", [], f"arange {', '.join(map(str, numbers))} dtype({dtype})", result)
    family.case("arange/i64/plain", [], "arange 1, 6", torch.arange(1, 6))
    for dtype in TYPES:
        if dtype == "f4e2m1fn" or dtype == "f8e8m0fnu":
            continue
        to = torch_type(dtype)
        family.case(f"eye/{dtype}/square", [], f"eye 3 {dtype}", torch.eye(3).to(to))
        family.case(f"eye/{dtype}/wide", [], f"eye 2, 4 {dtype}", torch.eye(2, 4).to(to))
        family.case(f"eye/{dtype}/empty", [], f"eye 0, 2 {dtype}", torch.eye(0, 2).to(to))
        x = In(dtype, [2, 3])
        for op, fn in {"zeros": torch.zeros, "ones": torch.ones}.items():
            family.case(f"{op}/{dtype}/dense", [], f"{op} [2, 3] {dtype}", fn(2, 3).to(to))
            family.case(f"{op}_like/{dtype}/dense", [x], f"{op}_like %a", fn(2, 3).to(to))
        value = 1 if dtype == "bool" else 3
        family.case(
            f"full_like/{dtype}/own",
            [x],
            f"full_like %a, {'true' if dtype == 'bool' else value}",
            torch.full([2, 3], value).to(to),
        )
        family.case(
            f"full_like/{dtype}/other", [x], "full_like %a, 3 dtype(f64)", torch.full([2, 3], 3, dtype=torch.float64)
        )
    for dtype in FLOATS + SMALL + INTS + COMPLEX:
        x, y = In(dtype, [3, 4], [1, 3], 0, "small", 1), In(dtype, [3, 4], None, 0, "small", 2)
        to = torch_type(compute(dtype))
        strides = torch.add(stand_in(x, compute(dtype) != dtype), stand_in(y, compute(dtype) != dtype)).stride()
        for op, sign in [("add_alpha", 1), ("sub_alpha", -1)]:
            if dtype in INTS and dtype not in NATIVE:
                result = by_numpy(
                    lambda a, b, s=sign: a + b * a.dtype.type(3) if s == 1 else a - b * a.dtype.type(3), x.t, y.t
                )
            else:
                result = torch.add(wide(x.t.to(to)), wide(y.t.to(to)), alpha=3 * sign).to(to)
            family.case(f"{op}/{dtype}/mixed", [x, y], f"{op} %a, %b, 3", Out(result, strides))


def families():
    made = []
    for name, cases in [("scans", scan_cases), ("sorts", sort_cases), ("sequences", sequence_cases)]:
        made.append(Family(name))
        cases(made[-1])
    return made
