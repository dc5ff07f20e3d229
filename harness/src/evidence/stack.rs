//! Stacks from raw facts: the calls of a thread, with the functions, files and lines of
//! our own binary, and module and offset of everything else.

use super::modules::{CodePlace, Modules};
use super::unwind;
use crate::os::area::Raw;
use crate::outcome::{Frame, Stack};
use std::path::Path;

/// Calls that are kept of the top and of the bottom of a stack.
const TOP: usize = 64;
const BOTTOM: usize = 16;

/// The stacks of threads of a process with the given map of memory and binary.
pub(crate) fn stacks(raws: &[Raw], maps: &str, exe: &Path) -> Vec<Stack> {
    let modules = Modules::new(maps, exe);
    raws.iter().map(|raw| stack(raw, &modules)).collect()
}

fn stack(raw: &Raw, modules: &Modules) -> Stack {
    let calls = unwind::walk(raw, modules);
    let left_out = calls.len().saturating_sub(TOP + BOTTOM);
    let (top, rest) = calls.split_at(calls.len().min(TOP));
    let bottom = &rest[left_out..];
    let mut all: Vec<Frame> = top.iter().flat_map(|pc| frames(*pc, modules)).collect();
    let left_out_at = all.len();
    all.extend(bottom.iter().flat_map(|pc| frames(*pc, modules)));
    Stack { thread: raw.thread, name: raw.name.clone(), frames: all, left_out, left_out_at, state: String::new() }
}

fn frames(pc: u64, modules: &Modules) -> Vec<Frame> {
    let Some(CodePlace { path, address, module, .. }) = modules.place(pc) else {
        return vec![Frame { offset: pc, ..Frame::default() }];
    };
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let functions = module.map_or_else(Vec::new, |module| module.functions(address));
    let bare = Frame { module: name, offset: address, ..Frame::default() };
    if functions.is_empty() {
        return vec![bare];
    }
    let full = |function: super::modules::Function| Frame {
        symbol: Some(function.symbol),
        file: function.file,
        line: function.line,
        ..bare.clone()
    };
    functions.into_iter().map(full).collect()
}
