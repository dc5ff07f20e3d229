use crate::fusion::ops::checks::{check_refused, check_steps, check_unevaluated, counting, dense, results, strided};
use crate::num::DType::{self, *};
use crate::num::Value;
use crate::tensor::HostTensor;

const BLOCK: &str = "%0, %1 = nv_block_quantize";

/// The magnitude of a type's codes, by its definition; there is no infinity in
/// either of them.
fn grid(exponent_bits: i32, fraction_bits: i32) -> Vec<f64> {
    let bias = (1 << (exponent_bits - 1)) - 1;
    let codes = 1 << (exponent_bits + fraction_bits);
    let value = |code: i32| {
        let (exponent, fraction) = (code >> fraction_bits, f64::from(code & ((1 << fraction_bits) - 1)));
        let fraction = fraction / f64::from(1 << fraction_bits);
        if exponent == 0 { fraction * 2f64.powi(1 - bias) } else { (1.0 + fraction) * 2f64.powi(exponent - bias) }
    };
    (0..codes).map(value).collect()
}

/// The nearest of a grid, ties to the even place; the last one beyond it.
fn nearest(grid: &[f64], x: f64) -> f64 {
    let x = x.abs();
    let above = grid.iter().position(|&g| g >= x).unwrap_or(grid.len() - 1);
    let below = above.saturating_sub(usize::from(grid[above] > x));
    let (down, up) = (x - grid[below], grid[above] - x);
    if down < up || (down == up && below % 2 == 0) { grid[below] } else { grid[above] }
}

fn e4m3() -> Vec<f64> {
    let mut grid = grid(4, 3);
    grid.pop();
    grid
}

#[test]
fn blocks_of_four_bits_by_the_definition() {
    crate::property::property(|u| {
        let dtype = *u.choose(&[F32, BF16, F16])?;
        let (rows, blocks) = (u.int_in_range(0..=3i64)?, u.int_in_range(0..=2i64)?);
        let global = if u.arbitrary()? { Some(f64::from(u.int_in_range(1..=40u8)?)) } else { None };
        let spread = u.int_in_range(-6..=6)?;
        let x = strided(u, dtype, &[rows, blocks * 16])?;
        let x = HostTensor::from_fn(dtype, x.sizes(), |at| {
            Value::Float(x.get(at).as_f64() * 2f64.powi(spread) * (1.0 + at[1] as f64 / 7.0))
        });
        let x = x.unwrap();
        let mut inputs = vec![x.clone()];
        let mut statement = format!("{BLOCK} %a");
        if let Some(global) = global {
            inputs.push(dense(F32, &[], &[global]));
            statement.push_str(" global_scale(%b)");
        }
        let outputs = results(&statement, &inputs);
        assert_eq!((outputs[0].dtype(), outputs[1].dtype()), (F4E2M1FN, F8E4M3FN));
        assert_eq!((outputs[0].sizes(), outputs[1].sizes()), (x.sizes(), &[rows, blocks][..]));
        for (block, index) in (0..rows * blocks).map(|i| (i, [i / blocks, i % blocks])) {
            let values: Vec<f32> = (0..16).map(|i| x.get(&[index[0], index[1] * 16 + i]).as_f64() as f32).collect();
            let largest = values.iter().fold(0f32, |max, v| max.max(v.abs()));
            let wanted = largest / 6.0 * global.map_or(1.0, |g| g as f32);
            let scale = nearest(&e4m3(), f64::from(wanted));
            assert_eq!(outputs[1].get(&index).as_f64(), scale, "block {block} of {values:?}");
            let divisor = scale as f32 * global.map_or(1.0, |g| 1.0 / g as f32);
            let factor = if divisor == 0.0 { f32::MAX } else { (1.0 / divisor).min(f32::MAX) };
            for (i, &value) in values.iter().enumerate() {
                let expected = nearest(&grid(2, 1), f64::from((value * factor).abs()).min(1e30));
                let actual = outputs[0].get(&[index[0], index[1] * 16 + i as i64]).as_f64();
                assert_eq!(actual, expected.copysign(actual), "{value} times {factor}");
                assert!(actual == 0.0 || actual.signum() == f64::from(value.signum()));
            }
        }
        Ok(())
    });
}

