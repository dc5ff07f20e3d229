//! Which arguments random operations take their offsets from.
//!
//! A seed and an offset say which numbers an operation draws, and both are scalars of the
//! caller like any other: a call with the same ones draws the same numbers. Who repeats a call
//! goes on with the offsets behind those that it used: [`Program::rng_offsets`] says where they
//! come in, and how many there are.

use super::{Program, ScalarUse};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::{OpKind, Operand, ScalarDef, ScalarId};
use crate::num::BinaryOp;
use std::collections::BTreeMap;

/// A scalar argument that offsets of random operations come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RngOffset {
    /// Its position among the arguments.
    pub position: u32,
    /// From its value on, as many offsets are used by a call, or lie between those that are.
    pub count: u64,
}

/// An offset: so much behind a scalar argument, or a number by itself.
#[derive(Clone, Copy)]
struct Shifted {
    argument: Option<u32>,
    by: i64,
}

impl Program {
    /// The arguments that offsets come from, in order. Refused where one is computed from arguments
    /// otherwise than by adding numbers to it, or decides more than what is drawn.
    pub fn rng_offsets(&self) -> Result<Vec<RngOffset>> {
        let fusion = &self.segments.fusion;
        let mut spans: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
        for op in fusion.ops.values() {
            let OpKind::Call(call) = &op.kind else { continue };
            let offset = call.operands("rng_offset").next().filter(|_| call.row.random.is_some());
            let Some(&Operand::Scalar(offset)) = offset.and_then(|position| op.inputs.get(position)) else { continue };
            let name = &fusion.tensors[op.output()].name;
            let refuse = |why: &str| {
                let message = format!("the offset of the random numbers `%{name}` {why}");
                Err(Diagnostic::unsupported(code::RNG_OFFSET, message))
            };
            let Some(Shifted { argument, by }) = self.shifted(offset) else {
                return refuse("is not an argument with a number added to it");
            };
            let Some(argument) = argument else { continue };
            if self.use_of(&|position| position == argument) == ScalarUse::Decide {
                return refuse("is an argument that decides sizes or places too");
            }
            let (least, most) = spans.entry(argument).or_insert((by, by));
            (*least, *most) = ((*least).min(by), (*most).max(by));
        }
        let count = |(least, most): (i64, i64)| most.abs_diff(least).saturating_add(1);
        Ok(spans.into_iter().map(|(position, span)| RngOffset { position, count: count(span) }).collect())
    }

    /// A scalar as an argument with a number added to it.
    fn shifted(&self, scalar: ScalarId) -> Option<Shifted> {
        if let Some(value) = self.segments.scalar(scalar) {
            return Some(Shifted { argument: None, by: value.as_i64() });
        }
        let fusion = &self.segments.fusion;
        match fusion.scalars[scalar].def {
            ScalarDef::Input { index, .. } => Some(Shifted { argument: Some(index), by: 0 }),
            ScalarDef::Cast(from) if fusion.scalars[from].dtype.is_int() => self.shifted(from),
            ScalarDef::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) => {
                let (a, b) = (self.shifted(a)?, self.shifted(b)?);
                match (op, a.argument, b.argument) {
                    (BinaryOp::Add, argument, None) | (BinaryOp::Add, None, argument) => {
                        Some(Shifted { argument, by: a.by.wrapping_add(b.by) })
                    }
                    (BinaryOp::Sub, argument, None) => Some(Shifted { argument, by: a.by.wrapping_sub(b.by) }),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}
