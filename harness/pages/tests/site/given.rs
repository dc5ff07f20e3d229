//! What the harness would say of the cases of a history that is made up.

use super::nights::{FAMILIES, case_id, run_id};
use pages::{CaseFact, Failed, Given, Quarantined};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) fn given(results: PathBuf, nights: usize, cases: usize) -> Given {
    let file = "cases/perf/roofline.fuse";
    let fact = |case: usize| CaseFact {
        suite: "RooflineTest".into(),
        tags: vec!["perf".into()],
        about: "a shape whose time is the time to move its bytes once".into(),
        file: file.into(),
        line: 1 + case % FAMILIES.len(),
        goal: Some(0.9),
        measured: true,
        gpu: true,
        schedule: "reduction vector 8 threads 256x1 unroll 2x1".into(),
        launch: "grid 132x1x1 block 256x1x1 shared 0".into(),
        ..CaseFact::default()
    };
    let mut facts: BTreeMap<String, CaseFact> = (0..cases).map(|case| (case_id(case), fact(case))).collect();
    facts.insert("RooflineTest.NeverRan/m=1,n=<b>".into(), fact(0));
    let text: String =
        FAMILIES.iter().map(|name| format!("fusion @{name}(%x: bf16[?, ?]) {{ return %x }} ; <script>\n")).collect();
    let failed = Failed {
        run: run_id(nights - 1),
        case: case_id(2),
        outcome: "fail.numerics".into(),
        detail: "%0 is not what the reference says: 1 of 3 elements differ\n<script>alert(1)</script>".into(),
    };
    let quarantined = Quarantined {
        id: case_id(4),
        owner: "compiler".into(),
        issue: "12".into(),
        reason: "rare".into(),
        until: "2030-01-01".into(),
    };
    Given {
        results,
        title: "Fusewright".into(),
        made: "made of a history that is made up".into(),
        cases: facts,
        files: [(file.to_string(), text)].into(),
        quarantine: vec![quarantined],
        costs: Vec::new(),
        failures: vec![failed],
    }
}
