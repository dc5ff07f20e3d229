//! Kernel IR to simulator bytecode.
//!
//! Local buffers become registers; loops whose counter indexes them are
//! unrolled while that stays small, and other local indices are dynamic. The
//! result keeps, for each instruction, the statement it came from, numbered in
//! preorder.

use super::code::{Assembler, CodeItem, Field, InstDraft, Reg};
use super::expr::{Calls, F64Function, Held, HostCall, Known};
use super::isel;
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::{
    Access, AtomicOp, Block, BufId, Expr, ExprId, Kernel, Scope, ShuffleMode, Space, Stmt, StmtKind, Unroll, VarId,
    shared_layout,
};
use crate::num::{DType, Value, eval, philox, stepwise};
use crate::util::SecondaryMap;
use rustc_hash::FxHashMap;
use simcore::{AtomicKind, BufferDecl, Elem, File, Flags, HostFn, Opcode, PreloadSource, SpaceKind};

/// Instructions up to which loops are unrolled for the sake of local memory.
const UNROLL_BUDGET: u64 = 1 << 14;

/// A kernel ready to run on the simulator.
#[derive(Debug)]
pub struct SimProgram {
    pub(super) core: simcore::Program,
    /// The kernel's buffer of each of the program's.
    pub(super) buffers: Vec<BufId>,
    /// Local buffers with their first slot, ascending.
    pub(super) locals: Vec<(u32, BufId)>,
}

/// A block of statements under compilation.
#[derive(Debug, Default)]
pub(super) struct Region {
    items: Vec<CodeItem>,
    // Look-up only.
    pub(super) memo: FxHashMap<ExprId, Known>,
    /// Whether its statements run several times for one of the block around it.
    pub(super) repeats: bool,
}

/// Where all buffers are.
struct BufferTable {
    buffers: Vec<BufId>,
    shared_bytes: u32,
    locals: Vec<(u32, BufId)>,
}

/// Where a local buffer is.
#[derive(Clone, Copy, Debug)]
struct Local {
    reg: u16,
    slot: u32,
    len: u32,
    file: File,
}

pub(super) struct Compiler<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) asm: Assembler,
    pub(super) scopes: Vec<Region>,
    pub(super) vars: SecondaryMap<VarId, Option<Known>>,
    pub(super) functions: Calls<F64Function>,
    pub(super) calls: Calls<HostCall>,
    numbers: SecondaryMap<BufId, u16>,
    decls: Vec<BufferDecl>,
    locals: SecondaryMap<BufId, Option<Local>>,
    slots: u32,
    /// Where the numbers of a random block arrive: `f32` and `f64`.
    random: [Option<u16>; 2],
    stmt: u32,
    grid_sync: bool,
    emitted: u64,
}

/// How elements of a type lie in memory.
pub(super) fn elem(dtype: DType) -> Elem {
    match dtype {
        DType::I16 => Elem::I16,
        DType::I8 => Elem::I8,
        _ => match dtype.bytes() {
            16 => Elem::B128,
            8 => Elem::B64,
            4 => Elem::B32,
            2 => Elem::U16,
            // What no kernel holds has some form, so that nothing can panic here.
            _ => Elem::U8,
        },
    }
}

/// The byte of memory that nobody wrote: NaN for floats, a conspicuous number
/// for integers.
pub(super) fn poison(dtype: DType) -> u8 {
    if dtype.is_float() { 0xff } else { 0xa5 }
}

/// Statements of a block, nested ones included.
pub(super) fn count(block: &Block) -> u32 {
    block.iter().map(size).sum()
}

fn size(stmt: &Stmt) -> u32 {
    match &stmt.kind {
        StmtKind::For { body, .. } => 1 + count(body),
        StmtKind::If { then, otherwise, .. } => 1 + count(then) + count(otherwise),
        _ => 1,
    }
}

