"""Inputs that two languages make alike, and the file that carries the cases.

An input is a storage and a view of it (sizes, strides, offset). Storage element
j of an input is an entry of a table that belongs to its data type:

    walk     table[(seed + j) % len]
    hash     table[mix(seed, j) % len]

`mix` is the integer hash below. The tables stand in the file, as bytes, so the
reader needs nothing but the hash.

A file is text, one record a line, compressed with zlib:

    torch VERSION
    script HASH                          of these scripts, see `script_hash`
    table DTYPE NAME MODE HEX ...        little-endian bytes of each entry
    case ID
    ...                                  the fusion in the engine's text form
    tensor DTYPE TABLE SEED SIZES STRIDES OFFSET LENGTH
    scalar DTYPE HEX                     arguments, in order
    out DTYPE SIZES STRIDES HEX          results: elements in row-major order
    end
"""

import pathlib
import zlib

import numpy as np
import torch

HERE = pathlib.Path(__file__).resolve().parent

# name: (PyTorch's type, bytes, class, exponent bits, fraction bits)
TYPES = {
    "f64": (torch.float64, 8, "float", 11, 52),
    "f32": (torch.float32, 4, "float", 8, 23),
    "f16": (torch.float16, 2, "float", 5, 10),
    "bf16": (torch.bfloat16, 2, "float", 8, 7),
    "f8e4m3fn": (torch.float8_e4m3fn, 1, "float", 4, 3),
    "f8e5m2": (torch.float8_e5m2, 1, "float", 5, 2),
    "f8e8m0fnu": (torch.float8_e8m0fnu, 1, "float", 8, 0),
    # Codes in the low half of a byte; PyTorch has no type for them.
    "f4e2m1fn": (None, 1, "float", 2, 1),
    "i64": (torch.int64, 8, "int", 0, 0),
    "i32": (torch.int32, 4, "int", 0, 0),
    "i16": (torch.int16, 2, "int", 0, 0),
    "i8": (torch.int8, 1, "int", 0, 0),
    "u8": (torch.uint8, 1, "int", 0, 0),
    "u16": (torch.uint16, 2, "int", 0, 0),
    "u32": (torch.uint32, 4, "int", 0, 0),
    "u64": (torch.uint64, 8, "int", 0, 0),
    "bool": (torch.bool, 1, "bool", 0, 0),
    "c64": (torch.complex64, 8, "complex", 8, 23),
    "c128": (torch.complex128, 16, "complex", 11, 52),
}
NAMES = {row[0]: name for name, row in TYPES.items()}
FLOATS = ["f64", "f32", "f16", "bf16"]
SMALL = ["f8e4m3fn", "f8e5m2", "f8e8m0fnu", "f4e2m1fn"]
SIGNED = ["i64", "i32", "i16", "i8"]
UNSIGNED = ["u8", "u16", "u32", "u64"]
INTS = SIGNED + UNSIGNED
COMPLEX = ["c64", "c128"]
# Types on which PyTorch's own operators work.
NATIVE = set(FLOATS + SIGNED + ["u8", "bool"] + COMPLEX)

MASK = (1 << 64) - 1


def mix(seed, j):
    """A 64-bit hash of a seed and an array of positions (splitmix64's finaliser)."""
    x = np.asarray(j, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = x + np.uint64((seed * 0xD1342543DE82EF95 + 0x632BE59BD9B4E019) & MASK)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def script_hash():
    """FNV-1a of the generating scripts, by name."""
    state = 0xCBF29CE484222325
    for path in [HERE.parent / "torch_oracle.py"] + sorted(HERE.glob("*.py")):
        for byte in path.read_bytes():
            state = ((state ^ byte) * 0x100000001B3) & MASK
    return f"{state:016x}"


def kind(dtype):
    return TYPES[dtype][2]


def part(dtype):
    """The type of a complex number's parts."""
    return {"c64": "f32", "c128": "f64"}.get(dtype, dtype)


F4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
F4_VALUES = torch.cat([F4, -F4])


def to_f4(values):
    """Codes of the nearest values, ties to even codes, beyond 6 to 6."""
    distance = (values.double().abs().unsqueeze(-1) - F4).abs()
    # Of two at the same distance, the one with an even code is preferred.
    order = distance * 4 + torch.tensor([0.0, 1.0] * 4) * 1e-9
    code = torch.where(values.abs() > 6, 7, order.argmin(-1))
    return (code + 8 * torch.signbit(values)).to(torch.uint8)


def narrowed(values, dtype):
    """Numbers rounded to a type, and the type's name where PyTorch has none."""
    if dtype == "f4e2m1fn":
        return Out(to_f4(values), None, dtype)
    return Out(values.to(TYPES[dtype][0]), None, dtype)


def encode(dtype, values):
    """Little-endian bytes of each number, each rounded to the type."""
    torch_type, width, of, *_ = TYPES[dtype]
    if dtype == "f4e2m1fn":
        return [bytes([int(code)]) for code in to_f4(torch.tensor([float(v) for v in values]))]
    if of == "int":
        bits = 8 * width
        return [(int(v) & ((1 << bits) - 1)).to_bytes(width, "little") for v in values]
    if of == "complex":
        tensor = torch.tensor([complex(v) for v in values], dtype=torch.complex128).to(torch_type)
    else:
        tensor = torch.tensor([float(v) for v in values], dtype=torch.float64).to(torch_type)
    raw = to_bytes(tensor)
    return [raw[i : i + width] for i in range(0, len(raw), width)]


def to_bytes(tensor):
    """The elements in row-major order."""
    dense = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).reshape(-1)
    return dense.view(torch.uint8).numpy().tobytes() if dense.numel() else b""


