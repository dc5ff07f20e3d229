//! What each pass makes of a fusion by hand, and that none changes a value of random ones:
//! `engine/tests/preseg.rs` has the latter.

use super::{PASSES, SeenSizes, run};
use crate::compile::BoundFusion;
use crate::diag::{DiagnosticKind, Result, code};
use crate::fusion::{Fusion, TensorId, bind};
use crate::num::{DType, Value};
use crate::options::{CompileCx, DeviceDesc, NoTrace, Options};
use crate::refeval;
use crate::tensor::{Arg, ArgMeta, HostTensor, TensorMeta};
use crate::text;
use std::collections::BTreeSet;

mod meetings;
mod mirrors;
mod overlaps;
mod peaks;
mod pitches;
mod reshapes;
mod rolls;
mod slices;
mod stacks;
mod tallies;
mod terms;

/// Options with all passes switched off but these.
fn only(passes: &[&str]) -> Options {
    let others = PASSES.iter().map(|pass| pass.name).filter(|name| !passes.contains(name));
    Options { disabled_passes: others.map(String::from).collect(), ..Options::default() }
}

/// The arguments of a fusion, each tensor of these sizes, with zeros of both signs among the elements.
fn arguments(fusion: &Fusion, sizes: &[&[i64]]) -> Vec<Arg> {
    let tensor = |((_, id), sizes): ((usize, _), &&[i64])| {
        let dtype: DType = fusion.tensors[id].dtype;
        let number = |index: &[i64]| index.iter().fold(1, |n, i| (n * 5 + i) % 7);
        let element = |index: &[i64]| match (dtype.is_float(), number(index)) {
            (true, 0) => Value::Float(-0.0),
            (true, n) => Value::Float(f64::from(n as i32) * 0.5 - 1.5),
            (false, n) => Value::Int(n - 3),
        };
        Arg::Tensor(HostTensor::from_fn(dtype, sizes, element).expect("it fits"))
    };
    fusion.input_tensors().zip(sizes).map(tensor).collect()
}

/// The names of the passes that changed something, and what they left.
fn presegment(options: &Options, fusion: &Fusion, args: &[Arg]) -> Result<(Vec<String>, Fusion)> {
    presegment_for(&DeviceDesc::h200(), options, fusion, args)
}

/// The same for a device.
fn presegment_for(
    device: &DeviceDesc,
    options: &Options,
    fusion: &Fusion,
    args: &[Arg],
) -> Result<(Vec<String>, Fusion)> {
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let (bindings, alignments) = (bind(fusion, &metas)?, vec![16; metas.len()]);
    let bound = BoundFusion { fusion, bindings: &bindings, args: &metas, alignments: &alignments };
    let cx = CompileCx { options, device, trace: &NoTrace };
    let mut fired = Vec::new();
    let made = run(&cx, &bound, &mut |pass, _| fired.push(pass.to_string()))?;
    assert_eq!(made.ids.len(), crate::fusion::UserIds::new(fusion).len());
    Ok((fired, made.fusion.into_owned()))
}

/// The text of a fusion with this body and signature, whose name and last line are always the same.
fn whole(signature: &str, body: &str) -> String {
    let lines: String = body.lines().map(|line| format!("  {}\n", line.trim())).collect();
    format!("fusion @f({signature}) {{\n{lines}}}\n")
}

/// Some passes alone, on dense arguments of these sizes: what they leave, and that its values are
/// the same.
#[track_caller]
fn check(passes: &[&str], signature: &str, sizes: &[&[i64]], before: &str, after: &str) {
    let fusion = text::parse_one(&whole(signature, before)).expect("it reads");
    let args = arguments(&fusion, sizes);
    let (fired, made) = presegment(&only(passes), &fusion, &args).expect("passes do not fail");
    let fired: BTreeSet<&str> = fired.iter().map(String::as_str).collect();
    assert_eq!(text::print(&made), whole(signature, after), "{fired:?}");
    assert_eq!(fired, if before == after { BTreeSet::new() } else { passes.iter().copied().collect() });
    check_values(&fusion, &made, &args);
}

#[track_caller]
fn check_values(before: &Fusion, after: &Fusion, args: &[Arg]) {
    let [expected, found] = [before, after].map(|fusion| refeval::evaluate_all(fusion, args).expect("it has values"));
    for (expected, found) in expected.outputs.iter().zip(&found.outputs) {
        assert!(expected.to_contiguous().bits_equal(&found.to_contiguous()), "{}", text::print(after));
    }
    assert_eq!(expected.updates, found.updates);
}

#[test]
fn a_name_that_is_no_pass_is_refused() {
    let fusion = text::parse_one(&whole("%x: f32[?]", "%a = exp %x\nreturn %a")).expect("it reads");
    let options = Options { disabled_passes: ["moves", "movs"].map(String::from).into(), ..Options::default() };
    let error = presegment(&options, &fusion, &arguments(&fusion, &[&[3]])).expect_err("there is none");
    assert_eq!((error.kind, error.code), (DiagnosticKind::User, code::PASS));
    assert!(error.message.contains("`movs`") && error.notes[0].contains("moves"), "{error}");
}

#[test]
fn passes_have_names_of_their_own_and_spans() {
    let names: BTreeSet<&str> = PASSES.iter().map(|pass| pass.name).collect();
    assert_eq!(names.len(), PASSES.len());
    assert!(PASSES.iter().all(|pass| pass.span == format!("preseg/{}", pass.name) && pass.about.ends_with('.')));
}

