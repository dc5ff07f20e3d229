use crate::fusion::ops::checks::{
    check_refused, check_steps, check_value, counting, dense, refusal, result, results, strided,
};
use crate::num::DType::*;
use crate::tensor::HostTensor;
use arbtest::arbitrary;

fn ints(sizes: &[i64], values: &[f64]) -> HostTensor {
    dense(I64, sizes, values)
}

/// `[[0, 1, 2], [3, 4, 5]]`.
fn table() -> HostTensor {
    dense(F32, &[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
}

#[test]
fn one_position_is_a_view() {
    let x = table();
    let one = std::slice::from_ref(&x);
    check_value("%0 = select %a, 1 dim(0)", one, F32, &[3], &[3.0, 4.0, 5.0]);
    check_value("%0 = select %a, -1 dim(-1)", one, F32, &[2], &[2.0, 5.0]);
    check_value("%n = size %a axis(0)\n%i = sub %n, 2\n%0 = select %a, %i dim(1)", one, F32, &[2], &[0.0, 3.0]);
    assert_eq!(result("%0 = select %a, 1 dim(1)", one).strides(), [3]);
    for (at, expected) in [(1.0, [3.0, 4.0, 5.0]), (-2.0, [0.0, 1.0, 2.0])] {
        let place = dense(I32, &[], &[at]);
        check_value("%0 = select %a, %b dim(0)", &[x.clone(), place], F32, &[3], &expected);
    }
    let line = ints(&[1], &[0.0]);
    check_refused("%0 = select %a, %b dim(0)", &[x.clone(), line], "E0203: select: the index has rank 1, not 0");
    check_refused("%0 = select %a, 2 dim(0)", one, "E0310: select: position 2 of axis 0, which has 2 elements");
    check_refused("%0 = select %a, -4 dim(1)", one, "E0310: select: position -4 of axis 1, which has 3 elements");
    check_refused("%0 = select %a, 0 dim(2)", one, "E0205: select: axis 2 of an operand of rank 2");
    check_refused("%0 = select %a, 0.5 dim(0)", one, "E0202: select: the index is a f64, not an integer");
}

#[test]
fn positions_along_an_axis_are_listed() {
    let x = table();
    let list = ints(&[2], &[2.0, 0.0]);
    check_value("%0 = index_select %a, %b dim(1)", &[x.clone(), list], F32, &[2, 2], &[2.0, 0.0, 5.0, 3.0]);
    let point = dense(I32, &[], &[1.0]);
    check_value("%0 = index_select %a, %b dim(0)", &[x.clone(), point], F32, &[1, 3], &[3.0, 4.0, 5.0]);
    let spread = ints(&[1, 2], &[1.0, 1.0]);
    check_value("%0 = index_select %a, %b dim(1)", &[x.clone(), spread], F32, &[2, 2], &[1.0, 1.0, 4.0, 4.0]);
    check_value("%0 = index_select %a, %b dim(0)", &[x.clone(), ints(&[0], &[])], F32, &[0, 3], &[]);
    let far = [x.clone(), ints(&[2], &[0.0, 3.0])];
    let message = "E0310: index_select: index[1] is 3, axis 1 has 3 elements";
    assert_eq!(refusal("%0 = index_select %a, %b dim(1)", &far), message);
    let negative = [x.clone(), ints(&[1], &[-1.0])];
    let message = "E0310: index_select: index[0] is -1, axis 1 has 3 elements";
    assert_eq!(refusal("%0 = index_select %a, %b dim(1)", &negative), message);
    check_refused(
        "%0 = index_select %a, %b dim(0)",
        &[x.clone(), ints(&[2, 2], &[0.0; 4])],
        "E0203: index_select: the index has rank 2, not 0 or 1",
    );
    check_refused(
        "%0 = index_select %a, %b dim(0)",
        &[x, counting(F32, &[2])],
        "E0202: index_select: the index is a f32, not an integer",
    );
}

#[test]
fn elements_are_gathered_along_an_axis() {
    let x = table();
    let index = ints(&[1, 2], &[2.0, 1.0]);
    check_value("%0 = gather %a, %b dim(1)", &[x.clone(), index.clone()], F32, &[1, 2], &[2.0, 1.0]);
    check_value("%0 = take_along_axis %a, %b dim(1)", &[x.clone(), index], F32, &[2, 2], &[2.0, 1.0, 5.0, 4.0]);
    let rows = ints(&[3, 3], &[0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
    let taken = [0.0, 4.0, 2.0, 3.0, 4.0, 5.0, 0.0, 1.0, 5.0];
    check_value("%0 = gather %a, %b dim(0)", &[x.clone(), rows], F32, &[3, 3], &taken);
    let wide = [x.clone(), ints(&[1, 4], &[0.0; 4])];
    check_refused("%0 = gather %a, %b dim(0)", &wide, "E0204: gather: axis 1 of the index is 4, of the operand 3");
    let far = [x.clone(), ints(&[2, 2], &[0.0, 1.0, 3.0, 0.0])];
    let message = "E0310: gather: index[1, 0] is 3, axis 1 has 3 elements";
    assert_eq!(refusal("%0 = gather %a, %b dim(1)", &far), message);
    check_refused(
        "%0 = take_along_axis %a, %b dim(0)",
        &[x.clone(), ints(&[2, 2], &[0.0; 4])],
        "E0204: take_along_axis: axis 1 of the operand and of the index: 3 and 2 do not broadcast",
    );
    check_refused(
        "%0 = gather %a, %b dim(0)",
        &[x, ints(&[2], &[0.0; 2])],
        "E0203: gather: the index has rank 1, the operand rank 2",
    );
}

#[test]
fn elements_are_put_in_place_of_others() {
    let x = table();
    let index = ints(&[2, 1], &[2.0, 0.0]);
    let src = dense(F32, &[2, 2], &[7.0, 8.0, 9.0, 10.0]);
    let put = [0.0, 1.0, 7.0, 9.0, 4.0, 5.0];
    check_value("%0 = scatter %a, %b, %c dim(1)", &[x.clone(), index.clone(), src.clone()], F32, &[2, 3], &put);
    check_steps("%0 = scatter %a, %b, %c dim(1)", &[x.clone(), index.clone(), src.clone()]);
    check_steps("%0 = scatter %a, %b, -1 dim(1)", &[x.clone(), index.clone()]);
    let filled = [0.0, 1.0, -1.0, -1.0, 4.0, 5.0];
    check_value("%0 = scatter %a, %b, -1 dim(1)", &[x.clone(), index.clone()], F32, &[2, 3], &filled);
    // The last of several wins.
    let twice = ints(&[1, 2], &[1.0, 1.0]);
    let last = [0.0, 8.0, 2.0, 3.0, 4.0, 5.0];
    check_value("%0 = scatter %a, %b, %c dim(1)", &[x.clone(), twice, src], F32, &[2, 3], &last);
    check_refused(
        "%0 = scatter %a, %b, %c dim(1)",
        &[x.clone(), index.clone(), counting(F32, &[1, 3])],
        "E0204: scatter: axis 0 of the index is 2, of src 1",
    );
    check_refused(
        "%0 = scatter %a, %b, inf dim(1)",
        &[counting(I8, &[2, 3]), index],
        "E0106: scatter: inf is not a number of i8",
    );
    let far = [x, ints(&[1, 1], &[5.0])];
    let message = "E0310: scatter: index[0, 0] is 5, axis 1 has 3 elements";
    assert_eq!(refusal("%0 = scatter %a, %b, 0 dim(1)", &far), message);
}

#[test]
fn rows_accumulate() {
    let index = ints(&[3], &[1.0, -2.0, 1.0]);
    let value = dense(F32, &[3, 3], &[1.0, 1.0, 1.0, 10.0, 10.0, 10.0, 2.0, 3.0, 4.0]);
    let sums = [10.0, 11.0, 12.0, 6.0, 8.0, 10.0];
    let inputs = [table(), index.clone(), value.clone()];
    check_value("%0 = index_put_accumulate %a, %b, %c", &inputs, F32, &[2, 3], &sums);
    check_steps("%0 = index_put_accumulate %a, %b, %c", &inputs);
    let turned = dense(F32, &[3, 2], &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]).permuted(&[1, 0]).unwrap();
    let out = result("%0 = index_put_accumulate %a, %b, %c", &[turned, index.clone(), value]);
    assert_eq!((out.strides(), out.to_f64()), (&[1, 2][..], sums.to_vec()));
    // Nobody stores what rows are added to if it is one number.
    let to_number = "%n = size %a axis(0)\n%w = size %c axis(1)\n%x = full [%n, %w] 1.5 f32\n\
                     %0 = index_put_accumulate %x, %b, %c";
    check_steps(to_number, &inputs);
    // Nobody stores rows that are widened, either.
    let rows = dense(BF16, &[3, 3], &[-0.0, 1.0, 1.5, 10.0, -0.0, 10.0, 2.0, 3.0, 4.0]);
    let narrow = [inputs[0].clone(), index.clone(), rows];
    check_steps("%x = cast %c f32\n%0 = index_put_accumulate %a, %b, %x", &narrow);
    let to_number = "%n = size %a axis(0)\n%w = size %c axis(1)\n%x = full [%n, %w] 0.1 f64\n%z = cast %c f64\n\
                     %0 = index_put_accumulate %x, %b, %z";
    check_steps(to_number, &narrow);
    // Integers wrap, and half sums are rounded once.
    let small = [dense(U8, &[1], &[250.0]), ints(&[2], &[0.0; 2]), dense(U8, &[2], &[10.0, 1.0])];
    check_value("%0 = index_put_accumulate %a, %b, %c", &small, U8, &[1], &[5.0]);
    let half = [dense(F16, &[1], &[2048.0]), ints(&[2], &[0.0; 2]), dense(F16, &[2], &[1.0, 1.0])];
    check_value("%0 = index_put_accumulate %a, %b, %c", &half, F16, &[1], &[2050.0]);
    check_refused(
        "%0 = index_put_accumulate %a, %b, %c",
        &[table(), index, counting(F32, &[2, 3])],
        "E0204: index_put_accumulate: axis 0 of the value and of the index: 2 and 3 must be equal",
    );
}

#[test]
fn positions_lie_by_their_places() {
    let runs = |index: &HostTensor, size: i64| {
        let statement = format!("%0, %1 = index_runs %a, {size}");
        results(&statement, std::slice::from_ref(index)).iter().map(HostTensor::to_f64).collect::<Vec<_>>()
    };
    let index = ints(&[6], &[2.0, 0.0, -1.0, 2.0, 0.0, 3.0]);
    assert_eq!(runs(&index, 5), [vec![2.0, 2.0, 4.0, 5.0, 6.0], vec![1.0, 4.0, 0.0, 3.0, 5.0, 2.0]]);
    let message = "E0310: index_runs: index[5] is 3, axis 0 has 3 elements";
    assert_eq!(refusal("%0, %1 = index_runs %a, 3", &[index]), message);
}

#[test]
fn rows_accumulate_by_runs() {
    let statement = "%0 = index_put_runs %a, %b, %c, %d";
    let value = dense(F32, &[3, 3], &[1.0, 1.0, 1.0, 10.0, 10.0, 10.0, 2.0, 3.0, 4.0]);
    let (ends, order) = (ints(&[2], &[1.0, 3.0]), ints(&[3], &[1.0, 0.0, 2.0]));
    let sums = [10.0, 11.0, 12.0, 6.0, 8.0, 10.0];
    check_value(statement, &[table(), ends.clone(), order.clone(), value.clone()], F32, &[2, 3], &sums);
    // What stays is the number.
    let some = [ints(&[3], &[1.0, 3.0, 3.0]), order.clone(), value.clone()];
    let of_number = [11.5, 11.5, 11.5, 4.5, 5.5, 6.5, 1.5, 1.5, 1.5];
    check_value("%0 = index_put_runs 1.5, %a, %b, %c", &some, F32, &[3, 3], &of_number);
    // Narrow rows are added as they are.
    let halves = dense(BF16, &[3, 3], &[1.0, 1.0, 1.0, 10.0, 10.0, 10.0, 2.0, 3.0, 4.0]);
    check_value(statement, &[table(), ends.clone(), order.clone(), halves.clone()], F32, &[2, 3], &sums);
    let narrow = [some[0].clone(), order.clone(), halves.clone()];
    let wide = "%0 = index_put_runs 0.25, %a, %b, %c dtype(f64)";
    let of_number = [10.25, 10.25, 10.25, 3.25, 4.25, 5.25, 0.25, 0.25, 0.25];
    check_value(wide, &narrow, F64, &[3, 3], &of_number);
    let message = "E0202: index_put_runs: the value is f32, the accumulator bf16";
    let wide = [halves.clone(), ints(&[3], &[0.0; 3]), order.clone(), value.clone()];
    check_refused(statement, &wide, message);
    let other = "%0 = index_put_runs %a, %b, %c, %d dtype(f64)";
    let message = "E0202: index_put_runs: the result is f64, the accumulator is f32";
    check_refused(other, &[table(), ends.clone(), order.clone(), value.clone()], message);
    let falling = [table(), ints(&[2], &[1.0, 0.0]), order.clone(), value.clone()];
    let message = "E0213: index_put_runs: run 1 ends at 0, it must end from 1 to 3";
    assert_eq!(refusal(statement, &falling), message);
    let far = [table(), ends.clone(), ints(&[3], &[0.0, 3.0, 0.0]), value.clone()];
    let message = "E0310: index_put_runs: index[1] is 3, axis 0 has 3 elements";
    assert_eq!(refusal(statement, &far), message);
    check_refused(
        statement,
        &[table(), ends.clone(), ints(&[2], &[0.0; 2]), value.clone()],
        "E0204: index_put_runs: axis 0 of the value and of the order: 3 and 2 must be equal",
    );
    check_refused(
        statement,
        &[table(), ends.clone(), ints(&[1, 3], &[0.0; 3]), value.clone()],
        "E0203: index_put_runs: `order` has rank 2, not 1",
    );
    // Groups of places with weights: 2 * 10 + 0.5 * (1 + 2), and so on.
    let weight = dense(F32, &[1, 2], &[2.0, 0.5]);
    let grouped = "%0 = weighted_runs %a, %b, %c, %d";
    check_value(grouped, &[ends.clone(), order.clone(), value.clone(), weight], F32, &[1, 3], &[21.5, 22.0, 22.5]);
    let message = "E0213: weighted_runs: 2 places in 3 groups of 1";
    assert_eq!(refusal(grouped, &[ends, order, value, counting(F32, &[3, 1])]), message);
}

/// Of small numbers, whose sums are exact in any order.
#[test]
fn steps_of_accumulated_rows() {
    crate::property::property(|u| {
        let dtype = *u.choose(&[F64, F32, F16, BF16, I64, I32, U8])?;
        let sizes: Vec<i64> =
            (0..u.int_in_range(1..=3)?).map(|_| u.int_in_range(1..=4)).collect::<arbitrary::Result<_>>()?;
        let mut of_value = sizes.clone();
        of_value[0] = u.int_in_range(1..=6)?;
        let own = *u.choose(&[I64, I32, I8, U8])?;
        let least = if own == U8 { 0 } else { -sizes[0] };
        let places = (0..of_value[0]).map(|_| u.int_in_range(least..=sizes[0] - 1));
        let places = places.collect::<arbitrary::Result<Vec<i64>>>()?;
        let index = HostTensor::from_i64(own, &of_value[..1], &places).unwrap();
        let inputs = [strided(u, dtype, &sizes)?, index, strided(u, dtype, &of_value)?];
        check_steps("%0 = index_put_accumulate %a, %b, %c", &inputs);
        Ok(())
    });
}

#[test]
fn any_layout_is_indexed() {
    crate::property::property(|u| {
        let rank = u.int_in_range(1..=3)?;
        let sizes: Vec<i64> = (0..rank).map(|_| u.int_in_range(1..=4)).collect::<arbitrary::Result<_>>()?;
        let dim = u.int_in_range(0..=rank - 1)?;
        let x = strided(u, F32, &sizes)?;
        let mut taken: Vec<i64> = sizes.iter().map(|&n| u.int_in_range(0..=n)).collect::<arbitrary::Result<_>>()?;
        taken[dim] = u.int_in_range(0..=5)?;
        let mut next = u.int_in_range(0..=7)?;
        let mut draw = |_: &[i64]| {
            next = (next * 5 + 3) % 1009;
            crate::num::Value::Int(next % sizes[dim])
        };
        let index = HostTensor::from_fn(I32, &taken, &mut draw).unwrap();
        let index = if rank == 2 { index.permuted(&[1, 0]).unwrap().permuted(&[1, 0]).unwrap() } else { index };
        let moved = |at: &[i64]| {
            let mut place = at.to_vec();
            place[dim] = index.get(at).as_i64();
            place
        };
        let out = result(&format!("%0 = gather %a, %b dim({dim})"), &[x.clone(), index.clone()]);
        let expected = HostTensor::from_fn(F32, &taken, |at| x.get(&moved(at))).unwrap();
        assert_eq!(out.to_f64(), expected.to_f64());
        let src = strided(u, F32, &taken)?;
        let out = result(&format!("%0 = scatter %a, %b, %c dim({dim})"), &[x.clone(), index.clone(), src.clone()]);
        let mut put = std::collections::BTreeMap::new();
        HostTensor::from_fn(F32, &taken, |at| {
            put.insert(moved(at), src.get(at));
            src.get(at)
        })
        .unwrap();
        let expected =
            HostTensor::from_fn(F32, &sizes, |at| put.get(at).copied().unwrap_or_else(|| x.get(at))).unwrap();
        assert_eq!(out.to_f64(), expected.to_f64());
        if !taken.contains(&0) {
            check_steps(&format!("%0 = scatter %a, %b, %c dim({dim})"), &[x.clone(), index, src]);
        }
        let place = u.int_in_range(-sizes[dim]..=sizes[dim] - 1)?;
        let out = result(&format!("%0 = select %a, {place} dim({dim})"), std::slice::from_ref(&x));
        let expected = HostTensor::from_fn(F32, out.sizes(), |at| {
            let mut at = at.to_vec();
            at.insert(dim, place.rem_euclid(sizes[dim]));
            x.get(&at)
        });
        assert_eq!(out.to_f64(), expected.unwrap().to_f64());
        Ok(())
    });
}
