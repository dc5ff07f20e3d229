//! What becomes of parts that are shown (pass `slices`).

use super::*;

#[test]
fn slices_of_all_and_pads_by_nothing_go() {
    check(
        &["slices"],
        "%x: f32[?, ?]",
        &[&[3, 4]],
        "%a = slice %x starts(0, 0) ends(9, 4)\n%b = pad %a widths(0, 0)\n%c = exp %b\nreturn %c",
        "%c = exp %x\nreturn %c",
    );
    check(
        &["slices"],
        "%x: f32[?, ?]",
        &[&[3, 4]],
        "%a = pad %x widths(2, 1, 0, 3)\n%b = slice %a starts(0, 2) ends(3, 6)\n%c = exp %b\n%d = pad %c widths(-1, -2)\nreturn %d",
        "%s0 = size %x axis(0)\n%0 = slice %x starts(0, 1) ends(%s0, 2) manual_normalization\n%d = exp %0\nreturn %d",
    );
}

#[test]
fn slices_of_what_is_computed_of_inputs_are_computed_of_slices() {
    let inputs = "%x: bf16[?, ?], %m: bool[?, ?], %y: bf16[1, ?]";
    let sizes: [&[i64]; 3] = [&[3, 8], &[3, 8], &[1, 8]];
    let check = |text: &str, made: &str| check(&["slices"], inputs, &sizes, text, made);
    // Rows that are all the same have one row.
    check(
        "%a = add %x, %y\n%b = where %m, %a, -1.0\n%c = slice %b starts(1, 2) ends(3, 8)\nreturn %c",
        "%2 = slice %m starts(1, 2) ends(3, 8) manual_normalization\n\
         %3 = slice %x starts(1, 2) ends(3, 8) manual_normalization\n%4 = cast %3 f32\n\
         %5 = slice %y starts(0, 2) ends(1, 8) manual_normalization\n%6 = cast %5 f32\n%7 = add %4, %6\n\
         %c = where %2, %7, -1.0\nreturn %c",
    );
    // Halves of it, each computed once.
    check(
        "%a = exp %x\n%b = slice %a starts(0, 0) ends(3, 4)\n%c = slice %a starts(0, 4) ends(3, 8)\nreturn %b, %c",
        "%s0 = size %x axis(0)\n%s1 = size %x axis(1)\n%s2 = minimum %s1, 4\n\
         %1 = slice %x starts(0, 0) ends(%s0, %s2) manual_normalization\n%2 = cast %1 f32\n%b = exp %2\n\
         %3 = slice %x starts(0, 4) ends(%s0, 8) manual_normalization\n%4 = cast %3 f32\n%c = exp %4\nreturn %b, %c",
    );
    // Not what is needed as a whole, what two slices share, or what a kernel has made for others too.
    for same in [
        "%a = exp %x\n%b = slice %a starts(0, 1) ends(3, 8)\nreturn %a, %b",
        "%a = exp %x\n%b = slice %a starts(0, 1) ends(3, 8)\n%c = slice %a starts(0, 0) ends(3, 7)\nreturn %b, %c",
        "%a = exp %x\n%s = sum %a axes(1) keepdim\n%d = div %a, %s\n%b = slice %d starts(0, 1) ends(3, 8)\nreturn %b",
    ] {
        let fusion = text::parse_one(&whole(inputs, same)).expect("it reads");
        let (fired, _) = presegment(&only(&["slices"]), &fusion, &arguments(&fusion, &sizes)).expect("no pass fails");
        assert!(fired.is_empty(), "{same}");
    }
}

