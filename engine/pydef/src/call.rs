//! Calls of a script: Python's own functions, the script's functions, PyTorch's
//! ([`super::torch`]) and those of a definition ([`super::draft`]).

use super::ast::{CallExpr, ExprKind, Name};
use super::interp::{Interp, float_of, truth};
use super::recipe::PyNumber;
use super::value::{MAX_LIST, Py};
use engine::diag::{Diagnostic, Span, code};

/// The arguments of a call, evaluated.
#[derive(Clone, Debug)]
pub(super) struct Arguments<'a> {
    pub(super) positional: Vec<(Py, Span)>,
    pub(super) keywords: Vec<(&'a Name, Py, Span)>,
    /// The whole call.
    pub(super) span: Span,
}

impl Arguments<'_> {
    /// An argument by position, or by one of its names.
    pub(super) fn get(&self, position: usize, names: &[&str]) -> Option<&Py> {
        self.named(names).or_else(|| self.positional.get(position).map(|argument| &argument.0))
    }

    /// An argument that is passed by name.
    pub(super) fn named(&self, names: &[&str]) -> Option<&Py> {
        self.keywords.iter().find(|(name, ..)| names.contains(&name.text.as_str())).map(|(_, value, _)| value)
    }

    /// The first argument that is unknown or poisoned.
    pub(super) fn find_unknown(&self) -> Option<(&Py, Span)> {
        let positional = self.positional.iter().map(|(value, span)| (value, *span));
        let keywords = self.keywords.iter().map(|(_, value, span)| (value, *span));
        positional.chain(keywords).find(|(value, _)| value.find_unknown().is_some())
    }
}

impl<'a> Interp<'a> {
    pub(super) fn call(&mut self, call: &'a CallExpr, span: Span) -> Py {
        // Names on the left of an assignment belong to this call, not to calls among its arguments.
        let targets = std::mem::take(&mut self.targets);
        if let ExprKind::Attribute(object, name) = &call.function.kind {
            let value = self.eval(object);
            if let (ExprKind::Name(variable), Py::List(_)) = (&object.kind, &value) {
                return self.list_method(variable, value, call, &name.text, span);
            }
            let Some(arguments) = self.arguments(call, span) else { return Py::Poison };
            return self.method(value, name, arguments, targets, span);
        }
        let function = self.eval(&call.function);
        let Some(arguments) = self.arguments(call, span) else { return Py::Poison };
        match function {
            Py::Function(index) => {
                let positional = arguments.positional.into_iter().map(|argument| argument.0).collect();
                let keywords = arguments.keywords.iter().map(|(name, value, _)| (name.text.as_str(), value.clone()));
                self.run(index, positional, keywords.collect(), span)
            }
            Py::Path(path) => self.path_call(&path, arguments, span),
            Py::Poison => Py::Poison,
            other => Py::unknown(format!("the result of {}", other.what()), span),
        }
    }

