"""Operations that move elements: views, cuts, joins, indexing, factories.

Values do not depend on the type, so PyTorch works on stand-ins of the same
width where it lacks a type. Strides are PyTorch's own, of views too.
"""

import torch
import torch.nn.functional as F

from .data import COMPLEX, FLOATS, INTS, NATIVE, SIGNED, SMALL, TYPES, Family, In, Num, Out
from .layouts import strided, tensors

ALL = FLOATS + INTS + ["bool"] + COMPLEX + SMALL
FEW = {"dense", "permuted_gaps", "all_expanded", "empty", "one"}


def carrier(x):
    """The elements as a type that PyTorch moves."""
    if isinstance(x, Num):
        return x.value
    return x.t if x.dtype in NATIVE else x.codes.view(TYPES[f"i{8 * TYPES[x.dtype][1]}"][0])


def back(result, dtype):
    return Out(result if dtype in NATIVE else result.view(TYPES[dtype][0] or torch.uint8), result.stride(), dtype)


def move(family, ident, inputs, body, fn, result=None):
    """A case of one result of the first input's type."""
    family.case(ident, inputs, body, back(fn(*map(carrier, inputs)), inputs[0].dtype), result)


def everywhere(family, op, name, body, fn, sizes=(2, 3, 4), skip=(), decl=None, dtypes=ALL, only=ALL):
    """One operation on one tensor of every type and layout, of types that are
    not in `dtypes` in one layout. `body` and `fn` take the sizes."""
    for dtype in only:
        for layout, x in tensors(dtype, list(sizes), "special", 3):
            if layout in skip or (dtype != "f32" and layout not in FEW) or (dtype not in dtypes and layout != "dense"):
                continue
            if decl:
                x.decl = decl(x.sizes)
            move(family, f"{op}/{dtype}/{name}-{layout}", [x], body(x.sizes), lambda t: fn(t, x.sizes))


