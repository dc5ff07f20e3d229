"""Reductions, statistics, normalisations and activations.

Expected values are PyTorch's functions in f64, gradients its automatic ones.
The engine's results of small floats are f32.
"""

import math

import torch
import torch.nn.functional as F

from .data import COMPLEX, FLOATS, INTS, NATIVE, REPORT, SMALL, Family, In, Out, dense_strides, kind
from .elementwise import by_numpy, compute, torch_type, wide
from .layouts import stand_in, tensors

SUBSETS = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
DOUBLE, SINGLE = "f64", ["f32", "f16", "bf16"]


# ---- reductions ----


def reduce(op, t, axes, keepdim):
    """In the widest type; without elements, the neutral one."""
    if op in ("max", "min"):
        if t.numel() == 0 and any(t.shape[axis] == 0 for axis in axes):
            shape = list(torch.sum(t.to(torch.float64), axes, keepdim).shape)
            info = None if t.is_floating_point() or t.dtype == torch.bool else torch.iinfo(t.dtype)
            least = -math.inf if t.is_floating_point() else False if t.dtype == torch.bool else info.min
            most = math.inf if t.is_floating_point() else True if t.dtype == torch.bool else info.max
            return torch.full(shape, least if op == "max" else most, dtype=t.dtype)
        return (torch.amax if op == "max" else torch.amin)(t, axes, keepdim)
    if op == "sum":
        return torch.sum(t, axes, keepdim)
    for axis in sorted(axes, reverse=True):
        t = torch.prod(t, axis, keepdim)
    return t


def unsigned_reduce(op, t, axes, keepdim):
    """Of types that PyTorch does not reduce."""
    import numpy as np

    fn = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}[op]
    to = {"sum": np.uint64, "prod": np.uint64}.get(op)
    if to is not None and t.dtype != torch.uint64:
        to = np.int64
    start = {"initial": np.iinfo(t.numpy().dtype).max if op == "min" else 0} if op in ("max", "min") else {"dtype": to}
    return by_numpy(lambda v: np.asarray(fn(v, axis=tuple(axes), keepdims=keepdim, **start)), t)


