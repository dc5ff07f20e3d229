//! Tokens with their places. Comments are tokens' neighbours, kept apart,
//! because directives live in them.

use super::scanner::{Scanner, is_word};
use crate::diag::{Diagnostic, Span, code};
use crate::num::Value;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// `%name`.
    Value(&'a str),
    /// `@name`.
    Global(&'a str),
    /// A bare word.
    Word(&'a str),
    /// A number: an integer, also as the bits `0x...`; a float, `inf` and
    /// `nan` included; a complex number `1.0-2.5i`.
    Number(Value),
    /// One of `( ) [ ] { } , : = ?`.
    Punct(char),
    /// The end of a line.
    Newline,
    /// The end of the text.
    End,
}

/// A comment's place, marker included.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawComment {
    pub(super) span: Span,
    /// How many tokens precede it.
    pub(super) tokens_before: usize,
}

/// The result of lexing: always complete, whatever the text.
#[derive(Debug, Default)]
pub(super) struct Lexed<'a> {
    pub(super) tokens: Vec<(Token<'a>, Span)>,
    pub(super) comments: Vec<RawComment>,
    pub(super) errors: Vec<Diagnostic>,
}

/// Splits a text of at most [`super::MAX_BYTES`].
pub(super) fn lex(source: &str) -> Lexed<'_> {
    let mut lexer = Lexer { scanner: Scanner::new(source), out: Lexed::default() };
    while let Some(c) = lexer.scanner.peek() {
        lexer.step(c);
    }
    let end = lexer.scanner.span(0);
    lexer.out.tokens.push((Token::Newline, end));
    lexer.out.tokens.push((Token::End, end));
    lexer.out
}

/// Characters of a stray text that are shown.
const SHOWN: usize = 40;

struct Lexer<'a> {
    scanner: Scanner<'a>,
    out: Lexed<'a>,
}

impl<'a> Lexer<'a> {
    fn step(&mut self, c: char) {
        let rest = self.scanner.rest();
        match c {
            '\n' => self.push(Token::Newline, 1),
            c if c.is_whitespace() => self.scanner.skip(c.len_utf8()),
            ';' => self.comment(),
            '/' if rest.starts_with("//") => self.comment(),
            '(' | ')' | '[' | ']' | '{' | '}' | ',' | ':' | '=' | '?' => self.push(Token::Punct(c), 1),
            '%' | '@' => self.sigil(c),
            c if c.is_ascii_alphabetic() || c == '_' => {
                let len = self.scanner.run(0, is_word);
                self.word(&rest[..len]);
            }
            c if c.is_ascii_digit() || c == '-' || c == '.' || c == '+' => self.number(),
            other if !other.is_ascii() => {
                let len = self.scanner.run(0, |c| !c.is_ascii() && !c.is_whitespace());
                self.stray(&rest[..len]);
            }
            other => self.stray(&rest[..other.len_utf8()]),
        }
    }

    fn push(&mut self, token: Token<'a>, len: usize) {
        self.out.tokens.push((token, self.scanner.span(len)));
        self.scanner.skip(len);
    }

    fn error(&mut self, code: crate::diag::Code, message: String, len: usize, note: &str) {
        self.out.errors.push(self.scanner.error(code, message, len, note));
        self.scanner.skip(len);
    }

    fn comment(&mut self) {
        let len = self.scanner.run(0, |c| c != '\n');
        let tokens_before = self.out.tokens.len();
        self.out.comments.push(RawComment { span: self.scanner.span(len), tokens_before });
        self.scanner.skip(len);
    }

    fn sigil(&mut self, sigil: char) {
        // A letter of any script is meant to be one of the name; whoever declares it refuses it, once.
        let len = self.scanner.run(1, |c| is_word(c) || c.is_alphanumeric());
        let name = &self.scanner.rest()[1..1 + len];
        match (len, sigil) {
            (0, _) => self.error(code::SYNTAX, format!("`{sigil}` without a name"), 1, ""),
            (129.., _) => {
                let message = format!("a name of {len} characters is too long");
                self.error(code::TOO_LARGE, message, len + 1, "names have at most 128 characters");
            }
            (_, '%') => self.push(Token::Value(name), len + 1),
            _ => self.push(Token::Global(name), len + 1),
        }
    }

    fn word(&mut self, word: &'a str) {
        if matches!(word, "inf" | "nan")
            && let Some((value, len)) = complex(self.scanner.rest(), word.len())
        {
            return self.push(Token::Number(value), len);
        }
        let token = match word {
            "inf" => Token::Number(Value::Float(f64::INFINITY)),
            "nan" => Token::Number(Value::Float(f64::NAN)),
            "true" => Token::Number(Value::Bool(true)),
            "false" => Token::Number(Value::Bool(false)),
            _ => Token::Word(word),
        };
        self.push(token, word.len());
    }

