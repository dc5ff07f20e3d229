//! What compiling a program of twelve different kernels costs: on one thread and several, in this
//! process and in compiler processes, and from a warm code store. With a GPU the kernels are loaded too.
//!
//!     compile_times [NVRTC]
//!
//! Ends with 1 where two ways give different code.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use engine::backend::cuda::nvrtc::{Nvrtc, NvrtcOptions, NvrtcSearch};
use engine::backend::cuda::{CodeStore, Compiler, CompilerCommand, CompilerProcesses, compiler_process};
use engine::diag::{Diagnostic, Result};
use engine::fusion::Fusion;
use engine::num::DType;
use engine::options::{CompileCx, DeviceDesc, NoTrace, Options, SimOptions};
use engine::runtime::Session;
use engine::tensor::{ArgMeta, TensorMeta};
use engine::text;
use engine::util::quantile;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Says that this process is a compiler of another one.
const COMPILER: &str = "--compiler";
/// Rounds of which the median is told.
const ROUNDS: usize = 5;
/// Bytes of the code store, which none comes near to.
const STORE_BYTES: u64 = 1 << 30;

/// What each kernel does with the rows of `%x`.
const BODIES: [&str; 12] = [
    "softmax %x axis(1)",
    "gelu %x",
    "rms_norm %x, %g eps(1e-6)",
    "silu %x",
    "layer_norm %x, %g, %g eps(1e-5)",
    "tanh %x",
    "log_softmax %x axis(1)",
    "mul %x, %x",
    "softmax %x axis(0)",
    "sigmoid %x",
    "atan %x",
    "exp %x",
];

/// Those kernels, one behind the other.
fn chain(bodies: &[&str]) -> Fusion {
    let (mut lines, mut last) = (String::new(), "x".to_string());
    for (i, body) in bodies.iter().enumerate() {
        lines += &format!("  %a{i} = {}\n  %b{i} = segment_set %a{i}\n", body.replace("%x", &format!("%{last}")));
        last = format!("b{i}");
    }
    // The last kernel returns what it computes.
    let text = format!("fusion @kernels(%x: f32[?, ?], %g: f32[?]) {{\n{lines}  return %a{}\n}}\n", bodies.len() - 1);
    text::parse_one(&text).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"))
}

fn metas() -> Vec<ArgMeta> {
    [&[4096, 1024][..], &[1024]].map(|sizes| ArgMeta::Tensor(TensorMeta::contiguous(DType::F32, sizes))).to_vec()
}

/// How a program is compiled.
#[derive(Clone, Default)]
struct Way {
    threads: u32,
    processes: Option<Arc<CompilerProcesses>>,
    store: Option<PathBuf>,
}

/// What a compilation took and gave.
struct Compiled {
    /// Milliseconds for the kernels.
    lowered: f64,
    /// For their machine code or, with a GPU, until they are loaded.
    coded: f64,
    /// The code, where there is no GPU.
    code: Vec<Vec<u8>>,
}

/// What is measured on.
struct Bench {
    search: NvrtcSearch,
    has_gpu: bool,
}

impl Bench {
    fn once(&self, fusion: &Fusion, way: &Way) -> Result<Compiled> {
        let options = Options { compile_threads: way.threads, self_check: false, ..Options::default() };
        let (args, aligned) = (metas(), [16; 2]);
        let store = way.store.as_ref().map(|dir| CodeStore::new(dir, STORE_BYTES));
        let ms = |start: Instant| start.elapsed().as_secs_f64() * 1e3;
        if self.has_gpu {
            let mut session = Session::cuda_with(0, options, &self.search)?;
            session = store.into_iter().fold(session, Session::with_code_store);
            session = way.processes.iter().cloned().fold(session, Session::with_compilers);
            let start = Instant::now();
            session.program(fusion, &args, &aligned, &NoTrace)?;
            let lowered = ms(start);
            session.preload(fusion, &args, &aligned, None, &NoTrace)?;
            return Ok(Compiled { lowered, coded: ms(start) - lowered, code: Vec::new() });
        }
        let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), options);
        let mut compiler = Compiler::new(Nvrtc::open(&self.search)?);
        store.into_iter().for_each(|store| compiler.share(store));
        way.processes.iter().cloned().for_each(|processes| compiler.leave_to(processes));
        let start = Instant::now();
        let program = session.program(fusion, &args, &aligned, &NoTrace)?;
        let lowered = ms(start);
        let cx = CompileCx { options: session.options(), device: session.device(), trace: &NoTrace };
        let code = compiler.compile_program(&cx, &program)?;
        let coded = ms(start) - lowered;
        Ok(Compiled { lowered, coded, code: code.into_iter().map(|compiled| compiled.cubin.bytes).collect() })
    }

    /// The same, the medians of some rounds, as a row of the table.
    fn row(&self, what: &str, fusion: &Fusion, way: &Way) -> Result<(f64, Vec<Vec<u8>>)> {
        let rounds = (0..ROUNDS).map(|_| self.once(fusion, way)).collect::<Result<Vec<_>>>()?;
        let median = |part: &dyn Fn(&Compiled) -> f64| {
            quantile(&rounds.iter().map(part).collect::<Vec<_>>(), 0.5).unwrap_or(f64::NAN)
        };
        let (lowered, coded) = (median(&|round| round.lowered), median(&|round| round.coded));
        let all = median(&|round| round.lowered + round.coded);
        println!("{what:44} {lowered:10.2} {coded:14.2} {all:10.2}");
        let code = rounds.into_iter().next().map(|round| round.code).unwrap_or_default();
        Ok((all, code))
    }
}

