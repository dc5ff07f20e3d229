//! Runs over many GPUs without one: a file plays NVML, cases run on the
//! simulator. What is lost, busy, sick or mislabelled must cost no case its
//! verdict, and must be said.

use crate::place::{self, CaseFile, GOOD, Place, check};
use rustix::process::Signal;
use serde_json::Value;

/// A place with `cases` cases, and a machine that the text plays.
fn played(name: &str, cases: usize, machine: &str) -> Place {
    let place = Place::empty(name);
    let axis = format!("[axes]\nm = {:?}\n", (1..=cases).collect::<Vec<_>>());
    let more = "; sim: schedules (lockstep)\n";
    place.case("add", CaseFile { suite: "PlayedTest", front: &axis, size: "$m", more, ..GOOD });
    place.file("machine.toml", machine);
    place
}

fn gpus(count: usize) -> String {
    "[[gpu]]\n".repeat(count)
}

const PLAIN: [&str; 4] = ["--nvml", "machine.toml", "--format", "plain"];

#[track_caller]
fn check_run(place: &Place, args: &[&str], exit: i32, parts: &[&str]) {
    let args: Vec<&str> = args.iter().chain(&PLAIN).copied().collect();
    check(place, &args, exit, parts);
}

fn kind<'r>(records: &'r [Value], kind: &str) -> Vec<&'r Value> {
    records.iter().filter(|record| record["k"] == kind).collect()
}

/// Every case has exactly one verdict, and it is this one.
#[track_caller]
fn check_verdicts(records: &[Value], cases: usize, verdict: &str) {
    let mut ids: Vec<&str> = kind(records, "verdict").iter().filter_map(|record| record["case_id"].as_str()).collect();
    assert!(kind(records, "verdict").iter().all(|record| record["verdict"] == verdict), "{records:#?}");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), kind(records, "verdict").len()), (cases, cases));
}

#[test]
fn the_quietest_gpus_are_taken_and_reasons_are_given() {
    let machine = "[[gpu]]\nprocs = [{ pid = 4242, memory = \"3GiB\" }]\n[[gpu]]\n[[gpu]]\ncompute_mode = \"Prohibited\"\n[[gpu]]\ntemp = 70\n";
    let place = played("selection", 4, machine);
    let parts = [
        "GPU 1 Played GPU GPU-00000001: taken: no process",
        "GPU 3 Played GPU GPU-00000003: taken",
        "GPU 0 Played GPU GPU-00000000: not needed: process 4242 with 3.0 GiB",
        "GPU 2 Played GPU GPU-00000002: refused: its compute mode forbids",
        "4 passed, 0 failed, 0 skipped",
    ];
    check_run(&place, &["--gpus", "2"], 0, &parts);
    let records = place.records();
    let mut slots: Vec<&str> = kind(&records, "worker").iter().filter_map(|record| record["slot"].as_str()).collect();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots, ["gpu1", "gpu3"]);
    assert!(place.0.join("results/history/played-gpu/durations.csv").is_file());
    check_run(&place, &["--gpus", "3", "--gpu-policy", "idle"], 21, &["E0501", "refused: process 4242", "--sim 3"]);
    let named = ["--gpus", "GPU-00000000-0000-0000-0000-000000000000", "--workers-per-gpu", "2"];
    check_run(&place, &named, 0, &["2 worker processes on 1 GPU", "gpu0.1"]);
    let mig = "[[gpu]]\n[[gpu]]\nmig = [{ uuid = \"MIG-aaaa1111\" }, { uuid = \"MIG-bbbb2222\" }]\n";
    place.file("mig.toml", mig);
    let whole = ["--gpus", "2", "--nvml", "mig.toml"];
    check(&place, &whole, 21, &["MIG is on; name its devices: --gpus MIG-aaaa1111,MIG-bbbb2222"]);
    let part = ["--gpus", "MIG-bbbb", "--nvml", "mig.toml", "--format", "plain"];
    check(&place, &part, 0, &["GPU 1 Played GPU MIG MIG-bbbb2222: taken", "4 passed"]);
    check_run(&place, &["--gpus", "GPU-ffff"], 21, &["there is no GPU-ffff"]);
    check_run(&place, &[], 0, &["taken: no process"]);
}

