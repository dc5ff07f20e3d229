#; about: arithmetic on two floats, with scalars that are inputs and constants
import torch
from nvfuser_direct import FusionDefinition, DataType

ROWS = 7
COLUMNS = 4 * ROWS + 1

def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    c0 = fd.define_scalar(None, dtype=DataType.Double)
    c1 = fd.define_scalar(1.50000, dtype=DataType.Float)
    tv2 = fd.ops.add(tv0, tv1)
    tv3 = fd.ops.atan2(tv0, tv1)
    tv4 = fd.ops.div(tv0, tv1)
    tv5 = fd.ops.truediv(tv0, c0)
    tv6 = fd.ops.fmod(tv0, tv1)
    tv7 = fd.ops.mul(tv0, c0)
    tv8 = fd.ops.nextafter(tv0, tv1)
    tv9 = fd.ops.pow(tv1, c1)
    tv10 = fd.ops.remainder(tv0, tv1)
    tv11 = fd.ops.sub(tv0, tv1)
    tv12 = fd.ops.minimum(tv0, c0)
    tv13 = fd.ops.maximum(tv0, 0.250000)
    fd.add_output(tv2)
    fd.add_output(tv3)
    fd.add_output(tv4)
    fd.add_output(tv5)
    fd.add_output(tv6)
    fd.add_output(tv7)
    fd.add_output(tv8)
    fd.add_output(tv9)
    fd.add_output(tv10)
    fd.add_output(tv11)
    fd.add_output(tv12)
    fd.add_output(tv13)

with FusionDefinition() as fd:
    nvfuser_fusion(fd)

inputs = [
    torch.randn((ROWS, COLUMNS), dtype=torch.float32, device='cuda:0'),
    torch.testing.make_tensor((ROWS, COLUMNS), dtype=torch.float32, device='cuda:0', low=0.5, high=3),
    0.75,
]
fd.execute(inputs)