def view_cases(family):
    each = lambda *args, **kwargs: everywhere(family, *args, **kwargs)
    each("set", "copy", lambda n: "set %a", lambda t, n: t.clone())
    each("segment_set", "copy", lambda n: "segment_set %a", lambda t, n: t.clone(), dtypes=["f32", "i64"])
    for name, dims in [("back", (2, 1, 0)), ("turn", (1, 2, 0)), ("same", (0, 1, 2))]:
        each(
            "permute",
            name,
            lambda n, d=dims: f"permute %a dims({', '.join(map(str, d))})",
            lambda t, n, d=dims: t.permute(d),
        )
    for name, flags in [("outer", (1, 0, 0, 0)), ("inner", (0, 0, 0, 1)), ("both", (1, 0, 0, 1, 0))]:

        def unsqueezed(t, n, flags=flags):
            for axis, flag in enumerate(flags):
                t = t.unsqueeze(axis) if flag else t
            return t

        text = ", ".join("true" if f else "false" for f in flags)
        each(
            "broadcast",
            name,
            lambda n, text=text: f"broadcast %a flags({text})",
            unsqueezed,
            dtypes=["f32", "i8", "c64", "bool"],
        )
    for name, axes in [("first", [0]), ("last", [2]), ("two", [0, 2])]:
        sizes = [1 if axis in axes else 3 for axis in range(3)]

        def squeezed(t, n, axes=axes):
            return t.squeeze(axes)

        each(
            "squeeze",
            name,
            lambda n, axes=axes: f"squeeze %a dims({', '.join(map(str, axes))})",
            squeezed,
            sizes,
            ("empty", "empty_inner") if name != "last" else ("empty_inner",) if axes != [0] else (),
            lambda n, axes=axes: [1 if axis in axes else "?" for axis in range(3)],
            ["f32", "i16", "f64"],
        )
    for name, own, to in [
        ("outer", [1, 3], [5, 3]),
        ("inner", [4, 1], [4, 6]),
        ("both", [1, 1], [2, 3]),
        ("keep", [1, 3], [4, -1]),
        ("none", [1, 3], [1, 0]),
    ]:
        if name == "none":
            own, to = [0, 1], [0, 4]
        each(
            "expand",
            name,
            lambda n, to=to: f"expand [{', '.join(map(str, to))}] %a",
            lambda t, n, to=to: t.expand(to),
            own,
            ("empty", "empty_inner", "one", "thin") if name != "none" else ("empty_inner", "one", "thin"),
            lambda n, own=own: [1 if m == 1 else "?" for m in own],
            ["f32", "f16", "u8"],
        )
    for name, own, to, dims in [
        ("rows", [3], [2, 3], [1]),
        ("columns", [2], [2, 3], [0]),
        ("middle", [2, 4], [2, 3, 4], [0, 2]),
    ]:

        def placed(t, n, to=to, dims=dims):
            for axis in range(len(to)):
                t = t if axis in dims else t.unsqueeze(axis)
            return t.expand(to)

        text = f"[{', '.join(map(str, to))}] %a dims({', '.join(map(str, dims))})"
        each(
            "broadcast_in_dim",
            name,
            lambda n, text=text: f"broadcast_in_dim {text}",
            placed,
            own,
            ("empty", "empty_inner", "one", "thin"),
            None,
            ["f32", "i64"],
        )
    for dim in (0, 1, -1):
        each(
            "unsqueeze",
            f"at{dim}",
            lambda n, d=dim: f"unsqueeze %a dim({d})",
            lambda t, n, d=dim: t.unsqueeze(d),
            dtypes=["f32", "i16", "f8e4m3fn"],
        )
    for a, b in [(0, 1), (0, -1), (1, 2)]:
        text = f"transpose %a dim0({a}) dim1({b})"
        each(
            "transpose",
            f"{a}with{b}",
            lambda n, t=text: t,
            lambda t, n, a=a, b=b: t.transpose(a, b),
            dtypes=["f32", "i64", "bool"],
        )
    x = In("f32", [3, 5], [1, 4], 2)
    move(family, "transpose/f32/matrix", [x], "transpose %a", lambda t: t.t())
    for name, own, strides in [("rows", [1, 3], [9, 2]), ("columns", [4, 1], None)]:
        for dtype in ALL:
            x, other = In(dtype, own, strides, 1, decl=[1 if m == 1 else "?" for m in own]), In("i32", [4, 3])
            move(family, f"expand_as/{dtype}/{name}", [x, other], "expand_as %a, %b", lambda t, o: t.expand_as(o))
    for dtype, to in [
        ("f32", "i32"),
        ("i32", "f32"),
        ("f64", "i64"),
        ("bf16", "i16"),
        ("f16", "u16"),
        ("u8", "f8e5m2"),
        ("f8e4m3fn", "i8"),
        ("u32", "f32"),
        ("u64", "i64"),
        ("i64", "f64"),
        ("i8", "u8"),
        ("f8e5m2", "u8"),
        ("f8e8m0fnu", "u8"),
        ("i16", "bf16"),
        ("u16", "f16"),
        ("c64", "f64"),
        ("bool", "u8"),
    ]:
        for layout, x in tensors(dtype, [2, 3, 4], "special", 3):
            if layout in FEW:
                family.case(f"bitcast/{dtype}-{to}/{layout}", [x], f"bitcast %a {to}", x.t.view(TYPES[to][0]))
    for dtype in COMPLEX:
        for layout, x in tensors(dtype, [2, 3, 4], "special", 3):
            if layout in FEW:
                family.case(f"view_as_real/{dtype}/{layout}", [x], "view_as_real %a", torch.view_as_real(x.t))
    for name, order in [("rows", (2, 1, 0)), ("columns", (0, 1, 2)), ("turn", (1, 2, 0))]:

        def ordered(t, n, order=order):
            axes = sorted(range(3), key=lambda axis: -order[axis])
            inverse = [axes.index(axis) for axis in range(3)]
            return t.permute(axes).clone(memory_format=torch.contiguous_format).permute(inverse)

        text = ", ".join(map(str, order))
        each(
            "stride_order",
            name,
            lambda n, text=text: f"stride_order %a order({text})",
            ordered,
            dtypes=["f32", "bf16", "i32"],
        )


