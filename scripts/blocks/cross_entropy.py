#; about: the mean over rows of the logarithm of the softmax at each label, whose logarithms are kept
def nvfuser_fusion(fd: FusionDefinition) -> None:
    x = fd.define_tensor(shape=[2048, 8192], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False)
    label = fd.define_tensor(shape=[2048], contiguity=[True], dtype=DataType.Int, is_cpu=False)
    xf = fd.ops.cast(x, dtype=DataType.Float)
    m = fd.ops.max(xf, dims=[1], keepdim=True)
    c = fd.ops.sub(xf, m)
    e = fd.ops.exp(c)
    s = fd.ops.sum(e, dims=[1], keepdim=True)
    l = fd.ops.log(s)
    y = fd.ops.sub(c, l)
    yo = fd.ops.cast(y, dtype=DataType.BFloat16)
    fd.add_output(yo)
    at = fd.ops.broadcast(label, [False, True])
    p = fd.ops.take_along_axis(y, at, dim=1)
    ps = fd.ops.sum(p, dims=[0, 1], keepdim=False)
    scale = fd.define_scalar(-0.00048828125, dtype=DataType.Double)
    loss = fd.ops.mul(ps, scale)
    fd.add_output(loss)


inputs = [
    torch.randn(16777216, dtype=torch.bfloat16, device="cuda:0").as_strided((2048, 8192), (8192, 1)),
    torch.randint(0, 8192, (2048,), dtype=torch.int64, device="cuda:0"),
]