#[test]
fn what_has_no_element_is_filled() {
    let signature = "%x: f32[?, ?], %y: f32[?]";
    check(
        &["empty"],
        signature,
        &[&[0, 3], &[3]],
        "%a = exp %x\n%b = sum %a axes(0)\n%c = max %x axes(0)\n%d = add %b, %y\nreturn %d, %c, %a",
        "%s0 = size %x axis(0)\n%s1 = size %x axis(1)\n%a = full [%s0, %s1] 0.0 f32\n%b = full [%s1] 0.0 f32\n\
         %c = full [%s1] -inf f32\n%d = add %b, %y\nreturn %d, %c, %a",
    );
}

#[test]
fn sums_over_nothing_are_their_start() {
    check(
        &["empty"],
        "%x: bf16[?, ?], %y: bf16[?, ?]",
        &[&[2, 0], &[0, 3]],
        "%a = matmul %x, %y\n%b = pad %x widths(1, 1) value(2.0)\nreturn %a, %b",
        "%s0 = size %x axis(0)\n%s1 = size %y axis(1)\n%a = full [%s0, %s1] 0.0 bf16\n\
         %s2 = size %x axis(1)\n%s3 = add %s2, 2\n%b = full [%s0, %s3] 2.0 bf16\nreturn %a, %b",
    );
}

#[test]
fn what_a_lookup_finds_is_computed_and_not_its_table() {
    let check = |sizes: &[&[i64]], before: &str, after: &str| {
        check(&["lookups"], "%x: bf16[?, ?], %i: i32[?, ?], %b: f32[?, 1]", sizes, before, after);
    };
    let sizes: [&[i64]; 3] = [&[3, 4], &[3, 1], &[3, 1]];
    check(
        &sizes,
        "%j = abs %i\n%a = cast %x f32\n%c = sub %a, %b\n%d = take_along_axis %c, %j dim(1)\n%e = sum %a axes(1)\n\
         return %d, %e",
        "%j = abs %i\n%a = cast %x f32\n%0 = take_along_axis %x, %j dim(1)\n%1 = cast %0 f32\n%d = sub %1, %b\n\
         %e = sum %a axes(1)\nreturn %d, %e",
    );
    // A gather of all rows is one, and then its table is computed of what it finds.
    check(
        &sizes,
        "%j = abs %i\n%c = cast %x f32\n%a = exp %c\n%d = gather %a, %j dim(1)\nreturn %d",
        "%j = abs %i\n%0 = take_along_axis %x, %j dim(1)\n%1 = cast %0 f32\n%d = exp %1\nreturn %d",
    );
    // Here it reads a part of what it could.
    let same = "%j = abs %i\n%c = cast %x f32\n%a = exp %c\n%d = gather %a, %j dim(1)\nreturn %d";
    check(&[&[4, 4], &[3, 1], &[3, 1]], same, same);
    // What is returned is stored, and so is what a kernel reduces.
    let same = "%j = abs %i\n%c = cast %x f32\n%a = exp %c\n%d = take_along_axis %a, %j dim(1)\nreturn %d, %a";
    check(&sizes, same, same);
    let same = "%j = abs %i\n%a = cast %x f32\n%0 = sum %a axes(1)\n\
                %c = broadcast %0 flags(false, true)\n%d = exp %c\n\
                %e = take_along_axis %d, %j dim(0)\nreturn %e";
    check(&[&[4, 4], &[3, 1], &[3, 1]], same, same);
}

#[test]
fn of_positions_along_the_axis_the_index_tells_what_is_found() {
    let check = |before: &str, after: &str| {
        check(&["lookups"], "%x: f32[?, ?], %i: u8[?, ?]", &[&[3, 4], &[3, 1]], before, after);
    };
    let masked = |places: &str, other: &str| {
        format!(
            "%j = remainder %i, 4\n%p = iota 4{places}\n%q = broadcast %p flags(true, false)\n%r = iota 3{other}\n\
             %s = broadcast %r flags(false, true)\n%a = eq %q, %s\n%b = where %a, -inf, %x\n"
        )
    };
    let rows = |other: &str, number: &str| {
        format!("%j = remainder %i, 4\n%r = iota 3{other}\n%s = broadcast %r flags(false, true)\n{number}return %c")
    };
    let found =
        |places: &str, other: &str| format!("{}%c = take_along_axis %b, %j dim(1)\nreturn %c", masked(places, other));
    let number = "%0 = cast %j i64\n%1 = eq %0, %s\n%2 = take_along_axis %x, %j dim(1)\n%c = where %1, -inf, %2\n";
    check(&found("", ""), &rows("", number));
    let number = "%0 = cast %j i64\n%1 = mul %0, 3\n%2 = add %1, 5\n%3 = cast %2 i32\n%4 = eq %3, %s\n\
                  %5 = take_along_axis %x, %j dim(1)\n%c = where %4, -inf, %5\n";
    check(&found(", 5, 3 dtype(i32)", " dtype(i32)"), &rows(" dtype(i32)", number));
    // Nothing is read of which the index is known to be a place, or the places are of another axis.
    let same = "%j = remainder %i, 4\n%p = iota 4\n%q = broadcast %p flags(true, false)\n%b = neg %q\n\
                %c = take_along_axis %b, %j dim(1)\n%d = neg %x\nreturn %c, %d";
    check(same, same);
}

