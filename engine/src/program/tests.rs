//! Places of values, and the steps of whole programs.

use super::arena::{GRANULE, Lifetime, bound, place};
use super::{Program, ResultMemory, RngOffset, ScalarUse, Step, Storage};
use crate::compile::{BoundFusion, FreshPlans};
use crate::diag::code;
use crate::fusion::bind;
use crate::kernel::{self, BoundParam};
use crate::num::{DType, Value};
use crate::options::{CompileCx, DeviceDesc, NoTrace, Options};
use crate::property::property;
use crate::segment::tests::chain_over_both_axes;
use crate::segment::{Derived, segment};
use crate::tensor::{ArgMeta, TensorMeta};
use crate::text;
use std::sync::Arc;

fn dense(sizes: &[i64]) -> ArgMeta {
    ArgMeta::Tensor(TensorMeta::contiguous(DType::F32, sizes))
}

/// The program of a fusion of dense `f32` inputs.
fn program(text: &str, sizes: &[&[i64]]) -> Program {
    program_of(text, &sizes.iter().map(|sizes| dense(sizes)).collect::<Vec<_>>())
}

fn program_of(text: &str, args: &[ArgMeta]) -> Program {
    program_with(text, args, &Options::default())
}

fn program_with(text: &str, args: &[ArgMeta], options: &Options) -> Program {
    let fusion = text::parse_one(text).unwrap();
    let device = DeviceDesc::h200();
    let cx = CompileCx { options, device: &device, trace: &NoTrace };
    let (bindings, alignments) = (bind(&fusion, args).unwrap(), vec![16; args.len()]);
    let bound = BoundFusion { fusion: &fusion, bindings: &bindings, args, alignments: &alignments };
    let segments = segment(&cx, &FreshPlans(cx), &Derived::new(&cx, &fusion).unwrap(), &bound).unwrap();
    Program::new(Arc::new(segments), args).unwrap()
}

/// Fails where two values that are alive at once share a byte, or one leaves the arena.
#[track_caller]
fn check_places(values: &[Lifetime], offsets: &[u64], length: u64) {
    for (a, value) in values.iter().enumerate() {
        assert!(offsets[a].is_multiple_of(GRANULE) && offsets[a] + value.bytes <= length);
        for (b, other) in values.iter().enumerate().skip(a + 1) {
            let apart = value.last < other.first || other.last < value.first;
            let beside = offsets[a] + value.bytes <= offsets[b] || offsets[b] + other.bytes <= offsets[a];
            assert!(apart || beside || value.bytes.min(other.bytes) == 0, "{a} and {b} of {values:?}: {offsets:?}");
        }
    }
    assert!(length >= bound(values));
}

#[test]
fn values_that_are_alive_at_once_lie_apart_and_tightly() {
    let mut shares = Vec::new();
    property(|u| {
        let steps = u.int_in_range(1..=40)?;
        let mut values = Vec::new();
        for _ in 0..u.int_in_range(1..=60)? {
            let first = u.int_in_range(0..=steps - 1)?;
            // Most results are read soon, a few at the end.
            let life = if u.ratio(1, 6)? { steps } else { u.int_in_range(0..=3)? };
            let bytes = u.int_in_range(0..=20_u32)? as u64 * u.int_in_range(1..=9_u32)? as u64 * 100;
            values.push(Lifetime { bytes, first, last: (first + life).min(steps) });
        }
        let (offsets, length) = place(&values);
        check_places(&values, &offsets, length);
        if bound(&values) > 0 {
            shares.push(length as f64 / bound(&values) as f64);
        }
        Ok(())
    });
    shares.sort_by(f64::total_cmp);
    let at = |share: f64| shares[((shares.len() - 1) as f64 * share) as usize];
    let enough = shares.len() * 2 > crate::property::draws::drawn(1000).len();
    assert!(enough && at(0.5) <= 1.0 && at(0.99) <= 1.1 && at(1.0) <= 1.25, "{} {}", at(0.99), at(1.0));
}

#[test]
fn a_chain_of_segments_needs_two_places() {
    // Each sum over the other axis is a kernel of its own; what lies between is too much to be done again.
    let text = chain_over_both_axes(6, 8);
    let program = program(&text, &[&[64, 128]]);
    let large = program.values.values().filter(|value| matches!(value.storage, Storage::Arena { .. })).count();
    let tensor = 4 * 64 * 128;
    assert!(large >= 5 && (tensor..=2 * tensor + 1024).contains(&program.arena_bytes), "{program}");
}

