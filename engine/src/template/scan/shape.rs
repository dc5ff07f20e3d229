//! How blocks and their threads share a scan, by sizes.
//!
//! In: how many rows there are of which length, and what of them may be moved at once. Out: a [`Shape`], of which kernels are made.

use super::super::share::{self, LANES};
use crate::num::{DType, ReduceOp};
use crate::options::DeviceDesc;

/// Elements of a thread of one tile, at most: of whole vectors, of ones that lie across lines, and of ones that go through shared
/// memory.
const VECTOR_ITEMS: i64 = 8;
const ACROSS_ITEMS: i64 = 16;
const STAGED_ITEMS: i64 = 15;
/// Of the last, at least.
const LEAST_ITEMS: i64 = 3;
/// Bytes in which a thread combines elements that go through shared memory or lie across lines, at most.
const HELD_BYTES: i64 = 64;
/// Elements of a vector from which on lanes combine few enough times by shuffles.
const LEAST_VECTOR: i64 = 4;
/// Lanes that share a row, at least, and bytes that they read side by side, where elements go through shared memory.
const LEAST_LANES: i64 = 8;
const LEAST_RUN: i64 = 64;
/// Elements of a thread from which on they are moved in windows.
const LEAST_WINDOWED: i64 = 7;
/// Bytes of shared memory that a block has for elements.
const SHARED_BYTES: i64 = 46 << 10;
/// Blocks that share a row, at least, if several do.
const LEAST_CHUNKS: i64 = 3;
/// Warps of a block, at least where rows are short and at most where they are long.
const WARPS: [i64; 2] = [8, 16];

/// How blocks and their threads share a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// How the threads of a block do.
    pub threads: Threads,
    /// Blocks that share a row.
    pub chunks: u32,
    /// Whether a row is no longer than a tile.
    pub is_one_tile: bool,
}

/// How the threads of a block share a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Threads {
    /// Lanes of warps lie along the scanned axis: that many lanes of a warp, and warps, of a row; rows of a block, and
    /// elements of a thread.
    Along {
        /// Lanes of a warp that share a row.
        lanes: u32,
        /// Warps that share a row.
        warps: u32,
        /// Rows of a block.
        rows: u32,
        /// Elements of a thread of one tile.
        items: u32,
        /// Elements that are read and written at once.
        vector: u32,
        /// How elements of a thread go through shared memory, if they do.
        staging: Staging,
    },
    /// Lanes of a warp lie along other axes, each at a row of its own: that many threads of a row, and elements of
    /// each.
    Across {
        /// Threads that share a row, each in a warp of its own.
        parts: u32,
        /// Elements of a thread of one tile.
        items: u32,
    },
}

/// How the elements of a thread, which lie side by side, go through shared memory, so that lanes move neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Staging {
    /// They do not: a thread has vectors of its own.
    None,
    /// Element by element, or in short vectors.
    Elements,
    /// In vectors between the two ends of a row, which start where memory has them aligned.
    Windows,
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.threads {
            Threads::Along { lanes, warps, rows, items, vector, staging } => {
                write!(f, "along lanes {lanes} warps {warps} rows {rows} items {items} vector {vector}")?;
                match staging {
                    Staging::None => {}
                    Staging::Elements => write!(f, " staged")?,
                    Staging::Windows => write!(f, " in windows")?,
                }
            }
            Threads::Across { parts, items } => write!(f, "across parts {parts} items {items}")?,
        }
        if self.is_one_tile {
            write!(f, " one tile")?;
        }
        if self.chunks > 1 { write!(f, " chunks {}", self.chunks) } else { Ok(()) }
    }
}

/// What is scanned.
#[derive(Clone, Copy)]
pub(super) struct Scanned {
    pub(super) op: ReduceOp,
    pub(super) dtype: DType,
    pub(super) rows: i64,
    pub(super) length: i64,
    /// What may be moved at once, if rows lie along the innermost axis.
    pub(super) along: Option<Along>,
}

/// Elements that lie side by side.
#[derive(Clone, Copy)]
pub(super) struct Along {
    /// Elements of which whole vectors are aligned in all tensors.
    pub(super) vector: i64,
    /// Bytes of an element of the narrowest of them, and of one of each in shared memory.
    pub(super) narrowest: i64,
    pub(super) shared: i64,
    /// Whether elements of each tensor lie side by side, and the tensor starts where any access may.
    pub(super) has_windows: bool,
}

