//! The list of operations in `cases/README.md` is the table that the parser
//! reads. `BLESS=1` writes it there.

use crate::blessed;
use engine::fusion::ops;
use std::fmt::Write;
use std::path::Path;

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
    let (_, tail) = rest.split_once(END).expect("the end of the list is marked");
    let wanted = format!("{head}{START}{}{END}{tail}", table());
    blessed::check_file(Path::new(path), &wanted);
}
