#; about: running sums, products and extremes along an axis that is not the last
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1, 1], contiguity=[True, True, None], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.ops.cumsum(tv0, dim=0)
    tv2 = fd.ops.cumprod(tv0, dim=0)
    tv3 = fd.ops.cummin(tv0, dim=1)
    tv4 = fd.ops.cummax(tv0, dim=1)
    fd.add_output(tv1)
    fd.add_output(tv2)
    fd.add_output(tv3)
    fd.add_output(tv4)

inputs = [torch.randn((12, 5, 1), dtype=torch.float32, device='cuda:0')]
