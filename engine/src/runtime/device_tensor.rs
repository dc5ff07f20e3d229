//! Arguments and results that lie in the memory of a device.

use super::ready::Ready;
use crate::backend::cuda::{Device, DeviceBuffer, Stream};
use crate::diag::Result;
use crate::num::{DType, Value};
use crate::program::ResultMemory;
use crate::tensor::{HostTensor, TensorMeta};
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::sync::Arc;

/// A tensor in the memory of a device, whoever allocated it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTensor<'a> {
    pub(super) address: u64,
    pub(super) dtype: DType,
    pub(super) sizes: &'a [i64],
    pub(super) strides: &'a [i64],
    pub(super) read_only: bool,
}

impl<'a> DeviceTensor<'a> {
    /// A tensor whose element 0 is at an address of the device; strides in elements.
    ///
    /// # Safety
    ///
    /// Every element lies in memory of the device on which the tensor is used, and that
    /// memory stays allocated for `'a`, and until the work that was issued on it is done.
    pub unsafe fn new(address: u64, dtype: DType, sizes: &'a [i64], strides: &'a [i64]) -> Self {
        Self { address, dtype, sizes, strides, read_only: false }
    }

    /// The same tensor, which a fusion may not update.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }
    /// The address of element 0.
    pub fn address(&self) -> u64 {
        self.address
    }
    /// Type and layout.
    pub fn meta(&self) -> TensorMeta {
        TensorMeta { dtype: self.dtype, sizes: self.sizes.to_vec(), strides: self.strides.to_vec() }
    }
    pub(super) fn lies_as(&self, meta: &TensorMeta) -> bool {
        self.dtype == meta.dtype && self.sizes == meta.sizes && self.strides == meta.strides
    }
}

/// A tensor with memory of a device of its own.
#[derive(Debug)]
pub struct OwnedTensor {
    buffer: DeviceBuffer,
    meta: TensorMeta,
    offset: usize,
}

impl OwnedTensor {
    /// Brings a tensor to a device, its storage as a whole. Work on other streams than the
    /// device's own waits for that first.
    pub(super) fn upload(device: &Arc<Device>, tensor: &HostTensor) -> Result<Self> {
        tensor.check()?;
        let mut buffer = device.alloc(tensor.data.len())?;
        buffer.upload(0, &tensor.data)?;
        Ok(Self { buffer, meta: tensor.meta.clone(), offset: tensor.offset })
    }
    /// The tensor as an argument.
    pub fn tensor(&self) -> DeviceTensor<'_> {
        let TensorMeta { dtype, sizes, strides } = &self.meta;
        let address = self.buffer.address() + (self.offset * dtype.bytes()) as u64;
        DeviceTensor { address, dtype: *dtype, sizes, strides, read_only: false }
    }
    pub(super) fn device(&self) -> &Arc<Device> {
        self.buffer.device()
    }
    /// Brings the storage back, behind all work on the stream that it was made for.
    pub fn download(&self) -> Result<HostTensor> {
        let mut data = vec![0; self.buffer.len()];
        self.buffer.download(0, &mut data)?;
        HostTensor::new(self.meta.clone(), data, self.offset)
    }
}

/// An argument of a call.
#[derive(Clone, Copy, Debug)]
pub enum DeviceArg<'a> {
    /// A tensor on the device.
    Tensor(DeviceTensor<'a>),
    /// A number.
    Scalar(Value),
}

/// The results of a call, in order.
pub type DeviceOutputs<'a> = SmallVec<[DeviceOutput<'a>; 4]>;

/// A result in memory of the device. The work that writes it may be under way: it is used on
/// the stream of the call, or after waiting for that. Its memory goes back when it is
/// dropped, and every result that is a view of it, to be handed out again to work that comes
/// later on that stream.
///
/// It may lie in memory of an argument ([`DeviceOutput::memory`]), so it does not outlive the
/// tensors that the call was given; [`DeviceOutput::into_owned`] does, where it has memory of its own.
#[derive(Debug)]
pub struct DeviceOutput<'a> {
    pub(super) buffer: OutputBuffer,
    pub(super) address: u64,
    pub(super) stream: Stream,
    pub(super) ready: Arc<Ready>,
    pub(super) position: usize,
    /// Of a view of an argument that may not be updated.
    pub(super) read_only: bool,
    pub(super) args: PhantomData<&'a ()>,
}

/// What keeps the memory of a result.
#[derive(Debug)]
pub(super) enum OutputBuffer {
    /// The caller: it is an argument's.
    Argument,
    /// This result alone.
    Own(DeviceBuffer),
    /// Several results.
    Shared(Arc<DeviceBuffer>),
}

impl OutputBuffer {
    /// Where it starts; nothing of an argument.
    pub(super) fn address(&self) -> u64 {
        match self {
            Self::Argument => 0,
            Self::Own(buffer) => buffer.address(),
            Self::Shared(buffer) => buffer.address(),
        }
    }
}

impl DeviceOutput<'_> {
    /// Type and layout.
    pub fn meta(&self) -> &TensorMeta {
        &self.ready.outputs[self.position].meta
    }
    /// The address of element 0.
    pub fn address(&self) -> u64 {
        self.address
    }
    /// Whose memory it is in.
    pub fn memory(&self) -> ResultMemory {
        self.ready.outputs[self.position].memory
    }
    /// The result as an argument of another call on the same stream.
    pub fn tensor(&self) -> DeviceTensor<'_> {
        let TensorMeta { dtype, sizes, strides } = self.meta();
        DeviceTensor { address: self.address, dtype: *dtype, sizes, strides, read_only: self.read_only }
    }
    /// Waits for the result and brings it to the host.
    pub fn download(&self) -> Result<HostTensor> {
        let mut data = vec![0; self.meta().span_bytes()?];
        self.ready.device().download_from(self.address, &mut data, self.stream)?;
        HostTensor::new(self.meta().clone(), data, 0)
    }
    /// The result as a tensor that is nobody else's; none where its memory is an argument's, or
    /// another result has it too that was not dropped yet.
    pub fn into_owned(self) -> Option<OwnedTensor> {
        let meta = self.meta().clone();
        let buffer = match self.buffer {
            OutputBuffer::Argument => return None,
            OutputBuffer::Own(buffer) => buffer,
            OutputBuffer::Shared(buffer) => Arc::into_inner(buffer)?,
        };
        let offset = (self.address - buffer.address()) as usize / meta.dtype.bytes();
        Some(OwnedTensor { buffer, meta, offset })
    }
}