/// Verdicts of one kind of device do not stand for another's.
#[test]
fn a_run_is_not_gone_on_with_on_another_kind_of_device() {
    let of = |name: &str| format!("[[gpu]]\nname = \"{name}\"\n");
    let place = played("kind", 3, &of("P0"));
    check_run(&place, &["--deadline", "1ms"], 6, &["skip.deadline"]);
    let resume = ["resume", "latest", "--format", "plain"];
    for (machine, now) in [(of("P1"), "P1"), (String::new(), "simulator")] {
        place.file("machine.toml", &machine);
        let parts = [
            "E0703",
            &format!("it ran on `P0`, and the device is `{now}` now"),
            "all of it anew: harness --deadline 1ms --nvml machine.toml",
        ];
        check(&place, &resume, 106, &parts);
    }
    assert!(!place.path("results/history/p1").exists());
    place.file("machine.toml", &of("P0"));
    let (code, text) = place.run(&resume);
    assert!([0, 6].contains(&code) && text.contains("goes on with"), "{text}");
}

#[test]
fn a_driver_that_hangs_at_the_start_is_not_waited_for() {
    // Each waits for the driver; none for the others.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let parts = ["E0501", "the driver hangs: NVML gave no answer within", "`--sim 1`"];
            check_run(&played("stuck", 2, "stuck = true\n"), &["--gpus", "1"], 21, &parts);
        });
        scope.spawn(|| {
            let parts = ["no GPU found (the driver hangs", "running on the simulator", "2 passed"];
            check_run(&played("stuck-sim", 2, "stuck = true\n"), &[], 0, &parts);
        });
        let place = played("stuck-doctor", 2, "stuck = true\n");
        check(&place, &["doctor", "--nvml", "machine.toml"], 0, &["the driver hangs"]);
    });
}

#[test]
fn a_gpu_that_is_lost_has_its_cases_finished_by_the_others() {
    let events = "[[event]]\ngpu = 2\nafter_cases = 3\nxid = 79\nlost = true\n";
    // Enough that the others are not through before its worker is there.
    let place = played("lost", 240, &(gpus(4) + events));
    let parts = ["gpu2: Xid 79, the GPU fell off the bus", "warning: gpu2: ", "240 passed, 0 failed, 0 skipped"];
    check_run(&place, &["--gpus", "4"], 0, &parts);
    let records = place.records();
    check_verdicts(&records, 240, "pass");
    let retired: Vec<&Value> = kind(&records, "slot").into_iter().filter(|r| r["event"] == "retired").collect();
    assert_eq!((retired.len(), &retired[0]["code"]), (1, &Value::from("infra.gpu_lost")));
    // Nothing ran there afterwards.
    let lost = kind(&records, "xid")[0]["t_run_ns"].as_u64().expect("a time");
    let after = |record: &&&Value| {
        record["gpu_uuid"] == "GPU-00000002-0000-0000-0000-000000000000"
            && record["start_ns"].as_u64().is_some_and(|start| start > lost)
    };
    assert_eq!(kind(&records, "attempt").iter().filter(after).count(), 0);
}

#[test]
fn a_run_ends_though_nvml_tells_of_nothing_but_the_loss() {
    let events = "[[event]]\ngpu = 1\nafter_cases = 2\nlost = true\ndeaf = true\n";
    let place = played("deaf", 12, &(gpus(2) + events));
    check_run(&place, &["--gpus", "2"], 0, &["12 passed, 0 failed, 0 skipped"]);
    check_verdicts(&place.records(), 12, "pass");
}

#[test]
fn the_others_are_heard_after_a_gpu_was_lost() {
    let events = "[[event]]\ngpu = 1\nafter_cases = 1\nlost = true\ndeaf = true\n\
         [[event]]\nat = \"__fault.slow=300@4\"\nxid = 13\n";
    let place = played("heard", 12, &(gpus(2) + events));
    // GPU 1 has one case, so the last of these is one of GPU 0's.
    let slow: Vec<String> = (1..=4).map(|n| format!("__fault.slow=300@{n}")).collect();
    let mut args = vec!["--gpus", "2", "--with-faults", "--filter", "PlayedTest.*"];
    args.extend(slow.iter().flat_map(|id| ["--exact", id]));
    check_run(&place, &args, 0, &["gpu0: Xid 13", "16 passed, 0 failed, 0 skipped"]);
}

