#; about: rows of a table by their numbers, and adding to rows
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Int, is_cpu=False)
    tv1 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv2 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Int, is_cpu=False)
    tv3 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv4 = fd.ops.embedding_fwd(tv0, tv1, norm_type=2.00000, scale_grad_by_freq=False, sparse=False)
    tv5 = fd.ops.index_put_accumulate(tv1, tv2, tv3)
    fd.add_output(tv4)
    fd.add_output(tv5)

inputs = [
    torch.randint(0, 10, (2, 6), dtype=torch.int64, device='cuda:0'),
    torch.randn((10, 8), dtype=torch.float32, device='cuda:0'),
    torch.randint(0, 10, (4,), dtype=torch.int64, device='cuda:0'),
    torch.randn((4, 8), dtype=torch.float32, device='cuda:0'),
]
