#; about: complex numbers from parts, and their parts
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.ComplexFloat, is_cpu=False)
    tv1 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float, is_cpu=False)
    tv2 = fd.ops.real(tv0)
    tv3 = fd.ops.imag(tv0)
    tv4 = fd.ops.complex(tv1, tv3)
    tv5 = fd.ops.mul(tv4, 0.00000+-1.00000j)
    c6 = fd.define_scalar((1+2j), dtype=DataType.ComplexDouble)
    tv6 = fd.ops.add(tv5, c6)
    fd.add_output(tv2)
    fd.add_output(tv6)

inputs = [
    torch.randn(10, dtype=torch.complex64, device='cuda:0'),
    torch.randn(10, dtype=torch.float32, device='cuda:0'),
]
