//! Kernel IR to CUDA C++.
//!
//! Input: a verified kernel. Output: the text of one `extern "C"` function and
//! the device library that it uses, with what a launch must know besides the
//! kernel itself ([`CudaSource`]). The text follows the tree of statements one
//! to one, but for what is computed of all elements of a vector at once ([`vectors`]);
//! [`TextPlan`] adds locals for expressions that are used more than once.

use super::expr::{Exprs, Prec};
use super::library;
use super::literal::word_name;
use super::names::Names;
use super::plan::TextPlan;
use super::vectors::{self, Loop, Steps};
use crate::fusion::TensorId;
use crate::kernel::{
    Access, AtomicOp, Block, BufId, CacheHint, Dim, ExprId, Kernel, Param, ParamKind, Scope, ShuffleMode, Space,
    Special, Stmt, StmtKind, Unroll, VarId, shared_layout,
};
use crate::num::DType;
use crate::util::SecondaryMap;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Teams of blocks that have a barrier each: more do not run at once.
const MOST_TEAMS: usize = 8192;
/// Shared memory that a kernel may declare statically.
const STATIC_SHARED_LIMIT: u32 = 48 << 10;

/// A kernel as CUDA C++.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaSource {
    /// The library functions that the kernel calls, and what they need.
    pub library: String,
    /// The kernel's function.
    pub kernel: String,
    /// The function's name.
    pub entry: String,
    /// Of each of the kernel's parameters how many words of 8 bytes it takes; the barrier's counter is none of them.
    pub params: Vec<u8>,
    /// Bytes of dynamic shared memory that the launch must provide.
    pub dynamic_shared: u32,
    /// If not 0 the function takes one more argument, the last: the address of so many
    /// bytes, the counters of barriers of blocks, which are zero before their first use and
    /// which no other launch in flight uses.
    pub barrier_bytes: usize,
    /// Whether all blocks must be resident at once.
    pub cooperative: bool,
}

impl CudaSource {
    /// The whole text, ready to compile.
    pub fn text(&self) -> String {
        if self.library.is_empty() { self.kernel.clone() } else { format!("{}\n{}", self.library, self.kernel) }
    }
}

/// The kernel's text with its library functions.
pub fn print_cuda(kernel: &Kernel) -> String {
    emit(kernel).text()
}

/// Words of 8 bytes of a parameter: two of a complex number of two of them.
fn param_words(param: &Param) -> u8 {
    param.dtype.map_or(1, |dtype| dtype.bytes().div_ceil(8) as u8)
}

/// Prints a kernel.
pub fn emit(kernel: &Kernel) -> CudaSource {
    let plan = TextPlan::new(kernel);
    let mut printer = CudaPrinter::new(kernel, &plan, &kernel.name);
    printer.function();
    CudaSource {
        library: library::collect(&printer.exprs.used),
        kernel: printer.out,
        entry: printer.entry,
        params: kernel.params.values().map(param_words).collect(),
        dynamic_shared: printer.dynamic_shared,
        barrier_bytes: barrier_bytes(&kernel.body),
        cooperative: kernel.launch.cooperative,
    }
}

/// Prints kernels as one text, with the library functions of all of them once; and what they
/// are called in it, which is not what they are called alone: these names need not be distinct.
pub(super) fn emit_together<'a>(kernels: impl IntoIterator<Item = &'a Kernel>) -> (String, Vec<String>) {
    let (mut used, mut texts, mut entries) = (BTreeSet::new(), String::new(), Vec::new());
    for (number, kernel) in kernels.into_iter().enumerate() {
        let plan = TextPlan::new(kernel);
        let mut printer = CudaPrinter::new(kernel, &plan, &format!("kernel_{number}"));
        printer.function();
        used.append(&mut printer.exprs.used);
        let _ = write!(texts, "\n{}", printer.out);
        entries.push(printer.entry);
    }
    (library::collect(&used) + &texts, entries)
}

/// How a local buffer of one element is written: as a variable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BufferShape {
    #[default]
    Array,
    Scalar,
}

struct CudaPrinter<'a> {
    kernel: &'a Kernel,
    plan: &'a TextPlan,
    exprs: Exprs<'a>,
    names: Names,
    buffers: SecondaryMap<BufId, String>,
    shapes: SecondaryMap<BufId, BufferShape>,
    entry: String,
    dynamic_shared: u32,
    barrier: Option<String>,
    // The tensor that the last comment named, and what tensors are called.
    tensor: Option<TensorId>,
    tensors: BTreeMap<TensorId, String>,
    // The number that the next block of the pre-order walk gets.
    next_block: usize,
    out: String,
    depth: usize,
}

