//! What happens when a worker, or the harness itself, dies or hangs, and what a
//! user sees after a mistake. Drives the binary as a user would.

use crate::place::{self, CaseFile, GOOD, Place, check};
use rustix::process::Signal;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A place with one good case file.
fn with_good_case(name: &str) -> Place {
    Place::good(name, &[1, 5])
}

/// Sizes as those of the good case have.
const SIZES: CaseFile<'_> = CaseFile { front: "[axes]\nm = [1, 5]\n", size: "$m", ..GOOD };

/// Each built-in fault gets its own outcome, nobody else does, nothing is lost.
#[test]
fn every_fault_is_attributed() {
    let place = with_good_case("matrix");
    let (code, text) = place.run(&["selftest", "--sim", "1"]);
    assert_eq!(code, 0, "{text}");
    let told = ["pass + leak.process", "pass + leak.thread", "crash.sigsegv + leak.process", "pass + crash.teardown"];
    for part in ["results lost or changed 0", "false alarms 0"].into_iter().chain(told) {
        assert!(text.contains(part), "lacks {part:?}:\n{text}");
    }
    let classes = text.lines().last().and_then(|line| line.split(' ').next()?.parse::<usize>().ok());
    assert!(classes.is_some_and(|count| count >= 40), "{text}");
    let events = place.path("results/selftest/latest/events.jsonl");
    let records = harness::record::read_events(&events).expect("reads").records;
    let rows = records.iter().filter(|record| record["k"] == "selftest" && record["runs"].is_u64()).count();
    assert!(rows > 40, "{rows} rows");
}

