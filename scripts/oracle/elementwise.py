"""Elementwise operations of one, two and three operands, casts and promotion.

The rule of the engine's language that the cases account for: f16, bf16 and the
8-bit floats are storage; operands of these types are cast to f32 and the result
stays f32. So the expected value of `exp %a` on f16 is exp of the exact operand,
rounded once to f32. Values of f32 results are computed in f64 and rounded once.
"""

import numpy as np
import torch
import torch.nn.functional as F

from .data import COMPLEX, SMALL, FLOATS, INTS, NATIVE, REPORT, SIGNED, TYPES, UNSIGNED, Family, In, Num, Out
from .data import kind, part
from .layouts import same_shape_pairs, stand_in, strided, tensors


def compute(dtype):
    """The type in which the engine computes."""
    return "f32" if kind(dtype) == "float" and TYPES[dtype][1] < 4 else dtype


def torch_type(dtype):
    return TYPES[dtype][0]


def wide(t):
    """The widest type of a tensor's class."""
    if t.is_complex():
        return t.to(torch.complex128)
    if t.is_floating_point():
        return t.to(torch.float64)
    return t


def by_numpy(fn, *tensors):
    with np.errstate(all="ignore"):
        result = fn(*(t.numpy() for t in tensors))
    return torch.from_numpy(np.ascontiguousarray(result).reshape(result.shape))


# ---- one operand ----

FUNCTIONS = {
    "acos": torch.acos,
    "acosh": torch.acosh,
    "asin": torch.asin,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "atanh": torch.atanh,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erfinv": torch.erfinv,
    "erfcinv": lambda x: 0.0 - torch.special.ndtri(x / 2) / 2**0.5,
    "frac": torch.frac,
    "lgamma": torch.lgamma,
    "log": torch.log,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "reciprocal": torch.reciprocal,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "tan": torch.tan,
    "tanh": torch.tanh,
}
REAL_ONLY = {"erf", "erfc", "erfinv", "erfcinv", "frac", "lgamma"}
# Defined on integers as they are: PyTorch's function and NumPy's.
EXACT = {
    "abs": (torch.abs, np.abs),
    "ceil": (torch.ceil, lambda x: x),
    "floor": (torch.floor, lambda x: x),
    "neg": (torch.neg, np.negative),
    "relu": (torch.relu, lambda x: np.maximum(x, 0).astype(x.dtype)),
    "round": (torch.round, lambda x: x),
    "sign": (torch.sign, np.sign),
    "trunc": (torch.trunc, lambda x: x),
    "real": (lambda x: torch.real(x).clone(), lambda x: x),
}
PREDICATES = {
    "logical_not": (torch.logical_not, lambda x: x == 0),
    "signbit": (torch.signbit, lambda x: x < 0),
    "isfinite": (torch.isfinite, lambda x: x == x),
    "isinf": (torch.isinf, lambda x: x != x),
    "isnan": (torch.isnan, lambda x: x != x),
    "isneginf": (torch.isneginf, lambda x: x != x),
    "isposinf": (torch.isposinf, lambda x: x != x),
    "isreal": (torch.isreal, lambda x: x == x),
}
COMPLEX_PREDICATES = ["logical_not", "isfinite", "isinf", "isnan", "isreal"]
TYPES_OF_ALL = FLOATS + SMALL + INTS + ["bool"]