    fn arguments(&mut self, call: &'a CallExpr, span: Span) -> Option<Arguments<'a>> {
        let mut positional = Vec::with_capacity(call.positional.len());
        for argument in &call.positional {
            match self.unpacked(std::slice::from_ref(argument)) {
                Ok(values) => positional.extend(values.into_iter().map(|value| (value, argument.span))),
                Err(value) => positional.push((value, argument.span)),
            }
            if positional.len() > MAX_LIST {
                self.refuse(Diagnostic::user(code::TOO_LARGE, "a call has too many arguments"), span);
                return None;
            }
        }
        let mut keywords: Vec<(&'a Name, Py, Span)> = Vec::with_capacity(call.keywords.len());
        for (name, value) in &call.keywords {
            if call.keywords.len() <= 64 && keywords.iter().any(|(other, ..)| other.text == name.text) {
                let message = format!("the argument `{}` is given twice", name.text);
                self.refuse(Diagnostic::user(code::SYNTAX, message), name.span);
            }
            let result = self.eval(value);
            keywords.push((name, result, value.span));
        }
        Some(Arguments { positional, keywords, span })
    }

    fn method(&mut self, object: Py, name: &'a Name, arguments: Arguments<'a>, targets: Vec<String>, span: Span) -> Py {
        match object {
            Py::Fd(draft) => self.definition_method(draft, name, &arguments, &targets, span),
            Py::Ops(draft) => self.operation_call(draft, name, &arguments, &targets),
            Py::Node(draft, operand) => self.node_method(draft, operand, name, &arguments, span),
            Py::Tensor(tensor) => self.tensor_method(&tensor, &name.text, &arguments, span),
            Py::Path(path) => self.path_call(&format!("{path}.{}", name.text), arguments, span),
            Py::Poison => Py::Poison,
            _ if name.text == "exec_nvfuser" => self.execute(&arguments, span),
            other => Py::unknown(format!("`.{}(...)` of {}", name.text, other.what()), span),
        }
    }

    /// `nvfuser_direct_test.exec_nvfuser(function, inputs, ...)`: what nvFuser's
    /// tests run a definition by.
    fn execute(&mut self, arguments: &Arguments<'a>, span: Span) -> Py {
        if let Some(Py::Function(index)) = arguments.get(0, &["fusion_func"])
            && !self.function(*index).parameters.is_empty()
            && let Py::Fd(draft) = self.start(span)
        {
            self.run(*index, vec![Py::Fd(draft)], Vec::new(), span);
            if let Some(inputs) = arguments.get(1, &["inputs"]).cloned() {
                self.set_inputs(draft, &inputs, span);
            }
        }
        Py::unknown("a result of the run", span)
    }

    fn list_method(&mut self, variable: &'a str, list: Py, call: &'a CallExpr, name: &str, span: Span) -> Py {
        let Some(arguments) = self.arguments(call, span) else { return Py::Poison };
        let mut items = list.items().map(<[Py]>::to_vec).unwrap_or_default();
        match (name, arguments.positional.first()) {
            ("append", Some((value, _))) => items.push(value.clone()),
            ("extend", Some((value, _))) if value.items().is_some() => {
                items.extend_from_slice(value.items().unwrap_or_default());
            }
            _ => return Py::unknown(format!("`.{name}(...)` of a list"), span),
        }
        let longer = self.list(items, false, span);
        self.rebind(variable, longer);
        Py::None
    }

    fn path_call(&mut self, path: &str, arguments: Arguments<'a>, span: Span) -> Py {
        match path {
            "FusionDefinition" | "nvfuser_direct.FusionDefinition" | "nvfuser.FusionDefinition" => self.start(span),
            _ if path.starts_with("torch.") => self.torch_call(&path["torch.".len()..], &arguments, span),
            _ => self.builtin(path, &arguments, span),
        }
    }

    /// A list of tuples.
    fn rows(&mut self, rows: Vec<Vec<Py>>, span: Span) -> Py {
        let rows = rows.into_iter().map(|row| self.list(row, true, span)).collect();
        self.list(rows, false, span)
    }

    /// Python's own functions.
    fn builtin(&mut self, name: &str, arguments: &Arguments<'a>, span: Span) -> Py {
        let values: Vec<&Py> = arguments.positional.iter().map(|argument| &argument.0).collect();
        let result = match (name, &values[..]) {
            ("float", [Py::Str(text)]) => float_word(text).map(Py::float),
            ("float", [value]) => float_of(value).map(Py::float),
            ("int", [Py::Number(PyNumber::Float(v))]) if v.abs() < 1e30 => Some(Py::int(v.trunc() as i128)),
            ("int", [Py::Number(PyNumber::Int(v))]) => Some(Py::int(*v)),
            ("int", [Py::Number(PyNumber::Bool(v))]) => Some(Py::int(i128::from(*v))),
            ("bool", [value]) => truth(value).map(Py::bool),
            ("complex", [re]) => float_of(re).map(|re| Py::Number(PyNumber::Complex(re, 0.0))),
            ("complex", [re, im]) => {
                float_of(re).zip(float_of(im)).map(|(re, im)| Py::Number(PyNumber::Complex(re, im)))
            }
            ("len", [value]) => value.items().map(|items| Py::int(items.len() as i64)),
            ("abs", [Py::Number(number)]) => Some(absolute(*number)),
            ("abs", [Py::Node(draft, _)]) => {
                return self.operator_call(*draft, "abs", vec![values[0].clone()], span);
            }
            ("list" | "tuple", [value]) => match value.items() {
                Some(items) => return self.list(items.to_vec(), name == "tuple", span),
                None => None,
            },
            ("range", _) => match range(&values) {
                Some(Some(items)) => return self.list(items, false, span),
                Some(None) => {
                    return self.refuse(Diagnostic::user(code::TOO_LARGE, "the range is too long"), span);
                }
                None => None,
            },
            ("enumerate", [value]) => match value.items() {
                Some(items) => {
                    let pairs = items.iter().enumerate().map(|(i, item)| vec![Py::int(i as i64), item.clone()]);
                    return self.rows(pairs.collect(), span);
                }
                None => None,
            },
            ("zip", [_, ..]) => match values.iter().map(|value| value.items()).collect::<Option<Vec<_>>>() {
                Some(lists) => {
                    let length = lists.iter().map(|list| list.len()).min().unwrap_or(0);
                    let rows = (0..length).map(|i| lists.iter().map(|list| list[i].clone()).collect());
                    return self.rows(rows.collect(), span);
                }
                None => None,
            },
            ("reversed", [value]) => match value.items() {
                Some(items) => return self.list(items.iter().rev().cloned().collect(), false, span),
                None => None,
            },
            ("min" | "max", _) => extreme(name == "max", &values),
            ("math.sqrt", [value]) => float_of(value).map(|v| Py::float(v.sqrt())),
            ("math.prod", [value]) => value.items().and_then(product),
            ("math.ceil", [value]) => float_of(value).filter(|v| v.abs() < 1e30).map(|v| Py::int(v.ceil() as i128)),
            ("math.floor", [value]) => float_of(value).filter(|v| v.abs() < 1e30).map(|v| Py::int(v.floor() as i128)),
            _ => None,
        };
        result.unwrap_or_else(|| match arguments.find_unknown() {
            Some((Py::Poison, _)) => Py::Poison,
            _ => Py::unknown(format!("`{name}(...)`"), span),
        })
    }
}

/// `float("inf")` and the like.
fn float_word(text: &str) -> Option<f64> {
    let text = text.trim();
    let (sign, word) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match word.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => f64::INFINITY,
        "nan" => f64::NAN,
        _ if word.starts_with(|c: char| c.is_ascii_digit() || c == '.') => word.parse().ok()?,
        _ => return None,
    };
    Some(sign * value)
}

fn absolute(number: PyNumber) -> Py {
    match number {
        PyNumber::Bool(v) => Py::int(i128::from(v)),
        PyNumber::Int(v) => Py::int(v.saturating_abs()),
        PyNumber::Float(v) => Py::float(v.abs()),
        PyNumber::Complex(re, im) => Py::float(re.hypot(im)),
    }
}

fn product(items: &[Py]) -> Option<Py> {
    items.iter().try_fold(1i64, |n, item| n.checked_mul(item.as_i64()?)).map(Py::int)
}

fn extreme(greatest: bool, values: &[&Py]) -> Option<Py> {
    let items: Vec<&Py> = match values {
        [only] => only.items()?.iter().collect(),
        _ => values.to_vec(),
    };
    let mut best: Option<(&Py, f64)> = None;
    for item in items {
        let value = float_of(item)?;
        if best.is_none_or(|(_, known)| if greatest { value > known } else { value < known }) {
            best = Some((item, value));
        }
    }
    best.map(|(item, _)| item.clone())
}

/// The numbers of a range; `Some(None)` if there are too many.
fn range(values: &[&Py]) -> Option<Option<Vec<Py>>> {
    let numbers: Option<Vec<i64>> = values.iter().map(|value| value.as_i64()).collect();
    let (start, stop, step) = match numbers?[..] {
        [stop] => (0, stop, 1),
        [start, stop] => (start, stop, 1),
        [start, stop, step] if step != 0 => (start, stop, step),
        _ => return None,
    };
    let (mut at, mut items) = (i128::from(start), Vec::new());
    while if step > 0 { at < stop.into() } else { at > stop.into() } {
        if items.len() == MAX_LIST {
            return Some(None);
        }
        items.push(Py::int(at));
        at += i128::from(step);
    }
    Some(Some(items))
}
