//! What is cut where.

use super::{Derived, Segment, Segments, segment};
use crate::compile::{BoundFusion, FreshPlans, KernelChoice, KernelForm, Plan, PlanSource};
use crate::diag::{Diagnostic, Result};
use crate::fusion::{OpKind, Operand, bind};
use crate::num::{DType, UnaryOp};
use crate::options::{CompileCx, DeviceDesc, NoTrace, Options};
use crate::tensor::{ArgMeta, TensorMeta};
use crate::text;
use std::sync::Arc;

/// The segments of a fusion of dense `f32` inputs.
fn cut(text: &str, sizes: &[&[i64]]) -> Segments {
    cut_for(text, sizes.iter().map(|sizes| ArgMeta::Tensor(TensorMeta::contiguous(DType::F32, sizes))).collect())
}

fn cut_for(text: &str, args: Vec<ArgMeta>) -> Segments {
    cut_by(&|cx| Box::new(FreshPlans(cx)), 0, text, args).expect("every fusion has segments")
}

/// The same with kernels of some source, on so many threads.
fn cut_by(
    source: &dyn for<'a> Fn(CompileCx<'a>) -> Box<dyn PlanSource + 'a>,
    threads: u32,
    text: &str,
    args: Vec<ArgMeta>,
) -> Result<Segments> {
    let fusion = text::parse_one(text).expect("it reads");
    let (device, options) = (DeviceDesc::h200(), Options { compile_threads: threads, ..Options::default() });
    let cx = CompileCx { options: &options, device: &device, trace: &NoTrace };
    let (bindings, alignments) = (bind(&fusion, &args).expect("the arguments fit"), vec![16; args.len()]);
    let bound = BoundFusion { fusion: &fusion, bindings: &bindings, args: &args, alignments: &alignments };
    segment(&cx, &*source(cx), &Derived::new(&cx, &fusion).expect("it reads back"), &bound)
}

/// Names of what each segment returns, with who computes it.
fn check_cut(text: &str, sizes: &[&[i64]], expected: &[&str]) {
    check_told(&cut(text, sizes), expected);
}

fn check_told(segments: &Segments, expected: &[&str]) {
    assert_eq!(told(segments), expected, "{segments}");
}

fn told(segments: &Segments) -> Vec<String> {
    let of_one = |segment: &Segment| {
        let names = segment.outputs.iter().map(|output| segments.fusion.tensors[*output].name.as_str());
        format!("{}: {}", segment.kind.name(), names.collect::<Vec<_>>().join(" "))
    };
    segments.segments.iter().map(of_one).collect()
}

#[test]
fn a_fusion_of_one_kernel_is_one_segment() {
    check_cut(
        "fusion @f(%x: f32[?, ?]) {\n  %a = softmax %x axis(1)\n  return %a\n}",
        &[&[8, 64]],
        &["inner_persistent: a"],
    );
}

#[test]
fn reductions_over_different_dimensions_are_two_kernels() {
    check_cut(
        "fusion @f(%x: f32[?, ?]) {\n  %e = exp %x\n  %a = sum %e axes(0)\n  %b = sum %e axes(1)\n  return %a, %b\n}",
        &[&[8, 32]],
        &["reduction: a", "reduction: b"],
    );
}

#[test]
fn rows_and_columns_of_large_tensors_are_one_kernel() {
    let gradients = |before: &str, after: &str| {
        format!(
            "fusion @f(%x: f32[?, ?], %y: f32[?, ?], %w: f32[?, ?]) {{\n{before}  %0 = mul %a, %y\n  \
             %1 = sum %0 axes(1) keepdim\n  %b = sub %a, %1\n  %c = sum %0 axes(0)\n{after}}}"
        )
    };
    let alone = gradients("  %a = neg %x\n", "  return %b, %c\n");
    let check =
        |text: &str, [m, n]: [i64; 2], expected: &[&str]| check_cut(text, &[&[m, n], &[m, n], &[n, n]], expected);
    check(&alone, [2048, 1024], &["inner_outer: b c"]);
    check(&alone, [2048, 1023], &["inner_outer: b c"]);
    check(&alone, [512, 1024], &["inner_persistent: 0 b", "reduction: c"]);
    // Among others: asked for before kernels are, and cut anew where there is none.
    let between = gradients("  %a = matmul %x, %w\n", "  %d = matmul %b, %w\n  return %c, %d\n");
    check(&between, [2048, 1024], &["library: a", "inner_outer: b c", "library: d"]);
    check(&between, [2048, 1023], &["library: a", "inner_outer: b c", "library: d"]);
    // Small ones are not.
    check(&between, [1056, 256], &["library: a", "inner_persistent: 0 b", "reduction: c", "library: d"]);
}

