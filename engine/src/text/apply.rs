//! From a row of the catalog to the builder's method.

use super::attrs::Attrs;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::catalog::{OpInfo, Operation};
use crate::fusion::{FusionBuilder, Operand, Src};

/// What a statement gives to its operation.
pub(super) struct Call<'a> {
    pub(super) info: OpInfo,
    /// The extents in brackets.
    pub(super) shape: Vec<Src>,
    pub(super) operands: Vec<Src>,
    pub(super) attrs: &'a Attrs,
}

/// Axis of softmax, correction of variances and epsilon of norms, unless given.
const DEFAULT_AXIS: i64 = -1;
const DEFAULT_CORRECTION: i64 = 1;
const DEFAULT_EPS: f64 = 1e-5;
const DEFAULT_SLOPE: f64 = 0.01;

/// Adds the operation; returns the values it defines.
pub(super) fn apply(b: &mut FusionBuilder, call: &Call<'_>) -> Result<Vec<Operand>> {
    check_arity(call)?;
    let Call { info, shape, operands: x, attrs } = call;
    let keepdim = attrs.flag("keepdim");
    let axes = attrs.ints("axes");
    let axis = attrs.int("axis").unwrap_or(DEFAULT_AXIS);
    let correction = attrs.int("correction").unwrap_or(DEFAULT_CORRECTION);
    let eps = attrs.number("eps").unwrap_or(DEFAULT_EPS);
    let optional = |index: usize| x.get(index).copied();
    let result = match info.operation {
        Operation::Unary(op) => b.unary(op, x[0])?,
        Operation::Binary(op) => b.binary(op, x[0], x[1])?,
        Operation::Ternary(op) => b.ternary(op, x[0], x[1], x[2])?,
        Operation::Reduce(op) => b.reduce(op, x[0], axes, keepdim, attrs.dtype("dtype"))?,
        Operation::Cast => b.cast(x[0], bare_dtype(call, "to")?)?,
        Operation::Set => b.set(x[0])?,
        Operation::Broadcast => b.broadcast(x[0], attrs.bools("flags"))?,
        Operation::Squeeze => b.squeeze(x[0], attrs.bools("flags"))?,
        Operation::Permute => b.permute(x[0], attrs.ints("dims"))?,
        Operation::Full => b.full(shape, x[0], bare_dtype(call, "dtype")?)?,
        Operation::Size => b.size(x[0], axis)?,
        Operation::Mean => b.mean(x[0], axes, keepdim)?,
        Operation::Var => b.var(x[0], axes, correction, keepdim)?,
        Operation::Std => b.std(x[0], axes, correction, keepdim)?,
        Operation::VarMean => {
            let (var, mean) = b.var_mean(x[0], axes, correction, keepdim)?;
            return Ok(vec![var, mean]);
        }
        Operation::Softmax => b.softmax(x[0], axis)?,
        Operation::LogSoftmax => b.log_softmax(x[0], axis)?,
        Operation::RmsNorm => b.rms_norm(x[0], optional(1), eps)?,
        Operation::LayerNorm => b.layer_norm(x[0], optional(1), optional(2), eps)?,
        Operation::Gelu => b.gelu(x[0])?,
        Operation::GeluTanh => b.gelu_tanh(x[0])?,
        Operation::LeakyRelu => b.leaky_relu(x[0], optional(1).unwrap_or(DEFAULT_SLOPE.into()))?,
        Operation::Softplus => b.softplus(x[0])?,
        Operation::Addcmul => b.addcmul(x[0], x[1], x[2], optional(3).unwrap_or(1.into()))?,
    };
    Ok(vec![result])
}

fn check_arity(call: &Call<'_>) -> Result<()> {
    let (info, given) = (&call.info, call.operands.len());
    let most = info.operands.len();
    let least = most - info.optional;
    if (least..=most).contains(&given) {
        return Ok(());
    }
    let expected = if least == most { most.to_string() } else { format!("{least} to {most}") };
    let plural = if most == 1 { "operand" } else { "operands" };
    let were = if given == 1 { "was" } else { "were" };
    Err(Diagnostic::user(code::ARITY, format!("{}: takes {expected} {plural}, {given} {were} given", info.name))
        .note(format!("its form is: {}", info.signature())))
}

fn bare_dtype(call: &Call<'_>, name: &str) -> Result<crate::num::DType> {
    call.attrs.dtype(name).ok_or_else(|| Diagnostic::bug(format!("{} passed without `{name}`", call.info.name)))
}
