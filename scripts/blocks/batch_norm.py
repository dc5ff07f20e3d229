#; about: channels of images are normalised over images, with running statistics that are updated, and relu
def nvfuser_fusion(fd: FusionDefinition) -> None:
    x = fd.define_tensor(shape=[32, 64, 56, 56], contiguity=[True, True, True, True], dtype=DataType.BFloat16, is_cpu=False)
    w = fd.define_tensor(shape=[64], contiguity=[True], dtype=DataType.Float, is_cpu=False)
    b = fd.define_tensor(shape=[64], contiguity=[True], dtype=DataType.Float, is_cpu=False)
    rm = fd.define_tensor(shape=[64], contiguity=[True], dtype=DataType.Float, is_cpu=False)
    rv = fd.define_tensor(shape=[64], contiguity=[True], dtype=DataType.Float, is_cpu=False)
    xf = fd.ops.cast(x, dtype=DataType.Float)
    var, mean = fd.ops.var_mean(xf, dims=[0, 2, 3], correction=0, keepdim=False)
    old = fd.define_scalar(0.9, dtype=DataType.Double)
    new = fd.define_scalar(0.1, dtype=DataType.Double)
    newer = fd.define_scalar(0.10000099650227702, dtype=DataType.Double)
    ro = fd.ops.mul(rm, old)
    rn = fd.ops.mul(mean, new)
    rs = fd.ops.add(ro, rn)
    fd.add_output(rs, rm)
    vo = fd.ops.mul(rv, old)
    vn = fd.ops.mul(var, newer)
    vs = fd.ops.add(vo, vn)
    fd.add_output(vs, rv)
    eps = fd.define_scalar(1e-05, dtype=DataType.Double)
    ve = fd.ops.add(var, eps)
    rstd = fd.ops.rsqrt(ve)
    mb = fd.ops.broadcast(mean, [True, False, True, True])
    sb = fd.ops.broadcast(rstd, [True, False, True, True])
    wb = fd.ops.broadcast(w, [True, False, True, True])
    bb = fd.ops.broadcast(b, [True, False, True, True])
    d = fd.ops.sub(xf, mb)
    n = fd.ops.mul(d, sb)
    nw = fd.ops.mul(n, wb)
    h = fd.ops.add(nw, bb)
    y = fd.ops.relu(h)
    yo = fd.ops.cast(y, dtype=DataType.BFloat16)
    fd.add_output(yo)
    fd.add_output(mean)
    fd.add_output(rstd)


inputs = [
    torch.randn(6422528, dtype=torch.bfloat16, device="cuda:0").as_strided((32, 64, 56, 56), (200704, 3136, 56, 1)),
    torch.randn(64, dtype=torch.float32, device="cuda:0").as_strided((64,), (1,)),
    torch.randn(64, dtype=torch.float32, device="cuda:0").as_strided((64,), (1,)),
    torch.randn(64, dtype=torch.float32, device="cuda:0").as_strided((64,), (1,)),
    torch.randn(64, dtype=torch.float32, device="cuda:0").as_strided((64,), (1,)),
]
