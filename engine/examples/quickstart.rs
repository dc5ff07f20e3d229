//! Defines a fusion, runs it on whatever device there is, and prints the kernel.

use engine::backend::cuda::print_cuda;
use engine::fusion::{AxisDecl, FusionBuilder};
use engine::num::{DType, Value};
use engine::options::{NoTrace, Options};
use engine::runtime::Session;
use engine::tensor::{Arg, HostTensor};

#[allow(clippy::print_stdout, reason = "an example shows its result")]
fn main() -> engine::diag::Result<()> {
    let mut b = FusionBuilder::new("scaled_softmax");
    let x = b.tensor("x", DType::F32, &[AxisDecl::Symbolic, AxisDecl::Symbolic])?;
    let scaled = b.mul(x, 0.5)?;
    let y = b.softmax(scaled, -1)?;
    b.output(y)?;
    let fusion = b.finish()?;
    let x = HostTensor::from_fn(DType::F32, &[4, 1000], |i| Value::Int(i[0] * i[1] % 7))?;
    let run = Session::any(Options::default()).run(&fusion, &[Arg::Tensor(x)], &NoTrace)?;
    for launch in run.program.launches() {
        println!("{}", print_cuda(launch.plan.kernel()));
    }
    println!("row 0 starts with {}", run.outputs[0].get(&[0, 0]).as_f64());
    Ok(())
}
