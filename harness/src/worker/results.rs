//! Holds the reference's results against what the case says of them: types,
//! sizes and strides, elements, and another fusion of the same file. So the
//! oracle is checked too, on every device.

use super::args::Draws;
use super::{args, compare, pipeline};
use crate::case::{Case, OutputSpec, SameAs, ValuesSpec};
use crate::outcome::Numerics;
use engine::diag::{Diagnostic, Result};
use engine::fusion::{Bindings, Fusion, TensorId};
use engine::num::Value;
use engine::tensor::{Arg, HostTensor};

/// A fusion with its arguments and what the reference made of them.
pub(super) struct Results<'a> {
    pub(super) case: &'a Case,
    pub(super) fusion: &'a Fusion,
    pub(super) args: &'a [Arg],
    /// What was drawn so far.
    pub(super) draws: &'a Draws,
    pub(super) outputs: &'a [HostTensor],
}

impl Results<'_> {
    /// What does not hold, each with its line; an error when the other fusion
    /// cannot be evaluated at all.
    pub(super) fn check(&self) -> Result<Vec<String>, Vec<Diagnostic>> {
        let case = self.case;
        let mut wrong = Vec::new();
        self.count("outputs", case.outputs.first().map(|spec| spec.line), case.outputs.len(), &mut wrong);
        self.count("values", case.values.first().map(|spec| spec.line), case.values.len(), &mut wrong);
        for ((output, tensor), spec) in self.fusion.outputs.iter().zip(self.outputs).zip(&case.outputs) {
            wrong.extend(form(tensor, spec).map(|why| self.complaint(spec.line, *output, &why)));
        }
        let bindings = engine::fusion::bind_args(self.fusion, self.args).map_err(|error| vec![*error])?;
        for ((output, tensor), spec) in self.fusion.outputs.iter().zip(self.outputs).zip(&case.values) {
            wrong.extend(self.elements(&bindings, *output, tensor, spec));
        }
        if let Some(same) = &case.same_as {
            self.twin(&bindings, same, &mut wrong)?;
        }
        Ok(wrong)
    }

    fn count(&self, what: &str, line: Option<usize>, stated: usize, wrong: &mut Vec<String>) {
        if let Some(line) = line
            && stated != self.outputs.len()
        {
            let file = &self.case.file;
            wrong.push(format!("{file}:{line}: `{what}:` states {stated} results, there are {}", self.outputs.len()));
        }
    }

    fn complaint(&self, line: usize, output: TensorId, why: &str) -> String {
        format!("{}:{line}: %{} {why}", self.case.file, self.fusion.tensors[output].name)
    }

    /// The first elements against the stated ones, in the output's tolerance.
    fn elements(
        &self,
        bindings: &Bindings,
        output: TensorId,
        tensor: &HostTensor,
        spec: &ValuesSpec,
    ) -> Option<String> {
        let stated = spec.values.len();
        if stated > tensor.numel() || (stated < tensor.numel() && !spec.open) {
            let why = format!("has {} elements, {stated} are stated", tensor.numel());
            return Some(self.complaint(spec.line, output, &why));
        }
        let sizes = [stated as i64];
        let got: Vec<Value> = tensor.values().take(stated).collect();
        let mut wanted = Vec::with_capacity(stated);
        for number in &spec.values {
            match args::number(tensor.dtype(), *number) {
                Some(value) => wanted.push(value),
                None => {
                    let why = format!("is {}, which {} is not", tensor.dtype(), args::show_number(*number));
                    return Some(self.complaint(spec.line, output, &why));
                }
            }
        }
        let list = |values: &[Value]| HostTensor::from_fn(tensor.dtype(), &sizes, |index| values[index[0] as usize]);
        let compared = match (list(&got), list(&wanted)) {
            (Ok(got), Ok(wanted)) => self.against(bindings, output, &wanted, &got),
            (Err(error), _) | (_, Err(error)) => Some(error.message),
        };
        compared.map(|why| self.complaint(spec.line, output, &format!("is not what `values:` states: {why}")))
    }

    fn against(&self, bindings: &Bindings, output: TensorId, wanted: &HostTensor, got: &HostTensor) -> Option<String> {
        let mut figures = Numerics::default();
        compare::compare(self.fusion, bindings, output, (wanted, got), &self.case.check, &mut figures)
    }

    /// The other fusion takes the arguments of the same names.
    fn twin(&self, bindings: &Bindings, same: &SameAs, wrong: &mut Vec<String>) -> Result<(), Vec<Diagnostic>> {
        let mut other =
            Case { text: same.text.clone(), line: same.text_line, name: same.name.clone(), ..self.case.clone() };
        let note = |mut errors: Vec<Diagnostic>| {
            for error in &mut errors {
                // Its places are those of the other fusion.
                error.labels.clear();
                error.notes.push(format!("this is about `@{}`, which the case is said to be the same as", same.name));
            }
            errors
        };
        let fusion = pipeline::parse(&other).map_err(note)?;
        other.inputs.retain(|(name, _)| args::is_input(&fusion, name));
        let evaluated =
            args::build(&fusion, &other, self.draws).and_then(|arguments| pipeline::reference(&fusion, &arguments));
        let outputs = evaluated.map_err(|error| note(vec![*error]))?.outputs;
        let place = format!("{}:{}", self.case.file, same.line);
        if outputs.len() != self.outputs.len() {
            wrong.push(format!("{place}: @{} has {} results, not {}", same.name, outputs.len(), self.outputs.len()));
        }
        for ((output, tensor), other) in self.fusion.outputs.iter().zip(self.outputs).zip(&outputs) {
            if (tensor.dtype(), tensor.sizes()) != (other.dtype(), other.sizes()) {
                let why = format!("is {}, by @{} it is {}", shape(tensor), same.name, shape(other));
                wrong.push(self.complaint(same.line, *output, &why));
            } else if let Some(why) = self.against(bindings, *output, other, tensor) {
                wrong.push(self.complaint(same.line, *output, &format!("is not that of @{}: {why}", same.name)));
            }
        }
        Ok(())
    }
}

fn shape(tensor: &HostTensor) -> String {
    format!("{}{:?}", tensor.dtype(), tensor.sizes())
}

/// What type, sizes and strides have against their specification.
fn form(tensor: &HostTensor, spec: &OutputSpec) -> Option<String> {
    let stated = format!("{}{:?}", spec.dtype, spec.sizes);
    if shape(tensor) != stated {
        return Some(format!("is {}, stated as {stated}", shape(tensor)));
    }
    let strides = spec.strides.as_ref()?;
    (strides != tensor.strides()).then(|| format!("has strides {:?}, stated as {strides:?}", tensor.strides()))
}
