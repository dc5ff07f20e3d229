//! Rules of parameters, buffers and the launch.

use super::checker::Checker;
use crate::kernel::ir::{Block, ParamKind, Space, StmtKind, ValueKind};
use crate::num::DType;
use crate::util::SecondaryMap;

/// Shared memory that a block can have on any device the kernels are made for.
const MAX_SHARED_BYTES: u64 = 227 << 10;
/// Local memory of a thread.
pub(in crate::kernel) const MAX_LOCAL_BYTES: u64 = 512 << 10;
/// The coarsest alignment that can be asked for.
const MAX_ALIGN: u32 = 256;

impl Checker<'_> {
    /// Whether every id outside the arena is declared.
    pub(super) fn check_declared_ids(&mut self) -> bool {
        let kernel = self.kernel;
        let before = self.violations_so_far();
        let mut exprs = Vec::new();
        exprs.extend(kernel.launch.grid);
        exprs.extend(kernel.launch.block);
        exprs.extend(kernel.buffers.values().map(|b| b.len));
        let mut buffers = Vec::new();
        for param in kernel.params.values() {
            match param.kind {
                ParamKind::Input { buffer, .. }
                | ParamKind::Output { buffer, .. }
                | ParamKind::Workspace { buffer } => {
                    buffers.push(buffer);
                }
                ParamKind::Derived(expr) | ParamKind::Reciprocal(expr) => exprs.push(expr),
                ParamKind::Size { .. } | ParamKind::Stride { .. } | ParamKind::Scalar { .. } => {}
            }
        }
        for expr in exprs {
            if !self.has_expr(expr) {
                self.report(|| format!("expression {expr} of the declarations does not exist"));
            }
        }
        for buffer in buffers {
            if !self.has_buffer(buffer) {
                self.report(|| format!("buffer {buffer} of a parameter does not exist"));
            }
        }
        self.check_ids_of_block(&kernel.body, 0);
        self.violations_so_far() == before
    }

    fn check_ids_of_block(&mut self, block: &Block, depth: u32) {
        if depth > super::MAX_EXPR_DEPTH {
            self.report(|| format!("blocks are nested more than {} deep", super::MAX_EXPR_DEPTH));
            return;
        }
        for stmt in block {
            let (mut exprs, mut buffers, mut vars) = (Vec::new(), Vec::new(), Vec::new());
            match &stmt.kind {
                StmtKind::Let { var: v, value } => {
                    vars.push(*v);
                    exprs.push(*value);
                }
                StmtKind::Load { var: v, from, .. } => {
                    vars.push(*v);
                    exprs.push(from.index);
                    buffers.push(from.buffer);
                }
                StmtKind::Store { to, value, .. } => {
                    exprs.extend([to.index, *value]);
                    buffers.push(to.buffer);
                }
                StmtKind::Move { to, from, .. } | StmtKind::CopyAsync { to, from, .. } => {
                    exprs.extend([to.index, from.index]);
                    buffers.extend([to.buffer, from.buffer]);
                }
                StmtKind::For { var: v, start, end, body, .. } => {
                    vars.push(*v);
                    exprs.extend([*start, *end]);
                    self.check_ids_of_block(body, depth + 1);
                }
                StmtKind::If { condition, then, otherwise } => {
                    exprs.push(*condition);
                    self.check_ids_of_block(then, depth + 1);
                    self.check_ids_of_block(otherwise, depth + 1);
                }
                StmtKind::Shuffle { var: v, value, lane, .. } => {
                    vars.push(*v);
                    exprs.extend([*value, *lane]);
                }
                StmtKind::Random { vars: v, seed, offset, subsequence } => {
                    vars.extend(v);
                    exprs.extend([*seed, *offset, *subsequence]);
                }
                StmtKind::Sync(_) | StmtKind::Fence(_) | StmtKind::CommitGroup | StmtKind::WaitGroup { .. } => {}
                StmtKind::Atomic { var: v, to, value, .. } => {
                    vars.extend(*v);
                    exprs.extend([to.index, *value]);
                    buffers.push(to.buffer);
                }
            }
            for expr in exprs.into_iter().filter(|&e| !self.has_expr(e)).collect::<Vec<_>>() {
                self.report(|| format!("a statement uses expression {expr}, which does not exist"));
            }
            for buffer in buffers.into_iter().filter(|&b| !self.has_buffer(b)).collect::<Vec<_>>() {
                self.report(|| format!("a statement uses buffer {buffer}, which does not exist"));
            }
            for var in vars.into_iter().filter(|&v| self.kernel.vars.get(v).is_none()).collect::<Vec<_>>() {
                self.report(|| format!("a statement binds variable {var}, which does not exist"));
            }
        }
    }

    /// Whether parameters, buffers and launch keep their rules.
    pub(super) fn check_declarations(&mut self) -> bool {
        let before = self.violations_so_far();
        let kernel = self.kernel;
        if !matches!(kernel.index_type, DType::I32 | DType::I64) {
            self.report(|| format!("index type is {}, not i32 or i64", kernel.index_type));
        }
        if !is_identifier(&kernel.name) {
            self.report(|| format!("kernel name {:?} is not a C identifier", kernel.name));
        }
        self.check_params();
        self.check_buffers();
        self.check_launch();
        self.violations_so_far() == before
    }

    fn check_params(&mut self) {
        let kernel = self.kernel;
        let mut pointers = SecondaryMap::<_, u32>::new();
        let mut outputs = std::collections::BTreeSet::new();
        for (id, param) in kernel.params.iter() {
            let name = format!("parameter {id} ({})", param.name);
            if param.multiple_of < 1 || (param.multiple_of != 1 && !param.dtype.is_some_and(DType::is_int)) {
                self.report(|| format!("{name} is stated to be a multiple of {}", param.multiple_of));
            }
            let is_ordered = param.dtype.is_some_and(|dtype| dtype.is_int() && dtype != DType::U64);
            if param.at_most.is_some_and(|most| most < 0 || !is_ordered) {
                self.report(|| format!("{name} is stated to be at most {:?}", param.at_most));
            }
            match param.kind {
                ParamKind::Input { buffer, .. }
                | ParamKind::Output { buffer, .. }
                | ParamKind::Workspace { buffer } => {
                    if param.dtype.is_some() {
                        self.report(|| format!("{name} is a pointer and has a number's type"));
                    }
                    if kernel.buffers[buffer].space != Space::Global {
                        self.report(|| format!("{name} points to buffer {buffer}, which is not global"));
                    }
                    if let ParamKind::Output { output, .. } = param.kind
                        && !outputs.insert(output)
                    {
                        self.report(|| format!("{name} is a second pointer to output {output}"));
                    }
                    let workspace = matches!(param.kind, ParamKind::Workspace { .. });
                    if kernel.buffers[buffer].zeroed && !workspace {
                        self.report(|| {
                            format!("{name} points to buffer {buffer}, which only a workspace may ask to be zeroed")
                        });
                    }
                    pointers[buffer] += 1;
                    continue;
                }
                ParamKind::Size { .. } | ParamKind::Stride { .. } => {
                    if !matches!(param.dtype, Some(DType::I32 | DType::I64)) {
                        self.report(|| format!("{name} is a size or stride of type {:?}", param.dtype));
                    }
                }
                ParamKind::Scalar { .. } => {}
                ParamKind::Derived(expr) => {
                    if self.check_host(expr, id, &name) && param.dtype != Some(kernel.exprs.dtype(expr)) {
                        self.report(|| format!("{name} is derived from an expression of another type"));
                    }
                }
                ParamKind::Reciprocal(divisor) => {
                    let is_index = kernel.exprs.dtype(divisor) == DType::I32;
                    if self.check_host(divisor, id, &name) && (!is_index || param.dtype != Some(DType::I64)) {
                        self.report(|| format!("{name} is no reciprocal of 64 bits of an index of 32"));
                    }
                }
            }
            if let Some(dtype) = param.dtype.filter(|dtype| !dtype.is_computed()) {
                self.report(|| format!("{name} is {dtype}, which kernels do not compute with"));
            }
            if param.dtype.is_none() {
                self.report(|| format!("{name} is a number without a type"));
            }
        }
        for (id, buffer) in kernel.buffers.iter().filter(|(_, b)| b.space == Space::Global) {
            let count = pointers[id];
            if count != 1 {
                self.report(|| format!("global buffer {id} ({}) has {count} pointers, not one", buffer.name));
            }
        }
    }

    fn check_buffers(&mut self) {
        let kernel = self.kernel;
        let (mut shared, mut local) = (0u64, 0u64);
        for (id, buffer) in kernel.buffers.iter() {
            let name = format!("buffer {id} ({})", buffer.name);
            if !buffer.dtype.is_computed() {
                self.report(|| format!("{name} holds {}, which kernels do not compute with", buffer.dtype));
            }
            let element = buffer.dtype.bytes() as u32;
            if !buffer.align.is_power_of_two() || buffer.align < element || buffer.align > MAX_ALIGN {
                self.report(|| format!("{name} of {} has alignment {}", buffer.dtype, buffer.align));
            }
            let mut outputs = kernel.params.values().map(|param| param.kind);
            let is_output = |kind| matches!(kind, ParamKind::Output { buffer, .. } if buffer == id);
            if buffer.start > 0 && (buffer.start_bytes() >= buffer.align.into() || !outputs.any(is_output)) {
                self.report(|| format!("{name} begins with element {}", buffer.start));
            }
            if buffer.space == Space::Global {
                self.check_host_int(buffer.len, &format!("length of {name}"));
                continue;
            }
            if buffer.zeroed {
                self.report(|| format!("{name} asks to be zeroed and is not a workspace"));
            }
            let Some(len @ 1..) = kernel.exprs.as_int(buffer.len) else {
                self.report(|| format!("{name} has no constant positive length"));
                continue;
            };
            let bytes = (len as u64).saturating_mul(element.into());
            let total = if buffer.space == Space::Shared { &mut shared } else { &mut local };
            *total = total.next_multiple_of(u64::from(buffer.align.max(1))).saturating_add(bytes).min(1 << 40);
        }
        if shared > MAX_SHARED_BYTES {
            self.report(|| format!("shared buffers need {shared} bytes, a block has {MAX_SHARED_BYTES}"));
        }
        if local > MAX_LOCAL_BYTES {
            self.report(|| format!("local buffers need {local} bytes, a thread has {MAX_LOCAL_BYTES}"));
        }
    }

    fn check_launch(&mut self) {
        let kernel = self.kernel;
        let launch = &kernel.launch;
        for (what, exprs) in [("grid", launch.grid), ("block", launch.block)] {
            for (dim, expr) in ["x", "y", "z"].into_iter().zip(exprs) {
                self.check_host_int(expr, &format!("{what} size in {dim}"));
            }
        }
        if !(1..=1024).contains(&launch.max_threads) {
            self.report(|| format!("compiled for blocks of {} threads", launch.max_threads));
        }
        if !(1..=32).contains(&launch.min_blocks) {
            self.report(|| format!("asks for {} blocks on a multiprocessor", launch.min_blocks));
        }
        let sizes = launch.block.map(|expr| kernel.exprs.as_int(expr));
        if let [Some(x), Some(y), Some(z)] = sizes {
            let threads = x.checked_mul(y).and_then(|xy| xy.checked_mul(z));
            let fits = threads.is_some_and(|n| n <= launch.max_threads.into());
            if x < 1 || y < 1 || !(1..=64).contains(&z) || !fits {
                self.report(|| format!("block of {x} x {y} x {z} threads, compiled for {}", launch.max_threads));
            }
        }
    }

    fn check_host_int(&mut self, expr: crate::kernel::ir::ExprId, what: &str) {
        let limit = self.kernel.params.next_id();
        if self.check_host(expr, limit, what) && !matches!(self.kernel.exprs.dtype(expr), DType::I32 | DType::I64) {
            self.report(|| format!("{what} has type {}", self.kernel.exprs.dtype(expr)));
        }
        if self.kernel.exprs.kind(expr) == ValueKind::Data {
            self.report(|| format!("{what} is data, not an index"));
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}
