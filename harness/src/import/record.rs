//! Records of runs: one JSON object a line, with the type, sizes and strides of
//! each input and output, and the names of their arrays.

use engine::diag::{Diagnostic, Result, code};
use engine::num::DType;
use pydef::dtype_of_torch;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;

/// The longest line.
const MAX_LINE: usize = 16 << 20;

/// What was passed and what came back. Fields that are not listed do not matter here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Record {
    #[serde(default)]
    pub(crate) inputs: Vec<RecordedValue>,
    #[serde(default)]
    pub(crate) outputs: Vec<RecordedValue>,
    /// Arrays of the inputs that the run changed, by position.
    #[serde(default)]
    pub(crate) inputs_after: BTreeMap<String, String>,
    /// State of the generator before the run.
    #[serde(default)]
    pub(crate) rng: Option<RngState>,
    /// Present where the run is one operation on one sample.
    #[serde(default)]
    pub(crate) opinfo: Option<serde_json::Value>,
}

/// State of a generator.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct RngState {
    pub(crate) seed: u64,
    pub(crate) offset: u64,
}

/// A value that goes in or out.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum RecordedValue {
    /// A tensor.
    Tensor(TensorEntry),
    /// A scalar.
    Scalar(ScalarEntry),
    /// Anything else, such as a missing output.
    #[serde(other)]
    Other,
}

/// A tensor of a record.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TensorEntry {
    pub(crate) dtype: String,
    pub(crate) shape: Vec<i64>,
    pub(crate) stride: Vec<i64>,
    /// Name of the array; without one, values are not recorded.
    #[serde(default)]
    pub(crate) data: Option<String>,
}

/// A scalar of a record.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ScalarEntry {
    #[serde(rename = "type")]
    pub(crate) class: String,
    #[serde(default)]
    pub(crate) value: serde_json::Value,
    /// A float's exact value.
    #[serde(default)]
    pub(crate) hex: Option<String>,
}

impl TensorEntry {
    /// The element type.
    pub(crate) fn dtype(&self) -> Result<DType> {
        dtype_of_torch(&self.dtype).ok_or_else(|| {
            let message = format!("the record's data type `{}` is not known", self.dtype);
            Diagnostic::user(code::RECORD, message)
        })
    }
}

/// The record of a name, from a file with one on each line.
pub(crate) fn find(path: &Path, name: &str) -> Result<Record> {
    let refused = |message: String| Diagnostic::user(code::RECORD, format!("{}: {message}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| refused(format!("cannot be opened: {error}")))?;
    let mut reader = std::io::BufReader::new(file);
    let mut names = Vec::new();
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        let bytes = std::io::Read::take(&mut reader, MAX_LINE as u64)
            .read_line(&mut line)
            .map_err(|error| refused(format!("line {number}: {error}")))?;
        if bytes == 0 {
            break;
        }
        if bytes == MAX_LINE {
            return Err(refused(format!("line {number} is longer than {MAX_LINE} bytes")));
        }
        if line.trim().is_empty() {
            continue;
        }
        // Lines of other definitions need not have a form that is known.
        let known: serde_json::Value =
            serde_json::from_str(&line).map_err(|error| refused(format!("line {number} is no JSON: {error}")))?;
        let found = known.get("name").and_then(serde_json::Value::as_str).unwrap_or_default();
        if found == name {
            return serde_json::from_value(known).map_err(|error| refused(format!("line {number}: {error}")));
        }
        if names.len() < 10_000 {
            names.push(found.to_string());
        }
    }
    let hint = crate::case::suggest(name, names.iter().map(String::as_str));
    Err(refused(format!("has no record `{name}`")).note(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line = r#"{"name": "a", "extra": 1, "inputs": [{"kind": "scalar", "type": "float", "value": "0.5", "hex": "0x1p-1"},
            {"kind": "tensor", "dtype": "float32", "shape": [2], "stride": [1], "device": "cuda", "data": "in1"}],
            "outputs": [{"kind": "none"}], "inputs_after": {"1": "in1_after"}, "rng": {"seed": 4022388547, "offset": 4}}"#;
        let record: Record = serde_json::from_str(line).expect("well-formed");
        let [RecordedValue::Scalar(scalar), RecordedValue::Tensor(tensor)] = &record.inputs[..] else {
            panic!("{record:?}")
        };
        assert_eq!((scalar.class.as_str(), scalar.hex.as_deref()), ("float", Some("0x1p-1")));
        assert_eq!((tensor.dtype().expect("known"), tensor.data.as_deref()), (DType::F32, Some("in1")));
        assert!(matches!(record.outputs[..], [RecordedValue::Other]));
        assert_eq!(record.inputs_after["1"], "in1_after");
    }
}
