//! Assembles bytecode from instructions on virtual registers.
//!
//! Virtual registers are assigned once, except loop counters and local memory,
//! which have fixed places. Live ranges are linear; a register that is defined
//! before a loop or branch and used inside lives to the end of that region:
//! for loops because of the next iteration, for branches because the two sides
//! may run in either order, and temporaries are written in all lanes.

use crate::diag::{Diagnostic, Result, code};
use simcore::{File, Flags, Inst, Opcode, Preload, PreloadSource};
use std::collections::BTreeMap;

/// A virtual register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Reg(u32);

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(u32);

/// A field of an instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Field {
    #[default]
    None,
    Reg(Reg),
    Raw(u16),
}

/// An instruction before registers and jumps are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct InstDraft {
    pub(super) op: Opcode,
    pub(super) flags: u16,
    pub(super) d: Field,
    pub(super) a: Field,
    pub(super) b: Field,
    pub(super) c: Field,
    pub(super) imm: u32,
    pub(super) target: Option<Label>,
    /// The statement it belongs to.
    pub(super) origin: u32,
}

impl InstDraft {
    pub(super) fn new(op: Opcode, origin: u32) -> Self {
        let none = Field::None;
        Self { op, flags: 0, d: none, a: none, b: none, c: none, imm: 0, target: None, origin }
    }
}

/// A piece of code.
#[derive(Clone, Copy, Debug)]
pub(super) enum CodeItem {
    Inst(InstDraft),
    Label(Label),
}

#[derive(Clone, Copy, Debug)]
struct RegInfo {
    file: File,
    fixed: Option<u16>,
}

/// Registers, constants and labels of a program under construction.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    regs: Vec<RegInfo>,
    labels: u32,
    /// Registers that hold a value from the start.
    pinned: BTreeMap<(File, PinnedKey), Reg>,
    /// Registers of local memory, by file.
    locals: [u16; 3],
}

/// What a pinned register holds, as an ordered key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PinnedKey {
    Const(u128),
    Param(u32),
    ThreadIdx(u8),
    BlockIdx(u8),
    BlockDim(u8),
    GridDim(u8),
}

fn key(source: PreloadSource) -> PinnedKey {
    match source {
        PreloadSource::Const(v) => PinnedKey::Const(v),
        PreloadSource::Param(v) => PinnedKey::Param(v),
        PreloadSource::ThreadIdx(v) => PinnedKey::ThreadIdx(v),
        PreloadSource::BlockIdx(v) => PinnedKey::BlockIdx(v),
        PreloadSource::BlockDim(v) => PinnedKey::BlockDim(v),
        PreloadSource::GridDim(v) => PinnedKey::GridDim(v),
    }
}

fn source(key: PinnedKey) -> PreloadSource {
    match key {
        PinnedKey::Const(v) => PreloadSource::Const(v),
        PinnedKey::Param(v) => PreloadSource::Param(v),
        PinnedKey::ThreadIdx(v) => PreloadSource::ThreadIdx(v),
        PinnedKey::BlockIdx(v) => PreloadSource::BlockIdx(v),
        PinnedKey::BlockDim(v) => PreloadSource::BlockDim(v),
        PinnedKey::GridDim(v) => PreloadSource::GridDim(v),
    }
}

/// Finished code.
pub(super) struct Assembled {
    pub(super) code: Vec<Inst>,
    pub(super) origin: Vec<u32>,
    /// Registers, by file.
    pub(super) regs: [u16; 3],
    /// Those of local memory, which come first.
    pub(super) locals: [u16; 3],
    pub(super) preloads: Vec<Preload>,
}

impl Assembler {
    /// A new temporary.
    pub(super) fn temp(&mut self, file: File) -> Reg {
        self.regs.push(RegInfo { file, fixed: None });
        Reg(self.regs.len() as u32 - 1)
    }

    /// `count` consecutive registers of local memory; the first.
    pub(super) fn local(&mut self, file: File, count: u32) -> Result<u16> {
        let next = &mut self.locals[file as usize];
        let first = *next;
        let end = u32::from(first) + count;
        *next = u16::try_from(end).map_err(|_| too_large("local memory"))?;
        Ok(first)
    }

    /// A register that holds the given value from the start.
    pub(super) fn pinned(&mut self, from: PreloadSource, file: File) -> Reg {
        if let Some(&reg) = self.pinned.get(&(file, key(from))) {
            return reg;
        }
        let reg = self.temp(file);
        self.pinned.insert((file, key(from)), reg);
        reg
    }

    /// A new place.
    pub(super) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// Resolves labels and allocates registers.
    pub(super) fn finish(mut self, items: Vec<CodeItem>) -> Result<Assembled> {
        let mut drafts = Vec::with_capacity(items.len() + 1);
        let mut places = vec![0u32; self.labels as usize];
        for item in items {
            match item {
                CodeItem::Inst(draft) => drafts.push(draft),
                CodeItem::Label(label) => places[label.0 as usize] = drafts.len() as u32,
            }
        }
        let last = drafts.last().map_or(0, |draft| draft.origin);
        drafts.push(InstDraft::new(Opcode::End, last));
        let target = |draft: &InstDraft| draft.target.map(|label| places[label.0 as usize]);

        // Fixed registers: local memory first, then those that hold a value from the start.
        let mut next = self.locals;
        let mut preloads = Vec::with_capacity(self.pinned.len());
        for (&(file, key), &reg) in &self.pinned {
            let next = &mut next[file as usize];
            self.regs[reg.0 as usize].fixed = Some(*next);
            preloads.push(Preload { reg: *next, file, source: source(key) });
            *next = next.checked_add(1).ok_or_else(|| too_large("constants"))?;
        }
        let ends = self.live_ends(&drafts, &target);
        let (places, regs) = self.allocate(&drafts, &ends, next)?;

        let field = |field: Field| match field {
            Field::None => 0,
            Field::Raw(raw) => raw,
            Field::Reg(reg) => places[reg.0 as usize],
        };
        let code = drafts
            .iter()
            .map(|draft| Inst {
                op: draft.op,
                flags: Flags(draft.flags),
                d: field(draft.d),
                a: field(draft.a),
                b: field(draft.b),
                c: field(draft.c),
                imm: target(draft).unwrap_or(draft.imm),
            })
            .collect();
        Ok(Assembled {
            code,
            origin: drafts.iter().map(|draft| draft.origin).collect(),
            regs,
            locals: self.locals,
            preloads,
        })
    }

