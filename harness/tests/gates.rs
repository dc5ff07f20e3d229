//! What keeps a case from costing more than it did: the baseline of the simulator's counters that `bench` judges
//! by. Drives the binary as a user would, over regressions that are planted.

use crate::place::{CaseFile, GOOD, Place, check};

const BENCH: [&str; 6] = ["bench", "--sim", "1", "--filter", "*", "--format=plain"];
const ROWS: CaseFile<'static> = CaseFile { input: "f32[?, ?]", op: "sum %x axes(1)", size: "32, 3000", ..GOOD };

fn bless(reason: &str) -> Vec<&str> {
    [&BENCH[..], &["--bless", "--reason", reason]].concat()
}

/// A folder with two cases whose counters are accepted.
fn blessed(name: &str) -> Place {
    let place = Place::empty(name);
    place.case("rows", ROWS);
    let point = CaseFile { input: "f32[?, ?]", size: "64, 256", ..GOOD };
    place.case("point", point);
    check(&place, &bless("as it began"), 0, &["2 cases without a baseline", "counters.csv: 2 rows rewritten"]);
    place
}

/// A case of rows with these statements.
fn rows_of(place: &Place, name: &str, body: &str) {
    let head = "---\nversion = 1\nsuite = \"PlaceTest\"\nabout = \"why\"\n---\n";
    let text =
        format!("{head}fusion @{name}(%x: f32[?, ?]) {{\n{body}\n  return %out\n}}\n; inputs: x = normal[32, 3000]\n");
    place.file(&format!("cases/{name}.fuse"), &text);
}

/// Plants a regression of one case: the bench ends with 10 and names the case, the counter, what it was and is; so
/// does the comparison with the bench before it.
#[track_caller]
fn check_planted(case: &str, plant: impl Fn(&Place), counter: &str) {
    let place = blessed(&format!("gate-{counter}"));
    check(&place, &BENCH, 0, &["counters of 2 cases against cases/counters.csv: 2 as they were\n"]);
    plant(&place);
    let text = check(&place, &BENCH, 10, &["1 case dearer:", "in 1 case the text of the case is another too"]);
    let told = |text: &str| {
        let line = text
            .lines()
            .find(|line| line.contains(&format!("PlaceTest.{case} ")) && line.contains(&format!(" {counter} ")));
        line.map(|line| line.split_whitespace().map(String::from).collect::<Vec<_>>())
    };
    let line = told(&text[text.find("dearer:").expect("a list")..]).expect("a line of the counter");
    let [before, after]: [f64; 2] = [2, 3].map(|at: usize| line[at].parse().expect("a count"));
    assert!(after > before, "{text}");
    assert!(line[4] == "from" || (line[4].parse::<f64>().expect("a ratio") - after / before).abs() < 1e-3, "{text}");
    let compared = check(&place, &["compare", "latest~1", "latest"], 10, &["of costs that rose"]);
    assert_eq!(told(&compared).expect("a line")[2..4], line[2..4], "{compared}");
    check(
        &place,
        &["report", "--format", "md"],
        0,
        &["dearer", "### Dearer than the baseline", &format!("| {counter} |").replace('_', "\\_")],
    );
    let other = if case == "rows" { "point" } else { "rows" };
    assert!(!text[text.find("dearer:").expect("a list")..].contains(&format!("PlaceTest.{other}")), "{text}");
}

#[test]
fn an_input_by_columns_is_dearer() {
    let columns = CaseFile { size: "32, 3000] strides [1, 32", ..ROWS };
    check_planted("rows", |place| place.case("rows", columns), "store_sectors");
}

/// Elements that begin in the middle of a vector of four are read by fewer at a time.
#[test]
fn narrower_vectors_are_dearer() {
    let size = "64, 256] offset 2 strides [256, 1";
    let shifted = CaseFile { input: "f32[?, ?]", size, ..GOOD };
    check_planted("point", |place| place.case("point", shifted), "instructions");
}

#[test]
fn a_barrier_more_is_dearer() {
    let twice = "  %0 = softmax %x axis(1)\n  %out = sum %0 axes(1)";
    check_planted("rows", |place| rows_of(place, "rows", twice), "block_barriers");
}

/// Every case has a fifth more to do: all of them are named, and nothing is taken for a common cause.
#[test]
fn all_that_is_dearer_is_a_regression() {
    let place = Place::empty("gate-all");
    let names: Vec<String> = (0..6).map(|i| format!("c{i}")).collect();
    let write = |body: &str| names.iter().for_each(|name| rows_of(&place, name, body));
    write("  %out = gelu %x");
    check(&place, &bless("as it began"), 0, &["6 rows rewritten"]);
    write("  %0 = gelu %x\n  %1 = exp %0\n  %out = add %1, %x");
    let text = check(&place, &BENCH, 10, &["6 cases dearer:"]);
    for name in &names {
        assert!(text.contains(&format!("  PlaceTest.{name} ")), "{text}");
    }
    check(&place, &["compare", "latest~1", "latest"], 10, &["of costs that rose"]);
}

