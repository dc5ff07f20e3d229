//! Files and fusions. Errors are collected: after one the parser goes on with
//! the next line, and values whose definition was refused poison their users
//! silently, so that each mistake is reported once.

use super::comments::{Comment, Lines, collect};
use super::cursor::TokenCursor;
use super::lexer::{Lexed, Token, lex};
use super::statement::Body;
use crate::diag::{Diagnostic, Result, Span, code};
use crate::fusion::Fusion;

/// The longest text that is read.
pub const MAX_BYTES: usize = 1 << 20;
/// How many errors of one text are reported.
const MAX_ERRORS: usize = 100;

/// A text with its places.
#[derive(Clone, Debug, Default)]
pub struct ParsedFile {
    /// Fusions without errors, in order.
    pub fusions: Vec<ParsedFusion>,
    /// All comments of the text, in order.
    pub comments: Vec<Comment>,
}

/// A fusion with its places.
#[derive(Clone, Debug)]
pub struct ParsedFusion {
    /// The fusion.
    pub fusion: Fusion,
    /// From `fusion` to the closing brace.
    pub span: Span,
    /// The comments from its first line to the next fusion.
    pub comments: Vec<Comment>,
    /// Its statements, `return` included.
    pub statements: Vec<Statement>,
}

/// A statement's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Its text.
    pub span: Span,
    /// Its line, from 0.
    pub line: u32,
    /// The names it defines; none for `return`.
    pub results: Vec<String>,
}

/// The fusions of a text with places and comments, or all its errors.
pub fn parse(source: &str) -> Result<ParsedFile, Vec<Diagnostic>> {
    let (file, errors) = parse_lossy(source);
    if errors.is_empty() { Ok(file) } else { Err(errors) }
}

/// The one fusion of a text.
pub fn parse_one(source: &str) -> Result<Fusion, Vec<Diagnostic>> {
    let mut fusions = parse(source)?.fusions;
    match (fusions.pop(), fusions.is_empty()) {
        (Some(only), true) => Ok(only.fusion),
        (None, _) => Err(vec![*Diagnostic::user(code::SYNTAX, "the text has no fusion")]),
        (Some(second), false) => {
            Err(vec![*Diagnostic::user(code::SYNTAX, "the text has more than one fusion").label(second.span, "")])
        }
    }
}

/// What could be read, and all errors: both can be had of a text whose
/// comments say which errors it must give.
pub fn parse_lossy(source: &str) -> (ParsedFile, Vec<Diagnostic>) {
    if source.len() > MAX_BYTES {
        let message = format!("the text has {} bytes, the limit is {MAX_BYTES}", source.len());
        return (ParsedFile::default(), vec![*Diagnostic::user(code::TOO_LARGE, message)]);
    }
    let lexed = lex(source);
    let lines = Lines::new(source);
    let comments = collect(source, &lexed, &lines);
    let mut parser =
        FusionParser { cursor: TokenCursor::new(&lexed.tokens), lines: &lines, errors: lexed.errors.clone() };
    let mut fusions = parser.file();
    let mut errors = parser.errors;
    errors.sort_by_key(|error| error.labels.first().map(|label| label.span));
    if errors.len() > MAX_ERRORS {
        errors.truncate(MAX_ERRORS);
        errors
            .push(*Diagnostic::user(code::TOO_LARGE, format!("more than {MAX_ERRORS} errors: the rest is not shown")));
    }
    attach(&mut fusions, &comments);
    (ParsedFile { fusions, comments }, errors)
}

/// The comments of a text, whatever else is in it.
pub fn comments(source: &str) -> Vec<Comment> {
    let source = source.get(..MAX_BYTES).unwrap_or(source);
    let lexed: Lexed<'_> = lex(source);
    collect(source, &lexed, &Lines::new(source))
}

/// Gives each fusion the comments from its start to the next one's.
fn attach(fusions: &mut [ParsedFusion], comments: &[Comment]) {
    for index in 0..fusions.len() {
        let start = fusions[index].span.start;
        let end = fusions.get(index + 1).map_or(u32::MAX, |next| next.span.start);
        fusions[index].comments = comments.iter().filter(|c| (start..end).contains(&c.span.start)).cloned().collect();
    }
}

struct FusionParser<'a> {
    cursor: TokenCursor<'a>,
    lines: &'a Lines,
    errors: Vec<Diagnostic>,
}

