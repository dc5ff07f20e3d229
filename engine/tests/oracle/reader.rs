//! Reads the cases that `scripts/torch_oracle.py` wrote; `scripts/oracle/data.py`
//! documents the file.

use engine::num::{DType, Value, storage};
use engine::tensor::{Arg, HostTensor, TensorMeta};
use std::collections::BTreeMap;
use std::io::Read;

/// One case: a fusion, its arguments and what PyTorch says.
pub struct Case {
    pub id: String,
    pub text: String,
    pub inputs: Vec<Input>,
    pub outs: Vec<HostTensor>,
    /// Strides of the results; their values above are dense.
    pub strides: Vec<Vec<i64>>,
}

impl Case {
    /// The operation that the case is about.
    pub fn op(&self) -> &str {
        let name = self.id.split('/').next().unwrap_or(&self.id);
        name.strip_suffix("_drawn").unwrap_or(name)
    }
}

pub enum Input {
    Tensor { meta: TensorMeta, table: (DType, String), seed: u64, offset: usize, length: usize },
    Scalar(Value),
}

/// Entries of storage, as bytes.
struct Table {
    walk: bool,
    entries: Vec<Vec<u8>>,
}

pub struct Family {
    pub name: String,
    pub torch: String,
    pub script: String,
    pub cases: Vec<Case>,
    tables: BTreeMap<(DType, String), Table>,
}

/// The same hash as `mix` of the script.
fn mix(seed: u64, place: u64) -> u64 {
    let mut x = place.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = x.wrapping_add(seed.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(0x632B_E59B_D9B4_E019));
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).expect("a hexadecimal digit") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn ints(text: &str) -> Vec<i64> {
    let inner = text.trim_matches(['[', ']']);
    inner.split(',').filter(|word| !word.is_empty()).map(|word| word.parse().expect("an integer")).collect()
}

fn dtype(name: &str) -> DType {
    DType::from_name(name).unwrap_or_else(|| panic!("no data type {name}"))
}

impl Family {
    /// Reads a compressed file.
    pub fn load(path: &std::path::Path) -> Self {
        let packed = std::fs::read(path).expect("the data can be read");
        let mut text = String::new();
        flate2::read::ZlibDecoder::new(&packed[..]).read_to_string(&mut text).expect("compressed text");
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name").to_string();
        let mut family =
            Self { name, torch: String::new(), script: String::new(), cases: Vec::new(), tables: BTreeMap::new() };
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["torch", version] => family.torch = version.into(),
                ["script", hash] => family.script = hash.into(),
                ["table", of, name, mode, ref entries @ ..] => {
                    let entries = entries.iter().map(|entry| hex(entry)).collect();
                    family.tables.insert((dtype(of), name.into()), Table { walk: mode == "walk", entries });
                }
                ["case", id] => family.cases.push(case(id, &mut lines)),
                _ => panic!("{line}"),
            }
        }
        family
    }

    /// The arguments of a case.
    pub fn args(&self, case: &Case) -> Vec<Arg> {
        case.inputs.iter().map(|input| self.arg(input)).collect()
    }

    fn arg(&self, input: &Input) -> Arg {
        match input {
            Input::Scalar(value) => Arg::Scalar(*value),
            Input::Tensor { meta, table, seed, offset, length } => {
                let data = self.storage(table, *seed, *length);
                Arg::Tensor(HostTensor::new(meta.clone(), data, *offset).expect("the storage holds every element"))
            }
        }
    }

    /// Bytes of `length` elements.
    pub fn storage(&self, table: &(DType, String), seed: u64, length: usize) -> Vec<u8> {
        let Table { walk, entries } = &self.tables[table];
        let count = entries.len() as u64;
        let pick = |place: u64| if *walk { place.wrapping_add(seed) } else { mix(seed, place) } % count;
        (0..length as u64).flat_map(|place| entries[pick(place) as usize].iter().copied()).collect()
    }
}

/// The lines of one case, up to `end`.
fn case<'a>(id: &str, lines: &mut impl Iterator<Item = &'a str>) -> Case {
    let mut case =
        Case { id: id.into(), text: String::new(), inputs: Vec::new(), outs: Vec::new(), strides: Vec::new() };
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["end"] => return case,
            ["tensor", of, table, seed, sizes, strides, offset, length] => {
                let meta = TensorMeta { dtype: dtype(of), sizes: ints(sizes), strides: ints(strides) };
                let number = |text: &str| text.parse::<usize>().expect("a number");
                case.inputs.push(Input::Tensor {
                    table: (meta.dtype, table.into()),
                    meta,
                    seed: number(seed) as u64,
                    offset: number(offset),
                    length: number(length),
                });
            }
            ["scalar", of, bytes] => {
                let mut memory = hex(bytes);
                memory.resize(16, 0);
                case.inputs.push(Input::Scalar(storage::read(dtype(of), &memory, 0).expect("an element")));
            }
            ["out", of, sizes, strides, bytes] => {
                let out = HostTensor::contiguous(dtype(of), &ints(sizes), hex(bytes));
                case.outs.push(out.unwrap_or_else(|error| panic!("{id}: {error}")));
                case.strides.push(ints(strides));
            }
            _ => {
                case.text.push_str(line);
                case.text.push('\n');
            }
        }
    }
    panic!("{id} has no end");
}
