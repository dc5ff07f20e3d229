//! `compile`: the kernel of every selected case through NVRTC to machine code
//! for an H200. It needs the library, and no GPU. With `--code-cache DIR`, those
//! that some run has compiled are not compiled again; without, several are one text, which
//! takes less time. With `--resources FILE`,
//! what each takes of a multiprocessor is written down.

use super::args::Args;
use super::devices::cores;
use super::session::{self, CaseOptions};
use super::{Failure, resources};
use crate::case::Case;
use crate::code_cache::{self, CodeCache, CodeUse};
use crate::device::find_nvrtc;
use crate::{compilers, exit, worker};
use engine::backend::cuda::nvrtc::{Nvrtc, NvrtcOptions, NvrtcSearch, Resources};
use engine::backend::cuda::{Compiler, CompilerProcesses};
use engine::compile::Plan;
use engine::diag::{Diagnostic, DiagnosticKind};
use engine::kernel::Kernel;
use engine::options::{CompileCx, DeviceDesc, NoTrace, Options, SimOptions};
use engine::program::Program;
use engine::runtime::Session;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Kernels of one text where none is stored: fewer cost more, and with more the cores end at
/// different times.
const TOGETHER: usize = 16;

/// What is known after planning all cases.
#[derive(Default)]
struct PlannedKernels {
    // Kernels by their text's hash, with the cases that have each.
    kernels: BTreeMap<u128, (Vec<String>, Arc<Plan>)>,
    cases: usize,
    /// Cases that have no kernel.
    on_host: usize,
    refused: usize,
    failures: Vec<String>,
}

pub(super) fn compile(args: &Args) -> Result<u8, Failure> {
    let folders = find_nvrtc().folders();
    let search = NvrtcSearch { folders: folders.clone(), ..NvrtcSearch::default() };
    let nvrtc = Nvrtc::open(&search).map_err(|error| Failure::diagnostic(exit::INFRA, &error))?;
    let mut compiler = Compiler::new(nvrtc);
    // With fewer, or none, kernels are compiled here.
    if let Ok(processes) = CompilerProcesses::start(compilers::command(&folders), cores()) {
        compiler.leave_to(Arc::new(processes));
    }
    if let Some(CodeCache::Dir(dir)) = &args.isolation.code_cache {
        compiler.share(code_cache::store(dir));
    }
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default());
    let mut planned = PlannedKernels::default();
    let options = CaseOptions::of(args);
    let cases = session::select(&options, session::load_both(&options)?)?;
    let programs = on_all_cores(cases.iter().collect(), |case| worker::program(case, &session));
    for (case, program) in cases.iter().zip(programs) {
        planned.add(case, program);
    }
    let options = NvrtcOptions::new(session.device().compute_capability, session.options().fmad);
    let cx = CompileCx { options: session.options(), device: session.device(), trace: &NoTrace };
    let results = build_all(&compiler, &cx, planned.kernels.into_values().collect());
    let mut failures = planned.failures;
    let mut spilling = Vec::new();
    for Built { cases, plan, result } in &results {
        let id = cases.first().map_or("", String::as_str);
        match result {
            Ok(Some(figures)) if figures.spill_stores > 0 => {
                spilling.push(format!(
                    "{} of {id}: {} bytes with {} registers",
                    plan.kernel().name,
                    figures.spill_stores,
                    figures.registers
                ));
            }
            Ok(_) => {}
            Err(error) => failures.push(format!("{id}: {error}")),
        }
    }
    if let Some(file) = &args.output.resources {
        write_resources(file, session.device(), &results)?;
    }
    let (major, minor) = compiler.nvrtc().version();
    let mut text = String::new();
    for failure in &failures {
        let _ = writeln!(text, "{failure}");
    }
    for kernel in &spilling {
        let _ = writeln!(text, "spills registers: {kernel}");
    }
    if let Some(counts) = compiler.counts() {
        text.push_str(&CodeUse::of((counts, compiler.store_error())).text());
    }
    let _ = writeln!(
        text,
        "{} kernels of {} cases compiled for {} with NVRTC {major}.{minor}, {} cases on the host alone, {} refused as they should, {} failed",
        results.iter().filter(|built| built.result.is_ok()).count(),
        planned.cases,
        options.arch,
        planned.on_host,
        planned.refused,
        failures.len()
    );
    crate::console::print(&text);
    Ok(if failures.is_empty() { exit::OK } else { exit::FAILED })
}