/// The same cases cost the same, however they are scheduled.
#[test]
fn without_a_change_there_is_no_alarm() {
    let place = blessed("gate-quiet");
    for (seed, workers) in [("0", "1"), ("7", "1"), ("8", "2"), ("9", "3")] {
        let bench = ["bench", "--sim", workers, "--filter", "*", "--format=plain", "--seed", seed];
        check(&place, &bench, 0, &["2 as they were\n"]);
        check(&place, &["compare", "latest~1", "latest"], 0, &["no differences"]);
    }
}

/// Fewer is told and no failure; what is not selected is neither judged nor accepted; a reason stays with its row.
#[test]
fn a_selection_narrows_what_is_judged_and_what_is_accepted() {
    let place = blessed("gate-narrow");
    let dear = CaseFile { size: "32, 3000] strides [1, 32", ..ROWS };
    place.case("rows", dear);
    place.case("point", CaseFile { input: "f32[?, ?]", size: "64, 256", op: "neg %x", ..GOOD });
    let only = |id: &'static str| ["bench", "--sim", "1", "--exact", id, "--format=plain"];
    check(
        &place,
        &only("PlaceTest.point"),
        0,
        &["1 case cheaper:", "and to hold what was gained: harness bench --bless"],
    );
    check(&place, &only("PlaceTest.rows"), 10, &["1 case dearer:"]);
    let before = place.read("cases/counters.csv");
    check(
        &place,
        &[&only("PlaceTest.point")[..], &["--bless", "--reason", "one, \"less\""]].concat(),
        0,
        &["1 row rewritten"],
    );
    let after = place.read("cases/counters.csv");
    let row = |text: &str, name: &str| text.lines().find(|line| line.starts_with(name)).map(String::from);
    assert_eq!(row(&before, "PlaceTest.rows"), row(&after, "PlaceTest.rows"));
    assert!(row(&after, "PlaceTest.point").is_some_and(|row| row.ends_with("\"one, \"\"less\"\"\"")), "{after}");
    assert!(row(&after, "PlaceTest.rows").is_some_and(|row| row.ends_with(",as it began")), "{after}");
    check(&place, &BENCH, 10, &["1 case dearer:", "counters of 2 cases", "1 as they were, 1 other, 1 dearer"]);
    check(&place, &bless("now by columns"), 0, &["1 row rewritten"]);
    check(&place, &BENCH, 0, &["2 as they were\n"]);
    // A case that is gone, and one that is new: told, no failure.
    std::fs::rename(place.path("cases/point.fuse"), place.path("cases/other.fuse")).expect("renames");
    place.case("other", CaseFile { input: "f32[?, ?]", size: "64, 256", more: "; perf: goal dram 0.5\n", ..GOOD });
    let bench = ["bench", "--sim", "1", "--format=plain"];
    check(
        &place,
        &bench,
        0,
        &[
            "1 case in the baseline, and no case any more: PlaceTest.point",
            "1 case without a baseline: PlaceTest.other",
        ],
    );
    check(&place, &[&bench[..], &["--bless", "--reason", "renamed"]].concat(), 0, &["1 row rewritten, 1 taken out"]);
    assert_eq!(place.read("cases/counters.csv").lines().count(), 3);
}

/// Mistakes are told before anything is run.
#[test]
fn a_blessing_has_a_reason_and_a_table_is_one() {
    let place = blessed("gate-mistakes");
    check(&place, &[&BENCH[..], &["--bless"]].concat(), 2, &["needs --reason TEXT"]);
    check(&place, &bless(" "), 2, &["a line of at most 200 characters"]);
    check(&place, &["run", "--sim", "1", "--reason", "x"], 2, &["`--reason` belongs to `bench`"]);
    check(&place, &[&BENCH[..], &["--reason", "x"]].concat(), 2, &["`--reason` says why `--bless`"]);
    let table = place.read("cases/counters.csv");
    place.file("cases/counters.csv", &format!("{table}<<<<<<< ours\n"));
    check(&place, &BENCH, 96, &["counters.csv: line 4: ", "mend the line by hand"]);
    std::fs::remove_file(place.path("cases/counters.csv")).expect("removes");
    check(&place, &BENCH, 0, &["no cases/counters.csv holds the counters: `harness bench --bless --reason TEXT`"]);
}
