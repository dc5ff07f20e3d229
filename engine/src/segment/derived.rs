//! What was made of a definition on its way to kernels, kept by what of the sizes decided it.
//!
//! In: a definition, once; then arguments. Out: the stages of the way, each made where a call
//! first needs it:
//!
//! * [`Passed`], what passes made of the definition, by [`SeenSizes`];
//! * [`Whole`], that with decided axes, by the facts that decide them; and which of its
//!   operations are computed together, by [`OpFacts`];
//!   Rows that no kernel holds have their moments in one go, in a [`Whole`] of its own, by which they are, and what is reduced of
//!   what others reduced alike;
//! * [`KernelPart`], some of its operations as a fusion, and of that the forms that kernels
//!   are made of, by layouts of results.
//!
//! Sizes themselves are in none, but where passes calculate with them. Invariant: each stage is a function of its key alone, so it
//! does not matter in which order calls of different sizes come.

use super::copies::with_copies;
use super::facts::{OpFacts, kernels_take};
use super::moments::{self, Moments};
use super::partial::{self, OfReduced};
use crate::compile::{BoundFusion, FormKey, KernelForm, check_text, scheduled_by};
use crate::diag::{Diagnostic, DiagnosticKind, Result};
use crate::fusion::{self, AxisKind, Bindings, Fusion, OpId, OpKind, Part, Rewritten, TensorId, UserIds, concretize};
use crate::options::CompileCx;
use crate::preseg::{self, SeenSizes};
use crate::tensor::{ArgMeta, TensorMeta};
use crate::util::Memo;
use std::sync::{Arc, OnceLock};

/// What passes and facts make of one definition, what is cut where, and forms of a part: few
/// differ, but where passes calculate with sizes each call may.
const MAX_KINDS: usize = 8;
/// Parts of one fusion.
const MAX_PARTS: usize = 4096;

/// A definition with what was made of it.
#[derive(Debug)]
pub(crate) struct Derived {
    passed: Memo<Vec<i64>, Passed>,
}

/// What passes made of a definition.
#[derive(Debug)]
struct Passed {
    fusion: Arc<Fusion>,
    /// Without composite primitives.
    simple: Rewritten,
    /// The numbers of the definition's values, in `simple`.
    ids: UserIds,
    /// Tensors of `simple` before which it is cut.
    cuts: Vec<TensorId>,
    whole: Memo<concretize::Facts, Whole>,
}

/// A fusion that is cut: its axes are decided, and its primitives are simple.
#[derive(Debug)]
pub(super) struct Whole {
    /// What passes made of the definition, as it was before that.
    pub(super) passed: Arc<Fusion>,
    pub(super) fusion: Arc<Fusion>,
    /// The numbers of the definition's values, in it.
    pub(super) ids: Arc<UserIds>,
    /// Tensors before which it is cut.
    pub(super) cuts: Vec<TensorId>,
    groups: Memo<Vec<i64>, Vec<Vec<OpId>>>,
    parts: Memo<PartKey, KernelPart>,
    in_one_go: Memo<Vec<Moments>, Whole>,
    of_reduced: Memo<Vec<OfReduced>, Whole>,
    /// Whether it may be one kernel, as far as its operations say.
    pub(super) can_be_one: bool,
}

/// Some operations as a fusion.
#[derive(Debug)]
pub(super) struct KernelPart {
    pub(super) part: Part,
    /// The same with names that say nothing: parts that do the same have one kernel.
    pub(super) plain: Fusion,
    /// Whether no axis of it is left to be decided by sizes.
    is_decided: bool,
    /// The same with the names of the whole, to word a refusal.
    named: OnceLock<Arc<KernelPart>>,
    forms: Memo<FormKey, Formed>,
}

/// Operations, what they return, and what is behind the name of the whole.
type PartKey = (Vec<OpId>, Vec<TensorId>, String);
/// A form, or why there is none.
pub(super) type Formed = std::result::Result<KernelForm, Box<Diagnostic>>;

/// Binds arguments to a fusion that was made of one to which they are bound.
pub(super) fn bind_again(cx: &CompileCx<'_>, fusion: &Fusion, args: &[ArgMeta]) -> Result<Bindings> {
    if cx.options.self_check { fusion::bind(fusion, args) } else { fusion::bind_derived(fusion, args) }
}

