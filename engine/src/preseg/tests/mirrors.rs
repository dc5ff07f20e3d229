//! Scans of what is turned round.

use super::check;

const TURNED: &str = "%i = iota 40 start(39) step(-1)\n%0 = index_select %x, %i dim(1)\n";
const BACK: &str = "%y = index_select %2, %i dim(1)\n";

#[test]
fn what_is_turned_round_and_back_is_scanned_from_the_last() {
    let signature = "%x: f32[?, ?], %r: f32[?, 1]";
    check(
        &["mirrors"],
        signature,
        &[&[3, 40], &[3, 1]],
        &format!("{TURNED}%1 = mul %0, %r\n%2 = cumsum %1 dim(1)\n{BACK}return %y"),
        "%3 = mul %x, %r\n%y = cumsum %3 dim(1) reverse\nreturn %y",
    );
    check(
        &["mirrors"],
        signature,
        &[&[3, 40], &[3, 1]],
        &format!("{TURNED}%1 = pad %0 widths(1, -1)\n%2 = cumsum %1 dim(1) reverse\n{BACK}return %y"),
        "%3 = pad %x widths(-1, 1, 0, 0)\n%y = cumsum %3 dim(1)\nreturn %y",
    );
}

#[test]
fn what_others_need_or_is_not_turned_round_stays() {
    for kept in [
        // The prefixes are needed as they are.
        format!("{TURNED}%2 = cummax %0 dim(1)\n{BACK}return %y, %2"),
        // Something else is not turned round.
        format!("{TURNED}%1 = mul %0, %x\n%2 = cummax %1 dim(1)\n{BACK}return %y"),
        // Other lines are.
        format!("{TURNED}%2 = cummax %0 dim(0)\n{BACK}return %y"),
        // They are moved.
        "%i = iota 40 start(38) step(-1)\n%j = abs %i\n%0 = index_select %x, %j dim(1)\n%2 = cummax %0 dim(1)\n\
         %y = index_select %2, %j dim(1)\nreturn %y"
            .to_string(),
    ] {
        check(&["mirrors"], "%x: f32[?, ?], %r: f32[?, 1]", &[&[3, 40], &[3, 1]], &kept, &kept);
    }
}
