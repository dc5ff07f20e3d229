//! One line of a fusion: `%a, %b = op operands attributes`.

use super::apply::{Written, arguments};
use super::attrs::{AttrArg, RawAttr, dtype};
use super::cursor::TokenCursor;
use super::lexer::Token;
use super::suggest::nearest;
use crate::diag::{Diagnostic, Result, Span, code};
use crate::fusion::ops::{self, OpParamKind, OpRow};
use crate::fusion::{AxisDecl, AxisKind, FusionBuilder, InputLayout, Operand, Src};
use std::collections::BTreeMap;

/// A fusion being read: its builder and the names defined so far.
pub(super) struct Body {
    pub(super) builder: FusionBuilder,
    /// `None` for a name whose definition was refused: its uses are not
    /// refused again.
    scope: BTreeMap<String, Option<Operand>>,
    /// Nearest names are looked up only so often, or a hostile text takes minutes.
    suggestions_left: u32,
}

/// A statement as written.
struct Parsed<'a> {
    results: Vec<(&'a str, Span)>,
    row: &'static OpRow,
    shape: Option<Vec<BodyItem<'a>>>,
    operands: Vec<BodyItem<'a>>,
    attrs: Vec<RawAttr<'a, BodyItem<'a>>>,
    /// From the operation's name to the end.
    span: Span,
}

#[derive(Clone, Copy, Debug)]
enum BodyItem<'a> {
    Name(&'a str, Span),
    Number(Src),
}

impl Body {
    pub(super) fn new(name: &str) -> Self {
        Self { builder: FusionBuilder::new(name), scope: BTreeMap::new(), suggestions_left: 100 }
    }

    // ---- parameters ----

    /// `%name: type`, where a type is `dtype` or `dtype[dim, ...]`.
    pub(super) fn parameter(&mut self, cursor: &mut TokenCursor<'_>) -> Result<()> {
        let start = cursor.span();
        let Token::Value(name) = cursor.peek() else {
            return Err(cursor.unexpected("a parameter such as `%x: f32[?]`"));
        };
        cursor.next();
        let declared = self.parameter_type(cursor, name, start);
        let operand = declared.as_ref().ok().copied();
        if operand.is_some() || !self.scope.contains_key(name) {
            self.scope.insert(name.into(), operand);
        }
        declared.map(|_| ())
    }

    fn parameter_type(&mut self, cursor: &mut TokenCursor<'_>, name: &str, start: Span) -> Result<Operand> {
        cursor.expect(':', "and a type after the parameter's name")?;
        let Token::Word(word) = cursor.peek() else { return Err(cursor.unexpected("a data type")) };
        let dtype = dtype(word, cursor.span())?;
        cursor.next();
        let declared = if cursor.eat('[') {
            let dims = dims(cursor)?;
            self.builder.tensor(name, dtype, &dims)
        } else {
            self.builder.scalar(name, dtype)
        };
        let declared = declared.map_err(|error| placed(error, cursor.since(start)))?;
        if let Some(layout) = self.layout(cursor, declared)? {
            self.builder.set_layout(declared, layout).map_err(|error| placed(error, cursor.since(start)))?;
        }
        Ok(declared)
    }

    /// `contiguity(true, _, false) order(0, 2, 1)` after a tensor's type; either
    /// may be left out: dense, and row-major.
    fn layout(&self, cursor: &mut TokenCursor<'_>, declared: Operand) -> Result<Option<InputLayout>> {
        let Operand::Tensor(tensor) = declared else { return Ok(None) };
        let (mut contiguity, mut order) = (None, None);
        while let Token::Word(word @ ("contiguity" | "order")) = cursor.peek() {
            cursor.next();
            cursor.expect('(', "and a list with one item for each axis")?;
            if word == "contiguity" {
                contiguity = Some(flags(cursor)?);
            } else {
                order = Some(axes(cursor)?);
            }
        }
        if contiguity.is_none() && order.is_none() {
            return Ok(None);
        }
        let order = order.unwrap_or_else(|| (0..self.builder.shape_of(tensor).axes.len() as u32).collect());
        let thin = |axis: u32| {
            let axes = &self.builder.shape_of(tensor).axes;
            axes.get(axis as usize).is_some_and(|axis| axis.kind == AxisKind::Broadcast)
        };
        let contiguity =
            contiguity.unwrap_or_else(|| order.iter().map(|&axis| (!thin(axis)).then_some(true)).collect());
        Ok(Some(InputLayout { contiguity, order }))
    }

