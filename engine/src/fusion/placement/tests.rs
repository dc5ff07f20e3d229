use super::placements;
use crate::fusion::{bind, layouts};
use crate::num::DType;
use crate::refeval::evaluate;
use crate::tensor::{Arg, ArgMeta, HostTensor, TensorMeta};
use crate::text::parse_one;
use arbtest::arbitrary;

fn metas(args: &[(&[i64], &[i64])]) -> Vec<ArgMeta> {
    let meta = |(sizes, strides): &(&[i64], &[i64])| {
        ArgMeta::Tensor(TensorMeta { dtype: DType::F32, sizes: sizes.to_vec(), strides: strides.to_vec() })
    };
    args.iter().map(meta).collect()
}

/// Strides of the outputs of a fusion on `f32` arguments of these sizes and strides.
fn check_placed(inputs: &str, body: &str, args: &[(&[i64], &[i64])], expected: &[&[i64]]) {
    let text = format!("fusion @f({inputs}) {{\n{body}\n}}\n");
    let fusion = parse_one(&text).unwrap_or_else(|errors| panic!("{text}{}", errors[0].message));
    let args = metas(args);
    let bindings = bind(&fusion, &args).unwrap();
    let placed = placements(&fusion, &bindings, &args).unwrap();
    let strides: Vec<&[i64]> = placed.iter().map(|meta| &meta.strides[..]).collect();
    assert_eq!(strides, expected, "{text}");
}

#[test]
fn written_results_are_dense_in_the_order_of_the_widest_input() {
    let two = "%a: f32[?, ?, ?], %b: f32[1, 1, ?]";
    let body = "%r = add %a, %b\nreturn %r";
    let row: (&[i64], &[i64]) = (&[1, 1, 4], &[4, 4, 1]);
    check_placed(two, body, &[(&[2, 3, 4], &[12, 4, 1]), row], &[&[12, 4, 1]]);
    check_placed(two, body, &[(&[2, 3, 4], &[1, 2, 6]), row], &[&[1, 2, 6]]);
    // Holes close.
    check_placed(two, body, &[(&[2, 3, 4], &[100, 1, 10]), row], &[&[12, 1, 3]]);
    // Two inputs of as many axes that disagree decide nothing.
    let same = "%a: f32[?, ?], %b: f32[?, ?]";
    check_placed(same, "%r = add %a, %b\nreturn %r", &[(&[2, 3], &[1, 2]), (&[2, 3], &[3, 1])], &[&[3, 1]]);
    // The axes that a reduction leaves keep their order.
    let sum = "%r = sum %a axes(1)\nreturn %r";
    check_placed("%a: f32[?, ?, ?]", sum, &[(&[2, 3, 4], &[1, 8, 2])], &[&[1, 2]]);
    check_placed("%a: f32[?, ?, ?]", sum, &[(&[2, 3, 4], &[4, 8, 1])], &[&[4, 1]]);
    // What is computed of a permuted input is written in the input's order.
    let turned = "%p = permute %a dims(1, 0)\n%r = neg %p\nreturn %r";
    check_placed("%a: f32[?, ?]", turned, &[(&[2, 3], &[3, 1])], &[&[1, 3]]);
    // Axes that regrouping makes come from no input.
    let grouped = "%n = neg %a\n%g = reshape [2, 3, 4] %n\n%p = permute %g dims(0, 2, 1)\n%r = neg %p\nreturn %r";
    check_placed("%a: f32[2, 12]", grouped, &[(&[2, 12], &[12, 1])], &[&[12, 3, 1]]);
}

#[test]
fn axes_of_one_take_the_next_step_and_axes_of_none_count_nothing() {
    let neg = "%r = neg %a\nreturn %r";
    check_placed("%a: f32[?, 1, ?]", neg, &[(&[2, 1, 3], &[3, 77, 1])], &[&[3, 3, 1]]);
    check_placed("%a: f32[1, 2] contiguity(true, _) order(1, 0)", neg, &[(&[1, 2], &[2, 1])], &[&[1, 1]]);
    check_placed("%a: f32[?, ?, ?]", neg, &[(&[0, 2, 1], &[2, 1, 1])], &[&[1, 1, 1]]);
    check_placed("%a: f32[?, ?, ?]", neg, &[(&[5, 0, 3], &[3, 3, 1])], &[&[3, 1, 1]]);
    let expand = "%r = expand [0, 0] %a\nreturn %r";
    check_placed("%a: f32[1, 1]", expand, &[(&[1, 1], &[1, 1])], &[&[1, 1]]);
}

