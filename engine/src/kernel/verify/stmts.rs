//! Rules of statements.

use super::checker::Checker;
use super::uniform::{Class, Fact};
use crate::kernel::facts::gcd;
use crate::kernel::ir::{
    Access, AtomicOp, Block, CacheHint, Expr, ExprId, MAX_ACCESS_BYTES, MIN_ASYNC_BYTES, MIN_UNALIGNED_BYTES, Scope,
    ShuffleMode, Space, Stmt, StmtKind, Unroll, ValueKind, VarId,
};
use crate::num::{DType, Value, philox};

/// The most groups of asynchronous copies that a wait leaves open.
const MAX_OPEN_GROUPS: u32 = 64;
/// The longest loop that may be unrolled completely.
const MAX_FULL_UNROLL: i64 = 4096;

impl Checker<'_> {
    pub(super) fn check_body(&mut self) {
        self.block(&self.kernel.body, Class::Grid);
    }

    fn block(&mut self, block: &Block, condition: Class) {
        let outer = self.control;
        self.control = outer.max(condition);
        self.scopes.open.push(Vec::new());
        for stmt in block {
            self.stmt(stmt);
        }
        self.close_scope();
        self.control = outer;
    }

    fn close_scope(&mut self) {
        for var in self.scopes.open.pop().unwrap_or_default() {
            self.scopes.visible.set(var, false);
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt.kind {
            StmtKind::Let { var, value } => {
                let kind = self.kernel.exprs.kind(value);
                if self.used(stmt, value) {
                    self.want(stmt, "the value", value, self.kernel.vars[var].dtype);
                    let fact = self.uniform.fact(value, &mut self.multiples);
                    let divisor = self.multiples.of(value);
                    self.bind(stmt, var, kind, fact, divisor);
                } else {
                    self.bind(stmt, var, kind, Fact::default(), 1);
                }
            }
            StmtKind::Load { var, from, hint } => {
                let fact = if self.access(stmt, from, hint) { self.load_fact(from) } else { Fact::default() };
                let (variable, element) = (self.kernel.vars[var].dtype, self.kernel.buffers[from.buffer].dtype);
                if variable != element {
                    self.report_at(stmt, || format!("variable of type {variable} gets an element of type {element}"));
                }
                let least = self.kernel.vars[var].at_least;
                let is_bound = |least| matches!(least, Value::Float(least) if least > 0.0 && least.is_finite());
                if least.is_some_and(|least| variable != DType::F32 || !is_bound(least)) {
                    self.report_at(stmt, || format!("at least {least:?} is no lower bound of {variable}"));
                }
                self.bind(stmt, var, ValueKind::Data, fact, 1);
            }
            StmtKind::Store { to, value, hint } => {
                self.access(stmt, to, hint);
                self.written(stmt, to);
                if self.used(stmt, value) {
                    self.want_data(stmt, "the value", value, self.kernel.buffers[to.buffer].dtype);
                }
            }
            StmtKind::Move { to, from, lanes, hint, aligned } => {
                self.vector_move(stmt, [to, from], (lanes, aligned), hint)
            }
            StmtKind::CopyAsync { to, from, lanes, hint } => self.copy_async(stmt, to, from, lanes, hint),
            StmtKind::CommitGroup => {}
            StmtKind::WaitGroup { open } => {
                if open > MAX_OPEN_GROUPS {
                    self.report_at(stmt, || format!("leaves {open} groups open, at most {MAX_OPEN_GROUPS}"));
                }
            }
            StmtKind::For { var, start, end, step, unroll, ref body } => {
                self.for_loop(stmt, var, [start, end], step, unroll, body);
            }
            StmtKind::If { condition, ref then, ref otherwise } => {
                let mut class = Class::Thread;
                if self.used(stmt, condition) {
                    self.want(stmt, "the condition", condition, DType::Bool);
                    class = self.uniform.class(condition, &mut self.multiples);
                }
                self.block(then, class);
                self.block(otherwise, class);
            }
            StmtKind::Shuffle { var, value, mode, lane } => self.shuffle(stmt, var, value, mode, lane),
            StmtKind::Random { ref vars, seed, offset, subsequence } => {
                self.random(stmt, vars, [seed, offset, subsequence]);
            }
            StmtKind::Sync(scope) => self.sync(stmt, scope),
            StmtKind::Fence(_) => {}
            StmtKind::Atomic { var, op, to, value } => self.atomic(stmt, var, op, to, value),
        }
    }

    /// Checks an expression where it is used.
    fn used(&mut self, stmt: &Stmt, id: ExprId) -> bool {
        self.check_use(id, &mut |checker, message| checker.report_at(stmt, || message))
    }

    fn want(&mut self, stmt: &Stmt, what: &str, id: ExprId, expected: DType) {
        let dtype = self.kernel.exprs.dtype(id);
        if dtype != expected {
            self.report_at(stmt, || format!("{what} has type {dtype}, not {expected}"));
        }
    }

    /// A value that memory, another thread or a generator gets: data of a type.
    fn want_data(&mut self, stmt: &Stmt, what: &str, id: ExprId, expected: DType) {
        self.want(stmt, what, id, expected);
        let has_type = self.kernel.exprs.dtype(id) == expected && expected != DType::Bool;
        if has_type && self.kernel.exprs.kind(id) == ValueKind::Index {
            self.report_at(stmt, || format!("{what} is an index, not data"));
        }
    }

    fn want_index(&mut self, stmt: &Stmt, what: &str, id: ExprId) {
        if self.kernel.exprs.kind(id) == ValueKind::Data {
            self.report_at(stmt, || format!("{what} is data, not an index"));
        }
    }

    fn bind(&mut self, stmt: &Stmt, var: VarId, kind: ValueKind, fact: Fact, divisor: i64) {
        if self.scopes.depth[var] != 0 {
            self.report_at(stmt, || format!("variable {var} is bound a second time"));
            return;
        }
        self.scopes.depth.set(var, self.scopes.open.len() as u32);
        self.scopes.visible.set(var, true);
        self.scopes.kind.set(var, Some(kind));
        if let Some(block) = self.scopes.open.last_mut() {
            block.push(var);
        }
        self.uniform.set_var(var, fact);
        self.multiples.set_var(var, divisor);
    }

    /// Rules of every access; returns whether the index is sound.
    fn access(&mut self, stmt: &Stmt, access: Access, hint: CacheHint) -> bool {
        let buffer = &self.kernel.buffers[access.buffer];
        let (space, dtype) = (buffer.space, buffer.dtype);
        let fits = match hint {
            CacheHint::Default => true,
            CacheHint::Streaming | CacheHint::Global | CacheHint::Again => space == Space::Global,
            CacheHint::Held => {
                let stores = matches!(stmt.kind, StmtKind::Store { .. });
                stores && space == Space::Local && dtype == DType::I32
            }
        };
        if !fits {
            self.report_at(stmt, || format!("cache hint {hint:?} on {space:?} memory"));
        }
        if !self.used(stmt, access.index) {
            return false;
        }
        let dtype = self.kernel.exprs.dtype(access.index);
        let fits = match space {
            Space::Global => dtype == self.kernel.index_type,
            Space::Shared | Space::Local => matches!(dtype, DType::I32 | DType::I64),
        };
        if !fits {
            self.report_at(stmt, || {
                format!("index of {space:?} memory has type {dtype}, the kernel's is {}", self.kernel.index_type)
            });
        }
        self.want_index(stmt, "the place in memory", access.index);
        fits
    }

    fn is_input(&self, access: Access) -> bool {
        self.inputs[access.buffer]
    }

    fn is_output(&self, access: Access) -> bool {
        self.outputs[access.buffer]
    }

    fn written(&mut self, stmt: &Stmt, to: Access) {
        if self.is_input(to) {
            self.report_at(stmt, || "writes to an input".to_owned());
        }
    }

    /// Inputs never change, so an element is as uniform as its index. An element
    /// of shared memory too, if all threads of the class come by together: when
    /// there are no races, nobody writes it between two barriers in which
    /// another thread reads it.
    fn load_fact(&mut self, from: Access) -> Fact {
        let index = self.uniform.class(from.index, &mut self.multiples);
        let class = match self.kernel.buffers[from.buffer].space {
            Space::Global if self.is_input(from) => index,
            Space::Shared => index.max(self.control).max(Class::Block),
            Space::Global | Space::Local => Class::Thread,
        };
        Fact { class, linear: false }
    }

    fn vector_move(&mut self, stmt: &Stmt, [to, from]: [Access; 2], (lanes, aligned): (u32, bool), hint: CacheHint) {
        let space = |access: Access| self.kernel.buffers[access.buffer].space;
        let locals = [to, from].into_iter().filter(|&a| space(a) == Space::Local).count();
        if locals != 1 {
            self.report_at(stmt, || format!("{locals} sides are local, not one"));
        }
        // The hint is for the side that is not local.
        let hint_of = |access| if space(access) == Space::Local { CacheHint::Default } else { hint };
        let hints = [hint_of(to), hint_of(from)];
        let bytes = self.wide(stmt, [to, from], hints, (lanes, aligned));
        let is_outer = self.is_input(from) || self.is_output(to);
        if !aligned && (!is_outer || bytes < MIN_UNALIGNED_BYTES as usize) {
            self.report_at(stmt, || format!("no unaligned move of {bytes} bytes that is not of words of an argument"));
        }
    }

    /// From an input to shared memory, 4, 8 or 16 bytes.
    fn copy_async(&mut self, stmt: &Stmt, to: Access, from: Access, lanes: u32, hint: CacheHint) {
        let space = self.kernel.buffers[to.buffer].space;
        if space != Space::Shared || !self.is_input(from) {
            self.report_at(stmt, || "an asynchronous copy is from an input to shared memory".to_owned());
        }
        let bytes = self.wide(stmt, [to, from], [CacheHint::Default, hint], (lanes, true));
        let fits = match hint {
            CacheHint::Default => bytes >= MIN_ASYNC_BYTES as usize,
            // Past the first-level cache goes the widest copy only.
            CacheHint::Global => bytes == MAX_ACCESS_BYTES as usize,
            CacheHint::Streaming | CacheHint::Again | CacheHint::Held => false,
        };
        if !fits {
            self.report_at(stmt, || format!("no asynchronous copy of {bytes} bytes with cache hint {hint:?}"));
        }
    }

    /// Rules of two accesses to `lanes` consecutive elements, of which the first is written;
    /// returns their bytes.
    fn wide(
        &mut self,
        stmt: &Stmt,
        [to, from]: [Access; 2],
        hints: [CacheHint; 2],
        (lanes, aligned): (u32, bool),
    ) -> usize {
        let sound = [self.access(stmt, to, hints[0]), self.access(stmt, from, hints[1])];
        self.written(stmt, to);
        let dtypes = [to, from].map(|access| self.kernel.buffers[access.buffer].dtype);
        if dtypes[0] != dtypes[1] {
            self.report_at(stmt, || format!("moves {} to {}", dtypes[1], dtypes[0]));
        }
        let bytes = dtypes[0].bytes() * lanes as usize;
        if !lanes.is_power_of_two() || bytes > MAX_ACCESS_BYTES as usize {
            self.report_at(stmt, || {
                format!(
                    "{lanes} lanes of {} bytes are not 1 to {MAX_ACCESS_BYTES} bytes in a power of two",
                    dtypes[0].bytes()
                )
            });
            return bytes;
        }
        for (access, sound) in [to, from].into_iter().zip(sound) {
            let buffer = &self.kernel.buffers[access.buffer];
            if !aligned && buffer.space == Space::Global {
                continue;
            }
            if (buffer.align as usize) < bytes {
                let (name, align) = (&buffer.name, buffer.align);
                self.report_at(stmt, || format!("{bytes} bytes of {name}, which is aligned to {align}"));
            }
            if sound && !self.multiples.is_multiple(access.index, lanes.into()) {
                let divisor = self.multiples.of(access.index);
                self.report_at(stmt, || {
                    format!("index of {} is a multiple of {divisor}, not provably of {lanes}", buffer.name)
                });
            }
        }
        bytes
    }

    fn for_loop(&mut self, stmt: &Stmt, var: VarId, bounds: [ExprId; 2], step: i64, unroll: Unroll, body: &Block) {
        let dtype = self.kernel.vars[var].dtype;
        if !matches!(dtype, DType::I32 | DType::I64) {
            self.report_at(stmt, || format!("counter has type {dtype}"));
        }
        let max = if dtype == DType::I32 { i32::MAX.into() } else { i64::MAX };
        if step < 1 || step > max {
            self.report_at(stmt, || format!("step {step} is not positive or beyond {dtype}"));
        }
        let sound = bounds.map(|bound| self.used(stmt, bound)) == [true; 2];
        let (mut fact, mut divisor) = (Fact::default(), 1);
        if sound {
            self.want(stmt, "the start", bounds[0], dtype);
            self.want(stmt, "the end", bounds[1], dtype);
            self.want_index(stmt, "the start", bounds[0]);
            self.want_index(stmt, "the end", bounds[1]);
            let classes = bounds.map(|bound| self.uniform.class(bound, &mut self.multiples));
            fact.class = classes[0].max(classes[1]);
            // start + k step.
            divisor = gcd(self.multiples.of(bounds[0]), step);
        }
        let constant = bounds.map(|bound| self.kernel.exprs.as_int(bound));
        match (unroll, constant) {
            (Unroll::Full, [Some(start), Some(end)]) => {
                let trips = end.saturating_sub(start) / step.max(1);
                if trips > MAX_FULL_UNROLL {
                    self.report_at(stmt, || format!("unrolls {trips} iterations, at most {MAX_FULL_UNROLL}"));
                }
            }
            (Unroll::Full, _) => self.report_at(stmt, || "unrolled completely without constant bounds".to_owned()),
            (Unroll::By(0), _) => self.report_at(stmt, || "unrolled by 0".to_owned()),
            _ => {}
        }
        if let [_, Some(end)] = constant
            && end.checked_add(step).is_none_or(|last| last > max)
        {
            self.report_at(stmt, || format!("the counter leaves {dtype} before it reaches {end}"));
        }
        // The counter lives in a scope around the body.
        self.scopes.open.push(Vec::new());
        self.bind(stmt, var, ValueKind::Index, fact, divisor);
        self.block(body, fact.class);
        self.close_scope();
    }

    /// Lanes of which every warp has all: 32 in blocks of whole warps, or the
    /// threads of a block that is less than one warp; 0 if neither is provable.
    fn common_lanes(&mut self) -> i64 {
        let block = self.kernel.launch.block;
        let divisors = block.map(|extent| self.multiples.of(extent));
        // A product beyond 64 bits is refused at launch.
        if divisors.iter().try_fold(1i64, |product, &n| product.checked_mul(n)).is_none_or(|n| n % 32 == 0) {
            return 32;
        }
        let sizes = block.map(|extent| self.kernel.exprs.as_int(extent));
        let threads = sizes.into_iter().try_fold(1i64, |product, n| product.checked_mul(n?));
        threads.filter(|n| *n < 32).unwrap_or(0)
    }

    fn whole_warps(&mut self, stmt: &Stmt) {
        if self.common_lanes() == 0 {
            self.report_at(stmt, || "blocks are not provably made of whole warps".to_owned());
        }
    }

    /// In a block of less than a warp, sources must provably exist.
    fn sources_exist(&mut self, stmt: &Stmt, mode: ShuffleMode, lane: ExprId) {
        let lanes = self.common_lanes();
        if !(1..32).contains(&lanes) {
            return;
        }
        let exists = match (mode, self.kernel.exprs.as_int(lane)) {
            // id ^ mask stays below a power of two if the mask does.
            (ShuffleMode::Xor, Some(mask)) => (lanes & (lanes - 1)) == 0 && (0..lanes).contains(&mask),
            (ShuffleMode::Index, Some(source)) => (0..lanes).contains(&source),
            (ShuffleMode::Up, Some(_)) => true,
            _ => false,
        };
        if !exists {
            self.report_at(stmt, || format!("a source may be outside a block of {lanes} threads"));
        }
    }

    fn shuffle(&mut self, stmt: &Stmt, var: VarId, value: ExprId, mode: ShuffleMode, lane: ExprId) {
        if self.used(stmt, value) {
            self.want_data(stmt, "the value", value, self.kernel.vars[var].dtype);
        }
        if self.used(stmt, lane) {
            self.want(stmt, "the lane", lane, DType::I32);
        }
        self.converged(stmt, Class::Warp);
        self.whole_warps(stmt);
        self.sources_exist(stmt, mode, lane);
        let one_source = mode == ShuffleMode::Index
            && matches!(self.kernel.exprs[lane].expr, Expr::Const(_))
            && self.kernel.exprs.as_int(lane).is_some_and(|lane| (0..32).contains(&lane));
        let class = if one_source { Class::Warp } else { Class::Thread };
        self.bind(stmt, var, ValueKind::Data, Fact { class, linear: false }, 1);
    }

    /// One type of number, as many as a block has, of three `i64`.
    fn random(&mut self, stmt: &Stmt, vars: &[VarId], operands: [ExprId; 3]) {
        let mut class = Class::Grid;
        for (what, operand) in ["the seed", "the offset", "the subsequence"].into_iter().zip(operands) {
            if self.used(stmt, operand) {
                self.want_data(stmt, what, operand, DType::I64);
                class = class.max(self.uniform.class(operand, &mut self.multiples));
            }
        }
        let dtypes: Vec<DType> = vars.iter().map(|var| self.kernel.vars[*var].dtype).collect();
        let whole = |dtype: &DType| {
            matches!(dtype, DType::F32 | DType::F64)
                && dtypes.len() == philox::numbers(*dtype)
                && dtypes.iter().all(|other| other == dtype)
        };
        if !dtypes.first().is_some_and(whole) {
            self.report_at(stmt, || "a block has four numbers of f32 or two of f64".to_owned());
        }
        for var in vars {
            self.bind(stmt, *var, ValueKind::Data, Fact { class, linear: false }, 1);
        }
    }

    fn sync(&mut self, stmt: &Stmt, scope: Scope) {
        match scope {
            Scope::Warp => {
                self.converged(stmt, Class::Warp);
                self.whole_warps(stmt);
            }
            Scope::Block => self.converged(stmt, Class::Block),
            // Teams have no class of their own: what all threads do alike, those of a team do.
            Scope::Team | Scope::Grid => {
                self.converged(stmt, Class::Grid);
                if !self.kernel.launch.cooperative {
                    self.report_at(stmt, || "grid barrier in a launch that is not cooperative".to_owned());
                }
            }
        }
    }

    fn converged(&mut self, stmt: &Stmt, needed: Class) {
        let control = self.control;
        if control > needed {
            self.report_at(stmt, || {
                format!("control flow is uniform per {control:?}, not per {needed:?}").to_lowercase()
            });
        }
    }

    fn atomic(&mut self, stmt: &Stmt, var: Option<VarId>, op: AtomicOp, to: Access, value: ExprId) {
        self.access(stmt, to, CacheHint::Default);
        self.written(stmt, to);
        let buffer = &self.kernel.buffers[to.buffer];
        if buffer.space == Space::Local {
            self.report_at(stmt, || "atomic on local memory".to_owned());
        }
        let element = buffer.dtype;
        let accepted = match op {
            AtomicOp::Add => matches!(element, DType::I32 | DType::F32 | DType::F64),
            AtomicOp::Inc | AtomicOp::Max | AtomicOp::Min => element == DType::I32,
        };
        if !accepted {
            self.report_at(stmt, || format!("atomic {op:?} on {element}"));
        }
        if self.used(stmt, value) {
            self.want_data(stmt, "the value", value, element);
        }
        if let Some(var) = var {
            let variable = self.kernel.vars[var].dtype;
            if variable != element {
                self.report_at(stmt, || format!("variable of type {variable} gets an element of type {element}"));
            }
            self.bind(stmt, var, ValueKind::Data, Fact::default(), 1);
        }
    }
}
