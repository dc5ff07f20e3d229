//! Definitions in nvFuser's form: the files of `cases/repro`, and what
//! `harness import` makes of recorded runs.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::place;
use engine::fusion::{hash, ops};
use harness::case::{Target, load};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases/repro")
}

fn files() -> Vec<(PathBuf, String)> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "py"));
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn definitions_print_back_to_the_same_structure() {
    for (path, text) in files() {
        for definition in pydef::read(&text).unwrap_or_else(|errors| panic!("{}: {errors:?}", path.display())) {
            let printed = pydef::print(&definition.fusion);
            let again =
                pydef::read(&printed).unwrap_or_else(|errors| panic!("{}: {errors:?}\n{printed}", path.display()));
            assert_eq!(again.len(), 1, "{printed}");
            let (before, after) = (hash::structure(&definition.fusion), hash::structure(&again[0].fusion));
            assert_eq!(before, after, "{}:\n{printed}", path.display());
            assert_eq!(pydef::print(&again[0].fusion), printed);
            // The text of cases says the same.
            let text = engine::text::print(&definition.fusion);
            assert_eq!(engine::text::parse_one(&text).unwrap(), definition.fusion, "{text}");
        }
    }
}

#[test]
fn every_case_has_this_form() {
    let loaded = load(&folder().join(".."), Target::Sim);
    let mut seen = BTreeSet::new();
    for case in loaded.cases.iter().filter(|case| case.refusals().is_empty()) {
        let fusion = engine::text::parse_one(&case.text).unwrap();
        if !seen.insert(hash::structure(&fusion)) {
            continue;
        }
        let printed = pydef::print(&fusion);
        let again = pydef::read(&printed).unwrap_or_else(|errors| panic!("{}: {errors:?}\n{printed}", case.id));
        let (before, after) = (hash::structure(&fusion), hash::structure(&again[0].fusion));
        assert_eq!(before, after, "{}:\n{}\n{printed}\n{}", case.id, case.text, engine::text::print(&again[0].fusion));
    }
    assert!(seen.len() >= 1000, "{} structures", seen.len());
}

/// Operations that the files do not call, with the reason.
const NOT_CALLED: &[(&str, &str)] = &[
    ("index", "made by the reader of random numbers only"),
    ("index_put_runs", "a step of index_put_accumulate"),
    ("index_counts", "a step of index_put_accumulate"),
    ("index_runs", "a step of index_put_accumulate"),
    ("weighted_runs", "a step of index_put_accumulate, and of what adds up its rows in groups"),
    ("last_position", "a step of scatter"),
    ("grouped_sums", "a step of grouped_mm"),
    ("max_sum_exp", "a step of softmax"),
    ("sum_of", "sum, of its terms"),
];

#[test]
fn definitions_cover_every_operation() {
    let called: BTreeSet<String> = files().iter().flat_map(|(_, text)| calls(text)).collect();
    let missing: Vec<&str> = ops::all()
        .map(|row| row.name)
        .filter(|name| !called.contains(*name) && !NOT_CALLED.iter().any(|(other, _)| other == name))
        .collect();
    assert!(missing.is_empty(), "no definition calls {missing:?}");
    assert!(files().len() >= 20, "{} files", files().len());
}

/// The names behind `fd.ops.`, as the table has them.
fn calls(text: &str) -> Vec<String> {
    let name = |rest: &str| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>();
    text.split("fd.ops.")
        .skip(1)
        .map(|rest| match name(rest).as_str() {
            "ceilDiv" => "ceildiv".to_string(),
            other => other.to_string(),
        })
        .collect()
}

#[test]
fn files_are_cases() {
    let loaded = load(&folder(), Target::Sim);
    assert!(loaded.errors.is_empty(), "{:?}", loaded.errors);
    assert!(loaded.cases.iter().all(|case| case.suite == "Repro" && !case.about.is_empty()));
    assert_eq!(loaded.cases.len(), files().len());
}

// ---- harness import ----

fn harness(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_harness")).args(arguments).output().unwrap()
}

/// A folder of its own with a definition, a record and arrays.
struct Recorded {
    folder: PathBuf,
}

