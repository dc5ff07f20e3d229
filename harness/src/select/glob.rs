//! Wildcards: `*` matches any run of characters (also `/` and `.`), `?` one.

/// Whether a text has wildcards.
pub(super) fn is_glob(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Iterative wildcard match: on a mismatch, back to the last `*`, which then
/// takes one more character. Linear for one `*`, at worst product of lengths.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut retry = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match &mut retry {
                Some((star, taken)) => {
                    *taken += 1;
                    (p, t) = (*star + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}
