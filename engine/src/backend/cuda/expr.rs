//! Prints expressions as formulas with the parentheses that C++ needs.
//!
//! Index arithmetic prints as plain C++ arithmetic, which tells the compiler that
//! it neither overflows nor divides by zero; its conversion to and from data
//! prints as nothing. Arithmetic on data of integer type goes through library
//! functions that wrap as `num` demands.

use super::literal::{literal, literal_section, type_name, type_section};
use crate::kernel::{Expr, ExprId, IndexOp, Kernel, ParamId, Special, VarId};
use crate::num::{ApproxOp, BinaryOp, DType, TernaryOp, UnaryOp, Value};
use crate::util::SecondaryMap;
use std::collections::{BTreeMap, BTreeSet};

/// How tightly an operator binds, tightest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Prec {
    Conditional,
    LogicalOr,
    LogicalAnd,
    BitOr,
    BitXor,
    BitAnd,
    Equality,
    Relation,
    Shift,
    Sum,
    Product,
    Prefix,
    Primary,
}

/// A printed formula.
#[derive(Clone, Debug)]
pub(super) struct PrintedExpr {
    pub(super) code: String,
    prec: Prec,
}

impl PrintedExpr {
    fn new(code: impl Into<String>, prec: Prec) -> Self {
        Self { code: code.into(), prec }
    }
    fn primary(code: impl Into<String>) -> Self {
        Self::new(code, Prec::Primary)
    }
    fn call(function: &str, args: &[&PrintedExpr]) -> Self {
        let args: Vec<_> = args.iter().map(|arg| arg.code.as_str()).collect();
        Self::primary(format!("{function}({})", args.join(", ")))
    }
    /// The formula, in parentheses unless it binds at least that tightly.
    pub(super) fn at(&self, prec: Prec) -> String {
        if self.prec >= prec { self.code.clone() } else { format!("({})", self.code) }
    }
}

/// Prints expressions; knows the name of everything.
#[derive(Debug)]
pub(super) struct Exprs<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) params: SecondaryMap<ParamId, String>,
    /// The parameter that is the reciprocal of a divisor.
    pub(super) reciprocals: BTreeMap<ExprId, String>,
    pub(super) vars: SecondaryMap<VarId, String>,
    /// Names of the expressions that have a local in force.
    pub(super) locals: SecondaryMap<ExprId, Option<String>>,
    pub(super) specials: BTreeMap<Special, String>,
    /// Conversions of which it is known that no number is too large.
    pub(super) within: SecondaryMap<ExprId, bool>,
    /// Library sections in use.
    pub(super) used: BTreeSet<&'static str>,
}

