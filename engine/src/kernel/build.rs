//! Builds kernels: declares parameters and buffers, and emits statements into
//! the innermost open block.
//!
//! Used by lowering and by tests. The builder checks nothing beyond what the
//! arena asserts; [`verify`](crate::kernel) judges the result. Methods that
//! bind a variable return the expression that reads it.

use super::exprs::ExprArena;
use super::ir::{
    Access, AtomicOp, Block, BufId, Buffer, CacheHint, Expr, ExprId, Kernel, Launch, Origin, Param, ParamId, ParamKind,
    Scope, ShuffleMode, Space, Stmt, StmtKind, Unroll, ValueKind, Var, VarId,
};
use crate::fusion::TensorId;
use crate::num::{DType, Value, philox};
use crate::util::{PrimaryMap, self_check};

/// A kernel under construction.
#[derive(Clone, Debug)]
pub struct KernelBuilder {
    name: String,
    index_type: DType,
    params: PrimaryMap<ParamId, Param>,
    buffers: PrimaryMap<BufId, Buffer>,
    vars: PrimaryMap<VarId, Var>,
    exprs: ExprArena,
    // The blocks that are open, outermost first; never empty.
    open: Vec<Block>,
    origin: Origin,
}

impl KernelBuilder {
    /// A kernel without parameters, memory or statements.
    pub fn new(name: impl Into<String>, index_type: DType) -> Self {
        Self {
            name: name.into(),
            index_type,
            params: PrimaryMap::new(),
            buffers: PrimaryMap::new(),
            vars: PrimaryMap::new(),
            exprs: ExprArena::new(),
            open: vec![Block::new()],
            origin: Origin::default(),
        }
    }

    /// The type of index expressions.
    pub fn index_type(&self) -> DType {
        self.index_type
    }
    /// The arena.
    pub fn exprs(&mut self) -> &mut ExprArena {
        &mut self.exprs
    }
    /// The type of an expression.
    pub fn dtype(&self, expr: ExprId) -> DType {
        self.exprs.dtype(expr)
    }
    /// A constant of the index type.
    pub fn int(&mut self, value: i64) -> ExprId {
        self.exprs.int(value, self.index_type)
    }
    /// Sets the origin of the statements that follow.
    pub fn set_origin(&mut self, tensor: Option<TensorId>, pass: &'static str) {
        self.origin = Origin { tensor, pass };
    }
    /// Replaces the name, which may be a hash of content known only at the end.
    pub fn set_name(&mut self, name: impl Into<String>) {
        self.name = name.into();
    }
    /// The parameters declared so far.
    pub fn params(&self) -> impl Iterator<Item = (ParamId, &Param)> {
        self.params.iter()
    }
    /// A declared parameter.
    pub fn param(&self, param: ParamId) -> &Param {
        &self.params[param]
    }
    /// Opens a block: what follows is emitted into it until [`Self::close`].
    #[inline(never)]
    pub fn open(&mut self) {
        self.open.push(Block::new());
    }
    /// Closes the innermost block and returns it, for callers that emit the
    /// enclosing statement themselves.
    #[inline(never)]
    pub fn close(&mut self) -> Block {
        self.open.pop().expect("close pairs with open")
    }
    /// A declared buffer.
    pub fn buffer(&self, buffer: BufId) -> &Buffer {
        &self.buffers[buffer]
    }

    // Parameters. Those of the index type are numbers; pointers come with their buffer.

    /// The size of an axis of an input tensor.
    pub fn size(&mut self, name: impl Into<String>, input: u32, axis: u32) -> ExprId {
        let dtype = self.index_type;
        self.scalar_param(name.into(), dtype, ParamKind::Size { input, axis })
    }
    /// The stride in elements of an axis of an input tensor.
    pub fn stride(&mut self, name: impl Into<String>, input: u32, axis: u32) -> ExprId {
        let dtype = self.index_type;
        self.scalar_param(name.into(), dtype, ParamKind::Stride { input, axis })
    }
    /// An input scalar.
    pub fn scalar(&mut self, name: impl Into<String>, input: u32, dtype: DType) -> ExprId {
        self.scalar_param(name.into(), dtype, ParamKind::Scalar { input })
    }
    /// A number computed on the host from earlier parameters.
    pub fn derived(&mut self, name: impl Into<String>, value: ExprId) -> ExprId {
        let dtype = self.exprs.dtype(value);
        self.scalar_param(name.into(), dtype, ParamKind::Derived(value))
    }
    fn scalar_param(&mut self, name: String, dtype: DType, kind: ParamKind) -> ExprId {
        let about = match kind {
            ParamKind::Size { .. } | ParamKind::Stride { .. } => ValueKind::Index,
            ParamKind::Derived(value) => self.exprs.kind(value),
            _ => ValueKind::Data,
        };
        let id = self.params.push(Param { name, dtype: Some(dtype), kind, multiple_of: 1, at_most: None });
        self.exprs.param(id, dtype, about)
    }

