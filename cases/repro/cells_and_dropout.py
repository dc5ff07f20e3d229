#; about: one step of a recurrent cell, and dropout with its mask kept for the gradient
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    c0 = fd.define_scalar(None, dtype=DataType.Double)
    tv2 = fd.ops.add_alpha(tv0, tv1, c0)
    tv3 = fd.ops.sub_alpha(tv0, tv1, 0.250000)
    tv4, tv5 = fd.ops.lstm(tv0, tv1, tv2, tv3, tv1)
    tv6, tv7 = fd.ops.dropout(tv4, 0.300000, 11, 0)
    tv8 = fd.ops.dropout_backward(tv5, tv7, 1.50000)
    fd.add_output(tv4)
    fd.add_output(tv5)
    fd.add_output(tv6)
    fd.add_output(tv7)
    fd.add_output(tv8)

inputs = [
    torch.randn((4, 12), dtype=torch.float32, device='cuda:0'),
    torch.randn((4, 12), dtype=torch.float32, device='cuda:0'),
    -0.5,
]
