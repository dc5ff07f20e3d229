//! Every case of the corpus as segments: what no kernel takes runs, too.

use super::{args, compare, pipeline};
use crate::case::{Case, Target, load};
use crate::outcome::Numerics;
use engine::fusion::bind;
use engine::options::{DeviceDesc, NoTrace, Options, SimOptions};
use engine::runtime::Session;
use engine::tensor::ArgMeta;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// More elements of a tensor or of an argument's storage than with which this test is quick.
const LARGE: i64 = 1 << 22;

/// By whom the segments of a case are computed; none if the case itself is wrong. An
/// error says what is wrong with the segments.
fn run(case: &Case, session: &Session) -> Result<Option<String>, String> {
    let Ok(fusion) = pipeline::parse(case) else { return Ok(None) };
    let Ok((metas, alignments)) = args::metas(&fusion, case) else { return Ok(None) };
    let Ok(bindings) = bind(&fusion, &metas) else { return Ok(None) };
    let elements = |tensor| bindings.sizes(&fusion, tensor).iter().fold(1i64, |n, size| n.saturating_mul(*size));
    let spans = metas.iter().map(|meta| match meta {
        ArgMeta::Tensor(meta) => meta.span().unwrap_or(i64::MAX),
        ArgMeta::Scalar(_) => 0,
    });
    if fusion.tensors.ids().map(elements).chain(spans).any(|elements| elements > LARGE) {
        return Ok(Some("too large for this test".into()));
    }
    let Ok(args) = args::build(&fusion, case) else { return Ok(None) };
    let Ok(expected) = pipeline::reference(&fusion, &args) else { return Ok(None) };
    let tell = |error: Box<engine::diag::Diagnostic>| error.to_string();
    let segments = session.segment(&fusion, &metas, &alignments, &NoTrace).map_err(tell)?;
    let run = session.run_segments(&segments, &args, &NoTrace).map_err(|error| format!("{error}\n{segments}"))?;
    for (output, pair) in fusion.outputs.iter().zip(expected.iter().zip(&run.outputs)) {
        let mut numerics = Numerics::default();
        if let Some(wrong) = compare::compare(&fusion, &bindings, *output, pair, &case.check, &mut numerics) {
            return Err(format!("{wrong}\n{segments}"));
        }
    }
    let kernels = segments.segments.iter().filter(|segment| segment.kind.is_kernel()).count();
    Ok(Some(match (kernels, segments.segments.len() - kernels) {
        (1, 0) => "one kernel".into(),
        (_, 0) => "several kernels".into(),
        (0, _) => "the host alone".into(),
        _ => "kernels and the host".into(),
    }))
}

#[test]
fn every_case_runs_as_segments() {
    let loaded = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases"), Target::Sim);
    let (next, told) = (AtomicUsize::new(0), Mutex::new((BTreeMap::<String, usize>::new(), Vec::new())));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let sim = SimOptions { threads: 1, count: false, ..SimOptions::default() };
                let session = Session::simulator(DeviceDesc::h200(), sim, Options::default());
                while let Some(case) = loaded.cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run(case, &session);
                    let mut told = told.lock().unwrap();
                    match outcome {
                        Ok(by) => *told.0.entry(by.unwrap_or_else(|| "refused as wrong".into())).or_default() += 1,
                        Err(wrong) => told.1.push(format!("{}: {wrong}", case.id)),
                    }
                }
            });
        }
    });
    let (by, wrong) = told.into_inner().unwrap();
    assert!(loaded.errors.is_empty(), "{:?}", loaded.errors);
    for (kind, least) in [("one kernel", 2000), ("several kernels", 100), ("kernels and the host", 200)] {
        let found = by.get(kind).copied().unwrap_or(0);
        assert!(found >= least, "{kind}: {found} of at least {least} cases: {by:?}");
    }
    let shown: Vec<&String> = wrong.iter().take(5).collect();
    assert!(wrong.is_empty(), "{} of {} cases are wrong: {shown:#?}", wrong.len(), loaded.cases.len());
}
