use crate::fusion::ops::checks::{check_refused, check_steps, check_unevaluated, check_value, counting, dense, result};
use crate::num::DType::{self, *};
use crate::num::Value;
use crate::tensor::HostTensor;

fn ints(values: &[i64]) -> HostTensor {
    HostTensor::from_i64(I32, &[values.len() as i64], values).unwrap()
}

/// Group ends from 0 to `extent`, some of them empty, and the group of an element.
fn random_ends(u: &mut arbtest::arbitrary::Unstructured<'_>, extent: i64) -> arbtest::arbitrary::Result<Vec<i64>> {
    let mut ends: Vec<i64> =
        (0..u.int_in_range(1..=3)?).map(|_| u.int_in_range(0..=extent)).collect::<Result<_, _>>()?;
    ends.sort_unstable();
    Ok(ends)
}

fn group_of(ends: &[i64], i: i64) -> Option<i64> {
    ends.iter().position(|&end| i < end).map(|group| group as i64)
}

#[test]
fn groups_of_rows_columns_and_products() {
    crate::property::property(|u| {
        let mut size = || u.int_in_range(0..=6i64);
        let (m, k, n) = (size()?, size()?, size()?);
        let form = u.int_in_range(0..=2u8)?;
        let ends = random_ends(u, [k, n, m][usize::from(form)])?;
        let g = ends.len() as i64;
        let (a, b) = match form {
            0 => (counting(F32, &[m, k]), counting(F32, &[k, n])),
            1 => (counting(F32, &[g, m, k]), counting(F32, &[k, n])),
            _ => (counting(F32, &[m, k]), counting(F32, &[g, k, n])),
        };
        let scales: bool = u.arbitrary()?;
        let left = counting(F32, &if form == 2 { vec![m, 1] } else { vec![g, m, 1] });
        let right = counting(F32, &if form == 1 { vec![1, n] } else { vec![g, 1, n] });
        let mut inputs = vec![a.clone(), b.clone(), ints(&ends)];
        let mut statement = "%0 = grouped_mm %a, %b, %c".to_string();
        if scales {
            inputs.extend([left.clone(), right.clone()]);
            statement.push_str(" scale1(%d) scale2(%e) dtype(f32)");
        }
        let output = result(&statement, &inputs);
        let expected = HostTensor::from_fn(F32, output.sizes(), |at| {
            let (i, j) = (at[at.len() - 2], at[at.len() - 1]);
            let group = match form {
                0 => Some(at[0]),
                1 => group_of(&ends, j),
                _ => group_of(&ends, i),
            };
            let Some(g) = group else { return Value::Float(0.0) };
            let term = |k: i64| match form {
                0 if group_of(&ends, k) != Some(g) => 0.0,
                0 => a.get(&[i, k]).as_f64() * b.get(&[k, j]).as_f64(),
                1 => a.get(&[g, i, k]).as_f64() * b.get(&[k, j]).as_f64(),
                _ => a.get(&[i, k]).as_f64() * b.get(&[g, k, j]).as_f64(),
            };
            let sum = (0..k).fold(0.0, |sum, k| sum + term(k));
            let row = if form == 2 { left.get(&[i, 0]) } else { left.get(&[g, i, 0]) };
            let column = if form == 1 { right.get(&[0, j]) } else { right.get(&[g, 0, j]) };
            Value::Float(if scales { sum * (row.as_f64() * column.as_f64()) } else { sum })
        });
        assert_eq!(output.to_f64(), expected.unwrap().to_f64(), "form {form}, ends {ends:?}");
        Ok(())
    });
}