    // ---- in-place updates ----

    /// `update %input = %value`, after the word.
    pub(super) fn updates(&mut self, cursor: &mut TokenCursor<'_>) -> Result<()> {
        let start = cursor.span();
        let mut named = |cursor: &mut TokenCursor<'_>| {
            let span = cursor.span();
            let Token::Value(name) = cursor.peek() else { return Err(cursor.unexpected("a value")) };
            cursor.next();
            self.resolve(&[BodyItem::Name(name, span)])
        };
        let target = named(cursor)?;
        cursor.expect('=', "and the value that is written into the input")?;
        let value = named(cursor)?;
        end_of_line(cursor)?;
        if let (Some(target), Some(value)) = (target, value) {
            self.builder.update(value[0], target[0]).map_err(|error| placed(error, cursor.since(start)))?;
        }
        Ok(())
    }

    // ---- statements ----

    /// Reads and adds one statement; returns the names it defines.
    pub(super) fn statement(&mut self, cursor: &mut TokenCursor<'_>) -> Result<Vec<String>> {
        let results = results(cursor)?;
        let outcome = self.right_side(cursor, &results);
        let defined = outcome.as_ref().ok().cloned().flatten();
        let mut duplicate = None;
        for (i, (name, span)) in results.iter().enumerate() {
            if self.scope.contains_key(*name) {
                let error = Diagnostic::user(code::DUPLICATE_NAME, format!("`%{name}` is defined twice"));
                duplicate = duplicate.or(Some(error.label(*span, "")));
                continue;
            }
            let operand = defined.as_ref().and_then(|operands| operands.get(i)).copied();
            if let Some(operand) = operand {
                self.builder.set_name(operand, name).map_err(|error| placed(error, *span))?;
            }
            self.scope.insert((*name).into(), operand);
        }
        outcome?;
        match duplicate {
            Some(error) => Err(error),
            None => Ok(results.iter().map(|(name, _)| (*name).into()).collect()),
        }
    }

    /// The operation; `None` where an operand was refused before.
    fn right_side<'a>(
        &mut self,
        cursor: &mut TokenCursor<'a>,
        results: &[(&'a str, Span)],
    ) -> Result<Option<Vec<Operand>>> {
        cursor.expect('=', "after the names that the statement defines")?;
        let parsed = call(cursor, results, &mut self.suggestions_left)?;
        let expected = parsed.row.results;
        if expected != parsed.results.len() {
            let given = parsed.results.len();
            let message = format!("{}: defines {expected} values, {given} are named", parsed.row.name);
            return Err(Diagnostic::user(code::ARITY, message).label(parsed.span, ""));
        }
        let span = parsed.span;
        let Some(written) = self.written(parsed)? else { return Ok(None) };
        let args = arguments(written).map_err(|error| placed(error, span))?;
        self.builder.apply(&args).map(Some).map_err(|error| placed(error, span))
    }

    /// A statement with its names resolved; `None` where one of them was refused before.
    fn written<'a>(&mut self, parsed: Parsed<'a>) -> Result<Option<Written<'a>>> {
        let shape = match &parsed.shape {
            Some(items) => match self.resolve(items)? {
                Some(shape) => Some(shape),
                None => return Ok(None),
            },
            None => None,
        };
        let Some(operands) = self.resolve(&parsed.operands)? else { return Ok(None) };
        let mut attrs = Vec::with_capacity(parsed.attrs.len());
        for attr in parsed.attrs {
            let mut args = None;
            if let Some(items) = attr.args {
                let mut resolved = Vec::with_capacity(items.len());
                for item in items {
                    resolved.push(match item {
                        AttrArg::Word(word) => AttrArg::Word(word),
                        AttrArg::Value(item) => match self.resolve(&[item])? {
                            Some(values) => AttrArg::Value(values[0]),
                            None => return Ok(None),
                        },
                    });
                }
                args = Some(resolved);
            }
            attrs.push(RawAttr { name: attr.name, args, span: attr.span });
        }
        Ok(Some(Written { row: parsed.row, shape, operands, attrs, span: parsed.span }))
    }

    /// The values of names; `None` where one of them was refused before.
    fn resolve(&mut self, items: &[BodyItem<'_>]) -> Result<Option<Vec<Src>>> {
        let mut values = Vec::with_capacity(items.len());
        let mut poisoned = false;
        for item in items {
            match *item {
                BodyItem::Number(number) => values.push(number),
                BodyItem::Name(name, span) => match self.scope.get(name) {
                    Some(Some(operand)) => values.push((*operand).into()),
                    Some(None) => poisoned = true,
                    None => return Err(self.unknown(name, span)),
                },
            }
        }
        Ok((!poisoned).then_some(values))
    }

    fn unknown(&mut self, name: &str, span: Span) -> Box<Diagnostic> {
        let error = Diagnostic::user(code::UNKNOWN_NAME, format!("`%{name}` is not defined"));
        let mut near = None;
        if self.suggestions_left > 0 {
            self.suggestions_left -= 1;
            near = nearest(name, self.scope.keys().map(String::as_str));
        }
        error.label(span, near.map(|near| format!("did you mean `%{near}`?")).unwrap_or_default())
    }

    /// `return %a, %b`, after the word.
    pub(super) fn returns(&mut self, cursor: &mut TokenCursor<'_>) -> Result<()> {
        // A fusion that only updates inputs returns nothing.
        if self.builder.has_updates() && matches!(cursor.peek(), Token::Newline | Token::Punct('}')) {
            return Ok(());
        }
        loop {
            let span = cursor.span();
            let Token::Value(name) = cursor.peek() else { return Err(cursor.unexpected("a value to return")) };
            cursor.next();
            if let Some(values) = self.resolve(&[BodyItem::Name(name, span)])? {
                for value in values {
                    self.builder.output(value).map_err(|error| placed(error, span))?;
                }
            }
            if !cursor.eat(',') {
                return end_of_line(cursor);
            }
        }
    }
}

