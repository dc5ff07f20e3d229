//! The modules of a process by its map of memory: which file an address lies
//! in, and at which offset.

use crate::os;
use gimli::{BaseAddresses, EndianSlice, LittleEndian};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub(super) type Bytes = EndianSlice<'static, LittleEndian>;

/// A line of `/proc/PID/maps` that belongs to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    inode: u64,
    path: PathBuf,
}

/// The modules of one process.
pub(super) struct Modules {
    mappings: Vec<Mapping>,
    /// The worker's own binary: its path may be gone, `/proc/self/exe` is not.
    exe: Option<(u64, PathBuf)>,
}

/// An address as its module knows it.
pub(super) struct CodePlace {
    pub(super) path: PathBuf,
    /// The address in the module's own terms, as its symbols have it.
    pub(super) address: u64,
    pub(super) module: Option<Arc<Module>>,
}

impl Modules {
    /// From the text of `/proc/PID/maps` and the binary that the process runs.
    pub(super) fn new(maps: &str, exe: &Path) -> Self {
        let mappings = maps.lines().filter_map(mapping).collect();
        let exe = std::fs::metadata(exe).ok().map(|meta| (meta.ino(), exe.to_path_buf()));
        Self { mappings, exe }
    }

    /// Where an address lies; `None` if in no file.
    pub(super) fn place(&self, address: u64) -> Option<CodePlace> {
        let at = self.mappings.partition_point(|mapping| mapping.end <= address);
        let mapping = self.mappings.get(at).filter(|mapping| mapping.start <= address)?;
        let file = match &self.exe {
            Some((inode, path)) if *inode == mapping.inode => path,
            _ => &mapping.path,
        };
        let module = Module::of(file);
        // Without the file there are no segments: the offset in the file must do.
        let own = address - mapping.start + mapping.offset;
        let own = module.as_ref().map_or(own, |module| module.address(own));
        Some(CodePlace { path: mapping.path.clone(), address: own, module })
    }
}

/// `start-end perms offset dev inode   path`.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let (_, offset, _, inode) = (words.next()?, hex(words.next()?)?, words.next()?, words.next()?);
    let path = words.next()?.trim_start().trim_end_matches(" (deleted)");
    path.starts_with('/').then(|| Mapping { start, end, offset, inode: inode.parse().unwrap_or(0), path: path.into() })
}

/// A binary or library, read as far as stacks need it.
pub(super) struct Module {
    /// File offset, size and address of what is loaded.
    segments: Vec<(u64, u64, u64)>,
    pub(super) unwind: Option<Unwind>,
    /// Function symbols by address: where they end, and their names.
    symbols: BTreeMap<u64, (u64, &'static str)>,
    /// Functions, files and lines; `None` without debug information.
    lines: Mutex<Option<addr2line::Context<Bytes>>>,
}

/// The tables that lead from a function to its caller.
pub(super) struct Unwind {
    pub(super) frames: gimli::EhFrame<Bytes>,
    pub(super) index: gimli::ParsedEhFrameHdr<Bytes>,
    pub(super) bases: BaseAddresses,
}

/// A function at an address, the innermost of inlined ones first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) symbol: String,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
}

impl Module {
    /// The module of a file. Read once for all deaths of this process, since
    /// debug information takes its time; the mapping is shared memory.
    fn of(path: &Path) -> Option<Arc<Self>> {
        static KNOWN: OnceLock<Mutex<BTreeMap<PathBuf, Option<Arc<Module>>>>> = OnceLock::new();
        let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(path.to_path_buf()).or_insert_with(|| Self::read(path).map(Arc::new)).clone()
    }

