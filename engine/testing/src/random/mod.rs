//! Random fusions with arguments, drawn so that a device can be held to the
//! reference: each draw says how exactly.
//!
//! Input: a seed. Output: a [`Drawn`], the same for the same seed. Kinds of
//! draws: integers of every width from `iota`, scalars and memory, with every
//! operation on them; floats under operations that round once, on subnormal and
//! other special numbers; functions of tiny and huge arguments that are scaled
//! back; random numbers; reductions and normalisations in any layout; elements that are looked up.

mod exact;
mod general;
mod grid;
mod lookups;
mod memory;
mod noise;
mod products;
mod scaled;
mod schedule;
mod steps;

pub use general::tuning;
pub use products::{DrawnProduct, draw_product};
pub use schedule::{ScheduledCase, draw_schedule, sums};
pub use steps::{WrittenCase, draw_steps};

use crate::data::Draw;
use engine::fusion::{Fusion, Operand, ScalarDef};
use engine::num::Value;
use engine::options::Options;
use engine::refeval::Tolerance;
use engine::tensor::{Arg, HostTensor};
use std::fmt::Write;

/// What a draw is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrawKind {
    /// Integers and truth values: results are exact.
    Integers,
    /// Floats under operations that round once: results are exact.
    Floats,
    /// Functions of extreme arguments, scaled to results of moderate size.
    Scaled,
    /// Random numbers.
    Noise,
    /// Elementwise operations, reductions and normalisations in any layout.
    General,
    /// Elements that an index says, with what is computed of them.
    Lookups,
}

impl DrawKind {
    /// All kinds with how often each is drawn.
    const SHARES: [(DrawKind, usize); 6] = [
        (DrawKind::Integers, 40),
        (DrawKind::Floats, 20),
        (DrawKind::Scaled, 10),
        (DrawKind::Noise, 3),
        (DrawKind::General, 19),
        (DrawKind::Lookups, 8),
    ];
}

/// How an output is compared with the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// Every value is the same; one NaN is as good as another.
    Exact,
    /// With the tolerance that follows from the fusion, its absolute part times this.
    Magnitude(f64),
    /// Within this share of the expected value.
    Relative(f64),
}

impl Measure {
    /// The tolerance, where `own` is what follows from the fusion.
    pub fn tolerance(self, own: Tolerance) -> Tolerance {
        match self {
            Self::Exact => Tolerance::EXACT,
            Self::Magnitude(scale) => Tolerance { abs: own.abs * scale, ..own },
            Self::Relative(share) => Tolerance { abs: f64::from(f32::MIN_POSITIVE), rel: own.rel.max(share) },
        }
    }
}

/// A fusion with arguments.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// What it is about.
    pub kind: DrawKind,
    /// The fusion.
    pub fusion: Fusion,
    /// Its arguments.
    pub args: Vec<Arg>,
    /// How it is compiled.
    pub options: Options,
    /// How outputs are compared.
    pub measure: Measure,
}

/// Draws a fusion of any kind; none where the draw is no use.
pub fn draw(seed: u64) -> Option<Drawn> {
    let mut draw = Draw::new(seed);
    let mut left = draw.below(100);
    let kind = DrawKind::SHARES.iter().find(|(_, share)| {
        let found = left < *share;
        left = left.wrapping_sub(*share);
        found
    });
    draw_kind(kind.map_or(DrawKind::General, |(kind, _)| *kind), seed)
}

/// Draws a fusion of a kind.
pub fn draw_kind(kind: DrawKind, seed: u64) -> Option<Drawn> {
    let mut draw = Draw::new(seed ^ (kind as u64) << 56);
    match kind {
        DrawKind::Integers => exact::integers(&mut draw),
        DrawKind::Floats => exact::floats(&mut draw),
        DrawKind::Scaled => scaled::scaled(&mut draw),
        DrawKind::Noise => noise::noise(&mut draw),
        DrawKind::General => general::general(&mut draw),
        DrawKind::Lookups => lookups::lookups(&mut draw),
    }
}

impl Drawn {
    /// A case file that computes the same.
    pub fn case_text(&self, suite: &str) -> String {
        let mut text = format!(
            "---\nversion = 1\nsuite = \"{suite}\"\nabout = \"a random fusion that a device got wrong\"\n---\n"
        );
        text.push_str(engine::text::print(&self.fusion).trim_end());
        let inputs = self.fusion.inputs.iter().zip(&self.args).map(|(operand, arg)| {
            let name = match *operand {
                Operand::Tensor(t) => self.fusion.tensors[t].name.as_str(),
                Operand::Scalar(s) => match &self.fusion.scalars[s].def {
                    ScalarDef::Input { name, .. } => name.as_str(),
                    _ => "",
                },
            };
            format!("{name} = {}", argument(arg))
        });
        let _ = writeln!(text, "\n; inputs: {}", inputs.collect::<Vec<_>>().join(", "));
        text
    }
}

/// An argument as a case gives it.
fn argument(arg: &Arg) -> String {
    let tensor = match arg {
        Arg::Scalar(value) => return number(*value),
        Arg::Tensor(tensor) => tensor,
    };
    let values: Vec<String> = tensor.values().map(number).collect();
    let same = values.first().filter(|first| values.iter().all(|value| value == *first));
    let values = match same {
        Some(value) => format!("full({value})"),
        None => format!("list({})", values.join(", ")),
    };
    let mut text = format!("{values}{:?}", tensor.sizes());
    if !tensor.is_contiguous() {
        let _ = write!(text, " strides {:?}", tensor.strides());
    }
    if tensor.offset > 0 {
        let _ = write!(text, " offset {}", tensor.offset);
    }
    text
}

fn number(value: Value) -> String {
    match value {
        Value::Int(v) => v.to_string(),
        Value::Float(v) if v.is_nan() => "nan".into(),
        Value::Float(v) => format!("{v:?}"),
        Value::Bool(v) => v.to_string(),
        Value::Complex(re, im) => format!("{re:?}{im:+?}i"),
    }
}

/// A tensor of elements drawn by `value`.
fn tensor(dtype: engine::num::DType, sizes: &[i64], mut value: impl FnMut() -> Value) -> Option<HostTensor> {
    HostTensor::from_fn(dtype, sizes, |_| value()).ok()
}
