//! Lines to a kernel: header, declarations, statements, pieces.

use super::cursor::LineCursor;
use super::declarations::header;
use crate::diag::{Diagnostic, Result};
use crate::kernel::exprs::ExprArena;
use crate::kernel::ir::{
    Access, Block, BufId, Buffer, Expr, ExprId, Kernel, Origin, Param, ParamId, Stmt, StmtKind, Unroll, ValueKind, Var,
    VarId,
};
use crate::kernel::print::print;
use crate::kernel::words::{ATOMICS, HINTS, SCOPES, SHUFFLES, SPACES, value};
use crate::num::DType;
use crate::util::PrimaryMap;
use std::collections::BTreeMap;

/// The deepest nesting of blocks that is read.
const MAX_BLOCKS: usize = 250;

/// What a name stands for.
#[derive(Clone, Copy)]
pub(super) enum Entity {
    Param(ParamId, ValueKind),
    Buffer(BufId),
    Var(VarId, ValueKind),
}

/// A kernel in the making.
pub(super) struct KernelParser<'a> {
    pub(super) index_type: DType,
    pub(super) params: PrimaryMap<ParamId, Param>,
    pub(super) buffers: PrimaryMap<BufId, Buffer>,
    pub(super) vars: PrimaryMap<VarId, Var>,
    pub(super) exprs: ExprArena,
    pub(super) names: BTreeMap<&'a str, Entity>,
    /// Pieces that were not yet read, by number.
    pub(super) pieces: BTreeMap<&'a str, LineCursor<'a>>,
    pub(super) read_pieces: BTreeMap<&'a str, ExprId>,
    /// Nesting of the expression that is being read.
    pub(super) depth: u32,
}

/// A block that is open, and what it belongs to.
struct Open {
    block: Block,
    head: Option<Head>,
}

/// A statement whose block is being read.
enum Head {
    For { var: VarId, start: ExprId, end: ExprId, step: i64, unroll: Unroll },
    Then { condition: ExprId },
    Else { condition: ExprId, then: Block },
}

/// Reads one kernel.
pub fn parse(text: &str) -> Result<Kernel> {
    let mut lines = lines(text).into_iter();
    let Some(mut first) = lines.next() else { return Err(LineCursor::new(text, 0).error("expected `kernel`")) };
    let (name, index_type) = header(&mut first)?;
    let mut lines: Vec<LineCursor<'_>> = lines.collect();
    let closing = lines.pop().filter(|line| line.rest() == "}");
    if closing.is_none() {
        return Err(first.error("the kernel is not closed"));
    }
    let mut parser = KernelParser {
        index_type,
        params: PrimaryMap::new(),
        buffers: PrimaryMap::new(),
        vars: PrimaryMap::new(),
        exprs: ExprArena::new(),
        names: BTreeMap::new(),
        pieces: BTreeMap::new(),
        read_pieces: BTreeMap::new(),
        depth: 0,
    };
    if let Some(at) = lines.iter().position(|line| line.rest() == "where") {
        for mut line in lines.split_off(at).into_iter().skip(1) {
            line.expect("#")?;
            let number = line.digits().ok_or_else(|| line.error("expected the number of a piece"))?;
            line.expect("=")?;
            parser.pieces.insert(number, line);
        }
    }
    let launch_at = lines.iter_mut().position(|line| line.peek_name() == Some("launch"));
    let launch_at = launch_at.ok_or_else(|| first.error("the kernel has no `launch`"))?;
    parser.buffer_names(&lines[..launch_at])?;
    // A buffer's length is made of parameters, which stand before it.
    for line in &lines[..launch_at] {
        let mut line = *line;
        let is_buffer = line.peek_name().and_then(|word| value(SPACES, word)).is_some();
        if is_buffer {
            parser.buffer(&mut line)?
        } else {
            parser.param(&mut line)?
        }
        line.end()?;
    }
    let mut line = lines[launch_at];
    let launch = parser.launch(&mut line)?;
    line.end()?;
    let body = parser.body(&lines[launch_at + 1..])?;
    let KernelParser { params, buffers, vars, exprs, .. } = parser;
    Ok(Kernel { name: name.into(), index_type, params, buffers, vars, exprs, body, launch })
}