#[test]
fn rows_that_one_index_puts_are_looked_up() {
    let check = |sizes: &[&[i64]], before: &str, after: &str| {
        check(&["scatters"], "%x: bf16[?, ?], %i: u8[?], %s: bf16[?, ?]", sizes, before, after);
    };
    let sizes: [&[i64]; 3] = [&[5, 4], &[3], &[3, 4]];
    let spread = "%s0 = size %x axis(1)\n%s1 = size %i axis(0)\n%j = remainder %i, 5\n\
                  %a = broadcast %j flags(false, true)\n%b = expand [%s1, %s0] %a\n";
    check(
        &sizes,
        &format!("{spread}%c = scatter %x, %b, %s dim(0)\nreturn %c"),
        "%j = remainder %i, 5\n%s0 = size %x axis(0)\n%0 = last_position %j, %s0 dim(0)\n%1 = gt %0, 0\n\
         %2 = broadcast %1 flags(false, true)\n%3 = sub %0, 1\n%4 = maximum %3, 0\n\
         %5 = index_select %s, %4 dim(0)\n%6 = cast %5 f32\n%7 = cast %x f32\n%8 = where %2, %6, %7\n\
         %c = cast %8 bf16\nreturn %c",
    );
    // Only a part of each row is put.
    let same = "%j = remainder %i, 5\n%a = broadcast %j flags(false, true)\n%s0 = size %i axis(0)\n\
                %b = expand [%s0, 2] %a\n%c = scatter %x, %b, %s dim(0)\nreturn %c";
    check(&sizes, same, same);
}

#[test]
fn what_rows_put_at_places_of_their_own_is_looked_up_as_a_whole() {
    let check = |sizes: &[&[i64]], before: &str, after: &str| {
        check(&["scatters"], "%x: f32[?, ?], %i: u8[?, ?], %s: f32[?, ?]", sizes, before, after);
    };
    let put = "%j = remainder %i, 5\n%c = scatter %x, %j, %s dim(1)\nreturn %c";
    let looked_up = "%j = remainder %i, 5\n%s0 = size %x axis(1)\n%0 = last_position %j, %s0 dim(1)\n%1 = gt %0, 0\n\
                     %2 = sub %0, 1\n%3 = maximum %2, 0\n%4 = take_along_axis %s, %3 dim(1)\n\
                     %c = where %1, %4, %x\nreturn %c";
    check(&[&[4, 5], &[4, 3], &[4, 3]], put, looked_up);
    check(&[&[4, 5], &[4, 3], &[4, 6]], put, looked_up);
    // Fewer rows are put than there are.
    check(&[&[4, 5], &[3, 3], &[3, 3]], put, put);
    check(&[&[4, 5], &[4, 3], &[5, 3]], put, put);
}

#[test]
fn rows_that_are_added_up_in_groups_are_never_stored() {
    let check = |before: &str, after: &str| {
        let sizes: [&[i64]; 3] = [&[5, 4], &[5], &[3, 2]];
        check(&["puts"], "%x: bf16[?, ?], %i: u8[?], %w: bf16[?, ?]", &sizes, before, after);
    };
    let put = |number: &str| {
        format!("%j = remainder %i, 6\n%0 = full [6, 4] {number} bf16\n%1 = index_put_accumulate %0, %j, %x\n")
    };
    let groups = "%2 = reshape [3, 2, 4] %1\n%3 = broadcast %w flags(false, false, true)\n%4 = cast %2 f32\n\
                  %5 = cast %3 f32\n%6 = mul %4, %5\n%7 = sum %6 axes(1)\n%8 = cast %7 bf16\n";
    check(
        &format!("{}{groups}return %8", put("0.0")),
        "%j = remainder %i, 6\n%9, %10 = index_runs %j, 6\n%8 = weighted_runs %9, %10, %x, %w\nreturn %8",
    );
    // Others read what is between, or what rows are added to is something.
    for same in [
        format!("{}{groups}return %8, %1", put("0.0")),
        format!("{}{groups}return %8, %7", put("0.0")),
        format!("{}{groups}return %8", put("1.0")),
    ] {
        check(&same, &same);
    }
}

#[test]
fn narrow_rows_are_seen_before_they_are_widened_and_added() {
    let check = |before: &str, after: &str| {
        let sizes: [&[i64]; 3] = [&[3, 4], &[6], &[5, 2]];
        check(&["puts"], "%x: bf16[?, ?], %i: u8[?], %a: f32[?, ?]", &sizes, before, after);
    };
    let put = "%j = remainder %i, 5\n%y = index_put_accumulate %a, %j, %2\n";
    check(
        &format!("%0 = cast %x f32\n%1 = permute %0 dims(1, 0)\n%2 = reshape [6, 2] %1\n{put}return %y, %0"),
        "%0 = cast %x f32\n%j = remainder %i, 5\n%3 = permute %x dims(1, 0)\n%4 = reshape [6, 2] %3\n%5 = cast %4 f32\n\
         %y = index_put_accumulate %a, %j, %5\nreturn %y, %0",
    );
    // Nothing is widened, others read what is seen, or nothing is seen.
    for same in [
        format!("%0 = cast %x f32\n%1 = neg %0\n%2 = reshape [6, 2] %1\n{put}return %y"),
        format!("%0 = cast %x f32\n%2 = reshape [6, 2] %0\n{put}return %y, %2"),
        format!("%0 = reshape [6, 2] %x\n%2 = cast %0 f32\n{put}return %y"),
    ] {
        check(&same, &same);
    }
}

#[test]
fn axes_are_split_in_the_index_of_a_lookup() {
    let check = |before: &str, after: &str| {
        let sizes: [&[i64]; 3] = [&[5, 4], &[6], &[3, 2]];
        check(&["splits"], "%x: bf16[?, ?], %i: i32[?], %w: f32[?, ?]", &sizes, before, after);
    };
    check(
        "%j = abs %i\n%a = index_select %x, %j dim(0)\n%b = gt %i, 0\n%c = broadcast %b flags(false, true)\n\
         %d = cast %a f32\n%e = where %c, %d, 0.0\n%f = reshape [3, 2, 4] %e\n\
         %g = broadcast %w flags(false, false, true)\n%h = mul %f, %g\n%k = sum %h axes(1)\nreturn %k",
        "%0 = reshape [3, 2] %i\n%1 = gt %0, 0\n%2 = broadcast %1 flags(false, false, true)\n\
         %3 = abs %0\n%4 = embedding_fwd %3, %x\n%5 = cast %4 f32\n\
         %f = where %2, %5, 0.0\n%g = broadcast %w flags(false, false, true)\n%h = mul %f, %g\n\
         %k = sum %h axes(1)\nreturn %k",
    );
    // Others read what is looked up, or nobody looks anything up.
    let same = "%j = abs %i\n%a = index_select %x, %j dim(0)\n%f = reshape [3, 2, 4] %a\n\
                %0 = cast %f f32\n%g = neg %0\n%h = cast %g bf16\nreturn %h, %a";
    check(same, same);
    let same = "%a = abs %i\n%f = reshape [3, 2] %a\n%g = neg %f\nreturn %g";
    check(same, same);
}