def reduction_cases(family):
    for op in ("sum", "prod", "max", "min"):
        types = FLOATS + SMALL + INTS + (COMPLEX if op in ("sum", "prod") else [])
        for dtype in types + ["bool"]:
            table = "special" if op in ("max", "min") or kind(dtype) == "int" else "small" if dtype in SMALL else "wide"
            table = "small" if kind(dtype) == "complex" else table

            def expected(t, axes, keepdim, op=op, dtype=dtype):
                if kind(dtype) == "int" and dtype not in NATIVE:
                    return unsigned_reduce(op, t, axes, keepdim)
                if kind(dtype) in ("int", "bool") and op in ("sum", "prod"):
                    return reduce(op, t.to(torch.int64), axes, keepdim)
                result = reduce(op, wide(t), axes, keepdim)
                return result.to(torch_type(compute(dtype))) if kind(dtype) in ("float", "complex") else result

            for layout, x in tensors(dtype, [2, 3, 4], table, 6):
                for axes in SUBSETS if dtype in ("f32", "i32") or layout == "permuted_gaps" else SUBSETS[1:6:2]:
                    keepdim = len(axes) == 2
                    text = f"{op} %a axes({', '.join(map(str, axes))}){' keepdim' if keepdim else ''}"
                    strides = torch.sum(stand_in(x, compute(dtype) != dtype), axes, keepdim).stride()
                    name = f"{op}/{dtype}/{layout}-{''.join(map(str, axes))}"
                    family.case(name, [x], text, Out(expected(x.t, axes, keepdim), strides))
            x = In(dtype, [3, 5], table=table, seed=8)
            family.case(f"{op}/{dtype}/all", [x], f"{op} %a", Out(expected(x.t, (0, 1), False), []))
            x = In(dtype, [257], table=f"walk:{table}", seed=8)
            family.case(f"{op}/{dtype}/long", [x], f"{op} %a axes(-1)", Out(expected(x.t, (0,), False), []))
    for dtype in FLOATS:
        for name, numbers in [
            ("infinite", "1.0,inf,2.0,-3.0"),
            ("both", "inf,-inf,1.0"),
            ("nan", "1.0,nan,inf"),
            ("zeros", "-0.0,-0.0"),
        ]:
            count = len(numbers.split(","))
            x = In(dtype, [count], table=f"list:{numbers}")
            for op in ("sum", "prod", "max", "min"):
                result = reduce(op, x.t.double(), (0,), False).to(torch_type(compute(dtype)))
                family.case(f"{op}/{dtype}/{name}", [x], f"{op} %a", Out(result, []))
    for dtype, to in [
        ("f32", "f64"),
        ("f16", "f16"),
        ("bf16", "bf16"),
        ("i32", "i32"),
        ("i8", "f32"),
        ("bool", "i32"),
        ("f32", "i64"),
    ]:
        x = In(dtype, [3, 20], [1, 3], table="small", seed=3)
        for op in ("sum", "prod"):
            working = torch_type(to) if to not in ("f16", "bf16") else torch.float32
            cast = x.t.to(working)
            result = reduce(op, wide(cast), (1,), False).to(working).to(torch_type(to))
            family.case(f"{op}/{dtype}/as-{to}", [x], f"{op} %a axes(1) dtype({to})", result)
    for dtype in FLOATS + SMALL + INTS + COMPLEX + ["bool"]:
        for name, to in [
            ("rows", [3, 1]),
            ("matrix", [3, 4]),
            ("column", [1, 4]),
            ("all", [1, 1]),
            ("same", [2, 3, 4]),
            ("middle", [2, 1, 4]),
        ]:
            x = In(dtype, [2, 3, 4], [12, 1, 3], 0, "small", 2)
            if kind(dtype) in ("int", "bool"):
                # Sums of integers are i64, or u64.
                whole = by_numpy(lambda v: v.astype("uint64" if dtype == "u64" else "int64").view("int64"), x.t)
                result = whole.sum_to_size(to).view(torch.uint64 if dtype == "u64" else torch.int64)
            else:
                result = wide(x.t).sum_to_size(to)
            if name == "same":
                result = x.t.clone() if dtype in NATIVE else None
            elif kind(dtype) in ("float", "complex"):
                result = result.to(torch_type(compute(dtype)))
            if result is None:
                continue
            text = f"sum_to [{', '.join(map(str, to))}] %a"
            family.case(f"sum_to/{dtype}/{name}", [x], text, Out(result, None if name == "same" else dense_strides(to)))


# ---- statistics ----


