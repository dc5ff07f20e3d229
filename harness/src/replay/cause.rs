//! By what an entry differs from the committed one, in a few words that are the
//! same for cases that changed alike, whatever their names and sizes.

use super::diff::{Edit, edits};
use super::list::{KernelRow, ListEntry};
use std::collections::BTreeSet;

/// Words of one replacement that are told.
const TOLD: usize = 8;
/// Replacements that are told of a text that changed in many places.
const PARTS: usize = 6;

/// The cause. `texts` are the old and the new CUDA text, where both are known.
pub(super) fn cause(old: Option<&ListEntry>, new: Option<&ListEntry>, texts: Option<(&str, &str)>) -> String {
    match (old, new) {
        (None, None) => String::new(),
        (None, Some(new)) => format!("new: {}", kind(new)),
        (Some(old), None) => format!("gone: {}", kind(old)),
        (Some(ListEntry::Kernel(before)), Some(ListEntry::Kernel(after))) => of_kernels(before, after, texts),
        (Some(old), Some(new)) => format!("{} -> {}", kind(old), kind(new)),
    }
}

fn kind(entry: &ListEntry) -> String {
    match entry {
        ListEntry::Kernel(row) => format!("{} kernel", row.scheduler),
        ListEntry::View => "view".into(),
        ListEntry::Library(_) => "library".into(),
        ListEntry::Host(code) => format!("host {code}"),
        ListEntry::Refused(codes) => format!("refused {codes}"),
    }
}

/// The first of what decides the rest: scheduler, parameters, text, launch.
fn of_kernels(old: &KernelRow, new: &KernelRow, texts: Option<(&str, &str)>) -> String {
    if old.scheduler != new.scheduler {
        return format!("scheduler {} -> {}", old.scheduler, new.scheduler);
    }
    if old.parameters != new.parameters {
        return format!("{} parameters: {}", new.scheduler, of_words(&old.parameters, &new.parameters));
    }
    if old.cuda != new.cuda {
        return match texts {
            // What the kernel calls follows from it: the library alone is told where it alone changed.
            Some((old, new)) if own(old) != own(new) => format!("text: {}", of_texts(own(old), own(new))),
            Some((old, new)) => format!("device library: {}", of_texts(old, new)),
            None => "text, whose old form is not in the archive".into(),
        };
    }
    if old.launch != new.launch {
        // The grid follows the sizes, so its numbers say nothing of the cause.
        let without_grid = |launch: &str| launch.split_once(" block").map(|(_, rest)| rest.to_string());
        return match without_grid(&old.launch) == without_grid(&new.launch) {
            true => "launch: another grid".into(),
            false => format!("launch: {}", of_words(&old.launch, &new.launch)),
        };
    }
    "kernel IR only: CUDA text and launch are the same".into()
}

/// A kernel's text without what it needs of the device library, which stands before it.
fn own(text: &str) -> &str {
    text.find("extern \"C\" __global__").map_or(text, |at| &text[at..])
}

/// Which words of a line are others: each with the word before it, which says
/// what it is (`vector 8 -> 4`).
fn of_words(old: &str, new: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (old.split_whitespace().collect(), new.split_whitespace().collect());
    if a.len() != b.len() {
        return format!("{old} -> {new}");
    }
    let mut parts = Vec::new();
    for (i, (x, y)) in a.iter().zip(&b).enumerate().filter(|(_, (x, y))| x != y) {
        let name = i.checked_sub(1).map_or(String::new(), |i| format!("{} ", a[i]));
        parts.push(format!("{name}{x} -> {y}"));
    }
    parts.join(", ")
}

/// What becomes of the lines of a text.
fn of_texts(old: &str, new: &str) -> String {
    let mut found = BTreeSet::new();
    let all = edits(old, new);
    for hunk in all.split(|edit| matches!(edit, Edit::Stays(_))).filter(|hunk| !hunk.is_empty()) {
        let side = |of: fn(&Edit<'_>) -> bool| -> Vec<Vec<String>> {
            let own = hunk.iter().filter(|edit| of(edit));
            own.map(|edit| words(edit.line())).collect()
        };
        let (gone, come) = (side(|edit| matches!(edit, Edit::Goes(_))), side(|edit| matches!(edit, Edit::Comes(_))));
        if gone.len() == come.len() {
            found.extend(gone.iter().zip(&come).map(|(a, b)| of_line(a, b)));
        } else {
            found.extend(gone.iter().filter(|line| !come.contains(line)).map(|line| format!("- {}", told(line))));
            found.extend(come.iter().filter(|line| !gone.contains(line)).map(|line| format!("+ {}", told(line))));
        }
    }
    let more = found.len().saturating_sub(PARTS);
    let parts: Vec<String> = found.into_iter().take(PARTS).collect();
    let parts = parts.join("; ");
    if more > 0 { format!("{parts}; and more") } else { parts }
}

