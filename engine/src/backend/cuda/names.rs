//! Unique C identifiers. A name lives in a block and may be used again in a
//! disjoint block, as in C++; it never hides a name of an enclosing block, a
//! keyword, a CUDA built-in or a function of the device library.

use super::library;
use std::collections::BTreeSet;

/// Words that a kernel's names must not be: keywords, types, built-in variables
/// and macros. Functions of CUDA and of the library are refused too.
const RESERVED: &[&str] = &[
    "alignas",
    "alignof",
    "and",
    "and_eq",
    "asm",
    "auto",
    "bitand",
    "bitor",
    "blockDim",
    "blockIdx",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "class",
    "compl",
    "concept",
    "const",
    "constexpr",
    "const_cast",
    "continue",
    "decltype",
    "default",
    "delete",
    "do",
    "double",
    "dynamic_cast",
    "else",
    "enum",
    "explicit",
    "export",
    "extern",
    "false",
    "float",
    "for",
    "friend",
    "goto",
    "gridDim",
    "half_t",
    "bf16_t",
    "if",
    "inline",
    "int",
    "long",
    "mutable",
    "namespace",
    "new",
    "noexcept",
    "not",
    "not_eq",
    "nullptr",
    "operator",
    "or",
    "or_eq",
    "private",
    "protected",
    "public",
    "register",
    "reinterpret_cast",
    "requires",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "static_assert",
    "static_cast",
    "struct",
    "switch",
    "template",
    "this",
    "thread_local",
    "threadIdx",
    "throw",
    "true",
    "try",
    "typedef",
    "typeid",
    "typename",
    "union",
    "unsigned",
    "using",
    "virtual",
    "void",
    "volatile",
    "warpSize",
    "wchar_t",
    "while",
    "xor",
    "xor_eq",
    "uint2",
    "uint4",
    "inf_f32",
    "inf_f64",
    "nan_f32",
    "nan_f64",
];

/// CUDA functions that expressions call; a variable of that name would hide them.
const FUNCTIONS: &[&str] = &[
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "erfcinv",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "fabs",
    "floor",
    "fmod",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "max",
    "min",
    "nextafter",
    "pow",
    "rint",
    "rsqrt",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "abs",
    "atomicAdd",
    "atomicInc",
    "atomicMax",
    "atomicMin",
];

/// Whether no variable may have the name.
fn is_reserved(name: &str) -> bool {
    let stem = name.strip_suffix('f').unwrap_or(name);
    RESERVED.contains(&name) || FUNCTIONS.contains(&name) || FUNCTIONS.contains(&stem) || name.starts_with("__")
}

/// The names in force, innermost block last.
#[derive(Debug)]
pub(super) struct Names {
    library: BTreeSet<&'static str>,
    taken: BTreeSet<String>,
    blocks: Vec<Vec<String>>,
}

impl Names {
    /// No names, one open block.
    pub(super) fn new() -> Self {
        Self { library: library::names(), taken: BTreeSet::new(), blocks: vec![Vec::new()] }
    }
    /// Opens a block.
    pub(super) fn open(&mut self) {
        self.blocks.push(Vec::new());
    }
    /// Closes the innermost block and frees its names.
    pub(super) fn close(&mut self) {
        for name in self.blocks.pop().into_iter().flatten() {
            self.taken.remove(&name);
        }
    }
    /// The first free name of `i0`, `i1`, ..., taken in the innermost block.
    pub(super) fn take_numbered(&mut self, letter: &str) -> String {
        let free = |name: &String| !self.taken.contains(name);
        let name = (0u32..).map(|n| format!("{letter}{n}")).find(free).expect("finitely many names are taken");
        self.hold(name)
    }
    /// A free name as close to the wish as possible, taken in the innermost block.
    pub(super) fn take(&mut self, wish: &str) -> String {
        let base = identifier(wish);
        let free = |name: &str| !self.taken.contains(name) && !self.library.contains(name) && !is_reserved(name);
        let name = if free(&base) {
            base
        } else {
            (1u32..).map(|n| format!("{base}_{n}")).find(|name| free(name)).expect("finitely many names are taken")
        };
        self.hold(name)
    }
    fn hold(&mut self, name: String) -> String {
        self.taken.insert(name.clone());
        self.blocks.last_mut().expect("a block is open").push(name.clone());
        name
    }
}

/// The wish with every character that C does not allow replaced.
fn identifier(wish: &str) -> String {
    let mut name: String = wish.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || name.starts_with("__") {
        name.insert(0, 'x');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_legal_unique_and_reused_only_in_disjoint_blocks() {
        let mut names = Names::new();
        assert_eq!(names.take("x"), "x");
        assert_eq!(names.take("x"), "x_1");
        assert_eq!(names.take("float"), "float_1");
        assert_eq!(names.take("expf"), "expf_1");
        assert_eq!(names.take("to_bf16"), "to_bf16_1");
        assert_eq!(names.take("3.a"), "x3_a");
        names.open();
        assert_eq!(names.take("i"), "i");
        assert_eq!(names.take("x"), "x_2");
        names.close();
        assert_eq!(names.take("i"), "i");
    }
}
