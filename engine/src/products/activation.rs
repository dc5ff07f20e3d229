//! Elementwise operations behind a product that a library computes with it.
//!
//! In: a fusion, and a product in it. Out: [`FoundActivation`], the operations that together make an
//! activation of its result, which nothing else reads.
//!
//! A library computes it of the sum before that is rounded. The language demands the rounding: what
//! `matmul` and `linear` return has the type of their operands. So only activations of `f32` are taken,
//! where what is returned is the sum as the library has it: gelu in the form with `tanh`, which is the
//! library's; that with `erf` is another function. Relu is never taken: on the GPU, cublasLt's keeps NaN
//! or gives 0, by the algorithm (in 16 bits often, in `f32` where sums have one term).

use crate::fusion::{Fusion, Op, OpId, OpKind, Operand, TensorId};
use crate::num::{BinaryOp, DType, UnaryOp};
use crate::util::{SecondaryMap, map_of};
use std::collections::{BTreeMap, BTreeSet};

/// What is computed of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Nothing.
    None,
    /// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`.
    Gelu,
}

/// An activation of a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundActivation {
    /// Which.
    pub activation: Activation,
    /// The operations that compute it, in order. The last one returns the result.
    pub ops: Vec<OpId>,
}

/// The activation that is computed of a product's result and of nothing else, if that has no other
/// readers, and no result on the way has. `kept` are tensors that must be in memory.
pub fn find_activation(
    fusion: &Fusion,
    product: OpId,
    readers: &SecondaryMap<TensorId, Vec<OpId>>,
    kept: &dyn Fn(TensorId) -> bool,
) -> Option<FoundActivation> {
    let of = fusion.ops[product].output();
    let is_f32 = |tensor: TensorId| fusion.tensors[tensor].dtype == DType::F32;
    let mut seen = map_of([(of, Polynomial::x())]);
    let mut chain = Chain { fusion, inner: None };
    if !is_f32(of) || !fusion.tensor_inputs(product).all(is_f32) || kept(of) {
        return None;
    }
    let (mut ops, mut next): (Vec<OpId>, BTreeSet<OpId>) = (Vec::new(), readers[of].iter().copied().collect());
    while let Some(op) = next.pop_first() {
        let found = chain.see(&fusion.ops[op], &seen)?;
        ops.push(op);
        if let Some(activation) = chain.activation(&fusion.ops[op], &found) {
            let is_own = |tensor: &TensorId| readers[*tensor].iter().all(|reader| ops.contains(reader));
            return seen.keys().all(is_own).then_some(FoundActivation { activation, ops });
        }
        let output = fusion.ops[op].output();
        if ops.len() == MOST_OPS || kept(output) {
            return None;
        }
        next.extend(&readers[output]);
        seen.insert(output, found);
    }
    None
}

/// Operations of the longest form of an activation that is looked for.
const MOST_OPS: usize = 16;
/// The highest power in any form of gelu.
const MOST_POWER: u32 = 4;
/// `sqrt(2 / pi)`.
const GELU_SCALE: f64 = 0.797_884_560_802_865_4;
/// The factor of the cube.
const GELU_CUBE: f64 = 0.044715;
/// How far a constant may be from its value, relatively: it is written in `f32`.
const CLOSE: f64 = 4.0 * f32::EPSILON as f64;

/// What a tensor is as a function of the product's result `x`: a polynomial in `x` and `tanh(...)`, factors by the
/// powers of both.
#[derive(Clone, Debug, Default, PartialEq)]
struct Polynomial(BTreeMap<(u32, u32), f64>);

impl Polynomial {
    fn x() -> Self {
        Self(map_of([((1, 0), 1.0)]))
    }
    fn number(value: f64) -> Self {
        Self(map_of([((0, 0), value)]))
    }
    fn is_x(&self) -> bool {
        *self == Self::x()
    }

    fn plus(&self, other: &Self, factor: f64) -> Self {
        let mut sum = self.clone();
        for (powers, value) in &other.0 {
            *sum.0.entry(*powers).or_default() += factor * value;
        }
        sum
    }

