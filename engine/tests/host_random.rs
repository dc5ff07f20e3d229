//! The CUDA text of random fusions and random schedules, compiled for the host and
//! run beside the simulator on random inputs, and beside the reference on those it
//! was drawn with.

use engine::fusion::bind_args;
use engine::kernel;
use engine::options::{DeviceDesc, NoTrace, SimOptions};
use engine::refeval::{Tolerance, evaluate};
use engine::runtime::Session;
use engine::tensor::{Arg, ArgMeta};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use testing::host::{Build, Expected, HostCompiler, Subject, compare};
use testing::random::{DrawKind, Drawn, ScheduledCase, draw_kind, draw_schedule};

/// Kernels of each kind: most of what no case has, integers that stem from no memory.
const COUNTS: [(DrawKind, usize); 5] = [
    (DrawKind::Integers, 200),
    (DrawKind::Floats, 60),
    (DrawKind::Scaled, 40),
    (DrawKind::Noise, 10),
    (DrawKind::General, 30),
];
/// Kernels of schedules that no heuristic would choose.
const SCHEDULES: usize = 40;

/// The kernel of a draw; none where it is refused.
fn subject(drawn: &Drawn, seed: u64) -> Option<Subject> {
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), drawn.options.clone());
    let metas: Vec<ArgMeta> = drawn.args.iter().map(Arg::meta).collect();
    let plan = session.compile(&drawn.fusion, &metas, &NoTrace).ok()?;
    let launch = kernel::bind(plan.kernel(), &metas).ok()?;
    let bindings = bind_args(&drawn.fusion, &drawn.args).ok()?;
    let outputs = evaluate(&drawn.fusion, &drawn.args).ok()?.into_iter().zip(&drawn.fusion.outputs);
    let tolerance = |output| drawn.measure.tolerance(Tolerance::for_output(&drawn.fusion, &bindings, output));
    let outputs = outputs.map(|(wanted, output)| (wanted, tolerance(*output))).collect();
    let mut subject = Subject::new(format!("{:?} {seed}", drawn.kind), plan.kernel().clone(), launch);
    // Where random inputs are beyond what approximations are for, its own count.
    subject.draws = if drawn.kind == DrawKind::Scaled { 0 } else { subject.draws };
    subject.expected = Some(Expected { args: drawn.args.clone(), outputs });
    Some(subject)
}

/// The kernel of a drawn schedule; none where its fusion has no such form.
fn scheduled(case: ScheduledCase, seed: u64) -> Option<Subject> {
    let metas: Vec<ArgMeta> = case.args.iter().map(Arg::meta).collect();
    let kernel = case.kernel.ok()?;
    let launch = kernel::bind(&kernel, &metas).ok()?;
    let outputs = evaluate(&case.fusion, &case.args).ok()?.into_iter().map(|wanted| (wanted, Tolerance::EXACT));
    let mut subject = Subject::new(format!("schedule {seed}"), kernel, launch);
    subject.expected = Some(Expected { outputs: outputs.collect(), args: case.args });
    Some(subject)
}

/// A kernel with what it was made from.
type Made = (Subject, String);

/// The first so many distinct kernels of those that seeds give.
fn distinct(count: usize, known: &mut BTreeSet<String>, make: impl Fn(u64) -> Option<Made>) -> Vec<Made> {
    (0..).filter_map(make).filter(|(subject, _)| known.insert(subject.source.text())).take(count).collect()
}

/// Distinct kernels of every kind.
fn subjects() -> Vec<Made> {
    let mut known = BTreeSet::new();
    let mut made = Vec::new();
    for (kind, count) in COUNTS {
        made.extend(distinct(count, &mut known, |seed| {
            let drawn = draw_kind(kind, seed)?;
            Some((subject(&drawn, seed)?, engine::text::print(&drawn.fusion)))
        }));
    }
    made.extend(distinct(SCHEDULES, &mut known, |seed| {
        let case = draw_schedule(seed).ok()?;
        let text = case.schedule.clone();
        Some((scheduled(case, seed)?, text))
    }));
    made
}

#[test]
#[ignore = "needs a C++ compiler"]
fn needs_cxx_the_text_of_random_kernels_means_what_the_simulator_does() {
    let compiler = HostCompiler::find().expect("a C++ compiler of the host: g++ or clang++");
    let (subjects, origins): (Vec<Subject>, Vec<String>) = subjects().into_iter().unzip();
    for (build, name) in [(Build::Checked, "checked"), (Build::Trusting, "trusting")] {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("host-random-{name}-{}", std::process::id()));
        let compared = compare(&compiler, &subjects, &dir, build).unwrap_or_else(|error| panic!("{error}"));
        // Past the capture of tests that pass: the count is a result.
        let _ = writeln!(std::io::stderr(), "random, {name}: {}", compared.summary());
        let told = compared.wrong.iter().take(10);
        let told: String =
            told.map(|(at, text)| format!("{}: {text}\n{}\n", subjects[*at].name, origins[*at])).collect();
        assert!(told.is_empty(), "{} random kernels differ, among them\n{told}", compared.wrong.len());
    }
}
