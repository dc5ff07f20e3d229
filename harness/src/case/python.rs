//! Cases from definitions in nvFuser's form: `*.py` files as they are. What the
//! script passes to a definition becomes the case's inputs. Directives stand in
//! comments that begin with `#;`: those before the first definition are for all
//! of the file, the others for the definition above them.

use super::definition::{inputs_of, unique_names};
use super::directive;
use super::expand::{MAX_FAULTS, told};
use super::model::{Case, InputSpec};
use super::source::{CaseError, ExpandedText, Fault, Source};
use engine::diag::{Diagnostic, code};
use pydef::{Definition, read};

/// The suite of all such cases.
const SUITE: &str = "Repro";

/// The cases of a file, one for each definition, or everything that is wrong with it.
pub(super) fn expand(source: &Source) -> (Vec<Case>, Vec<CaseError>) {
    let definitions = match read(&source.text) {
        Ok(definitions) => definitions,
        Err(errors) => {
            return (Vec::new(), errors.iter().take(MAX_FAULTS).map(|error| placed(source, error)).collect());
        }
    };
    let mut faults = Vec::new();
    let mut errors = Vec::new();
    let mut cases = Vec::new();
    let names = unique_names(&definitions);
    for (definition, name) in definitions.iter().zip(&names) {
        match case(source, definition, if definitions.len() == 1 { None } else { Some(name) }) {
            Ok(case) => cases.push(case),
            Err(error) => errors.push(placed(source, &error)),
        }
    }
    if errors.is_empty() {
        directives(source, &definitions, &mut cases, &mut faults);
    }
    errors.truncate(MAX_FAULTS);
    errors.extend(told(source, faults));
    (cases, errors)
}

/// A diagnostic of the reader at its place in the file.
fn placed(source: &Source, error: &Diagnostic) -> CaseError {
    let (line, col) = error.labels.first().map_or((0, 0), |label| source.place(label.span.start as usize));
    let hints = error.labels.iter().map(|label| label.text.clone()).filter(|text| !text.is_empty());
    let note = hints.chain(error.notes.iter().cloned()).collect::<Vec<_>>().join("; ");
    CaseError { file: source.display.clone(), line, col, code: error.code.0, message: error.message.clone(), note }
}

fn case(source: &Source, definition: &Definition, name: Option<&String>) -> Result<Case, Box<Diagnostic>> {
    let fusion = &definition.fusion;
    if definition.inputs.is_none() && !fusion.inputs.is_empty() {
        let message =
            format!("the script passes nothing to `{}`, which takes {} inputs", fusion.name, fusion.inputs.len());
        return Err(Diagnostic::user(code::MISSING_INPUT, message)
            .label(definition.span, "")
            .note("add `inputs = [...]` with a tensor or number for each"));
    }
    let stem = stem(&source.display);
    let name = name.map_or(stem.clone(), |name| format!("{stem}_{name}"));
    let inputs: Vec<(String, InputSpec)> = inputs_of(definition)?;
    Ok(Case {
        id: format!("{SUITE}.{name}"),
        suite: SUITE.into(),
        name,
        tags: vec!["repro".into()],
        about: format!("the definition in {}", source.display),
        file: source.display.clone(),
        line: source.line(definition.span.start as usize),
        text: engine::text::print(fusion),
        inputs,
        ..Case::default()
    })
}

/// The file's name with what an id cannot hold as underscores.
fn stem(display: &str) -> String {
    let name = display.rsplit('/').next().unwrap_or(display);
    let stem = name.strip_suffix(".py").unwrap_or(name);
    stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

fn directives(source: &Source, definitions: &[Definition], cases: &mut [Case], faults: &mut Vec<Fault>) {
    for (offset, line) in source.lines(0..source.text.len()) {
        if !line.starts_with("#;") {
            continue;
        }
        let raw = match directive::find(offset, line) {
            None => continue,
            Some(Ok(raw)) => raw,
            Some(Err(fault)) => {
                faults.push(fault);
                continue;
            }
        };
        let above = definitions.iter().rposition(|definition| (definition.span.start as usize) < offset);
        let range = above.map_or(0..cases.len(), |index| index..index + 1);
        for case in &mut cases[range] {
            let read = ExpandedText::substitute(source, raw.body.clone(), &[])
                .and_then(|text| directive::read(case, &raw, &text, source));
            faults.extend(read.err());
        }
    }
}
