#; about: what stands between two products of an MLP: a bias and gelu, and the gradient of both
def nvfuser_fusion(fd: FusionDefinition) -> None:
    x = fd.define_tensor(shape=[2048, 4096], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False)
    b = fd.define_tensor(shape=[4096], contiguity=[True], dtype=DataType.BFloat16, is_cpu=False)
    g = fd.define_tensor(shape=[2048, 4096], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False)
    xf = fd.ops.cast(x, dtype=DataType.Float)
    bf = fd.ops.cast(b, dtype=DataType.Float)
    gf = fd.ops.cast(g, dtype=DataType.Float)
    bb = fd.ops.broadcast(bf, [True, False])
    h = fd.ops.add(xf, bb)
    half = fd.define_scalar(0.5, dtype=DataType.Double)
    root = fd.define_scalar(0.7071067811865476, dtype=DataType.Double)
    one = fd.define_scalar(1.0, dtype=DataType.Double)
    t = fd.ops.mul(h, root)
    e = fd.ops.erf(t)
    c = fd.ops.add(e, one)
    p = fd.ops.mul(c, half)
    y = fd.ops.mul(h, p)
    yo = fd.ops.cast(y, dtype=DataType.BFloat16)
    fd.add_output(yo)
    minus = fd.define_scalar(-0.5, dtype=DataType.Double)
    density = fd.define_scalar(0.3989422804014327, dtype=DataType.Double)
    q = fd.ops.mul(h, h)
    qm = fd.ops.mul(q, minus)
    qe = fd.ops.exp(qm)
    qd = fd.ops.mul(qe, density)
    hq = fd.ops.mul(h, qd)
    slope = fd.ops.add(p, hq)
    dx = fd.ops.mul(gf, slope)
    dxo = fd.ops.cast(dx, dtype=DataType.BFloat16)
    fd.add_output(dxo)
    db = fd.ops.sum(dx, dims=[0], keepdim=False)
    dbo = fd.ops.cast(db, dtype=DataType.BFloat16)
    fd.add_output(dbo)


inputs = [
    torch.randn(8388608, dtype=torch.bfloat16, device="cuda:0").as_strided((2048, 4096), (4096, 1)),
    torch.randn(4096, dtype=torch.bfloat16, device="cuda:0").as_strided((4096,), (1,)),
    torch.randn(8388608, dtype=torch.bfloat16, device="cuda:0").as_strided((2048, 4096), (4096, 1)),
]