    /// For each register the position of its last use, regions considered.
    fn live_ends(&self, drafts: &[InstDraft], target: &dyn Fn(&InstDraft) -> Option<u32>) -> Vec<u32> {
        let regions = Regions::new(drafts, target);
        let none = u32::MAX;
        let mut first = vec![none; self.regs.len()];
        let mut end = vec![0; self.regs.len()];
        for (position, draft) in drafts.iter().enumerate() {
            let position = position as u32;
            for field in [draft.d, draft.a, draft.b, draft.c] {
                let Field::Reg(reg) = field else { continue };
                let reg = reg.0 as usize;
                if first[reg] == none {
                    first[reg] = position;
                }
                end[reg] = end[reg].max(regions.extend(position, first[reg]));
            }
        }
        end
    }

    /// Linear scan: the lowest free register at each definition.
    fn allocate(&self, drafts: &[InstDraft], ends: &[u32], next: [u16; 3]) -> Result<(Vec<u16>, [u16; 3])> {
        let mut place: Vec<Option<u16>> = self.regs.iter().map(|reg| reg.fixed).collect();
        let mut files = next.map(|next| RegisterFile { next, free: Vec::new() });
        let mut dying: Vec<Vec<u32>> = vec![Vec::new(); drafts.len() + 1];
        for (position, draft) in drafts.iter().enumerate() {
            // Registers that end at the instruction before are free now.
            for reg in std::mem::take(&mut dying[position]) {
                let info = self.regs[reg as usize];
                files[info.file as usize].free.extend(place[reg as usize]);
            }
            for field in [draft.d, draft.a, draft.b, draft.c] {
                let Field::Reg(Reg(reg)) = field else { continue };
                if place[reg as usize].is_none() {
                    let file = &mut files[self.regs[reg as usize].file as usize];
                    place[reg as usize] = Some(file.take()?);
                    dying[ends[reg as usize] as usize + 1].push(reg);
                }
            }
        }
        let places = place.into_iter().map(|p| p.unwrap_or(0)).collect();
        Ok((places, files.map(|file| file.next)))
    }
}

struct RegisterFile {
    next: u16,
    free: Vec<u16>,
}

impl RegisterFile {
    fn take(&mut self) -> Result<u16> {
        if let Some(reg) = self.free.pop() {
            return Ok(reg);
        }
        let reg = self.next;
        self.next = reg.checked_add(1).ok_or_else(|| too_large("temporaries"))?;
        Ok(reg)
    }
}

fn too_large(what: &str) -> Box<Diagnostic> {
    Diagnostic::unsupported(code::SIM_FEATURE, format!("the kernel's {what} need more than 65535 simulated registers"))
        .note("unroll less")
}

/// The loops and branches of linear code, as a tree.
struct Regions {
    /// (start, end, parent) by region.
    regions: Vec<(u32, u32, Option<u32>)>,
    /// Innermost region of each instruction.
    innermost: Vec<Option<u32>>,
}

impl Regions {
    fn new(drafts: &[InstDraft], target: &dyn Fn(&InstDraft) -> Option<u32>) -> Self {
        let mut regions: Vec<(u32, u32, Option<u32>)> = Vec::new();
        let mut innermost = vec![None; drafts.len()];
        let mut open: Vec<u32> = Vec::new();
        for (position, draft) in drafts.iter().enumerate() {
            let position = position as u32;
            while open.last().is_some_and(|&region| regions[region as usize].1 < position) {
                open.pop();
            }
            let end = match draft.op {
                // The exit label of a loop follows its `Next`.
                Opcode::Loop => target(draft).map(|exit| exit - 1),
                Opcode::If => Some(branch_end(drafts, target, position) - 1),
                _ => None,
            };
            if let Some(end) = end {
                regions.push((position, end, open.last().copied()));
                open.push(regions.len() as u32 - 1);
            }
            innermost[position as usize] = open.last().copied();
        }
        Self { regions, innermost }
    }

    /// The last position to which a use at `position` of a register first
    /// mentioned at `first` keeps it alive.
    fn extend(&self, position: u32, first: u32) -> u32 {
        let mut end = position;
        let mut region = self.innermost[position as usize];
        while let Some(id) = region {
            let (start, last, parent) = self.regions[id as usize];
            if start <= first {
                // A loop's counter is mentioned by the loop itself and lives through it.
                if start == first {
                    end = last;
                }
                break;
            }
            end = last;
            region = parent;
        }
        end
    }
}

/// Where the branch at `position` ends: the target of the `Join` before its
/// other side, or its own target if it has none.
fn branch_end(drafts: &[InstDraft], target: &dyn Fn(&InstDraft) -> Option<u32>, position: u32) -> u32 {
    let draft = &drafts[position as usize];
    let other = target(draft).unwrap_or(position + 1);
    match draft.c {
        Field::Raw(0) => other,
        _ => target(&drafts[other as usize - 1]).unwrap_or(other),
    }
}
