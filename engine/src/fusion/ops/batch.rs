//! Batch and instance normalisation, and their gradients. Statistics are taken
//! over all axes but the channels (axis 1, or the last), of `instance_norm` also
//! but the first; results drop the axes that they are taken over.
//!
//! Running statistics that are given while the input's own are used are updated
//! in place: they are inputs of the fusion, or conversions of inputs.

use super::args::Args;
use super::row::{OpParam, OpParamKind, OpRow, flag, on, opt, req};
use super::stats::Moments;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::{FusionBuilder, OpKind, Operand, Src, TensorDef, TensorId};
use crate::num::ReduceOp;

const X: OpParam = req("x", OpParamKind::Tensor).py("arg");
const WEIGHT: OpParam = opt("weight", OpParamKind::Tensor);
const BIAS: OpParam = opt("bias", OpParamKind::Tensor);
const MEAN: OpParam = opt("running_mean", OpParamKind::Tensor);
const VAR: OpParam = opt("running_var", OpParamKind::Tensor);
const MOMENTUM: OpParam = opt("momentum", OpParamKind::Scalar);
const EPS: OpParam = opt("eps", OpParamKind::Scalar);
const LAST: OpParam = flag("channels_last");
const BACKWARD: &[OpParam] = &[
    req("x", OpParamKind::Tensor).py("input"),
    req("dy", OpParamKind::Tensor).py("grad_output"),
    WEIGHT,
    MEAN,
    VAR,
    opt("save_mean", OpParamKind::Tensor),
    opt("save_invstd", OpParamKind::Tensor),
    EPS,
    on("training"),
    LAST,
];
const LIBRARY: &str = "nvFuser's C++ library";

pub(super) const ROWS: &[OpRow] = &[
    OpRow::composite(
        "batch_norm",
        &[X, WEIGHT, BIAS, MEAN, VAR, MOMENTUM, EPS, on("training"), LAST],
        |b, args| forward(b, args, Over::Batch, "training"),
        "Three values: (x - mean) * rsqrt(var + eps) * weight + bias over all axes but the channels, mean, rsqrt(var + eps). Running statistics are updated in training and stand for x's own otherwise; momentum 0.1, eps 1e-5 unless given.",
        "PyTorch batch_norm",
    )
    .results(3),
    OpRow::composite(
        "instance_norm",
        &[X, WEIGHT, BIAS, MEAN, VAR, MOMENTUM, EPS, on("use_input_stats"), LAST],
        |b, args| forward(b, args, Over::Instance, "use_input_stats"),
        "Like batch_norm, with statistics for each element of the first axis; running statistics are updated by their mean over it.",
        "PyTorch instance_norm",
    )
    .results(3),
    OpRow::composite(
        "batch_norm_backward",
        BACKWARD,
        |b, args| backward(b, args, Over::Batch),
        "Gradients of batch_norm for x, weight and bias: from the saved statistics in training, else from the running ones.",
        LIBRARY,
    )
    .results(3),
    OpRow::composite(
        "instance_norm_backward",
        BACKWARD,
        |b, args| backward(b, args, Over::Instance),
        "Gradients of instance_norm for x, weight and bias: from the saved statistics in training, else from the running ones.",
        LIBRARY,
    )
    .results(3),
];

/// What statistics are shared by.
#[derive(Clone, Copy, PartialEq)]
enum Over {
    /// All of a channel.
    Batch,
    /// A channel of one element of the batch.
    Instance,
}

/// A tensor with channels.
struct Channels {
    name: &'static str,
    x: TensorId,
    over: Over,
    /// The axes that statistics are taken over.
    axes: Vec<i64>,
    /// All axes but the channels.
    others: Vec<i64>,
}

impl Channels {
    fn new(b: &mut FusionBuilder, args: &Args, over: Over) -> Result<Self> {
        let name = args.row().name;
        let x = b.float_tensor(name, args.src("x")?)?;
        let rank = b.rank(x) as i64;
        if rank < 2 {
            let message = format!("{name}: the operand has rank {rank}, at least 2 is needed");
            return Err(Diagnostic::user(code::RANK, message).note("its axes are the batch, the channels, and more"));
        }
        let channels = if args.flag("channels_last") { rank - 1 } else { 1 };
        let others: Vec<i64> = (0..rank).filter(|&axis| axis != channels).collect();
        let axes = others.iter().copied().filter(|&axis| axis != 0 || over == Over::Batch).collect();
        Ok(Self { name, x, over, axes, others })
    }

