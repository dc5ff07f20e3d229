//! Statements. Errors are collected: after one the parser goes on with the next
//! line, so that each mistake of a text is reported once.

use super::ast::{ExprKind, FunctionDef, Name, Operator, Parameter, PyExpr, Stmt, StmtKind};
use super::lexer::{Lexed, PyToken, clip};
use engine::diag::{Diagnostic, Result, Span, code};

/// How many errors of one text are kept.
pub(super) const MAX_ERRORS: usize = 100;
/// How deep tuples of the variables of `for` nest.
const MAX_TARGETS: usize = 8;
/// What is said behind a construct that cannot be read.
pub(super) const READABLE: &str = "definitions are made of imports, `def`, assignments, calls such as `fd.ops.add(a, b)`, `with`, `if`, and `for` over a list";

/// A place among the tokens.
pub(super) struct PyParser<'a> {
    tokens: &'a [(PyToken<'a>, Span)],
    at: usize,
    /// Open levels of expressions.
    pub(super) depth: u32,
    pub(super) errors: Vec<Diagnostic>,
}

/// The statements of a text, and its errors.
pub(super) fn parse(lexed: &Lexed<'_>) -> (Vec<Stmt>, Vec<Diagnostic>) {
    let mut parser = PyParser { tokens: &lexed.tokens, at: 0, depth: 0, errors: Vec::new() };
    let mut statements = Vec::new();
    while *parser.peek() != PyToken::End {
        if matches!(parser.peek(), PyToken::Indent) {
            let error = Diagnostic::user(code::SYNTAX, "unexpected indentation").label(parser.span(), "");
            parser.report(error);
        }
        if matches!(parser.peek(), PyToken::Indent | PyToken::Dedent) {
            parser.next();
            continue;
        }
        parser.statement(&mut statements);
    }
    (statements, parser.errors)
}

impl<'a> PyParser<'a> {
    // ---- tokens ----

    pub(super) fn peek(&self) -> &'a PyToken<'a> {
        self.tokens.get(self.at).map_or(&PyToken::End, |token| &token.0)
    }

    pub(super) fn peek_second(&self) -> &'a PyToken<'a> {
        self.tokens.get(self.at + 1).map_or(&PyToken::End, |token| &token.0)
    }

    pub(super) fn span(&self) -> Span {
        self.tokens.get(self.at).or(self.tokens.last()).map(|token| token.1).unwrap_or_default()
    }

    /// From a start to the token before this one.
    pub(super) fn since(&self, start: Span) -> Span {
        let end = self.at.checked_sub(1).and_then(|before| self.tokens.get(before)).map_or(0, |token| token.1.end);
        Span { start: start.start, end: end.max(start.end) }
    }

