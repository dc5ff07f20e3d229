//! Kernels that are written whole against the reference, on the simulator with all detectors: sizes, types, layouts and
//! data that their choices of a shape tell apart.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::lowering::check_args;
use engine::backend::sim;
use engine::fusion::Fusion;
use engine::num::DType;
use engine::options::{CompileCx, DeviceDesc, NoTrace, Options, SimOptions};
use engine::tensor::{Arg, ArgMeta, HostTensor, TensorMeta};
use engine::{compile, kernel};
use testing::Draw;

#[test]
fn scans_along_any_axis() {
    crate::property::property(|u| {
        let rank = u.int_in_range(1..=4usize)?;
        let mut sizes: Vec<i64> =
            (0..rank).map(|_| u.int_in_range(1..=4)).collect::<arbtest::arbitrary::Result<_>>()?;
        let axis = u.int_in_range(0..=rank - 1)?;
        sizes[axis] = *u.choose(&[1, 2, 7, 31, 33, 64, 75, 257, 477, 1000, 4500, 8101])?;
        let name = *u.choose(&["cumsum", "cumprod", "cummin", "cummax"])?;
        let reverse = *u.choose(&["", " reverse"])?;
        let dtype = *u.choose(&[DType::F64, DType::F32, DType::BF16, DType::I32, DType::U8, DType::Bool])?;
        let dims = vec!["?"; rank].join(", ");
        let text =
            format!("fusion @f(%x: {dtype}[{dims}]) {{\n  %y = {name} %x dim({axis}){reverse}\n  return %y\n}}\n");
        let fusion = engine::text::parse_one(&text).unwrap();
        let mut draw = Draw::new(u.arbitrary()?);
        // Products of them stay near 1.
        let value = |_: &[i64]| match dtype {
            DType::I32 | DType::U8 => engine::num::Value::Int(draw.below(5) as i64),
            DType::Bool => engine::num::Value::Bool(draw.once_in(2)),
            _ => engine::num::Value::Float(1.0 + (draw.below(512) as f64 - 256.0) / 65536.0),
        };
        let x = HostTensor::from_fn(dtype, &sizes, value).unwrap();
        check_args(&fusion, &[Arg::Tensor(x)]);
        Ok(())
    })
    .cases(60);
}

#[test]
fn scans_with_what_is_computed_around_them() {
    const BODIES: [&str; 4] = [
        "%1 = mul %0, %r\n  %s = SCAN %1 dim(AXIS)\n  %2 = sub %s, %1\n  %y = cast %2 TYPE\n  return %y",
        "%1 = add %0, %w\n  %s = SCAN %1 dim(AXIS)\n  %2 = mul %s, %r\n  %y = cast %2 TYPE\n  return %y, %s, %1",
        "%s = SCAN %x dim(AXIS)\n  %1 = cast %s f32\n  %2 = mul %1, %w\n  %y = add %2, %0\n  return %y",
        "%1 = mul %r, %w\n  %s = SCAN %1 dim(AXIS)\n  %2 = mul %s, %0\n  %y = add %2, %1\n  return %y, %s",
    ];
    crate::property::property(|u| {
        let axis = u.int_in_range(0..=1usize)?;
        let mut sizes = [u.int_in_range(1..=40)?, u.int_in_range(1..=40)?];
        sizes[axis] = *u.choose(&[1, 2, 33, 64, 75, 257, 1000, 1234, 4500])?;
        let dtype = *u.choose(&[DType::F32, DType::BF16, DType::F16])?;
        let name = *u.choose(&["cumsum", "cummin", "cummax"])?;
        let body = u
            .choose(&BODIES)?
            .replace("SCAN", name)
            .replace("AXIS)", &format!("{axis}){}", u.choose(&["", " reverse"])?));
        let body = body.replace("TYPE", &dtype.to_string());
        let text = format!(
            "fusion @f(%x: {dtype}[?, ?], %r: f32[?, 1], %w: f32[1, ?]) {{\n  %0 = cast %x f32\n  {body}\n}}\n"
        );
        let fusion = engine::text::parse_one(&text).unwrap();
        let mut draw = Draw::new(u.arbitrary()?);
        let mut tensor = |dtype: DType, sizes: &[i64]| {
            let value = |_: &[i64]| engine::num::Value::Float(1.0 + (draw.below(512) as f64 - 256.0) / 1024.0);
            Arg::Tensor(HostTensor::from_fn(dtype, sizes, value).unwrap())
        };
        let args = [tensor(dtype, &sizes), tensor(DType::F32, &[sizes[0], 1]), tensor(DType::F32, &[1, sizes[1]])];
        check_args(&fusion, &args);
        Ok(())
    })
    .cases(60);
}

