//! Runs a script for its effect: the definitions that it makes and what it
//! passes to them. There is no Python here; what the script computes besides is
//! carried along as *unknown* and matters only where a definition or its inputs
//! depend on it. Steps, frames and lists are bounded, so any text ends.

use super::ast::{ExprKind, FunctionDef, PyExpr, Stmt, StmtKind};
use super::draft::DefinitionDraft;
use super::parser::{MAX_ERRORS, READABLE};
use super::reader::Generator;
use super::recipe::PyNumber;
use super::value::{Py, Seq};
use super::{arith, env};
use engine::diag::{Diagnostic, Result, Span, code};
use std::collections::BTreeMap;

/// The most statements and expressions that are evaluated.
const MAX_STEPS: u32 = 1_000_000;
/// The most calls of the script's functions in one another.
const MAX_FRAMES: usize = 16;
/// The most operations of all definitions of a script, composites expanded.
const MAX_OPS: usize = 300_000;
/// The most definitions that a script makes.
const MAX_DRAFTS: usize = 1024;

/// Names of a block of the script.
#[derive(Default)]
struct Scope {
    names: BTreeMap<String, Py>,
    /// Functions defined here, in order.
    functions: Vec<usize>,
}

/// What happens after a statement.
enum Flow {
    Next,
    Return(Py),
}

/// A script that is being run.
pub(super) struct Interp<'a> {
    functions: Vec<&'a FunctionDef>,
    /// Functions that were called, by number.
    called: Vec<bool>,
    scopes: Vec<Scope>,
    pub(super) drafts: Vec<DefinitionDraft>,
    /// The definition whose function runs.
    pub(super) active: Option<usize>,
    /// Names on the left of the assignment that is evaluated.
    pub(super) targets: Vec<String>,
    pub(super) errors: Vec<Diagnostic>,
    /// What random operations without a seed draw from.
    pub(super) generator: Generator,
    steps: u32,
    ops: usize,
}

impl<'a> Interp<'a> {
    /// Nothing has run yet.
    pub(super) fn new(generator: Generator) -> Self {
        Self {
            generator,
            functions: Vec::new(),
            called: Vec::new(),
            scopes: vec![Scope::default()],
            drafts: Vec::new(),
            active: None,
            targets: Vec::new(),
            errors: Vec::new(),
            steps: 0,
            ops: 0,
        }
    }

    /// Runs a whole script.
    pub(super) fn script(&mut self, statements: &'a [Stmt]) {
        self.block(statements);
        self.run_uncalled();
        // A script that makes its inputs but does not run the definition.
        if let (Some(inputs), [draft]) = (self.scopes[0].names.get("inputs").cloned(), &self.drafts[..])
            && draft.inputs.is_none()
            && inputs.items().is_some()
        {
            let span = draft.place;
            self.set_inputs(0, &inputs, span);
        }
    }

    // ---- errors and limits ----

    /// Reports an error; the definition at hand is refused.
    #[expect(clippy::boxed_local, reason = "errors travel boxed")]
    pub(super) fn report(&mut self, error: Box<Diagnostic>) -> Py {
        if let Some(draft) = self.active.and_then(|index| self.drafts.get_mut(index)) {
            draft.refused = true;
        }
        if self.errors.len() <= 2 * MAX_ERRORS {
            self.errors.push(*error);
        }
        Py::Poison
    }

    /// The same for a message at a place.
    pub(super) fn refuse(&mut self, error: Box<Diagnostic>, span: Span) -> Py {
        let error = if error.labels.is_empty() { error.label(span, "") } else { error };
        self.report(error)
    }

    /// The value of a result, or its error at a place.
    pub(super) fn settle(&mut self, result: Result<Py>, span: Span) -> Py {
        match result {
            Ok(value) => value,
            Err(error) => self.refuse(error, span),
        }
    }

    /// Counts a step; false when there have been too many.
    pub(super) fn step(&mut self, span: Span) -> bool {
        self.work(1, span)
    }

    /// Counts work that is worth some steps.
    pub(super) fn work(&mut self, steps: usize, span: Span) -> bool {
        let before = self.steps;
        self.steps = before.saturating_add(u32::try_from(steps).unwrap_or(u32::MAX));
        if before < MAX_STEPS && self.steps >= MAX_STEPS {
            let message = format!("the script takes more than {MAX_STEPS} steps");
            self.refuse(Diagnostic::user(code::TOO_LARGE, message), span);
        }
        self.steps < MAX_STEPS
    }

