#; about: an RMS norm, and the gradients of its input and weight
def nvfuser_fusion(fd: FusionDefinition) -> None:
    x = fd.define_tensor(shape=[2048, 4096], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False)
    w = fd.define_tensor(shape=[4096], contiguity=[True], dtype=DataType.BFloat16, is_cpu=False)
    g = fd.define_tensor(shape=[2048, 4096], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False)
    xf = fd.ops.cast(x, dtype=DataType.Float)
    wf = fd.ops.cast(w, dtype=DataType.Float)
    gf = fd.ops.cast(g, dtype=DataType.Float)
    sq = fd.ops.mul(xf, xf)
    mss = fd.ops.sum(sq, dims=[1], keepdim=True)
    msn = fd.define_scalar(0.000244140625, dtype=DataType.Double)
    ms = fd.ops.mul(mss, msn)
    eps = fd.define_scalar(1e-05, dtype=DataType.Double)
    me = fd.ops.add(ms, eps)
    rstd = fd.ops.rsqrt(me)
    n = fd.ops.mul(xf, rstd)
    wb = fd.ops.broadcast(wf, [True, False])
    y = fd.ops.mul(n, wb)
    yo = fd.ops.cast(y, dtype=DataType.BFloat16)
    fd.add_output(yo)
    gw = fd.ops.mul(gf, wb)
    gn = fd.ops.mul(gw, n)
    mgs = fd.ops.sum(gn, dims=[1], keepdim=True)
    mgn = fd.define_scalar(0.000244140625, dtype=DataType.Double)
    mg = fd.ops.mul(mgs, mgn)
    back = fd.ops.mul(n, mg)
    left = fd.ops.sub(gw, back)
    dx = fd.ops.mul(left, rstd)
    dxo = fd.ops.cast(dx, dtype=DataType.BFloat16)
    fd.add_output(dxo)
    wn = fd.ops.mul(gf, n)
    dw = fd.ops.sum(wn, dims=[0], keepdim=False)
    dwo = fd.ops.cast(dw, dtype=DataType.BFloat16)
    fd.add_output(dwo)


inputs = [
    torch.randn(8388608, dtype=torch.bfloat16, device="cuda:0").as_strided((2048, 4096), (4096, 1)),
    torch.randn(4096, dtype=torch.bfloat16, device="cuda:0").as_strided((4096,), (1,)),
    torch.randn(8388608, dtype=torch.bfloat16, device="cuda:0").as_strided((2048, 4096), (4096, 1)),
]
