//! What becomes of tensors that are joined of parts of the same (pass `overlaps`), and of what is read at places that are computed by
//! way of pads, reshapes and lookups (pass `places`).

use super::*;

/// The fusion that one pass leaves, which has the same values; none if it finds nothing.
#[track_caller]
fn passed(pass: &str, signature: &str, sizes: &[&[i64]], body: &str) -> Option<String> {
    let fusion = text::parse_one(&whole(signature, body)).expect("it reads");
    let args = arguments(&fusion, sizes);
    let (fired, made) = presegment(&only(&[pass]), &fusion, &args).expect("it is right");
    check_values(&fusion, &made, &args);
    (!fired.is_empty()).then(|| text::print(&made))
}

/// How often operations stand in a text.
fn counts<const N: usize>(text: &str, ops: [&str; N]) -> [usize; N] {
    ops.map(|op| text.matches(&format!(" = {op} ")).count())
}

#[test]
fn windows_that_are_joined_are_chosen_by_number() {
    // Three by three windows, each with an axis of its own.
    let mut body = String::new();
    for (number, (row, column)) in (-1..=1).flat_map(|row| (-1..=1).map(move |column| (row, column))).enumerate() {
        let widths = [-column, column, -row, row].map(|width: i64| width.to_string()).join(", ");
        body += &format!("%p{number} = pad %x, 0.0 widths({widths})\n");
        body += &format!("%v{number} = broadcast %p{number} flags(false, false, true, false, false)\n");
    }
    let parts: Vec<String> = (0..9).map(|number| format!("%v{number}")).collect();
    body += &format!("%p = cat {} dim(2)\n%y = reshape [2, 27, 72] %p\nreturn %y", parts.join(", "));
    for dtype in ["bf16", "f32", "f64"] {
        let made = passed("overlaps", &format!("%x: {dtype}[?, ?, ?, ?]"), &[&[2, 3, 8, 9]], &body).expect("it fires");
        assert_eq!(counts(&made, ["cat", "pad", "where", "index", "reshape"]), [0, 9, 8, 1, 1], "{made}");
    }
    // Short runs.
    let short = body.replace("72", "20");
    assert_eq!(passed("overlaps", "%x: f32[?, ?, ?, ?]", &[&[2, 3, 4, 5]], &short), None);
}

#[test]
fn parts_of_the_same_tensors_are_chosen_by_number() {
    let cut = "%r = reshape [2, 3, 2, 80] %x\n%a = select %r, 0 dim(2)\n%b = select %r, 1 dim(2)\n";
    let of = |ends: &str| format!("{cut}%s = add %a, %b\n%d = sub %a, %b\n%y = cat %s, %d dim(1)\n{ends}");
    let signature = "%x: f32[?, ?, ?]";
    let made = passed("overlaps", signature, &[&[2, 3, 160]], &of("return %y")).expect("it fires");
    assert_eq!(counts(&made, ["cat", "where", "index", "reshape"]), [0, 1, 1, 2], "{made}");
    // What is made of it is made in the same kernel, and what others need is stored.
    for ends in ["%z = exp %y\nreturn %z", "return %y, %s"] {
        assert_eq!(passed("overlaps", signature, &[&[2, 3, 160]], &of(ends)), None, "{ends}");
    }
    // Each part is of another tensor, or none is computed.
    for body in ["%p = exp %a\n%q = exp %b\n%y = cat %p, %q dim(1)", "%y = cat %a, %b dim(1)"] {
        assert_eq!(passed("overlaps", signature, &[&[2, 3, 160]], &format!("{cut}{body}\nreturn %y")), None, "{body}");
    }
}

/// The halves of the first six elements of rows, each computed of both, and what is behind them.
const HALVES: &str = "%a = slice %x starts(0, 0, 0) ends(2, 3, 4)\n%b = slice %x starts(0, 0, 4) ends(2, 3, 8)\n\
     %r = slice %x starts(0, 0, 8) ends(2, 3, 16)\n%cr = broadcast %c flags(true, false, false)\n%p = mul %a, %cr\n\
     %q = mul %b, %cr\n%s = sub %p, %b\n%d = add %q, %a\n";

