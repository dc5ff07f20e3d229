//! Calls a fusion on tensors that cudarc allocated, on cudarc's stream; then again, as a graph,
//! with a result that goes to another library by DLPack. Needs a GPU.

use cudarc::driver::{CudaContext, DevicePtr, DevicePtrMut};
use engine::num::{DType, Value};
use engine::options::Options;
use engine::runtime::{Callable, DeviceArg, DeviceTensor, Session, Stream};
use engine::text;

#[allow(clippy::print_stdout, reason = "an example shows its result")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = "fusion @f(%x: f32[?, ?], %s: f64) {\n  %0 = mul %x, %s\n  %y = softmax %0 axis(1)\n  return %y\n}";
    let fusion = text::parse_one(source).map_err(|errors| format!("{errors:?}"))?;
    let queue = CudaContext::new(0)?.default_stream();
    let (x, mut y) = (queue.clone_htod(&vec![0.25f32; 4 * 1024])?, queue.alloc_zeros::<f32>(4 * 1024)?);
    let session = Session::cuda(0, Options::default())?;
    let callable = Callable::new(&session, &fusion)?;
    let (sizes, strides) = ([4, 1024], [1024, 1]);
    {
        let ((from, _read), (to, _written)) = (x.device_ptr(&queue), y.device_ptr_mut(&queue));
        // SAFETY: both lie on this GPU and outlive the work, which the same queue orders.
        let (stream, x, y) = unsafe {
            let tensor = |address| DeviceTensor::new(address, DType::F32, &sizes, &strides);
            (Stream::from_raw(queue.cu_stream().cast()), tensor(from), tensor(to))
        };
        let args = [DeviceArg::Tensor(x), DeviceArg::Scalar(Value::Float(0.5))];
        callable.call_into(&args, &[y], stream)?;
        queue.synchronize()?;
        let graph = callable.capture(&args)?;
        graph.launch(stream)?;
        queue.synchronize()?;
        let result = callable.call(&args, stream)?.remove(0);
        queue.synchronize()?;
        let handed = result.into_owned().ok_or("an argument")?.into_dlpack()?;
        // SAFETY: just handed out, and taken by nobody else.
        let taken = unsafe { engine::runtime::ImportedTensor::from_dlpack(handed, 0) };
        println!("{:?}", taken?.tensor().meta());
    }
    println!("row 0 starts with {}", queue.clone_dtoh(&y)?[0]);
    Ok(())
}
