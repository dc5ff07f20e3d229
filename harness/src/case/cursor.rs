//! The small reader that all directives share: words, numbers, strings,
//! punctuation and integer expressions, with places that lead back to the file.

use super::source::{ExpandedText, Fault};

/// A position in substituted text. White space is skipped before each token.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    text: &'a ExpandedText,
    pos: usize,
    end: usize,
    depth: u32,
}

/// Parentheses may nest this deep in an expression.
const MAX_DEPTH: u32 = 64;

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a ExpandedText) -> Self {
        Self { text, pos: 0, end: text.text.trim_end().len(), depth: 0 }
    }

    fn rest(&self) -> &'a str {
        &self.text.text[self.pos.min(self.end)..self.end]
    }

    fn skip(&mut self) {
        self.pos += self.rest().len() - self.rest().trim_start().len();
    }

    pub(crate) fn at_end(&mut self) -> bool {
        self.skip();
        self.rest().is_empty()
    }

    /// Offset in the file of the next token.
    pub(crate) fn here(&mut self) -> usize {
        self.skip();
        self.text.origin(self.pos)
    }

    pub(crate) fn fault(&mut self, message: impl Into<String>) -> Fault {
        Fault::directive(self.here(), message)
    }

    fn unexpected(&mut self, wanted: &str) -> Fault {
        self.skip();
        let found: String = self.rest().chars().take_while(|c| !c.is_whitespace()).take(24).collect();
        match found.is_empty() {
            true => self.fault(format!("expected {wanted}, found the end of the line")),
            false => self.fault(format!("expected {wanted}, found `{found}`")),
        }
    }

    pub(crate) fn peek(&mut self) -> Option<char> {
        self.skip();
        self.rest().chars().next()
    }

    /// Takes `token` if it is next. Words match whole.
    pub(crate) fn take(&mut self, token: &str) -> bool {
        self.skip();
        let Some(after) = self.rest().strip_prefix(token) else { return false };
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if token.ends_with(is_word) && after.starts_with(is_word) {
            return false;
        }
        self.pos += token.len();
        true
    }

    pub(crate) fn expect(&mut self, token: &str) -> Result<(), Fault> {
        if self.take(token) { Ok(()) } else { Err(self.unexpected(&format!("`{token}`"))) }
    }

    /// A word of letters, digits and `_`; `%` and a leading digit are allowed
    /// since values of fusions are named `%0`.
    pub(crate) fn word(&mut self, what: &str) -> Result<&'a str, Fault> {
        self.skip();
        let rest = self.rest();
        let len = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        if len == 0 {
            return Err(self.unexpected(what));
        }
        self.pos += len;
        Ok(&rest[..len])
    }

    pub(crate) fn string(&mut self) -> Result<String, Fault> {
        if !self.take("\"") {
            return Err(self.unexpected("a string in double quotes"));
        }
        let mut out = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.pos += i + 1;
                    return Ok(out);
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => out.push('\n'),
                    Some((_, c @ ('"' | '\\'))) => out.push(c),
                    _ => return Err(self.fault("unknown escape in a string: only \\\" \\\\ \\n exist")),
                },
                c => out.push(c),
            }
        }
        Err(self.fault("the string is not closed"))
    }

    /// Up to the next comma, closing bracket or end, trimmed; for values whose
    /// form the caller checks.
    pub(crate) fn bare(&mut self, what: &str) -> Result<&'a str, Fault> {
        self.skip();
        let rest = self.rest();
        let len = rest.find([',', ')', ']']).unwrap_or(rest.len());
        let found = rest[..len].trim_end();
        if found.is_empty() {
            return Err(self.unexpected(what));
        }
        self.pos += len;
        Ok(found)
    }

    /// The rest of the text, trimmed.
    pub(crate) fn line(&mut self) -> &'a str {
        self.skip();
        let rest = self.rest().trim_end();
        self.pos = self.end;
        rest
    }

    /// `open item, item, ... close`; an empty list is allowed.
    pub(crate) fn list<T>(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        self.expect(open)?;
        let mut items = Vec::new();
        if self.take(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.take(close) {
                return Ok(items);
            }
            if !self.take(",") {
                return Err(self.unexpected(&format!("`,` or `{close}`")));
            }
        }
    }

    /// A literal floating-point number, `inf`, `nan`, or an integer.
    pub(crate) fn real(&mut self) -> Result<f64, Fault> {
        let word = match self.float_token() {
            Some(token) => token,
            None => return Err(self.unexpected("a number")),
        };
        let value = word.parse::<f64>().map_err(|_| self.unexpected("a number"))?;
        self.pos += word.len();
        Ok(value)
    }

    /// The characters of a floating-point literal that is next, if one is.
    fn float_token(&mut self) -> Option<&'a str> {
        self.skip();
        let rest = self.rest();
        let sign = usize::from(rest.starts_with(['-', '+']));
        for word in ["inf", "nan"] {
            if rest[sign..].starts_with(word) {
                return Some(&rest[..sign + word.len()]);
            }
        }
        let body = &rest.as_bytes()[sign..];
        let mut len = 0;
        while len < body.len() {
            let exponent_sign = matches!(body[len], b'+' | b'-') && len > 0 && matches!(body[len - 1], b'e' | b'E');
            if !(body[len].is_ascii_digit() || matches!(body[len], b'.' | b'e' | b'E') || exponent_sign) {
                break;
            }
            len += 1;
        }
        (len > 0 && (body[0].is_ascii_digit() || body[0] == b'.')).then(|| &rest[..sign + len])
    }

    /// A complex number `REAL+REALi` or `REALi`, without spaces, if one is next.
    pub(crate) fn complex(&mut self) -> Option<(f64, f64)> {
        let mut ahead = self.clone();
        let first = ahead.float_token()?;
        ahead.pos += first.len();
        let part = |token: &str| token.parse::<f64>().ok();
        let number = if ahead.imaginary_unit() {
            (0.0, part(first)?)
        } else {
            let second = if ahead.rest().starts_with(['+', '-']) { ahead.float_token()? } else { return None };
            ahead.pos += second.len();
            if !ahead.imaginary_unit() {
                return None;
            }
            (part(first)?, part(second)?)
        };
        *self = ahead;
        Some(number)
    }

    /// Takes an `i` that is a word's end.
    fn imaginary_unit(&mut self) -> bool {
        let rest = self.rest();
        let ends = rest.strip_prefix('i').is_some_and(|tail| !tail.starts_with(|c: char| c.is_ascii_alphanumeric()));
        self.pos += usize::from(ends);
        ends
    }

    /// Whether the next number is written as a floating-point literal.
    pub(crate) fn next_is_float(&mut self) -> bool {
        self.float_token().is_some_and(|token| token.contains(['.', 'e', 'E', 'i', 'n']))
    }

    /// An integer expression: `+ - * / %` (rounding down), parentheses,
    /// `min(a, b)`, `max(a, b)`, `ceildiv(a, b)`. Overflow is an error.
    pub(crate) fn int(&mut self) -> Result<i64, Fault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.fault("the expression nests too deep"));
        }
        let mut value = self.product()?;
        loop {
            let at = self.here();
            value = if self.take("+") {
                checked(at, value.checked_add(self.product()?))?
            } else if self.take("-") {
                checked(at, value.checked_sub(self.product()?))?
            } else {
                self.depth -= 1;
                return Ok(value);
            };
        }
    }

    fn product(&mut self) -> Result<i64, Fault> {
        let mut value = self.factor()?;
        loop {
            let at = self.here();
            value = if self.take("*") {
                checked(at, value.checked_mul(self.factor()?))?
            } else if self.take("/") {
                divided(at, value, self.factor()?, i64::checked_div_euclid)?
            } else if self.take("%") {
                divided(at, value, self.factor()?, i64::checked_rem_euclid)?
            } else {
                return Ok(value);
            };
        }
    }

    fn factor(&mut self) -> Result<i64, Fault> {
        let at = self.here();
        if self.take("(") {
            let value = self.int()?;
            self.expect(")")?;
            return Ok(value);
        }
        if self.take("-") {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(self.fault("the expression nests too deep"));
            }
            let value = self.factor()?;
            self.depth -= 1;
            return checked(at, value.checked_neg());
        }
        for name in ["min", "max", "ceildiv"] {
            if self.take(name) {
                let args = self.list("(", ")", Cursor::int)?;
                let [a, b] = args[..] else {
                    return Err(Fault::directive(at, format!("`{name}` takes 2 arguments, {} given", args.len())));
                };
                return match name {
                    "min" => Ok(a.min(b)),
                    "max" => Ok(a.max(b)),
                    _ => divided(at, a, b, |a, b| a.checked_neg()?.checked_div_euclid(b)?.checked_neg()),
                };
            }
        }
        let rest = self.rest();
        let len = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'_').count();
        let digits = rest[..len].replace('_', "");
        if digits.is_empty() {
            return Err(self.unexpected("an integer expression"));
        }
        self.pos += len;
        digits.parse().map_err(|_| Fault::directive(at, format!("`{digits}` does not fit 64 bits")))
    }
}