/// Compiles a kernel that passed [`verify`](crate::kernel::verify).
pub fn compile(kernel: &Kernel) -> Result<SimProgram> {
    let mut compiler = Compiler {
        kernel,
        asm: Assembler::default(),
        scopes: vec![Region::default()],
        vars: SecondaryMap::new(),
        functions: Calls::new(),
        calls: Calls::new(),
        numbers: SecondaryMap::new(),
        decls: Vec::new(),
        locals: SecondaryMap::new(),
        slots: 0,
        random: [None; 2],
        stmt: 0,
        grid_sync: false,
        emitted: 0,
    };
    let layout = compiler.buffers()?;
    compiler.block(&kernel.body, 0)?;
    compiler.finish(layout)
}

impl Compiler<'_> {
    /// Numbers global buffers first, then shared ones; places local ones.
    fn buffers(&mut self) -> Result<BufferTable> {
        let (offsets, shared_bytes) = shared_layout(self.kernel)?;
        let (mut buffers, mut locals) = (Vec::new(), Vec::new());
        for space in [Space::Global, Space::Shared] {
            for (id, buffer) in self.kernel.buffers.iter().filter(|(_, b)| b.space == space) {
                let number = u16::try_from(buffers.len()).map_err(|_| {
                    Diagnostic::unsupported(code::SIM_FEATURE, "the kernel has more than 65535 buffers")
                })?;
                self.numbers.set(id, number);
                buffers.push(id);
                let (space, len) = match space {
                    Space::Shared => (SpaceKind::Shared { offset: offsets[id] }, self.constant_len(id)?),
                    _ => (SpaceKind::Global, 0),
                };
                self.decls.push(BufferDecl {
                    space,
                    elem: elem(buffer.dtype),
                    len: len.into(),
                    read: false,
                    written: false,
                    atomic: false,
                    landed: false,
                    poison: poison(buffer.dtype),
                });
            }
        }
        for (id, buffer) in self.kernel.buffers.iter().filter(|(_, b)| b.space == Space::Local) {
            locals.push((self.slots, id));
            let local = self.new_local(self.constant_len(id)?, isel::file(buffer.dtype))?;
            self.locals.set(id, Some(local));
        }
        Ok(BufferTable { buffers, shared_bytes, locals })
    }

    fn constant_len(&self, id: BufId) -> Result<u32> {
        let buffer = &self.kernel.buffers[id];
        let len = self.kernel.exprs.as_int(buffer.len).and_then(|n| u32::try_from(n).ok());
        len.ok_or_else(|| Diagnostic::bug(format!("buffer {id} ({}) has no constant length", buffer.name)))
    }

    fn new_local(&mut self, len: u32, file: File) -> Result<Local> {
        let local = Local { reg: self.asm.local(file, len)?, slot: self.slots, len, file };
        self.slots += len;
        Ok(local)
    }

    pub(super) fn draft(&self, op: Opcode) -> InstDraft {
        InstDraft::new(op, self.stmt)
    }

    pub(super) fn push_into(&mut self, scope: usize, draft: InstDraft) {
        self.emitted += 1;
        self.scopes[scope].items.push(CodeItem::Inst(draft));
    }

    fn push(&mut self, draft: InstDraft) {
        self.push_into(self.scopes.len() - 1, draft);
    }

    fn bind(&mut self, var: VarId, held: Held) {
        self.vars[var] = Some((held, self.scopes.len() - 1));
    }

    fn define(&mut self, var: VarId) -> Reg {
        let reg = self.asm.temp(isel::file(self.kernel.vars[var].dtype));
        self.bind(var, Held::Reg(reg));
        reg
    }

    /// Compiles statements, the first of which has number `first`.
    fn block(&mut self, block: &Block, first: u32) -> Result<()> {
        let mut number = first;
        for stmt in block {
            self.stmt = number;
            self.statement(stmt, number)?;
            number += size(stmt);
        }
        Ok(())
    }

    fn statement(&mut self, stmt: &Stmt, number: u32) -> Result<()> {
        match &stmt.kind {
            StmtKind::Let { var, value } => {
                let known = self.expr(*value);
                self.vars[*var] = Some(known);
            }
            StmtKind::Load { var, from, .. } => self.load(*var, from)?,
            StmtKind::Store { to, value, .. } => self.store(to, *value)?,
            StmtKind::Move { to, from, lanes, aligned, .. } => self.vector_move(to, from, (*lanes, *aligned))?,
            StmtKind::CopyAsync { to, from, lanes, .. } => self.copy_async(to, from, *lanes),
            StmtKind::CommitGroup => {
                let draft = self.draft(Opcode::CommitGroup);
                self.push(draft);
            }
            StmtKind::WaitGroup { open } => {
                let mut draft = self.draft(Opcode::WaitGroup);
                draft.imm = *open;
                self.push(draft);
            }
            StmtKind::For { var, start, end, step, unroll, body } => {
                self.for_loop(*var, (*start, *end, *step), *unroll, body, number + 1)?;
            }
            StmtKind::If { condition, then, otherwise } => self.branch(*condition, then, otherwise, number)?,
            StmtKind::Shuffle { var, value, mode, lane } => self.shuffle(*var, *value, *mode, *lane),
            StmtKind::Random { vars, seed, offset, subsequence } => {
                self.random(vars, [*seed, *offset, *subsequence])?;
            }
            StmtKind::Sync(scope) => {
                self.grid_sync |= scope.is_of_blocks();
                let mut draft = self.draft(Opcode::Sync);
                draft.imm = scope_number(*scope);
                self.push(draft);
            }
            StmtKind::Fence(scope) => {
                let mut draft = self.draft(Opcode::Fence);
                draft.imm = scope_number(*scope);
                self.push(draft);
            }
            StmtKind::Atomic { var, op, to, value } => self.atomic(*var, *op, to, *value)?,
        }
        Ok(())
    }

    /// An index in a register, and the flag that tells its width.
    fn index(&mut self, index: ExprId) -> (Field, u16) {
        let dtype = self.kernel.exprs.dtype(index);
        let reg = self.expr_reg(index);
        (Field::Reg(reg), if isel::wide(dtype) { Flags::INDEX64 } else { 0 })
    }

    /// A local access: the buffer and the index if it is constant and in range.
    fn local(&mut self, access: &Access) -> Option<(Local, Option<u32>)> {
        let local = self.locals[access.buffer]?;
        let index = match self.expr(access.index).0 {
            Held::Const(value) => u32::try_from(value.as_i64()).ok().filter(|&i| i < local.len),
            Held::Reg(_) => None,
        };
        Some((local, index))
    }

    fn load(&mut self, var: VarId, from: &Access) -> Result<()> {
        if let Some((local, index)) = self.local(from) {
            let draft = match index {
                Some(index) => {
                    let mut draft = self.draft(Opcode::LocalGet);
                    (draft.a, draft.imm) = (Field::Raw(local.reg + index as u16), local.slot + index);
                    draft
                }
                None => self.dynamic(Opcode::LocalLoad, local, from.index)?,
            };
            let d = Field::Reg(self.define(var));
            self.push(InstDraft { d, flags: draft.flags | file_flag(local.file), ..draft });
            return Ok(());
        }
        let buffer = self.numbers[from.buffer];
        self.decls[buffer as usize].read = true;
        let (a, flags) = self.index(from.index);
        let d = Field::Reg(self.define(var));
        let draft = self.draft(Opcode::Load);
        self.push(InstDraft { d, a, flags, b: Field::Raw(buffer), ..draft });
        Ok(())
    }

    /// A dynamic access to local registers; the value's field is still free.
    fn dynamic(&mut self, op: Opcode, local: Local, index: ExprId) -> Result<InstDraft> {
        let (a, flags) = self.index(index);
        let count = u16::try_from(local.len)
            .map_err(|_| Diagnostic::unsupported(code::SIM_FEATURE, "a local buffer has more than 65535 elements"))?;
        let mut draft = self.draft(op);
        (draft.a, draft.flags, draft.c, draft.imm) = (a, flags, Field::Raw(count), local.slot);
        *(if op == Opcode::LocalLoad { &mut draft.b } else { &mut draft.d }) = Field::Raw(local.reg);
        Ok(draft)
    }

    fn store(&mut self, to: &Access, value: ExprId) -> Result<()> {
        let value = Field::Reg(self.expr_reg(value));
        if let Some((local, index)) = self.local(to) {
            let draft = match index {
                Some(index) => {
                    let mut draft = self.draft(Opcode::LocalSet);
                    (draft.d, draft.a) = (Field::Raw(local.reg + index as u16), value);
                    draft.imm = local.slot + index;
                    draft
                }
                None => InstDraft { b: value, ..self.dynamic(Opcode::LocalStore, local, to.index)? },
            };
            self.push(InstDraft { flags: draft.flags | file_flag(local.file), ..draft });
            return Ok(());
        }
        let buffer = self.numbers[to.buffer];
        self.decls[buffer as usize].written = true;
        let (a, flags) = self.index(to.index);
        let draft = self.draft(Opcode::Store);
        self.push(InstDraft { a, flags, b: Field::Raw(buffer), c: value, ..draft });
        Ok(())
    }

    fn vector_move(&mut self, to: &Access, from: &Access, (lanes, aligned): (u32, bool)) -> Result<()> {
        let inward = self.locals[to.buffer].is_some();
        let (near, far) = if inward { (to, from) } else { (from, to) };
        let Some((local, index)) = self.local(near) else {
            return Err(Diagnostic::bug("a vector move has no local side"));
        };
        let fits = index.filter(|&i| i + lanes <= local.len);
        // A dynamic place goes through registers of its own, element by element.
        let (reg, slot) = match fits {
            Some(index) => (local.reg + index as u16, local.slot + index),
            None => {
                let staging = self.new_local(lanes, local.file)?;
                if !inward {
                    self.stage(local, staging, near.index, lanes, false)?;
                }
                (staging.reg, staging.slot)
            }
        };
        let buffer = self.numbers[far.buffer];
        let decl = &mut self.decls[buffer as usize];
        decl.read |= inward;
        decl.written |= !inward;
        let (a, flags) = self.index(far.index);
        let mut draft = self.draft(if inward { Opcode::MoveIn } else { Opcode::MoveOut });
        (draft.d, draft.c) = (Field::Raw(reg), Field::Raw(lanes as u16));
        (draft.a, draft.b, draft.imm) = (a, Field::Raw(buffer), slot);
        draft.flags = flags | if aligned { 0 } else { Flags::UNALIGNED };
        self.push(draft);
        if inward && fits.is_none() {
            let staging = Local { reg, slot, len: lanes, file: local.file };
            self.stage(local, staging, near.index, lanes, true)?;
        }
        Ok(())
    }

    fn copy_async(&mut self, to: &Access, from: &Access, lanes: u32) {
        let [source, target] = [from, to].map(|access| self.numbers[access.buffer]);
        self.decls[source as usize].read = true;
        let decl = &mut self.decls[target as usize];
        (decl.written, decl.landed) = (true, true);
        let (a, from_flags) = self.index(from.index);
        let (c, to_flags) = self.index(to.index);
        let to_flags = if to_flags == 0 { 0 } else { Flags::WIDE_C };
        let mut draft = self.draft(Opcode::CopyAsync);
        (draft.a, draft.b, draft.c, draft.d) = (a, Field::Raw(source), c, Field::Raw(target));
        (draft.flags, draft.imm) = (from_flags | to_flags, lanes);
        self.push(draft);
    }

    /// Copies between a dynamic place in a local buffer and staging registers.
    fn stage(&mut self, local: Local, staging: Local, index: ExprId, lanes: u32, out: bool) -> Result<()> {
        let dtype = self.kernel.exprs.dtype(index);
        let file = isel::file(dtype);
        let base = self.expr_reg(index);
        for k in 0..lanes {
            let offset = self.asm.pinned(PreloadSource::Const(k.into()), file);
            let place = self.asm.temp(file);
            let mut add = self.draft(if isel::wide(dtype) { Opcode::AddI64 } else { Opcode::AddI32 });
            (add.d, add.a, add.b) = (Field::Reg(place), Field::Reg(base), Field::Reg(offset));
            self.push(add);
            let value = Field::Reg(self.asm.temp(local.file));
            let (own, slot) = (Field::Raw(staging.reg + k as u16), staging.slot + k);
            let op = if out { Opcode::LocalStore } else { Opcode::LocalLoad };
            let mut far = InstDraft { a: Field::Reg(place), ..self.dynamic(op, local, index)? };
            let mut near = self.draft(if out { Opcode::LocalGet } else { Opcode::LocalSet });
            near.imm = slot;
            if out {
                (near.d, near.a, far.b) = (value, own, value);
            } else {
                (near.d, near.a, far.d) = (own, value, value);
            }
            near.flags |= file_flag(local.file);
            far.flags |= file_flag(local.file);
            let order = if out { [near, far] } else { [far, near] };
            order.into_iter().for_each(|draft| self.push(draft));
        }
        Ok(())
    }

    fn for_loop(
        &mut self,
        var: VarId,
        (start, end, step): (ExprId, ExprId, i64),
        unroll: Unroll,
        body: &Block,
        first: u32,
    ) -> Result<()> {
        let dtype = self.kernel.exprs.dtype(start);
        let (from, to) = (self.expr(start).0, self.expr(end).0);
        if let (Held::Const(from), Held::Const(to)) = (from, to) {
            let (from, to) = (from.as_i64(), to.as_i64());
            let trips = if to > from && step > 0 { ((to - from) as u64).div_ceil(step as u64) } else { 0 };
            if trips == 0 {
                return Ok(());
            }
            let cost = trips.saturating_mul(count(body).into());
            let wanted = unroll == Unroll::Full || self.indexes_local(body);
            if wanted && cost.saturating_add(self.emitted) <= UNROLL_BUDGET || trips == 1 {
                for trip in 0..trips {
                    let value = eval::cast(dtype, dtype, Value::Int(from + trip as i64 * step));
                    self.scopes.push(Region { repeats: true, ..Region::default() });
                    self.bind(var, Held::Const(value));
                    self.block(body, first)?;
                    let items = self.close();
                    self.scopes.last_mut().expect("the scope around").items.extend(items);
                }
                return Ok(());
            }
        }
        let number = self.stmt;
        let (from, to) = (self.reg(from, dtype), self.reg(to, dtype));
        let step = PreloadSource::Const(isel::to_bits(dtype, Value::Int(step)));
        let step = self.asm.pinned(step, isel::file(dtype));
        let flags = if isel::wide(dtype) { Flags::INDEX64 } else { 0 };
        self.scopes.push(Region { repeats: true, ..Region::default() });
        let counter = self.define(var);
        self.block(body, first)?;
        let items = self.close();
        self.stmt = number;
        let (again, exit) = (self.label(), self.label());
        let mut head = self.draft(Opcode::Loop);
        (head.d, head.a, head.b) = (Field::Reg(counter), Field::Reg(from), Field::Reg(to));
        (head.target, head.flags) = (Some(exit), flags);
        let mut tail = self.draft(Opcode::Next);
        (tail.d, tail.b, tail.c) = (Field::Reg(counter), Field::Reg(to), Field::Reg(step));
        (tail.target, tail.flags) = (Some(again), flags);
        self.emitted += 2;
        let around = &mut self.scopes.last_mut().expect("the scope around").items;
        around.extend([CodeItem::Inst(head), CodeItem::Label(again)]);
        around.extend(items);
        around.extend([CodeItem::Inst(tail), CodeItem::Label(exit)]);
        Ok(())
    }

    fn close(&mut self) -> Vec<CodeItem> {
        self.scopes.pop().map_or_else(Vec::new, |scope| scope.items)
    }

    /// Whether some access to local memory has an index that is no constant, so
    /// that unrolling would help.
    fn indexes_local(&self, block: &Block) -> bool {
        let dynamic = |access: &Access| {
            self.kernel.buffers[access.buffer].space == Space::Local
                && !matches!(self.kernel.exprs[access.index].expr, Expr::Const(_))
        };
        block.iter().any(|stmt| match &stmt.kind {
            StmtKind::Load { from, .. } => dynamic(from),
            StmtKind::Store { to, .. } | StmtKind::Atomic { to, .. } => dynamic(to),
            StmtKind::Move { to, from, .. } => dynamic(to) || dynamic(from),
            StmtKind::For { body, .. } => self.indexes_local(body),
            StmtKind::If { then, otherwise, .. } => self.indexes_local(then) || self.indexes_local(otherwise),
            _ => false,
        })
    }

    fn branch(&mut self, condition: ExprId, then: &Block, otherwise: &Block, number: u32) -> Result<()> {
        let (first, second) = (number + 1, number + 1 + count(then));
        let condition = match self.expr(condition).0 {
            Held::Const(value) if value.as_bool() => return self.block(then, first),
            Held::Const(_) => return self.block(otherwise, second),
            Held::Reg(reg) => reg,
        };
        let (other, end) = (self.label(), self.label());
        let mut items = Vec::new();
        let mut head = self.draft(Opcode::If);
        (head.a, head.c) = (Field::Reg(condition), Field::Raw(u16::from(!otherwise.is_empty())));
        head.target = Some(other);
        items.push(CodeItem::Inst(head));
        for (side, first, label) in [(then, first, other), (otherwise, second, end)] {
            if !(side.is_empty() && label == end) {
                self.scopes.push(Region::default());
                self.block(side, first)?;
                items.extend(self.close());
                // The end of a side belongs to the branch, not to its last statement.
                self.stmt = number;
                let mut join = self.draft(Opcode::Join);
                join.target = Some(end);
                items.push(CodeItem::Inst(join));
            }
            items.push(CodeItem::Label(label));
        }
        self.emitted += 3;
        self.scopes.last_mut().expect("the scope around").items.extend(items);
        Ok(())
    }

    fn shuffle(&mut self, var: VarId, value: ExprId, mode: ShuffleMode, lane: ExprId) {
        let file = isel::file(self.kernel.exprs.dtype(value));
        let value = Field::Reg(self.expr_reg(value));
        let lane_type = self.kernel.exprs.dtype(lane);
        let (held, _) = self.expr(lane);
        let lane = match held {
            Held::Const(value) => self.reg(Held::Const(value), DType::I32),
            held => self.cast_reg(self.scopes.len() - 1, held, lane_type, DType::I32),
        };
        let d = Field::Reg(self.define(var));
        let mut draft = self.draft(Opcode::Shuffle);
        (draft.d, draft.a, draft.b, draft.flags) = (d, value, Field::Reg(lane), file_flag(file));
        draft.imm = match mode {
            ShuffleMode::Xor => 0,
            ShuffleMode::Up => 1,
            ShuffleMode::Down => 2,
            ShuffleMode::Index => 3,
        };
        self.push(draft);
    }

    /// The numbers come in consecutive registers, from where each goes to one of its own.
    fn random(&mut self, vars: &[VarId], operands: [ExprId; 3]) -> Result<()> {
        let dtype = vars.first().map_or(DType::F32, |var| self.kernel.vars[*var].dtype);
        let file = isel::file(dtype);
        let held = &mut self.random[usize::from(file == File::R64)];
        let first = match *held {
            Some(first) => first,
            None => *held.insert(self.asm.local(file, philox::numbers(dtype) as u32)?),
        };
        let [a, b, c] = operands.map(|operand| Field::Reg(self.expr_reg(operand)));
        let draft = self.draft(Opcode::Random);
        self.push(InstDraft { d: Field::Raw(first), a, b, c, flags: file_flag(file), ..draft });
        for (i, var) in vars.iter().enumerate() {
            let d = Field::Reg(self.define(*var));
            let draft = self.draft(isel::mov(file));
            self.push(InstDraft { d, a: Field::Raw(first + i as u16), ..draft });
        }
        Ok(())
    }

    fn atomic(&mut self, var: Option<VarId>, op: AtomicOp, to: &Access, value: ExprId) -> Result<()> {
        let dtype = self.kernel.buffers[to.buffer].dtype;
        let kind = match (op, dtype) {
            (AtomicOp::Add, DType::I32) => AtomicKind::AddI32,
            (AtomicOp::Add, DType::F32) => AtomicKind::AddF32,
            (AtomicOp::Add, DType::F64) => AtomicKind::AddF64,
            (AtomicOp::Inc, DType::I32) => AtomicKind::Inc,
            (AtomicOp::Max, DType::I32) => AtomicKind::MaxI32,
            (AtomicOp::Min, DType::I32) => AtomicKind::MinI32,
            _ => {
                let message = format!("the simulator has no atomic {op:?} on {dtype}");
                return Err(Diagnostic::unsupported(code::SIM_FEATURE, message));
            }
        };
        if self.locals[to.buffer].is_some() {
            return Err(Diagnostic::unsupported(code::SIM_FEATURE, "an atomic operation on local memory"));
        }
        let value = Field::Reg(self.expr_reg(value));
        let buffer = self.numbers[to.buffer];
        self.decls[buffer as usize].atomic = true;
        let (a, flags) = self.index(to.index);
        let mut draft = self.draft(Opcode::Atomic);
        (draft.a, draft.b, draft.c, draft.flags) = (a, Field::Raw(buffer), value, flags);
        draft.imm = kind as u32;
        if let Some(var) = var {
            draft.d = Field::Reg(self.define(var));
            draft.flags |= Flags::RESULT;
        }
        self.push(draft);
        Ok(())
    }

    fn finish(mut self, layout: BufferTable) -> Result<SimProgram> {
        let items = self.close();
        let code = self.asm.finish(items)?;
        let mut functions: Vec<(u32, F64Function)> = self.functions.iter().map(|(&f, &index)| (index, f)).collect();
        functions.sort_unstable();
        let mut host: Vec<(u32, HostFn)> =
            self.calls.iter().map(|(&call, &index)| (index, host_function(call))).collect();
        host.sort_unstable_by_key(|&(index, _)| index);
        let (regs, locals) = (code.regs, code.locals);
        let core = simcore::Program {
            code: code.code,
            origin: code.origin,
            buffers: self.decls,
            regs32: regs[0],
            regs64: regs[1],
            regs128: regs[2],
            locals32: (0, locals[0]),
            locals64: (0, locals[1]),
            locals128: (0, locals[2]),
            local_slots: self.slots,
            preloads: code.preloads,
            unary: functions.into_iter().map(|(_, function)| function.eval()).collect(),
            host: host.into_iter().map(|(_, f)| f).collect(),
            shared_bytes: layout.shared_bytes,
            grid_sync: self.grid_sync,
        };
        Ok(SimProgram { core, buffers: layout.buffers, locals: layout.locals })
    }
}