impl Exprs<'_> {
    /// Notes the use of a library section and returns its name.
    pub(super) fn lib(&mut self, section: &'static str) -> &'static str {
        self.used.insert(section);
        section
    }

    /// The C++ type, its definition noted as used.
    pub(super) fn type_name(&mut self, dtype: DType) -> &'static str {
        self.used.extend(type_section(dtype));
        type_name(dtype)
    }

    /// An expression where it stands alone: an initialiser, argument or index.
    pub(super) fn code(&mut self, id: ExprId) -> String {
        self.text(id).code
    }

    /// An expression: its local's name if it has one, its formula otherwise.
    pub(super) fn text(&mut self, id: ExprId) -> PrintedExpr {
        let id = self.kernel.exprs.plain(id);
        match &self.locals[id] {
            Some(name) => PrintedExpr::primary(name.clone()),
            None => self.formula(id),
        }
    }

    /// The formula, even if the expression has a name.
    pub(super) fn formula(&mut self, id: ExprId) -> PrintedExpr {
        let node = self.kernel.exprs[id];
        match node.expr {
            Expr::Const(value) => self.constant(value, node.dtype),
            Expr::Param(param) => PrintedExpr::primary(self.params[param].clone()),
            Expr::Special(special) => PrintedExpr::primary(self.specials.get(&special).cloned().unwrap_or_default()),
            Expr::Var(var) => PrintedExpr::primary(self.vars[var].clone()),
            Expr::Unary(op, a) => self.unary(op, a),
            Expr::Binary(op, a, b) => self.binary(op, a, b),
            Expr::Ternary(op, a, b, c) => self.ternary(op, a, b, c),
            Expr::Index(op, a, b) => self.index(op, a, b),
            Expr::Approx(op, a) => {
                let a = self.text(a);
                let section = match op {
                    ApproxOp::ExpFlush | ApproxOp::ExpBelow => "exp_flush",
                    ApproxOp::ExpFast => "exp_fast",
                    ApproxOp::SigmoidFlush => "sigmoid_flush",
                    ApproxOp::SigmoidFast => "sigmoid_fast",
                    ApproxOp::SiluFlush => "silu_flush",
                    ApproxOp::SiluFast => "silu_fast",
                    ApproxOp::Erf => "erf_fast",
                    ApproxOp::ErfPlusOne => "erf_plus_1",
                    ApproxOp::ErfPlusOneShort => "erf_plus_1_short",
                    ApproxOp::TanhPlusOne => "tanh_plus_1",
                    ApproxOp::GeluSlope => "gelu_slope",
                };
                PrintedExpr::call(self.lib(section), &[&a])
            }
            Expr::Rounded(a) => self.rounded(a),
            Expr::AsData(a) | Expr::AsIndex(a) => self.text(a),
            Expr::Cast(a) => {
                let from = self.kernel.exprs.dtype(a);
                let a = self.text(a);
                match within(node.dtype) {
                    Some(function) if from == DType::F32 && self.within[id] => {
                        PrintedExpr::call(self.lib(function), &[&a])
                    }
                    _ => self.cast(a, from, node.dtype),
                }
            }
        }
    }

    fn constant(&mut self, value: Value, dtype: DType) -> PrintedExpr {
        if dtype.is_complex() {
            let (re, im) = value.as_complex();
            let [re, im] = [re, im].map(|part| self.constant(Value::Float(part), dtype.part()).code);
            let name = self.type_name(dtype);
            return PrintedExpr::primary(format!("{name}{{{re}, {im}}}"));
        }
        self.used.extend(literal_section(value, dtype));
        let (code, primary) = literal(value, dtype);
        PrintedExpr::new(code, if primary { Prec::Primary } else { Prec::Prefix })
    }

    fn zero(&mut self, dtype: DType) -> PrintedExpr {
        self.constant(Value::Float(0.0), dtype)
    }

    /// A conversion between types with the meaning of `num`.
    pub(super) fn cast(&mut self, a: PrintedExpr, from: DType, to: DType) -> PrintedExpr {
        use DType::*;
        if from == to {
            return a;
        }
        if from.is_complex() || to.is_complex() {
            return self.cast_complex(a, from, to);
        }
        if let Some((section, _)) = narrow_float(from) {
            self.lib(section);
            let a = PrintedExpr::call("to_float", &[&a]);
            return self.cast(a, F32, to);
        }
        if let (F32, Some((_, function))) = (from, narrow_float(to)) {
            return PrintedExpr::call(self.lib(function), &[&a]);
        }
        match (from, to) {
            // Rounded once: what the first rounding loses, the second must know.
            (F64 | I64 | Index, _) if to.is_reduced_float() => {
                let a = PrintedExpr::call(self.lib("round_to_odd"), &[&a]);
                self.cast(a, F32, to)
            }
            (U64, _) if to.is_reduced_float() => {
                let a = PrintedExpr::call(self.lib("round_to_odd_unsigned"), &[&a]);
                self.cast(a, F32, to)
            }
            // The others have no such large numbers, or what is too large for them.
            (I32 | U32, BF16 | F8E8M0FNU) => {
                let wide = self.cast(a, from, I64);
                self.cast(wide, I64, to)
            }
            _ if to.is_reduced_float() => {
                let a = self.cast(a, from, F32);
                self.cast(a, F32, to)
            }
            (_, Bool) => {
                let zero = self.zero(from);
                compare("!=", Prec::Equality, &a, &zero)
            }
            (F32 | F64, I64 | Index) => PrintedExpr::call(self.lib("to_long"), &[&a]),
            (F32 | F64, I32) => PrintedExpr::call(self.lib("to_int"), &[&a]),
            (F32 | F64, I8) => PrintedExpr::call(self.lib("to_i8"), &[&a]),
            (F32 | F64, U8) => PrintedExpr::call(self.lib("to_u8"), &[&a]),
            (F32 | F64, I16) => PrintedExpr::call(self.lib("to_i16"), &[&a]),
            (F32 | F64, U16) => PrintedExpr::call(self.lib("to_u16"), &[&a]),
            (F32 | F64, U32) => PrintedExpr::call(self.lib("to_u32"), &[&a]),
            (F32 | F64, U64) => PrintedExpr::call(self.lib("to_u64"), &[&a]),
            _ => {
                let name = self.type_name(to);
                PrintedExpr::new(format!("({name}){}", a.at(Prec::Prefix)), Prec::Prefix)
            }
        }
    }

    /// A complex number becomes real by its real part, and is true if it is not zero.
    fn cast_complex(&mut self, a: PrintedExpr, from: DType, to: DType) -> PrintedExpr {
        match to {
            DType::Bool => PrintedExpr::call(self.lib("complex_nonzero"), &[&a]),
            DType::C128 if from == DType::C64 => PrintedExpr::call(self.lib("complex_to_double"), &[&a]),
            DType::C64 if from == DType::C128 => PrintedExpr::call(self.lib("complex_to_float"), &[&a]),
            _ if from.is_complex() => self.cast(part(&a, "re"), from.part(), to),
            _ => {
                let re = self.cast(a, from, to.part());
                let im = self.zero(to.part());
                PrintedExpr::call(self.lib(complex_of(to.part())), &[&re, &im])
            }
        }
    }

    /// An operation on a complex number.
    fn unary_complex(&mut self, op: UnaryOp, a: PrintedExpr, dtype: DType) -> PrintedExpr {
        use UnaryOp::*;
        let function = match op {
            Real => return part(&a, "re"),
            Imag => return part(&a, "im"),
            LogicalNot => {
                let truth = PrintedExpr::call(self.lib("complex_nonzero"), &[&a]);
                return not(&truth, DType::Bool);
            }
            IsReal => {
                let zero = self.zero(dtype.part());
                return compare("==", Prec::Equality, &part(&a, "im"), &zero);
            }
            Abs => "complex_abs",
            Acos => "complex_acos",
            Acosh => "complex_acosh",
            Asin => "complex_asin",
            Asinh => "complex_asinh",
            Atan => "complex_atan",
            Atanh => "complex_atanh",
            Cos => "complex_cos",
            Cosh => "complex_cosh",
            Exp => "complex_exp",
            Exp2 => "complex_exp2",
            Expm1 => "complex_expm1",
            IsFinite => "complex_isfinite",
            IsInf => "complex_isinf",
            IsNan => "complex_isnan",
            Log => "complex_log",
            Log10 => "complex_log10",
            Log1p => "complex_log1p",
            Log2 => "complex_log2",
            Reciprocal => "complex_reciprocal",
            Rsqrt => "complex_rsqrt",
            Sigmoid => "complex_sigmoid",
            Silu => "complex_silu",
            Sin => "complex_sin",
            Sinh => "complex_sinh",
            Sqrt => "complex_sqrt",
            Tan => "complex_tan",
            Tanh => "complex_tanh",
            // The others have no complex form; the verifier refuses them.
            _ => "complex_neg",
        };
        PrintedExpr::call(self.lib(function), &[&a])
    }

    /// An operation on two complex numbers.
    fn binary_complex(&mut self, op: BinaryOp, a: PrintedExpr, b: PrintedExpr) -> PrintedExpr {
        use BinaryOp::*;
        let function = match op {
            LogicalAnd | LogicalOr => {
                let [a, b] = [a, b].map(|x| PrintedExpr::call(self.lib("complex_nonzero"), &[&x]));
                return self.binary_bool(op, a, b);
            }
            Ne => {
                let equal = PrintedExpr::call(self.lib("complex_eq"), &[&a, &b]);
                return not(&equal, DType::Bool);
            }
            Eq => "complex_eq",
            Sub => "complex_sub",
            Mul => "complex_mul",
            Div | Truediv => "complex_div",
            Pow => "complex_pow",
            // The others have no complex form; the verifier refuses them.
            _ => "complex_add",
        };
        PrintedExpr::call(self.lib(function), &[&a, &b])
    }

    fn unary(&mut self, op: UnaryOp, operand: ExprId) -> PrintedExpr {
        use UnaryOp::*;
        let dtype = self.kernel.exprs.dtype(operand);
        let a = self.text(operand);
        if dtype.is_complex() {
            return self.unary_complex(op, a, dtype);
        }
        if dtype.is_reduced_float() {
            // Storage formats compute in f32.
            let wide = self.cast(a, dtype, DType::F32);
            let result = self.unary_on(op, wide, DType::F32);
            return if op.is_predicate() { result } else { self.cast(result, DType::F32, dtype) };
        }
        match dtype {
            DType::F32 | DType::F64 => self.unary_on(op, a, dtype),
            _ if op.is_predicate()
                || matches!(op, Abs | Ceil | Floor | Neg | BitwiseNot | Relu | Round | Sign | Trunc | Real) =>
            {
                self.unary_int(op, a, dtype)
            }
            _ => {
                let wide = self.cast(a, dtype, DType::F32);
                let result = self.unary_on(op, wide, DType::F32);
                self.cast(result, DType::F32, dtype)
            }
        }
    }

    /// Integers and truth values.
    fn unary_int(&mut self, op: UnaryOp, a: PrintedExpr, dtype: DType) -> PrintedExpr {
        use UnaryOp::*;
        let signed = dtype.is_int() && !dtype.is_unsigned();
        self.note_held(dtype);
        match op {
            Ceil | Floor | Round | Trunc | Real => a,
            IsFinite | IsReal => PrintedExpr::primary("true"),
            IsInf | IsNan | IsNegInf | IsPosInf => PrintedExpr::primary("false"),
            LogicalNot => not(&a, dtype),
            BitwiseNot if dtype == DType::Bool => not(&a, dtype),
            BitwiseNot => {
                let result = PrintedExpr::new(format!("~{}", a.at(Prec::Prefix)), Prec::Prefix);
                self.narrow(result, dtype)
            }
            Abs | Relu if !signed => a,
            Abs => PrintedExpr::call(self.lib("wrap_abs"), &[&a]),
            Relu => {
                let zero = self.zero(dtype);
                let result = select(&compare("<", Prec::Relation, &a, &zero), &zero, &a);
                self.hold_bytes(result, dtype)
            }
            Neg if dtype == DType::Bool => a,
            Neg => PrintedExpr::call(self.lib("wrap_neg"), &[&a]),
            Sign if dtype == DType::Bool => a,
            Sign => PrintedExpr::call(self.lib("sign_of"), &[&a]),
            Signbit if signed => {
                let zero = self.zero(dtype);
                compare("<", Prec::Relation, &a, &zero)
            }
            Signbit => PrintedExpr::primary("false"),
            // The caller converts the others to floats.
            _ => a,
        }
    }

    /// `f32` and `f64`.
    fn unary_on(&mut self, op: UnaryOp, a: PrintedExpr, dtype: DType) -> PrintedExpr {
        use UnaryOp::*;
        let suffix = if dtype == DType::F32 { "f" } else { "" };
        let infinity = |this: &mut Self, sign: f64| this.constant(Value::Float(f64::INFINITY * sign), dtype);
        let function = match op {
            Acos | Acosh | Asin | Asinh | Atan | Atanh | Ceil | Cos | Cosh | Exp | Exp2 | Expm1 | Erf | Erfc
            | Floor | Lgamma | Log | Log10 | Log1p | Log2 | Rsqrt | Sin | Sinh | Sqrt | Tan | Tanh | Trunc => op.name(),
            Erfinv => "erfinv",
            Erfcinv => "erfcinv",
            Abs => "fabs",
            Round => "rint",
            Sigmoid => return PrintedExpr::call(self.lib("sigmoid"), &[&a]),
            Silu => return PrintedExpr::call(self.lib("silu"), &[&a]),
            Sign => return PrintedExpr::call(self.lib("sign_of"), &[&a]),
            Signbit => return PrintedExpr::call(self.lib("sign_bit"), &[&a]),
            Frac => {
                let whole = PrintedExpr::primary(format!("trunc{suffix}({})", a.code));
                return PrintedExpr::new(format!("{} - {}", a.at(Prec::Sum), whole.code), Prec::Sum);
            }
            Neg => return negate(&a),
            LogicalNot => return not(&a, dtype),
            Relu => {
                let zero = self.zero(dtype);
                return PrintedExpr::call(self.lib("max_nan"), &[&a, &zero]);
            }
            Reciprocal => {
                let one = self.constant(Value::Float(1.0), dtype);
                return PrintedExpr::new(format!("{} / {}", one.code, a.at(Prec::Prefix)), Prec::Product);
            }
            IsFinite => {
                let (magnitude, limit) = (PrintedExpr::call(&format!("fabs{suffix}"), &[&a]), infinity(self, 1.0));
                return compare("<", Prec::Relation, &magnitude, &limit);
            }
            IsInf => {
                let (magnitude, limit) = (PrintedExpr::call(&format!("fabs{suffix}"), &[&a]), infinity(self, 1.0));
                return compare("==", Prec::Equality, &magnitude, &limit);
            }
            IsNan => return compare("!=", Prec::Equality, &a, &a),
            IsNegInf => return compare("==", Prec::Equality, &a, &infinity(self, -1.0)),
            IsPosInf => return compare("==", Prec::Equality, &a, &infinity(self, 1.0)),
            IsReal => return PrintedExpr::primary("true"),
            Real => return a,
            // Of complex numbers only.
            Imag => return self.zero(dtype),
            BitwiseNot => return self.unary_int(op, a, DType::I64),
        };
        PrintedExpr::primary(format!("{function}{suffix}({})", a.code))
    }

    /// Brings the result of integer arithmetic on a type narrower than `int` back to it.
    fn narrow(&mut self, result: PrintedExpr, dtype: DType) -> PrintedExpr {
        match dtype {
            DType::I8 | DType::U8 | DType::I16 | DType::U16 => {
                let name = self.type_name(dtype);
                PrintedExpr::new(format!("({name}){}", result.at(Prec::Prefix)), Prec::Prefix)
            }
            _ => result,
        }
    }

    fn binary(&mut self, op: BinaryOp, left: ExprId, right: ExprId) -> PrintedExpr {
        let dtype = self.kernel.exprs.dtype(left);
        let (a, b) = (self.text(left), self.text(right));
        match dtype {
            _ if op == BinaryOp::Complex => PrintedExpr::call(self.lib(complex_of(dtype)), &[&a, &b]),
            _ if dtype.is_complex() => self.binary_complex(op, a, b),
            _ if dtype.is_reduced_float() => {
                let (a, b) = (self.cast(a, dtype, DType::F32), self.cast(b, dtype, DType::F32));
                let result = self.binary_float(op, a, b, DType::F32);
                if op.is_predicate() { result } else { self.cast(result, DType::F32, dtype) }
            }
            DType::F32 | DType::F64 => self.binary_float(op, a, b, dtype),
            DType::Bool => self.binary_bool(op, a, b),
            _ => self.binary_int(op, a, b, dtype),
        }
    }

    /// A product that the compiler does not join with a sum; what is none, it does not join.
    fn rounded(&mut self, id: ExprId) -> PrintedExpr {
        let node = self.kernel.exprs[id];
        let function = match node.dtype {
            DType::F32 => "__fmul_rn",
            DType::F64 => "__dmul_rn",
            _ => return self.text(id),
        };
        match node.expr {
            Expr::Binary(BinaryOp::Mul, a, b) => {
                let (a, b) = (self.text(a), self.text(b));
                PrintedExpr::call(function, &[&a, &b])
            }
            _ => self.text(id),
        }
    }

    fn binary_float(&mut self, op: BinaryOp, a: PrintedExpr, b: PrintedExpr, dtype: DType) -> PrintedExpr {
        use BinaryOp::*;
        let suffix = if dtype == DType::F32 { "f" } else { "" };
        if let Some(text) = comparison(op, &a, &b) {
            return text;
        }
        let function = match op {
            Add => return infix("+", Prec::Sum, &a, &b),
            Sub => return infix("-", Prec::Sum, &a, &b),
            Mul => return infix("*", Prec::Product, &a, &b),
            Div | Truediv => return infix("/", Prec::Product, &a, &b),
            LogicalAnd | LogicalOr => {
                let (a, b) = (self.cast(a, dtype, DType::Bool), self.cast(b, dtype, DType::Bool));
                return self.binary_bool(op, a, b);
            }
            Minimum => return PrintedExpr::call(self.lib("min_nan"), &[&a, &b]),
            Maximum => return PrintedExpr::call(self.lib("max_nan"), &[&a, &b]),
            Remainder => return PrintedExpr::call(self.lib("float_rem"), &[&a, &b]),
            Atan2 => "atan2",
            Fmod | Mod => "fmod",
            Nextafter => "nextafter",
            Pow => "pow",
            CeilDiv => {
                let quotient = infix("/", Prec::Product, &a, &b);
                return PrintedExpr::primary(format!("ceil{suffix}({})", quotient.code));
            }
            // Bit operations have no meaning for floats; the verifier refuses them.
            _ => {
                let (a, b) = (self.cast(a, dtype, DType::I64), self.cast(b, dtype, DType::I64));
                let result = self.binary_int(op, a, b, DType::I64);
                return self.cast(result, DType::I64, dtype);
            }
        };
        PrintedExpr::call(&format!("{function}{suffix}"), &[&a, &b])
    }

    fn binary_bool(&mut self, op: BinaryOp, a: PrintedExpr, b: PrintedExpr) -> PrintedExpr {
        use BinaryOp::*;
        if let Some(text) = comparison(op, &a, &b) {
            return text;
        }
        match op {
            LogicalAnd | BitwiseAnd | Mul | Minimum => chain("&&", Prec::LogicalAnd, &a, &b),
            LogicalOr | BitwiseOr | Add | Maximum => chain("||", Prec::LogicalOr, &a, &b),
            BitwiseXor => compare("!=", Prec::Equality, &a, &b),
            _ => {
                let (a, b) = (self.cast(a, DType::Bool, DType::I32), self.cast(b, DType::Bool, DType::I32));
                let result = self.binary_int(op, a, b, DType::I32);
                self.cast(result, DType::I32, DType::Bool)
            }
        }
    }

    /// Index arithmetic: plain, since it has no case that C++ leaves undefined, but for divisions by numbers: by a reciprocal.
    fn index(&mut self, op: IndexOp, a: ExprId, b: ExprId) -> PrintedExpr {
        let reciprocal = self.reciprocals.get(&self.kernel.exprs.plain(b)).cloned().map(PrintedExpr::primary);
        let constant = self.kernel.exprs.as_int(b).filter(|n| (2..1 << 31).contains(n));
        let power = constant.filter(|n| n & (n - 1) == 0).map(i64::trailing_zeros);
        let (a, b) = (self.text(a), self.text(b));
        match (op, &reciprocal) {
            (IndexOp::Div, Some(reciprocal)) => return PrintedExpr::call(self.lib("quotient"), &[&a, reciprocal]),
            (IndexOp::Mod, Some(reciprocal)) => {
                return PrintedExpr::call(self.lib("remainder_of"), &[&a, &b, reciprocal]);
            }
            _ => {}
        }
        // What is divided is not negative, which the compiler often cannot know; a remainder by a power of two has
        // a meaning for any number: the mask's.
        match (op, power) {
            (IndexOp::Div, Some(bits)) => return infix(">>", Prec::Shift, &a, &PrintedExpr::primary(bits.to_string())),
            (IndexOp::Mod, Some(bits)) => {
                return PrintedExpr::new(format!("{} & {}", a.at(Prec::Prefix), (1i64 << bits) - 1), Prec::BitAnd);
            }
            _ => {}
        }
        if let Some(divisor) = constant {
            let function = match op {
                IndexOp::Div => Some("quotient_by"),
                IndexOp::Mod => Some("remainder_by"),
                _ => None,
            };
            if let Some(function) = function {
                return PrintedExpr::call(&format!("{}<{divisor}>", self.lib(function)), &[&a]);
            }
        }
        match op {
            IndexOp::Add => add(&a, &b),
            IndexOp::Sub => infix("-", Prec::Sum, &a, &b),
            IndexOp::Mul => chain("*", Prec::Product, &a, &b),
            IndexOp::Div => infix("/", Prec::Product, &a, &b),
            IndexOp::Mod => infix("%", Prec::Product, &a, &b),
            IndexOp::CeilDiv => PrintedExpr::call(self.lib("ceil_div"), &[&a, &b]),
            IndexOp::Min => select(&compare("<", Prec::Relation, &b, &a), &b, &a),
            IndexOp::Max => select(&compare("<", Prec::Relation, &a, &b), &b, &a),
            IndexOp::Xor => chain("^", Prec::BitXor, &a, &b),
        }
    }

    fn binary_int(&mut self, op: BinaryOp, a: PrintedExpr, b: PrintedExpr, dtype: DType) -> PrintedExpr {
        use BinaryOp::*;
        if let Some(text) = comparison(op, &a, &b) {
            return text;
        }
        self.note_held(dtype);
        let function = match op {
            Add => "wrap_add",
            Sub => "wrap_sub",
            Mul => "wrap_mul",
            Div => "int_div",
            Fmod | Mod => "int_rem",
            Remainder => "int_mod",
            CeilDiv => "ceil_div",
            Pow => "int_pow",
            Gcd => "int_gcd",
            ShiftLeft => "shift_left",
            // Without a sign it brings in zeros; `shift_right` takes 64 bits for a number with one.
            ShiftRight if dtype == DType::U64 => "shift_right_zero",
            ShiftRight => "shift_right",
            // Comparisons returned above.
            LogicalShiftRight | Eq | Ge | Gt | Le | Lt | Ne => "shift_right_zero",
            Minimum if dtype.bytes() <= 4 => "int_min",
            Maximum if dtype.bytes() <= 4 => "int_max",
            Minimum => return select(&compare("<", Prec::Relation, &b, &a), &b, &a),
            Maximum => return select(&compare("<", Prec::Relation, &a, &b), &b, &a),
            LogicalAnd | LogicalOr => {
                let (a, b) = (self.cast(a, dtype, DType::Bool), self.cast(b, dtype, DType::Bool));
                return self.binary_bool(op, a, b);
            }
            BitwiseAnd => return self.narrow(chain("&", Prec::BitAnd, &a, &b), dtype),
            BitwiseOr => return self.narrow(chain("|", Prec::BitOr, &a, &b), dtype),
            BitwiseXor => return self.narrow(chain("^", Prec::BitXor, &a, &b), dtype),
            Truediv | Atan2 | Nextafter | Complex => {
                let (a, b) = (self.cast(a, dtype, DType::F32), self.cast(b, dtype, DType::F32));
                let result = self.binary_float(op, a, b, DType::F32);
                return self.cast(result, DType::F32, dtype);
            }
        };
        PrintedExpr::call(self.lib(function), &[&a, &b])
    }

    fn ternary(&mut self, op: TernaryOp, a: ExprId, b: ExprId, c: ExprId) -> PrintedExpr {
        let dtype = self.kernel.exprs.dtype(c);
        let (a, b, c) = (self.text(a), self.text(b), self.text(c));
        if op == TernaryOp::Where {
            return self.hold_bytes(select(&a, &b, &c), dtype);
        }
        if dtype.is_reduced_float() {
            let [a, b, c] = [a, b, c].map(|x| self.cast(x, dtype, DType::F32));
            let result = self.ternary_on(op, a, b, c, DType::F32);
            return self.cast(result, DType::F32, dtype);
        }
        self.ternary_on(op, a, b, c, dtype)
    }

    fn ternary_on(
        &mut self,
        op: TernaryOp,
        a: PrintedExpr,
        b: PrintedExpr,
        c: PrintedExpr,
        dtype: DType,
    ) -> PrintedExpr {
        match op {
            TernaryOp::Where => select(&a, &b, &c),
            TernaryOp::Clamp if dtype.is_float() => {
                let low = PrintedExpr::call(self.lib("max_nan"), &[&a, &b]);
                PrintedExpr::call(self.lib("min_nan"), &[&low, &c])
            }
            TernaryOp::Clamp => {
                let result = PrintedExpr::call(self.lib("int_clamp"), &[&a, &b, &c]);
                self.hold_bytes(result, dtype)
            }
            TernaryOp::Lerp => {
                let function = match dtype {
                    _ if dtype.is_complex() => "complex_lerp",
                    _ if dtype.is_float() => "lerp",
                    _ => "int_lerp",
                };
                PrintedExpr::call(self.lib(function), &[&a, &b, &c])
            }
            TernaryOp::Threshold if dtype.is_float() => PrintedExpr::call(self.lib("threshold"), &[&a, &b, &c]),
            TernaryOp::Threshold => {
                let result = select(&compare(">", Prec::Relation, &a, &b), &a, &c);
                self.hold_bytes(result, dtype)
            }
        }
    }

    /// Keeps the assembler from making one instruction of a choice between two integers of at most 16 bits and a
    /// comparison of what was chosen: see `held` in the library.
    fn hold_bytes(&mut self, chosen: PrintedExpr, dtype: DType) -> PrintedExpr {
        match dtype {
            DType::I8 | DType::U8 | DType::I16 | DType::U16 => {
                self.note_held(dtype);
                PrintedExpr::call(self.lib("held"), &[&chosen])
            }
            _ => chosen,
        }
    }

    /// Notes that functions on such integers may hold them.
    fn note_held(&mut self, dtype: DType) {
        if matches!(dtype, DType::I16 | DType::U16 | DType::U32) {
            self.lib("held_others");
        }
    }
}

