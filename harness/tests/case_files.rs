//! The case files themselves: every one is well formed, means something or is
//! refused as it says, and together they cover what they must. What the
//! engine makes of them is tested by running them.

use engine::diag::Diagnostic;
use engine::fusion::{self, Fusion, Operand};
use engine::num::{DType, DTypeClass, Value};
use engine::tensor::{ArgMeta, TensorMeta};
use harness::case::{Case, InputSpec, Loaded, Number, Target, load};
use std::collections::BTreeSet;
use std::path::Path;

fn cases(target: Target) -> Loaded {
    let loaded = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases"), target);
    let errors: Vec<String> = loaded.errors.iter().map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    loaded
}

fn argument(operand: Operand, fusion: &Fusion, spec: &InputSpec) -> ArgMeta {
    match spec {
        InputSpec::Tensor(spec) => {
            let dtype = match operand {
                Operand::Tensor(t) => fusion.tensors[t].dtype,
                Operand::Scalar(_) => DType::F32,
            };
            let stride = |axis: usize| spec.sizes[axis + 1..].iter().map(|size| (*size).max(1)).product();
            let dense = || (0..spec.sizes.len()).map(stride).collect();
            let strides = spec.layout.strides.clone().unwrap_or_else(dense);
            ArgMeta::Tensor(TensorMeta { dtype, sizes: spec.sizes.clone(), strides })
        }
        InputSpec::Scalar(number) => {
            let float = matches!(operand, Operand::Scalar(s) if fusion.scalars[s].dtype.class() == DTypeClass::Float);
            ArgMeta::Scalar(match *number {
                Number::Int(v) if float => Value::Float(v as f64),
                Number::Int(v) => Value::Int(v),
                Number::Float(v) => Value::Float(v.get()),
                Number::Bool(v) => Value::Bool(v),
            })
        }
    }
}

fn input_name(fusion: &Fusion, operand: Operand) -> &str {
    match operand {
        Operand::Tensor(t) => &fusion.tensors[t].name,
        Operand::Scalar(s) => match &fusion.scalars[s].def {
            fusion::ScalarDef::Input { name, .. } => name,
            _ => "",
        },
    }
}

/// What reading a case and binding its arguments refuses.
fn refusals(case: &Case) -> Vec<Diagnostic> {
    let fusion = match engine::text::parse_one(&case.text) {
        Ok(fusion) => fusion,
        Err(errors) => return errors,
    };
    let spec = |operand: &Operand| case.inputs.iter().find(|(name, _)| name == input_name(&fusion, *operand));
    let mut args: Vec<ArgMeta> = Vec::new();
    for operand in &fusion.inputs {
        args.extend(spec(operand).map(|(_, spec)| argument(*operand, &fusion, spec)));
    }
    let extra = case.inputs.iter().filter(|(name, _)| !fusion.inputs.iter().any(|o| input_name(&fusion, *o) == name));
    for (_, spec) in extra {
        args.push(argument(Operand::Scalar(engine::util::EntityId::from_index(0)), &fusion, spec));
    }
    fusion::bind(&fusion, &args).err().map(|error| *error).into_iter().collect()
}

fn check_reading(target: Target) {
    let mut wrong = Vec::new();
    for case in cases(target).cases {
        let found = refusals(&case);
        let codes: BTreeSet<&str> = found.iter().map(|error| error.code.0).collect();
        let expected: BTreeSet<&str> = case.errors.iter().map(|error| error.code.as_str()).collect();
        // A refusal that only scheduling or evaluating makes is no matter of reading.
        let later = found.is_empty() && expected.iter().all(|code| code.starts_with('U') || *code == "E0308");
        if codes != expected && !later {
            let shown: Vec<String> = found.iter().map(|error| format!("  {error}")).collect();
            wrong.push(format!(
                "{} ({}:{}): expected {expected:?}\n{}",
                case.id,
                case.file,
                case.line,
                shown.join("\n")
            ));
        }
    }
    assert!(wrong.is_empty(), "{} cases\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_case_reads_and_binds_as_it_says_on_the_simulator() {
    check_reading(Target::Sim);
}

#[test]
fn every_case_reads_and_binds_as_it_says_on_a_gpu() {
    check_reading(Target::Cuda);
}

#[test]
fn the_cases_cover_what_they_must() {
    let cases = cases(Target::Sim).cases;
    let (invalid, valid): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| !case.errors.is_empty());
    assert!(valid.len() >= 250, "{} ids", valid.len());
    assert!(invalid.len() >= 250, "{} refusals", invalid.len());
    assert!(cases.iter().all(|case| !case.about.is_empty()), "every case says why it exists");
    let scheduler = valid.iter().filter(|case| case.id.contains("Scheduler")).count();
    assert!(scheduler >= 100, "`*Scheduler*` selects {scheduler} ids");
    for dtype in DType::KERNEL {
        assert!(valid.iter().any(|case| case.text.contains(&format!(": {dtype}["))), "no case reads {dtype}");
    }
}
