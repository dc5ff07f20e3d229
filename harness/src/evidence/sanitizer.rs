//! NVIDIA's `compute-sanitizer` around a worker: the command, and its report as
//! an outcome. One case a worker, since a report does not name cases.

use crate::escape::escape;
use crate::outcome::{Outcome, Verdict, clip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Findings that are told; the whole report lies beside the failure.
const SHOWN: usize = 5;
const REPORT: &str = "sanitizer.txt";
/// Bytes of a report that are read.
const MAX_REPORT: u64 = 4 << 20;

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Memcheck,
    Racecheck,
    Initcheck,
    Synccheck,
}

impl Tool {
    pub(crate) const ALL: [(&'static str, Tool); 4] = [
        ("memcheck", Tool::Memcheck),
        ("racecheck", Tool::Racecheck),
        ("initcheck", Tool::Initcheck),
        ("synccheck", Tool::Synccheck),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, tool)| *tool == self).map_or("", |(name, _)| name)
    }

    /// What of the simulator looks for the same faults.
    pub(crate) fn detectors(self) -> &'static str {
        match self {
            Tool::Memcheck => "out_of_bounds and misaligned",
            Tool::Racecheck => "race",
            Tool::Initcheck => "uninitialised",
            Tool::Synccheck => "deadlock and divergence",
        }
    }

    /// How much longer cases take.
    fn slowdown(self) -> u32 {
        match self {
            Tool::Racecheck => 50,
            Tool::Memcheck | Tool::Initcheck | Tool::Synccheck => 20,
        }
    }
}

/// A tool and the share of cases that go through it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) tool: Tool,
    pub(crate) rate: f64,
}

impl Sample {
    /// `memcheck` or `memcheck=0.05` or `memcheck=5%`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, rate) = text.split_once('=').map_or((text, "1"), |(name, rate)| (name, rate));
        let tool = Tool::ALL.iter().find(|(known, _)| *known == name).map(|(_, tool)| *tool);
        let tool = tool.ok_or("memcheck, racecheck, initcheck or synccheck, with =RATE for a share of the cases")?;
        let (number, unit) = rate.strip_suffix('%').map_or((rate, 1.0), |number| (number, 100.0));
        let rate = number.parse::<f64>().ok().map(|number| number / unit).filter(|rate| *rate > 0.0 && *rate <= 1.0);
        Ok(Self { tool, rate: rate.ok_or("a share of the cases above 0 and up to 1, such as 0.05 or 5%")? })
    }

    /// Whether a case is in the sample: by seed and id only, so that the same
    /// seed takes the same cases, and a higher rate takes all of a lower one.
    pub(crate) fn takes(&self, seed: u64, id: &str) -> bool {
        let mixed =
            (super::bucket::fnv(id) ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.rate >= 1.0 || ((mixed ^ mixed >> 29) as f64) < self.rate * u64::MAX as f64
    }
}

/// A tool that is installed.
#[derive(Clone, Debug)]
pub(crate) struct Sanitizer {
    pub(crate) tool: Tool,
    pub(crate) program: PathBuf,
}

impl Sanitizer {
    /// The worker's command, wrapped. `exe` must be the path of the worker's
    /// binary: what `/proc/self/exe` names is the tool's own.
    pub(crate) fn command(&self, exe: &Path, home: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--tool", self.tool.name(), "--target-processes", "application-only"]);
        // Failing calls are the harness's own affair, and some are meant to fail.
        command.args(["--report-api-errors", "no", "--print-limit", "100"]);
        command.arg("--log-file").arg(home.join(REPORT)).arg(exe);
        command
    }

    /// A limit of time as it applies to a checked case.
    pub(crate) fn scaled(&self, limit: Duration) -> Duration {
        limit * self.tool.slowdown()
    }

    pub(crate) fn report(home: &Path) -> PathBuf {
        home.join(REPORT)
    }