    /// A value for each channel, spread over the other axes.
    fn by_channel(&self, b: &mut FusionBuilder, value: Src) -> Result<Operand> {
        let value = Operand::Tensor(b.float_tensor(self.name, value)?);
        b.keep(value, self.x, &self.others)
    }

    /// A value for each statistic, spread over its elements.
    fn by_group(&self, b: &mut FusionBuilder, value: Operand) -> Result<Operand> {
        b.keep(value, self.x, &self.axes)
    }

    fn sum(&self, b: &mut FusionBuilder, x: Operand) -> Result<Operand> {
        b.reduce_over(ReduceOp::Sum, x, &self.axes)
    }

    /// What is left over the batch of a value for each statistic.
    fn over_batch(&self, b: &mut FusionBuilder, x: Operand) -> Result<Operand> {
        if self.over == Over::Batch { Ok(x) } else { b.reduce(ReduceOp::Sum, x, &[0], false, None) }
    }

    /// A value for each channel beside values for each statistic.
    fn aligned(&self, b: &mut FusionBuilder, value: Operand) -> Result<Operand> {
        if self.over == Over::Batch { Ok(value) } else { b.broadcast(value, &[true, false]) }
    }
}

/// A pair of operands that are given both or not at all.
fn pair(args: &Args, names: [&str; 2]) -> Result<Option<[Src; 2]>> {
    match names.map(|name| args.opt(name)) {
        [Some(a), Some(b)] => Ok(Some([a, b])),
        [None, None] => Ok(None),
        [a, _] => {
            let (given, missing) = if a.is_some() { (names[0], names[1]) } else { (names[1], names[0]) };
            let message = format!("{}: `{given}` is given without `{missing}`", args.row().name);
            Err(Diagnostic::user(code::ARITY, message).note("give both or none"))
        }
    }
}

fn running(args: &Args) -> Result<Option<[Src; 2]>> {
    pair(args, ["running_mean", "running_var"])
}

fn eps(args: &Args) -> Src {
    args.opt("eps").unwrap_or(1e-5.into())
}

/// `rsqrt(var + eps)`.
fn inverse_root(b: &mut FusionBuilder, args: &Args, var: Operand) -> Result<Operand> {
    let shifted = b.add(var, eps(args))?;
    b.rsqrt(shifted)
}

fn forward(b: &mut FusionBuilder, args: &Args, over: Over, own: &str) -> Result<Vec<Operand>> {
    let x = Channels::new(b, args, over)?;
    let running = running(args)?;
    let (centred, mean, invstd, spread) = match running {
        Some([mean, var]) if !args.flag(own) => {
            let mean_spread = x.by_channel(b, mean)?;
            let centred = b.sub(x.x, mean_spread)?;
            let var = b.float_tensor(x.name, var)?;
            let invstd = inverse_root(b, args, Operand::Tensor(var))?;
            let mean = Operand::Tensor(b.float_tensor(x.name, mean)?);
            (centred, mean, invstd, x.by_channel(b, invstd.into())?)
        }
        _ => {
            let moments = b.moments(x.x, &x.axes)?;
            if let Some(running) = running {
                update_running(b, args, &x, running, &moments)?;
            }
            let var = b.var_of(x.x, &x.axes, &moments, 0)?;
            let invstd = inverse_root(b, args, var)?;
            (moments.centred, moments.mean, invstd, x.by_group(b, invstd)?)
        }
    };
    let mut y = b.mul(centred, spread)?;
    if let Some(weight) = args.opt("weight") {
        let weight = x.by_channel(b, weight)?;
        y = b.mul(y, weight)?;
    }
    if let Some(bias) = args.opt("bias") {
        let bias = x.by_channel(b, bias)?;
        y = b.add(y, bias)?;
    }
    Ok(vec![y, mean, invstd])
}