#[test]
fn orders_along_any_axis() {
    crate::property::property(|u| {
        let rank = u.int_in_range(0..=3usize)?;
        let mut sizes: Vec<i64> =
            (0..rank).map(|_| u.int_in_range(1..=4)).collect::<arbtest::arbitrary::Result<_>>()?;
        let axis = u.int_in_range(0..=rank.max(1) - 1)?;
        let length = *u.choose(&[1, 2, 8, 31, 32, 33, 64, 257, 1000, 1024, 1025, 2100, 4500, 70_000])?;
        let length = if rank > 1 { length.min(4500) } else { length };
        if let Some(size) = sizes.get_mut(axis) {
            *size = length;
        }
        let length = if rank == 0 { 1 } else { length };
        let dtype =
            *u.choose(&[DType::F64, DType::F32, DType::BF16, DType::I64, DType::U64, DType::U8, DType::Bool])?;
        let most = *u.choose(&[4, 40, 1024])?;
        let kept = u.int_in_range(1..=length.min(most))?;
        let flags = |u: &mut arbtest::arbitrary::Unstructured<'_>, names: [&'static str; 2]| {
            Ok(names.into_iter().filter(|_| u.arbitrary().unwrap_or(false)).collect::<Vec<_>>().join(" "))
        };
        let op = match u.arbitrary()? {
            true => format!("%y = argsort %x dim({axis}) {}\n  return %y", flags(u, ["descending", "stable"])?),
            false => {
                let flags = flags(u, ["largest(false)", "sorted"])?;
                format!("%v, %y = topk %x, %k dim({axis}) {flags}\n  return %y, %v")
            }
        };
        let (dims, k) = (vec!["?"; rank].join(", "), if op.contains("topk") { ", %k: i64" } else { "" });
        let fusion = engine::text::parse_one(&format!("fusion @f(%x: {dtype}[{dims}]{k}) {{\n  {op}\n}}\n")).unwrap();
        // Few values, so that many are equal.
        let (mut draw, values) = (Draw::new(u.arbitrary()?), u.int_in_range(1..=40)?);
        let value = |_: &[i64]| match (draw.below(values), dtype) {
            (value, DType::F8E8M0FNU) => engine::num::Value::Float(2f64.powi(value as i32 - 9)),
            (value, DType::Bool) => engine::num::Value::Bool(value % 2 == 1),
            (0, DType::U64 | DType::I64 | DType::I32 | DType::I16) => engine::num::Value::Int(-1),
            (0, DType::U8 | DType::U16 | DType::U32) => engine::num::Value::Int((1 << dtype.bits()) - 1),
            (value, _) if !dtype.is_float() => engine::num::Value::Int(value as i64),
            (0, _) => engine::num::Value::Float(f64::NAN),
            (1, _) => engine::num::Value::Float(f64::NEG_INFINITY),
            (value, _) => engine::num::Value::Float(value as f64 - 9.0),
        };
        let mut args = vec![Arg::Tensor(HostTensor::from_fn(dtype, &sizes, value).unwrap())];
        if !k.is_empty() {
            args.push(Arg::Scalar(engine::num::Value::Int(kept)));
        }
        check_args(&fusion, &args);
        Ok(())
    })
    .cases(60);
}

