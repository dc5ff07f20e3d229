//! What a primitive does with elements and axes, as far as others must know it
//! who never look at its rules: where nvFuser places its results, which elements
//! it reads, which loops it shares with its operands.
//!
//! Every primitive says it in its row, so that a new one is asked.

/// How elements and axes of the operands come to the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Movement {
    /// Which elements of its operands it looks at.
    pub reads: Reads,
    /// Which axes of its results are axes of its operands.
    pub axes: AxisMap,
    /// Whether nvFuser may make its result a view of its first operand.
    pub view: bool,
    /// The parameter that asks for an order of the axes in memory: their ranks.
    pub order: Option<&'static str>,
    /// When its values and strides come from a library.
    pub library: Library,
    /// The result that holds positions of elements in their order. Which of
    /// equal elements comes first is not specified.
    pub positions: Option<usize>,
    /// Whether the fusion is cut in two before it.
    pub cuts: bool,
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
        order: None,
        library: Library::Never,
        positions: None,
        cuts: false,
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
    /// The same, where a parameter asks for an order in memory.
    pub(super) const fn order(self, param: &'static str) -> Self {
        Self { order: Some(param), ..self }
    }
}