/// In a container the leaders of the process group and session may be outside of
/// its namespace, so that both have number 0.
#[test]
#[ignore = "needs namespaces, which root can make"]
fn needs_namespaces_a_container_gives_the_process_group_no_number() {
    let place = with_good_case("container");
    let run = "\"$0\" --ref --jobs 2 --with-faults --retries 0 --format plain --filter 'PlaceTest*' \
         --exact __fault.daemon --exact __fault.abort";
    // What starts in the namespace is its process 1, which is in the group outside.
    let script = format!("grep -qE '^[^)]*\\) [A-Z] 0 0 0 ' /proc/$$/stat || exit 77; {run}");
    let mut command = place.program_here("unshare");
    command.args(["-p", "-f", "--mount-proc", "sh", "-c", &script, env!("CARGO_BIN_EXE_harness")]);
    let output = command.output();
    let output = output.expect("unshare runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() != Some(77) && !text.contains("unshare:"), "no namespace as wanted: {text}");
    assert_eq!(output.status.code(), Some(103), "{text}");
    for part in ["3 passed, 1 failed", "leak.process: __fault.daemon left s", "crash.abort"] {
        assert!(text.contains(part), "lacks {part:?}:\n{text}");
    }
}

/// A worker that is killed from outside is not one that the kernel killed for want of
/// memory, though it kills others in the same moments.
#[test]
fn a_kill_is_the_kernels_only_where_it_says_so() {
    let place = with_good_case("kills");
    let mut args = vec!["--ref", "--jobs", "2", "--with-faults", "--retries", "0", "--format", "plain"];
    let ids: Vec<String> = (1..=8).flat_map(|n| ["kill", "oom-kill"].map(|f| format!("__fault.{f}@{n}"))).collect();
    args.extend(ids.iter().flat_map(|id| ["--exact", id]));
    let (_, text) = place.run(&args);
    let records = place.records();
    let attempts: Vec<_> = records.iter().filter(|record| record["k"] == "attempt").collect();
    assert_eq!(attempts.len(), ids.len(), "{text}");
    for attempt in attempts {
        let (id, outcome) = (attempt["case_id"].as_str().expect("an id"), attempt["outcome"].as_str().expect("a name"));
        let doubt = attempt["death"]["oom_note"].as_str().is_some_and(|note| note.contains("nothing tells"));
        match (id.starts_with("__fault.kill"), outcome) {
            (true, "crash.killed_external") | (false, "crash.oom_killed") => {}
            (false, "crash.killed_external") if doubt => eprintln!("neither log nor groups can be read here: {id}"),
            (false, "fail.assert") => eprintln!("no memory control group can be made here: {id} was not played"),
            _ => panic!("{id} is told as {outcome}:\n{text}"),
        }
    }
}

/// Workers that end in the same moment: what one of them left without a name is charged
/// to it alone, and once.
#[test]
fn what_a_worker_left_is_not_charged_to_another() {
    let place = with_good_case("strays");
    let mut args = vec!["--ref", "--jobs", "4", "--with-faults", "--retries", "0", "--format", "plain"];
    let faults = ["stray-segv", "segv", "abort"];
    let ids: Vec<String> = (1..=8).flat_map(|n| faults.map(|fault| format!("__fault.{fault}@{n}"))).collect();
    args.extend(ids.iter().flat_map(|id| ["--exact", id]));
    let (_, text) = place.run(&args);
    let records = place.records();
    let attempts = records.iter().filter(|record| record["k"] == "attempt");
    let left = attempts.filter(|record| record["case_id"].as_str().is_some_and(|id| id.contains("stray")));
    let mut wanted: Vec<&str> = left.filter_map(|record| record["worker_id"].as_str()).collect();
    let leaks = records.iter().filter(|record| record["k"] == "leak");
    let mut charged: Vec<&str> = leaks.map(|record| record["worker_id"].as_str().unwrap_or("nobody")).collect();
    wanted.sort_unstable();
    charged.sort_unstable();
    assert_eq!((wanted.len(), charged), (8, wanted), "{text}");
}

/// A parent may ignore the ends of its children, and this is inherited.
#[test]
fn ends_of_workers_are_seen_whatever_the_parent_ignores() {
    let place = with_good_case("ignored");
    let args = "--ref --jobs 1 --with-faults --retries 0 --format plain --exact __fault.segv --exact __fault.exit7";
    // No shell in between: some put the signal back to its default.
    let ignoring = |program: &[&str]| {
        let mut command = place.program_here("env");
        command.arg("--ignore-signal=CHLD").args(program);
        place::ended(command.output().expect("runs"))
    };
    let (_, status) = ignoring(&["cat", "/proc/self/status"]);
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    let ignored = u64::from_str_radix(ignored.expect("a line of ignored signals"), 16).expect("a mask");
    assert!(ignored & (1 << 16) != 0, "SIGCHLD cannot be ignored here: {ignored:x}");
    let program: Vec<&str> = [env!("CARGO_BIN_EXE_harness")].into_iter().chain(args.split(' ')).collect();
    let (code, text) = ignoring(&program);
    assert_eq!(code, 103, "{text}");
    assert!(text.contains("crash.sigsegv") && text.contains("crash.exit_early") && !text.contains("infra"), "{text}");
}

/// Runs faults in this order with a thread that compiles ahead, which it does only
/// where many more are to come.
fn ahead(place: &Place, faults: &[&str], more: &[&str]) -> String {
    let mut args = vec!["--sim", "1", "--jobs", "1", "--retries", "0", "--grace", "200ms", "--format", "plain"];
    args.extend(["--compile-threads", "1", "--with-faults"]);
    let after: Vec<String> = (0..40).map(|n| format!("__fault.pass@{n}")).collect();
    faults.iter().copied().chain(after.iter().map(String::as_str)).for_each(|id| args.extend(["--exact", id]));
    place.run(&[&args, more].concat()).1
}

/// What goes wrong while a coming case is compiled is that case's, and is told from
/// where it went wrong; the case that ran meanwhile runs again.
#[test]
fn what_compiles_ahead_costs_the_case_it_works_for() {
    let place = with_good_case("ahead");
    let [segv, hang] = ["__fault.segv-ahead@1", "__fault.hang-ahead@1"];
    let text = ahead(&place, &["__fault.slow=500@1", segv, "__fault.slow=500@2", hang], &[]);
    assert!(text.ends_with("42 passed, 2 failed, 0 skipped\n"), "{text}");
    let records = place.records();
    for (id, outcome) in [(segv, "crash.sigsegv"), (hang, "hang.deadlock")] {
        let mut attempts = records.iter().filter(|r| r["k"] == "attempt" && r["case_id"] == id);
        let death = &attempts.next().expect("an attempt")["death"];
        assert!(text.contains(&format!("{id}  ({outcome}")) && attempts.next().is_none(), "{text}");
        let crumb = &death["crumb"];
        assert_eq!((&crumb["case"], &crumb["phase"]), (&id.into(), &"schedule".into()), "{crumb:#}");
        assert!(crumb["lane"].as_u64() > Some(0), "it was compiled ahead: {crumb:#}");
        // The thread that the case waits for comes first.
        let stack = &death["stacks"][0];
        assert!(id == segv || stack["thread"] == crumb["thread"], "{stack:#}");
    }
}

/// What a worker's threads still compile when it is asked to end is waited for by nobody.
#[test]
fn a_worker_ends_though_it_compiles_ahead() {
    let place = with_good_case("ahead-end");
    let faults = ["__fault.slow=300@1", "__fault.slow=300@2", "__fault.hang-ahead@1"];
    let text = ahead(&place, &faults, &["--recycle", "2"]);
    assert!(text.ends_with("42 passed, 1 failed, 0 skipped\n") && !text.contains("teardown"), "{text}");
}

/// A shell's limit of open files is for one program, and each worker costs several.
#[test]
fn a_low_limit_of_open_files_is_raised() {
    let place = with_good_case("files");
    let mut command = place.program_here("sh");
    let args = "--ref --jobs 8 --format plain --with-faults --exact __fault.slow=300@1 --exact __fault.slow=300@2 \
        --exact __fault.slow=300@3 --exact __fault.slow=300@4 --exact __fault.slow=300@5 --exact __fault.slow=300@6";
    let script = format!("ulimit -Sn 40; exec \"$0\" {args}");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_harness")]);
    let (code, text) = place::ended(command.output().expect("runs"));
    assert!(code == 0 && text.ends_with("6 passed, 0 failed, 0 skipped\n"), "{text}");
    let retired = place.records().into_iter().find(|r| r["k"] == "slot");
    assert_eq!(retired, None, "{text}");
}

/// In a new namespace the old `/proc` may still be mounted, where the same numbers
/// are those of other processes.
#[test]
#[ignore = "needs namespaces, which root can make"]
fn needs_namespaces_a_foreign_proc_is_not_believed() {
    let place = with_good_case("foreign");
    let run = "\"$0\" --ref --jobs 1 --with-faults --retries 0 --format plain --grace 200ms \
         --exact __fault.sleep --exact __fault.child --exact __fault.pass";
    let mut command = place.program_here("unshare");
    // Not the first process itself, which would be init to all that workers leave.
    command.args(["-p", "-f", "sh", "-c", &format!("{run}; exit $?"), env!("CARGO_BIN_EXE_harness")]);
    let output = command.output();
    let output = output.expect("unshare runs");
    let (_, text) = place::ended(output);
    assert!(!text.contains("unshare:"), "no namespace as wanted: {text}");
    for part in ["2 passed, 1 failed", "hang.deadlock", "/proc is of other processes", "cannot be named"] {
        assert!(text.contains(part), "lacks {part:?}:\n{text}");
    }
}

/// What a worker prints or says cannot reach the terminal as control characters.
#[test]
fn hostile_output_is_escaped() {
    let place = with_good_case("escaped");
    let faults = ["--with-faults", "--exact", "__fault.control", "--exact", "__fault.ansi", "--retries", "0"];
    let (code, text) = place.run(&[&["--ref", "--format", "plain"], &faults[..]].concat());
    assert_eq!(code, 103, "{text}");
    let bad = text.chars().find(|c| c.is_control() && *c != '\n' || *c == '\u{202e}');
    assert_eq!(bad, None, "{text:?}");
    assert!(text.contains("red") && text.contains("crash.abort"), "{text}");
}

/// Compiler processes that die, again and again, cost speed and no kernel.
#[test]
fn compilers_that_die_cost_no_kernel() {
    let place = with_good_case("compilers");
    for (number, op) in ["sin", "cos", "exp", "tanh", "sqrt", "abs"].into_iter().enumerate() {
        place.case(&format!("k{number}"), CaseFile { op: &format!("{op} %x"), ..SIZES });
    }
    let mut child = place.command(&["compile"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut killed = 0;
    while child.try_wait().expect("is a child").is_none() {
        killed += kill_children(child.id(), "harness-compile");
        std::thread::sleep(Duration::from_millis(30));
    }
    let output = child.wait_with_output().expect("ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if text.contains("E0503") {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(killed > 0 && text.contains("0 failed"), "{killed} killed:\n{text}");
    assert!(text.contains("kernels of 14 cases compiled"), "{text}");
}

/// Kills the children of a process that have this name; how many there were.
fn kill_children(parent: u32, name: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("is there").flatten();
    let of = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (head, rest) = stat.rsplit_once(") ")?;
        let is_child = rest.split(' ').nth(1)?.parse() == Ok(parent) && !rest.starts_with('Z');
        (is_child && head.ends_with(name)).then_some(pid)
    };
    let pids = entries.filter_map(|entry| of(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| place::signal(*pid, Signal::KILL)).count()
}

/// A leak is told and recorded, and costs no verdict; what is left is removed.
#[test]
fn leaks_are_told_and_cleaned() {
    let place = with_good_case("leaks");
    let faults = ["__fault.daemon", "__fault.tmp", "__fault.fd", "__fault.exit-crash", "__fault.pass"];
    let mut args = vec!["--ref", "--jobs", "1", "--with-faults", "--retries", "0", "--format", "plain"];
    faults.iter().for_each(|id| args.extend(["--exact", id]));
    check(&place, &args, 0, &["5 passed, 0 failed", "leak.process: __fault.daemon left s", "crash.teardown: ref"]);
    let leaks: Vec<serde_json::Value> = place.records().into_iter().filter(|r| r["k"] == "leak").collect();
    let mut told: Vec<(&str, &str)> =
        leaks.iter().filter_map(|r| Some((r["case_id"].as_str()?, r["name"].as_str()?))).collect();
    told.sort_unstable();
    let wanted = [("__fault.daemon", "leak.process"), ("__fault.fd", "leak.fd"), ("__fault.tmp", "leak.tmp")];
    assert_eq!(told, wanted);
    let detail = leaks.iter().find(|r| r["name"] == "leak.process").and_then(|r| r["detail"].as_str()).expect("told");
    let pid = detail.trim_end_matches(')').rsplit_once('(').and_then(|(_, pid)| pid.parse().ok()).expect("a number");
    assert!(!alive(pid), "{detail}");
}

fn alive(pid: u64) -> bool {
    // A zombie is dead; only nobody has asked for its status yet.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[track_caller]
fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The events of the only run of a place, as far as they are written.
fn events_so_far(place: &Place) -> Option<harness::record::Events> {
    let run = std::fs::read_dir(place.path("results/runs")).ok()?.next()?.ok()?;
    harness::record::read_events(&run.path().join("events.jsonl")).ok()
}

fn worker_pids(place: &Place) -> Vec<u64> {
    let records = events_so_far(place).map(|events| events.records).unwrap_or_default();
    records.iter().filter(|r| r["k"] == "worker" && r["event"] == "spawned").filter_map(|r| r["pid"].as_u64()).collect()
}

#[test]
fn a_killed_harness_leaves_no_worker_and_a_readable_record() {
    let place = with_good_case("killed");
    let args = [
        "--ref",
        "--jobs",
        "2",
        "--with-faults",
        "--filter",
        "*sleep:*spin:*PlaceTest*",
        "--timeout",
        "60s",
        "--format",
        "plain",
    ];
    let mut child = place.command(&args).stdout(std::process::Stdio::null()).spawn().expect("starts");
    let pids = wait_for("two workers at work", || {
        let events = events_so_far(&place)?;
        let done = events.records.iter().filter(|r| r["k"] == "attempt").count();
        let pids = worker_pids(&place);
        (done == 0 || done == 2).then_some(pids).filter(|pids| pids.len() == 2)
    });
    child.kill().expect("kills");
    child.wait().expect("reaps");
    wait_for("the workers to die", || (!pids.iter().any(|pid| alive(*pid))).then_some(()));
    let events = events_so_far(&place).expect("a record");
    assert_eq!(events.problems, Vec::<String>::new());
    assert!(events.records.len() >= 2);
    // The next run is not disturbed by what is left.
    check(&place, &["--ref", "--format", "plain"], 0, &["2 passed, 0 failed, 0 skipped"]);
}

#[test]
fn a_killed_worker_costs_its_case_only() {
    let place = with_good_case("victim");
    let args = [
        "--ref",
        "--jobs",
        "1",
        "--with-faults",
        "--filter",
        "*sleep:PlaceTest*",
        "--timeout",
        "60s",
        "--format",
        "plain",
    ];
    let mut child = place.command(&args).stdout(std::process::Stdio::piped()).spawn().expect("starts");
    wait_for("the other cases", || {
        let done = events_so_far(&place)?.records.iter().filter(|r| r["k"] == "attempt").count();
        (done == 2).then_some(())
    });
    // On a loaded machine the case may not have begun: then its next worker is killed too.
    wait_for("the end of the run", || {
        std::thread::sleep(Duration::from_millis(300));
        // One that dies at its start is another story.
        let records = events_so_far(&place)?.records;
        let ready = records.iter().rfind(|r| r["k"] == "worker" && r["event"] == "ready")?;
        let of_it = |r: &&serde_json::Value| r["event"] == "spawned" && r["worker_id"] == ready["worker_id"];
        if let Some(pid) = records.iter().find(of_it)?["pid"].as_u64() {
            place::signal(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(300));
        child.try_wait().expect("can be asked")
    });
    let output = child.wait_with_output().expect("ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(103), "{text}");
    assert!(text.contains("killed by SIGKILL, not by the harness, in phase inputs (sleep)"), "{text}");
    assert!(text.ends_with("2 passed, 1 failed, 0 skipped\n"), "{text}");
}

#[test]
fn an_interrupt_ends_in_order() {
    let place = with_good_case("interrupt");
    let args = "--ref --jobs 1 --with-faults --filter *sleep:*spin --timeout 60s --grace 200ms --format plain";
    let child = place
        .command(&args.split(' ').collect::<Vec<_>>())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    wait_for("the worker", || (!worker_pids(&place).is_empty()).then_some(()));
    std::thread::sleep(Duration::from_millis(200));
    assert!(place::signal(child.id(), Signal::INT));
    let output = child.wait_with_output().expect("ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.ends_with("0 passed, 0 failed, 2 skipped\n"), "{text}");
    let header = place.read("results/latest/run.json");
    assert!(header.contains("\"status\": \"aborted\""), "{header}");
}

/// Starts a run that hangs in one case, and waits until its worker is at work.
fn hanging(place: &Place, program: &[&str]) -> std::process::Child {
    let harness = env!("CARGO_BIN_EXE_harness");
    let args = "--ref --jobs 1 --with-faults --filter *sleep:*PlaceTest* --timeout 60s --grace 200ms";
    let args = args.split(' ');
    let words: Vec<&str> = program.iter().copied().chain([harness]).collect();
    let mut command = place.program_here(words[0]);
    command.args(&words[1..]).args(args).args(["--format", "plain"]).stdout(std::process::Stdio::piped());
    let child = command.spawn().expect("starts");
    wait_for("the other cases", || {
        let done = events_so_far(place)?.records.iter().filter(|r| r["k"] == "attempt").count();
        (done == 2).then_some(())
    });
    // On a loaded machine the case begins a moment later.
    std::thread::sleep(Duration::from_millis(300));
    child
}

#[test]
fn a_run_that_is_asked_says_what_it_is_at() {
    let place = with_good_case("asked");
    let child = hanging(&place, &[]);
    // Whoever asks all processes of that name asks workers too: nobody dies of it.
    worker_pids(&place).iter().for_each(|pid| assert!(place::signal(*pid, Signal::USR1)));
    assert!(place::signal(child.id(), Signal::USR1));
    std::thread::sleep(Duration::from_millis(500));
    assert!(place::signal(child.id(), Signal::INT));
    let output = child.wait_with_output().expect("ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("2 of 3 done after "), "{text}");
    assert!(text.contains("ref0: __fault.sleep for ") && text.contains("in phase inputs (sleep)"), "{text}");
    assert!(text.contains("; worker ref0-w0 (pid ") && !text.contains("crash"), "{text}");
}

/// On a terminal, played by `script`, a key asks, and what the terminal was like comes back.
#[test]
fn a_key_asks_a_run_what_it_is_at() {
    let place = with_good_case("key");
    let run = "--ref --jobs 1 --with-faults --filter '*sleep:*PlaceTest*' --timeout 60s --grace 200ms";
    let shell =
        format!("trap : INT; stty cols 200; {} {run}; echo \"code $?\"; stty -a", env!("CARGO_BIN_EXE_harness"));
    let mut command = place.program_here("script");
    command.args(["-qc", &shell, "/dev/null"]).env("TERM", "xterm").env("SHELL", "/bin/sh");
    let piped = std::process::Stdio::piped;
    let mut child = command.stdin(piped()).stdout(piped()).spawn().expect("starts");
    wait_for("the other cases", || {
        let done = events_so_far(&place)?.records.iter().filter(|r| r["k"] == "attempt").count();
        (done == 2).then_some(())
    });
    std::thread::sleep(Duration::from_millis(700));
    let mut press = |key: &[u8]| {
        child
            .stdin
            .as_mut()
            .and_then(|stdin| stdin.write_all(key).and_then(|()| stdin.flush()).ok())
            .expect("takes keys");
        std::thread::sleep(Duration::from_millis(700));
    };
    press(b"t");
    press(b"\x03");
    let output = child.wait_with_output().expect("ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("2 of 3 done after ") && text.contains("ref0: __fault.sleep for "), "{text}");
    let end = text.rsplit_once("code 130").expect("an end by ^C").1;
    assert!(end.contains(" icanon") && end.contains(" echo "), "{end}");
}

/// As when an ssh connection is lost. Who said `nohup` means it.
#[test]
fn a_terminal_that_goes_away_ends_the_run_in_order() {
    let place = with_good_case("hangup");
    let child = hanging(&place, &[]);
    assert!(place::signal(child.id(), Signal::HUP));
    let output = child.wait_with_output().expect("ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(129), "{text}");
    assert!(text.ends_with("2 passed, 0 failed, 1 skipped\n"), "{text}");
    let header = place.read("results/latest/run.json");
    assert!(header.contains("\"status\": \"aborted\""), "{header}");
    let place = with_good_case("nohup");
    let mut child = hanging(&place, &["nohup"]);
    assert!(place::signal(child.id(), Signal::HUP));
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().expect("can be asked").is_none());
    assert!(place::signal(child.id(), Signal::INT));
    assert_eq!(child.wait().expect("ends").code(), Some(130));
}

/// What is printed of cases: all, those that somebody has to look at, or none. What failed and why is told at the end
/// each time, and cases that were not reached are counted only.
#[test]
fn a_log_is_as_long_as_asked_for() {
    let place = with_good_case("quiet");
    let args = ["--ref", "--jobs", "1", "--with-faults", "--filter", "*PlaceTest*:__fault.fail", "--retries", "0"];
    let run = |more: &[&str]| {
        check(&place, &[&args[..], &["--format", "plain"], more].concat(), 100, &["2 passed, 1 failed"])
    };
    let lines = |text: &str| text.lines().filter(|line| line.starts_with('[')).count();
    let all = run(&[]);
    assert_eq!(lines(&all), 3, "{all}");
    assert!(all.lines().any(|line| line.contains("PASS") && (line.contains(" us ") || line.contains(" ms "))), "{all}");
    let failures = run(&["--failures-only"]);
    assert_eq!(lines(&failures), 1, "{failures}");
    assert!(failures.contains("] FAIL "), "{failures}");
    let quiet = run(&["-q"]);
    assert_eq!(lines(&quiet), 0, "{quiet}");
    assert!(quiet.contains("\nFAIL __fault.fail  (fail.assert"), "{quiet}");
    let (_, late) = place.run(&[&args[..], &["--format", "plain", "--deadline", "1ms"]].concat());
    assert!(!late.contains("] SKIP ") && late.contains(" skip.deadline"), "{late}");
    check(&place, &["-q", "--failures-only"], 2, &["only one of --quiet and --failures-only"]);
    check(&place, &["store", "list", "-q"], 2, &["`--quiet` belongs to"]);
}

/// A played GPU, and a tool around its workers: this script, to which the
/// worker's command is handed over.
fn place_with_tool(name: &str, script: &str) -> (Place, Vec<String>) {
    let place = with_good_case(name);
    place.file("machine.toml", "[[gpu]]\n");
    let skip = "while [ $# -gt 0 ]; do case $1 in --*) shift 2;; *) break;; esac; done";
    place.program("bin/compute-sanitizer", &format!("#!/bin/sh\n{skip}\n{script}\n"));
    let args =
        "--nvml machine.toml --sanitize memcheck --format plain --timeout 60s --grace 200ms --with-faults --filter";
    (place, args.split(' ').map(String::from).chain(["*spin".into()]).collect())
}

fn start_with_tool(place: &Place, args: &[String]) -> std::process::Child {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let path = std::env::join_paths([place.path("bin"), "/usr/bin".into(), "/bin".into()]).expect("a path");
    place.command(&args).env("PATH", path).stdout(std::process::Stdio::piped()).spawn().expect("starts")
}

#[test]
fn a_killed_harness_leaves_no_worker_under_a_tool() {
    let (place, args) = place_with_tool("tool-killed", "\"$@\" &\necho $! > \"$(dirname \"$0\")/worker\"\nwait");
    let mut child = start_with_tool(&place, &args);
    let ready = |events: &harness::record::Events| events.records.iter().any(|r| r["event"] == "ready");
    wait_for("the worker", || events_so_far(&place).filter(ready));
    // The script may write it after its worker is ready.
    let pid = wait_for("its number", || std::fs::read_to_string(place.path("bin/worker")).ok()?.trim().parse().ok());
    // Busy with the case by then, so that it does not listen.
    std::thread::sleep(Duration::from_millis(200));
    assert!(alive(pid));
    child.kill().expect("kills");
    child.wait().expect("reaps");
    wait_for("the worker to end", || (!alive(pid)).then_some(()));
}

#[test]
fn an_interrupt_is_heeded_while_a_worker_starts() {
    let (place, args) = place_with_tool("tool-starts", "exec sleep 60");
    let child = start_with_tool(&place, &args);
    wait_for("the worker", || (!worker_pids(&place).is_empty()).then_some(()));
    let before = Instant::now();
    assert!(place::signal(child.id(), Signal::INT));
    let output = child.wait_with_output().expect("ends");
    assert!(before.elapsed() < Duration::from_secs(20));
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn mistakes_have_messages_and_exit_codes() {
    let place = with_good_case("mistakes");
    check(&place, &["--filter", "Nothing*"], 4, &["E0505", "harness list"]);
    check(&place, &["--exact", "PlaceTest.godo/m=1"], 4, &["E0505", "did you mean `PlaceTest.good/m=1`?"]);
    check(&place, &["--filter", "A B"], 94, &["E0504", "A*:B*-C*"]);
    check(&place, &["--gpus", "200"], 21, &["E0501", "--sim 200"]);
    check(&place, &["--gpus"], 2, &["E0506", "N|all"]);
    check(&place, &["--frobnicate"], 2, &["E0506"]);
    check(&place, &["--cases", "nowhere"], 96, &["E0405", "nowhere"]);
    check(&place, &["show", "PlaceTest.good/m=5", "--stage", "fusion"], 0, &["fusion @good(%x: f32[?])"]);
    check(
        &place,
        &["show", "PlaceTest.good/m=5", "--stage", "schedule"],
        0,
        &["; schedule {", ";; fusion @good(%x: f32[?])", ";; t0 %x [d0] global"],
    );
    check(&place, &["show", "PlaceTest.good/*"], 2, &["matches 2 cases"]);
    place.case("alone", CaseFile { op: "ad %x, %x   ; error: E0102", ..SIZES });
    std::fs::rename(place.path("cases/alone.fuse"), place.path("alone.fuse")).expect("moves");
    check(&place, &["list", "--cases", "alone.fuse"], 0, &["PlaceTest."]);
    check(&place, &["bench", "--cases", "alone.fuse", "--sim", "1", "--filter", "*"], 4, &["E0505", "refusal"]);
    check(&place, &["list", "--tag", "nosuch"], 4, &["E0505", "no case has the tag `nosuch`"]);
    let front = "tags = [\"odd\"]\n[require]\narch = 100\n";
    place.case("tagged", CaseFile { suite: "TagTest", front, ..GOOD });
    let (_, listed) = place.run(&["list", "--tag", "odd"]);
    assert_eq!(listed, "TagTest.tagged\n");
    check(
        &place,
        &["--sim", "1", "--tag", "odd", "--format", "bar"],
        0,
        &["SKIP", "needs compute capability 100", "0 passed, 0 failed, 1 skipped"],
    );
    std::fs::remove_file(place.path("cases/tagged.fuse")).expect("removes");
    check(&place, &["list"], 0, &["PlaceTest.good/m=1\nPlaceTest.good/m=5\n"]);
    check(&place, &["doctor"], 0, &["simulator", "NVRTC", "2 ids in 1 files"]);
}

#[test]
fn broken_cases_are_told_with_code_place_and_way_out() {
    let place = with_good_case("broken");
    place.case("typo", CaseFile { op: "ad %x, %x", ..SIZES });
    place.case("rank", CaseFile { input: "f32[?, ?]", ..SIZES });
    place.case("dtype", CaseFile { input: "f33[?]", ..SIZES });
    place.case("missing", CaseFile { input: "f32[?], %y: f32[?]", op: "add %x, %y", ..SIZES });
    let parts = [
        "E0102",
        "did you mean `add`?",
        "cases/typo.fuse:9:8",
        "E0303",
        "E0105",
        "cases/dtype.fuse:8:19",
        "E0301",
        "`%y`",
        "again: cargo run -p harness -- --exact PlaceTest.typo/m=1",
        "2 passed, 8 failed, 0 skipped",
    ];
    check(&place, &["--ref", "--format", "plain"], 100, &parts);
    place.case("header", CaseFile { op: "neg %x", more: "; expct: barriers = 1\n; sim: seeds 0\n", ..SIZES });
    check(
        &place,
        &["--ref"],
        100,
        &["cases/header.fuse:13:3", "did you mean `expect`", "cases/header.fuse:14:14", "2 errors"],
    );
}

#[test]
fn refusals_are_checked_and_blessed() {
    let place = with_good_case("bless");
    place.case("refused", CaseFile { op: "ad %x, %x   ; error: E0101 \"wrong\"", ..SIZES });
    check(
        &place,
        &["--ref", "--filter", "*refused*"],
        100,
        &["expected E0101 with \"wrong\" at line 9", "not expected: error[E0102]"],
    );
    check(&place, &["--ref", "--filter", "*refused*", "--bless"], 100, &["blessed cases/refused.fuse:9"]);
    let text = place.read("cases/refused.fuse");
    assert!(text.contains("ad %x, %x   ; error: E0102 \""), "{text}");
    check(&place, &["--ref", "--filter", "*refused*"], 0, &["2 passed, 0 failed, 0 skipped"]);
}

#[test]
fn a_record_that_cannot_be_written_does_not_change_verdicts() {
    let place = with_good_case("norecord");
    place.file("results", "a file where a folder should be");
    check(&place, &["--ref", "--format", "plain"], 110, &["is not complete", "2 passed, 0 failed, 0 skipped"]);
}

#[test]
fn a_results_folder_of_another_format_is_left_alone() {
    let place = with_good_case("format");
    let results = place.path("results");
    std::fs::create_dir_all(&results).expect("a folder");
    std::fs::write(results.join("FORMAT"), "harness-store 9\n").expect("writes");
    check(&place, &["--ref", "--format", "plain"], 110, &["harness-store 9", "2 passed, 0 failed, 0 skipped"]);
    let names: Vec<_> =
        std::fs::read_dir(&results).expect("lists").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names, ["FORMAT"]);
}