#[test]
fn a_case_that_runs_while_its_gpu_is_lost_runs_again_elsewhere() {
    let lost =
        "[[event]]\nat = \"__fault.slow*\"\nlost = true\n[[event]]\ngpu = 1\nat = \"__fault.slow*\"\nlost = true\n";
    let ecc = "[[event]]\nat = \"__fault.slow*\"\nxid = 94\n[[event]]\ngpu = 1\nat = \"__fault.slow*\"\nxid = 94\n";
    let args = ["--gpus", "2", "--with-faults", "--filter", "__fault.slow*:PlayedTest.*"];
    // Each GPU is lost as soon as the case begins there.
    let place = played("in-flight", 2, &(gpus(2) + lost));
    check_run(&place, &args, 20, &["INFRA", "infra.gpu_lost", "2 passed, 1 failed, 0 skipped"]);
    // Each GPU reports an error once; then the case runs through, and nothing is held against it.
    let place = played("ecc", 2, &(gpus(2) + ecc));
    check_run(&place, &args, 0, &["Xid 94, contained ECC error", "3 passed, 0 failed, 0 skipped"]);
    let records = place.records();
    check_verdicts(&records, 3, "pass");
    let slow = |record: &&&Value| record["case_id"].as_str().is_some_and(|id| id.starts_with("__fault"));
    let attempts: Vec<(&str, &Value)> = kind(&records, "attempt")
        .iter()
        .filter(slow)
        .map(|record| (record["outcome"].as_str().unwrap_or_default(), &record["gpu_uuid"]))
        .collect();
    assert_eq!(
        attempts.iter().map(|a| a.0).collect::<Vec<_>>(),
        ["infra.ecc_uncorrectable", "infra.ecc_uncorrectable", "pass"]
    );
    assert_ne!(attempts[0].1, attempts[1].1);
}

/// A hunt says why it ended, and on which GPU a failure was seen.
#[test]
fn a_hunt_without_gpus_is_no_hunt_without_time() {
    let events = "[[event]]\nafter_cases = 3\nlost = true\n[[event]]\ngpu = 1\nafter_cases = 3\nlost = true\n";
    let place = played("hunt", 6, &(gpus(2) + events));
    let hunt = |more: &[&str]| place.run(&[&["hunt", "--gpus", "2", "--with-faults"], more, &PLAIN].concat());
    let (code, text) = hunt(&["--filter", "PlayedTest.*"]);
    assert_eq!(code, 20, "{text}");
    assert!(text.contains("6 undecided") && text.contains("no device was left to run them"), "{text}");
    assert!(!text.contains("the budget was over"), "{text}");
    let ended = place::records(&place.newest()).pop().expect("an end");
    assert_eq!(ended["summary"]["ended"], "no_device", "{ended}");
    place.file("machine.toml", &gpus(2));
    let (code, text) = hunt(&["--filter", "PlayedTest.*", "--budget", "1ms"]);
    assert!(code == 6 && text.contains("the budget was over"), "{text}");
    let (code, text) = hunt(&["--exact", "__fault.fail", "--repeat", "2"]);
    assert_eq!(code, 11, "{text}");
    let again = text.lines().find(|line| line.contains("again: ")).expect("a command");
    let records = place::records(&place.newest());
    // Both GPUs may show it at once: the example of the record is one of them.
    let found = kind(&records, "hunt").pop().expect("a finding");
    let example = |record: &&Value| record["verdict"] == "fail" && record["worker_id"] == found["example"]["worker_id"];
    let shown = kind(&records, "attempt").into_iter().find(example).expect("the failure of the example");
    let uuid = shown["gpu_uuid"].as_str().expect("a GPU");
    assert!(again.contains(&format!(" --gpus {uuid} --nvml ")), "{again}");
}

#[test]
fn with_no_gpu_left_the_rest_is_the_machines_fault() {
    let events = "[[event]]\nafter_cases = 1\nlost = true\n[[event]]\ngpu = 1\nafter_cases = 1\nlost = true\n";
    let place = played("none-left", 12, &(gpus(2) + events));
    let parts = ["INFRA", "infra.gpu_lost", "no worker was left to run it"];
    check_run(&place, &["--gpus", "2"], 20, &parts);
    let records = place.records();
    assert_eq!(kind(&records, "verdict").len(), 12);
    let infra = kind(&records, "verdict").iter().filter(|record| record["verdict"] == "infra").count();
    assert!((8..=11).contains(&infra), "{infra}");
}