#[test]
fn steps_say_what_they_read_write_and_give_up() {
    let text = "fusion @f(%x: f32[?, ?], %w: f32[?, ?], %old: f32[?, ?]) {
  %a = matmul %x, %w
  %b = add %a, %old
  %c = exp %b
  update %old = %b
  return %c, %b
}";
    let program = program(text, &[&[4, 8], &[8, 4], &[4, 4]]);
    let [Step::Library(product), Step::Launch(sum), Step::Copy(update)] = &program.steps[..] else {
        panic!("{program}")
    };
    let storage = |value| program.values[value].storage;
    assert_eq!(storage(product.call.outputs[0]), Storage::Arena { offset: 0 });
    assert_eq!(sum.frees, product.call.outputs, "{program}");
    assert!(sum.outputs.iter().any(|output| storage(*output) == Storage::Output(0)), "{program}");
    assert!(sum.outputs.contains(&update.from) && storage(update.to) == Storage::Input(2), "{program}");
    // What an input becomes is returned as that input.
    assert_eq!(
        program.outputs.iter().map(|value| storage(*value)).collect::<Vec<_>>(),
        [Storage::Output(0), Storage::Input(2)]
    );
    assert_eq!(program.updated().collect::<Vec<_>>(), [(2, update.to)]);
    assert_eq!((program.library_calls().count(), program.on_host().count(), program.host_bytes()), (1, 0, 0));
}

#[test]
fn inputs_that_become_each_other_are_read_before_either_is_written() {
    let text = "fusion @swap(%a: f32[?], %b: f32[?]) {\n  update %a = %b\n  update %b = %a\n  return\n}";
    let Ok(fusion) = text::parse_one(text) else { panic!("it reads") };
    drop(fusion);
    let program = program(text, &[&[8], &[8]]);
    let mut written = Vec::new();
    for step in &program.steps {
        assert!(step.reads().iter().all(|value| !written.contains(value)), "{program}");
        written
            .extend(step.writes().iter().copied().filter(|v| matches!(program.values[*v].storage, Storage::Input(_))));
    }
    assert_eq!(written.len(), 2);
}

/// What a program's scalar `%s` is said to do, held against programs for two of its values:
/// where it is only passed on, they differ in the parameters that it is and in nothing else.
#[track_caller]
fn check_scalar_use(text: &str, values: [Value; 2], expected: ScalarUse) {
    let [a, b] = values.map(|value| program_of(text, &[dense(&[6, 8]), ArgMeta::Scalar(value)]));
    assert_eq!([a.scalar_use(), b.scalar_use()], [expected; 2], "{a}");
    if expected == ScalarUse::Decide {
        return;
    }
    let places = |program: &Program| program.values.values().map(|v| (v.meta.clone(), v.storage)).collect::<Vec<_>>();
    assert_eq!(places(&a), places(&b));
    let mut passed = 0;
    for (one, other) in a.launches().zip(b.launches()) {
        assert_eq!((one.launch.grid, one.launch.block), (other.launch.grid, other.launch.block));
        let params = a.scalar_params(one);
        passed += params.len();
        for (id, (bound, wanted)) in
            one.plan.kernel().params.ids().zip(one.launch.params.iter().zip(&other.launch.params))
        {
            let BoundParam::Scalar { dtype, value } = *wanted else { continue };
            if params.contains(&id) {
                let found = a.scalar_param(one, id, &|position| (position == 1).then_some(values[1])).unwrap();
                assert_eq!(BoundParam::Scalar { dtype, value: found }, BoundParam::Scalar { dtype, value });
            } else {
                assert_eq!(bound, wanted, "{a}");
            }
        }
    }
    assert!(passed > 0, "{a}");
}

