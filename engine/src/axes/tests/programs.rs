//! The axes of programs, written out.

use crate::axes::{AxisId, AxisRef, Extent, Forks, FusionAxes, Xform, analyze};
use crate::diag::Result;
use crate::fusion::{Fusion, bind, concretize, decompose};
use crate::num::{DType, Value};
use crate::tensor::{ArgMeta, TensorMeta};
use crate::text::parse_one;
use expect_test::{Expect, expect};

/// The fusion of a text, its axes decided for arguments of some sizes.
pub(super) fn concrete(text: &str, sizes: &[&[i64]]) -> Fusion {
    let fusion = parse_one(text).unwrap();
    let mut metas: Vec<ArgMeta> =
        sizes.iter().map(|sizes| ArgMeta::Tensor(TensorMeta::contiguous(DType::F32, sizes))).collect();
    metas.resize(fusion.inputs.len(), ArgMeta::Scalar(Value::Int(1)));
    let facts = concretize::facts(&fusion, &bind(&fusion, &metas).unwrap());
    decompose(&concretize::concretize(&fusion, &facts).unwrap().fusion).unwrap().fusion
}

/// Values with their axes, then transforms.
pub(super) fn shown(fusion: &Fusion, axes: &FusionAxes) -> String {
    let name = |axis: AxisRef| match axis {
        AxisRef::Axis(axis) => axes.graph[axis].name.clone(),
        AxisRef::Broadcast(axis) => format!("({})", axes.graph[axis].name),
        AxisRef::Indirect(axis) => format!("<{}>", axes.graph[axis].name),
    };
    let list = |axes: &[AxisRef]| axes.iter().map(|axis| name(*axis)).collect::<Vec<_>>().join(", ");
    let mut lines = Vec::new();
    for (id, value) in axes.values.iter() {
        let operands = value.operands.iter().flatten().map(|operand| {
            let seen =
                if operand.axes == axes.values[operand.value].axes { String::new() } else { list(&operand.axes) };
            format!(" {}{}", operand.value, if seen.is_empty() { seen } else { format!("[{seen}]") })
        });
        let operands: String = operands.collect();
        lines.push(format!("{id} %{}[{}]{operands}", fusion.tensors[value.tensor].name, list(&value.axes)));
    }
    let graph = &axes.graph;
    for (_, xform) in graph.xforms() {
        let name = |axis: AxisId| graph[axis].name.as_str();
        lines.push(match *xform {
            Xform::Split { input, outer, inner, .. } => {
                format!("split {} = {}, {}", name(input), name(outer), name(inner))
            }
            Xform::Merge { outer, inner, output } => {
                format!("merge {}, {} = {}", name(outer), name(inner), name(output))
            }
            Xform::Resize { input, output, left, right } => {
                let [left, right] = [left, right].map(|by| {
                    let by = &graph[by];
                    by.known().map_or(format!("{:?}", by.sign), |n| n.to_string())
                });
                format!("resize {} = {} {left} {right}", name(output), name(input))
            }
            Xform::Align { .. } => "align".into(),
            Xform::Window { .. } => "window".into(),
        });
    }
    lines.join("\n")
}

fn analyzed(text: &str, sizes: &[&[i64]]) -> Result<String> {
    let fusion = concrete(text, sizes);
    Ok(shown(&fusion, &analyze(&fusion, Forks::Uses)?))
}

#[track_caller]
fn check(text: &str, sizes: &[&[i64]], expected: Expect) {
    expected.assert_eq(&analyzed(text, sizes).unwrap_or_else(|refused| refused.message.clone()));
}