def statistic_cases(family):
    for dtype in FLOATS + SMALL + INTS + ["bool"]:
        to = torch_type("f64" if dtype == "f64" else "f32")
        for layout, x in tensors(dtype, [2, 3, 4], "wide" if kind(dtype) == "float" else "small", 5):
            if layout == "one" or (dtype not in FLOATS and layout not in ("dense", "permuted_gaps")):
                continue
            for axes in [(1,), (0, 2), (0, 1, 2)]:
                if 0 in [x.sizes[axis] for axis in axes]:
                    continue
                count = math.prod(x.sizes[axis] for axis in axes)
                named = f"axes({', '.join(map(str, axes))})"
                t, tail = x.t.double(), f"{dtype}/{layout}-{''.join(map(str, axes))}"
                dense = lambda v: Out(v.to(to).clone(memory_format=torch.contiguous_format))
                family.case(f"mean/{tail}", [x], f"mean %a {named}", dense(t.mean(axes)))
                family.case(f"mean/{tail}-keep", [x], f"mean %a {named} keepdim", dense(t.mean(axes, True)))
                for correction in (0, 1) if count > 1 else (0,):
                    text = f"%a {named} correction({correction})"
                    var, mean = torch.var_mean(t, axes, correction=correction)
                    for op in ("var", "variance"):
                        family.case(f"{op}/{tail}-{correction}", [x], f"{op} {text}", dense(var))
                    for op in ("std", "standard_deviation"):
                        family.case(f"{op}/{tail}-{correction}", [x], f"{op} {text}", dense(var.sqrt()))
                    for op in ("var_mean", "variance_mean"):
                        lines = [f"%v, %m = {op} {text}"]
                        family.case(f"{op}/{tail}-{correction}", [x], lines, [dense(var), dense(mean)], "%v, %m")
                if kind(dtype) != "float":
                    continue
                var, mean = torch.var_mean(t, axes, correction=0)
                outs = [dense(mean), dense(var * count), Out(torch.tensor(count), [], "index")]
                outs[2] = Out(torch.full(mean.shape, count), dense_strides(mean.shape), "index")
                family.case(f"welford/{tail}", [x], [f"%m, %v, %n = welford %a {named}"], outs, "%m, %v, %n")
    for dtype in COMPLEX:
        to, real = torch_type(dtype), torch_type("f64" if dtype == "c128" else "f32")
        for layout, x in tensors(dtype, [2, 3, 4], "small", 5):
            if layout not in ("dense", "permuted_gaps"):
                continue
            t = x.t.to(torch.complex128)
            dense = lambda v: Out(v.to(to if v.is_complex() else real), dense_strides(v.shape))
            family.case(f"mean/{dtype}/{layout}", [x], "mean %a axes(1)", dense(t.mean(1)))
            var, mean = torch.var(t, 1, correction=1), t.mean(1)
            for op in ("var", "variance"):
                family.case(f"{op}/{dtype}/{layout}", [x], f"{op} %a axes(1)", dense(var))
            for op in ("std", "standard_deviation"):
                family.case(f"{op}/{dtype}/{layout}", [x], f"{op} %a axes(1)", dense(var.sqrt()))
            for op in ("var_mean", "variance_mean"):
                family.case(
                    f"{op}/{dtype}/{layout}", [x], [f"%v, %m = {op} %a axes(1)"], [dense(var), dense(mean)], "%v, %m"
                )
    x = In("f32", [3, 1], table="wide")
    family.case("var/f32/one_element", [x], "var %a axes(1)", torch.full([3], math.nan))
    x = In("f32", [3, 0])
    family.case("mean/f32/no_element", [x], "mean %a axes(1)", torch.full([3], math.nan))


# ---- softmax and normalisations ----

PLAIN = {"dense", "permuted", "gaps", "permuted_gaps", "empty", "offset"}


def float_layouts(sizes, seed=5):
    """Tensors in the layouts that formulas are tried in; those that f32 stands
    for in one of them."""
    for dtype in FLOATS + SMALL + INTS + ["bool"]:
        for layout, x in tensors(dtype, sizes, "wide", seed):
            if layout in PLAIN and (dtype in FLOATS or layout == "permuted"):
                yield dtype, layout, x


def like(x, values, dtype=None):
    """A result laid out as an elementwise operation on x places it."""
    to = dtype or ("f64" if x.dtype == "f64" else "f32")
    return Out(values.detach().to(torch_type(to)), torch.neg(stand_in(x, x.dtype != to)).stride())


def scaled(x, values, k):
    """A result laid out as a product whose first operand has the statistics of
    rows of k axes."""
    to = "f64" if x.dtype == "f64" else "f32"
    statistics = torch.zeros(x.sizes[:-k] + [1] * k)
    return Out(values.detach().to(torch_type(to)), torch.mul(statistics, stand_in(x, x.dtype != to)).stride())


def plain(x, values):
    """A row-major result."""
    to = torch.float64 if x.dtype == "f64" else torch.float32
    return Out(values.detach().to(to), dense_strides(values.shape))


def leaf(x):
    return x.t.double().clone().requires_grad_()


def gradients(result, dy, leaves):
    return torch.autograd.grad(result, leaves, dy.t.double())


