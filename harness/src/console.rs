//! What commands print.

use std::io::Write;

/// Says something beside what is printed, on standard error.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints to standard output; a reader that went away is not an error. Where nothing can be written,
/// as on a full disk, that is said beside it: silence would look like nothing to say.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(error) = printed
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        complain(&format!("standard output cannot be written: {error}"));
    }
}
