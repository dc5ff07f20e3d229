//! What becomes of reshapes between what is computed (pass `regroup`).

use super::*;

#[test]
fn what_lies_before_and_behind_a_reshape_is_computed_in_the_axes_of_both() {
    // An axis is split behind what is computed of it, and in what that reads.
    check(
        &["regroup"],
        "%x: f32[?, ?], %b: f32[?]",
        &[&[2, 12], &[12]],
        "%0 = broadcast %b flags(true, false)\n%a = add %x, %0\n%c = reshape [2, 3, 4] %a\n\
         %d = permute %c dims(1, 0, 2)\n%e = neg %d\nreturn %e",
        "%1 = reshape [3, 4] %b\n%0 = broadcast %1 flags(true, false, false)\n%s0 = size %x axis(0)\n\
         %2 = reshape [%s0, 3, 4] %x\n%a = add %2, %0\n%d = permute %a dims(1, 0, 2)\n%e = neg %d\nreturn %e",
    );
    // Axes are merged before a reduction: it goes over all parts.
    check(
        &["regroup"],
        "%x: f32[?, ?, ?, ?], %w: f32[?]",
        &[&[2, 3, 5, 4], &[12]],
        "%p = permute %x dims(0, 2, 1, 3)\n%r = reshape [2, 5, 12] %p\n%s = sum %r axes(2)\n\
         %t = broadcast %s flags(false, false, true)\n%u = mul %r, %t\n%v = broadcast %w flags(true, true, false)\n\
         %y = mul %u, %v\nreturn %y, %s",
        "%p = permute %x dims(0, 2, 1, 3)\n%s = sum %p axes(2, 3)\n\
         %t = broadcast %s flags(false, false, true, true)\n%u = mul %p, %t\n%s0 = size %x axis(1)\n\
         %s1 = size %x axis(3)\n%0 = reshape [%s0, %s1] %w\n%v = broadcast %0 flags(true, true, false, false)\n\
         %1 = mul %u, %v\n%y = reshape [2, 5, 12] %1\nreturn %y, %s",
    );
    // What is repeated is split where it is read.
    check(
        &["regroup"],
        "%x: f32[?, ?], %z: f32[?, ?]",
        &[&[2, 3], &[4, 6]],
        "%a = broadcast %x flags(false, true, false, true)\n%b = expand [2, 2, 3, 2] %a\n%c = reshape [4, 6] %b\n\
         %d = mul %c, %z\nreturn %d",
        "%a = broadcast %x flags(false, true, false, true)\n%b = expand [2, 2, 3, 2] %a\n%s0 = size %x axis(0)\n\
         %s1 = size %x axis(1)\n%0 = reshape [%s0, 2, %s1, 2] %z\n%1 = mul %b, %0\n%d = reshape [4, 6] %1\nreturn %d",
    );
}

/// What becomes of reshapes of one matrix.
fn check_regrouped(sizes: &[i64], before: &str, after: &str) {
    check(&["regroup"], "%x: f32[?, ?]", &[sizes], before, after);
}

#[test]
fn both_sides_of_a_reshape_may_be_cut() {
    check_regrouped(
        &[6, 4],
        "%a = relu %x\n%b = reshape [3, 8] %a\n%c = neg %b\nreturn %c",
        "%s0 = size %x axis(1)\n%0 = reshape [3, 2, %s0] %x\n%a = relu %0\n%1 = neg %a\n%c = reshape [3, 8] %1\n\
         return %c",
    );
    // One reshape cuts what another one reads, and what is filled.
    check_regrouped(
        &[2, 12],
        "%a = relu %x\n%b = reshape [2, 3, 4] %a\n%c = exp %b\n%d = reshape [24] %c\n%e = full [24] 0.5 f32\n\
         %f = add %d, %e\nreturn %f",
        "%s0 = size %x axis(0)\n%0 = reshape [%s0, 3, 4] %x\n%a = relu %0\n%c = exp %a\n\
         %e = full [2, 3, 4] 0.5 f32\n%1 = add %c, %e\n%f = reshape [24] %1\nreturn %f",
    );
    // Axes of one element are others.
    check_regrouped(
        &[2, 12],
        "%a = relu %x\n%b = reshape [2, 1, 3, 4] %a\n%c = neg %b\nreturn %c",
        "%s0 = size %x axis(0)\n%0 = reshape [%s0, 3, 4] %x\n%a = relu %0\n\
         %b = broadcast %a flags(false, true, false, false)\n%c = neg %b\nreturn %c",
    );
    // Nothing divides both.
    let same = "%a = relu %x\n%b = reshape [8, 3] %a\n%c = neg %b\nreturn %c";
    check_regrouped(&[6, 4], same, same);
    // Both sides meet the same element of one axis, which is as long as either.
    let same = "%a = max %x axes(0)\n%b = reshape [3, 3] %a\n%c = neg %b\n%0 = min %a axes(0)\n\
                %d = broadcast %0 flags(true)\n%e = broadcast %d flags(true, false)\n%f = add %c, %e\n%g = add %a, %d\n\
                return %f, %g";
    check_regrouped(&[2, 9], same, same);
}