def softmax_cases(family):
    for dtype, layout, x in float_layouts([2, 3, 4]):
        for axis in (0, 1, -1):
            if x.sizes[axis] == 0:
                continue
            tail = f"{dtype}/{layout}{axis}"
            dy = In(x.dtype, x.sizes, x.strides, x.offset, "wide", 9)
            for op, fn in {"softmax": torch.softmax, "log_softmax": torch.log_softmax}.items():
                family.case(
                    f"{op}/{tail}", [x], f"{op} %a axis({axis})", like(x, REPORT.share(op, lambda t: fn(t, axis), x.t))
                )
                # The gradient is said in terms of the result, which is an argument, so of any numbers.
                rounded = In(x.dtype, x.sizes, x.strides, x.offset, "unit", 4)
                g, v = dy.t.double(), rounded.t.double()
                result = v * (g - (g * v).sum(axis, True)) if op == "softmax" else g - v.exp() * g.sum(axis, True)
                family.case(
                    f"{op}_backward/{tail}", [dy, rounded], f"{op}_backward %a, %b axis({axis})", like(x, result)
                )
    for name, numbers in [
        ("infinite", "1.0,-inf,2.0,-3.0"),
        ("nan", "1.0,nan,2.0,3.0"),
        ("large", "1000.0,999.0,-1000.0,0.5"),
    ]:
        for op, fn in {"softmax": torch.softmax, "log_softmax": torch.log_softmax}.items():
            x = In("f32", [2, 4], table=f"list:{numbers}")
            family.case(f"{op}/f32/{name}", [x], f"{op} %a", like(x, fn(x.t.double(), -1)))


def norm_cases(family):
    eps = 1e-3
    for dtype, layout, x in float_layouts([2, 3, 4]):
        # Rows of equal numbers have gradients that are all rounding.
        if layout == "empty" or dtype == "bool":
            continue
        for k in (1, 2):
            shape, axes = x.sizes[-k:], tuple(range(3 - k, 3))
            weight, bias = In(dtype, shape, table="wide", seed=11), In(dtype, shape, table="wide", seed=12)
            dy = In(dtype, x.sizes, x.strides, x.offset, "wide", 13)
            tail = f"{dtype}/{layout}{k}"
            a, w, b = leaf(x), leaf(weight), leaf(bias)
            REPORT.share("layer_norm", lambda *t: F.layer_norm(t[0], shape, t[1], t[2], eps), x.t, weight.t, bias.t)
            REPORT.share("rms_norm", lambda *t: F.rms_norm(t[0], shape, t[1], eps), x.t, weight.t)
            y = F.layer_norm(a, shape, w, b, eps)
            mean = a.mean(axes, True)
            invstd = (a.var(axes, correction=0, keepdim=True) + eps).rsqrt()
            family.case(f"layer_norm/{tail}", [x, weight, bias], f"layer_norm %a, %b, %c eps({eps})", like(x, y))
            family.case(
                f"layer_norm/{tail}-bare", [x], f"layer_norm %a norm_dims({k})", like(x, F.layer_norm(a, shape))
            )
            lines = [f"%y, %m, %s = layer_norm_forward %a, %b, %c eps({eps})"]
            family.case(
                f"layer_norm_forward/{tail}",
                [x, weight, bias],
                lines,
                [like(x, y), plain(x, mean), plain(x, invstd)],
                "%y, %m, %s",
            )
            dx, dw, db = gradients(y, dy, [a, w, b])
            lines = [
                f"%y, %m, %s = layer_norm_forward %a, %b eps({eps})",
                "%dx, %dw, %db = layer_norm_backward %c, %a, %m, %s, %b",
            ]
            # Without bias there is no gradient of it; with one it is the same.
            family.case(
                f"layer_norm_backward/{tail}",
                [x, weight, dy],
                lines,
                [scaled(x, dx, k), plain(x, dw), plain(x, db)],
                "%dx, %dw, %db",
            )
            a, w = leaf(x), leaf(weight)
            y = F.rms_norm(a, shape, w, eps)
            scale = ((a * a).mean(axes, True) + eps).rsqrt()
            family.case(f"rms_norm/{tail}", [x, weight], f"rms_norm %a, %b eps({eps})", like(x, y))
            family.case(
                f"rms_norm/{tail}-bare",
                [x],
                f"rms_norm %a eps({eps}) norm_dims({k})",
                like(x, F.rms_norm(a, shape, None, eps)),
            )
            lines = [f"%y, %s = rms_norm_forward %a, %b eps({eps})"]
            family.case(f"rms_norm_forward/{tail}", [x, weight], lines, [like(x, y), plain(x, scale)], "%y, %s")
            dx, dw = gradients(y, dy, [a, w])
            lines = [
                f"%y, %s = rms_norm_forward %a, %b eps({eps})",
                "%dx, %dw = rms_norm_backward %c, %a, %s, %b exact",
            ]
            family.case(
                f"rms_norm_backward/{tail}", [x, weight, dy], lines, [scaled(x, dx, k), plain(x, dw)], "%dx, %dw"
            )
            lines = [
                f"%y, %s = rms_norm_forward %a, %b eps({eps})",
                "%rms = reciprocal %s",
                "%dx, %dw = thunder_rms_norm_backward %c, %a, %rms, %b exact",
            ]
            family.case(
                f"thunder_rms_norm_backward/{tail}",
                [x, weight, dy],
                lines,
                [scaled(x, dx, k), plain(x, dw)],
                "%dx, %dw",
            )


