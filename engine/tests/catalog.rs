//! The list of operations in `cases/README.md` is the table that the parser
//! reads. `BLESS=1` writes it there.

use engine::fusion::ops;
use std::fmt::Write;

const START: &str = "<!-- operations: from the table in engine/src/fusion/ops; a test compares -->\n";
const END: &str = "<!-- end of operations -->";

fn table() -> String {
    let mut text = String::from("| form | meaning |\n|---|---|\n");
    for row in ops::all() {
        let form = row.signature().replace('|', "\\|");
        let _ = writeln!(text, "| `{form}` | {} |", row.doc.replace('|', "\\|"));
    }
    text
}

#[test]
fn the_documentation_lists_every_operation() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../cases/README.md");
    let readme = std::fs::read_to_string(path).expect("the documentation exists");
    let (head, rest) = readme.split_once(START).expect("the start of the list is marked");
    let (listed, tail) = rest.split_once(END).expect("the end of the list is marked");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, format!("{head}{START}{}{END}{tail}", table())).expect("writable");
        return;
    }
    assert_eq!(listed, table(), "run with BLESS=1 to rewrite the list");
}