#[test]
fn blocks_of_eight_bits_have_powers_of_two() {
    let block = |values: &[f64]| {
        let mut all = values.to_vec();
        all.resize(32, 0.0);
        all
    };
    let cases = [
        // 448 needs no scale; more needs the next power of two.
        (block(&[448.0, -3.0, 0.1]), 1.0, [448.0, -3.0, 0.1015625]),
        (block(&[449.0, 2.0, 1.0]), 2.0, [224.0, 1.0, 0.5]),
        (block(&[1.0, 0.5, -0.25]), 1.0 / 256.0, [256.0, 128.0, -64.0]),
        // Nothing but zeros has the least scale and is left as it is.
        (block(&[0.0, -0.0, 0.0]), 2f64.powi(-127), [0.0, -0.0, 0.0]),
    ];
    let values: Vec<f64> = cases.iter().flat_map(|(values, ..)| values.clone()).collect();
    let outputs = results(&format!("{BLOCK} %a block_size(32) dtype(f8e4m3fn)"), &[dense(F32, &[128], &values)]);
    assert_eq!((outputs[0].dtype(), outputs[1].dtype()), (F8E4M3FN, F8E8M0FNU));
    for (i, (_, scale, expected)) in cases.iter().enumerate() {
        assert_eq!(outputs[1].to_f64()[i], *scale, "block {i}");
        assert_eq!(outputs[0].to_f64()[i * 32..][..3], *expected, "block {i}");
    }
}

#[test]
fn what_is_not_finite_saturates() {
    let mut values = vec![1.0; 32];
    (values[0], values[1]) = (f64::INFINITY, f64::NAN);
    values[16] = f64::NAN;
    let outputs = results(&format!("{BLOCK} %a"), &[dense(F32, &[32], &values)]);
    assert_eq!(outputs[1].to_f64(), [448.0, nearest(&e4m3(), 1.0 / 6.0)]);
    assert_eq!(outputs[0].to_f64()[..3], [6.0, 6.0, 0.0]);
    assert_eq!(outputs[0].to_f64()[16..18], [6.0, 6.0]);
}

/// Where the scale of a row and a block is, as nvFuser's tests undo it: the
/// buffer seen as `[rows / 128, columns / 4, 32, 4, 4]`, axes 1 and 3 exchanged.
fn unswizzled(buffer: &[f64], columns: usize) -> impl Fn(usize, usize) -> f64 + '_ {
    move |row, column| {
        let tile = row / 128 * (columns / 4) + column / 4;
        buffer[((tile * 32 + row % 32) * 4 + row / 32 % 4) * 4 + column % 4]
    }
}

#[test]
fn scales_of_a_matrix_are_swizzled_and_padded() {
    let x = HostTensor::from_fn(F32, &[131, 80], |at| Value::Float((at[0] * 5 + at[1] / 16 * 77) as f64 % 97.0 - 40.0));
    let x = x.unwrap();
    let plain = results(&format!("{BLOCK} %a"), std::slice::from_ref(&x));
    let swizzled = results(&format!("{BLOCK} %a swizzle_block_scales"), &[x]);
    assert_eq!(plain[0].to_f64(), swizzled[0].to_f64());
    assert_eq!((swizzled[1].sizes(), plain[1].sizes()), (&[256i64, 8][..], &[131i64, 5][..]));
    let buffer = swizzled[1].to_f64();
    let at = unswizzled(&buffer, 8);
    for (i, &scale) in plain[1].to_f64().iter().enumerate() {
        assert_eq!(at(i / 5, i % 5), scale);
    }
    assert_eq!(at(131, 0), 0.0);
}

