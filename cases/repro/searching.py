#; about: the greatest of a row and the order of a row, k being an input
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Int32, is_cpu=False)
    c2 = fd.define_scalar(None, dtype=DataType.Int)
    tv1, tv2 = fd.ops.topk(tv0, c2, dim=1, sorted=True)
    tv3, _ = fd.ops.topk(tv0, 2, dim=-1, largest=False, sorted=True)
    tv4 = fd.ops.argsort(tv0, dim=0, descending=True, stable=True)
    fd.add_output(tv1)
    fd.add_output(tv2)
    fd.add_output(tv3)
    fd.add_output(tv4)

inputs = [torch.randint(-50, 50, (4, 20), dtype=torch.int32, device='cuda:0'), 5]
