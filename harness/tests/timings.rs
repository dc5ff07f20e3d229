//! Times of kernels on GPUs against their history: played GPUs take what their file says, with noise from seed to seed.
//! Drives the binary as a user would, over slowdowns that are planted.

use crate::place::{CaseFile, GOOD, Place, check};

const CASES: usize = 8;

fn case(op: &'static str) -> CaseFile<'static> {
    CaseFile { input: "f32[?, ?]", size: "64, 256", op, ..GOOD }
}

/// The file of a machine whose kernels vary by 0.3 %, and where these cases take so many times as long.
fn machine(place: &Place, name: &str, slow: &str, factor: f64) {
    let slow =
        if slow.is_empty() { String::new() } else { format!("slow = [{{ at = \"{slow}\", factor = {factor} }}]\n") };
    place.file(name, &format!("[[gpu]]\nsm_clock_mhz = 1980\n[times]\nnoise = 0.003\n{slow}"));
}

fn bench<'a>(seed: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let words = ["bench", "--gpus", "1", "--nvml", "machine.toml", "--filter", "*", "-q", "--seed", seed];
    [&words[..], more].concat()
}

/// A folder of eight cases that were measured in eight runs.
fn measured(name: &str) -> Place {
    let place = Place::empty(name);
    (0..CASES).for_each(|i| place.case(&format!("c{i}"), case("add %x, %x")));
    machine(&place, "machine.toml", "", 1.0);
    check(&place, &bench("1", &[]), 0, &["8 without a history"]);
    for seed in ["2", "3", "4", "5", "6", "7", "8"] {
        check(&place, &bench(seed, &[]), 0, &["times of 8 cases against their history"]);
    }
    place
}

/// Another kernel of the same cost for a case.
fn change(place: &Place, name: &str) {
    place.case(name, case("mul %x, %x"));
}

/// The line of a case in the table of what was found.
fn line_of(text: &str, id: &str) -> String {
    let table = text.find("before us").map(|at| &text[at..]).unwrap_or_default();
    table.lines().find(|line| line.contains(&format!("{id} "))).unwrap_or_default().to_string()
}

#[test]
fn a_case_that_is_slower_than_its_noise_is_a_regression() {
    let place = measured("times-slower");
    check(&place, &bench("9", &[]), 0, &["8 as they were", "all cases together: "]);
    change(&place, "c3");
    machine(&place, "machine.toml", "PlaceTest.c3", 1.06);
    let text = check(&place, &bench("10", &[]), 10, &["1 slower, 7 as they were", "--baseline FILE"]);
    let line = line_of(&text, "PlaceTest.c3");
    let told: f64 = line.split('+').nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).expect("a change");
    // Within a percentage point of what was planted.
    assert!((told - 6.0).abs() < 1.0 && line.ends_with("slower"), "{text}");
    let compared = check(&place, &["compare", "latest~1", "latest"], 10, &["slower: 1", "PlaceTest.c3"]);
    assert!(!compared.contains("slower as a whole"), "{compared}");
    check(&place, &["compare", "latest~3", "latest~1"], 0, &[]);
    // It stays red, although the last run was as slow.
    check(&place, &bench("11", &[]), 10, &["1 slower"]);
    let table = place.read("results/history/played-gpu/gate.csv");
    assert_eq!(table.lines().filter(|line| line.contains(",PlaceTest.c3,slower,1.0")).count(), 2, "{table}");
    // Accepted with a reason, it is what the case may take.
    check(&place, &bench("12", &["--bless", "--reason", "more digits"]), 0, &["what is slower is accepted"]);
    let table = place.read("results/history/played-gpu/gate.csv");
    assert!(
        table.lines().last().is_some_and(|line| line.contains(",accepted,") && line.ends_with("more digits")),
        "{table}"
    );
    check(&place, &bench("13", &[]), 0, &["8 as they were"]);
    machine(&place, "machine.toml", "", 1.0);
    check(&place, &bench("14", &[]), 0, &["1 faster"]);
    let runs = place.read("results/history/played-gpu/runs.csv");
    assert!(runs.lines().skip(1).all(|line| line.contains(",1980,Played GPU,")), "{runs}");
}