#[test]
fn scales_of_groups_are_placed_group_by_group() {
    let offsets = |values: &[i64]| HostTensor::from_i64(I32, &[values.len() as i64], values).unwrap();
    let (starts, targets) = (offsets(&[0, 2, 2]), offsets(&[0, 128, 128]));
    let x = counting(F8E4M3FN, &[140, 5]);
    let placed =
        &results("%0 = preprocess_grouped_matmul_input_sf %a, %b, %c", &[x.clone(), starts.clone(), targets.clone()])
            [0];
    assert_eq!((placed.dtype(), placed.sizes()), (F8E4M3FN, &[140 + 3 * 127, 8][..]));
    let buffer = placed.to_f64();
    for row in 0..140usize {
        // Group 1 is empty: it starts where group 2 does.
        let (group, from) = if row < 2 { (0, row) } else { (128 * 8, row - 2) };
        for column in 0..5 {
            assert_eq!(unswizzled(&buffer[group..], 8)(from, column), x.get(&[row as i64, column as i64]).as_f64());
        }
    }
    let x = HostTensor::from_fn(BF16, &[140, 80], |at| Value::Float((at[0] * 3 + at[1]) as f64 % 50.0 - 25.0)).unwrap();
    let inputs = [x.clone(), starts.clone(), targets.clone()];
    let both = results("%0, %1 = nv_grouped_block_quantize %a, %b, %c", &inputs);
    let steps = "%q, %s = nv_block_quantize %a\n  %0 = preprocess_grouped_matmul_input_sf %s, %b, %c";
    let placed = &results(steps, &inputs)[0];
    assert!(both[1].meta == placed.meta && both[1].to_f64() == placed.to_f64());
    assert_eq!(both[0].to_f64(), results(&format!("{BLOCK} %a"), &[x])[0].to_f64());
}

#[test]
fn refusals_name_types_and_sizes() {
    let x = |dtype: DType, sizes: &[i64]| [counting(dtype, sizes)];
    let check = |attributes: &str, inputs: &[HostTensor], expected: &str| {
        check_refused(&format!("{BLOCK} %a {attributes}"), inputs, expected);
    };
    check("", &x(F32, &[2, 24]), "E0204: nv_block_quantize: the last axis of 24 elements is no multiple of 16");
    check("", &x(F64, &[16]), "E0202: nv_block_quantize: `x` is f64, it must be f32 or f16 or bf16");
    check("", &x(F32, &[]), "E0203: nv_block_quantize: `x` has rank 0, it needs at least 1");
    check(
        "dtype(f8e4m3fn)",
        &x(F32, &[32]),
        "E0213: nv_block_quantize: blocks of f8e4m3fn have 32 elements, block_size is 16",
    );
    check(
        "dtype(f16)",
        &x(F32, &[32]),
        "E0202: nv_block_quantize: the result cannot be f16, it is f4e2m1fn or f8e4m3fn",
    );
    check(
        "dtype(f8e4m3fn) block_size(32) swizzle_block_scales",
        &x(F32, &[2, 32]),
        "E0206: nv_block_quantize: swizzle_block_scales is not for f8e4m3fn",
    );
    check("swizzle_block_scales", &x(F32, &[2, 2, 32]), "E0203: nv_block_quantize: `x` has rank 3, it needs 2");
    let inputs = [counting(F32, &[16]), counting(F32, &[1])];
    check("global_scale(%b)", &inputs, "E0203: nv_block_quantize: `global_scale` has rank 1, it needs 0");
    let offsets = |values: &[i64]| HostTensor::from_i64(I64, &[values.len() as i64], values).unwrap();
    let statement = "%0 = preprocess_grouped_matmul_input_sf %a, %b, %c";
    let inputs = |starts: &[i64], targets: &[i64]| [counting(F32, &[3, 4]), offsets(starts), offsets(targets)];
    check_refused(
        statement,
        &inputs(&[0, 1], &[0]),
        "E0204: preprocess_grouped_matmul_input_sf: axis 0 of `input_offsets` and of `output_offsets`: 2 and 1 must be \
         equal",
    );
    check_unevaluated(
        statement,
        &inputs(&[0, 1], &[0, 1000]),
        "E0213: preprocess_grouped_matmul_input_sf: row 1 of group 1 does not fit the result of sizes [257, 4]",
    );
    check_unevaluated(
        statement,
        &inputs(&[], &[]),
        "E0213: preprocess_grouped_matmul_input_sf: row 0 belongs to no group",
    );
}