    pub(super) fn next(&mut self) -> &'a PyToken<'a> {
        let token = self.peek();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    pub(super) fn eat(&mut self, punct: &str) -> bool {
        let found = matches!(self.peek(), PyToken::Punct(p) if *p == punct);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn at_word(&self, word: &str) -> bool {
        matches!(self.peek(), PyToken::Name(name) if *name == word)
    }

    pub(super) fn at_punct(&self, punct: &str) -> bool {
        matches!(self.peek(), PyToken::Punct(p) if *p == punct)
    }

    pub(super) fn expect(&mut self, punct: &str, place: &str) -> Result<()> {
        if self.eat(punct) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{punct}` {place}")))
    }

    pub(super) fn name(&mut self, what: &str) -> Result<Name> {
        let span = self.span();
        match self.peek() {
            PyToken::Name(text) if !is_keyword(text) => {
                self.next();
                Ok(Name { text: (*text).into(), span })
            }
            _ => Err(self.unexpected(what)),
        }
    }

    pub(super) fn unexpected(&self, expected: &str) -> Box<Diagnostic> {
        let found = match self.peek() {
            PyToken::Name(name) => format!("`{}`", clip(name)),
            PyToken::Int(value) => format!("`{value}`"),
            PyToken::Float(value) => format!("`{value:?}`"),
            PyToken::Imaginary(value) => format!("`{value:?}j`"),
            PyToken::Str(_) | PyToken::Unreadable => "a string".into(),
            PyToken::Punct(punct) => format!("`{punct}`"),
            PyToken::Newline => "the end of the line".into(),
            PyToken::Indent => "a deeper block".into(),
            PyToken::Dedent => "the end of the block".into(),
            PyToken::End => "the end of the text".into(),
        };
        Diagnostic::user(code::SYNTAX, format!("expected {expected}, found {found}")).label(self.span(), "")
    }

    #[expect(clippy::boxed_local, reason = "errors travel boxed")]
    pub(super) fn report(&mut self, error: Box<Diagnostic>) {
        if self.errors.len() <= 2 * MAX_ERRORS {
            self.errors.push(*error);
        }
    }

    /// Moves behind the end of the line, and behind the block that follows it.
    fn skip_statement(&mut self) {
        while !matches!(self.peek(), PyToken::Newline | PyToken::End) {
            self.next();
        }
        if *self.peek() == PyToken::Newline {
            self.next();
        }
        if *self.peek() == PyToken::Indent {
            self.skip_block();
        }
    }

    fn skip_block(&mut self) {
        let mut open = 0usize;
        loop {
            match self.peek() {
                PyToken::Indent => open += 1,
                PyToken::Dedent => open -= 1,
                PyToken::End => return,
                _ => {}
            }
            self.next();
            if open == 0 {
                return;
            }
        }
    }

    // ---- statements ----

    fn statement(&mut self, out: &mut Vec<Stmt>) {
        let start = self.span();
        match self.compound(start) {
            Ok(Some(kind)) => out.push(Stmt { kind, span: self.since(start) }),
            Ok(None) => {
                if let Err(error) = self.simple_line(out) {
                    self.report(error);
                    self.skip_statement();
                }
            }
            Err(error) => {
                self.report(error);
                self.skip_statement();
            }
        }
    }

    /// A statement that has a block, if one starts here.
    fn compound(&mut self, start: Span) -> Result<Option<StmtKind>> {
        while self.at_punct("@") {
            // Decorators say how a test runs, not what is computed.
            while !matches!(self.next(), PyToken::Newline | PyToken::End) {}
        }
        let PyToken::Name(word) = self.peek() else { return Ok(None) };
        match *word {
            "def" => self.function().map(Some),
            "with" => self.with().map(Some),
            "if" => {
                self.next();
                self.condition().map(Some)
            }
            "for" => self.for_loop().map(Some),
            "class" | "while" | "try" | "async" | "raise" | "match" | "yield" | "elif" | "else" | "except"
            | "finally"
                if !matches!(self.peek_second(), PyToken::Punct("=" | "." | "," | ")")) =>
            {
                Err(Diagnostic::user(code::PY_CONSTRUCT, format!("`{word}` is not read"))
                    .label(start, "")
                    .note(READABLE))
            }
            _ => Ok(None),
        }
    }

    fn function(&mut self) -> Result<StmtKind> {
        self.next();
        let name = self.name("a name behind `def`")?;
        self.expect("(", "behind the function's name")?;
        let mut parameters = Vec::new();
        while !self.eat(")") {
            // `*`, `**` and `/` say how arguments are passed.
            if self.eat("*") || self.eat("**") || self.eat("/") {
                self.eat(",");
                continue;
            }
            let name = self.name("a parameter's name")?;
            let annotation = if self.eat(":") { Some(self.expression()?) } else { None };
            let default = if self.eat("=") { Some(self.expression()?) } else { None };
            parameters.push(Parameter { name, annotation, default });
            if !self.eat(",") && !self.at_punct(")") {
                return Err(self.unexpected("`,` or `)` behind the parameter"));
            }
        }
        if self.eat("->") {
            self.expression()?;
        }
        let body = self.block("behind the function's head")?;
        Ok(StmtKind::Def(FunctionDef { name, parameters, body }))
    }

    fn with(&mut self) -> Result<StmtKind> {
        self.next();
        let mut items = Vec::new();
        // Parentheses around several contexts.
        let wrapped = self.at_punct("(") && self.wrapped_contexts();
        if wrapped {
            self.next();
        }
        loop {
            let context = self.expression()?;
            let name = if self.eat_word("as") { Some(self.name("a name behind `as`")?) } else { None };
            items.push((context, name));
            if !self.eat(",") || (wrapped && self.at_punct(")")) {
                break;
            }
        }
        if wrapped {
            self.expect(")", "behind the contexts")?;
        }
        let body = self.block("behind `with`")?;
        Ok(StmtKind::With { items, body })
    }

    /// Whether the parenthesis here is closed right before the `:` of a `with`.
    fn wrapped_contexts(&self) -> bool {
        let mut open = 0usize;
        for (i, (token, _)) in self.tokens[self.at..].iter().enumerate() {
            match token {
                PyToken::Punct("(" | "[" | "{") => open += 1,
                PyToken::Punct(")" | "]" | "}") => open = open.saturating_sub(1),
                PyToken::Newline | PyToken::End => return false,
                _ => {}
            }
            if open == 0 {
                return matches!(self.tokens.get(self.at + i + 1), Some((PyToken::Punct(":"), _)));
            }
        }
        false
    }

    /// Behind `if` or `elif`; chains of `elif` are read without recursion.
    fn condition(&mut self) -> Result<StmtKind> {
        let mut arms = vec![(self.expression()?, self.block("behind the condition")?)];
        let mut otherwise = Vec::new();
        loop {
            if self.eat_word("elif") {
                arms.push((self.expression()?, self.block("behind the condition")?));
                if arms.len() > 64 {
                    let message = "an `if` has more than 64 branches";
                    return Err(Diagnostic::user(code::TOO_LARGE, message).label(self.span(), ""));
                }
            } else {
                if self.eat_word("else") {
                    otherwise = self.block("behind `else`")?;
                }
                break;
            }
        }
        let (first, body) = arms.remove(0);
        for (condition, body) in arms.into_iter().rev() {
            let span = condition.span;
            otherwise = vec![Stmt { kind: StmtKind::If { condition, body, otherwise }, span }];
        }
        Ok(StmtKind::If { condition: first, body, otherwise })
    }

    fn for_loop(&mut self) -> Result<StmtKind> {
        self.next();
        let target = self.targets()?;
        if !self.eat_word("in") {
            return Err(self.unexpected("`in` behind the variable of `for`"));
        }
        let values = self.expression_list()?;
        let body = self.block("behind `for`")?;
        Ok(StmtKind::For { target, values, body })
    }

    /// The variables of `for`, which end before `in`; tuples of them may nest.
    fn targets(&mut self) -> Result<PyExpr> {
        let start = self.span();
        let mut open: Vec<Vec<PyExpr>> = vec![Vec::new()];
        loop {
            if self.eat("(") {
                if open.len() == MAX_TARGETS {
                    let message = format!("the variables of `for` nest deeper than {MAX_TARGETS} levels");
                    return Err(Diagnostic::user(code::TOO_LARGE, message).label(self.span(), ""));
                }
                open.push(Vec::new());
                continue;
            }
            let name = self.name("a variable behind `for`")?;
            let mut item = PyExpr { kind: ExprKind::Name(name.text), span: name.span, height: 0 };
            while open.len() > 1 && self.at_punct(")") {
                self.next();
                let mut items = open.pop().unwrap_or_default();
                items.push(item);
                item = tuple(items, self.since(start));
            }
            if let Some(innermost) = open.last_mut() {
                innermost.push(item);
            }
            if !self.eat(",") {
                break;
            }
        }
        if open.len() > 1 {
            return Err(self.unexpected("`)` behind the variables of `for`"));
        }
        let mut items = open.pop().unwrap_or_default();
        if items.len() == 1 {
            return Ok(items.remove(0));
        }
        Ok(tuple(items, self.since(start)))
    }

    /// `:` and the block behind it, which may be on the same line.
    fn block(&mut self, place: &str) -> Result<Vec<Stmt>> {
        self.expect(":", place)?;
        let mut body = Vec::new();
        if *self.peek() != PyToken::Newline {
            self.simple_line(&mut body)?;
            return Ok(body);
        }
        self.next();
        if *self.peek() != PyToken::Indent {
            return Err(self.unexpected("an indented block"));
        }
        self.next();
        loop {
            match self.peek() {
                PyToken::Dedent => {
                    self.next();
                    return Ok(body);
                }
                PyToken::End => return Ok(body),
                PyToken::Indent => {
                    let error = Diagnostic::user(code::SYNTAX, "unexpected indentation").label(self.span(), "");
                    self.report(error);
                    self.skip_block();
                }
                _ => self.statement(&mut body),
            }
        }
    }

    /// Statements of one line, separated by `;`.
    fn simple_line(&mut self, out: &mut Vec<Stmt>) -> Result<()> {
        loop {
            if *self.peek() == PyToken::Newline {
                self.next();
                return Ok(());
            }
            let start = self.span();
            let kind = self.simple()?;
            out.push(Stmt { kind, span: self.since(start) });
            match self.peek() {
                PyToken::Punct(";") => {
                    self.next();
                }
                PyToken::Newline => {}
                PyToken::End => return Ok(()),
                _ => return Err(self.unexpected("the end of the statement")),
            }
        }
    }

    fn simple(&mut self) -> Result<StmtKind> {
        if let PyToken::Name(word) = self.peek() {
            match *word {
                "import" => return self.import(),
                "from" => return self.names_of_module(),
                "return" => {
                    self.next();
                    let nothing = matches!(self.peek(), PyToken::Newline | PyToken::End | PyToken::Punct(";"));
                    return Ok(StmtKind::Return(if nothing { None } else { Some(self.expression_list()?) }));
                }
                "pass" | "break" | "continue" | "assert" | "del" | "global" | "nonlocal" => {
                    while !matches!(self.peek(), PyToken::Newline | PyToken::End) {
                        self.next();
                    }
                    return Ok(StmtKind::Nothing);
                }
                _ => {}
            }
        }
        self.assignment()
    }

    fn assignment(&mut self) -> Result<StmtKind> {
        let first = self.expression_list()?;
        if let Some(operator) = self.augmented() {
            self.next();
            let value = self.expression_list()?;
            return Ok(StmtKind::Augmented { target: first, operator, value });
        }
        if self.eat(":") {
            // `x: int = 5`.
            self.expression()?;
        }
        let mut parts = vec![first];
        while self.eat("=") {
            parts.push(self.expression_list()?);
            if parts.len() > 64 {
                let message = "more than 64 targets are assigned at once";
                return Err(Diagnostic::user(code::TOO_LARGE, message).label(self.span(), ""));
            }
        }
        let value = parts.pop().ok_or_else(|| Diagnostic::bug("an assignment without a value"))?;
        if parts.is_empty() {
            return Ok(StmtKind::Expr(value));
        }
        Ok(StmtKind::Assign { targets: parts, value })
    }

    fn augmented(&self) -> Option<Operator> {
        let PyToken::Punct(punct) = self.peek() else { return None };
        Some(match *punct {
            "+=" => Operator::Add,
            "-=" => Operator::Sub,
            "*=" => Operator::Mul,
            "/=" => Operator::Div,
            "//=" => Operator::FloorDiv,
            "%=" => Operator::Mod,
            "**=" => Operator::Pow,
            "&=" => Operator::BitAnd,
            "|=" => Operator::BitOr,
            "^=" => Operator::BitXor,
            "<<=" => Operator::ShiftLeft,
            ">>=" => Operator::ShiftRight,
            "@=" => Operator::MatMul,
            _ => return None,
        })
    }

    fn import(&mut self) -> Result<StmtKind> {
        self.next();
        let mut names = Vec::new();
        loop {
            let path = self.dotted()?;
            let bound = match self.eat_word("as") {
                true => (self.name("a name behind `as`")?.text, path),
                // `import a.b` binds `a`.
                false => {
                    let first = path.split('.').next().unwrap_or_default().to_string();
                    (first.clone(), first)
                }
            };
            names.push(bound);
            if !self.eat(",") {
                return Ok(StmtKind::Import(names));
            }
        }
    }

    /// `from module import name as other, ...`.
    fn names_of_module(&mut self) -> Result<StmtKind> {
        self.next();
        let module = self.dotted()?;
        if !self.eat_word("import") {
            return Err(self.unexpected("`import`"));
        }
        let mut names = Vec::new();
        if self.eat("*") {
            return Ok(StmtKind::Import(names));
        }
        let wrapped = self.eat("(");
        loop {
            let name = self.name("a name to import")?;
            let bound = if self.eat_word("as") { self.name("a name behind `as`")? } else { name.clone() };
            names.push((bound.text, format!("{module}.{}", name.text)));
            if !self.eat(",") || (wrapped && self.at_punct(")")) {
                break;
            }
        }
        if wrapped {
            self.expect(")", "behind the imported names")?;
        }
        Ok(StmtKind::Import(names))
    }

    fn dotted(&mut self) -> Result<String> {
        let mut path = String::new();
        while self.eat(".") {}
        path.push_str(&self.name("a module's name")?.text);
        while self.eat(".") {
            path.push('.');
            path.push_str(&self.name("a module's name")?.text);
        }
        Ok(path)
    }
}

/// A tuple of variables.
fn tuple(items: Vec<PyExpr>, span: Span) -> PyExpr {
    let height = items.iter().map(|item| item.height).max().unwrap_or(0) + 1;
    PyExpr { kind: ExprKind::Tuple(items), span, height }
}

/// Words that are no names.
pub(super) fn is_keyword(word: &str) -> bool {
    matches!(
        word,
        "and"
            | "as"
            | "assert"
            | "break"
            | "class"
            | "continue"
            | "def"
            | "del"
            | "elif"
            | "else"
            | "except"
            | "finally"
            | "for"
            | "from"
            | "global"
            | "if"
            | "import"
            | "in"
            | "is"
            | "lambda"
            | "nonlocal"
            | "not"
            | "or"
            | "pass"
            | "raise"
            | "return"
            | "try"
            | "while"
            | "with"
            | "yield"
            | "True"
            | "False"
            | "None"
    )
}
