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

/// Zeros of different sign.
fn sign_of_zero(difference: &Difference) -> bool {
    match difference {
        Difference::Value(Value::Float(a), Value::Float(b)) => *a == 0.0 && *b == 0.0,
        Difference::Value(Value::Complex(a, b), Value::Complex(c, d)) => a == c && b == d,
        _ => false,
    }
}

/// Integers of one magnitude.
fn sign(difference: &Difference) -> bool {
    matches!(difference, Difference::Value(Value::Int(a), Value::Int(b)) if a.wrapping_neg() == *b)
}

pub const KNOWN: &[Known<'static>] = &[
    Known {
        pattern: "relu/*",
        allows: sign_of_zero,
        reason: "of -0.0, relu is 0.0 here, as in nvFuser's kernels (x <= 0 ? 0 : x); PyTorch keeps -0.0",
    },
    Known {
        pattern: "m*imum/*",
        allows: sign_of_zero,
        reason: "0.0 is larger than -0.0 here, as the instruction of a GPU has it; PyTorch's vector loops take the second operand",
    },
    Known {
        pattern: "min/*",
        allows: sign_of_zero,
        reason: "-0.0 is smaller than 0.0 here, the same; PyTorch takes one or the other",
    },
    Known { pattern: "clamp/*", allows: sign_of_zero, reason: "the same for its bounds" },
    Known {
        pattern: "lerp/*",
        allows: sign_of_zero,
        reason: "end - span * 0 keeps the sign of a zero end; PyTorch computes 0 * span + end, which does not",
    },
    Known {
        pattern: "neg/c*",
        allows: sign_of_zero,
        reason: "PyTorch's vector loops subtract from zero, so a part that is 0.0 stays 0.0",
    },
    Known {
        pattern: "broadcast/*empty*",
        allows: |difference| matches!(difference, Difference::Strides(0)),
        reason: "a new axis of an empty tensor has the stride that PyTorch's reductions with keepdim give it; PyTorch's \
                 unsqueeze multiplies by a size of 0",
    },
    Known {
        pattern: "unsqueeze/*empty*",
        allows: |difference| matches!(difference, Difference::Strides(0)),
        reason: "the same: it is a broadcast",
    },
    Known {
        pattern: "view_as_real/*",
        allows: |difference| matches!(difference, Difference::Strides(_)),
        reason: "nvFuser computes the parts and joins them, so the result is new and dense; PyTorch's is a view",
    },
    Known {
        pattern: "sdpfa_fwd/*-mask",
        allows: |difference| {
            matches!(difference, Difference::Value(Value::Float(f64::INFINITY), Value::Float(f64::NEG_INFINITY)))
        },
        reason: "the logarithm of a row whose keys are all masked is infinite, as flash attention stores it, so that the \
                 exponentials of its gradient are 0; the sum's own logarithm is -infinity",
    },
    Known {
        pattern: "gcd/*",
        allows: sign,
        reason: "PyTorch takes magnitudes in the type, where the least value has none",
    },
];
