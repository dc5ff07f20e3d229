//! Equal numbers that are added.

use super::check;

#[test]
fn equal_numbers_are_counted() {
    let put = |first: &str, each: &str, dtype: &str| {
        format!(
            "%0 = full [4] {first} {dtype}\n%s0 = size %i axis(0)\n%1 = full [%s0] {each} {dtype}\n\
             %2 = remainder %i, 4\n%y = index_put_accumulate %0, %2, %1\nreturn %y"
        )
    };
    let ones = "%2 = remainder %i, 4\n%3 = index_counts %2, 4\n%4 = cast %3 i64\n%y = cast %4 f32\nreturn %y";
    check(&["tallies"], "%i: i64[?]", &[&[9]], &put("0.0", "1.0", "f32"), ones);
    let numbers = "%2 = remainder %i, 4\n%3 = index_counts %2, 4\n%4 = cast %3 i64\n%5 = mul %4, -3\n%6 = add %5, 7\n\
                   %y = cast %6 i32\nreturn %y";
    check(&["tallies"], "%i: i64[?]", &[&[9]], &put("7", "-3", "i32"), numbers);
    // Sums of these are rounded, or start with another 0, or are truths.
    for kept in [put("0.0", "0.1", "f32"), put("-0.0", "1.0", "f32"), put("0.0", "1.0", "f8e5m2")] {
        check(&["tallies"], "%i: i64[?]", &[&[9]], &kept, &kept);
    }
}
