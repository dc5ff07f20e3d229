//! Random fusions, random schedules, random fusions cut into segments, and random products
//! of matrices on a device, against the reference.
//!
//!     random [fusions|schedules|segments|products|all] [--device sim|cuda] [--seed S] [--count N]
//!            [--processes P] [--budget SECONDS] [--nvrtc PATH]
//!
//! `count` draws of each, from seed `S` on, are shared by `P` worker processes,
//! since a front end of NVRTC has one thread in a process. A worker that dies or
//! hangs is told with the seed it was at, and another goes on behind it. Ends
//! with 1 where anything differs.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use engine::backend::cuda::nvrtc::NvrtcSearch;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use testing::check::{CheckTarget, DrawOutcome};

/// A worker that says nothing for so long hangs.
const SILENCE: Duration = Duration::from_secs(60);
/// Differences that are printed whole.
const SHOWN: usize = 10;

#[derive(Clone, Debug)]
struct Asked {
    what: Vec<What>,
    cuda: bool,
    seed: u64,
    count: u64,
    processes: u64,
    budget: Option<Duration>,
    nvrtc: Option<PathBuf>,
    /// Which share of the draws a worker has, and how many of it are done.
    worker: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Fusions,
    Schedules,
    Segments,
    Products,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Fusions => "fusions",
            Self::Schedules => "schedules",
            Self::Segments => "segments",
            Self::Products => "products",
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut asked = Asked {
        what: vec![What::Fusions, What::Schedules, What::Segments, What::Products],
        cuda: false,
        seed: 0,
        count: 1000,
        processes: std::thread::available_parallelism().map_or(1, |n| n.get()) as u64,
        budget: None,
        nvrtc: std::env::var_os("NVRTC_PATH").map(PathBuf::from),
        worker: None,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        match word.as_str() {
            "fusions" => asked.what = vec![What::Fusions],
            "schedules" => asked.what = vec![What::Schedules],
            "segments" => asked.what = vec![What::Segments],
            "products" => asked.what = vec![What::Products],
            "all" => {}
            "--device" => {
                asked.cuda = match value()?.as_str() {
                    "cuda" => true,
                    "sim" => false,
                    other => return Err(format!("--device is sim or cuda, not {other}")),
                }
            }
            "--seed" => asked.seed = number(value()?)?,
            "--count" => asked.count = number(value()?)?,
            "--processes" => asked.processes = number(value()?)?.max(1),
            "--budget" => asked.budget = Some(Duration::from_secs(number(value()?)?)),
            "--nvrtc" => asked.nvrtc = Some(value()?.into()),
            "--worker" => asked.worker = Some((number(value()?)?, number(value()?)?)),
            other => return Err(format!("unknown: {other}")),
        }
    }
    Ok(asked)
}

fn main() -> ExitCode {
    let asked = match parse(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(error) => {
            println!("{error}");
            return ExitCode::from(2);
        }
    };
    match asked.worker {
        Some((share, done)) => work(&asked, share, done),
        None => {
            let mut right = true;
            let start = Instant::now();
            let parts = asked.what.len() as u32;
            for (part, what) in (1..).zip(asked.what.clone()) {
                let end = asked.budget.map(|budget| start + budget * part / parts);
                right &= dispatch(&asked, what, end);
            }
            ExitCode::from(u8::from(!right))
        }
    }
}

// A worker: one line for each draw that begins, one for each that ended.

fn work(asked: &Asked, share: u64, done: u64) -> ExitCode {
    std::panic::set_hook(Box::new(|_| ()));
    let folders = asked.nvrtc.iter().cloned().collect();
    let target = match asked.cuda {
        true => CheckTarget::cuda(NvrtcSearch { folders, ..NvrtcSearch::default() }),
        false => Ok(CheckTarget::Simulator),
    };
    let target = match target {
        Ok(target) => target,
        Err(error) => {
            println!("unable {}", line(&error.to_string()));
            return ExitCode::from(2);
        }
    };
    let deadline = asked.budget.map(|budget| Instant::now() + budget);
    for number in (share + done * asked.processes..asked.count).step_by(asked.processes as usize) {
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return ExitCode::SUCCESS;
        }
        let seed = asked.seed + number;
        println!("at {seed}");
        let _ = std::io::stdout().flush();
        let run = || match asked.what[0] {
            What::Fusions => target.fusion(seed),
            What::Schedules => target.schedule(seed),
            What::Segments => target.segments(seed),
            What::Products => target.product(seed),
        };
        let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string));
            DrawOutcome::Differs(format!("panicked: {}", text.unwrap_or_default()))
        });
        match outcome {
            DrawOutcome::Agrees(by) => println!("agrees {by}"),
            DrawOutcome::Skipped => println!("skipped"),
            DrawOutcome::Refused(code) => println!("refused {code}"),
            DrawOutcome::Differs(text) => {
                println!("differs {}", line(&text));
                // A device may be left in a state in which nothing runs any more.
                if asked.cuda {
                    return ExitCode::from(3);
                }
            }
        }
    }
    ExitCode::SUCCESS
}

