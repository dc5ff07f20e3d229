//! The CUDA text of random fusions, compiled for the host and run beside the
//! simulator on random inputs, and beside the reference on those it was drawn with.

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
use testing::random::{Drawn, Kind, draw_kind};

/// Kernels of each kind: most of what no case has, integers that stem from no memory.
const COUNTS: [(Kind, usize); 5] =
    [(Kind::Integers, 200), (Kind::Floats, 60), (Kind::Scaled, 40), (Kind::Noise, 10), (Kind::General, 30)];

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
    subject.draws = if drawn.kind == Kind::Scaled { 0 } else { subject.draws };
    subject.expected = Some(Expected { args: drawn.args.clone(), outputs });
    Some(subject)
}

/// Distinct kernels of every kind, each with its fusion.
fn subjects() -> (Vec<Subject>, Vec<Drawn>) {
    let (mut subjects, mut draws, mut known) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (kind, count) in COUNTS {
        let target = subjects.len() + count;
        let mut seeds = 0..;
        while subjects.len() < target
            && let Some(seed) = seeds.next()
        {
            let Some(drawn) = draw_kind(kind, seed) else { continue };
            let Some(subject) = subject(&drawn, seed) else { continue };
            if known.insert(subject.source.text()) {
                subjects.push(subject);
                draws.push(drawn);
            }
        }
    }
    (subjects, draws)
}

#[test]
#[ignore = "needs a C++ compiler"]
fn needs_cxx_the_text_of_random_kernels_means_what_the_simulator_does() {
    let compiler = HostCompiler::find().expect("a C++ compiler of the host: g++ or clang++");
    let (subjects, draws) = subjects();
    for (build, name) in [(Build::Checked, "checked"), (Build::Trusting, "trusting")] {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("host-random-{name}-{}", std::process::id()));
        let compared = compare(&compiler, &subjects, &dir, build).unwrap_or_else(|error| panic!("{error}"));
        let _ = writeln!(std::io::stderr(), "random, {name}: {}", compared.summary());
        let told =
            compared.wrong.iter().take(10).map(|(at, text)| {
                format!("{}: {text}\n{}\n", subjects[*at].name, engine::text::print(&draws[*at].fusion))
            });
        let told: String = told.collect();
        assert!(told.is_empty(), "{} random kernels differ, among them\n{told}", compared.wrong.len());
    }
}
