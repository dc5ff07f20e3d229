//! Load on the processor, switched on and off: for what fails only when its
//! threads are slowed down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Burning threads for each processor.
const PER_CORE: usize = 2;

/// Threads that burn time while they are on. They end with this value.
#[derive(Default)]
pub(crate) struct Burners {
    live: Option<(std::sync::Arc<AtomicBool>, Vec<JoinHandle<()>>)>,
}

impl Burners {
    /// Switches.
    pub(crate) fn set(&mut self, on: bool) {
        match (on, self.live.take()) {
            (true, None) => {
                let go = std::sync::Arc::new(AtomicBool::new(true));
                let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                let burn = |_| {
                    let go = go.clone();
                    std::thread::spawn(move || {
                        while go.load(Ordering::Relaxed) {
                            (0..1000).for_each(|_| std::hint::spin_loop());
                        }
                    })
                };
                let threads = (0..PER_CORE * cores).map(burn).collect();
                self.live = Some((go, threads));
            }
            (false, Some((go, threads))) => {
                go.store(false, Ordering::Relaxed);
                threads.into_iter().for_each(|thread| drop(thread.join()));
            }
            (_, live) => self.live = live,
        }
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        self.set(false);
    }
}
