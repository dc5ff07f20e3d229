//! Text to tree. Errors carry their place and the nearest word that is known.
//! Bounded: the length of the text and the depth of parentheses.

use super::model::{CompareOp, FilterExpr, MARKS, Node, TEXTS, Test, TextField, What};
use super::property::PROPERTIES;
use super::show::fault;
use crate::case::suggest;
use crate::escape::short;
use crate::select::past::VERDICTS;
use engine::diag::{Diagnostic, Result};
use std::ops::Range;

/// Bytes of an expression; longer selections belong into a file.
const MAX_BYTES: usize = 16 << 10;
/// Depth of parentheses.
const MAX_DEPTH: usize = 64;

/// Characters of a word that needs no quotes.
pub(super) fn bare(c: char) -> bool {
    !(c.is_whitespace() || matches!(c, '(' | ')' | '&' | '|' | '!' | '"' | ',' | '<' | '>' | '=' | '\\'))
}

impl FilterExpr {
    /// Parses an expression.
    pub fn parse(text: &str) -> Result<Self> {
        let whole = 0..text.len();
        if text.len() > MAX_BYTES {
            let message = format!("the expression has {} bytes, more than {MAX_BYTES}", text.len());
            return Err(fault(text, 0..1, message, "").note("name ids in a file: --from-file LIST"));
        }
        if let Some((at, c)) = text.char_indices().find(|(_, c)| c.is_control() && *c != '\t' && *c != '\n') {
            let message = format!("the expression holds the control character {c:?}");
            return Err(fault(text, at..at + c.len_utf8(), message, "remove it"));
        }
        let mut parser = FilterParser { text, at: 0, depth: 0 };
        if parser.peek().is_none() {
            return Err(fault(text, whole, "the expression is empty", "for example: tag(resize) & !last(pass)"));
        }
        let root = parser.or()?;
        match parser.peek() {
            None => Ok(Self { text: text.into(), root }),
            Some(')') => Err(parser.here("a `)` that nothing opened", "remove it, or open it before")),
            Some(_) => Err(parser.here("two conditions without `&` or `|` between them", "`&` for both, `|` for any")),
        }
    }
}

