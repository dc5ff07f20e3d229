//! Runs on a GPU where nothing is checked: host tensors are brought to the device, and then
//! a program goes as it does for a caller whose tensors are there.

use super::executor::{Brought, Call, Executed, Results};
use super::on_cuda::CudaBackend;
use super::ready::{Addresses, Ready, ReadyOutput};
use crate::backend::cuda::DeviceBuffer;
use crate::diag::Result;
use crate::num::Value;
use crate::program::ResultMemory;
use crate::tensor::{Arg, HostTensor};
use std::sync::Arc;

/// The arguments and results of a program on a device.
pub(super) struct OnDevice<'a> {
    pub(super) ready: Ready,
    args: &'a [Arg],
    /// Storage of each argument as a whole, so that offsets and alignment are kept.
    arguments: Vec<Option<DeviceBuffer>>,
    /// Of results with memory of their own.
    _outputs: Vec<Option<DeviceBuffer>>,
    own: DeviceBuffer,
    pub(super) addresses: Addresses,
}

impl<'a> OnDevice<'a> {
    pub(super) fn new(gpu: &CudaBackend, call: &Call<'a>) -> Result<Self> {
        let ready = Ready::new(gpu, &call.cx, Arc::clone(call.program))?;
        let device = ready.device().clone();
        let mut addresses = Addresses::default();
        let mut arguments = Vec::with_capacity(call.args.len());
        for arg in call.args {
            let Arg::Tensor(tensor) = arg else {
                arguments.push(None);
                addresses.arguments.push(0);
                continue;
            };
            let mut buffer = device.alloc(tensor.data.len())?;
            buffer.upload(0, &tensor.data)?;
            addresses.arguments.push(buffer.address() + tensor.first_byte() as u64);
            arguments.push(Some(buffer));
        }
        let buffer = |output: &ReadyOutput| match output.memory {
            ResultMemory::Own => device.alloc(output.bytes).map(Some),
            ResultMemory::Argument { .. } | ResultMemory::Result { .. } => Ok(None),
        };
        let outputs: Vec<Option<DeviceBuffer>> = ready.outputs.iter().map(buffer).collect::<Result<_>>()?;
        addresses.set_outputs(&ready.outputs, |own| outputs[own].as_ref().map_or(0, DeviceBuffer::address));
        let own = device.alloc(ready.own_bytes + ready.zeroed_bytes)?;
        addresses.own = own.address();
        addresses.zeroed = addresses.own + ready.own_bytes as u64;
        Ok(Self { ready, args: call.args, arguments, _outputs: outputs, own, addresses })
    }

    /// The scalar among the arguments at a position.
    pub(super) fn scalar(&self, position: u32) -> Option<Value> {
        match self.args.get(position as usize) {
            Some(Arg::Scalar(value)) => Some(*value),
            _ => None,
        }
    }

    /// Issues the program's steps; what is to be zero is zero.
    pub(super) fn issue(&self, call: &Call<'_>) -> Result<()> {
        let stream = self.ready.device().stream();
        self.ready.issue(&call.cx, &self.addresses, &|position| self.scalar(position), stream)
    }

    /// Issues one of the program's steps; of one that launches nothing, nothing.
    pub(super) fn issue_step(&self, call: &Call<'_>, number: usize) -> Result<()> {
        let stream = self.ready.device().stream();
        self.ready.issue_step(&call.cx, &self.addresses, &|position| self.scalar(position), stream, number)
    }

    /// An argument as it is on the device now.
    fn argument(&self, position: u32) -> Result<Option<HostTensor>> {
        let position = position as usize;
        let (Some(Arg::Tensor(given)), Some(Some(buffer))) = (self.args.get(position), self.arguments.get(position))
        else {
            return Ok(None);
        };
        let mut tensor = given.clone();
        buffer.download(0, &mut tensor.data)?;
        Ok(Some(tensor))
    }

    /// A result. An argument that was updated keeps its storage.
    fn output(&self, position: usize) -> Result<HostTensor> {
        let output = &self.ready.outputs[position];
        if let ResultMemory::Argument { position, .. } = output.memory
            && self.ready.program.updated().any(|(updated, _)| updated == position)
            && let Some(tensor) = self.argument(position)?
        {
            return Ok(tensor);
        }
        let mut data = vec![0; output.bytes];
        let device = self.ready.device();
        device.download_from(self.addresses.outputs[position], &mut data, device.stream())?;
        Ok(HostTensor { meta: output.meta.clone(), data: data.into(), offset: 0 })
    }
}

/// Runs a program once.
pub(super) fn run(gpu: &CudaBackend, call: Call<'_>) -> Result<Executed> {
    let mut memory = OnDevice::new(gpu, &call)?;
    memory.own.fill(memory.ready.own_bytes, memory.ready.zeroed_bytes, 0)?;
    memory.issue(&call)?;
    gpu.device.synchronize()?;
    let outputs = (0..memory.ready.outputs.len()).map(|position| memory.output(position)).collect::<Result<_>>()?;
    let mut updates = Vec::new();
    for (position, _) in call.program.updated() {
        updates.extend(memory.argument(position)?.map(|tensor| (position as usize, tensor)));
    }
    let reports = call.program.launches().map(|_| None).collect();
    Ok(Executed { results: Results::Brought(Brought { outputs, updates }), reports })
}