impl Derived {
    /// A definition of which nothing was made yet.
    pub(crate) fn new(cx: &CompileCx<'_>, definition: &Fusion) -> Result<Self> {
        if cx.options.self_check {
            check_text(definition)?;
        }
        Ok(Self { passed: Memo::new(MAX_KINDS) })
    }

    /// A definition as a whole that no pass has changed, with its sizes.
    pub(super) fn as_written(cx: &CompileCx<'_>, bound: &BoundFusion<'_>) -> Result<(Arc<Whole>, Bindings)> {
        Passed::new(bound.fusion, &UserIds::new(bound.fusion))?.whole(cx, bound.args)
    }

    /// The fusion that is cut for some arguments, with its sizes. The definition is that for
    /// which this was made.
    pub(super) fn whole(&self, cx: &CompileCx<'_>, bound: &BoundFusion<'_>) -> Result<(Arc<Whole>, Bindings)> {
        let seen = SeenSizes::new(cx, bound);
        let passed = self.passed.get_or_try(seen.key(), || {
            let passed = preseg::run(cx, bound, &mut |_, _| {})?;
            Passed::new(&passed.fusion, &passed.ids)
        })?;
        passed.whole(cx, bound.args)
    }
}

impl Passed {
    fn new(fusion: &Fusion, ids: &UserIds) -> Result<Self> {
        let simple = fusion::decompose(fusion)?;
        let cuts = fusion.ops.values().filter(|op| match &op.kind {
            OpKind::Call(call) => call.movement().cuts,
            _ => false,
        });
        let cuts = cuts.filter_map(|op| simple.tensors[op.output()]).collect();
        let (fusion, ids, whole) = (Arc::new(fusion.clone()), ids.through(&simple), Memo::new(MAX_KINDS));
        Ok(Self { fusion, simple, ids, cuts, whole })
    }

    fn whole(&self, cx: &CompileCx<'_>, args: &[ArgMeta]) -> Result<(Arc<Whole>, Bindings)> {
        let simple = &self.simple.fusion;
        let bindings = bind_again(cx, simple, args)?;
        let facts = match cx.options.schedule {
            // A schedule names tensors, whatever their sizes.
            Some(_) => concretize::facts_of_all(simple, &bindings),
            None => concretize::facts(simple, &bindings),
        };
        let whole = self.whole.get_or_try(&facts, || {
            let concrete = concretize::concretize(simple, &facts)?;
            let cuts: Vec<_> = self.cuts.iter().filter_map(|tensor| concrete.tensors[*tensor]).collect();
            let kernels = concrete.fusion.ops.values().all(|op| kernels_take(&op.kind));
            let can_be_one = kernels && cuts.is_empty() && concrete.fusion.updates.is_empty();
            let ids = self.ids.through(&concrete);
            // A schedule names what was written.
            let copied = if cx.options.schedule.is_none() { with_copies(&concrete.fusion)? } else { None };
            let whole = match copied {
                Some(made) => {
                    let cuts = cuts.iter().filter_map(|tensor| made.tensors[*tensor]).collect();
                    Whole::new(Arc::clone(&self.fusion), ids.through(&made), made.fusion, cuts)
                }
                None => Whole::new(Arc::clone(&self.fusion), ids, concrete.fusion, cuts),
            };
            Ok::<_, Box<Diagnostic>>(Whole { can_be_one, ..whole })
        })?;
        let bindings = bind_again(cx, &whole.fusion, args)?;
        Ok((whole, bindings))
    }
}

impl Whole {
    /// One of several kernels.
    fn new(passed: Arc<Fusion>, ids: UserIds, fusion: Fusion, cuts: Vec<TensorId>) -> Self {
        Self {
            passed,
            ids: Arc::new(ids),
            can_be_one: false,
            cuts,
            fusion: Arc::new(fusion),
            groups: Memo::new(MAX_KINDS),
            parts: Memo::new(MAX_PARTS),
            in_one_go: Memo::new(MAX_KINDS),
            of_reduced: Memo::new(MAX_KINDS),
        }
    }

