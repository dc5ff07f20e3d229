//! Canonical spacing of front matter. Keys, values, comments and line breaks
//! stay; a line inside brackets is indented.

/// The front matter with canonical spaces, each line ended.
pub(super) fn format(text: &str) -> String {
    // Their inner spaces mean something, over several lines.
    if text.contains("\"\"\"") || text.contains("'''") {
        return text.to_string();
    }
    let mut out = String::new();
    let mut depth = 0;
    for line in text.lines() {
        let (tokens, comment) = scan(line);
        if tokens.is_empty() && comment.is_none() {
            if !out.is_empty() && !out.ends_with("\n\n") {
                out.push('\n');
            }
            continue;
        }
        let closes = tokens.first().is_some_and(|first| matches!(*first, "]" | "}"));
        let indent = if depth > 0 && !closes { "  " } else { "" };
        let section = depth == 0 && tokens.first() == Some(&"[");
        let code = if section { tokens.concat() } else { spaced(&tokens) };
        for token in &tokens {
            match *token {
                "[" | "{" => depth += 1,
                "]" | "}" => depth -= 1,
                _ => {}
            }
        }
        let gap = if tokens.is_empty() || comment.is_none() { "" } else { "  " };
        out.push_str(format!("{indent}{code}{gap}{}", comment.unwrap_or_default()).trim_end());
        out.push('\n');
    }
    while out.ends_with("\n\n") {
        out.pop();
    }
    out
}

/// The tokens of a line and its comment.
fn scan(line: &str) -> (Vec<&str>, Option<&str>) {
    let mut tokens = Vec::new();
    let mut rest = line.trim();
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '#' => return (tokens, Some(rest)),
            '"' | '\'' => string_len(rest, first),
            '[' | ']' | '{' | '}' | ',' | '=' => 1,
            _ => rest.find(|c: char| c.is_whitespace() || "[]{},=#\"'".contains(c)).unwrap_or(rest.len()),
        };
        tokens.push(&rest[..len]);
        rest = rest[len..].trim_start();
    }
    (tokens, None)
}

/// Bytes of the string at the start of a text, quotes included.
fn string_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\\' if quote == '"' && !escaped => escaped = true,
            c if c == quote && !escaped => return at + 1,
            _ => escaped = false,
        }
    }
    text.len()
}

fn spaced(tokens: &[&str]) -> String {
    let mut text = String::new();
    let mut before = "";
    for token in tokens {
        let tight =
            before.is_empty() || before == "[" || matches!(*token, "," | "]") || (before == "{" && *token == "}");
        if !tight {
            text.push(' ');
        }
        text.push_str(token);
        before = token;
    }
    text
}