#[test]
fn scalars_are_passed_on_or_decide() {
    use ScalarUse::{Decide, Passed};
    let body = |kind: &str, lines: &str| format!("fusion @f(%x: f32[?, ?], %s: {kind}) {{\n{lines}  return %y\n}}");
    let floats = [Value::Float(0.5), Value::Float(3.0)];
    check_scalar_use(&body("f64", "  %y = mul %x, %s\n"), floats, Passed);
    // Behind a segment, and twice.
    let cut = "  %0 = mul %x, %s\n  %1 = segment_set %0\n  %2 = sum %1 axes(1)\n  %y = add %2, %s\n";
    check_scalar_use(&body("f64", cut), floats, Passed);
    check_scalar_use(&body("f64", "  %0 = full [6, 8] %s f32\n  %y = add %0, %x\n"), floats, Passed);
    let ints = [Value::Int(2), Value::Int(3)];
    // A size, a place, and what the host reads.
    check_scalar_use(&body("i64", "  %y = full [%s] 1.0 f32\n"), ints, Decide);
    check_scalar_use(&body("i64", "  %0 = add %s, 2\n  %y = slice %x starts(0, %s) ends(6, %0)\n"), ints, Decide);
    let host = "  %c = cast %x f8e8m0fnu\n  %n = size %x axis(0)\n  %r = iota %n\n  %i = index_put_accumulate %c, %r, %c\n  \
                %0 = cast %i f32\n  %y = mul %0, %s\n";
    check_scalar_use(&body("f64", host), floats, Passed);
}

/// Whose memory results are in, where they may be views and where not.
#[track_caller]
fn check_results(body: &str, views: &[ResultMemory], own: &[ResultMemory]) {
    let text = format!("fusion @f(%x: f32[?, ?], %y: f32[?, ?]) {{\n{body}\n}}");
    let args = [dense(&[4, 6]), dense(&[6, 4])];
    for (alias_results, expected) in [(true, views), (false, own)] {
        let program = program_with(&text, &args, &Options { alias_results, ..Options::default() });
        assert_eq!(program.result_memories().collect::<Vec<_>>(), expected, "{program}");
    }
}

#[test]
fn results_lie_where_their_elements_are() {
    use ResultMemory::{Argument, Own, Result};
    let at = |position| Argument { position, offset: 0 };
    check_results("  %0 = permute %x dims(1, 0)\n  return %0, %y", &[at(0), at(1)], &[Own, Own]);
    let slice = "  %0 = slice %x starts(1, 2) ends(3, 5)\n  return %0";
    check_results(slice, &[Argument { position: 0, offset: 32 }], &[Own]);
    let views =
        "  %0 = neg %x\n  %1 = slice %0 starts(1, 2) ends(3, 5)\n  %2 = permute %0 dims(1, 0)\n  return %1, %0, %2";
    let in_second = |offset| Result { position: 1, offset };
    check_results(views, &[in_second(32), Own, in_second(0)], &[Own, Own, Own]);
    // A view of the old value of what is updated is a copy, whatever it is a view by.
    for view in ["permute %x dims(1, 0)", "slice %x starts(0, 0) ends(2, 2)", "reshape [24] %x"] {
        let body = format!("  %0 = {view}\n  %1 = add %x, 1\n  update %x = %1\n  return %0, %1");
        check_results(&body, &[Own, at(0)], &[Own, at(0)]);
    }
    check_results("  %0 = permute %y dims(1, 0)\n  update %x = %0\n  return %y", &[at(1)], &[Own]);
}

#[test]
fn a_view_of_what_nobody_else_has_is_returned_without_a_copy() {
    let copies = |text: &str| {
        let options = Options { alias_results: false, ..Options::default() };
        let program = program_with(text, &[dense(&[4, 6])], &options);
        program.steps.iter().filter(|step| matches!(step, Step::Copy(_))).count()
    };
    let returning = |results: &str| {
        format!(
            "fusion @f(%x: f32[?, ?]) {{\n  %0 = neg %x\n  %1 = reshape [24] %0\n  %2 = reshape [2, 12] %0\n  return {results}\n}}"
        )
    };
    assert_eq!(copies(&returning("%1")), 0);
    assert_eq!(copies(&returning("%1, %2")), 1);
    assert_eq!(copies(&returning("%0, %1")), 1);
}

/// The arguments that offsets come from, with how many there are; of a fusion with the tensor
/// `%x` and the scalars `%seed`, `%offset` and `%other`.
fn offsets(body: &str) -> crate::diag::Result<Vec<(u32, u64)>> {
    let head = "fusion @f(%x: f32[?, ?], %seed: i64, %offset: i64, %other: i64)";
    let scalar = |value| ArgMeta::Scalar(Value::Int(value));
    let program = program_of(&format!("{head} {{\n{body}\n}}"), &[dense(&[6, 8]), scalar(7), scalar(40), scalar(3)]);
    let found = program.rng_offsets()?;
    for RngOffset { position, count } in &found {
        // Offsets behind those that were used reach kernels as parameters, and nothing else does.
        let drawn = |by: i64| {
            let scalar = |at: u32| {
                [None, Some(7), Some(40), Some(3)][at as usize].map(|own| own + if at == *position { by } else { 0 })
            };
            let values = |launch| {
                let params = program.scalar_params(launch).into_iter();
                params
                    .map(|id| program.scalar_param(launch, id, &|at| scalar(at).map(Value::Int)).unwrap().as_i64())
                    .collect()
            };
            program.launches().map(values).collect::<Vec<Vec<i64>>>()
        };
        assert_ne!(drawn(0), drawn(*count as i64), "{program}");
    }
    Ok(found.into_iter().map(|found| (found.position, found.count)).collect())
}