    /// What the report makes of the outcome. A worker's end stays what it is,
    /// and gets the findings as a reason.
    pub(crate) fn judge(&self, home: &Path, mut outcome: Outcome) -> Outcome {
        use std::io::Read;
        let mut text = Vec::new();
        let read =
            std::fs::File::open(Self::report(home)).and_then(|file| file.take(MAX_REPORT).read_to_end(&mut text));
        let text = String::from_utf8_lossy(&text);
        let tool = self.tool.name();
        if read.is_err() || !text.contains("=========") {
            return match outcome.verdict {
                Verdict::Pass => {
                    let why = format!("{} wrote no report for this case, which ran well", self.program.display());
                    Outcome { verdict: Verdict::Infra, outcome: "infra.sanitizer".into(), detail: why, ..outcome }
                }
                _ => outcome,
            };
        }
        let findings = findings(&text);
        if findings.is_empty() {
            return outcome;
        }
        let mut lines: Vec<String> = findings.iter().take(SHOWN).map(Finding::line).collect();
        if findings.len() > SHOWN {
            lines.push(format!("and {} more in {REPORT}", findings.len() - SHOWN));
        }
        let found = format!("{tool}: {}", lines.join("\n"));
        if matches!(outcome.verdict, Verdict::Crash | Verdict::Hang) {
            outcome.detail = clip(format!("{}\n{found}", outcome.detail), crate::outcome::MAX_DETAIL);
            return outcome;
        }
        if outcome.verdict != Verdict::Pass {
            lines.push(format!("the case: {} {}", outcome.outcome, outcome.detail));
        }
        let (verdict, detail) = (Verdict::Fail, clip(lines.join("\n"), crate::outcome::MAX_DETAIL));
        Outcome { verdict, outcome: format!("fail.sanitizer.{tool}"), detail, ..outcome }
    }
}

/// One error of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Finding {
    what: String,
    kernel: String,
    /// `FILE:LINE` where the kernel has line information.
    place: String,
    /// By whom and on which address: the lines behind.
    more: Vec<String>,
}

impl Finding {
    fn line(&self) -> String {
        let kernel = if self.kernel.is_empty() { String::new() } else { format!(" in {}", self.kernel) };
        let place = if self.place.is_empty() { String::new() } else { format!(" at {}", self.place) };
        let more: String = self.more.iter().take(3).map(|line| format!("; {line}")).collect();
        escape(&format!("{}{kernel}{place}{more}", self.what), "").into_owned()
    }
}

/// The errors of a report. An error starts at the margin; what belongs to it is
/// indented. Summaries and remarks of the tool are no errors.
fn findings(text: &str) -> Vec<Finding> {
    const ERRORS: [&str; 6] = ["Invalid ", "Uninitialized ", "Barrier error", "Error: ", "ERROR: ", "Race reported"];
    let mut found: Vec<Finding> = Vec::new();
    let mut open = false;
    for line in text.lines().filter_map(|line| line.split_once("=========").map(|(_, rest)| rest)) {
        let body = line.trim();
        let indented = line.starts_with("     ");
        if body.is_empty() || body.starts_with("Saved host backtrace") || body.starts_with("Host Frame") {
            open = open && !body.is_empty() && !body.starts_with("Saved");
        } else if !indented {
            let body = body.strip_prefix("WARN: ").unwrap_or(body);
            let body = body.strip_prefix("WARNING: ").unwrap_or(body);
            open = ERRORS.iter().any(|start| body.starts_with(start)) && !body.contains("SUMMARY");
            if open {
                let (what, place) = split_place(body);
                found.push(Finding { what, ..place });
            }
        } else if let (true, Some(last)) = (open, found.last_mut()) {
            match body.strip_prefix("at ").filter(|_| last.kernel.is_empty() && last.place.is_empty()) {
                Some(at) => {
                    let place = place(at);
                    (last.kernel, last.place) = (place.kernel, place.place);
                }
                None => last.more.push(body.into()),
            }
        }
    }
    found
}

/// `Race reported between Write access at K+0x10 in f.cu:3` has its place in the same line.
fn split_place(body: &str) -> (String, Finding) {
    match body.split_once(" access at ") {
        Some((what, at)) => (format!("{what} access"), place(at)),
        None => (body.into(), Finding::default()),
    }
}

