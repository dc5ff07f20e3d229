//! Turns on a device that several workers share: cases take turns together,
//! except those that must have the device alone.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a waiting worker looks whether it should give up.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Default)]
struct TurnState {
    together: usize,
    alone: bool,
    /// Those who wait to be alone: nobody starts before them.
    waiting: usize,
}

/// The turns of one device.
#[derive(Default)]
pub(super) struct Turns {
    state: Mutex<TurnState>,
    changed: Condvar,
}

/// A turn; it ends when it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    alone: bool,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn; `None` if `give_up` says so first.
    pub(super) fn take(&self, alone: bool, give_up: &dyn Fn() -> bool) -> Option<Turn<'_>> {
        let mut state = self.lock();
        state.waiting += usize::from(alone);
        let mut taken = true;
        loop {
            let free = if alone { state.together == 0 } else { state.waiting == 0 };
            if free && !state.alone {
                break;
            }
            if give_up() {
                taken = false;
                break;
            }
            state = self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting -= usize::from(alone);
        match (taken, alone) {
            (true, true) => state.alone = true,
            (true, false) => state.together += 1,
            (false, _) => {}
        }
        drop(state);
        if !taken {
            self.changed.notify_all();
        }
        // Made only where it was taken: dropping one gives a turn back.
        match taken {
            true => Some(Turn { turns: self, alone }),
            false => None,
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        match self.alone {
            true => state.alone = false,
            false => state.together -= 1,
        }
        drop(state);
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

    /// Many threads take turns; whoever is alone must see nobody.
    #[test]
    fn who_is_alone_is_alone() {
        let turns = Turns::default();
        let (inside, seen) = (AtomicI64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let (turns, inside, seen) = (&turns, &inside, &seen);
                scope.spawn(move || {
                    for round in 0..40 {
                        let alone = (thread + round) % 5 == 0;
                        let turn = turns.take(alone, &|| false).expect("a turn");
                        let before = inside.fetch_add(if alone { 1000 } else { 1 }, Ordering::SeqCst);
                        assert!(if alone { before == 0 } else { before < 1000 }, "{before}");
                        seen.fetch_add(u64::from(alone), Ordering::SeqCst);
                        std::thread::sleep(Duration::from_micros(50));
                        inside.fetch_sub(if alone { 1000 } else { 1 }, Ordering::SeqCst);
                        drop(turn);
                    }
                });
            }
        });
        assert_eq!((inside.into_inner(), seen.into_inner()), (0, 48));
    }

    #[test]
    fn whoever_gives_up_leaves_the_others_their_turn() {
        let turns = Turns::default();
        let together = turns.take(false, &|| false).expect("a turn");
        assert!(turns.take(true, &|| true).is_none());
        assert!(turns.take(false, &|| true).is_some());
        drop(together);
        let alone = turns.take(true, &|| true).expect("a turn");
        assert!(turns.take(false, &|| true).is_none());
        drop(alone);
        assert!(turns.take(false, &|| true).is_some());
    }
}
