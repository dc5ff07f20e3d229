//! Device faults on a GPU: real kernels, compiled from `faults.cu` and launched
//! through the engine's driver layer, with the memory of a checked call.

use super::judged;
use crate::outcome::{Determinism, Outcome, apply_learnt};
use crate::worker::device::Device;
use crate::worker::fault::table::{FaultClass, FaultKind, FaultTarget, Scene};
use crate::worker::variation;
use engine::backend::cuda::nvrtc::{Nvrtc, NvrtcOptions};
use engine::backend::cuda::{CallMemory, Device as GpuDevice, LaunchArgs, LoadedKernel};
use engine::diag::{Diagnostic, Result, code};
use engine::num::DType;
use engine::options::{Phase, Trace};
use engine::tensor::HostTensor;
use std::sync::Arc;

/// The kernels, each in a section `//// name`.
const TEXTS: &str = include_str!("faults.cu");
/// 32-bit words of inputs and outputs.
const WORDS: u64 = 1000;
/// Milliseconds after which a kernel that never ends is a hang.
const HANG_MS: u64 = 4000;

pub(super) const CLASSES: &[FaultClass] = &[
    row("gpu_illegal_address", "gpu.illegal_address", "writes where no memory is", |s, _| {
        on_gpu(s, |gpu| gpu.run("illegal_address", 32, &[NOWHERE]))
    })
    .replaced(),
    row("gpu_misaligned", "gpu.misaligned", "reads 16 bytes at a multiple of 4", |s, _| {
        on_gpu(s, |gpu| gpu.on_vectors("misaligned", 32, |[x, y]| vec![x, y]))
    })
    .replaced(),
    row("gpu_trap", "gpu.launch_failed", "executes a trap", |s, _| {
        on_gpu(s, |gpu| gpu.on_vectors("trap", 32, |[_, y]| vec![y]))
    })
    .replaced(),
    row("gpu_assert", "gpu.assert", "fails an assertion on the device", |s, _| {
        on_gpu(s, |gpu| gpu.on_vectors("device_assert", 32, |[_, y]| vec![y]))
    })
    .replaced(),
    row("gpu_async", "gpu.illegal_address", "ends while its kernel, which will fail, is running", |s, _| {
        on_gpu(s, |gpu| gpu.issue(&gpu.load("illegal_address", 0, 1)?, 32, &[NOWHERE]))
    })
    .replaced(),
    row("gpu_red_zone", "fail.redzone", "writes behind the end of its output", |s, _| {
        on_gpu(s, |gpu| gpu.copy_beyond(|[_, _]| WORDS as i64 + 2))
    })
    .replaced(),
    row("gpu_red_zone_before", "fail.redzone", "writes before its output", |s, _| {
        on_gpu(s, |gpu| gpu.copy_beyond(|[_, _]| -3))
    })
    .replaced(),
    row("gpu_red_zone_input", "fail.redzone", "writes behind the end of its input", |s, _| {
        on_gpu(s, |gpu| gpu.copy_beyond(|[x, y]| x.wrapping_sub(y) as i64 / 4 + WORDS as i64))
    })
    .replaced(),
    row("gpu_input_changed", "fail.input_changed", "writes into its input", |s, _| {
        on_gpu(s, |gpu| gpu.on_vectors("writes_input", 1024, |[x, y]| vec![x, y, WORDS]))
    })
    .replaced(),
    row("gpu_unwritten", "fail.unwritten", "leaves every third element of its output as it was", |s, _| {
        on_gpu(s, |gpu| gpu.on_vectors("leaves_gaps", 1024, |[x, y]| vec![x, y, WORDS]))
    }),
    hang("gpu_infinite", "waits for a word that nobody writes", |s, _| {
        on_gpu(s, |gpu| {
            let mut word = gpu.device.alloc(4)?;
            word.fill(0, 4, 0)?;
            gpu.run("infinite", 32, &[word.address()])
        })
    }),
    hang("gpu_stuck_barrier", "waits at a barrier for a thread that never comes", |s, _| {
        on_gpu(s, |gpu| gpu.on_vectors("stuck_barrier", 1, |[_, y]| vec![y]))
    }),
    row("gpu_shared_limit", "fail.launch_config", "asks for more shared memory than a block has", |s, _| {
        on_gpu(s, |gpu| gpu.load("takes_shared", 300 << 10, 1).map(drop))
    }),
    row("gpu_grid_limit", "fail.launch_config", "asks for more blocks than a grid has", |s, _| {
        on_gpu(s, |gpu| gpu.shape("trap", [1, 70_000, 1], 32))
    }),
    row("gpu_block_limit", "fail.launch_config", "asks for more threads than a block has", |s, _| {
        on_gpu(s, |gpu| gpu.shape("trap", [1; 3], 2048))
    }),
    row("gpu_register_limit", "fail.launch_config", "asks for more registers than a block has", |s, _| {
        on_gpu(s, |gpu| gpu.on_vectors("crowded", 1024, |[x, y]| vec![x, y]))
    }),
    row("gpu_order", "fail.determinism", "adds up in the order in which blocks come", |s, _| order(s)),
    row("gpu_oom", "oom.device", "asks for more memory than the device has", |s, _| {
        on_gpu(s, |gpu| gpu.device.alloc(gpu.device.memory()?.1 + (1 << 30)).map(drop))
    }),
    row("gpu_oom_then_fine", "pass", "runs out of memory, asks for less and goes on", |s, _| {
        on_gpu(s, |gpu| gpu.oom_then_fine())
    }),
    row("gpu_leak", "fail.leak.device_mem", "does not give 1 GiB back", |s, _| {
        on_gpu(s, |gpu| gpu.device.alloc(1 << 30).map(std::mem::forget))
    })
    .replaced(),
    row("gpu_leak_module", "fail.leak.device_mem", "does not unload code that takes 1 GiB", |s, _| {
        on_gpu(s, |gpu| gpu.leak_module())
    })
    .replaced(),
    row("gpu_syntax", "fail.compile.nvrtc", "has a text that does not follow the grammar", |s, _| {
        on_gpu(s, |gpu| gpu.load("unfinished", 0, 1).map(drop))
    }),
    row("gpu_ptxas", "fail.compile.ptxas", "has an instruction that no GPU knows", |s, _| {
        on_gpu(s, |gpu| gpu.load("unknown_instruction", 0, 1).map(drop))
    }),
    row("gpu_bad_ptx", "fail.compile.ptxas", "gives the driver PTX that makes no sense", |s, _| {
        on_gpu(s, |gpu| gpu.load_ptx("8.0", "frobnicate.u32 %r1, 1;"))
    })
    .replaced(),
    row("gpu_newer_ptx", "fail.compile.ptxas", "gives the driver PTX of a version to come", |s, _| {
        on_gpu(s, |gpu| gpu.load_ptx("99.9", "ret;"))
    })
    .replaced(),
    row("gpu_other_arch", "fail.load", "loads machine code of another architecture", |s, _| {
        on_gpu(s, |gpu| {
            let older = NvrtcOptions::new((8, 0), true);
            let cubin = gpu.nvrtc.compile_text(text_of("trap")?, "trap", &older)?;
            LoadedKernel::load_entry(gpu.device, &cubin.bytes, "trap", 0, 1).map(drop)
        })
    })
    .replaced(),
];