impl FusionParser<'_> {
    fn file(&mut self) -> Vec<ParsedFusion> {
        let mut fusions: Vec<ParsedFusion> = Vec::new();
        loop {
            self.cursor.skip_newlines();
            match self.cursor.peek() {
                Token::End => return fusions,
                Token::Word("fusion") => {
                    let errors_before = self.errors.len();
                    let Some(parsed) = self.fusion() else { continue };
                    let twin = fusions.iter().any(|other| other.fusion.name == parsed.fusion.name);
                    if twin {
                        let message = format!("`@{}` is defined twice", parsed.fusion.name);
                        self.error(Diagnostic::user(code::DUPLICATE_NAME, message).label(parsed.span, ""));
                    } else if self.errors.len() == errors_before {
                        fusions.push(parsed);
                    }
                }
                _ => {
                    self.error(self.cursor.unexpected("`fusion @name(...) {`"));
                    self.resynchronise();
                }
            }
        }
    }

    #[expect(clippy::boxed_local, reason = "results carry boxed diagnostics")]
    fn error(&mut self, error: Box<Diagnostic>) {
        // The surplus is cut off later; this bounds the memory of hostile texts.
        if self.errors.len() <= 2 * MAX_ERRORS {
            self.errors.push(*error);
        }
    }

    /// Moves to the next word `fusion` that starts a line.
    fn resynchronise(&mut self) {
        loop {
            while !matches!(self.cursor.peek(), Token::Newline | Token::End) {
                self.cursor.next();
            }
            self.cursor.skip_newlines();
            if matches!(self.cursor.peek(), Token::End | Token::Word("fusion")) {
                return;
            }
        }
    }

    fn fusion(&mut self) -> Option<ParsedFusion> {
        let start = self.cursor.span();
        let errors_before = self.errors.len();
        self.cursor.next();
        let mut body = match self.header() {
            Ok(body) => body,
            Err(error) => {
                self.error(error);
                self.resynchronise();
                return None;
            }
        };
        let statements = self.body(&mut body)?;
        let span = self.cursor.since(start);
        // Without its outputs the fusion is refused for what was refused already.
        if self.errors.len() > errors_before {
            return None;
        }
        match body.builder.finish() {
            Ok(fusion) => Some(ParsedFusion { fusion, span, comments: Vec::new(), statements }),
            Err(error) => {
                let last = Span { start: span.end.saturating_sub(1), end: span.end };
                self.error(error.label(last, ""));
                None
            }
        }
    }

    /// `@name(parameters) {`.
    fn header(&mut self) -> Result<Body> {
        let Token::Global(name) = self.cursor.peek() else {
            return Err(self.cursor.unexpected("the fusion's name, such as `@name`"));
        };
        self.cursor.next();
        self.cursor.expect('(', "after the fusion's name")?;
        let mut body = Body::new(name);
        self.cursor.skip_newlines();
        while !self.cursor.eat(')') {
            let start = self.cursor.mark();
            if let Err(error) = body.parameter(&mut self.cursor) {
                self.error(error);
                self.cursor.rewind(start);
                self.skip_parameter();
            }
            self.cursor.skip_newlines();
            if self.cursor.eat(',') {
                self.cursor.skip_newlines();
            } else if self.cursor.peek() != Token::Punct(')') {
                return Err(self.cursor.unexpected("`,` or `)` after a parameter"));
            }
        }
        self.cursor.skip_newlines();
        self.cursor.expect('{', "after the parameters")?;
        Ok(body)
    }

    /// Moves from a parameter's start to what follows it: its brackets may hold
    /// commas, and one that is never closed ends with the parenthesis around.
    fn skip_parameter(&mut self) {
        let mut open = Vec::new();
        loop {
            match self.cursor.peek() {
                Token::Punct(bracket @ ('(' | '[')) => open.push(bracket),
                Token::Punct(']') if open.last() == Some(&'[') => drop(open.pop()),
                Token::Punct(')') => match open.iter().rposition(|bracket| *bracket == '(') {
                    Some(at) => open.truncate(at),
                    None => return,
                },
                Token::Punct(',') if open.is_empty() => return,
                Token::Newline if open.is_empty() => return,
                Token::Punct('{' | '}') | Token::End => return,
                _ => {}
            }
            self.cursor.next();
        }
    }

    /// Statements to the closing brace; `None` where there is none.
    fn body(&mut self, body: &mut Body) -> Option<Vec<Statement>> {
        let mut statements = Vec::new();
        let mut returned = false;
        loop {
            self.cursor.skip_newlines();
            let start = self.cursor.span();
            match self.cursor.peek() {
                Token::Punct('}') => {
                    self.cursor.next();
                    return Some(statements);
                }
                Token::End | Token::Word("fusion") => {
                    self.error(self.cursor.unexpected("`}` at the end of the fusion"));
                    return None;
                }
                _ => {}
            }
            if returned {
                self.error(self.cursor.unexpected("`}` after `return`"));
                self.skip_statement();
                continue;
            }
            let outcome = if self.cursor.peek() == Token::Word("return") {
                self.cursor.next();
                returned = true;
                body.returns(&mut self.cursor).map(|()| Vec::new())
            } else if self.cursor.peek() == Token::Word("update") {
                self.cursor.next();
                body.updates(&mut self.cursor).map(|()| Vec::new())
            } else {
                body.statement(&mut self.cursor)
            };
            match outcome {
                Ok(results) => {
                    let span = self.cursor.since(start);
                    statements.push(Statement { span, line: self.lines.line(start.start), results });
                }
                Err(error) => {
                    self.error(error);
                    self.skip_statement();
                }
            }
        }
    }

    /// Moves to the end of the line, or before a closing brace that ends it:
    /// a brace in the middle of a refused line belongs to the line.
    fn skip_statement(&mut self) {
        loop {
            self.cursor.skip_line();
            if self.cursor.peek() != Token::Punct('}') || self.cursor.closes_line() {
                return;
            }
            self.cursor.next();
        }
    }
}
