#; about: a gate and what it opens, forward and backward
def nvfuser_fusion(fd: FusionDefinition) -> None:
    x = fd.define_tensor(shape=[2048, 4096], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False)
    v = fd.define_tensor(shape=[2048, 4096], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False)
    g = fd.define_tensor(shape=[2048, 4096], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False)
    xf = fd.ops.cast(x, dtype=DataType.Float)
    vf = fd.ops.cast(v, dtype=DataType.Float)
    gf = fd.ops.cast(g, dtype=DataType.Float)
    one = fd.define_scalar(1.0, dtype=DataType.Double)
    xn = fd.ops.neg(xf)
    xe = fd.ops.exp(xn)
    xp = fd.ops.add(xe, one)
    s = fd.ops.reciprocal(xp)
    a = fd.ops.mul(xf, s)
    y = fd.ops.mul(a, vf)
    yo = fd.ops.cast(y, dtype=DataType.BFloat16)
    fd.add_output(yo)
    dv = fd.ops.mul(gf, a)
    dvo = fd.ops.cast(dv, dtype=DataType.BFloat16)
    fd.add_output(dvo)
    rest = fd.ops.sub(one, s)
    ar = fd.ops.mul(a, rest)
    slope = fd.ops.add(s, ar)
    gv = fd.ops.mul(gf, vf)
    dx = fd.ops.mul(gv, slope)
    dxo = fd.ops.cast(dx, dtype=DataType.BFloat16)
    fd.add_output(dxo)


inputs = [
    torch.randn(8388608, dtype=torch.bfloat16, device="cuda:0").as_strided((2048, 4096), (4096, 1)),
    torch.randn(8388608, dtype=torch.bfloat16, device="cuda:0").as_strided((2048, 4096), (4096, 1)),
    torch.randn(8388608, dtype=torch.bfloat16, device="cuda:0").as_strided((2048, 4096), (4096, 1)),
]
