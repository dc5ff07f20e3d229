//! Work recorded once and issued at once, as often as wanted.

use super::device::Device;
use super::driver::check;
use super::stream::Stream;
use crate::diag::Result;
use cudarc::driver::sys;
use std::sync::Arc;

/// Recorded work, with the addresses that it had.
#[derive(Debug)]
pub struct Graph {
    device: Arc<Device>,
    exec: sys::CUgraphExec,
}

// SAFETY: the handle may be used from any thread while the context is current there,
// which `launch` sees to; launches of one graph are ordered by the driver.
unsafe impl Send for Graph {}
// SAFETY: as above; a launch changes nothing of the handle.
unsafe impl Sync for Graph {}

impl Graph {
    /// Records what `issue` puts on the stream that it gets. Nothing of it runs yet; it may
    /// neither wait nor allocate.
    pub(crate) fn record(device: &Arc<Device>, issue: impl FnOnce(Stream) -> Result<()>) -> Result<Self> {
        device.enter()?;
        let stream = RecordingStream(Stream::create()?);
        // Only this thread's work on this stream is recorded; others go on as they are.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is alive.
        check(unsafe { sys::cuStreamBeginCapture_v2(stream.0.raw(), mode) }, "begin to record a graph")?;
        let issued = issue(stream.0);
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is being recorded, whatever became of `issue`.
        let ended = check(unsafe { sys::cuStreamEndCapture(stream.0.raw(), &mut graph) }, "record a graph");
        let made = issued.and(ended).and_then(|()| {
            let mut exec = std::ptr::null_mut();
            // SAFETY: the graph was just recorded, and `exec` is valid for a write.
            check(unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0) }, "make a graph")?;
            Ok(Self { device: Arc::clone(device), exec })
        });
        if !graph.is_null() {
            // SAFETY: the graph is this function's; what was made of it does not need it.
            let _ = unsafe { sys::cuGraphDestroy(graph) };
        }
        made
    }

    /// Issues the recorded work on a stream. The caller answers for its addresses.
    pub(crate) fn launch(&self, stream: Stream) -> Result<()> {
        self.device.enter()?;
        // SAFETY: the graph is alive; the caller answers for the memory that it names.
        match unsafe { sys::cuGraphLaunch(self.exec, stream.raw()) } {
            sys::CUresult::CUDA_SUCCESS => Ok(()),
            status => check(status, "launch a graph"),
        }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: the graph was made by this value and is destroyed once; launches under
            // way keep what they need.
            let _ = unsafe { sys::cuGraphExecDestroy(self.exec) };
        }
    }
}

/// A stream for one recording.
struct RecordingStream(Stream);

impl Drop for RecordingStream {
    fn drop(&mut self) {
        // SAFETY: the stream was created for this value, and is destroyed once.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.0.raw()) };
    }
}
