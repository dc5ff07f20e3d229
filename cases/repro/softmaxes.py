#; about: softmax and its logarithm, forwards and backwards
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv2 = fd.ops.softmax(tv0, dim=1)
    tv3 = fd.ops.log_softmax(tv0, dim=-1)
    tv4 = fd.ops.softmax_backward(tv1, tv2, dim=1)
    tv5 = fd.ops.log_softmax_backward(tv1, tv3, dim=1)
    fd.add_output(tv2)
    fd.add_output(tv3)
    fd.add_output(tv4)
    fd.add_output(tv5)

inputs = [
    torch.randn((6, 37), dtype=torch.float32, device='cuda:0'),
    torch.randn((6, 37), dtype=torch.float32, device='cuda:0'),
]