#[test]
fn any_axis_that_is_looked_up_is_split_in_the_index() {
    let check = |signature: &str, sizes: &[&[i64]], before: &str, after: &str| {
        check(&["splits"], signature, sizes, before, after);
    };
    check(
        "%x: bf16[?, ?, ?], %i: i64[?]",
        &[&[5, 7, 9], &[12]],
        "%p = abs %i\n%a = index_select %x, %p dim(1)\n%b = reshape [5, 3, 4, 9] %a\n%c = cast %b f32\nreturn %c",
        "%0 = reshape [3, 4] %i\n%1 = abs %0\n%s0 = size %x axis(0)\n%s1 = size %x axis(1)\n%s2 = size %x axis(2)\n\
         %2 = reshape [%s0, 1, %s1, %s2] %x\n%3 = broadcast %1 flags(true, false, false, true)\n\
         %b = take_along_axis %2, %3 dim(2)\n%c = cast %b f32\nreturn %c",
    );
    // What was merged for the lookup is not merged.
    check(
        "%x: f32[?, ?], %i: i64[?, ?]",
        &[&[5, 40], &[3, 4]],
        "%p = abs %i\n%j = mul %p, 2\n%k = reshape [12] %j\n%a = index_select %x, %k dim(1)\n%b = reshape [5, 3, 4] %a\n\
         %c = neg %b\nreturn %c",
        "%p = abs %i\n%j = mul %p, 2\n%s0 = size %x axis(0)\n%s1 = size %x axis(1)\n%0 = reshape [%s0, 1, %s1] %x\n\
         %1 = broadcast %j flags(true, false, false)\n%b = take_along_axis %0, %1 dim(2)\n%c = neg %b\nreturn %c",
    );
    // Another axis than the one that is looked up.
    let same = "%p = abs %i\n%a = index_select %x, %p dim(1)\n%b = reshape [2, 3, 12] %a\n%c = neg %b\nreturn %c";
    check("%x: f32[?, ?], %i: i64[?]", &[&[6, 7], &[12]], same, same);
}

#[test]
fn products_of_one_term_are_multiplications() {
    check(
        &["products"],
        "%x: f32[?, 1], %y: f32[1, ?]",
        &[&[3, 1], &[1, 4]],
        "%a = matmul %x, %y\nreturn %a",
        "%0 = mul %x, %y\n%1 = eq %x, 0.0\n%2 = eq %y, 0.0\n%3 = logical_or %1, %2\n%4 = abs %0\n\
         %a = where %3, %4, %0\nreturn %a",
    );
    check(
        &["products"],
        "%x: bf16[?, ?, ?], %y: bf16[?, ?]",
        &[&[2, 3, 1], &[4, 1]],
        "%a = linear %x, %y\nreturn %a",
        "%s0 = size %x axis(0)\n%s1 = size %x axis(1)\n%0 = reshape [%s0, %s1] %x\n\
         %1 = broadcast %0 flags(false, false, true)\n%s2 = size %y axis(0)\n%2 = reshape [%s2] %y\n\
         %3 = broadcast %2 flags(true, true, false)\n%4 = cast %1 f32\n%5 = cast %3 f32\n%6 = mul %4, %5\n\
         %7 = eq %4, 0.0\n%8 = eq %5, 0.0\n%9 = logical_or %7, %8\n%10 = abs %6\n%11 = where %9, %10, %6\n\
         %a = cast %11 bf16\nreturn %a",
    );
    check(
        &["products"],
        "%x: f64[?, 1], %y: f64[1]",
        &[&[3, 1], &[1]],
        "%a = matmul %x, %y\nreturn %a",
        "%0 = squeeze %x flags(false, true)\n%1 = mul %0, %y\n%a = add %1, 0.0\nreturn %a",
    );
    // What is added before the rounding is not added after it.
    let biased = "%a = linear %x, %y bias(%b)\nreturn %a";
    check(&["products"], "%x: f32[?, 1], %y: f32[?, 1], %b: f32[?]", &[&[3, 1], &[4, 1], &[4]], biased, biased);
}

#[test]
fn products_over_nothing_are_their_bias() {
    let body = "%a = linear %x, %y bias(%b)\nreturn %a";
    for dtype in ["bf16", "f32", "f64", "c64"] {
        let line = format!("%x: {dtype}[?, ?], %y: {dtype}[?, ?], %b: {dtype}[?]");
        check_all(&line, &[&[3, 0], &[4, 0], &[4]], body, &["empty"]);
        check_all(&line, &[&[1, 0], &[1, 0], &[1]], body, &["empty"]);
        let same = format!("%x: {dtype}[?, ?, ?], %y: {dtype}[?, ?], %b: {dtype}[1]");
        check_all(&same, &[&[2, 3, 0], &[4, 0], &[1]], body, &["empty"]);
        let number = format!("%x: {dtype}[?, ?], %y: {dtype}[?], %b: {dtype}[]");
        check_all(&number, &[&[3, 0], &[0], &[]], body, &["empty"]);
    }
}