impl PlannedKernels {
    fn add(&mut self, case: &Case, program: Result<Arc<Program>, Vec<Diagnostic>>) {
        self.cases += 1;
        match program {
            Ok(program) => {
                self.on_host +=
                    usize::from(program.launches().next().is_none() && program.library_calls().next().is_none());
                for plan in program.launches().map(|launch| &launch.plan) {
                    let hash = plan.kernel_hash().0;
                    let kernel = self.kernels.entry(hash).or_insert_with(|| (Vec::new(), plan.clone()));
                    kernel.0.push(case.id.clone());
                }
            }
            // Whether it is the expected refusal is for a run to say; bugs are nobody's expectation.
            Err(errors)
                if !case.refusals().is_empty() && errors.iter().all(|error| error.kind != DiagnosticKind::Bug) =>
            {
                self.refused += 1;
            }
            Err(errors) => self.failures.extend(errors.iter().map(|error| format!("{}: {error}", case.id))),
        }
    }
}

/// A kernel after its compilation.
struct Built {
    cases: Vec<String>,
    plan: Arc<Plan>,
    /// What it takes, where the log says, or why it does not compile.
    result: Result<Option<Resources>, String>,
}

fn write_resources(file: &Path, device: &DeviceDesc, results: &[Built]) -> Result<(), Failure> {
    let compiled = results.iter().filter_map(|built| {
        let figures = built.result.as_ref().ok().copied().flatten()?;
        Some((built.cases.as_slice(), &*built.plan, figures))
    });
    let table = resources::table(device, compiled).map_err(std::io::Error::from);
    let written = table.and_then(|table| std::fs::write(file, table));
    written.map_err(|error| Failure::new(exit::INFRA, format!("{}: {error}", file.display())))
}

/// Compiles on all cores, with a store each kernel by itself, so that each is found again, and
/// several in a text without; results in the order of the kernels.
fn build_all(compiler: &Compiler, cx: &CompileCx<'_>, kernels: Vec<(Vec<String>, Arc<Plan>)>) -> Vec<Built> {
    let together = if compiler.counts().is_some() { 1 } else { TOGETHER };
    let results = on_all_cores(kernels.chunks(together).collect(), |text| {
        let text: Vec<&Kernel> = text.iter().map(|(_, plan)| plan.kernel()).collect();
        compiler.compile_together(cx, &text)
    });
    let results = results.into_iter().flatten().map(|result| result.map_err(|error| error.to_string()));
    kernels.into_iter().zip(results).map(|((cases, plan), result)| Built { cases, plan, result }).collect()
}

/// Works on the items with a thread on each core; results in the order of the items.
fn on_all_cores<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let queue = Mutex::new(items.into_iter().enumerate());
    let results = Mutex::new(BTreeMap::new());
    let serve = || {
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((number, item)) = next else { break };
            let result = work(item);
            results.lock().unwrap_or_else(PoisonError::into_inner).insert(number, result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..cores() {
            scope.spawn(serve);
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let squares = |count: u64| {
            on_all_cores((0..count).collect(), |n: u64| {
                std::thread::sleep(std::time::Duration::from_micros(n % 7));
                n * n
            })
        };
        assert_eq!(squares(500), (0..500).map(|n| n * n).collect::<Vec<u64>>());
        assert!(squares(0).is_empty());
    }

    #[test]
    fn both_kinds_of_device_are_selected_at_once() {
        let dir = Scratch::new("compile");
        let text = "---\nversion = 1\nsuite = \"S\"\nabout = \"why\"\n[axes]\nm = [1, 900]\n[sim]\nm = [1, 2]\n---\nfusion @A(%x: f32[?]) {\n  return %x\n}\n; inputs: x = normal[$m]\n";
        std::fs::write(dir.join("a.fuse"), text).expect("writes");
        let ids = |exact: &[&str]| {
            let exact = exact.iter().map(|id| id.to_string()).collect();
            let mut args = Args::default();
            (args.select.cases, args.select.wanted.exact) = (Some(dir.to_path_buf()), exact);
            let options = CaseOptions::of(&args);
            let cases =
                session::load_both(&options).and_then(|cases| session::select(&options, cases)).expect("selects");
            cases.into_iter().map(|case| case.id).collect::<Vec<_>>()
        };
        let all = ids(&[]);
        let (sim, cuda) = (ids(&["S.A/m=2"]), ids(&["S.A/m=900"]));
        assert_eq!(all, ["S.A/m=1", "S.A/m=2", "S.A/m=900"]);
        assert_eq!((sim, cuda), (vec!["S.A/m=2".into()], vec!["S.A/m=900".into()]));
    }
}
