//! The device library: C++ text in named sections, emitted by need.
//!
//! A section starts with `//@ name : needs needs`, where each need is another
//! section. [`collect`] returns the sections that a kernel uses, and what they
//! need, in the library's order, so a section only needs earlier ones.

use std::collections::BTreeSet;

/// The library's text.
const TEXT: &[&str] = &[
    include_str!("library/types.cu"),
    include_str!("library/math.cu"),
    include_str!("library/random.cu"),
    include_str!("library/memory.cu"),
    include_str!("library/complex.cu"),
];

/// One section.
#[derive(Clone, Copy, Debug)]
struct Section {
    name: &'static str,
    needs: &'static str,
    text: &'static str,
}

/// All sections in order.
fn sections() -> Vec<Section> {
    let chunks = TEXT.iter().flat_map(|file| file.split("//@ ").skip(1));
    let parse = |chunk: &'static str| {
        let (head, text) = chunk.split_once('\n').unwrap_or((chunk, ""));
        let (name, needs) = head.split_once(':').unwrap_or((head, ""));
        Section { name: name.trim(), needs, text: text.trim_end() }
    };
    chunks.map(parse).collect()
}

/// Names that the library defines; sections are called after what they define.
pub(super) fn names() -> BTreeSet<&'static str> {
    let overloads =
        ["to_float", "philox_block", "load_words", "word_of", "bits_of_word", "shuffle_mode", "shuffle_word"];
    let modes = ["shuffle_xor", "shuffle_up", "shuffle_down", "shuffle_index"];
    sections().into_iter().map(|section| section.name).chain(overloads).chain(modes).collect()
}

/// The text of the used sections and everything that they need.
pub(super) fn collect(used: &BTreeSet<&'static str>) -> String {
    let mut wanted = used.clone();
    let mut texts = Vec::new();
    // Needs point backwards, so one pass from the end finds everything.
    for section in sections().into_iter().rev() {
        if wanted.contains(section.name) {
            wanted.extend(section.needs.split_whitespace());
            texts.push(section.text);
        }
    }
    let mut out = String::new();
    for text in texts.iter().rev() {
        out.push_str(text);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_point_to_earlier_sections_and_names_are_unique() {
        let mut seen = BTreeSet::new();
        for section in sections() {
            for need in section.needs.split_whitespace() {
                assert!(seen.contains(need), "section {} needs {need}, which is not earlier", section.name);
            }
            assert!(seen.insert(section.name), "section {} is there twice", section.name);
            assert!(!section.text.is_empty(), "section {} is empty", section.name);
        }
    }
}
