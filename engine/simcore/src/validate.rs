//! Checks that no instruction can leave the executor's own arrays.

use crate::memory::GlobalMemory;
use crate::op::Opcode;
use crate::program::{AtomicKind, Elem, Flags, Inst, LaunchConfig, PreloadSource, Program, SpaceKind};

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
            self.register(preload.reg, preload.wide)?;
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
        for (locals, size) in [(self.locals32, self.regs32), (self.locals64, self.regs64)] {
            ensure(u32::from(locals.0) + u32::from(locals.1) <= size.into(), "local registers leave the file")?;
        }
        self.code.iter().enumerate().try_for_each(|(pc, inst)| {
            self.instruction(inst).map_err(|what| format!("instruction {pc} ({:?}): {what}", inst.op))
        })
    }

    fn register(&self, reg: u16, wide: bool) -> Valid {
        ensure(reg < if wide { self.regs64 } else { self.regs32 }, "a register leaves its file")
    }

    fn registers(&self, first: u16, count: u16, wide: bool) -> Valid {
        let size = if wide { self.regs64 } else { self.regs32 };
        ensure(count > 0 && u32::from(first) + u32::from(count) <= size.into(), "registers leave their file")
    }

    fn slots(&self, first: u32, count: u32) -> Valid {
        ensure(first.checked_add(count).is_some_and(|end| end <= self.local_slots), "a local slot is missing")
    }

    fn instruction(&self, inst: &Inst) -> Valid {
        let index = inst.flags.has(Flags::INDEX64);
        let wide = inst.flags.has(Flags::WIDE);
        if inst.op.is_arithmetic() {
            let (d, sources) = inst.op.widths();
            self.register(inst.d, d)?;
            let operands = [inst.a, inst.b, inst.c].into_iter().zip(sources).take(inst.op.arity());
            return operands.into_iter().try_for_each(|(reg, wide)| self.register(reg, wide));
        }
        let jump = || ensure((inst.imm as usize) < self.code.len(), "a jump leaves the code");
        let buffer = || self.buffers.get(inst.b as usize).ok_or_else(|| "a buffer is missing".to_owned());
        match inst.op {
            Opcode::If => jump().and_then(|()| self.register(inst.a, false)),
            Opcode::Join => jump(),
            Opcode::Loop | Opcode::Next => {
                jump()?;
                let third = if inst.op == Opcode::Loop { inst.a } else { inst.c };
                [inst.d, inst.b, third].into_iter().try_for_each(|reg| self.register(reg, index))
            }
            Opcode::Load | Opcode::Store => {
                let value = if inst.op == Opcode::Load { inst.d } else { inst.c };
                self.register(inst.a, index)?;
                self.register(value, buffer()?.elem == Elem::B64)
            }
            Opcode::MoveIn | Opcode::MoveOut => {
                let elem = buffer()?.elem;
                self.register(inst.a, index)?;
                self.registers(inst.d, inst.c, elem == Elem::B64)?;
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
                self.register(inst.c, inst.flags.has(Flags::WIDE_C))
            }
            Opcode::Atomic => {
                let elem = buffer()?.elem;
                let kind = AtomicKind::ALL.get(inst.imm as usize).ok_or("an atomic is unknown")?;
                let double = *kind == AtomicKind::AddF64;
                ensure(elem == if double { Elem::B64 } else { Elem::B32 }, "an atomic has another element type")?;
                self.register(inst.a, index)?;
                self.register(inst.c, double)?;
                if inst.flags.has(Flags::RESULT) { self.register(inst.d, double) } else { Ok(()) }
            }
            Opcode::LocalGet | Opcode::LocalSet => {
                self.register(inst.d, wide)?;
                self.register(inst.a, wide)?;
                self.slots(inst.imm, 1)
            }
            Opcode::LocalLoad | Opcode::LocalStore => {
                let (base, value) = if inst.op == Opcode::LocalLoad { (inst.b, inst.d) } else { (inst.d, inst.b) };
                self.register(inst.a, index)?;
                self.registers(base, inst.c, wide)?;
                self.register(value, wide)?;
                self.slots(inst.imm, inst.c.into())
            }
            Opcode::Shuffle => {
                self.register(inst.b, false)?;
                self.register(inst.a, wide)?;
                self.register(inst.d, wide)
            }
            Opcode::CallF32 | Opcode::CallF64 => {
                let wide = inst.op == Opcode::CallF64;
                ensure((inst.imm as usize) < self.unary.len(), "a function is missing")?;
                self.register(inst.a, wide)?;
                self.register(inst.d, wide)
            }
            Opcode::Host => {
                ensure((inst.imm as usize) < self.host.len(), "a function is missing")?;
                self.register(inst.d, wide)?;
                self.register(inst.a, inst.flags.has(Flags::WIDE_A))?;
                self.register(inst.b, inst.flags.has(Flags::WIDE_B))?;
                self.register(inst.c, inst.flags.has(Flags::WIDE_C))
            }
            Opcode::Random => {
                [inst.a, inst.b, inst.c].into_iter().try_for_each(|reg| self.register(reg, true))?;
                self.registers(inst.d, if wide { 2 } else { 4 }, wide)
            }
            _ => Ok(()),
        }
    }
}
