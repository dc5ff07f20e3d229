#!/usr/bin/env python3
"""Computes expected results of the engine's operations with PyTorch on the CPU
and writes them where the engine's tests read them:

    python3 scripts/torch_oracle.py [--only FAMILY] [--out FOLDER]
    python3 scripts/torch_oracle.py --device    # compare a GPU's own operations

Needs PyTorch 2.11 and NumPy; the data needs no GPU, and no network. The test `oracle` of the
engine compares, and says so when these scripts changed since the data was made.
`scripts/oracle/data.py` documents the file; the other files there hold the
cases, one function for a family. To cover a new operation, add its cases there
and run this again.
"""

import argparse
import pathlib
import sys
import time

import torch

from oracle import device, drawn, elementwise, formulas, moves, ordered, products
from oracle.data import REPORT

# Distances in units in the last place at which PyTorch's own results of small
# floats are still taken to agree with the exact ones, by operation.
CLOSE = {
    # Small arguments give 0.
    ("erf", "bf16"): float("inf"),
}
DEFAULT_CLOSE = {"f32": 4, "f16": 1, "bf16": 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("--out", type=pathlib.Path, default=here.parent / "engine" / "tests" / "oracle")
    parser.add_argument("--only", help="write this family only")
    parser.add_argument("--device", action="store_true", help="compare what PyTorch only has on a GPU; write nothing")
    options = parser.parse_args()
    if options.device:
        sys.exit(0 if device.check() else 1)
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    start, total = time.time(), [0, 0, 0]
    for module in [elementwise, moves, formulas, ordered, products, drawn]:
        for family in module.families():
            if options.only in (None, family.name):
                counts = family.write(options.out)
                total = [a + b for a, b in zip(total, counts)]
                print(f"{family.name:12} {counts[0]:6} cases, {counts[1]:9} bytes of text, {counts[2]:8} packed")
    print(
        f"{'all':12} {total[0]:6} cases, {total[1]:9} bytes of text, {total[2]:8} packed, {time.time() - start:.1f} s"
    )
    far = [
        (op, dtype, worst)
        for (op, dtype), worst in sorted(REPORT.worst.items())
        if worst > CLOSE.get((op, dtype), DEFAULT_CLOSE[dtype])
    ]
    for op, dtype, worst in far:
        print(f"PyTorch's own {op} on {dtype} is {worst:g} units from the exact result", file=sys.stderr)
    wide = [(op, share) for op, share in sorted(REPORT.shares.items()) if share > 4e-6]
    for op, share in wide:
        print(
            f"PyTorch's own {op} on f32 is {share:.1e} of the largest magnitude from the exact result", file=sys.stderr
        )
    print(
        f"PyTorch's own results of {len(REPORT.worst) + len(REPORT.shares)} operations and types were compared as well"
    )
    sys.exit(1 if far or wide else 0)


if __name__ == "__main__":
    main()
