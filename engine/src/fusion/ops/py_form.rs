//! Where nvFuser's Python form of an operation is not that of the row: facts
//! that its reader (`pydef`) acts on.

/// How the Python form differs from the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PyForm {
    /// Further names of the operation there.
    pub names: &'static [&'static str],
    /// How arguments are given.
    pub args: PyArgs,
    /// The type of the results.
    pub result: PyResult,
    /// Whether results are listed that may be None.
    pub optional_results: bool,
    /// Whether an input that is its table is changed in place.
    pub updates_table: bool,
}

/// How arguments are given in the Python form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PyArgs {
    /// As the row has them.
    Same,
    /// The second one may be the type; one axis may be named `dim`.
    Reduction,
    /// Bounds follow the type of the first operand; one that is None does not bound.
    Bounds,
    /// Scales that are None, and a type that is none.
    Grouped,
    /// Seed and offset may be left to the generator.
    Generator,
}

/// The type of the results in the Python form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PyResult {
    /// As the row gives it.
    Same,
    /// That of the first operand, also where it is a type that only stores.
    First,
    /// That of the operands between which the first one chooses: the choice
    /// itself computes nothing.
    Chosen,
    /// Moments divide by a count, which is an `f64`: so are those of integers.
    Moment,
}

impl PyForm {
    /// The row's.
    pub const SAME: Self =
        Self { names: &[], args: PyArgs::Same, result: PyResult::Same, optional_results: false, updates_table: false };

    /// The row's, but for the arguments.
    pub(super) const fn args(args: PyArgs) -> Self {
        Self { args, ..Self::SAME }
    }
    /// The row's, but for the type of the results.
    pub(super) const fn result(result: PyResult) -> Self {
        Self { result, ..Self::SAME }
    }
    /// The row's under a further name.
    pub(super) const fn named(names: &'static [&'static str]) -> Self {
        Self { names, ..Self::SAME }
    }
}