/// An axis of one element that a slice up to a number leaves is a broadcast, whether it iterates before or not.
#[test]
fn slices_of_what_has_one_element_are_computed_of_slices() {
    let inputs = "%x: bf16[?, ?], %y: bf16[1, ?], %z: f32[?, ?], %w: f32[?, ?], %v: bf16[?, ?]";
    let sizes: [&[i64]; 5] = [&[1, 8], &[1, 8], &[3, 4], &[4, 3], &[1, 8]];
    for (text, made) in [
        // It meets what has more of it.
        (
            "%a = mul %x, %y\n%b = slice %a starts(0, 0) ends(1, 4)\n%c = slice %a starts(0, 4) ends(1, 8)\n\
             %d = add %b, %z\n%e = sub %c, %z\nreturn %d, %e",
            "slice %x",
        ),
        (
            "%a = add %x, %v\n%p = permute %a dims(1, 0)\n%b = slice %p starts(0, 0) ends(4, 1)\n\
             %c = slice %p starts(4, 0) ends(8, 1)\n%d = add %b, %w\n%e = sub %c, %w\nreturn %d, %e",
            "slice %v",
        ),
        // It iterates still, as far as its size says where the slice ends.
        (
            "%a = mul %x, %v\n%s0 = size %x axis(0)\n%b = slice %a starts(0, 0) ends(%s0, 4)\n\
             %c = slice %a starts(0, 4) ends(1, 8)\n%d = add %b, %c\nreturn %d, %b",
            "slice %v",
        ),
        ("%a = cat %x, %v dim(1)\n%b = slice %a starts(0, 9) ends(1, 13)\n%d = add %b, %z\nreturn %d", "slice %v"),
        ("%a = cat %x, %v dim(1)\n%b = slice %a starts(0, 8) ends(1, 16)\n%d = neg %b\nreturn %d", "slice %v"),
    ] {
        let fusion = text::parse_one(&whole(inputs, text)).expect("it reads");
        let args = arguments(&fusion, &sizes);
        let (fired, found) = presegment(&only(&["slices"]), &fusion, &args).expect("no pass fails");
        let is_made = text::print(&found).contains(made) && !text::print(&found).contains("slice %a");
        assert!(fired.contains(&"slices".into()) && is_made, "{}", text::print(&found));
        check_values(&fusion, &found, &args);
    }
}

#[test]
fn slices_of_pads_are_pads() {
    let inputs = "%x: f32[?, ?]";
    check(
        &["slices"],
        inputs,
        &[&[3, 4]],
        "%a = pad %x widths(0, 0, 1, 0) value(2.0)\n%b = slice %a starts(0, 0) ends(3, 4)\n\
         %c = slice %a starts(1, 1) ends(4, 3)\n%d = exp %b\n%e = exp %c\nreturn %d, %e",
        "%s0 = cast 2.0 f32\n%b = pad %x widths(0, 0, 1, -1) value(%s0)\n%s1 = size %x axis(0)\n\
         %c = slice %x starts(0, 1) ends(%s1, 3) manual_normalization\n%d = exp %b\n%e = exp %c\nreturn %d, %e",
    );
    // What is returned or read by others is stored, and slices are views of it; others have nothing of what is padded.
    let stored = [
        "%a = pad %x widths(1, 0, 0, 0)\n%b = slice %a starts(0, 0) ends(3, 4)\n%c = exp %b\nreturn %a, %c",
        "%a = pad %x widths(1, 0, 0, 0)\n%b = slice %a starts(0, 0) ends(3, 4)\n%c = exp %b\n\
         %d = cumsum %a dim(1)\nreturn %c, %d",
        "%a = pad %x widths(2, 0, 0, 0)\n%b = slice %a starts(0, 0) ends(3, 2)\n%c = exp %b\nreturn %c",
    ];
    for same in stored {
        let fusion = text::parse_one(&whole(inputs, same)).expect("it reads");
        let (fired, _) =
            presegment(&only(&["slices"]), &fusion, &arguments(&fusion, &[&[3, 4]])).expect("no pass fails");
        assert!(fired.is_empty(), "{same}");
    }
}

