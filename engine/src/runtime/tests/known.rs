//! Results that a caller knows already.

use crate::diag::code;
use crate::num::{DType, Value};
use crate::options::{NoTrace, Options, RunChecks};
use crate::runtime::{Hints, Ran, RunOutcome, Session, results_digest};
use crate::tensor::{Arg, HostTensor, TensorMeta};
use crate::text;
use crate::util::Hash128;

/// A large result with a view of it, a small one, and an argument that is updated.
const TEXT: &str = "fusion @known(%x: f32[?, ?], %y: f32[?, ?]) {
  %0 = add %x, %y
  %1 = permute %0 dims(1, 0)
  %2 = sum %0 axes(1)
  %3 = mul %0, %y
  update %y = %3
  return %0, %1, %2
}";

fn args(rows: i64, columns: i64) -> [Arg; 2] {
    let of = |factor: i64| {
        let value = |at: &[i64]| Value::Float(((at[0] * 31 + at[1] * factor) % 1021) as f64 / 64.0);
        Arg::Tensor(HostTensor::from_fn(DType::F32, &[rows, columns], value).unwrap())
    };
    [of(7), of(13)]
}

fn run(session: &Session, args: &[Arg], known: Option<Hash128>) -> Ran {
    let hints = Hints { results: known };
    session.run_knowing(&text::parse_one(TEXT).unwrap(), args, &hints, &NoTrace).unwrap()
}

fn assert_equal(a: &RunOutcome, b: &RunOutcome) {
    assert!(a.outputs == b.outputs && a.updates == b.updates);
}

/// The digest is of all results, and the simulator brings them in any case.
fn check_digest(session: &Session, args: &[Arg]) -> RunOutcome {
    let first = run(session, args, None).bring(args).unwrap();
    assert_eq!((first.outputs.len(), first.updates.len()), (3, 1));
    let all = || first.outputs.iter().chain(first.updates.iter().map(|(_, tensor)| tensor));
    assert_eq!(first.digest(), results_digest(all()));
    for which in 0..4 {
        let mut other: Vec<HostTensor> = all().cloned().collect();
        *other[which].data.last_mut().unwrap() ^= 1;
        assert!(results_digest(&other) != first.digest(), "{which}");
    }
    first
}

#[test]
fn a_simulator_brings_results_that_are_known() {
    let (session, args) = (super::session(), args(3, 70));
    let first = check_digest(&session, &args);
    let again = run(&session, &args, Some(first.digest()));
    assert_equal(again.brought().unwrap(), &first);
}

/// Who knows results had the reference look at the arguments; what a kernel looks up stays within its axis in any case.
#[test]
fn indices_of_known_results_are_not_looked_at_again() {
    const TEXT: &str = "fusion @rows(%x: f32[?, ?], %index: i64[?]) {
  %0 = index_select %x, %index dim(0)
  %1 = add %0, %0
  return %1
}";
    let (session, fusion) = (super::session(), text::parse_one(TEXT).unwrap());
    let x = HostTensor::from_fn(DType::F32, &[3, 40], |at| Value::Int(at[0] * 40 + at[1])).unwrap();
    let run = |index: &[i64], results: Option<Hash128>| {
        let index = HostTensor::from_i64(DType::I64, &[index.len() as i64], index).unwrap();
        let args = [Arg::Tensor(x.clone()), Arg::Tensor(index)];
        session.run_knowing(&fusion, &args, &Hints { results }, &NoTrace).and_then(|ran| ran.bring(&args))
    };
    let first = run(&[2, 0, 1], None).unwrap();
    assert_equal(&run(&[2, 0, 1], Some(first.digest())).unwrap(), &first);
    assert_eq!(run(&[2, 3, 1], None).unwrap_err().code, code::INDEX);
    let other = run(&[2, 3, 1], Some(first.digest())).unwrap();
    assert!(other.digest() != first.digest());
}

#[test]
#[ignore = "needs a GPU"]
fn needs_gpu_large_results_that_are_known_stay_there() {
    let session = Session::cuda(0, Options::default()).unwrap();
    for (rows, columns) in [(513, 1023), (1024, 4096)] {
        let args = args(rows, columns);
        let first = check_digest(&session, &args);
        assert!(run(&session, &args, Some(Hash128(first.digest().0 ^ 1))).brought().is_some());
        let before = session.memory().unwrap().live;
        let held = run(&session, &args, Some(first.digest()));
        assert!(held.brought().is_none() && held.digest() == first.digest());
        let metas: Vec<&TensorMeta> = first.outputs.iter().map(|output| &output.meta).collect();
        assert_eq!(held.output_metas(&args).unwrap(), metas);
        // Another call has other memory, and other arguments give other results.
        let mut others = args.clone();
        let Arg::Tensor(x) = &mut others[0] else { panic!("no tensor") };
        *x.data.last_mut().unwrap() ^= 1;
        let other = run(&session, &others, Some(first.digest()));
        assert!(other.digest() != first.digest() && other.brought().is_some());
        assert!(session.memory().unwrap().live > before);
        assert_equal(&held.bring(&args).unwrap(), &first);
        assert_eq!(session.memory().unwrap().live, before);
    }
    // What is small is brought, as is all where nothing is checked.
    let few = args(4, 100);
    let digest = run(&session, &few, None).digest();
    assert!(run(&session, &few, Some(digest)).brought().is_some());
    let (session, many) = (session.with_checks(RunChecks::NONE), args(1024, 4096));
    let digest = run(&session, &many, None).digest();
    assert!(run(&session, &many, Some(digest)).brought().is_some());
}
