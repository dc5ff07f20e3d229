//! Compiled kernels that the workers of a run share: which folder, and what came
//! of it. The store itself is the engine's.

use engine::backend::cuda::{CodeCounts, CodeStore};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Bytes of a folder's entries, at most: the kernels of the whole suite take a
/// twentieth of it.
const MAX_BYTES: u64 = 1 << 30;

/// What the workers of a run share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum CodeCache {
    /// A folder of the run's, which goes away with it.
    #[default]
    Run,
    /// Nothing: each worker compiles all that it runs.
    Off,
    /// A folder that stays.
    Dir(PathBuf),
}

impl CodeCache {
    /// The folder, absolute, for a run whose private files lie in `work_dir`.
    pub(crate) fn folder(&self, work_dir: &Path) -> Option<PathBuf> {
        let dir = match self {
            CodeCache::Run => work_dir.join("code"),
            CodeCache::Off => return None,
            CodeCache::Dir(dir) => dir.clone(),
        };
        Some(std::path::absolute(&dir).unwrap_or(dir))
    }
}

impl std::fmt::Display for CodeCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CodeCache::Run => f.write_str("run"),
            CodeCache::Off => f.write_str("off"),
            CodeCache::Dir(dir) => write!(f, "{}", dir.display()),
        }
    }
}

/// The store in a folder.
pub(crate) fn store(dir: &Path) -> CodeStore {
    CodeStore::new(dir, MAX_BYTES)
}

/// What was shared, by one worker or by several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CodeUse {
    /// Kernels that were found compiled.
    pub(crate) hits: u64,
    /// Kernels that were compiled.
    pub(crate) misses: u64,
    /// Times that one worker waited until another had compiled.
    pub(crate) waits: u64,
    /// Entries that were not as they had been written, and were compiled again.
    pub(crate) damaged: u64,
    /// Kernels that the others did not get.
    pub(crate) unstored: u64,
    /// Entries that went for want of room.
    pub(crate) evicted: u64,
    /// Entries that compiling anew did not come to, and that it replaced.
    pub(crate) changed: u64,
    /// Why the first that was not stored was not.
    pub(crate) error: Option<String>,
}

impl CodeUse {
    pub(crate) fn of((counts, error): (CodeCounts, Option<String>)) -> Self {
        let CodeCounts { hits, misses, waits, damaged, unstored, evicted, changed } = counts;
        Self { hits, misses, waits, damaged, unstored, evicted, changed, error }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let Self { hits, misses, waits, damaged, unstored, evicted, changed, error } = other;
        let sums = [&mut self.hits, &mut self.misses, &mut self.waits, &mut self.damaged];
        let sums = sums.into_iter().chain([&mut self.unstored, &mut self.evicted, &mut self.changed]);
        sums.zip([hits, misses, waits, damaged, unstored, evicted, changed]).for_each(|(sum, more)| *sum += more);
        self.error = self.error.take().or_else(|| error.clone());
    }

    /// One line for people, or nothing where no kernel was asked for.
    pub(crate) fn text(&self) -> String {
        if self.hits + self.misses == 0 {
            return String::new();
        }
        let mut text = format!("code cache: {} kernels found, {} compiled", self.hits, self.misses);
        let parts = [
            (self.damaged, "damaged entries replaced"),
            (self.changed, "found to be other code than was kept"),
            (self.evicted, "entries removed for room"),
        ];
        for (count, what) in parts {
            if count > 0 {
                text.push_str(&format!(", {count} {what}"));
            }
        }
        if self.unstored > 0 {
            let why = crate::escape::escape(self.error.as_deref().unwrap_or_default(), "");
            text.push_str(&format!("; {} could not be shared: {why}", self.unstored));
        }
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::CodeFrom;

    #[test]
    fn sums_and_words() {
        let mut all = CodeUse::default();
        assert_eq!(all.text(), "");
        all.add(&CodeUse { hits: 3, misses: 2, ..CodeUse::default() });
        assert_eq!(all.text(), "code cache: 3 kernels found, 2 compiled\n");
        let error = Some("/x: full\u{1b}".to_string());
        all.add(&CodeUse { misses: 1, waits: 1, damaged: 1, unstored: 4, evicted: 2, error, ..CodeUse::default() });
        all.add(&CodeUse { unstored: 1, error: Some("/y: gone".into()), ..CodeUse::default() });
        let wanted = "code cache: 3 kernels found, 3 compiled, 1 damaged entries replaced, \
                      2 entries removed for room; 5 could not be shared: /x: full\\x1b\n";
        assert_eq!((all.text().as_str(), all.waits), (wanted, 1));
    }

    #[test]
    fn folders_are_absolute() {
        let folder = |cache: CodeCache| cache.folder(Path::new("results/runs/r/work"));
        assert!(folder(CodeCache::Run).is_some_and(|dir| dir.is_absolute() && dir.ends_with("r/work/code")));
        assert!(
            folder(CodeCache::Dir("shared".into())).is_some_and(|dir| dir.is_absolute() && dir.ends_with("shared"))
        );
        assert_eq!(folder(CodeCache::Off), None);
        let name = serde_json::to_value(CodeFrom::Cached).expect("a word");
        assert_eq!(name, CodeFrom::CACHED);
    }
}