#[test]
fn the_result_has_the_type_that_is_asked_for() {
    let (a, b, ends) = (counting(F16, &[2, 3]), counting(F16, &[3, 2]), ints(&[3]));
    let inputs = [a, b, ends];
    assert_eq!(result("%0 = grouped_mm %a, %b, %c", &inputs).dtype(), F16);
    assert_eq!(result("%0 = grouped_mm %a, %b, %c dtype(f32)", &inputs).dtype(), F32);
    // Asked for or not, it is the same operation.
    let inputs_text = "%a: f16[?, ?], %b: f16[?, ?], %c: i32[?]";
    let text = |dtype: &str| {
        let text = format!("fusion @f({inputs_text}) {{\n  %0 = grouped_mm %a, %b, %c{dtype}\n  return %0\n}}\n");
        crate::text::parse_one(&text).unwrap()
    };
    assert_eq!(text(""), text(" dtype(f16)"));
    let scale = |sizes: &[i64]| dense(F32, sizes, &vec![2.0; sizes.iter().product::<i64>() as usize]);
    let mut inputs = inputs.to_vec();
    inputs.extend([scale(&[1, 2, 1]), scale(&[1, 1, 1])]);
    assert_eq!(result("%0 = grouped_mm %a, %b, %c scale1(%d) scale2(%e)", &inputs).dtype(), BF16);
}

#[test]
fn alpha_beta_and_bias() {
    let (a, b) = (dense(F32, &[1, 2], &[1.0, 2.0]), dense(F32, &[2, 2], &[1.0, 0.0, 0.0, 1.0]));
    let one = |v: f64| dense(F32, &[], &[v]);
    let bias = dense(F32, &[2], &[10.0, 20.0]);
    let inputs = [a.clone(), b.clone(), ints(&[1]), one(3.0), bias.clone(), one(0.5)];
    let grouped = [a.clone(), dense(F32, &[1, 2, 2], &b.to_f64()), ints(&[1]), one(3.0), bias.clone(), one(0.5)];
    let statement = "%0 = grouped_mm %a, %b, %c alpha(%d) bias(%e) beta(%f)";
    check_value(statement, &grouped, F32, &[1, 2], &[8.0, 16.0]);
    check_value(statement, &inputs, F32, &[1, 1, 2], &[8.0, 10.0]);
    let scaled = [a, b, one(2.0), dense(F32, &[1, 1], &[0.5]), bias];
    check_value("%0 = scaled_mm %a, %b, %c, %d bias(%e) dtype(f32)", &scaled, F32, &[1, 2], &[11.0, 22.0]);
}

