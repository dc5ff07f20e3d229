//! What hangs on the values of scalars.
//!
//! A caller's scalars often change from call to call (a learning rate, a seed) where all
//! sizes stay. Where they only ever reach parameters of kernels, converted or computed with
//! perhaps, a call with other values is the same program with other numbers in its
//! launches: [`ScalarUse::Passed`].

use super::{HostInput, Launch, Program, Step};
use crate::diag::{Diagnostic, Result};
use crate::fusion::{Fusion, Op, OpKind, Operand, ScalarDef, ScalarId};
use crate::kernel::{self, BoundParam, Expr, ExprId, Kernel, ParamId, ParamKind};
use crate::num::Value;
use crate::segment::SegmentKind;
use crate::util::{EntityId, SecondaryMap};

/// Where the values of a program's scalar inputs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarUse {
    /// Into parameters of kernels. Another value needs no other program.
    Passed,
    /// Also into sizes, places, grids, or what the host computes.
    Decide,
}

impl Program {
    /// Where the values of scalar inputs go.
    pub fn scalar_use(&self) -> ScalarUse {
        self.use_of(&|_| true)
    }

    /// Where the values of some scalar inputs go, which are meant by their positions.
    pub(super) fn use_of(&self, is_meant: &dyn Fn(u32) -> bool) -> ScalarUse {
        let fusion = &self.segments.fusion;
        let depends = on_inputs(fusion, is_meant);
        let decides = |operand: &Operand| matches!(operand, Operand::Scalar(scalar) if depends[*scalar]);
        let sizes = fusion.tensors.values().flat_map(|tensor| &tensor.axes).any(|axis| depends[axis.extent]);
        let ops = fusion.ops.values().any(|op| !takes_data(op) && op.inputs.iter().any(decides));
        let steps = self.steps.iter().any(|step| match step {
            Step::Launch(launch) => self.shape_hangs_on_scalars(launch, is_meant),
            Step::Host(call) => call.inputs.iter().any(|input| matches!(input, HostInput::Scalar(_))),
            // Operands of libraries are tensors.
            Step::Library(_) | Step::Copy(_) => false,
        });
        let views = self.segments.segments.iter().filter(|segment| matches!(segment.kind, SegmentKind::View));
        let views = views.flat_map(|segment| &segment.inputs).any(decides);
        if sizes || ops || steps || views { ScalarUse::Decide } else { ScalarUse::Passed }
    }

    /// The parameters of a launch that hang on scalar arguments, in order.
    pub fn scalar_params(&self, launch: &Launch) -> Vec<ParamId> {
        let params = &launch.plan.kernel().params;
        let hanging = hanging_params(launch.plan.kernel(), &|input| self.scalar_argument(launch, input).is_some());
        params.ids().filter(|id| hanging[*id]).collect()
    }

    /// The value of such a parameter for other scalars: those at positions among the arguments.
    pub fn scalar_param(
        &self,
        launch: &Launch,
        param: ParamId,
        scalar: &dyn Fn(u32) -> Option<Value>,
    ) -> Result<Value> {
        let kernel = launch.plan.kernel();
        match kernel.params[param].kind {
            ParamKind::Scalar { input } => {
                if let Some(position) = self.scalar_argument(launch, input) {
                    let missing = || Diagnostic::bug(format!("argument {position} was checked to be a scalar"));
                    return scalar(position).ok_or_else(missing);
                }
            }
            ParamKind::Derived(expr) => {
                return kernel::eval_over(kernel, expr, &|other| self.scalar_param(launch, other, scalar));
            }
            _ => {}
        }
        match launch.launch.params.get(param.index()) {
            Some(BoundParam::Scalar { value, .. }) => Ok(*value),
            _ => Err(Diagnostic::bug(format!("parameter {param} of {} is no number", kernel.name))),
        }
    }

