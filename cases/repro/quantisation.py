#; about: blocks of 16 or 32 numbers as small floats and a scale each, one tensor and groups of rows
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False)
    tv1 = fd.define_tensor(shape=[], contiguity=[], dtype=DataType.Float, is_cpu=False)
    tv2 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Int32, is_cpu=False)
    tv3 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Int32, is_cpu=False)
    tv4, tv5 = fd.ops.nv_block_quantize(tv0, global_scale=tv1)
    tv6, tv7 = fd.ops.nv_block_quantize(tv0, block_size=32, dtype=DataType.Float8_e4m3fn)
    tv8, tv9 = fd.ops.nv_grouped_block_quantize(tv0, tv2, tv3, global_scale=tv1)
    tv10 = fd.ops.preprocess_grouped_matmul_input_sf(tv5, tv2, tv3)
    fd.add_output(tv4)
    fd.add_output(tv5)
    fd.add_output(tv6)
    fd.add_output(tv7)
    fd.add_output(tv8)
    fd.add_output(tv9)
    fd.add_output(tv10)

inputs = [
    torch.randn((6, 64), dtype=torch.bfloat16, device='cuda:0'),
    torch.tensor(4.0, dtype=torch.float32, device='cuda:0'),
    torch.tensor([0, 2], dtype=torch.int32, device='cuda:0'),
    torch.tensor([0, 128], dtype=torch.int32, device='cuda:0'),
]