impl Recorded {
    fn new(name: &str, definition: &str, record: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("fusewright-import-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("x.py"), definition).unwrap();
        std::fs::write(folder.join("records.jsonl"), format!("{{\"name\": \"other\"}}\n{record}\n")).unwrap();
        Self { folder }
    }

    /// Adds arrays of `f32`.
    fn arrays(self, arrays: &[(&str, &str, &[f32])]) -> Self {
        let file = std::fs::File::create(self.folder.join("x.npz")).unwrap();
        let mut zip = zip::ZipWriter::new(file);
        for (name, shape, values) in arrays {
            let options = zip::write::SimpleFileOptions::default();
            zip.start_file(format!("{name}.npy"), options).unwrap();
            let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
            let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
            bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
            bytes.extend_from_slice(header.as_bytes());
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            std::io::Write::write_all(&mut zip, &bytes).unwrap();
        }
        zip.finish().unwrap();
        self
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    #[track_caller]
    fn check(&self, on: &str, exit: i32, out: &str) {
        let (definition, arrays, records) = (self.path("x.py"), self.path("x.npz"), self.path("records.jsonl"));
        let arguments = ["import", &definition, "--inputs", &arrays, "--records", &records, "--on", on];
        let output = harness(&arguments);
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(exit), "{text}");
        assert!(text.contains(out), "{text}");
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

const DOUBLED: &str = "def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[None, True], dtype=DataType.Float, is_cpu=False)
    c0 = fd.define_scalar(None, dtype=DataType.Double)
    tv1 = fd.ops.mul(tv0, c0)
    fd.add_output(tv1)
";
const DOUBLED_RECORD: &str = r#"{"name": "x", "inputs": [{"kind": "tensor", "dtype": "float32", "shape": [3, 2], "stride": [0, 1], "collapsed": [1, 2], "data": "in0"}, {"kind": "scalar", "type": "float", "value": "2.0", "hex": "0x1.0000000000000p+1"}], "outputs": [{"kind": "tensor", "dtype": "float32", "shape": [3, 2], "stride": [0, 1], "data": "out0"}]}"#;

#[test]
fn recorded_runs_are_compared() {
    let input: (&str, &str, &[f32]) = ("in0", "(1, 2)", &[1.0, 2.5]);
    let right = Recorded::new("right", DOUBLED, DOUBLED_RECORD)
        .arrays(&[input, ("out0", "(3, 2)", &[2.0, 5.0, 2.0, 5.0, 2.0, 5.0])]);
    right.check("ref", 0, "agrees:  output 0: f32 [3, 2] strides [0, 1]; 6 elements match");
    right.check("sim", 0, "6 elements match");
    let wrong = Recorded::new("wrong", DOUBLED, DOUBLED_RECORD)
        .arrays(&[input, ("out0", "(3, 2)", &[2.0, 5.5, 2.0, 5.5, 2.0, 5.5])]);
    wrong.check("ref", 100, "first at [0, 1]: 5.0, expected 5.5");
    let strides =
        DOUBLED_RECORD.replace("\"stride\": [0, 1], \"data\": \"out0\"", "\"stride\": [1, 3], \"data\": \"out0\"");
    let strides = Recorded::new("strides", DOUBLED, &strides)
        .arrays(&[input, ("out0", "(3, 2)", &[2.0, 5.0, 2.0, 5.0, 2.0, 5.0])]);
    strides.check("ref", 100, "output 0: is f32 [3, 2] strides [0, 1], the record has f32 [3, 2] strides [1, 3]");
}

const UPDATED: &str = "def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.ops.neg(tv0)
    fd.add_output(tv1, tv0)
    tv2 = fd.ops.exp(tv0)
    fd.add_output(tv2)
";
const UPDATED_RECORD: &str = r#"{"name": "x", "inputs": [{"kind": "tensor", "dtype": "float32", "shape": [2], "stride": [1], "data": "in0"}], "outputs": [{"kind": "tensor", "dtype": "float32", "shape": [2], "stride": [1], "data": "out0"}], "inputs_after": {"0": "in0_after"}}"#;

#[test]
fn updated_inputs_are_compared() {
    let arrays: [(&str, &str, &[f32]); 2] =
        [("in0", "(2,)", &[0.0, 1.0]), ("out0", "(2,)", &[1.0, std::f32::consts::E])];
    let after: (&str, &str, &[f32]) = ("in0_after", "(2,)", &[0.0, -1.0]);
    let right = Recorded::new("updated", UPDATED, UPDATED_RECORD).arrays(&[arrays[0], arrays[1], after]);
    right.check("ref", 0, "input 0 afterwards: f32 [2] strides [1]; 2 elements match");
    right.check("sim", 0, "input 0 afterwards: f32 [2] strides [1]; 2 elements match");
    let missing = Recorded::new("missing", UPDATED, UPDATED_RECORD).arrays(&arrays);
    missing.check("ref", 96, "there is no array `in0_after`");
}

#[test]
fn definitions_become_case_files() {
    let recorded = Recorded::new("case", DOUBLED, "");
    let (definition, case) = (recorded.path("x.py"), recorded.path("x.fuse"));
    let script = format!("{DOUBLED}\ninputs = [torch.randn((1, 2)).expand(3, 2), 0.5]\n");
    std::fs::write(recorded.folder.join("x.py"), script).unwrap();
    assert_eq!(harness(&["import", &definition, "-o", &case]).status.code(), Some(0));
    let loaded = load(Path::new(&case), Target::Sim);
    assert!(loaded.errors.is_empty(), "{:?}", loaded.errors);
    assert_eq!(loaded.cases[0].id, "Repro.nvfuser_fusion");
    let formatted = harness(&["fmt", "--check", &case]);
    assert_eq!(formatted.status.code(), Some(0), "{}", String::from_utf8_lossy(&formatted.stdout));
    let text = std::fs::read_to_string(&case).unwrap();
    assert!(text.contains("; inputs: tv0 = normal[3, 2] strides [0, 1]\n; inputs: c0 = 0.5\n"), "{text}");
    std::fs::write(recorded.folder.join("x.py"), "while True:\n    pass\n").unwrap();
    let output = harness(&["import", &definition]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(96));
    assert!(text.contains("error[E0108]: `while` is not read") && text.contains("x.py:1:1"), "{text}");
}

/// Every word that the printed form of an imported definition has stands in the grammar of case files.
#[test]
fn what_import_prints_is_in_the_grammar() {
    let place = place::Place::empty("grammar");
    let ordered = DOUBLED.replace("is_cpu=False", "is_cpu=False, stride_order=[0, 1]");
    place.file("ordered.py", &ordered);
    let text = place::check(&place, &["import", "ordered.py"], 0, &["contiguity(", "order("]);
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../cases/README.md")).expect("reads");
    let grammar = readme.split("## The fusion").nth(1).and_then(|rest| rest.split("\n\n").nth(1)).expect("a grammar");
    for word in ["contiguity", "order"] {
        assert!(grammar.contains(&format!("\"{word}\"")), "{word} of\n{text}is not in\n{grammar}");
    }
}
