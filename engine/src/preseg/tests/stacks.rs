//! What becomes of rows beside their parts in another order (pass `stacks`).

use super::*;

#[test]
fn rows_beside_their_turned_halves_are_stacked() {
    let signature = "%x: f32[?, ?], %c: f32[?], %s: f32[?]";
    let turned = "%a = slice %x starts(0, 0) ends(3, 5)\n%b = slice %x starts(0, 5) ends(3, 10)\n%m = neg %b\n\
         %t = cat %m, %a dim(1)\n%cr = broadcast %c flags(true, false)\n%sr = broadcast %s flags(true, false)\n\
         %p = mul %x, %cr\n%q = mul %t, %sr\n%y = add %p, %q\n";
    let after = "%s0 = size %x axis(0)\n%s1 = minimum %s0, 3\n%s2 = size %x axis(1)\n%s3 = minimum %s2, 5\n\
         %a = slice %x starts(0, 0) ends(%s1, %s3) manual_normalization\n%s4 = minimum %s2, 10\n\
         %s5 = maximum %s4, %s3\n%b = slice %x starts(0, %s3) ends(%s1, %s5) manual_normalization\n\
         %m = neg %b\n%s6 = size %c axis(0)\n%s7 = minimum %s6, 5\n\
         %0 = slice %c starts(0) ends(%s7) manual_normalization\n%1 = broadcast %0 flags(true, false)\n\
         %2 = mul %a, %1\n%s8 = size %s axis(0)\n%s9 = minimum %s8, 5\n\
         %3 = slice %s starts(0) ends(%s9) manual_normalization\n%4 = broadcast %3 flags(true, false)\n\
         %5 = mul %m, %4\n%6 = add %2, %5\n%7 = broadcast %6 flags(false, true, false)\n\
         %8 = slice %c starts(5) ends(10) manual_normalization\n%9 = broadcast %8 flags(true, false)\n\
         %10 = mul %b, %9\n%11 = slice %s starts(5) ends(10) manual_normalization\n\
         %12 = broadcast %11 flags(true, false)\n%13 = mul %a, %12\n%14 = add %10, %13\n\
         %15 = broadcast %14 flags(false, true, false)\n%16 = index [%s0, 2, 5] axis(1)\n\
         %17 = eq %16, 0\n%18 = where %17, %7, %15\n%y = reshape [%s0, %s2] %18\nreturn %y";
    let sizes: [&[i64]; 3] = [&[3, 10], &[10], &[10]];
    check(&["stacks"], signature, &sizes, &format!("{turned}return %y"), after);
    // What is joined is needed by others, or what is made of it.
    for others in ["return %y, %t", "%z = exp %y\nreturn %y, %z", "%z = sum %q axes(1)\nreturn %y, %z"] {
        let same = format!("{turned}{others}");
        let fusion = text::parse_one(&whole(signature, &same)).expect("it reads");
        let (fired, _) = presegment(&only(&["stacks"]), &fusion, &arguments(&fusion, &sizes)).expect("it is right");
        assert_eq!(fired, [""; 0], "{others}");
    }
}

#[test]
fn results_of_one_size_are_stacked_by_the_same_numbers() {
    let turned = |x: &str| {
        format!(
            "%{x}a = slice %{x} starts(0, 0) ends(3, 2)\n%{x}b = slice %{x} starts(0, 2) ends(3, 4)\n\
             %{x}t = cat %{x}b, %{x}a dim(1)\n%{x}y = mul %{x}t, %{x}\n%{x}z = mul %{x}y, %c\n"
        )
    };
    let body = format!("{}{}return %xz, %yz", turned("x"), turned("y"));
    let fusion = text::parse_one(&whole("%x: f32[?, ?], %y: f32[?, ?], %c: f32[?, ?]", &body)).expect("it reads");
    let args = arguments(&fusion, &[&[3, 4], &[3, 4], &[3, 4]]);
    let (fired, made) = presegment(&only(&["stacks"]), &fusion, &args).expect("it is right");
    assert_eq!(fired, ["stacks"]);
    let made_text = text::print(&made);
    // One index, and one pair of slices of each tensor.
    assert_eq!([" = index ", " = slice "].map(|op| made_text.matches(op).count()), [1, 6], "{made_text}");
    check_values(&fusion, &made, &args);
}

