//! Canonical spacing of a text: the same tokens and comments, in the same
//! order, each statement on its line. It works on tokens, so that names,
//! composites and the harness's `$axis` stay as they were written, and a text
//! that does not parse is laid out all the same.
//!
//! A fusion's header stands on one line if it fits [`WIDTH`], else with one
//! parameter a line; statements are indented; comments behind statements stand
//! in one column; there is one empty line between fusions. Formatting twice
//! changes nothing.

use std::fmt::Write;

/// Columns of a header that is not broken.
const WIDTH: usize = 120;

/// The text in its canonical form; `comment` gives the form of each comment,
/// marker included.
pub fn format(source: &str, comment: &dyn Fn(&str) -> String) -> String {
    let mut layout =
        FusionFormatter { lines: source.lines().map(scan).collect(), at: 0, out: Vec::new(), section: 0, comment };
    layout.file();
    render(&layout.out)
}

// ---- scanning ----

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormatToken<'a> {
    /// Characters without white space and punctuation, `${...}` included.
    Word(&'a str),
    Punct(char),
}

impl FormatToken<'_> {
    /// What it adds to the number of open parentheses and brackets.
    fn depth(self) -> i32 {
        match self {
            FormatToken::Punct('(' | '[') => 1,
            FormatToken::Punct(')' | ']') => -1,
            _ => 0,
        }
    }
}

/// A line as written.
#[derive(Clone, Debug, Default)]
struct SourceLine<'a> {
    tokens: Vec<FormatToken<'a>>,
    comment: Option<&'a str>,
}

impl SourceLine<'_> {
    fn is_blank(&self) -> bool {
        self.tokens.is_empty() && self.comment.is_none()
    }

    fn starts_fusion(&self) -> bool {
        matches!(self.tokens[..], [FormatToken::Word("fusion"), ..])
    }
}

fn is_punct(c: char) -> bool {
    matches!(c, '(' | ')' | '[' | ']' | '{' | '}' | ',' | ':' | '=')
}

/// Where the comment of a line starts.
fn comment_start(line: &str) -> usize {
    let slashes = line.find("//").unwrap_or(line.len());
    line.find(';').unwrap_or(line.len()).min(slashes)
}

fn scan(line: &str) -> SourceLine<'_> {
    let (code, comment) = line.split_at(comment_start(line));
    let mut tokens = Vec::new();
    let mut rest = code.trim();
    while let Some(first) = rest.chars().next() {
        let len = match first {
            c if is_punct(c) => {
                tokens.push(FormatToken::Punct(c));
                1
            }
            _ => {
                let len = word_len(rest);
                tokens.push(FormatToken::Word(&rest[..len]));
                len
            }
        };
        rest = rest[len..].trim_start();
    }
    SourceLine { tokens, comment: (!comment.is_empty()).then(|| comment.trim_end()) }
}

/// Bytes of the word at the start of a text: up to white space or punctuation,
/// but `${name}` as a whole.
fn word_len(text: &str) -> usize {
    let mut len = 0;
    while let Some(c) = text[len..].chars().next() {
        if let Some(placeholder) = placeholder(&text[len..]) {
            len += placeholder;
        } else if c.is_whitespace() || is_punct(c) {
            break;
        } else {
            len += c.len_utf8();
        }
    }
    len
}

/// Bytes of `${name}` at the start of a text.
fn placeholder(text: &str) -> Option<usize> {
    let name = text.strip_prefix("${")?;
    let len = name.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    name[len..].starts_with('}').then_some(len + 3)
}

// ---- layout ----

/// A line to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Out {
    code: String,
    comment: Option<String>,
    /// Lines of one section have their comments in one column; 0 is none.
    section: usize,
}

impl Out {
    fn is_blank(&self) -> bool {
        self.code.is_empty() && self.comment.is_none()
    }
}

struct FusionFormatter<'a, 'f> {
    lines: Vec<SourceLine<'a>>,
    at: usize,
    out: Vec<Out>,
    /// The section of the fusion that is laid out.
    section: usize,
    comment: &'f dyn Fn(&str) -> String,
}