/// Small integers in memory that lies in any order of axes, with gaps or without.
fn laid_out(
    u: &mut arbtest::arbitrary::Unstructured<'_>,
    dtype: DType,
    sizes: &[i64],
) -> arbtest::arbitrary::Result<HostTensor> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, u.int_in_range(0..=i)?);
    }
    let (mut strides, mut step) = (vec![0; sizes.len()], 1);
    for axis in order {
        strides[axis] = step;
        step *= sizes[axis] + *u.choose(&[0, 0, 1, 8])?;
    }
    let mut draw = Draw::new(u.arbitrary()?);
    let value = |_: &[i64]| match draw.below(7) as i64 {
        number if dtype.is_int() => engine::num::Value::Int(if dtype.is_unsigned() { number } else { number - 3 }),
        number if dtype.is_complex() => engine::num::Value::Complex(number as f64 - 3.0, 2.0 - number as f64),
        number => engine::num::Value::Float(number as f64 - 3.0),
    };
    Ok(HostTensor::strided(TensorMeta { dtype, sizes: sizes.to_vec(), strides }, value).unwrap())
}

#[test]
fn sums_in_groups() {
    crate::property::property(|u| {
        let dtype = *u.choose(&[DType::F64, DType::F32, DType::F16, DType::BF16, DType::F8E4M3FN])?;
        let (m, n) = (*u.choose(&[1, 5, 16, 64, 100, 260, 300])?, *u.choose(&[1, 3, 40, 64, 132, 260])?);
        let (k, g) = (*u.choose(&[1, 8, 15, 16, 33, 72])?, u.int_in_range(1..=40)?);
        let g = if u.arbitrary()? { g } else { 1 + g % 5 };
        let splits_sums: bool = u.arbitrary()?;
        let g = if splits_sums { 1 + g % 4 } else { g };
        let extent = if splits_sums { k } else { m };
        let mut ends: Vec<i64> =
            (0..g).map(|_| u.int_in_range(0..=extent)).collect::<arbtest::arbitrary::Result<_>>()?;
        ends.sort_unstable();
        let offsets = *u.choose(&[DType::I32, DType::I64])?;
        let right = if splits_sums { vec![k, n] } else { vec![g, k, n] };
        let dims = vec!["?"; right.len()].join(", ");
        let text = format!(
            "fusion @f(%a: {dtype}[?, ?], %b: {dtype}[{dims}], %c: {offsets}[?]) {{\n  \
             %y = grouped_sums %a, %b, %c\n  return %y\n}}\n"
        );
        let fusion = engine::text::parse_one(&text).unwrap();
        let (a, b) = (laid_out(u, dtype, &[m, k])?, laid_out(u, dtype, &right)?);
        let args = [a, b, HostTensor::from_i64(offsets, &[g], &ends).unwrap()].map(Arg::Tensor);
        check_args(&fusion, &args);
        Ok(())
    })
    .cases(80);
}

/// Runs the kernel of a fusion whose data the reference refuses: on the simulator an access outside of memory, or a race, is
/// an error.
fn check_memory(fusion: &Fusion, args: &[HostTensor], force_index64: bool) {
    let metas: Vec<ArgMeta> = args.iter().map(|tensor| ArgMeta::Tensor(tensor.meta.clone())).collect();
    let options = Options { force_index64, ..Options::default() };
    let cx = CompileCx { options: &options, device: &DeviceDesc::h200(), trace: &NoTrace };
    let kernel = compile::compile_fusion(&cx, fusion, &metas, &vec![16; args.len()]).unwrap().kernel;
    let launch = kernel::bind(&kernel, &metas).unwrap();
    let mut memory = sim::SimMemory::new(&kernel, &launch);
    for (input, tensor) in args.iter().enumerate() {
        memory.fill_input(input as u32, &tensor.data).unwrap();
    }
    sim::run(&kernel, &launch, &mut memory, &SimOptions::default()).unwrap();
}