#[test]
fn what_is_returned_is_seen_in_its_own_axes() {
    check_regrouped(
        &[4, 6],
        "%a = relu %x\n%b = reshape [24] %a\n%c = neg %b\nreturn %a, %c",
        "%a = relu %x\n%0 = neg %a\n%c = reshape [24] %0\nreturn %a, %c",
    );
    check_regrouped(
        &[4, 6],
        "%a = relu %x\n%b = reshape [24] %a\n%c = neg %b\n%d = reshape [4, 2, 3] %c\n%e = exp %d\nreturn %b, %a, %e",
        "%s0 = size %x axis(0)\n%0 = reshape [%s0, 2, 3] %x\n%1 = relu %0\n%s1 = size %x axis(1)\n\
         %a = reshape [%s0, %s1] %1\n%b = reshape [24] %a\n%c = neg %1\n%e = exp %c\nreturn %b, %a, %e",
    );
}

#[test]
fn reshapes_in_whose_way_something_is_stay() {
    let check = |sizes: &[i64], body: &str| check(&["regroup"], "%x: f32[?, ?]", &[sizes], body, body);
    // A view of memory, one that is returned, and one behind which axes are only moved.
    check(&[4, 6], "%a = reshape [24] %x\n%b = neg %a\nreturn %b");
    check(&[4, 6], "%a = neg %x\n%b = reshape [24] %a\nreturn %b");
    check(&[4, 6], "%a = neg %x\n%b = reshape [4, 2, 3] %a\n%c = permute %b dims(2, 1, 0)\nreturn %c");
    check(&[4, 6], "%a = cumsum %x dim(1)\n%b = reshape [24] %a\n%c = neg %b\nreturn %c");
    // An axis that is widened, or holds positions, is one loop.
    check(&[2, 4], "%a = pad %x widths(1, 1, 0, 0)\n%b = reshape [2, 3, 2] %a\n%c = neg %b\nreturn %c");
    check(
        &[2, 6],
        "%a = index [2, 6] axis(1)\n%0 = cast %a f32\n%b = add %x, %0\n%c = reshape [2, 3, 2] %b\n%d = neg %c\nreturn %d",
    );
    // What is written into an input is written by the kernel that computes it.
    check(&[2, 6], "%a = exp %x\n%b = reshape [2, 3, 2] %a\n%c = neg %b\nupdate %x = %a\nreturn %c");
    // Nothing is in the axes.
    check(&[0, 6], "%a = neg %x\n%b = reshape [0, 3, 2] %a\n%c = neg %b\nreturn %c");
}

#[test]
fn parts_behind_a_reshape_are_computed_of_parts() {
    check(
        &["slices", "regroup"],
        "%x: f32[?, ?], %b: f32[?]",
        &[&[2, 6], &[6]],
        "%0 = broadcast %b flags(true, false)\n%a = add %x, %0\n%r = reshape [2, 3, 2] %a\n\
         %g = select %r, 0 dim(2)\n%u = select %r, 1 dim(2)\n%y = mul %g, %u\nreturn %y",
        "%1 = reshape [3, 2] %b\n%s0 = size %x axis(0)\n%2 = reshape [%s0, 3, 2] %x\n%3 = select %2, 0 dim(2)\n\
         %4 = select %1, 0 dim(1)\n%5 = broadcast %4 flags(true, false)\n%g = add %3, %5\n\
         %6 = select %2, 1 dim(2)\n%7 = select %1, 1 dim(1)\n%8 = broadcast %7 flags(true, false)\n\
         %u = add %6, %8\n%y = mul %g, %u\nreturn %y",
    );
    // What is summed is stored.
    let same = "%a = sum %x axes(0)\n%r = reshape [3, 2] %a\n%g = select %r, 0 dim(1)\n%y = neg %g\nreturn %y";
    check(&["regroup"], "%x: f32[?, ?]", &[&[2, 6]], same, same);
}

#[test]
fn reshapes_go_once() {
    let text = "%a = relu %x\n%b = reshape [4, 2, 3] %a\n%c = exp %b\n%d = reshape [3, 8] %c\n%e = neg %d\n\
                %f = cumsum %e dim(1)\n%g = reshape [2, 12] %f\n%h = neg %g\nreturn %h, %c";
    let fusion = text::parse_one(&whole("%x: f32[?, ?]", text)).expect("it reads");
    let args = arguments(&fusion, &[&[4, 6]]);
    let (fired, made) = presegment(&only(&["regroup"]), &fusion, &args).expect("passes do not fail");
    assert_eq!(fired, ["regroup"], "{}", text::print(&made));
    let (fired, _) = presegment(&only(&["regroup"]), &made, &args).expect("passes do not fail");
    assert!(fired.is_empty(), "{}", text::print(&made));
    check_values(&fusion, &made, &args);
}

