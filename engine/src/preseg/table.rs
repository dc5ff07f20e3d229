//! The passes in their order, and a fusion on its way through them.
//!
//! What one pass leaves may be work for those before it, so the table is gone through again while
//! something changed, a few times. Each pass is a span `preseg/NAME`; what it made is bound anew and
//! held against what it got, so that a pass that is wrong is told by its name.

use super::seen::SeenSizes;
use super::whole::{Changes, Whole};
use super::{
    casts, cats, counts, empty, lookups, meetings, mirrors, moves, overlaps, peaks, pitches, places, products, puts,
    regroup, repeats, rolls, scans, scatters, shifts, slices, splits, stacks, tallies, terms, thin, tops, twins,
};
use crate::compile::BoundFusion;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::{self, Bindings, Fusion, Rewritten, UserIds};
use crate::options::{CompileCx, Options, Phase};
use crate::tensor::ArgMeta;
use std::borrow::Cow;

/// How often the table is gone through at most.
const ROUNDS: usize = 4;

/// A row of the table.
pub struct Pass {
    /// Its name in [`Options::disabled_passes`].
    pub name: &'static str,
    /// Its span in traces.
    pub span: &'static str,
    /// What it does, in a sentence.
    pub about: &'static str,
    find: for<'a> fn(&'a Whole<'a>) -> Changes<'a>,
}

macro_rules! passes {
    ($($name:ident: $about:literal;)*) => {
        /// The passes, in their order.
        pub const PASSES: &[Pass] = &[$(Pass {
            name: stringify!($name),
            span: concat!("preseg/", stringify!($name)),
            about: $about,
            find: $name::find,
        }),*];
    };
}

passes! {
    empty: "What has no element, or is made of none, is filled.";
    products: "A product that sums one term is a multiplication.";
    shifts: "A scan behind an element that changes nothing is one of what is moved by one.";
    slices: "Slices and pads that do nothing or undo each other go; what is read in part is computed of parts.";
    cats: "What is joined as it was cut is the tensor; nothing is joined to nothing.";
    rolls: "What is cut and joined again along several axes, or regrouped then, is looked up.";
    stacks: "What is computed of a row and of its parts in another order is computed part by part.";
    overlaps: "What is joined of parts that are computed of the same is chosen part by part.";
    terms: "A reduction over a few positions, of parts, or of which others are made, is of its terms.";
    repeats: "What is repeated is read again.";
    tallies: "Equal numbers that are added where an index says are counted.";
    puts: "Rows that are added where an index says, and then up in groups, are added at once; narrow ones are widened last.";
    scatters: "Rows that are put where one index says, or each its own, are looked up by who writes last.";
    tops: "The first element of a line alone is a maximum and the least position that has it.";
    peaks: "The greatest probability of a row is that of its greatest element.";
    mirrors: "A scan of what is turned round, which is turned back, goes from the last to the first.";
    places: "What is read of an argument through pads, reshapes and lookups in turn is looked up in one go.";
    lookups: "What is computed of a table is computed of the elements that are found.";
    splits: "An axis that is split behind a lookup is split in its index.";
    regroup: "What lies before and behind a reshape is computed in axes that both have in common.";
    thin: "A reduction over axes of size 1 drops them.";
    moves: "Chains of moved axes are as short as they can be.";
    casts: "Conversions through a wider type go.";
    scans: "A scan between conversions is one of what is converted.";
    twins: "What costs something is computed once.";
    counts: "What is made of no tensor or of vectors is made for each dimension along which it lies.";
    meetings: "What meets itself at other places is computed for each.";
    pitches: "Products whose rows start at odd places are parts of wider ones, where copies cost less than that saves.";
}

/// A fusion as it is cut.
#[derive(Clone, Debug)]
pub struct Presegmented<'a> {
    /// The definition, or what passes made of it.
    pub fusion: Cow<'a, Fusion>,
    /// Its sizes.
    pub bindings: Cow<'a, Bindings>,
    /// The numbers of the definition's values, in it.
    pub ids: UserIds,
    args: &'a [ArgMeta],
    seen: SeenSizes,
}

