//! The table of diagnostic codes. A code is stable once released: tests and
//! case files name it. `E0xxx` user, `U0xxx` unsupported, `B0xxx` bug.
//!
//! A row is: name, code, title, way out; then `why`: what happened and why it
//! is an error; then an example, of one of the kinds of [`Example`]. A test of
//! the harness runs every example that can be run and looks for its code.

use super::DiagnosticKind;

/// A diagnostic code such as `E0101`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub &'static str);

impl Code {
    /// Whose fault errors of this code are, by its first letter.
    pub fn kind(self) -> DiagnosticKind {
        match self.0.as_bytes().first() {
            Some(b'U') => DiagnosticKind::Unsupported,
            Some(b'B') => DiagnosticKind::Bug,
            _ => DiagnosticKind::User,
        }
    }

    /// The row of the table.
    pub fn info(self) -> Option<&'static CodeInfo> {
        CODES.iter().find(|info| info.code == self)
    }
}

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

/// What a code means, for `harness explain`.
#[derive(Clone, Copy, Debug)]
pub struct CodeInfo {
    /// The code.
    pub code: Code,
    /// One line: what is wrong.
    pub summary: &'static str,
    /// What to do about it.
    pub help: &'static str,
    /// What happened, and why that is refused.
    pub why: &'static str,
    /// Something that is refused with this code.
    pub example: Example,
}

