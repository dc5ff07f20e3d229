//! How long the reference evaluator takes for a softmax of 64 Mi elements.
//!
//! ```sh
//! cargo run --release -p engine --example reference_speed -- [ROWS] [COLUMNS]
//! ```

#![allow(clippy::print_stdout, reason = "a command-line tool prints")]

use engine::num::{DType, Value};
use engine::tensor::{Arg, HostTensor};
use engine::{refeval, text};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<i64>());
    let rows = args.next().transpose()?.unwrap_or(8192);
    let columns = args.next().transpose()?.unwrap_or(8192);
    let source = "fusion @softmax(%x: f32[?, ?]) {\n  %y = softmax %x axis(1)\n  return %y\n}";
    let fusion = text::parse_one(source).map_err(|errors| format!("{errors:?}"))?;
    let value = |index: &[i64]| Value::Float(((index[0] * 31 + index[1] * 17) & 0xff) as f64 / 64.0 - 2.0);
    let x = HostTensor::from_fn(DType::F32, &[rows, columns], value).map_err(|error| error.to_string())?;
    let args = [Arg::Tensor(x)];
    for run in 0..3 {
        let start = Instant::now();
        let outputs = refeval::evaluate(&fusion, &args).map_err(|error| error.to_string())?;
        let (seconds, first) = (start.elapsed().as_secs_f64(), outputs[0].get(&[0, 0]).as_f64());
        println!(
            "run {run}: {rows} x {columns} f32 softmax in {seconds:.2} s on {} threads, first {first:.3e}",
            threads()
        );
    }
    Ok(())
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