#[test]
fn halves_of_rows_are_chosen_by_number() {
    let sizes: [&[i64]; 2] = [&[2, 3, 16], &[3, 4]];
    let found = |signature: &str, ends: &str| passed("overlaps", signature, &sizes, &format!("{HALVES}{ends}"));
    let ops = ["cat", "where", "index", "reshape", "slice", "permute", "stride_order"];
    let signature = "%x: f32[?, ?, ?], %c: f32[?, ?]";
    for (ends, expected) in [
        // The rest of a row is two parts more.
        ("%y = cat %s, %d, %r dim(2)\nreturn %y", [0, 3, 1, 1, 4, 0, 0]),
        ("%n = neg %d\n%y = cat %s, %n dim(-1)\nreturn %y", [0, 1, 1, 1, 2, 0, 0]),
        ("%y = cat %s, %d dim(2)\n%z = cast %y bf16\nreturn %z", [0, 1, 1, 1, 2, 0, 0]),
        // What is moved and copied is computed where it will lie.
        (
            "%y = cat %s, %d dim(2)\n%m = permute %y dims(1, 0, 2)\n%z = stride_order %m order(2, 1, 0)\nreturn %z",
            [0, 1, 1, 1, 2, 2, 0],
        ),
        ("%y = cat %s, %d dim(2)\n%m = permute %y dims(1, 0, 2)\nreturn %y, %m", [0, 1, 1, 1, 2, 1, 0]),
    ] {
        let made = found(signature, ends).expect("it fires");
        assert_eq!(counts(&made, ops), expected, "{made}");
    }
    for ends in [
        // Others need what is joined, or a part of it, and a copy has an order of its own.
        "%y = cat %s, %d dim(2)\n%z = exp %y\nreturn %z",
        "%y = cat %s, %d dim(2)\nreturn %y, %s",
        "%y = cat %s, %d dim(2)\n%m = permute %y dims(1, 0, 2)\n%z = stride_order %m order(1, 2, 0)\nreturn %z",
        "%y = cat %s, %d dim(2)\n%m = permute %y dims(1, 0, 2)\n%z = stride_order %m order(2, 1, 0)\nreturn %y, %z",
        // What is computed is no whole number of parts, and each part is of its own.
        "%e = slice %x starts(0, 0, 8) ends(2, 3, 13)\n%y = cat %s, %d, %e dim(2)\nreturn %y",
        "%n = exp %r\n%y = cat %s, %d, %n dim(2)\nreturn %y",
        "%y = cat %p, %r dim(2)\nreturn %y",
    ] {
        assert_eq!(found(signature, ends), None, "{ends}");
    }
    // What is longer than others and converted is parts of what it is converted from.
    let ends = "%w = cast %r f32\n%y = cat %s, %d, %w dim(2)\nreturn %y";
    let made = found("%x: bf16[?, ?, ?], %c: f32[?, ?]", ends).expect("it fires");
    assert_eq!(counts(&made, ["cat", "where", "slice"]), [0, 3, 4], "{made}");
}

#[test]
fn rows_that_a_pad_shifts_are_looked_up() {
    let body = "%p = pad %x, 0.0 widths(1, 0)\n%r = reshape [2, 3, 6, 5] %p\n\
         %v = slice %r starts(0, 0, 1, 0) ends(2, 3, 6, 5)\n%y = add %c, %v\nreturn %y";
    let sizes: [&[i64]; 2] = [&[2, 3, 5, 5], &[2, 3, 5, 5]];
    for dtype in ["bf16", "f32"] {
        let signature = format!("%x: {dtype}[?, ?, ?, ?], %c: {dtype}[?, ?, ?, ?]");
        let made = passed("places", &signature, &sizes, body).expect("it fires");
        assert_eq!(counts(&made, ["pad", "slice", "take_along_axis", "where"]), [0, 0, 1, 1], "{made}");
    }
    // What is not computed of is a view of what is stored.
    let returned = body.replace("%y = add %c, %v\nreturn %y", "return %v");
    assert_eq!(passed("places", "%x: f32[?, ?, ?, ?]", &sizes[..1], &returned), None);
}