#[test]
fn what_no_kernel_computes_is_alone() {
    check_cut(
        "fusion @f(%x: f32[?, ?], %w: f32[?, ?]) {
  %a = relu %x
  %c = matmul %a, %w
  %d = tanh %c
  %e = mul %d, 2.0
  return %e
}",
        &[&[4, 8], &[8, 6]],
        &["pointwise: a", "library: c", "pointwise: e"],
    );
}

#[test]
fn a_tensor_that_meets_its_transpose_is_made_for_both_or_cut_there_and_nowhere_else() {
    check_cut(
        "fusion @f(%x: f32[?, ?]) {
  %a = exp %x
  %t = permute %a dims(1, 0)
  %b = add %a, %t
  %c = neg %b
  return %c
}",
        &[&[8, 8]],
        &["pointwise: c"],
    );
    // Of rows that are divided by their sums: what they are made of is read again, where a sum is little beside its row.
    let rows = "fusion @f(%x: f32[?, ?]) {
  %s = sum %x axes(1) keepdim
  %a = div %x, %s
  %t = permute %a dims(1, 0)
  %b = add %a, %t
  return %b
}";
    check_cut(rows, &[&[64, 64]], &["reduction: s 1", "pointwise: b"]);
    check_cut(rows, &[&[8, 8]], &["inner_persistent: a 3", "pointwise: b"]);
}

#[test]
fn a_row_that_no_blocks_hold_is_read_again() {
    check_cut(
        "fusion @f(%x: f32[?, ?]) {
  %m = max %x axes(1) keepdim
  %a = sub %x, %m
  %e = exp %a
  %s = sum %e axes(1) keepdim
  %d = div %e, %s
  return %d
}",
        &[&[2, 20_000_000]],
        &["reduction: m s", "pointwise: d"],
    );
}

#[test]
fn moments_of_rows_that_no_blocks_hold_are_in_one_go() {
    let check = |body: &str, sizes: &[&[i64]], expected: &[&str]| {
        let segments = cut(&format!("fusion @f(%x: f32[?, ?], %y: f32[?, ?]) {{\n{body}\n}}"), sizes);
        let kinds: Vec<&str> = segments.segments.iter().map(|segment| segment.kind.name()).collect();
        assert_eq!(kinds, expected, "{segments}");
    };
    let norm = "%t = add %x, %y\n%v, %m = var_mean %t axes(0) keepdim\n%0 = sub %t, %m\n%1 = add %v, 1e-5\n%2 = rsqrt %1\n\
                %3 = mul %0, %2\nreturn %3";
    check(norm, &[&[60_000, 64], &[60_000, 64]], &["reduction", "pointwise"]);
    check(norm, &[&[15_000, 128], &[15_000, 128]], &["grid_persistent"]);
    check("%v = var %x axes(0)\nreturn %v", &[&[60_000, 64], &[1, 1]], &["reduction"]);
    check("%v = var %x axes(0, 1)\nreturn %v", &[&[60_000, 640], &[1, 1]], &["reduction"]);
}

#[test]
fn rows_that_are_read_along_memory_are_not_written_across_it() {
    let check = |end: &str, sizes: &[i64], expected: &[&str]| {
        let body = "%q = mul %x, %x\n%s = mean %q axes(1) keepdim\n%r = rsqrt %s\n%y = mul %x, %r";
        let segments = cut(&format!("fusion @f(%x: f32[?, ?]) {{\n{body}\n{end}\n}}"), &[sizes]);
        let kinds: Vec<&str> = segments.segments.iter().map(|segment| segment.kind.name()).collect();
        assert_eq!(kinds, expected, "{segments}");
    };
    let turned = "%p = permute %y dims(1, 0)\n%o = stride_order %p order(1, 0)\nreturn %o";
    check(turned, &[8365, 1232], &["reduction", "transpose"]);
    check("return %y", &[8365, 1232], &["inner_persistent"]);
    check("%o = stride_order %y order(0, 1)\nreturn %o", &[8365, 1232], &["reduction", "transpose"]);
    // Small ones, and rows that leave a warp enough neighbours.
    check(turned, &[83, 1232], &["inner_persistent"]);
    check(turned, &[836_500, 12], &["inner_persistent"]);
}