fn checked(at: usize, value: Option<i64>) -> Result<i64, Fault> {
    value.ok_or_else(|| Fault::directive(at, "the expression overflows 64 bits"))
}

fn divided(at: usize, a: i64, b: i64, op: impl Fn(i64, i64) -> Option<i64>) -> Result<i64, Fault> {
    if b == 0 {
        return Err(Fault::directive(at, "the expression divides by zero"));
    }
    checked(at, op(a, b))
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    fn int(text: &str) -> Result<i64, String> {
        let source = Source::new("a".into(), text.into());
        let text = ExpandedText::substitute(&source, 0..source.text.len(), &[]).expect("no axes");
        let mut cursor = Cursor::new(&text);
        let value = cursor.int().map_err(|f| f.message)?;
        if cursor.at_end() { Ok(value) } else { Err("rest".into()) }
    }

    #[test]
    fn expressions_are_checked() {
        assert_eq!(int("123 - 2"), Ok(121));
        assert_eq!(int("-(2 + 3) * 4 % 7"), Ok(1));
        assert_eq!(int("7 / 2 + ceildiv(7, 2) + min(1, 2) - max(3, -4)"), Ok(3 + 4 + 1 - 3));
        assert_eq!(int("4 / (2 - 2)"), Err("the expression divides by zero".into()));
        assert_eq!(int("9223372036854775807 + 1"), Err("the expression overflows 64 bits".into()));
        assert_eq!(int("99999999999999999999"), Err("`99999999999999999999` does not fit 64 bits".into()));
        assert_eq!(int("1 +"), Err("expected an integer expression, found the end of the line".into()));
        assert!(int(&"(".repeat(100_000)).expect_err("deep").contains("deep"));
        assert!(int(&"-".repeat(100_000)).expect_err("deep").contains("deep"));
    }
}