impl<'a> FusionFormatter<'a, '_> {
    fn file(&mut self) {
        while let Some(line) = self.lines.get(self.at).cloned() {
            if line.starts_fusion() {
                self.separate();
                self.section += 1;
                self.header();
                self.body();
                continue;
            }
            self.at += 1;
            self.outside(&line);
        }
    }

    fn push(&mut self, indent: &str, tokens: &[FormatToken<'a>], comment: Option<&str>, section: usize) {
        let mut code = String::new();
        if !tokens.is_empty() {
            code = format!("{indent}{}", spaced(tokens, false));
        } else if comment.is_some() {
            code.push_str(indent);
        }
        let comment = comment.map(|text| (self.comment)(text));
        self.out.push(Out { code, comment, section });
    }

    /// A line between fusions. Empty lines stay only before plain comments:
    /// directives follow what they are about.
    fn outside(&mut self, line: &SourceLine<'a>) {
        if line.is_blank() {
            let last = self.out.last();
            if last.is_some_and(|last| !last.is_blank()) {
                self.out.push(Out::default());
            }
            return;
        }
        let directive = line.tokens.is_empty() && line.comment.is_some_and(|text| !is_plain(text));
        if directive && self.out.last().is_some_and(Out::is_blank) {
            self.out.pop();
        }
        self.push("", &line.tokens, line.comment, 0);
    }

    /// One empty line before a fusion; without one, before the plain comments
    /// that stand directly above it.
    fn separate(&mut self) {
        if self.out.last().is_some_and(Out::is_blank) {
            return;
        }
        let plain = |out: &&Out| out.code.is_empty() && out.comment.as_deref().is_some_and(is_plain);
        let above = self.out.iter().rev().take_while(plain).count();
        let place = self.out.len() - above;
        if place > 0 && !self.out[place - 1].is_blank() {
            self.out.insert(place, Out::default());
        }
    }

    /// From `fusion` to the opening brace.
    fn header(&mut self) {
        let end = self.header_end();
        let mut lines: Vec<SourceLine<'a>> = self.lines[self.at..end].to_vec();
        self.at = end;
        // A header that no parenthesis closes takes the empty lines behind it;
        // they are no part of its shape.
        while lines.last().is_some_and(SourceLine::is_blank) {
            lines.pop();
        }
        let (last, before) = match lines.split_last() {
            Some(parts) => parts,
            None => return,
        };
        let closed = lines.iter().flat_map(|line| &line.tokens).fold(0, |depth, token| depth + token.depth()) <= 0;
        if before.iter().any(|line| line.comment.is_some()) || (!closed && !before.is_empty()) {
            // Comments inside keep the lines as they are, and so does a fault.
            for (i, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_blank()) {
                let closes = matches!(line.tokens[..], [FormatToken::Punct(')'), ..]);
                let indent = if i == 0 || closes { "" } else { "    " };
                let code = format!("{indent}{}", spaced(&line.tokens, true));
                let comment = line.comment.map(|text| (self.comment)(text));
                self.out.push(Out { code, comment, section: 0 });
            }
            return;
        }
        let tokens: Vec<FormatToken<'a>> = lines.iter().flat_map(|line| line.tokens.clone()).collect();
        let opens = tokens.iter().position(|token| *token == FormatToken::Punct('{')).map_or(tokens.len(), |at| at + 1);
        // What follows the brace is a line of its own, unless a comment speaks of both.
        let cut = if last.comment.is_some() { tokens.len() } else { opens };
        let code = spaced(&tokens[..cut], true);
        if code.chars().count() > WIDTH && last.comment.is_none() {
            self.broken_header(&tokens[..cut]);
        } else {
            let comment = last.comment.map(|text| (self.comment)(text));
            self.out.push(Out { code, comment, section: self.section });
        }
        if cut < tokens.len() {
            self.at -= 1;
            self.lines[self.at] = SourceLine { tokens: tokens[cut..].to_vec(), comment: None };
        }
    }

    /// The line behind the one on which the header ends: where all parentheses
    /// are closed again, or another fusion starts.
    fn header_end(&self) -> usize {
        let mut depth = 0i32;
        for (i, line) in self.lines[self.at..].iter().enumerate() {
            if i > 0 && line.starts_fusion() {
                return self.at + i;
            }
            for token in &line.tokens {
                depth += token.depth();
                if matches!(token, FormatToken::Punct('{' | '}')) {
                    return self.at + i + 1;
                }
            }
            let opened = self.lines[self.at].tokens.contains(&FormatToken::Punct('('));
            let waits = self
                .lines
                .get(self.at + i + 1)
                .is_some_and(|next| next.tokens.first() == Some(&FormatToken::Punct('{')));
            if depth <= 0 && opened && !waits {
                return self.at + i + 1;
            }
            if !opened {
                return self.at + 1;
            }
        }
        self.lines.len()
    }

    /// One parameter a line.
    fn broken_header(&mut self, tokens: &[FormatToken<'a>]) {
        let mut depth = 0;
        let mut line: Vec<FormatToken<'a>> = Vec::new();
        let mut indent = "";
        for &token in tokens {
            let closes = token == FormatToken::Punct(')') && depth == 1;
            if closes && !line.is_empty() {
                self.out.push(Out { code: format!("{indent}{}", spaced(&line, true)), ..Out::default() });
                (line, indent) = (Vec::new(), "");
            }
            depth += token.depth();
            line.push(token);
            let ends = depth == 1 && matches!(token, FormatToken::Punct('(' | ','));
            if ends {
                self.out.push(Out { code: format!("{indent}{}", spaced(&line, true)), ..Out::default() });
                (line, indent) = (Vec::new(), "    ");
            }
        }
        self.out.push(Out { code: spaced(&line, true), ..Out::default() });
    }

    /// Statements, to the closing brace or the next fusion.
    fn body(&mut self) {
        while let Some(line) = self.lines.get(self.at).cloned() {
            if line.starts_fusion() {
                return;
            }
            self.at += 1;
            if line.is_blank() {
                let after = self.lines[self.at..].iter().find(|next| !next.is_blank());
                let closes = after.is_none_or(|next| next.tokens.first() == Some(&FormatToken::Punct('}')));
                let opens = self.out.last().is_some_and(|last| last.is_blank() || last.code.ends_with('{'));
                if !closes && !opens {
                    self.out.push(Out { section: self.section, ..Out::default() });
                }
                continue;
            }
            let closing = line.tokens.iter().position(|token| *token == FormatToken::Punct('}'));
            match closing {
                Some(0) => {
                    self.push("", &line.tokens, line.comment, self.section);
                    return;
                }
                Some(at) if line.comment.is_none() && at + 1 == line.tokens.len() => {
                    self.push("  ", &line.tokens[..at], None, self.section);
                    self.push("", &line.tokens[at..], None, self.section);
                    return;
                }
                Some(at) if at + 1 == line.tokens.len() => {
                    self.push("  ", &line.tokens, line.comment, self.section);
                    return;
                }
                _ => self.push("  ", &line.tokens, line.comment, self.section),
            }
        }
    }
}

/// Whether a comment is for people only: not of the form `; word: ...` or
/// `; word(...`, which speaks of the fusion above it, and no line of such a text.
fn is_plain(comment: &str) -> bool {
    let Some(text) = comment.strip_prefix(';').filter(|rest| !rest.starts_with(';')) else { return true };
    if text.starts_with('|') {
        return false;
    }
    let text = text.trim_start();
    let word = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))).unwrap_or(text.len());
    word == 0 || !text[word..].starts_with([':', '('])
}