def reshape_cases(family):
    shapes = {
        "flat": lambda n: [n[0] * n[1] * n[2]],
        "merge_outer": lambda n: [n[0] * n[1], n[2]],
        "merge_inner": lambda n: [n[0], n[1] * n[2]],
        "swap": lambda n: [n[2], n[1], n[0]],
        "split": lambda n: [n[0], n[1], 2, n[2] // 2] if n[2] % 2 == 0 else [n[0], n[1], 1, n[2]],
        "ones": lambda n: [1, n[0], 1, n[1], n[2], 1],
        "same": lambda n: list(n),
    }
    for name, to in shapes.items():
        everywhere(
            family,
            "reshape",
            name,
            lambda n, to=to: f"reshape [{', '.join(map(str, to(n)))}] %a",
            lambda t, n, to=to: t.reshape(to(n)),
            dtypes=["f32", "i8", "c128"] if name != "merge_outer" else ALL,
        )
    everywhere(
        family, "reshape", "inferred", lambda n: "reshape [-1] %a", lambda t, n: t.reshape(-1), dtypes=["f32", "bool"]
    )
    for name, start, end in [("all", 0, -1), ("outer", 0, 1), ("inner", 1, 2), ("one", 1, 1)]:
        text = f"flatten %a start({start}) end({end})"
        everywhere(
            family,
            "flatten",
            name,
            lambda n, t=text: t,
            lambda t, n, s=start, e=end: t.flatten(s, e) if s != e else t.clone(),
            dtypes=["f32", "i64"],
        )
    for name, counts in [("rows", (2, 1, 1)), ("all", (2, 3, 2)), ("none", (1, 1, 1))]:
        text = f"repeat %a counts({', '.join(map(str, counts))})"
        everywhere(
            family,
            "repeat",
            name,
            lambda n, t=text: t,
            lambda t, n, c=counts: t.repeat(c),
            dtypes=["f32", "i32", "f8e5m2"],
        )


def resize_cases(family):
    cuts = {
        "inner": ([0, 1, 1], [9, 3, 3]),
        "negative": ([-1, 0, -3], [9, -1, 9]),
        "nothing": ([0, 2, 0], [9, 2, 9]),
        "all": ([0, 0, 0], [9, 9, 9]),
        "clamped": ([-9, 1, 0], [99, 99, -1]),
    }
    for name, (starts, ends) in cuts.items():
        text = f"slice %a starts({', '.join(map(str, starts))}) ends({', '.join(map(str, ends))})"
        fn = lambda t, n, s=starts, e=ends: t[tuple(slice(*two) for two in zip(s, e))]
        everywhere(
            family, "slice", name, lambda n, t=text: t, fn, dtypes=ALL if name == "inner" else ["f32", "u8", "c64"]
        )
    # Positions that are arguments.
    x = In("f32", [5, 6], [7, 1], 2)
    move(
        family,
        "slice/f32/arguments",
        [x, Num("i64", 1), Num("i64", -2)],
        "slice %a starts(%b, 0) ends(4, %c)",
        lambda t, s, e: t[s:4, 0:e],
    )

    widths = {"inner": [1, 2], "outer": [0, 0, 1, 0, 2, 1], "cut": [-1, 0, 1, -1], "none": [0, 0], "grow_cut": [2, -1]}
    for name, width in widths.items():
        for value in [None, 1]:
            text = f"pad %a{'' if value is None else f', {value}'} widths({', '.join(map(str, width))})"
            fn = lambda t, n, w=width, v=value: F.pad(t, w, value=v or 0)
            types = ALL if name == "inner" and value is None else ["f32", "i32"]
            only = ALL if value is None else [dtype for dtype in ALL if dtype in NATIVE or dtype in INTS]
            skip = ["empty_inner", "one", "thin", "empty"] if name in ("cut", "grow_cut") else []
            everywhere(
                family, "pad", f"{name}{value or ''}", lambda n, t=text: t, fn, skip=skip, dtypes=types, only=only
            )
    image = In("f32", [2, 3, 4, 5], [60, 1, 15, 3])
    move(family, "pad/f32/channels_last", [image], "pad %a widths(1, 1)", lambda t: F.pad(t, [1, 1]))

    for dtype in ALL:
        for dim in (0, 1, -1):
            for name, layout in [("dense", [0, 1, 2]), ("permuted", [2, 1, 0])]:
                sizes = [[2, 3, 4], [2, 3, 4], [2, 3, 4]]
                for i, own in enumerate(sizes):
                    own[dim] += i
                inputs = [In(dtype, n, strided(n, layout), i, seed=i) for i, n in enumerate(sizes)]
                if name == "permuted" and dtype not in ("f32", "i64"):
                    continue
                move(
                    family,
                    f"cat/{dtype}/{name}{dim}",
                    inputs,
                    f"cat %a, %b, %c dim({dim})",
                    lambda *t, d=dim: torch.cat(t, d),
                )
    for name, own in [("empty", [[0, 3], [2, 3]]), ("all_empty", [[0, 3], [0, 3]]), ("one", [[1, 1], [1, 1]])]:
        inputs = [In("f32", n, seed=i) for i, n in enumerate(own)]
        move(family, f"cat/f32/{name}", inputs, "cat %a, %b dim(0)", lambda *t: torch.cat(t, 0))
    images = [In("f32", [2, c, 4, 5], strided([2, c, 4, 5], [0, 2, 3, 1]), seed=c) for c in (2, 3)]
    move(family, "cat/f32/channels_last", images, "cat %a, %b dim(1)", lambda *t: torch.cat(t, 1))
    images[1] = In("f32", [2, 3, 4, 5], seed=3)
    move(family, "cat/f32/mixed_formats", images, "cat %a, %b dim(1)", lambda *t: torch.cat(t, 1))
    single = In("f32", [2, 3], [1, 2])
    move(family, "cat/f32/single", [single], "cat %a dim(0)", lambda t: torch.cat([t], 0))

    for op, fn in {"triu": torch.triu, "tril": torch.tril}.items():
        for diagonal in (0, 1, -1, 5, -5):
            text = f"{op} %a diagonal({diagonal})"
            types = ALL if diagonal == 0 else ["f32", "i64", "bool"]
            everywhere(
                family, op, f"at{diagonal}", lambda n, t=text: t, lambda t, n, f=fn, d=diagonal: f(t, d), dtypes=types
            )


def index_cases(family):
    for dtype in ALL:
        full = dtype in ("f32", "i64")
        for layout, x in tensors(dtype, [4, 3, 5], "special", 3):
            if 0 in x.sizes or (not full and layout not in ("dense", "permuted_gaps", "all_expanded")):
                continue
            for dim in (0, 1, -1) if full else (1,):
                last = x.sizes[dim] - 1
                for at in sorted({0, last, -1}):
                    move(
                        family,
                        f"select/{dtype}/{layout}{dim}at{at}",
                        [x],
                        f"select %a, {at} dim({dim})",
                        lambda t, d=dim, i=at: t.select(d, i),
                    )
                index = In("i64", [4], [2], 1, f"below:{last + 1}", 9)
                name = f"index_select/{dtype}/{layout}{dim}"
                move(
                    family,
                    name,
                    [x, index],
                    f"index_select %a, %b dim({dim})",
                    lambda t, i, d=dim: t.index_select(d, i),
                )
                # Fewer positions than x has on the other axes.
                shape = [max(1, n - 1) for n in x.sizes]
                shape[dim] = 6
                index = In("i64", shape, strided(shape, [2, 0, 1]), 0, f"below:{last + 1}", 9)
                name = f"gather/{dtype}/{layout}{dim}"
                move(family, name, [x, index], f"gather %a, %b dim({dim})", lambda t, i, d=dim: t.gather(d, i))
                shape = list(x.sizes)
                shape[dim] = 2
                index = In("i64", shape, None, 0, f"below:{last + 1}", 9)
                name = f"take_along_axis/{dtype}/{layout}{dim}"
                move(
                    family,
                    name,
                    [x, index],
                    f"take_along_axis %a, %b dim({dim})",
                    lambda t, i, d=dim: torch.take_along_dim(t, i, d),
                )
                # Every position at most once.
                order = (
                    [j * 2 % n for n in [x.sizes[dim]] for j in range(n)]
                    if x.sizes[dim] % 2
                    else list(range(x.sizes[dim]))[::-1]
                )
                shape = list(x.sizes)
                permuted = strided(shape, [a for a in range(3) if a != dim % 3] + [dim % 3])
                index = In("i64", shape, permuted, 0, "list:" + ",".join(map(str, order)))
                source = In(dtype, [n + 1 for n in shape], None, 0, "special", 21)
                name = f"scatter/{dtype}/{layout}{dim}"
                body = f"scatter %a, %b, %c dim({dim})"
                move(family, name, [x, index, source], body, lambda t, i, s, d=dim: t.contiguous().scatter(d, i, s))
    x, index = In("f32", [2, 6]), In("i32", [3], None, 0, "below:6", 4)
    move(family, "index_select/f32/i32", [x, index], "index_select %a, %b dim(1)", lambda t, i: t.index_select(1, i))
    index = In("i64", [], None, 0, "list:2")
    move(family, "index_select/f32/rank0", [x, index], "index_select %a, %b dim(1)", lambda t, i: t.index_select(1, i))
    index = In("i64", [0])
    move(family, "index_select/f32/empty", [x, index], "index_select %a, %b dim(1)", lambda t, i: t.index_select(1, i))
    move(family, "gather/f32/empty", [x, In("i64", [2, 0])], "gather %a, %b dim(1)", lambda t, i: t.gather(1, i))
    move(family, "select/f32/argument", [x, Num("i64", -2)], "select %a, %b dim(1)", lambda t, i: t.select(1, i))
    index = In("i64", [2, 2], None, 0, "list:1,0,5,3")
    move(family, "scatter/f32/scalar", [x, index], "scatter %a, %b, 7.5 dim(1)", lambda t, i: t.scatter(1, i, 7.5))
    column = In("i64", [1, 3], None, 0, "below:6", 4, [1, "?"])
    move(
        family,
        "take_along_axis/f32/broadcast",
        [x, column],
        "take_along_axis %a, %b dim(1)",
        lambda t, i: torch.take_along_dim(t, i, 1),
    )

    for dtype in FLOATS + SIGNED + ["u8"] + COMPLEX:
        for name, strides in [("dense", None), ("permuted", [1, 4])]:
            acc, index = In(dtype, [4, 3], strides, 0, "small", 1), In("i64", [5], None, 0, "list:0,3,-1,0,1")
            value = In(dtype, [5, 3], None, 0, "small", 2)
            result = torch.index_put(acc.t, (index.t,), value.t, accumulate=True)
            family.case(
                f"index_put_accumulate/{dtype}/{name}", [acc, index, value], "index_put_accumulate %a, %b, %c", result
            )
    for dtype in ["f32", "f16", "bf16", "f64"]:
        for name, shape in [("rank1", [5]), ("rank2", [2, 3]), ("empty", [0]), ("rank3", [1, 2, 2])]:
            ids, weight = In("i64", shape, None, 0, "below:7", 3), In(dtype, [7, 4], [1, 7], 0, "wide", 5)
            family.case(
                f"embedding_fwd/{dtype}/{name}", [ids, weight], "embedding_fwd %a, %b", F.embedding(ids.t, weight.t)
            )
    for dtype in ALL:
        if dtype not in ("f32", "f16", "bf16", "f64"):
            ids, weight = In("i64", [2, 3], None, 0, "below:7", 3), In(dtype, [7, 4], [1, 7], 0, "special", 5)
            result = back(F.embedding(ids.t, carrier(weight)) if dtype != "bool" else weight.t[ids.t], dtype)
            family.case(f"embedding_fwd/{dtype}/rank2", [ids, weight], "embedding_fwd %a, %b", result)
    ids, weight = In("i64", [2, 3], None, 0, "below:7", 3), In("f32", [7, 4], None, 0, "wide", 5)
    family.case("embedding_fwd/f32/padding", [ids, weight], "embedding_fwd %a, %b, 2", F.embedding(ids.t, weight.t, 2))


def factory_cases(family):
    values = {
        "f64": 1.1,
        "f32": 1.1,
        "f16": 1.1,
        "bf16": 1.1,
        "i64": -3,
        "i32": 3,
        "i16": -9,
        "i8": -1,
        "u8": 200,
        "bool": True,
    }
    for dtype, value in values.items():
        for name, shape in [("dense", [2, 3]), ("empty", [0, 3]), ("rank0", []), ("one", [1, 1])]:
            text = str(value).lower()
            family.case(
                f"full/{dtype}/{name}",
                [],
                f"full [{', '.join(map(str, shape))}] {text} {dtype}",
                torch.full(shape, value, dtype=TYPES[dtype][0]),
            )
    for dtype in ALL:
        x = In(dtype, [2, 5])
        family.case(
            f"size/{dtype}/axis", [x], ["%s = size %a axis(-1)", "%r = full [%s] 7 i64"], torch.full([x.t.size(-1)], 7)
        )
    x = In("f32", [2, 5])
    family.case(
        "size/f32/value",
        [x],
        ["%s = size %a axis(0)", "%r = full [3] %s i32"],
        torch.full([3], x.t.size(0), dtype=torch.int32),
    )
    for shape in ([2, 3, 4], [0, 3, 2], [1, 1, 1]):
        for axis in (0, 1, 2):
            like = [1, 1, 1]
            like[axis] = shape[axis]
            steps = torch.arange(shape[axis]).reshape(like).expand(shape).clone(memory_format=torch.contiguous_format)
            family.case(
                f"index/{shape[0]}{shape[1]}{shape[2]}/axis{axis}",
                [],
                f"index [{', '.join(map(str, shape))}] axis({axis})",
                steps,
            )


def families():
    made = []
    for name, cases in [
        ("views", view_cases),
        ("reshape", reshape_cases),
        ("resize", resize_cases),
        ("indexing", index_cases),
        ("factories", factory_cases),
    ]:
        made.append(Family(name))
        cases(made[-1])
    return made
