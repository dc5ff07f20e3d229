"""PyTorch's own operations on a GPU against the expected values, for what it
only has there: attention, products of groups and of scaled 8-bit floats, and
scans that round at every step. Reports distances; writes no data.
"""

import math

import torch
import torch.nn.functional as F

from .data import In, ordinals
from .layouts import strided


def distance(name, actual, expected, share):
    """The largest difference relative to the largest expected magnitude."""
    actual, expected = actual.cpu().double(), expected.double()
    norm = expected[expected.isfinite()].abs().max()
    error = float(((actual - expected).abs()[expected.isfinite()] / norm).max())
    print(f"{name:40} off by {error:.2e} of the largest, at most {share:.0e}")
    return error <= share


def grouped():
    ends, good = [8, 8, 24], True
    offsets = torch.tensor(ends, dtype=torch.int32, device="cuda")
    spans = list(zip([0, *ends], ends))
    a, b = (
        In("bf16", [24, 16], table="wide", seed=1).t,
        In("bf16", [3, 16, 8], strided([3, 16, 8], [0, 2, 1]), 0, "wide", 2).t,
    )
    rows = torch.cat([a[s:e].double() @ b[i].double() for i, (s, e) in enumerate(spans)])
    good &= distance("grouped_mm rows", torch._grouped_mm(a.cuda(), b.cuda(), offs=offsets), rows, 5e-3)
    a, b = In("bf16", [3, 8, 16], table="wide", seed=1).t, In("bf16", [16, 24], [1, 16], 0, "wide", 2).t
    columns = torch.cat([a[i].double() @ b[:, s:e].double() for i, (s, e) in enumerate(spans)], 1)
    good &= distance("grouped_mm columns", torch._grouped_mm(a.cuda(), b.cuda(), offs=offsets), columns, 5e-3)
    a, b = In("bf16", [8, 24], table="wide", seed=1).t, In("bf16", [24, 8], [1, 24], 0, "wide", 2).t
    depths = torch.stack([a[:, s:e].double() @ b[s:e].double() for s, e in spans])
    good &= distance("grouped_mm depths", torch._grouped_mm(a.cuda(), b.cuda(), offs=offsets), depths, 5e-3)
    return good


def scaled():
    a, b, good = (
        In("f8e4m3fn", [16, 32], table="small", seed=1).t,
        In("f8e4m3fn", [32, 16], [1, 32], 0, "small", 2).t,
        True,
    )
    for name, left, right in [("one", [], []), ("rows", [16, 1], [1, 16])]:
        s, t = In("f32", left, table="positive", seed=3).t, In("f32", right, table="positive", seed=4).t
        exact = (a.double() * s.double()) @ (b.double() * t.double())
        actual = torch._scaled_mm(a.cuda(), b.cuda(), s.cuda(), t.cuda(), out_dtype=torch.bfloat16)
        good &= distance(f"scaled_mm {name}", actual, exact, 5e-3)
    return good


def scans():
    good = True
    for dtype in ("bf16", "f16"):
        x = In(dtype, [4, 40], table="wide", seed=3).t
        for name, fn, pair in [("cumsum", torch.cumsum, torch.add), ("cumprod", torch.cumprod, torch.mul)]:
            steps = list(x.double().unbind(1))
            for i in range(1, len(steps)):
                steps[i] = pair(steps[i - 1], steps[i]).to(x.dtype).double()
            stepwise, once = torch.stack(steps, 1).to(x.dtype), fn(x.double(), 1).to(x.dtype)
            actual = fn(x.cuda(), 1).cpu()
            far = [int((ordinals(actual) - ordinals(v)).abs().max()) for v in (stepwise, once)]
            print(f"{name} of {dtype}: {far[0]} units from rounding at every step, {far[1]} from rounding once")
    return good


def attention():
    good = True
    for length, keys in [(64, 64), (48, 80)]:
        q, k, v, dy = (
            In("bf16", [2, 3, n, 16], None, 0, "wide", i).t for i, n in enumerate([length, keys, keys, length])
        )
        for causal in (False, True):
            leaves = [t.double().clone().requires_grad_() for t in (q, k, v)]
            scores = leaves[0] @ leaves[1].transpose(-1, -2) / math.sqrt(16)
            if causal:
                # Aligned at the last row and key.
                keep = torch.ones(length, keys, dtype=torch.bool).tril(keys - length)
                scores = scores.masked_fill(~keep, -math.inf)
            out, log = torch.softmax(scores, -1) @ leaves[2], scores.logsumexp(-1)
            grads = torch.autograd.grad(out, leaves, dy.double())
            own = [t.cuda().clone().requires_grad_() for t in (q, k, v)]
            result = torch.ops.aten._scaled_dot_product_flash_attention(*own, 0.0, causal, False)
            name = f"attention {length}x{keys}{' causal' if causal else ''}"
            good &= distance(name, result[0].detach(), out.detach(), 2e-2)
            good &= distance(f"{name} logarithm", result[1].detach(), log.detach(), 1e-5)
            for which, actual, exact in zip("qkv", torch.autograd.grad(result[0], own, dy.cuda()), grads):
                good &= distance(f"{name} gradient of {which}", actual, exact, 3e-2)
    q, k, v = (In("bf16", [1, 1, 8, 16], None, 0, "wide", i).t.cuda() for i in range(3))
    mask = torch.ones(8, 8, dtype=torch.bool, device="cuda").tril(-1)
    out = F.scaled_dot_product_attention(q, k, v, mask)
    print(f"a row without keys is {out[0, 0, 0, :2].tolist()}")
    for name in ("_scaled_dot_product_efficient_attention", "_scaled_dot_product_attention_math"):
        try:
            bias = torch.zeros(1, 1, 8, 8, dtype=q.dtype, device="cuda").masked_fill(~mask, -math.inf)
            more = (True,) if "efficient" in name else ()
            result = getattr(torch.ops.aten, name)(q, k, v, bias, *more)
            print(
                f"{name}: row without keys {result[0][0, 0, 0, :2].tolist()}, its logarithm {result[1].flatten()[0].item()}"
            )
        except RuntimeError as error:
            print(f"{name}: {str(error).splitlines()[0]}")
    return good


def check():
    """Whether everything is close enough."""
    print(f"on {torch.cuda.get_device_name()}")
    results = []
    for part in (grouped, scaled, scans, attention):
        try:
            results.append(part())
        except RuntimeError as error:
            print(f"{part.__name__}: {error}")
            results.append(False)
    return all(results)
