//! Rewrites expectations in case files. An edit is made only if every case of
//! the line that ran agrees on it, since one line serves many ids.

use crate::verdict::Bless;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Collected rewrites by file, and lines on which a case was content.
#[derive(Default)]
pub(super) struct Blessings {
    edits: BTreeMap<(String, usize, String), BTreeSet<(String, String)>>,
}

impl Blessings {
    pub(super) fn add(&mut self, file: &str, edits: &[Bless]) {
        for Bless { line, key, old, new } in edits {
            let entry = self.edits.entry((file.to_string(), *line, key.clone())).or_default();
            entry.insert((old.clone(), new.clone()));
        }
    }

    /// Writes the files; returns what was done, in words.
    pub(super) fn apply(&self) -> Vec<String> {
        let mut report = Vec::new();
        for ((file, line, key), pairs) in &self.edits {
            let mut pairs = pairs.iter();
            let (Some((old, new)), None) = (pairs.next(), pairs.next()) else {
                report.push(format!("{file}:{line}: not rewritten, the cases of this line disagree about `{key}`"));
                continue;
            };
            report.push(match rewrite(Path::new(file), *line, key, old, new) {
                Ok(()) => format!("{file}:{line}: {key}: {old} -> {new}"),
                Err(why) => format!("{file}:{line}: not rewritten: {why}"),
            });
        }
        report
    }
}

fn rewrite(file: &Path, line: usize, key: &str, old: &str, new: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let mut lines: Vec<String> = text.split_inclusive('\n').map(String::from).collect();
    let content = lines.get_mut(line - 1).ok_or("the file has changed")?;
    *content =
        edited(content, key, old, new).ok_or_else(|| format!("`{key}` with `{old}` does not stand there literally"))?;
    std::fs::write(file, lines.concat()).map_err(|error| error.to_string())
}

/// Replaces the first `old` behind `key` in the line's comment.
fn edited(line: &str, key: &str, old: &str, new: &str) -> Option<String> {
    let comment = line.find(';')?;
    let behind_key = comment + line[comment..].find(key)? + key.len();
    let at = behind_key + line[behind_key..].find(old)?;
    Some(format!("{}{new}{}", &line[..at], &line[at + old.len()..]))
}

#[cfg(test)]
mod tests {
    use super::edited;

    #[test]
    fn only_the_value_changes() {
        let line = "; expect: kernels = 1, scheduler = pointwise  ; why\n";
        assert_eq!(
            edited(line, "scheduler", "pointwise", "reduction").as_deref(),
            Some("; expect: kernels = 1, scheduler = reduction  ; why\n")
        );
        assert_eq!(edited(line, "vector", "4", "8"), None);
        let line = "  %0 = sum %x axes(9) ; error: E0205 \"axis 9\"\n";
        assert_eq!(
            edited(line, "error", "E0205 \"axis 9\"", "E0206 \"x\"").as_deref(),
            Some("  %0 = sum %x axes(9) ; error: E0206 \"x\"\n")
        );
    }
}