#[test]
fn offsets_of_no_groups_leave_memory_alone() {
    crate::property::property(|u| {
        let splits_sums: bool = u.arbitrary()?;
        let offsets = *u.choose(&[DType::I32, DType::I64])?;
        let far = if offsets == DType::I32 { i64::from(i32::MAX) } else { i64::MAX };
        let values = [-far, -1, 0, 3, 40, 70, 71, far];
        let ends = (0..6).map(|_| u.choose(&values).copied()).collect::<arbtest::arbitrary::Result<Vec<i64>>>()?;
        let (dims, right) = if splits_sums { ("?, ?", vec![70, 9]) } else { ("?, ?, ?", vec![6, 70, 9]) };
        let text = format!(
            "fusion @f(%a: f32[?, ?], %b: f32[{dims}], %c: {offsets}[?]) {{\n  \
             %y = grouped_sums %a, %b, %c\n  return %y\n}}\n"
        );
        let fusion = engine::text::parse_one(&text).unwrap();
        let (a, b) = (laid_out(u, DType::F32, &[70, 70])?, laid_out(u, DType::F32, &right)?);
        let args = [a, b, HostTensor::from_i64(offsets, &[6], &ends).unwrap()];
        check_memory(&fusion, &args, u.arbitrary()?);
        Ok(())
    })
    .cases(30);
}

#[test]
fn who_writes_last() {
    crate::property::property(|u| {
        let (lines, positions) = (*u.choose(&[1, 3, 140])?, *u.choose(&[1, 7, 300, 2000])?);
        let places = *u.choose(&[1, 5, 100, 200, 3000, 9000])?;
        let dtype = *u.choose(&[DType::I64, DType::I32, DType::U8, DType::I16])?;
        let axis = u.int_in_range(0..=1)?;
        let text = format!(
            "fusion @f(%i: {dtype}[?, ?], %n: i64) {{\n  %y = last_position %i, %n dim({axis})\n  return %y\n}}\n"
        );
        let fusion = engine::text::parse_one(&text).unwrap();
        let mut draw = Draw::new(u.arbitrary()?);
        let most = places.min(if dtype.bits() == 8 { 256 } else { 1 << 15 });
        let sizes = if axis == 1 { [lines, positions] } else { [positions, lines] };
        let index =
            HostTensor::from_fn(dtype, &sizes, |_| engine::num::Value::Int(draw.below(most as usize) as i64)).unwrap();
        check_args(&fusion, &[Arg::Tensor(index), Arg::Scalar(engine::num::Value::Int(places))]);
        Ok(())
    })
    .cases(60);
}

/// Rows and columns of what rows are added to, and how many rows these are.
fn rows_to_add(u: &mut arbtest::arbitrary::Unstructured<'_>) -> arbtest::arbitrary::Result<(Vec<i64>, i64)> {
    let mut sizes = vec![*u.choose(&[1, 2, 9, 40, 300])?];
    let tails: &[&[i64]] = &[&[], &[1], &[3], &[16], &[40], &[96], &[2304], &[3, 8], &[1, 24], &[4, 5], &[2, 1, 8]];
    sizes.extend(*u.choose(tails)?);
    Ok((sizes, *u.choose(&[1, 3, 30, 200, 1000])?))
}

fn put_of_runs(dtype: DType, value: DType, rank: usize, [ends, order]: [DType; 2]) -> Fusion {
    let dims = vec!["?"; rank].join(", ");
    let text = format!(
        "fusion @f(%a: {dtype}[{dims}], %e: {ends}[?], %o: {order}[?], %v: {value}[{dims}]) {{\n  \
         %y = index_put_runs %a, %e, %o, %v\n  return %y\n}}\n"
    );
    engine::text::parse_one(&text).unwrap()
}