struct FilterParser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> FilterParser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// The next character that is no space.
    fn peek(&mut self) -> Option<char> {
        self.at += self.rest().len() - self.rest().trim_start().len();
        self.rest().chars().next()
    }

    /// Takes one of the texts if it is next; a word only if it ends there.
    fn take(&mut self, texts: &[&str]) -> bool {
        self.peek();
        let rest = self.rest();
        let is_next = |text: &&&str| {
            let word = text.starts_with(|c: char| c.is_ascii_alphabetic());
            rest.starts_with(**text) && !(word && rest[text.len()..].starts_with(|c: char| bare(c) || c == '('))
        };
        let found = texts.iter().find(is_next);
        self.at += found.map_or(0, |text| text.len());
        found.is_some()
    }

    /// An error at the next word or character.
    fn here(&mut self, message: impl Into<String>, hint: &str) -> Box<Diagnostic> {
        self.peek();
        let length = self.rest().chars().take_while(|c| bare(*c)).map(char::len_utf8).sum::<usize>();
        let first = self.rest().chars().next().map_or(0, char::len_utf8);
        fault(self.text, self.at..self.at + length.max(first), message, hint)
    }

    fn or(&mut self) -> Result<Node> {
        let mut nodes = vec![self.and()?];
        while self.take(&["||", "|", "or"]) {
            nodes.push(self.and()?);
        }
        Ok(one_or(nodes, Node::Or))
    }

    fn and(&mut self) -> Result<Node> {
        let mut nodes = vec![self.unary()?];
        while self.take(&["&&", "&", "and"]) {
            nodes.push(self.unary()?);
        }
        Ok(one_or(nodes, Node::And))
    }

    /// Two negations are none, so that a row of them has no depth.
    fn unary(&mut self) -> Result<Node> {
        let mut negated = false;
        while self.take(&["!", "not"]) {
            negated = !negated;
        }
        Ok(match (negated, self.primary()?) {
            (false, node) => node,
            (true, Node::Not(node)) => *node,
            (true, node) => Node::Not(Box::new(node)),
        })
    }

    fn primary(&mut self) -> Result<Node> {
        let open = self.at;
        match self.peek() {
            Some('(') if self.depth == MAX_DEPTH => {
                Err(self.here(format!("parentheses are nested deeper than {MAX_DEPTH}"), "flatten the expression"))
            }
            Some('(') => {
                let open = self.at.max(open);
                (self.at, self.depth) = (self.at + 1, self.depth + 1);
                let node = self.or()?;
                if !self.take(&[")"]) {
                    let hint = "it is not closed";
                    return Err(match self.peek() {
                        None => fault(self.text, open..open + 1, "a `)` is missing", hint),
                        Some(_) => {
                            self.here("two conditions without `&` or `|` between them", "`&` for both, `|` for any")
                        }
                    });
                }
                self.depth -= 1;
                Ok(node)
            }
            Some(c) if c.is_ascii_alphabetic() => self.condition(),
            None => Err(self.here("the expression ends where a condition should stand", "for example: tag(resize)")),
            Some(_) => Err(self.here("a condition should stand here", "for example: name(*Scheduler*), dur > 100ms")),
        }
    }

    /// A word with what belongs to it.
    fn condition(&mut self) -> Result<Node> {
        let start = self.at;
        let length = self.rest().find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(self.rest().len());
        let word = &self.rest()[..length];
        self.at += length;
        let span = start..self.at;
        let what = if let Some((_, text)) = TEXTS.iter().find(|(name, _)| *name == word) {
            let (pattern, place) = self.argument(word)?;
            self.known_device(*text, &pattern, place)?;
            What::Text(*text, pattern)
        } else if let Some((_, mark)) = MARKS.iter().find(|(name, _)| *name == word) {
            What::Mark(*mark)
        } else if let Some(property) = PROPERTIES.iter().find(|property| property.name == word) {
            let op = self.op(word)?;
            let (text, place) = self.value()?;
            let value = property.kind.literal(&text).ok_or_else(|| {
                let message = format!("`{word}` is compared with {}", property.kind.shown());
                fault(self.text, place, message, &format!("`{}` is none", short(&text)))
            })?;
            What::Compare(property, op, value)
        } else {
            match word {
                "all" => return Ok(Node::All),
                "none" => return Ok(Node::None),
                "last" => What::Last(self.outcomes()?),
                "changed" => What::Changed(self.argument(word)?.0),
                "axis" => {
                    let (name, _) = self.argument(word)?;
                    let op = self.op("axis(...)")?;
                    What::Axis(name, op, self.value()?.0)
                }
                _ => return Err(self.unknown(word, span)),
            }
        };
        Ok(Node::Test(Test { what, span: start..self.at }))
    }

    fn unknown(&mut self, word: &str, span: Range<usize>) -> Box<Diagnostic> {
        let (hint, note) = match suggest(&word[..word.len().min(40)], condition_names()) {
            near if near.starts_with("did you mean") => (near, String::new()),
            all => (String::new(), all),
        };
        let error = fault(self.text, span, format!("there is no condition `{}`", short(word)), &hint);
        if note.is_empty() { error } else { error.note(note) }
    }

    /// `(text)`, in quotes or bare.
    fn argument(&mut self, word: &str) -> Result<(String, Range<usize>)> {
        if !self.take(&["("]) {
            return Err(self.here(format!("`{word}` needs parentheses"), &format!("for example: {word}(...)")));
        }
        self.peek();
        let start = self.at;
        let text = match self.peek() {
            Some('"') => self.quoted()?,
            _ => {
                // Ids hold `=` and `,`, which end a bare word elsewhere.
                let own = |c: char| bare(c) || matches!(c, '=' | ',');
                let length = self.rest().find(|c| !own(c)).unwrap_or(self.rest().len());
                self.at += length;
                self.text[start..start + length].to_string()
            }
        };
        let place = start..self.at;
        if text.is_empty() {
            return Err(fault(self.text, start..start + 1, format!("`{word}()` is empty"), "`*` matches anything"));
        }
        if !self.take(&[")"]) {
            return Err(self.here(format!("`{word}(` is not closed"), "`)` should stand here"));
        }
        Ok((text, place))
    }

    fn quoted(&mut self) -> Result<String> {
        let start = self.at;
        let mut out = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.at = start + at + 1;
                    return Ok(out);
                }
                '\\' => out.extend(chars.next().map(|(_, c)| c)),
                c => out.push(c),
            }
        }
        Err(fault(self.text, start..start + 1, "a quote is not closed", "`\"` is missing behind it"))
    }

    fn op(&mut self, word: &str) -> Result<CompareOp> {
        self.peek();
        match CompareOp::ALL.iter().find(|(text, _)| self.rest().starts_with(text)) {
            Some((text, op)) => {
                self.at += text.len();
                Ok(*op)
            }
            None => Err(self.here(format!("`{word}` is compared with something"), "one of = != < <= > >=")),
        }
    }

    fn value(&mut self) -> Result<(String, Range<usize>)> {
        let next = self.peek();
        let start = self.at;
        let text = match next {
            Some('"') => self.quoted()?,
            _ => {
                let length = self.rest().find(|c| !bare(c)).unwrap_or(self.rest().len());
                self.at += length;
                self.text[start..start + length].to_string()
            }
        };
        match self.at > start {
            true => Ok((text, start..self.at)),
            false => Err(self.here("a value should stand here", "for example: dur > 100ms, axis(m) = 1024")),
        }
    }

    /// `(pass, fail.numerics, crash.*)`.
    fn outcomes(&mut self) -> Result<Vec<String>> {
        if !self.take(&["("]) {
            return Err(self.here("`last` needs parentheses", "for example: last(fail, crash)"));
        }
        let start = self.at;
        let Some(length) = self.rest().find(')') else {
            return Err(fault(self.text, start - 1..start, "`last(` is not closed", "a `)` is missing"));
        };
        self.at += length + 1;
        let (text, place) = (&self.text[start..start + length], start..start + length);
        let mut words = Vec::new();
        for word in text.split([',', '|']).map(str::trim) {
            // Finer names, and patterns, are left to the outcome of the case.
            let family = word.split(['.', '*', '?']).next().unwrap_or(word);
            if !(VERDICTS.contains(&word) || (family != word && !word.is_empty())) {
                let hint = suggest(&short(word), VERDICTS.iter().copied());
                return Err(fault(self.text, place.clone(), format!("`last` does not know `{}`", short(word)), &hint));
            }
            words.push(word.to_string());
        }
        Ok(words)
    }

    fn known_device(&self, text: TextField, pattern: &str, place: Range<usize>) -> Result<()> {
        const DEVICES: [&str; 3] = ["sim", "cuda", "ref"];
        if text == TextField::Device && !DEVICES.contains(&pattern) {
            let hint = suggest(&short(pattern), DEVICES.into_iter());
            return Err(fault(self.text, place, format!("there is no device `{}`", short(pattern)), &hint));
        }
        Ok(())
    }
}

fn one_or(mut nodes: Vec<Node>, many: fn(Vec<Node>) -> Node) -> Node {
    if nodes.len() == 1 { nodes.swap_remove(0) } else { many(nodes) }
}

/// The words of all conditions.
pub(crate) fn condition_names() -> impl Iterator<Item = &'static str> {
    let names = TEXTS.iter().map(|(name, _)| *name).chain(MARKS.iter().map(|(name, _)| *name));
    names.chain(PROPERTIES.iter().map(|p| p.name)).chain(["last", "changed", "axis", "all", "none"])
}