#[test]
fn columns_of_images_are_held_as_wide_as_several_axes_lie_side_by_side() {
    let text = "fusion @f(%x: f32[?, ?, ?, ?]) {\n  %m = max %x axes(1) keepdim\n  %a = sub %x, %m\n  return %a\n}";
    check_cut(text, &[&[32, 256, 14, 14]], &["grid_persistent: a"]);
    // What lies beside an element within an image is of its row.
    let text = "fusion @f(%x: f32[?, ?, ?, ?]) {\n  %m = max %x axes(1, 2) keepdim\n  %a = sub %x, %m\n  return %a\n}";
    check_cut(text, &[&[32, 256, 14, 14]], &["reduction: m", "pointwise: a"]);
}

#[test]
fn long_rows_are_not_reduced_again_for_each_row_of_large_tensors() {
    let pooled = "fusion @f(%q: f32[?, ?], %x: f32[?, ?, ?]) {\n  %m = mean %q axes(1) keepdim\n  %w = div %q, %m\n  \
                  %0 = broadcast %w flags(false, false, true)\n  %1 = mul %0, %x\n  %y = sum %1 axes(1)\n  return %y\n}";
    check_cut(pooled, &[&[4, 1000], &[4, 1000, 9]], &["inner_persistent: y"]);
    check_cut(pooled, &[&[64, 1000], &[64, 1000, 512]], &["reduction: m", "reduction: y"]);
    // Short ones are a thread's own.
    check_cut(pooled, &[&[9000, 8], &[9000, 8, 512]], &["short_columns: y"]);
    // Nothing else is reduced.
    let scaled = "fusion @f(%g: f32[?], %x: f32[?, ?]) {\n  %s = sum %g axes(0) keepdim\n  %n = div %g, %s\n  \
                  %0 = broadcast %n flags(true, false)\n  %y = mul %0, %x\n  return %y\n}";
    check_cut(scaled, &[&[48], &[100, 48]], &["inner_persistent: y"]);
    check_cut(scaled, &[&[48], &[100_000, 48]], &["inner_persistent: y"]);
    check_cut(scaled, &[&[640], &[100_000, 640]], &["inner_persistent: y"]);
    // What is no whole vectors is elementwise without them.
    check_cut(scaled, &[&[641], &[100_000, 641]], &["reduction: s", "pointwise: y"]);
}

#[test]
fn exponentials_that_are_reduced_otherwise_too_are_held() {
    check_cut(
        "fusion @f(%x: f32[?, ?], %g: f32[?, ?]) {
  %m = max %x axes(0) keepdim
  %a = sub %x, %m
  %e = exp %a
  %s = sum %e axes(0)
  %w = mul %e, %g
  %t = sum %w axes(0)
  return %s, %t
}",
        &[&[20_000, 900], &[20_000, 900]],
        &["grid_persistent: s t"],
    );
}

#[test]
fn reductions_over_the_same_dimensions_are_one_kernel_beside_another() {
    check_cut(
        "fusion @f(%x: f32[?, ?]) {
  %a = sum %x axes(0)
  %b = sum %x axes(1)
  %c = max %x axes(1)
  return %a, %b, %c
}",
        &[&[8, 32]],
        &["reduction: a", "reduction: b c"],
    );
}

#[test]
fn what_is_stored_anyway_is_not_computed_again() {
    check_cut(
        "fusion @f(%x: f32[?, ?], %y: f32[?, ?]) {
  %t = add %x, %y
  %a = sum %t axes(0)
  %b = sum %t axes(1)
  return %t, %a, %b
}",
        &[&[8, 32], &[8, 32]],
        &["reduction: t a", "reduction: b"],
    );
}

#[test]
fn a_cut_that_was_asked_for_is_made() {
    check_cut(
        "fusion @f(%x: f32[?, ?]) {
  %a = exp %x
  %c = segment_set %a
  %d = add %c, %a
  return %d
}",
        &[&[8, 32]],
        &["pointwise: a", "pointwise: d"],
    );
    check_cut(
        "fusion @f(%x: f32[?, ?]) {\n  %a = exp %x\n  %b = segment_set %a\n  %c = neg %b\n  return %c\n}",
        &[&[8, 32]],
        &["pointwise: a", "pointwise: c"],
    );
}