#[test]
fn offsets_of_random_numbers_come_from_arguments() {
    let drawing = |offsets: &[&str]| {
        let mut body = String::from(
            "  %s0 = add %offset, 1\n  %s1 = sub %s0, 5\n  %s2 = add %other, %offset\n  %s3 = mul %offset, 2\n",
        );
        let mut sum = "x".to_string();
        for (i, offset) in offsets.iter().enumerate() {
            body += &format!("  %r{i} = rand_like %x, %seed, %{offset}\n  %y{i} = add %{sum}, %r{i}\n");
            sum = format!("y{i}");
        }
        body + &format!("  return %{sum}")
    };
    assert_eq!(offsets(&drawing(&["offset"])).unwrap(), [(2, 1)]);
    assert_eq!(offsets(&drawing(&["offset", "s0"])).unwrap(), [(2, 2)]);
    assert_eq!(offsets(&drawing(&["s1", "other", "s0"])).unwrap(), [(2, 6), (3, 1)]);
    assert_eq!(offsets("  %r = rand_like %x, %seed, 4\n  return %r").unwrap(), []);
    for other in ["s2", "s3"] {
        assert_eq!(offsets(&drawing(&[other])).unwrap_err().code, code::RNG_OFFSET);
    }
    let decides = "  %r = rand_like %x, %seed, %offset\n  %y = full [%offset] 1.0 f32\n  return %r, %y";
    assert_eq!(offsets(decides).unwrap_err().code, code::RNG_OFFSET);
}

#[test]
fn parts_are_written_into_the_memory_of_the_whole() {
    let text = "fusion @f(%x: f32[?, ?], %y: f32[?, ?]) {
  %a = softmax %x axis(1)
  %b = softmax %y axis(1)
  %c = cat %a, %b dim(1)
  %s = sum %c axes(0)
  return %s
}";
    let program = program(text, &[&[8, 64], &[8, 32]]);
    let [Step::Launch(first), Step::Launch(second), Step::Launch(sum)] = &program.steps[..] else {
        panic!("{program}")
    };
    let places = [first, second].map(|launch| program.root(launch.outputs[0]));
    let whole = sum.inputs[0].unwrap();
    assert_eq!(places, [(whole, 0), (whole, 256)], "{program}");
    // It is alive from its first part to its last reader, and there is nothing beside it.
    assert!(first.frees.is_empty() && second.frees.is_empty() && sum.frees == [whole], "{program}");
    assert_eq!(program.arena_bytes, 8 * 96 * 4);
    // Of the elements between first and last, those of the other part are not the kernel's.
    let gaps = |launch: &super::Launch| launch.launch.gaps.values().sum::<u64>();
    assert_eq!([first, second, sum].map(gaps), [7 * 32, 7 * 64, 0]);
}

#[test]
fn parts_begin_anywhere() {
    let text = "fusion @f(%x: f32[?, ?], %y: f32[?, ?]) {
  %a = softmax %x axis(1)
  %b = softmax %y axis(1)
  %c = cat %b, %a dim(1)
  return %c
}";
    let program = program(text, &[&[8, 96], &[8, 35]]);
    let launch = |name: &str| program.launches().find(|launch| program.name_of(launch.outputs[0]) == name).unwrap();
    let start =
        |launch: &super::Launch| launch.plan.kernel().buffers.values().map(|buffer| buffer.start).max().unwrap();
    // Its elements are counted from the last multiple of 16 bytes: those before are not the kernel's either.
    let a = launch("a");
    assert_eq!((start(a), start(launch("b"))), (3, 0), "{program}");
    assert_eq!(a.launch.gaps.values().sum::<u64>(), 3 + 7 * 35);
    let again = kernel::print(&kernel::parse(a.plan.kernel_text()).unwrap());
    assert!(again.contains(" align 16 start 3"), "{again}");
}
