//! From a text to its definitions.

use super::interp::Interp;
use super::lexer::lex;
use super::parser::{MAX_ERRORS, parse};
use super::recipe::InputRecipe;
use engine::diag::{Diagnostic, Result, Span, code};
use engine::fusion::Fusion;

/// The longest text that is read.
pub const MAX_BYTES: usize = 4 << 20;

/// The state of PyTorch's generator before a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generator {
    /// Its seed.
    pub seed: u64,
    /// Its offset, which counts words; a random operation takes four.
    pub offset: u64,
}

/// A definition of a script.
#[derive(Clone, Debug)]
pub struct Definition {
    /// What it computes.
    pub fusion: Fusion,
    /// What the script passes to it, in order, if it passes anything.
    pub inputs: Option<Vec<InputRecipe>>,
    /// The name of the function that makes it.
    pub span: Span,
}

/// The definitions of a text in the order in which they run, or all its errors.
pub fn read(source: &str) -> Result<Vec<Definition>, Vec<Diagnostic>> {
    read_with(source, Generator::default())
}

/// The same, with random operations that have no seed of their own drawing from
/// a generator in a given state.
pub fn read_with(source: &str, generator: Generator) -> Result<Vec<Definition>, Vec<Diagnostic>> {
    if source.len() > MAX_BYTES {
        let message = format!("the text has {} bytes, the limit is {MAX_BYTES}", source.len());
        return Err(vec![*Diagnostic::user(code::TOO_LARGE, message)]);
    }
    let lexed = lex(source);
    let (statements, mut errors) = parse(&lexed);
    errors.extend(lexed.errors);
    // A text that does not parse is not run: its meaning would be guessed.
    let mut definitions = Vec::new();
    if errors.is_empty() {
        let mut interp = Interp::new(generator);
        interp.script(&statements);
        errors.append(&mut interp.errors);
        for mut draft in interp.drafts {
            if draft.refused {
                continue;
            }
            match draft.update_tables().and_then(|()| draft.builder.finish()) {
                Ok(fusion) => definitions.push(Definition { fusion, inputs: draft.inputs, span: draft.place }),
                Err(error) if error.labels.is_empty() => errors.push(*error.label(draft.place, "")),
                Err(error) => errors.push(*error),
            }
        }
        if errors.is_empty() && definitions.is_empty() {
            let message = "the text makes no definition";
            errors.push(*Diagnostic::user(code::SYNTAX, message).note(NO_DEFINITION));
        }
    }
    if errors.is_empty() {
        return Ok(definitions);
    }
    errors.sort_by_key(|error| error.labels.first().map(|label| label.span));
    errors.dedup();
    if errors.len() > MAX_ERRORS {
        errors.truncate(MAX_ERRORS);
        let message = format!("more than {MAX_ERRORS} errors: the rest is not shown");
        errors.push(*Diagnostic::user(code::TOO_LARGE, message));
    }
    Err(errors)
}

const NO_DEFINITION: &str = "a definition is a function such as `def nvfuser_fusion(fd : FusionDefinition) -> None :`";