#[test]
fn axes_that_repeat_stay_so_through_elementwise_operations() {
    let expanded = "%a: f32[?, ?] contiguity(_, _) order(0, 1)";
    let drop = "%s = squeeze %a dims(0) squeeze_expanded\n%r = mul %s, 2.0\nreturn %r";
    check_placed(expanded, drop, &[(&[2, 3], &[0, 0])], &[&[0]]);
    let both = "%a: f32[?, 1], %b: f32[?]";
    let mixed = "%u = broadcast %b flags(false, true)\n%e = expand [3, 3] %u\n%r = add %a, %e\nreturn %r";
    check_placed(both, mixed, &[(&[3, 1], &[1, 1]), (&[3], &[1])], &[&[1, 0]]);
    // An operand that iterates there gives every position its own elements.
    let filled = "%a: f32[?, ?], %b: f32[?, ?] contiguity(_, true) order(0, 1)";
    check_placed(filled, "%r = add %a, %b\nreturn %r", &[(&[2, 3], &[3, 1]), (&[2, 3], &[0, 1])], &[&[3, 1]]);
    // Padding fills.
    let pad = "%r = pad %a widths(1, 0)\nreturn %r";
    check_placed(expanded, pad, &[(&[2, 3], &[0, 0])], &[&[0, 1]]);
    check_placed(expanded, "%r = pad %a widths(0, 0, 1, 0)\nreturn %r", &[(&[0, 3], &[0, 0])], &[&[3, 1]]);
}

#[test]
fn chains_that_only_move_axes_are_views() {
    let chain = "%p = permute %a dims(1, 0)\n%s = slice %p starts(1, 0) ends(3, 2)\nreturn %s";
    check_placed("%a: f32[?, ?]", chain, &[(&[2, 4], &[4, 1])], &[&[1, 4]]);
    check_placed("%a: f32[?, ?]", "%r = set %a\nreturn %r", &[(&[2, 3], &[10, 2])], &[&[10, 2]]);
    check_placed("%a: f32[?, 1]", "%r = expand [2, 5] %a\nreturn %r", &[(&[2, 1], &[1, 1])], &[&[1, 0]]);
    // At the end of a computation, what was written is looked at.
    let end = "%n = neg %a\n%p = permute %n dims(1, 0)\nreturn %p";
    check_placed("%a: f32[?, ?]", end, &[(&[2, 3], &[3, 1])], &[&[1, 3]]);
    // Dropping an axis decides anew how axes of size 1 are stepped over.
    let drop = "%p = permute %a dims(0, 2, 1, 3)\n%s = squeeze %p dims(0)\nreturn %s";
    check_placed("%a: f32[1, 1, 16, 64]", drop, &[(&[1, 1, 16, 64], &[1024, 1024, 64, 1])], &[&[64, 64, 1]]);
    let insert = "%s = broadcast %a flags(false, false, true)\nreturn %s";
    check_placed("%a: f32[?, ?]", insert, &[(&[2, 3], &[1, 2])], &[&[1, 2, 2]]);
    // An element of an axis is copied.
    check_placed("%a: f32[?, ?]", "%r = select %a, 0 dim(1)\nreturn %r", &[(&[8, 16], &[16, 1])], &[&[1]]);
}

#[test]
fn regrouped_axes_are_views_where_declared_layouts_have_no_holes() {
    let merge = "%r = reshape [12] %a\nreturn %r";
    check_placed("%a: f32[3, 4] contiguity(true, true) order(0, 1)", merge, &[(&[3, 4], &[4, 1])], &[&[1]]);
    let split = "%r = reshape [3, 2, 2] %a\nreturn %r";
    let open = "%a: f32[3, 4] contiguity(false, false) order(0, 1)";
    check_placed(open, split, &[(&[3, 4], &[20, 2])], &[&[20, 4, 2]]);
    // Merging over a hole copies.
    check_placed(open, merge, &[(&[3, 4], &[20, 2])], &[&[1]]);
}

