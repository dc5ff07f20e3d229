#; about: sums, products and extremes over one axis and over all, of floats and of truth values
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.ops.sum(tv0, dims=[1], dtype=DataType.Float)
    tv2 = fd.ops.prod(tv0, dims=[1], dtype=DataType.Float)
    tv3 = fd.ops.max(tv0, dims=[1])
    tv4 = fd.ops.min(tv0, dims=[1])
    fd.add_output(tv1)
    fd.add_output(tv2)
    fd.add_output(tv3)
    fd.add_output(tv4)

inputs = [torch.testing.make_tensor((11, 70), dtype=torch.float32, device='cuda:0', low=0.9, high=1.1)]
