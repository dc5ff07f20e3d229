#; about: reading and writing at positions that are data
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Int, is_cpu=False)
    tv2 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Int, is_cpu=False)
    tv3 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    c0 = fd.define_scalar(None, dtype=DataType.Int)
    tv4 = fd.ops.broadcast(tv1, is_broadcast_dim=[False, True])
    tv5 = fd.ops.index_select(tv0, tv4, dim=0)
    tv6 = fd.ops.select(tv0, c0, dim=1)
    tv7 = fd.ops.gather(tv0, tv2, dim=0)
    tv8 = fd.ops.take_along_axis(tv0, tv2, dim=0)
    tv9 = fd.ops.scatter(tv0, tv2, tv3, dim=1)
    fd.add_output(tv5)
    fd.add_output(tv6)
    fd.add_output(tv7)
    fd.add_output(tv8)
    fd.add_output(tv9)

inputs = [
    torch.randn((5, 4), dtype=torch.float32, device='cuda:0'),
    torch.randint(0, 5, (3,), dtype=torch.int64, device='cuda:0'),
    torch.arange(0, 4, dtype=torch.int64, device='cuda:0').expand(5, 4).contiguous(),
    torch.randn((5, 4), dtype=torch.float32, device='cuda:0'),
    2,
]
