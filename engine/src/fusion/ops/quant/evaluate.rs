//! Values of quantised blocks and of swizzled scales.

use super::swizzle::{self, place};
use crate::array::{Data, View, parallel};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::ops::EvalCx;
use crate::num::convert::{f4e2m1fn_to_f32, f8e4m3fn_to_f32, f8e8m0fnu_to_f32, f64_to_f4e2m1fn, f64_to_f8e4m3fn};
use crate::num::{DType, Value, eval};

/// The greatest `f8e4m3fn`.
pub(super) const E4M3_MAX: f32 = 448.0;
/// The greatest `f4e2m1fn`.
pub(super) const E2M1_MAX: f32 = 6.0;

/// Blocks of one parallel task.
const BLOCKS: usize = 512;

/// To the nearest `f8e4m3fn`, the greatest one beyond it.
fn to_e4m3(x: f32) -> f32 {
    f8e4m3fn_to_f32(f64_to_f8e4m3fn(x.clamp(-E4M3_MAX, E4M3_MAX).into()))
}

/// To the next power of two upwards, as the code of an `f8e8m0fnu`; the greatest
/// one beyond it. There is neither a zero nor a sign.
fn to_e8m0_up(x: f32) -> u8 {
    if x.is_nan() {
        return u8::MAX;
    }
    let bits = x.abs().to_bits();
    let (exponent, fraction) = (bits >> 23, bits & 0x7f_ffff);
    // Below 2^-126 the fraction counts units of 2^-149, and 2^-127 is code 0.
    let up = if exponent == 0 { fraction > 1 << 22 } else { fraction != 0 };
    (exponent + u32::from(up)).min(254) as u8
}

/// The largest magnitude of a block; NaN counts only where nothing else is.
fn largest(block: &[f32]) -> f32 {
    block.iter().fold(f32::NEG_INFINITY, |max, x| max.max(x.abs()))
}

/// The scale of a block; the block becomes its quotients.
fn quantize_e2m1(block: &mut [f32], global: Option<f32>) -> f32 {
    let mut wanted = largest(block) / E2M1_MAX;
    if let Some(global) = global {
        wanted *= global;
    }
    let scale = to_e4m3(wanted.min(f32::MAX));
    let own = global.map_or(scale, |global| scale * (1.0 / global));
    let factor = (1.0 / own).min(f32::MAX);
    block.iter_mut().for_each(|x| *x = f4e2m1fn_to_f32(f64_to_f4e2m1fn((*x * factor).into())));
    scale
}

/// The scale of a block; the block becomes its quotients.
fn quantize_e4m3(block: &mut [f32]) -> f32 {
    let code = to_e8m0_up(largest(block) * (1.0 / E4M3_MAX));
    // 2^(127 - code) by its exponent bits: 0 for the greatest code, 1 for code 0.
    let factor = if code == 0 { 1.0 } else { f32::from_bits((254 - u32::from(code.min(254))) << 23) };
    block.iter_mut().for_each(|x| *x = to_e4m3(*x * factor));
    f8e8m0fnu_to_f32(code)
}

/// The quantised elements of `x` and the scales, both in row-major order.
fn quantize(cx: &EvalCx<'_>) -> Result<(Vec<f32>, Vec<f32>)> {
    let global = match cx.opt_tensor("global_scale") {
        Some(scale) => scale.slice::<f32>()?.first().copied(),
        None => None,
    };
    let mut values = cx.tensor("x")?.to_dense().slice::<f32>()?.to_vec();
    // How many elements have one scale, and what makes it.
    let size = if cx.results[0].0 == DType::F8E4M3FN { 32 } else { 16 };
    let quantize = |block: &mut [f32]| match size {
        32 => quantize_e4m3(block),
        _ => quantize_e2m1(block, global),
    };
    let mut scales = vec![0.0; values.len().div_ceil(size)];
    let parts = values.chunks_mut(size * BLOCKS).zip(scales.chunks_mut(BLOCKS)).collect();
    parallel::consume(parts, &|(values, scales): (&mut [f32], &mut [f32])| {
        values.chunks_mut(size).zip(scales).for_each(|(block, scale)| *scale = quantize(block));
    });
    Ok((values, scales))
}

/// A result of `f32` elements.
fn result(cx: &EvalCx<'_>, place: usize, values: Vec<f32>) -> View {
    let (dtype, sizes) = &cx.results[place];
    View::dense(*dtype, sizes.clone(), Data::F32(values))
}

pub(super) fn block(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (values, mut scales) = quantize(cx)?;
    if cx.call.flag("swizzle_block_scales") {
        let (columns, padded) = (cx.results[0].1[1] / 16, &cx.results[1].1);
        let mut swizzled = vec![0.0; padded.iter().product()];
        for (i, scale) in scales.into_iter().enumerate() {
            swizzled[place(i / columns, i % columns, padded[1])] = scale;
        }
        scales = swizzled;
    }
    Ok(vec![result(cx, 0, values), result(cx, 1, scales)])
}

pub(super) fn grouped(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (values, scales) = quantize(cx)?;
    let (rows, width) = (cx.results[0].1[0], cx.results[0].1[1] / 16);
    let scales = View::dense(cx.results[1].0, vec![rows, width], Data::F32(scales));
    Ok(vec![result(cx, 0, values), in_groups(cx, &scales, &cx.results[1].1)?])
}

pub(super) fn layout(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    Ok(vec![in_groups(cx, cx.tensor("x")?, &cx.results[0].1)?])
}

/// The group of a row: the last one that starts at it or before it.
fn group_of(starts: &[i64], row: i64) -> Option<usize> {
    let next = (1..starts.len()).find(|&group| row < starts[group]).unwrap_or(starts.len());
    next.checked_sub(1)
}

/// The rows of a matrix swizzled group by group in a buffer of `sizes`, else 0.
fn in_groups(cx: &EvalCx<'_>, x: &View, sizes: &[usize]) -> Result<View> {
    let (starts, targets) = (cx.tensor("input_offsets")?.to_i64(), cx.tensor("output_offsets")?.to_i64());
    let columns = x.sizes[1].next_multiple_of(swizzle::COLUMNS);
    // The element that goes to each place of the buffer.
    let mut sources = vec![None; sizes.iter().product()];
    for row in 0..x.sizes[0] {
        let group = group_of(&starts, row as i64);
        let from = group.and_then(|group| usize::try_from(row as i64 - starts[group]).ok());
        let to = group.and_then(|group| usize::try_from(targets[group]).ok());
        let base = to.and_then(|to| to.checked_mul(columns));
        for column in 0..x.sizes[1] {
            let target = from.zip(base).and_then(|(from, base)| base.checked_add(place(from, column, columns)));
            match target.and_then(|target| sources.get_mut(target)) {
                Some(source) => *source = Some(x.place(&[row, column])),
                None => return Err(outside(cx, row, group, sizes)),
            }
        }
    }
    // The least power of two, where a type has no 0.
    let fill = eval::cast(DType::I64, x.dtype, Value::Int(0));
    Ok(x.gathered(sizes.to_vec(), fill, |place| sources[place]))
}

fn outside(cx: &EvalCx<'_>, row: usize, group: Option<usize>, sizes: &[usize]) -> Box<Diagnostic> {
    let name = cx.call.row.name;
    let message = match group {
        Some(group) => format!("{name}: row {row} of group {group} does not fit the result of sizes {sizes:?}"),
        None => format!("{name}: row {row} belongs to no group"),
    };
    Diagnostic::user(code::VALUE, message)
        .note("offsets are the first rows of the groups; in the result, groups are padded to multiples of 128 rows")
}