# ---- tables ----


def float_patterns(exponent_bits, fraction_bits):
    """Bit patterns of a binary format: zeros, subnormals, neighbours of powers
    of two, the largest, infinity and NaN (where the format has them)."""
    top = (1 << exponent_bits) - 1
    one = ((1 << (exponent_bits - 1)) - 1) << fraction_bits
    full = (1 << fraction_bits) - 1
    two, half = one + (1 << fraction_bits), one - (1 << fraction_bits)
    step = 1 << fraction_bits
    # The first 24 are those that operations of two operands try in all pairs.
    positive = [0, 1, step, half, one - 1, one, one + 1, two, two + step // 2, (top << fraction_bits) - 1]
    positive += [top << fraction_bits, (top << fraction_bits) + step // 2]
    positive += [3, full, step + 1, half + 1, one + step // 2, two + step // 4]
    sign = 1 << (exponent_bits + fraction_bits)
    return [p | s for p in positive for s in (0, sign)]


# Places where functions change their ways: overflow of exp and sinh, argument
# reduction, ends of domains, roots, ties of rounding.
PLACES = [0.1, 0.3, 0.7, 0.9, 1.1, 1.4616321, 2.5, 3.5, 3.1415927, 1.5707964, 6.25, 9.0, 10.0, 20.5, 33.3, 87.5, 88.9]
PLACES += [103.5, 127.5, 150.25, 709.5, 745.0, 1000.5, 12345.678, 3e5, 1e-3, 1e-5, 1e-8, 0.5000001, 0.9999, 1e20, 1e-20]


def special(dtype):
    """The entries of a type that its operations are most likely to get wrong."""
    torch_type, width, of, exponent, fraction = TYPES[dtype]
    if dtype in SMALL:
        return [bytes([i]) for i in range(16 if dtype == "f4e2m1fn" else 256)]
    if of == "float":
        entries = [p.to_bytes(width, "little") for p in float_patterns(exponent, fraction)]
        entries += encode(dtype, [s * v for v in PLACES for s in (1, -1)])
        rows = mix(len(dtype), np.arange(28))
        entries += encode(dtype, [((int(r) >> 20) % 4001 - 2000) / 64 * 2.0 ** (int(r) % 11 - 6) for r in rows])
        return entries
    if of == "int":
        bits, low = 8 * width, -(1 << (8 * width - 1)) if dtype in SIGNED else 0
        high = low + (1 << bits) - 1
        values = [low, low + 1, high, high - 1, high // 2, high // 2 + 1, 0, 1, 2, 3, 4, 5, 7, 8, 10, 12, 18, 31, 32]
        values += [33, 63, 64, 100, 127, high // 3, high // 7, 48, 36, 97, 6]
        if low:
            values += [-1, -2, -3, -4, -5, -7, -8, -10, -12, -31, -32, -64, -100, low // 3, low // 2, -48, -36, -97]
        return encode(dtype, values)
    if of == "bool":
        return [b"\0", b"\1"]
    real = [0.0, 1.0, -1.0, 0.5, -2.0, 3.25, 1e-3, -0.75, 10.5, -7.0]
    return encode(dtype, [complex(a, b) for a in real for b in real])


def small(dtype):
    """Modest numbers that most types hold exactly."""
    of = kind(dtype)
    if of == "int":
        return encode(dtype, range(-6, 7) if dtype in SIGNED else range(13))
    if of == "bool":
        return [b"\0", b"\1"]
    if of == "complex":
        return encode(dtype, [complex(a / 4, b / 4) for a in range(-8, 9, 3) for b in range(-9, 9, 4)])
    if dtype == "f8e8m0fnu":
        return encode(dtype, [2.0**e for e in range(-4, 5)])
    return encode(dtype, [v / 4 for v in range(-14, 15)])


class Tables:
    """The tables that inputs use, by type and name."""

    def __init__(self):
        self.rows = {}

    def get(self, dtype, name):
        """A table by name: `special` and `small` in both modes, `below:N`
        (integers from 0), `unit` (0 to 1), `list:a,b,c` (walked)."""
        key = (dtype, name)
        if key not in self.rows:
            self.rows[key] = self.make(dtype, name)
        return self.rows[key]

    def make(self, dtype, name):
        word, _, rest = name.partition(":")
        if word == "walk":
            return "walk", self.entries(dtype, rest)
        if word == "list":
            numbers = [
                complex(v) if "j" in v else float(v) if "." in v or "n" in v else int(v) for v in rest.split(",")
            ]
            return "walk", encode(dtype, numbers)
        return "hash", self.entries(dtype, name)

    def entries(self, dtype, name):
        word, _, rest = name.partition(":")
        match word:
            case "special":
                return special(dtype)
            case "small":
                return small(dtype)
            case "below":
                return encode(dtype, range(int(rest)))
            case "between":
                low, high = map(int, rest.split(","))
                return encode(dtype, range(low, high + 1))
            case "unit":
                return encode(dtype, [i / 32 for i in range(1, 32)])
            case "positive":
                return encode(dtype, [i / 8 for i in range(1, 60)])
            case "nonzero":
                return [e for e in special(dtype) if any(e) and e != encode(dtype, [-1])[0]]
            case "wide":
                numbers = [(i * 37 % 251 - 125) / 32 for i in range(251)]
                return encode(dtype, map(abs, numbers) if dtype in UNSIGNED + ["f8e8m0fnu"] else numbers)
            case "normal":
                kept = torch.frombuffer(bytearray(b"".join(special(dtype))), dtype=TYPES[dtype][0])
                least = torch.finfo(kept.dtype).smallest_normal
                return [e for e, v in zip(special(dtype), kept) if not 0 < abs(v) < least]
            case "into":
                # Numbers that an integer type can hold.
                low, high = (-(2.0 ** log2_limit(rest)) if rest in SIGNED else -1.0), 2.0 ** log2_limit(rest)
                entries = special(dtype) + encode(dtype, [low / 2, low + 1, high / 2, high - 1, -0.5, 0.99, 254.5])
                numbers = (
                    torch.frombuffer(bytearray(b"".join(entries)), dtype=TYPES[dtype][0]).to(torch.complex128).real
                )
                inside = [(low - (rest in SIGNED) < float(v) < high) for v in numbers]
                return [e for e, good in zip(entries, inside) if good]
            case "distinct":
                first = 0 if dtype in UNSIGNED else -125
                return encode(dtype, [i * 97 % 251 + first for i in range(251)])
        raise ValueError(f"no table {name}")


TABLES = Tables()


class In:
    """A tensor argument."""

    def __init__(self, dtype, sizes, strides=None, offset=0, table="special", seed=0, decl=None):
        self.dtype, self.sizes, self.table, self.seed, self.offset = dtype, list(sizes), table, seed, offset
        self.strides = list(strides) if strides is not None else dense_strides(sizes)
        span = 0 if 0 in sizes else 1 + sum((n - 1) * s for n, s in zip(self.sizes, self.strides))
        self.length = self.offset + span
        self.decl = decl or ["?"] * len(self.sizes)
        mode, entries = TABLES.get(dtype, table)
        places = np.arange(self.length, dtype=np.uint64)
        picks = (places + np.uint64(seed)) % np.uint64(len(entries))
        if mode == "hash":
            picks = mix(seed, places) % np.uint64(len(entries))
        raw = np.frombuffer(b"".join(entries), dtype=np.uint8).reshape(len(entries), -1)[picks.astype(np.int64)]
        # The elements; of f4e2m1fn their values in `t`, their codes in `codes`.
        torch_type = TYPES[dtype][0] or torch.uint8
        storage = (
            torch.frombuffer(bytearray(raw.tobytes()), dtype=torch_type)
            if self.length
            else torch.empty(0, dtype=torch_type)
        )
        self.t = self.codes = storage.as_strided(self.sizes, self.strides, self.offset)
        if dtype == "f4e2m1fn":
            self.t = F4_VALUES[storage.long()].float().as_strided(self.sizes, self.strides, self.offset)

    def declaration(self, name):
        return f"%{name}: {self.dtype}[{', '.join(map(str, self.decl))}]"

    def record(self):
        return f"tensor {self.dtype} {self.table} {self.seed} {ints(self.sizes)} {ints(self.strides)} {self.offset} {self.length}"


class Num:
    """A scalar argument."""

    def __init__(self, dtype, value):
        self.dtype, self.value = dtype, value

    @property
    def t(self):
        return self.value

    def declaration(self, name):
        return f"%{name}: {self.dtype}"

    def record(self):
        return f"scalar {self.dtype} {encode(self.dtype, [self.value])[0].hex()}"


def ints(values):
    return "[" + ",".join(str(int(v)) for v in values) + "]"


def dense_strides(sizes):
    strides, step = [], 1
    for n in reversed(sizes):
        strides.append(step)
        step *= max(n, 1)
    return strides[::-1]


class Family:
    """The cases of one file."""

    def __init__(self, name):
        self.name, self.lines, self.used, self.ids = name, [], {}, set()

    def case(self, ident, inputs, body, outs, result=None):
        """One case. `body` is the operation, or lines that define `result`;
        inputs are %a, %b, ... in order."""
        assert ident not in self.ids, f"{ident} occurs twice"
        self.ids.add(ident)
        names = "abcdefghijkl"
        lines = [f"%r = {body}"] if isinstance(body, str) else body
        returned = result or "%r"
        params = ", ".join(x.declaration(n) for x, n in zip(inputs, names))
        self.lines.append(f"case {ident}")
        self.lines += [f"fusion @f({params}) {{", *(f"  {line}" for line in lines), f"  return {returned}", "}"]
        for x in inputs:
            self.lines.append(x.record())
            if isinstance(x, In):
                self.used[(x.dtype, x.table)] = TABLES.get(x.dtype, x.table)
        for out in outs if isinstance(outs, (list, tuple)) else [outs]:
            self.lines.append(out_record(out))
        self.lines.append("end")

    def write(self, folder):
        head = [f"torch {torch.__version__}", f"script {script_hash()}"]
        for (dtype, name), (mode, entries) in sorted(self.used.items()):
            head.append(f"table {dtype} {name} {mode} {' '.join(e.hex() for e in entries)}")
        text = "\n".join(head + self.lines) + "\n"
        packed = zlib.compress(text.encode(), 9)
        (folder / f"{self.name}.z").write_bytes(packed)
        return len(self.ids), len(text), len(packed)


class Out:
    """A result whose strides are said apart from its values."""

    def __init__(self, values, strides=None, dtype=None):
        self.values = values
        self.strides = list(strides) if strides is not None else list(values.stride())
        self.dtype = dtype or NAMES[values.dtype]


def out_record(out):
    out = out if isinstance(out, Out) else Out(out)
    return f"out {out.dtype} {ints(out.values.shape)} {ints(out.strides)} {to_bytes(out.values).hex()}"


# ---- closeness of PyTorch's own results ----


def ordinals(tensor):
    """Floats as integers of the same order, neighbours one apart."""
    signed = {8: torch.int64, 4: torch.int32, 2: torch.int16}[tensor.element_size()]
    bits = tensor.contiguous().view(signed).to(torch.int64)
    least = -(1 << 63) if tensor.element_size() == 8 else -(1 << (8 * tensor.element_size() - 1))
    return torch.where(bits < 0, least - bits, bits)


def ulps(actual, expected):
    """The largest distance in units in the last place; infinite where only one
    is NaN or infinite."""
    if actual.numel() == 0:
        return 0.0
    nan = actual.isnan() & expected.isnan()
    same = nan | (actual == expected)
    wrong = ~same & ~(actual.isfinite() & expected.isfinite())
    # The last finite number is one place from infinity.
    distance = (ordinals(actual) - ordinals(expected)).abs()
    distance[same] = 0
    distance[wrong & (distance > 4)] = 1 << 40
    return float(distance.max())


class Report:
    """PyTorch's own results that are further from the exact ones than allowed."""

    def __init__(self):
        self.worst = {}
        # The same relative to the largest magnitude, of formulas.
        self.shares = {}

    def near(self, op, native, exact):
        """Notes the distance of a native result from the exact values. Where
        those are close to overflow or underflow, PyTorch's vector functions give
        infinity and zero."""
        if not native.is_floating_point() or native.dtype == torch.float64:
            return
        limit = torch.finfo(native.dtype)
        inner = (exact.abs() < limit.max / 4) & (exact.abs() > limit.smallest_normal * 2**20) | ~exact.isfinite()
        key = (op, NAMES[native.dtype])
        self.worst[key] = max(self.worst.get(key, 0), ulps(native[inner], exact[inner].to(native.dtype)))

    def share(self, op, fn, *tensors):
        """The exact values of a function of floats; notes how far PyTorch's own
        of f32 are from them, relative to the largest magnitude."""
        exact = fn(*(t.double() for t in tensors))
        if all(t.dtype == torch.float32 for t in tensors) and exact.numel():
            native = fn(*tensors).double()
            inner = exact.isfinite()
            if inner.any():
                error = (native - exact)[inner].abs().max() / exact[inner].abs().max().clamp(min=1e-30)
                self.shares[op] = max(self.shares.get(op, 0), float(error))
        return exact


REPORT = Report()


def log2_limit(dtype):
    """Floats below 2^this convert to the integer type."""
    bits = 8 * TYPES[dtype][1]
    return bits - 1 if dtype in SIGNED else bits
