#; about: dropout, a residual and a layer norm; the mask and the sum are kept
def nvfuser_fusion(fd: FusionDefinition) -> None:
    x = fd.define_tensor(shape=[2048, 4096], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False)
    r = fd.define_tensor(shape=[2048, 4096], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False)
    w = fd.define_tensor(shape=[4096], contiguity=[True], dtype=DataType.BFloat16, is_cpu=False)
    b = fd.define_tensor(shape=[4096], contiguity=[True], dtype=DataType.BFloat16, is_cpu=False)
    xf = fd.ops.cast(x, dtype=DataType.Float)
    rf = fd.ops.cast(r, dtype=DataType.Float)
    wf = fd.ops.cast(w, dtype=DataType.Float)
    bf = fd.ops.cast(b, dtype=DataType.Float)
    low = fd.define_scalar(0.0, dtype=DataType.Double)
    high = fd.define_scalar(1.0, dtype=DataType.Double)
    keep = fd.define_scalar(0.9, dtype=DataType.Double)
    scale = fd.define_scalar(1.1111111111111112, dtype=DataType.Double)
    u = fd.ops.uniform(low, high, [2048, 4096], dtype=DataType.Float)
    mask = fd.ops.lt(u, keep)
    fd.add_output(mask)
    xm = fd.ops.mul(xf, mask)
    xs = fd.ops.mul(xm, scale)
    h = fd.ops.add(xs, rf)
    ho = fd.ops.cast(h, dtype=DataType.BFloat16)
    fd.add_output(ho)
    var, mean = fd.ops.var_mean(h, dims=[1], correction=0, keepdim=True)
    eps = fd.define_scalar(1e-05, dtype=DataType.Double)
    ve = fd.ops.add(var, eps)
    rstd = fd.ops.rsqrt(ve)
    d = fd.ops.sub(h, mean)
    n = fd.ops.mul(d, rstd)
    wb = fd.ops.broadcast(wf, [True, False])
    bb = fd.ops.broadcast(bf, [True, False])
    nw = fd.ops.mul(n, wb)
    y = fd.ops.add(nw, bb)
    yo = fd.ops.cast(y, dtype=DataType.BFloat16)
    fd.add_output(yo)


inputs = [
    torch.randn(8388608, dtype=torch.bfloat16, device="cuda:0").as_strided((2048, 4096), (4096, 1)),
    torch.randn(8388608, dtype=torch.bfloat16, device="cuda:0").as_strided((2048, 4096), (4096, 1)),
    torch.randn(4096, dtype=torch.bfloat16, device="cuda:0").as_strided((4096,), (1,)),
    torch.randn(4096, dtype=torch.bfloat16, device="cuda:0").as_strided((4096,), (1,)),
]
