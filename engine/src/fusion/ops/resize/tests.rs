use crate::fusion::ops::checks::{check_refused, check_value, counting, dense, refusal, result, strided};
use crate::num::DType::*;
use crate::num::Value;
use crate::tensor::HostTensor;
use arbtest::arbitrary;

fn one(x: &HostTensor) -> &[HostTensor] {
    std::slice::from_ref(x)
}

#[test]
fn slices_are_views_between_clamped_positions() {
    let x = dense(F16, &[2, 4], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    check_value("%0 = slice %a starts(0, 1) ends(2, 3)", one(&x), F16, &[2, 2], &[1.0, 2.0, 5.0, 6.0]);
    check_value("%0 = slice %a starts(-1, -3) ends(9, -1)", one(&x), F16, &[1, 2], &[5.0, 6.0]);
    check_value("%0 = slice %a starts(0, 3) ends(2, 1)", one(&x), F16, &[2, 0], &[]);
    check_value("%0 = slice %a starts(0, 9) ends(2, 12)", one(&x), F16, &[2, 0], &[]);
    check_value(
        "%0 = slice %a starts(-9, 0) ends(1, 9223372036854775807)",
        one(&x),
        F16,
        &[1, 4],
        &[0.0, 1.0, 2.0, 3.0],
    );
    check_value("%0 = slice %a starts(1, 2) ends(2, 4) strides(1, 1)", one(&x), F16, &[1, 2], &[6.0, 7.0]);
    check_value("%0 = slice %a starts(0, 2) ends(1, 3) manual_normalization", one(&x), F16, &[1, 1], &[2.0]);
    check_value("%0 = slice %a starts(0, 0) ends(9, 1) manual_normalization", one(&x), F16, &[2, 1], &[0.0, 4.0]);
    let half = "%n = size %a axis(1)\n%h = div %n, 2\n%m = sub 0, %h\n";
    check_value(&format!("{half}%0 = slice %a starts(0, %h) ends(1, %n)"), one(&x), F16, &[1, 2], &[2.0, 3.0]);
    check_value(&format!("{half}%0 = slice %a starts(1, %m) ends(2, %n)"), one(&x), F16, &[1, 2], &[6.0, 7.0]);
    let turned = x.permuted(&[1, 0]).unwrap();
    let out = result("%0 = slice %a starts(1, 0) ends(3, 2)", &[turned]);
    assert_eq!((out.strides(), out.to_f64()), (&[1, 4][..], vec![1.0, 5.0, 2.0, 6.0]));
    check_value("%0 = slice %a starts() ends()", &[dense(F32, &[], &[3.0])], F32, &[], &[3.0]);
}

#[test]
fn slices_outside_of_an_axis_are_refused() {
    let x = counting(F32, &[2, 3]);
    check_refused(
        "%0 = slice %a starts(0) ends(1)",
        one(&x),
        "E0203: slice: 1 starts and 1 ends for an operand of rank 2",
    );
    check_refused(
        "%0 = slice %a starts(0, 0) ends(2, 3) strides(1, 2)",
        one(&x),
        "E0213: slice: axis 1 has the stride 2, only 1 is possible",
    );
    // Nothing may lie anywhere.
    let none = "%0 = slice %a starts(7, 0) ends(7, 3) manual_normalization";
    assert_eq!(result(none, one(&x)).sizes(), [0, 3]);
    check_refused(
        "%0 = slice %a starts(0, 1) ends(2, 4) manual_normalization",
        one(&x),
        "E0213: slice: axis 1 from 1 to 4 does not lie in its 3 elements",
    );
    check_refused(
        "%0 = slice %a starts(0, 2) ends(2, 1) manual_normalization",
        one(&x),
        "E0213: slice: axis 1 from 2 to 1 does not lie in its 3 elements",
    );
    check_refused("%0 = slice %a starts(0, 0.5) ends(2, 3)", one(&x), "E0202: slice: start 1 is a f64, not an integer");
}

#[test]
fn padding_surrounds_and_cuts() {
    let x = dense(I32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    check_value("%0 = pad %a widths(1, 0)", one(&x), I32, &[2, 3], &[0.0, 1.0, 2.0, 0.0, 3.0, 4.0]);
    let framed = [9.0, 1.0, 2.0, 9.0, 3.0, 4.0, 9.0, 9.0, 9.0];
    check_value("%0 = pad %a, 9 widths(1, 0, 0, 1)", one(&x), I32, &[3, 3], &framed);
    check_value("%0 = pad %a widths(-1, 1) value(-5)", one(&x), I32, &[2, 2], &[2.0, -5.0, 4.0, -5.0]);
    check_value("%0 = pad %a widths(0, -1, -1, 0)", one(&x), I32, &[1, 1], &[3.0]);
    check_value("%0 = pad %a widths()", one(&x), I32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    check_value("%0 = pad %a, inf widths(1, 1)", &[counting(BF16, &[0])], BF16, &[2], &[f64::INFINITY; 2]);
    check_value(
        "%n = size %a axis(0)\n%0 = pad %a widths(0, %n)",
        one(&x),
        I32,
        &[2, 4],
        &[1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0],
    );
    // A value that a type cannot hold exactly is rounded to it.
    check_value("%0 = pad %a, 1.003 widths(1, 0)", &[dense(BF16, &[1], &[2.0])], BF16, &[2], &[1.0, 2.0]);
    check_refused("%0 = pad %a widths(1)", one(&x), "E0203: pad: 1 widths for an operand of rank 2");
    check_refused("%0 = pad %a, 1.5 widths(1, 1)", one(&x), "E0106: pad: 1.5 is not a number of i32");
    check_refused(
        "%n = cast 1 f32\n%0 = pad %a, %n widths(1, 1)",
        one(&x),
        "E0202: pad: the value is a f32, the operand a i32",
    );
    let far = "E0307: pad: the size add(9223372036854775807, 9223372036854775807) overflows i64";
    let widths = "9223372036854775807, 9223372036854775807";
    check_refused(&format!("%0 = pad %a widths({widths})"), one(&x), far);
    let known = "E0204: pad: axis 1 of the result has the negative extent -1";
    assert_eq!(refusal("%0 = pad %a widths(-3, 0)", one(&x)), known);
}

#[test]
fn tensors_are_joined_along_an_axis() {
    let (a, b) = (dense(F32, &[2, 1], &[1.0, 2.0]), dense(F32, &[2, 2], &[3.0, 4.0, 5.0, 6.0]));
    let joined = [1.0, 3.0, 4.0, 2.0, 5.0, 6.0];
    check_value("%0 = cat %a, %b dim(1)", &[a.clone(), b.clone()], F32, &[2, 3], &joined);
    check_value("%0 = cat %a, %b dim(-1)", &[a.clone(), b.clone()], F32, &[2, 3], &joined);
    check_value("%0 = cat %b, %b", &[a.clone(), b.clone()], F32, &[4, 2], &[3.0, 4.0, 5.0, 6.0, 3.0, 4.0, 5.0, 6.0]);
    check_value("%0 = cat %a dim(1)", one(&a), F32, &[2, 1], &[1.0, 2.0]);
    check_value("%0 = cat %a, %b", &[counting(F32, &[0]), counting(F32, &[1])], F32, &[1], &[-4.0]);
    let padded = "%p = pad %a widths(0, 2)\n%q = pad %b widths(1, 0)\n";
    let manual = format!("{padded}%0 = cat %p, %q dim(1) manual_padding");
    check_value(&manual, &[a.clone(), b.clone()], F32, &[2, 3], &joined);
    let both = [a.clone(), b.clone()];
    check_refused("%0 = cat %a, %b", &both, "E0204: cat: axis 1 of operands 0 and 1: 1 and 2 must be equal");
    check_refused("%0 = cat %a, %b dim(2)", &both, "E0205: cat: axis 2 of an operand of rank 2");
    check_refused("%0 = cat %a, %b dim(1) manual_padding", &both, "E0213: cat: operand 0 is no result of pad");
    check_refused(
        &format!("{padded}%0 = cat %p, %q manual_padding"),
        &both,
        "E0213: cat: operand 0 is padded along axis 1, not only along axis 0",
    );
    let other = counting(F64, &[2, 1]);
    check_refused("%0 = cat %a, %b dim(1)", &[a.clone(), other], "E0202: cat: operand 1 is f64, operand 0 is f32");
    check_refused("%0 = cat %a, %b", &[a, counting(F32, &[2])], "E0203: cat: operand 1 has rank 1, operand 0 rank 2");
}

#[test]
fn pads_of_what_is_joined_are_checked() {
    let both = [dense(F32, &[2, 1], &[1.0, 2.0]), dense(F32, &[2, 2], &[3.0, 4.0, 5.0, 6.0])];
    let joined = [1.0, 3.0, 4.0, 2.0, 5.0, 6.0];
    let manual = |first: &str, second: &str| {
        let sizes = "%n = size %a axis(1)\n%m = size %b axis(1)\n";
        format!(
            "{sizes}%p = pad %a widths({first})\n%q = pad %b widths({second})\n%0 = cat %p, %q dim(1) manual_padding"
        )
    };
    for (first, second) in [("0, 2", "1, 0"), ("0, %m", "%n, 0"), ("0, 2", "%n, 0")] {
        check_value(&manual(first, second), &both, F32, &[2, 3], &joined);
    }
    let wrong = |operand: usize, pads: &str| {
        format!("E0213: cat: operand {operand} has the pads {pads}, which are not as long as what stands there")
    };
    check_refused(&manual("0, 2", "0, 1"), &both, &wrong(1, "0 and 1"));
    check_refused(&manual("0, 5", "1, 0"), &both, &wrong(0, "0 and 5"));
    check_refused(&manual("1, 0", "0, 2"), &both, &wrong(0, "1 and 0"));
    check_refused(&manual("0, %n", "%n, 0"), &both, &wrong(0, "0 and 1"));
    check_refused(&manual("0, %m", "%m, 0"), &both, &wrong(1, "2 and 0"));
    check_refused("%p = pad %a widths(1, 0)\n%0 = cat %p dim(1) manual_padding", &both[..1], &wrong(0, "1 and 0"));
    // The form without pad, which is what it is printed as while sizes are open.
    check_value("%n = size %a axis(1)\n%0 = cat %a, %b dim(1) pads(0, 2, %n, 0)", &both, F32, &[2, 3], &joined);
    check_refused("%0 = cat %a, %b dim(1) pads(0, 2, 2, 0)", &both, &wrong(1, "2 and 0"));
    check_refused("%0 = cat %a, %b dim(1) pads(0, 2)", &both, "E0201: cat: 2 pads for 2 tensors");
    let twice = "%0 = cat %a, %b dim(1) manual_padding pads(0, 2, 1, 0)";
    check_refused(twice, &both, "E0206: cat: takes either `manual_padding` or `pads(...)`");
}

#[test]
fn joined_images_keep_their_channels_innermost() {
    let last = counting(F32, &[2, 4, 4, 3]).permuted(&[0, 3, 1, 2]).unwrap();
    let first = counting(F32, &[2, 3, 4, 4]);
    let strides =
        |a: &HostTensor, b: &HostTensor| result("%0 = cat %a, %b dim(1)", &[a.clone(), b.clone()]).strides().to_vec();
    assert_eq!(strides(&last, &last), [96, 1, 24, 6]);
    assert_eq!(strides(&last, &first), [96, 16, 4, 1]);
    assert_eq!(result("%0 = pad %a widths(1, 1)", one(&last)).strides(), [72, 1, 18, 3]);
    assert_eq!(result("%0 = pad %a widths(-1, 0)", one(&last)).strides(), [36, 1, 9, 3]);
}

#[test]
fn triangles_are_masked() {
    let x = dense(F32, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    check_value("%0 = triu %a", one(&x), F32, &[2, 3], &[1.0, 2.0, 3.0, 0.0, 5.0, 6.0]);
    check_value("%0 = triu %a diagonal(1)", one(&x), F32, &[2, 3], &[0.0, 2.0, 3.0, 0.0, 0.0, 6.0]);
    check_value("%0 = triu %a diagonal(-1)", one(&x), F32, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    check_value("%0 = tril %a", one(&x), F32, &[2, 3], &[1.0, 0.0, 0.0, 4.0, 5.0, 0.0]);
    check_value("%0 = tril %a diagonal(-1)", one(&x), F32, &[2, 3], &[0.0, 0.0, 0.0, 4.0, 0.0, 0.0]);
    check_value("%0 = triu %a", &[counting(Bool, &[2, 0, 3])], Bool, &[2, 0, 3], &[]);
    check_refused(
        "%0 = triu %a",
        &[counting(F32, &[3])],
        "E0203: triu: an operand of rank 1, at least 2 axes are needed",
    );
}

#[test]
fn any_layout_is_cut_padded_and_joined() {
    crate::property::property(|u| {
        let rank = u.int_in_range(1..=4)?;
        let sizes: Vec<i64> = (0..rank).map(|_| u.int_in_range(0..=4)).collect::<arbitrary::Result<_>>()?;
        let x = strided(u, F32, &sizes)?;
        let list = |items: &[i64]| items.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        // An element of x, or 0 outside of it.
        let read = |index: &[i64]| {
            let inside = index.iter().zip(&sizes).all(|(i, n)| (0..*n).contains(i));
            if inside { x.get(index) } else { Value::Float(0.0) }
        };
        let shifted = |out: &HostTensor, by: &[i64]| {
            let value = |index: &[i64]| read(&index.iter().zip(by).map(|(i, by)| i + by).collect::<Vec<_>>());
            HostTensor::from_fn(F32, out.sizes(), value).unwrap()
        };
        let mut starts = Vec::new();
        let mut ends = Vec::new();
        for &size in &sizes {
            let start = u.int_in_range(0..=size)?;
            starts.push(start);
            ends.push(u.int_in_range(start..=size)?);
        }
        let statement = format!("%0 = slice %a starts({}) ends({})", list(&starts), list(&ends));
        let out = result(&statement, one(&x));
        assert_eq!(out.to_f64(), shifted(&out, &starts).to_f64());
        let mut widths = Vec::new();
        for &size in sizes.iter().rev() {
            let before = u.int_in_range(-size..=2)?;
            widths.extend([before, u.int_in_range((-size - before).min(0)..=2)?]);
        }
        let out = result(&format!("%0 = pad %a widths({})", list(&widths)), one(&x));
        let by: Vec<i64> = widths.chunks(2).rev().map(|pair| -pair[0]).collect();
        assert_eq!(out.to_f64(), shifted(&out, &by).to_f64());
        let dim = u.int_in_range(0..=rank - 1)?;
        let mut wider = sizes.clone();
        wider[dim] = u.int_in_range(0..=3)?;
        let y = strided(u, F32, &wider)?;
        let out = result(&format!("%0 = cat %a, %b, %a dim({dim})"), &[x.clone(), y.clone()]);
        let expected = HostTensor::from_fn(F32, out.sizes(), |index| {
            let mut index = index.to_vec();
            for part in [&x, &y, &x] {
                if index[dim] < part.sizes()[dim] {
                    return part.get(&index);
                }
                index[dim] -= part.sizes()[dim];
            }
            unreachable!("the parts fill the axis")
        });
        assert_eq!(out.to_f64(), expected.unwrap().to_f64());
        Ok(())
    });
}
