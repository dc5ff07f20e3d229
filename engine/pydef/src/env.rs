//! What names from outside of a script stand for: modules, data types,
//! constants and Python's own functions.

use super::names::{self, NULL};
use super::value::Py;

/// What is said where a value is not known.
pub(super) const READABLE_VALUES: &str = "values are numbers, lists, arithmetic on them, data types, and tensors made by torch.testing.make_tensor, randn, rand, randint, full, zeros, ones, empty, arange or tensor, with as_strided, to, permute, reshape, expand and the like behind them";

/// Names that mean something without an import.
const KNOWN: [&str; 6] = ["torch", "DataType", "FusionDefinition", "math", "nvfuser_direct", "np"];
/// Python's own functions that are read.
pub(super) const BUILTINS: [&str; 35] = [
    "float",
    "int",
    "bool",
    "complex",
    "len",
    "range",
    "list",
    "tuple",
    "min",
    "max",
    "sum",
    "abs",
    "print",
    "round",
    "isinstance",
    "repr",
    "str",
    "enumerate",
    "zip",
    "reversed",
    "sorted",
    "any",
    "all",
    "map",
    "filter",
    "set",
    "dict",
    "type",
    "hasattr",
    "getattr",
    "iter",
    "next",
    "divmod",
    "pow",
    "object",
];

/// The value of an imported name.
pub(super) fn imported(path: &str) -> Py {
    // `from nvfuser_direct import DataType`, `from math import inf`.
    let last = path.rsplit('.').next().unwrap_or(path);
    match last {
        "DataType" | "FusionDefinition" => Py::path(last),
        _ => path.rsplit_once('.').and_then(|(module, name)| member(module, name)).unwrap_or_else(|| Py::path(path)),
    }
}

/// The value of a name that the script does not bind.
pub(super) fn unbound(name: &str) -> Option<Py> {
    match name {
        // Numbers as nvFuser prints them inside of complex numbers.
        "inf" => Some(Py::float(f64::INFINITY)),
        "nan" => Some(Py::float(f64::NAN)),
        "infj" => Some(Py::Number(super::recipe::PyNumber::Complex(0.0, f64::INFINITY))),
        "nanj" => Some(Py::Number(super::recipe::PyNumber::Complex(0.0, f64::NAN))),
        _ if ["Error", "Exception", "Warning"].iter().any(|end| name.ends_with(end)) => Some(Py::path(name)),
        _ if KNOWN.contains(&name) || BUILTINS.contains(&name) => Some(Py::path(name)),
        _ => None,
    }
}

/// The value of `module.name`, if it is one.
pub(super) fn member(module: &str, name: &str) -> Option<Py> {
    let module = module.rsplit('.').next().unwrap_or(module);
    match (module, name) {
        ("DataType", NULL) => Some(Py::DType(None)),
        ("DataType", _) => names::data_type(name).map(|dtype| Py::DType(Some(dtype))),
        ("math" | "torch" | "np" | "numpy", "inf") => Some(Py::float(f64::INFINITY)),
        ("math" | "torch" | "np" | "numpy", "nan") => Some(Py::float(f64::NAN)),
        ("math" | "torch" | "np" | "numpy", "pi") => Some(Py::float(std::f64::consts::PI)),
        ("math" | "np" | "numpy", "e") => Some(Py::float(std::f64::consts::E)),
        ("torch" | "np" | "numpy", _) => names::torch_type(name).map(|dtype| Py::DType(Some(dtype))),
        _ => None,
    }
}
