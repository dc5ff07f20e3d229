#; about: the overloads of a reduction: one axis, a type in second place, axes kept, all axes
def test_reductions(nvfuser_direct_test):
    inputs = [torch.testing.make_tensor((6, 35), dtype=torch.bool, device="cuda:0")]

    def fusion_func(fd: FusionDefinition):
        t0 = fd.from_pytorch(inputs[0])
        t1 = fd.ops.sum(t0, dim=1)
        t2 = fd.ops.sum(t0, [-1], True, DataType.Float)
        t3 = fd.ops.sum(t0, DataType.Int32)
        t4 = fd.ops.max(t0, [0, 1])
        fd.add_output(t1)
        fd.add_output(t2)
        fd.add_output(t3)
        fd.add_output(t4)

    nvf_out, _ = nvfuser_direct_test.exec_nvfuser(fusion_func, inputs)
    eager_out = torch.sum(inputs[0], dim=1)
    nvfuser_direct_test.assertEqual(eager_out, nvf_out[0])