/// An example of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Example {
    /// A fusion with its directives, as in a case file.
    Fusion(&'static str),
    /// A whole case file.
    File(&'static str),
    /// Arguments of the harness, separated by spaces.
    Command(&'static str),
    /// A situation in words: nothing that could be run on every machine.
    Words(&'static str),
}

macro_rules! codes {
    ($($name:ident = $text:literal, $summary:literal, $help:literal $(, why $why:literal, $example:ident $body:literal)?;)*) => {
        /// Every code by name.
        pub mod code {
            use super::Code;
            $(#[doc = $summary] pub const $name: Code = Code($text);)*
        }
        /// All codes with their explanation, in order of declaration.
        pub const CODES: &[CodeInfo] = &[
            $(CodeInfo {
                code: code::$name,
                summary: $summary,
                help: $help,
                // A row without them is refused by a test, not by the compiler.
                why: concat!($($why)?),
                example: codes!(@example $($example $body)?),
            },)*
        ];
    };
    (@example fusion $body:literal) => { Example::Fusion($body) };
    (@example file $body:literal) => { Example::File($body) };
    (@example command $body:literal) => { Example::Command($body) };
    (@example words $body:literal) => { Example::Words($body) };
    (@example) => { Example::Words("") };
}

codes! {
    // Text.
    SYNTAX = "E0101", "the text does not follow the grammar",
        "compare the line with the grammar in cases/README.md",
        why "A fusion is read token by token, and this token cannot stand here. The parser goes on with the next line, so other \
             mistakes of the same text are reported too. One statement is one line: `%name = operation operands attributes`.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 neg %x\n  return %0\n}";
    UNKNOWN_OP = "E0102", "the operation does not exist",
        "use the suggested name, or see the list of operations in cases/README.md",
        why "The word behind `=` is no operation of the table. Names are those of nvFuser's Python interface where it has the \
             operation.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = sotfmax %x\n  return %0\n}";
    UNKNOWN_NAME = "E0103", "a value is used that was never defined",
        "define it before its first use, or fix the spelling",
        why "Statements run from top to bottom, and a value exists from the statement that defines it. A value whose definition \
             was refused does not count as missing: that mistake is reported once.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = add %x, %y\n  return %0\n}";
    DUPLICATE_NAME = "E0104", "a value is defined twice",
        "give each value its own name",
        why "A name stands for one value (static single assignment), so that every use has one definition. Parameters count as \
             definitions, and two fusions of a text may not share a name either.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = neg %x\n  %0 = exp %0\n  return %0\n}";
    UNKNOWN_DTYPE = "E0105", "the data type does not exist",
        "use a data type of the list in cases/README.md",
        why "Data types have short names: `f32`, not `float32`.",
        fusion "fusion @f(%x: float32[?]) {\n  %0 = neg %x\n  return %0\n}";
    BAD_NUMBER = "E0106", "a number is malformed or out of range",
        "write a number that its data type can hold",
        why "A plain number takes the type of what it meets. One that this type cannot hold would silently become another number, \
             so it is refused: 300 for `i8`, 1.5 for an integer, or more than 64 bits.",
        fusion "fusion @f(%x: i8[?]) {\n  %0 = add %x, 300\n  return %0\n}";
    TOO_LARGE = "E0107", "the text exceeds a size or nesting limit",
        "split the definition",
        why "Limits bound the work that a text can cause: bytes of a text, operations of a fusion, axes of a tensor, characters of \
             a name, errors of a report.",
        fusion "fusion @f(%x: f32[?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,\n               ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?]) {\n  %0 = neg %x\n  return %0\n}";
    PY_CONSTRUCT = "E0108", "a construct of a Python definition is not read",
        "write the definition as nvFuser prints it: assignments, calls of fd.ops, lists and numbers",
        why "Definitions in nvFuser's form are read without Python. The reader follows what they are made of: imports, functions, \
             assignments, `with`, `if`, `for` over a list, arithmetic on numbers, data types, and tensors that PyTorch's factories \
             make. Where a definition or its inputs depend on something else, its meaning would have to be guessed.",
        words "harness import FILE.py, where a definition stands inside of `while True:`";
    // Operations.
    ARITY = "E0201", "the number of arguments is wrong",
        "see the operation's form in the note, or in cases/README.md",
        why "Each operation takes a fixed number of operands, some of them optional, and defines a fixed number of values; all of \
             the latter must be named.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = add %x\n  return %0\n}";
    DTYPE = "E0202", "the operation does not accept this data type",
        "insert a cast",
        why "Operands are cast to their common type, but never to a type that would change what is asked for: bits of a float, a \
             condition that is no bool, a difference of truth values have no meaning here.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = bitwise_and %x, %x\n  return %0\n}";
    RANK = "E0203", "the ranks do not agree",
        "insert the missing axes with broadcast",
        why "Tensors of one operation have equal rank. Axes are never inserted silently, because which axis is meant is often not \
             the last one.",
        fusion "fusion @f(%x: f32[?, ?], %y: f32[?]) {\n  %0 = add %x, %y\n  return %0\n}";
    EXTENT = "E0204", "the extents of an axis do not agree",
        "broadcast or reshape one side",
        why "Both extents are known from the text and differ, or one of them is impossible. Only an axis that is declared as 1, or \
             that broadcast made, pairs with any extent.",
        fusion "fusion @f(%x: f32[?, 8], %y: f32[?, 7]) {\n  %0 = add %x, %y\n  return %0\n}";
    AXIS = "E0205", "an axis is out of range or named twice",
        "axes run from 0 to rank - 1; negative ones count from the end",
        why "An operation names axes by position. A position that the operand does not have, or one that is named twice where each \
             counts once, has no meaning.",
        fusion "fusion @f(%x: f32[?, ?]) {\n  %0 = sum %x axes(2)\n  return %0\n}";
    ATTRIBUTE = "E0206", "an attribute is missing, unknown or malformed",
        "see the operation's form in the note, or in cases/README.md",
        why "Attributes follow the operands: `axes(0, 1)`, `keepdim`, or a bare data type. Each operation has its own, and some \
             cannot be left out.",
        fusion "fusion @f(%x: f32[?, ?]) {\n  %0 = sum %x axis(1)\n  return %0\n}";
    NOT_TENSOR = "E0207", "a tensor is needed where a scalar stands, or the reverse",
        "turn a scalar into a tensor with full, or pass a value of the other kind",
        why "`f32` is a scalar and `f32[]` a tensor without axes: two kinds of values. Operations on axes and the fusion's results \
             need tensors; fill values and extents are scalars.",
        fusion "fusion @f(%s: f32) {\n  %0 = sum %s axes(0)\n  return %0\n}";
    NO_OUTPUT = "E0208", "the fusion returns nothing",
        "return at least one tensor",
        why "What is not returned is not computed, so a fusion without results has no meaning.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = neg %x\n}";
    SQUEEZE = "E0209", "an axis that is not of size 1 cannot be squeezed",
        "reduce the axis instead, or declare it as 1",
        why "squeeze removes broadcast axes. An axis of unknown size could have more than one element, which would be lost.",
        fusion "fusion @f(%x: f32[?, 4]) {\n  %0 = squeeze %x flags(true, false)\n  return %0\n}";
    LAYOUT = "E0210", "the declared memory layout of an input makes no sense",
        "give each axis one contiguity flag, none (`_`) for broadcast axes, and an order that names each axis once",
        why "`contiguity` has one item for each axis in memory order, `order` lists the axes from the outermost to the innermost. \
             A broadcast axis has no places of its own, so nothing can be said of its contiguity.",
        fusion "fusion @f(%x: f32[?, 1] contiguity(true, true)) {\n  %0 = neg %x\n  return %0\n}";
    UPDATE = "E0211", "a tensor cannot be written into that input",
        "the target is an input tensor of the same type and axes, updated once",
        why "An update writes a result into the storage of an input, element for element, when the fusion has run. Another type \
             would need a conversion that nobody asked for, and of two updates one would be lost.",
        fusion "fusion @f(%x: f32[?], %y: f64[?]) {\n  %0 = neg %x\n  update %y = %0\n  return %0\n}";
    NOT_SCALAR = "E0212", "a scalar is needed where a tensor stands",
        "pass a number or a scalar value",
        why "Extents, positions, counts and fill values are scalars: known before the first element is computed.",
        fusion "fusion @f(%x: f32[?], %n: i64[?]) {\n  %0 = expand [%n] %x\n  return %0\n}";
    VALUE = "E0213", "an argument of an operation has a value that makes no sense",
        "see the operation's row in cases/README.md",
        why "The argument has the right form, but the operation has no meaning for this value: a negative count, a probability \
             above 1, a window larger than what it moves over.",
        words "A probability of 1.5 where one between 0 and 1 is needed.";
    // Inputs at run time.
    MISSING_INPUT = "E0301", "an input of the fusion was not given",
        "pass one argument for each input, in order",
        why "Every parameter of the fusion needs an argument, also one that no statement uses.",
        fusion "fusion @f(%x: f32[?], %y: f32[?]) {\n  %0 = add %x, %y\n  return %0\n}\n; inputs: x = normal[4]";
    INPUT_DTYPE = "E0302", "an argument has another data type than declared",
        "convert the argument, or change the declaration",
        why "Arguments are never converted: a copy of a tensor is nothing that a call should make unasked, and a scalar that the \
             declared type cannot hold would become another number.",
        fusion "fusion @f(%x: f32[?], %n: i8) {\n  %0 = mul %x, %n\n  return %0\n}\n; inputs: x = normal[4], n = 1000";
    INPUT_RANK = "E0303", "an argument has another rank than declared",
        "pass a tensor of the declared rank",
        why "The declaration says how many axes the tensor has, and the kernel is made for that many.",
        fusion "fusion @f(%x: f32[?, ?]) {\n  %0 = neg %x\n  return %0\n}\n; inputs: x = normal[4]";
    INPUT_EXTENT = "E0304", "an argument's extent contradicts the declaration or another argument",
        "pass tensors whose extents agree",
        why "Sizes become known with the arguments, and must then agree with declared extents and with each other. A size of 1 \
             pairs with another only if the axis is declared as 1: otherwise one text would mean two programs.",
        fusion "fusion @f(%x: f32[?], %y: f32[?]) {\n  %0 = add %x, %y\n  return %0\n}\n; inputs: x = normal[4], y = normal[5]";
    INPUT_STRIDE = "E0305", "an argument's strides reach outside its storage",
        "pass sizes, strides and an offset that fit the buffer",
        why "The element at index i is read at offset + sum of i * stride. The least or the greatest of these places is not in \
             the buffer that was given, or there is not one stride for each axis.",
        words "A tensor of sizes [4, 8] with strides [10, 1] over a buffer of 32 elements: its last element would be number 37.";
    EXTRA_INPUT = "E0306", "more arguments than inputs were given",
        "pass one argument for each input, in order",
        why "An argument that no parameter takes is a sign that the call means another fusion.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = neg %x\n  return %0\n}\n; inputs: x = normal[4], y = normal[4]";
    SIZE_OVERFLOW = "E0307", "a size computation overflows",
        "use smaller extents",
        why "Sizes, strides and byte counts are signed 64-bit numbers. One that does not fit would wrap to a small size and reach \
             memory of others.",
        fusion "fusion @f(%n: i64) {\n  %m = mul %n, %n\n  %0 = full [%m] 1 f32\n  return %0\n}\n; inputs: n = 4000000000";
    TENSOR_TOO_LARGE = "E0308", "a tensor exceeds the memory limit of the host",
        "use smaller extents",
        why "A tensor of the host has a limit, so that a wrong extent gives this message and not a machine without memory.",
        fusion "fusion @f(%n: i64) {\n  %0 = full [%n] 1 f32\n  return %0\n}\n; inputs: n = 1000000000000";
    INPUT_KIND = "E0309", "a tensor was given where a scalar is declared, or the reverse",
        "pass the kind of argument that is declared",
        why "`f32` declares a scalar, `f32[]` a tensor without axes; a call passes a value for the one and memory for the other.",
        fusion "fusion @f(%x: f32[?], %a: f32) {\n  %0 = mul %x, %a\n  return %0\n}\n; inputs: x = normal[4], a = normal[1]";
    INDEX = "E0310", "an index is out of range",
        "pass indices from 0 up to but not including the extent of the axis",
        why "The position does not exist along the axis. Kernels that read indices do not look, so they would reach memory of \
             others; where the value is known before, it is refused. select and index_put_accumulate count negative ones from \
             the end, other operations have no negative index.",
        fusion "fusion @f(%x: f32[4]) {\n  %0 = select %x, 4 dim(0)\n  return %0\n}";
    // Case files.
    CASE_HEADER = "E0401", "the front matter of a case file is wrong",
        "see cases/README.md for the fields",
        why "A case file starts with TOML between two lines of `---`. A field that is unknown, missing or of another form is \
             refused, because a misspelt one would silently do nothing.",
        file "---\nversion = 1\nsute = \"PointwiseTest\"\nabout = \"why\"\n---\nfusion @f(%x: f32[4]) {\n  return %x\n}\n; inputs: x = normal[4]\n";
    CASE_DIRECTIVE = "E0402", "a directive of a case file is unknown or malformed",
        "see cases/README.md for the directives; begin a plain comment with `;;`",
        why "A comment of the form `; word: ...` is an instruction to the harness. One that it does not understand is refused: an \
             expectation that nobody checks is worse than none.",
        file "---\nversion = 1\nsuite = \"PointwiseTest\"\nabout = \"why\"\n---\nfusion @f(%x: f32[4]) {\n  return %x\n}\n; inputs: x = norml[4]\n";
    CASE_LIMIT = "E0403", "a case file exceeds a limit",
        "split the file or its axes",
        why "Axes multiply. Limits on files, ids, bytes and simulated runs are checked before anything of that size is made.",
        file "---\nversion = 1\nsuite = \"PointwiseTest\"\nabout = \"why\"\n---\nfusion @f(%x: f32[4]) {\n  return %x\n}\n; inputs: x = normal[4]\n; sim: seeds 1000\n";
    CASE_DUPLICATE = "E0404", "two cases have the same id",
        "rename one suite, fusion or axis value",
        why "An id names one case in records, filters and histories of all runs.",
        file "---\nversion = 1\nsuite = \"PointwiseTest\"\nabout = \"why\"\n[axes]\nn = [4, 4]\n---\nfusion @f(%x: f32[?]) {\n  return %x\n}\n; inputs: x = normal[$n]\n";
    CASE_PATH = "E0405", "the case folder or a file in it cannot be used",
        "keep case files inside the folder, and name the folder with --cases",
        why "Files are read below the case folder only, and a link that leaves it is not followed: a folder of cases from \
             elsewhere cannot make the harness read other files.",
        command "list --cases /nonexistent";
    ARRAY_FILE = "E0411", "a file of recorded arrays cannot be read",
        "write it with numpy.savez or numpy.savez_compressed, little endian",
        why "The file is no zip of NumPy arrays, or an array does not hold what its header says.",
        words "harness import FILE.py --inputs FILE.npz, where FILE.npz was cut off while it was copied";
    RECORD = "E0412", "a record of a run does not fit the definition or its arrays",
        "pass the record and the arrays of the same run",
        why "A record says for each input and output its type, sizes, strides and the name of its array. They must agree with what \
             the definition declares and with the arrays.",
        words "harness import FILE.py --inputs OTHER.npz --records records.jsonl";
    // Devices and the environment.
    NO_GPU = "E0501", "GPUs were asked for and are not there",
        "run on simulated devices with --sim N, or ask for fewer GPUs",
        why "--gpus N takes N usable GPUs or none: a run on fewer than was asked for would not be the one that was meant.",
        command "--gpus 256";
    NO_DRIVER = "E0502", "the CUDA driver library is missing or too old",
        "install the NVIDIA driver, or run on the simulator",
        why "Kernels are launched through libcuda.so.1, which the NVIDIA driver brings.",
        words "`harness --gpus 1` on a machine without an NVIDIA driver; `harness doctor` says what was found.";
    NO_NVRTC = "E0503", "the NVRTC library was not found",
        "pip install 'nvidia-cuda-nvrtc==13.0.*', or set NVRTC_PATH",
        why "Kernels are compiled at run time by NVRTC. It is looked for in NVRTC_PATH, in CUDA toolkits and in Python packages.",
        words "`harness compile` on a machine without NVRTC; `harness doctor` says which places were searched.";
    BAD_FILTER = "E0504", "a filter is malformed",
        "gtest syntax: 'A*:B*-C*'",
        why "A filter is patterns separated by colons, then at most one minus with patterns to leave out. An empty one would \
             select nothing, or everything, by accident.",
        command "list --filter=";
    NOTHING_SELECTED = "E0505", "the filter selects no case",
        "harness list shows the ids",
        why "A run of no cases would pass. That is never what was meant, so it is an error.",
        command "list --filter NoSuchSuite.*";
    USAGE = "E0506", "the command line is wrong",
        "harness --help",
        why "Unknown commands, options and values are refused, with the nearest known one.",
        command "list --fliter X";
    BAD_RUN = "E0507", "a recorded run is not there, or does not hold what is asked of it",
        "the note says what there is; `latest` names the last run that finished",
        why "A replay repeats what a worker of an earlier run did, in its order, with its seeds. Without that record there \
             is nothing to repeat, and a guess would be another experiment.",
        words "harness replay --worker sim0-w0@latest, where no worker of that name ran a case.";
    BAD_QUARANTINE = "E0508", "an entry of the quarantine file is malformed or matches nothing",
        "give each entry id, owner, issue, reason and until; take out entries for cases that are gone",
        why "A quarantined case may fail without making the run fail. That is a promise of somebody to mend it by a date, \
             so nothing of it may be missing, and an entry without a case is a leftover.",
        words "A [[case]] in cases/quarantine.toml without `until`.";
    PLAYED_MACHINE = "E0509", "the file that plays a machine with GPUs cannot be read",
        "it is TOML or JSON with [[gpu]] and [[event]] tables",
        why "--nvml FILE puts a file in the place of NVML, so that runs over many GPUs are tried without one. It holds the GPUs and \
             what happens to them.",
        command "--nvml /nonexistent";
    NO_SANITIZER = "E0510", "compute-sanitizer is not installed, or has nothing to check",
        "install the CUDA toolkit, or put the folder of compute-sanitizer into PATH; the simulator has detectors of its own",
        why "--sanitize runs workers under NVIDIA's compute-sanitizer. It belongs to the CUDA toolkit, not to the driver, and checks \
             kernels on a GPU: the simulator checks every case itself, the reference evaluator has no kernels.",
        command "--sanitize memcheck --ref";
    TUNING = "E0511", "a tuning parameter does not exist or is out of its range",
        "see the note for the names and the range",
        why "Options may set what a heuristic would choose, to measure what is best. A value outside of the range would give a \
             kernel that is wrong or does not fit the device, and a name that is not there would change nothing, unnoticed.",
        words "`pointwise.threads=0`, or `pointwise.unrol=2`, in the `tuning` of the engine's options.";
    PASS = "E0512", "a pass that is switched off does not exist",
        "see the note for the names",
        why "Options may leave out passes over whole fusions, to see what a pass does or whether it is to blame. A name that is not \
             there would leave out nothing, unnoticed.",
        words "`movs` instead of `moves` in the `disabled_passes` of the engine's options.";
    NO_LAUNCHER = "E0513", "there is no cluster to give the run to",
        "run it on a machine of the cluster, or leave `--launcher` out and say `--shard I/N` on each machine",
        why "--launcher slurm asks an existing Slurm cluster to run the shards. The programs sbatch, squeue and scancel must be \
             on the path, the controller must answer, and the tasks must be able to say which devices they have.",
        words "`harness --launcher slurm --sim 1`, where no Slurm is installed.";
    // Records.
    RESULTS = "E0701", "the results folder cannot be used",
        "name it with --results; `harness store repair` mends one of this version",
        why "A folder of records says in FORMAT which version wrote it. Another version's is refused before anything in it is \
             read or changed.",
        words "`harness store list --results DIR`, where DIR/FORMAT says harness-store 9.";
    NO_RUN = "E0702", "there is no such run",
        "harness store list shows the runs",
        why "A run is named by its folder's name, by the beginning or the end of it if that is unique, by `latest`, or by \
             `latest~N` for the Nth before.",
        command "report nosuchrun --results /nonexistent";
    NOT_RESUMED = "E0703", "the run cannot be gone on with",
        "start it anew with the same options",
        why "Going on means: the same cases, under the same seed. That cannot be promised for a run that is complete or under \
             way, whose record is of another version or lost, or whose case files have changed since.",
        words "`harness resume`, where a case file was edited after the run was killed.";
    RUN_CONFLICT = "E0704", "two different runs have one name",
        "rename one of the folders below runs/",
        why "Runs are known by their names in histories and reports. Where two are different, neither may replace the other.",
        words "`harness store merge DIR`, where DIR holds a run `nightly` and the store another one.";
    NOT_JOINED = "E0705", "the runs are not the shards of one run",
        "name the runs that are meant, `store join` and then each",
        why "A joined run says of every case what one job found of it. So its shards must be of the same cases, dealt out in the \
             same way, of the same sources, seed and kind of device, and each shard must be there once.",
        words "`harness store join one two`, where `one` is shard 1/2 and `two` is shard 2/3.";
    // Schedules.
    SCHEDULE_SYNTAX = "E0801", "a line of a schedule cannot be read",
        "compare the line with the table of verbs in cases/README.md",
        why "A schedule is one verb a line, with the names of axes and tensors that it is about. A word that no verb has, or one \
             where another is expected, is refused with its place.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = neg %x\n  return %0\n}\n; inputs: x = normal[8]\n; schedule {\n;   split d0 4\n; }";
    SCHEDULE_NAME = "E0802", "a schedule names an axis or a tensor that there is not",
        "use one of the names in the note; `harness show CASE --stage schedule` prints a schedule with all of its names",
        why "Axes of a fusion are d0, d1 and so on, in the order in which its tensors meet them; what verbs make of them has names \
             of its own: `d0.o` and `d0.i` of a split, `d0*d1` of a merge. Tensors have the fusion's names, copies `_r` behind \
             them, outputs `_out` and their number.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = neg %x\n  return %0\n}\n; inputs: x = normal[8]\n; schedule {\n;   split d7 by 4\n; }";
    SCHEDULE_AXES = "E0803", "axes cannot be transformed in this way",
        "split by a positive number, merge two different axes, align an axis of the fusion once",
        why "The parts of a split have at least one index each and cover the axis, as `exact` and `count` promise. An axis is not \
             merged with itself, and what is shifted is a dimension of the tensor whose rows decide the shift.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = neg %x\n  return %0\n}\n; inputs: x = normal[8]\n; schedule {\n;   split d0 by 0\n; }";
    SCHEDULE_LOOPS = "E0804", "the loops do not compute the tensor",
        "give the tensor loops that lead to each of its axes once; the note has those that it has",
        why "From the loops of a tensor the index of each of its axes must follow, each from one of them alone, and a reduction \
             adds each value once. Otherwise elements are left out, or written or added more than once.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = neg %x\n  return %0\n}\n; inputs: x = normal[8]\n; schedule {\n;   split d0 by 4\n;   propagate d0.o\n; }";
    SCHEDULE_PLACE = "E0805", "that cannot run over the axis",
        "bind one axis to each place in the launch, of constant extent where it is threads, unrolled or a vector",
        why "Threads of a block, unrolled loops and vectors are part of the kernel's text, so their number is a constant of the \
             schedule: of a split, or of an axis whose size is declared. A place has one axis in the loops of a tensor.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = neg %x\n  return %0\n}\n; inputs: x = normal[8]\n; schedule {\n;   parallelize d0 block_x\n; }";
    SCHEDULE_TENSOR = "E0806", "the verb is not for this tensor",
        "see the table of verbs in cases/README.md",
        why "Each verb is for some tensors: a copy for one that is read, rfactor for a reduction and axes that it reduces over, \
             alloc for one in shared memory.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = neg %x\n  return %0\n}\n; inputs: x = normal[8]\n; schedule {\n;   rfactor %0 over d0\n; }";
    SCHEDULE_INLINE = "E0807", "a value cannot be computed in those loops",
        "inline it into fewer loops; the note has the loops of the value and of those who read it",
        why "A value shares loops with those who read it as far as they are the same from the outermost one on, and a reduction \
             no loop that it reduces over: its value is known behind that. Loops of a value and of others must not need each \
             other in a circle.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = neg %x\n  return %0\n}\n; inputs: x = normal[8]\n; schedule {\n;   cache_after %x\n;   propagate d0\n;   inline_at %x_r 2\n; }";
    SCHEDULE_VALUE = "E0808", "a value is not there where it is read",
        "give the reader the same threads and the loops that the value is held along, or put it into shared memory with `alloc`",
        why "What lies in registers is its thread's, so who reads it has the same axis in the same place in the launch, and a loop \
             over each axis along which it is held. Inputs are read by copies in registers, which `cache_after` makes. The value of \
             a reduction over blocks is the last one's alone.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = neg %x\n  return %0\n}\n; inputs: x = normal[8]\n; schedule {\n;   propagate d0\n; }";
    SCHEDULE_INCOMPLETE = "E0809", "the schedule leaves something out",
        "give loops to every tensor that is computed, with `propagate` or `loops`; outputs have all that runs in the launch",
        why "A schedule says of each tensor how it is computed. One without loops has no place in the kernel, and an output whose \
             loops lack threads or blocks that others use would be written by all of them at once.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = neg %x\n  return %0\n}\n; inputs: x = normal[8]\n; schedule {\n;   cache_after %x\n;   loops %0_out0 d0\n; }";
    SCHEDULE_SIZES = "E0810", "the schedule does not fit these sizes",
        "leave `exact` out, or choose sizes that the numbers of the schedule divide; bind no axis without indices to blocks",
        why "A schedule may promise what only sizes can tell: that a factor divides an axis, or that there is a first index. The \
             kernel has no test for what is promised, so a call whose sizes break the promise is refused.",
        fusion "fusion @f(%x: f32[?]) {\n  %0 = neg %x\n  return %0\n}\n; inputs: x = normal[8]\n; schedule {\n;   cache_after %x\n;   split d0 by 3 exact\n;   propagate d0.o, d0.i\n;   inline_most\n; }";
    // Execution.
    NVRTC = "E0601", "NVRTC rejected the kernel",
        "report the case: this is a defect of the code generator",
        why "The CUDA C++ that was printed did not compile. The note holds NVRTC's log.",
        words "A kernel text that calls a function which the library does not have.";
    CUDA = "E0602", "a CUDA call failed",
        "see the driver's error name in the message",
        why "The driver refused a call. The worker that made it is replaced, since a context may be left broken.",
        words "CUDA_ERROR_INVALID_VALUE from cuLaunchKernel.";
    DEVICE_MEMORY = "E0603", "the device is out of memory",
        "use smaller inputs or a freer device; `[require] memory` skips a case where there is too little",
        why "An allocation on the device failed. Others may be using the same device.",
        words "A case with 100 GiB of inputs on a GPU with 80 GiB.";
    CUDA_STICKY = "E0604", "a kernel failed and broke the GPU's context",
        "start a new process; report the case",
        why "After an illegal access or a failed assertion every later call in the process fails too, so its worker is replaced.",
        words "CUDA_ERROR_ILLEGAL_ADDRESS from a kernel that stores outside its buffer.";
    LAUNCH_CONFIG = "E0605", "the device refuses the shape of a launch",
        "see the numbers in the message; a smaller block, grid or shared array fits",
        why "The driver refuses a launch whose grid, block, registers or shared memory exceed what the device has. Nothing was \
             launched, and the context is as good as before.",
        words "A kernel that asks for 300 KiB of shared memory on a device that gives a block 227 KiB.";
    PTXAS = "E0606", "the assembler rejected the kernel",
        "read its messages in the note; report the case",
        why "NVRTC took the text, and its assembler refused what came of it: an instruction that the architecture does not have, or \
             more registers, shared memory or constants than it gives.",
        words "ptxas error: Instruction 'wgmma.fence' not supported on .target 'sm_80'.";
    DEVICE_TENSOR = "E0607", "a tensor on the device cannot be used for this call",
        "see the message; `Callable::results` says what results need",
        why "Results are written where the caller says, so their memory must be dense in the layout that the fusion gives, start at \
             a multiple of 16 bytes, and be writable; arguments need a stride for each size.",
        words "`Callable::call_into` with a result of sizes [4, 8] where the fusion returns [8, 4].";
    OVERLAP = "E0608", "memory that a call writes overlaps other memory of the call",
        "give results memory of their own, or pass a copy of the argument",
        why "A kernel may read an argument after it has written a part of its results. Where they share memory, results would depend \
             on the order of threads.",
        words "`Callable::call_into` with a result in the memory of an argument.";
    // Unsupported.
    NEEDS_SEGMENTS = "U0101", "the fusion needs more than one kernel",
        "run it: a session cuts it into segments",
        why "One kernel has one loop structure. Here no single one serves all results: they share no dimension, a value is \
             needed along two dimensions that are one loop, or work would be repeated very often. Who compiles one kernel by hand is \
             told so; a run makes several.",
        words "`Session::compile` of a fusion that returns `tanh %x` of a tensor [4, 8] and `exp2 %y` of a tensor [5, 7].";
    NO_SCHEDULER = "U0102", "no scheduler accepts the fusion",
        "see the notes for each scheduler's reason",
        why "Each scheduler knows one pattern: elementwise, reduction, normalisation. None of them can serve this fusion with one \
             kernel.",
        words "A fusion whose operations fit none of the patterns; the notes name, scheduler by scheduler, what is in the way.";
    SCHEDULE_VERB = "U0103", "this scheduling primitive is not available yet",
        "use another schedule",
        why "The schedule asks for something that lowering does not have.",
        words "`set_memory` of a value to tensor memory, in a schedule written by hand.";
    TOO_LONG_ROW = "U0104", "a row does not fit the registers of one block",
        "run it: a session cuts it into segments, or split the reduction",
        why "A normalisation reads its row once and keeps it in registers until the reduction is known. This row is longer than \
             one block can hold.",
        words "`Session::compile` of `softmax %x axis(1)` of a tensor [1, 4000000].";
    OP_NOT_LOWERED = "U0105", "the operation has no kernel form yet",
        "run without --kernels-only: the host computes it",
        why "The reference evaluates every operation; kernels exist for a part of them. The rest runs on the host, which is slow: its \
             operands go down, its results up.",
        fusion "fusion @f(%x: f8e8m0fnu[?], %i: i64[?]) {\n  %0 = index_put_accumulate %x, %i, %x\n  return %0\n}\n\
                ; inputs: x = uniform(1, 2)[4], i = randint(0, 3)[4]";
    SIM_FEATURE = "U0106", "the simulator does not execute this construct yet",
        "run on a GPU",
        why "The kernel is good, but the simulator's bytecode lacks something that it needs, or has too few registers for it.",
        words "A kernel whose block needs more than 65535 simulated registers for a thread.";
    LAUNCH_LIMIT = "U0107", "a launch exceeds what the device accepts",
        "use smaller extents",
        why "Grids, blocks and shared memory have limits that the device states; this launch is above one of them.",
        words "A kernel that needs 65536 blocks along y, of which CUDA accepts 65535.";
    UPDATE_NOT_LOWERED = "U0108", "kernels do not write into inputs yet",
        "run it: a session writes the value elsewhere, and copies it behind all other steps",
        why "An update writes into storage that other parts of the kernel may still read. Kernels have no order for that yet. Who \
             compiles one kernel by hand is told so.",
        words "`Session::compile` of a fusion with `update %x = %0`.";
    DTYPE_NOT_SHARED = "U0109", "DLPack has no elements of this data type",
        "cast it before it is handed over; or hand over its bytes, as u8",
        why "Tensors go to other libraries as DLPack describes them, which has integers, floats and complex numbers of whole bytes, \
             and floats of 8 bits, and pairs of 4. What it has no name for nobody on the other side could read.",
        words "`OwnedTensor::into_dlpack` of a tensor of `f4e2m1fn`, whose elements are a byte each.";
    NO_ALGORITHM = "U0110", "the library has no algorithm for a product of matrices",
        "call the fusion instead of recording it: the host computes the product",
        why "Products of matrices are left to cuBLASLt, which says for each what it can do. What it cannot do the host does, which \
             a recorded call has not.",
        words "A recorded product of more matrices in a stack than cuBLASLt counts.";
    RNG_OFFSET = "U0111", "a graph cannot go on with other random numbers",
        "pass the offset as a scalar of its own, and add numbers to it at most",
        why "A call that is recorded draws other numbers each time that it is issued: its offsets move on by as many as it uses. \
             That is known of an offset that is an argument, or an argument with a number added, and decides nothing else.",
        words "`Callable::capture` of a fusion with `%o = mul %offset, %offset` and `uniform [8] 0.0, 1.0, %seed, %o`.";
    NOT_EVALUATED = "U0201", "the reference does not evaluate this form of an operation",
        "use the form that the note names",
        why "The operation can be read, checked and printed, but with these arguments its values are not defined by its \
             arguments alone, or by no document.",
        words "`sdpfa_fwd` with a dropout above 0: which weights a kernel drops depends on how it is tiled.";
    // Bugs.
    BUG = "B0001", "an internal invariant broke",
        "report it with the case that the run wrote",
        why "Two parts of the compiler disagree. The input is not to blame.",
        words "Lowering meets a value that the schedule never placed.";
    VERIFY = "B0002", "the kernel verifier rejected generated code",
        "report it with the case that the run wrote",
        why "Every kernel is checked before it is printed or run; this one breaks a rule, which the message names with its \
             statement.",
        words "A kernel that reads a variable outside the block that defines it.";
    // Detected by the simulator in generated code.
    RACE = "B0101", "two threads access one location without ordering",
        "report it with the case that the run wrote",
        why "One of the accesses is a write, and no barrier lies between them, so the result depends on timing.",
        words "Thread 0 stores to shared[0] and thread 1 loads it, with no barrier between.";
    OUT_OF_BOUNDS = "B0102", "an access leaves its buffer",
        "report it with the case that the run wrote",
        why "The index lies outside the buffer: on a GPU this would read or destroy memory of others.",
        words "A load of x[7] from a buffer of 7 elements, where the predicate of the last block is missing.";
    UNINITIALISED = "B0103", "a value is read before it was written",
        "report it with the case that the run wrote",
        why "Memory starts with whatever was there. An output element that nobody wrote is found too.",
        words "A reduction that reads shared[32] when the block has 32 threads.";
    MISALIGNED = "B0104", "a vector access is not aligned",
        "report it with the case that the run wrote",
        why "A vector access must start at a multiple of its own size; a GPU refuses any other.",
        words "A load of four f32 at element 3.";
    DEADLOCK = "B0105", "no thread can make progress",
        "report it with the case that the run wrote",
        why "Every thread that is left waits for something that none of them will do.",
        words "Blocks that wait for a block which cannot become resident before they end.";
    DIVERGENCE = "B0106", "a barrier or shuffle is reached by part of its threads",
        "report it with the case that the run wrote",
        why "All threads of a block, or of a warp, must reach it together; a GPU would hang or exchange garbage.",
        words "A block barrier inside `if (threadIdx.x < 7)`.";
    RED_ZONE = "B0107", "a kernel wrote outside a buffer",
        "report it with the case that the run wrote",
        why "A checked run puts known bytes before and behind every buffer of device memory. After the launch some of them had \
             changed: the kernel wrote where other data would be.",
        words "A kernel whose last block stores 128 elements into an output of 100.";
    UNWRITTEN = "B0108", "a kernel left elements of an output unwritten",
        "report it with the case that the run wrote",
        why "Outputs hold a pattern before the launch. On a GPU an element that still holds it may be a result, so the launch is \
             repeated with another pattern: what holds that one then was never written. The simulator knows who wrote what.",
        words "A kernel with one block too few: the last rows of its output hold what was there before.";
    INPUT_CHANGED = "B0109", "a kernel wrote into an input",
        "report it with the case that the run wrote",
        why "Inputs belong to the caller. A checked run compares them with what was given once the launch is done.",
        words "A kernel that takes the address of its input for that of its output.";
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

    #[test]
    fn every_code_is_explained() {
        for info in CODES {
            let CodeInfo { code, summary, help, why, example } = info;
            for text in [*summary, *help] {
                assert!(!text.is_empty() && !text.ends_with('.'), "{code}: a line without a full stop: {text}");
            }
            assert!(why.ends_with('.'), "{code} needs `why`: what happened and why it is refused");
            assert_ne!(*example, Example::Words(""), "{code} needs an example");
        }
    }
}