#[test]
fn parts_of_other_lengths_are_joined() {
    let signature = "%x: f32[?, ?], %y: f32[?, ?]";
    let check = |sizes: [&[i64]; 2], body: &str| {
        let fusion = text::parse_one(&whole(signature, body)).expect("it reads");
        let (fired, _) = presegment(&only(&["stacks"]), &fusion, &arguments(&fusion, &sizes)).expect("it is right");
        assert_eq!(fired, [""; 0], "{body}");
    };
    // Thirds of a row, two of them together.
    let thirds = "%a = slice %x starts(0, 0) ends(3, 2)\n%b = slice %x starts(0, 2) ends(3, 6)\n\
         %t = cat %b, %a dim(1)\n%z = add %x, %t\nreturn %z";
    check([&[3, 6], &[1, 1]], thirds);
    // Nothing is read twice.
    check([&[3, 6], &[3, 6]], "%t = cat %x, %y dim(1)\n%z = exp %t\nreturn %z");
}

/// A row that is divided by its norm, beside itself with its halves turned.
const NORMED: &str = "%xx = mul %x, %x\n%sum = sum %xx axes(1)\n%norm = rsqrt %sum\n%nr = broadcast %norm flags(false, true)\n\
     %wr = broadcast %w flags(true, false)\n%n = mul %x, %nr\n%q = mul %n, %wr\n%a = slice %q starts(0, 0) ends(3, 5)\n\
     %b = slice %q starts(0, 5) ends(3, 10)\n%m = neg %b\n%t = cat %m, %a dim(1)\n%p = mul %t, %wr\n%y = add %p, %q\n";

#[test]
fn rows_that_are_reduced_are_stacked_before() {
    let found = |signature: &str, body: &str| {
        let fusion = text::parse_one(&whole(signature, body)).expect("it reads");
        let args = arguments(&fusion, &[&[3, 10], &[10]]);
        let (fired, made) = presegment(&only(&["stacks"]), &fusion, &args).expect("it is right");
        check_values(&fusion, &made, &args);
        (!fired.is_empty()).then(|| text::print(&made))
    };
    let signature = "%x: f32[?, ?], %w: f32[?]";
    let made = found(signature, &format!("{NORMED}return %y")).expect("it fires");
    // One slice of each half of an argument, and one number of parts.
    let counts = [" = slice ", " = cat ", " = index ", " axes(1, 2)"].map(|op| made.matches(op).count());
    assert_eq!(counts, [4, 0, 1, 1], "{made}");
    // Centred rows: one sum is below the other.
    let centred = NORMED.replace(
        "%xx = mul %x, %x",
        "%s1 = sum %x axes(1)\n%sr = broadcast %s1 flags(false, true)\n%c = sub %x, %sr\n%xx = mul %c, %c",
    );
    let made = found(signature, &format!("{centred}return %y")).expect("it fires");
    assert_eq!([" = slice ", " axes(1, 2)"].map(|op| made.matches(op).count()), [4, 2], "{made}");
    // Halves are needed by others, as is the row, or a sum is over all rows, or over what is joined.
    for body in [
        format!("{NORMED}return %y, %b"),
        format!("{NORMED}%z = exp %q\nreturn %y, %z"),
        format!("{NORMED}return %y, %q"),
        format!("{NORMED}return %y, %norm"),
        NORMED.replace("axes(1)", "axes(0, 1)").replace("flags(false, true)", "flags(true, true)") + "return %y",
        format!("{NORMED}%g = sum %p axes(1)\n%gr = broadcast %g flags(false, true)\n%z = mul %y, %gr\nreturn %z"),
    ] {
        assert_eq!(found(signature, &body), None, "{body}");
    }
}