/// What of a line is replaced by what.
fn of_line(a: &[String], b: &[String]) -> String {
    let head = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let room = a.len().min(b.len()) - head;
    let tail = a.iter().rev().zip(b.iter().rev()).take(room).take_while(|(x, y)| x == y).count();
    let (gone, come) = (&a[head..a.len() - tail], &b[head..b.len() - tail]);
    match (gone.is_empty(), come.is_empty()) {
        (true, true) => "other names".into(),
        (false, true) => format!("- {}", told(gone)),
        (true, false) => format!("+ {}", told(come)),
        (false, false) => format!("{} -> {}", told(gone), told(come)),
    }
}

fn told(words: &[String]) -> String {
    let more = if words.len() > TOLD { " ..." } else { "" };
    format!("{}{more}", words[..words.len().min(TOLD)].join(" "))
}

/// The words and signs of a line of C++. Names that the kernel gives (of its
/// values, parameters and buffers) are all one: they differ between kernels that
/// changed alike.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut rest) = (Vec::new(), line.trim());
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = match is_word(first) {
            true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (word, behind) = rest.split_at(length);
        rest = behind.trim_start();
        let named = first.is_ascii_digit() || !is_word(first) || rest.starts_with(['(', '<', ':']) || is_known(word);
        words.push(if named { word.into() } else { "_".into() });
    }
    words
}

/// Words that mean the same in every kernel.
fn is_known(word: &str) -> bool {
    const KNOWN: &str = " alignas asm bool break char const constexpr continue do double else false float for if inline int \
                         long return short signed sizeof static true unroll unsigned void volatile while struct template \
                         __restrict__ __shared__ __global__ pragma extern ";
    KNOWN.contains(&format!(" {word} ")) || word.starts_with("__") || word.ends_with("_t") || is_vector(word)
}

/// `uint4`, `float2`, ...
fn is_vector(word: &str) -> bool {
    let base = word.trim_end_matches(|c: char| c.is_ascii_digit());
    ["uint", "int", "float", "double", "ushort", "short", "uchar", "char", "ulonglong"].contains(&base)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(parameters: &str, launch: &str, cuda: &str) -> ListEntry {
        ListEntry::Kernel(KernelRow {
            scheduler: "pointwise".into(),
            parameters: parameters.into(),
            launch: launch.into(),
            kernel: cuda.into(),
            cuda: cuda.into(),
        })
    }

    fn check(old: &ListEntry, new: &ListEntry, texts: Option<(&str, &str)>, wanted: &str) {
        assert_eq!(cause(Some(old), Some(new), texts), wanted);
    }

    #[test]
    fn what_decides_is_the_cause() {
        let base = kernel("1d vector 8 threads 128", "grid 4x1x1 block 128x1x1 shared 0", "a");
        let refused = ListEntry::Refused("U0105".into());
        check(&base, &refused, None, "pointwise kernel -> refused U0105");
        check(&refused, &base, None, "refused U0105 -> pointwise kernel");
        let narrow = kernel("1d vector 4 threads 128", "grid 8x1x1 block 128x1x1 shared 0", "b");
        check(&base, &narrow, Some(("x", "y")), "pointwise parameters: vector 8 -> 4");
        let library = ("int f();\nextern \"C\" __global__ k\n", "extern \"C\" __global__ k\n");
        let other = kernel("1d vector 8 threads 128", "grid 4x1x1 block 128x1x1 shared 0", "c");
        check(&base, &other, Some(library), "device library: - int f ( ) ;");
        let grid = kernel("1d vector 8 threads 128", "grid 5x1x1 block 128x1x1 shared 0", "a");
        check(&base, &grid, None, "launch: another grid");
        let shared = kernel("1d vector 8 threads 128", "grid 4x1x1 block 128x1x1 shared 64", "a");
        check(&base, &shared, None, "launch: shared 0 -> 64");
        assert_eq!(cause(None, Some(&refused), None), "new: refused U0105");
        assert_eq!(cause(Some(&base), None, None), "gone: pointwise kernel");
    }

    #[test]
    fn names_and_sizes_are_no_cause() {
        let hint = |name: &str| {
            of_texts(&format!("  float {name} = __ldcs(&{name}[i0]);"), &format!("  float {name} = {name}[i0];"))
        };
        assert_eq!(hint("x"), "__ldcs ( & _ [ _ ] ) -> _ [ _ ]");
        assert_eq!(hint("row_1"), hint("x"));
        let wide = "  *reinterpret_cast<uint4*>(&a[0]) = 1;";
        assert_eq!(of_texts(wide, &wide.replace("uint4", "uint2")), "uint4 -> uint2");
        assert_eq!(of_texts("a\n__syncthreads();\nb", "a\nb"), "- __syncthreads ( ) ;");
    }
}