/// The library's functions between `f32` and a narrower float: from it, by the section's name, and to it.
const fn narrow_float(dtype: DType) -> Option<(&'static str, &'static str)> {
    Some(match dtype {
        DType::BF16 => ("bf16_to_float", "to_bf16"),
        DType::F16 => ("half_to_float", "to_half"),
        DType::F8E4M3FN => ("e4m3_to_float", "to_e4m3"),
        DType::F8E5M2 => ("e5m2_to_float", "to_e5m2"),
        DType::F8E8M0FNU => ("e8m0_to_float", "to_e8m0"),
        DType::F4E2M1FN => ("e2m1_to_float", "to_e2m1"),
        _ => return None,
    })
}

/// The library's function from `f32` to a float of which no number is too large, if it is another one.
const fn within(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F8E4M3FN => Some("to_e4m3_within"),
        DType::F8E5M2 => Some("to_e5m2_within"),
        _ => None,
    }
}

/// What makes a complex number of two parts of this type.
fn complex_of(part: DType) -> &'static str {
    if part == DType::F64 { "complex_of_double" } else { "complex_of" }
}

/// A part of a complex number.
fn part(a: &PrintedExpr, name: &str) -> PrintedExpr {
    PrintedExpr::primary(format!("{}.{name}", a.at(Prec::Primary)))
}

