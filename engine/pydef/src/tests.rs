//! Texts in, definitions or messages out.

use super::{Definition, Fill, InputRecipe, PyNumber, read};
use engine::diag::render;
use engine::fusion::hash;
use engine::num::DType;
use expect_test::{Expect, expect};

/// The one definition of a text.
#[track_caller]
fn one(source: &str) -> Definition {
    match read(source) {
        Ok(mut definitions) if definitions.len() == 1 => definitions.remove(0),
        Ok(definitions) => panic!("{} definitions", definitions.len()),
        Err(errors) => panic!("{}", errors.iter().map(|e| render(e, "x.py", source, 1)).collect::<String>()),
    }
}

#[track_caller]
fn check_text(source: &str, expected: Expect) {
    expected.assert_eq(&engine::text::print(&one(source).fusion));
}

/// All messages of a text, with their places.
#[track_caller]
fn check_errors(source: &str, expected: Expect) {
    let errors = read(source).expect_err("refused");
    expected.assert_eq(&errors.iter().map(|e| render(e, "x.py", source, 1)).collect::<String>());
}

/// A definition whose body is these lines.
fn body(lines: &str) -> String {
    let mut text = String::from("def nvfuser_fusion(fd : FusionDefinition) -> None :\n");
    for line in lines.lines() {
        text.push_str("    ");
        text.push_str(line.trim_start());
        text.push('\n');
    }
    text
}

const X: &str = "x = fd.define_tensor(shape=[-1, 8], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)\n";

/// What a script passes: sizes and strides of tensors, and how they are filled.
#[track_caller]
fn check_inputs(inputs: &str, expected: &[(&[i64], &[i64], DType, Fill)]) {
    let source = format!("{}\n{inputs}", body(&format!("{X}fd.add_output(fd.ops.neg(x))")));
    let recipes = one(&source).inputs.expect("passed");
    let tensors: Vec<_> = recipes
        .iter()
        .map(|recipe| match recipe {
            InputRecipe::Tensor(t) => (&t.sizes[..], &t.strides[..], t.dtype, t.fill.clone()),
            InputRecipe::Scalar(number) => panic!("{number:?}"),
        })
        .collect();
    assert_eq!(tensors, expected, "{inputs}");
}

