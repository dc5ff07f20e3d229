//! Failures that depend on chance, on order or on neighbours. Each is a function
//! of [`FaultFacts`], so that `selftest` knows which attempts must fail.

use super::table::{FaultClass, FaultFacts, FaultKind, Scene};
use crate::outcome::Outcome;

pub(super) const CLASSES: &[FaultClass] = &[
    FaultClass::returns("flaky", FaultKind::Statistics, "fail.assert", "fails with probability P", judged)
        .takes("P", "0.5")
        .fails(|facts, value| draw(facts) < value.parse().unwrap_or(0.5)),
    FaultClass::returns(
        "pollute",
        FaultKind::Innocent,
        "pass",
        "passes, and spoils `victim` of the same label",
        |_, _| Outcome::pass(),
    )
    .takes("LABEL", "A"),
    FaultClass::returns(
        "victim",
        FaultKind::Statistics,
        "fail.assert",
        "fails after `pollute` of each of its labels ran in the same worker",
        judged,
    )
    .takes("LABEL[+LABEL...]", "A")
    .fails(|facts, value| {
        let ran = |id: &str, label: &str| {
            let spec = super::Spec::parse(id.strip_prefix("__fault.")?)?;
            Some((spec.class.name, spec.value) == ("pollute", label))
        };
        value.split('+').all(|label| facts.ran.iter().any(|id| ran(id, label) == Some(true)))
    }),
    FaultClass::returns(
        "position",
        FaultKind::Statistics,
        "fail.assert",
        "fails after more than N cases of its worker",
        judged,
    )
    .takes("N", "3")
    .fails(|facts, value| facts.position > value.parse().unwrap_or(3)),
    FaultClass::returns(
        "shared",
        FaultKind::Statistics,
        "fail.assert",
        "fails when N workers share its device",
        judged,
    )
    .takes("N", "2")
    .fails(|facts, value| facts.sharers >= value.parse().unwrap_or(2)),
];

fn judged(scene: &Scene<'_>, _: &str) -> Outcome {
    // The id carries the spec, so that one function serves all rows.
    let text = scene.facts.case_id.strip_prefix("__fault.").unwrap_or_default();
    let failing = super::Spec::parse(text)
        .is_some_and(|spec| spec.class.fails.is_some_and(|fails| fails(&scene.facts, spec.value)));
    match failing {
        true => Outcome::fail("fail.assert", format!("`{text}` fails here")),
        false => Outcome::pass(),
    }
}

/// A number in [0, 1) that depends on the seed, the case and the attempt.
fn draw(facts: &FaultFacts) -> f64 {
    let id = u64::from(crc32fast::hash(facts.case_id.as_bytes()));
    let tries = u64::from(facts.attempt) << 32 | u64::from(facts.repeat);
    let mix = crate::worker::args::mix;
    (mix(mix(mix(facts.seed) ^ id) ^ tries) >> 11) as f64 / (1u64 << 53) as f64
}