    fn read(path: &Path) -> Option<Self> {
        let file = object::File::parse(os::map_file(path).ok()?).ok()?;
        let segments = file
            .segments()
            .map(|segment| (segment.file_range().0, segment.file_range().1, segment.address()))
            .collect();
        let section = |name: &str| {
            let section = file.section_by_name(name)?;
            Some((section.address(), section.data().ok()?))
        };
        let data = |name: &str| EndianSlice::new(section(name).map_or(&[][..], |(_, data)| data), LittleEndian);
        let unwind = || {
            let ((frames_at, frames), (index_at, index)) = (section(".eh_frame")?, section(".eh_frame_hdr")?);
            let text = section(".text").map_or(0, |(at, _)| at);
            let bases = BaseAddresses::default().set_eh_frame(frames_at).set_eh_frame_hdr(index_at).set_text(text);
            let index = gimli::EhFrameHdr::new(index, LittleEndian).parse(&bases, 8).ok()?;
            Some(Unwind { frames: gimli::EhFrame::new(frames, LittleEndian), index, bases })
        };
        let functions = file.symbols().chain(file.dynamic_symbols()).filter(|symbol| {
            symbol.kind() == object::SymbolKind::Text && symbol.is_definition() && symbol.address() != 0
        });
        let symbols = functions
            .filter_map(|symbol| Some((symbol.address(), (symbol.address() + symbol.size(), symbol.name().ok()?))))
            .collect();
        let dwarf = gimli::Dwarf::load(|id| Ok::<_, gimli::Error>(data(id.name()))).ok()?;
        let lines = match data(".debug_info").is_empty() {
            true => None,
            false => addr2line::Context::from_dwarf(dwarf).ok(),
        };
        Some(Self { segments, unwind: unwind(), symbols, lines: Mutex::new(lines) })
    }

    /// From an offset in the file to an address of the module.
    fn address(&self, offset: u64) -> u64 {
        let inside = self.segments.iter().find(|(at, size, _)| (*at..at + size).contains(&offset));
        inside.map_or(offset, |(at, _, address)| offset - at + address)
    }

    /// The functions at an address of the module; empty if nothing is known.
    pub(super) fn functions(&self, address: u64) -> Vec<Function> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = lines.as_ref().map_or_else(Vec::new, |lines| inlined(lines, address));
        // Sparse debug information has short names, and none of a function into
        // which nothing is inlined; the symbol of the outermost one is whole.
        let Some(symbol) = self.symbol(address) else { return found };
        match found.last_mut() {
            Some(outermost) => outermost.symbol = symbol,
            None => {
                let at = lines.as_ref().and_then(|lines| lines.find_location(address).ok()?);
                let (file, line) = at.map_or((None, None), |at| (at.file.map(String::from), at.line));
                found.push(Function { symbol, file, line });
            }
        }
        found
    }

    fn symbol(&self, address: u64) -> Option<String> {
        let (start, (end, name)) = self.symbols.range(..=address).next_back()?;
        // Hand-written code has symbols without size.
        (address < *end || start == end).then(|| readable(name))
    }
}

fn inlined(lines: &addr2line::Context<Bytes>, address: u64) -> Vec<Function> {
    let mut found = Vec::new();
    let Ok(mut frames) = lines.find_frames(address).skip_all_loads() else { return found };
    while let Ok(Some(frame)) = frames.next() {
        let Some(name) = frame.function.as_ref().and_then(|function| function.raw_name().ok()) else { continue };
        let (file, line) = frame.location.map_or((None, None), |at| (at.file.map(String::from), at.line));
        found.push(Function { symbol: readable(&name), file, line });
    }
    found
}

/// Demangled, without the hash at the end.
fn readable(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_map() {
        let line = "7f00a0000000-7f00a0200000 r-xp 00001000 fe:01 1234                       /usr/lib/a b.so (deleted)";
        let wanted = Mapping {
            start: 0x7f00_a000_0000,
            end: 0x7f00_a020_0000,
            offset: 0x1000,
            inode: 1234,
            path: "/usr/lib/a b.so".into(),
        };
        assert_eq!(mapping(line), Some(wanted));
        for other in ["", "x", "7f00-8000 rw-p 0 0:0 0 [heap]", "7f00-8000 rw-p 00000000 00:00 0 "] {
            assert_eq!(mapping(other), None, "{other}");
        }
    }

    #[test]
    fn this_very_function_is_found() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("a map");
        let modules = Modules::new(&maps, Path::new("/proc/self/exe"));
        let place = modules.place(super::mapping as *const () as u64).expect("in this binary");
        let functions = place.module.expect("readable").functions(place.address);
        let last = functions.last().expect("known");
        assert!(last.symbol.ends_with("evidence::modules::mapping"), "{functions:?}");
        assert!(last.file.as_ref().is_some_and(|file| file.ends_with("evidence/modules.rs")), "{functions:?}");
        assert!(modules.place(8).is_none());
    }
}
