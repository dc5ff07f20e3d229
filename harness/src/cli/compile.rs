//! `compile`: the kernel of every selected case through NVRTC to machine code
//! for an H200. It needs the library, and no GPU.

use super::args::Args;
use super::{Failure, session};
use crate::case::{Case, Target};
use crate::device::find_nvrtc;
use crate::{exit, worker};
use engine::backend::cuda::emit;
use engine::backend::cuda::nvrtc::{Nvrtc, NvrtcOptions, NvrtcSearch, Resources};
use engine::diag::Kind;
use engine::options::{DeviceDesc, Options, SimOptions};
use engine::runtime::{Plan, Session};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// What is known after planning all cases.
#[derive(Default)]
struct Planned {
    // Kernels by their text's hash, with the first case that has each.
    kernels: BTreeMap<u128, (String, Arc<Plan>)>,
    cases: usize,
    refused: usize,
    failures: Vec<String>,
}

pub(super) fn compile(args: &Args) -> Result<u8, Failure> {
    let search = NvrtcSearch { folders: find_nvrtc().folders(), ..NvrtcSearch::default() };
    let nvrtc = Nvrtc::open(&search).map_err(|error| Failure::diagnostic(exit::INFRA, &error))?;
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default());
    let mut planned = Planned::default();
    // Sizes differ between simulator and GPU, and so do kernels.
    for target in [Target::Sim, Target::Cuda] {
        for case in session::select(args, session::load_all(args, target)?.cases)? {
            planned.add(&case, &session);
        }
    }
    let options = NvrtcOptions::new(session.device().compute_capability, session.options().fmad);
    let results = build_all(&nvrtc, &options, planned.kernels.into_values().collect());
    let mut failures = planned.failures;
    let mut spilling = Vec::new();
    for (id, name, result) in &results {
        match result {
            Ok(Some(figures)) if figures.spill_stores > 0 => {
                spilling.push(format!(
                    "{name} of {id}: {} bytes with {} registers",
                    figures.spill_stores, figures.registers
                ));
            }
            Ok(_) => {}
            Err(error) => failures.push(format!("{id}: {error}")),
        }
    }
    let (major, minor) = nvrtc.version();
    let mut text = String::new();
    for failure in &failures {
        let _ = writeln!(text, "{failure}");
    }
    for kernel in &spilling {
        let _ = writeln!(text, "spills registers: {kernel}");
    }
    let _ = writeln!(
        text,
        "{} kernels of {} cases compiled for {} with NVRTC {major}.{minor}, {} cases refused as they should, {} failed",
        results.iter().filter(|(_, _, result)| result.is_ok()).count(),
        planned.cases,
        options.arch,
        planned.refused,
        failures.len()
    );
    super::print(&text);
    Ok(if failures.is_empty() { exit::OK } else { exit::FAILED })
}

impl Planned {
    fn add(&mut self, case: &Case, session: &Session) {
        self.cases += 1;
        match worker::plan(case, session) {
            Ok(plan) => {
                self.kernels.entry(plan.kernel_hash().0).or_insert_with(|| (case.id.clone(), plan));
            }
            // Whether it is the expected refusal is for a run to say; bugs are nobody's expectation.
            Err(errors) if !case.errors.is_empty() && errors.iter().all(|error| error.kind != Kind::Bug) => {
                self.refused += 1;
            }
            Err(errors) => self.failures.extend(errors.iter().map(|error| format!("{}: {error}", case.id))),
        }
    }
}

type Built = (String, String, Result<Option<Resources>, String>);

/// Compiles on all cores; results in the order of the kernels.
fn build_all(nvrtc: &Nvrtc, options: &NvrtcOptions, kernels: Vec<(String, Arc<Plan>)>) -> Vec<Built> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let queue = Mutex::new(kernels.into_iter().enumerate());
    let results = Mutex::new(BTreeMap::new());
    let work = || {
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((number, (id, plan))) = next else { break };
            let built = nvrtc.compile(&emit(plan.kernel()), options);
            let built = built.map(|cubin| cubin.resources).map_err(|error| error.to_string());
            let built = (id, plan.kernel().name.clone(), built);
            results.lock().unwrap_or_else(PoisonError::into_inner).insert(number, built);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}