#[test]
fn an_order_that_is_asked_for_is_given() {
    let asked = "%n = neg %a\n%r = stride_order %n order(0, 2, 1)\nreturn %r";
    check_placed("%a: f32[?, ?, ?]", asked, &[(&[2, 3, 4], &[12, 4, 1])], &[&[1, 8, 2]]);
    // The input lies so already: a view.
    let view = "%r = stride_order %a order(0, 1)\nreturn %r";
    let turned = "%a: f32[?, ?] contiguity(true, true) order(1, 0)";
    check_placed(turned, view, &[(&[2, 3], &[1, 2])], &[&[1, 2]]);
    check_placed("%a: f32[?, ?]", "%r = stride_order %a order()\nreturn %r", &[(&[2, 3], &[3, 1])], &[&[3, 1]]);
}

#[test]
fn updated_inputs_and_library_results_keep_their_own_rules() {
    let update = "%r = mul %a, 2.0\nupdate %a = %r\nreturn %r";
    check_placed("%a: f32[?, ?]", update, &[(&[2, 3], &[9, 2])], &[&[9, 2]]);
    let product = "%r = matmul %a, %b\nreturn %r";
    let turned = [(&[2, 3][..], &[1, 2][..]), (&[3, 4], &[1, 3])];
    check_placed("%a: f32[?, ?], %b: f32[?, ?]", product, &turned, &[&[4, 1]]);
    // Alone it is the library's, among others a part of a kernel.
    let (alone, more) = ("%r = cumsum %a dim(0)\nreturn %r", "%n = neg %a\n%r = cumsum %n dim(0)\nreturn %r");
    check_placed("%a: f32[?, ?]", alone, &turned[..1], &[&[3, 1]]);
    check_placed("%a: f32[?, ?]", more, &turned[..1], &[&[1, 2]]);
}

/// What is squeezed and broadcast again is the axis that it was, and stays between its neighbours.
#[test]
fn axes_that_are_put_back_are_those_that_were_dropped() {
    let back = "%s = squeeze %a dims(1)\n%b = broadcast %s flags(false, true, false)\n%r = neg %b\nreturn %r";
    check_placed("%a: f32[?, 1, ?]", back, &[(&[8, 1, 6], &[6, 6, 1])], &[&[6, 6, 1]]);
    let elsewhere = "%s = squeeze %a dims(1)\n%b = broadcast %s flags(false, false, true)\n%r = neg %b\nreturn %r";
    check_placed("%a: f32[?, 1, ?]", elsewhere, &[(&[8, 1, 6], &[6, 6, 1])], &[&[6, 1, 48]]);
}

/// Dense row-major arguments without axes of size 0 or 1 give row-major
/// results whatever the rule.
#[test]
fn both_rules_agree_on_dense_elementwise_programs() {
    crate::property::property(|u| {
        let rank = u.int_in_range(1..=4usize)?;
        let sizes: Vec<i64> = (0..rank).map(|_| u.int_in_range(2..=5)).collect::<arbitrary::Result<_>>()?;
        let dims = vec!["?"; rank].join(", ");
        let ops = ["add %a, %b", "mul %a, %a", "where %c, %a, %b", "neg %b"];
        let body = format!("%c = lt %a, %b\n%x = {}\n%r = neg %x\nreturn %c, %r", u.choose(&ops)?);
        let text = format!("fusion @f(%a: f32[{dims}], %b: f32[{dims}]) {{\n{body}\n}}\n");
        let fusion = parse_one(&text).expect("the text is right");
        let input = HostTensor::zeros(DType::F32, &sizes).expect("it is small");
        let args = vec![Arg::Tensor(input); 2];
        let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
        let bindings = bind(&fusion, &metas).expect("sizes agree");
        let placed = placements(&fusion, &bindings, &metas).expect("rules apply");
        let eager = layouts(&fusion, &bindings, &metas).expect("rules apply");
        let outputs = evaluate(&fusion, &args).expect("it is evaluated");
        for ((&id, placed), output) in fusion.outputs.iter().zip(placed).zip(outputs) {
            assert_eq!((&placed, &output.meta), (&eager[id], &eager[id]), "{text}");
        }
        Ok(())
    });
}
