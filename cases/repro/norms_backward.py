#; about: gradients of the normalisations over the last axis, from statistics that the forward pass keeps
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float, is_cpu=False)
    tv2 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv3, tv4, tv5 = fd.ops.layer_norm_forward(tv0, tv1)
    tv6, tv7, tv8 = fd.ops.layer_norm_backward(tv2, tv0, tv4, tv5, tv1)
    tv9, tv10 = fd.ops.rms_norm_forward(tv0, tv1)
    tv11, tv12 = fd.ops.rms_norm_backward(tv2, tv0, tv10, tv1)
    tv13, tv14 = fd.ops.thunder_rms_norm_backward(tv2, tv0, tv10, tv1)
    fd.add_output(tv6)
    fd.add_output(tv7)
    fd.add_output(tv8)
    fd.add_output(tv11)
    fd.add_output(tv12)
    fd.add_output(tv13)
    fd.add_output(tv14)

inputs = [
    torch.randn((5, 48), dtype=torch.float32, device='cuda:0'),
    torch.randn(48, dtype=torch.float32, device='cuda:0'),
    torch.randn((5, 48), dtype=torch.float32, device='cuda:0'),
]
