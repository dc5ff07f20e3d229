//! Tokens of a Python text. Line structure becomes tokens: a logical line ends
//! with [`PyToken::Newline`], and deeper or shallower indentation is
//! [`PyToken::Indent`] and [`PyToken::Dedent`]. Inside brackets lines do not end.

use engine::diag::{Code, Diagnostic, Span, code};
use engine::text::{Scanner, is_word};

/// The deepest nesting of blocks.
const MAX_BLOCKS: usize = 16;
/// The longest name.
const MAX_NAME: usize = 128;

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PyToken<'a> {
    /// A name or a keyword.
    Name(&'a str),
    /// An integer.
    Int(i128),
    /// A number with a point or an exponent.
    Float(f64),
    /// The same with a `j` behind it.
    Imaginary(f64),
    /// A string, without quotes and with its escapes replaced.
    Str(String),
    /// A string with a prefix that makes it something else: `f""`, `b""`.
    Unreadable,
    /// An operator, a bracket or another mark.
    Punct(&'static str),
    /// The end of a logical line.
    Newline,
    /// A deeper block starts.
    Indent,
    /// A block ends.
    Dedent,
    /// The end of the text.
    End,
}

/// The result of lexing: always complete, whatever the text.
#[derive(Debug, Default)]
pub(super) struct Lexed<'a> {
    pub(super) tokens: Vec<(PyToken<'a>, Span)>,
    pub(super) errors: Vec<Diagnostic>,
}

/// Longer marks stand before their beginnings.
const PUNCTS: [&str; 47] = [
    "**=", "//=", ">>=", "<<=", "...", "!=", "->", ":=", "**", "//", "<<", ">>", "<=", ">=", "==", "+=", "-=", "*=",
    "/=", "%=", "@=", "&=", "|=", "^=", "(", ")", "[", "]", "{", "}", ",", ":", ".", ";", "=", "+", "-", "*", "/", "%",
    "@", "&", "|", "^", "~", "<", ">",
];

/// Splits a text of at most [`super::MAX_BYTES`].
pub(super) fn lex(source: &str) -> Lexed<'_> {
    let mut lexer = Lexer {
        scanner: Scanner::new(source),
        brackets: 0,
        indents: Vec::new(),
        line_is_empty: true,
        out: Lexed::default(),
    };
    lexer.indentation();
    while let Some(c) = lexer.scanner.peek() {
        lexer.step(c);
    }
    lexer.brackets = 0;
    lexer.end_line(0);
    let end = lexer.scanner.span(0);
    for _ in 0..lexer.indents.len() {
        lexer.out.tokens.push((PyToken::Dedent, end));
    }
    lexer.out.tokens.push((PyToken::End, end));
    lexer.out
}

struct Lexer<'a> {
    scanner: Scanner<'a>,
    /// Brackets that are open.
    brackets: usize,
    /// The columns of the open blocks, outermost first; the outermost text is at column 0.
    indents: Vec<usize>,
    line_is_empty: bool,
    out: Lexed<'a>,
}

impl<'a> Lexer<'a> {
    fn step(&mut self, c: char) {
        let rest = self.scanner.rest();
        match c {
            '\n' => {
                self.end_line(1);
                if self.brackets == 0 {
                    self.indentation();
                }
            }
            '\\' if rest.starts_with("\\\n") => self.scanner.skip(2),
            '\\' if rest.starts_with("\\\r\n") => self.scanner.skip(3),
            '\u{feff}' if self.scanner.is_at_start() => self.scanner.skip(c.len_utf8()),
            c if c.is_whitespace() => self.scanner.skip(c.len_utf8()),
            '#' => self.scanner.skip(self.scanner.run(0, |c| c != '\n')),
            '"' | '\'' => self.string(0),
            c if c.is_ascii_digit() => self.number(),
            '.' if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => self.number(),
            c if c.is_ascii_alphabetic() || c == '_' => self.word(),
            _ => self.punct(c),
        }
    }

    fn push(&mut self, token: PyToken<'a>, len: usize) {
        self.out.tokens.push((token, self.scanner.span(len)));
        self.scanner.skip(len);
        self.line_is_empty = false;
    }

    fn error(&mut self, code: Code, message: impl Into<String>, len: usize, note: &str) {
        self.out.errors.push(self.scanner.error(code, message, len, note));
    }