#[test]
fn what_a_pad_cuts_off_as_a_whole_is_filled() {
    let filled = |widths: &str| {
        let text = whole("%x: f32[?, ?]", &format!("%a = pad %x widths({widths}) value(1.5)\nreturn %a"));
        let fusion = text::parse_one(&text).expect("it reads");
        let args = arguments(&fusion, &[&[3, 2]]);
        let (fired, made) = presegment(&only(&["empty"]), &fusion, &args).expect("no pass fails");
        check_values(&fusion, &made, &args);
        !fired.is_empty()
    };
    assert!(filled("1, -2") && filled("-3, 2") && filled("2, 0, 4, -3"));
    assert!(!filled("1, -1") && !filled("-1, 0") && !filled("2, 0, 4, -2"));
}

#[test]
fn what_is_joined_as_it_was_cut_is_the_tensor() {
    check(
        &["cats"],
        "%x: f32[?, 4]",
        &[&[5, 4]],
        "%a = slice %x starts(0, 0) ends(2, 4)\n%b = slice %x starts(2, 0) ends(5, 4)\n%c = cat %a, %b dim(0)\n%d = exp %c\nreturn %d",
        "%d = exp %x\nreturn %d",
    );
    check(
        &["cats"],
        "%x: f32[?], %y: f32[?], %z: f32[?]",
        &[&[5], &[0], &[2]],
        "%a = cat %x, %y dim(0)\n%b = cat %a, %z dim(0)\n%c = cat %y, %x dim(0)\n%d = exp %c\nreturn %b, %d",
        "%b = cat %x, %z\n%d = exp %x\nreturn %b, %d",
    );
}

#[test]
fn what_is_joined_and_returned_in_a_narrower_type_is_converted_first() {
    let check = |before: &str, after: &str| check(&["cats"], "%x: f32[?, ?]", &[&[5, 4]], before, after);
    check(
        "%a = exp %x\n%b = neg %x\n%c = cat %a, %x, %b dim(1)\n%y = cast %c bf16\nreturn %y",
        "%a = exp %x\n%b = neg %x\n%0 = cast %a bf16\n%1 = cast %x bf16\n%2 = cast %b bf16\n%y = cat %0, %1, %2 dim(1)\nreturn %y",
    );
    // Nothing is computed, others read what is joined, it is computed with, the type is as wide.
    for same in [
        "%c = cat %x, %x dim(1)\n%y = cast %c bf16\nreturn %y",
        "%a = exp %x\n%c = cat %x, %a dim(1)\n%y = cast %c bf16\nreturn %y, %c",
        "%a = exp %x\n%c = cat %x, %a dim(1)\n%d = cast %c bf16\n%e = cast %d f32\n%y = neg %e\nreturn %y",
        "%a = exp %x\n%c = cat %x, %a dim(1)\n%y = cast %c i32\nreturn %y",
    ] {
        check(same, same);
    }
}

#[test]
fn what_is_repeated_is_read_again() {
    check(
        &["repeats"],
        "%x: f32[?, 1, ?]",
        &[&[3, 1, 4]],
        "%a = repeat %x counts(1, 2, 1)\n%b = repeat %x counts(2, 3, 1)\n%c = cat %x, %x dim(2)\nreturn %a, %b, %c",
        "%s0 = size %x axis(0)\n%s1 = size %x axis(2)\n%a = expand [%s0, 2, %s1] %x\n\
         %0 = broadcast %x flags(true, false, false, false)\n%1 = expand [2, %s0, 3, %s1] %0\n\
         %s2 = mul %s0, 2\n%b = reshape [%s2, 3, %s1] %1\n\
         %2 = broadcast %x flags(false, false, true, false)\n%3 = expand [%s0, 1, 2, %s1] %2\n\
         %s3 = add %s1, %s1\n%c = reshape [%s0, 1, %s3] %3\nreturn %a, %b, %c",
    );
}

#[test]
fn what_is_repeated_once_is_a_copy() {
    check(
        &["repeats"],
        "%x: f32[?, ?], %z: f32[]",
        &[&[1, 3], &[]],
        "%a = repeat %x counts(1, 1)\n%b = repeat %z counts()\nreturn %a, %b",
        "%a = stride_order %x order(1, 0)\n%b = set %z\nreturn %a, %b",
    );
}

#[test]
fn reductions_over_one_element_drop_axes() {
    check(
        &["thin"],
        "%x: f32[?, 1, ?], %n: i32[?, 1]",
        &[&[3, 1, 4], &[3, 1]],
        "%a = sum %x axes(1)\n%b = max %x axes(1)\n%c = max %n axes(1)\n%d = max %x axes(2)\nreturn %a, %b, %c, %d",
        "%0 = squeeze %x flags(false, true, false)\n%a = add %0, 0.0\n%b = squeeze %x flags(false, true, false)\n\
         %c = squeeze %n flags(false, true)\n%d = max %x axes(2)\nreturn %a, %b, %c, %d",
    );
}

