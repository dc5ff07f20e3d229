"""Matrix products, attention, scaled products, block quantisation.

Sums of products are f64 here, rounded once to the result's type.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F

from .data import COMPLEX, FLOATS, Family, In, Out, dense_strides, narrowed, to_f4
from .elementwise import torch_type, wide
from .layouts import stand_in, strided

SHAPES = {
    "matrix": ([3, 5], [5, 4]),
    "batch": ([2, 3, 5], [2, 5, 4]),
    "folded": ([2, 3, 5], [5, 4]),
    "right_batch": ([3, 5], [2, 5, 4]),
    "vector_right": ([3, 5], [5]),
    "vector_left": ([5], [5, 4]),
    "vectors": ([5], [5]),
    "batch_vector": ([2, 3, 5], [5]),
    "vector_batch": ([5], [2, 5, 4]),
    "no_k": ([3, 0], [0, 4]),
    "no_rows": ([0, 5], [5, 4]),
    "no_batch": ([0, 3, 5], [0, 5, 4]),
    "ones": ([1, 1], [1, 1]),
    "long": ([2, 300], [300, 2]),
}


def product_cases(family):
    for dtype in FLOATS + COMPLEX:
        table = "wide" if dtype in FLOATS else "small"
        for name, (left, right) in SHAPES.items():
            layouts = {"dense": (None, None)}
            if name in ("matrix", "batch"):
                back = lambda n: strided(n, list(range(len(n)))[::-1])
                gaps = lambda n: strided(n, list(range(len(n))), 2)
                layouts |= {"permuted": (back(left), back(right)), "gaps": (gaps(left), back(right))}
                layouts |= {"expanded": ([0] * len(left), dense_strides(right))}
            for layout, (sa, sb) in layouts.items():
                a, b = In(dtype, left, sa, 1, table, 1), In(dtype, right, sb, 0, table, 2)
                strides = torch.matmul(stand_in(a), stand_in(b)).stride()
                exact = torch.matmul(wide(a.t), wide(b.t)).to(torch_type(dtype))
                family.case(f"matmul/{dtype}/{name}-{layout}", [a, b], "matmul %a, %b", Out(exact, strides))
    a = In("f32", [2, 1, 3, 5], table="wide", seed=1, decl=["?", 1, "?", "?"])
    b = In("f32", [4, 5, 2], table="wide", seed=2)
    family.case("matmul/f32/broadcast", [a, b], "matmul %a, %b", torch.matmul(a.t.double(), b.t.double()).float())
    a, b = In("f32", [2, 3], table="list:1.0,inf,2.0"), In("f32", [3, 2], table="list:1.0,0.0,nan,2.0,-1.0")
    family.case("matmul/f32/special", [a, b], "matmul %a, %b", torch.matmul(a.t.double(), b.t.double()).float())
    for dtype in FLOATS + COMPLEX:
        table = "wide" if dtype in FLOATS else "small"
        for name, shape in [("matrix", [3, 5]), ("batch", [2, 3, 5]), ("vector", [5]), ("empty", [0, 5])]:
            x, w = In(dtype, shape, table=table, seed=1), In(dtype, [4, 5], [1, 4], 0, table, 2)
            bias = In(dtype, [4], table=table, seed=3)
            exact = F.linear(wide(x.t), wide(w.t))
            family.case(f"linear/{dtype}/{name}", [x, w], "linear %a, %b", exact.to(torch_type(dtype)))
            exact = F.linear(wide(x.t), wide(w.t), wide(bias.t))
            family.case(
                f"linear/{dtype}/{name}-bias", [x, w, bias], "linear %a, %b bias(%c)", exact.to(torch_type(dtype))
            )


def last_aligned(scores):
    """The keys that each row sees: those up to its own, the last row all."""
    rows, keys = scores.shape[-2:]
    return torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows)


def attention_cases(family):
    for dtype in FLOATS:
        to = torch_type(dtype)
        for name, (length, keys) in {"square": (5, 5), "wide": (3, 6), "one": (1, 1)}.items():
            for layout in ("dense", "heads_inside"):
                order = [0, 1, 2, 3] if layout == "dense" else [0, 2, 1, 3]

                def tensor(n, e, seed):
                    return In(dtype, [2, 3, n, e], strided([2, 3, n, e], order), 0, "wide", seed)

                q, k, v = tensor(length, 8, 1), tensor(keys, 8, 2), tensor(keys, 8, 3)
                tail = f"{dtype}/{name}-{layout}"

                def attend(text, scale=None, causal=False, bias=None, inputs=(), tail=tail, q=q, k=k, v=v):
                    s = scale or 1 / math.sqrt(8)
                    a, b, c = (x.t.double() for x in (q, k, v))
                    scores = a @ b.transpose(-1, -2) * s
                    if causal:
                        scores = scores.masked_fill(~last_aligned(scores), -math.inf)
                    scores = scores if bias is None else scores + bias
                    log = scores.logsumexp(-1)
                    # Rows without a key are 0, as in PyTorch's own attention.
                    out = torch.ops.aten._safe_softmax(scores, -1) @ c
                    axes = strided([2, 3, q.sizes[2], 8], order)
                    lines = [f"%o, %l, %s, %p = sdpfa_fwd %a, %b, %c{text}"]
                    family.case(
                        f"sdpfa_fwd/{tail}", [q, k, v, *inputs], lines, [Out(out.to(to), axes), log.float()], "%o, %l"
                    )

                attend("")
                attend(" scale(0.5)", scale=0.5, tail=tail + "-scale")
                if length <= keys:
                    attend(" is_causal(true)", causal=True, tail=tail + "-causal")
                bias = In(dtype, [2, 3, length, keys], table="wide", seed=4)
                attend(" bias(%d)", bias=bias.t.double(), inputs=[bias], tail=tail + "-bias")
                mask = In("bool", [2, 3, length, keys], table="list:1,1,0", seed=4)
                hidden = torch.zeros(mask.t.shape, dtype=torch.float64).masked_fill(~mask.t, -math.inf)
                attend(" mask(%d)", bias=hidden, inputs=[mask], tail=tail + "-mask")
                for causal in (False, True):
                    grad = In(dtype, [2, 3, length, 8], strided([2, 3, length, 8], order), 0, "wide", 5)
                    leaves = [x.t.double().clone().requires_grad_() for x in (q, k, v)]
                    scores = leaves[0] @ leaves[1].transpose(-1, -2) / math.sqrt(8)
                    if causal:
                        scores = scores.masked_fill(~last_aligned(scores), -math.inf)
                    out = torch.softmax(scores, -1) @ leaves[2]
                    grads = torch.autograd.grad(out, leaves, grad.t.double())
                    flag = str(causal).lower()
                    lines = [
                        f"%o, %l, %s, %p = sdpfa_fwd %a, %b, %c is_causal({flag})",
                        f"%dq, %dk, %dv = sdpfa_bwd %d, %a, %b, %c, %o, %l, 0.0, {flag}, %s, %p",
                    ]
                    outs = [Out(g.to(to), x.strides) for g, x in zip(grads, (q, k, v))]
                    family.case(f"sdpfa_bwd/{tail}-{flag}", [q, k, v, grad], lines, outs, "%dq, %dk, %dv")


def grouped_cases(family):
    for dtype in FLOATS:
        to = torch_type(dtype)
        ends = [8, 8, 24]
        offsets = In("i32", [3], table="list:" + ",".join(map(str, ends)))
        spans = list(zip([0, *ends], ends))
        a, b = In(dtype, [24, 16], table="wide", seed=1), In(
            dtype, [3, 16, 8], strided([3, 16, 8], [0, 2, 1]), 0, "wide", 2
        )
        x, y = a.t.double(), b.t.double()
        rows = torch.cat([x[s:e] @ y[i] for i, (s, e) in enumerate(spans)])
        family.case(f"grouped_mm/{dtype}/rows", [a, b, offsets], "grouped_mm %a, %b, %c", rows.to(to))
        a, b = In(dtype, [3, 8, 16], table="wide", seed=1), In(dtype, [16, 24], [1, 16], 0, "wide", 2)
        x, y = a.t.double(), b.t.double()
        columns = torch.cat([x[i] @ y[:, s:e] for i, (s, e) in enumerate(spans)], 1)
        family.case(f"grouped_mm/{dtype}/columns", [a, b, offsets], "grouped_mm %a, %b, %c", columns.to(to))
        a, b = In(dtype, [8, 24], table="wide", seed=1), In(dtype, [24, 8], [1, 24], 0, "wide", 2)
        x, y = a.t.double(), b.t.double()
        depths = torch.stack([x[:, s:e] @ y[s:e] for s, e in spans])
        family.case(f"grouped_mm/{dtype}/depths", [a, b, offsets], "grouped_mm %a, %b, %c", depths.to(to))
    for dtype in ["f8e4m3fn", "f8e5m2"]:
        a, b = In(dtype, [16, 32], table="small", seed=1), In(dtype, [32, 16], [1, 32], 0, "small", 2)
        x, y = a.t.double(), b.t.double()
        for name, left, right in [("one", [], []), ("rows", [16, 1], [1, 16])]:
            s, t = In("f32", left, table="positive", seed=3), In("f32", right, table="positive", seed=4)
            exact = (x * s.t.double()) @ (y * t.t.double())
            for out in ("bf16", "f32"):
                family.case(
                    f"scaled_mm/{dtype}/{name}-{out}",
                    [a, b, s, t],
                    f"scaled_mm %a, %b, %c, %d dtype({out})",
                    exact.to(torch_type(out)),
                )


# ---- block quantisation, by the definition of its kernels ----


def quantise(x, scale=None):
    """Blocks of 16 of the last axis: codes, and scales of f8e4m3fn."""
    x = x.float().numpy()
    blocks = x.reshape(*x.shape[:-1], -1, 16)
    largest = np.abs(blocks).max(-1)
    ratio = (largest / np.float32(6)).astype(np.float32)
    if scale is not None:
        ratio = ratio * np.float32(scale)
    ratio = np.minimum(ratio, np.float32(448))
    stored = torch.from_numpy(ratio).to(torch.float8_e4m3fn)
    rounded = stored.float().numpy()
    limit = np.finfo(np.float32).max
    with np.errstate(divide="ignore"):
        inverse = rounded if scale is None else rounded * (np.float32(1) / np.float32(scale))
        factor = np.minimum(np.float32(1) / inverse, limit)
    scaled = (blocks * factor[..., None]).astype(np.float32)
    return to_f4(torch.from_numpy(scaled)).reshape(x.shape), stored


def quantise_8(x):
    """Blocks of 32: f8e4m3fn and scales that are powers of two."""
    x = x.float().numpy()
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    ratio = np.abs(blocks).max(-1) * np.float32(1 / 448)
    with np.errstate(divide="ignore"):
        exponent = np.clip(np.ceil(np.log2(ratio.astype(np.float64))), -127, 127)
    code = (exponent + 127).astype(np.uint8)
    factor = np.where(code == 0, 1.0, 2.0**-exponent).astype(np.float32)
    values = np.clip(blocks * factor[..., None], -448, 448).reshape(x.shape)
    return torch.from_numpy(values).to(torch.float8_e4m3fn), torch.from_numpy(code)


def swizzled(scales):
    """Tiles of 128 rows and 4 columns, as tensor cores read them."""
    raw = scales.view(torch.uint8).numpy()
    rows, columns = (raw.shape[0] + 127) // 128 * 128, (raw.shape[1] + 3) // 4 * 4
    flat = np.zeros(rows * columns, dtype=np.uint8)
    for r in range(raw.shape[0]):
        for c in range(raw.shape[1]):
            place = r // 128 * 128 * columns + c // 4 * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4
            flat[place] = raw[r, c]
    return torch.from_numpy(flat.reshape(rows, columns))


def in_groups(matrix, starts, targets):
    """Rows of groups, each group swizzled from its own row of a buffer on."""
    raw = matrix.view(torch.uint8).numpy()
    rows, columns = raw.shape[0] + 127 * len(starts), (raw.shape[1] + 3) // 4 * 4
    flat = np.zeros(rows * columns, dtype=np.uint8)
    for g, (start, target) in enumerate(zip(starts, targets)):
        end = starts[g + 1] if g + 1 < len(starts) else raw.shape[0]
        part = swizzled(torch.from_numpy(raw[start:end].copy())).numpy().reshape(-1)
        # The padding of a last group may lie outside of the buffer.
        part = part[: max(0, flat.size - target * columns)]
        flat[target * columns : target * columns + part.size] = part
    return torch.from_numpy(flat.reshape(rows, columns))


def grouped_quantisation_cases(family):
    starts, targets = [0, 3, 5], [0, 128, 256]
    offsets = [In("i32", [3], table="list:" + ",".join(map(str, v))) for v in (starts, targets)]
    for columns in (4, 6):
        x = In("f8e4m3fn", [9, columns], table="small", seed=3)
        result = Out(in_groups(x.t, starts, targets), None, "f8e4m3fn")
        body = "preprocess_grouped_matmul_input_sf %a, %b, %c"
        family.case(f"preprocess_grouped_matmul_input_sf/f8e4m3fn/{columns}", [x, *offsets], body, result)
    for dtype in ("f32", "bf16", "f16"):
        x = In(dtype, [9, 80], table="wide", seed=3)
        codes, scales = quantise(x.t)
        outs = [Out(codes, None, "f4e2m1fn"), Out(in_groups(scales, starts, targets), None, "f8e4m3fn")]
        lines = ["%q, %s = nv_grouped_block_quantize %a, %b, %c"]
        family.case(f"nv_grouped_block_quantize/{dtype}/plain", [x, *offsets], lines, outs, "%q, %s")
    # Two groups of 2 and 3 rows; 128 columns, so that the scales fill tiles.
    a, b = In("f4e2m1fn", [5, 64], seed=1), In("f4e2m1fn", [2, 64, 128], [64 * 128, 1, 64], 0, "special", 2)
    scale1, scale2 = In("f8e4m3fn", [256, 4], table="positive", seed=3), In(
        "f8e4m3fn", [2, 128, 4], table="positive", seed=4
    )
    alpha = In("f32", [2], table="list:0.5,2.0")
    lists = [[2, 128, 64, 3, 128, 64], [0, 2], [0, 128]]
    tables = ["list:" + ",".join(map(str, v)) for v in lists]
    more = [In("i32", [2, 3], table=tables[0]), In("i32", [2], table=tables[1]), In("i32", [2], table=tables[2])]

    def unswizzled(flat, rows):
        raw = flat.reshape(-1)
        place = [[r // 128 * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c for c in range(4)] for r in range(rows)]
        return raw[torch.tensor(place)].repeat_interleave(16, 1)

    outs = []
    for i, (start, rows) in enumerate([(0, 2), (2, 3)]):
        left = a.t[start : start + rows].double() * unswizzled(scale1.t.double()[128 * i : 128 * i + 128], rows)
        right = b.t[i].double().t() * unswizzled(scale2.t.double()[i], 128)
        outs.append((left @ right.t()) * alpha.t.double()[i])
    inputs = [a, b, scale1, scale2, alpha, *more]
    names = ", ".join(f"%{n}" for n in "abcdefgh")
    for dtype in ("bf16", "f16"):
        body = f"cutlass_nvfp4_grouped_mm {names} dtype({dtype})"
        family.case(f"cutlass_nvfp4_grouped_mm/{dtype}/two", inputs, body, torch.cat(outs).to(torch_type(dtype)))
    # Casts of the type that PyTorch does not have.
    for to in ("f32", "f64", "bf16", "f8e4m3fn"):
        x = In("f4e2m1fn", [16], table="walk:special")
        family.case(f"cast/f4e2m1fn-{to}/values", [x], f"cast %a {to}", x.t.to(torch_type(to)))
    for dtype in FLOATS:
        x = In(dtype, [257], table="walk:wide", seed=3)
        family.case(f"cast/{dtype}-f4e2m1fn/values", [x], "cast %a f4e2m1fn", narrowed(x.t.double(), "f4e2m1fn"))


def quantisation_cases(family):
    grouped_quantisation_cases(family)
    for dtype in ["f32", "bf16", "f16"]:
        for name, sizes in [("matrix", [3, 64]), ("batch", [2, 2, 32]), ("permuted", [4, 32]), ("vector", [96])]:
            strides = [1, 4] if name == "permuted" else None
            for table in ("wide", "positive"):
                x = In(dtype, sizes, strides, 0, table, 5)
                tail = f"{dtype}/{name}-{table}"
                codes, scales = quantise(x.t.contiguous())
                outs = [Out(codes, None, "f4e2m1fn"), scales]
                family.case(f"nv_block_quantize/{tail}", [x], ["%q, %s = nv_block_quantize %a"], outs, "%q, %s")
                g = In("f32", [], table="list:37.5")
                codes, scales = quantise(x.t.contiguous(), 37.5)
                outs = [Out(codes, None, "f4e2m1fn"), scales]
                family.case(
                    f"nv_block_quantize/{tail}-global", [x, g], ["%q, %s = nv_block_quantize %a, %b"], outs, "%q, %s"
                )
                codes, scales = quantise_8(x.t.contiguous())
                outs = [codes, Out(scales, None, "f8e8m0fnu")]
                lines = ["%q, %s = nv_block_quantize %a block_size(32) dtype(f8e4m3fn)"]
                family.case(f"nv_block_quantize/{tail}-f8", [x], lines, outs, "%q, %s")
        x = In(dtype, [5, 96], table="wide", seed=6)
        codes, scales = quantise(x.t)
        outs = [Out(codes, None, "f4e2m1fn"), Out(swizzled(scales), None, "f8e4m3fn")]
        lines = ["%q, %s = nv_block_quantize %a swizzle_block_scales"]
        family.case(f"nv_block_quantize/{dtype}/swizzled", [x], lines, outs, "%q, %s")


# ---- random numbers, by the definition of the generator ----


def philox(seed, offset, count, words):
    """`count` rows of `words` 32-bit numbers: Philox 4x32-10, one block for
    each four."""
    per = 4 // words
    blocks = (count + per - 1) // per
    mask = np.uint64(0xFFFFFFFF)
    index = np.arange(blocks, dtype=np.uint64)
    c = [
        np.full(blocks, offset & 0xFFFFFFFF, np.uint64),
        np.full(blocks, offset >> 32, np.uint64),
        index & mask,
        index >> np.uint64(32),
    ]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        high, low = np.uint64(32), mask
        c = [(b >> high) ^ c[1] ^ np.uint64(k[0]), b & low, (a >> high) ^ c[3] ^ np.uint64(k[1]), a & low]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, 1).reshape(blocks * per, words)[:count]


def random_cases(family):
    f32 = np.float32
    for seed, offset in [(0, 0), (7, 3), (2**40 + 5, 2**33 + 1)]:
        for sizes in ([5], [3, 7], [0, 3], []):
            count = math.prod(sizes)
            text = f"[{', '.join(map(str, sizes))}]"
            tail = f"{seed}-{offset}-{'x'.join(map(str, sizes)) or 'rank0'}"
            unit = philox(seed, offset, count, 1)[:, 0].astype(f32) * f32(2**-32) + f32(2**-33)
            unit = np.where(unit == 1, f32(0), unit)
            for low, high in [(0.0, 1.0), (-2.0, 3.0)]:
                values = f32(low) + f32(high - low) * unit
                body = f"uniform {text} {low}, {high}, {seed}, {offset}"
                family.case(f"uniform/f32/{low}-{tail}", [], body, torch.from_numpy(values.astype(f32).reshape(sizes)))
            words = philox(seed, offset, count, 2).astype(np.uint64)
            z = words[:, 0] ^ (words[:, 1] << np.uint64(21))
            wide_unit = z.astype(np.float64) * 2.0**-53 + 2.0**-54
            wide_unit = np.where(wide_unit == 1, 0.0, wide_unit)
            values = torch.from_numpy((-2.0 + 5.0 * wide_unit).reshape(sizes))
            family.case(f"uniform/f64/{tail}", [], f"uniform {text} -2.0, 3.0, {seed}, {offset} dtype(f64)", values)
            if sizes:
                x = In("f32", sizes, table="wide")
                family.case(
                    f"rand_like/f32/{tail}",
                    [x],
                    f"rand_like %a, {seed}, {offset}",
                    torch.from_numpy(unit.astype(f32).reshape(sizes)),
                )
            pairs = philox(seed, offset, (count + 3) // 4 * 4, 1)[:, 0].reshape(-1, 2, 2).astype(f32) * f32(
                2**-32
            ) + f32(2**-33)
            pairs = np.where(pairs == 1, f32(0), pairs).astype(np.float64)
            radius, angle = np.sqrt(-2 * np.log(pairs[..., 0])), pairs[..., 1] * np.float64(f32(6.2831855))
            normal = np.stack([radius * np.sin(angle), radius * np.cos(angle)], -1).reshape(-1)[:count].reshape(sizes)
            family.case(
                f"normal/f32/{tail}",
                [],
                f"normal {text} 0.0, 1.0, {seed}, {offset}",
                torch.from_numpy(np.asarray(normal)).float(),
            )
            family.case(
                f"normal/f32/{tail}-scaled",
                [],
                f"normal {text} 1.5, 2.0, {seed}, {offset}",
                Out(torch.from_numpy(np.asarray(normal * 2 + 1.5)).float(), dense_strides(sizes)),
            )
            family.case(
                f"rand/f32/{tail}",
                [],
                f"rand {text} {seed}, {offset}",
                torch.from_numpy(unit.astype(f32).reshape(sizes)),
            )
            family.case(
                f"randn/f32/{tail}", [], f"randn {text} {seed}, {offset}", torch.from_numpy(np.asarray(normal)).float()
            )
            if sizes:
                mask = torch.from_numpy(unit.astype(f32).reshape(sizes)) < 0.75
                kept = x.t * mask
                lines = [f"%r, %m = dropout %a, 0.25, {seed}, {offset}"]
                family.case(f"dropout/f32/{tail}", [x], lines, [kept * np.float32(1 / 0.75), mask], "%r, %m")
                family.case(
                    f"randn_like/f32/{tail}",
                    [x],
                    f"randn_like %a, {seed}, {offset}",
                    torch.from_numpy(np.asarray(normal)).float(),
                )


def families():
    made = []
    for name, cases in [
        ("products", product_cases),
        ("attention", attention_cases),
        ("grouped", grouped_cases),
        ("quantisation", quantisation_cases),
        ("random", random_cases),
    ]:
        made.append(Family(name))
        cases(made[-1])
    return made
