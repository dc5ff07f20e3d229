//! What becomes of what is cut and joined again (pass `rolls`).

use super::*;

/// `x` rolled by so many positions along an axis of a tensor of these sizes, as `y`.
fn roll(x: &str, y: &str, sizes: &[i64], axis: usize, by: i64) -> String {
    let list = |numbers: &[i64]| numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let (zeros, mut starts, mut ends) = (vec![0; sizes.len()], vec![0; sizes.len()], sizes.to_vec());
    (starts[axis], ends[axis]) = (by, by);
    let [first, second] = [(&starts[..], sizes), (&zeros[..], &ends[..])]
        .map(|(starts, ends)| format!("slice %{x} starts({}) ends({})", list(starts), list(ends)));
    format!("%{y}a = {first}\n%{y}b = {second}\n%{y} = cat %{y}a, %{y}b dim({axis})\n")
}

#[test]
fn windows_of_what_is_rolled_are_looked_up() {
    let sizes = [2, 4, 6, 8];
    let body = format!(
        "{}{}%w = reshape [2, 2, 2, 3, 2, 8] %q\n%p = permute %w dims(0, 1, 3, 2, 4, 5)\n%y = neg %p\nreturn %y",
        roll("x", "r", &sizes, 1, 1),
        roll("r", "q", &sizes, 2, 2)
    );
    let after = "%0 = index [2, 2, 3, 2, 2] axis(0)\n%1 = cast %0 i32\n%2 = index [2, 2, 3, 2, 2] axis(1)\n\
         %3 = cast %2 i32\n%4 = index [2, 2, 3, 2, 2] axis(3)\n%5 = cast %4 i32\n%6 = mul %3, 2\n%7 = add %6, %5\n\
         %8 = add %7, -3\n%9 = add %7, 1\n%10 = lt %7, 3\n%11 = where %10, %9, %8\n%12 = mul %1, 4\n\
         %13 = add %12, %11\n%14 = index [2, 2, 3, 2, 2] axis(2)\n%15 = cast %14 i32\n\
         %16 = index [2, 2, 3, 2, 2] axis(4)\n%17 = cast %16 i32\n%18 = mul %15, 2\n%19 = add %18, %17\n\
         %20 = add %19, -4\n%21 = add %19, 2\n%22 = lt %19, 4\n%23 = where %22, %21, %20\n%24 = mul %13, 6\n\
         %25 = add %24, %23\n%26 = reshape [48, 8] %x\n%p = embedding_fwd %25, %26\n%y = neg %p\nreturn %y";
    check(&["rolls"], "%x: f32[?, ?, ?, ?]", &[&sizes], &body, after);
}

/// Whether something is looked up, whose values are the same.
#[track_caller]
fn check_found(sizes: &[i64], body: &str, is_found: bool) {
    let signature = format!("%x: f32[{}]", vec!["?"; sizes.len()].join(", "));
    let fusion = text::parse_one(&whole(&signature, body)).expect("it reads");
    let args = arguments(&fusion, &[sizes]);
    let (fired, made) = presegment(&only(&["rolls"]), &fusion, &args).expect("it is right");
    assert_eq!(fired, if is_found { vec!["rolls"] } else { vec![] }, "{body}");
    check_values(&fusion, &made, &args);
}

#[test]
fn one_axis_is_looked_up_where_a_reshape_is_behind_it() {
    let sizes = [3, 4, 8];
    let rolled = roll("x", "r", &sizes, 1, 1);
    check_found(&sizes, &format!("{rolled}%w = reshape [3, 2, 2, 8] %r\n%y = neg %w\nreturn %y"), true);
    // Rows of parts of an axis, axes of one element.
    check_found(
        &[1, 4, 16],
        &format!("{rolled}%w = reshape [1, 2, 2, 2, 8] %r\n%y = neg %w\nreturn %y")
            .replace("ends(3, 4, 8)", "ends(1, 4, 16)")
            .replace("ends(3, 1, 8)", "ends(1, 1, 16)"),
        true,
    );
    // A kernel makes what is joined with what reads it, or the view is what is wanted.
    check_found(&sizes, &format!("{rolled}%y = neg %r\nreturn %y"), false);
    check_found(&sizes, &format!("{rolled}%y = reshape [3, 2, 2, 8] %r\nreturn %y"), false);
    // What is joined is stored for others.
    check_found(&sizes, &format!("{rolled}%w = reshape [3, 2, 2, 8] %r\n%y = neg %w\nreturn %y, %r"), false);
    // The axis is merged with another one, rows are short.
    check_found(&sizes, &format!("{rolled}%w = reshape [6, 2, 8] %r\n%y = neg %w\nreturn %y"), false);
    check_found(&sizes, &format!("{rolled}%w = reshape [3, 2, 2, 4, 2] %r\n%y = neg %w\nreturn %y"), false);
}

#[test]
fn several_axes_are_looked_up_row_by_row_or_element_by_element() {
    let sizes = [3, 4, 8];
    let twice = |first: usize, second: usize| {
        format!("{}{}return %q", roll("x", "r", &sizes, first, 1), roll("r", "q", &sizes, second, 2))
    };
    check_found(&sizes, &twice(0, 1), true);
    check_found(&sizes, &twice(1, 0), true);
    check_found(&sizes, &twice(1, 2), true);
    // Back to where it was.
    check_found(&sizes, &format!("{}{}return %q", roll("x", "r", &sizes, 1, 1), roll("r", "q", &sizes, 1, 3)), false);
    // What is joined of several tensors is one that is rolled.
    let joined = "%n = exp %x\n%a = slice %n starts(0, 0, 0) ends(3, 2, 8)\n%b = slice %x starts(0, 2, 0) ends(3, 4, 8)\n\
         %j = cat %a, %b dim(1)\n";
    let rolled = format!("{}{}return %q", roll("j", "r", &sizes, 0, 1), roll("r", "q", &sizes, 1, 1));
    check_found(&sizes, &format!("{joined}{rolled}"), true);
}

#[test]
fn axes_that_are_looked_up_at_known_positions_are_rolled() {
    let rolled = |positions: &str| {
        format!(
            "%i = iota 4, 3\n%a = remainder %i, 4\n%j = iota 6, 4\n%b = remainder %j, 6\n%k = iota 6\n%f = sub 5, %k\n\
             %r = index_select %x, %a dim(1)\n%q = index_select %r, %{positions} dim(2)\n\
             %w = reshape [2, 2, 2, 3, 2, 8] %q\n%p = permute %w dims(0, 1, 3, 2, 4, 5)\n%y = neg %p\nreturn %y"
        )
    };
    check_found(&[2, 4, 6, 8], &rolled("b"), true);
    // Each position is a run, and rows are less than a sector.
    check_found(&[2, 4, 6, 8], &rolled("f"), false);
    check_found(&[2, 4, 6, 4], &rolled("b").replace("2, 8]", "2, 4]"), false);
    // A lookup beside what reads it is one kernel.
    let once = "%i = iota 4, 3\n%a = remainder %i, 4\n%r = index_select %x, %a dim(1)\n%y = neg %r\nreturn %y";
    check_found(&[3, 4, 8], once, false);
    // Some positions again, and not all of them.
    let again = "%i = iota 6, 3\n%a = remainder %i, 4\n%r = index_select %x, %a dim(1)\n\
         %w = reshape [3, 3, 2, 8] %r\n%y = neg %w\nreturn %y";
    check_found(&[3, 4, 8], again, true);
    check_found(&[3, 7, 8], &again.replace("remainder %i, 4", "remainder %i, 5"), true);
}