    /// Which operations are computed together, looked for where sizes like these are new.
    pub(super) fn groups(
        &self,
        facts: &OpFacts<'_>,
        search: impl FnOnce() -> Vec<Vec<OpId>>,
    ) -> Result<Arc<Vec<Vec<OpId>>>> {
        self.groups.get_or_try(&facts.key(), || Ok(search()))
    }

    /// The same with some of its moments in one go, and its sizes.
    pub(super) fn in_one_go(
        &self,
        cx: &CompileCx<'_>,
        found: Vec<Moments>,
        args: &[ArgMeta],
    ) -> Result<(Arc<Self>, Bindings)> {
        // Rows are read twice, by two kernels.
        let whole = self.in_one_go.get_or_try(&found, || self.as_several(moments::rewrite(&self.fusion, &found)?))?;
        let bindings = bind_again(cx, &whole.fusion, args)?;
        Ok((whole, bindings))
    }

    /// The same with some reductions of what others reduced, and its sizes.
    pub(super) fn of_reduced(
        &self,
        cx: &CompileCx<'_>,
        found: Vec<OfReduced>,
        args: &[ArgMeta],
    ) -> Result<(Arc<Self>, Bindings)> {
        // No kernel has both.
        let whole = self.of_reduced.get_or_try(&found, || self.as_several(partial::rewrite(&self.fusion, &found)?))?;
        let bindings = bind_again(cx, &whole.fusion, args)?;
        Ok((whole, bindings))
    }

    /// What was made of it, as one of several kernels.
    fn as_several(&self, made: Rewritten) -> Result<Self> {
        let cuts = self.cuts.iter().filter_map(|tensor| made.tensors[*tensor]).collect();
        let ids = self.ids.through(&made);
        Ok(Self::new(Arc::clone(&self.passed), ids, made.fusion, cuts))
    }

    /// Operations of it as a fusion that returns these results. `suffix` is of its name.
    pub(super) fn part(
        &self,
        cx: &CompileCx<'_>,
        ops: &[OpId],
        outputs: &[TensorId],
        suffix: &str,
    ) -> Result<Arc<KernelPart>> {
        self.parts.get_or_try(&(ops.to_vec(), outputs.to_vec(), suffix.to_string()), || {
            let part = fusion::part(&self.fusion, suffix, ops, outputs)?;
            let plain = fusion::plainly_named(&part.fusion);
            if cx.options.self_check {
                check_text(&plain)?;
            }
            Ok(KernelPart::new(part, plain))
        })
    }

    /// All of it, as passes left the definition.
    pub(super) fn as_part(&self) -> Result<Arc<KernelPart>> {
        self.parts.get_or_try(&(Vec::new(), self.fusion.outputs.clone(), String::new()), || {
            let (inputs, outputs) = (self.fusion.inputs.clone(), self.fusion.outputs.clone());
            let part = Part { fusion: Arc::clone(&self.passed), inputs, outputs };
            Ok(KernelPart::new(part, Fusion::clone(&self.fusion)))
        })
    }
}

impl KernelPart {
    pub(super) fn new(part: Part, plain: Fusion) -> Self {
        let axes = plain.tensors.values().flat_map(|tensor| &tensor.axes);
        let is_decided = axes.into_iter().all(|axis| axis.kind != AxisKind::Symbolic);
        Self { part, plain, is_decided, named: OnceLock::new(), forms: Memo::new(MAX_KINDS) }
    }

    /// The same with the names of the whole.
    pub(super) fn named(&self) -> Arc<Self> {
        let named = || Arc::new(Self::new(self.part.clone(), Fusion::clone(&self.part.fusion)));
        Arc::clone(self.named.get_or_init(named))
    }

    /// The form of it that a kernel is made of, for these sizes and results.
    pub(super) fn form(&self, cx: &CompileCx<'_>, bindings: &Bindings, results: &[TensorMeta]) -> Result<Arc<Formed>> {
        let key = match self.is_decided {
            true => FormKey::decided(results),
            false => FormKey::new(&self.plain, bindings, results),
        };
        self.forms.get_or_try(&key, || match KernelForm::new(&self.plain, &key, scheduled_by(cx)) {
            Err(error) if error.kind != DiagnosticKind::Unsupported => Err(error),
            formed => Ok(formed),
        })
    }
}