#[test]
fn scales_of_rows_and_columns() {
    let a = dense(F8E4M3FN, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let b = dense(F8E4M3FN, &[2, 3], &[1.0, 0.0, 1.0, 0.0, 1.0, 1.0]);
    let rows = dense(F32, &[2, 1], &[2.0, 10.0]);
    let columns = dense(F32, &[1, 3], &[1.0, 3.0, 0.5]);
    let expected = [2.0, 12.0, 3.0, 30.0, 120.0, 35.0];
    check_value("%0 = scaled_mm %a, %b, %c, %d", &[a, b, rows, columns], BF16, &[2, 3], &expected);
}

/// Scales of a matrix of rows, in the order of the hardware: written as the
/// transposition of `[tiles, 4, 32, tiles, 4]`, independently of the evaluator.
fn swizzled(dtype: DType, rows: i64, columns: i64, scale: impl Fn(i64, i64) -> f64) -> HostTensor {
    let (down, right) = ((rows + 127) / 128, (columns + 3) / 4);
    let values: Vec<f64> = (0..down * right * 512)
        .map(|at| {
            let (tile, inside) = (at / 512, at % 512);
            let (row, column) = (tile / right * 128, tile % right * 4);
            let (row, column) = (row + inside / 16 + inside % 16 / 4 * 32, column + inside % 4);
            if row < rows && column < columns { scale(row, column) } else { f64::NAN }
        })
        .collect();
    dense(dtype, &[down * 128, right * 4], &values)
}

/// A multiple of one half that `f4e2m1fn` has.
fn small(i: i64, j: i64) -> f64 {
    [0.0, 0.5, -1.0, 1.5, 2.0, -3.0, 4.0, 6.0][((i * 5 + j * 3) % 8) as usize]
}

fn power(i: i64, j: i64) -> f64 {
    [0.25, 0.5, 1.0, 2.0, 4.0][((i * 3 + j) % 5) as usize]
}

fn matrix(dtype: DType, sizes: &[i64], value: fn(i64, i64) -> f64) -> HostTensor {
    HostTensor::from_fn(dtype, sizes, |at| {
        let (i, j) = (at[at.len() - 2], at[at.len() - 1]);
        Value::Float(value(i + 7 * at.iter().take(at.len() - 2).sum::<i64>(), j))
    })
    .unwrap()
}

#[test]
fn swizzled_scales_of_blocks() {
    for (dtype, scales, block, k) in [(F4E2M1FN, F8E4M3FN, 16, 96), (F8E4M3FN, F8E8M0FNU, 32, 64)] {
        let (m, n) = (130, 5);
        let a = matrix(dtype, &[m, k], small);
        let b = matrix(dtype, &[n, k], small).permuted(&[1, 0]).unwrap();
        let (left, right) = (swizzled(scales, m, k / block, power), swizzled(scales, n, k / block, power));
        let alpha = dense(F32, &[], &[0.5]);
        let inputs = [a, b, left, right, alpha];
        let output = result("%0 = scaled_mm %a, %b, %c, %d alpha(%e) dtype(f32)", &inputs);
        check_steps("%0 = scaled_mm %a, %b, %c, %d alpha(%e) dtype(f32)", &inputs);
        let expected = HostTensor::from_fn(F32, &[m, n], |at| {
            let (i, j) = (at[0], at[1]);
            let term = |k: i64| small(i, k) * power(i, k / block) * small(j, k) * power(j, k / block);
            Value::Float(0.5 * (0..k).map(term).sum::<f64>())
        });
        assert_eq!(output.to_f64(), expected.unwrap().to_f64());
    }
}

#[test]
fn experts_multiply_their_rows() {
    let (m, k, n, groups) = (7, 64, 3, 2);
    let a = matrix(F4E2M1FN, &[m, k], small);
    let b = matrix(F4E2M1FN, &[groups, n, k], small).permuted(&[0, 2, 1]).unwrap();
    // Group 0 has rows 3.., its scales are the second tile; group 1 has rows 0..2.
    let tiles = |first: HostTensor, second: HostTensor, sizes: &[i64]| {
        let mut values = first.to_f64();
        values.extend(second.to_f64());
        dense(F8E4M3FN, sizes, &values)
    };
    let left = tiles(swizzled(F8E4M3FN, 2, 4, power), swizzled(F8E4M3FN, 4, 4, |i, c| power(i + 3, c)), &[256, 4]);
    let one = |g: i64| swizzled(F8E4M3FN, n, 4, move |j, c| power(j + 7 * g, c));
    let right = tiles(one(0), one(1), &[2, 128, 4]);
    let alpha = dense(F32, &[2], &[0.5, 2.0]);
    let sizes = HostTensor::from_i64(I32, &[2, 3], &[4, n, k, 2, n, k]).unwrap();
    let inputs = [a, b, left, right, alpha, sizes, ints(&[3, 0]), ints(&[128, 0])];
    let statement = "%0 = cutlass_nvfp4_grouped_mm %a, %b, %c, %d, %e, %f, %g, %h";
    let output = result(statement, &inputs);
    assert_eq!((output.dtype(), output.sizes()), (BF16, &[m, n][..]));
    let expected = HostTensor::from_fn(BF16, &[m, n], |at| {
        let (i, j) = (at[0], at[1]);
        let (group, alpha) = match i {
            3.. => (0, 0.5),
            2 => return Value::Float(0.0),
            _ => (1, 2.0),
        };
        let term = |k: i64| small(i, k) * power(i, k / 16) * small(j + 7 * group, k) * power(j + 7 * group, k / 16);
        Value::Float(alpha * (0..k).map(term).sum::<f64>())
    });
    assert_eq!(output.to_f64(), expected.unwrap().to_f64());
    check_steps(statement, &inputs);
    // One that has no rows, and one of whose rows another one has some.
    for (rows, starts) in [([0, 2], [7, 1]), ([4, 2], [2, 3]), ([4, 2], [0, 0])] {
        let mut others = inputs.to_vec();
        others[5] = HostTensor::from_i64(I32, &[2, 3], &[rows[0], n, k, rows[1], n, k]).unwrap();
        others[6] = ints(&starts);
        check_steps(statement, &others);
    }
    let mut wrong = inputs.to_vec();
    wrong[6] = ints(&[4, 0]);
    check_unevaluated(
        statement,
        &wrong,
        "E0213: cutlass_nvfp4_grouped_mm: group 0 of sizes [4, 3, 64] from row 4 on, scales from 128 on, does not fit \
         matrices [7, 64] [64, 3]",
    );
    wrong[6] = ints(&[3, 0]);
    wrong[7] = ints(&[129, 0]);
    check_unevaluated(
        statement,
        &wrong,
        "E0213: cutlass_nvfp4_grouped_mm: 4 rows need 512 swizzled scales from 516 on, there are 1024",
    );
}

#[test]
fn refusals_of_groups() {
    let f32 = |sizes: &[i64]| counting(F32, sizes);
    let statement = "%0 = grouped_mm %a, %b, %c";
    let check = |inputs: [HostTensor; 3], expected: &str| check_refused(statement, &inputs, expected);
    check([f32(&[2, 3, 4]), f32(&[2, 4, 5]), ints(&[1, 2])], "E0203: grouped_mm: `mat1` has rank 3 and `mat2` rank 3");
    check([f32(&[2, 3]), f32(&[3, 5]), f32(&[3])], "E0202: grouped_mm: `offsets` is f32, it must be i32 or i64");
    check(
        [f32(&[2, 3]), f32(&[4, 5]), ints(&[3])],
        "E0204: grouped_mm: axis 1 of `mat1` and axis 0 of `mat2`: 3 and 4 must be equal",
    );
    check(
        [f32(&[2, 3]), f32(&[4, 3, 5]), ints(&[1, 2, 2])],
        "E0204: grouped_mm: axis 0 of `mat2` and of `offsets`: 4 and 3 must be equal",
    );
    check([f32(&[2, 3]), counting(F16, &[3, 5]), ints(&[3])], "E0202: grouped_mm: `mat1` is f32, `mat2` is f16");
    let inputs = [f32(&[2, 3]), f32(&[3, 5]), ints(&[2, 1])];
    check_unevaluated(statement, &inputs, "E0213: grouped_mm: group 1 ends at 1, it must end from 2 to 3");
    let inputs = [f32(&[2, 3]), f32(&[3, 5]), ints(&[3]), f32(&[1, 4, 1]), f32(&[1, 1, 5])];
    check_refused(
        &format!("{statement} scale1(%d) scale2(%e)"),
        &inputs,
        "E0204: grouped_mm: axis 1 of `scale1` and what it scales: 4 and 2 must be equal",
    );
    let alone = "E0206: grouped_mm: `scale1` is given without `scale2`";
    check_refused(&format!("{statement} scale1(%d)"), &inputs, alone);
    check_refused(&format!("{statement} dtype(i32)"), &inputs, "E0202: grouped_mm: the result cannot be i32");
    check_refused(
        &format!("{statement} output_block_scale_size(16)"),
        &inputs,
        "U0201: grouped_mm: output_block_scale_size(16) is not evaluated by nvFuser and has no meaning yet",
    );
}

#[test]
fn refusals_of_scales() {
    let f8 = |sizes: &[i64]| counting(F8E4M3FN, sizes);
    let f32 = |sizes: &[i64]| counting(F32, sizes);
    let statement = "%0 = scaled_mm %a, %b, %c, %d";
    let check = |inputs: [HostTensor; 4], expected: &str| check_refused(statement, &inputs, expected);
    check(
        [f8(&[2, 32]), f8(&[32, 4]), f32(&[3, 1]), f32(&[])],
        "E0204: scaled_mm: axis 0 of `scale1` and what it scales: 3 and 2 must be equal",
    );
    check(
        [f8(&[2, 32]), f8(&[32, 4]), f32(&[2, 1]), f32(&[4])],
        "E0204: scaled_mm: axis 0 of `scale2` and what it scales: 4 and 1 must be equal",
    );
    check(
        [f8(&[2, 32]), f8(&[32, 4]), f8(&[128, 4]), f8(&[128, 8])],
        "E0204: scaled_mm: elements of `scale2` and of the swizzled scales: 1024 and 512 must be equal",
    );
    check(
        [f8(&[2, 40]), f8(&[40, 4]), f8(&[128, 4]), f8(&[128, 4])],
        "E0204: scaled_mm: 40 elements of a row are no multiple of 16",
    );
    check(
        [f8(&[2, 32]), f8(&[32, 4]), counting(I32, &[]), f32(&[])],
        "E0202: scaled_mm: `scale1` is i32, it must be floating point",
    );
}

/// Of small numbers, whose sums are exact in any order.
#[test]
fn steps_of_scaled_products() {
    crate::property::property(|u| {
        let dtype = *u.choose(&[F64, F32, F16, BF16, F8E4M3FN, F8E5M2, F4E2M1FN])?;
        let result = *u.choose(&[F64, F32, BF16, F8E4M3FN])?;
        let mut size = |most| u.int_in_range(0..=most);
        let (m, n, k) = (size(4)?, size(4)?, 32 * (1 + size(2)?));
        let mut inputs = vec![matrix(dtype, &[m, k], small), matrix(dtype, &[n, k], small).permuted(&[1, 0]).unwrap()];
        for (rows, is_left) in [(m, true), (n, false)] {
            let factor = |at: i64| [1.0, 2.0, 0.5, 4.0][(at % 4) as usize];
            let list = || (0..rows).map(factor).collect::<Vec<_>>();
            inputs.push(match u.int_in_range(0..=4u8)? {
                0 => dense(F32, &[], &[2.0]),
                1 => dense(BF16, &[1], &[0.5]),
                2 => dense(F32, &if is_left { [rows, 1] } else { [1, rows] }, &list()),
                3 => swizzled(F8E4M3FN, rows, k / 16, power),
                _ => swizzled(F8E8M0FNU, rows, k / 32, power),
            });
        }
        let mut statement = "%0 = scaled_mm %a, %b, %c, %d".to_string();
        let mut add = |name: &str, tensor: HostTensor| {
            let place = char::from(b'a' + inputs.len() as u8);
            inputs.push(tensor);
            statement += &format!(" {name}(%{place})");
        };
        if u.arbitrary()? {
            add("alpha", dense(F32, &[1][..u.int_in_range(0..=1)?], &[0.5]));
        }
        if u.arbitrary()? {
            let sizes = [vec![m, n], vec![n], vec![1, n], vec![m, 1], vec![]];
            add("bias", counting(BF16, u.choose(&sizes)?));
            if u.arbitrary()? {
                add("beta", dense(F32, &[], &[2.0]));
            }
        }
        check_steps(&format!("{statement} dtype({result})"), &inputs);
        Ok(())
    });
}

/// Of small numbers, whose sums are exact in any order.
#[test]
fn steps_of_grouped_products() {
    crate::property::property(|u| {
        let dtype = *u.choose(&[F64, F32, F16, BF16, F8E4M3FN, F8E5M2, F4E2M1FN])?;
        let result = *u.choose(&[F64, F32, BF16, F8E4M3FN])?;
        let mut size = |least, most| u.int_in_range(least..=most);
        let (m, k, n) = (size(0, 5)?, 2 * size(0, 3)?, size(0, 5)?);
        let form = u.int_in_range(0..=2u8)?;
        let ends = random_ends(u, [k, n, m][usize::from(form)])?;
        let g = ends.len() as i64;
        let (left, right) = match form {
            0 => (vec![m, k], vec![n, k]),
            1 => (vec![g, m, k], vec![n, k]),
            _ => (vec![m, k], vec![g, n, k]),
        };
        // Packed elements lie side by side along k.
        let order: &[usize] = if right.len() == 3 { &[0, 2, 1] } else { &[1, 0] };
        let right = matrix(dtype, &right, small).permuted(order).unwrap();
        let offsets = HostTensor::from_i64(*u.choose(&[I32, I64])?, &[g], &ends).unwrap();
        let mut inputs = vec![matrix(dtype, &left, small), right, offsets];
        let mut statement = "%0 = grouped_mm %a, %b, %c".to_string();
        let mut add = |name: &str, tensor: HostTensor| {
            let place = char::from(b'a' + inputs.len() as u8);
            inputs.push(tensor);
            statement += &format!(" {name}(%{place})");
        };
        let powers = |sizes: &[i64]| matrix(F32, sizes, |i, j| [1.0, -2.0, 0.5, 4.0][((i + 3 * j) % 4) as usize]);
        if u.arbitrary()? {
            // One for all of an axis, or one for each.
            let mut one_of = |size: i64| Ok::<_, arbtest::arbitrary::Error>(if u.ratio(1u8, 4u8)? { 1 } else { size });
            let (groups, rows, columns) = (one_of(g)?, one_of(m)?, one_of(n)?);
            add("scale1", powers(&if form == 2 { vec![rows, 1] } else { vec![groups, rows, 1] }));
            add("scale2", powers(&if form == 1 { vec![1, columns] } else { vec![groups, 1, columns] }));
        }
        if u.arbitrary()? {
            add("alpha", dense(F32, &[1][..u.int_in_range(0..=1)?], &[0.5]));
        }
        if u.arbitrary()? {
            let sizes = [vec![m, n], vec![n], vec![1, n], vec![m, 1], vec![]];
            add("bias", counting(BF16, u.choose(&sizes)?));
            add("beta", dense(F32, &[], &[2.0]));
        }
        check_steps(&format!("{statement} dtype({result})"), &inputs);
        Ok(())
    });
}

#[test]
fn sums_of_groups() {
    let (a, stack) = (counting(BF16, &[4, 2]), counting(BF16, &[2, 2, 3]));
    let statement = "%0 = grouped_sums %a, %b, %c";
    let sums = result(statement, &[a.clone(), stack.clone(), ints(&[1, 3])]);
    let whole = result("%0 = grouped_mm %a, %b, %c dtype(f32)", &[a.clone(), stack, ints(&[1, 3])]);
    assert!(sums.bits_equal(&whole));
    assert_eq!(sums.to_f64()[9..], [0.0; 3], "the last row is in no group");
    let split = result(statement, &[a.clone(), counting(BF16, &[2, 3]), ints(&[1, 1, 2])]);
    assert_eq!((split.dtype(), split.sizes()), (F32, &[3, 4, 3][..]));
    let inputs = [a.clone(), counting(BF16, &[2, 3]), ints(&[2, 1])];
    check_unevaluated(statement, &inputs, "E0213: grouped_sums: group 1 ends at 1, it must end from 2 to 2");
    let inputs = [a, counting(BF16, &[1, 1, 2, 3]), ints(&[1])];
    check_refused(statement, &inputs, "E0203: grouped_sums: `mat2` has rank 4, it needs 2 or 3");
}
