//! Flakes hunted, replayed and explained through real workers, as a user would.
//! Planted faults have known rates, polluters and conditions.

use crate::place::{self, CaseFile, GOOD, Place, check};

/// A place with a case that passes and one that fails.
fn with_cases(name: &str) -> Place {
    let place = Place::good(name, &[]);
    place.case("wrong", CaseFile { size: "2", more: "; values: [1.0, 1.0]\n", ..GOOD });
    place
}

/// Runs with fault cases of these ids, in this order.
fn faults(place: &Place, command: &[&str], ids: &[String]) -> (i32, String) {
    place.file("list.txt", &ids.join("\n"));
    let faults = ["--ref", "--with-faults", "--format", "plain", "--from-file", "list.txt"];
    place.run(&[command, &faults].concat())
}

/// Records of one kind of the run that was written last, a hunt included.
fn of_kind(place: &Place, kind: &str) -> Vec<serde_json::Value> {
    place::records(&place.newest()).into_iter().filter(|record| record["k"] == kind).collect()
}

fn fault(spec: &str) -> String {
    format!("__fault.{spec}")
}

/// `count` cases that pass, with others at the given places.
fn among(count: usize, others: &[(usize, &str)]) -> Vec<String> {
    let at = |place: usize| others.iter().find(|(other, _)| *other == place).map(|(_, spec)| fault(spec));
    (0..count).map(|place| at(place).unwrap_or_else(|| fault(&format!("pass@{place}")))).collect()
}

/// Rates are found through real workers; a broken case and a polluted one are
/// told apart from flaky ones.
#[test]
fn a_hunt_tells_rates_and_what_they_depend_on() {
    let place = with_cases("hunt");
    let mut ids: Vec<String> =
        ["flaky=0.2", "flaky=0.05", "flaky=0.03", "fail", "pollute=A", "victim=A"].map(fault).into();
    ids.extend((0..4).map(|n| fault(&format!("pass@{n}"))));
    // By this seed the victim comes before the polluter the first time, so it passes once.
    let (code, text) = faults(&place, &["hunt", "--jobs", "2", "--seed", "42"], &ids);
    assert_eq!(code, 100, "{text}");
    let records = of_kind(&place, "hunt");
    assert_eq!(records.len(), ids.len(), "{text}");
    let of = |id: &str| records.iter().find(|record| record["case_id"] == fault(id).as_str()).expect("a record");
    let finding = |id: &str| of(id)["finding"].as_str().unwrap_or_default().to_string();
    for (id, rate) in [("flaky=0.2", 0.2), ("flaky=0.05", 0.05), ("flaky=0.03", 0.03)] {
        assert_eq!(finding(id), "flaky", "{text}");
        let bound = |key: &str| of(id)[key].as_f64().expect("a rate");
        // Twice the interval's width, so that a rare draw is no failure of the test.
        let (low, high) = (bound("low"), bound("high"));
        assert!(low - (high - low) / 2.0 <= rate && rate <= high + (high - low) / 2.0, "{id}: {low} {high}");
        assert_eq!(of(id)["class"], "intrinsic", "{text}");
    }
    assert_eq!(finding("fail"), "broken", "{text}");
    assert_eq!(
        (finding("victim=A").as_str(), &of("victim=A")["class"]),
        ("flaky", &"state-dependent".into()),
        "{text}"
    );
    for n in 0..4 {
        assert_eq!(finding(&format!("pass@{n}")), "clean", "{text}");
    }
    assert!(text.contains("5 clean, 4 flaky, 1 broken, 0 undecided"), "{text}");
    assert!(text.contains("% of the ") && text.contains("that a fixed number with the same errors takes"), "{text}");
    // Each attempt is on record with what a replay needs.
    let attempts = of_kind(&place, "attempt");
    assert!(attempts.len() > 3000 && attempts.iter().all(|a| a["seed"].is_u64() && a["worker_id"].is_string()));
}