    /// The product, unless powers in it are higher than any form has.
    fn times(&self, other: &Self) -> Option<Self> {
        let mut product = Self::default();
        for ((x, t), a) in &self.0 {
            for ((y, u), b) in &other.0 {
                if x + y > MOST_POWER || t + u > 1 {
                    return None;
                }
                *product.0.entry((x + y, t + u)).or_default() += a * b;
            }
        }
        Some(product)
    }

    /// Without powers whose factors are 0, which a number may be.
    fn simplified(mut self) -> Self {
        self.0.retain(|_, factor| *factor != 0.0);
        self
    }

    /// Whether it has these factors, as far as constants in `f32` say.
    fn is_close(&self, factors: &[((u32, u32), f64)]) -> bool {
        let is_factor = |(powers, value): &((u32, u32), f64)| {
            self.0.get(powers).is_some_and(|own| (own - value).abs() <= CLOSE * value.abs())
        };
        self.0.len() == factors.len() && factors.iter().all(is_factor)
    }
}

/// Operations behind a product.
struct Chain<'a> {
    fusion: &'a Fusion,
    /// What `tanh` is taken of.
    inner: Option<Polynomial>,
}

impl Chain<'_> {
    /// What an operation makes of tensors on the chain; none if it is not part of an activation.
    fn see(&mut self, op: &Op, seen: &BTreeMap<TensorId, Polynomial>) -> Option<Polynomial> {
        let operands: Vec<Polynomial> =
            op.inputs.iter().map(|operand| self.operand(operand, seen)).collect::<Option<_>>()?;
        match (&op.kind, &operands[..]) {
            (OpKind::Cast(DType::F32), [x]) if x.is_x() => Some(x.clone()),
            (OpKind::Unary(op), [x]) => self.unary(*op, x),
            (OpKind::Binary(op), [a, b]) => binary(*op, a, b),
            _ => None,
        }
        .map(Polynomial::simplified)
    }

    fn operand(&self, operand: &Operand, seen: &BTreeMap<TensorId, Polynomial>) -> Option<Polynomial> {
        match *operand {
            Operand::Tensor(tensor) => seen.get(&tensor).cloned(),
            Operand::Scalar(scalar) => {
                let is_real = self.fusion.scalars[scalar].dtype != DType::Bool;
                let value = self.fusion.const_scalar(scalar).filter(|_| is_real)?;
                Some(Polynomial::number(value.as_f64()))
            }
        }
    }

    fn unary(&mut self, op: UnaryOp, x: &Polynomial) -> Option<Polynomial> {
        match op {
            UnaryOp::Neg => Some(Polynomial::default().plus(x, -1.0)),
            UnaryOp::Tanh if self.inner.is_none() => {
                self.inner = Some(x.clone());
                Some(Polynomial(map_of([((0, 1), 1.0)])))
            }
            _ => None,
        }
    }

    /// The activation that a result is, if it is one in the type of the product.
    fn activation(&self, op: &Op, found: &Polynomial) -> Option<Activation> {
        let inner = self.inner.as_ref().filter(|_| self.fusion.tensors[op.output()].dtype == DType::F32)?;
        let is_gelu = found.is_close(&[((1, 0), 0.5), ((1, 1), 0.5)])
            && inner.is_close(&[((1, 0), GELU_SCALE), ((3, 0), GELU_SCALE * GELU_CUBE)]);
        is_gelu.then_some(Activation::Gelu)
    }
}

fn binary(op: BinaryOp, a: &Polynomial, b: &Polynomial) -> Option<Polynomial> {
    let number = |x: &Polynomial| match x.0.first_key_value() {
        Some(((0, 0), value)) if x.0.len() == 1 => Some(*value),
        _ => None,
    };
    Some(match op {
        BinaryOp::Add => a.plus(b, 1.0),
        BinaryOp::Sub => a.plus(b, -1.0),
        BinaryOp::Mul => a.times(b)?,
        BinaryOp::Div | BinaryOp::Truediv => Polynomial::default().plus(a, 1.0 / number(b).filter(|b| *b != 0.0)?),
        BinaryOp::Pow => match number(b)? {
            2.0 => a.times(a)?,
            3.0 => a.times(a)?.times(a)?,
            _ => return None,
        },
        _ => return None,
    })
}

impl std::fmt::Display for Activation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "nothing",
            Self::Gelu => "gelu (tanh)",
        })
    }
}
