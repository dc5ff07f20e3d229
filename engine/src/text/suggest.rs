//! Nearest names, for "did you mean".

use crate::util::edit_distance;

/// The candidate nearest to a word, if it is near enough to be meant; the
/// first in order of the alphabet among equals.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words have no near name and would cost time in hostile texts.
    if word.len() > 64 {
        return None;
    }
    let limit = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(word.len()) <= limit)
        .map(|candidate| (edit_distance(word, candidate), candidate))
        .min()
        .filter(|(distance, _)| *distance <= limit)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_is_near_or_nothing() {
        let names = ["add", "addcmul", "softmax", "sub"];
        assert_eq!(nearest("ad", names), Some("add"));
        assert_eq!(nearest("sotfmax", names), Some("softmax"));
        assert_eq!(nearest("convolution", names), None);
    }
}