    /// States that a parameter is a multiple of `factor`; the launch checks it.
    pub fn assume_multiple_of(&mut self, param: ExprId, factor: i64) {
        if let Expr::Param(id) = self.exprs[param].expr {
            self.params[id].multiple_of = factor;
        }
    }

    /// States that a parameter is no greater than `most`; the launch checks it.
    pub fn assume_at_most(&mut self, param: ExprId, most: i64) {
        if let Expr::Param(id) = self.exprs[param].expr {
            let known = &mut self.params[id].at_most;
            *known = Some(known.map_or(most, |known| known.min(most)));
        }
    }

    // Memory.

    /// The data of an input tensor; `len` elements, element 0 aligned to `align` bytes.
    pub fn input(&mut self, name: impl Into<String>, input: u32, dtype: DType, len: ExprId, align: u32) -> BufId {
        self.pointer(name.into(), dtype, len, align, false, |buffer| ParamKind::Input { input, buffer })
    }
    /// The data of an output tensor.
    pub fn output(&mut self, name: impl Into<String>, output: u32, dtype: DType, len: ExprId, align: u32) -> BufId {
        self.output_from(name, output, dtype, len, (align, 0))
    }
    /// The data of an output that begins with element `start`.
    pub fn output_from(
        &mut self,
        name: impl Into<String>,
        output: u32,
        dtype: DType,
        len: ExprId,
        (align, start): (u32, u32),
    ) -> BufId {
        let output = |buffer| ParamKind::Output { output, buffer };
        let buffer = self.pointer(name.into(), dtype, len, align, false, output);
        self.buffers[buffer].start = start;
        buffer
    }
    /// Scratch memory of one launch.
    pub fn workspace(&mut self, name: impl Into<String>, dtype: DType, len: ExprId, align: u32, zeroed: bool) -> BufId {
        self.pointer(name.into(), dtype, len, align, zeroed, |buffer| ParamKind::Workspace { buffer })
    }
    fn pointer(
        &mut self,
        name: String,
        dtype: DType,
        len: ExprId,
        align: u32,
        zeroed: bool,
        kind: impl FnOnce(BufId) -> ParamKind,
    ) -> BufId {
        let buffer =
            self.buffers.push(Buffer { name: name.clone(), dtype, space: Space::Global, len, align, start: 0, zeroed });
        self.params.push(Param { name, dtype: None, kind: kind(buffer), multiple_of: 1, at_most: None });
        buffer
    }
    /// An array of a block.
    pub fn shared(&mut self, name: impl Into<String>, dtype: DType, len: i64, align: u32) -> BufId {
        self.array(name.into(), dtype, Space::Shared, len, align)
    }
    /// An array of a thread, aligned so that any vector move fits.
    pub fn local(&mut self, name: impl Into<String>, dtype: DType, len: i64) -> BufId {
        self.array(name.into(), dtype, Space::Local, len, 16)
    }
    fn array(&mut self, name: String, dtype: DType, space: Space, len: i64, align: u32) -> BufId {
        let len = self.int(len);
        self.buffers.push(Buffer { name, dtype, space, len, align, start: 0, zeroed: false })
    }

    /// Gives an array a name and a length that fit all who turn out to use it.
    pub fn share_array(&mut self, buffer: BufId, name: impl Into<String>, len: i64) {
        let len = self.int(len);
        let array = &mut self.buffers[buffer];
        (array.name, array.len) = (name.into(), len);
    }

    // Statements.

