//! What both back ends say about memory that a kernel treated wrongly.

use crate::array::parallel;
use crate::diag::{Diagnostic, code};

/// Numbers of elements that a message names.
pub(crate) const SHOWN: usize = 8;

/// Elements, by how many there are and the numbers of the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Elements {
    pub(crate) count: u64,
    pub(crate) first: Vec<u64>,
}

impl Elements {
    /// Adds an element; numbers come in ascending order.
    pub(crate) fn add(&mut self, number: u64) {
        self.count += 1;
        if self.first.len() < SHOWN {
            self.first.push(number);
        }
    }

    /// These and those of a later part.
    fn and(mut self, later: Self) -> Self {
        self.count += later.count;
        self.first.extend(later.first);
        self.first.truncate(SHOWN);
        self
    }
}

/// Bytes that one thread looks through.
const PART: usize = 1 << 20;

/// The elements of that many bytes that `found` keeps.
pub(crate) fn elements_where(data: &[u8], element: usize, found: impl Fn(usize, &[u8]) -> bool + Sync) -> Elements {
    let element = element.max(1);
    in_parts(data, element, &|first, part| {
        let mut elements = Elements::default();
        for (number, bytes) in part.chunks_exact(element).enumerate() {
            if found(first + number, bytes) {
                elements.add((first + number) as u64);
            }
        }
        elements
    })
}

/// What `of` finds in parts of the data, beginning with the number of a part's first element; on all threads, since
/// outputs can be large.
fn in_parts(data: &[u8], element: usize, of: &(dyn Fn(usize, &[u8]) -> Elements + Sync)) -> Elements {
    let elements = (PART / element).max(1);
    let parts: Vec<&[u8]> = data.chunks(elements * element).collect();
    let found = parallel::results(parts.len(), &|i| of(i * elements, parts[i]));
    found.into_iter().fold(Elements::default(), Elements::and)
}

/// The elements of that many bytes that hold nothing but a poison: the usual widths are compared as one number each.
pub(crate) fn poisoned(data: &[u8], element: usize, poison: u8) -> Elements {
    match element {
        0 | 1 => poisoned_wide::<1>(data, poison),
        2 => poisoned_wide::<2>(data, poison),
        4 => poisoned_wide::<4>(data, poison),
        8 => poisoned_wide::<8>(data, poison),
        16 => poisoned_wide::<16>(data, poison),
        _ => elements_where(data, element, |_, bytes| is_poison(bytes, poison)),
    }
}

fn poisoned_wide<const N: usize>(data: &[u8], poison: u8) -> Elements {
    in_parts(data, N, &|first, part| {
        let mut elements = Elements::default();
        for (number, bytes) in part.as_chunks::<N>().0.iter().enumerate() {
            if *bytes == [poison; N] {
                elements.add((first + number) as u64);
            }
        }
        elements
    })
}

/// Whether bytes hold nothing but a poison.
pub(crate) fn is_poison(bytes: &[u8], poison: u8) -> bool {
    bytes.iter().all(|byte| *byte == poison)
}

/// The refusal of a kernel that left elements unwritten.
pub(crate) fn unwritten(kernel: &str, output: usize, name: &str, elements: &Elements) -> Box<Diagnostic> {
    let Elements { count, first } = elements;
    let list: Vec<String> = first.iter().map(u64::to_string).collect();
    let more = if *count > first.len() as u64 { ", ..." } else { "" };
    let message = format!("kernel {kernel} leaves {count} elements of output {output} `%{name}` unwritten");
    Diagnostic::bug_code(code::UNWRITTEN, message)
        .note(format!("in the order of memory these are elements {}{more}", list.join(", ")))
}

/// The refusal of a kernel that wrote into an input. `found` and `expected` are
/// the same part of it, which starts at byte `start`, and differ.
pub(crate) fn input_changed(name: &str, found: &[u8], expected: &[u8], start: usize) -> Box<Diagnostic> {
    let differ = |(a, b): (&u8, &u8)| a != b;
    let changed = found.iter().zip(expected).filter(|&pair| differ(pair)).count();
    let first = start + found.iter().zip(expected).position(differ).unwrap_or(0);
    let message = format!("a kernel changed {changed} bytes of {name}, the first at byte {first}");
    Diagnostic::bug_code(code::INPUT_CHANGED, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_elements_count() {
        let data = [0xff, 0xff, 0xff, 0, 0, 0xff, 0xff, 0xff];
        assert_eq!(poisoned(&data, 2, 0xff), Elements { count: 2, first: vec![0, 3] });
        for element in [1, 2, 3, 4, 8, 16] {
            let slow = elements_where(&data, element, |_, bytes| is_poison(bytes, 0xff));
            assert_eq!(poisoned(&data, element, 0xff), slow, "{element}");
        }
        // Of several parts, and the last one is no whole element.
        let mut long = vec![0; 3 * PART + 5];
        [0, PART - 4, PART, 3 * PART].iter().for_each(|start| long[*start..start + 4].fill(7));
        let numbers: Vec<u64> = [0, PART / 4 - 1, PART / 4, 3 * PART / 4].map(|number| number as u64).to_vec();
        assert_eq!(poisoned(&long, 4, 7), Elements { count: 4, first: numbers });
        assert_eq!(poisoned(&long, 3, 7), elements_where(&long, 3, |_, bytes| is_poison(bytes, 7)));
        let many = poisoned(&[7; 100], 1, 7);
        assert_eq!((many.count, many.first.len()), (100, SHOWN));
    }

    #[test]
    fn messages_name_the_first_places() {
        let elements = Elements { count: 3, first: vec![4, 5] };
        let error = unwritten("k", 1, "y", &elements);
        assert_eq!(error.message, "kernel k leaves 3 elements of output 1 `%y` unwritten");
        assert_eq!(error.notes, ["in the order of memory these are elements 4, 5, ..."]);
        let error = input_changed("input 0", &[1, 9, 3, 9], &[1, 2, 3, 4], 100);
        assert_eq!(error.message, "a kernel changed 2 bytes of input 0, the first at byte 101");
    }
}