/// `running * (1 - momentum) + own * momentum`, of the variance with divisor
/// `n - 1`, averaged over the batch where each of its elements has its own.
fn update_running(
    b: &mut FusionBuilder,
    args: &Args,
    x: &Channels,
    running: [Src; 2],
    moments: &Moments,
) -> Result<()> {
    let momentum = args.opt("momentum").unwrap_or(0.1.into());
    let rest = b.sub(1.0, momentum)?;
    let inverse = b.inverse_count(x.x, &x.axes, 1)?;
    let var = b.mul(moments.sum, inverse)?;
    for (old, own) in running.into_iter().zip([moments.mean, var]) {
        let place = storage(b, x.name, old)?;
        let old = Operand::Tensor(b.float_tensor(x.name, old)?);
        let old = x.aligned(b, old)?;
        let kept = b.mul(old, rest)?;
        let gained = b.mul(own, momentum)?;
        let mut new = b.add(kept, gained)?;
        if x.over == Over::Instance {
            let sum = x.over_batch(b, new)?;
            let inverse = b.inverse_count(x.x, &[0], 0)?;
            new = b.mul(sum, inverse)?;
        }
        let new = b.cast(new, b.dtype(Operand::Tensor(place)))?;
        b.update(new, Operand::Tensor(place))?;
    }
    Ok(())
}

/// The input whose storage a running statistic is.
fn storage(b: &FusionBuilder, name: &str, value: Src) -> Result<TensorId> {
    let value = b.tensor_operand(name, value)?;
    let mut place = value;
    if let TensorDef::Op(op) = b.definition(value)
        && let (OpKind::Cast(_), [Operand::Tensor(from)]) = (&b.op(op).kind, &b.op(op).inputs[..])
    {
        place = *from;
    }
    if matches!(b.definition(place), TensorDef::Input(_)) {
        return Ok(place);
    }
    let message = format!("{name}: a running statistic is no input of the fusion, it cannot be updated");
    Err(Diagnostic::user(code::UPDATE, message).note("pass an input, or a cast of one"))
}

fn backward(b: &mut FusionBuilder, args: &Args, over: Over) -> Result<Vec<Operand>> {
    let x = Channels::new(b, args, over)?;
    let dy = Operand::Tensor(b.float_tensor(x.name, args.src("dy")?)?);
    let training = args.flag("training");
    let names = if training { ["save_mean", "save_invstd"] } else { ["running_mean", "running_var"] };
    let Some([mean, second]) = pair(args, names)? else {
        let (name, when) = (x.name, if training { "in training" } else { "out of training" });
        let message = format!("{name}: needs `{}` and `{}` {when}", names[0], names[1]);
        return Err(Diagnostic::user(code::ARITY, message));
    };
    let mut mean = Operand::Tensor(b.float_tensor(x.name, mean)?);
    let mut invstd = Operand::Tensor(b.float_tensor(x.name, second)?);
    if !training {
        (mean, invstd) = (x.aligned(b, mean)?, inverse_root(b, args, invstd)?);
        invstd = x.aligned(b, invstd)?;
    }
    let mean = x.by_group(b, mean)?;
    let centred = b.sub(x.x, mean)?;
    let sum = x.sum(b, dy)?;
    let product = b.mul(dy, centred)?;
    let dot = x.sum(b, product)?;
    let mut scale = x.by_group(b, invstd)?;
    if let Some(weight) = args.opt("weight") {
        let weight = x.by_channel(b, weight)?;
        scale = b.mul(scale, weight)?;
    }
    let rest = if training { off_statistics(b, &x, dy, centred, [sum, dot, invstd])? } else { dy };
    let dx = b.mul(rest, scale)?;
    let by_weight = b.mul(dot, invstd)?;
    Ok(vec![dx, x.over_batch(b, by_weight)?, x.over_batch(b, sum)?])
}

/// What is left of `dy` when its parts along the statistics are taken off:
/// `dy - centred * (dot / n * invstd^2) - sum / n`.
fn off_statistics(
    b: &mut FusionBuilder,
    x: &Channels,
    dy: Operand,
    centred: Operand,
    [sum, dot, invstd]: [Operand; 3],
) -> Result<Operand> {
    let inverse = b.inverse_count(x.x, &x.axes, 0)?;
    let mean = b.mul(sum, inverse)?;
    let mean = x.by_group(b, mean)?;
    let dot = b.mul(dot, inverse)?;
    let square = b.mul(invstd, invstd)?;
    let along = b.mul(dot, square)?;
    let along = x.by_group(b, along)?;
    let projection = b.mul(centred, along)?;
    let rest = b.sub(dy, projection)?;
    b.sub(rest, mean)
}

#[cfg(test)]
mod tests;