/// A type whose values are added to sums of another one: that, or a narrower one.
fn type_of_rows(u: &mut arbtest::arbitrary::Unstructured<'_>, dtype: DType) -> arbtest::arbitrary::Result<DType> {
    use DType::{BF16, F8E4M3FN, F8E5M2, F16, F32, F64};
    match dtype {
        F32 => Ok(*u.choose(&[F32, F16, BF16, F8E5M2])?),
        F64 => Ok(*u.choose(&[F64, F32, BF16, F8E4M3FN])?),
        _ => Ok(dtype),
    }
}

/// Where the runs of so many places end that get so many rows in all, at most so many at once.
fn ends_of_runs(draw: &mut Draw, [places, length, most]: [i64; 3]) -> Vec<i64> {
    let mut counts = vec![0; places as usize];
    let mut left = length;
    while left > 0 {
        let count = (1 + draw.below(most as usize) as i64).min(left);
        counts[draw.below(places as usize)] += count;
        left -= count;
    }
    let up_to = |sum: &mut i64, count: &i64| {
        *sum += count;
        Some(*sum)
    };
    counts.iter().scan(0, up_to).collect()
}

#[test]
fn rows_that_are_added() {
    crate::property::property(|u| {
        use DType::{BF16, C64, F8E4M3FN, F16, F32, F64, I8, I32, I64, U8};
        let dtype = *u.choose(&[F64, F32, F16, BF16, F8E4M3FN, C64, I64, I32, I8, U8])?;
        let (sizes, length) = rows_to_add(u)?;
        let mut of_value = sizes.clone();
        of_value[0] = length;
        let mut draw = Draw::new(u.arbitrary()?);
        // Sums of eight bits are exact where they are small.
        let most = if dtype.is_float() && dtype.bits() == 8 { 3 } else { length };
        let ends = ends_of_runs(&mut draw, [sizes[0], length, most]);
        // Each row once, but not in order.
        let order: Vec<i64> = (0..length).map(|i| (i + length / 2) % length).collect();
        let types = [*u.choose(&[I64, I32])?, *u.choose(&[I64, I32])?];
        let value = type_of_rows(u, dtype)?;
        let fusion = put_of_runs(dtype, value, sizes.len(), types);
        let [ends, order] = [(types[0], ends), (types[1], order)]
            .map(|(dtype, of)| HostTensor::from_i64(dtype, &[of.len() as i64], &of).unwrap());
        let args = [laid_out(u, dtype, &sizes)?, ends, order, laid_out(u, value, &of_value)?];
        check_args(&fusion, &args.map(Arg::Tensor));
        Ok(())
    })
    .cases(200);
}

/// Places of an index: many that all have some, few of many, or one for all; those that there are not belong to none.
fn index_of_places(
    u: &mut arbtest::arbitrary::Unstructured<'_>,
    [places, length]: [i64; 2],
    dtype: DType,
    is_right: bool,
) -> arbtest::arbitrary::Result<HostTensor> {
    let mut draw = Draw::new(u.arbitrary()?);
    let (is_one, own) = (u.ratio(1, 4)?, draw.below(places as usize) as i64);
    let signed = !dtype.is_unsigned();
    let value = |_: &[i64]| {
        let place = if is_one { own } else { draw.below(places as usize) as i64 };
        let place = if signed && draw.once_in(3) { place - places } else { place };
        let far = [places, -places - 1, i64::from(i32::MAX), i64::from(i32::MIN)];
        engine::num::Value::Int(if !is_right && draw.once_in(4) { far[draw.below(far.len())] } else { place })
    };
    Ok(HostTensor::from_fn(dtype, &[length], value).unwrap())
}

