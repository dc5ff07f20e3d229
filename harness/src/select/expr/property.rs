//! Properties that can be compared, their kinds, and literals of those kinds.

use super::eval::FilterSubject;
use crate::case::InputSpec;

/// What a property measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PropertyKind {
    Number,
    Time,
    Bytes,
}

impl PropertyKind {
    /// The unit of values inside.
    pub(super) fn base(self) -> &'static str {
        match self {
            PropertyKind::Number => "",
            PropertyKind::Time => "ns",
            PropertyKind::Bytes => "B",
        }
    }

    pub(super) fn shown(self) -> &'static str {
        match self {
            PropertyKind::Number => "a number such as 2 or 1e6",
            PropertyKind::Time => "a time such as 100ms or 1.5s",
            PropertyKind::Bytes => "an amount of memory such as 512MiB or 2GiB",
        }
    }

    /// Units with their size in the base unit.
    fn units(self) -> &'static [(&'static str, f64)] {
        match self {
            PropertyKind::Number => &[("", 1.0), ("k", 1e3), ("M", 1e6)],
            PropertyKind::Time => {
                &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 6e10), ("m", 6e10), ("h", 3.6e12)]
            }
            PropertyKind::Bytes => &[
                ("B", 1.0),
                ("KiB", 1024.0),
                ("MiB", 1_048_576.0),
                ("GiB", 1_073_741_824.0),
                ("KB", 1e3),
                ("MB", 1e6),
                ("GB", 1e9),
            ],
        }
    }

    /// A literal of this kind, in the base unit.
    pub(super) fn literal(self, text: &str) -> Option<f64> {
        let (number, unit) = number_and_unit(text)?;
        let (_, factor) = self.units().iter().find(|(name, _)| *name == unit)?;
        let value = number * factor;
        value.is_finite().then_some(value)
    }
}

/// `1.5e3ms` as 1500 and `ms`.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
    let sign = usize::from(bytes.first() == Some(&b'-'));
    let mut end = sign + digits(sign);
    // An exponent, but not a unit that begins with `e`.
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let length = digits(end + 1 + sign.min(bytes.len() - end - 1));
        if length > 0 {
            end += 1 + sign + length;
        }
    }
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then_some((number, &text[end..]))
}

/// A number that a case has, if it has it.
pub(super) type Get = fn(&FilterSubject<'_>) -> Option<f64>;

/// A comparable property.
#[derive(Debug)]
pub(super) struct Property {
    pub(super) name: &'static str,
    pub(super) kind: PropertyKind,
    pub(super) get: Get,
}

impl PartialEq for Property {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

pub(super) const PROPERTIES: &[Property] = &[
    // Smoothed duration of earlier runs.
    Property {
        name: "dur",
        kind: PropertyKind::Time,
        get: |s| s.last.and_then(|last| last.dur_ns).map(|ns| ns as f64),
    },
    // The case's own limit.
    Property { name: "timeout", kind: PropertyKind::Time, get: |s| s.case.timeout_ms.map(|ms| ms as f64 * 1e6) },
    // What the case needs; 0 if it needs nothing.
    Property { name: "arch", kind: PropertyKind::Number, get: |s| Some(s.case.require.arch.unwrap_or(0).into()) },
    Property { name: "memory", kind: PropertyKind::Bytes, get: |s| Some(s.case.require.memory.unwrap_or(0) as f64) },
    Property { name: "gpus", kind: PropertyKind::Number, get: |s| Some(s.case.require.gpus.unwrap_or(0) as f64) },
    Property { name: "inputs", kind: PropertyKind::Number, get: |s| Some(s.case.inputs.len() as f64) },
    // Of the input with the most axes, and of all inputs together.
    Property {
        name: "rank",
        kind: PropertyKind::Number,
        get: |s| Some(sizes(s).map(<[i64]>::len).max().unwrap_or(0) as f64),
    },
    Property {
        name: "elements",
        kind: PropertyKind::Number,
        get: |s| Some(sizes(s).map(|sizes| sizes.iter().map(|n| *n as f64).product::<f64>()).sum()),
    },
    // How often the case ran.
    Property { name: "runs", kind: PropertyKind::Number, get: |s| Some(s.last.map_or(0, |last| last.runs) as f64) },
];

fn sizes<'a>(subject: &FilterSubject<'a>) -> impl Iterator<Item = &'a [i64]> {
    subject.case.inputs.iter().filter_map(|(_, input)| match input {
        InputSpec::Tensor(tensor) => Some(tensor.sizes.as_slice()),
        InputSpec::Scalar(_) => None,
    })
}
