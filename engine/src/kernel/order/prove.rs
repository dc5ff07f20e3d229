//! Proofs that a change of a kernel changes nothing that anybody sees.

use super::run::Run;
use super::slice::Slice;
use super::word::Word;
use crate::diag::Result;
use crate::kernel::bind::BoundLaunch;
use crate::kernel::ir::{ExprId, Kernel};

/// Two expressions that are held against each other.
pub(super) struct Probe {
    /// The number of the statement.
    pub(super) stmt: u32,
    pub(super) exprs: (ExprId, ExprId),
    found: Agreement,
    /// Whether some value is a term, which may hang on what memory holds.
    has_terms: bool,
}

/// How often two expressions had one value where a statement was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Executions by threads.
    pub executed: u64,
    /// Those in which the values differ, or may.
    pub differing: u64,
    /// Whether these were all executions of the launch.
    pub exhaustive: bool,
}

impl Agreement {
    /// Whether the values are always the same.
    pub fn is_proof(&self) -> bool {
        self.exhaustive && self.differing == 0
    }
}

impl Probe {
    pub(super) fn add(&mut self, a: Word, b: Word) {
        self.found.executed += 1;
        self.has_terms |= matches!(a, Word::Term(_));
        self.found.differing += u64::from(a != b || a == Word::Any);
    }
}

/// Holds two expressions against each other wherever the statement of a number in preorder is executed.
pub fn compare_at(kernel: &Kernel, launch: &BoundLaunch, stmt: usize, exprs: (ExprId, ExprId)) -> Result<Agreement> {
    let slice = Slice::new(kernel, false, &[exprs.0, exprs.1]);
    let probe = Probe { stmt: stmt as u32, exprs, found: Agreement::default(), has_terms: false };
    let mut run = Run::new(kernel, launch, &slice, Some(probe))?;
    run.all();
    let all = run.report.all_blocks && !run.report.is_over();
    // What a thread reads before and after it writes there is one term.
    let is_sure = |probe: &Probe| all && !(probe.has_terms && run.grid.mixed);
    let exhaustive = run.probe.as_ref().is_some_and(is_sure);
    let found = run.probe.map(|probe| probe.found).unwrap_or_default();
    let found = Agreement { exhaustive, ..found };
    Ok(found)
}

/// By which terms of the inputs each element is computed that a launch writes to global memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultTerms {
    /// Grid barriers before it was written, buffer and element as one number, and the term; sorted.
    elements: Vec<(u32, u64, u64)>,
    /// Whether they say all: the launch is in order whatever memory holds, and every block was looked at.
    pub exhaustive: bool,
}

/// The terms of a launch. Of two kernels that write equal terms, both of them exhaustive, the results are equal
/// whatever memory holds, collisions of 64-bit hashes aside. What blocks write for each other counts as results,
/// and what they read of it as inputs: of two kernels that write the same up to a grid barrier, memory is the same
/// behind it, as long as who reads between two barriers what is written between them does so behind all writes.
pub fn result_terms(kernel: &Kernel, launch: &BoundLaunch) -> Result<ResultTerms> {
    let slice = Slice::new(kernel, true, &[]);
    let mut run = Run::new(kernel, launch, &slice, None)?;
    run.all();
    let mut elements: Vec<(u32, u64, u64)> =
        run.memory.global.iter().map(|((epoch, key), word)| (*epoch, *key, word.bits())).collect();
    elements.sort_unstable();
    let defined = run.memory.global.values().all(|word| *word != Word::Any);
    Ok(ResultTerms {
        elements,
        exhaustive: run.report.is_proof() && !run.grid.mixed && defined && !run.memory.is_spoilt,
    })
}