    fn end_line(&mut self, len: usize) {
        if self.brackets == 0 && !self.line_is_empty {
            self.out.tokens.push((PyToken::Newline, self.scanner.span(0)));
            self.line_is_empty = true;
        }
        self.scanner.skip(len);
    }

    /// At the start of a line: compares its column with the open blocks'. Lines
    /// that hold nothing or a comment only do not count.
    fn indentation(&mut self) {
        let rest = self.scanner.rest();
        let blank = self.scanner.run(0, |c| c == ' ' || c == '\t');
        let after = &rest[blank..];
        if after.is_empty() || after.starts_with(['\n', '#']) || after.starts_with("\r\n") {
            return;
        }
        // A tab goes to the next multiple of eight, as in Python.
        let column =
            rest[..blank].bytes().fold(0, |column, b| if b == b'\t' { column / 8 * 8 + 8 } else { column + 1 });
        let place = self.scanner.span(blank);
        let current = self.indents.last().copied().unwrap_or(0);
        if column > current {
            if self.indents.len() == MAX_BLOCKS {
                let message = format!("blocks are nested deeper than {MAX_BLOCKS} levels");
                self.error(code::TOO_LARGE, message, blank, "");
            } else {
                self.indents.push(column);
                self.out.tokens.push((PyToken::Indent, place));
            }
            return;
        }
        while self.indents.last().is_some_and(|&open| open > column) {
            self.indents.pop();
            self.out.tokens.push((PyToken::Dedent, place));
        }
        if self.indents.last().copied().unwrap_or(0) != column {
            self.error(code::SYNTAX, "the indentation matches no block around it", blank, "");
        }
    }

    fn word(&mut self) {
        let rest = self.scanner.rest();
        let len = self.scanner.run(0, is_word);
        if rest[len..].starts_with(['"', '\'']) && len <= 2 {
            return self.string(len);
        }
        if len > MAX_NAME {
            let message = format!("a name of {len} characters is too long");
            self.error(code::TOO_LARGE, message, len, "names have at most 128 characters");
        }
        self.push(PyToken::Name(&rest[..len]), len);
    }

    fn punct(&mut self, c: char) {
        let rest = self.scanner.rest();
        let Some(punct) = PUNCTS.into_iter().find(|punct| rest.starts_with(punct)) else {
            let shown: String = c.escape_debug().collect();
            self.error(code::SYNTAX, format!("unexpected character `{shown}`"), c.len_utf8(), "");
            self.scanner.skip(c.len_utf8());
            return;
        };
        match punct {
            "(" | "[" | "{" => self.brackets += 1,
            ")" | "]" | "}" => self.brackets = self.brackets.saturating_sub(1),
            _ => {}
        }
        self.push(PyToken::Punct(punct), punct.len());
    }

    fn number(&mut self) {
        let rest = self.scanner.rest();
        let bytes = rest.as_bytes();
        let hex = bytes.starts_with(b"0x") || bytes.starts_with(b"0X");
        let mut len = 0;
        while let Some(&byte) = bytes.get(len) {
            let sign = len > 0 && !hex && matches!(byte, b'+' | b'-') && matches!(bytes[len - 1], b'e' | b'E');
            if !(byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_') || sign) {
                break;
            }
            len += 1;
        }
        let text = &rest[..len];
        let token = number(text).unwrap_or_else(|| {
            let note = "numbers look like 12, -3, 1.5, 1e-05, 0x1f or 2j";
            self.error(code::BAD_NUMBER, format!("`{}` is not a number", clip(text)), len, note);
            PyToken::Int(0)
        });
        self.push(token, len);
    }

    /// A string whose prefix has the given length.
    fn string(&mut self, prefix: usize) {
        let rest = self.scanner.rest();
        let (head, body) = rest.split_at(prefix);
        let quote = &body[..1];
        let triple = body.get(..3).filter(|three| *three == quote.repeat(3));
        let mark = triple.unwrap_or(quote);
        let raw = head.eq_ignore_ascii_case("r");
        let mut text = String::new();
        let mut at = mark.len();
        loop {
            let left = &body[at..];
            let Some(c) = left.chars().next().filter(|&c| c != '\n' || triple.is_some()) else {
                self.error(code::SYNTAX, "a string has no end", (prefix + at).min(rest.len()), "");
                return self.push(PyToken::Str(text), prefix + at);
            };
            if left.starts_with(mark) {
                at += mark.len();
                break;
            }
            let mut taken = c.len_utf8();
            if c == '\\' && !raw {
                let next = left[1..].chars().next();
                taken += next.map_or(0, char::len_utf8);
                match next {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('\n') | None => {}
                    Some(other) => text.push(other),
                }
            } else {
                text.push(c);
            }
            at += taken;
        }
        let readable = head.is_empty() || raw || head.eq_ignore_ascii_case("u");
        self.push(if readable { PyToken::Str(text) } else { PyToken::Unreadable }, prefix + at);
    }
}