#[test]
fn positions_along_two_dimensions_are_made_for_each() {
    let signature = "%x: f32[?, ?]";
    let check = |before: &str, after: &str| check(&["counts"], signature, &[&[4, 4]], before, after);
    check(
        "%r = iota 4\n%a = broadcast %r flags(false, true)\n%b = broadcast %r flags(true, false)\n%k = le %b, %a\n\
         %y = where %k, %x, 0.0\nreturn %y",
        "%r = iota 4\n%a = broadcast %r flags(false, true)\n%0 = iota 4\n%b = broadcast %0 flags(true, false)\n\
         %k = le %b, %a\n%y = where %k, %x, 0.0\nreturn %y",
    );
    // And stay so.
    let body = "%r = iota 4\n%a = broadcast %r flags(false, true)\n%b = broadcast %r flags(true, false)\n\
                %k = le %b, %a\n%y = where %k, %x, 0.0\nreturn %y";
    let fusion = text::parse_one(&whole(signature, body)).expect("it reads");
    let args = arguments(&fusion, &[&[4, 4]]);
    let (fired, _) = presegment(&only(&["counts", "twins"]), &fusion, &args).expect("passes do not fail");
    assert_eq!(fired, ["counts"]);
    // What is computed of them alone is computed again.
    check(
        "%r = iota 4\n%f = cast %r f32\n%a = broadcast %f flags(false, true)\n%b = broadcast %f flags(true, false)\n\
         %k = sub %b, %a\n%y = mul %k, %x\nreturn %y",
        "%r = iota 4\n%f = cast %r f32\n%a = broadcast %f flags(false, true)\n%0 = iota 4\n%1 = cast %0 f32\n\
         %b = broadcast %1 flags(true, false)\n%k = sub %b, %a\n%y = mul %k, %x\nreturn %y",
    );
    // Along one dimension they are shared.
    let kept = "%r = iota 4\n%a = broadcast %r flags(false, true)\n%b = broadcast %r flags(false, true)\n\
                %k = le %b, %a\n%y = where %k, %x, 0.0\nreturn %y";
    check(kept, kept);
}

#[test]
fn vectors_along_two_dimensions_are_computed_for_each() {
    let signature = "%x: f32[?, ?], %v: f32[?], %w: f32[?]";
    let sizes: [&[i64]; 3] = [&[4, 4], &[4], &[4]];
    let check = |before: &str, after: &str| check(&["counts"], signature, &sizes, before, after);
    check(
        "%e = exp %v\n%f = mul %e, %w\n%a = broadcast %f flags(false, true)\n%b = broadcast %f flags(true, false)\n\
         %k = mul %a, %b\n%y = mul %k, %x\nreturn %y",
        "%e = exp %v\n%f = mul %e, %w\n%a = broadcast %f flags(false, true)\n%0 = broadcast %v flags(true, false)\n\
         %1 = broadcast %w flags(true, false)\n%2 = exp %0\n%b = mul %2, %1\n%k = mul %a, %b\n%y = mul %k, %x\n\
         return %y",
    );
    // Inputs are read along each, sums are in memory, and tensors of two dimensions are more than a kernel.
    for kept in [
        "%a = broadcast %v flags(false, true)\n%b = broadcast %v flags(true, false)\n%k = mul %a, %b\nreturn %k",
        "%s = sum %x axes(1)\n%e = exp %s\n%a = broadcast %e flags(false, true)\n\
         %b = broadcast %e flags(true, false)\n%k = mul %a, %b\nreturn %k",
        "%e = exp %x\n%a = broadcast %e flags(false, true, false)\n%b = broadcast %e flags(true, false, false)\n\
         %k = mul %a, %b\nreturn %k",
    ] {
        check(kept, kept);
    }
}

#[test]
fn scans_behind_one_element_are_of_what_is_moved() {
    let joined = |fill: &str, end: &str| {
        format!(
            "%a = full [3, 1] {fill} f32\n%s0 = size %x axis(0)\n%s1 = minimum %s0, 3\n%s2 = size %x axis(1)\n\
             %s3 = minimum %s2, {end}\n%b = slice %x starts(0, 0) ends(%s1, %s3) manual_normalization\n\
             %c = cat %a, %b dim(1)\n\
             %d = cumprod %c dim(1)\nreturn %d"
        )
    };
    check(
        &["shifts"],
        "%x: f32[?, ?]",
        &[&[3, 40]],
        &joined("1.0", "39"),
        "%s0 = cast 1.0 f32\n%0 = pad %x widths(1, -1, 0, 0) value(%s0)\n%d = cumprod %0 dim(1)\nreturn %d",
    );
    // It changes something, or more than one element is left out.
    for kept in [joined("2.0", "39"), joined("1.0", "38")] {
        check(&["shifts"], "%x: f32[?, ?]", &[&[3, 40]], &kept, &kept);
    }
}

#[test]
fn scans_between_conversions_are_of_the_narrow_type() {
    check(
        &["scans"],
        "%x: bf16[?, ?], %y: f16[?]",
        &[&[3, 40], &[9]],
        "%a = cast %x f32\n%b = cumsum %a dim(1)\n%c = cast %b bf16\n%d = cast %y f32\n%e = cummax %d dim(0)\n\
         %f = cast %e f16\nreturn %c, %f, %a",
        "%a = cast %x f32\n%c = cumsum %x dim(1)\n%f = cummax %y dim(0)\nreturn %c, %f, %a",
    );
    // What is kept is another type, or the sums are needed as they are, or they are of what is computed.
    for kept in [
        "%a = cast %x f32\n%b = cumsum %a dim(1)\n%c = cast %b f16\nreturn %c",
        "%a = cast %x f32\n%b = cumsum %a dim(1)\n%c = cast %b bf16\nreturn %b, %c",
        "%a = cast %x f64\n%b = cumsum %a dim(1)\n%c = cast %b bf16\nreturn %c",
        "%a = cast %x f32\n%d = neg %a\n%b = cumsum %d dim(1)\n%c = cast %b bf16\nreturn %c",
    ] {
        check(&["scans"], "%x: bf16[?, ?]", &[&[3, 4]], kept, kept);
    }
}