#[test]
fn long_names_leave_room_for_more() {
    let (name, number) = ("f".repeat(128), "0".repeat(128));
    let text = format!(
        "fusion @{name}(%x: f32[?, ?]) {{\n  %a = sum %x axes(0) keepdim\n  %{number} = sub %x, %a\n  %b = sum %{number} axes(1)\n  return %b\n}}"
    );
    for segment in cut(&text, &[&[8, 32]]).segments {
        text::parse_one(&text::print(&segment.fusion)).expect("it reads back");
    }
}

#[test]
fn values_are_told_by_the_numbers_of_the_definition() {
    let segments = cut(
        "fusion @f(%x: f32[?, ?], %w: f32[?, ?]) {
  %a = relu %x
  %c = matmul %a, %w
  %e = mul %c, 2.0
  return %e
}",
        &[&[4, 8], &[8, 6]],
    );
    let numbers = |segment: &super::Segment| -> (Vec<_>, Vec<_>) {
        let id = |operand| segments.ids.id(operand);
        (
            segment.inputs.iter().map(|input| id(*input)).collect(),
            segment.outputs.iter().map(|output| id(crate::fusion::Operand::Tensor(*output))).collect(),
        )
    };
    let told: Vec<_> = segments.segments.iter().map(numbers).collect();
    assert_eq!(
        told,
        [(vec![Some(0)], vec![Some(2)]), (vec![Some(1), Some(2)], vec![Some(3)]), (vec![Some(3)], vec![Some(4)]),]
    );
    let last: Vec<usize> = segments.segments.iter().map(|segment| segment.last_uses.len()).collect();
    assert_eq!(last, [0, 1, 1]);
}

/// Makes no kernel that has a sine.
struct NoSines<'a>(FreshPlans<'a>);

impl PlanSource for NoSines<'_> {
    fn plan(&self, form: &KernelForm, choice: &KernelChoice) -> Result<Arc<Plan>> {
        let sine = |op: &crate::fusion::Op| op.kind == OpKind::Unary(UnaryOp::Sin);
        match form.fusion().ops.values().any(sine) {
            true => Err(Diagnostic::bug("there is a sine")),
            false => self.0.plan(form, choice),
        }
    }
    fn has(&self, form: &KernelForm, choice: &KernelChoice) -> bool {
        self.0.has(form, choice)
    }
}

#[test]
fn what_is_wrong_with_several_segments_is_told_together() {
    let mut text = String::from("fusion @f(%x: f32[?, ?]) {\n");
    for (i, op) in ["exp", "sin", "cos", "sin", "tanh"].into_iter().enumerate() {
        let read = if i == 0 { "x".into() } else { format!("c{}", i - 1) };
        text += &format!("  %n{i} = neg %{read}\n  %a{i} = {op} %n{i}\n  %c{i} = segment_set %a{i}\n");
    }
    text += "  return %c4\n}";
    for threads in [1, 3] {
        let args = vec![ArgMeta::Tensor(TensorMeta::contiguous(DType::F32, &[8, 32]))];
        let error = cut_by(&|cx| Box::new(NoSines(FreshPlans(cx))), threads, &text, args).unwrap_err();
        let wanted = "bug[B0001]: there is a sine
  note: in segment 1 of fusion @f, which ends with `%a1 = sin`, operation 3 of 3
  note: also: bug[B0001]: there is a sine
  note: in segment 3 of fusion @f, which ends with `%a3 = sin`, operation 3 of 3";
        assert_eq!(error.to_string(), wanted, "on {threads} threads");
    }
}

/// The same of inputs of 16 bits.
fn check_cut_of_halves(text: &str, sizes: &[&[i64]], expected: &[&str]) {
    let args = sizes.iter().map(|sizes| ArgMeta::Tensor(TensorMeta::contiguous(DType::BF16, sizes)));
    check_told(&cut_for(text, args.collect()), expected);
}

