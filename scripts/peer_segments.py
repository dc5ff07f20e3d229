#!/usr/bin/env python3
"""Sets the segments that we cut ten blocks into beside those of nvFuser: how many there are, who schedules each, which
tensors pass between them, and how many bytes all of them read and write.

    python3 scripts/peer_segments.py                             # ours; needs target/debug/harness, no GPU
    python3 scripts/peer_segments.py --save ours.json            # ours, kept for a machine that has no harness
    python3 scripts/peer_segments.py --nvfuser DIR [--ours ours.json]   # both; on a machine with a GPU, PyTorch and nvFuser

DIR is the unpacked wheel of nvFuser, or `-` where `nvfuser_direct` is installed. The blocks are the files in
`scripts/blocks`: definitions in nvFuser's form, which both read as they are, so both are asked for the same. Each block of
nvFuser is run in a process of its own: one that fails costs its row. Sizes are fixed in the definitions; elements count
once for each segment that reads or writes them, and views count nothing.
"""

import argparse
import ctypes
import glob
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCKS = sorted((ROOT / "scripts" / "blocks").glob("*.py"))
OUR_BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "bool": 1}
THEIR_BYTES = {
    "double": 8, "float": 4, "__half": 2, "__bfloat": 2, "int64_t": 8, "int": 4, "nvfuser_index_t": 8,
    "int16_t": 2, "int8_t": 1, "uint8_t": 1, "bool": 1,
}
# Schedulers whose segments launch nothing.
NO_KERNEL = {"no_op", "expr_eval"}
MINUTES = 10


def tensor(name, kind, sizes, table):
    """A tensor as it is shown, and its bytes, if its type and sizes are known."""
    count = table.get(kind)
    for size in sizes:
        count = None if count is None or size is None else count * size
    shown = ", ".join("?" if size is None else str(size) for size in sizes)
    return {"name": name, "type": f"{kind}[{shown}]", "bytes": count}


# ---- ours ----


def ours(block, harness):
    command = [harness, "show", "--cases", block, f"Repro.{block.stem}", "--stage", "segments,program"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60 * MINUTES)
    if run.returncode != 0:
        return {"error": (run.stderr or run.stdout).strip()}
    return read_ours(run.stdout)


def read_ours(text):
    """From the stages `segments` and `program`."""
    schedulers = {int(n): kind for n, kind in re.findall(r"^segment (\d+): (?:kernel )?(\w+)", text, re.M)}
    values = {}
    for value, name, kind, sizes in re.findall(r"^  (v\d+) `(%\w+)` (\w+)\[([\d, ]*)\] strides", text, re.M):
        values[value] = tensor(name, kind, [int(size) for size in sizes.split(",") if size.strip()], OUR_BYTES)
    steps, crossing, written = [], [], {}
    for head, body in re.findall(r"^step \d+: (.*)\n((?:  .*\n)+)", text, re.M):
        reads, writes = (re.findall(r"(v\d+) `", line) for line in body.splitlines()[:2])
        crossing += [value for value in reads if value in written and value not in crossing]
        of = re.match(r"segment (\d+)", head)
        steps.append({"scheduler": schedulers[int(of[1])] if of else "copy", "bytes": total(values, reads + writes)})
        written.update(dict.fromkeys(writes) if of else {})
    return {"segments": steps, "between": [values[value] for value in crossing]}


def total(values, names):
    counts = [values[name]["bytes"] for name in dict.fromkeys(names)]
    return None if None in counts else sum(counts)


# ---- nvFuser's ----