def batch_cases(family):
    eps, momentum = 1e-3, 0.25
    for dtype, layout, x in float_layouts([2, 3, 4]):
        if layout == "empty":
            continue
        weight, bias = In(dtype, [3], table="wide", seed=11), In(dtype, [3], table="wide", seed=12)
        mean, var = In(dtype, [3], table="wide", seed=14), In(dtype, [3], table="positive", seed=15)
        dy = In(dtype, x.sizes, x.strides, x.offset, "wide", 13)
        tail = f"{dtype}/{layout}"
        a, w, b = leaf(x), leaf(weight), leaf(bias)
        trained = lambda *t: F.batch_norm(t[0], None, None, t[1], t[2], True, momentum, eps)
        REPORT.share("batch_norm", trained, x.t, weight.t, bias.t)
        y = F.batch_norm(a, None, None, w, b, True, momentum, eps)
        own_mean, own = a.mean((0, 2)), (a.var((0, 2), correction=0) + eps).rsqrt()
        lines = [f"%y, %m, %s = batch_norm %a, %b, %c eps({eps})"]
        family.case(
            f"batch_norm/{tail}-training",
            [x, weight, bias],
            lines,
            [like(x, y), plain(x, own_mean), plain(x, own)],
            "%y, %m, %s",
        )
        back = [f"%y, %m, %s = batch_norm %a, %b eps({eps})"]
        back.append(f"%dx, %dw, %db = batch_norm_backward %a, %c, %b save_mean(%m) save_invstd(%s) eps({eps})")
        dx, dw, db = gradients(y, dy, [a, w, b])
        family.case(
            f"batch_norm_backward/{tail}-training",
            [x, weight, dy],
            back,
            [like(x, dx), plain(x, dw), plain(x, db)],
            "%dx, %dw, %db",
        )
        y = F.batch_norm(a, mean.t.double(), var.t.double(), w, b, False, momentum, eps)
        scale = (var.t.double() + eps).rsqrt()
        lines = [f"%y, %m, %s = batch_norm %a, %b, %c, %d, %e eps({eps}) training(false)"]
        family.case(
            f"batch_norm/{tail}-inference",
            [x, weight, bias, mean, var],
            lines,
            [like(x, y), plain(x, mean.t.double()), plain(x, scale)],
            "%y, %m, %s",
        )
        dx, dw, db = gradients(y, dy, [a, w, b])
        back = [f"%dx, %dw, %db = batch_norm_backward %a, %c, %b, %d, %e eps({eps}) training(false)"]
        family.case(
            f"batch_norm_backward/{tail}-inference",
            [x, weight, dy, mean, var],
            back,
            [like(x, dx), plain(x, dw), plain(x, db)],
            "%dx, %dw, %db",
        )

        y = F.instance_norm(a, None, None, w, b, True, momentum, eps)
        own_mean, own = a.mean(2), (a.var(2, correction=0) + eps).rsqrt()
        lines = [f"%y, %m, %s = instance_norm %a, %b, %c eps({eps})"]
        family.case(
            f"instance_norm/{tail}-own",
            [x, weight, bias],
            lines,
            [like(x, y), plain(x, own_mean), plain(x, own)],
            "%y, %m, %s",
        )
        dx, dw, db = gradients(y, dy, [a, w, b])
        back = [f"%y, %m, %s = instance_norm %a, %b eps({eps})"]
        back.append(f"%dx, %dw, %db = instance_norm_backward %a, %c, %b save_mean(%m) save_invstd(%s) eps({eps})")
        family.case(
            f"instance_norm_backward/{tail}-own",
            [x, weight, dy],
            back,
            [like(x, dx), plain(x, dw), plain(x, db)],
            "%dx, %dw, %db",
        )


