//! Tables of history as files: read as far as they are whole, and written without
//! losing what is not.
//!
//! Inputs: a file and the columns that it should have. A line that is no row, or a
//! header with a letter that was changed, is damage: the rows around it are read,
//! and before the file is written again it is kept beside. A file with other
//! columns is of another version: it is not written.

use super::clock::utc_stamp;
use super::layout::replace;
use super::rows::{TableRow, line, lines};
use crate::units::counted;
use std::io;
use std::path::{Path, PathBuf};

/// What happened to a file beside what was asked for, for people.
pub(crate) type Notes = Vec<String>;

/// A table that was read.
pub(super) struct Table<T> {
    pub(super) rows: Vec<T>,
    file: TableFile,
}

/// A file as it was, and how many of its lines are damaged.
pub(super) struct TableFile {
    path: PathBuf,
    columns: &'static [&'static str],
    pub(super) bytes: Vec<u8>,
    damaged: usize,
}

impl<T: TableRow> Table<T> {
    /// Reads a table; one that is not there is empty.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let mut file = TableFile::read(path, T::COLUMNS)?;
        if let Some(rows) = whole(&file.bytes) {
            return Ok(Self { rows, file });
        }
        let (rows, damaged) = parse(&file.bytes).ok_or_else(|| file.other())?;
        file.damaged = damaged;
        Ok(Self { rows, file })
    }

    /// Replaces the file.
    pub(super) fn write(&self, rows: impl Iterator<Item = T>) -> io::Result<Notes> {
        let notes = self.file.keep()?;
        let mut writer = csv::Writer::from_writer(Vec::new());
        rows.into_iter().try_for_each(|row| writer.serialize(row))?;
        replace(&self.file.path, &writer.into_inner().map_err(|error| error.into_error())?)?;
        Ok(notes)
    }
}

/// The rows of a file without any damage.
fn whole<T: TableRow>(bytes: &[u8]) -> Option<Vec<T>> {
    let mut reader = csv::Reader::from_reader(bytes);
    let ours =
        bytes.is_empty() || bytes.ends_with(b"\n") && reader.headers().ok()?.iter().eq(T::COLUMNS.iter().copied());
    if !ours {
        return None;
    }
    reader.deserialize().collect::<Result<_, _>>().ok()
}

/// Whether a table has columns of a version before.
pub(super) fn is_older<R: TableRow>(bytes: &[u8]) -> bool {
    let line = bytes.split_inclusive(|b| *b == b'\n').next().unwrap_or_default();
    csv::ReaderBuilder::new().has_headers(false).from_reader(line).records().flatten().any(|cells| names::<R>(&cells))
}

/// Whether these are columns of a version before.
fn names<R: TableRow>(cells: &csv::StringRecord) -> bool {
    R::OLDER.iter().any(|older| cells.iter().eq(older.iter().copied()))
}

/// Rows that can be read, and how many lines cannot. `None` if the columns are others.
pub(super) fn parse<R: TableRow>(bytes: &[u8]) -> Option<(Vec<R>, usize)> {
    let (mut rows, mut damaged, mut header, mut older) = (Vec::new(), 0, false, None);
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        let whole = line.ends_with(b"\n");
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line);
        let Some(cells) = reader.records().next().and_then(Result::ok) else {
            damaged += 1;
            continue;
        };
        if !header && names::<R>(&cells) {
            (header, older) = (true, Some(cells));
            continue;
        }
        if !header && cells.get(0) == R::COLUMNS.first().copied() {
            // Of another version; or of ours, with a letter that was changed.
            if cells.len() != R::COLUMNS.len() {
                return None;
            }
            damaged += usize::from(!cells.iter().eq(R::COLUMNS.iter().copied()));
            header = true;
            continue;
        }
        let cells = match &older {
            Some(header) if cells.len() == header.len() => R::brought_up(header, &cells),
            _ => cells,
        };
        match R::of(&cells).filter(|_| whole) {
            Some(row) => rows.push(row),
            None => damaged += 1,
        }
    }
    Some((rows, damaged))
}

impl TableFile {
    fn read(path: &Path, columns: &'static [&'static str]) -> io::Result<Self> {
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        Ok(Self { path: path.to_path_buf(), columns, bytes, damaged: 0 })
    }

    /// A file to append to: begins with its columns, and ends with a whole line. A
    /// torn last line, as a kill in the middle of a write leaves it, is cut off.
    pub(super) fn to_append<R: TableRow>(path: &Path) -> io::Result<(Self, Notes)> {
        let mut file = Self::read(path, R::COLUMNS)?;
        let end = file.bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let torn = end < file.bytes.len();
        let header = line(&R::COLUMNS)?;
        if file.bytes[..end].starts_with(&header) {
            if torn {
                file.bytes.truncate(end);
                std::fs::File::options().write(true).open(path)?.set_len(end as u64)?;
            }
            return Ok((file, Notes::new()));
        }
        let (rows, damaged) = parse::<R>(&file.bytes[..end]).ok_or_else(|| file.other())?;
        file.damaged = damaged;
        let mut notes = file.keep()?;
        if is_older::<R>(&file.bytes) {
            notes.push(format!(
                "{} had columns of before: its {} have those of now",
                file.name(),
                counted(rows.len(), "row")
            ));
        }
        file.bytes = header;
        file.bytes.extend(lines(&rows)?);
        replace(path, &file.bytes)?;
        Ok((file, notes))
    }

    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn other(&self) -> io::Error {
        let columns = self.columns.join(",");
        io::Error::other(format!("{} has other columns than {columns}: it is left as it is", self.name()))
    }

    /// Keeps a damaged file beside the one that is to be written.
    fn keep(&self) -> io::Result<Notes> {
        if self.damaged == 0 {
            return Ok(Notes::new());
        }
        let aside = aside(&self.path, &utc_stamp(true));
        replace(&aside, &self.bytes)?;
        let (name, kept) = (self.name(), aside.file_name().unwrap_or_default().to_string_lossy());
        Ok(vec![format!("{name} has {} damaged lines; as it was, it is kept as {kept}", self.damaged)])
    }
}

/// Where a damaged table is kept.
pub(super) fn aside(path: &Path, stamp: &str) -> PathBuf {
    path.with_extension(format!("csv.damaged-{stamp}"))
}