    /// Counts operations that were added to a definition.
    pub(super) fn added(&mut self, ops: usize) -> Result<()> {
        self.ops = self.ops.saturating_add(ops);
        if self.ops <= MAX_OPS {
            return Ok(());
        }
        let message = format!("the definitions of the script have more than {MAX_OPS} operations");
        Err(Diagnostic::user(code::TOO_LARGE, message).note("put them in several files"))
    }

    /// A list, unless it is too long.
    pub(super) fn list(&mut self, items: Vec<Py>, tuple: bool, span: Span) -> Py {
        if !self.work(items.len() / 8, span) {
            return Py::Poison;
        }
        match Seq::new(items) {
            Some(seq) if tuple => Py::Tuple(seq),
            Some(seq) => Py::List(seq),
            None => self.refuse(Diagnostic::user(code::TOO_LARGE, "a list is too long or nests too deeply"), span),
        }
    }

    /// An error for a value that is not known where it has to be.
    pub(super) fn needs_known(&mut self, value: &Py, span: Span) -> Py {
        let Some(Py::Unknown(unknown)) = value.find_unknown() else { return Py::Poison };
        let message = format!("the value of {} is not known to this reader", unknown.what);
        let mut error = Diagnostic::user(code::PY_CONSTRUCT, message).label(span, "");
        if unknown.span != span {
            error = error.label(unknown.span, "it comes from here");
        }
        self.report(error.note(env::READABLE_VALUES))
    }

    // ---- names ----

    pub(super) fn lookup(&self, name: &str) -> Option<Py> {
        self.scopes.iter().rev().find_map(|scope| scope.names.get(name)).cloned()
    }