#[test]
fn what_a_row_has_once_is_stored_and_not_its_elements() {
    // The sum over columns is of what is made again of the inputs and the root, which one kernel hands to the other.
    let text = |last: &str| {
        format!(
            "fusion @f(%x: bf16[?, ?], %g: bf16[?, ?]) {{
  %a = cast %x f32
  %q = mul %a, %a
  %s = sum %q axes(1) keepdim
  %r = rsqrt %s
  %n = mul %a, %r
  %b = cast %g f32
  %y = mul %b, %n
  %w = sum %y axes(0)
  {last}
  return %z, %w
}}"
        )
    };
    let sizes: [&[i64]; 2] = [&[64, 256], &[64, 256]];
    check_cut_of_halves(&text("%z = cast %n bf16"), &sizes, &["inner_persistent: r z", "reduction: w"]);
    // Not where it is as large as they: a row of few elements.
    let sizes: [&[i64]; 2] = [&[64, 8], &[64, 8]];
    check_cut_of_halves(&text("%z = cast %n bf16"), &sizes, &["inner_persistent: y z", "reduction: w"]);
}

#[test]
fn what_only_halves_hand_to_each_other_is_made_again() {
    // Blocks that share a row want longer runs than of 4, so the group is refused and halved behind the difference.
    check_cut_of_halves(
        "fusion @f(%x: bf16[?, ?, ?], %w: bf16[?]) {
  %a = cast %x f32
  %s = sum %a axes(1, 2) keepdim
  %c = sub %a, %s
  %wb = broadcast %w flags(true, false, true)
  %b = cast %wb f32
  %d = mul %c, %b
  %y = cast %d bf16
  return %y
}",
        &[&[5, 33_300, 4], &[33_300]],
        &["reduction: s", "pointwise: y"],
    );
}

/// Statements of a fusion in some order: kinds of kernels with what they return, sorted.
fn kernels_of(signature: &str, statements: &[&str], args: &[ArgMeta]) -> Vec<String> {
    let segments = cut_for(&format!("fusion @f({signature}) {{\n{}\n}}", statements.join("\n")), args.to_vec());
    let mut told = told(&segments);
    told.sort();
    told
}

#[test]
fn sums_of_what_a_result_is_made_of_do_not_keep_it_from_its_rows() {
    let meta = |dtype, sizes: &[i64]| ArgMeta::Tensor(TensorMeta::contiguous(dtype, sizes));
    let check = |signature: &str, [shared, sums, rest, end]: [&[&str]; 4], args: &[ArgMeta], expected: &[&str]| {
        let sums_first = [shared, sums, rest, end].concat();
        let sums_last = [shared, rest, sums, end].concat();
        for statements in [sums_first, sums_last] {
            assert_eq!(kernels_of(signature, &statements, args), expected, "{statements:?}");
        }
    };
    let large = meta(DType::BF16, &[8192, 16, 256]);
    check(
        "%dy: bf16[?, ?, ?], %x: bf16[?, ?, ?], %rstd: f32[?, ?, 1], %w: bf16[?, ?]",
        [
            &["%d = cast %dy f32", "%x32 = cast %x f32", "%h = mul %x32, %rstd", "%0 = mul %d, %h"],
            &["%s = sum %0 axes(0)", "%dw = cast %s bf16"],
            &[
                "%wb = broadcast %w flags(true, false, false)",
                "%w32 = cast %wb f32",
                "%wd = mul %d, %w32",
                "%1 = mul %wd, %h",
                "%2 = mean %1 axes(2) keepdim",
                "%3 = mul %h, %2",
                "%4 = sub %wd, %3",
                "%5 = mul %4, %rstd",
                "%dx = cast %5 bf16",
            ],
            &["return %dx, %dw"],
        ],
        &[large.clone(), large, meta(DType::F32, &[8192, 16, 1]), meta(DType::BF16, &[16, 256])],
        &["inner_persistent: dx", "reduction: dw"],
    );
    let large = meta(DType::BF16, &[16, 96, 96, 192]);
    check(
        "%dy: bf16[?, ?, ?, ?], %x: bf16[?, ?, ?, ?], %rstd: f32[?, 1, 1, ?]",
        [
            &["%d = cast %dy f32", "%x32 = cast %x f32", "%h = mul %x32, %rstd", "%0 = mul %d, %h"],
            &["%dw = sum %0 axes(0, 1, 2)", "%db = sum %d axes(0, 1, 2)"],
            &[
                "%s1 = mean %0 axes(1, 2) keepdim",
                "%s2 = mean %d axes(1, 2) keepdim",
                "%1 = mul %h, %s1",
                "%2 = sub %d, %1",
                "%3 = sub %2, %s2",
                "%dx = cast %3 bf16",
            ],
            &["return %dx, %dw, %db"],
        ],
        &[large.clone(), large, meta(DType::F32, &[16, 1, 1, 192])],
        &["grid_persistent: 4 6 dx", "reduction: db", "reduction: dw"],
    );
}

