//! The text of a kernel as a host compiler takes it.
//!
//! Input: what is compiled for a device. Output: the same text in a namespace of
//! its own, but for three things that no macro can stand for: inline PTX becomes
//! a call of the function in `shims.h` that bears the instruction's name, the
//! kernel loses its linkage, so that many of one name fit a file, and memory that
//! the launch gives a block becomes a pointer.

use engine::backend::cuda::CudaSource;
use engine::diag::{Diagnostic, Result};
use engine::num::{BinaryOp, UnaryOp};
use std::fmt::Write;

/// Functions whose last bits are the library's business: the simulator's own stand in.
const UNARY: &[(UnaryOp, &str)] = &[
    (UnaryOp::Acos, "acos"),
    (UnaryOp::Acosh, "acosh"),
    (UnaryOp::Asin, "asin"),
    (UnaryOp::Asinh, "asinh"),
    (UnaryOp::Atan, "atan"),
    (UnaryOp::Atanh, "atanh"),
    (UnaryOp::Cos, "cos"),
    (UnaryOp::Cosh, "cosh"),
    (UnaryOp::Exp, "exp"),
    (UnaryOp::Exp2, "exp2"),
    (UnaryOp::Expm1, "expm1"),
    (UnaryOp::Erf, "erf"),
    (UnaryOp::Erfc, "erfc"),
    (UnaryOp::Erfinv, "erfinv"),
    (UnaryOp::Erfcinv, "erfcinv"),
    (UnaryOp::Lgamma, "lgamma"),
    (UnaryOp::Log, "log"),
    (UnaryOp::Log10, "log10"),
    (UnaryOp::Log1p, "log1p"),
    (UnaryOp::Log2, "log2"),
    (UnaryOp::Rsqrt, "rsqrt"),
    (UnaryOp::Sin, "sin"),
    (UnaryOp::Sinh, "sinh"),
    (UnaryOp::Tan, "tan"),
    (UnaryOp::Tanh, "tanh"),
];
const BINARY: &[(BinaryOp, &str)] =
    &[(BinaryOp::Atan2, "atan2"), (BinaryOp::Nextafter, "nextafter"), (BinaryOp::Pow, "pow")];

/// The number under which an operation is called back.
fn number<T: PartialEq>(all: &[T], op: &T) -> usize {
    all.iter().position(|other| other == op).unwrap_or(all.len())
}

/// What precedes the kernels of a file.
pub(super) fn preamble() -> String {
    let mut text = format!("#define OP_EXP2 {}u\n", number(UnaryOp::ALL, &UnaryOp::Exp2));
    text.push_str(include_str!("shims.h"));
    text.push_str("namespace device {\n");
    for (op, name) in UNARY {
        let op = number(UnaryOp::ALL, op);
        let _ = writeln!(text, "inline float {name}f(float x) {{ return (float)simulated_unary({op}u, x); }}");
        let _ = writeln!(text, "inline double {name}(double x) {{ return simulated_unary({op}u, x); }}");
    }
    for (op, name) in BINARY {
        let op = number(BinaryOp::ALL, op);
        let _ = writeln!(
            text,
            "inline float {name}f(float x, float y) {{ return (float)simulated_binary({op}u, 0, x, y); }}"
        );
        let _ =
            writeln!(text, "inline double {name}(double x, double y) {{ return simulated_binary({op}u, 1, x, y); }}");
    }
    text.push_str("}\n");
    text
}

/// The symbol through which kernel number `index` is called.
pub(super) fn symbol(index: usize) -> String {
    format!("call_kernel_{index}")
}

/// A kernel in a namespace of its own, with the function that calls it. Lines
/// count from the start of the device's text.
pub(super) fn kernel(index: usize, source: &CudaSource) -> Result<String> {
    let mut text = source.text();
    text = without_asm(&text)?;
    text = text.replace("extern \"C\" __global__", "static");
    if source.dynamic_shared > 0 {
        text = dynamic_shared(&text)?;
    }
    let (symbol, entry) = (symbol(index), &source.entry);
    Ok(format!(
        "namespace device {{ namespace k{index} {{\n#line 1 \"{index}\"\n{text}\n}} }}\n\
         extern \"C\" void {symbol}(void** args) {{ device::call(device::k{index}::{entry}, args); }}\n"
    ))
}

