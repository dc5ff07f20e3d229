//! The table of diagnostic codes. A code is stable once released: tests and
//! case files name it. `E0xxx` user, `U0xxx` unsupported, `B0xxx` bug.

/// A diagnostic code such as `E0101`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub &'static str);

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// What a code means, for `explain`.
#[derive(Clone, Copy, Debug)]
pub struct CodeInfo {
    /// The code.
    pub code: Code,
    /// One line: what is wrong.
    pub summary: &'static str,
    /// What to do about it.
    pub help: &'static str,
}

macro_rules! codes {
    ($($name:ident = $text:literal, $summary:literal, $help:literal;)*) => {
        /// Every code by name.
        pub mod code {
            use super::Code;
            $(#[doc = $summary] pub const $name: Code = Code($text);)*
        }
        /// All codes with their explanation, in order of declaration.
        pub const CODES: &[CodeInfo] = &[
            $(CodeInfo { code: code::$name, summary: $summary, help: $help },)*
        ];
    };
}

codes! {
    // Text.
    SYNTAX = "E0101", "the text does not follow the grammar", "compare the line with the grammar in cases/README.md";
    UNKNOWN_OP = "E0102", "the operation does not exist", "use the suggested name, or see the list of operations";
    UNKNOWN_NAME = "E0103", "a value is used that was never defined", "define it before its first use, or fix the spelling";
    DUPLICATE_NAME = "E0104", "a value is defined twice", "give each value its own name";
    UNKNOWN_DTYPE = "E0105", "the data type does not exist", "use one of f64 f32 f16 bf16 i64 i32 i8 u8 bool";
    BAD_NUMBER = "E0106", "a number is malformed or out of range", "write a number that its data type can hold";
    TOO_LARGE = "E0107", "the text exceeds a size or nesting limit", "split the definition";
    // Operations.
    ARITY = "E0201", "the number of arguments is wrong", "see the operation's signature";
    DTYPE = "E0202", "the operation does not accept this data type", "insert a cast";
    RANK = "E0203", "the ranks do not agree", "broadcast the lower-rank tensor explicitly";
    EXTENT = "E0204", "the extents of an axis do not agree", "broadcast or reshape one side";
    AXIS = "E0205", "an axis is out of range or named twice", "axes run from 0 to rank-1; negative ones count from the end";
    ATTRIBUTE = "E0206", "an attribute is missing, unknown or malformed", "see the operation's signature";
    NOT_TENSOR = "E0207", "a tensor is needed where a scalar stands", "broadcast the scalar with full, or pass a tensor";
    NO_OUTPUT = "E0208", "the fusion returns nothing", "return at least one tensor";
    SQUEEZE = "E0209", "an axis that is not of size 1 cannot be squeezed", "reduce it instead";
    LAYOUT = "E0210", "the declared memory layout of an input makes no sense", "give each axis one contiguity flag, none (`_`) for broadcast axes, and an order that names each axis once";
    UPDATE = "E0211", "a tensor cannot be written into that input", "the target is an input tensor of the same type and axes, updated once";
    NOT_SCALAR = "E0212", "a scalar is needed where a tensor stands", "pass a number or a scalar value";
    VALUE = "E0213", "an argument of an operation has a value that makes no sense", "see the operation's row in cases/README.md";
    // Inputs at run time.
    MISSING_INPUT = "E0301", "an input of the fusion was not given", "pass one argument for each input, in order";
    INPUT_DTYPE = "E0302", "an argument has another data type than declared", "convert the argument or the declaration";
    INPUT_RANK = "E0303", "an argument has another rank than declared", "pass a tensor of the declared rank";
    INPUT_EXTENT = "E0304", "an argument's extent contradicts the declaration or another argument", "pass tensors whose extents agree";
    INPUT_STRIDE = "E0305", "an argument's strides reach outside its storage", "pass sizes and strides that fit the buffer";
    EXTRA_INPUT = "E0306", "more arguments than inputs were given", "pass one argument for each input, in order";
    SIZE_OVERFLOW = "E0307", "a size computation overflows", "use smaller extents";
    TENSOR_TOO_LARGE = "E0308", "a tensor exceeds the memory limit of the host", "use smaller extents";
    INPUT_KIND = "E0309", "a tensor was given where a scalar is declared, or the reverse", "pass the kind of argument that is declared";
    // Case files.
    CASE_HEADER = "E0401", "the front matter of a case file is wrong", "see cases/README.md for the fields";
    CASE_DIRECTIVE = "E0402", "a directive of a case file is unknown or malformed", "see cases/README.md for the directives";
    CASE_LIMIT = "E0403", "a case file exceeds a limit", "split the file or its axes";
    CASE_DUPLICATE = "E0404", "two cases have the same id", "rename one suite, case or axis value";
    CASE_PATH = "E0405", "a path leaves the case folder", "keep case files inside the folder";
    CASE_EXPECT = "E0406", "an expectation of a case does not hold", "fix the cause, or rewrite the expectation with BLESS=1";
    // Devices and the environment.
    NO_GPU = "E0501", "GPUs were asked for and none is usable", "use --sim N to run on simulated devices";
    NO_DRIVER = "E0502", "the CUDA driver library is missing or too old", "install the NVIDIA driver, or run on the simulator";
    NO_NVRTC = "E0503", "the NVRTC library was not found", "pip install 'nvidia-cuda-nvrtc==13.0.*', or set its path";
    BAD_FILTER = "E0504", "a filter is malformed", "gtest syntax: 'A*:B*-C*'";
    NOTHING_SELECTED = "E0505", "the filter selects no case", "harness list shows the ids";
    USAGE = "E0506", "the command line is wrong", "harness --help";
    // Execution.
    NVRTC = "E0601", "NVRTC rejected the kernel", "this is a defect of the code generator: report the case";
    CUDA = "E0602", "a CUDA call failed", "see the driver's error name";
    DEVICE_MEMORY = "E0603", "the device is out of memory", "use smaller inputs or a freer device";
    CUDA_STICKY = "E0604", "a kernel failed and broke the GPU's context", "start a new process; report the case";
    // Unsupported.
    NEEDS_SEGMENTS = "U0101", "the fusion needs more than one kernel", "split it into fusions that each need one";
    NO_SCHEDULER = "U0102", "no scheduler accepts the fusion", "see the notes for each scheduler's reason";
    SCHEDULE_VERB = "U0103", "this scheduling primitive is not available yet", "use another schedule";
    TOO_LONG_ROW = "U0104", "a row does not fit the registers of one block", "split the reduction";
    OP_NOT_LOWERED = "U0105", "the operation has no kernel form yet", "run it on the reference";
    SIM_FEATURE = "U0106", "the simulator does not execute this construct yet", "run on a GPU";
    UPDATE_NOT_LOWERED = "U0108", "kernels do not write into inputs yet", "run it on the reference, or return the value and copy it";
    LAUNCH_LIMIT = "U0107", "a launch exceeds what the device accepts", "use smaller extents";
    // Bugs.
    BUG = "B0001", "an internal invariant broke", "report it with the case that the run wrote";
    VERIFY = "B0002", "the kernel verifier rejected generated code", "report it with the case that the run wrote";
    // Detected by the simulator in generated code.
    RACE = "B0101", "two threads access one location without ordering", "report it with the case that the run wrote";
    OUT_OF_BOUNDS = "B0102", "an access leaves its buffer", "report it with the case that the run wrote";
    UNINITIALISED = "B0103", "a value is read before it was written", "report it with the case that the run wrote";
    MISALIGNED = "B0104", "a vector access is not aligned", "report it with the case that the run wrote";
    DEADLOCK = "B0105", "no thread can make progress", "report it with the case that the run wrote";
    DIVERGENCE = "B0106", "a barrier or shuffle is reached by part of its threads", "report it with the case that the run wrote";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_well_formed() {
        let mut seen = std::collections::BTreeSet::new();
        for info in CODES {
            assert!(seen.insert(info.code), "{} is declared twice", info.code);
            let (head, digits) = info.code.0.split_at(1);
            assert!(matches!(head, "E" | "U" | "B") && digits.len() == 4);
        }
    }
}