/// At most 40 characters of a text, for messages.
pub(super) fn clip(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}

fn number(text: &str) -> Option<PyToken<'static>> {
    if text.starts_with('_') || text.ends_with('_') || text.contains("__") {
        return None;
    }
    let plain = text.replace('_', "");
    for (prefix, radix) in [("0x", 16), ("0b", 2), ("0o", 8)] {
        if plain.get(..2).is_some_and(|head| head.eq_ignore_ascii_case(prefix)) {
            let digits = &plain[2..];
            let good = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
            return if good { i128::from_str_radix(digits, radix).ok().map(PyToken::Int) } else { None };
        }
    }
    let (digits, imaginary) = match plain.strip_suffix(['j', 'J']) {
        Some(digits) => (digits, true),
        None => (plain.as_str(), false),
    };
    let whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if whole && !imaginary {
        // `012` is no number in Python, `000` is.
        let leading = digits.len() > 1 && digits.starts_with('0') && digits.bytes().any(|b| b != b'0');
        return if leading { None } else { digits.parse().ok().map(PyToken::Int) };
    }
    // Rust's grammar of floats, less its words.
    let float = digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'-' | b'+'));
    let value: f64 = if float { digits.parse().ok()? } else { return None };
    Some(if imaginary { PyToken::Imaginary(value) } else { PyToken::Float(value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<String> {
        let lexed = lex(source);
        let mut all: Vec<String> = lexed.tokens.iter().map(|(token, _)| format!("{token:?}")).collect();
        all.extend(lexed.errors.iter().map(|e| format!("{} {}", e.code, e.message)));
        all
    }

    #[test]
    fn numbers_as_in_python() {
        for (text, expected) in [
            ("12", Some(PyToken::Int(12))),
            ("0x1F", Some(PyToken::Int(31))),
            ("1_000", Some(PyToken::Int(1000))),
            ("18446744073709551615", Some(PyToken::Int(u64::MAX.into()))),
            ("00", Some(PyToken::Int(0))),
            ("012", None),
            ("1__0", None),
            ("1.00000", Some(PyToken::Float(1.0))),
            ("1e-05", Some(PyToken::Float(1e-5))),
            ("5.", Some(PyToken::Float(5.0))),
            (".5", Some(PyToken::Float(0.5))),
            ("1e999", Some(PyToken::Float(f64::INFINITY))),
            ("0.00000j", Some(PyToken::Imaginary(0.0))),
            ("2J", Some(PyToken::Imaginary(2.0))),
            ("1.2.3", None),
            ("0x", None),
            ("1x", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }

    #[test]
    fn lines_and_blocks() {
        let source = "def f(a,\n      b):\n    x = 1  # why\n\n  # comment\n    y = [2,\n3]\nz";
        assert_eq!(
            kinds(source).join(" ").replace("Name(\"", "").replace("Punct(\"", "").replace("\")", ""),
            "def f ( a , b ) : Newline Indent x = Int(1) Newline y = [ Int(2) , Int(3) ] Newline Dedent z Newline End"
        );
        assert_eq!(
            kinds("if a:\n    b\n  c").last().map(String::as_str),
            Some("E0101 the indentation matches no block around it")
        );
    }

    #[test]
    fn strings_and_their_ends() {
        assert_eq!(kinds("'a\\'b'")[0], "Str(\"a'b\")");
        assert_eq!(kinds("\"\"\"a\n\"b\"\"\"")[0], "Str(\"a\\n\\\"b\")");
        assert_eq!(kinds("r'\\n'")[0], "Str(\"\\\\n\")");
        assert_eq!(kinds("f'{x}'")[0], "Unreadable");
        assert_eq!(kinds("'abc\nx").last().map(String::as_str), Some("E0101 a string has no end"));
        assert_eq!(kinds("'''abc").last().map(String::as_str), Some("E0101 a string has no end"));
        assert_eq!(kinds("'\\").last().map(String::as_str), Some("E0101 a string has no end"));
    }
}