    /// All names that are bound, for suggestions.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.scopes.iter().flat_map(|scope| scope.names.keys().map(String::as_str))
    }

    fn bind(&mut self, name: &str, value: Py) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.names.insert(name.into(), value);
        }
    }

    /// Gives a name another value where it is bound.
    pub(super) fn rebind(&mut self, name: &str, value: Py) {
        let place = self.scopes.iter_mut().rev().find_map(|scope| scope.names.get_mut(name));
        if let Some(place) = place {
            *place = value;
        }
    }

    pub(super) fn function(&self, index: usize) -> &'a FunctionDef {
        self.functions[index]
    }

    // ---- statements ----

    fn block(&mut self, statements: &'a [Stmt]) -> Flow {
        for statement in statements {
            if !self.step(statement.span) {
                return Flow::Next;
            }
            if let Flow::Return(value) = self.statement(statement) {
                return Flow::Return(value);
            }
        }
        Flow::Next
    }

    fn statement(&mut self, statement: &'a Stmt) -> Flow {
        match &statement.kind {
            StmtKind::Import(names) => {
                for (name, path) in names {
                    self.bind(name, env::imported(path));
                }
            }
            StmtKind::Def(function) => {
                let index = self.functions.len();
                self.functions.push(function);
                self.called.push(false);
                if let Some(scope) = self.scopes.last_mut() {
                    scope.functions.push(index);
                }
                self.bind(&function.name.text, Py::Function(index));
            }
            StmtKind::With { items, body } => return self.with(items, body),
            StmtKind::If { condition, body, otherwise } => {
                let value = self.eval(condition);
                return match truth(&value) {
                    Some(true) => self.block(body),
                    Some(false) => self.block(otherwise),
                    None => self.undecided(&value, condition.span),
                };
            }
            StmtKind::For { target, values, body } => return self.for_loop(target, values, body),
            StmtKind::Assign { targets, value } => {
                self.targets = names_of(&targets[0]);
                let result = self.eval(value);
                let names = std::mem::take(&mut self.targets);
                let names = if names.is_empty() { names_of(&targets[0]) } else { names };
                self.name(&names, &result, statement.span);
                for target in targets {
                    self.assign(target, &result);
                }
            }
            StmtKind::Augmented { target, operator, value } => {
                let (left, right) = (self.eval(target), self.eval(value));
                let result = self.binary(*operator, left, right, statement.span);
                self.assign(target, &result);
            }
            StmtKind::Expr(value) => {
                self.eval(value);
            }
            StmtKind::Return(value) => {
                return Flow::Return(value.as_ref().map_or(Py::None, |value| self.eval(value)));
            }
            StmtKind::Nothing => {}
        }
        Flow::Next
    }

    /// Names the value of a definition that an assignment gives.
    fn name(&mut self, names: &[String], value: &Py, span: Span) {
        if let Py::Node(draft, operand) = value
            && let Err(error) = self.drafts[*draft].name_results(names, &[*operand])
        {
            self.refuse(error, span);
        }
    }

    /// A branch that cannot be decided: inside of a definition that is an error,
    /// around it the branch is no part of what is read.
    fn undecided(&mut self, value: &Py, span: Span) -> Flow {
        if self.active.is_some() {
            self.needs_known(value, span);
        }
        Flow::Next
    }

    fn with(&mut self, items: &'a [(PyExpr, Option<super::ast::Name>)], body: &'a [Stmt]) -> Flow {
        let before = self.active;
        let mut refused_on_purpose = false;
        for (context, name) in items {
            let value = self.eval(context);
            if let Py::Fd(index) = value {
                self.active = Some(index);
            }
            refused_on_purpose |= matches!(&value, Py::Unknown(unknown) if unknown.what.contains("raises"));
            if let Some(name) = name {
                self.bind(&name.text, value);
            }
        }
        // `with pytest.raises(...)`: what stands inside does not work.
        let flow = if refused_on_purpose { Flow::Next } else { self.block(body) };
        self.active = before;
        flow
    }

    fn for_loop(&mut self, target: &'a PyExpr, values: &'a PyExpr, body: &'a [Stmt]) -> Flow {
        let value = self.eval(values);
        let Some(items) = value.items() else {
            return match value {
                Py::Unknown(_) | Py::Poison => self.undecided(&value, values.span),
                _ => {
                    let error =
                        Diagnostic::user(code::PY_CONSTRUCT, format!("`for` over {} is not read", value.what()));
                    self.refuse(error.note(READABLE), values.span);
                    Flow::Next
                }
            };
        };
        for item in items {
            if !self.step(values.span) {
                break;
            }
            self.assign(target, item);
            if let Flow::Return(value) = self.block(body) {
                return Flow::Return(value);
            }
        }
        Flow::Next
    }

    fn assign(&mut self, target: &'a PyExpr, value: &Py) {
        match &target.kind {
            ExprKind::Name(name) => self.bind(name, value.clone()),
            ExprKind::Tuple(targets) | ExprKind::List(targets) => self.unpack(targets, value, target.span),
            // `x[i] = ...`, `x.y = ...`, `*rest = ...`: x is not followed any further.
            ExprKind::Subscript(object, _) | ExprKind::Attribute(object, _) | ExprKind::Starred(object) => {
                if let ExprKind::Name(name) = &object.kind {
                    self.bind(name, Py::unknown(format!("`{name}`, of which a part is assigned,"), target.span));
                }
            }
            _ => {
                let error = Diagnostic::user(code::SYNTAX, "only names can be assigned");
                self.refuse(error, target.span);
            }
        }
    }

    fn unpack(&mut self, targets: &'a [PyExpr], value: &Py, span: Span) {
        let items = match value {
            Py::Unknown(_) | Py::Poison => vec![value.clone(); targets.len()],
            _ => value.items().map(<[Py]>::to_vec).unwrap_or_else(|| vec![value.clone()]),
        };
        if items.len() != targets.len() {
            let (names, values) = (targets.len(), items.len());
            let message = format!("{names} names stand for {values} values");
            let poison = self.refuse(Diagnostic::user(code::ARITY, message), span);
            for target in targets {
                self.assign(target, &poison);
            }
            return;
        }
        for (target, item) in targets.iter().zip(&items) {
            self.assign(target, item);
        }
    }

    // ---- functions and definitions ----

    /// Runs a function of the script.
    pub(super) fn run(&mut self, index: usize, arguments: Vec<Py>, keywords: Vec<(&'a str, Py)>, span: Span) -> Py {
        let function = self.function(index);
        self.called[index] = true;
        if self.scopes.len() > MAX_FRAMES {
            let message = format!("`{}`: functions call one another more than {MAX_FRAMES} deep", function.name.text);
            return self.refuse(Diagnostic::user(code::TOO_LARGE, message), span);
        }
        let mut scope = Scope::default();
        let mut arguments = arguments.into_iter();
        for parameter in &function.parameters {
            let name = &parameter.name.text;
            let given = arguments.next().or_else(|| keywords.iter().find(|k| k.0 == name).map(|k| k.1.clone()));
            let value = match (given, &parameter.default) {
                (Some(value), _) => value,
                (None, Some(default)) => self.eval(default),
                (None, None) => Py::unknown(format!("the parameter `{name}`"), parameter.name.span),
            };
            scope.names.insert(name.clone(), value);
        }
        let before = self.active;
        if let Some(draft) =
            scope.names.values().find_map(|value| if let Py::Fd(index) = value { Some(*index) } else { None })
        {
            self.active = Some(draft);
            self.drafts[draft].called(&function.name.text, function.name.span);
        }
        let targets = std::mem::take(&mut self.targets);
        self.scopes.push(scope);
        let flow = self.block(&function.body);
        self.run_uncalled();
        self.scopes.pop();
        self.targets = targets;
        self.active = before;
        match flow {
            Flow::Return(value) => value,
            Flow::Next => Py::None,
        }
    }

    /// Runs the functions of the innermost block that nothing has called: tests,
    /// which may run definitions, then the definitions that are left.
    fn run_uncalled(&mut self) {
        let functions = self.scopes.last().map(|scope| scope.functions.clone()).unwrap_or_default();
        for definitions in [false, true] {
            for &index in &functions {
                let function = self.function(index);
                let skip = self.called[index] || self.active.is_some() || self.errors.len() > MAX_ERRORS;
                if skip || takes_definition(function) != definitions {
                    continue;
                }
                let mut arguments = Vec::new();
                if definitions {
                    let Py::Fd(draft) = self.start(function.name.span) else { return };
                    arguments.push(Py::Fd(draft));
                }
                self.run(index, arguments, Vec::new(), function.name.span);
            }
        }
    }

    /// Starts a definition.
    pub(super) fn start(&mut self, span: Span) -> Py {
        if self.drafts.len() == MAX_DRAFTS {
            let message = format!("a script makes at most {MAX_DRAFTS} definitions");
            return self.refuse(Diagnostic::user(code::TOO_LARGE, message), span);
        }
        self.drafts.push(DefinitionDraft::new(span));
        Py::Fd(self.drafts.len() - 1)
    }

    /// What is passed to a definition; the first run counts.
    pub(super) fn set_inputs(&mut self, draft: usize, inputs: &Py, span: Span) {
        if self.drafts[draft].inputs.is_some() {
            return;
        }
        match super::draft::recipes(inputs) {
            Some(recipes) => self.drafts[draft].inputs = Some(recipes),
            None => {
                let before = self.active.replace(draft);
                if inputs.find_unknown().is_some() {
                    self.needs_known(inputs, span);
                } else {
                    let message = format!("inputs are a list of tensors and numbers, not {}", inputs.what());
                    self.refuse(Diagnostic::user(code::INPUT_KIND, message), span);
                }
                self.active = before;
            }
        }
    }
}

