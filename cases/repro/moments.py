#; about: means and variances, and the division of a sum by a size
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.ops.sum(tv0, dims=[1], dtype=DataType.Float)
    c1 = fd.ops.size(tv0, dim=1)
    c10 = fd.ops.cast(c1, dtype=DataType.Double)
    c12 = fd.ops.mul(1.00000, c10)
    tv3 = fd.ops.div(tv1, c12)
    tv4 = fd.ops.mean(tv0, dims=[1])
    tv5 = fd.ops.var(tv0, dims=[1], correction=1, keepdim=False)
    tv6 = fd.ops.std(tv0, dims=[1])
    tv7, tv8 = fd.ops.var_mean(tv0, dims=[1], correction=0, keepdim=True)
    fd.add_output(tv3)
    fd.add_output(tv4)
    fd.add_output(tv5)
    fd.add_output(tv6)
    fd.add_output(tv7)
    fd.add_output(tv8)

inputs = [torch.randn((9, 44), dtype=torch.float32, device='cuda:0')]