#[test]
fn a_sick_gpu_is_retired_after_two_canaries() {
    let machine = "[[gpu]]\n[[gpu]]\nbad_canaries = 9\n[[gpu]]\n[[event]]\ngpu = 1\nafter_cases = 1\nxid = 63\n";
    // Enough that the others are not through before its worker is there.
    let place = played("canary", 300, machine);
    let parts = [
        "gpu1: the canary failed (the result has checksum",
        "gpu1: its canary failed 2 times",
        "300 passed, 0 failed, 0 skipped",
    ];
    check_run(&place, &["--gpus", "3"], 0, &parts);
    let records = place.records();
    check_verdicts(&records, 300, "pass");
    let canaries: Vec<&Value> = kind(&records, "health").into_iter().filter(|r| r["event"] == "canary").collect();
    assert_eq!(canaries.len(), 2, "{canaries:#?}");
    assert!(canaries.iter().all(|record| record["canary"] == "failed" && record["device"] == "gpu1"));
}

#[test]
fn a_crash_is_followed_by_a_canary_and_a_well_gpu_goes_on() {
    let place = played("crash", 3, &gpus(1));
    let args = ["--gpus", "1", "--with-faults", "--filter", "__fault.segv:PlayedTest.*", "--retries", "1"];
    check_run(&place, &args, 103, &["3 passed, 1 failed, 0 skipped"]);
    let records = place.records();
    let told: Vec<(&str, &str)> = kind(&records, "health")
        .iter()
        .map(|r| (r["event"].as_str().unwrap_or_default(), r["canary"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(told[..2], [("death", ""), ("canary", "ok")]);
}

/// The only Xid of a run: how it is attributed, to which cases.
fn xid(records: &[Value]) -> (&str, Vec<&str>) {
    let xids = kind(records, "xid");
    assert_eq!(xids.len(), 1, "{xids:#?}");
    let cases = xids[0]["cases"].as_array().expect("cases");
    let cases = cases.iter().filter_map(|case| case["case_id"].as_str()).collect();
    (xids[0]["attribution"].as_str().unwrap_or_default(), cases)
}

#[test]
fn an_xid_belongs_to_the_case_that_ran_or_to_one_of_several() {
    let events = "[[event]]\nat = \"__fault.slow*\"\nxid = 31\n";
    let place = played("xid", 1, &(gpus(1) + events));
    let alone = ["--gpus", "1", "--with-faults", "--filter", "__fault.slow*"];
    check_run(&place, &alone, 0, &["gpu0: Xid 31, memory page fault, by __fault.slow=300"]);
    let records = place.records();
    assert_eq!(xid(&records), ("exact", vec!["__fault.slow=300"]));
    let attempt = kind(&records, "attempt")[0];
    assert_eq!(attempt["outcome"], "pass");
    assert!(attempt["detail"].as_str().is_some_and(|detail| detail.contains("Xid 31")), "{attempt:#}");
    // Two workers that run something at the same time.
    place.file("machine.toml", &(gpus(1) + "[[event]]\nrunning = 2\nxid = 31\n"));
    let two = [
        "--gpus",
        "1",
        "--workers-per-gpu",
        "2",
        "--with-faults",
        "--filter",
        "__fault.late*:__fault.sleep",
        "--timeout",
        "6s",
        "--grace",
        "100ms",
        "--retries",
        "0",
    ];
    check_run(&place, &two, 103, &["(several workers share the GPU)"]);
    let records = place.records();
    let (how, mut cases) = xid(&records);
    cases.sort_unstable();
    assert_eq!((how, cases), ("ambiguous", vec!["__fault.late=60000", "__fault.sleep"]));
}

/// What happens to a device is told and recorded by every command that runs cases.
#[test]
fn hunts_replays_and_explanations_tell_of_devices() {
    let slow = "__fault.slow=20";
    // Enough that both GPUs get some, also where one of them starts late.
    let hunt = ["hunt", "--repeat", "40", "--exact", slow];
    let replay = ["replay", "--repeat", "40", "--exact", slow];
    let why = ["why", slow, "--repeat", "8"];
    for command in [&hunt[..], &replay, &why] {
        let events = "[[event]]\nat = \"__fault.slow*\"\nxid = 31\n[[event]]\ngpu = 1\nafter_cases = 1\nlost = true\n";
        let place = played(command[0], 2, &(gpus(2) + events));
        let args = [command, &["--gpus", "2", "--with-faults"], &PLAIN].concat();
        let (_, text) = place.run(&args);
        let records = place::records(&place.newest());
        // The case before may have ended less than a window ago.
        assert!(xid(&records).1.contains(&slow), "{text}");
        assert!(kind(&records, "health").iter().any(|record| record["event"] == "lost"), "{text}");
        for part in ["gpu0: Xid 31, memory page fault, by ", "gpu1: NVML: the GPU is lost;"] {
            assert_eq!(text.matches(part).count(), 1, "{part}\n{text}");
        }
    }
}

#[test]
fn a_worker_that_sees_another_gpu_is_not_used() {
    let machine = "[[gpu]]\n[[gpu]]\nseen_as = \"GPU-99999999-0000-0000-0000-000000000000\"\n";
    let place = played("pinning", 6, machine);
    let parts = ["CUDA shows it GPU-99999999", "warning: gpu1", "6 passed, 0 failed, 0 skipped"];
    check_run(&place, &["--gpus", "2"], 0, &parts);
    assert!(kind(&place.records(), "slot").iter().any(|record| record["code"] == "infra.driver"));
    let alone = ["--gpus", "GPU-00000001-0000-0000-0000-000000000000"];
    check_run(&place, &alone, 20, &["infra.driver", "0 passed, 6 failed"]);
}

/// Spans of the attempts at measured cases and at all others, on one GPU.
fn spans(records: &[Value], perf: bool) -> Vec<(u64, u64)> {
    let of = |record: &&Value| record["case_id"].as_str().is_some_and(|id| id.contains("perf_") == perf);
    let span = |record: &Value| {
        let start = record["start_ns"].as_u64()?;
        Some((start, start + record["dur_ns"].as_u64()?))
    };
    kind(records, "attempt").into_iter().filter(of).filter_map(span).collect()
}

#[test]
fn a_measured_case_has_its_gpu_alone() {
    let place = played("alone", 20, &gpus(1));
    let front = "[axes]\nm = [64, 65, 66, 67]\n";
    let perf = CaseFile { suite: "PlayedTest", front, size: "$m", more: "; perf: bytes 512\n", ..GOOD };
    place.case("perf_add", perf);
    // Three of these would not fit beside each other.
    let front = "[require]\nmemory = \"100GiB\"\n[axes]\nm = [8, 9]\n";
    place.case("perf_big", CaseFile { front, more: "", ..perf });
    check_run(&place, &["--gpus", "1", "--workers-per-gpu", "3"], 0, &["26 passed, 0 failed, 0 skipped"]);
    let records = place.records();
    let (alone, others) = (spans(&records, true), spans(&records, false));
    assert_eq!((alone.len(), others.len()), (6, 20));
    for (i, (start, end)) in alone.iter().enumerate() {
        let rest = others.iter().chain(alone.iter().enumerate().filter(|(k, _)| *k != i).map(|(_, span)| span));
        for (from, to) in rest {
            assert!(to <= start || from >= end, "{start}-{end} and {from}-{to}");
        }
    }
}

#[test]
fn a_measurement_under_held_clocks_says_so() {
    let place = played("clocks", 1, "[[gpu]]\nclocks = [\"hw_slowdown\"]\n");
    let bench: Vec<&str> = ["bench", "--gpus", "1", "--filter", "*"].into_iter().chain(PLAIN).collect();
    check(&place, &bench, 0, &["clocks held by hw_slowdown", "1 passed, 0 failed, 0 skipped"]);
    assert_eq!(kind(&place.records(), "attempt")[0]["facts"]["clocks"], "hw_slowdown");
}

/// The processes of workers that a run has started so far, by slot.
fn started(place: &Place) -> Vec<(String, u64)> {
    let run = std::fs::read_dir(place.0.join("results/runs")).ok().and_then(|mut runs| runs.next()?.ok());
    let events = run.and_then(|run| harness::record::read_events(&run.path().join("events.jsonl")).ok());
    let started = |record: &Value| {
        let spawned = record["k"] == "worker" && record["event"] == "spawned";
        spawned.then(|| Some((record["slot"].as_str()?.to_string(), record["pid"].as_u64()?)))?
    };
    events.map(|events| events.records.iter().filter_map(started).collect()).unwrap_or_default()
}

#[test]
fn a_worker_killed_on_each_gpu_in_turn_loses_nothing() {
    let place = played("killed", 60, &gpus(4));
    let args: Vec<&str> =
        ["--gpus", "4", "--with-faults", "--filter", "__fault.slow*:PlayedTest.*"].into_iter().chain(PLAIN).collect();
    let mut child = place.command(&args).stdout(std::process::Stdio::piped()).spawn().expect("starts");
    let mut killed: Vec<String> = Vec::new();
    while child.try_wait().expect("can be asked").is_none() {
        for (slot, pid) in started(&place) {
            if !killed.contains(&slot) {
                place::signal(pid, Signal::KILL);
                killed.push(slot);
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!((killed.len(), output.status.code()), (4, Some(0)), "{text}");
    let records = place.records();
    let verdicts = kind(&records, "verdict");
    // A case under a killed worker passes when it is tried again: flaky, but not lost.
    assert!(verdicts.iter().all(|r| r["verdict"] == "pass" || r["verdict"] == "flaky"), "{text}");
    assert_eq!(verdicts.len(), 61);
}

#[test]
fn cases_go_to_the_gpu_that_fits_them() {
    let place = played("fits", 6, "[[gpu]]\narch = 80\n[[gpu]]\narch = 90\n");
    for (name, front) in [("new", "[require]\narch = 90\n"), ("newer", "[require]\narch = 100\n")] {
        place.case(name, CaseFile { suite: "PlayedTest", front, size: "3", ..GOOD });
    }
    let parts = ["needs compute capability 100, the device has 80; needs compute capability 100, the device has 90"];
    check_run(&place, &["--gpus", "2"], 0, &[parts[0], "7 passed, 0 failed, 1 skipped"]);
    let records = place.records();
    let new: Vec<&Value> =
        kind(&records, "attempt").into_iter().filter(|record| record["case_id"] == "PlayedTest.new").collect();
    assert_eq!(new.len(), 1);
    assert_eq!(new[0]["gpu_uuid"], "GPU-00000001-0000-0000-0000-000000000000");
}

#[test]
fn nvml_may_fail_and_strangers_may_come() {
    let events = "[[event]]\nafter_cases = 1\nprocs = [{ pid = 4242, memory = \"3GiB\" }]\nxid = 63\n[[event]]\nafter_cases = 3\nnvml = \"the driver went away\"\n";
    let place = played("blind", 12, &(gpus(1) + events));
    let parts = ["NVML tells no events (the driver went away)", "12 passed, 0 failed, 0 skipped"];
    check_run(&place, &["--gpus", "1"], 0, &parts);
    let records = place.records();
    assert!(kind(&records, "health").iter().any(|record| record["event"] == "blind"));
}

#[test]
fn the_doctor_fits_a_terminal_and_speaks_json() {
    let place = played(
        "doctor",
        1,
        "[[gpu]]\nprocs = [{ pid = 4242, memory = \"3GiB\" }]\n[[gpu]]\nlost = \"the GPU is lost\"\n",
    );
    let (code, text) = place.run(&["doctor", "--nvml", "machine.toml"]);
    assert_eq!(code, 0, "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    for part in ["played by a file", "process 4242: 3.0 GiB", "cannot be used: the GPU is lost", "sanitizers", "Xids"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let (code, json) = place.run(&["doctor", "--nvml", "machine.toml", "--format", "json"]);
    let json: Value = serde_json::from_str(&json).expect("a document");
    assert_eq!((code, json["gpus"].as_array().map(Vec::len)), (0, Some(2)));
    let features = json["features"].as_array().expect("features");
    assert!(features.iter().any(|feature| feature["name"] == "GPUs" && feature["ready"] == true));
    check(&place, &["--nvml", "nowhere.toml", "--gpus", "1"], 2, &["E0509", "nowhere.toml"]);
}

#[test]
fn many_deaths_on_one_device_are_held_against_it_until_its_canary_sings() {
    let place = played("suspect", 1, &gpus(1));
    let faults = "__fault.segv:__fault.abort:__fault.bus";
    let args = ["--gpus", "1", "--with-faults", "--filter", faults, "--retries", "1"];
    let parts = [
        "gpu0: 3 different cases killed workers within a minute: __fault.",
        "suspecting the device, a canary must run",
        "its canary passes, so the cases are to blame",
        "0 passed, 3 failed, 0 skipped",
    ];
    check_run(&place, &args, 103, &parts);
    assert!(kind(&place.records(), "health").iter().any(|record| record["event"] == "suspect"));
}
