//! A definition as a case: its inputs as the specifications of case files, and
//! the text of a `.fuse` file.

use super::format::comment;
use super::model::{ArgLayout, Dist, InputSpec, Number, Real, TensorSpec};
use engine::diag::{Diagnostic, Result, code};
use engine::fusion::{Fusion, Operand, ScalarDef};
use pydef::{Definition, Fill, InputRecipe, TensorRecipe};
use std::fmt::Write;

/// The entries of `inputs:` for what a script passes, by the names of the
/// fusion's inputs; empty if it passes nothing.
pub(crate) fn inputs_of(definition: &Definition) -> Result<Vec<(String, InputSpec)>> {
    let Some(recipes) = &definition.inputs else { return Ok(Vec::new()) };
    let fusion = &definition.fusion;
    if recipes.len() != fusion.inputs.len() {
        let (given, wanted) = (recipes.len(), fusion.inputs.len());
        let kind = if given < wanted { code::MISSING_INPUT } else { code::EXTRA_INPUT };
        let message = format!("@{} takes {wanted} inputs, the script passes {given}", fusion.name);
        return Err(Diagnostic::user(kind, message).label(definition.span, ""));
    }
    let named = fusion.inputs.iter().zip(recipes).map(|(operand, recipe)| {
        let name = name_of(fusion, *operand);
        let spec = match recipe {
            InputRecipe::Scalar(number) => InputSpec::Scalar(scalar(&name, *number)?),
            InputRecipe::Tensor(tensor) => InputSpec::Tensor(self::tensor(&name, tensor)?),
        };
        Ok((name, spec))
    });
    named.collect()
}

fn name_of(fusion: &Fusion, operand: Operand) -> String {
    match operand {
        Operand::Tensor(t) => fusion.tensors[t].name.clone(),
        Operand::Scalar(s) => match &fusion.scalars[s].def {
            ScalarDef::Input { name, .. } => name.clone(),
            _ => String::new(),
        },
    }
}

fn scalar(name: &str, number: pydef::PyNumber) -> Result<Number> {
    match number {
        pydef::PyNumber::Bool(v) => Ok(Number::Bool(v)),
        pydef::PyNumber::Float(v) => Ok(Number::Float(Real::new(v))),
        pydef::PyNumber::Int(v) => i64::try_from(v).map(Number::Int).map_err(|_| {
            Diagnostic::user(code::BAD_NUMBER, format!("input `%{name}`: the integer {v} has more than 64 bits"))
        }),
        pydef::PyNumber::Complex(re, im) => Ok(Number::Complex(Real::new(re), Real::new(im))),
    }
}

fn tensor(name: &str, recipe: &TensorRecipe) -> Result<TensorSpec> {
    let dist = match &recipe.fill {
        Fill::Normal(mean, deviation) => Dist::Normal(Real::new(*mean), Real::new(*deviation)),
        Fill::Uniform(low, high) => Dist::Uniform(Real::new(*low), Real::new(*high)),
        Fill::Randint(low, high) => Dist::Randint(*low, *high),
        Fill::Arange(start, step) => Dist::Arange(Real::new(*start), Real::new(*step)),
        Fill::Full(value) => Dist::Full(Real::new(value.as_f64())),
        Fill::Listed(values) if values.iter().all(|value| !matches!(value, pydef::PyNumber::Complex(..))) => {
            Dist::List(values.iter().map(|value| Real::new(value.as_f64())).collect())
        }
        Fill::Listed(_) => {
            let message = format!("input `%{name}`: complex elements have no form in a case");
            return Err(Diagnostic::user(code::PY_CONSTRUCT, message));
        }
    };
    let dense = engine::tensor::TensorMeta::contiguous(recipe.dtype, &recipe.sizes).strides == recipe.strides;
    let layout = ArgLayout {
        strides: (!dense).then(|| recipe.strides.clone()),
        offset: usize::try_from(recipe.offset).unwrap_or(0),
        ..ArgLayout::default()
    };
    Ok(TensorSpec { dist, sizes: recipe.sizes.clone(), seed: None, layout })
}

/// The names of the fusions, those that repeat with a number behind them.
pub(crate) fn unique_names(definitions: &[Definition]) -> Vec<String> {
    let mut taken = std::collections::BTreeSet::new();
    let mut free = |name: &str| {
        let numbered = (2u32..).map(|number| format!("{name}_{number}"));
        let chosen = std::iter::once(name.to_string()).chain(numbered).find(|name| !taken.contains(name));
        let chosen = chosen.unwrap_or_default();
        taken.insert(chosen.clone());
        chosen
    };
    definitions.iter().map(|definition| free(&definition.fusion.name)).collect()
}

/// A case file in canonical form with these definitions, each under a name of its own.
pub(crate) fn case_text(suite: &str, about: &str, definitions: &[Definition]) -> Result<String> {
    let mut body = String::new();
    for (definition, name) in definitions.iter().zip(unique_names(definitions)) {
        let fusion = Fusion { name, ..definition.fusion.clone() };
        let _ = write!(body, "{}", engine::text::print(&fusion));
        for (name, spec) in inputs_of(definition)? {
            let _ = writeln!(body, "; inputs: {name} = {}", spec_text(&spec));
        }
        body.push('\n');
    }
    let front = format!("---\nversion = 1\nsuite = \"{suite}\"\ntags = [\"repro\"]\nabout = {about:?}\n---\n");
    let text = front + &engine::text::format(&body, &comment);
    Ok(text)
}

fn spec_text(spec: &InputSpec) -> String {
    match spec {
        InputSpec::Scalar(Number::Int(v)) => v.to_string(),
        InputSpec::Scalar(Number::Bool(v)) => v.to_string(),
        InputSpec::Scalar(Number::Float(v)) => real(*v),
        InputSpec::Scalar(Number::Complex(re, im)) => {
            let sign = if im.get() < 0.0 || (im.get() == 0.0 && im.get().is_sign_negative()) { "" } else { "+" };
            format!("{}{sign}{}i", real(*re), real(*im))
        }
        InputSpec::Tensor(tensor) => {
            let head = match &tensor.dist {
                Dist::Normal(mean, sd) if (mean.get(), sd.get()) == (0.0, 1.0) => "normal".into(),
                Dist::Normal(mean, sd) => format!("normal({}, {})", real(*mean), real(*sd)),
                Dist::Uniform(low, high) if (low.get(), high.get()) == (0.0, 1.0) => "uniform".into(),
                Dist::Uniform(low, high) => format!("uniform({}, {})", real(*low), real(*high)),
                Dist::Randint(low, high) => format!("randint({low}, {high})"),
                Dist::Arange(start, step) => format!("arange({}, {})", real(*start), real(*step)),
                Dist::Full(value) => format!("full({})", real(*value)),
                Dist::Bernoulli(p) => format!("bernoulli({})", real(*p)),
                Dist::Special => "special".into(),
                Dist::List(values) => {
                    format!("list({})", values.iter().map(|v| real(*v)).collect::<Vec<_>>().join(", "))
                }
            };
            let mut text = format!("{head}{:?}", tensor.sizes);
            if let Some(strides) = &tensor.layout.strides {
                let _ = write!(text, " strides {strides:?}");
            }
            if tensor.layout.offset > 0 {
                let _ = write!(text, " offset {}", tensor.layout.offset);
            }
            text
        }
    }
}

fn real(value: Real) -> String {
    let value = value.get();
    match value {
        v if v.is_nan() => "nan".into(),
        v if v.is_infinite() => if v > 0.0 { "inf" } else { "-inf" }.into(),
        v => format!("{v:?}"),
    }
}