#[test]
fn windows_that_are_steps_apart_are_looked_up() {
    for [h, w] in [[8, 8], [7, 9]] {
        let [oh, ow] = [h, w].map(|size| (size - 1) / 2 + 1);
        let mut body = String::from("%p = pad %x, -inf widths(1, 1, 1, 1)\n");
        for at in 0..3 {
            body += &format!("%i{at} = iota {oh}, {at}, 2\n%j{at} = iota {ow}, {at}, 2\n");
        }
        let mut last = String::new();
        for (row, column) in (0..3).flat_map(|row| (0..3).map(move |column| (row, column))) {
            let own = format!("{row}{column}");
            body += &format!("%r{own} = index_select %p, %i{row} dim(2)\n");
            body += &format!("%s{own} = index_select %r{own}, %j{column} dim(3)\n");
            body += &match last.as_str() {
                "" => format!("%m{own} = neg %s{own}\n"),
                last => format!("%m{own} = maximum {last}, %s{own}\n"),
            };
            last = format!("%m{own}");
        }
        body += &format!("return {last}");
        for dtype in ["bf16", "f32"] {
            let made = passed("places", &format!("%x: {dtype}[?, ?, ?, ?]"), &[&[2, 3, h, w]], &body);
            let made = made.expect("it fires");
            assert_eq!(counts(&made, ["pad", "index_select", "take_along_axis"]), [0, 0, 9], "{made}");
        }
    }
}

#[test]
fn folds_of_pads_are_looked_up() {
    let body = "%p = pad %x, 2.0 widths(1, 2, 1, 0)\n%r = reshape [3, 4, 2, 5, 2] %p\n%a = select %r, 1 dim(2)\n\
         %b = slice %a starts(0, 1, 0, 0) ends(3, 4, 5, 2)\n%c = select %b, -1 dim(3)\n%y = exp %c\nreturn %y";
    let made = passed("places", "%x: f32[?, ?, ?]", &[&[3, 7, 7]], body).expect("it fires");
    assert_eq!(counts(&made, ["pad", "take_along_axis", "where"]), [0, 1, 1], "{made}");
    // Pads of two values, what is returned on the way, and what is reduced.
    let two = body.replace("%r =", "%q = pad %p, 1.0 widths(0, 0)\n%r =").replace("%p\n%a", "%q\n%a");
    assert!(passed("places", "%x: f32[?, ?, ?]", &[&[3, 7, 7]], &two).is_none(), "{two}");
    for (from, to) in [("return %y", "return %y, %p"), ("return %y", "%z = sum %y axes(1)\nreturn %z")] {
        let other = body.replace(from, to);
        assert_eq!(passed("places", "%x: f32[?, ?, ?]", &[&[3, 7, 7]], &other), None, "{other}");
    }
}

#[test]
fn lookups_behind_lookups_are_one() {
    // Places that mirror, and those of what is nearest.
    let mirrored = "%0 = iota 9, -2\n%i = abs %0\n%1 = sub 6, %i\n%2 = abs %1\n%a = sub 6, %2\n";
    let nearest = "%3 = iota 10\n%4 = cast %3 f32\n%5 = mul %4, 0.5\n%6 = floor %5\n%b = cast %6 i32\n";
    for ([first, second], sizes) in [([1, 2], [3, 7, 5]), ([2, 1], [3, 5, 7]), ([0, 2], [7, 3, 5])] {
        let body = format!(
            "{mirrored}{nearest}%c = index_select %x, %a dim({first})\n%y = index_select %c, %b dim({second})\n"
        );
        for dtype in ["bf16", "f32", "u8"] {
            let signature = format!("%x: {dtype}[?, ?, ?]");
            for ends in ["return %y", "%z = cast %y f32\n%w = exp %z\nreturn %w"] {
                let made = passed("places", &signature, &[&sizes], &format!("{body}{ends}")).expect("it fires");
                assert_eq!(counts(&made, ["index_select", "take_along_axis", "iota"]), [0, 1, 0], "{made}");
            }
        }
    }
}

#[test]
fn places_by_way_of_floats_are_held_to_what_they_are() {
    // The first one is not below 0, and the second one is held to the last by itself.
    let body = "%0 = iota 10\n%1 = cast %0 f32\n%2 = mul %1, 0.5\n%3 = sub %2, 0.25\n%4 = maximum %3, 0.0\n%5 = floor %4\n\
         %a = cast %5 i64\n%6 = add %a, 1\n%b = minimum %6, 4\n%c = index_select %x, %a dim(0)\n\
         %y = index_select %c, %b dim(1)\nreturn %y";
    let made = passed("places", "%x: f32[?, ?]", &[&[5, 5]], body).expect("it fires");
    assert_eq!(counts(&made, ["maximum", "minimum", "clamp"]), [1, 2, 0], "{made}");
}

