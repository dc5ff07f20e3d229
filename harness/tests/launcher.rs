//! A run as tasks of a Slurm cluster: a played one, whose tasks run where they are submitted, and, where Slurm is installed,
//! a real one of four nodes on this machine. Drives the binary as a user would.

use crate::durability::with_cases;
use crate::place::{CaseFile, GOOD, Place, check, ended};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CLUSTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/slurm_cluster.sh");

/// Runs tasks at once and one after the other. Those in the file `lost` do not begin in the first round; those in `killed`
/// are killed when they have written something.
const SBATCH: &str = r#"#!/bin/bash
rounds=$(($(cat rounds 2> /dev/null || echo 0) + 1)); echo "$rounds" > rounds
while [ "${1#--}" != "$1" ]; do
    case $1 in --array=*) tasks=${1#--array=} ;; --partition=*) echo "$1" >> partitions ;; esac
    shift
done
echo "round $rounds: $tasks" >> submitted
for task in ${tasks//,/ }; do
    [ "$rounds" -gt "$(cat persist 2> /dev/null || echo 1)" ] || ! grep -qx "$task" lost 2> /dev/null || continue
    SLURM_ARRAY_TASK_ID=$task sh "$@" > "task-$task.out" 2>&1
done
echo "7;cluster"
"#;

/// A place with the programs of a cluster on its path.
pub(crate) fn with_cluster(name: &str, cases: usize) -> Place {
    let place = with_cases(name, cases);
    place.program("bin/sbatch", SBATCH);
    place.program("bin/squeue", "#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1\n");
    place.program("bin/scancel", "#!/bin/sh\n");
    place
}

fn command(place: &Place, args: &[&str]) -> Command {
    let mut command = place.command(&["run", "--launcher", "slurm", "--ref", "--jobs", "1"]);
    let path = format!("{}:{}", place.path("bin").display(), std::env::var("PATH").unwrap_or_default());
    command.args(args).env("PATH", path);
    command
}

#[track_caller]
fn launch(place: &Place, args: &[&str], exit: i32, parts: &[&str]) -> String {
    let (code, text) = ended(command(place, args).output().expect("runs"));
    assert_eq!(code, exit, "{text}");
    parts.iter().for_each(|part| assert!(text.contains(part), "lacks {part:?}: {text}"));
    text
}

/// The ids of all verdicts of a run, each of which is there once.
#[track_caller]
fn verdicts(place: &Place) -> BTreeSet<String> {
    let log = place.records();
    let ids: Vec<&str> = log.iter().filter(|r| r["k"] == "verdict").filter_map(|r| r["case_id"].as_str()).collect();
    let unique: BTreeSet<String> = ids.iter().map(|id| id.to_string()).collect();
    assert_eq!(unique.len(), ids.len(), "{ids:?}");
    unique
}

#[test]
fn without_a_cluster_the_error_has_ways_out() {
    let place = with_cases("launch-none", 2);
    let mut command = command(&place, &[]);
    let (code, text) = ended(command.env("PATH", place.path("bin")).output().expect("runs"));
    assert_eq!(code, 20, "{text}");
    for part in ["E0513", "`sbatch` is not on the path", "`--shard I/N` on each machine, then `harness store join`"] {
        assert!(text.contains(part), "{text}");
    }
    let place = with_cluster("launch-silent", 2);
    place.program("bin/sbatch", "#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n");
    launch(&place, &[], 20, &["E0513", "Unable to contact slurm controller", "scontrol ping"]);
}

#[test]
fn what_tasks_cannot_do_is_refused() {
    let place = with_cluster("launch-wrong", 2);
    let (code, text) = place.run(&["run", "--launcher", "slurm"]);
    assert!(code == 20 || code == 2, "{text}");
    for (args, told) in [
        (&["--shard", "1/2"][..], "makes the shards itself"),
        (&["--bless"], "does not bless"),
        (&["--rerun", "latest"], "takes no `--rerun` of one run"),
        (&["--filter", "Nope.*"], "nothing selected"),
        (&["--tasks", "0"], "a number of tasks"),
    ] {
        let (code, text) = ended(command(&place, args).output().expect("runs"));
        assert!([2, 4].contains(&code) && text.contains(told), "{args:?}: {code}: {text}");
    }
    check(&place, &["--ref", "--tasks", "2"], 2, &["belong to `--launcher`"]);
    assert!(!place.path("submitted").exists());
}

/// All cases once in one run, with what was asked for beside it; nothing is left of the tasks.
#[test]
fn tasks_come_to_one_run() {
    let place = with_cluster("launch", 10);
    place.case("wrong", CaseFile { suite: "WrongTest", more: "; values: [7, 7, 7, 7]\n", ..GOOD });
    let more = ["--tasks", "4", "--sbatch=--partition=gpu", "--run-id", "night", "--junit", "out.xml"];
    let told = ["11 of 11 cases selected", "4 tasks of Slurm, job 7", "FAIL WrongTest.wrong", "10 passed, 1 failed"];
    launch(&place, &more, 100, &told);
    assert_eq!(verdicts(&place).len(), 11);
    assert_eq!(place.read("partitions"), "--partition=gpu\n");
    assert!(place.read("out.xml").contains("tests=\"11\""));
    check(&place, &["report", "night"], 0, &["| 11 | 10 | 1 |"]);
    check(&place, &["store", "verify"], 0, &["1 runs", "0 problems"]);
    assert_eq!(std::fs::read_dir(place.path("results/launched")).expect("a folder").count(), 0);
    // The tasks of the next run deal the cases out by what these took; a bench is launched as well.
    std::fs::remove_file(place.path("cases/wrong.fuse")).expect("removes");
    let text = launch(&place, &["--filter", "PlaceTest.*"], 0, &["10 passed"]);
    assert!(!text.contains("no duration is recorded"), "{text}");
    check(&place, &["compare", "latest~1", "latest"], 0, &["before night"]);
}

/// A task that left no end is queued again, and one that never comes is said.
#[test]
fn what_is_lost_is_queued_again() {
    let place = with_cluster("launch-lost", 8);
    place.file("lost", "2\n3\n");
    launch(&place, &[], 0, &["without an end: 2 tasks (2, 3); what they had not run is queued again", "8 passed"]);
    assert_eq!(verdicts(&place).len(), 8);
    assert_eq!(place.read("submitted"), "round 1: 1,2,3,4\nround 2: 2,3\n");
    // One that is lost in each round.
    let place = with_cluster("launch-gone", 8);
    place.file("lost", "2\n");
    place.file("persist", "9\n");
    let told =
        ["that was the last try", "run shard 2 of 4 is missing", "incomplete: 2 of 8 selected cases", "task-*.log"];
    launch(&place, &["-q"], 6, &told);
    assert_eq!(place.read("submitted").lines().count(), 3);
    check(&place, &["resume"], 0, &["6 are done, 2 open", "8 passed"]);
    assert_eq!(verdicts(&place).len(), 8);
    // A controller that goes away takes nothing of what is recorded with it.
    let place = with_cluster("launch-silenced", 8);
    place.file("lost", "2\n");
    let silenced = SBATCH
        .replace("echo \"round", "[ \"$rounds\" -lt 2 ] || { echo 'controller is gone' >&2; exit 1; }; echo \"round");
    place.program("bin/sbatch", &silenced);
    launch(&place, &[], 6, &["controller is gone", "run shard 2 of 4 is missing", "6 passed"]);
    // A task that says why it cannot run is not asked again.
    let place = with_cluster("launch-refused", 2);
    place.program(
        "bin/sbatch",
        &SBATCH.replace("SLURM_ARRAY", "sed -i 's/--jobs/--jbs/' \"${1%/*}/job.json\"; SLURM_ARRAY"),
    );
    launch(&place, &[], 20, &["E0513", "no task has left a record", "task-1.log"]);
    assert_eq!(place.read("submitted").lines().count(), 1);
}

/// A cluster of four nodes on this machine; it ends with the value.
struct Cluster {
    folder: std::path::PathBuf,
}

impl Cluster {
    fn start(place: &Place) -> Self {
        let folder = place.path("cluster");
        Self { folder }.call("start", &["4"])
    }

    #[track_caller]
    fn call(self, word: &str, more: &[&str]) -> Self {
        let output =
            Command::new("bash").arg(CLUSTER).arg(word).arg(&self.folder).args(more).output().expect("bash runs");
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{word}: {}", String::from_utf8_lossy(&text));
        self
    }

    /// Loses the node of a task.
    fn lose(self, task: usize) -> Self {
        let mut squeue = Command::new("squeue");
        squeue.args(["--noheader", "--array", "--format=%K %N"]).env("SLURM_CONF", self.folder.join("slurm.conf"));
        let told = String::from_utf8_lossy(&squeue.output().expect("squeue runs").stdout).into_owned();
        let of_task = |line: &str| line.trim().strip_prefix(&format!("{task} ")).map(String::from);
        let node = told.lines().find_map(of_task).expect("the task runs");
        self.call("lose", &[&node])
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = Command::new("bash").arg(CLUSTER).arg("stop").arg(&self.folder).output();
    }
}

/// Cases that take a while each, and how they are run.
fn slow(place: &Place, cases: usize) -> [&'static str; 4] {
    let ids: String = (0..cases).map(|n| format!("__fault.slow=400@{n}\n")).collect();
    place.file("ids", &ids);
    ["--with-faults", "--from-file", "ids", "--tasks"]
}

fn begin(place: &Place, cluster: &Cluster, args: &[&str]) -> Child {
    let mut command = place.command(&["run", "--launcher", "slurm", "--ref", "--jobs", "1"]);
    command.args(args).env("SLURM_CONF", cluster.folder.join("slurm.conf"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts")
}

/// Verdicts that a task has recorded so far.
fn recorded(place: &Place, task: usize) -> usize {
    let launched = std::fs::read_dir(place.path("results/launched")).into_iter().flatten().flatten();
    let runs =
        launched.flat_map(|job| std::fs::read_dir(job.path().join(format!("shard-{task}/runs"))).into_iter().flatten());
    let logs = runs.flatten().filter_map(|run| std::fs::read_to_string(run.path().join("events.jsonl")).ok());
    logs.map(|log| log.matches("\"k\":\"verdict\"").count()).max().unwrap_or(0)
}

#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Four tasks on four nodes, one of which is lost in the middle: one run, every case once, and what the node had run is
/// not run again.
#[test]
#[ignore = "needs Slurm: apt-get install slurm-wlm munge"]
fn needs_slurm_a_lost_node_is_made_up_for() {
    let place = with_cases("slurm", 1);
    let cluster = Cluster::start(&place);
    let args = slow(&place, 40);
    let child = begin(&place, &cluster, &[&args[..], &["4"]].concat());
    until("task 2 begins", || recorded(&place, 2) >= 2);
    let cluster = cluster.lose(2);
    let (code, text) = ended(child.wait_with_output().expect("ends"));
    drop(cluster);
    assert_eq!(code, 0, "{text}");
    for part in ["without an end: 1 task (2)", "40 cases of 4 shards", "40 passed, 0 failed, 0 skipped", ", then "] {
        assert!(text.contains(part), "lacks {part:?}: {text}");
    }
    assert_eq!(verdicts(&place).len(), 40);
    // Of all cases at most the one that ran when the node was lost was tried twice; its first try has no end.
    let log = place.records();
    let attempts: Vec<&Value> = log.iter().filter(|record| record["k"] == "attempt").collect();
    assert_eq!(attempts.len(), 40, "{attempts:?}");
    check(&place, &["store", "verify"], 0, &["1 runs", "0 problems"]);
}

/// A signal ends the tasks, and what they had done is one run that can be gone on with.
#[test]
#[ignore = "needs Slurm: apt-get install slurm-wlm munge"]
fn needs_slurm_a_signal_ends_the_tasks() {
    let place = with_cases("slurm-stop", 1);
    let cluster = Cluster::start(&place);
    let args = slow(&place, 20);
    let child = begin(&place, &cluster, &[&args[..], &["2"]].concat());
    until("both tasks begin", || (1..=2).all(|task| recorded(&place, task) >= 1));
    assert!(crate::place::signal(child.id(), rustix::process::Signal::TERM));
    let (code, text) = ended(child.wait_with_output().expect("ends"));
    assert!(code == 143 && text.contains("incomplete: "), "{code}: {text}");
    drop(cluster);
    let done = place.records().iter().filter(|r| r["k"] == "verdict" && r["outcome"] == "pass").count();
    check(&place, &["resume", "-q"], 0, &[&format!("{done} are done, {} open", 20 - done), "20 passed"]);
    assert_eq!(verdicts(&place).len(), 20);
}
