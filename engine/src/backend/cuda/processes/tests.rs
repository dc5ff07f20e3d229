//! Processes that compile, crash, hang and have another build, with a compiler and without.

use super::serve::serve;
use super::wire::{Request, build_of, receive_hello, receive_result, send_hello};
use super::{CompilerClient, CompilerCommand, CompilerProcesses, compiler_process};
use crate::backend::cuda::nvrtc::{CompileText, Cubin, NvrtcOptions};
use crate::backend::cuda::tests::{nvrtc, nvrtc_search};
use crate::backend::cuda::{Compiler, CudaSource};
use crate::diag::{Diagnostic, Result, code};
use crate::options::{CompileCx, DeviceDesc, NoTrace, Options};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TEXT: &str = "extern \"C\" __global__ void k(float* x) { x[threadIdx.x] *= 2; }";

fn options() -> NvrtcOptions {
    NvrtcOptions::new((9, 0), true)
}

/// Echoes texts; waits for a word where it is told to, and refuses what is no text.
struct Echo(Mutex<Receiver<()>>);

impl CompileText for Echo {
    fn compile_text(&self, text: &str, name: &str, _options: &NvrtcOptions) -> Result<Cubin> {
        match text {
            "wait" => drop(self.0.lock().unwrap().recv()),
            "no" => return Err(Diagnostic::bug_code(code::PTXAS, format!("{name} is none")).note("a log")),
            _ => {}
        }
        Ok(Cubin::new(text.as_bytes().to_vec(), name.into()))
    }
}

#[test]
fn a_connection_serves_until_it_is_closed() {
    let (own, theirs) = UnixStream::pair().unwrap();
    let (_word, waits) = channel();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| serve(theirs, &Echo(Mutex::new(waits)), "b", || panic!("nobody left early")));
        let client = CompilerClient::new(own);
        for text in ["one", "two"] {
            assert_eq!(client.compile_text(text, "k", &options()).unwrap().bytes, text.as_bytes());
        }
        let refused = client.compile_text("no", "k", &options()).unwrap_err();
        assert_eq!(refused.to_string(), "bug[E0606]: k is none\n  note: a log");
        assert!(!client.is_gone());
        drop(client);
        assert!(served.join().unwrap().is_ok());
    });
}

#[test]
fn who_leaves_in_the_middle_of_a_text_is_not_waited_for() {
    let (own, theirs) = UnixStream::pair().unwrap();
    let (word, waits) = channel();
    let (told, abandoned) = channel();
    std::thread::scope(|scope| {
        let echo = Echo(Mutex::new(waits));
        let served = scope.spawn(move || serve(theirs, &echo, "b", move || told.send(()).unwrap()));
        assert_eq!(receive_hello(&own).unwrap(), "b");
        Request { text: "wait".into(), name: "k".into(), options: options() }.send(&own).unwrap();
        drop(own);
        abandoned.recv_timeout(Duration::from_secs(30)).expect("the process may end");
        word.send(()).unwrap();
        assert!(served.join().unwrap().is_err());
    });
}