impl<'a> CudaPrinter<'a> {
    fn new(kernel: &'a Kernel, plan: &'a TextPlan, name: &str) -> Self {
        let mut names = Names::new();
        let entry = names.take(name);
        let exprs = Exprs {
            kernel,
            params: SecondaryMap::new(),
            reciprocals: BTreeMap::new(),
            vars: SecondaryMap::new(),
            locals: SecondaryMap::new(),
            specials: BTreeMap::new(),
            within: crate::kernel::casts_within(kernel),
            used: Default::default(),
        };
        Self {
            kernel,
            plan,
            exprs,
            names,
            buffers: SecondaryMap::new(),
            shapes: SecondaryMap::new(),
            entry,
            dynamic_shared: 0,
            barrier: None,
            tensor: None,
            tensors: tensor_names(kernel),
            next_block: 1,
            out: String::new(),
            depth: 0,
        }
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:width$}{text}", "", width = 2 * self.depth);
    }

    // The function's frame.

    fn function(&mut self) {
        let params = self.params();
        let launch = &self.kernel.launch;
        let bounds = format!("__launch_bounds__({}, {})", launch.max_threads.max(1), launch.min_blocks.max(1));
        self.line(&format!("extern \"C\" __global__ void {bounds} {}(", self.entry));
        let last = params.len().saturating_sub(1);
        for (i, param) in params.iter().enumerate() {
            self.line(&format!("    {param}{}", if i == last { "" } else { "," }));
        }
        self.line(") {");
        self.depth += 1;
        self.places();
        self.shared();
        self.locals();
        self.block(&self.kernel.body, 0);
        self.depth -= 1;
        self.line("}");
    }

    fn params(&mut self) -> Vec<String> {
        let mut params = Vec::new();
        for (id, param) in self.kernel.params.iter() {
            let name = self.names.take(&param.name);
            let (buffer, is_scratch) = match param.kind {
                ParamKind::Input { buffer, .. } | ParamKind::Output { buffer, .. } => (Some(buffer), false),
                ParamKind::Workspace { buffer } => (Some(buffer), true),
                _ => (None, false),
            };
            params.push(match buffer {
                Some(buffer) => {
                    let dtype = self.exprs.type_name(self.kernel.buffers[buffer].dtype);
                    let access = if self.plan.written.contains(&buffer) { "" } else { "const " };
                    // Other blocks write scratch memory while this one reads it.
                    let alias = if is_scratch { "" } else { " __restrict__" };
                    self.buffers.set(buffer, name.clone());
                    format!("{access}{dtype}*{alias} {name}")
                }
                None => {
                    let dtype = self.exprs.type_name(param.dtype.unwrap_or(self.kernel.index_type));
                    format!("const {dtype} {name}")
                }
            });
            if let ParamKind::Reciprocal(divisor) = param.kind {
                self.exprs.reciprocals.insert(self.kernel.exprs.plain(divisor), name.clone());
            }
            self.exprs.params.set(id, name);
        }
        if barrier_bytes(&self.kernel.body) > 0 {
            let name = self.names.take("grid_barrier");
            params.push(format!("unsigned* {name}"));
            self.barrier = Some(name);
        }
        params
    }

    /// The thread's coordinates, as signed numbers.
    fn places(&mut self) {
        for &special in &self.plan.specials {
            let (wish, source) = match special {
                Special::ThreadIdx(dim) => ("thread", format!("threadIdx.{}", letter(dim))),
                Special::BlockIdx(dim) => ("block", format!("blockIdx.{}", letter(dim))),
                Special::BlockDim(dim) => ("threads", format!("blockDim.{}", letter(dim))),
                Special::GridDim(dim) => ("blocks", format!("gridDim.{}", letter(dim))),
            };
            let dim = source.rsplit('.').next().unwrap_or_default();
            let name = self.names.take(&format!("{wish}_{dim}"));
            self.line(&format!("const int {name} = {source};"));
            self.exprs.specials.insert(special, name);
        }
    }

    fn shared(&mut self) {
        // A kernel whose layout cannot be computed does not bind, so it never launches.
        let Ok((offsets, total)) = shared_layout(self.kernel) else { return };
        let dynamic = (total > STATIC_SHARED_LIMIT).then(|| self.names.take("shared_memory"));
        if let Some(memory) = &dynamic {
            self.dynamic_shared = total;
            let memory = memory.clone();
            self.line(&format!("extern __shared__ __align__(128) unsigned char {memory}[];"));
        }
        for (id, buffer) in self.kernel.buffers.iter().filter(|(_, b)| b.space == Space::Shared) {
            let name = self.names.take(&buffer.name);
            let dtype = self.exprs.type_name(buffer.dtype);
            match &dynamic {
                Some(memory) => {
                    let offset = offsets[id];
                    self.line(&format!("{dtype}* const {name} = reinterpret_cast<{dtype}*>({memory} + {offset});"));
                }
                None => {
                    let align = alignment(buffer.align, buffer.dtype);
                    let len = self.length(buffer.len);
                    self.line(&format!("__shared__ {align}{dtype} {name}[{len}];"));
                }
            }
            self.buffers.set(id, name);
        }
    }

    fn locals(&mut self) {
        for (id, buffer) in self.kernel.buffers.iter().filter(|(_, b)| b.space == Space::Local) {
            let name = self.names.take(&buffer.name);
            let dtype = self.exprs.type_name(buffer.dtype);
            let len = self.length(buffer.len);
            let is_vector = self.plan.vector.contains(&id);
            if len == 1 && !is_vector {
                self.shapes.set(id, BufferShape::Scalar);
                self.line(&format!("{dtype} {name};"));
            } else {
                // Only vector accesses need more than the natural alignment.
                let align = if is_vector { alignment(buffer.align, buffer.dtype) } else { String::new() };
                self.line(&format!("{align}{dtype} {name}[{len}];"));
            }
            self.buffers.set(id, name);
        }
    }

    /// A constant number of elements; C++ has no empty arrays.
    fn length(&self, len: ExprId) -> i64 {
        self.kernel.exprs.as_int(len).unwrap_or(1).max(1)
    }

    // Statements.

    fn block(&mut self, block: &Block, number: usize) {
        self.names.open();
        for (position, stmt) in block.iter().enumerate() {
            self.comment(stmt);
            self.bindings(number, position);
            self.stmt(stmt);
        }
        self.names.close();
    }

    /// Says which tensor of the fusion a group of statements computes, where the
    /// first one does not: a value or an element has its tensor's name.
    fn comment(&mut self, stmt: &Stmt) {
        let speaks = matches!(stmt.kind, StmtKind::Let { .. } | StmtKind::Load { .. } | StmtKind::Store { .. });
        if speaks || stmt.origin.tensor == self.tensor {
            return;
        }
        self.tensor = stmt.origin.tensor;
        if let Some(name) = self.tensor.and_then(|tensor| self.tensors.get(&tensor)) {
            let text = format!("// {name}");
            self.line(&text);
        }
    }

    /// Binds the expressions that the plan places here.
    fn bindings(&mut self, block: usize, position: usize) {
        for &id in self.plan.bindings(block, position) {
            let dtype = self.kernel.exprs.dtype(id);
            let wish = match dtype {
                DType::Bool => "p",
                _ if self.plan.is_place(id) => "i",
                _ => "v",
            };
            let text = self.exprs.formula(id).code;
            let name = self.names.take_numbered(wish);
            let dtype = self.exprs.type_name(dtype);
            self.line(&format!("const {dtype} {name} = {text};"));
            self.exprs.locals.set(id, Some(name));
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Let { var, .. } if self.plan.is_silent(*var) => {}
            StmtKind::Let { var, value } => {
                let value = self.exprs.code(*value);
                self.define(*var, &value);
            }
            StmtKind::Load { var, from, hint } => {
                let value = self.load(*from, *hint);
                if self.plan.is_silent(*var) {
                    // Written where it is used.
                    self.exprs.vars.set(*var, value);
                } else {
                    self.define(*var, &value);
                }
            }
            StmtKind::Store { to, value, hint } => {
                let value = self.exprs.code(*value);
                let is_streamed = *hint == CacheHint::Streaming && self.space(to.buffer) == Space::Global;
                let element = self.element(*to);
                if is_streamed {
                    let function = self.exprs.lib("store_streaming");
                    self.note_streamed(to.buffer);
                    let dtype = self.exprs.type_name(self.kernel.buffers[to.buffer].dtype);
                    self.line(&format!("{function}<{dtype}>(&{element}, {value});"));
                } else if *hint == CacheHint::Held {
                    let function = self.exprs.lib("held");
                    self.line(&format!("{element} = {function}({value});"));
                } else {
                    self.line(&format!("{element} = {value};"));
                }
            }
            StmtKind::Move { to, from, lanes, hint, aligned } => {
                self.vector_move(*to, *from, (*lanes, *aligned), *hint)
            }
            StmtKind::CopyAsync { to, from, lanes, hint } => self.copy_async(*to, *from, *lanes, *hint),
            StmtKind::CommitGroup => {
                let function = self.exprs.lib("commit_group");
                self.line(&format!("{function}();"));
            }
            StmtKind::WaitGroup { open } => {
                let function = self.exprs.lib("wait_group");
                self.line(&format!("{function}<{open}>();"));
            }
            StmtKind::For { var, start, end, step, unroll, body } => {
                self.for_loop(Loop { var: *var, range: (*start, *end, *step), unroll: *unroll, body });
            }
            StmtKind::If { condition, then, otherwise } => self.branch(*condition, then, otherwise),
            StmtKind::Shuffle { var, value, mode, lane } => self.shuffle(*var, *value, *mode, *lane),
            StmtKind::Random { vars, seed, offset, subsequence } => {
                self.random(vars, [*seed, *offset, *subsequence]);
            }
            StmtKind::Sync(scope) => self.sync(*scope),
            StmtKind::Fence(scope) => self.line(match scope {
                Scope::Team | Scope::Grid => "__threadfence();",
                Scope::Warp | Scope::Block => "__threadfence_block();",
            }),
            StmtKind::Atomic { var, op, to, value } => self.atomic(*var, *op, *to, *value),
        }
    }

    /// Binds a variable of the kernel.
    fn define(&mut self, var: VarId, value: &str) {
        let facts = &self.kernel.vars[var];
        let name = self.names.take(&facts.name);
        let dtype = self.exprs.type_name(facts.dtype);
        self.line(&format!("const {dtype} {name} = {value};"));
        self.exprs.vars.set(var, name);
    }

    fn space(&self, buffer: BufId) -> Space {
        self.kernel.buffers[buffer].space
    }

    /// An element of a buffer as an lvalue.
    fn element(&mut self, access: Access) -> String {
        let name = self.buffers[access.buffer].clone();
        match self.shapes[access.buffer] {
            BufferShape::Scalar => name,
            // A constant index needs no suffix: it converts to whatever it must be.
            BufferShape::Array => match self.kernel.exprs.as_int(access.index) {
                Some(index) => format!("{name}[{index}]"),
                None => format!("{name}[{}]", self.exprs.code(access.index)),
            },
        }
    }

    fn load(&mut self, from: Access, hint: CacheHint) -> String {
        let element = self.element(from);
        match self.load_function(from.buffer, hint) {
            Some(function) => format!("{function}(&{element})"),
            None => element,
        }
    }

    /// The function that reads a buffer with a hint, if plain C++ does not.
    fn load_function(&mut self, buffer: BufId, hint: CacheHint) -> Option<&'static str> {
        let is_written = self.plan.written.contains(&buffer);
        match hint {
            _ if self.space(buffer) != Space::Global => None,
            CacheHint::Global => Some(self.exprs.lib("load_global")),
            CacheHint::Streaming if !is_written => {
                self.note_streamed(buffer);
                Some(self.exprs.lib("load_streaming"))
            }
            CacheHint::Again if !is_written => Some(self.exprs.lib("load_again")),
            CacheHint::Default | CacheHint::Streaming | CacheHint::Again | CacheHint::Held => None,
        }
    }

    /// Notes that elements of a buffer are read or written as what passes the caches.
    fn note_streamed(&mut self, buffer: BufId) {
        match self.kernel.buffers[buffer].dtype {
            DType::C64 => self.exprs.lib("streaming_complex"),
            DType::C128 => self.exprs.lib("streaming_complex_double"),
            _ => return,
        };
    }

    fn vector_move(&mut self, to: Access, from: Access, (lanes, aligned): (u32, bool), hint: CacheHint) {
        let word = word_name(lanes as usize * self.kernel.buffers[to.buffer].dtype.bytes());
        let target = self.element(to);
        if !aligned && self.space(to.buffer) == Space::Global {
            return self.store_unaligned(&target, from, word, hint);
        }
        let hinted = self.load_function(from.buffer, hint);
        let value = if aligned {
            let source = format!("reinterpret_cast<const {word}*>(&{})", self.element(from));
            match hinted {
                Some(function) => format!("{function}({source})"),
                None => format!("*{source}"),
            }
        } else {
            let function = self.exprs.lib("load_unaligned");
            let element = self.exprs.type_name(self.kernel.buffers[from.buffer].dtype);
            let read = |read| format!(", [](const {word}* word) {{ return {read}(word); }}");
            let read = hinted.map_or_else(String::new, read);
            let (buffer, len) = (self.buffers[from.buffer].clone(), self.kernel.buffers[from.buffer].len);
            let [index, len] = [from.index, len].map(|index| self.exprs.code(index));
            let type_name = self.exprs.type_name(self.kernel.exprs.dtype(from.index));
            format!("{function}<{word}, {element}, {type_name}>({buffer}, {index}, {len}{read})")
        };
        let target = format!("reinterpret_cast<{word}*>(&{target})");
        if hint == CacheHint::Streaming && self.space(to.buffer) == Space::Global {
            let function = self.exprs.lib("store_streaming");
            self.line(&format!("{function}({target}, {value});"));
        } else {
            self.line(&format!("*{target} = {value};"));
        }
    }

    /// A vector of a thread to a place that is no multiple of its size.
    fn store_unaligned(&mut self, target: &str, from: Access, word: &str, hint: CacheHint) {
        let element = self.exprs.type_name(self.kernel.buffers[from.buffer].dtype);
        let function = self.exprs.lib("store_unaligned");
        let source = self.element(from);
        let store = match hint {
            CacheHint::Streaming => {
                let store = self.exprs.lib("store_streaming");
                format!(", [](auto* to, auto value) {{ {store}(to, value); }}")
            }
            _ => String::new(),
        };
        self.line(&format!(
            "{function}<{word}, {element}>(&{target}, reinterpret_cast<const {word}*>(&{source}){store});"
        ));
    }

    fn copy_async(&mut self, to: Access, from: Access, lanes: u32, hint: CacheHint) {
        let bytes = lanes as usize * self.kernel.buffers[to.buffer].dtype.bytes();
        let (target, source) = (self.element(to), self.element(from));
        match hint {
            CacheHint::Global => {
                let function = self.exprs.lib("copy_async_global");
                self.line(&format!("{function}(&{target}, &{source});"));
            }
            _ => {
                let function = self.exprs.lib("copy_async");
                self.line(&format!("{function}<{bytes}>(&{target}, &{source});"));
            }
        }
    }

    fn for_loop(&mut self, own: Loop<'_>) {
        let steps = vectors::steps(self.kernel, self.plan, own);
        let [numerators, values] = ["numerators", "values"].map(|wish| steps.map(|_| self.names.take_numbered(wish)));
        if let Some((steps, array)) = steps.zip(numerators.as_deref()) {
            self.quotients(own, &steps, array);
        }
        let narrowed = steps.and_then(|steps| Some((steps.lanes, steps.narrowing?))).zip(values.as_deref());
        if let Some(((lanes, _), array)) = narrowed {
            self.line(&format!("float {array}[{lanes}];"));
        }
        let number = self.next_block;
        match steps {
            None => self.loop_around(own, |this, _| this.nested(own.body)),
            Some(steps) => self.loop_around(own, |this, counter| {
                this.next_block += 1;
                this.body_of_steps(own.body, number, &|this, position, stmt| {
                    if let Some(own) = steps.quotient.filter(|own| own.position == position) {
                        let element = numerators.as_ref().map(|array| format!("{array}[{counter}]"));
                        this.exprs.locals.set(own.quotient, element);
                    }
                    match steps.narrowing.filter(|own| own.position == position).zip(values.as_ref()) {
                        Some((own, array)) => {
                            let value = this.exprs.code(own.value);
                            this.line(&format!("{array}[{counter}] = {value};"));
                        }
                        None => this.stmt(stmt),
                    }
                });
            }),
        }
        if let Some(own) = steps.and_then(|steps| steps.quotient) {
            self.exprs.locals.set(own.quotient, None);
        }
        if let Some(((lanes, own), array)) = narrowed {
            let function = match self.kernel.exprs.dtype(own.conversion) {
                DType::F8E5M2 => "to_e5m2_all",
                _ => "to_e4m3_all",
            };
            let (function, is_within) = (self.exprs.lib(function), self.exprs.within[own.conversion]);
            let to = self.buffers[own.to].clone();
            self.line(&format!("{function}<{lanes}, {is_within}>({to}, {array});"));
        }
    }

    /// The quotients of a loop, if it has some, in an array, before it.
    fn quotients(&mut self, own: Loop<'_>, steps: &Steps, array: &str) {
        let Some(quotient) = steps.quotient else { return };
        self.line(&format!("float {array}[{}];", steps.lanes));
        let number = self.next_block;
        self.loop_around(own, |this, counter| {
            let before = own.body.get(..=quotient.position).unwrap_or_default();
            this.body_of_steps(before, number, &|this, position, stmt| match position == quotient.position {
                true => {
                    let numerator = this.exprs.code(quotient.numerator);
                    this.line(&format!("{array}[{counter}] = {numerator};"));
                }
                false => this.stmt(stmt),
            });
        });
        let (function, divisor) = (self.exprs.lib("quotients"), self.exprs.code(quotient.divisor));
        self.line(&format!("{function}<{}>({array}, {divisor});", steps.lanes));
    }

    /// Statements of a loop's body that has no others within, the block of that number.
    fn body_of_steps(&mut self, body: &[Stmt], number: usize, print: &dyn Fn(&mut Self, usize, &Stmt)) {
        self.depth += 1;
        self.names.open();
        for (position, stmt) in body.iter().enumerate() {
            self.comment(stmt);
            self.bindings(number, position);
            print(self, position, stmt);
        }
        self.names.close();
        self.depth -= 1;
    }

    /// A loop around what is printed within, which gets the name of the counter.
    fn loop_around(&mut self, own: Loop<'_>, within: impl FnOnce(&mut Self, &str)) {
        let (start, end, step) = own.range;
        // The end is compared with the counter.
        let (start, end) = (self.exprs.code(start), self.exprs.text(end).at(Prec::Shift));
        match own.unroll {
            Unroll::Full => self.line("#pragma unroll"),
            Unroll::By(factor) => self.line(&format!("#pragma unroll {factor}")),
            Unroll::No => self.line("#pragma unroll 1"),
        }
        let facts = &self.kernel.vars[own.var];
        self.names.open();
        let name = self.names.take(&facts.name);
        let dtype = self.exprs.type_name(facts.dtype);
        let advance = if step == 1 { format!("++{name}") } else { format!("{name} += {step}") };
        self.line(&format!("for ({dtype} {name} = {start}; {name} < {end}; {advance}) {{"));
        self.exprs.vars.set(own.var, name.clone());
        within(self, &name);
        self.line("}");
        self.names.close();
    }

    fn branch(&mut self, condition: ExprId, then: &Block, otherwise: &Block) {
        let condition = self.exprs.code(condition);
        self.line(&format!("if ({condition}) {{"));
        self.nested(then);
        if otherwise.is_empty() {
            // The empty branch has a number too.
            self.next_block += 1;
        } else {
            self.line("} else {");
            self.nested(otherwise);
        }
        self.line("}");
    }

    fn nested(&mut self, block: &Block) {
        let number = self.next_block;
        self.next_block += 1;
        self.depth += 1;
        self.block(block, number);
        self.depth -= 1;
    }

    fn shuffle(&mut self, var: VarId, value: ExprId, mode: ShuffleMode, lane: ExprId) {
        let in_range = self.kernel.exprs.as_int(lane).is_some_and(|lane| (0..32).contains(&lane));
        let function = self.exprs.lib(if in_range { "shuffle" } else { "shuffle_checked" });
        match self.kernel.exprs.dtype(value) {
            DType::C64 => drop(self.exprs.lib("shuffle_complex")),
            DType::C128 => drop(self.exprs.lib("shuffle_complex_double")),
            _ => {}
        }
        let mode = match mode {
            ShuffleMode::Xor => "shuffle_xor",
            ShuffleMode::Up => "shuffle_up",
            ShuffleMode::Down => "shuffle_down",
            ShuffleMode::Index => "shuffle_index",
        };
        let (value, lane) = (self.exprs.code(value), self.exprs.code(lane));
        self.define(var, &format!("{function}<{mode}>({value}, {lane})"));
    }

    /// A block's words, and a number from each of them or each two.
    fn random(&mut self, vars: &[VarId], operands: [ExprId; 3]) {
        let function = self.exprs.lib("philox");
        let operands = operands.map(|operand| self.exprs.code(operand)).join(", ");
        let block = self.names.take_numbered("block");
        self.line(&format!("const philox_block {block} = {function}({operands});"));
        for (i, var) in vars.iter().enumerate() {
            let value = match self.kernel.vars[*var].dtype {
                DType::F64 => {
                    format!("{}({block}.x{}, {block}.x{})", self.exprs.lib("unit_f64"), 2 * i, 2 * i + 1)
                }
                _ => format!("{}({block}.x{i})", self.exprs.lib("unit_f32")),
            };
            self.define(*var, &value);
        }
    }

    fn sync(&mut self, scope: Scope) {
        match (scope, &self.barrier) {
            (Scope::Warp, _) => self.line("__syncwarp();"),
            (Scope::Team, Some(barrier)) => {
                let call = format!("team_sync({barrier});");
                self.exprs.lib("team_sync");
                self.line(&call);
            }
            (Scope::Grid, Some(barrier)) => {
                let call = format!("grid_sync({barrier});");
                self.exprs.lib("grid_sync");
                self.line(&call);
            }
            (Scope::Block | Scope::Team | Scope::Grid, _) => self.line("__syncthreads();"),
        }
    }

    fn atomic(&mut self, var: Option<VarId>, op: AtomicOp, to: Access, value: ExprId) {
        let value = self.exprs.code(value);
        let element = self.element(to);
        let call = match op {
            AtomicOp::Add => format!("atomicAdd(&{element}, {value})"),
            AtomicOp::Max => format!("atomicMax(&{element}, {value})"),
            AtomicOp::Min => format!("atomicMin(&{element}, {value})"),
            AtomicOp::Inc => {
                format!("(int)atomicInc(reinterpret_cast<unsigned*>(&{element}), {value})")
            }
        };
        match var {
            Some(var) => self.define(var, &call),
            None => self.line(&format!("{call};")),
        }
    }
}

