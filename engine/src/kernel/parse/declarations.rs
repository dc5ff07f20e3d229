//! Parameters, buffers and launch.

use super::cursor::LineCursor;
use super::kernel::{Entity, KernelParser};
use crate::diag::Result;
use crate::kernel::ir::{BufId, Buffer, Launch, Param, ParamKind, ValueKind};
use crate::kernel::words::{SPACES, value};
use crate::num::DType;
use crate::util::EntityId;

impl<'a> KernelParser<'a> {
    /// Enters the names of all buffers, which parameters refer to.
    pub(super) fn buffer_names(&mut self, lines: &[LineCursor<'a>]) -> Result<()> {
        let mut count = 0;
        for line in lines {
            let mut cursor = *line;
            if cursor.peek_name().and_then(|word| value(SPACES, word)).is_none() {
                continue;
            }
            cursor.name()?;
            let before = cursor;
            let name = cursor.name()?;
            self.declare(name, Entity::Buffer(BufId::from_index(count)), &before)?;
            count += 1;
        }
        Ok(())
    }

    /// `param n: i32 = size(0, 1) multiple of 8 at most 64` or `param *x = input(0)`.
    pub(super) fn param(&mut self, cursor: &mut LineCursor<'a>) -> Result<()> {
        cursor.expect_word("param")?;
        if cursor.take("*") {
            return self.pointer(cursor);
        }
        let before = *cursor;
        let name = cursor.name()?;
        cursor.expect(":")?;
        let dtype = cursor.dtype()?;
        cursor.expect("=")?;
        let word = cursor.peek_name().unwrap_or("");
        // Something else may have one of these names; then no parenthesis follows.
        let source = if cursor.rest()[word.len()..].starts_with('(') { word } else { "" };
        let (kind, about) = match source {
            "size" => {
                let [input, axis] = pair(cursor)?;
                (ParamKind::Size { input, axis }, ValueKind::Index)
            }
            "stride" => {
                let [input, axis] = pair(cursor)?;
                (ParamKind::Stride { input, axis }, ValueKind::Index)
            }
            "reciprocal" => {
                cursor.name()?;
                cursor.expect("(")?;
                let divisor = self.expr(cursor)?;
                cursor.expect(")")?;
                (ParamKind::Reciprocal(divisor), ValueKind::Data)
            }
            "scalar" => (ParamKind::Scalar { input: one(cursor)? }, ValueKind::Data),
            _ => {
                let value = self.expr(cursor)?;
                (ParamKind::Derived(value), self.exprs.kind(value))
            }
        };
        let multiple_of = if cursor.take_word("multiple") {
            cursor.expect_word("of")?;
            cursor.signed()?
        } else {
            1
        };
        let mut at_most = None;
        if cursor.take_word("at") {
            cursor.expect_word("most")?;
            at_most = Some(cursor.signed()?);
        }
        let id = self.params.push(Param { name: name.into(), dtype: Some(dtype), kind, multiple_of, at_most });
        self.declare(name, Entity::Param(id, about), &before)
    }

    fn pointer(&mut self, cursor: &mut LineCursor<'a>) -> Result<()> {
        let before = *cursor;
        let name = cursor.name()?;
        let Some(&Entity::Buffer(buffer)) = self.names.get(name) else {
            return Err(before.error(format!("there is no buffer `{name}`")));
        };
        cursor.expect("=")?;
        let kind = match cursor.peek_name() {
            Some("input") => ParamKind::Input { input: one(cursor)?, buffer },
            Some("output") => ParamKind::Output { output: one(cursor)?, buffer },
            Some("workspace") => {
                cursor.name()?;
                ParamKind::Workspace { buffer }
            }
            _ => return Err(cursor.error("expected `input`, `output` or `workspace`")),
        };
        self.params.push(Param { name: name.into(), dtype: None, kind, multiple_of: 1, at_most: None });
        Ok(())
    }

    /// `shared tile: f32[64] align 16 zeroed`, or of an output `global y: f32[n] align 16 start 3`.
    pub(super) fn buffer(&mut self, cursor: &mut LineCursor<'a>) -> Result<()> {
        let before = *cursor;
        let space = value(SPACES, cursor.name()?).ok_or_else(|| before.error("expected a memory space"))?;
        let name = cursor.name()?;
        cursor.expect(":")?;
        let dtype = cursor.dtype()?;
        cursor.expect("[")?;
        let len = self.expr(cursor)?;
        cursor.expect("]")?;
        cursor.expect_word("align")?;
        let align = cursor.number()?;
        let start = if cursor.take_word("start") { cursor.number()? } else { 0 };
        let zeroed = cursor.take_word("zeroed");
        self.buffers.push(Buffer { name: name.into(), dtype, space, len, align, start, zeroed });
        Ok(())
    }

    /// `launch grid (x, y, z) block (x, y, z) max_threads 128 min_blocks 1 cooperative`.
    pub(super) fn launch(&mut self, cursor: &mut LineCursor<'a>) -> Result<Launch> {
        cursor.expect_word("launch")?;
        let mut sizes = Vec::new();
        for what in ["grid", "block"] {
            cursor.expect_word(what)?;
            for open in ["(", ",", ","] {
                cursor.expect(open)?;
                sizes.push(self.expr(cursor)?);
            }
            cursor.expect(")")?;
        }
        cursor.expect_word("max_threads")?;
        let max_threads = cursor.number()?;
        cursor.expect_word("min_blocks")?;
        let min_blocks = cursor.number()?;
        let cooperative = cursor.take_word("cooperative");
        let (grid, block) = ([sizes[0], sizes[1], sizes[2]], [sizes[3], sizes[4], sizes[5]]);
        Ok(Launch { grid, block, max_threads, min_blocks, cooperative })
    }
}

/// `word(n)`.
fn one(cursor: &mut LineCursor<'_>) -> Result<u32> {
    cursor.name()?;
    cursor.expect("(")?;
    let number = cursor.number()?;
    cursor.expect(")")?;
    Ok(number)
}

/// `word(n, m)`.
fn pair(cursor: &mut LineCursor<'_>) -> Result<[u32; 2]> {
    cursor.name()?;
    cursor.expect("(")?;
    let first = cursor.number()?;
    cursor.expect(",")?;
    let second = cursor.number()?;
    cursor.expect(")")?;
    Ok([first, second])
}

/// `kernel NAME index TYPE {`.
pub(super) fn header<'a>(cursor: &mut LineCursor<'a>) -> Result<(&'a str, DType)> {
    cursor.expect_word("kernel")?;
    let name = cursor.name()?;
    cursor.expect_word("index")?;
    let index_type = cursor.dtype()?;
    cursor.expect("{")?;
    cursor.end()?;
    Ok((name, index_type))
}
