//! The stack of a thread of a dead or hanging worker: functions, files and lines of our
//! own binary, module and offset of everything else. Recorded as it is.

use serde::Serialize;
use std::fmt;

/// Crates whose functions are the project's.
const OURS: [&str; 3] = ["engine", "harness", "simcore"];

/// One call. Inlined functions are calls of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Frame {
    /// The file's name of the module; empty for an address in no file.
    pub(crate) module: String,
    /// Address in the module's own terms, for other tools.
    pub(crate) offset: u64,
    pub(crate) symbol: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

/// A thread with its stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Stack {
    pub(crate) thread: u32,
    pub(crate) name: String,
    /// Innermost first.
    pub(crate) frames: Vec<Frame>,
    /// Calls in the middle that are left out, and how many frames stand before them.
    pub(crate) left_out: usize,
    pub(crate) left_out_at: usize,
    /// State and kernel function of a thread that was asked, where known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) state: String,
}

impl Frame {
    /// Whether the function is the project's own.
    pub(crate) fn is_ours(&self) -> bool {
        let source = |file: &str| OURS.iter().any(|name| file.contains(&format!("/{name}/src/")));
        if self.file.as_deref().is_some_and(source) {
            return true;
        }
        let symbol = self.symbol.as_deref().unwrap_or_default();
        let path = symbol.trim_start_matches(['<', '&', '*', '(']);
        let path = ["mut ", "dyn ", "const "].iter().fold(path, |path, word| path.strip_prefix(word).unwrap_or(path));
        OURS.iter().any(|name| path.strip_prefix(name).is_some_and(|rest| rest.starts_with("::")))
    }
}

impl Frame {
    /// What lies between our own calls and tells nothing: the standard library and thread pools.
    fn is_plumbing(&self) -> bool {
        let path = self.symbol.as_deref().unwrap_or_default().trim_start_matches(['<', '&']);
        self.file.as_deref().is_some_and(|file| file.contains("/library/") || file.contains("/.cargo/"))
            || ["std::", "core::", "alloc::", "__rust", "rayon"].iter().any(|start| path.starts_with(start))
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.symbol {
            Some(symbol) => f.write_str(symbol)?,
            None if self.module.is_empty() => write!(f, "{:#x}, in no module", self.offset)?,
            None => write!(f, "{}+{:#x}", self.module, self.offset)?,
        }
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, " at {}:{line}", short(file)),
            _ if self.symbol.is_some() => write!(f, " in {}+{:#x}", self.module, self.offset),
            _ => Ok(()),
        }
    }
}

impl Stack {
    /// The calls that tell a person most, at most `count` lines: without the
    /// standard library's between our own, calls of itself as one.
    pub(crate) fn lines(&self, count: usize) -> Vec<String> {
        let mut groups: Vec<(&Frame, usize, usize)> = Vec::new();
        for (at, frame) in self.frames.iter().enumerate().filter(|(at, frame)| *at == 0 || !frame.is_plumbing()) {
            match groups.last_mut() {
                Some((last, times, _)) if last.symbol.is_some() && last.symbol == frame.symbol => *times += 1,
                _ => groups.push((frame, 1, 0)),
            }
            if let (true, Some((_, _, more))) = (at + 1 == self.left_out_at, groups.last_mut()) {
                *more = self.left_out;
            }
        }
        let line = |(frame, times, more): &(&Frame, usize, usize)| match (times, more) {
            (1, 0) => frame.to_string(),
            (_, 0) => format!("{frame}, {times} times"),
            _ => format!("{frame}, {times} times; then {more} calls left out"),
        };
        groups.iter().take(count).map(line).collect()
    }
}

/// A source path from the last folder of sources on, or the standard library's.
fn short(file: &str) -> &str {
    if let Some(at) = file.find("/library/") {
        return &file[at + 1..];
    }
    let parent = |at: usize| file[..at].rfind('/').map_or(0, |slash| slash + 1);
    file.rfind("/src/").map_or(file, |at| &file[parent(at)..])
}