#[test]
fn the_printed_form_is_read() {
    check_text(
        &body(
            "tv0 = fd.define_tensor(shape=[-1, 1], contiguity=[True, None], dtype=DataType.BFloat16, is_cpu=False)
             c0 = fd.define_scalar(None, dtype=DataType.Double)
             tv1 = fd.ops.cast(tv0, dtype=DataType.Float)
             c2 = fd.ops.size(tv1, dim=0)
             c3 = fd.ops.minimum(c2, 5)
             c4 = fd.ops.cast(c3, dtype=DataType.Double)
             tv2 = fd.ops.mul(tv1, c0)
             tv3 = fd.ops.div(tv2, c4)
             tv4 = fd.ops.sum(tv3, dims=[0], dtype=DataType.Float)
             fd.add_output(tv3)
             fd.add_output(tv4)",
        ),
        expect![[r#"
            fusion @nvfuser_fusion(%tv0: bf16[?, 1] contiguity(true, _) order(0, 1), %c0: f64) {
              %tv1 = cast %tv0 f32
              %s0 = cast %c0 f32
              %tv2 = mul %tv1, %s0
              %s1 = size %tv0 axis(0)
              %s2 = minimum %s1, 5
              %s3 = cast %s2 f64
              %s4 = cast %s3 f32
              %tv3 = div %tv2, %s4
              %tv4 = sum %tv3 axes(0)
              return %tv3, %tv4
            }
        "#]],
    );
}

#[test]
fn the_older_form_is_read() {
    check_text(
        "def nvfuser_fusion_id2(fd: FusionDefinition) -> None:
    T0 = fd.define_tensor(
        symbolic_sizes=[-1, 4],
        contiguous=[True, True],
        dtype=DataType.Float,
    )
    S1 = fd.define_constant(2.00000)
    V5 = fd.ops.shape(T0)
    S6 = fd.ops.at(V5, index=1)
    T2 = fd.ops.add_alpha(T0, S1, S6)
    T3 = fd.ops.max(T2, dims=[1], keepdim=False, dtype=DataType.Null)
    T4 = T0 * 2.0 - T2 / S1
    T5 = -T4
    fd.add_output(T3)
    fd.add_output(T5, alias_input=T0)
    fd.add_output(T5)
",
        expect![[r#"
            fusion @nvfuser_fusion_id2(%T0: f32[?, 4] contiguity(true, true) order(0, 1)) {
              %T2 = add %T0, 8.0
              %T3 = max %T2 axes(1)
              %0 = mul %T0, 2.0
              %1 = div %T2, 2.0
              %T4 = sub %0, %1
              %T5 = neg %T4
              update %T0 = %T5
              return %T3, %T5
            }
        "#]],
    );
}

#[test]
fn layouts_are_in_memory_order() {
    check_text(
        &body(
            "a = fd.define_tensor(shape=[-1, -1, 1], contiguity=[True, None, True], stride_order=[2, 0, 1])
             b = fd.define_tensor([2, 1, 3], contiguity=True)
             c = fd.define_tensor(sizes=[4, 1, 3], strides=[1, 3, 4], dtype=DataType.Half)
             d = fd.define_tensor(sizes=[4, 3], strides=[0, 1], static_sizes=True)
             fd.add_output(fd.ops.neg(a))
             fd.add_output(fd.ops.neg(b))
             fd.add_output(fd.ops.neg(c))
             fd.add_output(fd.ops.neg(d))",
        ),
        expect![[r#"
            fusion @nvfuser_fusion(%a: f32[?, ?, 1] contiguity(true, _, true) order(0, 2, 1), %b: f32[2, 1, 3] contiguity(true, _, true) order(0, 1, 2), %c: f16[?, 1, ?] contiguity(true, _, true) order(2, 1, 0), %d: f32[4, 3] contiguity(_, true) order(0, 1)) {
              %0 = neg %a
              %1 = neg %b
              %2 = cast %c f32
              %3 = neg %2
              %4 = neg %d
              return %0, %1, %3, %4
            }
        "#]],
    );
}

#[test]
fn scripts_make_definitions_and_inputs() {
    let source = "
# CUDA devices:
import torch
from nvfuser_direct import (FusionDefinition, DataType)

HALF = 4 // 2
SIZES = [HALF * 3, 8]

def test_something(nvfuser_direct_test):
    '''Text about it.'''
    inputs = [
        torch.testing.make_tensor((SIZES[0], 8), dtype=torch.float32, device=\"cuda:0\", low=-2, high=2),
        0.5,
    ]

    def fusion_func(fd: FusionDefinition) -> None:
        T0 = fd.from_pytorch(inputs[0])
        S1 = fd.define_scalar(None, dtype=DataType.Double)
        for _ in range(2):
            T0 = fd.ops.mul(T0, S1)
        if len(inputs) == 2:
            T0 = fd.ops.exp(T0)
        fd.add_output(T0)

    nvf_out, _ = nvfuser_direct_test.exec_nvfuser(fusion_func, inputs, validate_results=True)
    expected = torch.exp(inputs[0] * 0.25)
    nvfuser_direct_test.assertEqual(nvf_out[0], expected)
";
    let definition = one(source);
    expect![[r#"
        fusion @fusion_func(%T0: f32[?, ?] contiguity(true, true) order(0, 1), %S1: f64) {
          %s0 = cast %S1 f32
          %0 = mul %T0, %s0
          %1 = mul %0, %s0
          %2 = exp %1
          return %2
        }
    "#]]
    .assert_eq(&engine::text::print(&definition.fusion));
    let inputs = definition.inputs.expect("passed");
    assert_eq!(inputs[1], InputRecipe::Scalar(PyNumber::Float(0.5)));
    let InputRecipe::Tensor(tensor) = &inputs[0] else { panic!("{inputs:?}") };
    assert_eq!((&tensor.sizes[..], &tensor.fill), (&[6, 8][..], &Fill::Uniform(-2.0, 2.0)));
}

#[test]
fn runs_are_found_however_they_are_written() {
    let definition = body(&format!("{X}fd.add_output(fd.ops.neg(x))"));
    let tensor = "torch.randn(6, 8, device='cuda:0')";
    for run in [
        format!("inputs = [{tensor}]\n"),
        format!(
            "with FusionDefinition() as fd:\n    nvfuser_fusion(fd)\n\ninputs = [\n    {tensor},\n]\nfd.execute(inputs)\n"
        ),
        format!("with FusionDefinition() as fd:\n    nvfuser_fusion(fd)\nouts = fd.execute([{tensor}])\n"),
        format!("fd = FusionDefinition()\nnvfuser_fusion(fd)\nfd.validate([{tensor}])\n"),
        format!("def test(helper):\n    out, _ = helper.exec_nvfuser(nvfuser_fusion, ({tensor},))\n"),
        format!(
            "def test(helper):\n    def f(g):\n        nvfuser_fusion(g)\n    helper.exec_nvfuser(f, [{tensor}])\n"
        ),
        format!("inputs = []\ninputs.append({tensor})\n"),
        format!("a = {tensor}\ninputs = [*[a]]\n"),
    ] {
        let inputs = one(&format!("{definition}\n{run}")).inputs;
        assert_eq!(inputs.map(|inputs| inputs.len()), Some(1), "{run}");
    }
    assert_eq!(one(&definition).inputs, None);
}

#[test]
fn tensors_of_scripts_keep_their_layout_and_elements() {
    let normal = Fill::Normal(0.0, 1.0);
    let (f32, i64) = (DType::F32, DType::I64);
    check_inputs("inputs = [torch.randn(48).as_strided((6, 8), (8, 1))]", &[(&[6, 8], &[8, 1], f32, normal.clone())]);
    check_inputs("inputs = [torch.randn(8, 6).t()]", &[(&[6, 8], &[1, 6], f32, normal.clone())]);
    check_inputs("inputs = [torch.randn((1, 8)).expand(6, -1)]", &[(&[6, 8], &[0, 1], f32, normal.clone())]);
    check_inputs("inputs = [torch.randn(6, 16)[:, ::2]]", &[(&[6, 8], &[16, 2], f32, normal.clone())]);
    check_inputs("inputs = [2 * torch.randn(6, 8) - 1.0]", &[(&[6, 8], &[8, 1], f32, Fill::Normal(-1.0, 2.0))]);
    check_inputs(
        "inputs = [torch.randint(0, 10, (6, 8), dtype=torch.int64)]",
        &[(&[6, 8], &[8, 1], i64, Fill::Randint(0, 9))],
    );
    check_inputs(
        "inputs = [torch.testing.make_tensor((6, 8), dtype=torch.bool)]",
        &[(&[6, 8], &[8, 1], DType::Bool, Fill::Randint(0, 1))],
    );
    check_inputs("inputs = [torch.arange(2, 8)]", &[(&[6], &[1], i64, Fill::Arange(2.0, 1.0))]);
    check_inputs(
        "inputs = [torch.full((), 2.5, dtype=torch.bfloat16), torch.ones(3).to(torch.half)]",
        &[
            (&[], &[], DType::BF16, Fill::Full(PyNumber::Float(2.5))),
            (&[3], &[1], DType::F16, Fill::Full(PyNumber::Int(1))),
        ],
    );
    check_inputs(
        "inputs = [torch.tensor([[1, 2], [3, 4]]).transpose(0, 1)]",
        &[(&[2, 2], &[1, 2], i64, Fill::Listed([1, 3, 2, 4].map(PyNumber::Int).to_vec()))],
    );
}

#[test]
fn every_error_is_reported_with_its_place() {
    check_errors(
        &body(&format!(
            "{X}a = fd.ops.ad(x, 1)
             b = fd.ops.add(x, y)
             c = fd.ops.sum(x, dims=[0], keepdims=True)
             d = fd.ops.neg(a)
             e = fd.ops.cast(x, dtype=DataType.Flaot)
             f = fd.ops.exp(x, x)
             g, h = fd.ops.neg(x)
             i = fd.ops.permute(x, dims=[0, 0])
             fd.add_otput(x)"
        )),
        expect![[r#"
            error[E0102]: unknown operation `ad`
             --> x.py:3:16
              |
            3 |     a = fd.ops.ad(x, 1)
              |                ^^ did you mean `add`?
              note: operations are listed in cases/README.md
            error[E0103]: `y` is not defined
             --> x.py:4:23
              |
            4 |     b = fd.ops.add(x, y)
              |                       ^ did you mean `a`?
            error[E0206]: sum: has no argument `keepdims`
             --> x.py:5:33
              |
            5 |     c = fd.ops.sum(x, dims=[0], keepdims=True)
              |                                 ^^^^^^^^ did you mean `keepdim`?
              note: its form is: fd.ops.sum(arg, dims=None, keepdim=False, dtype=None)
            error[E0105]: `DataType.Flaot` does not exist
             --> x.py:7:30
              |
            7 |     e = fd.ops.cast(x, dtype=DataType.Flaot)
              |                              ^^^^^^^^^^^^^^ did you mean `Float`?
              note: data types are Double Float Half BFloat16 Float8_e4m3fn Float8_e5m2 Float8_e8m0fnu Float4_e2m1fn Float4_e2m1fn_x2 Int Int32 Bool ComplexFloat ComplexDouble UInt64 Index Short Char Byte UInt16 UInt32 Null
            error[E0201]: exp: takes at most 1 argument, 2 were given
             --> x.py:8:23
              |
            8 |     f = fd.ops.exp(x, x)
              |                       ^ 
              note: its form is: fd.ops.exp(x)
            error[E0201]: 2 names stand for 1 values
             --> x.py:9:5
              |
            9 |     g, h = fd.ops.neg(x)
              |     ^^^^ 
            error[E0205]: permute: [0, 0] does not name each of the 2 axes once
              --> x.py:10:9
               |
            10 |     i = fd.ops.permute(x, dims=[0, 0])
               |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ 
            error[E0108]: `fd.add_otput` is not read
              --> x.py:11:8
               |
            11 |     fd.add_otput(x)
               |        ^^^^^^^^^ did you mean `fd.add_output`?
              note: a definition calls fd.define_tensor fd.define_scalar fd.define_constant fd.define_vector fd.from_pytorch fd.add_output fd.ops
        "#]],
    );
}

#[test]
fn what_is_not_read_says_so() {
    check_errors(
        "while True:\n    pass\nclass A:\n    x = 1\n",
        expect![[r#"
        error[E0108]: `while` is not read
         --> x.py:1:1
          |
        1 | while True:
          | ^^^^^ 
          note: definitions are made of imports, `def`, assignments, calls such as `fd.ops.add(a, b)`, `with`, `if`, and `for` over a list
        error[E0108]: `class` is not read
         --> x.py:3:1
          |
        3 | class A:
          | ^^^^^ 
          note: definitions are made of imports, `def`, assignments, calls such as `fd.ops.add(a, b)`, `with`, `if`, and `for` over a list
    "#]],
    );
    check_errors(
        &format!(
            "import torch\n{}\ninputs = [torch.linalg.qr(torch.randn(6, 8))]\n",
            body(&format!("{X}fd.add_output(fd.ops.neg(x))"))
        ),
        expect![[r#"
            error[E0108]: the value of `torch.linalg.qr(...)` is not known to this reader
             --> x.py:2:5
              |
            2 | def nvfuser_fusion(fd : FusionDefinition) -> None :
              |     ^^^^^^^^^^^^^^ 
             --> x.py:6:11
              |
            6 | inputs = [torch.linalg.qr(torch.randn(6, 8))]
              |           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ it comes from here
              note: values are numbers, lists, arithmetic on them, data types, and tensors made by torch.testing.make_tensor, randn, rand, randint, full, zeros, ones, empty, arange or tensor, with as_strided, to, permute, reshape, expand and the like behind them
        "#]],
    );
    check_errors(
        &body(&format!("{X}n = helper.rank()\nfd.add_output(x[0])")),
        expect![[r#"
        error[E0103]: `helper` is not defined
         --> x.py:3:9
          |
        3 |     n = helper.rank()
          |         ^^^^^^ 
        error[E0108]: a part of a value is not read
         --> x.py:4:19
          |
        4 |     fd.add_output(x[0])
          |                   ^^^^ 
          note: write fd.ops.slice, fd.ops.select or fd.ops.size
    "#]],
    );
    check_errors(
        "x = 1\n",
        expect![[r#"
        error[E0101]: the text makes no definition
          note: a definition is a function such as `def nvfuser_fusion(fd : FusionDefinition) -> None :`
    "#]],
    );
    check_errors(
        "def nvfuser_fusion(fd : FusionDefinition) -> None :\nx = (1,\n",
        expect![[r#"
        error[E0101]: expected an indented block, found `x`
         --> x.py:2:1
          |
        2 | x = (1,
          | ^ 
    "#]],
    );
}

#[test]
fn declarations_that_make_no_sense_are_refused() {
    check_errors(
        &body(
            "a = fd.define_tensor(shape=[-1, 2], contiguity=[True])
             b = fd.define_tensor(shape=[-1, 1], contiguity=[True, True])
             c = fd.define_tensor(shape=[-2], contiguity=[True])
             d = fd.define_tensor(shape=[2, 2], contiguity=[True, True], stride_order=[0, 0])
             e = fd.define_tensor(shape=[2], contiguity=[True], is_cpu=True)
             f = fd.define_tensor(shape=[2], contiguous=1)
             g = fd.define_tensor(sizes=[2, 3], strides=[3])
             h = fd.define_scalar('5')
             i = fd.define_vector(-1)",
        ),
        expect![[r#"
            error[E0210]: define_tensor: `contiguity` has 1 entries for 2 axes
             --> x.py:2:9
              |
            2 |     a = fd.define_tensor(shape=[-1, 2], contiguity=[True])
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ 
            error[E0210]: `%b`: axis 1 is a broadcast axis, which has no contiguity
             --> x.py:3:9
              |
            3 |     b = fd.define_tensor(shape=[-1, 1], contiguity=[True, True])
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ 
              note: write `_` (None) for it
            error[E0204]: define_tensor: axis 0 has the size -2
             --> x.py:4:9
              |
            4 |     c = fd.define_tensor(shape=[-2], contiguity=[True])
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ 
              note: sizes are -1 (any), 0, 1 (broadcast) or greater
            error[E0210]: define_tensor: stride_order [0, 0] does not name each of 0 to 1 once
             --> x.py:5:9
              |
            5 |     d = fd.define_tensor(shape=[2, 2], contiguity=[True, True], stride_order=[0, 0])
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ 
            error[E0210]: define_tensor: a tensor of rank 1 lies on the CPU
             --> x.py:6:9
              |
            6 |     e = fd.define_tensor(shape=[2], contiguity=[True], is_cpu=True)
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ 
              note: only tensors of rank 0 may
            error[E0210]: define_tensor: `contiguity` is a list of True, False and None, not the integer 1
             --> x.py:7:9
              |
            7 |     f = fd.define_tensor(shape=[2], contiguous=1)
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ 
            error[E0210]: define_tensor: sizes [2, 3] and strides [3] do not describe a tensor
             --> x.py:8:9
              |
            8 |     g = fd.define_tensor(sizes=[2, 3], strides=[3])
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ 
              note: one stride for each size, none negative
            error[E0212]: define_scalar: a string is no number
             --> x.py:9:9
              |
            9 |     h = fd.define_scalar('5')
              |         ^^^^^^^^^^^^^^^^^^^^^ 
            error[E0206]: define_vector: takes a length from 0 to 1024, or a list
              --> x.py:10:9
               |
            10 |     i = fd.define_vector(-1)
               |         ^^^^^^^^^^^^^^^^^^^^ 
        "#]],
    );
}

#[test]
fn hostile_texts_end() {
    let deep = |open: &str, close: &str, n: usize| format!("x = {}1{}\n", open.repeat(n), close.repeat(n));
    for source in [
        deep("(", ")", 100_000),
        deep("[", "]", 100_000),
        deep("-", "", 100_000),
        deep("f(", ")", 100_000),
        format!("x = {}\n", vec!["1"; 200_000].join(" + ")),
        format!("x = a{}\n", ".b".repeat(100_000)),
        format!("x = 2{}\n", " ** 9".repeat(1000)),
        "x = 10 ** 1000000000\n".into(),
        "x = [1] * 1000000000000\n".into(),
        "x = 1 << 1000000000\n".into(),
        "x = [0]\nfor i in range(60000):\n    x = [x, x]\n".into(),
        "for i in range(60000):\n    for j in range(60000):\n        x = i\n".into(),
        "for i in range(60000):\n    x = [0] * 60000\n".into(),
        "x = torch.arange(4000)\nfor i in range(60000):\n    x = x.as_strided((4000,), (1,))\n".into(),
        "inputs = [[torch.tensor(list(range(4000)))] * 60000] * 60000\nfd = FusionDefinition()\nfd.execute(inputs)\n"
            .into(),
        "def f(n):\n    return f(n)\nf(1)\n".into(),
        "def f(fd: FusionDefinition):\n    f(fd)\n".into(),
        format!("{}pass\n", (0..200).map(|n| format!("{}if 1:\n", " ".repeat(n))).collect::<String>()),
        "if 1:\n  x\n".repeat(20_000),
        "'".repeat(100_000),
        "\u{0}\u{7f}é ".repeat(10_000),
        "((((\n".repeat(10_000),
        "x = torch.zeros(9223372036854775807, 9223372036854775807)\nfd = FusionDefinition()\nfd.execute([x])\n".into(),
        "def f(fd: FusionDefinition):\n    x = fd.define_tensor(shape=[-1] * 60000, contiguity=[True] * 60000)\n"
            .into(),
    ] {
        let errors = read(&source).expect_err("refused");
        assert!(errors.len() <= 101, "{} errors", errors.len());
    }
}

#[test]
fn names_do_not_change_the_structure() {
    let text = |a: &str, b: &str| {
        let source = body(&format!(
            "{a} = fd.define_tensor(shape=[-1], contiguity=[True])
             {b} = fd.ops.exp({a})
             fd.add_output({b})"
        ));
        hash::structure(&one(&source).fusion)
    };
    assert_eq!(text("tv0", "tv1"), text("T3", "_"));
}

#[test]
fn operands_of_lower_rank_get_axes_in_front() {
    check_text(
        &body(
            "a = fd.define_tensor(shape=[-1, 3], contiguity=[True, True])
             b = fd.define_tensor(shape=[3], contiguity=[True])
             c = fd.define_tensor(shape=[], contiguity=[])
             d = fd.ops.where(fd.ops.gt(c, b), a, c)
             e = fd.define_tensor(shape=[], contiguity=[], dtype=DataType.Double)
             f = fd.ops.add(a, e)
             fd.add_output(d)
             fd.add_output(f)",
        ),
        expect![[r#"
            fusion @nvfuser_fusion(%a: f32[?, 3] contiguity(true, true) order(0, 1), %b: f32[3] contiguity(true) order(0), %c: f32[], %e: f64[]) {
              %0 = broadcast %c flags(true)
              %1 = gt %0, %b
              %2 = broadcast %1 flags(true, false)
              %3 = broadcast %c flags(true, true)
              %d = where %2, %a, %3
              %4 = cast %e f32
              %5 = broadcast %4 flags(true, true)
              %f = add %a, %5
              return %d, %f
            }
        "#]],
    );
}

#[test]
fn types_are_those_of_nvfuser() {
    let source = body(
        "h = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Half)
         b = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Bool)
         i = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Int32)
         c = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.ComplexFloat)
         s = fd.define_scalar(None, dtype=DataType.Float)
         for x in [
             fd.ops.relu(h), fd.ops.neg(h), fd.ops.max(h, dims=[0]), fd.ops.sum(h, dims=[0]),
             fd.ops.sum(h, dims=[0], dtype=DataType.Float), fd.ops.where(b, h, 0.0), fd.ops.clamp(h, None, 1.0),
             fd.ops.add(i, 1.5), fd.ops.add(i, s), fd.ops.add(i, 1), fd.ops.mul(b, 2), fd.ops.mul(b, 2.0),
             fd.ops.add(i, 1j), fd.ops.mul(h, 2.0), fd.ops.add(c, 1.5), fd.ops.gt(i, 0.5), fd.ops.clamp(i, 0.5, None),
             fd.ops.mean(i, dims=[0]), fd.ops.exp(i), fd.ops.truediv(i, i), fd.ops.abs(c),
             fd.ops.real(h), fd.ops.real(c)
         ]: fd.add_output(x)",
    );
    let fusion = one(&source).fusion;
    let types: Vec<&str> = fusion.outputs.iter().map(|output| fusion.tensors[*output].dtype.name()).collect();
    assert_eq!(
        types.join(" "),
        "f16 f32 f16 f16 f32 f16 f16 f64 f32 i32 i64 f64 c128 f32 c64 bool i32 f64 f32 f32 f32 f16 f32"
    );
}

#[test]
fn loops_take_tuples_apart() {
    check_text(
        &body(
            "x = fd.define_tensor(shape=[3], contiguity=[True])
             for i, (scale, shift) in enumerate(zip([1.5, 2.5], (1, 2))): x = x * scale + (shift + i)
             fd.add_output(x)",
        ),
        expect![[r#"
            fusion @nvfuser_fusion(%x: f32[3] contiguity(true) order(0)) {
              %0 = mul %x, 1.5
              %1 = add %0, 1.0
              %2 = mul %1, 2.5
              %3 = add %2, 3.0
              return %3
            }
        "#]],
    );
}

#[test]
fn bytes_never_panic() {
    let seed = body(&format!("{X}y = fd.ops.sum(x * 2, dims=[0], keepdim=True)\nfd.add_output(y)"))
        + "inputs = [torch.randn(6, 8)[1:].t()]\n";
    crate::property::property(|u| {
        let mut bytes = seed.clone().into_bytes();
        for _ in 0..u.int_in_range(1..=8)? {
            if bytes.len() < 2 {
                break;
            }
            let at = u.int_in_range(0..=bytes.len() - 1)?;
            match u.int_in_range(0..=3)? {
                0 => bytes[at] = u.arbitrary()?,
                1 => drop(bytes.remove(at)),
                2 => {
                    let end = u.int_in_range(at..=bytes.len() - 1)?;
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
                _ => bytes.truncate(at.max(1)),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        let _ = read(&text);
        Ok(())
    });
}

#[test]
fn products_in_groups_have_the_types_of_nvfuser() {
    let inputs = "a = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Half, is_cpu=False)
        b = fd.define_tensor(shape=[-1, -1, -1], contiguity=[True, True, True], dtype=DataType.Half, is_cpu=False)
        c = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Int32, is_cpu=False)
        r = fd.define_tensor(shape=[-1, 1], contiguity=[True, None], dtype=DataType.Float, is_cpu=False)
        s = fd.define_tensor(shape=[-1, 1, -1], contiguity=[True, None, True], dtype=DataType.Float, is_cpu=False)\n";
    for (call, dtype) in [
        ("out = fd.ops.grouped_mm(a, b, c)", DType::F16),
        ("out, _, _ = fd.ops.grouped_mm(a, b, c, r, s)", DType::BF16),
        ("out, _, _ = fd.ops.grouped_mm(a, b, c, None, None)", DType::BF16),
        ("out, _, _ = fd.ops.grouped_mm(a, b, c, r, s, dtype=DataType.Null)", DType::F16),
        ("out, scale, gamma = fd.ops.grouped_mm(a, b, c, r, s, dtype=DataType.Float)", DType::F32),
        ("out, _, _ = fd.ops.scaled_mm(a, a, r, r, alpha=None)", DType::BF16),
    ] {
        let inputs = if call.contains("scaled") {
            inputs.replace("[-1, 1]", "[1, 1]").replace("True, None],", "None, None],")
        } else {
            inputs.to_string()
        };
        let definition = one(&body(&format!("{inputs}{call}\nfd.add_output(out)")));
        let output = definition.fusion.outputs[0];
        assert_eq!(definition.fusion.tensors[output].dtype, dtype, "{call}");
    }
}

#[test]
fn lookups_with_a_largest_norm_update_their_table() {
    let lookup = "ids = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Int)
             table = fd.define_tensor(shape=[-1, 8], contiguity=[True, True])
             rows = fd.ops.embedding_fwd(ids, table, max_norm=1.0)";
    check_text(
        &body(&format!("{lookup}\n             fd.add_output(rows)")),
        expect![[r#"
            fusion @nvfuser_fusion(%ids: i64[?] contiguity(true) order(0), %table: f32[?, 8] contiguity(true, true) order(0, 1)) {
              %rows = embedding_fwd %ids, %table max_norm(1.0)
              %s0 = size %ids axis(0)
              %0 = reshape [%s0] %ids
              %1 = reshape [%s0, 8] %rows
              %2 = broadcast %0 flags(false, true)
              %3 = expand [%s0, 8] %2
              %4 = scatter %table, %3, %1 dim(0)
              update %table = %4
              return %rows
            }
        "#]],
    );
    // An update of the definition's own stays; a table that is computed has no place.
    let own = body(&format!(
        "{lookup}\n             fd.add_output(fd.ops.neg(table), table)\n             fd.add_output(rows)"
    ));
    check_text(
        &own,
        expect![[r#"
            fusion @nvfuser_fusion(%ids: i64[?] contiguity(true) order(0), %table: f32[?, 8] contiguity(true, true) order(0, 1)) {
              %rows = embedding_fwd %ids, %table max_norm(1.0)
              %0 = neg %table
              update %table = %0
              return %rows
            }
        "#]],
    );
    check_text(
        &body(
            "ids = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Int)
             table = fd.define_tensor(shape=[-1, 8], contiguity=[True, True])
             fd.add_output(fd.ops.embedding_fwd(ids, fd.ops.neg(table), max_norm=1.0))",
        ),
        expect![[r#"
            fusion @nvfuser_fusion(%ids: i64[?] contiguity(true) order(0), %table: f32[?, 8] contiguity(true, true) order(0, 1)) {
              %0 = neg %table
              %1 = embedding_fwd %ids, %0 max_norm(1.0)
              return %1
            }
        "#]],
    );
}