#[test]
fn halves_of_what_was_refused_with_what_it_repeats_repeat_it_again() {
    let text = "fusion @f(%x: bf16[?, ?]) {\n  %c = cast %x f32\n  %r = mean %c axes(1) keepdim\n  \
                %0 = sub %c, %r\n  %k = mean %c axes(0) keepdim\n  %1 = sub %0, %k\n  %t = sum %c axes(0, 1)\n  \
                %2 = broadcast %t flags(true, true)\n  %3 = add %1, %2\n  %a = cast %3 bf16\n  return %a\n}";
    let args = vec![ArgMeta::Tensor(TensorMeta::contiguous(DType::BF16, &[3001, 1777]))];
    // The cast is not stored wide for what is made of all.
    check_told(&cut_for(text, args), &["inner_outer: r 6", "reduction: 2", "pointwise: a"]);
}

#[test]
fn groups_that_repeat_the_same_are_one() {
    // Both gradients of columns are sums of what is made of the same two inputs.
    check_cut_of_halves(
        "fusion @f(%g: bf16[?, ?], %x: bf16[?, ?], %m: bf16[?, 1], %w: bf16[?]) {
  %a = cast %g f32
  %x32 = cast %x f32
  %m32 = cast %m f32
  %c = sub %x32, %m32
  %b = broadcast %w flags(true, false)
  %e = mul %a, %b
  %s = sum %e axes(1) keepdim
  %d = sub %e, %s
  %dx = cast %d bf16
  %p = mul %a, %c
  %dw = sum %p axes(0)
  %db = sum %a axes(0)
  return %dx, %dw, %db
}",
        &[&[64, 256], &[64, 256], &[64, 1], &[256]],
        &["inner_persistent: dx", "reduction: dw db"],
    );
}

/// A group that another one joins may hand on what a third did: that has nothing left to do, or less.
#[test]
fn what_a_joined_group_hands_on_is_dropped_elsewhere() {
    let text = |middle: &str, returned: &str| {
        format!(
            "fusion @H(%g: i32[?, ?], %x: i32[?, ?], %wt: f64[?, ?], %e3: f64[?, ?, ?], %d3: f64[?, ?, ?]) {{
  %b = cast %g f64
  %r0 = sum %b axes(0, 1)
  %db = sum %b axes(0)
  %n = neg %g
  %a = cast %n f64
  %ad = broadcast %a flags(false, false, true)
  %pr = mul %ad, %d3
  %s = sum %pr axes(2)
  %c = cast %x f64
  %cb = broadcast %c flags(false, false, true)
  %u3 = add %cb, %e3
  {middle}
  %p = mul %a, %c
  %w = sum %p axes(0)
  return %r0, %db, %s, %c, {returned}
}}"
        )
    };
    let meta = |dtype, sizes: &[i64]| ArgMeta::Tensor(TensorMeta::contiguous(dtype, sizes));
    let args = vec![
        meta(DType::I32, &[64, 256]),
        meta(DType::I32, &[64, 256]),
        meta(DType::F64, &[256, 256]),
        meta(DType::F64, &[64, 256, 16]),
        meta(DType::F64, &[64, 256, 32]),
    ];
    let middle = "%mm = matmul %c, %wt\n  %mb = broadcast %mm flags(false, false, true)\n  %v3 = mul %u3, %mb\n  %r = sum %v3 axes(2)";
    let segments = cut_for(&text(middle, "%r, %w"), args);
    let returned: usize = segments.segments.iter().map(|segment| segment.outputs.len()).sum();
    assert!(segments.segments.iter().all(|segment| !segment.outputs.is_empty()), "{segments}");
    assert!(returned >= 6, "{segments}");
    // Nobody reads what nothing is made of.
    for segment in &segments.segments {
        let read = |input: &Operand| segment.fusion.ops.values().any(|op| op.inputs.contains(input));
        let tensors = segment.fusion.inputs.iter().filter(|input| matches!(input, Operand::Tensor(_)));
        assert!(tensors.into_iter().all(read), "{segments}");
    }
}