def theirs(block, folder):
    """Of a process that defines the block and runs it twice: once for the dump, once for the profile."""
    with tempfile.TemporaryDirectory() as scratch:
        answer = pathlib.Path(scratch) / "profile.json"
        command = [sys.executable, __file__, "--child", str(block), "--nvfuser", folder, "--save", str(answer)]
        try:
            run = subprocess.run(
                command, capture_output=True, text=True, timeout=60 * MINUTES,
                env={**os.environ, "NVFUSER_DUMP": "segmented_fusion"},
            )
        except subprocess.TimeoutExpired:
            return {"error": f"no answer in {MINUTES} minutes"}
        made = read_theirs(run.stdout)
        if run.returncode != 0 or not made["segments"]:
            said = (run.stderr or run.stdout).strip().splitlines()
            return {"error": f"code {run.returncode}: " + (" / ".join(said[-3:]) or "it printed no segments")}
        made["profile"] = json.loads(answer.read_text())
        return made


def child(block, folder, answer):
    nvfuser = load_nvfuser(folder)
    import torch

    names = {"torch": torch, "DataType": nvfuser.DataType, "FusionDefinition": nvfuser.FusionDefinition}
    exec(compile(block.read_text(), str(block), "exec"), names)
    with nvfuser.FusionDefinition() as definition:
        names["nvfuser_fusion"](definition)
    definition.execute(names["inputs"])
    torch.cuda.synchronize()
    sys.stdout.flush()
    profile = {}
    try:
        with nvfuser.PythonProfiler() as profiler:
            definition.execute(names["inputs"])
        kernels = [(k.segment_id, k.scheduler, k.input_bytes, k.output_bytes) for k in profiler.profile.kernel_profiles]
        profile = {"segments": profiler.profile.segments, "kernels": kernels}
    except Exception as error:  # The profile needs CUPTI; what is compared does not.
        profile = {"error": f"{type(error).__name__}: {error}"}
    answer.write_text(json.dumps(profile))


def load_nvfuser(folder):
    """`nvfuser_direct`, from an unpacked wheel that was built for a PyTorch nearly like this one."""
    if folder != "-":
        import torch

        site = pathlib.Path(torch.__file__).resolve().parent.parent
        link_nvrtc(folder, site)
        shim = os.path.join(folder, "nvf_shim.so")
        if os.path.exists(shim):
            ctypes.CDLL(shim, mode=ctypes.RTLD_GLOBAL)
        sys.path.insert(0, folder)
    import nvfuser_direct

    return nvfuser_direct


def link_nvrtc(folder, site):
    """Puts this machine's run-time compiler where a wheel without its own looks for it."""
    libraries = glob.glob(os.path.join(folder, "nvfuser_cu*.libs"))
    code = os.path.join(folder, "nvfuser_common", "lib", "libnvfuser_codegen.so")
    if not libraries or not os.path.exists(code):
        return
    wanted = re.search(rb"libnvrtc-[0-9a-f]+\.so[.0-9]*", pathlib.Path(code).read_bytes())
    places = [f"{site}/nvidia/**/libnvrtc.so.1*", "/usr/local/cuda*/**/libnvrtc.so.1*"]
    known = [path for place in places for path in sorted(glob.glob(place, recursive=True))]
    if wanted is None or not known:
        return
    target = os.path.join(libraries[0], wanted[0].decode())
    if not os.path.exists(target):
        if os.path.islink(target):
            os.unlink(target)
        os.symlink(os.path.realpath(known[0]), target)
    for path in glob.glob(os.path.join(os.path.dirname(os.path.realpath(known[0])), "libnvrtc-builtins.so.1*")):
        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue


def read_theirs(text):
    """From the dump of segments: a group has its scheduler, then a list of inputs, then one of outputs."""
    groups, known = [], {}
    for kind, inputs, outputs in re.findall(
        r"^g\{\s*(?:\((\w+)\))?[^\n]*\n(?:group id[^\n]*\n)?inputs:[^\n]*\n(.*?)^outputs:[^\n]*\n(.*?)^\s*$", text, re.M | re.S
    ):
        sides = [[their_tensor(line) for line in side.splitlines()] for side in (inputs, outputs)]
        reads, writes = ([one for one in side if one] for side in sides)
        known.update({one["name"]: one for one in reads + writes})
        groups.append((kind or "none", [one["name"] for one in reads], [one["name"] for one in writes]))
    segments = [
        {"scheduler": kind, "bytes": 0 if kind in NO_KERNEL else total(known, reads + writes)}
        for kind, reads, writes in groups
    ]
    read = {name for _, reads, _ in groups for name in reads}
    between = [known[name] for _, _, writes in groups for name in writes if name in read]
    return {"segments": segments, "between": between}