/// What the kernel calls the tensors that it computes: the name of the first
/// value made for a tensor, otherwise of the first buffer written for it.
fn tensor_names(kernel: &Kernel) -> BTreeMap<TensorId, String> {
    let (mut values, mut buffers) = (BTreeMap::new(), BTreeMap::new());
    let mut open = vec![kernel.body.iter()];
    while let Some(statements) = open.last_mut() {
        let Some(stmt) = statements.next() else {
            open.pop();
            continue;
        };
        match (&stmt.kind, stmt.origin.tensor) {
            (StmtKind::For { body, .. }, _) => open.push(body.iter()),
            (StmtKind::If { then, otherwise, .. }, _) => {
                open.push(otherwise.iter());
                open.push(then.iter());
            }
            (StmtKind::Let { var, .. }, Some(tensor)) => {
                values.entry(tensor).or_insert_with(|| kernel.vars[*var].name.clone());
            }
            (StmtKind::Store { to, .. } | StmtKind::Move { to, .. } | StmtKind::CopyAsync { to, .. }, Some(tensor)) => {
                buffers.entry(tensor).or_insert_with(|| kernel.buffers[to.buffer].name.clone());
            }
            _ => {}
        }
    }
    for (tensor, name) in buffers {
        values.entry(tensor).or_insert(name);
    }
    values
}

fn letter(dim: Dim) -> char {
    match dim {
        Dim::X => 'x',
        Dim::Y => 'y',
        Dim::Z => 'z',
    }
}

/// `alignas(n) ` where the type alone guarantees less.
fn alignment(align: u32, dtype: DType) -> String {
    if align as usize > dtype.bytes() { format!("alignas({align}) ") } else { String::new() }
}

/// Bytes of the counters of barriers of blocks: one for all, or one for each team, 32 bytes apart.
fn barrier_bytes(block: &Block) -> usize {
    let of = |stmt: &Stmt| match &stmt.kind {
        StmtKind::Sync(Scope::Grid) => 4,
        StmtKind::Sync(Scope::Team) => 32 * MOST_TEAMS,
        StmtKind::For { body, .. } => barrier_bytes(body),
        StmtKind::If { then, otherwise, .. } => barrier_bytes(then).max(barrier_bytes(otherwise)),
        _ => 0,
    };
    block.iter().map(of).max().unwrap_or(0)
}
