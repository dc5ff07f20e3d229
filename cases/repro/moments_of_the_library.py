#; about: moments by the names of the C++ library
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.ops.variance(tv0, dims=[1], correction=1)
    tv2 = fd.ops.standard_deviation(tv0, dims=[1], correction=0)
    tv3, tv4 = fd.ops.variance_mean(tv0, dims=[1], correction=1, keepdim=True)
    fd.add_output(tv1)
    fd.add_output(tv2)
    fd.add_output(tv3)
    fd.add_output(tv4)

inputs = [torch.randn((9, 44), dtype=torch.float32, device='cuda:0')]