#[test]
fn positions_by_place() {
    crate::property::property(|u| {
        let (places, length) =
            (*u.choose(&[1, 2, 100, 511, 512, 3000, 70_000, 300_000])?, *u.choose(&[1, 31, 300, 2048, 2049, 9000])?);
        let dtype = *u.choose(&[DType::I64, DType::I32, DType::U64, DType::U32])?;
        let asked = *u.choose(&["%e, %o", "%e", "%o"])?;
        let text =
            format!("fusion @f(%i: {dtype}[?], %n: i64) {{\n  %e, %o = index_runs %i, %n\n  return {asked}\n}}\n");
        let fusion = engine::text::parse_one(&text).unwrap();
        let index = index_of_places(u, [places, length], dtype, true)?;
        check_args(&fusion, &[Arg::Tensor(index), Arg::Scalar(engine::num::Value::Int(places))]);
        Ok(())
    })
    .cases(60);
}

#[test]
fn places_that_there_are_not_leave_memory_alone() {
    crate::property::property(|u| {
        let (places, length) = (*u.choose(&[1, 100, 511, 3000])?, *u.choose(&[1, 300, 2049, 5000])?);
        let dtype = *u.choose(&[DType::I64, DType::I32, DType::U64])?;
        let text = format!("fusion @f(%i: {dtype}[?]) {{\n  %e, %o = index_runs %i, {places}\n  return %e, %o\n}}\n");
        let fusion = engine::text::parse_one(&text).unwrap();
        let index = index_of_places(u, [places, length], dtype, false)?;
        check_memory(&fusion, &[index], u.arbitrary()?);
        Ok(())
    })
    .cases(30);
}

#[test]
fn elements_by_place() {
    crate::property::property(|u| {
        let places = *u.choose(&[1, 2, 100, 511, 3000, 8192, 9000])?;
        let length = *u.choose(&[1, 31, 300, 2049, 17_000, 40_001])?;
        let dtype = *u.choose(&[DType::I64, DType::I32, DType::U64, DType::U32])?;
        let text = format!("fusion @f(%i: {dtype}[?], %n: i64) {{\n  %y = index_counts %i, %n\n  return %y\n}}\n");
        let fusion = engine::text::parse_one(&text).unwrap();
        let index = index_of_places(u, [places, length], dtype, true)?;
        check_args(&fusion, &[Arg::Tensor(index), Arg::Scalar(engine::num::Value::Int(places))]);
        let text = format!("fusion @f(%i: {dtype}[?]) {{\n  %y = index_counts %i, {places}\n  return %y\n}}\n");
        let fusion = engine::text::parse_one(&text).unwrap();
        let index = index_of_places(u, [places, length], dtype, false)?;
        check_memory(&fusion, &[index], u.arbitrary()?);
        Ok(())
    })
    .cases(30);
}

/// There is no memory for so many here; the kernel is made and verified.
#[test]
fn more_places_than_an_i32_counts() {
    let text = "fusion @f(%i: i64[?], %n: i64) {\n  %e, %o = index_runs %i, %n\n  return %e, %o\n}\n";
    let fusion = engine::text::parse_one(text).unwrap();
    let index = HostTensor::from_i64(DType::I64, &[3000], &[0; 3000]).unwrap();
    let cx = CompileCx { options: &Options::default(), device: &DeviceDesc::h200(), trace: &NoTrace };
    for places in [(1_i64 << 31) - 2, (1 << 31) - 1, 1 << 31, 1 << 33] {
        let metas = [ArgMeta::Tensor(index.meta.clone()), ArgMeta::Scalar(engine::num::Value::Int(places))];
        compile::compile_fusion(&cx, &fusion, &metas, &[16, 16]).unwrap();
    }
}

