//! The case files themselves: every one is well formed, means something or is
//! refused as it says, and together they cover what they must. What the
//! engine makes of them is tested by running them.

use engine::fusion::ops;
use engine::num::DType;
use harness::case::{Case, Loaded, Target, load};
use harness::corpus::complaints;
use std::collections::BTreeSet;
use std::path::Path;

fn cases(target: Target) -> Loaded {
    let loaded = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases"), target);
    let errors: Vec<String> = loaded.errors.iter().map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    loaded
}

fn check_reading(target: Target) {
    let wrong = complaints(&cases(target).cases);
    assert!(wrong.is_empty(), "{} cases\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_case_reads_and_binds_as_it_says_on_the_simulator() {
    check_reading(Target::Sim);
}

#[test]
fn every_case_reads_and_binds_as_it_says_on_a_gpu() {
    check_reading(Target::Cuda);
}

#[test]
fn the_cases_cover_what_they_must() {
    let cases = cases(Target::Sim).cases;
    let (invalid, valid): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| !case.refusals().is_empty());
    assert!(cases.len() >= 2500, "{} ids", cases.len());
    assert!(invalid.len() >= 250, "{} refusals", invalid.len());
    assert!(cases.iter().all(|case| !case.about.is_empty()), "every case says why it exists");
    let scheduler = valid.iter().filter(|case| case.id.contains("Scheduler")).count();
    assert!(scheduler >= 100, "`*Scheduler*` selects {scheduler} ids");
    let mut words: BTreeSet<&str> = BTreeSet::new();
    for case in &valid {
        words.extend(case.text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
    }
    let missing = |names: &mut dyn Iterator<Item = &'static str>| -> Vec<&str> {
        names.filter(|name| !words.contains(name)).collect()
    };
    let ops = missing(&mut ops::all().map(|row| row.name));
    assert!(ops.is_empty(), "no case uses the operations {ops:?}");
    let dtypes = missing(&mut DType::ALL.iter().map(|dtype| dtype.name()));
    assert!(dtypes.iter().all(|name| *name == "f4e2m1fn_x2"), "no case has the types {dtypes:?}");
}
