#; about: slices whose bounds depend on sizes, padding from the innermost axis outwards, and what joins padded parts
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    c0 = fd.ops.size(tv0, dim=0)
    c19 = fd.ops.minimum(c0, 5)
    c21 = fd.ops.maximum(2, c19)
    c1 = fd.ops.size(tv0, dim=1)
    tv2 = fd.ops.slice(tv0, start_indices=[2, 0], end_indices=[c21, c1], strides=[1, 1], manual_normalization=True)
    c4 = fd.ops.size(tv1, dim=1)
    c5 = fd.ops.add(c1, c4)
    c7 = fd.ops.neg(c1)
    c9 = fd.ops.add(c5, c7)
    tv3 = fd.ops.pad(tv0, pad_widths=[0, c9, 0, 0], value=0.00000)
    tv4 = fd.ops.pad(tv1, pad_widths=[c1, 0, 0, 0], value=0.00000)
    tv5 = fd.ops.cat([tv3, tv4], dim=1, manual_padding=True)
    tv6 = fd.ops.cat([tv0, tv1], dim=-1)
    tv7 = fd.ops.triu(tv0, diagonal=1)
    tv8 = fd.ops.tril(tv0, diagonal=-1)
    fd.add_output(tv2)
    fd.add_output(tv5)
    fd.add_output(tv6)
    fd.add_output(tv7)
    fd.add_output(tv8)

inputs = [
    torch.randn((6, 7), dtype=torch.float32, device='cuda:0'),
    torch.randn((6, 3), dtype=torch.float32, device='cuda:0'),
]