/// An address that no allocation has.
const NOWHERE: u64 = 0x10;

const fn row(
    name: &'static str,
    expected: &'static str,
    about: &'static str,
    commit: fn(&Scene<'_>, &str) -> Outcome,
) -> FaultClass {
    FaultClass::returns(name, FaultKind::Device, expected, about, commit).on(FaultTarget::Cuda)
}

const fn hang(name: &'static str, about: &'static str, commit: fn(&Scene<'_>, &str) -> Outcome) -> FaultClass {
    let class =
        FaultClass::fatal(name, FaultKind::Device, "hang.gpu", about, commit).on(FaultTarget::Cuda).limit_ms(HANG_MS);
    FaultClass { phase: "launch", ..class }
}

/// The device of a fault.
struct FaultGpu<'a> {
    device: &'a Arc<GpuDevice>,
    nvrtc: &'a Nvrtc,
    trace: &'a dyn Trace,
}

fn on_gpu(scene: &Scene<'_>, body: impl FnOnce(&FaultGpu<'_>) -> Result<()>) -> Outcome {
    let gpu = match scene.device {
        Device::Session { session, .. } => session.gpu(),
        Device::Reference => None,
    };
    let Some((device, nvrtc)) = gpu else {
        return Outcome::fail("fail.assert", "this fault needs a GPU");
    };
    match body(&FaultGpu { device, nvrtc, trace: scene.crumbs }) {
        Ok(()) => Outcome::pass(),
        Err(error) => judged(scene, &error),
    }
}