/// Whether the first parameter of a function is a definition.
fn takes_definition(function: &FunctionDef) -> bool {
    function.parameters.first().is_some_and(|parameter| {
        let annotated = match parameter.annotation.as_ref().map(|annotation| &annotation.kind) {
            Some(ExprKind::Name(name)) => Some(name.as_str()),
            Some(ExprKind::Attribute(_, name)) => Some(name.text.as_str()),
            Some(ExprKind::Str(name)) => Some(name.as_str()),
            _ => None,
        };
        annotated == Some("FusionDefinition") || (annotated.is_none() && parameter.name.text == "fd")
    })
}

/// The names on the left of an assignment.
fn names_of(target: &PyExpr) -> Vec<String> {
    match &target.kind {
        ExprKind::Name(name) => vec![name.clone()],
        ExprKind::Tuple(targets) | ExprKind::List(targets) => targets
            .iter()
            .map(|target| if let ExprKind::Name(name) = &target.kind { name.clone() } else { String::new() })
            .collect(),
        _ => Vec::new(),
    }
}

/// Whether a value counts as true; `None` if that is not known.
pub(super) fn truth(value: &Py) -> Option<bool> {
    match value {
        Py::None => Some(false),
        Py::Number(value) => Some(arith::truth(*value)),
        Py::Str(text) => Some(!text.is_empty()),
        Py::List(seq) | Py::Tuple(seq) => Some(!seq.items.is_empty()),
        Py::DType(_) | Py::Function(_) => Some(true),
        _ => None,
    }
}

/// A float from a number, where one is needed.
pub(super) fn float_of(value: &Py) -> Option<f64> {
    match value {
        Py::Number(PyNumber::Complex(..)) => None,
        Py::Number(number) => Some(number.as_f64()),
        _ => None,
    }
}