#[test]
fn a_process_that_goes_away_is_an_error_once_and_for_all() {
    let (own, theirs) = UnixStream::pair().unwrap();
    let client = CompilerClient::new(own);
    let served = std::thread::spawn(move || {
        send_hello(&theirs, "a").unwrap();
        Request::receive(&theirs).unwrap().text
    });
    assert_eq!(client.build(), Some("a"));
    let error = client.compile_text(TEXT, "k", &options()).unwrap_err();
    assert!(error.message.contains("kernel k is gone"), "{error}");
    assert!(client.is_gone());
    assert_eq!(served.join().unwrap(), TEXT);
    // One that never says hello.
    let (own, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    let client = CompilerClient::new(own);
    assert!(client.compile_text(TEXT, "k", &options()).is_err() && client.is_gone());
}

#[test]
fn an_answer_that_is_none_is_an_error() {
    let (own, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    assert!(receive_result(&own).is_err());
}

/// Not a test: what [`processes`] starts.
#[test]
#[ignore = "a compiler process of other tests"]
fn other_process() {
    let _ = compiler_process(&nvrtc_search());
}

/// This test's own binary as a compiler.
fn processes(count: usize) -> CompilerProcesses {
    let own = "backend::cuda::processes::tests::other_process";
    let args = ["--ignored", "--exact", own, "--nocapture"].map(Into::into).to_vec();
    CompilerProcesses::start(CompilerCommand { program: std::env::current_exe().unwrap(), args }, count).unwrap()
}

fn source(body: &str) -> CudaSource {
    CudaSource {
        library: String::new(),
        kernel: format!("extern \"C\" __global__ void k(float* x) {{ {body} }}"),
        entry: "k".into(),
        params: vec![1],
        dynamic_shared: 0,
        barrier_bytes: 0,
        cooperative: false,
    }
}

fn compile(compiler: &Compiler, body: &str) -> Result<Cubin> {
    let (device, own) = (DeviceDesc::h200(), Options::default());
    let cx = CompileCx { options: &own, device: &device, trace: &NoTrace };
    compiler.compile(&cx, &source(body), &options(), 0).map(|compiled| compiled.cubin)
}

#[test]
#[ignore = "needs NVRTC"]
fn needs_nvrtc_processes_give_the_same_code_and_the_same_errors() {
    let (here, mut there) = (Compiler::new(nvrtc()), Compiler::new(nvrtc()));
    let processes = Arc::new(processes(2));
    there.leave_to(Arc::clone(&processes));
    for body in ["*x = 2;", "x[threadIdx.x] *= 2;"] {
        assert!(compile(&here, body).unwrap() == compile(&there, body).unwrap());
    }
    let [own, theirs] = [&here, &there].map(|compiler| compile(compiler, "this is no C++").unwrap_err());
    assert_eq!(own, theirs);
    // Several at once, more than there are processes.
    let bodies: Vec<String> = (0..6).map(|n| format!("*x = {n};")).collect();
    let compiled = crate::util::run_jobs(6, bodies.len(), &|n| compile(&there, &bodies[n]).unwrap());
    assert!(compiled.iter().zip(&bodies).all(|(cubin, body)| *cubin == compile(&here, body).unwrap()));
    assert_eq!(processes.problem(), None);
}

#[test]
#[ignore = "needs NVRTC"]
fn needs_nvrtc_processes_that_were_killed_are_replaced_and_in_the_end_done_without() {
    let mut compiler = Compiler::new(nvrtc());
    let processes = Arc::new(processes(1));
    compiler.leave_to(Arc::clone(&processes));
    for n in 0..6 {
        processes.kill_idle();
        let started = Instant::now();
        assert!(compile(&compiler, &format!("*x = {n};")).is_ok());
        assert!(started.elapsed() < Duration::from_secs(60));
    }
    assert!(processes.problem().is_some_and(|why| why.contains("ended by itself")), "{:?}", processes.problem());
}

#[test]
#[ignore = "needs NVRTC"]
fn needs_nvrtc_what_is_no_compiler_costs_speed_only() {
    let mut compiler = Compiler::new(nvrtc());
    let command = |program: &str| CompilerCommand { program: program.into(), args: Vec::new() };
    let processes = Arc::new(CompilerProcesses::start(command("/bin/true"), 2).unwrap());
    compiler.leave_to(Arc::clone(&processes));
    assert!(compile(&compiler, "*x = 2;").is_ok());
    assert!(processes.problem().is_some());
    assert!(CompilerProcesses::start(command("/nowhere"), 1).is_err());
}

#[test]
#[ignore = "needs NVRTC"]
fn needs_nvrtc_another_build_is_not_used() {
    assert!(build_of(&nvrtc()).is_some());
    let processes = processes(1);
    assert!(processes.compile("another", TEXT, "k", &options()).is_none());
    assert!(processes.problem().is_some_and(|why| why.contains("another build")), "{:?}", processes.problem());
    assert!(processes.compile("another", TEXT, "k", &options()).is_none());
}
