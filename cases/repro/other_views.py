#; about: views by other names, sums back to a smaller shape, and the bits and parts of numbers
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.define_tensor(shape=[1, -1], contiguity=[None, True], dtype=DataType.Float, is_cpu=False)
    tv2 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.ComplexFloat, is_cpu=False)
    c0 = fd.ops.size(tv0, dim=1)
    tv3 = fd.ops.unsqueeze(tv0, 1)
    tv4 = fd.ops.transpose(tv0, 0, 1)
    tv5 = fd.ops.expand_as(tv1, tv0)
    tv6 = fd.ops.sum_to(tv0, [1, c0])
    tv7 = fd.ops.view_as_real(tv2)
    tv8 = fd.ops.bitcast(tv0, DataType.Int32)
    fd.add_output(tv3)
    fd.add_output(tv4)
    fd.add_output(tv5)
    fd.add_output(tv6)
    fd.add_output(tv7)
    fd.add_output(tv8)

inputs = [
    torch.randn((4, 6), dtype=torch.float32, device='cuda:0'),
    torch.randn((1, 6), dtype=torch.float32, device='cuda:0'),
    torch.randn(5, dtype=torch.complex64, device='cuda:0'),
]
