//! What becomes of what meets itself at other places (pass `meetings`).

use super::*;

#[test]
fn what_is_compared_with_all_of_the_same_is_made_for_each() {
    let pairs = "%a = cast %x f32\n%b = mul %a, 2.0\n%c = broadcast %b flags(false, true, false)\n\
         %d = broadcast %b flags(true, false, false)\n%y = sub %c, %d\nreturn %y";
    let after = "%a = cast %x f32\n%b = mul %a, 2.0\n%c = broadcast %b flags(false, true, false)\n\
         %0 = broadcast %x flags(true, false, false)\n%1 = cast %0 f32\n%2 = mul %1, 2.0\n%y = sub %c, %2\nreturn %y";
    check(&["meetings"], "%x: bf16[?, ?]", &[&[3, 4]], pairs, after);
    // Behind a reduction that is stored, with what is broadcast of it.
    let rows = "%s = sum %x axes(0) keepdim\n%b = sub %x, %s\n%c = broadcast %b flags(false, true, false)\n\
         %d = broadcast %b flags(false, false, true)\n%y = mul %c, %d\nreturn %y";
    let after = "%0 = sum %x axes(0)\n%s = broadcast %0 flags(true, false)\n%b = sub %x, %s\n\
         %c = broadcast %b flags(false, true, false)\n%1 = broadcast %0 flags(true, false, true)\n\
         %2 = broadcast %x flags(false, false, true)\n%3 = sub %2, %1\n%y = mul %c, %3\nreturn %y";
    check(&["meetings"], "%x: f32[?, ?]", &[&[3, 4]], rows, after);
}

#[test]
fn what_is_added_to_its_own_transpose_is_made_for_both() {
    let turned = "%a = neg %x\n%t = permute %a dims(1, 0)\n%y = add %a, %t\nreturn %y";
    let after = "%a = neg %x\n%0 = permute %x dims(1, 0)\n%1 = neg %0\n%y = add %a, %1\nreturn %y";
    check(&["meetings"], "%x: f32[?, ?]", &[&[3, 3]], turned, after);
    // Both ways are returned, but do not meet.
    let apart = "%a = neg %x\n%t = permute %a dims(1, 0)\n%y = abs %t\nreturn %a, %y";
    check(&["meetings"], "%x: f32[?, ?]", &[&[3, 3]], apart, apart);
    // An input is read wherever it is asked for; what is reduced is not made again.
    let input = "%t = permute %x dims(1, 0)\n%y = add %x, %t\nreturn %y";
    check(&["meetings"], "%x: f32[?, ?]", &[&[3, 3]], input, input);
    let sums = "%s = sum %x axes(2)\n%t = permute %s dims(1, 0)\n%y = add %s, %t\nreturn %y";
    check(&["meetings"], "%x: f32[?, ?, ?]", &[&[3, 3, 2]], sums, sums);
}

#[test]
fn functions_of_many_elements_are_not_computed_again() {
    let pairs = "%e = exp %x\n%c = broadcast %e flags(true, false, false)\n%d = broadcast %e flags(false, true, false)\n\
         %y = sub %c, %d\nreturn %y";
    check(&["meetings"], "%x: f32[?, ?]", &[&[5, 3]], pairs, pairs);
    let turned = "%e = exp %x\n%t = permute %e dims(1, 0)\n%y = sub %e, %t\nreturn %y";
    let after = "%e = exp %x\n%0 = permute %x dims(1, 0)\n%1 = exp %0\n%y = sub %e, %1\nreturn %y";
    check(&["meetings"], "%x: f32[?, ?]", &[&[4, 4]], turned, after);
}

#[test]
fn products_that_enter_sums_stay_one_number() {
    let difference = |product: &str| {
        format!(
            "%b = {product}\n%c = broadcast %b flags(false, true, false)\n%d = broadcast %b flags(true, false, false)\n\
             %y = sub %c, %d\nreturn %y"
        )
    };
    let made_once = difference("mul %x, 3.0");
    check(&["meetings"], "%x: f32[?, ?]", &[&[3, 4]], &made_once, &made_once);
    let after = "%b = mul %x, 0.5\n%c = broadcast %b flags(false, true, false)\n%0 = broadcast %x flags(true, false, false)\n\
         %1 = mul %0, 0.5\n%y = sub %c, %1\nreturn %y";
    check(&["meetings"], "%x: f32[?, ?]", &[&[3, 4]], &difference("mul %x, 0.5"), after);
}
