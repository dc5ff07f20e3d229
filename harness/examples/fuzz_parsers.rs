//! Feeds mutated texts to every parser that takes text from outside: fusions,
//! case files and nvFuser's Python form.
//!
//! ```sh
//! cargo run --release -p harness --example fuzz_parsers -- [SECONDS] [SEED]
//! ```
//!
//! A text must neither panic, nor take longer than [`SLOW`], nor raise the
//! memory of the process above [`MAX_BYTES`] over where it began. The first text
//! that does is written to standard error, and the exit code is 1. Seeds are the
//! case files and definitions of the repository and what the printer prints; the
//! same arguments give the same texts.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool")]

use engine::text;
use harness::case;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use testing::fusions::{Limits, generate};

/// Longest time for one text by one parser.
const SLOW: Duration = Duration::from_secs(2);
/// Growth of the peak memory that is too much.
const MAX_BYTES: u64 = 256 << 20;
/// Longest text that is made.
const MAX_TEXT: usize = 1 << 16;

/// What grammars are about: inserted as they are.
const WORDS: &[&str] = &[
    "fusion @f(",
    "%x",
    ": f32[",
    "?",
    "]",
    ") {\n",
    "}\n",
    "return ",
    "update %x = ",
    "add",
    "softmax",
    "axes(0)",
    "keepdim",
    "contiguity(",
    "order(",
    "_",
    "---\n",
    "[axes]\n",
    "; inputs: ",
    "; check: ",
    "; error: E0204 ",
    "$n",
    "fd.ops.add(",
    "fd.define_tensor(shape=[",
    "], contiguity=[",
    "None",
    "DataType.Float",
    "tv0",
    "def f(fd : FusionDefinition) -> None :\n",
    "    ",
    "inputs = [",
    "torch.randn(",
    ".as_strided(",
    "lambda: ",
    "with FusionDefinition() as fd:\n",
    "9223372036854775807",
    "-9223372036854775808",
    "1e999",
    "1e-400",
    "nan",
    "0x",
    "\"",
    "'",
    "\\",
    "\u{0}",
    "\u{feff}",
    "é",
    "\r\n",
    "\t",
    "#",
    "((((((((",
    "[[[[[[[[",
];

struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
    fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
    /// A range of a text.
    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.below(len + 1);
        let most = if self.below(4) == 0 { len - start } else { (len - start).min(40) };
        start..start + self.below(most + 1)
    }
}

/// One change of a text.
fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], draw: &mut Draw) {
    let at = draw.below(bytes.len() + 1);
    match draw.below(8) {
        0 if !bytes.is_empty() => {
            let place = at.min(bytes.len() - 1);
            bytes[place] ^= 1 << draw.below(8);
        }
        1 => drop(bytes.drain(draw.range(bytes.len()))),
        2 | 3 => drop(bytes.splice(at..at, draw.of(WORDS).bytes())),
        4 => {
            let piece = bytes[draw.range(bytes.len())].to_vec();
            let most = if draw.below(20) == 0 { 2000 } else { 3 };
            let times = 1 + draw.below(most);
            bytes.splice(at..at, piece.repeat(times.min(MAX_TEXT / piece.len().max(1))));
        }
        5 => {
            let other = draw.of(seeds);
            let piece = other[draw.range(other.len())].to_vec();
            bytes.splice(at..at, piece);
        }
        6 => {
            let number = (draw.next() as i64 >> draw.below(64)).to_string();
            let digits = bytes.iter().enumerate().filter(|(_, byte)| byte.is_ascii_digit()).map(|(i, _)| i);
            let places: Vec<usize> = digits.collect();
            if !places.is_empty() {
                let place = *draw.of(&places);
                bytes.splice(place..place + 1, number.into_bytes());
            }
        }
        _ => {
            let (a, b) = (draw.range(bytes.len()), draw.range(bytes.len()));
            let piece = bytes[a].to_vec();
            bytes.splice(b, piece);
        }
    }
    bytes.truncate(MAX_TEXT);
}

/// Files below a folder with one of the extensions.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "fuse" || e == "py") {
            found.push(path);
        }
    }
}

fn seeds(draw: &mut Draw) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases"), &mut paths);
    let mut seeds: Vec<Vec<u8>> = paths.iter().filter_map(|path| std::fs::read(path).ok()).collect();
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..100).map(|_| draw.next() as u8).collect();
        let fusion = generate(&bytes, &Limits::whole_language()).fusion;
        seeds.push(text::print(&fusion).into_bytes());
    }
    seeds
}

/// The most memory that the process ever had, in bytes; 0 where that is not told.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")).and_then(|kib| kib.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// How long this thread has worked: the processor's time, which other processes
/// do not lengthen; where that is not told, the time of day.
fn worked() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|text| text.split(' ').next()?.parse().ok());
    nanoseconds
        .map(Duration::from_nanos)
        .unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// What is wrong with how the parsers take a text.
fn fault(source: &str) -> Option<String> {
    let parsers: [(&str, &dyn Fn()); 3] = [
        ("text", &|| drop(text::parse_lossy(source))),
        ("pydef", &|| drop(pydef::read(source))),
        ("case", &|| case::parse_only("fuzz.fuse", source)),
    ];
    for (name, parser) in parsers {
        let start = worked();
        if catch_unwind(AssertUnwindSafe(parser)).is_err() {
            return Some(format!("{name}: a panic"));
        }
        let took = worked().saturating_sub(start);
        if took > SLOW {
            return Some(format!("{name}: {took:?}"));
        }
    }
    None
}

fn main() -> std::process::ExitCode {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().ok());
    let seconds = args.next().flatten().unwrap_or(60);
    let mut draw = Draw(args.next().flatten().unwrap_or(1).wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15));
    std::panic::set_hook(Box::new(|_| ()));
    let seeds = seeds(&mut draw);
    let base = seeds.iter().fold(0, |_, seed| {
        let _ = fault(&String::from_utf8_lossy(seed));
        peak()
    });
    let (start, mut texts, mut bytes_read) = (Instant::now(), 0u64, 0u64);
    while start.elapsed() < Duration::from_secs(seconds) {
        let mut bytes = draw.of(&seeds).clone();
        for _ in 0..1 + draw.below(8) {
            mutate(&mut bytes, &seeds, &mut draw);
        }
        let source = String::from_utf8_lossy(&bytes);
        let grown = peak().saturating_sub(base);
        let fault = fault(&source).or_else(|| {
            let now = peak().saturating_sub(base);
            (now > MAX_BYTES && now > grown).then(|| format!("{} MiB of memory", now >> 20))
        });
        if let Some(fault) = fault {
            eprintln!("{fault}, text {texts}:\n{source}");
            return std::process::ExitCode::FAILURE;
        }
        texts += 1;
        bytes_read += source.len() as u64;
    }
    let (grown, seconds) = (peak().saturating_sub(base) >> 20, start.elapsed().as_secs());
    println!(
        "{texts} texts, {} MiB, {seconds} s: no panic, none slower than {SLOW:?}, {grown} MiB more memory",
        bytes_read >> 20
    );
    std::process::ExitCode::SUCCESS
}
