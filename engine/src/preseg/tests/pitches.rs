//! What becomes of products at odd places (pass `pitches`).

use super::*;

/// A device whose library takes a second for a few operations on matrices at odd places.
fn slow_at_odd_places() -> DeviceDesc {
    DeviceDesc { product_rates: [1, 1, 1, 1 << 50], ..DeviceDesc::h200() }
}

/// What becomes of products on such a device, with the same values.
#[track_caller]
fn check_pitches(signature: &str, sizes: &[&[i64]], before: &str, after: &str) {
    let fusion = text::parse_one(&whole(signature, before)).expect("it reads");
    let args = arguments(&fusion, sizes);
    let (_, made) =
        presegment_for(&slow_at_odd_places(), &only(&["pitches"]), &fusion, &args).expect("it does not fail");
    assert_eq!(text::print(&made), whole(signature, after));
    check_values(&fusion, &made, &args);
}

#[test]
fn products_at_odd_places_are_parts_of_wider_ones() {
    let two = "%a: bf16[?, ?], %b: bf16[?, ?]";
    let of_rows = "%c = matmul %a, %b\nreturn %c";
    check_pitches(two, &[&[5, 8], &[8, 16]], of_rows, of_rows);
    // What is summed over lies side by side in one operand; the other one gets zeros too.
    check_pitches(
        two,
        &[&[5, 6], &[6, 16]],
        of_rows,
        "%s0 = size %a axis(1)\n%s1 = neg %s0\n%s2 = remainder %s1, 8\n%0 = pad %a widths(0, %s2, 0, 0)\n\
         %1 = pad %b widths(0, 0, 0, %s2)\n%c = matmul %0, %1\nreturn %c",
    );
    // What is returned is copied out.
    check_pitches(
        two,
        &[&[5, 8], &[8, 6]],
        of_rows,
        "%s0 = size %b axis(1)\n%s1 = neg %s0\n%s2 = remainder %s1, 8\n%0 = pad %b widths(0, %s2, 0, 0)\n\
         %1 = matmul %a, %0\n%s3 = size %a axis(0)\n\
         %2 = slice %1 starts(0, 0) ends(%s3, %s0) manual_normalization\n%c = set %2\nreturn %c",
    );
    // Columns lie side by side in both.
    let of_columns = "%s = permute %a dims(1, 0)\n%t = permute %b dims(1, 0)\n%c = matmul %s, %t\nreturn %c";
    check_pitches(
        two,
        &[&[3, 5], &[8, 3]],
        of_columns,
        "%s = permute %a dims(1, 0)\n%t = permute %b dims(1, 0)\n%0 = permute %s dims(1, 0)\n%s0 = size %a axis(1)\n\
         %s1 = neg %s0\n%s2 = remainder %s1, 8\n%s3 = size %a axis(0)\n%s4 = neg %s3\n%s5 = remainder %s4, 8\n\
         %1 = pad %0 widths(0, %s2, 0, %s5)\n%2 = permute %1 dims(1, 0)\n%3 = permute %t dims(1, 0)\n\
         %4 = pad %3 widths(0, %s5, 0, 0)\n%5 = permute %4 dims(1, 0)\n%6 = matmul %2, %5\n%s6 = size %b axis(0)\n\
         %7 = slice %6 starts(0, 0) ends(%s0, %s6) manual_normalization\n%c = set %7\nreturn %c",
    );
}

#[test]
fn kernels_write_and_read_what_is_wider() {
    let three = "%x: bf16[?, ?], %w: bf16[?, ?], %b: bf16[?]";
    let before = "%n = neg %x\n%a = cast %n bf16\n%c = linear %a, %w bias(%b)\n%d = tanh %c\nreturn %d";
    check_pitches(
        three,
        &[&[5, 6], &[7, 6], &[7]],
        before,
        "%0 = cast %x f32\n%n = neg %0\n%a = cast %n bf16\n%s0 = size %x axis(1)\n%s1 = neg %s0\n\
         %s2 = remainder %s1, 8\n%2 = pad %a widths(0, %s2, 0, 0)\n%s3 = size %w axis(0)\n%s4 = neg %s3\n\
         %s5 = remainder %s4, 8\n%3 = pad %w widths(0, %s2, 0, %s5)\n%4 = pad %b widths(0, %s5)\n\
         %5 = linear %2, %3 bias(%4)\n%s6 = size %x axis(0)\n\
         %c = slice %5 starts(0, 0) ends(%s6, %s3) manual_normalization\n%1 = cast %c f32\n%d = tanh %1\nreturn %d",
    );
}

#[test]
fn other_products_are_not_widened() {
    let same = "%c = matmul %a, %b\nreturn %c";
    check_pitches("%a: f32[?, ?], %b: f32[?, ?]", &[&[5, 6], &[6, 7]], same, same);
    check_pitches("%a: bf16[?], %b: bf16[?, ?]", &[&[6], &[6, 7]], same, same);
    // On a real device it takes no time at all.
    check(&["pitches"], "%a: bf16[?, ?], %b: bf16[?, ?]", &[&[5, 6], &[6, 7]], same, same);
}