/// Comparisons look the same for all types.
fn comparison(op: BinaryOp, a: &PrintedExpr, b: &PrintedExpr) -> Option<PrintedExpr> {
    let (sign, prec) = match op {
        BinaryOp::Eq => ("==", Prec::Equality),
        BinaryOp::Ne => ("!=", Prec::Equality),
        BinaryOp::Lt => ("<", Prec::Relation),
        BinaryOp::Le => ("<=", Prec::Relation),
        BinaryOp::Gt => (">", Prec::Relation),
        BinaryOp::Ge => (">=", Prec::Relation),
        _ => return None,
    };
    Some(compare(sign, prec, a, b))
}

/// Comparisons do not chain: both sides must bind tighter than any of them.
fn compare(sign: &str, prec: Prec, a: &PrintedExpr, b: &PrintedExpr) -> PrintedExpr {
    PrintedExpr::new(format!("{} {sign} {}", a.at(Prec::Sum), b.at(Prec::Sum)), prec)
}

/// A left-associative operator whose grouping matters.
fn infix(sign: &str, prec: Prec, a: &PrintedExpr, b: &PrintedExpr) -> PrintedExpr {
    let (left, right) = match prec {
        // Sums beside shifts read better in parentheses.
        Prec::Shift => (Prec::Prefix, Prec::Prefix),
        Prec::Sum => (prec, Prec::Product),
        _ => (prec, Prec::Prefix),
    };
    PrintedExpr::new(format!("{} {sign} {}", a.at(left), b.at(right)), prec)
}