#[test]
fn rows_that_are_added_in_groups() {
    crate::property::property(|u| {
        let dtype = *u.choose(&[DType::F32, DType::BF16, DType::F16])?;
        let (groups, size) = (*u.choose(&[2, 9, 40, 300])?, *u.choose(&[2, 3, 8])?);
        let (columns, length) = (*u.choose(&[2, 3, 16, 40, 96, 333, 2304])?, *u.choose(&[3, 30, 200, 1000])?);
        let text = format!(
            "fusion @f(%e: i32[?], %o: i32[?], %v: {dtype}[?, ?], %w: {dtype}[?, ?]) {{\n  \
             %y = weighted_runs %e, %o, %v, %w\n  return %y\n}}\n"
        );
        let fusion = engine::text::parse_one(&text).unwrap();
        let mut draw = Draw::new(u.arbitrary()?);
        let ends = ends_of_runs(&mut draw, [groups * size, length, *u.choose(&[1, length])?]);
        let order: Vec<i64> = (0..length).map(|i| (i + length / 2) % length).collect();
        let [ends, order] = [ends, order].map(|of| HostTensor::from_i64(DType::I32, &[of.len() as i64], &of).unwrap());
        let args = [ends, order, laid_out(u, dtype, &[length, columns])?, laid_out(u, dtype, &[groups, size])?];
        check_args(&fusion, &args.map(Arg::Tensor));
        Ok(())
    })
    .cases(60);
}

#[test]
fn rows_that_are_added_to_a_number() {
    crate::property::property(|u| {
        use DType::{BF16, F32, F64, I32, I64, U8};
        let dtype = *u.choose(&[F64, F32, BF16, I64, U8])?;
        let (sizes, length) = rows_to_add(u)?;
        let mut of_value = sizes.clone();
        of_value[0] = length;
        let mut draw = Draw::new(u.arbitrary()?);
        let ends = ends_of_runs(&mut draw, [sizes[0], length, 1]);
        let order: Vec<i64> = (0..length).map(|i| (i + length / 2) % length).collect();
        let (dims, number) = (vec!["?"; sizes.len()].join(", "), u.choose(&["0", "3"])?);
        let value = type_of_rows(u, dtype)?;
        let given = if value == dtype { String::new() } else { format!(" dtype({dtype})") };
        let text = format!(
            "fusion @f(%e: i32[?], %o: i64[?], %v: {value}[{dims}]) {{\n  \
             %y = index_put_runs {number}, %e, %o, %v{given}\n  return %y\n}}\n"
        );
        let fusion = engine::text::parse_one(&text).unwrap();
        let [ends, order] = [(I32, ends), (I64, order)]
            .map(|(dtype, of)| HostTensor::from_i64(dtype, &[of.len() as i64], &of).unwrap());
        check_args(&fusion, &[ends, order, laid_out(u, value, &of_value)?].map(Arg::Tensor));
        Ok(())
    })
    .cases(100);
}

#[test]
fn ends_that_do_not_ascend_leave_memory_alone() {
    crate::property::property(|u| {
        let (sizes, length) = rows_to_add(u)?;
        let mut of_value = sizes.clone();
        of_value[0] = length;
        let types = [*u.choose(&[DType::I64, DType::I32])?, *u.choose(&[DType::I64, DType::U64])?];
        let fusion = put_of_runs(DType::F32, DType::F32, sizes.len(), types);
        let mut draw = Draw::new(u.arbitrary()?);
        let numbers = [(types[0], sizes[0]), (types[1], length)].map(|(dtype, count)| {
            let far = if dtype == DType::I32 { i64::from(i32::MAX) } else { i64::MAX };
            let values = [-far, -1, 0, 1, 5, sizes[0] - 1, sizes[0], length - 1, length, far];
            let value = |_: &[i64]| engine::num::Value::Int(values[draw.below(values.len())]);
            HostTensor::from_fn(dtype, &[count], value).unwrap()
        });
        let [ends, order] = numbers;
        let args = [laid_out(u, DType::F32, &sizes)?, ends, order, laid_out(u, DType::F32, &of_value)?];
        check_memory(&fusion, &args, u.arbitrary()?);
        Ok(())
    })
    .cases(60);
}
