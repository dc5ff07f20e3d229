//! Small kernels, one for each way in which threads meet: barriers, shuffles, atomics, fences, asynchronous
//! copies. They say what the machine means, to the simulator and to a GPU alike.
//!
//! A file is the text of a kernel behind lines that begin with `;`:
//!
//! ```text
//! ; about: what it shows
//! ; input: f32[256]            element i is i; one line for each input
//! ; check: 0 255 128           output, element, value
//! ; detects: RACE              instead of checks: what the simulator must say
//! ```
//!
//! The simulator runs each under many schedules. A kernel with checks gives the same bytes under all of them,
//! and on a GPU; one with a defect is never given to a GPU.

use crate::kernel_runs;
use engine::backend::cuda::Device;
use engine::backend::cuda::nvrtc::Nvrtc;
use engine::diag::{Diagnostic, DiagnosticKind, Result, code};
use engine::kernel::{self, BoundLaunch, Kernel, ParamKind};
use engine::num::{DType, Value, eval};
use engine::options::{SimOptions, SimSchedule};
use engine::tensor::{Arg, ArgMeta, HostTensor};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Seeds of each random schedule.
const SEEDS: u64 = 6;

/// A kernel and what must hold of it.
pub struct Litmus {
    /// The file's name.
    pub name: String,
    /// The kernel.
    pub kernel: Kernel,
    args: Vec<Arg>,
    launch: BoundLaunch,
    checks: Vec<Check>,
    detects: Vec<String>,
}

struct Check {
    output: u32,
    element: usize,
    value: f64,
}

/// Reads every file of a folder, in order of names.
pub fn read_all(folder: &Path) -> Result<Vec<Litmus>> {
    let user = |error: std::io::Error| Diagnostic::user(code::SYNTAX, format!("{}: {error}", folder.display()));
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(user)? {
        paths.push(entry.map_err(user)?.path());
    }
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let text = std::fs::read_to_string(path).map_err(user)?;
        Litmus::parse(&name, &text).map_err(|error| error.note(format!("in {}", path.display())))
    };
    paths.iter().map(read).collect()
}

impl Litmus {
    /// Reads a file.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let (mut args, mut checks, mut detects) = (Vec::new(), Vec::new(), Vec::new());
        // Lines keep their numbers.
        let source: String = text
            .lines()
            .map(|line| if line.starts_with(';') { "\n".to_string() } else { format!("{line}\n") })
            .collect();
        for line in text.lines().filter_map(|line| line.strip_prefix(';')) {
            let wrong = || Diagnostic::user(code::SYNTAX, format!("`;{line}` is no line of a litmus file"));
            let (word, rest) = line.trim().split_once(':').ok_or_else(wrong)?;
            match word {
                "about" => {}
                "input" => args.push(Arg::Tensor(numbers(rest.trim()).ok_or_else(wrong)?)),
                "check" => checks.push(check(rest).ok_or_else(wrong)?),
                "detects" => detects.extend(rest.split(" or ").map(|code| code.trim().to_string())),
                _ => return Err(wrong()),
            }
        }
        let kernel = kernel::parse(&source)?;
        kernel::verify(&kernel)?;
        let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
        let launch = kernel::bind(&kernel, &metas)?;
        if checks.is_empty() == detects.is_empty() {
            let message = format!("{name} needs either checks or what is detected");
            return Err(Diagnostic::user(code::SYNTAX, message));
        }
        Ok(Self { name: name.into(), kernel, args, launch, checks, detects })
    }

    /// Whether the simulator must find a defect in it.
    pub fn is_defect(&self) -> bool {
        !self.detects.is_empty()
    }

    /// Runs it on the simulator under all schedules: the outputs that all of them give.
    pub fn on_simulator(&self) -> Result<BTreeMap<u32, Vec<u8>>> {
        let mut common: Option<BTreeMap<u32, Vec<u8>>> = None;
        for options in schedules() {
            let run = kernel_runs::on_simulator(&self.kernel, &self.launch, &self.args, &options);
            match (run, self.is_defect()) {
                (Ok(_), true) => return Err(self.wrong(format!("{options:?} finds nothing wrong"))),
                (Err(error), true) => self.expect(&error, &options)?,
                (Err(error), false) => return Err(error.note(format!("under {options:?}"))),
                (Ok(outputs), false) => {
                    self.check(&outputs)?;
                    if common.as_ref().is_some_and(|known| *known != outputs) {
                        return Err(self.wrong(format!("{options:?} gives other values")));
                    }
                    common = Some(outputs);
                }
            }
        }
        Ok(common.unwrap_or_default())
    }

    fn expect(&self, error: &Diagnostic, options: &SimOptions) -> Result<()> {
        let named = |name: &String| match name.as_str() {
            "RACE" => error.code == code::RACE,
            "UNINITIALISED" => error.code == code::UNINITIALISED,
            "DIVERGENCE" => error.code == code::DIVERGENCE,
            _ => false,
        };
        if error.kind == DiagnosticKind::Bug && self.detects.iter().any(named) {
            return Ok(());
        }
        Err(self.wrong(format!("{options:?} finds something else: {error}")))
    }

    /// Runs it on a GPU, twice with what the kernel keeps between launches: its outputs.
    pub fn on_gpu(&self, device: &Arc<Device>, nvrtc: &Nvrtc) -> Result<BTreeMap<u32, Vec<u8>>> {
        let loaded = kernel_runs::load(device, nvrtc, &self.kernel)?;
        let launch = || kernel_runs::on_gpu(&loaded, &self.kernel, &self.launch, &self.args);
        let (first, again) = (launch()?, launch()?);
        if first != again {
            return Err(self.wrong("a second launch gives other values".into()));
        }
        self.check(&first)?;
        Ok(first)
    }

    /// Whether outputs hold what the file says of them.
    fn check(&self, outputs: &BTreeMap<u32, Vec<u8>>) -> Result<()> {
        for Check { output, element, value } in &self.checks {
            let buffer = self.kernel.params.values().find_map(|param| match param.kind {
                ParamKind::Output { output: own, buffer } if own == *output => Some(buffer),
                _ => None,
            });
            let (Some(buffer), Some(bytes)) = (buffer, outputs.get(output)) else {
                return Err(self.wrong(format!("there is no output {output}")));
            };
            let dtype = self.kernel.buffers[buffer].dtype;
            let len = (bytes.len() / dtype.bytes()) as i64;
            let tensor = HostTensor::contiguous(dtype, &[len], bytes.clone())?;
            let found = tensor.values().nth(*element);
            if found.map(|found| eval::cast(dtype, DType::F64, found)) != Some(Value::Float(*value)) {
                return Err(self.wrong(format!("element {element} of output {output} is {found:?}, not {value}")));
            }
        }
        Ok(())
    }

    fn wrong(&self, what: String) -> Box<Diagnostic> {
        Diagnostic::bug(format!("litmus {}: {what}", self.name))
    }
}