/// The flag that says in which file the value of an instruction is.
pub(super) fn file_flag(file: File) -> u16 {
    Flags::of(file, (Flags::WIDE, Flags::DOUBLE))
}

fn scope_number(scope: Scope) -> u32 {
    match scope {
        Scope::Warp => 0,
        Scope::Block => 1,
        // All blocks wait for each other where teams do: `kernel::order` knows them apart.
        Scope::Team | Scope::Grid => 2,
    }
}

/// An operation of the host's evaluator, on register bits, step by step where a device takes several.
fn host_function(call: HostCall) -> HostFn {
    use isel::{from_bits, to_bits};
    match call {
        HostCall::Unary(op, dtype) => {
            let to = op.result_dtype(dtype);
            Box::new(move |[a, _, _]| to_bits(to, stepwise::unary(op, dtype, from_bits(dtype, a))))
        }
        HostCall::Binary(op, dtype) => {
            let to = op.result_dtype(dtype);
            Box::new(move |[a, b, _]| to_bits(to, eval::binary(op, dtype, from_bits(dtype, a), from_bits(dtype, b))))
        }
        HostCall::Ternary(op, dtype) => Box::new(move |bits| {
            let [a, b, c] = bits.map(|bits| from_bits(dtype, bits));
            to_bits(dtype, stepwise::ternary(op, dtype, a, b, c))
        }),
        HostCall::Cast(from, to) => Box::new(move |[a, _, _]| to_bits(to, eval::cast(from, to, from_bits(from, a)))),
    }
}

/// The `number`-th statement in preorder.
pub(super) fn statement(block: &Block, number: u32) -> Option<&Stmt> {
    let mut rest = number;
    for stmt in block {
        let size = size(stmt);
        if rest == 0 {
            return Some(stmt);
        }
        if rest < size {
            return match &stmt.kind {
                StmtKind::For { body, .. } => statement(body, rest - 1),
                StmtKind::If { then, otherwise, .. } => {
                    let inner = count(then);
                    if rest - 1 < inner { statement(then, rest - 1) } else { statement(otherwise, rest - 1 - inner) }
                }
                _ => None,
            };
        }
        rest -= size;
    }
    None
}