def unary_cases(family):
    def each(op, dtype, expected, to, table="special"):
        """Every layout of one operation on one type; a cast to `to` comes first."""
        for name, x in tensors(dtype, [2, 3, 4], table):
            result = expected(x.t)
            strides = torch.neg(stand_in(x, dtype != to)).stride()
            family.case(f"{op}/{dtype}/{name}", [x], f"{op} %a", Out(result, strides))
        count = len(all_entries(dtype, table))
        x = In(dtype, [count], table=f"walk:{table}", seed=0)
        family.case(f"{op}/{dtype}/values", [x], f"{op} %a", expected(x.t))
        x = In(dtype, [], table=table, seed=4)
        family.case(f"{op}/{dtype}/rank0", [x], f"{op} %a", expected(x.t))

    for op, fn in FUNCTIONS.items():
        for dtype in TYPES_OF_ALL:
            to = "f64" if dtype == "f64" else "f32"

            def expected(t, op=op, fn=fn, dtype=dtype, to=to):
                # Integers become f32 first, which may round.
                exact = fn((t if kind(dtype) == "float" else as_float(t)).double())
                if dtype in ("f32", "f16", "bf16") and op != "erfcinv":
                    REPORT.near(op, fn(t), exact)
                return exact.to(torch_type(to))

            # Halving, as the formula of erfcinv does, is not exact below these.
            each(op, dtype, expected, to, "normal" if (op, dtype) == ("erfcinv", "f64") else "special")
        for dtype in COMPLEX if op not in REAL_ONLY else []:
            each(op, dtype, lambda t, fn=fn, dtype=dtype: fn(t.to(torch.complex128)).to(torch_type(dtype)), dtype)

    for op, (fn, np_fn) in EXACT.items():
        for dtype in FLOATS + SMALL + INTS:
            to = compute(dtype)
            if kind(dtype) == "float":
                each(op, dtype, lambda t, fn=fn, to=to: fn(t.to(torch_type(to))), to)
            elif dtype in NATIVE and op != "real":
                each(op, dtype, lambda t, fn=fn: fn(t), to)
            else:
                each(op, dtype, lambda t, np_fn=np_fn: by_numpy(np_fn, t), to)
        if op in ("abs", "neg", "real"):
            for dtype in COMPLEX:
                wider = lambda t, fn=fn, dtype=dtype, op=op: fn(t.to(torch.complex128)).to(
                    torch_type(dtype if op == "neg" else part(dtype))
                )
                each(op, dtype, wider, dtype)
    each("real", "bool", lambda t: t.clone(), "bool")
    for dtype in COMPLEX:
        each("imag", dtype, lambda t: torch.imag(t).clone(), dtype)
    for dtype in INTS + ["bool"]:
        fn = torch.bitwise_not if dtype in NATIVE else lambda t: by_numpy(np.invert, t)
        each("bitwise_not", dtype, fn, dtype)
    for op, (fn, np_fn) in PREDICATES.items():
        for dtype in TYPES_OF_ALL + (COMPLEX if op in COMPLEX_PREDICATES else []):
            to = compute(dtype)
            if kind(dtype) == "int" and dtype not in NATIVE:
                each(op, dtype, lambda t, np_fn=np_fn: by_numpy(np_fn, t), to)
            else:
                each(op, dtype, lambda t, fn=fn, to=to: fn(t.to(torch_type(to))), to)


def all_entries(dtype, table):
    from .data import TABLES

    return TABLES.get(dtype, table)[1]


def as_float(t):
    if t.dtype in (torch.uint16, torch.uint32, torch.uint64):
        return by_numpy(lambda x: x.astype(np.float32), t)
    return t.to(torch.float32)


# ---- two operands ----


def truncated(a, b):
    return torch.div(a, b, rounding_mode="trunc")


def fmod(a, b):
    """PyTorch's loops over neighbouring floats give NaN where the quotient
    overflows, its other loops are exact, as NumPy is."""
    return by_numpy(np.fmod, a, b) if a.is_floating_point() else torch.fmod(a, b)


def remainder(a, b):
    if not a.is_floating_point():
        return torch.remainder(a, b)
    rest = fmod(a, b)
    return torch.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


def logical_right(a, b):
    bits = 8 * a.dtype.itemsize
    name = f"uint{bits}"

    def shift(x, y):
        inside = (y >= 0) & (y < bits)
        moved = x.view(name) >> np.where(inside, y, 0).astype(name)
        return np.where(inside, moved, 0).astype(name).view(x.dtype)

    return by_numpy(shift, *(t.contiguous() for t in torch.broadcast_tensors(a, b)))


