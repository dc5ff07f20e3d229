//! The litmus kernels on the simulator, and on a GPU beside it.
//!
//!     litmus [FOLDER] [--device sim|cuda] [--nvrtc PATH]
//!
//! Ends with 1 where anything differs from the files, or the GPU from the simulator.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use engine::backend::cuda::Device;
use engine::backend::cuda::nvrtc::{Nvrtc, NvrtcSearch};
use engine::diag::{Diagnostic, Result};
use std::path::PathBuf;
use std::process::ExitCode;
use testing::litmus::read_all;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool> {
    let mut folder = PathBuf::from("engine/testing/litmus");
    let (mut cuda, mut nvrtc) = (false, std::env::var_os("NVRTC_PATH").map(PathBuf::from));
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match (word.as_str(), &mut words) {
            ("--device", words) => cuda = words.next().as_deref() == Some("cuda"),
            ("--nvrtc", words) => nvrtc = words.next().map(PathBuf::from),
            _ => folder = PathBuf::from(word),
        }
    }
    let gpu = match cuda {
        true => Some((Device::open(0)?, Nvrtc::open(&NvrtcSearch { path: nvrtc, ..NvrtcSearch::default() })?)),
        false => None,
    };
    let (mut agree, mut defects, mut failed) = (0, 0, 0);
    for litmus in read_all(&folder)? {
        let outcome = litmus.on_simulator().and_then(|expected| match &gpu {
            Some((device, nvrtc)) if !litmus.is_defect() => {
                let found = litmus.on_gpu(device, nvrtc)?;
                let same = found == expected;
                if same { Ok(()) } else { Err(Diagnostic::bug("the GPU gives other values than the simulator")) }
            }
            _ => Ok(()),
        });
        match outcome {
            Ok(()) if litmus.is_defect() => defects += 1,
            Ok(()) => agree += 1,
            Err(error) => {
                failed += 1;
                println!("{}: {error}", litmus.name);
            }
        }
    }
    let device = if gpu.is_some() { "simulator and GPU" } else { "simulator" };
    println!("{device}: {agree} agree, {defects} defects found by the simulator, {failed} failed");
    Ok(failed == 0)
}
