#; about: a result written into the storage of an input that is not dense, and returned as well
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[2, 2], contiguity=[False, True], dtype=DataType.Float, is_cpu=False, stride_order=[0, 1])
    tv1 = fd.ops.gt(tv0, 0.00000)
    tv2 = fd.ops.where(tv1, tv0, 0.00000)
    tv3 = fd.ops.cast(tv2, dtype=DataType.Float)
    tv4 = fd.ops.stride_order(tv3, stride_order=[0, 1])
    fd.add_output(tv4, tv0)
    fd.add_output(tv4)

inputs = [torch.randn(5, dtype=torch.float32, device='cuda:0').as_strided((2, 2), (1, 3))]
