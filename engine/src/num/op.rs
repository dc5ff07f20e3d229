//! The scalar operations, one table each. Fusions, kernels, the reference
//! evaluator and both back ends name operations by these enums; what an
//! operation means is stated here and implemented once, in `eval`.
//!
//! Operands of one operation have one type (the promotion happens in the
//! fusion builder, as explicit casts). Floats of at most 16 bits are storage
//! formats: no arithmetic is defined on them, only casts and moves. `accepts`
//! of each table says which types an operation is defined on, `result_dtype`
//! which type the result then has.

use super::DType;

macro_rules! ops {
    ($(#[$meta:meta])* $enum:ident { $($variant:ident = $name:literal, $doc:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $enum {
            $(#[doc = $doc] $variant,)*
        }

        impl $enum {
            /// Every operation of this table.
            pub const ALL: &[Self] = &[$(Self::$variant),*];
            /// The textual name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
            /// One line on what it computes.
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$variant => $doc),* }
            }
            /// The operation with this textual name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|op| op.name() == name)
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

ops! {
    /// Operations of one operand.
    UnaryOp {
        Abs = "abs", "Magnitude, of a complex number as a real one; the most negative integer stays.";
        Acos = "acos", "Inverse cosine.";
        Acosh = "acosh", "Inverse hyperbolic cosine.";
        Asin = "asin", "Inverse sine.";
        Asinh = "asinh", "Inverse hyperbolic sine.";
        Atan = "atan", "Inverse tangent.";
        Atanh = "atanh", "Inverse hyperbolic tangent.";
        Ceil = "ceil", "Least integer not below.";
        Cos = "cos", "Cosine.";
        Cosh = "cosh", "Hyperbolic cosine.";
        Exp = "exp", "Natural exponential.";
        Exp2 = "exp2", "Power of two.";
        Expm1 = "expm1", "exp(x) - 1.";
        Erf = "erf", "Error function.";
        Erfc = "erfc", "Complementary error function.";
        Erfinv = "erfinv", "Inverse of erf on (-1, 1).";
        Erfcinv = "erfcinv", "Inverse of erfc on (0, 2).";
        Floor = "floor", "Greatest integer not above.";
        Frac = "frac", "x - trunc(x).";
        Lgamma = "lgamma", "Logarithm of the magnitude of the gamma function.";
        Log = "log", "Natural logarithm.";
        Log10 = "log10", "Decimal logarithm.";
        Log1p = "log1p", "log(1 + x).";
        Log2 = "log2", "Binary logarithm.";
        Neg = "neg", "Negation.";
        LogicalNot = "logical_not", "True where the operand is zero; bool result.";
        BitwiseNot = "bitwise_not", "Complement of every bit; logical not for bool.";
        Relu = "relu", "max(x, 0), NaN stays.";
        Reciprocal = "reciprocal", "1 / x.";
        Round = "round", "Nearest integer, ties to even.";
        Rsqrt = "rsqrt", "1 / sqrt(x).";
        Sign = "sign", "-1, 0 or 1; NaN gives 0.";
        Sigmoid = "sigmoid", "1 / (1 + exp(-x)).";
        Signbit = "signbit", "True where the sign bit is set; bool result.";
        Silu = "silu", "x * sigmoid(x).";
        Sin = "sin", "Sine.";
        Sinh = "sinh", "Hyperbolic sine.";
        Sqrt = "sqrt", "Square root.";
        Tan = "tan", "Tangent.";
        Tanh = "tanh", "Hyperbolic tangent.";
        Trunc = "trunc", "Integer part.";
        IsFinite = "isfinite", "True where finite; bool result.";
        IsInf = "isinf", "True where infinite; bool result.";
        IsNan = "isnan", "True where NaN; bool result.";
        IsNegInf = "isneginf", "True where negative infinity; bool result.";
        IsPosInf = "isposinf", "True where positive infinity; bool result.";
        IsReal = "isreal", "True where the imaginary part is zero; always, for real types; bool result.";
        Real = "real", "The real part; the operand itself, for real types.";
        Imag = "imag", "The imaginary part, of complex numbers only.";
    }
}

ops! {
    /// Operations of two operands of one type.
    BinaryOp {
        Add = "add", "Sum; integers wrap.";
        Atan2 = "atan2", "Angle of the point (y, x), first operand y.";
        Div = "div", "Quotient; truncated for integers. Integer division by zero is undefined: 0 in the reference.";
        Truediv = "truediv", "Quotient as a float.";
        Fmod = "fmod", "Remainder with the sign of the dividend.";
        Mul = "mul", "Product; integers wrap.";
        Nextafter = "nextafter", "Next representable value of the first operand towards the second.";
        Pow = "pow", "Power; integer powers wrap, negative exponents truncate.";
        Remainder = "remainder", "Remainder with the sign of the divisor.";
        Sub = "sub", "Difference; integers wrap.";
        Minimum = "minimum", "Smaller one; NaN wins.";
        Maximum = "maximum", "Larger one; NaN wins.";
        Mod = "mod", "C remainder of integers: the sign of the dividend.";
        Eq = "eq", "Equal; bool result.";
        Ge = "ge", "Greater or equal; bool result.";
        Gt = "gt", "Greater; bool result.";
        Le = "le", "Less or equal; bool result.";
        Lt = "lt", "Less; bool result.";
        Ne = "ne", "Not equal; bool result.";
        LogicalAnd = "logical_and", "Both non-zero; bool result.";
        LogicalOr = "logical_or", "Either non-zero; bool result.";
        BitwiseAnd = "bitwise_and", "Bitwise and.";
        BitwiseOr = "bitwise_or", "Bitwise or.";
        BitwiseXor = "bitwise_xor", "Bitwise exclusive or.";
        ShiftLeft = "bitwise_left_shift", "Left shift; 0 when the amount is not below the width.";
        ShiftRight = "bitwise_right_shift", "Arithmetic right shift; amounts saturate at the width.";
        LogicalShiftRight = "logical_right_shift", "Right shift that brings in zeros.";
        Gcd = "gcd", "Greatest common divisor, never negative.";
        CeilDiv = "ceildiv", "Quotient of non-negative integers, rounded up.";
        Complex = "complex", "The complex number of a real and an imaginary part.";
    }
}

ops! {
    /// Operations of three operands.
    TernaryOp {
        Where = "where", "Second operand where the first (bool) is true, else the third.";
        Clamp = "clamp", "min(max(x, low), high); NaN stays.";
        Lerp = "lerp", "start + weight * (end - start), the form that is exact at both ends.";
        Threshold = "threshold", "x where x > t, else v; operands x, t, v.";
    }
}

ops! {
    /// Combining operations of reductions. Associative and commutative up to
    /// rounding; each has a neutral element.
    ReduceOp {
        Sum = "sum", "Sum; neutral 0.";
        Prod = "prod", "Product; neutral 1.";
        Max = "max", "Maximum, NaN wins; neutral the least value.";
        Min = "min", "Minimum, NaN wins; neutral the greatest value.";
        MaxSumExp = "max_sum_exp", "Of pairs (m, s), held as complex numbers, the largest m and the sum of s * exp(m - largest), NaN below an infinite m; NaN wins; neutral (-inf, 0).";
    }
}

impl UnaryOp {
    /// Whether the result is `bool` whatever the operand.
    pub const fn is_predicate(self) -> bool {
        use UnaryOp::*;
        matches!(self, LogicalNot | Signbit | IsFinite | IsInf | IsNan | IsNegInf | IsPosInf | IsReal)
    }
    /// Whether an integer operand is promoted to `f32` first.
    pub const fn promotes_int_to_float(self) -> bool {
        use UnaryOp::*;
        !(self.is_predicate()
            || matches!(self, Abs | Ceil | Floor | Neg | BitwiseNot | Relu | Round | Sign | Trunc | Real | Imag))
    }
    /// Whether a GPU has an instruction for it; the others take many.
    pub const fn is_one_instruction(self) -> bool {
        matches!(self, UnaryOp::Abs | UnaryOp::Neg | UnaryOp::Relu)
    }
    /// Whether its code is long: an argument of any size is brought into a period, or one of several polynomials is chosen.
    pub const fn is_long(self) -> bool {
        use UnaryOp::*;
        matches!(self, Cos | Sin | Tan | Lgamma | Erfinv | Erfcinv)
    }
    /// Whether the operation is defined on operands of this type.
    pub const fn accepts(self, dtype: DType) -> bool {
        use UnaryOp::*;
        if dtype.is_reduced_float() || dtype.is_packed() {
            return false;
        }
        if dtype.is_complex() {
            return self.accepts_complex();
        }
        match self {
            BitwiseNot => !dtype.is_float(),
            Imag => false,
            Real => true,
            _ if self.is_predicate() => true,
            _ if self.promotes_int_to_float() => dtype.is_float(),
            _ => dtype.is_float() || dtype.is_int(),
        }
    }
    const fn accepts_complex(self) -> bool {
        use UnaryOp::*;
        !matches!(
            self,
            Ceil | Erf
                | Erfc
                | Erfinv
                | Erfcinv
                | Floor
                | Frac
                | Lgamma
                | BitwiseNot
                | Relu
                | Round
                | Sign
                | Signbit
                | Trunc
                | IsNegInf
                | IsPosInf
        )
    }
    /// The type of the result for an accepted operand.
    pub const fn result_dtype(self, operand: DType) -> DType {
        match self {
            _ if self.is_predicate() => DType::Bool,
            UnaryOp::Abs | UnaryOp::Real | UnaryOp::Imag => operand.part(),
            _ => operand,
        }
    }
}

impl BinaryOp {
    /// Whether the result is `bool` whatever the operands.
    pub const fn is_predicate(self) -> bool {
        use BinaryOp::*;
        matches!(self, Eq | Ge | Gt | Le | Lt | Ne | LogicalAnd | LogicalOr)
    }
    /// Whether it compares its operands.
    pub const fn is_comparison(self) -> bool {
        use BinaryOp::*;
        matches!(self, Eq | Ge | Gt | Le | Lt | Ne)
    }
    /// Whether integer operands are promoted to `f32` first.
    pub const fn promotes_int_to_float(self) -> bool {
        matches!(self, BinaryOp::Truediv | BinaryOp::Atan2 | BinaryOp::Complex)
    }
    /// Whether the operation is defined on operands of this type. On `bool`,
    /// sum and maximum are "or", product and minimum are "and".
    pub const fn accepts(self, dtype: DType) -> bool {
        use BinaryOp::*;
        if dtype.is_reduced_float() || dtype.is_packed() {
            return false;
        }
        if dtype.is_complex() {
            return matches!(self, Add | Sub | Mul | Div | Truediv | Pow | Eq | Ne | LogicalAnd | LogicalOr);
        }
        match self {
            Truediv | Atan2 | Nextafter | Complex => dtype.is_float(),
            Mod | ShiftLeft | ShiftRight | LogicalShiftRight | Gcd | CeilDiv => dtype.is_int(),
            BitwiseAnd | BitwiseOr | BitwiseXor => !dtype.is_float(),
            Add | Mul | Minimum | Maximum => true,
            _ if self.is_predicate() => true,
            _ => dtype.is_float() || dtype.is_int(),
        }
    }
    /// The type of the result for accepted operands of this type.
    pub const fn result_dtype(self, operands: DType) -> DType {
        match self {
            _ if self.is_predicate() => DType::Bool,
            BinaryOp::Complex => operands.to_complex(),
            _ => operands,
        }
    }
}

impl TernaryOp {
    /// Whether the operation is defined on values of this type; the condition
    /// of `where` is `bool` besides.
    pub const fn accepts(self, dtype: DType) -> bool {
        if dtype.is_packed() {
            return false;
        }
        match self {
            TernaryOp::Where => true,
            _ if dtype.is_reduced_float() => false,
            TernaryOp::Lerp => dtype.is_float() || dtype.is_complex(),
            TernaryOp::Clamp | TernaryOp::Threshold => dtype.is_float() || dtype.is_int(),
        }
    }
}

impl ReduceOp {
    /// Whether the operation is defined on elements of this type.
    pub const fn accepts(self, dtype: DType) -> bool {
        match self {
            _ if dtype.is_reduced_float() || dtype.is_packed() => false,
            ReduceOp::Sum | ReduceOp::Prod => !matches!(dtype, DType::Bool),
            ReduceOp::Max | ReduceOp::Min => !dtype.is_complex(),
            ReduceOp::MaxSumExp => dtype.is_complex(),
        }
    }
    /// The binary operation that combines two partial results, if there is one: pairs are combined
    /// by several.
    pub const fn combine(self) -> Option<BinaryOp> {
        match self {
            ReduceOp::Sum => Some(BinaryOp::Add),
            ReduceOp::Prod => Some(BinaryOp::Mul),
            ReduceOp::Max => Some(BinaryOp::Maximum),
            ReduceOp::Min => Some(BinaryOp::Minimum),
            ReduceOp::MaxSumExp => None,
        }
    }
    /// The same on values of a type: truth values are sums and products of integers that are not 0.
    pub const fn combine_on(self, dtype: DType) -> Option<BinaryOp> {
        match (self, dtype) {
            (ReduceOp::Sum | ReduceOp::Max, DType::Bool) => Some(BinaryOp::LogicalOr),
            (ReduceOp::Prod | ReduceOp::Min, DType::Bool) => Some(BinaryOp::LogicalAnd),
            _ => self.combine(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_over_all_tables() {
        let names = UnaryOp::ALL
            .iter()
            .map(|op| op.name())
            .chain(BinaryOp::ALL.iter().map(|op| op.name()))
            .chain(TernaryOp::ALL.iter().map(|op| op.name()))
            .chain(ReduceOp::ALL.iter().map(|op| op.name()));
        let mut seen = std::collections::BTreeSet::new();
        for name in names {
            assert!(seen.insert(name), "{name} is declared twice");
        }
    }

    /// What PyTorch 2.11 defines on `complex64`, of the operations here.
    #[test]
    fn complex_numbers_have_the_operations_of_pytorch() {
        let unary = "abs acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 isfinite isinf isnan isreal log log10 \
                     log1p log2 logical_not neg real imag reciprocal rsqrt sigmoid silu sin sinh sqrt tan tanh";
        let binary = "add div eq logical_and logical_or mul ne pow sub truediv";
        for dtype in [DType::C64, DType::C128] {
            for &op in UnaryOp::ALL {
                assert_eq!(op.accepts(dtype), unary.split_whitespace().any(|name| name == op.name()), "{op}");
            }
            for &op in BinaryOp::ALL {
                assert_eq!(op.accepts(dtype), binary.split_whitespace().any(|name| name == op.name()), "{op}");
            }
            assert!(ReduceOp::Sum.accepts(dtype) && ReduceOp::Prod.accepts(dtype) && !ReduceOp::Max.accepts(dtype));
            assert!(ReduceOp::MaxSumExp.accepts(dtype) && !ReduceOp::MaxSumExp.accepts(dtype.part()));
        }
    }

    #[test]
    fn storage_formats_only_move() {
        for &dtype in DType::ALL.iter().filter(|dtype| dtype.is_reduced_float() || dtype.is_packed()) {
            assert!(!UnaryOp::ALL.iter().any(|op| op.accepts(dtype)), "{dtype}");
            assert!(!BinaryOp::ALL.iter().any(|op| op.accepts(dtype)), "{dtype}");
            assert!(!ReduceOp::ALL.iter().any(|op| op.accepts(dtype)), "{dtype}");
            let ternary: Vec<_> = TernaryOp::ALL.iter().filter(|op| op.accepts(dtype)).collect();
            assert_eq!(ternary.len(), usize::from(!dtype.is_packed()), "{dtype}: {ternary:?}");
        }
    }
}