/// Tokens with canonical spaces. In a header `[` belongs to the type before it,
/// in a statement it starts extents.
fn spaced(tokens: &[FormatToken<'_>], header: bool) -> String {
    let mut text = String::new();
    let mut before = None;
    let mut depth = 0i32;
    for token in tokens {
        if let Some(before) = before
            && gap(before, *token, depth, header)
        {
            text.push(' ');
        }
        match token {
            FormatToken::Word(word) => text.push_str(word),
            FormatToken::Punct(c) => text.push(*c),
        }
        depth += token.depth();
        before = Some(*token);
    }
    text
}

/// Whether a space stands between two tokens.
fn gap(before: FormatToken<'_>, token: FormatToken<'_>, depth: i32, header: bool) -> bool {
    match (before, token) {
        (FormatToken::Punct('(' | '['), _) | (_, FormatToken::Punct(')' | ']' | ',' | ':')) => false,
        (_, FormatToken::Punct('(')) => false,
        (FormatToken::Word(_), FormatToken::Punct('[')) if header => false,
        // Ranges in brackets, if an operation has them.
        (FormatToken::Punct(':'), _) if depth > 0 && !header => false,
        (FormatToken::Punct('{'), FormatToken::Punct('}')) => false,
        _ => true,
    }
}

// ---- rendering ----

/// Puts comments behind lines into one column for each fusion.
fn render(lines: &[Out]) -> String {
    let mut text = String::new();
    let mut at = 0;
    let end = lines.iter().rposition(|line| !line.is_blank()).map_or(0, |last| last + 1);
    let lines = &lines[..end];
    while at < lines.len() {
        let number = lines[at].section;
        let more = lines[at + 1..].iter().take_while(|line| number > 0 && line.section == number).count();
        let section = &lines[at..at + 1 + more];
        let behind = |line: &&Out| line.comment.is_some() && !line.code.trim().is_empty();
        let column = section.iter().filter(behind).map(|line| line.code.chars().count()).max().unwrap_or(0) + 2;
        for line in section {
            match (&line.comment, line.code.trim().is_empty()) {
                (Some(comment), true) => {
                    let _ = writeln!(text, "{}{comment}", line.code);
                }
                (Some(comment), false) => {
                    let _ = writeln!(text, "{:<column$}{comment}", line.code);
                }
                (None, _) => {
                    let _ = writeln!(text, "{}", line.code.trim_end());
                }
            }
        }
        at += section.len();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check(source: &str, expected: Expect) {
        let plain = |comment: &str| comment.to_string();
        let text = format(source, &plain);
        expected.assert_eq(&text);
        assert_eq!(format(&text, &plain), text, "formatting twice");
    }

    #[test]
    fn statements_and_comments_get_their_places() {
        check(
            ";;head\n\n\nfusion   @f( %x:$dtype[? ,7],%a :i64 ){\n\n%0=sum   %x  axes( 0,1 )   keepdim; error: E0205\n   ;; why\n\n\n  %long = full [ %n,4 ]  1.5 f32 // c\n %1 = $_op %x${tail}, -2\n\n return %0 ,%1\n\n}\n\n; inputs: x\n\n; check: exact\n;; next\n; one\nfusion @g() {}\n\n\n",
            expect![[r#"
                ;;head

                fusion @f(%x: $dtype[?, 7], %a: i64) {
                  %0 = sum %x axes(0, 1) keepdim  ; error: E0205
                  ;; why

                  %long = full [%n, 4] 1.5 f32    // c
                  %1 = $_op %x${tail}, -2

                  return %0, %1
                }
                ; inputs: x
                ; check: exact

                ;; next
                ; one
                fusion @g() {
                }
            "#]],
        );
    }

    #[test]
    fn headers_are_joined_or_broken() {
        check(
            "fusion @f(\n %x: f32[?] contiguity(true , _) order(0,1),\n %y: f32\n)\n{ return %x }\nfusion @g(%a_long_name: f32[?, ?, ?], %another_long_name: f32[?, ?, ?], %third_long_name: bf16[?, ?, ?], %fourth_of_them: i64) {\n}\nfusion @h(%x: f32[?], ;; kept\n%y: f32\n) {\n  return %x\n}\n",
            expect![[r#"
                fusion @f(%x: f32[?] contiguity(true, _) order(0, 1), %y: f32) {
                  return %x
                }

                fusion @g(
                    %a_long_name: f32[?, ?, ?],
                    %another_long_name: f32[?, ?, ?],
                    %third_long_name: bf16[?, ?, ?],
                    %fourth_of_them: i64
                ) {
                }

                fusion @h(%x: f32[?],  ;; kept
                    %y: f32
                ) {
                  return %x
                }
            "#]],
        );
    }

    #[test]
    fn broken_texts_keep_their_lines() {
        check(
            "fusion @f(%x: f32[n]) {   ; error: E0101\n  %0 neg %x  ; error: E0101\n  return %0\n; error: E0101\nfusion @g(%x\nfusion h) } {\nfusion @i(%x\nreturn %x // c\n\n",
            expect![[r#"
                fusion @f(%x: f32[n]) {  ; error: E0101
                  %0 neg %x              ; error: E0101
                  return %0
                  ; error: E0101

                fusion @g(%x

                fusion h) } {

                fusion @i(%x
                    return %x  // c
            "#]],
        );
    }

    #[test]
    fn any_text_keeps_its_tokens_and_formats_once() {
        const WORDS: &[&str] = &[
            "fusion", " @f", "(", ")", "{", "}", "[", "]", " %x", "@", ":", "f32", "?", ",", "=", "\n", "\n", "\n\n",
            "add ", "return", " 1", "-1", "$n", "${m}", "${", "; c", ";; d", "// e", "é", "\r\n", "\t", " ", "axes",
        ];
        let tokens = |text: &str| -> Vec<String> {
            text.lines()
                .map(scan)
                .flat_map(|line| {
                    let words = line.tokens.iter().map(|token| format!("{token:?}")).collect::<Vec<_>>();
                    words.into_iter().chain(line.comment.map(String::from))
                })
                .collect()
        };
        crate::property::property(|u| {
            let mut text = String::new();
            while !u.is_empty() {
                text.push_str(u.choose(WORDS)?);
            }
            let plain = |comment: &str| comment.to_string();
            let once = format(&text, &plain);
            assert_eq!(tokens(&once), tokens(&text), "{text:?}\n{once}");
            let twice = format(&once, &plain);
            let other = once.lines().zip(twice.lines()).find(|(a, b)| a != b);
            assert_eq!((other, twice.len()), (None, once.len()), "{text:?}\n{once}");
            Ok(())
        })
        .bytes(32..=300)
        .cases(6000);
    }
}