def np_shift(fn):
    """Shifts of unsigned integers: 0 when the amount is not below the width."""

    def shift(x, y):
        inside = y < 8 * x.itemsize
        return np.where(inside, fn(x, np.where(inside, y, 0)), 0).astype(x.dtype)

    return shift


# name: (PyTorch's function on floats and integers, NumPy's on unsigned integers)
ARITHMETIC = {
    "add": (torch.add, np.add),
    "sub": (torch.sub, np.subtract),
    "mul": (torch.mul, np.multiply),
    "div": (truncated, np.floor_divide),
    "fmod": (fmod, np.fmod),
    "remainder": (remainder, np.remainder),
    "pow": (torch.pow, np.power),
    "minimum": (torch.minimum, np.minimum),
    "maximum": (torch.maximum, np.maximum),
}
DIVIDING = {"div", "fmod", "remainder", "mod"}
COMPARISONS = {
    "eq": (torch.eq, np.equal),
    "ge": (torch.ge, np.greater_equal),
    "gt": (torch.gt, np.greater),
    "le": (torch.le, np.less_equal),
    "lt": (torch.lt, np.less),
    "ne": (torch.ne, np.not_equal),
    "logical_and": (torch.logical_and, np.logical_and),
    "logical_or": (torch.logical_or, np.logical_or),
}
BITS = {
    "bitwise_and": (torch.bitwise_and, np.bitwise_and),
    "bitwise_or": (torch.bitwise_or, np.bitwise_or),
    "bitwise_xor": (torch.bitwise_xor, np.bitwise_xor),
}
INTEGER = {
    "mod": (torch.fmod, np.fmod),
    "bitwise_left_shift": (torch.bitwise_left_shift, np_shift(np.left_shift)),
    "bitwise_right_shift": (torch.bitwise_right_shift, np_shift(np.right_shift)),
    "logical_right_shift": (logical_right, np_shift(np.right_shift)),
    "gcd": (torch.gcd, np.gcd),
}
BOOL_ARITHMETIC = ["add", "mul", "minimum", "maximum"]
COMPLEX_BINARY = ["add", "sub", "mul", "div", "truediv", "pow", "eq", "ne", "logical_and", "logical_or"]
FLOAT_BINARY = {"truediv": torch.true_divide, "atan2": torch.atan2, "nextafter": torch.nextafter}


def float_binary(op, fn, dtype):
    """The values of an operation on floats: in f64, rounded once."""
    to = torch_type(compute(dtype))

    def expected(a, b):
        if op == "nextafter":
            return fn(a.to(to), b.to(to))
        if op == "div":
            return (a.double() / b.double()).to(to)
        exact = fn(a.double(), b.double())
        if dtype in ("f32", "f16", "bf16") and op not in ("fmod", "remainder"):
            REPORT.near(op, fn(a, b), exact)
        return exact.to(to) if exact.dtype != torch.bool else exact

    return expected


def pairs(family, op, dtype, expected, to, tables=("special", "special"), body=None, few=False):
    """Every layout of one operation on two operands of one type."""
    body = body or f"{op} %a, %b"
    cast = dtype != to

    def emit(name, a, b):
        strides = torch.add(stand_in(a, cast), stand_in(b, cast)).stride()
        family.case(f"{op}/{dtype}/{name}", [a, b], body, Out(expected(a.t, b.t), strides))

    first, second = tables
    n = min(24, len(all_entries(dtype, first)), len(all_entries(dtype, second)))
    emit(
        "values",
        In(dtype, [n, 1], table=f"walk:{first}", decl=["?", 1]),
        In(dtype, [1, n], table=f"walk:{second}", decl=[1, "?"]),
    )
    emit("random", In(dtype, [7, 9], table=first, seed=1), In(dtype, [7, 9], table=second, seed=2))
    if few:
        return
    for name, sizes, (sa, sb) in same_shape_pairs([2, 3, 4]):
        emit(name, In(dtype, sizes, sa, 1, first, 3), In(dtype, sizes, sb, 2, second, 4))
    emit("rank0", In(dtype, [], table=first, seed=5), In(dtype, [], table=second, seed=6))
    emit(
        "broadcast_permuted",
        In(dtype, [1, 3, 4], [1, 1, 3], 0, first, 7, [1, "?", "?"]),
        In(dtype, [2, 3, 1], [3, 1, 9], 0, second, 8, ["?", "?", 1]),
    )
    emit(
        "broadcast_empty",
        In(dtype, [1, 0, 4], table=first, seed=7, decl=[1, "?", "?"]),
        In(dtype, [2, 0, 1], table=second, seed=8, decl=["?", "?", 1]),
    )


