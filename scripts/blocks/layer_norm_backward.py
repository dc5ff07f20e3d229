#; about: gradients of a layer norm for its input, weight and bias, from kept statistics
def nvfuser_fusion(fd: FusionDefinition) -> None:
    x = fd.define_tensor(shape=[2048, 4096], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False)
    w = fd.define_tensor(shape=[4096], contiguity=[True], dtype=DataType.BFloat16, is_cpu=False)
    g = fd.define_tensor(shape=[2048, 4096], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False)
    mean = fd.define_tensor(shape=[2048], contiguity=[True], dtype=DataType.Float, is_cpu=False)
    rstd = fd.define_tensor(shape=[2048], contiguity=[True], dtype=DataType.Float, is_cpu=False)
    xf = fd.ops.cast(x, dtype=DataType.Float)
    wf = fd.ops.cast(w, dtype=DataType.Float)
    gf = fd.ops.cast(g, dtype=DataType.Float)
    mb = fd.ops.broadcast(mean, [False, True])
    rb = fd.ops.broadcast(rstd, [False, True])
    wb = fd.ops.broadcast(wf, [True, False])
    d = fd.ops.sub(xf, mb)
    n = fd.ops.mul(d, rb)
    gw = fd.ops.mul(gf, wb)
    asum = fd.ops.sum(gw, dims=[1], keepdim=True)
    an = fd.define_scalar(0.000244140625, dtype=DataType.Double)
    a = fd.ops.mul(asum, an)
    gn = fd.ops.mul(gw, n)
    cs = fd.ops.sum(gn, dims=[1], keepdim=True)
    cn = fd.define_scalar(0.000244140625, dtype=DataType.Double)
    c = fd.ops.mul(cs, cn)
    nc = fd.ops.mul(n, c)
    ga = fd.ops.sub(gw, a)
    gl = fd.ops.sub(ga, nc)
    dx = fd.ops.mul(gl, rb)
    dxo = fd.ops.cast(dx, dtype=DataType.BFloat16)
    fd.add_output(dxo)
    wn = fd.ops.mul(gf, n)
    dw = fd.ops.sum(wn, dims=[0], keepdim=False)
    dwo = fd.ops.cast(dw, dtype=DataType.BFloat16)
    fd.add_output(dwo)
    db = fd.ops.sum(gf, dims=[0], keepdim=False)
    dbo = fd.ops.cast(db, dtype=DataType.BFloat16)
    fd.add_output(dbo)


inputs = [
    torch.randn(8388608, dtype=torch.bfloat16, device="cuda:0").as_strided((2048, 4096), (4096, 1)),
    torch.randn(4096, dtype=torch.bfloat16, device="cuda:0").as_strided((4096,), (1,)),
    torch.randn(8388608, dtype=torch.bfloat16, device="cuda:0").as_strided((2048, 4096), (4096, 1)),
    torch.randn(2048, dtype=torch.float32, device="cuda:0").as_strided((2048,), (1,)),
    torch.randn(2048, dtype=torch.float32, device="cuda:0").as_strided((2048,), (1,)),
]