/// Sums up by atomic additions again and again, until the bits differ.
fn order(scene: &Scene<'_>) -> Outcome {
    let mut runs: Vec<Vec<HostTensor>> = Vec::new();
    let outcome = on_gpu(scene, |gpu| {
        while runs.len() < 50 && runs.last() == runs.first() {
            runs.push(vec![gpu.racing_sum()?]);
        }
        Ok(())
    });
    let named = runs.iter().map(|run| ("in another run", run.as_slice()));
    let mut outcome = Outcome { variation: Some(variation::of_runs(&["y"], named)), ..outcome };
    apply_learnt(&mut outcome, Some(Determinism::Bitwise));
    outcome
}

/// The section of a kernel.
fn text_of(name: &str) -> Result<&'static str> {
    let section = TEXTS.split("\n//// ").find_map(|section| section.strip_prefix(name)?.strip_prefix('\n'));
    section.ok_or_else(|| Diagnostic::bug(format!("there is no kernel {name}")))
}

impl FaultGpu<'_> {
    fn load(&self, name: &str, shared: u32, params: usize) -> Result<LoadedKernel> {
        let options = NvrtcOptions::new(self.device.desc().compute_capability, true);
        let cubin = self.nvrtc.compile_text(text_of(name)?, name, &options)?;
        LoadedKernel::load_entry(self.device, &cubin.bytes, name, shared, params)
    }

    fn load_ptx(&self, version: &str, body: &str) -> Result<()> {
        let text =
            format!(".version {version}\n.target sm_90\n.address_size 64\n.visible .entry k()\n{{\n{body}\n}}\n\0");
        LoadedKernel::load_entry(self.device, text.as_bytes(), "k", 0, 0).map(drop)
    }

    /// Launches one block and does not wait.
    fn issue(&self, kernel: &LoadedKernel, threads: u32, words: &[u64]) -> Result<()> {
        self.trace.enter(Phase::Launch, kernel.name(), 0);
        kernel.launch([1; 3], [threads, 1, 1], &LaunchArgs::words(words))
    }

    /// Launches one block and waits.
    fn run(&self, name: &str, threads: u32, words: &[u64]) -> Result<()> {
        let kernel = self.load(name, 0, words.len())?;
        self.launch(&kernel, threads, words)
    }

    fn launch(&self, kernel: &LoadedKernel, threads: u32, words: &[u64]) -> Result<()> {
        self.issue(kernel, threads, words)?;
        self.device.synchronize()?;
        self.trace.exit(Phase::Launch);
        Ok(())
    }

    /// Launches a kernel on an input and an output of [`WORDS`] words, with the
    /// checks of any call. `words` makes the arguments of the two addresses.
    fn on_vectors(&self, name: &str, threads: u32, words: impl FnOnce([u64; 2]) -> Vec<u64>) -> Result<()> {
        let data: Vec<u8> = (0..WORDS as u32).flat_map(u32::to_le_bytes).collect();
        let mut memory = CallMemory::new(self.device);
        let addresses = [memory.input(&data)?, memory.output(data.len(), 4)?];
        let words = words(addresses);
        let kernel = self.load(name, 0, words.len())?;
        self.launch(&kernel, threads, &words)?;
        memory.check_zones(&kernel)?;
        memory.check_inputs(&kernel, [(0, data.as_slice())])?;
        let found = memory.outputs()?;
        memory.check_written(&kernel, &found, |_| "y".into(), || self.launch(&kernel, threads, &words)).map(drop)
    }

    /// Copies a vector, and writes one word at the given place beside the output.
    fn copy_beyond(&self, extra: impl FnOnce([u64; 2]) -> i64) -> Result<()> {
        self.on_vectors("copy_beyond", 1024, |[x, y]| vec![x, y, WORDS, extra([x, y]) as u64])
    }

    /// Launches a shape that the driver refuses.
    fn shape(&self, name: &str, grid: [u32; 3], threads: u32) -> Result<()> {
        let kernel = self.load(name, 0, 1)?;
        kernel.launch(grid, [threads, 1, 1], &LaunchArgs::words(&[NOWHERE]))
    }

    /// The sum of a million numbers of very different sizes.
    fn racing_sum(&self) -> Result<HostTensor> {
        const LEN: u32 = 1 << 20;
        let value = |i: u32| if i.is_multiple_of(97) { 1.0e6 } else { -0.1 * (i % 1000) as f32 };
        let data: Vec<u8> = (0..LEN).flat_map(|i| value(i).to_le_bytes()).collect();
        let mut memory = CallMemory::new(self.device);
        let words = [memory.input(&data)?, memory.workspace(4, true)?, u64::from(LEN)];
        let kernel = self.load("racing_sum", 0, words.len())?;
        kernel.launch([LEN / 256, 1, 1], [256, 1, 1], &LaunchArgs::words(&words))?;
        self.device.synchronize()?;
        memory.check_zones(&kernel)?;
        HostTensor::contiguous(DType::F32, &[1], memory.workspace_bytes(0)?)
    }

    /// Uses code once, which may be loaded no sooner, and never unloads it.
    fn leak_module(&self) -> Result<()> {
        let out = self.device.alloc(4 * 32)?;
        let kernel = self.load("heavy", 0, 1)?;
        self.launch(&kernel, 32, &[out.address()])?;
        std::mem::forget(kernel);
        Ok(())
    }

    fn oom_then_fine(&self) -> Result<()> {
        let refused = self.device.alloc(self.device.memory()?.1 + (1 << 30));
        match refused {
            Err(error) if error.code == code::DEVICE_MEMORY => self.copy_beyond(|[_, _]| 0),
            Err(error) => Err(error),
            Ok(_) => Err(Diagnostic::bug("the device gave more memory than it has")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::backend::cuda::nvrtc::NvrtcSearch;

    /// Every text, for the architecture that the faults are made for: all compile
    /// but the two that must not.
    #[test]
    #[ignore = "needs NVRTC"]
    fn needs_nvrtc_texts_compile_as_their_classes_say() {
        let search = NvrtcSearch { folders: crate::device::find_nvrtc().folders(), ..NvrtcSearch::default() };
        let nvrtc = Nvrtc::open(&search).expect("NVRTC is found");
        let options = NvrtcOptions::new((9, 0), true);
        let names = TEXTS.split("\n//// ").skip(1).filter_map(|section| section.lines().next());
        let mut compiled = 0;
        for name in names {
            let result = nvrtc.compile_text(text_of(name).expect("a section"), name, &options);
            let code = result.as_ref().err().map(|error| error.code);
            match name {
                "unfinished" => assert_eq!(code, Some(code::NVRTC), "{name}"),
                "unknown_instruction" => assert_eq!(code, Some(code::PTXAS), "{name}"),
                _ => assert_eq!(code, None, "{name}: {}", result.err().map(|e| e.to_string()).unwrap_or_default()),
            }
            if name == "crowded" {
                let registers = result.ok().and_then(|cubin| cubin.resources).map_or(0, |found| found.registers);
                assert!(registers * 1024 > 65_536, "{name} uses {registers} registers");
            }
            compiled += 1;
        }
        assert!(compiled >= 14, "{compiled}");
    }
}
