#; about: normalisation over the last axis, with and without the saved statistics
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float, is_cpu=False)
    tv2 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float, is_cpu=False)
    tv3 = fd.ops.rms_norm(tv0, tv1, eps=1.00000e-06)
    tv4, tv5 = fd.ops.rms_norm_forward(tv0, tv1)
    tv6 = fd.ops.layer_norm(tv0, tv1, tv2)
    tv7, tv8, tv9 = fd.ops.layer_norm_forward(tv0, tv1, tv2, eps=1.00000e-05)
    fd.add_output(tv3)
    fd.add_output(tv4)
    fd.add_output(tv5)
    fd.add_output(tv6)
    fd.add_output(tv7)
    fd.add_output(tv8)
    fd.add_output(tv9)

inputs = [
    torch.randn((5, 48), dtype=torch.float32, device='cuda:0'),
    torch.randn(48, dtype=torch.float32, device='cuda:0'),
    torch.randn(48, dtype=torch.float32, device='cuda:0'),
]