def integer_binary(family, op, fn, np_fn, dtypes):
    for dtype in dtypes:
        tables = ("special", "special")
        if op in DIVIDING:
            tables = ("special", "nonzero")
        if dtype in NATIVE:
            pairs(family, op, dtype, fn, dtype, tables)
        else:
            pairs(family, op, dtype, lambda a, b, f=np_fn: by_numpy(f, a, b), dtype, tables)


def binary_cases(family):
    for op, (fn, np_fn) in ARITHMETIC.items():
        for dtype in FLOATS + SMALL:
            pairs(family, op, dtype, float_binary(op, fn, dtype), compute(dtype), few=dtype in SMALL)
        integer_binary(family, op, fn, np_fn, INTS)
    for op, fn in FLOAT_BINARY.items():
        for dtype in FLOATS + SMALL:
            pairs(family, op, dtype, float_binary(op, fn, dtype), compute(dtype), few=dtype in SMALL)
        if op != "nextafter":
            for dtype in INTS + ["bool"]:
                exact = lambda a, b, f=fn: f(as_float(a).double(), as_float(b).double()).float()
                pairs(family, op, dtype, exact, "f32", few=dtype not in ("i32", "bool"))
    for op, (fn, np_fn) in COMPARISONS.items():
        for dtype in FLOATS + SMALL:
            pairs(family, op, dtype, float_binary(op, fn, dtype), compute(dtype), few=dtype in SMALL)
        integer_binary(family, op, fn, np_fn, INTS + ["bool"])
    for op, (fn, np_fn) in BITS.items():
        integer_binary(family, op, fn, np_fn, INTS + ["bool"])
    for op, (fn, np_fn) in INTEGER.items():
        integer_binary(family, op, fn, np_fn, INTS)
    for op in BOOL_ARITHMETIC:
        pairs(family, op, "bool", ARITHMETIC[op][0], "bool")
    for dtype in INTS:
        exact = lambda a, b: by_numpy(lambda x, y: (x // y + (x % y != 0)).astype(x.dtype), a, b)
        pairs(family, "ceildiv", dtype, exact, dtype, ("below:90", "between:1,17"))
    for dtype in COMPLEX:
        for op in COMPLEX_BINARY:
            fn = torch.div if op in ("div", "truediv") else {**ARITHMETIC, **COMPARISONS}[op][0]

            def expected(a, b, fn=fn, dtype=dtype):
                exact = fn(a.to(torch.complex128), b.to(torch.complex128))
                return exact.to(torch_type(dtype)) if exact.is_complex() else exact

            pairs(family, op, dtype, expected, dtype, ("special", "small") if op == "div" else ("small", "special"))
    for dtype in ["f64", "f32"]:
        pairs(family, "complex", dtype, torch.complex, dtype)
    for dtype in ["f16", "bf16"] + SMALL + INTS + ["bool"]:
        joined = lambda a, b: torch.complex(as_float(a), as_float(b))
        pairs(family, "complex", dtype, joined, "f32", few=True)


# ---- three operands ----


def ternary_cases(family):
    shapes = [
        ("dense", [2, 3, 4], (None, None, None)),
        ("permuted", [2, 3, 4], (strided([2, 3, 4], [2, 1, 0]),) * 3),
        ("mixed", [2, 3, 4], (strided([2, 3, 4], [0, 1, 2], 2), strided([2, 3, 4], [1, 2, 0]), [0, 4, 1])),
        ("empty", [2, 0, 4], (None, None, strided([2, 0, 4], [2, 1, 0]))),
        ("one", [1, 1, 1], ([3, 3, 3], [5, 5, 5], [7, 7, 7])),
        ("rank0", [], (None, None, None)),
        ("values", [150], (None, None, None)),
    ]

    def lerp(a, b, w):
        return torch.lerp(a, b, w)

    def clamp(x, low, high):
        return torch.clamp(x, low, high)

    def threshold(x, t, v):
        return torch.where(x > t, x, v)

    for op, fn in {"lerp": lerp, "clamp": clamp, "threshold": threshold}.items():
        for dtype in FLOATS + SMALL + INTS + (COMPLEX + ["bool"] if op == "lerp" else []):
            to = "f32" if op == "lerp" and kind(dtype) in ("int", "bool") else compute(dtype)
            for name, sizes, layout in shapes:
                tables = ["special"] * 3
                if op == "lerp":
                    tables = ["wide" if kind(dtype) == "float" else "small"] * 2 + [
                        "unit" if kind(dtype) == "float" else "small"
                    ]
                ins = [In(dtype, sizes, s, i, tables[i], i + 1) for i, s in enumerate(layout)]
                values = [x.t for x in ins]
                if op == "lerp" and kind(dtype) in ("int", "bool"):
                    result = fn(*(as_float(v).double() for v in values)).float()
                elif kind(dtype) in ("float", "complex"):
                    result = fn(*map(wide, values)).to(torch_type(to))
                elif dtype in NATIVE:
                    result = fn(*values)
                else:
                    np_fn = (
                        (lambda x, l, h: np.minimum(np.maximum(x, l), h))
                        if op == "clamp"
                        else (lambda x, t, v: np.where(x > t, x, v))
                    )
                    result = by_numpy(np_fn, *values)
                strides = torch.clamp(*(stand_in(x, dtype != to) for x in ins)).stride()
                family.case(f"{op}/{dtype}/{name}", ins, f"{op} %a, %b, %c", Out(result, strides))
    for dtype in FLOATS + INTS + ["bool"] + COMPLEX + SMALL:
        for name, sizes, layout in shapes:
            ins = [In("bool" if i == 0 else dtype, sizes, s, i, "special", i + 1) for i, s in enumerate(layout)]
            to = compute(dtype)
            first, second = (x.t.to(torch_type(to)) for x in ins[1:])
            if dtype not in NATIVE and kind(dtype) == "int":
                bits = torch_type(f"i{8 * TYPES[dtype][1]}")
                first, second = first.view(bits), second.view(bits)
            result = torch.where(ins[0].t, first, second).view(torch_type(to))
            strides = torch.clamp(*(stand_in(x, x.dtype != "bool" and dtype != to) for x in ins)).stride()
            family.case(f"where/{dtype}/{name}", ins, "where %a, %b, %c", Out(result, strides))
    for dtype in FLOATS + ["i32", "i64"]:
        x = In(dtype, [3, 4], [1, 3], table="wide", seed=1)
        exact = torch.clamp(wide(x.t), -1, 2).to(torch_type(compute(dtype)))
        strides = torch.add(stand_in(x, dtype in ("f16", "bf16")), 1).stride()
        family.case(f"clamp/{dtype}/scalars", [x], "clamp %a, -1, 2", Out(exact, strides))


# ---- conversions ----


def convert(x, dtype, to):
    """PyTorch's conversion, through types that it has where it has none."""
    t = x.t
    if to in UNSIGNED and to != "u8" and kind(dtype) == "float":
        return by_numpy(lambda v: v.astype(f"uint{8 * TYPES[to][1]}"), t.double())
    if dtype in UNSIGNED and dtype != "u8" and kind(to) in ("float", "complex"):
        if dtype == "u64" and to != "f64":
            return by_numpy(lambda v: v.astype(np.float32), t).to(torch_type(to)) if to in ("f32", "c64") else None
        return t.to(torch.float64).to(torch_type(to))
    if kind(dtype) == "complex" and kind(to) != "complex" and to != "bool":
        t = torch.real(t).clone(memory_format=torch.contiguous_format)
    return t.to(torch_type(to))


def cast_cases(family):
    names = [name for name in TYPES if name != "f4e2m1fn"]
    for dtype in names:
        for to in names:
            if dtype == to:
                continue
            table = "special"
            if kind(dtype) in ("float", "complex") and kind(to) == "int":
                # Outside of the range the conversion is undefined in C++.
                table = f"into:{to}"
            count = len(all_entries(dtype, table))
            x = In(dtype, [count], table=f"walk:{table}")
            result = convert(x, dtype, to)
            if result is None:
                continue
            family.case(f"cast/{dtype}-{to}/values", [x], f"cast %a {to}", result)
    for dtype, to in [("f32", "bf16"), ("f32", "f64"), ("f16", "f32"), ("i64", "i32"), ("bool", "f32"), ("u8", "bool")]:
        for name, x in tensors(dtype, [2, 3, 4], "small"):
            strides = stand_in(x, True).stride()
            family.case(f"cast/{dtype}-{to}/{name}", [x], f"cast %a {to}", Out(x.t.to(torch_type(to)), strides))


# ---- promotion ----


def promotion_cases(family):
    """Result types of every pair of types, tensors and scalars."""
    names = FLOATS + SIGNED + ["u8", "bool"] + COMPLEX
    for a in names:
        for b in names:
            common = torch.promote_types(torch_type(a), torch_type(b))
            to = torch_type(compute(next(n for n in names if torch_type(n) == common)))
            x, y = In(a, [3, 4], table="small", seed=1), In(b, [3, 4], table="small", seed=2)
            left, right = x.t.to(to), y.t.to(to)
            family.case(f"promote/{a}-{b}/add", [x, y], "add %a, %b", torch.add(left, right))
            family.case(f"promote/{a}-{b}/mul", [x, y], "mul %a, %b", torch.mul(left, right))
            family.case(f"promote/{a}-{b}/eq", [x, y], "eq %a, %b", torch.eq(left, right))
            if not to.is_complex:
                family.case(f"promote/{a}-{b}/maximum", [x, y], "maximum %a, %b", torch.maximum(left, right))
                family.case(f"promote/{a}-{b}/lt", [x, y], "lt %a, %b", torch.lt(left, right))
            condition = In("bool", [3, 4], seed=3)
            chosen = torch.where(condition.t, left, right)
            family.case(f"promote/{a}-{b}/where", [condition, x, y], "where %a, %b, %c", chosen)
    scalars = [("f64", 1.5), ("i64", 3), ("bool", True), ("c128", 1.5 - 0.25j)]
    for a in names:
        for b, value in scalars:
            x = In(a, [3, 4], [1, 3], table="small", seed=1)
            common = torch.result_type(x.t, value)
            # There is no complex type of half the width of c64.
            to = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}.get(
                common, common
            )
            exact = torch.add(x.t.to(to), value)
            strides = torch.add(stand_in(x, to != torch_type(a)), 1).stride()
            family.case(f"promote_scalar/{a}-{b}/add", [x, Num(b, value)], "add %a, %b", Out(exact, strides))
            exact = torch.mul(value, x.t.to(to))
            family.case(f"promote_scalar/{b}-{a}/mul", [Num(b, value), x], "mul %a, %b", Out(exact, strides))


# ---- scalars ----


def scalar_cases(family):
    """Operations on scalars alone, as arguments and as constants, and numbers
    that meet tensors."""

    def both(ident, dtypes, values, op, expected):
        """`op` on arguments and on literals; seen through a tensor of its type."""
        to = next(name for name, row in TYPES.items() if row[0] == expected.dtype)
        names = ", ".join(f"%{n}" for n in "abc"[: len(values)])
        result = expected.reshape(1).expand(2).clone()
        nums = [Num(d, v) for d, v in zip(dtypes, values)]
        family.case(f"{op}/scalar/{ident}", nums, [f"%s = {op} {names}", f"%r = full [2] %s {to}"], result)
        if all(d in ("f64", "i64", "bool") for d in dtypes):
            literals = ", ".join(str(v).lower() for v in values)
            family.case(f"{op}/constant/{ident}", [], [f"%s = {op} {literals}", f"%r = full [2] %s {to}"], result)

    for op, fn in FUNCTIONS.items():
        for value in (0.5, 0.25, 1.5, -0.75, 3.0):
            both(f"f64-{value}", ["f64"], [value], op, fn(torch.tensor(value, dtype=torch.float64)))
        for value in (1, 3):
            both(f"i64-{value}", ["i64"], [value], op, fn(torch.tensor(float(value), dtype=torch.float64)).float())
        exact = fn(torch.tensor(0.7, dtype=torch.float32).double()).float()
        both("f32-0.7", ["f32"], [0.7], op, exact)
    for op in ("abs", "neg", "floor", "ceil", "trunc", "round", "sign", "relu"):
        for value in (-2.5, 0.5, 7.0):
            both(f"f64-{value}", ["f64"], [value], op, EXACT[op][0](torch.tensor(value, dtype=torch.float64)))
        for value in (-9, 4):
            both(f"i64-{value}", ["i64"], [value], op, EXACT[op][0](torch.tensor(value)))
    for op, (fn, _) in {**ARITHMETIC, **COMPARISONS}.items():
        for a, b in ((7.5, -2.0), (-7.5, 2.0), (0.1, 0.3)):
            if not (op == "pow" and a < 0):
                x, y = (torch.tensor(v, dtype=torch.float64) for v in (a, b))
                both(f"f64-{a}-{b}", ["f64", "f64"], [a, b], op, torch.div(x, y) if op == "div" else fn(x, y))
        for a, b in ((7, 2), (-7, 2), (7, -2), (3, 5), (-(2**62), 3)):
            both(f"i64-{a}-{b}", ["i64", "i64"], [a, b], op, fn(torch.tensor(a), torch.tensor(b)))
    for op, (fn, _) in {**BITS, **INTEGER}.items():
        for a, b in ((12, 10), (-12, 3), (5, 70)):
            both(f"i64-{a}-{b}", ["i64", "i64"], [a, b], op, fn(torch.tensor(a), torch.tensor(b)))
    for dtype in FLOATS + INTS:
        x = In(dtype, [3, 4], table="small", seed=3)
        whole = kind(dtype) == "int"
        to = torch_type(compute(dtype))
        for number in (3, 100) if whole else (0.1, 3, -2.5, 1e-3):
            for op in ("add", "mul", "maximum"):
                fn, np_fn = ARITHMETIC[op]
                if whole:
                    result = by_numpy(lambda v, f=np_fn, n=number: f(v, v.dtype.type(n)), x.t)
                else:
                    result = fn(x.t.to(to), torch.tensor(number, dtype=to))
                family.case(f"{op}/number/{dtype}-{number}", [x], f"{op} %a, {number}", result)


def families():
    unary, binary, ternary, casts, scalars = map(Family, ["unary", "binary", "ternary", "casts", "scalars"])
    unary_cases(unary)
    binary_cases(binary)
    ternary_cases(ternary)
    cast_cases(casts)
    promotion_cases(casts)
    scalar_cases(scalars)
    return [unary, binary, ternary, casts, scalars]
