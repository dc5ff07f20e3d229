#; about: tensors made from nothing, with sizes that are scalars of the fusion
def nvfuser_fusion(fd : FusionDefinition) -> None :
    c0 = fd.define_scalar(None, dtype=DataType.Int)
    c12 = fd.define_scalar(1.00000, dtype=DataType.BFloat16)
    tv0 = fd.ops.full(shape=[c0, 3], fill_value=c12, dtype=DataType.BFloat16)
    tv1 = fd.ops.iota(length=c0, start=2, step=3)
    tv2 = fd.ops.iota(length=5, start=0.500000, step=0.250000, dtype=DataType.Float)
    tv3 = fd.ops.cast(tv0, dtype=DataType.Float)
    fd.add_output(tv1)
    fd.add_output(tv2)
    fd.add_output(tv3)

inputs = [4]