/// The shape for what is scanned.
pub(super) fn shape(device: &DeviceDesc, scanned: Scanned) -> Shape {
    let Scanned { op, dtype, rows, length, along } = scanned;
    if is_stepwise(op, dtype) {
        let items = share::power_of_two(length.min(VECTOR_ITEMS)) as u32;
        return Shape { threads: Threads::Across { parts: 1, items }, chunks: 1, is_one_tile: false };
    }
    let work = dtype.compute().bytes() as i64;
    let threads = match along {
        Some(along) => staged(length, work, along).unwrap_or_else(|| by_vectors(length, along.vector)),
        None => across(device, [rows, length], [work, dtype.bytes() as i64]),
    };
    let (of_block, tile) = match threads {
        Threads::Along { lanes, warps, rows, items, .. } => (rows.into(), i64::from(lanes * warps * items)),
        Threads::Across { parts, items } => (LANES, i64::from(parts * items)),
    };
    let blocks = over(rows, of_block);
    // Going through a chunk twice is worth it where most multiprocessors have nothing to do otherwise. Products of many
    // elements overflow, though one before them may be 0.
    let room = i64::from(share::LARGE.blocks(device, i64::MAX)) / blocks;
    let chunks = room.min(length / tile);
    let chunks = if op == ReduceOp::Prod || chunks < LEAST_CHUNKS { 1 } else { chunks };
    Shape { threads, chunks: chunks as u32, is_one_tile: length <= tile }
}

/// Whether each element of a scan is combined with the rounded prefix before it, one after the other: so are floats that hold
/// no sums. The greatest and the least of them are what they are in any order.
pub(super) fn is_stepwise(op: ReduceOp, dtype: DType) -> bool {
    dtype.is_float() && dtype.bits() <= 8 && matches!(op, ReduceOp::Sum | ReduceOp::Prod)
}

/// By threads that read and write vectors.
fn by_vectors(length: i64, vector: i64) -> Threads {
    let [few, many] = WARPS;
    let vector = vector.min(share::power_of_two(length));
    let lanes = share::power_of_two(over(length, vector)).min(LANES);
    let items = vector * share::power_of_two(over(length, lanes * vector)).min((VECTOR_ITEMS / vector).max(1));
    let warps = share::power_of_two(over(length, items * LANES)).min(many);
    let rows = (few / warps).max(1) * (LANES / lanes);
    along([lanes, warps, rows], [items, vector], Staging::None)
}

/// By threads whose elements go through shared memory: where vectors are so short that lanes would combine nearly each element
/// by shuffles, if there is room.
fn staged(length: i64, work: i64, elements: Along) -> Option<Threads> {
    let [few, many] = WARPS;
    let Along { vector, narrowest, shared, has_windows } = elements;
    let most = |warps: i64| odd_below(STAGED_ITEMS.min(HELD_BYTES / work).min(SHARED_BYTES / (LANES * warps * shared)));
    if vector >= LEAST_VECTOR || most(many) < LEAST_ITEMS {
        return None;
    }
    let run = (LEAST_RUN / narrowest).clamp(LEAST_LANES, LANES);
    // Vectors save more than the ends of a row take.
    let way = |lanes: i64, items: i64| match has_windows && lanes == LANES && items >= LEAST_WINDOWED {
        true => ([items, 1], Staging::Windows),
        false => ([items, vector], Staging::Elements),
    };
    // Rows of which a warp has several.
    let lanes = run.max(share::power_of_two(over(length, most(few)))).min(share::power_of_two(length)).max(LEAST_LANES);
    if lanes <= LANES {
        let items = over(length, lanes) | 1;
        let (elements, staging) = way(lanes, items);
        return (items <= most(few)).then(|| along([lanes, 1, few * LANES / lanes], elements, staging));
    }
    // Rows of which several warps have a tile, all of about as many elements.
    let warps = over(length, LANES * most(few)).min(many);
    let tiles = over(length, LANES * warps * most(warps.max(few)));
    let items = over(over(length, tiles), LANES * warps) | 1;
    let rows = (few / warps).max(1);
    let (elements, staging) = way(LANES, items);
    (items <= most(warps.max(few))).then(|| along([LANES, warps, rows], elements, staging))
}

/// By threads of which neighbours have neighbouring rows.
fn across(device: &DeviceDesc, [rows, length]: [i64; 2], [work, bytes]: [i64; 2]) -> Threads {
    let [_, many] = WARPS;
    let most = ACROSS_ITEMS.min(HELD_BYTES / work).max(1);
    // Where there are enough blocks, more threads of each have fewer elements, and several tiles.
    let waves = if bytes < 4 { 2 } else { 1 };
    let is_long = length > most * many && over(rows, LANES) > waves * i64::from(device.sm_count);
    let most = if is_long { most.min(VECTOR_ITEMS) } else { most };
    let parts = over(length, most).min(many);
    let items = over(length, parts).min(most);
    Threads::Across { parts: parts as u32, items: items as u32 }
}

fn along([lanes, warps, rows]: [i64; 3], [items, vector]: [i64; 2], staging: Staging) -> Threads {
    let wide = |n: i64| n as u32;
    let (lanes, warps, rows) = (wide(lanes), wide(warps), wide(rows));
    Threads::Along { lanes, warps, rows, items: wide(items), vector: wide(vector), staging }
}

/// The greatest odd number that is not above one.
fn odd_below(n: i64) -> i64 {
    if n % 2 == 0 { n - 1 } else { n }
}

fn over(n: i64, by: i64) -> i64 {
    (n + by - 1) / by
}