/// Layers, each of a sum over the other axis than the one before, a product with it and operations that are done again
/// if they are few.
pub(crate) fn chain_over_both_axes(layers: usize, operations: usize) -> String {
    let mut text = String::from("fusion @chain(%x: f32[?, ?]) {\n");
    let mut last = "x".to_owned();
    for i in 0..layers {
        let flags = if i % 2 == 0 { "false, true" } else { "true, false" };
        text += &format!("  %s{i} = sum %{last} axes({})\n  %b{i} = broadcast %s{i} flags({flags})\n", 1 - i % 2);
        text += &format!("  %y{i} = mul %{last}, %b{i}\n");
        last = format!("y{i}");
        for more in 0..operations {
            text += &format!("  %z{i}_{more} = tanh %{last}\n");
            last = format!("z{i}_{more}");
        }
    }
    text + &format!("  return %{last}\n}}")
}

#[test]
fn layers_do_not_repeat_all_layers_before_them() {
    let layers = 16;
    let text = chain_over_both_axes(layers, 5);
    let segments = cut(&text, &[&[64, 128]]);
    let is_tanh = |kind: &OpKind| matches!(kind, OpKind::Unary(UnaryOp::Tanh));
    let count = |segment: &Segment| segment.fusion.ops.values().filter(|op| is_tanh(&op.kind)).count();
    let done: usize = segments.segments.iter().map(count).sum();
    assert!(done <= 3 * 5 * layers, "{done} in {layers} layers");
}

#[test]
fn what_is_computed_around_a_scan_is_its_kernel() {
    let moved = |widths: &str, rest: &str| {
        format!(
            "fusion @f(%x: f32[?, ?]) {{\n  %a = sub 1.0, %x\n  %p = pad %a, 1.0 widths({widths})\n  \
             %b = cumprod %p dim(1)\n  %c = mul %b, %x\n  return %c{rest}\n}}"
        )
    };
    check_cut(&moved("1, -1", ""), &[&[64, 128]], &["scan: c"]);
    // What is moved is needed, or it is not moved by one.
    check_cut(&moved("1, -1", ", %p"), &[&[64, 128]], &["pointwise: p", "scan: c"]);
    check_cut(&moved("2, -2", ""), &[&[64, 128]], &["pointwise: p", "scan: c"]);
    // Sums of columns, of what rows are summed before, and a scan of a scan are other kernels.
    check_cut(
        "fusion @f(%x: f32[?, ?]) {\n  %a = softmax %x axis(1)\n  %b = cumsum %a dim(1)\n  %c = exp %b\n  \
         %d = cumsum %c dim(1)\n  %e = sum %d axes(0)\n  return %e\n}",
        &[&[64, 128]],
        &["reduction: 1 6", "scan: c", "scan: d", "reduction: e"],
    );
    // Lines across memory are moved in tiles first.
    check_cut(
        "fusion @f(%x: f32[?, ?], %y: f32[?, ?]) {\n  %a = permute %x dims(1, 0)\n  %b = mul %y, %a\n  \
         %c = cumsum %b dim(1)\n  %d = exp %c\n  return %d\n}",
        &[&[64, 128], &[128, 64]],
        &["transpose: b", "scan: d"],
    );
}

/// How a tensor lies as a part of another: with what stride its rows, and from which element on.
#[track_caller]
fn check_part(segments: &Segments, name: &str, strides: &[i64], first: u64) {
    let (id, data) = segments.fusion.tensors.iter().find(|(_, data)| data.name == name).expect("it is there");
    let part = segments.place_of(id).expect("it is a part");
    assert_eq!((&part.meta.strides[..], part.offset), (strides, first * data.dtype.bytes() as u64), "{name}");
}