/// A diagnostic of the builder at its place in the text.
fn placed(error: Box<Diagnostic>, span: Span) -> Box<Diagnostic> {
    if error.labels.is_empty() { error.label(span, "") } else { error }
}

fn end_of_line(cursor: &TokenCursor<'_>) -> Result<()> {
    match cursor.peek() {
        Token::Newline | Token::End | Token::Punct('}') => Ok(()),
        _ => Err(cursor.unexpected("the end of the line")),
    }
}

/// The axes of a type, after the opening bracket.
fn dims(cursor: &mut TokenCursor<'_>) -> Result<Vec<AxisDecl>> {
    let mut dims = Vec::new();
    if cursor.eat(']') {
        return Ok(dims);
    }
    loop {
        cursor.skip_newlines();
        dims.push(match cursor.peek() {
            Token::Punct('?') => AxisDecl::Symbolic,
            Token::Number(crate::num::Value::Int(1)) => AxisDecl::Broadcast,
            Token::Number(crate::num::Value::Int(n)) => AxisDecl::Const(n),
            _ => return Err(cursor.unexpected("an extent: `?` or a number")),
        });
        cursor.next();
        if !cursor.eat(',') {
            cursor.expect(']', "after the extents")?;
            return Ok(dims);
        }
    }
}

/// Contiguity flags, after the opening parenthesis.
fn flags(cursor: &mut TokenCursor<'_>) -> Result<Vec<Option<bool>>> {
    list(cursor, |cursor| match cursor.peek() {
        Token::Word("_") => Ok(None),
        Token::Number(crate::num::Value::Bool(flag)) => Ok(Some(flag)),
        _ => Err(cursor.unexpected("`true`, `false` or `_`")),
    })
}

/// Axes, after the opening parenthesis.
fn axes(cursor: &mut TokenCursor<'_>) -> Result<Vec<u32>> {
    list(cursor, |cursor| match cursor.peek() {
        Token::Number(crate::num::Value::Int(n)) => {
            u32::try_from(n).map_err(|_| cursor.unexpected("an axis, counted from 0"))
        }
        _ => Err(cursor.unexpected("an axis, counted from 0")),
    })
}

