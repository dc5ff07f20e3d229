//! `import`: definitions in nvFuser's form. The file is read and written as a
//! case; with recorded arrays the definition is run and compared with them.

use super::Failure;
use super::args::{Args, Import, ImportDevice};
use crate::case::case_text;
use crate::console::print;
use crate::exit;
use crate::import::{RunResult, arguments, check, find_record, placed, read_arrays};
use crate::units::counted;
use engine::diag::{Diagnostic, DiagnosticKind, code, render};
use engine::fusion::Fusion;
use engine::options::{DeviceDesc, NoTrace, Options, SimOptions};
use engine::refeval::evaluate_all;
use engine::runtime::Session;
use engine::tensor::Arg;
use pydef::{Definition, Generator, read_with};
use std::path::Path;

/// What is to be imported, and what is done with it.
struct ImportOptions<'a> {
    file: &'a Path,
    /// Recorded arrays and the record of their run, to be compared with.
    recorded: Option<(&'a Path, &'a Path)>,
    device: ImportDevice,
    /// Whether what the host would compute is refused.
    kernels_only: bool,
    /// Where the case is written; it is printed otherwise.
    output: Option<&'a Path>,
}

impl<'a> ImportOptions<'a> {
    fn of(args: &'a Args) -> Result<Self, Failure> {
        let Import { inputs, records, place } = &args.import;
        let recorded = match (inputs, records) {
            (Some(inputs), Some(records)) => Some((inputs.as_path(), records.as_path())),
            (None, None) => None,
            _ => {
                let error = Diagnostic::user(code::USAGE, "`--inputs` and `--records` belong together");
                return Err(refusal(exit::USAGE, &error));
            }
        };
        let file = Path::new(args.operand().unwrap_or_default());
        Ok(Self {
            file,
            recorded,
            device: *place,
            kernels_only: args.repeat.kernels_only,
            output: args.output.file.as_deref(),
        })
    }
}

pub(super) fn import(args: &Args) -> Result<u8, Failure> {
    let ImportOptions { file: path, recorded, device, kernels_only, output } = ImportOptions::of(args)?;
    let shown = path.display().to_string();
    let source = std::fs::read(path)
        .map_err(|error| error.to_string())
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "the file is not UTF-8".into()))
        .map_err(|error| refusal(exit::BAD_CASES, &Diagnostic::user(code::CASE_PATH, format!("{shown}: {error}"))))?;
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let record = match recorded {
        Some((_, records)) => Some(find_record(records, &name).map_err(|error| refusal(exit::BAD_CASES, &error))?),
        None => None,
    };
    let state = record.as_ref().and_then(|record| record.rng);
    let generator = state.map(|rng| Generator { seed: rng.seed, offset: rng.offset }).unwrap_or_default();
    let definitions = read_with(&source, generator).map_err(|errors| {
        let texts: Vec<String> = errors.iter().map(|error| render(error, &shown, &source, 1)).collect();
        // A definition may be right and ask for what this version does not have.
        let unsupported = errors.iter().all(|error| error.kind == DiagnosticKind::Unsupported);
        Failure::new(if unsupported { exit::UNSUPPORTED } else { exit::BAD_CASES }, texts.concat())
    })?;
    if output.is_some() || recorded.is_none() {
        write_case(output, path, &definitions)?;
    }
    let (Some((inputs, _)), Some(record)) = (recorded, record) else { return Ok(exit::OK) };
    let [definition] = &definitions[..] else {
        let message = format!("{shown} makes {} definitions, a record is of one", definitions.len());
        return Err(refusal(exit::USAGE, &Diagnostic::user(code::USAGE, message)));
    };
    let arrays = read_arrays(inputs).map_err(|error| refusal(exit::BAD_CASES, &error))?;
    let made = arguments(&definition.fusion, &record, &arrays).map_err(|error| refusal(exit::BAD_CASES, &error))?;
    let given = run(device, kernels_only, &definition.fusion, &made).map_err(|error| {
        // Not being able to run it here is no disagreement.
        let exit = if error.kind == DiagnosticKind::Unsupported { exit::UNSUPPORTED } else { exit::FAILED };
        refusal(exit, &error)
    })?;
    let outcome = check(&record, &arrays, (&definition.fusion, &made), &given)
        .map_err(|error| refusal(exit::BAD_CASES, &error))?;
    print(&outcome.text);
    if outcome.differences == 0 {
        return Ok(exit::OK);
    }
    Err(Failure::new(exit::FAILED, format!("{name}: {} from the record", counted(outcome.differences, "difference"))))
}

fn refusal(exit: u8, error: &Diagnostic) -> Failure {
    Failure::new(exit, error.to_string())
}

fn write_case(output: Option<&Path>, path: &Path, definitions: &[Definition]) -> Result<(), Failure> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let text = case_text("Repro", &format!("imported from {name}"), definitions)
        .map_err(|error| refusal(exit::BAD_CASES, &error))?;
    let Some(output) = output else {
        print(&text);
        return Ok(());
    };
    std::fs::write(output, text).map_err(|error| {
        let message = format!("{}: {error}", output.display());
        refusal(exit::NO_RECORD, &Diagnostic::user(code::CASE_PATH, message))
    })
}

fn run(device: ImportDevice, kernels_only: bool, fusion: &Fusion, args: &[Arg]) -> engine::diag::Result<RunResult> {
    let session = match device {
        ImportDevice::Reference => {
            let all = evaluate_all(fusion, args)?;
            let outputs = placed(fusion, args, all.outputs)?;
            return Ok(RunResult { outputs, updates: Some(all.updates), strides: true });
        }
        ImportDevice::Simulator => Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default()),
        ImportDevice::Gpu => Session::cuda(0, Options::default())?,
    };
    let outcome = session.run(fusion, args, &NoTrace)?;
    if kernels_only {
        outcome.program.check_kernels_only()?;
    }
    // Where a session places outputs is its own rule.
    Ok(RunResult { outputs: outcome.outputs, updates: Some(outcome.updates), strides: false })
}