fn schedules() -> Vec<SimOptions> {
    let base = SimOptions::default();
    let mut all = vec![base, SimOptions { threads: 1, ..base }];
    for seed in 0..SEEDS {
        for schedule in [SimSchedule::Random, SimSchedule::Pct(3), SimSchedule::Adversary] {
            all.push(SimOptions { schedule, seed, ..base });
        }
    }
    all
}

/// `f32[256]`: a vector whose element i is i.
fn numbers(text: &str) -> Option<HostTensor> {
    let (dtype, len) = text.strip_suffix(']')?.split_once('[')?;
    let dtype = DType::ALL.iter().copied().find(|known| known.name() == dtype)?;
    let value = |index: &[i64]| eval::cast(DType::I64, dtype, Value::Int(index[0]));
    HostTensor::from_fn(dtype, &[len.parse().ok()?], value).ok()
}

fn check(text: &str) -> Option<Check> {
    let mut words = text.split_whitespace();
    let check = Check {
        output: words.next()?.parse().ok()?,
        element: words.next()?.parse().ok()?,
        value: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::backend::cuda::emit;
    use engine::backend::cuda::nvrtc::NvrtcOptions;

    fn all() -> Vec<Litmus> {
        read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("litmus")).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn the_checker_of_order_means_what_the_files_say() {
        for litmus in all() {
            let report = kernel::check_order(&litmus.kernel, &litmus.launch).unwrap_or_else(|error| panic!("{error}"));
            assert!(report.all_blocks && !report.cut, "{}: {report:?}", litmus.name);
            assert_eq!(!report.alarms.is_empty(), litmus.is_defect(), "{}: {report:?}", litmus.name);
        }
    }

    #[test]
    fn the_simulator_means_what_the_files_say() {
        let all = all();
        let failed: Vec<String> =
            all.iter().filter_map(|litmus| litmus.on_simulator().err()).map(|error| error.to_string()).collect();
        assert!(failed.is_empty(), "{}", failed.join("\n"));
        let defects = all.iter().filter(|litmus| litmus.is_defect()).count();
        assert!(all.len() - defects >= 30 && defects >= 10, "{} files, {defects} of them defects", all.len());
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn needs_nvrtc_kernels_compile_for_every_target() {
        let search = engine::backend::cuda::nvrtc::NvrtcSearch {
            path: std::env::var_os("FUSEWRIGHT_NVRTC").map(Into::into),
            ..Default::default()
        };
        let nvrtc = Nvrtc::open(&search).unwrap_or_else(|error| panic!("{error}"));
        for litmus in all() {
            for target in [(8, 0), (9, 0), (10, 0)] {
                let compiled = nvrtc.compile(&emit(&litmus.kernel), &NvrtcOptions::new(target, true));
                compiled.unwrap_or_else(|error| panic!("{} for {target:?}: {error}", litmus.name));
            }
        }
    }
}