fn processes(search: &NvrtcSearch, nvrtc: &Nvrtc, count: usize) -> std::io::Result<Arc<CompilerProcesses>> {
    let place = search.path.iter().map(|path| path.clone().into_os_string());
    let args = std::iter::once(COMPILER.into()).chain(place).collect();
    let command = CompilerCommand { program: std::env::current_exe()?, args };
    let started = Arc::new(CompilerProcesses::start(command, count)?);
    let start = Instant::now();
    started.make_ready(nvrtc);
    println!("{count} compiler processes are ready after {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    Ok(started)
}

fn measured(search: NvrtcSearch, folder: &Path) -> Result<bool> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let has_gpu = Session::cuda_with(0, Options::default(), &search).is_ok();
    let nvrtc = Nvrtc::open(&search)?;
    // What the library does once in a process is no kernel's cost.
    nvrtc.compile_text("__global__ void k() {}", "k", &NvrtcOptions::new((9, 0), true))?;
    let started = processes(&search, &nvrtc, cores.min(BODIES.len()))
        .map_err(|error| Diagnostic::bug(format!("no compiler process: {error}")))?;
    let bench = Bench { search, has_gpu };
    let fusion = chain(&BODIES);
    let with = if has_gpu { "code and load" } else { "machine code" };
    println!("{} kernels on {cores} cores{}", BODIES.len(), if has_gpu { ", a GPU" } else { ", no GPU" });
    println!("{:44} {:>10} {with:>14} {:>10}", "milliseconds", "lowering", "in all");
    let (serial, parallel) = (Way { threads: 1, ..Way::default() }, Way::default());
    let beside = Way { processes: Some(started), ..Way::default() };
    let mut longest = 0.0f64;
    for body in ["gelu %x", "softmax %x axis(1)", "layer_norm %x, %g, %g eps(1e-5)"] {
        longest = longest.max(bench.row(&format!("one: {body}"), &chain(&[body]), &serial)?.0);
    }
    let (_, expected) = bench.row("cold, one thread", &fusion, &serial)?;
    let (_, threads) = bench.row("cold, threads", &fusion, &parallel)?;
    let (all, apart) = bench.row("cold, processes", &fusion, &beside)?;
    println!("{:44} {:10.2} of the longest one", "", all / longest);
    let warm = |way: Way| Way { store: Some(folder.into()), ..way };
    bench.once(&fusion, &warm(serial.clone()))?;
    let (_, stored) = bench.row("warm code store, one thread", &fusion, &warm(serial))?;
    let (_, together) = bench.row("warm code store, threads", &fusion, &warm(parallel))?;
    let same = [&threads, &apart, &stored, &together].into_iter().all(|code| *code == expected);
    Ok(same && (has_gpu || expected.len() == BODIES.len()))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is_compiler = words.first().is_some_and(|word| word == COMPILER);
    let search = NvrtcSearch { path: words.get(usize::from(is_compiler)).map(Into::into), ..NvrtcSearch::default() };
    if is_compiler {
        return if compiler_process(&search).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let folder = std::env::temp_dir().join(format!("compile-times-{}", std::process::id()));
    let measured = measured(search, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    match measured {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            println!("two ways give different code");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}
