//! What the commands that run cases are asked for, converted from the command line once.

use crate::cli::args::{Args, Command, DeviceOptions, Form, IsolationOptions, TimeOptions, again_for};
use crate::cli::session::CaseOptions;
use crate::evidence::gpu_core::CoreDump;
use crate::evidence::sanitizer::Sample;
use crate::report::{Color, Detail, quoted};
use crate::verified::ReferenceUse;
use std::path::{Path, PathBuf};

/// How cases are run: what `run`, `bench` and the commands about flakes have in common.
pub(in crate::cli) struct RunOptions {
    pub(in crate::cli) command: Command,
    pub(in crate::cli) cases: CaseOptions,
    pub(in crate::cli) devices: DeviceOptions,
    pub(in crate::cli) workers: IsolationOptions,
    pub(in crate::cli) time: TimeOptions,
    pub(in crate::cli) repeat: RepeatOptions,
    pub(in crate::cli) sanitize: Option<Sample>,
    pub(in crate::cli) core_dump: CoreDump,
    /// Whether expectations are rewritten.
    pub(in crate::cli) bless: bool,
    /// A kept binary that measures beside this one.
    pub(in crate::cli) baseline: Option<PathBuf>,
    /// Why what a bench measured is accepted.
    pub(in crate::cli) reason: Option<String>,
    pub(in crate::cli) record: RecordOptions,
    pub(in crate::cli) again: AgainOptions,
}

/// How often cases are run, and what a failure means.
pub(in crate::cli) struct RepeatOptions {
    pub(in crate::cli) seed: u64,
    /// Retries of a failed case, if given.
    pub(in crate::cli) retries: Option<u32>,
    pub(in crate::cli) flaky_fails: bool,
    pub(in crate::cli) fail_fast: Option<usize>,
    pub(in crate::cli) jitter: Option<u64>,
    pub(in crate::cli) twice: bool,
    pub(in crate::cli) kernels_only: bool,
    /// For which outputs the reference is evaluated, if given.
    pub(in crate::cli) reference: Option<ReferenceUse>,
}

/// What is recorded of the run and told of it.
pub(in crate::cli) struct RecordOptions {
    pub(in crate::cli) run_id: Option<String>,
    pub(in crate::cli) form: Option<Form>,
    pub(in crate::cli) color: Color,
    pub(in crate::cli) detail: Detail,
    pub(in crate::cli) junit: Option<PathBuf>,
    pub(in crate::cli) github: bool,
    /// The command line, and what the environment gave beside it.
    pub(in crate::cli) argv: Vec<String>,
    pub(in crate::cli) from_env: Vec<String>,
}

/// The options that make a case which is run again the same one.
pub(in crate::cli) struct AgainOptions {
    /// Those of the case itself, as words.
    pub(in crate::cli) words: Vec<Vec<String>>,
    /// Folders, where they were given.
    cases: Option<PathBuf>,
    results: Option<PathBuf>,
}

impl RunOptions {
    pub(in crate::cli) fn of(args: &Args) -> Self {
        let (repeat, records) = (&args.repeat, &args.records);
        Self {
            command: args.command,
            cases: CaseOptions::of(args),
            devices: args.devices.clone(),
            workers: args.isolation.clone(),
            time: args.time.clone(),
            repeat: RepeatOptions {
                seed: repeat.seed,
                retries: repeat.retries,
                flaky_fails: repeat.flaky_fails,
                fail_fast: repeat.fail_fast,
                jitter: repeat.jitter,
                twice: repeat.twice,
                kernels_only: repeat.kernels_only,
                reference: repeat.reference,
            },
            sanitize: args.evidence.sanitize,
            core_dump: args.evidence.core_dump,
            bless: args.output.bless,
            baseline: args.output.baseline.clone(),
            reason: args.output.reason.clone(),
            record: RecordOptions {
                run_id: records.run_id.clone(),
                form: records.form,
                color: records.color,
                detail: records.detail,
                junit: records.junit.clone(),
                github: records.github,
                argv: args.argv.clone(),
                from_env: args.from_env.clone(),
            },
            again: AgainOptions {
                words: args.again.clone(),
                cases: args.select.cases.clone(),
                results: args.output.results.clone(),
            },
        }
    }

    /// Whether it measures.
    pub(in crate::cli) fn measures(&self) -> bool {
        self.command == Command::Bench
    }

    /// Cases after which a worker is replaced although it is well.
    pub(super) fn cases_a_worker(&self) -> u64 {
        self.workers.isolation.limit().min(self.workers.recycle.unwrap_or(u64::MAX))
    }
}

impl AgainOptions {
    /// The options behind a command that runs a case once more: those of its devices,
    /// those that make it the same as that command takes them, and the seed of the
    /// attempt that is repeated.
    pub(in crate::cli) fn tail(&self, devices: &str, command: Command, seed: u64) -> String {
        let mut tail = devices.to_string();
        if let Some(dir) = &self.cases {
            tail.push_str(&format!(" --cases {}", shown(dir)));
        }
        for word in again_for(&self.words, command).flatten() {
            tail.push_str(&format!(" {}", quoted(word)));
        }
        if seed != 0 || self.words.iter().any(|words| words[0] == "--seed") {
            tail.push_str(&format!(" --seed {seed}"));
        }
        tail
    }

    /// The options that say where the records are, as given; the folder that is meant
    /// without them needs none.
    pub(in crate::cli) fn results(&self) -> String {
        self.results.as_deref().map_or(String::new(), |dir| format!(" --results {}", shown(dir)))
    }
}

fn shown(dir: &Path) -> String {
    quoted(&dir.display().to_string())
}
