#; about: rows of two experts in four bits, with scales of blocks in tiles of 128 by 4
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.define_tensor(shape=[-1, -1, -1], contiguity=[True, True, True], dtype=DataType.Float, is_cpu=False)
    tv2 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv3 = fd.define_tensor(shape=[-1, -1, -1], contiguity=[True, True, True], dtype=DataType.Float, is_cpu=False)
    tv4 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float, is_cpu=False)
    tv5 = fd.define_tensor(shape=[-1, 3], contiguity=[True, True], dtype=DataType.Int32, is_cpu=False)
    tv6 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Int32, is_cpu=False)
    tv7 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Int32, is_cpu=False)
    tv8 = fd.ops.cast(tv0, dtype=DataType.Float4_e2m1fn)
    tv9 = fd.ops.cast(tv1, dtype=DataType.Float4_e2m1fn)
    tv10 = fd.ops.permute(tv9, dims=[0, 2, 1])
    tv11 = fd.ops.cast(tv2, dtype=DataType.Float8_e4m3fn)
    tv12 = fd.ops.cast(tv3, dtype=DataType.Float8_e4m3fn)
    tv13 = fd.ops.cutlass_nvfp4_grouped_mm(tv8, tv10, tv11, tv12, tv4, tv5, tv6, tv7)
    fd.add_output(tv13)

inputs = [
    torch.randn((7, 64), dtype=torch.float32, device='cuda:0'),
    torch.randn((2, 3, 64), dtype=torch.float32, device='cuda:0'),
    torch.rand((256, 4), dtype=torch.float32, device='cuda:0'),
    torch.rand((2, 128, 4), dtype=torch.float32, device='cuda:0'),
    torch.tensor([0.5, 2.0], dtype=torch.float32, device='cuda:0'),
    torch.tensor([[4, 3, 64], [2, 3, 64]], dtype=torch.int32, device='cuda:0'),
    torch.tensor([3, 0], dtype=torch.int32, device='cuda:0'),
    torch.tensor([128, 0], dtype=torch.int32, device='cuda:0'),
]
