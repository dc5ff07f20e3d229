//! Arrays of a `.npz` file: a zip of `.npy` files, as NumPy writes them.
//!
//! Bytes come from outside: sizes are bounded before anything is allocated, and
//! an entry that does not hold what its header says is refused.

use engine::diag::{Diagnostic, Result, code};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// The most bytes of one array, unpacked.
const MAX_ARRAY_BYTES: u64 = 16 << 30;
/// The most entries of a file.
const MAX_ENTRIES: usize = 4096;
/// The longest header of an array.
const MAX_HEADER: usize = 64 << 10;

/// An array: row-major elements, little endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    /// NumPy's type, for example `<f4`.
    pub(crate) descr: String,
    pub(crate) shape: Vec<i64>,
    pub(crate) data: Vec<u8>,
}

fn refused(what: &str, message: impl std::fmt::Display) -> Box<Diagnostic> {
    Diagnostic::user(code::ARRAY_FILE, format!("{what}: {message}"))
}

/// All arrays of a file, by name without `.npy`.
pub(crate) fn read(path: &Path) -> Result<BTreeMap<String, Array>> {
    let shown = path.display().to_string();
    let file = std::fs::File::open(path).map_err(|error| refused(&shown, format!("cannot be opened: {error}")))?;
    let mut zip = zip::ZipArchive::new(std::io::BufReader::new(file))
        .map_err(|error| refused(&shown, format!("is no .npz file: {error}")))?;
    if zip.len() > MAX_ENTRIES {
        return Err(refused(&shown, format!("has {} entries, the limit is {MAX_ENTRIES}", zip.len())));
    }
    let mut arrays = BTreeMap::new();
    for index in 0..zip.len() {
        let entry = zip.by_index(index).map_err(|error| refused(&shown, error))?;
        let name = entry.name().map_err(|error| refused(&shown, error))?.trim_end_matches(".npy").to_string();
        let what = format!("{shown}: {name}");
        let size = entry.size();
        if size > MAX_ARRAY_BYTES {
            return Err(refused(&what, format!("has {size} bytes, the limit is {MAX_ARRAY_BYTES}")));
        }
        let mut bytes = Vec::new();
        entry
            .take(MAX_ARRAY_BYTES)
            .read_to_end(&mut bytes)
            .map_err(|error| refused(&what, format!("cannot be unpacked: {error}")))?;
        arrays.insert(name, array(bytes).map_err(|message| refused(&what, message))?);
    }
    Ok(arrays)
}

/// One `.npy` file.
fn array(mut bytes: Vec<u8>) -> Result<Array, String> {
    let head = bytes.get(..10).filter(|head| head.starts_with(b"\x93NUMPY")).ok_or("is no array")?;
    let (start, length) = match head[6] {
        1 => (10, usize::from(u16::from_le_bytes([head[8], head[9]]))),
        2 | 3 => {
            let length: [u8; 4] = bytes.get(8..12).and_then(|b| b.try_into().ok()).ok_or("ends in its header")?;
            (12, u32::from_le_bytes(length) as usize)
        }
        version => return Err(format!("has version {version} of the format")),
    };
    if length > MAX_HEADER {
        return Err(format!("has a header of {length} bytes"));
    }
    let header = bytes.get(start..start + length).ok_or("ends in its header")?;
    let header = std::str::from_utf8(header).map_err(|_| "has a header that is no text")?;
    let (descr, fortran, shape) = fields(header).ok_or_else(|| format!("has a header that is not read: {header:?}"))?;
    let width: usize = descr.get(2..).and_then(|digits| digits.parse().ok()).ok_or("has a type without a width")?;
    if !descr.starts_with(['<', '|']) || width == 0 || width > 16 {
        return Err(format!("has the type {descr:?}; little-endian numbers are read"));
    }
    let count = shape.iter().try_fold(1usize, |n, &size| n.checked_mul(usize::try_from(size).ok()?));
    let wanted = count.and_then(|count| count.checked_mul(width)).ok_or("has a size that overflows")?;
    let data = bytes.split_off(start + length);
    if data.len() != wanted {
        return Err(format!("holds {} bytes, its shape {shape:?} takes {wanted}", data.len()));
    }
    let data = if fortran && shape.len() > 1 { row_major(&data, &shape, width) } else { data };
    Ok(Array { descr, shape, data })
}

/// `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
fn fields(header: &str) -> Option<(String, bool, Vec<i64>)> {
    let after = |name: &str| {
        let rest = &header[header.find(&format!("'{name}'"))? + name.len() + 2..];
        Some(rest.trim_start().strip_prefix(':')?.trim_start())
    };
    let descr = after("descr")?.strip_prefix('\'')?.split('\'').next()?.to_string();
    let fortran = after("fortran_order")?.starts_with("True");
    let shape = after("shape")?.strip_prefix('(')?.split(')').next()?;
    let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
    let shape: Option<Vec<i64>> = sizes.map(|size| size.parse().ok().filter(|size| *size >= 0)).collect();
    Some((descr, fortran, shape?)).filter(|(descr, _, shape)| descr.is_ascii() && shape.len() <= 64)
}

/// Elements in row-major order from column-major ones.
fn row_major(data: &[u8], shape: &[i64], width: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let mut strides = vec![width; shape.len()];
    for axis in 1..shape.len() {
        strides[axis] = strides[axis - 1] * shape[axis - 1] as usize;
    }
    let mut index = vec![0i64; shape.len()];
    for _ in 0..data.len() / width {
        let place: usize = index.iter().zip(&strides).map(|(i, stride)| *i as usize * stride).sum();
        out.extend_from_slice(&data[place..place + width]);
        for axis in (0..index.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    #[test]
    fn arrays_are_read() {
        let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }  \n";
        let array = array(npy(header, &[1, 2, 3, 4, 5, 6])).expect("well-formed");
        assert_eq!((array.descr.as_str(), array.shape, array.data), ("|u1", vec![2, 3], vec![1, 2, 3, 4, 5, 6]));
    }

    #[test]
    fn column_major_arrays_are_turned() {
        let header = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}";
        assert_eq!(array(npy(header, &[1, 4, 2, 5, 3, 6])).expect("well-formed").data, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn what_a_header_promises_must_be_there() {
        let check = |header: &str, data: &[u8], expected: &str| {
            let error = array(npy(header, data)).expect_err(header);
            assert!(error.contains(expected), "{error}");
        };
        check("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", &[0; 4], "holds 4 bytes");
        check("{'descr': '>f4', 'fortran_order': False, 'shape': (), }", &[0; 4], "little-endian");
        check("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", &[0; 4], "not read");
        let huge = "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9), }";
        check(huge, &[0; 4], "overflows");
        check("{}", &[], "not read");
        assert!(array(b"PK".to_vec()).is_err());
    }
}