/// A text on one line, and back.
fn line(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

fn lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => out.push(if chars.next() == Some('n') { '\n' } else { '\\' }),
            _ => out.push(c),
        }
    }
    out
}

// The dispatcher.

#[derive(Default)]
struct DrawTally {
    agrees: BTreeMap<String, u64>,
    refused: BTreeMap<String, u64>,
    skipped: u64,
    differs: Vec<(u64, String)>,
}

impl DrawTally {
    fn join(&mut self, other: Self) {
        for (name, n) in other.agrees {
            *self.agrees.entry(name).or_default() += n;
        }
        for (name, n) in other.refused {
            *self.refused.entry(name).or_default() += n;
        }
        self.skipped += other.skipped;
        self.differs.extend(other.differs);
    }
}

/// Runs one worker's share, with as many processes after each other as it takes.
fn share(asked: &Asked, what: What, share: u64, end: Option<Instant>) -> DrawTally {
    let mut tally = DrawTally::default();
    let mut done = 0;
    while share + done * asked.processes < asked.count {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            break;
        }
        let mut child = match start(asked, what, share, done, left) {
            Ok(child) => child,
            Err(error) => {
                tally.differs.push((asked.seed, format!("no worker: {error}")));
                break;
            }
        };
        let before = done;
        let at = listen(&mut child, &mut tally, &mut done);
        let _ = child.kill();
        let status = child.wait();
        if let Some(seed) = at {
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            tally.differs.push((seed, format!("the worker died or hung: {status}")));
            done += 1;
        } else if done == before || !status.is_ok_and(|status| status.code() == Some(3)) {
            // Its share or its time is done, or it cannot begin.
            break;
        }
    }
    tally
}

fn start(asked: &Asked, what: What, share: u64, done: u64, left: Option<Duration>) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(what.name()).args(["--device", if asked.cuda { "cuda" } else { "sim" }]);
    for (name, value) in [("--seed", asked.seed), ("--count", asked.count), ("--processes", asked.processes)] {
        command.arg(name).arg(value.to_string());
    }
    if let Some(left) = left {
        command.arg("--budget").arg(left.as_secs().max(1).to_string());
    }
    if let Some(path) = &asked.nvrtc {
        command.arg("--nvrtc").arg(path);
    }
    command.args(["--worker", &share.to_string(), &done.to_string()]);
    // A process for each core is enough.
    command.env("RAYON_NUM_THREADS", "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
}

/// Takes a worker's lines until it ends or falls silent; the seed that it was at if it had not ended.
fn listen(child: &mut Child, tally: &mut DrawTally, done: &mut u64) -> Option<u64> {
    let stdout = child.stdout.take()?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for text in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    let mut at = None;
    while let Ok(text) = receiver.recv_timeout(SILENCE) {
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        match word {
            "at" => {
                at = rest.parse().ok();
                continue;
            }
            "agrees" => *tally.agrees.entry(rest.into()).or_default() += 1,
            "refused" => *tally.refused.entry(rest.into()).or_default() += 1,
            "skipped" => tally.skipped += 1,
            "differs" => tally.differs.push((at.unwrap_or_default(), lines(rest))),
            _ => {
                tally.differs.push((0, lines(&text)));
                return None;
            }
        }
        at = None;
        *done += 1;
    }
    at
}

fn dispatch(asked: &Asked, what: What, end: Option<Instant>) -> bool {
    let start = Instant::now();
    let mut tally = DrawTally::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..asked.processes).map(|number| scope.spawn(move || share(asked, what, number, end))).collect();
        for worker in workers {
            if let Ok(part) = worker.join() {
                tally.join(part);
            }
        }
    });
    report(asked, what, &mut tally, start.elapsed());
    tally.differs.is_empty()
}

fn report(asked: &Asked, what: What, tally: &mut DrawTally, took: Duration) {
    let agreed: u64 = tally.agrees.values().sum();
    let refused: u64 = tally.refused.values().sum();
    let all = agreed + refused + tally.skipped + tally.differs.len() as u64;
    tally.differs.sort();
    for (seed, text) in tally.differs.iter().take(SHOWN) {
        println!("==== {} seed {seed}\n{text}", what.name());
    }
    if tally.differs.len() > SHOWN {
        let seeds: Vec<String> = tally.differs.iter().skip(SHOWN).map(|(seed, _)| seed.to_string()).collect();
        println!("and at seeds {}", seeds.join(" "));
    }
    let share = |n: u64| n as f64 * 100.0 / all.max(1) as f64;
    for (name, n) in &tally.agrees {
        println!("  {name}: {n} ({:.1} %)", share(*n));
    }
    for (code, n) in &tally.refused {
        println!("  refused with {code}: {n} ({:.1} %)", share(*n));
    }
    println!(
        "{all} of {} random {} on {}, seeds {} to {}: {agreed} agree, {refused} refused, {} without use, {} differ; {:.1} s in {} processes",
        asked.count,
        what.name(),
        if asked.cuda { "the GPU" } else { "the simulator" },
        asked.seed,
        asked.seed + asked.count.saturating_sub(1),
        tally.skipped,
        tally.differs.len(),
        took.as_secs_f64(),
        asked.processes,
    );
}
