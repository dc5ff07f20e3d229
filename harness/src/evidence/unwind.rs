//! From a thread's registers and a copy of its stack to the program counters of
//! its calls, by the unwind tables of its modules. Works outside the process
//! and after its end, so the process itself need not do anything that a broken
//! one cannot.

use super::modules::{Bytes, Modules, Unwind};
use crate::os::area::Raw;
use gimli::{CfaRule, EvaluationResult, Expression, RegisterRule, UnwindContext, UnwindSection, Value};

/// Calls that are looked at; an overflown stack may hold more.
const MAX_CALLS: usize = 200_000;

#[cfg(target_arch = "x86_64")]
mod machine {
    pub(super) const STACK: usize = 7;
    pub(super) const FRAME: usize = 6;
    pub(super) const RETURN: usize = 16;
}
#[cfg(target_arch = "aarch64")]
mod machine {
    pub(super) const STACK: usize = 31;
    pub(super) const FRAME: usize = 29;
    pub(super) const RETURN: usize = 30;
}
use machine::{FRAME, RETURN, STACK};

/// The program counters, innermost first: the first as it was, the others
/// inside the calling instruction.
pub(super) fn walk(raw: &Raw, modules: &Modules) -> Vec<u64> {
    let mut thread = Thread { registers: raw.registers.clone(), stack: &raw.stack, base: raw.stack_base };
    let mut context = UnwindContext::new();
    let mut calls = vec![raw.pc];
    let mut pc = raw.pc;
    if raw.registers.len() <= RETURN.max(STACK) {
        return calls;
    }
    while calls.len() < MAX_CALLS {
        let before = thread.registers[STACK];
        let first = calls.len() == 1;
        let Some(caller) = thread.step(pc, first, modules, &mut context) else { break };
        // The stack only gets shorter, except that the first function may have no frame yet.
        if caller == 0 || thread.registers[STACK] < before || thread.registers[STACK] == before && !first {
            break;
        }
        pc = caller - 1;
        calls.push(pc);
    }
    calls
}

struct Thread<'a> {
    registers: Vec<u64>,
    stack: &'a [u8],
    base: u64,
}

impl Thread<'_> {
    fn load(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let bytes = self.stack.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// Makes the registers those of the caller, and returns where it goes on.
    fn step(&mut self, pc: u64, first: bool, modules: &Modules, context: &mut UnwindContext<usize>) -> Option<u64> {
        let place = modules.place(pc);
        let tables = place.as_ref().and_then(|place| Some((place, place.module.as_ref()?.unwind.as_ref()?)));
        let by_tables = tables.and_then(|(place, unwind)| self.by_tables(place.address, unwind, context));
        if let Some(caller) = by_tables {
            return Some(caller);
        }
        // A call of an address that is no code: the return address is on top.
        if place.is_none() && first && cfg!(target_arch = "x86_64") {
            let caller = self.load(self.registers[STACK])?;
            self.registers[STACK] += 8;
            return Some(caller);
        }
        self.by_frame_pointer()
    }

    fn by_frame_pointer(&mut self) -> Option<u64> {
        let frame = self.registers[FRAME];
        let (before, caller) = (self.load(frame)?, self.load(frame + 8)?);
        self.registers[STACK] = frame + 16;
        self.registers[FRAME] = before;
        Some(caller)
    }

    fn by_tables(&mut self, address: u64, unwind: &Unwind, context: &mut UnwindContext<usize>) -> Option<u64> {
        let Unwind { frames, index, bases } = unwind;
        let entry = index
            .table()?
            .fde_for_address(frames, bases, address, |section, bases, offset| section.cie_from_offset(bases, offset))
            .ok()?;
        let encoding = entry.cie().encoding();
        let row = entry.unwind_info_for_address(frames, bases, context, address).ok()?;
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.registers.get(usize::from(register.0))?.wrapping_add_signed(*offset)
            }
            CfaRule::Expression(expression) => self.evaluate(expression.get(frames).ok()?, encoding, None)?,
        };
        let mut registers = self.registers.clone();
        registers[STACK] = cfa;
        for (register, rule) in row.registers() {
            let number = usize::from(register.0);
            let value = match rule {
                RegisterRule::Offset(offset) => self.load(cfa.wrapping_add_signed(*offset)),
                RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(*offset)),
                RegisterRule::Register(other) => self.registers.get(usize::from(other.0)).copied(),
                RegisterRule::Expression(expression) => self
                    .evaluate(expression.get(frames).ok()?, encoding, Some(cfa))
                    .and_then(|address| self.load(address)),
                RegisterRule::ValExpression(expression) => {
                    self.evaluate(expression.get(frames).ok()?, encoding, Some(cfa))
                }
                RegisterRule::Constant(value) => Some(*value),
                // The outermost function says that it has no caller in this way.
                RegisterRule::Undefined if number == RETURN => return None,
                _ => continue,
            };
            if let Some(slot) = registers.get_mut(number) {
                *slot = value?;
            }
        }
        self.registers = registers;
        Some(self.registers[RETURN])
    }

    fn evaluate(&self, expression: Expression<Bytes>, encoding: gimli::Encoding, start: Option<u64>) -> Option<u64> {
        let mut evaluation = expression.evaluation(encoding);
        evaluation.set_max_iterations(1000);
        if let Some(start) = start {
            evaluation.set_initial_value(start);
        }
        let mut result = evaluation.evaluate().ok()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = *self.registers.get(usize::from(register.0))?;
                    evaluation.resume_with_register(Value::Generic(value)).ok()?
                }
                EvaluationResult::RequiresMemory { address, .. } => {
                    evaluation.resume_with_memory(Value::Generic(self.load(address)?)).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.result().first()?.location {
            gimli::Location::Address { address } => Some(address),
            gimli::Location::Value { value } => value.to_u64(u64::MAX).ok(),
            _ => None,
        }
    }
}