/// An operator whose grouping does not matter: a right operand of the same
/// operator needs no parentheses. `*` keeps them on the right, since `/` and
/// `%` bind alike; bit operators and `||` keep them around other operators.
fn chain(sign: &str, prec: Prec, a: &PrintedExpr, b: &PrintedExpr) -> PrintedExpr {
    let side = |text: &PrintedExpr| match prec {
        Prec::Product => text.at(Prec::Prefix),
        _ if text.prec == prec => text.code.clone(),
        Prec::LogicalAnd => text.at(Prec::Equality),
        _ => text.at(Prec::Sum),
    };
    let left = if prec == Prec::Product { a.at(prec) } else { side(a) };
    PrintedExpr::new(format!("{left} {sign} {}", side(b)), prec)
}

/// A sum of indices; `a + -3` prints as `a - 3`.
fn add(a: &PrintedExpr, b: &PrintedExpr) -> PrintedExpr {
    match b.code.strip_prefix('-') {
        Some(digits) if b.prec == Prec::Prefix && digits.starts_with(|c: char| c.is_ascii_digit()) => {
            PrintedExpr::new(format!("{} - {digits}", a.at(Prec::Sum)), Prec::Sum)
        }
        _ => PrintedExpr::new(format!("{} + {}", a.at(Prec::Sum), b.at(Prec::Sum)), Prec::Sum),
    }
}

fn negate(a: &PrintedExpr) -> PrintedExpr {
    // `--x` would be another operator.
    let inner = if a.code.starts_with('-') { format!("({})", a.code) } else { a.at(Prec::Prefix) };
    PrintedExpr::new(format!("-{inner}"), Prec::Prefix)
}

fn not(a: &PrintedExpr, dtype: DType) -> PrintedExpr {
    if dtype == DType::Bool {
        PrintedExpr::new(format!("!{}", a.at(Prec::Prefix)), Prec::Prefix)
    } else {
        PrintedExpr::new(format!("{} == 0", a.at(Prec::Sum)), Prec::Equality)
    }
}

fn select(condition: &PrintedExpr, yes: &PrintedExpr, no: &PrintedExpr) -> PrintedExpr {
    let code = format!("{} ? {} : {}", condition.at(Prec::LogicalOr), yes.at(Prec::LogicalOr), no.at(Prec::LogicalOr));
    PrintedExpr::new(code, Prec::Conditional)
}