#[test]
fn the_first_element_of_a_line_is_a_maximum() {
    check(
        &["tops"],
        "%x: bf16[?, ?]",
        &[&[3, 40]],
        "%v, %i = topk %x, 1 dim(1)\nreturn %v, %i",
        "%0 = cast %x f32\n%s0 = size %x axis(1)\n%1 = iota %s0 dtype(i32)\n%2 = broadcast %1 flags(true, false)\n\
         %3 = max %0 axes(1)\n%4 = broadcast %3 flags(false, true)\n%5 = eq %0, %4\n%6 = ne %0, %0\n\
         %7 = logical_or %5, %6\n%8 = where %7, %2, 2147483647\n%9 = min %8 axes(1) dtype(i32)\n\
         %10 = broadcast %9 flags(false, true)\n%v = cast %4 bf16\n%i = cast %10 i64\nreturn %v, %i",
    );
    // Whatever they hold: NaN alone and beside infinities, equal ones, the least integer.
    let [nan, inf] = [f64::NAN, f64::INFINITY];
    let lines = [[nan; 4], [inf, nan, -inf, nan], [-inf, -inf, nan, -inf], [-inf; 4], [1.0, 3.0, 3.0, 1.0], [0.0; 4]];
    for op in ["", "largest(false)"] {
        for (dtype, rank) in [(DType::F32, 2), (DType::F16, 2), (DType::F64, 1)] {
            let (sizes, dims) = (&[6i64, 4][2 - rank..], vec!["?"; rank].join(", "));
            let text = whole(&format!("%x: {dtype}[{dims}]"), &format!("%v, %i = topk %x, 1 {op}\nreturn %i, %v"));
            check_tops(
                &text,
                HostTensor::from_fn(dtype, sizes, |at| {
                    let at: Vec<usize> = at.iter().map(|at| *at as usize).collect();
                    Value::Float(if rank == 1 { lines[1][at[0]] } else { lines[at[0]][at[1]] })
                }),
            );
        }
        let text = whole("%x: i8[?, ?, ?]", &format!("%v, %i = topk %x, 1 dim(1) {op}\nreturn %v, %i"));
        check_tops(
            &text,
            HostTensor::from_fn(DType::I8, &[2, 5, 3], |at| match at[0] {
                0 => Value::Int(if at[2] == 0 { -128 } else { 127 }),
                _ => Value::Int(at[1] * at[2] % 4),
            }),
        );
    }
    // Several are kept, a line has one element, or none is a line.
    for kept in ["%v, %i = topk %x, 2 dim(1)\nreturn %v, %i", "%v, %i = topk %x, 1 dim(0)\nreturn %v, %i"] {
        check(&["tops"], "%x: f32[?, ?]", &[&[1, 4]], kept, kept);
    }
}

/// What the pass leaves of the first elements of lines has no order in it, and the same values.
#[track_caller]
fn check_tops(text: &str, x: crate::diag::Result<HostTensor>) {
    let fusion = text::parse_one(text).expect("it reads");
    let args = [Arg::Tensor(x.expect("it fits"))];
    let (fired, made) = presegment(&only(&["tops"]), &fusion, &args).expect("passes do not fail");
    assert_eq!(fired, ["tops"], "{text}");
    assert!(!text::print(&made).contains("topk"), "{text}");
    check_values(&fusion, &made, &args);
}

#[test]
fn chains_of_moved_axes_are_short() {
    check(
        &["moves"],
        "%x: f32[?, ?]",
        &[&[3, 4]],
        "%a = permute %x dims(1, 0)\n%b = broadcast %a flags(false, true, false)\n%c = squeeze %b flags(false, true, false)\n\
         %d = permute %c dims(1, 0)\n%e = set %d\n%f = exp %e\nreturn %f",
        "%f = exp %x\nreturn %f",
    );
    check(
        &["moves"],
        "%x: f32[?, ?, ?]",
        &[&[3, 4, 2]],
        "%a = permute %x dims(1, 0, 2)\n%b = permute %a dims(2, 1, 0)\n%c = reshape [2, 1, 3, 4] %b\nreturn %c",
        "%0 = permute %x dims(2, 0, 1)\n%c = broadcast %0 flags(false, true, false, false)\nreturn %c",
    );
    // A view that nothing fuses with costs nothing.
    let view = "%a = reshape [1, 12] %x\n%b = reshape [1, 3, 4] %x\n%c = linear %b, %x\nreturn %a, %c";
    check(&["moves"], "%x: f32[?, 4]", &[&[3, 4]], view, view);
    // What is returned is a result of its own, and a copy that somebody asked for.
    check(
        &["moves"],
        "%x: f32[?, ?]",
        &[&[3, 4]],
        "%a = permute %x dims(1, 0)\n%b = permute %a dims(1, 0)\nreturn %b",
        "%b = set %x\nreturn %b",
    );
    let copies = "%a = set %x\n%b = exp %x\n%c = set %b\nreturn %a, %b, %c";
    check(&["moves"], "%x: f32[?, ?]", &[&[3, 4]], copies, copies);
    // An axis that iterates over one element is no broadcast.
    let thin = "%a = reshape [3] %x\nreturn %a";
    check(&["moves"], "%x: f32[?, ?]", &[&[3, 1]], thin, thin);
}

#[test]
fn conversions_through_a_wider_type_go() {
    check(
        &["casts"],
        "%x: f32[?], %h: bf16[?]",
        &[&[5], &[5]],
        "%a = cast %x f64\n%b = cast %a f32\n%c = exp %b\n%d = cast %h f32\n%e = cast %d f16\n%f = cast %d bf16\n\
         return %c, %e, %f",
        "%c = exp %x\n%e = cast %h f16\n%f = set %h\nreturn %c, %e, %f",
    );
    let rounds = "%a = cast %x bf16\n%b = cast %a f32\nreturn %b";
    check(&["casts"], "%x: f32[?]", &[&[5]], rounds, rounds);
    let wraps = "%a = cast %n f64\n%b = cast %a i8\nreturn %b";
    check(&["casts"], "%n: i32[?]", &[&[5]], wraps, wraps);
}

