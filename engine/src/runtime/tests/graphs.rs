//! Recorded calls: what changes from launch to launch.

use crate::num::{DType, Value};
use crate::options::{NoTrace, Options};
use crate::runtime::{Callable, DeviceArg, Session};
use crate::tensor::{Arg, HostTensor};
use crate::text;

/// Two tensors of random numbers that a kernel adds, and a reduction behind a cut.
const TEXT: &str = "fusion @noise(%x: f32[?, ?], %seed: i64, %offset: i64, %scale: f32) {
  %next = add %offset, 1
  %0 = rand_like %x, %seed, %offset
  %1 = rand_like %x, %seed, %next
  %2 = mul %0, %scale
  %3 = add %2, %1
  %4 = segment_set %3
  %5 = sum %4 axes(1)
  return %3, %5
}";

/// Launches of a graph draw what calls draw whose offsets follow each other, those included
/// that are issued before the ones in front of them are done.
#[test]
#[ignore = "needs gpu"]
fn needs_gpu_launches_of_a_graph_draw_other_numbers() {
    let session = Session::cuda(0, Options::default()).unwrap();
    let fusion = text::parse_one(TEXT).unwrap();
    let x = HostTensor::zeros(DType::F32, &[512, 1000]).unwrap();
    let scalars = |offset: i64| [Value::Int(1234), Value::Int(offset), Value::Float(2.0)];
    let expected = |offset: i64| {
        let args = std::iter::once(Arg::Tensor(x.clone())).chain(scalars(offset).map(Arg::Scalar));
        session.run(&fusion, &args.collect::<Vec<_>>(), &NoTrace).unwrap().outputs
    };
    let (placed, stream) = (session.upload(&x).unwrap(), session.stream().unwrap());
    let given = std::iter::once(DeviceArg::Tensor(placed.tensor())).chain(scalars(8).map(DeviceArg::Scalar));
    let callable = Callable::new(&session, &fusion).unwrap();
    let graph = callable.capture(&given.collect::<Vec<_>>()).unwrap();
    let mut offset = 8;
    for launches in [1, 1, 1, 5, 2] {
        for _ in 0..launches {
            graph.launch(stream).unwrap();
            offset += 2;
        }
        for (found, expected) in graph.outputs().iter().zip(expected(offset - 2)) {
            assert!(found.download().unwrap().bits_equal(&expected), "after {launches} launches up to offset {offset}");
        }
    }
}

/// A graph without random numbers repeats itself, whatever its scalars.
#[test]
#[ignore = "needs gpu"]
fn needs_gpu_other_scalars_of_a_graph_stay() {
    let session = Session::cuda(0, Options::default()).unwrap();
    let text = "fusion @scaled(%x: f32[?], %s: f32) {\n  %0 = mul %x, %s\n  return %0\n}";
    let fusion = text::parse_one(text).unwrap();
    let x = HostTensor::from_fn(DType::F32, &[4096], |at| Value::Float(at[0] as f64)).unwrap();
    let placed = session.upload(&x).unwrap();
    let args = [DeviceArg::Tensor(placed.tensor()), DeviceArg::Scalar(Value::Float(3.0))];
    let callable = Callable::new(&session, &fusion).unwrap();
    let (graph, stream) = (callable.capture(&args).unwrap(), session.stream().unwrap());
    for _ in 0..3 {
        graph.launch(stream).unwrap();
        let found = graph.outputs()[0].download().unwrap();
        assert!(found.to_f64().iter().enumerate().all(|(at, value)| *value == 3.0 * at as f64));
    }
}
