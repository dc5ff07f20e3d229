#; about: products of groups of rows, alone and with scales; results that are not asked for are None
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False)
    tv1 = fd.define_tensor(shape=[-1, -1, -1], contiguity=[True, True, True], dtype=DataType.BFloat16, is_cpu=False)
    tv2 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Int32, is_cpu=False)
    tv3 = fd.define_tensor(shape=[-1, 1], contiguity=[True, None], dtype=DataType.Float, is_cpu=False)
    tv4 = fd.define_tensor(shape=[-1, 1, -1], contiguity=[True, None, True], dtype=DataType.Float, is_cpu=False)
    tv5 = fd.ops.grouped_mm(tv0, tv1, tv2)
    tv6, _, _ = fd.ops.grouped_mm(tv0, tv1, tv2, tv3, tv4, dtype=DataType.Float)
    fd.add_output(tv5)
    fd.add_output(tv6)

inputs = [
    torch.randn((7, 8), dtype=torch.bfloat16, device='cuda:0'),
    torch.randn((3, 8, 5), dtype=torch.bfloat16, device='cuda:0'),
    torch.tensor([2, 2, 7], dtype=torch.int32, device='cuda:0'),
    torch.randn((7, 1), dtype=torch.float32, device='cuda:0'),
    torch.randn((3, 1, 5), dtype=torch.float32, device='cuda:0'),
]
