//! The committed list: a line for each segment of each case, in the order of ids. A
//! case of one segment has its id alone; of several, each has its number behind `#`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the list says of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ListEntry {
    /// It has a kernel.
    Kernel(KernelRow),
    /// Nobody computes it: it lies in memory of what it reads.
    View,
    /// A library computes it: what it is asked for.
    Library(String),
    /// The host computes it: a kernel was refused with this code.
    Host(String),
    /// The whole case is refused, with these codes.
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

/// Entries by case id and number of the segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct List(pub(crate) BTreeMap<String, ListEntry>);

/// The place of a segment in the list, of a case that has so many.
pub(crate) fn place(id: &str, position: usize, segments: usize) -> String {
    if segments == 1 { id.into() } else { format!("{id}#{position}") }
}

/// The id of the case at a place.
pub(crate) fn case_of(place: &str) -> &str {
    place.rsplit_once('#').map_or(place, |(id, _)| id)
}

/// A line. A refusal has its codes in the place of the parameters, a library what it is asked for.
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
/// Stands for the scheduler of a view.
const VIEW: &str = "view";
/// Stands for the scheduler of what a library computes.
const LIBRARY: &str = "library";
/// Stands for the scheduler of what the host computes.
const HOST: &str = "host";

impl List {
    /// Reads the text of a list.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut entries = BTreeMap::new();
        for (i, line) in csv::Reader::from_reader(text.as_bytes()).deserialize().enumerate() {
            let ListLine { case, scheduler, parameters, launch, kernel, cuda } =
                line.map_err(|error| format!("line {}: {error}", i + 2))?;
            let entry = match scheduler.as_str() {
                REFUSED => ListEntry::Refused(parameters),
                VIEW => ListEntry::View,
                LIBRARY => ListEntry::Library(parameters),
                HOST => ListEntry::Host(parameters),
                _ => ListEntry::Kernel(KernelRow { scheduler, parameters, launch, kernel, cuda }),
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
            let without = |scheduler: &str, codes| KernelRow {
                scheduler: scheduler.into(),
                parameters: codes,
                ..KernelRow::default()
            };
            let KernelRow { scheduler, parameters, launch, kernel, cuda } = match row {
                ListEntry::Kernel(row) => row,
                ListEntry::View => without(VIEW, String::new()),
                ListEntry::Library(what) => without(LIBRARY, what),
                ListEntry::Host(code) => without(HOST, code),
                ListEntry::Refused(codes) => without(REFUSED, codes),
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
            (place("B.C/n=1", 1, 2), ListEntry::Host("U0105".into())),
            (place("B.C/n=1", 0, 2), ListEntry::Library("2x3 by 3x4 of f32".into())),
        ]));
        let text = list.text().expect("writes");
        assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("A.A,refused,E0203 E0205,")), "{text}");
        assert_eq!(List::parse(&text), Ok(list));
        let twice = format!("{text}{}\n", text.lines().nth(1).unwrap_or_default());
        assert!(List::parse(&twice).is_err_and(|why| why.contains("line 6") && why.contains("twice")));
        assert!(List::parse("case,scheduler\nA,b\n").is_err());
    }
}