/// What a block may hold, beside numbers of its own.
const SPECIAL: [f64; 12] = [
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    0.0,
    -0.0,
    448.0,
    3.4028234663852886e38,
    -1e38,
    1.1754943508222875e-38,
    5.877471754111438e-39,
    1e-45,
    -3e-42,
];

#[test]
fn steps_compute_what_the_operation_does() {
    crate::property::property(|u| {
        let dtype = *u.choose(&[F32, BF16, F16])?;
        let (rows, blocks) = (u.int_in_range(1..=3i64)?, u.int_in_range(1..=3i64)?);
        let (more, size, axes) = *u.choose(&[
            ("", 16, 2),
            ("", 16, 1),
            ("global_scale(%b)", 16, 3),
            ("global_scale(%b) swizzle_block_scales", 16, 2),
            ("swizzle_block_scales", 16, 2),
            ("block_size(32) dtype(f8e4m3fn)", 32, 2),
        ])?;
        let sizes = match axes {
            1 => vec![blocks * size],
            2 => vec![rows, blocks * size],
            _ => vec![rows, 1, blocks * size],
        };
        // Blocks of one special value, of some, and of none.
        let share = u.int_in_range(0..=16u8)?;
        let mut drawn = Vec::new();
        for _ in 0..sizes.iter().product::<i64>() {
            let special = u.int_in_range(1..=16u8)? <= share;
            let number = f64::from(u.arbitrary::<i16>()?) * 2f64.powi(u.int_in_range(-20..=10)?);
            drawn.push(if special { *u.choose(&SPECIAL)? } else { number });
        }
        let x = dense(dtype, &sizes, &drawn);
        let global = dense(F32, &[], &[*u.choose(&[1.0, 37.5, 0.0, -2.0, 1e-40, f64::INFINITY, f64::NAN])?]);
        let inputs = if more.contains("%b") { vec![x, global] } else { vec![x] };
        check_steps(&format!("{BLOCK} %a {more}"), &inputs);
        Ok(())
    });
}

#[test]
fn steps_put_groups_where_the_operation_does() {
    crate::property::property(|u| {
        let dtype = *u.choose(&[F32, F8E4M3FN, F8E8M0FNU, I64])?;
        let (mut rows, mut target) = (0, u.int_in_range(0..=1)? * 5);
        let (mut starts, mut targets) = (Vec::new(), Vec::new());
        for _ in 0..u.int_in_range(1..=4)? {
            let count = *u.choose(&[0, 1, 31, 33, 128, 130])?;
            starts.push(rows);
            targets.push(target);
            rows += count;
            target += (count + 127) / 128 * 128;
        }
        // Offsets may lie between tiles.
        let more = starts.len() as i64 * 127 - (target - rows);
        if more < 0 {
            return Ok(());
        }
        let gap = u.int_in_range(0..=more)?;
        targets.iter_mut().for_each(|target| *target += gap);
        let width = u.int_in_range(0..=9i64)?;
        if rows == 0 && width > 0 {
            // Such a result is filled before.
            return Ok(());
        }
        let offsets = [starts, targets].map(|list| HostTensor::from_i64(I32, &[list.len() as i64], &list).unwrap());
        let [starts, targets] = offsets;
        let x = strided(u, dtype, &[rows, width])?;
        check_steps("%0 = preprocess_grouped_matmul_input_sf %a, %b, %c", &[x, starts.clone(), targets.clone()]);
        let x = strided(u, BF16, &[rows, width * 16])?;
        check_steps("%0, %1 = nv_grouped_block_quantize %a, %b, %c", &[x, starts, targets]);
        Ok(())
    });
}