/// Checks that a kernel's text reads back as the same text. Numbers of pieces
/// are not part of what a text says, so texts with pieces are only read.
pub fn check_text(kernel: &Kernel, text: &str) -> Result<()> {
    let read = parse(text).map_err(|error| {
        Diagnostic::bug(format!("the text of kernel {} does not read back: {}", kernel.name, error.message)).note(
            error.labels.first().map_or_else(String::new, |label| {
                text.get(label.span.start as usize..).and_then(|rest| rest.lines().next()).unwrap_or("").to_owned()
            }),
        )
    })?;
    let again = print(&read);
    let code =
        |text: &str| text.lines().map(|line| line.split("//").next().unwrap_or("").trim_end().to_owned()).collect();
    let (first, second): (Vec<String>, Vec<String>) = (code(text), code(&again));
    match first.iter().zip(&second).find(|(a, b)| a != b) {
        Some((a, b)) if !first.iter().any(|line| line.trim() == "where") => Err(Diagnostic::bug(format!(
            "the text of kernel {} reads back as another",
            kernel.name
        ))
        .note(format!("`{}` became `{}`", a.trim(), b.trim()))),
        _ => Ok(()),
    }
}

/// The lines that say something, without comments and space around.
fn lines(text: &str) -> Vec<LineCursor<'_>> {
    let mut found = Vec::new();
    let mut start = 0;
    for line in text.split('\n') {
        let code = line.split("//").next().unwrap_or("").trim_end();
        let indent = code.len() - code.trim_start().len();
        if indent < code.len() {
            found.push(LineCursor::new(&code[indent..], start + indent));
        }
        start += line.len() + 1;
    }
    found
}

impl<'a> KernelParser<'a> {
    pub(super) fn declare(&mut self, name: &'a str, entity: Entity, at: &LineCursor<'a>) -> Result<()> {
        if self.names.insert(name, entity).is_some() {
            return Err(at.error(format!("`{name}` is declared twice")));
        }
        Ok(())
    }