#[test]
fn a_hunt_obeys_counts_and_budgets() {
    let place = with_cases("counts");
    let ids = among(3, &[(1, "fail")]);
    let (code, text) = faults(&place, &["hunt", "--jobs", "1", "--repeat", "7"], &ids);
    assert_eq!(code, 11, "{text}");
    assert_eq!(of_kind(&place, "attempt").len(), 21, "{text}");
    let (code, text) = faults(&place, &["hunt", "--jobs", "1", "--until-fail"], &ids);
    assert_eq!(code, 11, "{text}");
    assert!(of_kind(&place, "attempt").len() <= 3, "{text}");
    let (code, text) = faults(&place, &["hunt", "--jobs", "1", "--budget", "1ms"], &ids);
    assert_eq!(code, 6, "{text}");
    assert!(text.contains("0 clean, 0 flaky, 0 broken, 3 undecided"), "{text}");
    // A count that is not reached is no clean end.
    let short = ["hunt", "--jobs", "1", "--repeat", "1000000", "--budget", "1s"];
    let (code, text) = faults(&place, &short, &among(2, &[]));
    assert_eq!(code, 6, "{text}");
    let (code, text) =
        faults(&place, &["hunt", "--jobs", "2", "--bound", "0.2@95", "--isolation", "case"], &among(2, &[]));
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("2 clean: rate < "), "{text}");
    let equal = |name: &str| {
        let attempts = of_kind(&place, "attempt");
        attempts.iter().all(|a| a["position"] == 0).then_some(()).expect(name);
    };
    equal("each in a worker of its own");
    check(&place, &["hunt", "--bound", "2@95"], 2, &["E0506", "0.01@95"]);
    // A share of the cases for a tool is one of the selected.
    let share = ["hunt", "--sim", "1", "--repeat", "1", "--format", "plain", "--sanitize", "memcheck=0.0001"];
    check(&place, &share, 0, &["memcheck: 1 of 2 selected cases", "1 undecided"]);
    for command in [&["replay", "--exact", "PlaceTest.good"][..], &["why", "PlaceTest.good"]] {
        let args = [command, &["--sim", "1", "--sanitize", "memcheck=0.5"]].concat();
        check(&place, &args, 2, &["E0506", "takes no share", "--sanitize memcheck checks them all"]);
    }
    check(&place, &["run", "--until-fail"], 2, &["E0506", "`hunt`"]);
}

/// One polluter among 200 cases within 2 log2(200) + 10 = 25 runs of their list,
/// two within 60: from the record of a run to the command that shows it.
#[test]
fn the_polluters_of_a_dead_worker_are_found() {
    let place = with_cases("polluters");
    for (plan, polluters, most) in [
        (vec![(63, "pollute=A")], vec!["pollute=A"], 25),
        (vec![(20, "pollute=A"), (150, "pollute=B")], vec!["pollute=A", "pollute=B"], 60),
    ] {
        let victim = if polluters.len() == 1 { "victim=A" } else { "victim=A+B" };
        let mut ids = among(200, &plan);
        ids.push(fault(victim));
        // One repeat of each, in the order of a shuffle that has the polluters before the victim.
        let found = (0..20).find_map(|seed| {
            let (_, text) = faults(
                &place,
                &["hunt", "--jobs", "1", "--repeat", "1", &format!("--shuffle={seed}"), "--recycle", "1000"],
                &ids,
            );
            text.contains("1 of 1 failed").then_some(text)
        });
        assert!(found.is_some(), "no order has {polluters:?} first");
        let exact = fault(victim);
        let hunt = place.newest();
        let worker = format!("W0@{}", hunt.file_name().and_then(|name| name.to_str()).expect("a name"));
        let args = ["replay", "--worker", &worker, "--exact", &exact, "--minimize", "--format", "plain"];
        let (code, text) = place.run(&args);
        assert_eq!(code, 100, "{text}");
        let record = of_kind(&place, "replay").pop().expect("a record");
        let mut set: Vec<String> = record["polluters"]
            .as_array()
            .expect("a set")
            .iter()
            .map(|id| id.as_str().expect("an id").into())
            .collect();
        set.sort();
        assert_eq!(set, polluters.iter().map(|spec| fault(spec)).collect::<Vec<_>>(), "{text}");
        let trials = record["trials"].as_u64().expect("a number");
        assert!(trials <= most, "{trials} runs:\n{text}");
        // The command that it prints shows the failure.
        let line =
            text.lines().find_map(|line| line.strip_prefix("shown by: cargo run -p harness -- ")).expect("a command");
        let words: Vec<&str> = line.split(' ').collect();
        let (code, text) = place.run(&words);
        assert_eq!(code, 100, "{line}\n{text}");
        assert!(text.contains("recurs in 3 of 3 replays"), "{text}");
    }
}

