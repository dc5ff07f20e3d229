//! Scalars of a fusion as parameters of its kernel, each declared on first use.
//!
//! In: the fusion, and what a kernel may know of its arguments. Out: expressions over parameters; what has to be
//! computed is computed once, on the host.

use super::context::identifier;
use crate::diag::{Diagnostic, Result};
use crate::fusion::{Fusion, Operand, ScalarDef, ScalarId};
use crate::kernel::{Expr, ExprId, KernelBuilder};
use crate::num::DType;
use crate::schedule::ArgClass;
use crate::util::SecondaryMap;

/// The scalars that a kernel under construction has parameters for.
pub(crate) struct Scalars<'a> {
    fusion: &'a Fusion,
    class: &'a ArgClass,
    known: SecondaryMap<ScalarId, Option<ExprId>>,
}

impl<'a> Scalars<'a> {
    /// None yet.
    pub(crate) fn new(fusion: &'a Fusion, class: &'a ArgClass) -> Self {
        Self { fusion, class, known: SecondaryMap::new() }
    }

    /// A scalar that is a size, or a sum of sizes, as an index.
    pub(crate) fn index(&mut self, b: &mut KernelBuilder, scalar: ScalarId) -> Result<ExprId> {
        // What the user computed wraps; `fusion::bind` checked that this one does not.
        let size = self.value(b, scalar)?;
        let size = b.exprs().as_index(size);
        let index_type = b.index_type();
        // Sizes are i64 scalars; as an index the parameter itself is meant.
        let size_expr = b.exprs()[size].expr;
        Ok(match size_expr {
            Expr::Cast(inner) if b.dtype(inner) == index_type => inner,
            _ => {
                let cast = b.exprs().cast(size, index_type);
                hoist(b, "size", cast)
            }
        })
    }

    /// A scalar of the fusion, of the scalar's type: data.
    pub(crate) fn value(&mut self, b: &mut KernelBuilder, root: ScalarId) -> Result<ExprId> {
        // First to last operand, then the scalar; a chain may be too long for recursion.
        let mut open = vec![root];
        while let Some(&scalar) = open.last() {
            let known = open.len();
            if self.known[scalar].is_none() {
                let operands = self.fusion.scalars[scalar].def.operands();
                open.extend(operands.rev().filter(|operand| self.known[*operand].is_none()));
                if open.len() > known {
                    continue;
                }
                let value = self.define(b, scalar)?;
                self.known.set(scalar, Some(value));
            }
            open.pop();
        }
        self.defined(root)
    }

    fn defined(&self, scalar: ScalarId) -> Result<ExprId> {
        self.known[scalar].ok_or_else(|| Diagnostic::bug(format!("scalar {scalar} is used before it is defined")))
    }

    /// A scalar whose operands are defined.
    fn define(&mut self, b: &mut KernelBuilder, scalar: ScalarId) -> Result<ExprId> {
        let data = &self.fusion.scalars[scalar];
        let value = match data.def {
            ScalarDef::Const(value) => return Ok(b.exprs().value(value, data.dtype)),
            ScalarDef::Input { index, ref name } => return Ok(b.scalar(identifier(name), index, data.dtype)),
            ScalarDef::Size { input, axis } => {
                let size = self.size(b, input, axis);
                let size = b.exprs().cast(size, DType::I64);
                let size = b.exprs().as_data(size);
                return Ok(b.exprs().cast(size, data.dtype));
            }
            ScalarDef::Unary(op, operand) => {
                let operand = self.defined(operand)?;
                b.exprs().unary(op, operand)
            }
            ScalarDef::Binary(op, left, right) => {
                let (left, right) = (self.defined(left)?, self.defined(right)?);
                b.exprs().binary(op, left, right)
            }
            ScalarDef::Ternary(op, first, second, third) => {
                let [first, second, third] = [self.defined(first)?, self.defined(second)?, self.defined(third)?];
                b.exprs().ternary(op, first, second, third)
            }
            ScalarDef::Cast(operand) => {
                let operand = self.defined(operand)?;
                b.exprs().cast(operand, data.dtype)
            }
        };
        Ok(hoist(b, "s", value))
    }

    /// The size of an input's axis, with what the class knows of it.
    fn size(&self, b: &mut KernelBuilder, input: u32, axis: u32) -> ExprId {
        let name = format!("{}_n{axis}", input_name(self.fusion, input));
        let param = b.size(name, input, axis);
        let fact = self.class.layouts[input as usize].as_ref().map_or(1, |layout| layout.size_facts[axis as usize]);
        b.assume_multiple_of(param, fact);
        param
    }
}

/// Turns an expression over parameters into a parameter computed on the
/// host, unless it is trivial.
pub(crate) fn hoist(b: &mut KernelBuilder, name: &str, value: ExprId) -> ExprId {
    let plain = b.exprs().plain(value);
    match b.exprs()[plain].expr {
        Expr::Const(_) | Expr::Param(_) => value,
        _ => b.derived(name, value),
    }
}

/// What names of an input's parameters begin with.
pub(crate) fn input_name(fusion: &Fusion, input: u32) -> String {
    match fusion.inputs[input as usize] {
        Operand::Tensor(tensor) => identifier(&fusion.tensors[tensor].name),
        Operand::Scalar(_) => format!("in{input}"),
    }
}