#[test]
fn sizes_are_seen_where_a_reshape_could_go() {
    let key = |body: &str, sizes: &[i64]| {
        let fusion = text::parse_one(&whole("%x: f32[?, ?]", body)).expect("it reads");
        let metas: Vec<ArgMeta> = arguments(&fusion, &[sizes]).iter().map(Arg::meta).collect();
        let bindings = bind(&fusion, &metas).expect("they fit");
        let bound = BoundFusion { fusion: &fusion, bindings: &bindings, args: &metas, alignments: &[16] };
        let (device, options) = (DeviceDesc::h200(), Options::default());
        SeenSizes::new(&CompileCx { options: &options, device: &device, trace: &NoTrace }, &bound).key().clone()
    };
    let between = "%a = relu %x\n%b = reshape [-1] %a\n%c = neg %b\nreturn %c";
    assert_ne!(key(between, &[3, 4]), key(between, &[5, 6]));
    let view = "%a = reshape [-1] %x\n%b = neg %a\nreturn %b";
    assert_eq!(key(view, &[3, 4]), key(view, &[5, 6]));
}

#[test]
fn what_is_unpacked_and_decoded_is_computed_in_the_axes_of_both() {
    let unpacked = "%0 = bitwise_and %q, 3\n%a = broadcast %0 flags(false, false, true)\n\
         %1 = bitwise_and %k, 3\n%b = broadcast %1 flags(false, false, true)\n%2 = cat %a, %b dim(2)\n";
    let decoded = "%3 = reshape [48] %2\n%4 = index_select %t, %3 dim(0)\n%5 = reshape [4, 3, 4] %4\n\
         %6 = broadcast %s flags(false, false, true)\n%7 = mul %5, %6\n%y = reshape [4, 12] %7\n";
    let signature = "%q: u8[?, ?], %k: u8[?, ?], %t: f32[4], %s: f32[?, ?]";
    let sizes: [&[i64]; 4] = [&[4, 6], &[4, 6], &[4], &[4, 3]];
    let body = format!("{unpacked}{decoded}return %y");
    let fusion = text::parse_one(&whole(signature, &body)).expect("it reads");
    let args = arguments(&fusion, &sizes);
    let (fired, made) = presegment(&only(&["regroup"]), &fusion, &args).expect("it is right");
    assert_eq!(fired, ["regroup"]);
    check_values(&fusion, &made, &args);
    let text = text::print(&made);
    // Both sides are seen in finer axes, and so is the result in its own.
    assert!(text.contains("take_along_axis") && text.matches(" = reshape ").count() == 5, "{text}");
    assert!(!text.contains("[48]"), "{text}");
    // The line is seen, not copied.
    let (_, made) = presegment(&Options::default(), &fusion, &args).expect("it is right");
    assert!(text::print(&made).contains("reshape [1, 1, 1, 4] %"), "{}", text::print(&made));
    // What is reduced reads what is stored.
    let reduced = format!("{unpacked}{decoded}%z = sum %y axes(1)\nreturn %z");
    let fusion = text::parse_one(&whole(signature, &reduced)).expect("it reads");
    let (_, made) = presegment(&only(&["regroup"]), &fusion, &args).expect("it is right");
    assert!(text::print(&made).contains("[48]"));
}

#[test]
fn elements_of_tables_are_found_in_finer_axes() {
    // Along the table's axis nothing is cut, along the others all may be.
    let body = "%a = abs %i\n%j = reshape [6, 4] %a\n%k = remainder %j, 5\n%b = take_along_axis %x, %k dim(1)\n\
         %c = reshape [2, 3, 4] %b\n%y = neg %c\nreturn %y";
    let sizes: [&[i64]; 2] = [&[6, 5], &[2, 3, 4]];
    let fusion = text::parse_one(&whole("%x: f32[?, ?], %i: i32[?, ?, ?]", body)).expect("it reads");
    let args = arguments(&fusion, &sizes);
    let (fired, made) = presegment(&only(&["regroup"]), &fusion, &args).expect("it is right");
    assert_eq!(fired, ["regroup"]);
    check_values(&fusion, &made, &args);
    // Here that axis would be.
    let cut = body.replace("[2, 3, 4] %b", "[6, 2, 2] %b");
    let fusion = text::parse_one(&whole("%x: f32[?, ?], %i: i32[?, ?, ?]", &cut)).expect("it reads");
    let (_, made) = presegment(&only(&["regroup"]), &fusion, &args).expect("it is right");
    check_values(&fusion, &made, &args);
    assert!(text::print(&made).contains("[6, 2, 2]"));
}