#[test]
fn the_same_code_is_not_blamed_and_small_changes_are_none() {
    let place = measured("times-same");
    machine(&place, "machine.toml", "PlaceTest.c3", 1.06);
    let text = check(&place, &bench("9", &[]), 0, &["1 slower with the same code (the machine)"]);
    assert!(line_of(&text, "PlaceTest.c3").ends_with("same code"), "{text}");
    change(&place, "c4");
    machine(&place, "machine.toml", "PlaceTest.c4", 1.004);
    let text = check(&place, &bench("10", &[]), 0, &["1 faster, 7 as they were"]);
    assert!(line_of(&text, "PlaceTest.c3").ends_with("faster"), "{text}");
    // What was found is in the records, from which the table is made again.
    let table = place.read("results/history/played-gpu/gate.csv");
    assert!(table.contains(",PlaceTest.c3,same code,1.0"), "{table}");
    place.file("results/history/played-gpu/gate.csv", &table.replace("same code,1.0", "slower,1.0"));
    check(&place, &["store", "verify"], 96, &["PlaceTest.c3 of ", "finding is `slower`, by the record `same code`"]);
    check(&place, &["store", "repair"], 0, &["gate.csv: 1 rows put right"]);
    std::fs::remove_file(place.path("results/history/played-gpu/gate.csv")).expect("removes");
    check(&place, &["store", "repair"], 0, &["gate.csv: 2 rows put in from runs"]);
    assert_eq!(place.read("results/history/played-gpu/gate.csv"), table);
}

#[test]
fn all_that_gets_slower_together_is_a_regression() {
    let place = measured("times-all");
    machine(&place, "machine.toml", "*", 1.04);
    check(&place, &bench("9", &[]), 10, &["slower as a whole, all with the same code: look at the machine first"]);
    check(&place, &["compare", "latest~1", "latest"], 10, &["all kernels together: +", "slower as a whole"]);
    (0..CASES).for_each(|i| change(&place, &format!("c{i}")));
    check(&place, &bench("10", &[]), 10, &["8 slower", "slower as a whole"]);
}

/// A kept binary: this one with the cases as they were, on a machine of its own. The words say what else it does.
fn keep(place: &Place, name: &str, machine: &str) {
    let harness = env!("CARGO_BIN_EXE_harness");
    let cases = "for word do shift; case $word in */cases) word=old;; esac; set -- \"$@\" \"$word\"; done";
    place.program(name, &format!("#!/bin/sh\n{cases}\nexec {harness} \"$@\" {machine}\n"));
}

/// Keeps the cases as they are.
fn keep_cases(place: &Place) {
    std::fs::create_dir_all(place.path("old")).expect("a folder");
    (0..CASES).for_each(|i| place.file(&format!("old/c{i}.fuse"), &place.read(&format!("cases/c{i}.fuse"))));
}

/// A kept binary that is quick where this one is slow confirms; one that is as slow refutes.
#[test]
fn a_second_look_decides() {
    let place = measured("times-turns");
    keep_cases(&place);
    change(&place, "c3");
    machine(&place, "machine.toml", "PlaceTest.c3", 1.05);
    machine(&place, "quick.toml", "", 1.0);
    keep(&place, "kept/quick", "--nvml quick.toml");
    keep(&place, "kept/slow", "");
    place.program("kept/broken", "#!/bin/sh\necho no driver here\nexit 7\n");
    let text =
        check(&place, &bench("10", &["--baseline", "kept/quick"]), 10, &["1 slower", "1 case in up to 3 rounds"]);
    assert!(line_of(&text, "PlaceTest.c3").ends_with("confirmed"), "{text}");
    assert!(place.read("results/history/played-gpu/gate.csv").contains(",slower,1.0"), "{text}");
    // Where it cannot be asked, history decides.
    let why = "no further round could be measured: round 1, measurement 1 of 4, by the kept binary: ";
    check(&place, &bench("11", &["--baseline", "kept/broken"]), 10, &[why, "no driver here"]);
    check(&place, &bench("12", &["--baseline", "kept/none"]), 2, &["kept/none: there is no program"]);
    let text = check(&place, &bench("13", &["--baseline", "kept/slow"]), 0, &["1 slower"]);
    assert!(line_of(&text, "PlaceTest.c3").ends_with("refuted"), "{text}");
    // All together.
    machine(&place, "machine.toml", "*", 1.04);
    check(&place, &bench("15", &["--baseline", "kept/quick"]), 10, &["slower as a whole", "in turns +", "confirmed"]);
    check(&place, &bench("16", &["--baseline", "kept/slow"]), 0, &["slower as a whole", "refuted"]);
}

