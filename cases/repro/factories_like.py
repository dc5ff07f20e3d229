#; about: tensors of one value, of steps and of random numbers, with sizes of their own and of other tensors
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    c0 = fd.ops.size(tv0, dim=0)
    tv1 = fd.ops.arange(0, 12, 2)
    tv2 = fd.ops.eye(c0, 5, dtype=DataType.Float)
    tv3 = fd.ops.zeros([c0, 2], dtype=DataType.Int)
    tv4 = fd.ops.ones([2, c0], dtype=DataType.Half)
    tv5 = fd.ops.full_like(tv0, fill_value=2.50000)
    tv6 = fd.ops.zeros_like(tv0)
    tv7 = fd.ops.ones_like(tv0)
    tv8 = fd.ops.rand([c0, 3], rng_seed=5, rng_offset=0, dtype=DataType.Float)
    tv9 = fd.ops.randn([c0, 3], rng_seed=5, rng_offset=3, dtype=DataType.Float)
    fd.add_output(tv1)
    fd.add_output(tv2)
    fd.add_output(tv3)
    fd.add_output(tv4)
    fd.add_output(tv5)
    fd.add_output(tv6)
    fd.add_output(tv7)
    fd.add_output(tv8)
    fd.add_output(tv9)

inputs = [torch.randn((4, 3), dtype=torch.float32, device='cuda:0')]
