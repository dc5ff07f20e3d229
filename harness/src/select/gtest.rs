//! gtest's filter syntax over case ids: `A*:B*-C*`. Patterns before the first
//! `-` select, those after it deselect; `*` matches any run of characters
//! (also `/` and `.`), `?` one. Several filters select what each of them does.

use super::glob::glob;
use crate::escape::short;
use engine::diag::{Diagnostic, Result, code};

/// One `--filter` argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    positive: Vec<String>,
    negative: Vec<String>,
}

impl Filter {
    /// Parses a filter. As in gtest the first `-` begins the negative part,
    /// except directly behind `=`, where it is the sign of a value (`a=-1`).
    pub fn parse(text: &str) -> Result<Self> {
        if text.trim().is_empty() {
            return Err(Diagnostic::user(code::BAD_FILTER, "the filter is empty")
                .note("gtest syntax: 'A*:B*-C*'; '*' selects all"));
        }
        if let Some(c) = text.chars().find(|c| c.is_whitespace() || c.is_control()) {
            let message = format!("the filter `{}` holds the character {c:?}, which no id has", short(text));
            return Err(
                Diagnostic::user(code::BAD_FILTER, message).note("patterns are separated by `:`, as in 'A*:B*-C*'")
            );
        }
        let split = text.char_indices().find(|(i, c)| *c == '-' && !text[..*i].ends_with('='));
        let (positive, negative) = match split {
            Some((i, _)) => (&text[..i], Some(&text[i + 1..])),
            None => (text, None),
        };
        let list = |text: &str| text.split(':').filter(|p| !p.is_empty()).map(String::from).collect::<Vec<_>>();
        let negative = match negative.map(list) {
            Some(patterns) if patterns.is_empty() => {
                let message = format!("the filter `{}` has no pattern behind `-`", short(text));
                return Err(Diagnostic::user(code::BAD_FILTER, message).note("gtest syntax: 'A*:B*-C*'"));
            }
            patterns => patterns.unwrap_or_default(),
        };
        let positive = if positive.is_empty() { vec!["*".into()] } else { list(positive) };
        Ok(Self { positive, negative })
    }

    /// Whether an id is selected.
    pub fn matches(&self, id: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| glob(pattern, id));
        any(&self.positive) && !any(&self.negative)
    }
}

/// Whether every filter selects the id.
pub fn selected(filters: &[Filter], id: &str) -> bool {
    filters.iter().all(|filter| filter.matches(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(filter: &str, id: &str, wanted: bool) {
        let filter = Filter::parse(filter).expect("a good filter");
        assert_eq!(filter.matches(id), wanted, "{filter:?} on {id}");
    }

    #[test]
    fn gtest_syntax() {
        let id = "ResizeTest.SliceReduceScheduler2/dtype=bf16,m=123";
        check("*Scheduler*", id, true);
        check("ResizeTest.*", id, true);
        check("ResizeTest", id, false);
        check("A*:Resize*", id, true);
        check("*-*m=123", id, false);
        check("-*m=123", id, false);
        check("*Scheduler?/*", id, true);
        check("*dtype=f32*:*m=12?", id, true);
        check("*a=-1", "S.C/a=-1", true);
        check("*-*a=-1:*a=2", "S.C/a=-1", false);
        check("*a*a*a*a*a*a*a*b", &"a".repeat(150), false);
    }

    #[test]
    fn malformed_filters_are_refused() {
        for bad in ["", "  ", "A B", "A-", "A-:"] {
            let error = Filter::parse(bad).expect_err(bad);
            assert_eq!(error.code, code::BAD_FILTER, "{bad}");
        }
    }

    #[test]
    fn several_filters_intersect() {
        let filters = [Filter::parse("A.*").expect("good"), Filter::parse("*=1").expect("good")];
        assert!(selected(&filters, "A.x/n=1"));
        assert!(!selected(&filters, "A.x/n=2"));
    }
}
