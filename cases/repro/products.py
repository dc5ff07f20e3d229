#; about: matrix products, one with a bias and one whose inner size is 1
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1, 1], contiguity=[True, None, True], dtype=DataType.Float, is_cpu=False, stride_order=[2, 0, 1])
    tv1 = fd.define_tensor(shape=[-1, 1, -1], contiguity=[True, None, True], dtype=DataType.Float, is_cpu=False)
    tv2 = fd.define_tensor(shape=[5, 6], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv3 = fd.define_tensor(shape=[4, 6], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv4 = fd.define_tensor(shape=[4], contiguity=[True], dtype=DataType.Float, is_cpu=False)
    tv5 = fd.ops.matmul(tv0, tv1)
    tv6 = fd.ops.linear(tv2, tv3, bias=tv4)
    fd.add_output(tv5)
    fd.add_output(tv6)

inputs = [
    torch.randn(14, dtype=torch.float32, device='cuda:0').as_strided((2, 7, 1), (7, 1, 7)),
    torch.randn((2, 1, 3), dtype=torch.float32, device='cuda:0'),
    torch.randn((5, 6), dtype=torch.float32, device='cuda:0'),
    torch.randn((4, 6), dtype=torch.float32, device='cuda:0'),
    torch.randn((4,), dtype=torch.float32, device='cuda:0'),
]
