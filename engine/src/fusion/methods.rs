//! A builder method for each scalar operation, named as in the text form.

use super::{FusionBuilder, Operand, Src};
use crate::diag::Result;
use crate::num::{BinaryOp, ReduceOp, TernaryOp, UnaryOp};

macro_rules! unary_methods {
    ($($method:ident = $variant:ident;)*) => {
        impl FusionBuilder {
            $(
                #[doc = concat!("See [`UnaryOp::", stringify!($variant), "`].")]
                pub fn $method(&mut self, x: impl Into<Src>) -> Result<Operand> {
                    self.unary(UnaryOp::$variant, x)
                }
            )*
        }
    };
}

macro_rules! binary_methods {
    ($($method:ident = $variant:ident;)*) => {
        impl FusionBuilder {
            $(
                #[doc = concat!("See [`BinaryOp::", stringify!($variant), "`].")]
                pub fn $method(&mut self, a: impl Into<Src>, b: impl Into<Src>) -> Result<Operand> {
                    self.binary(BinaryOp::$variant, a, b)
                }
            )*
        }
    };
}

macro_rules! reduce_methods {
    ($($method:ident = $variant:ident;)*) => {
        impl FusionBuilder {
            $(
                #[doc = concat!("See [`ReduceOp::", stringify!($variant), "`] and [`FusionBuilder::reduce`].")]
                pub fn $method(&mut self, x: impl Into<Src>, axes: &[i64], keepdim: bool) -> Result<Operand> {
                    self.reduce(ReduceOp::$variant, x, axes, keepdim, None)
                }
            )*
        }
    };
}

macro_rules! ternary_methods {
    ($($method:ident = $variant:ident;)*) => {
        impl FusionBuilder {
            $(
                #[doc = concat!("See [`TernaryOp::", stringify!($variant), "`].")]
                pub fn $method(&mut self, a: impl Into<Src>, b: impl Into<Src>, c: impl Into<Src>) -> Result<Operand> {
                    self.ternary(TernaryOp::$variant, a, b, c)
                }
            )*
        }
    };
}

unary_methods! {
    abs = Abs;
    acos = Acos;
    acosh = Acosh;
    asin = Asin;
    asinh = Asinh;
    atan = Atan;
    atanh = Atanh;
    ceil = Ceil;
    cos = Cos;
    cosh = Cosh;
    exp = Exp;
    exp2 = Exp2;
    expm1 = Expm1;
    erf = Erf;
    erfc = Erfc;
    erfinv = Erfinv;
    erfcinv = Erfcinv;
    floor = Floor;
    frac = Frac;
    lgamma = Lgamma;
    log = Log;
    log10 = Log10;
    log1p = Log1p;
    log2 = Log2;
    neg = Neg;
    logical_not = LogicalNot;
    bitwise_not = BitwiseNot;
    relu = Relu;
    reciprocal = Reciprocal;
    round = Round;
    rsqrt = Rsqrt;
    sign = Sign;
    sigmoid = Sigmoid;
    signbit = Signbit;
    silu = Silu;
    sin = Sin;
    sinh = Sinh;
    sqrt = Sqrt;
    tan = Tan;
    tanh = Tanh;
    trunc = Trunc;
    isfinite = IsFinite;
    isinf = IsInf;
    isnan = IsNan;
    isneginf = IsNegInf;
    isposinf = IsPosInf;
    isreal = IsReal;
    real = Real;
}

binary_methods! {
    add = Add;
    atan2 = Atan2;
    div = Div;
    truediv = Truediv;
    fmod = Fmod;
    mul = Mul;
    nextafter = Nextafter;
    pow = Pow;
    remainder = Remainder;
    sub = Sub;
    minimum = Minimum;
    maximum = Maximum;
    mod_ = Mod;
    eq = Eq;
    ge = Ge;
    gt = Gt;
    le = Le;
    lt = Lt;
    ne = Ne;
    logical_and = LogicalAnd;
    logical_or = LogicalOr;
    bitwise_and = BitwiseAnd;
    bitwise_or = BitwiseOr;
    bitwise_xor = BitwiseXor;
    bitwise_left_shift = ShiftLeft;
    bitwise_right_shift = ShiftRight;
    logical_right_shift = LogicalShiftRight;
    gcd = Gcd;
    ceildiv = CeilDiv;
}

ternary_methods! {
    where_ = Where;
    clamp = Clamp;
    lerp = Lerp;
    threshold = Threshold;
}

reduce_methods! {
    sum = Sum;
    prod = Prod;
    max = Max;
    min = Min;
}