impl<'a> Presegmented<'a> {
    /// A definition as it is, without any pass.
    pub fn as_written(cx: &CompileCx<'_>, bound: &BoundFusion<'a>) -> Self {
        let &BoundFusion { fusion, bindings, args, .. } = bound;
        let seen = SeenSizes::new(cx, bound);
        let (fusion, bindings, ids) = (Cow::Borrowed(fusion), Cow::Borrowed(bindings), UserIds::new(fusion));
        Self { fusion, bindings, ids, args, seen }
    }

    /// What the first pass from a position on that finds something makes, and its position.
    fn next(&self, cx: &CompileCx<'_>, from: usize) -> Result<Option<(usize, Rewritten)>> {
        let whole = Whole::new(&self.fusion, &self.bindings, &self.seen, cx.device);
        for (position, pass) in PASSES.iter().enumerate().skip(from).filter(|(_, pass)| is_on(cx.options, pass)) {
            let made = cx.span(Phase::Schedule, pass.span, 0, || {
                let changes = (pass.find)(&whole);
                if changes.is_empty() { Ok(None) } else { whole.apply(changes).map(Some) }
            });
            if let Some(made) = made.map_err(|error| fault(pass, &self.fusion, &error))? {
                return Ok(Some((position, made)));
            }
        }
        Ok(None)
    }

    /// Goes on with what a pass made.
    fn become_of(&mut self, pass: &Pass, made: Rewritten) -> Result<()> {
        let bindings = fusion::bind(&made.fusion, self.args).map_err(|error| match error.code {
            // What a pass made may be wider than what it stands for.
            code::SIZE_OVERFLOW => error,
            _ => fault(pass, &self.fusion, &error),
        })?;
        let results = |fusion: &Fusion, bindings: &Bindings| -> Vec<_> {
            let tensors = fusion.outputs.iter().chain(fusion.updates.iter().map(|update| &update.tensor));
            tensors.map(|tensor| (fusion.tensors[*tensor].dtype, bindings.sizes(fusion, *tensor))).collect()
        };
        if results(&made.fusion, &bindings) != results(&self.fusion, &self.bindings) {
            return Err(fault(pass, &self.fusion, &Diagnostic::bug("results are of other types or sizes")));
        }
        self.ids = self.ids.through(&made);
        self.fusion = Cow::Owned(made.fusion);
        self.bindings = Cow::Owned(bindings);
        Ok(())
    }
}

/// Sends a fusion through the table. `told` gets the name of each pass that changes something, and
/// what it made.
pub fn run<'a>(
    cx: &CompileCx<'_>,
    bound: &BoundFusion<'a>,
    told: &mut dyn FnMut(&str, &Fusion),
) -> Result<Presegmented<'a>> {
    check(cx.options)?;
    let mut state = Presegmented::as_written(cx, bound);
    for _ in 0..ROUNDS {
        let (mut from, mut changed) = (0, false);
        while let Some((position, made)) = state.next(cx, from)? {
            let pass = &PASSES[position];
            state.become_of(pass, made)?;
            told(pass.name, &state.fusion);
            (from, changed) = (position + 1, true);
        }
        if !changed {
            break;
        }
    }
    Ok(state)
}

fn is_on(options: &Options, pass: &Pass) -> bool {
    !options.disabled_passes.contains(pass.name)
}

/// Every pass that is switched off is one.
fn check(options: &Options) -> Result<()> {
    let is_none = |name: &&String| !PASSES.iter().any(|pass| pass.name == *name);
    let Some(name) = options.disabled_passes.iter().find(is_none) else { return Ok(()) };
    let names: Vec<&str> = PASSES.iter().map(|pass| pass.name).collect();
    Err(Diagnostic::user(code::PASS, format!("there is no pass `{name}`"))
        .note(format!("there are {}", names.join(", "))))
}

/// What a pass did wrong: the fusion itself was bound, so it is right.
fn fault(pass: &Pass, fusion: &Fusion, error: &Diagnostic) -> Box<Diagnostic> {
    Diagnostic::bug(format!("pass {} of fusion @{}: {}", pass.name, fusion.name, error.message))
        .note(crate::text::print(fusion))
}
