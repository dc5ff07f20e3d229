//! Arguments and results that lie in the memory of a device.

use super::ready::Ready;
use crate::backend::cuda::{Device, DeviceBuffer, Stream};
use crate::diag::Result;
use crate::num::{DType, Value};
use crate::tensor::{HostTensor, TensorMeta};
use smallvec::SmallVec;
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
    /// memory stays allocated until the work that was issued on it is done.
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
pub type DeviceOutputs = SmallVec<[DeviceOutput; 4]>;

/// A result in memory of the device. The work that writes it may be under way: it is used on
/// the stream of the call, or after waiting for that. Its memory goes back when it is
/// dropped, to be handed out again to work that comes later on that stream.
#[derive(Debug)]
pub struct DeviceOutput {
    /// None of an argument that was updated.
    pub(super) buffer: Option<DeviceBuffer>,
    pub(super) address: u64,
    pub(super) stream: Stream,
    pub(super) ready: Arc<Ready>,
    pub(super) position: usize,
}

impl DeviceOutput {
    /// Type and layout.
    pub fn meta(&self) -> &TensorMeta {
        &self.ready.outputs[self.position].meta
    }
    /// The address of element 0.
    pub fn address(&self) -> u64 {
        self.address
    }
    /// The argument that this is, if the fusion updates one to it.
    pub fn argument(&self) -> Option<u32> {
        self.ready.outputs[self.position].argument
    }
    /// The result as an argument of another call on the same stream.
    pub fn tensor(&self) -> DeviceTensor<'_> {
        let TensorMeta { dtype, sizes, strides } = self.meta();
        DeviceTensor { address: self.address, dtype: *dtype, sizes, strides, read_only: false }
    }
    /// Waits for the result and brings it to the host.
    pub fn download(&self) -> Result<HostTensor> {
        let mut data = vec![0; self.meta().span_bytes()?];
        self.ready.device().download_from(self.address, &mut data, self.stream)?;
        HostTensor::new(self.meta().clone(), data, 0)
    }
    /// The result as a tensor that is nobody else's; none of an argument that was updated,
    /// whose memory is the caller's.
    pub fn into_owned(self) -> Option<OwnedTensor> {
        let meta = self.meta().clone();
        self.buffer.map(|buffer| OwnedTensor { buffer, meta, offset: 0 })
    }
}
