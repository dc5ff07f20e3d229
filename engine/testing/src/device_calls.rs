//! A fusion called with tensors on a GPU, in every way that there is, against its reference.

use crate::Reference;
use engine::diag::{DiagnosticKind, Result, code};
use engine::fusion::Fusion;
use engine::program::ResultMemory;
use engine::runtime::{Callable, DeviceArg, DeviceOutput, DeviceTensor, OwnedTensor, Session};
use engine::tensor::{Arg, HostTensor};

/// The arguments of a call on a device.
pub struct Uploaded {
    tensors: Vec<Option<OwnedTensor>>,
    args: Vec<Arg>,
}

impl Uploaded {
    /// Brings all tensors to the session's GPU.
    pub fn new(session: &Session, args: &[Arg]) -> Result<Self> {
        let upload = |arg: &Arg| match arg {
            Arg::Tensor(tensor) => session.upload(tensor).map(Some),
            Arg::Scalar(_) => Ok(None),
        };
        Ok(Self { tensors: args.iter().map(upload).collect::<Result<_>>()?, args: args.to_vec() })
    }

    /// The arguments in order.
    pub fn args(&self) -> Vec<DeviceArg<'_>> {
        let arg = |(arg, tensor)| match (arg, tensor) {
            (&Arg::Scalar(value), _) => Some(DeviceArg::Scalar(value)),
            (Arg::Tensor(_), tensor) => {
                Option::as_ref(tensor).map(|tensor: &OwnedTensor| DeviceArg::Tensor(tensor.tensor()))
            }
        };
        self.args.iter().zip(&self.tensors).filter_map(arg).collect()
    }
}

fn downloaded(outputs: &[DeviceOutput]) -> Result<Vec<HostTensor>> {
    outputs.iter().map(DeviceOutput::download).collect()
}

/// Calls with results that are allocated, twice, given, and as a graph; whether a library has an algorithm for
/// each product, as far as the host takes no part otherwise.
pub fn check_calls(session: &Session, fusion: &Fusion, args: &[Arg], reference: &Reference) -> Result<bool> {
    let (callable, stream) = (Callable::new(session, fusion)?, session.stream()?);
    for way in ["allocated", "again"] {
        // What a fusion updates is not what it was.
        let placed = Uploaded::new(session, args)?;
        let outputs = callable.call(&placed.args(), stream)?;
        reference.compare_all(&downloaded(&outputs)?).map_err(|error| error.note(format!("results {way}")))?;
        // Those lie elsewhere in another call.
        if outputs.iter().any(|output| output.memory() != ResultMemory::Own) {
            continue;
        }
        let given: Vec<DeviceTensor<'_>> = outputs.iter().map(DeviceOutput::tensor).collect();
        let placed = Uploaded::new(session, args)?;
        callable.call_into(&placed.args(), &given, stream)?;
        reference.compare_all(&downloaded(&outputs)?).map_err(|error| error.note("results given"))?;
    }
    let placed = Uploaded::new(session, args)?;
    if fusion.updates.is_empty() {
        let graph = match callable.capture(&placed.args()) {
            Ok(graph) => graph,
            // The host takes part.
            Err(error) if error.kind == DiagnosticKind::Unsupported => return Ok(error.code != code::NO_ALGORITHM),
            Err(error) => return Err(error.note("captured")),
        };
        for _ in 0..if graph.repeats() { 2 } else { 1 } {
            graph.launch(stream)?;
            reference.compare_all(&downloaded(graph.outputs())?).map_err(|error| error.note("as a graph"))?;
        }
    }
    Ok(true)
}
