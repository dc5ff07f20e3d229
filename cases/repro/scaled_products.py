#; about: products of small floats whose blocks have scales
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False)
    tv1 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False)
    tv2 = fd.define_tensor(shape=[-1, 1], contiguity=[True, None], dtype=DataType.Float, is_cpu=False)
    tv3 = fd.define_tensor(shape=[1, -1], contiguity=[None, True], dtype=DataType.Float, is_cpu=False)
    tv4 = fd.ops.cast(tv0, dtype=DataType.Float8_e4m3fn)
    tv5 = fd.ops.cast(tv1, dtype=DataType.Float8_e4m3fn)
    tv6, _, _ = fd.ops.scaled_mm(tv4, tv5, tv2, tv3, dtype=DataType.BFloat16)
    fd.add_output(tv6)

inputs = [
    torch.randn((6, 32), dtype=torch.bfloat16, device='cuda:0'),
    torch.randn((32, 8), dtype=torch.bfloat16, device='cuda:0'),
    torch.rand((6, 1), dtype=torch.float32, device='cuda:0'),
    torch.rand((1, 8), dtype=torch.float32, device='cuda:0'),
]