    fn body(&mut self, lines: &[LineCursor<'a>]) -> Result<Block> {
        let mut open = vec![Open { block: Block::new(), head: None }];
        for line in lines {
            let mut cursor = *line;
            if cursor.take("}") {
                cursor.end()?;
                close(&mut open, line)?;
                continue;
            }
            if open.len() > MAX_BLOCKS {
                return Err(cursor.error(format!("blocks nested more than {MAX_BLOCKS} deep")));
            }
            match cursor.peek_name() {
                Some("for") => open.push(Open { block: Block::new(), head: Some(self.for_head(&mut cursor)?) }),
                Some("if") => {
                    cursor.name()?;
                    let condition = self.expr(&mut cursor)?;
                    cursor.expect("{")?;
                    open.push(Open { block: Block::new(), head: Some(Head::Then { condition }) });
                }
                Some("else") => {
                    cursor.name()?;
                    cursor.expect("{")?;
                    let last = open.last_mut().and_then(|open| open.block.pop()).map(|stmt| stmt.kind);
                    let Some(StmtKind::If { condition, then, .. }) = last else {
                        return Err(line.error("`else` without `if`"));
                    };
                    open.push(Open { block: Block::new(), head: Some(Head::Else { condition, then }) });
                }
                _ => {
                    let kind = self.stmt(&mut cursor)?;
                    push(&mut open, kind);
                }
            }
            cursor.end()?;
        }
        match (open.pop(), open.is_empty()) {
            (Some(Open { block, head: None }), true) => Ok(block),
            _ => Err(Diagnostic::user(crate::diag::code::SYNTAX, "a block of the kernel is not closed")),
        }
    }

    /// `for i: i32 in a..b step 2 unroll 4 {`.
    fn for_head(&mut self, cursor: &mut LineCursor<'a>) -> Result<Head> {
        cursor.expect_word("for")?;
        let (name, dtype, at) = self.binding(cursor)?;
        cursor.expect_word("in")?;
        let start = self.expr(cursor)?;
        cursor.expect("..")?;
        let end = self.expr(cursor)?;
        let step = if cursor.take_word("step") { cursor.signed()? } else { 1 };
        let unroll = match cursor.take_word("unroll") {
            false => Unroll::No,
            true if cursor.take("{") => {
                let var = self.bind(name, dtype, ValueKind::Index, &at)?;
                return Ok(Head::For { var, start, end, step, unroll: Unroll::Full });
            }
            true => Unroll::By(cursor.number()?),
        };
        cursor.expect("{")?;
        let var = self.bind(name, dtype, ValueKind::Index, &at)?;
        Ok(Head::For { var, start, end, step, unroll })
    }

    /// `name: type`, and where it stands.
    fn binding(&mut self, cursor: &mut LineCursor<'a>) -> Result<(&'a str, DType, LineCursor<'a>)> {
        let at = *cursor;
        let name = cursor.name()?;
        cursor.expect(":")?;
        Ok((name, cursor.dtype()?, at))
    }

    fn bind(&mut self, name: &'a str, dtype: DType, kind: ValueKind, at: &LineCursor<'a>) -> Result<VarId> {
        let var = self.vars.push(Var { name: name.into(), dtype, at_least: None });
        self.declare(name, Entity::Var(var, kind), at)?;
        Ok(var)
    }

    fn stmt(&mut self, cursor: &mut LineCursor<'a>) -> Result<StmtKind> {
        let before = *cursor;
        let word = cursor.name()?;
        let hint = |prefix: &str| word.strip_prefix(prefix).and_then(|suffix| value(HINTS, suffix));
        if word == "let" {
            return self.binding_stmt(cursor);
        }
        if let Some(hint) = hint("store") {
            let to = self.access(cursor)?;
            cursor.expect("=")?;
            return Ok(StmtKind::Store { to, value: self.expr(cursor)?, hint });
        }
        for (prefix, aligned) in [("move_unaligned", false), ("move", true)] {
            if let Some(hint) = hint(prefix) {
                let (lanes, to, from) = self.wide(cursor)?;
                return Ok(StmtKind::Move { to, from, lanes, hint, aligned });
            }
        }
        if let Some(hint) = hint("copy_async") {
            let (lanes, to, from) = self.wide(cursor)?;
            return Ok(StmtKind::CopyAsync { to, from, lanes, hint });
        }
        match word {
            "sync" | "fence" => {
                let scope = value(SCOPES, cursor.name()?).ok_or_else(|| before.error("expected a scope"))?;
                Ok(if word == "sync" { StmtKind::Sync(scope) } else { StmtKind::Fence(scope) })
            }
            "commit_group" => Ok(StmtKind::CommitGroup),
            "wait_group" => Ok(StmtKind::WaitGroup { open: cursor.number()? }),
            "atomic" => self.atomic(cursor, None),
            "random" => self.random(cursor),
            _ => Err(before.error(format!("`{word}` begins no statement"))),
        }
    }

    /// `bf16x8 to[i] = from[j]`: lanes, and both sides.
    fn wide(&mut self, cursor: &mut LineCursor<'a>) -> Result<(u32, Access, Access)> {
        let before = *cursor;
        let lanes = cursor.name()?.rsplit_once('x').and_then(|(_, lanes)| lanes.parse().ok());
        let lanes = lanes.ok_or_else(|| before.error("expected a vector type such as `f32x4`"))?;
        let to = self.access(cursor)?;
        cursor.expect("=")?;
        Ok((lanes, to, self.access(cursor)?))
    }

    /// `let v: f32 = ` a load, a shuffle, an atomic or an expression. A variable
    /// may have the name of one of those; then no name follows it.
    fn binding_stmt(&mut self, cursor: &mut LineCursor<'a>) -> Result<StmtKind> {
        let (name, dtype, at) = self.binding(cursor)?;
        cursor.expect("=")?;
        let mut after = *cursor;
        let word = after.peek_name().unwrap_or("");
        after.skip(word.len());
        let follows = after.peek_name().is_some();
        let hint = word.strip_prefix("load").and_then(|suffix| value(HINTS, suffix));
        match (word, hint) {
            (_, Some(hint)) if follows => {
                let from = self.access(&mut after)?;
                let var = self.bind(name, dtype, ValueKind::Data, &at)?;
                if after.take_word("at") {
                    after.expect_word("least")?;
                    let least = self.expr(&mut after)?;
                    let Expr::Const(value) = self.exprs[least].expr else {
                        return Err(after.error("expected a constant"));
                    };
                    self.vars[var].at_least = Some(value);
                }
                *cursor = after;
                Ok(StmtKind::Load { var, from, hint })
            }
            ("shuffle", _) if follows => {
                let mode = after.name()?;
                let mode = value(SHUFFLES, mode).ok_or_else(|| cursor.error(format!("no shuffle `{mode}`")))?;
                let exchanged = self.expr(&mut after)?;
                after.expect(",")?;
                let lane = self.expr(&mut after)?;
                *cursor = after;
                Ok(StmtKind::Shuffle {
                    var: self.bind(name, dtype, ValueKind::Data, &at)?,
                    value: exchanged,
                    mode,
                    lane,
                })
            }
            ("atomic", _) if follows => {
                *cursor = after;
                self.atomic(cursor, Some((name, dtype, at)))
            }
            _ => {
                let value = self.expr(cursor)?;
                let kind = self.exprs.kind(value);
                Ok(StmtKind::Let { var: self.bind(name, dtype, kind, &at)?, value })
            }
        }
    }

    fn atomic(
        &mut self,
        cursor: &mut LineCursor<'a>,
        old: Option<(&'a str, DType, LineCursor<'a>)>,
    ) -> Result<StmtKind> {
        let before = *cursor;
        let op = value(ATOMICS, cursor.name()?).ok_or_else(|| before.error("expected an atomic operation"))?;
        let to = self.access(cursor)?;
        cursor.expect(",")?;
        let value = self.expr(cursor)?;
        let var = old.map(|(name, dtype, at)| self.bind(name, dtype, ValueKind::Data, &at)).transpose()?;
        Ok(StmtKind::Atomic { var, op, to, value })
    }

    /// `random a: f32, b: f32, c: f32, d: f32 = seed, offset, subsequence`.
    fn random(&mut self, cursor: &mut LineCursor<'a>) -> Result<StmtKind> {
        let mut bindings = vec![self.binding(cursor)?];
        while cursor.take(",") {
            bindings.push(self.binding(cursor)?);
        }
        cursor.expect("=")?;
        let seed = self.expr(cursor)?;
        cursor.expect(",")?;
        let offset = self.expr(cursor)?;
        cursor.expect(",")?;
        let subsequence = self.expr(cursor)?;
        let vars: Result<_> =
            bindings.into_iter().map(|(name, dtype, at)| self.bind(name, dtype, ValueKind::Data, &at)).collect();
        Ok(StmtKind::Random { vars: vars?, seed, offset, subsequence })
    }

    fn access(&mut self, cursor: &mut LineCursor<'a>) -> Result<Access> {
        let before = *cursor;
        let name = cursor.name()?;
        let Some(&Entity::Buffer(buffer)) = self.names.get(name) else {
            return Err(before.error(format!("there is no buffer `{name}`")));
        };
        cursor.expect("[")?;
        let index = self.expr(cursor)?;
        cursor.expect("]")?;
        Ok(Access { buffer, index })
    }
}

fn push(open: &mut [Open], kind: StmtKind) {
    if let Some(open) = open.last_mut() {
        open.block.push(Stmt { kind, origin: Origin::default() });
    }
}

/// Ends the innermost block and adds its statement to the block around it.
fn close(open: &mut Vec<Open>, line: &LineCursor<'_>) -> Result<()> {
    let Some(Open { block, head: Some(head) }) = open.pop() else { return Err(line.error("`}` closes nothing")) };
    let kind = match head {
        Head::For { var, start, end, step, unroll } => StmtKind::For { var, start, end, step, unroll, body: block },
        Head::Then { condition } => StmtKind::If { condition, then: block, otherwise: Block::new() },
        Head::Else { condition, then } => StmtKind::If { condition, then, otherwise: block },
    };
    push(open, kind);
    Ok(())
}
