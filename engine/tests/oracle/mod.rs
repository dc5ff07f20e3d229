//! The evaluator against PyTorch, an oracle that does not come from us.
//!
//! `scripts/torch_oracle.py` computed the results of every operation on many
//! types, values and layouts; here each case is read in the text form, evaluated
//! and compared: types, sizes and strides exactly, values within the bound of
//! the operation ([`bounds`]). Known disagreements stand one by one, each with
//! its reason, in [`known`]. `ORACLE=pattern` runs some cases only.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test stops at the first surprise and counts"
)]

mod bounds;
mod coverage;
mod known;
mod layouts;
mod reader;

use bounds::{Bound, bound, complex_ulps, ulps};
use engine::fusion::{bind_args, layouts as predicted_layouts};
use engine::num::{DType, Value};
use engine::tensor::HostTensor;
use known::{Difference, KNOWN, Known};
use rayon::prelude::*;
use reader::{Case, Family};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::LazyLock;

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle"))
}

/// All cases, read once.
pub(crate) fn families() -> &'static [Family] {
    static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(read);
    &FAMILIES
}

fn read() -> Vec<Family> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "z"));
    paths.sort();
    paths.par_iter().map(|path| Family::load(path)).collect()
}

/// What one case came to.
#[derive(Default)]
struct Outcome {
    problems: Vec<String>,
    /// Positions in [`KNOWN`] of what explains a difference.
    explained: BTreeSet<usize>,
    /// The largest distance, in units in the last place, by result type.
    worst: Vec<(DType, u64)>,
    elements: usize,
}

impl Outcome {
    /// Notes a difference unless it is a known one.
    fn differ(&mut self, case: &Case, difference: Difference, message: String) {
        let known = KNOWN.iter().position(|known| known.matches(&case.id) && (known.allows)(&difference));
        match known {
            Some(position) => {
                self.explained.insert(position);
            }
            None => self.problems.push(message),
        }
    }
}

fn run(family: &Family, case: &Case) -> Outcome {
    let mut outcome = Outcome::default();
    let args = family.args(case);
    let fusion = match engine::text::parse_one(&case.text) {
        Ok(fusion) => fusion,
        Err(errors) => {
            outcome.differ(case, Difference::Refused, format!("is not read: {}", errors[0]));
            return outcome;
        }
    };
    let outputs = match engine::refeval::evaluate(&fusion, &args) {
        Ok(outputs) => outputs,
        Err(error) => {
            outcome.differ(case, Difference::Refused, format!("is not evaluated: {error}"));
            return outcome;
        }
    };
    let metas: Vec<_> = args.iter().map(engine::tensor::Arg::meta).collect();
    let predicted = predicted_layouts(&fusion, &bind_args(&fusion, &args).unwrap(), &metas).unwrap();
    assert_eq!(outputs.len(), case.outs.len(), "{}", case.id);
    for (position, ((actual, expected), strides)) in outputs.iter().zip(&case.outs).zip(&case.strides).enumerate() {
        if predicted[fusion.outputs[position]] != actual.meta {
            let predicted = &predicted[fusion.outputs[position]];
            outcome.problems.push(format!("output {position} is {:?}, predicted {predicted:?}", actual.meta));
        }
        if actual.dtype() != expected.dtype() || actual.sizes() != expected.sizes() {
            let message = format!(
                "output {position} is {} {:?}, expected {} {:?}",
                actual.dtype(),
                actual.sizes(),
                expected.dtype(),
                expected.sizes()
            );
            outcome.differ(case, Difference::Type, message);
            continue;
        }
        if actual.strides() != strides {
            let message = format!("output {position} has strides {:?}, expected {strides:?}", actual.strides());
            outcome.differ(case, Difference::Strides(actual.numel()), message);
        }
        compare(&mut outcome, case, actual, expected);
    }
    outcome
}