#[test]
fn kernels_write_parts_of_what_is_joined_where_they_lie() {
    let rows = |dim: usize, rest: &str| {
        format!(
            "fusion @f(%x: f32[?, ?], %y: f32[?, ?]) {{\n  %a = softmax %x axis(1)\n  %b = softmax %y axis(1)\n  \
             %c = cat %a, %b dim({dim}){rest}\n}}"
        )
    };
    let two = |last: &str| ["inner_persistent: a", "inner_persistent: b", last].map(String::from);
    let beside = cut(&rows(1, "\n  return %c"), &[&[8, 64], &[8, 32]]);
    assert_eq!(told(&beside), two("joined: c"), "{beside}");
    check_part(&beside, "a", &[96, 1], 0);
    check_part(&beside, "b", &[96, 1], 64);
    let below = cut(&rows(0, "\n  return %c"), &[&[8, 64], &[5, 64]]);
    assert_eq!(told(&below), two("joined: c"), "{below}");
    check_part(&below, "b", &[64, 1], 8 * 64);
    // What reads a part reads it there, what reads the whole finds it whole.
    let read = cut(&rows(1, "\n  %d = sum %a axes(0)\n  %e = sum %c axes(0)\n  return %d, %e"), &[&[8, 64], &[8, 32]]);
    assert!(told(&read).contains(&"joined: c".to_string()), "{read}");
    // What is a result by itself, joined twice, or nothing, has memory of its own.
    for (rest, columns) in
        [("\n  return %c, %a", 32), ("\n  %d = cat %a, %c dim(1)\n  return %d", 32), ("\n  return %c", 0)]
    {
        let apart = cut(&rows(1, rest), &[&[8, 64], &[8, columns]]);
        let is_apart = |name: &str| {
            let found = apart.fusion.tensors.iter().find(|(_, data)| data.name == name);
            found.is_none_or(|(id, _)| apart.place_of(id).is_none())
        };
        assert!(is_apart("a") && (columns > 0 || is_apart("b")), "{apart}");
    }
    // One kernel of what one kernel can do.
    check_cut(
        "fusion @f(%x: f32[?, ?], %y: f32[?, ?]) {\n  %a = exp %x\n  %b = tanh %y\n  %c = cat %a, %b dim(1)\n  return %c\n}",
        &[&[8, 64], &[8, 32]],
        &["pointwise: c"],
    );
}

#[test]
fn kernels_copy_arguments_to_their_places_among_parts() {
    let text = |op: &str| {
        format!(
            "fusion @f(%x: f32[?, ?, ?], %old: f32[?, ?, ?]) {{\n  %a = {op}\n  %c = cat %old, %a dim(1)\n  return %c\n}}"
        )
    };
    for (sizes, old) in [([16, 512, 1024], 64), ([1, 512, 1024], 256), ([1024, 64, 128], 1), ([16, 1, 1023], 513)] {
        let args: [&[i64]; 2] = [&sizes, &[sizes[0], old, sizes[2]]];
        check_cut(&text("softmax %x axis(2)"), &args, &["inner_persistent: a", "pointwise: 7", "joined: c"]);
        check_cut(&text("exp %x"), &args, &["pointwise: c"]);
    }
}

#[test]
fn what_is_refused_at_one_place_is_no_matter_of_another() {
    let both = "fusion @f(%x: f32[?, ?], %y: f32[?, ?]) {
  %a = softmax %x axis(1)
  %b = softmax %y axis(1)
  %c = cat %a, %b dim(0)
  %d = cumsum %x dim(1)
  %e = softmax %y axis(0)
  %g = cat %d, %e dim(0)
  return %c, %g
}";
    let told = told(&cut(both, &[&[64, 640], &[64, 640]]));
    assert!(told.contains(&"joined: c".to_string()) && !told.contains(&"joined: g".to_string()), "{told:?}");
}

#[test]
fn many_short_rows_that_are_reduced_are_no_parts() {
    let text = "fusion @f(%x: f32[?, ?], %y: f32[?, ?]) {\n  %a = softmax %x axis(1)\n  %b = softmax %y axis(1)\n  \
                %c = cat %a, %b dim(1)\n  return %c\n}";
    let is_joined = |rows: i64, columns: [i64; 2]| {
        told(&cut(text, &[&[rows, columns[0]], &[rows, columns[1]]])).contains(&"joined: c".to_string())
    };
    assert!(!is_joined(200_000, [37, 64]) && !is_joined(200_000, [48, 24]));
    // Beside long ones, or where they divide among threads.
    assert!(is_joined(16_384, [37, 3072]) && is_joined(200_000, [64, 128]) && is_joined(100, [37, 64]));
}
