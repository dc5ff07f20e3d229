#; about: inserting, dropping, reordering, repeating and regrouping axes, with sizes taken from other tensors
def nvfuser_fusion_id7(fd: FusionDefinition) -> None:
    T0 = fd.define_tensor(shape=[-1, -1, 6], contiguity=[True, True, True], dtype=DataType.Float, is_cpu=False)
    T1 = fd.define_tensor(shape=[-1, 1], contiguity=[True, None], dtype=DataType.Float, is_cpu=False)
    V2 = fd.ops.shape(T0)
    S3 = fd.ops.at(V2, index=0)
    S4 = fd.ops.size(T0, dim=1)
    T5 = fd.ops.reshape(T0, new_shape=[S3, S4, 2, 3])
    T6 = fd.ops.permute(T5, dims=[0, 2, 1, 3])
    T7 = fd.ops.squeeze(T1, dims=[1], squeeze_expanded=False)
    T8 = fd.ops.broadcast(T7, is_broadcast_dim=[False, True, True, True])
    T9 = fd.ops.add(T6, T8)
    T10 = fd.ops.broadcast_in_dim(T7, shape=[S3, S4], broadcast_dims=[0])
    T11 = fd.ops.expand(T1, shape=[S3, 4])
    T12 = fd.ops.stride_order(T9, stride_order=[0, 1, 2, 3])
    T13 = fd.ops.flatten(T9, start_dim=1, end_dim=2)
    T14 = fd.ops.repeat(T1, repeat_times=[2, 3])
    T15 = fd.ops.segment_set(T10)
    fd.add_output(T9)
    fd.add_output(T11)
    fd.add_output(T12)
    fd.add_output(T13)
    fd.add_output(T14)
    fd.add_output(T15)


inputs = [
    torch.randn((3, 5, 6), dtype=torch.float32, device="cuda:0"),
    torch.randn((3, 1), dtype=torch.float32, device="cuda:0"),
]