    /// `REAL`, or a complex number `REAL (+|-) REAL i` or `REAL i`, with
    /// `REAL = [+-] (digits [. digits] [e [+-] digits] | inf | nan)`.
    fn number(&mut self) {
        let rest = self.scanner.rest();
        let len = real_len(rest);
        if let Some((value, len)) = complex(rest, len) {
            return self.push(Token::Number(value), len);
        }
        let text = &rest[..len];
        match parse_number(text) {
            Some(value) => self.push(Token::Number(value), text.len()),
            None => {
                let note =
                    "integers fit 64 bits; floats look like 1.5, -2e-3, inf or nan, complex numbers like 1.5-2.0i";
                let place = self.scanner.span(text.len());
                self.error(code::BAD_NUMBER, format!("`{text}` is not a number"), text.len(), note);
                // A number is what stood here: the statement goes on.
                self.out.tokens.push((Token::Number(Value::Int(0)), place));
            }
        }
    }

    /// What stands for nothing; a word of another script is one mistake.
    fn stray(&mut self, text: &str) {
        let note = if text == "$" { "`$axis` is replaced by the harness, from the axes of the case file" } else { "" };
        let shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
        let what = if text.chars().nth(1).is_some() { "characters" } else { "character" };
        self.error(code::SYNTAX, format!("unexpected {what} `{shown}`"), text.len(), note);
    }
}

/// Length of what stands where a real number does.
fn real_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let start = usize::from(matches!(bytes.first(), Some(b'-' | b'+')));
    let mut end = start;
    while let Some(&byte) = bytes.get(end) {
        let exponent_sign = matches!(byte, b'-' | b'+') && end > start && matches!(bytes[end - 1], b'e' | b'E');
        if !(byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'_' || exponent_sign) {
            break;
        }
        end += 1;
    }
    end
}

/// The complex number at the start of a text whose first real number has this
/// length, with the length of both parts.
fn complex(text: &str, len: usize) -> Option<(Value, usize)> {
    let part = |text: &str| parse_number(text).map(Value::as_f64);
    if let Some(im) = text[..len].strip_suffix('i').and_then(part) {
        return Some((Value::Complex(0.0, im), len));
    }
    let rest = &text[len..];
    let tail = rest.starts_with(['+', '-']).then(|| &rest[..real_len(rest)])?;
    let (re, im) = (part(&text[..len])?, part(tail.strip_suffix('i')?)?);
    Some((Value::Complex(re, im), len + tail.len()))
}

fn parse_number(text: &str) -> Option<Value> {
    if let Some(digits) = text.strip_prefix("0x") {
        let hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
        return if hex {
            u64::from_str_radix(digits, 16).ok().map(|bits| Value::Int(bits.cast_signed()))
        } else {
            None
        };
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    match digits {
        "inf" | "nan" => return text.parse().ok().map(Value::Float),
        _ if !digits.starts_with(|c: char| c.is_ascii_digit()) => return None,
        _ => {}
    }
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().map(Value::Int);
    }
    // What is left is a float of finite value: Rust's own grammar, less its words.
    let plain = digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'-' | b'+'));
    let value: f64 = if plain { text.parse().ok()? } else { return None };
    value.is_finite().then_some(Value::Float(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_or_refused() {
        for (text, expected) in [
            ("-9223372036854775808", Some(Value::Int(i64::MIN))),
            ("9223372036854775808", None),
            ("1e-5", Some(Value::Float(1e-5))),
            ("-2.5", Some(Value::Float(-2.5))),
            ("-inf", Some(Value::Float(f64::NEG_INFINITY))),
            ("1e999", None),
            ("1.2.3", None),
            ("0x10", Some(Value::Int(16))),
            ("0xffffffffffffffff", Some(Value::Int(-1))),
            ("0x10000000000000000", None),
            ("0x", None),
            ("-0x10", None),
            ("0x+1", None),
            ("-", None),
            ("1_000", None),
        ] {
            assert_eq!(parse_number(text), expected, "{text}");
        }
    }

    #[test]
    fn complex_numbers_are_one_token() {
        let inf = f64::INFINITY;
        for (text, expected) in [
            ("1.0+2.0i", Some((1.0, 2.0))),
            ("-1-2i", Some((-1.0, -2.0))),
            ("1e-5-2.5e+3i", Some((1e-5, -2500.0))),
            ("2.5i", Some((0.0, 2.5))),
            ("-2i", Some((0.0, -2.0))),
            ("inf+nani", Some((inf, f64::NAN))),
            ("-inf-infi", Some((-inf, -inf))),
            ("-0.0-0.0i", Some((-0.0, -0.0))),
            ("1-2", None),
            ("1+i", None),
            ("1+2j", None),
            ("infi", None),
        ] {
            let lexed = lex(text);
            match (expected, lexed.tokens[0].0) {
                (Some((re, im)), Token::Number(value)) => {
                    assert_eq!(value, Value::Complex(re, im), "{text}");
                    assert_eq!(lexed.tokens[0].1.end as usize, text.len(), "{text}");
                }
                (None, token) => assert!(!matches!(token, Token::Number(Value::Complex(..))), "{text}"),
                (Some(_), token) => panic!("{text} is {token:?}"),
            }
        }
    }
}
