#; about: operations on three operands, tensors and scalars mixed
def nvfuser_fusion_id4(fd: FusionDefinition) -> None:
    T0 = fd.define_tensor(
        shape=[-1, -1],
        contiguity=[True, True],
        dtype=DataType.Float,
        is_cpu=False,
        stride_order=[1, 0],
    )
    T1 = fd.define_tensor(
        shape=[-1, -1],
        contiguity=[True, True],
        dtype=DataType.Float,
        is_cpu=False,
        stride_order=[1, 0],
    )
    S2 = fd.define_scalar(None, dtype=DataType.Double)
    S3 = fd.define_scalar(-0.500000, dtype=DataType.Double)
    S4 = fd.define_scalar(0.500000, dtype=DataType.Double)
    T5 = fd.ops.gt(T0, T1)
    T6 = fd.ops.where(T5, T0, S2)
    T7 = fd.ops.clamp(T0, S3, S4)
    T8 = fd.ops.lerp(T0, T1, S2)
    T9 = fd.ops.threshold(T0, S3, S4)
    T10 = fd.ops.addcmul(T0, T1, T8, S2)
    fd.add_output(T6)
    fd.add_output(T7)
    fd.add_output(T9)
    fd.add_output(T10)


with FusionDefinition() as fd:
    nvfuser_fusion_id4(fd)

inputs = [
    torch.randn(96, dtype=torch.float32, device="cuda:0").as_strided((8, 12), (12, 1)),
    torch.randn((8, 12), dtype=torch.float32, device="cuda:0"),
    0.3,
]
fd.execute(inputs)