#[test]
fn what_costs_something_is_computed_once() {
    check(
        &["twins"],
        "%x: f32[?, ?]",
        &[&[3, 4]],
        "%a = exp %x\n%b = sum %a axes(1)\n%c = exp %x\n%d = sum %c axes(1)\n%e = neg %d\nreturn %b, %e",
        "%a = exp %x\n%b = sum %a axes(1)\n%e = neg %b\nreturn %b, %e",
    );
    // Other seeds are other numbers.
    let random =
        "%a = rand [4] rng_seed(1) rng_offset(0)\n%b = rand [4] rng_seed(2) rng_offset(0)\n%c = sub %a, %b\nreturn %c";
    let fusion = text::parse_one(&whole("%x: f32[?]", random));
    assert!(fusion.is_ok(), "{fusion:?}");
    let fusion = fusion.expect("it reads");
    let args = arguments(&fusion, &[&[1]]);
    assert_eq!(presegment(&Options::default(), &fusion, &args).expect("it is right").0, [""; 0]);
}

#[test]
fn what_an_input_becomes_stays_apart_from_what_is_returned() {
    let body = "%a = exp %x\n%b = set %a\n%c = permute %b dims(1, 0)\n%d = permute %c dims(1, 0)\nupdate %x = %a\nreturn %b, %d";
    let fusion = text::parse_one(&whole("%x: f32[?, ?]", body)).expect("it reads");
    let args = arguments(&fusion, &[&[3, 4]]);
    let (fired, made) = presegment(&Options::default(), &fusion, &args).expect("it is right");
    assert_eq!(fired, ["moves"]);
    check_values(&fusion, &made, &args);
    assert!(made.updates.iter().all(|update| !made.outputs.contains(&update.tensor)));
}

#[test]
fn passes_make_work_for_each_other() {
    // The product is a multiplication, whose operands are dropped axes that come back.
    check_all(
        "%x: bf16[?], %y: bf16[?]",
        &[&[3], &[4]],
        "%a = cast %x f32\n%b = broadcast %a flags(false, true)\n%c = cast %b bf16\n%d = broadcast %y flags(true, false)\n\
         %e = matmul %c, %d\n%f = slice %e starts(0, 0) ends(3, 4)\n%g = permute %f dims(1, 0)\n%h = permute %g dims(1, 0)\n\
         %i = exp %h\nreturn %i",
        &["products", "slices", "moves"],
    );
}

/// All passes, which must fire in this order at first.
#[track_caller]
fn check_all(signature: &str, sizes: &[&[i64]], body: &str, passes: &[&str]) {
    let fusion = text::parse_one(&whole(signature, body)).expect("it reads");
    let args = arguments(&fusion, sizes);
    let (fired, made) = presegment(&Options::default(), &fusion, &args).expect("passes do not fail");
    assert_eq!(fired[..passes.len()], *passes, "{}", text::print(&made));
    check_values(&fusion, &made, &args);
}

/// What is kept apart of calls with arguments of such sizes, for an H200.
fn key_of(fusion: &Fusion, sizes: &[[i64; 2]], options: &Options) -> Vec<i64> {
    let meta = |(input, sizes): (TensorId, &[i64; 2])| {
        ArgMeta::Tensor(TensorMeta::contiguous(fusion.tensors[input].dtype, sizes))
    };
    let args: Vec<ArgMeta> = fusion.input_tensors().map(|(_, tensor)| tensor).zip(sizes).map(meta).collect();
    let bindings = bind(fusion, &args).expect("they fit");
    let bound = BoundFusion { fusion, bindings: &bindings, args: &args, alignments: &vec![16; args.len()] };
    SeenSizes::new(&CompileCx { options, device: &DeviceDesc::h200(), trace: &NoTrace }, &bound).key().clone()
}

/// Sizes of a softmax over few columns are no matter, since both of its reductions are over these.
#[test]
fn few_positions_are_seen_where_another_axis_is_reduced_too() {
    let check = |body: &str, is_same: bool| {
        let fusion = text::parse_one(&whole("%x: f32[?, ?]", body)).expect("it reads");
        let key = |rows: i64| key_of(&fusion, &[[rows, 5]], &Options::default());
        assert_eq!(key(100) == key(200), is_same, "{body}");
    };
    check(
        "%m = max %x axes(1) keepdim\n%s = sub %x, %m\n%e = exp %s\n%t = sum %e axes(1) keepdim\n%y = truediv %e, %t\n\
         return %y",
        true,
    );
    check("%s = sum %x axes(1)\n%t = prod %s axes(0)\nreturn %t", false);
    check("%s = prod %x axes(1)\n%t = sum %s axes(0)\nreturn %t", true);
}

/// Calls whose axes are about as long and as odd are made the same of, and no others.
#[test]
fn calls_of_like_sizes_are_made_the_same_of() {
    let fusion = text::parse_one(&whole("%a: bf16[?, ?], %b: bf16[?, ?]", "%c = matmul %a, %b\nreturn %c"));
    let fusion = fusion.expect("it reads");
    let options = Options::default();
    let key = |[m, n, k]: [i64; 3], options: &Options| key_of(&fusion, &[[m, k], [k, n]], options);
    let of = |sizes: [i64; 3]| key(sizes, &options);
    assert_eq!(of([4099, 4201, 4303]), of([4101, 4203, 4305]));
    assert_ne!(of([4099, 4201, 4303]), of([4099, 4202, 4303]));
    assert_ne!(of([4099, 4201, 4303]), of([9099, 4201, 4303]));
    // Where all is aligned, or too small, sizes do not matter.
    assert_eq!(of([4096, 4208, 4304]), of([512, 1024, 2048]));
    assert_eq!(of([64, 63, 61]), of([4096, 4208, 4304]));
    // Without a library nothing is widened.
    let alone = Options { libraries: false, ..Options::default() };
    assert_eq!(key([4099, 4201, 4303], &alone), key([99, 4202, 43], &alone));
}