#[test]
fn an_axis_that_is_looked_up_has_no_loop() {
    // The table is read as it lies too: each lookup has one of its own.
    check(
        "fusion @f(%x: f32[?, ?], %i: f32[?, ?]) {
            %j = cast %i i64
            %0 = take_along_axis %x, %j dim(1)
            %1 = add %0, %x
            return %1
        }",
        &[&[3, 4], &[3, 4]],
        expect![[r#"
            v0 %x[d0, d1]
            v1 %i[d0, d1]
            v2 %j[d0, d1] v1
            v3 %x[d0, <d2>]
            v4 %0[d0, d1] v3 v2
            v5 %1[d0, d1] v4 v0"#]],
    );
    check(
        "fusion @f(%i: f32[?, ?], %w: f32[?, ?]) {
            %j = cast %i i64
            %0 = embedding_fwd %j, %w
            return %0
        }",
        &[&[3, 4], &[10, 8]],
        expect![[r#"
            v0 %i[d0, d1]
            v1 %w[<d2>, d3]
            v2 %j[d0, d1] v0
            v3 %0[d0, d1, d3] v2 v1"#]],
    );
}

#[test]
fn a_reshape_and_its_inverse_leave_axes_as_they_were() {
    check(
        "fusion @f(%x: f32[?, ?, ?]) {
           %a = reshape [-1] %x
           %b = exp %a
           %n = size %x axis(0)
           %m = size %x axis(1)
           %k = size %x axis(2)
           %c = reshape [%n, %m, %k] %b
           %y = add %x, %c
           return %y
         }",
        &[&[3, 4, 5]],
        expect![[r#"
            v0 %x[d0, d1, d2]
            v1 %a[d3] v0
            v2 %b[d3] v1
            v3 %c[d0, d1, d2] v2
            v4 %y[d0, d1, d2] v0 v3
            merge d0, d1 = d4
            merge d4, d2 = d3"#]],
    );
}

#[test]
fn reshapes_are_one_however_their_parts_are_nested() {
    check(
        "fusion @f(%x: f32[3, 4, 5]) {
           %a = reshape [3, 20] %x
           %b = reshape [60] %a
           %c = reshape [12, 5] %x
           %d = reshape [60] %c
           %e = reshape [60] %x
           %f = add %b, %d
           %y = add %e, %f
           return %y
         }",
        &[&[3, 4, 5]],
        expect![[r#"
            v0 %x[d0, d1, d2]
            v1 %a[d0, d3] v0
            v2 %b[d4] v1
            v3 %c[d5, d2] v0
            v4 %d[d4] v3
            v5 %e[d4] v0
            v6 %f[d4] v2 v4
            v7 %y[d4] v5 v6
            merge d1, d2 = d3
            merge d0, d3 = d4
            merge d0, d1 = d5
            merge d5, d2 = d4"#]],
    );
}

#[test]
fn axes_that_do_not_divide_each_other_are_merged_and_split() {
    check(
        "fusion @f(%x: f32[6, 4]) {\n %y = reshape [4, 6] %x\n return %y\n}",
        &[&[6, 4]],
        expect![[r#"
            v0 %x[d0, d1]
            v1 %y[d2, d3] v0
            merge d0, d1 = d4
            split d4 = d2, d3"#]],
    );
    check(
        "fusion @f(%x: f32[6, 4]) {\n %y = reshape [3, 8] %x\n return %y\n}",
        &[&[6, 4]],
        expect![[r#"
        v0 %x[d0, d1]
        v1 %y[d2, d3] v0
        split d0 = d2, d4
        merge d4, d1 = d3"#]],
    );
    check(
        "fusion @f(%x: f32[2, 6, 7]) {\n %y = reshape [2, 1, 3, 14] %x\n return %y\n}",
        &[&[2, 6, 7]],
        expect![[r#"
        v0 %x[d0, d1, d2]
        v1 %y[d0, (d3), d4, d5] v0
        split d1 = d4, d6
        merge d6, d2 = d5"#]],
    );
}

#[test]
fn groups_of_channels_are_parts_of_channels() {
    check(
        "fusion @f(%x: f32[?, 8, ?], %w: f32[8]) {
           %n = size %x axis(0)
           %k = size %x axis(2)
           %g = reshape [%n, 2, -1] %x
           %s = sum %g axes(2) keepdim
           %h = mul %g, %s
           %y = reshape [%n, 8, %k] %h
           %v = broadcast %w flags(true, false, true)
           %z = mul %y, %v
           return %z
         }",
        &[&[3, 8, 5], &[8]],
        expect![[r#"
            v0 %x[d0, d1, d2]
            v1 %w[d1]
            v2 %g[d0, d3, d4] v0
            v3 %0[d0, d3] v2
            v4 %s[d0, d3, (d4)] v3
            v5 %h[d0, d3, d4] v2 v4
            v6 %y[d0, d1, d2] v5
            v7 %v[(d0), d1, (d2)] v1
            v8 %z[d0, d1, d2] v6 v7
            split d1 = d3, d5
            merge d5, d2 = d4
            merge d3, d4 = d6
            split d6 = d1, d2"#]],
    );
}

#[test]
fn a_tensor_that_meets_its_transpose_is_read_twice() {
    check(
        "fusion @f(%x: f32[4, 4]) {\n %e = exp %x\n %t = permute %e dims(1, 0)\n %y = add %e, %t\n return %y\n}",
        &[&[4, 4]],
        expect![[r#"
            v0 %x[d0, d1]
            v1 %e[d0, d1] v0
            v2 %t[d1, d0] v1
            v3 %x[d1, d0]
            v4 %e[d1, d0] v3
            v5 %y[d1, d0] v4 v2"#]],
    );
    // By way of a reshape.
    check(
        "fusion @f(%x: f32[12]) {
           %a = reshape [3, 4] %x
           %b = permute %a dims(1, 0)
           %c = reshape [12] %b
           %y = add %x, %c
           return %y
         }",
        &[&[12]],
        expect![[r#"
            v0 %x[d0]
            v1 %a[d1, d2] v0
            v2 %b[d2, d1] v1
            v3 %c[d3] v2
            v4 %x[d3]
            v5 %y[d3] v4 v3
            split d0 = d1, d2
            merge d2, d1 = d3"#]],
    );
}

#[test]
fn axes_that_a_reshape_exchanges_are_of_two_copies() {
    // `m = a * 4 + b` and `m = b * 6 + a`: no two loops have both.
    check(
        "fusion @f(%x: f32[6, 4]) {
           %a = reshape [4, 6] %x
           %b = permute %a dims(1, 0)
           %y = add %x, %b
           return %y
         }",
        &[&[6, 4]],
        expect![[r#"
            v0 %x[d0, d1]
            v1 %a[d2, d3] v0
            v2 %b[d3, d2] v1
            v3 %x[d3, d2]
            v4 %y[d3, d2] v3 v2
            merge d0, d1 = d4
            split d4 = d2, d3"#]],
    );
    // Once more around, by way of sizes that are not known.
    check(
        "fusion @f(%x: f32[?, ?]) {
           %n = size %x axis(0)
           %m = size %x axis(1)
           %a = reshape [%m, %n] %x
           %b = permute %a dims(1, 0)
           %c = reshape [%m, %n] %b
           %d = permute %c dims(1, 0)
           %y = add %x, %d
           return %y
         }",
        &[&[6, 4]],
        expect![[r#"
            v0 %x[d0, d1]
            v1 %a[d2, d3] v0
            v2 %b[d3, d2] v1
            v3 %c[d4, d5] v2
            v4 %d[d5, d4] v3
            v5 %x[d5, d4]
            v6 %y[d5, d4] v5 v4
            merge d0, d1 = d6
            split d6 = d2, d3
            merge d3, d2 = d7
            split d7 = d4, d5"#]],
    );
}

#[test]
fn what_equal_slices_are_cut_from_may_differ() {
    check(
        "fusion @f(%x: f32[8], %z: f32[8]) {
           %a = slice %x starts(1) ends(7)
           %b = slice %z starts(1) ends(7)
           %y = add %a, %b
           return %y
         }",
        &[&[8], &[8]],
        expect![[r#"
            v0 %x[d0]
            v1 %z[d1]
            v2 %a[d2] v0
            v3 %b[d2] v1
            v4 %y[d2] v2 v3
            resize d2 = d0 -1 -1
            resize d2 = d1 -1 -1"#]],
    );
}

#[test]
fn a_tensor_beside_itself_is_read_twice() {
    check(
        "fusion @f(%x: f32[?, 4]) {\n %y = cat %x, %x dim(1)\n return %y\n}",
        &[&[3, 4]],
        expect![[r#"
            v0 %x[d0, d1]
            v1 %x[d0, d2]
            v2 %y[d0, d3] v0 v1
            resize d3 = d1 0 4
            resize d3 = d2 4 0"#]],
    );
}

#[test]
fn shifted_slices_are_of_two_copies() {
    let slices = "%a = slice %x starts(0) ends(7)\n %b = slice %x starts(1) ends(8)\n";
    check(
        &format!("fusion @f(%x: f32[8]) {{\n {slices} %y = add %a, %b\n return %y\n}}"),
        &[&[8]],
        expect![[r#"
            v0 %x[d0]
            v1 %a[d1] v0
            v2 %x[d2]
            v3 %b[d1] v2
            v4 %y[d1] v1 v3
            resize d1 = d0 0 -1
            resize d1 = d2 -1 0"#]],
    );
    // Two results of one tensor are no meeting.
    check(
        &format!("fusion @f(%x: f32[8]) {{\n {slices} return %a, %b\n}}"),
        &[&[8]],
        expect![[r#"
        v0 %x[d0]
        v1 %a[d1] v0
        v2 %b[d2] v0
        resize d1 = d0 0 -1
        resize d2 = d0 -1 0"#]],
    );
}

#[test]
fn halves_that_are_swapped_are_of_copies() {
    check(
        "fusion @f(%x: f32[?, 8], %c: f32[?, 8], %s: f32[?, 8]) {
           %n = size %x axis(0)
           %a = slice %x starts(0, 0) ends(%n, 4)
           %b = slice %x starts(0, 4) ends(%n, 8)
           %m = neg %b
           %r = cat %m, %a dim(1)
           %p = mul %x, %c
           %q = mul %r, %s
           %y = add %p, %q
           return %y
         }",
        &[&[3, 8], &[3, 8], &[3, 8]],
        expect![[r#"
            v0 %x[d0, d1]
            v1 %c[d0, d2]
            v2 %s[d0, d2]
            v3 %a[d0, d3] v0
            v4 %x[d0, d4]
            v5 %b[d0, d5] v4
            v6 %m[d0, d5] v5
            v7 %r[d0, d2] v6 v3
            v8 %x[d0, d2]
            v9 %p[d0, d2] v8 v1
            v10 %q[d0, d2] v7 v2
            v11 %y[d0, d2] v9 v10
            resize d3 = d1 0 -4
            resize d5 = d4 -4 0
            resize d2 = d5 0 4
            resize d2 = d3 4 0"#]],
    );
}

#[test]
fn what_is_cut_and_padded_is_where_it_was() {
    check(
        "fusion @f(%x: f32[8]) {
           %a = slice %x starts(2) ends(7)
           %b = pad %a, 0.0 widths(2, 1)
           %y = add %x, %b
           return %y
         }",
        &[&[8]],
        expect![[r#"
            v0 %x[d0]
            v1 %a[d1] v0
            v2 %b[d0] v1
            v3 %y[d0] v0 v2
            resize d1 = d0 -2 -1
            resize d0 = d1 2 1"#]],
    );
}

#[test]
fn a_broadcast_that_is_padded_has_one_index_there() {
    check(
        "fusion @f(%x: f32[4], %z: f32[3, 4]) {
           %b = broadcast %x flags(true, false)
           %p = pad %b, 0.0 widths(0, 0, 1, 1)
           %y = add %p, %z
           %w = add %b, %z
           return %y, %w
         }",
        &[&[4], &[3, 4]],
        expect![[r#"
            v0 %x[d0]
            v1 %z[d1, d0]
            v2 %b[(d1), d0] v0
            v3 %p[d1, d0] v2[d2, d0]
            v4 %y[d1, d0] v3 v1
            v5 %w[d1, d0] v2 v1
            resize d1 = d2 1 1"#]],
    );
    check(
        "fusion @f(%x: f32[8], %z: f32[3]) {
           %a = slice %x starts(2) ends(3)
           %y = add %a, %z
           return %y
         }",
        &[&[8], &[3]],
        expect![[r#"
            v0 %x[d0]
            v1 %z[d1]
            v2 %a[(d1)] v0
            v3 %y[d1] v2 v1
            resize d2 = d0 -2 -5"#]],
    );
}

#[test]
fn reductions_are_not_copied() {
    check(
        "fusion @f(%x: f32[4, 4, 8]) {
           %s = sum %x axes(2)
           %t = permute %s dims(1, 0)
           %y = add %s, %t
           return %y
         }",
        &[&[4, 4, 8]],
        expect!["axes 0 and 1 of %x are one dimension of the fusion"],
    );
    // But what they read.
    check(
        "fusion @f(%x: f32[6, 4]) {
           %s = sum %x axes(1)
           %a = reshape [4, 6] %x
           %b = permute %a dims(1, 0)
           %e = exp %b
           %t = sum %e axes(1)
           %y = add %s, %t
           return %y
         }",
        &[&[6, 4]],
        expect![[r#"
            v0 %x[d0, d1]
            v1 %s[d0] v0
            v2 %x[d2, d3]
            v3 %a[d4, d0] v2
            v4 %b[d0, d4] v3
            v5 %e[d0, d4] v4
            v6 %t[d0] v5
            v7 %y[d0] v1 v6
            merge d2, d3 = d5
            split d5 = d4, d0"#]],
    );
}

#[test]
fn sizes_that_are_not_known_are_compared_by_form() {
    check(
        "fusion @f(%x: f32[?, ?], %k: i64) {
           %a = slice %x starts(0, %k) ends(2, 5)
           %n = size %x axis(0)
           %b = cat %x, %x, %x dim(0)
           %m = mul %n, 3
           %c = reshape [%m, 2, -1] %b
           return %a, %c
         }",
        &[&[3, 8]],
        expect![[r#"
            v0 %x[d0, d1]
            v1 %a[d2, d3] v0
            v2 %x[d4, d1]
            v3 %x[d5, d1]
            v4 %b[d6, d1] v0 v2 v3
            v5 %c[d6, d7, d8] v4
            split d1 = d7, d8
            resize d2 = d0 0 NotPositive
            resize d3 = d1 NotPositive NotPositive
            resize d6 = d0 0 NotNegative
            resize d6 = d4 NotNegative NotNegative
            resize d6 = d5 NotNegative 0"#]],
    );
    // An axis that has one element in this run, but in others more.
    check(
        "fusion @f(%x: f32[?, ?]) {\n %n = size %x axis(0)\n %y = reshape [%n] %x\n return %y\n}",
        &[&[3, 1]],
        expect![[r#"
            v0 %x[d0, d1]
            v1 %y[d2] v0
            merge d0, d1 = d2"#]],
    );
}

#[test]
fn loops_lead_on_to_what_the_program_makes_of_their_axes() {
    let fusion = concrete("fusion @f(%x: f32[?, ?]) {\n %y = reshape [-1] %x\n return %y\n}", &[&[3, 4]]);
    let FusionAxes { mut graph, values, .. } = analyze(&fusion, Forks::Uses).unwrap();
    let indexed = |value: usize| -> Vec<AxisId> {
        values.values().nth(value).into_iter().flat_map(|value| &value.axes).filter_map(|axis| axis.indexed()).collect()
    };
    let [rows, columns]: [AxisId; 2] = indexed(0).try_into().unwrap();
    let [flat]: [AxisId; 1] = indexed(1).try_into().unwrap();
    let is_part = |axis: AxisId| axis == rows || axis == columns;
    assert!(graph.reaches(flat, &is_part) && !graph.covers(flat, &is_part));
    assert!(graph.covers(rows, &|axis| axis == flat) && !graph.reaches(flat, &|axis| axis == rows));
    // What a schedule made of an axis is its parts, and what the program did is not.
    assert!(graph.is_leaf(rows) && graph.goes_on(rows) && !graph.goes_on(flat));
    let (outer, inner) = graph.split(rows, |_| Extent::Const(2), Extent::Const(2), false);
    assert_eq!(graph.leaves(rows), [outer, inner]);
    assert!(!graph.is_leaf(rows) && graph.is_leaf(inner) && graph.goes_on(inner));
    assert!(graph.reaches(flat, &|axis| [outer, inner, columns].contains(&axis)));
}

/// The sum of a tensor's windows at so many positions, of which each is computed by so many operations.
fn windows(positions: usize, operations: usize) -> String {
    let mut lines = String::new();
    for at in 0..positions {
        let mut own = "x".to_string();
        for step in 0..operations {
            lines.push_str(&format!(" %a{at}_{step} = exp %{own}\n"));
            own = format!("a{at}_{step}");
        }
        lines.push_str(&format!(" %p{at} = pad %{own} widths({at}, {})\n", positions - at));
        let sum = if at == 0 { "%s0 = neg %p0".to_string() } else { format!("%s{at} = add %s{}, %p{at}", at - 1) };
        lines.push_str(&format!(" {sum}\n"));
    }
    format!("fusion @f(%x: f32[?]) {{\n{lines} return %s{}\n}}", positions - 1)
}

#[test]
fn windows_of_any_number_of_positions_read_an_input_each() {
    for (positions, operations) in [(9, 0), (12, 0), (60, 0), (20, 3)] {
        assert!(analyzed(&windows(positions, operations), &[&[7]]).is_ok(), "{positions} of {operations} operations");
    }
    // Copies of operations have an end.
    assert!(analyzed(&windows(30, 4), &[&[7]]).is_err());
}
