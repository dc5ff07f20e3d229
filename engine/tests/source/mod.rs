//! Source text as tests of the architecture see it: the code that is built into the
//! library, and the modules of the crate that it names.
//!
//! Every line of a file is seen. Comments, literals and items under `#[cfg(test)]` are
//! blanked, so that lines keep their numbers; what stands behind such an item is code again.

use std::path::{Path, PathBuf};

/// The Rust files below a folder, in order.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The code of a file without comments, literals and tests, character for character as
/// long as before.
pub(crate) fn code(text: &str) -> String {
    let mut chars = without_literals(text);
    let mut at = 0;
    while let Some(found) = find(&chars, "#[cfg(test)]", at) {
        let body = found + "#[cfg(test)]".len();
        let end = item_end(&chars, body).unwrap_or(body);
        blank(&mut chars[found..end]);
        at = end;
    }
    chars.into_iter().collect()
}

/// A module that code names, and the line where it does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named {
    pub(crate) line: usize,
    pub(crate) module: String,
}

/// The modules at the root of the crate that code names: by `crate::`, also in groups,
/// and by as many `super::` as lead there from a file that lies `depth` modules deep.
pub(crate) fn named(code: &str, depth: usize) -> Vec<Named> {
    let chars: Vec<char> = code.chars().collect();
    let mut found = Vec::new();
    let mut line = 1;
    // Modules that are open within the file: the depth of braces at which each began.
    let (mut braces, mut inner) = (0usize, Vec::new());
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        match c {
            '\n' => line += 1,
            '{' => braces += 1,
            '}' => {
                braces = braces.saturating_sub(1);
                inner.retain(|opened| *opened < braces + 1);
            }
            _ if starts_word(&chars, at) => {
                let word = word(&chars, at);
                let behind = at + word.len();
                match word.as_str() {
                    "mod" if opens_module(&chars, behind) => inner.push(braces + 1),
                    "crate" => found.extend(roots(&chars, behind).into_iter().map(|module| Named { line, module })),
                    "super" => {
                        let (count, end) = supers(&chars, behind);
                        if count == depth + inner.len() {
                            found.extend(roots(&chars, end).into_iter().map(|module| Named { line, module }));
                        }
                        line += chars[behind..end].iter().filter(|c| **c == '\n').count();
                        at = end;
                        continue;
                    }
                    _ => {}
                }
                at = behind;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// What follows a path to the root: the first names behind `::`, one or those of a group.
fn roots(chars: &[char], at: usize) -> Vec<String> {
    let Some(at) = separator(chars, at) else { return Vec::new() };
    if chars.get(at) != Some(&'{') {
        return [word(chars, at)].into_iter().filter(|name| !name.is_empty()).collect();
    }
    let (mut names, mut depth, mut first) = (Vec::new(), 0, false);
    let mut at = at;
    while let Some(c) = chars.get(at) {
        match c {
            '{' => (depth, first) = (depth + 1, depth == 0),
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' if depth == 1 => first = true,
            _ if first && starts_word(chars, at) => {
                names.push(word(chars, at));
                first = false;
            }
            _ => {}
        }
        at += 1;
    }
    names
}

/// How many `super` a path begins with, the first of which ends at `at`, and where they end.
fn supers(chars: &[char], mut at: usize) -> (usize, usize) {
    let mut count = 1;
    while let Some(next) = separator(chars, at)
        && word(chars, next) == "super"
    {
        (count, at) = (count + 1, next + "super".len());
    }
    (count, at)
}

/// Behind `::` and blanks, if that is what comes.
fn separator(chars: &[char], at: usize) -> Option<usize> {
    let at = skip_blanks(chars, at);
    (chars.get(at..at + 2)? == [':', ':']).then(|| skip_blanks(chars, at + 2))
}

fn opens_module(chars: &[char], at: usize) -> bool {
    let name = skip_blanks(chars, at);
    let behind = skip_blanks(chars, name + word(chars, name).len());
    chars.get(behind) == Some(&'{')
}

/// The end of the item at `at`: behind its `;`, or behind its body. `None` for what is no
/// item, such as an expression: that is taken for code.
fn item_end(chars: &[char], at: usize) -> Option<usize> {
    let mut at = skip_blanks(chars, at);
    while chars.get(at) == Some(&'#') {
        at = skip_blanks(chars, closing(chars, at + 1)?);
    }
    let mut first = word(chars, at);
    if first == "pub" {
        at = skip_blanks(chars, at + 3);
        if chars.get(at) == Some(&'(') {
            at = skip_blanks(chars, closing(chars, at)?);
        }
        first = word(chars, at);
    }
    let items = [
        "mod",
        "use",
        "fn",
        "const",
        "static",
        "struct",
        "enum",
        "impl",
        "trait",
        "type",
        "unsafe",
        "async",
        "macro_rules",
    ];
    if !items.contains(&first.as_str()) {
        return None;
    }
    let is_use = first == "use";
    while let Some(c) = chars.get(at) {
        match c {
            ';' => return Some(at + 1),
            '{' if !is_use => return closing(chars, at),
            '(' | '[' | '{' => at = closing(chars, at)?,
            _ => at += 1,
        }
    }
    None
}

/// Behind the bracket that closes the one at `at`.
fn closing(chars: &[char], at: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (offset, c) in chars[at..].iter().enumerate() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + offset + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The characters of a text with blanks for comments and for what stands in literals.
fn without_literals(text: &str) -> Vec<char> {
    let mut chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end > at {
            blank(&mut chars[at..end]);
            at = end;
        } else if starts_word(&chars, at) {
            at += word(&chars, at).len();
        } else {
            at += 1;
        }
    }
    chars
}

/// Where the comment or literal at `at` ends; `at` if there is none.
fn literal_end(chars: &[char], at: usize) -> usize {
    let rest = &chars[at..];
    let until = |from: usize, wanted: &[char]| {
        let found = rest.get(from..).and_then(|rest| rest.windows(wanted.len()).position(|part| part == wanted));
        found.map_or(chars.len(), |found| at + from + found + wanted.len())
    };
    let raw = raw_hashes(chars, at);
    match (rest[0], rest.get(1)) {
        ('/', Some('/')) => until(0, &['\n']).min(chars.len()),
        ('/', Some('*')) => until(2, &['*', '/']),
        _ if raw.is_some() => {
            let hashes = raw.unwrap_or_default();
            let close: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
            let quote = rest.iter().position(|c| *c == '"').unwrap_or_default();
            until(quote + 1, &close)
        }
        ('"', _) => quoted_end(chars, at + 1, '"'),
        // A lifetime has no quote behind its first character.
        ('\'', Some('\\')) => quoted_end(chars, at + 1, '\''),
        ('\'', Some(_)) if rest.get(2) == Some(&'\'') => at + 3,
        _ => at,
    }
}

/// The `#` of a raw string that begins at `at`, if one does.
fn raw_hashes(chars: &[char], at: usize) -> Option<usize> {
    if !starts_word(chars, at) {
        return None;
    }
    let prefix = word(chars, at);
    let hashes = chars[at + prefix.len()..].iter().take_while(|c| **c == '#').count();
    let is_raw = matches!(prefix.as_str(), "r" | "br" | "cr");
    (is_raw && chars.get(at + prefix.len() + hashes) == Some(&'"')).then_some(hashes)
}

fn quoted_end(chars: &[char], mut at: usize, quote: char) -> usize {
    while let Some(c) = chars.get(at) {
        match *c {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

fn blank(chars: &mut [char]) {
    chars.iter_mut().filter(|c| **c != '\n').for_each(|c| *c = ' ');
}

fn find(chars: &[char], wanted: &str, from: usize) -> Option<usize> {
    let wanted: Vec<char> = wanted.chars().collect();
    chars[from..].windows(wanted.len()).position(|part| part == wanted).map(|at| from + at)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn starts_word(chars: &[char], at: usize) -> bool {
    is_word(chars[at]) && (at == 0 || !is_word(chars[at - 1]))
}

fn word(chars: &[char], at: usize) -> String {
    chars[at.min(chars.len())..].iter().take_while(|c| is_word(**c)).collect()
}

fn skip_blanks(chars: &[char], at: usize) -> usize {
    at + chars[at.min(chars.len())..].iter().take_while(|c| c.is_whitespace()).count()
}
