#; about: comparisons, logic and bits of integers, and integer division as C and as Python do it
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, 33], contiguity=[True, True], dtype=DataType.Int, is_cpu=False)
    tv1 = fd.define_tensor(shape=[-1, 33], contiguity=[True, True], dtype=DataType.Int, is_cpu=False)
    tv2 = fd.ops.eq(tv0, tv1)
    tv3 = fd.ops.ge(tv0, tv1)
    tv4 = fd.ops.gt(tv0, tv1)
    tv5 = fd.ops.le(tv0, tv1)
    tv6 = fd.ops.lt(tv0, tv1)
    tv7 = fd.ops.ne(tv0, 3)
    tv8 = fd.ops.logical_and(tv2, tv5)
    tv9 = fd.ops.logical_or(tv3, tv7)
    tv10 = fd.ops.bitwise_and(tv0, tv1)
    tv11 = fd.ops.bitwise_or(tv0, tv1)
    tv12 = fd.ops.bitwise_xor(tv0, tv1)
    tv13 = fd.ops.bitwise_left_shift(tv0, 2)
    tv14 = fd.ops.bitwise_right_shift(tv0, 1)
    tv15 = fd.ops.logical_right_shift(tv0, 1)
    tv16 = fd.ops.gcd(tv0, tv1)
    tv17 = fd.ops.mod(tv0, tv1)
    tv18 = fd.ops.ceilDiv(tv10, 4)
    fd.add_output(tv4)
    fd.add_output(tv6)
    fd.add_output(tv8)
    fd.add_output(tv9)
    fd.add_output(tv11)
    fd.add_output(tv12)
    fd.add_output(tv13)
    fd.add_output(tv14)
    fd.add_output(tv15)
    fd.add_output(tv16)
    fd.add_output(tv17)
    fd.add_output(tv18)

inputs = [
    torch.randint(0, 9, (5, 33), dtype=torch.int64, device="cuda:0"),
    torch.randint(1, 9, (5, 33), dtype=torch.int64, device="cuda:0"),
]