/// A worker that died is replayed from an ordinary run, without naming it.
#[test]
fn a_dead_worker_is_replayed() {
    let place = with_cases("dead");
    let run = ["run", "--jobs", "1", "--retries", "0", "--run-id", "nightly"];
    let (code, text) = faults(&place, &run, &among(5, &[(3, "segv")]));
    assert_eq!(code, 103, "{text}");
    check(
        &place,
        &["replay", "--format", "plain"],
        103,
        &["as worker ref0-w0 of run nightly did", "recurs in 3 of 3 replays", "crash.sigsegv"],
    );
    // A worker that dies before the case says nothing about the case.
    let list = ["replay", "--exact", "__fault.segv", "--exact", "PlaceTest.good", "--ref", "--jobs", "1"];
    check(
        &place,
        &[&list[..], &["--with-faults", "--format", "plain"]].concat(),
        6,
        &["PlaceTest.good was not reached"],
    );
    check(&place, &["replay", "--worker", "ref9-w9@latest"], 106, &["E0507", "ref9-w9"]);
    check(&place, &["replay", "--worker", "W0@nosuch"], 106, &["E0702", "nosuch"]);
}

/// The sweep names the condition: a neighbour, or a second worker on the device.
#[test]
fn why_names_the_condition() {
    let place = with_cases("why");
    let victim = fault("victim=A");
    let polluter = fault("pollute=A");
    let args = ["why", &victim, "--exact", &polluter, "--ref", "--jobs", "2", "--with-faults", "--format", "plain"];
    let (code, text) = place.run(&args);
    assert_eq!(code, 0, "{text}");
    let factors = of_kind(&place, "factor");
    let significant: Vec<&str> =
        factors.iter().filter(|f| f["significant"] == true).filter_map(|f| f["factor"].as_str()).collect();
    // Other neighbours do not pollute, no neighbours neither.
    assert_eq!(significant, ["isolation", "neighbours"], "{text}");
    assert!(text.contains("* isolation worker -> case") && text.contains("needs isolation worker"), "{text}");
    assert!(text.contains(": enough"), "{text}");
    // Fails only where two workers share the device: from one worker, a second raises the rate.
    let shared = fault("shared=2");
    let args = ["why", &shared, "--sim", "1", "--jobs", "1", "--with-faults", "--format", "plain"];
    let (code, text) = place.run(&args);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("workers_per_device 2 raises the rate"), "{text}");
    // Without any condition that matters, this is said, with what it would take.
    let args = ["why", "PlaceTest.good", "--ref", "--jobs", "1", "--format", "plain", "--repeat", "5"];
    let (code, text) = place.run(&args);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("nothing is significant") && text.contains("did not fail under these conditions"), "{text}");
}

#[test]
fn quarantined_failures_do_not_gate() {
    let place = with_cases("quarantine");
    let base = ["--ref", "--format", "plain", "--retries", "0"];
    check(&place, &base, 100, &["1 passed, 1 failed, 0 skipped"]);
    let entry = ["--owner", "me", "--issue", "#1", "--reason", "a known one"];
    let add = |until: &'static str| [&["quarantine", "add", "PlaceTest.w*"][..], &entry, &["--until", until]].concat();
    check(&place, &["quarantine", "add", "PlaceTest.w*"], 96, &["E0508", "`owner` is missing"]);
    check(&place, &["quarantine", "add", "PlaceTest.x"], 2, &["no case is `PlaceTest.x`"]);
    check(&place, &add("2999-01-31"), 0, &["is in quarantine until 2999-01-31"]);
    check(&place, &["quarantine", "list"], 0, &["PlaceTest.w*  until 2999-01-31, 1 cases", "a known one (me, #1)"]);
    check(&place, &base, 0, &["1 quarantined", "1 passed, 0 failed"]);
    check(&place, &["list", "--ref", "-E", "quarantined"], 0, &["PlaceTest.wrong\n"]);
    let (_, listed) = place.run(&["list", "--ref", "--format", "json"]);
    let listed: Vec<serde_json::Value> = serde_json::from_str(&listed).expect("JSON");
    let marked: Vec<_> = listed.iter().map(|case| (case["id"].as_str(), &case["quarantined"])).collect();
    assert_eq!(marked, [(Some("PlaceTest.good"), &false.into()), (Some("PlaceTest.wrong"), &true.into())]);
    check(&place, &["quarantine", "rm", "PlaceTest.w*"], 0, &["not in quarantine any more"]);
    check(&place, &add("2020-01-31"), 2, &["would end on 2020-01-31, which is past", "today is"]);
    // Time goes by.
    check(&place, &add("2999-01-31"), 0, &[]);
    let file = place.path("cases/quarantine.toml");
    let text = std::fs::read_to_string(&file).expect("reads").replace("2999-01-31", "2020-01-31");
    std::fs::write(&file, text).expect("writes");
    check(&place, &base, 100, &["quarantine.expired", "quarantined until 2020-01-31 only", "1 passed, 1 failed"]);
    // A mended case is told, an entry without a case is an error.
    place.case("wrong", GOOD);
    check(&place, &base, 0, &["1 passed although in quarantine", "2 passed, 0 failed"]);
    std::fs::remove_file(place.path("cases/wrong.fuse")).expect("removes");
    check(&place, &base, 96, &["E0508", "no case is `PlaceTest.w*`"]);
}

