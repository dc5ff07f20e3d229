//! Expressions, by precedence climbing. Two limits bound every later recursion:
//! how deep brackets nest, and how high a tree grows along chains.

use super::ast::{CallExpr, ExprKind, Index, Name, Operator, PyExpr, Sign};
use super::lexer::PyToken;
use super::parser::{PyParser, is_keyword};
use engine::diag::{Diagnostic, Result, Span, code};

/// The deepest nesting of brackets and operators in front.
const MAX_DEPTH: u32 = 48;
/// The highest tree: `a + b + c` is as high as it is long.
const MAX_HEIGHT: u32 = 96;

/// The operator at hand with how tightly it binds, and how many tokens it takes.
fn operator(first: &PyToken<'_>, second: &PyToken<'_>) -> Option<(Operator, u32, usize)> {
    use Operator as O;
    Some(match (first, second) {
        (PyToken::Name("or"), _) => (O::Or, 1, 1),
        (PyToken::Name("and"), _) => (O::And, 2, 1),
        (PyToken::Name("not"), PyToken::Name("in")) => (O::NotIn, 4, 2),
        (PyToken::Name("is"), PyToken::Name("not")) => (O::IsNot, 4, 2),
        (PyToken::Name("in"), _) => (O::In, 4, 1),
        (PyToken::Name("is"), _) => (O::Is, 4, 1),
        (PyToken::Punct(punct), _) => {
            let (operator, level) = match *punct {
                "<" => (O::Lt, 4),
                "<=" => (O::Le, 4),
                ">" => (O::Gt, 4),
                ">=" => (O::Ge, 4),
                "==" => (O::Eq, 4),
                "!=" => (O::Ne, 4),
                "|" => (O::BitOr, 5),
                "^" => (O::BitXor, 6),
                "&" => (O::BitAnd, 7),
                "<<" => (O::ShiftLeft, 8),
                ">>" => (O::ShiftRight, 8),
                "+" => (O::Add, 9),
                "-" => (O::Sub, 9),
                "*" => (O::Mul, 10),
                "/" => (O::Div, 10),
                "//" => (O::FloorDiv, 10),
                "%" => (O::Mod, 10),
                "@" => (O::MatMul, 10),
                "**" => (O::Pow, 12),
                _ => return None,
            };
            (operator, level, 1)
        }
        _ => return None,
    })
}

/// How tightly operators in front bind: `not`, and the signs.
const NOT_LEVEL: u32 = 3;
const SIGN_LEVEL: u32 = 11;

