//! The CUDA text of the kernels of all cases, compiled for the host and run
//! beside the simulator on random inputs, special numbers among them.

use harness::case::{Target, load};
use harness::corpus::{self, CaseKernel};
use std::io::Write;
use std::path::Path;
use testing::host::{Build, HostCompiler, Subject, compare};

fn subject(found: CaseKernel) -> Subject {
    Subject::new(found.id, found.plan.kernel().clone(), found.launch)
}

#[test]
#[ignore = "needs a C++ compiler"]
fn needs_cxx_the_text_of_kernels_means_what_the_simulator_does() {
    let compiler = HostCompiler::find().expect("a C++ compiler of the host: g++ or clang++");
    let cases = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases"), Target::Sim).cases;
    let subjects: Vec<Subject> = corpus::kernels(&cases).into_iter().map(subject).collect();
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("host-text-{}", std::process::id()));
    let compared = compare(&compiler, &subjects, &dir, Build::Checked).unwrap_or_else(|error| panic!("{error}"));
    // Past the capture of tests that pass: the count is a result.
    let _ = writeln!(std::io::stderr(), "{}", compared.summary());
    let wrong: String = compared.wrong.iter().map(|(at, text)| format!("{}: {text}\n", subjects[*at].name)).collect();
    assert!(wrong.is_empty(), "{} kernels differ\n{wrong}", compared.wrong.len());
    assert!(compared.count() * 10 > subjects.len() * 6, "most kernels are compared: {}", compared.summary());
}
