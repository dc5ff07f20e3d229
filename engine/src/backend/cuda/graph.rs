//! Work recorded once and issued at once, as often as wanted.
//!
//! Parameters of a recorded kernel may be replaced between launches of the graph. The driver
//! takes that for later launches only: those that were issued before, running or not, keep theirs.

use super::device::Device;
use super::driver::check;
use super::stream::Stream;
use crate::diag::{Diagnostic, Result};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::sync::Arc;

/// Recorded work, with the addresses that it had.
#[derive(Debug)]
pub struct Graph {
    device: Arc<Device>,
    /// What was recorded, by whose nodes parts of `exec` are named.
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
}

/// One recorded piece of work, of the graph that it was recorded into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphNode(usize);

// SAFETY: the handle may be used from any thread while the context is current there,
// which `launch` sees to; launches of one graph are ordered by the driver.
unsafe impl Send for Graph {}
// SAFETY: as above; a launch changes nothing of the handle, and whoever replaces parameters
// launches under the same lock.
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
        let mut graph: sys::CUgraph = std::ptr::null_mut();
        // SAFETY: the stream is being recorded, whatever became of `issue`.
        let ended = check(unsafe { sys::cuStreamEndCapture(stream.0.raw(), &mut graph) }, "record a graph");
        let made = issued.and(ended).and_then(|()| {
            let mut exec = std::ptr::null_mut();
            // SAFETY: the graph was just recorded, and `exec` is valid for a write.
            check(unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0) }, "make a graph")?;
            Ok(Self { device: Arc::clone(device), graph, exec })
        });
        if made.is_err() && !graph.is_null() {
            // SAFETY: the graph is this function's, and nothing was made of it.
            let _ = unsafe { sys::cuGraphDestroy(graph) };
        }
        made
    }

    /// What was recorded last on a stream that is being recorded.
    pub(crate) fn last_recorded(stream: Stream) -> Result<GraphNode> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let (mut id, mut graph) = (0, std::ptr::null_mut());
        let (mut nodes, mut edges, mut count) = (std::ptr::null(), std::ptr::null(), 0);
        // SAFETY: the stream is alive, and all results are valid for a write.
        let asked = unsafe {
            sys::cuStreamGetCaptureInfo_v3(
                stream.raw(),
                &mut status,
                &mut id,
                &mut graph,
                &mut nodes,
                &mut edges,
                &mut count,
            )
        };
        check(asked, "ask what was recorded")?;
        if count != 1 || nodes.is_null() {
            return Err(Diagnostic::bug(format!("the next work on a recorded stream comes after {count} others")));
        }
        // SAFETY: there is one, which is there until more is recorded.
        Ok(GraphNode(unsafe { *nodes } as usize))
    }

    /// Replaces a recorded kernel's parameters, for launches from now on. There is a pointer for
    /// each, to as many bytes as it has; the kernel, grid and block stay. The node is one of this graph.
    pub(super) fn set_parameters(&self, node: GraphNode, pointers: &mut [*mut c_void]) -> Result<()> {
        self.device.enter()?;
        let node = node.0 as sys::CUgraphNode;
        // SAFETY: all zeros is a value of this plain structure, and it is filled by the driver.
        let mut params: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
        // SAFETY: the node is a kernel of the graph, which is alive.
        check(unsafe { sys::cuGraphKernelNodeGetParams_v2(node, &mut params) }, "look at a recorded kernel")?;
        params.kernelParams = pointers.as_mut_ptr();
        params.extra = std::ptr::null_mut();
        // SAFETY: as above; the driver copies the parameters' bytes before it returns.
        check(
            unsafe { sys::cuGraphExecKernelNodeSetParams_v2(self.exec, node, &params) },
            "replace a recorded kernel's parameters",
        )
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
            // SAFETY: likewise.
            let _ = unsafe { sys::cuGraphDestroy(self.graph) };
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
