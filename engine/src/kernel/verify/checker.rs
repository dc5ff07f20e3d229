//! The state of one verification and the collection of violations.

use super::exprs::ExprChecks;
use super::uniform::{Class, Uniformity};
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::facts::Multiples;
use crate::kernel::ir::{BufId, Kernel, ParamKind, Stmt, ValueKind, VarId};
use crate::kernel::print::print_stmt;
use crate::util::SecondaryMap;

/// Violations that are described; the rest is counted.
const MAX_NOTES: usize = 40;

/// Checks every rule of the [module](super).
pub fn verify(kernel: &Kernel) -> Result<()> {
    checked(kernel, MAX_NOTES).finish()
}

/// Whether [`verify`] accepts a kernel: who tries many says nothing of those that it does not.
pub(crate) fn verifies(kernel: &Kernel) -> bool {
    checked(kernel, 0).total == 0
}

/// A kernel with so many violations in words.
fn checked(kernel: &Kernel, notes: usize) -> Checker<'_> {
    let mut checker = Checker::new(kernel, notes);
    // Each stage assumes what the one before it found: ids that are declared,
    // then declarations that can be evaluated.
    if checker.check_arena() && checker.check_declarations() {
        checker.check_body();
    }
    checker
}

/// What is known while walking over a kernel.
pub(super) struct Checker<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) exprs: ExprChecks,
    pub(super) multiples: Multiples<'a>,
    pub(super) uniform: Uniformity<'a>,
    pub(super) scopes: Scopes,
    /// Buffers of the fusion's inputs, and of its outputs.
    pub(super) inputs: SecondaryMap<BufId, bool>,
    pub(super) outputs: SecondaryMap<BufId, bool>,
    /// Over which threads the current place is reached by all or none.
    pub(super) control: Class,
    violations: Vec<String>,
    total: usize,
    /// Violations that are described, at most.
    notes: usize,
}

/// Which variables are bound and visible.
#[derive(Default)]
pub(super) struct Scopes {
    /// How many blocks enclose the binding; 0 while unbound.
    pub(super) depth: SecondaryMap<VarId, u32>,
    pub(super) visible: SecondaryMap<VarId, bool>,
    /// Whether it was bound to an index or to data.
    pub(super) kind: SecondaryMap<VarId, Option<ValueKind>>,
    pub(super) open: Vec<Vec<VarId>>,
}

impl<'a> Checker<'a> {
    fn new(kernel: &'a Kernel, notes: usize) -> Self {
        let (mut inputs, mut outputs) = (SecondaryMap::new(), SecondaryMap::new());
        for param in kernel.params.values() {
            match param.kind {
                ParamKind::Input { buffer, .. } => inputs.set(buffer, true),
                ParamKind::Output { buffer, .. } => outputs.set(buffer, true),
                _ => {}
            }
        }
        Self {
            kernel,
            exprs: ExprChecks::default(),
            multiples: Multiples::new(kernel),
            uniform: Uniformity::new(kernel),
            scopes: Scopes::default(),
            inputs,
            outputs,
            control: Class::Grid,
            violations: Vec::new(),
            total: 0,
            notes,
        }
    }

    /// Records a violation of the kernel as a whole.
    pub(super) fn report(&mut self, message: impl FnOnce() -> String) {
        self.total += 1;
        if self.violations.len() < self.notes {
            self.violations.push(message());
        }
    }

    /// Records a violation by a statement.
    pub(super) fn report_at(&mut self, stmt: &Stmt, message: impl FnOnce() -> String) {
        let kernel = self.kernel;
        self.report(|| {
            let pass = if stmt.origin.pass.is_empty() { "unnamed pass" } else { stmt.origin.pass };
            format!("{}: `{}` ({pass})", message(), print_stmt(kernel, stmt))
        });
    }

    pub(super) fn violations_so_far(&self) -> usize {
        self.total
    }

    fn finish(self) -> Result<()> {
        if self.total == 0 {
            return Ok(());
        }
        let plural = if self.total == 1 { "violation" } else { "violations" };
        let message = format!("kernel {}: {} {plural}", self.kernel.name, self.total);
        let hidden = self.total - self.violations.len();
        let mut error = Diagnostic::bug_code(code::VERIFY, message);
        for violation in self.violations {
            error = error.note(violation);
        }
        Err(if hidden == 0 { error } else { error.note(format!("and {hidden} more")) })
    }
}
