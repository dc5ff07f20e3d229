//! Diagnostics of the engine as outcomes, and refusals that a case asks for.

use super::gpu_error;
use crate::case::{Case, ErrorSpec};
use crate::outcome::{Bless, CudaFault, Outcome, PassedBy, Verdict};
use engine::diag::{Code, Diagnostic, DiagnosticKind, code, render};

/// The outcome of a case that the engine refused although it should not.
pub(super) fn unexpected(case: &Case, diagnostics: &[Diagnostic]) -> Outcome {
    let Some(first) = diagnostics.first() else {
        return Outcome::fail("fail.refused", "refused without a reason: a defect of the engine");
    };
    let shown: Vec<String> = diagnostics.iter().map(|d| show(case, d)).collect();
    let (verdict, name) = outcome_of(first);
    let cuda_error = diagnostics.iter().find_map(|diagnostic| diagnostic.cuda.as_ref()).map(CudaFault::from);
    Outcome { cuda_error, ..Outcome::of(verdict, name, shown.concat().trim_end()) }
}

/// Verdict and stable name of a diagnostic.
pub(super) fn outcome_of(diagnostic: &Diagnostic) -> (Verdict, &'static str) {
    match &diagnostic.cuda {
        // What was asked for, the driver's number does not tell.
        Some(_) if diagnostic.code == code::LAUNCH_CONFIG => (Verdict::Fail, "fail.launch_config"),
        Some(error) => gpu_error::outcome(error),
        None => (Verdict::Fail, failure_of(diagnostic)),
    }
}

fn failure_of(diagnostic: &Diagnostic) -> &'static str {
    let by_code = [
        (code::RACE, "fail.race"),
        (code::OUT_OF_BOUNDS, "fail.out_of_bounds"),
        (code::UNINITIALISED, "fail.uninitialised"),
        (code::MISALIGNED, "fail.misaligned"),
        (code::DEADLOCK, "fail.deadlock"),
        (code::DIVERGENCE, "fail.divergence"),
        (code::RED_ZONE, "fail.redzone"),
        (code::UNWRITTEN, "fail.unwritten"),
        (code::INPUT_CHANGED, "fail.input_changed"),
        (code::NVRTC, "fail.compile.nvrtc"),
        (code::PTXAS, "fail.compile.ptxas"),
        (code::LAUNCH_CONFIG, "fail.launch_config"),
        (code::LAUNCH_LIMIT, "fail.launch_config"),
        (code::CUDA, "fail.cuda"),
        (code::CUDA_STICKY, "fail.cuda"),
        (code::DEVICE_MEMORY, "oom.device"),
        (code::TENSOR_TOO_LARGE, "oom.host"),
        (code::NO_SCHEDULER, "fail.schedule_rejected"),
        (code::VERIFY, "fail.verify"),
    ];
    let named = by_code.iter().find(|(code, _)| *code == diagnostic.code).map(|(_, name)| *name);
    named.unwrap_or(match diagnostic.kind {
        DiagnosticKind::User => "fail.refused",
        DiagnosticKind::Unsupported => "fail.unsupported",
        DiagnosticKind::Bug => "fail.bug",
    })
}

/// Whether a code is about schedules, which only who compiles reads.
pub(super) fn is_of_schedules(code: &str) -> bool {
    code.starts_with("E08")
}

/// Whether the worker is not to be trusted any more: a CUDA call failed, whose
/// error may be sticky, expected or not; or a kernel wrote where it should not.
pub(super) fn taints(diagnostics: &[Diagnostic]) -> bool {
    const SUSPECT: [Code; 4] = [code::CUDA, code::CUDA_STICKY, code::RED_ZONE, code::INPUT_CHANGED];
    diagnostics.iter().any(|diagnostic| {
        SUSPECT.contains(&diagnostic.code) || diagnostic.cuda.as_ref().is_some_and(|error| error.sticky)
    })
}

fn show(case: &Case, diagnostic: &Diagnostic) -> String {
    render(diagnostic, &case.file, &case.text, case.line)
}

/// Judges a case that must be refused: each expected refusal must be among the
/// diagnostics, and each diagnostic must be expected.
pub(super) fn expected(case: &Case, diagnostics: &[Diagnostic], bless: bool) -> Outcome {
    let mut left: Vec<&Diagnostic> = diagnostics.iter().collect();
    let mut missing = Vec::new();
    for spec in case.refusals() {
        match left.iter().position(|diagnostic| matches(case, spec, diagnostic)) {
            Some(i) => drop(left.remove(i)),
            None => missing.push(spec),
        }
    }
    if missing.is_empty() && left.is_empty() {
        return Outcome::pass_by(PassedBy::RefusedAsRequired);
    }
    let mut text = String::new();
    for spec in &missing {
        let place = spec.line.map_or(String::new(), |line| format!(" at line {line}"));
        let part = if spec.contains.is_empty() { String::new() } else { format!(" with \"{}\"", spec.contains) };
        text.push_str(&format!("expected {}{part}{place}, which did not come\n", spec.code));
    }
    for diagnostic in &left {
        text.push_str(&format!("not expected: {}", show(case, diagnostic)));
    }
    let mut outcome = Outcome::fail("fail.refusal", text.trim_end());
    if bless {
        outcome.bless = missing.iter().zip(&left).map(|(spec, diagnostic)| rewrite(spec, diagnostic)).collect();
    }
    outcome
}

/// Whether the refusals are those that the case asks for, and no other.
pub(super) fn are_expected(case: &Case, diagnostics: &[Diagnostic]) -> bool {
    expected(case, diagnostics, false).verdict == Verdict::Pass
}

fn rewrite(spec: &ErrorSpec, diagnostic: &Diagnostic) -> Bless {
    let new = format!("{} {:?}", diagnostic.code, diagnostic.message);
    Bless { line: spec.at, key: "error".into(), old: spec.written(), new }
}

fn matches(case: &Case, spec: &ErrorSpec, diagnostic: &Diagnostic) -> bool {
    let line = diagnostic.labels.first().map(|label| line_of(case, label.span.start));
    spec.code == diagnostic.code.0
        && diagnostic.message.contains(&spec.contains)
        && (spec.line.is_none() || spec.line == line)
}

/// Substituted values hold no line breaks, so lines of the text are lines of the file.
fn line_of(case: &Case, offset: u32) -> usize {
    let end = (offset as usize).min(case.text.len());
    case.line + case.text.as_bytes()[..end].iter().filter(|b| **b == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn want_of_memory_is_no_refusal() {
        let of = |code| outcome_of(&Diagnostic::user(code, "no")).1;
        assert_eq!([of(code::TENSOR_TOO_LARGE), of(code::SIZE_OVERFLOW)], ["oom.host", "fail.refused"]);
    }

    #[test]
    fn an_expected_cuda_error_still_costs_the_worker() {
        let spec = ErrorSpec { code: code::CUDA_STICKY.0.into(), contains: String::new(), line: None, at: 1 };
        let case = Case { ends: crate::case::CaseEnd::Refused(vec![spec]), ..Case::default() };
        let sticky = vec![*Diagnostic::user(code::CUDA_STICKY, "broken")];
        assert_eq!(expected(&case, &sticky, false).outcome, "pass");
        assert!(taints(&sticky));
        assert_eq!(unexpected(&case, &sticky).outcome, "fail.cuda");
        assert!(!taints(&[*Diagnostic::user(code::NVRTC, "no")]));
    }
}
