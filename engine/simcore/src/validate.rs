//! Checks that no instruction can leave the executor's own arrays.

use crate::memory::GlobalMemory;
use crate::op::Opcode;
use crate::program::{AtomicKind, Elem, File, Flags, Inst, LaunchConfig, PreloadSource, Program, SpaceKind};

type Valid = Result<(), String>;

fn ensure(holds: bool, what: &str) -> Valid {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

impl Program {
    /// Checks registers, jumps, slots, tables, buffers and launch numbers.
    pub fn validate(&self, launch: &LaunchConfig, memory: &GlobalMemory) -> Valid {
        ensure(self.code.last().is_some_and(|inst| inst.op == Opcode::End), "the last instruction is no end")?;
        ensure((1..=1024).contains(&launch.threads()), "a block has 1 to 1024 threads")?;
        ensure(launch.blocks() < crate::shadow::MAX_BLOCKS, "the grid has too many blocks")?;
        let globals = self.buffers.iter().take_while(|b| b.space == SpaceKind::Global).count();
        ensure(globals == memory.buffers.len(), "memory and program differ in their number of buffers")?;
        for (i, decl) in self.buffers.iter().enumerate() {
            match decl.space {
                SpaceKind::Global => {
                    ensure(i < globals, "a global buffer follows a shared one")?;
                    let buffer = &memory.buffers[i];
                    ensure(buffer.elem == decl.elem, "a buffer has another element type")?;
                    ensure(buffer.len < 1 << 32, "a buffer has more than 2^32 elements")?;
                    ensure(
                        buffer.address.is_multiple_of(decl.elem.bytes() as u64),
                        "a buffer is not aligned to its elements",
                    )?;
                }
                SpaceKind::Shared { offset } => {
                    let end = u64::from(offset) + decl.len.saturating_mul(decl.elem.bytes() as u64);
                    ensure(end <= self.shared_bytes.into(), "a shared buffer leaves shared memory")?;
                    ensure(
                        (offset as usize).is_multiple_of(decl.elem.bytes()),
                        "a shared buffer is not aligned to its elements",
                    )?;
                }
            }
        }
        for preload in &self.preloads {
            self.register(preload.reg, preload.file)?;
            match preload.source {
                PreloadSource::Param(param) => {
                    ensure((param as usize) < launch.params.len(), "a parameter is missing")?;
                }
                PreloadSource::ThreadIdx(dim)
                | PreloadSource::BlockIdx(dim)
                | PreloadSource::BlockDim(dim)
                | PreloadSource::GridDim(dim) => ensure(dim < 3, "a dimension is not below 3")?,
                PreloadSource::Const(_) => {}
            }
        }
        for (locals, file) in [(self.locals32, File::R32), (self.locals64, File::R64), (self.locals128, File::R128)] {
            let size = self.size(file);
            ensure(u32::from(locals.0) + u32::from(locals.1) <= size.into(), "local registers leave the file")?;
        }
        self.code.iter().enumerate().try_for_each(|(pc, inst)| {
            self.instruction(inst).map_err(|what| format!("instruction {pc} ({:?}): {what}", inst.op))
        })
    }

    fn size(&self, file: File) -> u16 {
        match file {
            File::R32 => self.regs32,
            File::R64 => self.regs64,
            File::R128 => self.regs128,
        }
    }

    fn register(&self, reg: u16, file: File) -> Valid {
        ensure(reg < self.size(file), "a register leaves its file")
    }

    fn registers(&self, first: u16, count: u16, file: File) -> Valid {
        let size = self.size(file);
        ensure(count > 0 && u32::from(first) + u32::from(count) <= size.into(), "registers leave their file")
    }

    fn slots(&self, first: u32, count: u32) -> Valid {
        ensure(first.checked_add(count).is_some_and(|end| end <= self.local_slots), "a local slot is missing")
    }

    fn instruction(&self, inst: &Inst) -> Valid {
        let narrow_or = |wide: bool| if wide { File::R64 } else { File::R32 };
        let index = narrow_or(inst.flags.has(Flags::INDEX64));
        let value = inst.flags.value();
        if inst.op.is_arithmetic() {
            let (d, sources) = inst.op.files();
            self.register(inst.d, d)?;
            let operands = [inst.a, inst.b, inst.c].into_iter().zip(sources).take(inst.op.arity());
            return operands.into_iter().try_for_each(|(reg, file)| self.register(reg, file));
        }
        let jump = || ensure((inst.imm as usize) < self.code.len(), "a jump leaves the code");
        let buffer = || self.buffers.get(inst.b as usize).ok_or_else(|| "a buffer is missing".to_owned());
        match inst.op {
            Opcode::If => jump().and_then(|()| self.register(inst.a, File::R32)),
            Opcode::Join => jump(),
            Opcode::Loop | Opcode::Next => {
                jump()?;
                let third = if inst.op == Opcode::Loop { inst.a } else { inst.c };
                [inst.d, inst.b, third].into_iter().try_for_each(|reg| self.register(reg, index))
            }
            Opcode::Load | Opcode::Store => {
                let reg = if inst.op == Opcode::Load { inst.d } else { inst.c };
                self.register(inst.a, index)?;
                self.register(reg, buffer()?.elem.file())
            }
            Opcode::MoveIn | Opcode::MoveOut => {
                let elem = buffer()?.elem;
                self.register(inst.a, index)?;
                self.registers(inst.d, inst.c, elem.file())?;
                let bytes = inst.c as usize * elem.bytes();
                ensure(inst.c.is_power_of_two() && bytes <= 16, "a move has a bad size")?;
                self.slots(inst.imm, inst.c.into())
            }
            Opcode::CopyAsync => {
                let target = self.buffers.get(inst.d as usize).ok_or("a buffer is missing")?;
                let source = buffer()?;
                let (shared, global) = (target.space != SpaceKind::Global, source.space == SpaceKind::Global);
                ensure(shared && global, "an asynchronous copy is from global to shared memory")?;
                ensure(!source.written && !source.atomic, "an asynchronous copy is from memory that is written")?;
                ensure(target.landed && target.written, "an asynchronous copy is to memory that has none")?;
                ensure(source.elem == target.elem, "an asynchronous copy changes the element type")?;
                let bytes = u64::from(inst.imm) * source.elem.bytes() as u64;
                ensure(matches!(bytes, 4 | 8 | 16), "an asynchronous copy has a bad size")?;
                self.register(inst.a, index)?;
                self.register(inst.c, narrow_or(inst.flags.has(Flags::WIDE_C)))
            }
            Opcode::Atomic => {
                let elem = buffer()?.elem;
                let kind = AtomicKind::ALL.get(inst.imm as usize).ok_or("an atomic is unknown")?;
                let double = *kind == AtomicKind::AddF64;
                ensure(elem == if double { Elem::B64 } else { Elem::B32 }, "an atomic has another element type")?;
                self.register(inst.a, index)?;
                self.register(inst.c, elem.file())?;
                if inst.flags.has(Flags::RESULT) { self.register(inst.d, elem.file()) } else { Ok(()) }
            }
            Opcode::LocalGet | Opcode::LocalSet => {
                self.register(inst.d, value)?;
                self.register(inst.a, value)?;
                self.slots(inst.imm, 1)
            }
            Opcode::LocalLoad | Opcode::LocalStore => {
                let (base, reg) = if inst.op == Opcode::LocalLoad { (inst.b, inst.d) } else { (inst.d, inst.b) };
                self.register(inst.a, index)?;
                self.registers(base, inst.c, value)?;
                self.register(reg, value)?;
                self.slots(inst.imm, inst.c.into())
            }
            Opcode::Shuffle => {
                self.register(inst.b, File::R32)?;
                self.register(inst.a, value)?;
                self.register(inst.d, value)
            }
            Opcode::CallF32 | Opcode::CallF64 => {
                let file = narrow_or(inst.op == Opcode::CallF64);
                ensure((inst.imm as usize) < self.unary.len(), "a function is missing")?;
                self.register(inst.a, file)?;
                self.register(inst.d, file)
            }
            Opcode::Host => {
                ensure((inst.imm as usize) < self.host.len(), "a function is missing")?;
                self.register(inst.d, value)?;
                let operands = [inst.a, inst.b, inst.c].into_iter().zip(Flags::OPERANDS);
                operands
                    .into_iter()
                    .try_for_each(|(reg, (wide, double))| self.register(reg, inst.flags.file(wide, double)))
            }
            Opcode::Random => {
                [inst.a, inst.b, inst.c].into_iter().try_for_each(|reg| self.register(reg, File::R64))?;
                self.registers(inst.d, if value == File::R64 { 2 } else { 4 }, value)
            }
            _ => Ok(()),
        }
    }
}
