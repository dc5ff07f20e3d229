//! The operations. The arithmetic ones are a table from which the enum and the
//! dispatch are generated; each is a plain function of one lane.

use crate::LANES;
use crate::convert::{
    bf16_to_f32, f4e2m1fn_to_f32, f8e4m3fn_to_f32, f8e5m2_to_f32, f8e8m0fnu_to_f32, f16_to_f32, f32_to_bf16,
    f32_to_f4e2m1fn, f32_to_f8e4m3fn, f32_to_f8e5m2, f32_to_f8e8m0fnu, f32_to_f16,
};
use crate::lanes::{Files, Lane, map1, map2, map3};
use crate::program::{File, Inst};

macro_rules! operations {
    (
        control { $($(#[$cdoc:meta])* $control:ident;)* }
        unary { $($u:ident: $ua:ty => $ud:ty = $uf:expr;)* }
        binary { $($b:ident: $ba:ty => $bd:ty = $bf:expr;)* }
        ternary { $($t:ident: $ta:ty, $tb:ty => $td:ty = $tf:expr;)* }
        division { $($v:ident: $va:ty = $general:expr, $uniform:expr;)* }
    ) => {
        /// An operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Opcode {
            $($(#[$cdoc])* $control,)*
            $(#[doc = concat!("`", stringify!($ua), " => ", stringify!($ud), "`")] $u,)*
            $(#[doc = concat!("`", stringify!($ba), "` twice `=> ", stringify!($bd), "`")] $b,)*
            $(#[doc = concat!("`", stringify!($ta), ", ", stringify!($tb), "` twice `=> ", stringify!($td), "`")] $t,)*
            $(#[doc = concat!("`", stringify!($va), "` twice `=> ", stringify!($va), "`")] $v,)*
        }

        impl Opcode {
            /// Whether this is arithmetic on registers only.
            pub const fn is_arithmetic(self) -> bool {
                !matches!(self, $(Opcode::$control)|*)
            }

            /// The files of the destination and of the sources of an arithmetic
            /// operation.
            pub const fn files(self) -> (File, [File; 3]) {
                const NONE: File = File::R32;
                match self {
                    $(Opcode::$u => (<$ud>::FILE, [<$ua>::FILE, NONE, NONE]),)*
                    $(Opcode::$b => (<$bd>::FILE, [<$ba>::FILE, <$ba>::FILE, NONE]),)*
                    $(Opcode::$t => (<$td>::FILE, [<$ta>::FILE, <$tb>::FILE, <$tb>::FILE]),)*
                    $(Opcode::$v => (<$va>::FILE, [<$va>::FILE, <$va>::FILE, NONE]),)*
                    _ => (NONE, [NONE; 3]),
                }
            }

            /// Number of register sources of an arithmetic operation.
            pub const fn arity(self) -> usize {
                match self {
                    $(Opcode::$u => 1,)*
                    $(Opcode::$b => 2,)*
                    $(Opcode::$t => 3,)*
                    $(Opcode::$v => 2,)*
                    _ => 0,
                }
            }
        }

        /// Executes arithmetic operations from `pc` on in all lanes; returns the place of the first
        /// other operation.
        ///
        /// # Safety
        /// The registers of `code` are below the sizes of `files`.
        #[inline(always)]
        pub(crate) unsafe fn arithmetic(files: Files, code: &[Inst], mut pc: usize) -> usize {
            loop {
                let inst = code[pc];
                // SAFETY: passed on to the caller.
                unsafe {
                    match inst.op {
                        $(Opcode::$u => map1::<$ua, $ud>(files, inst, $uf),)*
                        $(Opcode::$b => map2::<$ba, $ba, $bd>(files, inst, $bf),)*
                        $(Opcode::$t => map3::<$ta, $tb, $tb, $td>(files, inst, $tf),)*
                        $(Opcode::$v => divide::<$va>(files, inst, $general, $uniform),)*
                        $(Opcode::$control)|* => return pc,
                    }
                }
                pc += 1;
            }
        }
    };
}

/// As the instruction of a GPU: +0 is larger than -0.
#[inline(always)]
fn max_f32(a: f32, b: f32) -> f32 {
    // Equal numbers have the same bits but for two zeros, of which a cleared sign is the larger.
    if a == b { f32::from_bits(a.to_bits() & b.to_bits()) } else { max(a, b) }
}

/// As the instruction of a GPU: -0 is smaller than +0.
#[inline(always)]
fn min_f32(a: f32, b: f32) -> f32 {
    if a == b { f32::from_bits(a.to_bits() | b.to_bits()) } else { min(a, b) }
}

#[inline(always)]
fn max<T: PartialOrd + Copy>(a: T, b: T) -> T {
    // A NaN in `a` fails both comparisons with itself; one in `b` fails `a >= b`.
    #[expect(clippy::eq_op, reason = "only NaN differs from itself")]
    if (a != a) | (a >= b) { a } else { b }
}

#[inline(always)]
fn min<T: PartialOrd + Copy>(a: T, b: T) -> T {
    #[expect(clippy::eq_op, reason = "only NaN differs from itself")]
    if (a != a) | (a <= b) { a } else { b }
}

/// `a / b` truncated, given `1 / b`. Half a unit away from zero, the quotient
/// lies at least `1 / 2b` from every integer, while the two roundings move it by
/// less than `|a / b| * 2^-51`: exact for |a| < 2^50.
#[inline(always)]
fn scaled_i32(a: i32, inverse: f64) -> i32 {
    let a = f64::from(a);
    // SAFETY: |b| >= 2 (see `divide`), so the quotient is below 2^31.
    unsafe { ((a + 0.5f64.copysign(a)) * inverse).to_int_unchecked() }
}

/// See [`scaled_i32`].
#[inline(always)]
fn scaled_i64(a: i64, inverse: f64) -> i64 {
    let a = a as f64;
    // SAFETY: |a| < 2^50 and |b| >= 2 (see `divide`), so the quotient is below 2^50.
    unsafe { ((a + 0.5f64.copysign(a)) * inverse).to_int_unchecked() }
}

/// An integer that `divide` can take apart.
trait Divide: Lane + PartialEq {
    /// `1 / self` if dividing `dividends` by it through `f64` is exact.
    fn inverse(self, dividends: &[Self; LANES]) -> Option<f64>;
}

impl Divide for i32 {
    #[inline(always)]
    fn inverse(self, _: &[Self; LANES]) -> Option<f64> {
        (!(-1..=1).contains(&self)).then(|| 1.0 / f64::from(self))
    }
}

impl Divide for i64 {
    #[inline(always)]
    fn inverse(self, dividends: &[Self; LANES]) -> Option<f64> {
        let mut size = 0;
        for &a in dividends {
            // Bits that differ from the sign.
            size |= (a ^ (a >> 63)) as u64;
        }
        (size >> 50 == 0 && !(-1..=1).contains(&self) && self.unsigned_abs() >> 50 == 0).then(|| 1.0 / self as f64)
    }
}

/// A division in all lanes; lanes mostly share the divisor, which is then
/// inverted once.
///
/// # Safety
/// The registers of `inst` are below the sizes of `files`.
#[inline(always)]
unsafe fn divide<T: Divide>(files: Files, inst: Inst, general: impl Fn(T, T) -> T, uniform: impl Fn(T, T, f64) -> T) {
    // SAFETY: by the caller.
    unsafe {
        let (a, b) = (&*T::lanes(files, inst.a), *T::lanes(files, inst.b));
        let mut same = true;
        for &other in &b {
            same &= other == b[0];
        }
        match b[0].inverse(a) {
            Some(inverse) if same => map1::<T, T>(files, inst, |a| uniform(a, b[0], inverse)),
            _ => map2::<T, T, T>(files, inst, general),
        }
    }
}

/// Exact through `f64`: quotients of 32-bit integers that are no integers are
/// at least 2^-31 away from one, the rounding error is below 2^-22 of that.
#[inline(always)]
fn div_i32(a: i32, b: i32) -> i32 {
    let quotient = f64::from(a) / f64::from(if b == 0 { 1 } else { b });
    // SAFETY: |quotient| <= 2^31; the one value 2^31 (MIN / -1) is replaced.
    let result = unsafe { (if quotient >= 2147483648.0 { -2147483648.0 } else { quotient }).to_int_unchecked::<i32>() };
    if b == 0 { 0 } else { result }
}

#[inline(always)]
fn rem_i32(a: i32, b: i32) -> i32 {
    if b == 0 { 0 } else { a.wrapping_sub(div_i32(a, b).wrapping_mul(b)) }
}

#[inline(always)]
fn ceil_div_i32(a: i32, b: i32) -> i32 {
    let quotient = div_i32(a, b);
    let more = (b != 0) & (a != quotient.wrapping_mul(b));
    quotient.wrapping_add(i32::from(more))
}

#[inline(always)]
fn div_i64(a: i64, b: i64) -> i64 {
    if b == 0 {
        0
    } else if (a | b) as u64 >> 32 == 0 {
        i64::from(a as u32 / b as u32)
    } else {
        a.wrapping_div(b)
    }
}

#[inline(always)]
fn rem_i64(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { a.wrapping_sub(div_i64(a, b).wrapping_mul(b)) }
}

#[inline(always)]
fn ceil_div_i64(a: i64, b: i64) -> i64 {
    let quotient = div_i64(a, b);
    let more = b != 0 && a != quotient.wrapping_mul(b);
    quotient.wrapping_add(i64::from(more))
}

operations! {
    control {
        /// The warp is finished.
        End;
        /// Branch on `a`; the other side starts at `imm`, `c` is 1 if there is one.
        If;
        /// End of a side of a branch, which ends at `imm`.
        Join;
        /// `d = a`, lanes with `d < b` go on, the exit is at `imm`.
        Loop;
        /// `d += c`, lanes with `d < b` go back to `imm`.
        Next;
        /// `d = buffer b [a]`.
        Load;
        /// `buffer b [a] = c`.
        Store;
        /// Local registers `d..d+c` (slots from `imm`) = `buffer b [a..]`.
        MoveIn;
        /// `buffer b [a..]` = local registers `d..d+c` (slots from `imm`).
        MoveOut;
        /// Starts to copy `imm` elements to `buffer d [c]` from `buffer b [a]`.
        CopyAsync;
        /// Closes the group of the copies that were started.
        CommitGroup;
        /// Waits until at most the latest `imm` groups are open.
        WaitGroup;
        /// `d = atomic(buffer b [a], c)`, kind `imm`.
        Atomic;
        /// `d = local register a`, slot `imm`.
        LocalGet;
        /// `local register d = a`, slot `imm`.
        LocalSet;
        /// `d = local registers from b [a]`, `c` of them, slots from `imm`.
        LocalLoad;
        /// `local registers from d [a] = b`, `c` of them, slots from `imm`.
        LocalStore;
        /// `d = a` of the lane that `b` selects in mode `imm`.
        Shuffle;
        /// Registers from `d` on = the numbers of the random block of seed `a`, offset `b`, subsequence `c`.
        Random;
        /// Barrier of scope `imm`: 0 warp, 1 block, 2 grid.
        Sync;
        /// Fence of scope `imm`.
        Fence;
        /// `d = unary[imm](a)` computed in `f64`, rounded to `f32`.
        CallF32;
        /// `d = unary[imm](a)`.
        CallF64;
        /// `d = host[imm](a, b, c)`, on bits.
        Host;
    }
    unary {
        Mov32: u32 => u32 = |a| a;
        Mov64: u64 => u64 = |a| a;
        Mov128: u128 => u128 = |a| a;
        NegF32: f32 => f32 = |a| -a;
        NegF64: f64 => f64 = |a| -a;
        NegI32: i32 => i32 = |a| a.wrapping_neg();
        NegI64: i64 => i64 = |a| a.wrapping_neg();
        AbsF32: f32 => f32 = |a| a.abs();
        AbsF64: f64 => f64 = |a| a.abs();
        AbsI32: i32 => i32 = |a| a.wrapping_abs();
        AbsI64: i64 => i64 = |a| a.wrapping_abs();
        SqrtF32: f32 => f32 = |a| a.sqrt();
        SqrtF64: f64 => f64 = |a| a.sqrt();
        RsqrtF32: f32 => f32 = |a| (1.0 / f64::from(a).sqrt()) as f32;
        RecipF32: f32 => f32 = |a| 1.0 / a;
        RecipF64: f64 => f64 = |a| 1.0 / a;
        FloorF32: f32 => f32 = |a| a.floor();
        CeilF32: f32 => f32 = |a| a.ceil();
        TruncF32: f32 => f32 = |a| a.trunc();
        RoundF32: f32 => f32 = |a| a.round_ties_even();
        ReluF32: f32 => f32 = |a| if a <= 0.0 { 0.0 } else { a };
        // As `MaxF64` with 0: of two zeros the first, which is the operand's.
        ReluF64: f64 => f64 = |a| if a < 0.0 { 0.0 } else { a };
        NotI32: i32 => i32 = |a| !a;
        NotI64: i64 => i64 = |a| !a;
        IsZeroI32: i32 => u32 = |a| u32::from(a == 0);
        IsZeroI64: i64 => u32 = |a| u32::from(a == 0);
        IsZeroF32: f32 => u32 = |a| u32::from(a == 0.0);
        IsZeroF64: f64 => u32 = |a| u32::from(a == 0.0);
        NonZeroI32: i32 => u32 = |a| u32::from(a != 0);
        NonZeroI64: i64 => u32 = |a| u32::from(a != 0);
        NonZeroF32: f32 => u32 = |a| u32::from(a != 0.0);
        NonZeroF64: f64 => u32 = |a| u32::from(a != 0.0);
        IsNanF32: f32 => u32 = |a| u32::from(a.is_nan());
        IsFiniteF32: f32 => u32 = |a| u32::from(a.is_finite());
        SignExtend8: i32 => i32 = |a| i32::from(a as i8);
        ZeroExtend8: i32 => i32 = |a| i32::from(a as u8);
        SignExtend16: i32 => i32 = |a| i32::from(a as i16);
        ZeroExtend16: i32 => i32 = |a| i32::from(a as u16);
        F32ToF64: f32 => f64 = f64::from;
        F64ToF32: f64 => f32 = |a| a as f32;
        I32ToF32: i32 => f32 = |a| a as f32;
        I32ToF64: i32 => f64 = f64::from;
        I64ToF32: i64 => f32 = |a| a as f32;
        I64ToF64: i64 => f64 = |a| a as f64;
        F32ToI32: f32 => i32 = |a| a as i32;
        F32ToI64: f32 => i64 = |a| a as i64;
        F64ToI32: f64 => i32 = |a| a as i32;
        F64ToI64: f64 => i64 = |a| a as i64;
        F32ToI8: f32 => i32 = |a| i32::from(a as i8);
        F32ToU8: f32 => i32 = |a| i32::from(a as u8);
        F32ToI16: f32 => i32 = |a| i32::from(a as i16);
        F32ToU16: f32 => i32 = |a| i32::from(a as u16);
        F32ToU32: f32 => u32 = |a| a as u32;
        F32ToU64: f32 => u64 = |a| a as u64;
        F64ToU32: f64 => u32 = |a| a as u32;
        F64ToU64: f64 => u64 = |a| a as u64;
        U32ToF32: u32 => f32 = |a| a as f32;
        U32ToF64: u32 => f64 = f64::from;
        U64ToF32: u64 => f32 = |a| a as f32;
        U64ToF64: u64 => f64 = |a| a as f64;
        U32ToU64: u32 => u64 = u64::from;
        I32ToI64: i32 => i64 = i64::from;
        I64ToI32: i64 => i32 = |a| a as i32;
        F16ToF32: u32 => f32 = f16_to_f32;
        F32ToF16: f32 => u32 = f32_to_f16;
        Bf16ToF32: u32 => f32 = bf16_to_f32;
        F32ToBf16: f32 => u32 = f32_to_bf16;
        F8E4M3ToF32: u32 => f32 = f8e4m3fn_to_f32;
        F32ToF8E4M3: f32 => u32 = f32_to_f8e4m3fn;
        F8E5M2ToF32: u32 => f32 = f8e5m2_to_f32;
        F32ToF8E5M2: f32 => u32 = f32_to_f8e5m2;
        F8E8M0ToF32: u32 => f32 = f8e8m0fnu_to_f32;
        F32ToF8E8M0: f32 => u32 = f32_to_f8e8m0fnu;
        F4E2M1ToF32: u32 => f32 = f4e2m1fn_to_f32;
        F32ToF4E2M1: f32 => u32 = f32_to_f4e2m1fn;
    }
    binary {
        AddF32: f32 => f32 = |a, b| a + b;
        SubF32: f32 => f32 = |a, b| a - b;
        MulF32: f32 => f32 = |a, b| a * b;
        DivF32: f32 => f32 = |a, b| a / b;
        MinF32: f32 => f32 = min_f32;
        MaxF32: f32 => f32 = max_f32;
        AddF64: f64 => f64 = |a, b| a + b;
        SubF64: f64 => f64 = |a, b| a - b;
        MulF64: f64 => f64 = |a, b| a * b;
        DivF64: f64 => f64 = |a, b| a / b;
        MinF64: f64 => f64 = min;
        MaxF64: f64 => f64 = max;
        AddI32: i32 => i32 = |a, b| a.wrapping_add(b);
        SubI32: i32 => i32 = |a, b| a.wrapping_sub(b);
        MulI32: i32 => i32 = |a, b| a.wrapping_mul(b);
        MinI32: i32 => i32 = |a, b| a.min(b);
        MaxI32: i32 => i32 = |a, b| a.max(b);
        AndI32: i32 => i32 = |a, b| a & b;
        OrI32: i32 => i32 = |a, b| a | b;
        XorI32: i32 => i32 = |a, b| a ^ b;
        AddI64: i64 => i64 = |a, b| a.wrapping_add(b);
        SubI64: i64 => i64 = |a, b| a.wrapping_sub(b);
        MulI64: i64 => i64 = |a, b| a.wrapping_mul(b);
        MinI64: i64 => i64 = |a, b| a.min(b);
        MaxI64: i64 => i64 = |a, b| a.max(b);
        AndI64: i64 => i64 = |a, b| a & b;
        MinU32: u32 => u32 = |a, b| a.min(b);
        MaxU32: u32 => u32 = |a, b| a.max(b);
        MinU64: u64 => u64 = |a, b| a.min(b);
        MaxU64: u64 => u64 = |a, b| a.max(b);
        LtU32: u32 => u32 = |a, b| u32::from(a < b);
        LeU32: u32 => u32 = |a, b| u32::from(a <= b);
        LtU64: u64 => u32 = |a, b| u32::from(a < b);
        LeU64: u64 => u32 = |a, b| u32::from(a <= b);
        OrI64: i64 => i64 = |a, b| a | b;
        XorI64: i64 => i64 = |a, b| a ^ b;
        EqF32: f32 => u32 = |a, b| u32::from(a == b);
        NeF32: f32 => u32 = |a, b| u32::from(a != b);
        LtF32: f32 => u32 = |a, b| u32::from(a < b);
        LeF32: f32 => u32 = |a, b| u32::from(a <= b);
        EqF64: f64 => u32 = |a, b| u32::from(a == b);
        NeF64: f64 => u32 = |a, b| u32::from(a != b);
        LtF64: f64 => u32 = |a, b| u32::from(a < b);
        LeF64: f64 => u32 = |a, b| u32::from(a <= b);
        EqI32: i32 => u32 = |a, b| u32::from(a == b);
        NeI32: i32 => u32 = |a, b| u32::from(a != b);
        LtI32: i32 => u32 = |a, b| u32::from(a < b);
        LeI32: i32 => u32 = |a, b| u32::from(a <= b);
        EqI64: i64 => u32 = |a, b| u32::from(a == b);
        NeI64: i64 => u32 = |a, b| u32::from(a != b);
        LtI64: i64 => u32 = |a, b| u32::from(a < b);
        LeI64: i64 => u32 = |a, b| u32::from(a <= b);
    }
    ternary {
        Select32: u32, u32 => u32 = |c, a, b| if c != 0 { a } else { b };
        Select64: u32, u64 => u64 = |c, a, b| if c != 0 { a } else { b };
        Select128: u32, u128 => u128 = |c, a, b| if c != 0 { a } else { b };
    }
    division {
        DivI32: i32 = div_i32, |a, _, inverse| scaled_i32(a, inverse);
        RemI32: i32 = rem_i32, |a, b, inverse| a.wrapping_sub(scaled_i32(a, inverse).wrapping_mul(b));
        CeilDivI32: i32 = ceil_div_i32, |a, b, inverse| {
            let quotient = scaled_i32(a, inverse);
            quotient.wrapping_add(i32::from(a != quotient.wrapping_mul(b)))
        };
        DivI64: i64 = div_i64, |a, _, inverse| scaled_i64(a, inverse);
        RemI64: i64 = rem_i64, |a, b, inverse| a.wrapping_sub(scaled_i64(a, inverse).wrapping_mul(b));
        CeilDivI64: i64 = ceil_div_i64, |a, b, inverse| {
            let quotient = scaled_i64(a, inverse);
            quotient.wrapping_add(i64::from(a != quotient.wrapping_mul(b)))
        };
    }
}
