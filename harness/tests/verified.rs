//! Outputs that passed before, through the whole binary.

use crate::place::{CaseFile, GOOD, Place, check, records};
use serde_json::Value;

const ONCE: [&str; 5] = ["--sim", "1", "--reference", "once", "--seed=1"];

fn run(place: &Place, exit: i32, parts: &[&str]) -> (String, Vec<Value>) {
    let text = check(place, &ONCE, exit, parts);
    (text, place.records())
}

fn of_kind<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["k"] == kind).collect()
}

/// What the attempts were held to, and how many cases the end says had passed before.
fn held(records: &[Value]) -> (Vec<&str>, u64) {
    let attempts = of_kind(records, "attempt");
    let mut words: Vec<&str> = attempts.iter().map(|attempt| attempt["held_to"].as_str().unwrap_or("")).collect();
    words.sort_unstable();
    (words, of_kind(records, "end")[0]["summary"]["held_to_digest"].as_u64().expect("a count"))
}

const TOLD: &str = "had passed before, by their digest";

#[test]
fn outputs_are_compared_with_the_reference_once() {
    let place = Place::good("verified", &[4, 40]);
    let (text, first) = run(&place, 0, &["2 passed"]);
    assert!(held(&first) == (vec!["reference", "reference"], 0) && !text.contains(TOLD), "{text}");
    let (_, second) = run(&place, 0, &["outputs of 2 cases had passed before", "2 passed"]);
    assert_eq!(held(&second), (vec!["digest", "digest"], 2));
    for (records, compared) in [(&first, true), (&second, false)] {
        for attempt in of_kind(records, "attempt") {
            let phases = &attempt["phases"];
            assert_eq!((attempt["numerics"].is_object(), phases["reference"].is_u64()), (compared, compared));
        }
    }
    let digests = |records: &[Value]| -> Vec<(Value, Value)> {
        of_kind(records, "attempt").iter().map(|a| (a["case_id"].clone(), a["out_digest"].clone())).collect()
    };
    assert!(digests(&first).iter().all(|digest| digests(&second).contains(digest)));
    // By default the simulator's outputs are compared.
    let text = check(&place, &["--sim", "1"], 0, &["2 passed"]);
    assert!(held(&place.records()).1 == 0 && !text.contains(TOLD), "{text}");
    // What is expected is another thing: of all cases, since each has the line.
    let other = CaseFile { front: "[axes]\nm = [4, 40]\n", size: "$m", more: "; check: exact\n", ..GOOD };
    place.case("good", other);
    assert_eq!(held(&run(&place, 0, &["2 passed"]).1).0, ["reference", "reference"]);
    assert_eq!(held(&run(&place, 0, &["2 passed"]).1).0, ["digest", "digest"]);
    // What the case says of its outputs is no less wrong because they passed.
    place.case("good", CaseFile { more: "; check: exact\n; values: [0.0, ...]\n", ..other });
    let (text, wrong) = run(&place, 100, &["fail.reference"]);
    assert!(!text.contains(TOLD) && of_kind(&wrong, "attempt").iter().all(|a| a["held_to"] == Value::Null), "{text}");
}

#[test]
fn a_damaged_table_costs_comparisons_and_is_told() {
    let place = Place::good("verified-damaged", &[4, 40]);
    run(&place, 0, &["2 passed"]);
    let table = "results/history/simulator/verified.csv";
    let text = place.read(table);
    let row = text.lines().nth(1).expect("a row");
    let cells: Vec<&str> = row.split(',').collect();
    // A row that says nothing, and one that says another thing: neither makes a verdict.
    let at = cells.len() - 2;
    let other: String = cells[at].chars().map(|c| if c == 'f' { '0' } else { 'f' }).collect();
    place.file(table, &text.replace(cells[at], &other));
    assert_eq!(held(&run(&place, 0, &["2 passed"]).1).0, ["digest", "reference"]);
    place.file(table, &text.replace(cells[at], "no digest"));
    let (text, records) = run(&place, 0, &["2 passed", "verified.csv has 1 damaged line"]);
    assert_eq!(held(&records).0, ["digest", "reference"], "{text}");
    assert_eq!(held(&run(&place, 0, &["2 passed"]).1).0, ["digest", "digest"]);
}

#[test]
fn repeats_of_a_hunt_are_compared_once() {
    let place = Place::good("verified-hunt", &[]);
    let hunt = ["hunt", "--sim", "1", "--repeat", "4", "--reference", "once"];
    check(&place, &hunt, 0, &["outputs of 3 repeats had passed before"]);
    let all = records(&place.newest());
    assert_eq!(held(&all), (vec!["digest", "digest", "digest", "reference"], 3));
    check(&place, &hunt, 0, &["outputs of 4 repeats had passed before"]);
    check(&place, &["--sim", "1", "--reference", "sometimes"], 2, &["does not know `sometimes`"]);
}