def their_tensor(line):
    """Of a line such as `T7_g_float[iS10{2048}, rS11{4096}] float`: reduced axes are none, broadcast ones have one element."""
    found = re.match(r"\s*(T\d+)_[a-z]+_(\w+)\[(.*?)\]", line)
    if found is None:
        return None
    sizes = []
    for axis, size in re.findall(r"([a-zA-Z]+)\d+\{(.*?)\}", found[3]):
        if not axis.startswith("r"):
            sizes.append(1 if axis.startswith("b") else int(size) if size.isdecimal() else None)
    return tensor(found[1], found[2], sizes, THEIR_BYTES)


# ---- both ----


def amount(count):
    if count is None:
        return "? B"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def moved(made):
    counts = [segment["bytes"] for segment in made["segments"]]
    return None if None in counts else sum(counts)


def tell(who, made):
    if "error" in made:
        print(f"  {who}: failed: {made['error']}")
        return
    kinds = ", ".join(segment["scheduler"] for segment in made["segments"])
    print(f"  {who}: {len(made['segments'])} ({kinds}), {amount(moved(made))} read and written")
    for one in made["between"]:
        print(f"    between: {one['name']} {one['type']} {amount(one['bytes'])}")
    profile = made.get("profile", {})
    for segment, scheduler, read, written in profile.get("kernels", []):
        print(f"    profiled: segment {segment}, {scheduler}, {amount(read)} read, {amount(written)} written")
    if "error" in profile:
        print(f"    not profiled: {profile['error']}")


def table(rows):
    print(f"\n{'block':22} {'ours':>5} {'bytes':>10} {'nvFuser':>8} {'bytes':>10} {'ours / nvFuser':>15}")
    for block, mine, other in rows:
        cells = []
        for made in (mine, other):
            good = made is not None and "error" not in made
            cells += [str(len(made["segments"])) if good else "-", moved(made) if good else None]
        share = f"{cells[1] / cells[3]:.2f}" if cells[1] and cells[3] else "-"
        shown = [amount(count) if count is not None else "-" for count in (cells[1], cells[3])]
        print(f"{block:22} {cells[0]:>5} {shown[0]:>10} {cells[2]:>8} {shown[1]:>10} {share:>15}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--harness", default=str(ROOT / "target" / "debug" / "harness"), help="the built harness")
    parser.add_argument("--nvfuser", metavar="DIR", help="nvFuser's unpacked wheel, - if it is installed")
    parser.add_argument("--ours", type=pathlib.Path, metavar="FILE", help="what --save wrote, where there is no harness")
    parser.add_argument("--save", type=pathlib.Path, metavar="FILE", help="write ours there")
    parser.add_argument("--child", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.nvfuser, options.save)
        return 0
    kept = json.loads(options.ours.read_text()) if options.ours else {}
    rows = []
    for block in BLOCKS:
        print(f"{block.stem}: {block.read_text().splitlines()[0].removeprefix('#; about: ')}")
        mine = kept.get(block.stem) or ours(block, options.harness)
        tell("ours", mine)
        other = theirs(block, options.nvfuser) if options.nvfuser else None
        if other:
            tell("nvFuser", other)
        rows.append((block.stem, mine, other))
        sys.stdout.flush()
    table(rows)
    if options.save:
        options.save.write_text(json.dumps({block: mine for block, mine, _ in rows}, indent=1) + "\n")
    return 1 if any("error" in made for row in rows for made in row[1:] if made) else 0


if __name__ == "__main__":
    sys.exit(main())