/// Several commands that change the file at once each add what they say, and a
/// word that is no id is answered in a few lines.
#[test]
fn the_quarantine_file_is_changed_by_one_at_a_time() {
    let sizes: Vec<usize> = (1..40).collect();
    let place = Place::good("together", &sizes);
    let entry = ["--owner", "me", "--issue", "#1", "--reason", "r", "--until", "2999-01-31"];
    let id = |size: usize| format!("PlaceTest.good/m={size}");
    let start = |size: usize| {
        let mut command = place.command(&[&["quarantine", "add", &id(size)][..], &entry].concat());
        command.stdout(std::process::Stdio::null()).spawn().expect("starts")
    };
    let started: Vec<_> = (1..9).map(start).collect();
    for mut child in started {
        assert!(child.wait().expect("ends").success());
    }
    let text = check(&place, &["quarantine", "list"], 0, &["8 in quarantine"]);
    (1..9).for_each(|size| assert!(text.contains(&format!("{}  until", id(size))), "{text}"));
    let files = std::fs::read_dir(place.path("cases")).expect("a folder").count();
    assert_eq!(files, 2, "nothing is left beside the cases and the file");
    for (args, code) in [(vec!["quarantine", "add", "Typo"], 2), (vec!["quarantine", "rm", "Typo"], 96)] {
        let text =
            check(&place, &[&args[..], if code == 2 { &entry } else { &[] }].concat(), code, &["PlaceTest.good/m="]);
        assert!(text.len() < 400, "{text}");
    }
}

/// Disturbed timing changes nothing of a case that has no race, and is on record.
#[test]
fn jitter_is_recorded_and_repeated() {
    let place = with_cases("jitter");
    let args =
        ["run", "--sim", "1", "--exact", "PlaceTest.wrong", "--jitter", "7", "--retries", "0", "--format", "plain"];
    check(&place, &args, 100, &["--jitter 7", "0 passed, 1 failed"]);
    let header = place.read("results/latest/run.json");
    assert!(header.contains("\"jitter\": 7"), "{header}");
    let ahead = ["run", "--sim", "1", "--exact", "PlaceTest.good", "--jitter", "7", "--compile-threads", "2"];
    check(&place, &ahead, 0, &["1 passed"]);
}

/// A case that kills its worker is tried again in fresh workers and kills them too.
#[test]
fn a_case_that_killed_all_its_workers_is_replayed_from_the_first() {
    let place = with_cases("killer");
    let ids = among(5, &[(3, "segv")]);
    let (code, text) = faults(&place, &["run", "--jobs", "1"], &ids);
    assert_eq!(code, 103, "{text}");
    let text = check(&place, &["replay", "--repeat", "1", "--format", "plain"], 103, &["then __fault.segv"]);
    assert!(text.contains("as worker ref0-w0 of run"), "{text}");
    // Two cases that kill: which is meant cannot be known.
    faults(&place, &["run", "--jobs", "1"], &among(5, &[(1, "segv"), (3, "abort")]));
    check(
        &place,
        &["replay"],
        106,
        &["died of 2 cases", "of __fault.segv", "of __fault.abort", "name one with --worker"],
    );
    let last =
        place.records().iter().rev().find(|record| record["k"] == "worker").expect("a worker")["worker_id"].clone();
    let word = format!("{}@latest", last.as_str().expect("a name"));
    check(
        &place,
        &["replay", "--worker", &word, "--exact", "__fault.pass@0"],
        106,
        &["`__fault.pass@0` did not fail in"],
    );
}

/// What cannot begin leaves no run behind that looks killed.
#[test]
fn a_mistyped_case_leaves_no_run() {
    let place = with_cases("mistyped");
    place.run(&["--ref", "--exact", "PlaceTest.wrong"]);
    let runs = || std::fs::read_dir(place.path("results/runs")).expect("lists").count();
    assert_eq!(runs(), 1);
    for args in [
        &["why", "Nope.Case"][..],
        &["why", "PlaceTest.good", "--exact", "Nope.Case"],
        &["replay", "--ref", "--exact", "PlaceTest.good", "--exact", "Nope.Case"],
    ] {
        let (code, text) = place.run(args);
        assert!([2, 4].contains(&code) && text.contains("Nope.Case"), "{args:?}: {text}");
        assert_eq!(runs(), 1, "{args:?}: {text}");
    }
    check(&place, &["store", "verify"], 0, &["0 problems"]);
}