#[test]
fn what_is_computed_is_padded_before() {
    let check = |inputs: &str, before: &str, after: &str| check(&["slices"], inputs, &[&[3, 4]], before, after);
    check(
        "%x: bf16[?, ?]",
        "%a = cast %x f32\n%b = pad %a widths(0, 0, 1, -1)\n%c = sub %b, %a\nreturn %c",
        "%a = cast %x f32\n%0 = pad %x widths(0, 0, 1, -1)\n%b = cast %0 f32\n%c = sub %b, %a\nreturn %c",
    );
    check(
        "%x: f32[?, ?]",
        "%a = relu %x\n%b = pad %a widths(1, -1, 0, 0)\n%c = pad %a widths(-1, 1, 0, 0)\n%d = sub %b, %c\nreturn %d",
        "%0 = pad %x widths(1, -1, 0, 0)\n%b = relu %0\n%1 = pad %x widths(-1, 1, 0, 0)\n%c = relu %1\n\
         %d = sub %b, %c\nreturn %d",
    );
    for (inputs, same) in [
        // A pad alone is computed with what it pads.
        ("%x: bf16[?, ?]", "%a = cast %x f32\n%b = pad %a widths(0, 0, 1, -1)\nreturn %b"),
        // 0.1 is no number of 16 bits, and exp(0) is not 0.
        ("%x: bf16[?, ?]", "%a = cast %x f32\n%b = pad %a widths(1, -1, 0, 0) value(0.1)\n%c = sub %b, %a\nreturn %c"),
        ("%x: f32[?, ?]", "%a = exp %x\n%b = pad %a widths(1, -1, 0, 0)\n%c = sub %b, %a\nreturn %c"),
        // What is returned or scanned is stored.
        ("%x: f32[?, ?]", "%a = relu %x\n%b = pad %a widths(1, -1, 0, 0)\n%c = sub %b, %a\nreturn %a, %c"),
        (
            "%x: f32[?, ?]",
            "%a = relu %x\n%b = pad %a widths(1, -1, 0, 0)\n%c = cumsum %a dim(1)\n%d = sub %b, %c\nreturn %d",
        ),
    ] {
        let fusion = text::parse_one(&whole(inputs, same)).expect("it reads");
        let (fired, _) =
            presegment(&only(&["slices"]), &fusion, &arguments(&fusion, &[&[3, 4]])).expect("no pass fails");
        assert!(fired.is_empty(), "{same}");
    }
}

#[test]
fn what_is_computed_of_positions_is_computed_of_those() {
    let check = |before: &str, after: &str| {
        check(&["slices"], "%x: f32[?, ?], %y: f32[1, ?], %z: f32[?]", &[&[3, 4], &[1, 4], &[3]], before, after);
    };
    // A row that is the same for all is one for each.
    check(
        "%a = add %x, %y\n%b = select %a, 0 dim(0)\n%c = select %a, 2 dim(0)\n%d = mul %b, %c\nreturn %d",
        "%0 = select %x, 0 dim(0)\n%1 = squeeze %y flags(true, false)\n%b = add %0, %1\n\
         %2 = select %x, 2 dim(0)\n%c = add %2, %1\n%d = mul %b, %c\nreturn %d",
    );
    // Through axes that are inserted and permuted.
    check(
        "%a = permute %x dims(1, 0)\n%b = broadcast %z flags(true, false)\n%c = add %a, %b\n\
         %d = select %c, 1 dim(0)\nreturn %d",
        "%0 = select %x, 1 dim(1)\n%d = add %0, %z\nreturn %d",
    );
}

#[test]
fn slices_of_what_is_joined_are_slices_of_an_operand() {
    check(
        &["slices"],
        "%x: f32[?, 4], %y: f32[?, 4]",
        &[&[3, 4], &[2, 4]],
        "%a = cat %x, %y dim(0)\n%b = slice %a starts(3, 0) ends(5, 4)\n%c = exp %b\n%d = slice %a starts(1, 1) ends(3, 4)\nreturn %c, %d",
        "%c = exp %y\n%d = slice %x starts(1, 1) ends(3, 4) manual_normalization\nreturn %c, %d",
    );
    // Where a number of the call decides, it may be another operand in the next call.
    let open =
        "%a = cat %x, %y dim(0)\n%s0 = add %n, 2\n%b = slice %a starts(%n) ends(%s0) manual_normalization\nreturn %b";
    let fusion = text::parse_one(&whole("%x: f32[4], %y: f32[4], %n: i64", open)).expect("it reads");
    let mut args = arguments(&fusion, &[&[4], &[4]]);
    args.push(Arg::Scalar(Value::Int(1)));
    assert_eq!(presegment(&Options::default(), &fusion, &args).expect("it is right").0, [""; 0]);
}
