//! What is known of a worker that did not live to end its case. Recorded as it is.

use super::{Frame, Stack};
use crate::crumb::Crumb;
use serde::Serialize;

/// How a worker that did not end its case ended itself.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Death {
    pub(crate) signal: Option<String>,
    pub(crate) exit_code: Option<i32>,
    /// What a handler in the worker saw first, where that differs: a stack
    /// overflow is a segmentation fault that ends as an abort.
    pub(crate) caught: Option<String>,
    /// Why the kernel sent it, and the address that it is about.
    pub(crate) si_code: Option<i32>,
    pub(crate) reason: String,
    pub(crate) overflow: bool,
    pub(crate) fault_addr: Option<String>,
    /// The thread that crashed: name and id.
    pub(crate) thread: Option<String>,
    /// Its stack, innermost call first.
    pub(crate) frames: Vec<Frame>,
    /// Which kind of hang it is.
    #[serde(skip)]
    pub(crate) hang: String,
    /// Calls in the middle of the stack that are left out, and how many frames stand before them.
    pub(crate) frames_left_out: usize,
    pub(crate) frames_left_out_at: usize,
    /// Stacks of the threads of a hanging worker.
    pub(crate) stacks: Vec<Stack>,
    /// Where the thread that crashed was, else where the case's own was.
    pub(crate) crumb: Crumb,
    /// Where the other lanes were, if any.
    pub(crate) lanes: Vec<Crumb>,
    /// What came of asking the driver for a core dump of a hanging kernel.
    pub(crate) gpu_core: Option<String>,
    pub(crate) stderr_tail: String,
    pub(crate) stdout_tail: String,
    /// Cases the worker had run before, the last one last.
    pub(crate) prior_cases: Vec<String>,
    /// States of the threads of a hanging worker, as in `/proc`.
    pub(crate) threads: String,
    pub(crate) unkillable: bool,
    /// Whether an allocator said that no memory is left.
    pub(crate) no_memory: bool,
    /// Whether the kernel killed it for want of memory, and what is known about that.
    pub(crate) oom_killed: bool,
    pub(crate) oom_note: String,
    /// Xids that its GPU reported while the case ran.
    pub(crate) xids: Vec<u64>,
    /// What the kernel says about a process that could not be killed.
    pub(crate) proc_state: String,
}

impl Death {
    /// The stack of the thread that crashed.
    pub(crate) fn crashed(&self) -> Stack {
        let (left_out, left_out_at) = (self.frames_left_out, self.frames_left_out_at);
        Stack { frames: self.frames.clone(), left_out, left_out_at, ..Stack::default() }
    }
}
