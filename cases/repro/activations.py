#; about: activations of the library and their gradients, which are formulas of other operations
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv2 = fd.ops.gelu(tv0)
    tv3 = fd.ops.gelu_tanh(tv0)
    tv4 = fd.ops.tanh_gelu(tv0)
    tv5 = fd.ops.fast_gelu(tv0)
    tv6 = fd.ops.leaky_relu(tv0, negative_slope=0.200000)
    tv7 = fd.ops.softplus(tv0)
    tv8 = fd.ops.gelu_backward(tv1, tv0)
    tv9 = fd.ops.tanh_gelu_backward(tv1, tv0)
    tv10 = fd.ops.tanh(tv0)
    tv11 = fd.ops.tanh_backward(tv1, tv10)
    fd.add_output(tv2)
    fd.add_output(tv3)
    fd.add_output(tv4)
    fd.add_output(tv5)
    fd.add_output(tv6)
    fd.add_output(tv7)
    fd.add_output(tv8)
    fd.add_output(tv9)
    fd.add_output(tv11)

inputs = [
    torch.randn((7, 26), dtype=torch.float32, device='cuda:0'),
    torch.randn((7, 26), dtype=torch.float32, device='cuda:0'),
]
