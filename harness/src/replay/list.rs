//! The committed list: a line for each case, in the order of ids.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the list says of a case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ListEntry {
    /// It has a kernel.
    Kernel(KernelRow),
    /// It is refused, with these codes.
    Refused(String),
}

/// What the list says of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct KernelRow {
    pub(crate) scheduler: String,
    /// Parameters of the heuristic, as it prints them.
    pub(crate) parameters: String,
    /// Grid, block, bytes of shared memory.
    pub(crate) launch: String,
    /// Digest of the kernel as text.
    pub(crate) kernel: String,
    /// Digest of the whole CUDA text.
    pub(crate) cuda: String,
}

/// Entries by case id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct List(pub(crate) BTreeMap<String, ListEntry>);

/// A line. A refusal has its codes in the place of the parameters.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListLine {
    case: String,
    scheduler: String,
    parameters: String,
    launch: String,
    kernel: String,
    cuda: String,
}

/// Stands for the scheduler of a case that is refused.
const REFUSED: &str = "refused";

impl List {
    /// Reads the text of a list.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut entries = BTreeMap::new();
        for (i, line) in csv::Reader::from_reader(text.as_bytes()).deserialize().enumerate() {
            let ListLine { case, scheduler, parameters, launch, kernel, cuda } =
                line.map_err(|error| format!("line {}: {error}", i + 2))?;
            let entry = match scheduler == REFUSED {
                true => ListEntry::Refused(parameters),
                false => ListEntry::Kernel(KernelRow { scheduler, parameters, launch, kernel, cuda }),
            };
            if entries.insert(case.clone(), entry).is_some() {
                return Err(format!("line {}: `{case}` stands there twice", i + 2));
            }
        }
        Ok(Self(entries))
    }

    /// The list as text; [`List::parse`] reads it back.
    pub(crate) fn text(&self) -> Result<String, String> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for (case, entry) in &self.0 {
            let (case, row) = (case.clone(), entry.clone());
            let KernelRow { scheduler, parameters, launch, kernel, cuda } = match row {
                ListEntry::Kernel(row) => row,
                ListEntry::Refused(codes) => {
                    KernelRow { scheduler: REFUSED.into(), parameters: codes, ..KernelRow::default() }
                }
            };
            let line = ListLine { case, scheduler, parameters, launch, kernel, cuda };
            writer.serialize(line).map_err(|error| error.to_string())?;
        }
        let bytes = writer.into_inner().map_err(|error| error.to_string())?;
        String::from_utf8(bytes).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_as_it_is_written() {
        let row = KernelRow {
            scheduler: "pointwise".into(),
            parameters: "vector 4 threads 32x4".into(),
            launch: "grid 1x1x1 block 32x4x1 shared 0".into(),
            kernel: "01".into(),
            cuda: "02".into(),
        };
        let list = List(BTreeMap::from([
            ("B.B/m=1,n=2".to_string(), ListEntry::Kernel(row)),
            ("A.A".to_string(), ListEntry::Refused("E0203 E0205".into())),
        ]));
        let text = list.text().expect("writes");
        assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("A.A,refused,E0203 E0205,")), "{text}");
        assert_eq!(List::parse(&text), Ok(list));
        let twice = format!("{text}{}\n", text.lines().nth(1).unwrap_or_default());
        assert!(List::parse(&twice).is_err_and(|why| why.contains("line 4") && why.contains("twice")));
        assert!(List::parse("case,scheduler\nA,b\n").is_err());
    }
}