/// `extern __shared__ __align__(n) unsigned char name[];` as a pointer.
fn dynamic_shared(text: &str) -> Result<String> {
    const START: &str = "extern __shared__ __align__(128) unsigned char ";
    let bug = || Diagnostic::bug("dynamic shared memory is declared in an unknown way");
    let (before, rest) = text.split_once(START).ok_or_else(bug)?;
    let (name, after) = rest.split_once("[];").ok_or_else(bug)?;
    Ok(format!("{before}unsigned char* const {name} = dynamic_shared;{after}"))
}

/// Every `asm` statement as a call: `asm("op.type %0, %1;" : "=f"(r) : "f"(x));`
/// becomes `ptx_op_type(r, x);`, outputs before inputs.
fn without_asm(text: &str) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = find_asm(rest) {
        out.push_str(&rest[..at]);
        let open = at + rest[at..].find('(').unwrap_or(0);
        let close = closing(rest, open)?;
        out.push_str(&call(&rest[open + 1..close])?);
        rest = &rest[close + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Where the next `asm(` or `asm volatile(` begins.
fn find_asm(text: &str) -> Option<usize> {
    let at = |word: &str| text.find(word);
    match (at("asm("), at("asm volatile(")) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The parenthesis that closes the one at `open`, strings skipped.
fn closing(text: &str, open: usize) -> Result<usize> {
    let (mut depth, mut quoted) = (0, false);
    for (at, c) in text.char_indices().skip_while(|(at, _)| *at < open) {
        match c {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    return Ok(at);
                }
            }
            _ => {}
        }
    }
    Err(Diagnostic::bug("an asm statement does not end"))
}

/// The call for what stands between the parentheses of an `asm` statement.
fn call(inside: &str) -> Result<String> {
    let bug = || Diagnostic::bug(format!("an asm statement of an unknown form: {inside}"));
    let mut pieces = inside.split('"');
    let template = pieces.nth(1).ok_or_else(bug)?;
    let name = template.split_whitespace().next().ok_or_else(bug)?;
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let mut args = Vec::new();
    // What follows is `: "=f"(r), ...`: constraints between quotes, each with its operand behind it.
    let rest = &inside[inside.find(template).unwrap_or(0) + template.len() + 1..];
    let mut at = 0;
    while let Some(quote) = rest[at..].find('"').map(|q| at + q) {
        let end = quote + 1 + rest[quote + 1..].find('"').ok_or_else(bug)?;
        let behind = &rest[end + 1..];
        if behind.starts_with('(') {
            let close = closing(behind, 0)?;
            args.push(&behind[1..close]);
            at = end + 1 + close;
        } else {
            // A clobber.
            at = end + 1;
        }
    }
    Ok(format!("ptx_{}({})", name.trim_matches('_'), args.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asm_becomes_a_call_of_its_instruction() {
        let check = |from: &str, to: &str| assert_eq!(without_asm(from).unwrap_or_default(), to);
        check(
            "  asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(f(b)));\n",
            "  ptx_max_NaN_f32(r, a, f(b));\n",
        );
        check("asm(\"mov.b32 %0, {0, %1};\" : \"=f\"(r) : \"h\"(x.bits));", "ptx_mov_b32(r, x.bits);");
        check(
            "asm volatile(\"ld.global.cg.v2.u32 {%0, %1}, [%2];\" : \"=r\"(r->x), \"=r\"(r->y) : \"l\"(p) : \"memory\");",
            "ptx_ld_global_cg_v2_u32(r->x, r->y, p);",
        );
        check("x = 1; // nothing", "x = 1; // nothing");
    }
}
