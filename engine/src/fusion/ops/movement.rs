//! What a primitive does with elements and axes, as far as others must know it
//! who never look at its rules: where nvFuser places its results, which elements
//! it reads, which loops it shares with its operands.
//!
//! Every primitive says it in its row, so that a new one is asked.

use super::cx::LayoutCx;
use super::lookup::IndexAxes;
use crate::diag::Result;
use crate::num::ReduceOp;

/// A result that is a part of its operand's memory, seen through other strides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewPlace {
    /// Of the result, in elements.
    pub strides: Vec<i64>,
    /// From the operand's element 0 to the result's, in elements.
    pub offset: i64,
}

/// Says where the result lies in the memory of the first operand, for the sizes and
/// strides at hand; nothing if it has to be copied.
pub type ViewRule = fn(&LayoutCx<'_>) -> Result<Option<ViewPlace>>;

/// How elements and axes of the operands come to the results.
#[derive(Clone, Copy, Debug)]
pub struct Movement {
    /// Which elements of its operands it looks at.
    pub reads: Reads,
    /// Which axes of its results are axes of its operands.
    pub axes: AxisMap,
    /// Whether nvFuser may make its result a view of its first operand.
    pub view: bool,
    /// Where the result lies in memory of its operand, of an operation that no kernel
    /// computes and that moves nothing.
    pub place: Option<ViewRule>,
    /// The parameter that asks for an order of the axes in memory: their ranks.
    pub order: Option<&'static str>,
    /// When its values and strides come from a library.
    pub library: Library,
    /// The result that holds positions of elements in their order. Which of
    /// equal elements comes first is not specified.
    pub positions: Option<usize>,
    /// Whether the fusion is cut in two before it.
    pub cuts: bool,
    /// What passes over whole fusions know it as, which have rules for it.
    pub form: Option<Form>,
}

/// A primitive for which passes over whole fusions have rules, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `x` from `starts` to `ends`.
    Slice,
    /// `x` with `value` around it, as `widths` say.
    Pad,
    /// `tensors` one after another along `dim`.
    Cat,
    /// `x` with its axes of size 1 repeated up to `shape`.
    Expand,
    /// `x` again and again, as `counts` say.
    Repeat,
    /// The elements of `x` in order under `shape`.
    Reshape,
    /// `x` at one position of `dim`, which is dropped.
    Select,
    /// The operand that is read in part, at positions along `dim`, or along its first axis, that another operand holds.
    Lookup(IndexAxes),
    /// Sums over the last axis of the first operand, and the last but one of the second, if it has two.
    Matmul,
    /// Sums over the last axis of both operands.
    Linear,
    /// Groups of rows of the first operand, each from a row of its own on; what is between is 0.
    Groups,
    /// Sums of products of `mat1` and `mat2` in groups that end at `offsets`.
    GroupedSums,
    /// The same with scales, a bias and a type.
    GroupedProducts,
    /// Products of `mat1` and `mat2` with scales of their blocks, in groups of rows that start anywhere.
    ScaledGroups,
    /// The elements of `x` along `dim` up to each one, combined.
    Scan(ReduceOp),
    /// The positions of the elements of `x` along `dim` in order.
    Sort,
    /// `x` with elements of `src` where `index` says.
    Scatter,
    /// `acc` with rows of `value` added where `index` says.
    Put,
    /// Of each place where the run of positions ends at which `index` holds it, and the positions of all runs.
    Runs,
    /// Of each place how many elements of `index` hold it.
    Counts,
    /// `acc` with rows of `value` added, of each place those whose positions are a run of `order`.
    PutRuns,
    /// Such sums of rows in groups with weights.
    PutGroups,
    /// Of each place along `dim` the last position along it at which `index` holds it.
    Last,
    /// The first of the elements of `x` along `dim` in order, and their positions.
    Top,
    /// Numbers from `start` on, each by `step` more than the one before.
    Progression,
    /// The sum of `tensors`, which broadcast against each other.
    SumOf,
}

/// Which elements of its operands a primitive looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// All of all operands.
    Whole,
    /// All, but of the operand of this parameter only as many as its results have.
    Picked(&'static str),
}

/// Which axes of a result are axes of an operand: the same elements in the same
/// order, or a broadcast of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisMap {
    /// None.
    New,
    /// All, in their places, of operands of the result's rank.
    Same,
    /// All, in their places; those of size 1 may be repeated.
    Repeated,
    /// All but the one of this parameter, of operands of the result's rank.
    Except(&'static str),
    /// All; the one of this parameter is dropped.
    Dropped(&'static str),
    /// Those that are neither split nor merged.
    Regrouped,
    /// Those of which these parameters cut nothing off: where they start and end.
    Between([&'static str; 2]),
    /// Those to which this parameter adds nothing: pairs of widths, the
    /// innermost axis first.
    Widened(&'static str),
}

/// When the values and strides of a primitive come from a library. Some have a
/// kernel as well, which is used where it has something else to do too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// Never: a kernel makes them.
    Never,
    /// Always.
    Always,
    /// Where the fusion has no other operation.
    Alone,
}

impl Movement {
    /// New elements, made by a kernel from all elements of the operands.
    pub const NEW: Self = Self {
        reads: Reads::Whole,
        axes: AxisMap::New,
        view: false,
        place: None,
        order: None,
        library: Library::Never,
        positions: None,
        cuts: false,
        form: None,
    };
    /// The axes of the operands.
    pub const SAME: Self = Self::NEW.axes(AxisMap::Same);
    /// What a library makes.
    pub const LIBRARY: Self = Self { library: Library::Always, ..Self::NEW };

    /// The same with another map of axes.
    pub(super) const fn axes(self, axes: AxisMap) -> Self {
        Self { axes, ..self }
    }
    /// The same of which nvFuser may make a view.
    pub(super) const fn view(self) -> Self {
        Self { view: true, ..self }
    }
    /// The same, whose result lies in its operand's memory where the rule says so.
    pub(super) const fn placed(self, rule: ViewRule) -> Self {
        Self { view: true, place: Some(rule), ..self }
    }
    /// The same, whose result lies in its operand's memory where the rule says so, though nvFuser makes no view of it.
    pub(super) const fn in_memory(self, rule: ViewRule) -> Self {
        Self { place: Some(rule), ..self }
    }
    /// The same, but of one operand only what the results have is read.
    pub(super) const fn picks(self, param: &'static str) -> Self {
        Self { reads: Reads::Picked(param), ..self }
    }
    /// The same, left to a library where the fusion does nothing else.
    pub(super) const fn alone(self) -> Self {
        Self { library: Library::Alone, ..self }
    }
    /// The same, where a result holds positions of ordered elements.
    pub(super) const fn positions(self, result: usize) -> Self {
        Self { positions: Some(result), ..self }
    }
    /// The same, before which the fusion is cut.
    pub(super) const fn cut(self) -> Self {
        Self { cuts: true, ..self }
    }
    /// The same, which passes know as this.
    pub(super) const fn form(self, form: Form) -> Self {
        Self { form: Some(form), ..self }
    }
    /// The same, where a parameter asks for an order in memory.
    pub(super) const fn order(self, param: &'static str) -> Self {
        Self { order: Some(param), ..self }
    }
}