#[test]
fn what_is_computed_between_lookups_is_computed_behind_both() {
    let body = "%0 = iota 9, -2\n%i = abs %0\n%a = cast %x f32\n%b = index_select %a, %i dim(0)\n%c = mul %b, 2.0\n\
         %y = index_select %c, %i dim(1)\nreturn %y";
    let fusion = text::parse_one(&whole("%x: bf16[?, ?]", body)).expect("it reads");
    let args = arguments(&fusion, &[&[8, 7]]);
    let (fired, made) = presegment(&only(&["lookups", "places"]), &fusion, &args).expect("it is right");
    check_values(&fusion, &made, &args);
    let text = text::print(&made);
    assert_eq!(counts(&text, ["index_select", "take_along_axis"]), [0, 1], "{fired:?} {text}");
    // Not if it is needed, or made of two.
    for (from, to) in [("return %y", "return %y, %c"), ("mul %b, 2.0", "mul %b, %b")] {
        let other = text::parse_one(&whole("%x: bf16[?, ?]", &body.replace(from, to))).expect("it reads");
        let (_, made) = presegment(&only(&["lookups", "places"]), &other, &args).expect("it is right");
        check_values(&other, &made, &args);
        assert_eq!(counts(&text::print(&made), ["index_select"]), [2], "{to}");
    }
}

#[test]
fn places_that_are_given_are_held_to_their_axis() {
    let body = "%c = index_select %x, %i dim(0)\n%y = index_select %c, %j dim(1)\nreturn %y";
    let fusion = text::parse_one(&whole("%x: f32[?, ?, ?], %i: i64[?], %j: u8[?]", body)).expect("it reads");
    let tensor = |dtype: DType, sizes: &[i64], numbers: &[i64]| {
        let number = |index: &[i64]| Value::Int(numbers[index.last().map_or(0, |at| *at as usize) % numbers.len()]);
        Arg::Tensor(HostTensor::from_fn(dtype, sizes, number).expect("it fits"))
    };
    let x = Arg::Tensor(
        HostTensor::from_fn(DType::F32, &[4, 5, 3], |index| {
            Value::Float((index[0] * 15 + index[1] * 3 + index[2]) as f64)
        })
        .expect("it fits"),
    );
    let given = |i: &[i64], j: &[i64]| {
        vec![x.clone(), tensor(DType::I64, &[i.len() as i64], i), tensor(DType::U8, &[j.len() as i64], j)]
    };
    let args = given(&[3, 0, 2], &[4, 4, 0, 1]);
    let (fired, made) = presegment(&only(&["places"]), &fusion, &args).expect("it is right");
    assert_eq!(fired, ["places"]);
    check_values(&fusion, &made, &args);
    // What the definition refuses is refused, though it would be a place of some other row.
    for (i, j) in [([3, 4], [0, 1]), ([-1, 0], [0, 1]), ([0, 1 << 32], [0, 1]), ([0, 1], [5, 0]), ([1, 2], [0, 255])] {
        for fusion in [&fusion, &made] {
            let error = refeval::evaluate(fusion, &given(&i, &j)).expect_err("there is no such place");
            assert_eq!(error.code, code::INDEX, "{i:?} {j:?}");
        }
    }
}

#[test]
fn lookups_that_are_left_as_they_are() {
    let signature = "%x: f32[?, ?, ?], %i: i64[?]";
    let sizes: [&[i64]; 2] = [&[4, 5, 3], &[1]];
    let chain = |last: &str| format!("%j = abs %i\n%a = iota 3, 1\n%b = mul %a, %a\n{last}");
    for body in [
        // One lookup, a table that is returned, and what is reduced.
        "%y = index_select %x, %b dim(0)\nreturn %y",
        "%c = index_select %x, %a dim(0)\n%y = index_select %c, %j dim(1)\nreturn %y, %c",
        "%c = index_select %x, %a dim(0)\n%y = index_select %c, %a dim(1)\n%z = sum %y axes(0)\nreturn %z",
        // Of one position that data say nothing lies along an axis.
        "%c = index_select %x, %a dim(0)\n%y = index_select %c, %j dim(1)\nreturn %y",
    ] {
        let fusion = text::parse_one(&whole(signature, &chain(body))).expect("it reads");
        let args = arguments(&fusion, &sizes);
        let (fired, _) = presegment(&only(&["places"]), &fusion, &args).expect("it is right");
        assert!(fired.is_empty(), "{body}");
    }
}