/// `KERNEL+0x70 in FILE:LINE`, `0x70 in FILE:LINE:KERNEL` or `0x70 in KERNEL`.
fn place(at: &str) -> Finding {
    let (before, after) = at.split_once(" in ").unwrap_or((at, ""));
    let kernel = |text: &str| {
        text.split(['+', '(', '<']).next().unwrap_or_default().trim().trim_start_matches("void ").to_string()
    };
    if !before.starts_with("0x") {
        return Finding { kernel: kernel(before), place: after.trim().into(), ..Finding::default() };
    }
    // A file's name and a line, then perhaps the kernel.
    let mut parts = after.splitn(3, ':');
    let (file, line, rest) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    match line.filter(|line| !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit())) {
        Some(line) => {
            Finding { kernel: kernel(rest.unwrap_or_default()), place: format!("{file}:{line}"), ..Finding::default() }
        }
        None => Finding { kernel: kernel(after), ..Finding::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(report: &str, wanted: &[(&str, &str, &str)]) {
        let found = findings(report);
        let found: Vec<_> = found.iter().map(|f| (f.what.as_str(), f.kernel.as_str(), f.place.as_str())).collect();
        assert_eq!(found, wanted, "{report}");
    }

    #[test]
    fn reports_of_each_tool() {
        let head = "========= COMPUTE-SANITIZER\n";
        check(&format!("{head}========= ERROR SUMMARY: 0 errors\n"), &[]);
        let memcheck = "========= Invalid __global__ write of size 4 bytes\n=========     at kernel_pointwise+0x90 in /tmp/kernel_pointwise.cu:12\n=========     by thread (3,0,0) in block (1,0,0)\n=========     Access at 0x7f2a00000200 is out of bounds\n=========     Saved host backtrace up to driver entry point at kernel launch time\n=========         Host Frame: [0x331d50] in libcuda.so.1\n=========\n========= ERROR SUMMARY: 1 error\n";
        check(
            &format!("{head}{memcheck}"),
            &[("Invalid __global__ write of size 4 bytes", "kernel_pointwise", "/tmp/kernel_pointwise.cu:12")],
        );
        assert_eq!(findings(memcheck)[0].more.len(), 2);
        let older = "========= Invalid __shared__ read of size 16 bytes\n=========     at 0x9670 in void k<short>(T2, T3)\n=========     by thread (0,0,0) in block (0,0,0)\n";
        check(older, &[("Invalid __shared__ read of size 16 bytes", "k", "")]);
        let race = "========= ERROR: Race reported between Read access at 0x6360 in /a/conv.cu:123:convolution(int, int)\n=========     and Write access at 0x1fe0 in /a/conv.cu:63:convolution(int) [1088 hazards]\n=========\n========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n";
        check(race, &[("ERROR: Race reported between Read access", "convolution", "/a/conv.cu:123")]);
        let newer = "========= Error: Race reported between Write access at k(float*)+0x10 in k.cu:3\n";
        check(newer, &[("Error: Race reported between Write access", "k", "k.cu:3")]);
        let init = "========= Uninitialized __global__ memory read of size 4 bytes\n=========     at k+0x70 in k.cu:9\n========= Barrier error detected. Divergent thread(s) in block\n=========     at k+0x80 in k.cu:11\n";
        check(
            init,
            &[
                ("Uninitialized __global__ memory read of size 4 bytes", "k", "k.cu:9"),
                ("Barrier error detected. Divergent thread(s) in block", "k", "k.cu:11"),
            ],
        );
        for junk in [
            "",
            "=========",
            "\u{0}=========     at ",
            "========= Invalid ",
            "========= Error: Race reported between Write access at ",
        ] {
            let _ = findings(junk);
        }
    }

    #[test]
    fn samples_depend_on_seed_and_id() {
        let ids: Vec<String> = (0..2000).map(|i| format!("Suite.case/n={i}")).collect();
        let taken = |rate, seed| -> Vec<&String> {
            let sample = Sample { tool: Tool::Memcheck, rate };
            ids.iter().filter(|id| sample.takes(seed, id)).collect()
        };
        let (few, more) = (taken(0.05, 1), taken(0.2, 1));
        assert!((60..140).contains(&few.len()) && (320..480).contains(&more.len()), "{} {}", few.len(), more.len());
        assert!(few.iter().all(|id| more.contains(id)));
        assert_ne!(few, taken(0.05, 2));
        assert_eq!(taken(1.0, 3).len(), ids.len());
        let rate = |text: &str| Sample::parse(text).map(|sample| sample.rate);
        assert_eq!((rate("memcheck"), rate("racecheck=5%"), rate("synccheck=0.25")), (Ok(1.0), Ok(0.05), Ok(0.25)));
        for wrong in ["", "memchk", "memcheck=", "memcheck=0", "memcheck=2", "memcheck=nan", "memcheck=-1"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