/// A case that fails in turns is told, and the others are measured on; what a binary that breaks in the third round measured before
/// stays, and history decides what that did not.
#[test]
fn what_breaks_in_turns_is_told_and_the_rest_stays() {
    let place = measured("times-broken-turns");
    keep_cases(&place);
    ["c3", "c5"].iter().for_each(|name| change(&place, name));
    machine(&place, "machine.toml", "PlaceTest.c3", 1.05);
    machine(&place, "quick.toml", "", 1.0);
    keep(&place, "kept/quick", "--nvml quick.toml");
    place.program(
        "kept/dies",
        "#!/bin/sh\necho >> asked\n[ $(wc -l < asked) -gt 4 ] && { echo the disk is full; exit 7; }\nexec kept/quick \"$@\"\n",
    );
    let broken = place.read("old/c5.fuse") + "; expect: kernels = 9\n";
    place.file("old/c5.fuse", &broken);
    let said = ["1 confirmed", "in turns no longer measured: PlaceTest.c5: fail.golden, by the kept one"];
    let text = check(&place, &bench("10", &["--baseline", "kept/quick"]), 10, &said);
    assert!(line_of(&text, "PlaceTest.c3").ends_with("confirmed"), "{text}");
    assert!(text.contains(" of 10 m 00 s"), "a budget that nobody gave is told: {text}");
    let said =
        ["in up to 2 rounds of A B B A: ", "round 3, measurement 1 of 4, by the kept binary: ", "the disk is full"];
    let text = check(&place, &bench("11", &["--baseline", "kept/dies"]), 10, &said);
    let line = line_of(&text, "PlaceTest.c3");
    assert!(line.ends_with("slower") && line.contains(" +-"), "by history, beside what turns told: {text}");
}

/// Without any history a kept binary tells slowdowns of a few percent, and by how much.
#[test]
fn a_kept_binary_tells_what_no_history_does() {
    let place = Place::empty("times-kept");
    (0..CASES).for_each(|i| place.case(&format!("c{i}"), case("add %x, %x")));
    keep_cases(&place);
    ["c1", "c3", "c5"].iter().for_each(|name| change(&place, name));
    let slow =
        [("c3", 1.03), ("c5", 1.1)].map(|(name, factor)| format!("{{ at = \"PlaceTest.{name}\", factor = {factor} }}"));
    let noise = "[[gpu]]\nsm_clock_mhz = 1980\n[times]\nnoise = 0.004\n";
    place.file("machine.toml", &format!("{noise}slow = [{}]\n", slow.join(", ")));
    place.file("quick.toml", noise);
    keep(&place, "kept/quick", "--nvml quick.toml");
    let said = ["of A B B A: 2 confirmed, 1 refuted, 5 same code", "where that is meant"];
    let text = check(&place, &bench("1", &["--baseline", "kept/quick"]), 10, &said);
    for (name, factor) in [("c3", 3.0), ("c5", 10.0)] {
        let line = line_of(&text, &format!("PlaceTest.{name}"));
        let turns = line.split(" +-").next().and_then(|cells| cells.rsplit('+').next());
        let told: f64 = turns.and_then(|cell| cell.trim_end_matches(" %").trim().parse().ok()).expect("a change");
        assert!((told - factor).abs() < 1.0 && line.ends_with("confirmed"), "{text}");
    }
    // Time for one round says nothing yet.
    let said = ["2 cannot tell", "of 0.00 s, which were over (--budget)"];
    let text = check(&place, &bench("2", &["--baseline", "kept/quick", "--budget", "1ms"]), 0, &said);
    assert!(text.contains("2 cases in up to 1 round of A B B A"), "{text}");
}