impl PyParser<'_> {
    /// One expression, without commas outside of brackets.
    pub(super) fn expression(&mut self) -> Result<PyExpr> {
        let value = self.nested(|p| p.binary(0))?;
        if !self.at_word("if") {
            return Ok(value);
        }
        self.next();
        let condition = self.nested(|p| p.binary(0))?;
        if !self.eat_word("else") {
            return Err(self.unexpected("`else` of the conditional expression"));
        }
        let otherwise = self.nested(Self::expression)?;
        let span = value.span;
        let height = value.height.max(condition.height).max(otherwise.height);
        let kind = ExprKind::Conditional {
            condition: Box::new(condition),
            then: Box::new(value),
            otherwise: Box::new(otherwise),
        };
        self.grown(kind, self.since(span), height)
    }

    /// Expressions with commas between them: a tuple, unless there is one only.
    pub(super) fn expression_list(&mut self) -> Result<PyExpr> {
        let start = self.span();
        let first = self.element()?;
        if !self.at_punct(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.eat(",") {
            if matches!(self.peek(), PyToken::Newline | PyToken::End | PyToken::Punct("=" | ";" | ":")) {
                break;
            }
            items.push(self.element()?);
        }
        let height = height(&items);
        self.grown(ExprKind::Tuple(items), self.since(start), height)
    }

    /// An element of a list: an expression or `*expression`.
    fn element(&mut self) -> Result<PyExpr> {
        let start = self.span();
        if !self.eat("*") {
            return self.expression();
        }
        let inner = self.expression()?;
        let height = inner.height;
        self.grown(ExprKind::Starred(Box::new(inner)), self.since(start), height)
    }

    /// Runs a rule one level deeper.
    fn nested(&mut self, rule: impl FnOnce(&mut Self) -> Result<PyExpr>) -> Result<PyExpr> {
        if self.depth == MAX_DEPTH {
            return Err(too_deep(self.span()));
        }
        self.depth += 1;
        let result = rule(self);
        self.depth -= 1;
        result
    }

    /// A tree over parts of the given height.
    fn grown(&self, kind: ExprKind, span: Span, below: u32) -> Result<PyExpr> {
        if below >= MAX_HEIGHT {
            return Err(too_deep(span));
        }
        Ok(PyExpr { kind, span, height: below + 1 })
    }

    fn binary(&mut self, least: u32) -> Result<PyExpr> {
        let mut left = self.signed()?;
        while let Some((operator, level, tokens)) = operator(self.peek(), self.peek_second()) {
            if level < least {
                break;
            }
            for _ in 0..tokens {
                self.next();
            }
            // All associate to the left but `**`.
            let next = if operator == Operator::Pow { level } else { level + 1 };
            let right = self.nested(|p| p.binary(next))?;
            let (span, height) = (left.span, left.height.max(right.height));
            let kind = ExprKind::Binary(operator, Box::new(left), Box::new(right));
            left = self.grown(kind, self.since(span), height)?;
        }
        Ok(left)
    }

    fn signed(&mut self) -> Result<PyExpr> {
        let start = self.span();
        let (sign, level) = match self.peek() {
            PyToken::Punct("-") => (Sign::Minus, SIGN_LEVEL),
            PyToken::Punct("+") => (Sign::Plus, SIGN_LEVEL),
            PyToken::Punct("~") => (Sign::Invert, SIGN_LEVEL),
            PyToken::Name("not") => (Sign::Not, NOT_LEVEL),
            _ => return self.postfix(),
        };
        self.next();
        let inner = self.nested(|p| p.binary(level))?;
        let height = inner.height;
        self.grown(ExprKind::Unary(sign, Box::new(inner)), self.since(start), height)
    }

    fn postfix(&mut self) -> Result<PyExpr> {
        let mut value = self.atom()?;
        loop {
            let (span, height) = (value.span, value.height);
            if self.eat(".") {
                let name = self.attribute_name()?;
                value = self.grown(ExprKind::Attribute(Box::new(value), name), self.since(span), height)?;
            } else if self.eat("(") {
                value = self.call(value)?;
            } else if self.eat("[") {
                let (indices, inner) = self.subscript()?;
                let kind = ExprKind::Subscript(Box::new(value), indices);
                value = self.grown(kind, self.since(span), height.max(inner))?;
            } else {
                return Ok(value);
            }
        }
    }

    /// Any word may follow a dot but those that no attribute can have.
    fn attribute_name(&mut self) -> Result<Name> {
        let span = self.span();
        match self.peek() {
            PyToken::Name(text) => {
                self.next();
                Ok(Name { text: (*text).into(), span })
            }
            _ => Err(self.unexpected("a name behind `.`")),
        }
    }

    fn call(&mut self, function: PyExpr) -> Result<PyExpr> {
        let span = function.span;
        let (mut positional, mut keywords) = (Vec::new(), Vec::new());
        let mut highest = function.height;
        while !self.eat(")") {
            let at = self.span();
            let value = if let (PyToken::Name(name), PyToken::Punct("=")) = (self.peek(), self.peek_second()) {
                let name = Name { text: (*name).into(), span: at };
                self.next();
                self.next();
                keywords.push((name, self.expression()?));
                &keywords[keywords.len() - 1].1
            } else {
                if !keywords.is_empty() && !self.at_punct("**") && !self.at_punct("*") {
                    let message = "an argument without a name stands behind one with a name";
                    return Err(Diagnostic::user(code::SYNTAX, message).label(at, ""));
                }
                let argument = if self.eat("**") {
                    self.expression()?;
                    PyExpr { kind: ExprKind::Unreadable("`**` among arguments"), span: self.since(at), height: 0 }
                } else {
                    self.element()?
                };
                positional.push(argument);
                &positional[positional.len() - 1]
            };
            highest = highest.max(value.height);
            if self.at_word("for") {
                self.skip_to_close();
                let kind = ExprKind::Unreadable("a comprehension");
                return Ok(PyExpr { kind, span: self.since(span), height: 0 });
            }
            if !self.eat(",") && !self.at_punct(")") {
                return Err(self.unexpected("`,` or `)` behind the argument"));
            }
        }
        let call = CallExpr { function, positional, keywords };
        self.grown(ExprKind::Call(Box::new(call)), self.since(span), highest)
    }

    fn subscript(&mut self) -> Result<(Vec<Index>, u32)> {
        let (mut indices, mut highest) = (Vec::new(), 0);
        while !self.eat("]") {
            let start = if self.at_punct(":") { None } else { Some(self.element()?) };
            highest = highest.max(start.as_ref().map_or(0, |e| e.height));
            let index = if self.eat(":") {
                let stop = self.bound()?;
                let step = if self.eat(":") { self.bound()? } else { None };
                highest = highest.max(stop.iter().chain(&step).map(|e| e.height).max().unwrap_or(0));
                Index::Range { start, stop, step }
            } else {
                Index::At(start.ok_or_else(|| self.unexpected("an index"))?)
            };
            indices.push(index);
            if !self.eat(",") && !self.at_punct("]") {
                return Err(self.unexpected("`,` or `]` behind the index"));
            }
        }
        Ok((indices, highest))
    }

    fn bound(&mut self) -> Result<Option<PyExpr>> {
        let nothing = matches!(self.peek(), PyToken::Punct(":" | "," | "]"));
        Ok(if nothing { None } else { Some(self.expression()?) })
    }

    fn atom(&mut self) -> Result<PyExpr> {
        let span = self.span();
        let kind = match self.peek() {
            PyToken::Int(value) => ExprKind::Int(*value),
            PyToken::Float(value) => ExprKind::Float(*value),
            PyToken::Imaginary(value) => ExprKind::Imaginary(*value),
            PyToken::Str(_) | PyToken::Unreadable => return Ok(self.strings()),
            PyToken::Name("None") => ExprKind::None,
            PyToken::Name("True") => ExprKind::Bool(true),
            PyToken::Name("False") => ExprKind::Bool(false),
            PyToken::Name("lambda") => return Ok(self.lambda()),
            PyToken::Name(name) if !is_keyword(name) => ExprKind::Name((*name).into()),
            PyToken::Punct("...") => ExprKind::Ellipsis,
            PyToken::Punct("(") => return self.bracketed(")"),
            PyToken::Punct("[") => return self.bracketed("]"),
            PyToken::Punct("{") => {
                self.next();
                self.skip_to_close();
                let kind = ExprKind::Unreadable("a dictionary or a set");
                return Ok(PyExpr { kind, span: self.since(span), height: 0 });
            }
            _ => return Err(self.unexpected("a value")),
        };
        self.next();
        Ok(PyExpr { kind, span, height: 0 })
    }

    /// Strings that follow one another are one string.
    fn strings(&mut self) -> PyExpr {
        let start = self.span();
        let (mut text, mut readable) = (String::new(), true);
        loop {
            match self.peek() {
                PyToken::Str(part) => text.push_str(part),
                PyToken::Unreadable => readable = false,
                _ => break,
            }
            self.next();
        }
        let kind = if readable { ExprKind::Str(text) } else { ExprKind::Unreadable("a formatted string") };
        PyExpr { kind, span: self.since(start), height: 0 }
    }

    /// A list, a tuple, or an expression in parentheses.
    fn bracketed(&mut self, close: &str) -> Result<PyExpr> {
        let start = self.span();
        self.next();
        let (mut items, mut comma) = (Vec::new(), false);
        while !self.eat(close) {
            items.push(self.element()?);
            if self.at_word("for") {
                self.skip_to_close();
                let kind = ExprKind::Unreadable("a comprehension");
                return Ok(PyExpr { kind, span: self.since(start), height: 0 });
            }
            let more = self.eat(",");
            comma |= more;
            if !more && !self.at_punct(close) {
                return Err(self.unexpected(&format!("`,` or `{close}`")));
            }
        }
        if close == ")" && items.len() == 1 && !comma {
            let inner = items.remove(0);
            return Ok(PyExpr { span: self.since(start), ..inner });
        }
        let height = height(&items);
        let kind = if close == "]" { ExprKind::List(items) } else { ExprKind::Tuple(items) };
        self.grown(kind, self.since(start), height)
    }

    /// Moves behind the bracket that closes the one before this place.
    fn skip_to_close(&mut self) {
        let mut open = 1usize;
        while open > 0 {
            match self.next() {
                PyToken::Punct("(" | "[" | "{") => open += 1,
                PyToken::Punct(")" | "]" | "}") => open -= 1,
                PyToken::End | PyToken::Newline => return,
                _ => {}
            }
        }
    }

    /// A `lambda` reaches to the comma or bracket behind its body.
    fn lambda(&mut self) -> PyExpr {
        let start = self.span();
        let (mut open, mut body) = (0usize, false);
        loop {
            match self.peek() {
                PyToken::Punct("(" | "[" | "{") => open += 1,
                PyToken::Punct(")" | "]" | "}") if open > 0 => open -= 1,
                PyToken::Punct(")" | "]" | "}") => break,
                PyToken::Punct(",") if open == 0 && body => break,
                PyToken::Punct(":") if open == 0 => body = true,
                PyToken::Newline | PyToken::End => break,
                _ => {}
            }
            self.next();
        }
        PyExpr { kind: ExprKind::Unreadable("a lambda"), span: self.since(start), height: 0 }
    }
}

fn height(items: &[PyExpr]) -> u32 {
    items.iter().map(|item| item.height).max().unwrap_or(0)
}

fn too_deep(span: Span) -> Box<Diagnostic> {
    let message =
        format!("the expression is nested deeper than {MAX_DEPTH} levels or has more than {MAX_HEIGHT} links");
    Diagnostic::user(code::TOO_LARGE, message).label(span, "").note("name the parts of it")
}