    /// Adds a statement to the innermost open block.
    pub fn emit(&mut self, kind: StmtKind) {
        let stmt = Stmt { kind, origin: self.origin };
        self.open.last_mut().expect("a builder has an open block").push(stmt);
    }
    /// A variable for data, without a statement that binds it; for callers that emit the statement themselves.
    pub fn var(&mut self, name: impl Into<String>, dtype: DType) -> (VarId, ExprId) {
        self.var_of(name.into(), dtype, ValueKind::Data)
    }
    /// The counter of a loop that the caller emits.
    pub fn counter(&mut self, name: impl Into<String>, dtype: DType) -> (VarId, ExprId) {
        self.var_of(name.into(), dtype, ValueKind::Index)
    }
    fn var_of(&mut self, name: String, dtype: DType, kind: ValueKind) -> (VarId, ExprId) {
        let var = self.vars.push(Var { name, dtype, at_least: None });
        (var, self.exprs.var(var, dtype, kind))
    }
    /// Names a value, unless naming gains nothing (constants, parameters, variables).
    pub fn let_(&mut self, name: impl Into<String>, value: ExprId) -> ExprId {
        let plain = self.exprs.plain(value);
        if matches!(self.exprs[plain].expr, Expr::Const(_) | Expr::Param(_) | Expr::Var(_)) {
            return value;
        }
        let (var, read) = self.var_of(name.into(), self.exprs.dtype(value), self.exprs.kind(value));
        self.emit(StmtKind::Let { var, value });
        read
    }
    /// Reads one element.
    pub fn load(&mut self, name: impl Into<String>, buffer: BufId, index: ExprId) -> ExprId {
        self.load_hinted(name, buffer, index, CacheHint::Default)
    }
    /// States that a value just read is a finished sum that is NaN or at least
    /// `least` (see [`Var::at_least`]).
    pub fn assume_at_least(&mut self, value: ExprId, least: f64) {
        if let Expr::Var(var) = self.exprs[value].expr {
            self.vars[var].at_least = Some(Value::Float(least));
        }
    }
    /// Reads one element with a cache hint.
    pub fn load_hinted(&mut self, name: impl Into<String>, buffer: BufId, index: ExprId, hint: CacheHint) -> ExprId {
        let (var, read) = self.var(name, self.buffers[buffer].dtype);
        self.emit(StmtKind::Load { var, from: Access { buffer, index }, hint });
        read
    }
    /// Writes one element.
    pub fn store(&mut self, buffer: BufId, index: ExprId, value: ExprId) {
        self.store_hinted(buffer, index, value, CacheHint::Default);
    }
    /// Writes one element with a cache hint.
    pub fn store_hinted(&mut self, buffer: BufId, index: ExprId, value: ExprId, hint: CacheHint) {
        self.emit(StmtKind::Store { to: Access { buffer, index }, value, hint });
    }
    /// Moves `lanes` consecutive elements as one access.
    pub fn mov(&mut self, to: (BufId, ExprId), from: (BufId, ExprId), lanes: u32, hint: CacheHint) {
        self.emit(StmtKind::Move { to: access(to), from: access(from), lanes, hint, aligned: true });
    }

    /// Moves `lanes` consecutive elements as one access to memory that may begin anywhere: of an input, or to an output.
    pub fn mov_unaligned(&mut self, to: (BufId, ExprId), from: (BufId, ExprId), lanes: u32, hint: CacheHint) {
        self.emit(StmtKind::Move { to: access(to), from: access(from), lanes, hint, aligned: false });
    }

    /// Starts to copy `lanes` consecutive elements from an input to shared memory.
    pub fn copy_async(&mut self, to: (BufId, ExprId), from: (BufId, ExprId), lanes: u32, hint: CacheHint) {
        self.emit(StmtKind::CopyAsync { to: access(to), from: access(from), lanes, hint });
    }
    /// Ends a group of asynchronous copies.
    pub fn commit_group(&mut self) {
        self.emit(StmtKind::CommitGroup);
    }
    /// Waits for all groups of asynchronous copies but the latest `open`.
    pub fn wait_group(&mut self, open: u32) {
        self.emit(StmtKind::WaitGroup { open });
    }
    /// A loop; `body` gets the counter. The counter has the type of the bounds.
    pub fn for_<T>(
        &mut self,
        name: impl Into<String>,
        range: (ExprId, ExprId, i64),
        unroll: Unroll,
        body: impl FnOnce(&mut Self, ExprId) -> T,
    ) -> T {
        let (var, counter) = self.open_loop(name.into(), range.0);
        let result = body(self, counter);
        self.close_loop(var, range, unroll);
        result
    }
    /// A loop from 0 to `end`, one by one.
    pub fn count<T>(
        &mut self,
        name: impl Into<String>,
        end: ExprId,
        unroll: Unroll,
        body: impl FnOnce(&mut Self, ExprId) -> T,
    ) -> T {
        let range = self.below(end);
        self.for_(name, range, unroll, body)
    }
    /// A branch without an alternative. A condition that is constant leaves no branch.
    pub fn if_(&mut self, condition: ExprId, then: impl FnOnce(&mut Self)) {
        self.if_else(condition, then, |_| {});
    }
    /// A two-way branch. A condition that is constant leaves only the way taken.
    pub fn if_else(&mut self, condition: ExprId, then: impl FnOnce(&mut Self), otherwise: impl FnOnce(&mut Self)) {
        let taken = self.exprs.as_bool(condition);
        self.open();
        if taken != Some(false) {
            then(self);
        }
        let then = self.close();
        self.open();
        if taken != Some(true) {
            otherwise(self);
        }
        self.close_branch(condition, taken, then);
    }
    /// Runs `body` with a fresh innermost block and returns that block: for
    /// callers that emit the enclosing statement themselves.
    pub fn nested<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> (T, Block) {
        self.open();
        let result = body(self);
        (result, self.close())
    }