fn compare(outcome: &mut Outcome, case: &Case, actual: &HostTensor, expected: &HostTensor) {
    let dtype = expected.dtype();
    let bound = bound(case.op(), dtype);
    let finite = |v: f64| if v.is_finite() { v.abs() } else { 0.0 };
    let norm = expected.values().map(|v| finite(v.as_f64())).fold(0.0, f64::max);
    let (mut worst, mut reported) = (0, 0);
    for (position, (a, e)) in actual.values().zip(expected.values()).enumerate() {
        outcome.elements += 1;
        let distance = match (a, e) {
            (Value::Float(x), Value::Float(y)) => ulps(dtype, x, y),
            (Value::Complex(..), Value::Complex(..)) => complex_ulps(dtype, a.as_complex(), e.as_complex()),
            _ if a == e => 0,
            _ => u64::MAX,
        };
        let within = match bound {
            Bound::Ulps(most) => distance <= most,
            Bound::Norm(share) => distance == 0 || (a.as_f64() - e.as_f64()).abs() <= share * norm,
        };
        if within {
            worst = worst.max(distance);
            continue;
        }
        if reported == 0 || KNOWN.iter().any(|known| known.matches(&case.id)) {
            let message = format!("element {position} is {a:?}, expected {e:?}, {distance} units off");
            outcome.differ(case, Difference::Value(a, e), message);
        }
        reported += 1;
    }
    if let Bound::Ulps(_) = bound {
        outcome.worst.push((dtype, worst));
    }
}

#[test]
fn evaluator_agrees_with_pytorch() {
    let only = std::env::var("ORACLE").ok();
    let only = only.as_deref().map(|pattern| Known { pattern, allows: |_| true, reason: "" });
    let mut explained = vec![0; KNOWN.len()];
    let mut worst: BTreeMap<(String, DType), u64> = BTreeMap::new();
    let mut failed: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let (mut cases, mut elements) = (0, 0);
    for family in families() {
        let chosen: Vec<&Case> =
            family.cases.iter().filter(|case| only.as_ref().is_none_or(|only| only.matches(&case.id))).collect();
        let outcomes: Vec<(&Case, Outcome)> = chosen.into_par_iter().map(|case| (case, run(family, case))).collect();
        eprintln!("{}: {} cases, PyTorch {}", family.name, outcomes.len(), family.torch);
        cases += outcomes.len();
        for (case, outcome) in outcomes {
            outcome.explained.iter().for_each(|&position| explained[position] += 1);
            elements += outcome.elements;
            for (dtype, distance) in outcome.worst {
                let entry = worst.entry((case.op().to_string(), dtype)).or_default();
                *entry = distance.max(*entry);
            }
            if let Some(problem) = outcome.problems.into_iter().next() {
                let group = case.id.rsplit_once('/').map_or(case.id.clone(), |(head, _)| head.to_string());
                let entry = failed.entry(group).or_insert((0, String::new()));
                entry.0 += 1;
                if entry.1.is_empty() {
                    entry.1 = format!("{}: {problem}", case.id);
                }
            }
        }
    }
    let off = worst.iter().filter(|(_, distance)| **distance > 0);
    let off: Vec<String> = off.map(|((op, dtype), distance)| format!("{op} {dtype} {distance}")).collect();
    eprintln!("units in the last place off, where any: {}", off.join(", "));
    eprintln!("{cases} cases, {elements} elements");
    for (known, count) in KNOWN.iter().zip(&explained) {
        eprintln!("known: {}, {count} cases: {}", known.pattern, known.reason);
    }
    let count: usize = failed.values().map(|(count, _)| count).sum();
    let lines: Vec<String> = failed.values().map(|(count, text)| format!("{count:4} x {text}")).collect();
    assert!(failed.is_empty(), "{count} cases disagree:\n{}", lines.join("\n"));
    if only.is_none() {
        let unused = KNOWN.iter().zip(&explained).filter(|(_, count)| **count == 0);
        let unused: Vec<_> = unused.map(|(known, _)| known.pattern).collect();
        assert!(unused.is_empty(), "these explanations explain nothing any more: {unused:?}");
    }
}

/// FNV-1a of the scripts, as the data says which ones made it.
fn script_hash() -> String {
    let scripts = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts"));
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(scripts.join("oracle")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "py"));
    paths.sort();
    paths.insert(0, scripts.join("torch_oracle.py"));
    let mut state = 0xCBF2_9CE4_8422_2325u64;
    for path in paths {
        for byte in std::fs::read(path).unwrap() {
            state = (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        }
    }
    format!("{state:016x}")
}

#[test]
fn data_is_what_the_scripts_write() {
    let expected = script_hash();
    let mut bytes = 0;
    for family in families() {
        let Family { name, script, .. } = family;
        assert_eq!(*script, expected, "{name}: the scripts changed, run scripts/torch_oracle.py again");
        bytes += std::fs::metadata(folder().join(format!("{name}.z"))).unwrap().len();
    }
    assert!(bytes < 6 << 20, "{bytes} bytes of data");
}
