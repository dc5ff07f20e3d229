#; about: normalisation of channels over a batch and over one instance, in training, and the gradients
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1, -1], contiguity=[True, True, True], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float, is_cpu=False)
    tv2 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float, is_cpu=False)
    tv3 = fd.define_tensor(shape=[-1, -1, -1], contiguity=[True, True, True], dtype=DataType.Float, is_cpu=False)
    tv4, tv5, tv6 = fd.ops.batch_norm(tv0, tv1, tv2, None, None, momentum=0.100000, eps=1.00000e-05, training=True, channels_last=False)
    tv7, tv8, tv9 = fd.ops.instance_norm(tv0, tv1, tv2, None, None, momentum=0.100000, eps=1.00000e-05)
    tv10, tv11, tv12 = fd.ops.batch_norm_backward(tv0, tv3, tv1, None, None, tv5, tv6, eps=1.00000e-05, training=True)
    tv13, tv14, tv15 = fd.ops.instance_norm_backward(tv0, tv3, tv1, None, None, tv8, tv9, eps=1.00000e-05, training=True)
    fd.add_output(tv4)
    fd.add_output(tv7)
    fd.add_output(tv10)
    fd.add_output(tv11)
    fd.add_output(tv12)
    fd.add_output(tv13)
    fd.add_output(tv14)
    fd.add_output(tv15)

inputs = [
    torch.randn((3, 4, 10), dtype=torch.float32, device='cuda:0'),
    torch.randn(4, dtype=torch.float32, device='cuda:0'),
    torch.randn(4, dtype=torch.float32, device='cuda:0'),
    torch.randn((3, 4, 10), dtype=torch.float32, device='cuda:0'),
]
