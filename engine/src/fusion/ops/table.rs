//! All rows, by family.

use super::row::OpRow;

/// The families, in the order of the documentation.
const FAMILIES: &[&[OpRow]] = &[
    super::elementwise::UNARY,
    super::elementwise::BINARY,
    super::elementwise::TERNARY,
    super::elementwise::OTHERS,
    super::scaled::ROWS,
    super::reduce::ROWS,
    super::shape::ROWS,
    super::views::ROWS,
    super::bitcast::ROWS,
    super::reshape::ROWS,
    super::resize::ROWS,
    super::index::ROWS,
    super::index::accumulate::ROWS,
    super::index::put::ROWS,
    super::embedding::ROWS,
    super::factory::ROWS,
    super::scan::ROWS,
    super::sort::ROWS,
    super::random::ROWS,
    super::stats::ROWS,
    super::softmax::ROWS,
    super::norm::ROWS,
    super::batch::ROWS,
    super::activation::ROWS,
    super::dropout::ROWS,
    super::rnn::ROWS,
    super::matmul::ROWS,
    super::grouped::ROWS,
    super::quant::ROWS,
    super::attention::ROWS,
];

/// Every row.
pub fn all() -> impl Iterator<Item = &'static OpRow> {
    FAMILIES.iter().copied().flatten()
}

/// The row of a name.
pub fn find(name: &str) -> Option<&'static OpRow> {
    all().find(|row| row.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fusion::ops::{Need, OpParamKind};
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_rows_are_well_formed() {
        let mut seen = BTreeSet::new();
        for row in all() {
            assert!(seen.insert(row.name), "{} is declared twice", row.name);
            assert!(row.doc.ends_with('.') && !row.source.is_empty(), "{} is not documented", row.name);
            let names: BTreeSet<_> = row.params.iter().map(|param| param.name).collect();
            assert_eq!(names.len(), row.params.len(), "{}: parameters share a name", row.name);
            let lists = row.params.iter().filter(|param| param.kind == OpParamKind::Tensors).count();
            let last = row.params.iter().rfind(|param| param.kind.is_positional());
            assert!(lists == 0 || last.is_some_and(|param| param.kind == OpParamKind::Tensors), "{}", row.name);
            for param in row.params {
                let fits = match param.need {
                    Need::Required | Need::Optional => true,
                    Need::Bool(value) => param.kind == if value { OpParamKind::Bool } else { OpParamKind::Flag },
                    Need::Int(_) => param.kind == OpParamKind::Int,
                    Need::Number(_) => param.kind == OpParamKind::Number,
                    Need::DType(_) => matches!(param.kind, OpParamKind::DType | OpParamKind::BareDType),
                };
                assert!(fits, "{}: the default of {} has another form", row.name, param.name);
            }
        }
    }
}
