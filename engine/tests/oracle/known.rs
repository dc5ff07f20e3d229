//! Disagreements with PyTorch that are meant, each with its reason. An entry
//! that explains nothing any more fails the test.

use engine::num::Value;

/// What differs.
pub enum Difference {
    /// The case is not read or not evaluated.
    Refused,
    /// Type or sizes of a result.
    Type,
    /// Strides of a result of that many elements.
    Strides(usize),
    /// An element: ours, PyTorch's.
    Value(Value, Value),
}

/// A known disagreement.
pub struct Known<'a> {
    /// Ids of cases, `*` standing for any text.
    pub pattern: &'a str,
    /// Which differences it explains.
    pub allows: fn(&Difference) -> bool,
    pub reason: &'static str,
}

impl Known<'_> {
    pub fn matches(&self, id: &str) -> bool {
        let mut rest = id;
        let mut parts = self.pattern.split('*').peekable();
        let first = parts.next().unwrap_or("");
        let Some(tail) = rest.strip_prefix(first) else { return false };
        rest = tail;
        if parts.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        true
    }
}

pub const KNOWN: &[Known<'static>] = &[];