/// Items that are one token each, to the closing parenthesis.
fn list<'a, T>(cursor: &mut TokenCursor<'a>, item: impl Fn(&TokenCursor<'a>) -> Result<T>) -> Result<Vec<T>> {
    let mut items = Vec::new();
    while !cursor.eat(')') {
        if !items.is_empty() {
            cursor.expect(',', "between the items")?;
        }
        items.push(item(cursor)?);
        cursor.next();
    }
    Ok(items)
}

/// `%a, %b`.
fn results<'a>(cursor: &mut TokenCursor<'a>) -> Result<Vec<(&'a str, Span)>> {
    let mut results = Vec::new();
    loop {
        let span = cursor.span();
        let Token::Value(name) = cursor.peek() else {
            return Err(cursor.unexpected("a statement such as `%y = add %x, 1`, or `return`"));
        };
        cursor.next();
        results.push((name, span));
        if !cursor.eat(',') {
            return Ok(results);
        }
    }
}

/// The operation, its operands and attributes, to the end of the line.
fn call<'a>(cursor: &mut TokenCursor<'a>, results: &[(&'a str, Span)], suggestions: &mut u32) -> Result<Parsed<'a>> {
    let start = cursor.span();
    let Token::Word(name) = cursor.peek() else { return Err(cursor.unexpected("the name of an operation")) };
    let row = ops::find(name).ok_or_else(|| unknown_op(name, start, suggestions))?;
    cursor.next();
    let mut shape = None;
    if row.params.iter().any(|param| param.kind == OpParamKind::Shape) {
        cursor.expect('[', "and the extents")?;
        shape = Some(items(cursor, ']')?);
        cursor.expect(']', "after the extents")?;
    }
    let operands = items(cursor, '\n')?;
    let mut attrs = Vec::new();
    while let Token::Word(name) = cursor.peek() {
        attrs.push(attribute(cursor, name)?);
    }
    end_of_line(cursor)?;
    Ok(Parsed { results: results.to_vec(), row, shape, operands, attrs, span: cursor.since(start) })
}

fn unknown_op(name: &str, span: Span, suggestions: &mut u32) -> Box<Diagnostic> {
    let shown: String = name.chars().take(40).collect();
    let mut label = None;
    if *suggestions > 0 {
        *suggestions -= 1;
        label = nearest(name, ops::all().map(|row| row.name)).map(|near| format!("did you mean `{near}`?"));
    }
    Diagnostic::user(code::UNKNOWN_OP, format!("unknown operation `{shown}`"))
        .label(span, label.unwrap_or_default())
        .note("operations are listed in cases/README.md")
}

/// Operands separated by commas; none if the first token is not one.
fn items<'a>(cursor: &mut TokenCursor<'a>, close: char) -> Result<Vec<BodyItem<'a>>> {
    let mut items = Vec::new();
    loop {
        match cursor.peek() {
            Token::Value(name) => items.push(BodyItem::Name(name, cursor.span())),
            Token::Number(value) => items.push(BodyItem::Number(value.into())),
            Token::Newline | Token::End | Token::Word(_) if items.is_empty() => return Ok(items),
            Token::Punct(punct) if punct == close && items.is_empty() => return Ok(items),
            _ => return Err(cursor.unexpected("an operand: a value or a number")),
        }
        cursor.next();
        if !cursor.eat(',') {
            return Ok(items);
        }
    }
}

/// `name` or `name(arguments)`.
fn attribute<'a>(cursor: &mut TokenCursor<'a>, name: &'a str) -> Result<RawAttr<'a, BodyItem<'a>>> {
    let start = cursor.span();
    cursor.next();
    if !cursor.eat('(') {
        return Ok(RawAttr { name, args: None, span: start });
    }
    let mut args = Vec::new();
    while !cursor.eat(')') {
        if !args.is_empty() {
            cursor.expect(',', "between the arguments")?;
        }
        args.push(match cursor.peek() {
            Token::Number(value) => AttrArg::Value(BodyItem::Number(value.into())),
            Token::Value(name) => AttrArg::Value(BodyItem::Name(name, cursor.span())),
            Token::Word(word) => AttrArg::Word(word),
            _ => return Err(cursor.unexpected("an argument: a value, a number or a word")),
        });
        cursor.next();
    }
    Ok(RawAttr { name, args: Some(args), span: cursor.since(start) })
}
