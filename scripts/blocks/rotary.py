#; about: halves of each head change places, one with its sign turned, and are mixed with the heads by angles
def nvfuser_fusion(fd: FusionDefinition) -> None:
    x = fd.define_tensor(shape=[2, 32, 2048, 128], contiguity=[True, True, True, True], dtype=DataType.BFloat16, is_cpu=False)
    cos = fd.define_tensor(shape=[2048, 128], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    sin = fd.define_tensor(shape=[2048, 128], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    lo = fd.ops.slice(x, start_indices=[0, 0, 0, 0], end_indices=[2, 32, 2048, 64], strides=[1, 1, 1, 1], manual_normalization=0)
    hi = fd.ops.slice(x, start_indices=[0, 0, 0, 64], end_indices=[2, 32, 2048, 128], strides=[1, 1, 1, 1], manual_normalization=0)
    hif = fd.ops.cast(hi, dtype=DataType.Float)
    neg = fd.ops.neg(hif)
    turned = fd.ops.cast(neg, dtype=DataType.BFloat16)
    both = fd.ops.cat([turned, lo], dim=3)
    bothf = fd.ops.cast(both, dtype=DataType.Float)
    xf = fd.ops.cast(x, dtype=DataType.Float)
    cb = fd.ops.broadcast(cos, [True, True, False, False])
    sb = fd.ops.broadcast(sin, [True, True, False, False])
    a = fd.ops.mul(xf, cb)
    c = fd.ops.mul(bothf, sb)
    y = fd.ops.add(a, c)
    yo = fd.ops.cast(y, dtype=DataType.BFloat16)
    fd.add_output(yo)


inputs = [
    torch.randn(16777216, dtype=torch.bfloat16, device="cuda:0").as_strided((2, 32, 2048, 128), (8388608, 262144, 128, 1)),
    torch.randn(262144, dtype=torch.float32, device="cuda:0").as_strided((2048, 128), (128, 1)),
    torch.randn(262144, dtype=torch.float32, device="cuda:0").as_strided((2048, 128), (128, 1)),
]