# ---- activations ----


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


def activation_cases(family):
    unary = {
        "gelu": (F.gelu, ""),
        "gelu_tanh": (gelu_tanh, ""),
        "tanh_gelu": (gelu_tanh, ""),
        "fast_gelu": (gelu_tanh, ""),
        "leaky_relu": (F.leaky_relu, ""),
        "softplus": (F.softplus, ""),
    }
    for dtype, layout, x in float_layouts([2, 3, 4]):
        tail = f"{dtype}/{layout}"
        for op, (fn, attributes) in unary.items():
            family.case(f"{op}/{tail}", [x], f"{op} %a{attributes}", like(x, REPORT.share(op, fn, x.t)))
        family.case(f"leaky_relu/{tail}-slope", [x], "leaky_relu %a, 0.25", like(x, F.leaky_relu(x.t.double(), 0.25)))
        family.case(f"softplus/{tail}-beta", [x], "softplus %a, 2.0, 3.0", like(x, F.softplus(x.t.double(), 2.0, 3.0)))
        dy = In(dtype, x.sizes, x.strides, x.offset, "wide", 13)
        for op, fn in {"gelu_backward": F.gelu, "tanh_gelu_backward": gelu_tanh}.items():
            a = leaf(x)
            family.case(f"{op}/{tail}", [dy, x], f"{op} %a, %b", like(x, gradients(fn(a), dy, [a])[0]))
        t = In(dtype, x.sizes, x.strides, x.offset, "unit", 3)
        family.case(
            f"tanh_backward/{tail}", [dy, t], "tanh_backward %a, %b", like(x, dy.t.double() * (1 - t.t.double() ** 2))
        )
        z = In(dtype, x.sizes, x.strides, x.offset, "wide", 21)
        gates = [In(dtype, x.sizes, x.strides, x.offset, "wide", 30 + i) for i in range(5)]
        previous, i, f, g, o = (v.t.double() for v in gates)
        cell = torch.sigmoid(f) * previous + torch.sigmoid(i) * torch.tanh(g)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        family.case(
            f"lstm/{tail}", gates, ["%c1, %h = lstm %a, %b, %c, %d, %e"], [like(x, cell), like(x, hidden)], "%c1, %h"
        )
        mask = In("bool", x.sizes, x.strides, x.offset, "special", 8)
        result = dy.t.double() * mask.t * 1.25
        family.case(f"dropout_backward/{tail}", [dy, mask], "dropout_backward %a, %b, 1.25", like(x, result))
        if kind(dtype) != "float":
            continue
        family.case(
            f"addcmul/{tail}",
            [x, dy, z],
            "addcmul %a, %b, %c",
            like(x, torch.addcmul(*(v.t.double() for v in (x, dy, z)))),
        )
        family.case(
            f"addcmul/{tail}-value",
            [x, dy, z],
            "addcmul %a, %b, %c, 0.5",
            like(x, torch.addcmul(*(v.t.double() for v in (x, dy, z)), value=0.5)),
        )
    for dtype in INTS + COMPLEX:
        x, y, z = (In(dtype, [3, 4], table="small", seed=i) for i in range(3))
        result = by_numpy(lambda a, b, c: a + b * c, x.t, y.t, z.t) if dtype in INTS else x.t + y.t * z.t
        family.case(f"addcmul/{dtype}/dense", [x, y, z], "addcmul %a, %b, %c", result)


def families():
    made = []
    for name, cases in [
        ("reductions", reduction_cases),
        ("statistics", statistic_cases),
        ("softmax", softmax_cases),
        ("norms", norm_cases),
        ("batch", batch_cases),
        ("activations", activation_cases),
    ]:
        made.append(Family(name))
        cases(made[-1])
    return made
