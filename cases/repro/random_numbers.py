#; about: random tensors of a given seed and offset
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    c0 = fd.ops.size(tv0, dim=0)
    tv1 = fd.ops.uniform(0.00000, 1.00000, [c0, 4], rng_seed=7, rng_offset=0)
    tv2 = fd.ops.normal(1.00000, 0.500000, [c0, 4], rng_seed=7, rng_offset=4, dtype=DataType.Double)
    tv3 = fd.ops.rand_like(tv0, 7, 8)
    tv4 = fd.ops.randn_like(tv0, 7, 12)
    fd.add_output(tv1)
    fd.add_output(tv2)
    fd.add_output(tv3)
    fd.add_output(tv4)

inputs = [torch.randn((3, 4), dtype=torch.float32, device='cuda:0')]
