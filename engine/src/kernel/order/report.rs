//! What the checker found.

use std::fmt;

/// Alarms after which nothing more is looked for.
pub(super) const MAX_ALARMS: usize = 8;

/// What is wrong with a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlarmKind {
    /// Two threads reach one element without order between them, and one writes it; or a thread
    /// touches what an asynchronous copy may still write.
    Race,
    /// A barrier or shuffle that not all threads reach which must.
    Divergence,
    /// An element that the buffer does not have.
    OutOfBounds,
    /// An index, a condition or a bound of a loop that index arithmetic without a meaning decides.
    Meaningless,
    /// A vector that does not start at a multiple of its length.
    Misaligned,
    /// An element is read that nobody wrote.
    Uninitialised,
    /// An element of an output that nobody writes.
    Unwritten,
    /// An element of an output that is written more than once.
    WrittenAgain,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// What.
    pub kind: AlarmKind,
    /// The statement's number in preorder, if it is about one.
    pub stmt: Option<u32>,
    /// In words, with the statement, the thread and the element.
    pub text: String,
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

/// What the checker found in a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderReport {
    /// What is wrong; nothing more is looked for after a few.
    pub alarms: Vec<Alarm>,
    /// Meetings of threads, and elements, of which data decides whether they are wrong.
    pub undecided: u64,
    /// Reads of memory that nobody writes, at elements that data decides: they need no order, and whether they are
    /// in range is not known.
    pub gathers: u64,
    /// Blocks that were looked at.
    pub blocks: u64,
    /// Whether these are all blocks of the launch.
    pub all_blocks: bool,
    /// Whether there was more to look at than is looked at.
    pub cut: bool,
    /// Whether data say how often a loop runs: nothing is known of that loop and of what follows.
    pub by_data: bool,
}

impl OrderReport {
    /// Whether the launch is right in all that the checker knows of, whatever memory holds.
    pub fn is_proof(&self) -> bool {
        self.alarms.is_empty() && self.is_exhaustive()
    }
    /// Whether nothing was left out and nothing undecided.
    pub fn is_exhaustive(&self) -> bool {
        self.undecided == 0 && self.all_blocks && !self.cut && !self.by_data
    }
    /// Notes what is wrong, once for a statement.
    pub(super) fn alarm(&mut self, kind: AlarmKind, stmt: Option<u32>, text: impl FnOnce() -> String) {
        let again = self.alarms.iter().any(|alarm| (alarm.kind, alarm.stmt) == (kind, stmt));
        if self.alarms.len() < MAX_ALARMS && !again {
            self.alarms.push(Alarm { kind, stmt, text: text() });
        }
    }
    /// Whether to go on.
    pub(super) fn is_over(&self) -> bool {
        self.cut || self.by_data || self.alarms.len() >= MAX_ALARMS
    }
}