    // What is around a block is not inlined, nor are `open` and `close`: templates have hundreds of loops and branches, with an
    // instance of each of the functions above.
    #[inline(never)]
    fn below(&mut self, end: ExprId) -> (ExprId, ExprId, i64) {
        (self.exprs.int(0, self.exprs.dtype(end)), end, 1)
    }
    #[inline(never)]
    fn open_loop(&mut self, name: String, start: ExprId) -> (VarId, ExprId) {
        let counter = self.counter(name, self.exprs.dtype(start));
        self.open();
        counter
    }
    #[inline(never)]
    fn close_loop(&mut self, var: VarId, (start, end, step): (ExprId, ExprId, i64), unroll: Unroll) {
        let body = self.close();
        self.emit(StmtKind::For { var, start, end, step, unroll, body });
    }
    #[inline(never)]
    fn close_branch(&mut self, condition: ExprId, taken: Option<bool>, then: Block) {
        let otherwise = self.close();
        match taken {
            // One of them is empty.
            Some(_) => {
                self.open.last_mut().expect("a builder has an open block").extend(then.into_iter().chain(otherwise))
            }
            None if then.is_empty() && otherwise.is_empty() => {}
            None => self.emit(StmtKind::If { condition, then, otherwise }),
        }
    }
    /// Exchanges a value among the lanes of a warp.
    pub fn shuffle(&mut self, name: impl Into<String>, value: ExprId, mode: ShuffleMode, lane: ExprId) -> ExprId {
        let (var, read) = self.var(name, self.exprs.dtype(value));
        self.emit(StmtKind::Shuffle { var, value, mode, lane });
        read
    }
    /// The numbers of one block of random ones: as many as fit a type, `f32` or `f64`.
    pub fn random(
        &mut self,
        name: &str,
        dtype: DType,
        seed: ExprId,
        offset: ExprId,
        subsequence: ExprId,
    ) -> Vec<ExprId> {
        let (vars, reads) = (0..philox::numbers(dtype)).map(|_| self.var(name, dtype)).unzip();
        self.emit(StmtKind::Random { vars, seed, offset, subsequence });
        reads
    }
    /// A barrier.
    pub fn sync(&mut self, scope: Scope) {
        self.emit(StmtKind::Sync(scope));
    }
    /// A memory fence.
    pub fn fence(&mut self, scope: Scope) {
        self.emit(StmtKind::Fence(scope));
    }
    /// An atomic operation; the result is the old value.
    pub fn atomic(&mut self, name: impl Into<String>, op: AtomicOp, to: (BufId, ExprId), value: ExprId) -> ExprId {
        let (var, read) = self.var(name, self.buffers[to.0].dtype);
        self.emit(StmtKind::Atomic { var: Some(var), op, to: Access { buffer: to.0, index: to.1 }, value });
        read
    }
    /// An atomic operation whose old value nobody reads.
    pub fn atomic_drop(&mut self, op: AtomicOp, to: (BufId, ExprId), value: ExprId) {
        self.emit(StmtKind::Atomic { var: None, op, to: Access { buffer: to.0, index: to.1 }, value });
    }

    /// The kernel, with a launch.
    pub fn finish(mut self, launch: Launch) -> Kernel {
        let body = self.open.pop().expect("a builder has an open block");
        self_check!(self.open.is_empty(), "a nested block is still open");
        Kernel {
            name: self.name,
            index_type: self.index_type,
            params: self.params,
            buffers: self.buffers,
            vars: self.vars,
            exprs: self.exprs,
            body,
            launch,
        }
    }
    /// The kernel, with `blocks` blocks of `threads` threads.
    pub fn finish_1d(mut self, blocks: ExprId, threads: u32) -> Kernel {
        let one = self.int(1);
        let width = self.int(threads.into());
        self.finish(Launch {
            grid: [blocks, one, one],
            block: [width, one, one],
            max_threads: threads,
            min_blocks: 1,
            cooperative: false,
        })
    }
}
fn access((buffer, index): (BufId, ExprId)) -> Access {
    Access { buffer, index }
}