    /// The argument that an input of a launch is, if it is a scalar of the caller.
    fn scalar_argument(&self, launch: &Launch, input: u32) -> Option<u32> {
        let operand = self.segments.segments[launch.segment].inputs.get(input as usize)?;
        match operand {
            Operand::Scalar(scalar) => match self.segments.fusion.scalars[*scalar].def {
                ScalarDef::Input { index, .. } => Some(index),
                _ => None,
            },
            Operand::Tensor(_) => None,
        }
    }

    /// Whether grid, block or memory of a launch hang on scalar arguments that are meant, or there are
    /// scalars among its inputs that are computed from them.
    fn shape_hangs_on_scalars(&self, launch: &Launch, is_meant: &dyn Fn(u32) -> bool) -> bool {
        let (kernel, fusion) = (launch.plan.kernel(), &self.segments.fusion);
        let depends = on_inputs(fusion, is_meant);
        let computed = self.segments.segments[launch.segment].inputs.iter().any(|operand| match operand {
            Operand::Scalar(scalar) => {
                depends[*scalar] && !matches!(fusion.scalars[*scalar].def, ScalarDef::Input { .. })
            }
            Operand::Tensor(_) => false,
        });
        let params = hanging_params(kernel, &|input| self.scalar_argument(launch, input).is_some_and(is_meant));
        let mut seen = SecondaryMap::new();
        let lengths = kernel.buffers.values().map(|buffer| buffer.len);
        let mut numbers = kernel.launch.grid.into_iter().chain(kernel.launch.block).chain(lengths);
        computed || numbers.any(|expr| hangs_on(kernel, expr, &params, &mut seen))
    }
}

/// The scalars that hang on the values of scalar inputs that are meant.
fn on_inputs(fusion: &Fusion, is_meant: &dyn Fn(u32) -> bool) -> SecondaryMap<ScalarId, bool> {
    let mut depends = SecondaryMap::new();
    // Operands come before their users.
    for (id, scalar) in fusion.scalars.iter() {
        let own = match scalar.def {
            ScalarDef::Input { index, .. } => is_meant(index),
            _ => scalar.def.operands().any(|a| depends[a]),
        };
        depends.set(id, own);
    }
    depends
}

/// Whether an operation's scalars are elements that it computes with, and nothing else.
fn takes_data(op: &Op) -> bool {
    match &op.kind {
        OpKind::Full => true,
        OpKind::Call(call) => call.row.random.is_some(),
        kind => kind.is_elementwise(),
    }
}

/// The parameters that are scalar inputs of which `given` says so, or computed from such.
fn hanging_params(kernel: &Kernel, given: &dyn Fn(u32) -> bool) -> SecondaryMap<ParamId, bool> {
    let (mut params, mut seen) = (SecondaryMap::new(), SecondaryMap::new());
    // Parameters come before those that are computed from them.
    for (id, param) in kernel.params.iter() {
        let hangs = match param.kind {
            ParamKind::Scalar { input } => given(input),
            ParamKind::Derived(expr) => hangs_on(kernel, expr, &params, &mut seen),
            _ => false,
        };
        params.set(id, hangs);
    }
    params
}

/// Whether an expression of a launch reads one of the parameters. Looked at once each.
fn hangs_on(
    kernel: &Kernel,
    expr: ExprId,
    params: &SecondaryMap<ParamId, bool>,
    seen: &mut SecondaryMap<ExprId, Option<bool>>,
) -> bool {
    if let Some(known) = seen[expr] {
        return known;
    }
    let mut any = |ids: &[ExprId]| ids.iter().any(|id| hangs_on(kernel, *id, params, seen));
    let found = match kernel.exprs[expr].expr {
        Expr::Const(_) | Expr::Special(_) | Expr::Var(_) => false,
        Expr::Param(param) => params[param],
        Expr::Unary(_, a)
        | Expr::Approx(_, a)
        | Expr::Rounded(a)
        | Expr::AsData(a)
        | Expr::AsIndex(a)
        | Expr::Cast(a) => any(&[a]),
        Expr::Binary(_, a, b) | Expr::Index(_, a, b) => any(&[a, b]),
        Expr::Ternary(_, a, b, c) => any(&[a, b, c]),
    };
    seen.set(expr, Some(found));
    found
}
