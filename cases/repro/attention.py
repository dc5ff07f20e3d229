#; about: attention forwards, and backwards from its own results
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1, -1, -1], contiguity=[True, True, True, True], dtype=DataType.BFloat16, is_cpu=False)
    tv1 = fd.define_tensor(shape=[-1, -1, -1, -1], contiguity=[True, True, True, True], dtype=DataType.BFloat16, is_cpu=False)
    tv2 = fd.define_tensor(shape=[-1, -1, -1, -1], contiguity=[True, True, True, True], dtype=DataType.BFloat16, is_cpu=False)
    tv3 = fd.define_tensor(shape=[-1, -1, -1, -1], contiguity=[True, True, True, True], dtype=DataType.BFloat16, is_cpu=False)
    tv4, tv5, tv6, tv7 = fd.ops.sdpfa_fwd(tv0, tv1, tv2, dropout_p=0.00000, is_causal=True)
    tv8, tv9, tv10 = fd.ops.sdpfa_bwd(tv3, tv0, tv1, tv2, tv4, tv5, dropout_p=0.00000, is_causal=True, philox_seed=tv6, philox_offset=tv7, scale=None)
    fd.add_output(tv4)
    fd.add_output(tv8)
    fd.add_output(tv9)
    fd.add_output(tv10)

inputs = [
    torch.randn((2, 2, 8, 16), dtype=torch.bfloat16, device='cuda:0'),
    torch.randn((2, 2, 8, 16), dtype=torch.bfloat16, device='cuda:0'),
    torch.randn((2, 2, 8, 16), dtype=torch.bfloat16, device='cuda:0'),
    torch.randn((2, 2, 8, 16), dtype=torch.bfloat16, device='cuda:0'),
]
