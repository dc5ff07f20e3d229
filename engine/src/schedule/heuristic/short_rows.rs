//! Reductions over short rows that are no whole vectors, beside whatever else is computed of them.
//!
//! Of such rows a thread would read vectors that are shifted into place, or single elements, and most of what it does would be
//! about the ends of rows. But a number of rows together is one run of memory. So a block moves a run of rows between
//! memory and a tile in shared memory, by vectors at multiples of their size, and a few threads, or one, take a row from
//! there, element by element, or as many small elements at once as a word has, where rows are such words. The length of such
//! rows, and of the shortest, is a constant of the kernel. Others share one, four for each octave of lengths: that a row is longer than the
//! next shorter of these lets threads take most elements without a test (on an H200 softmax and the block epilogue of 193, 217 and 224
//! elements take 0.98 to 1.07 of the time of kernels of their length, and 1.3 if every element is tested).
//!
//! What is the same for all rows is read so, too, by every row. Where a row is whole vectors that a few threads
//! share evenly, they hold it without a tile, and such parameters come by vectors (`norm_inner`).
//!
//! In: fusions in which all tensors with all dimensions are dense, and end with the dimensions that are reduced.

use super::choose::{Heuristic, Params, Problem, Refusal};
use super::coverage;
use super::norm_inner::{is_cheap, reads_parameters_by_vectors};
use super::recompute::recompute;
use super::shared_tile::{BANKS_BYTES, MAX_SHARED, WORD_BYTES, extent_of, pass_input};
use super::summary::{GlobalTensor, Summary};
use super::tile::{Caching, WARP, cache_inputs, ceil_div, merge_all, tuned, vector_width};
use super::typical::{STEPS, next_step, previous_step};
use crate::diag::{Diagnostic, Result};
use crate::kernel::MAX_ACCESS_BYTES;
use crate::options::Options;
use crate::schedule::{
    AxisId, Columns, Loop, Memory, ParallelType, ScheduleBuilder, ScheduledFusion, Tile, TvId, Windows,
};
use crate::util::{set_of, sort_by_key};
use std::collections::BTreeSet;

/// Its row of the table.
pub(super) const HEURISTIC: Heuristic = Heuristic {
    name: "short_rows",
    writes_parts: true,
    accepts: |problem, scheduled| {
        coverage::check_plain(scheduled)?;
        if problem.summary.structure.reduced.is_empty() {
            return Err(Refusal::Pattern("the fusion has no reduction".to_string()));
        }
        coverage::check(problem, scheduled)?;
        params(problem, scheduled).map_err(Refusal::Pattern)?;
        Ok(())
    },
    choose: |problem, scheduled| {
        let params = params(problem, scheduled).map_err(Diagnostic::bug)?;
        Ok(Params::ShortRows(Box::new(params)))
    },
};

/// Elements of the longest row.
const MOST: i64 = 384;
/// Elements of the longest rows whose length is always a constant.
const SHORTEST: i64 = 64;
/// Lengths by which threads are chosen for all that share a kernel.
const SAMPLES: i64 = 8;
/// Rows below which blocks are too few.
const LEAST_ROWS: i64 = 4096;
/// Threads of a block, and most of them that have one row.
const THREADS: i64 = 128;
const MOST_OF_ROW: i64 = 16;
/// Registers of a multiprocessor, those of a thread for what it does not hold, and so many with which enough threads run.
const REGISTERS: i64 = 64 << 10;
const BESIDE: i64 = 32;
const ROOMY: i64 = 80;
/// Instructions, about, for an element beside its ways through tiles, and for each step of a sum over threads.
const INSTRUCTIONS: i64 = 10;
const STEP: i64 = 6;

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ShortRowParams {
    /// Dimensions that stay, slowest first.
    kept: Vec<AxisId>,
    /// Reduced dimensions, and their indices together.
    reduced: Vec<AxisId>,
    row: i64,
    /// Elements of the shortest row, where `row` are those of the longest; none where all are as long.
    least: Option<i64>,
    /// Elements of a vector, and those of a row that a thread takes from a tile at once.
    vector: i64,
    lanes: i64,
    /// Threads of a row, and rows of a block.
    threads: i64,
    rows: i64,
    /// Whether the rows divide into blocks.
    exact_rows: bool,
    /// Blocks that should fit a multiprocessor.
    min_blocks: i64,
    /// The tensors that pass through tiles, and those that are the same for all rows and aligned as a tile is.
    staged: Vec<TvId>,
    parameters: Vec<TvId>,
}

impl ShortRowParams {
    /// What a thread takes at once, of a row.
    fn words(&self) -> i64 {
        self.row / self.lanes
    }
}

impl std::fmt::Display for ShortRowParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { row, least, vector, lanes, threads, rows, .. } = self;
        match least {
            Some(least) => write!(f, "rows of {least} to {row}")?,
            None => write!(f, "rows of {row}")?,
        }
        write!(f, " vector {vector} threads {threads}x{rows}")?;
        if *lanes > 1 { write!(f, " lanes {lanes}") } else { Ok(()) }
    }
}

/// The rows of a fusion, and the tensors that are made of them.
struct Rows<'a> {
    kept: Vec<AxisId>,
    reduced: Vec<AxisId>,
    /// Elements of a row, and rows.
    row: i64,
    rows: i64,
    vector: i64,
    whole: Vec<&'a GlobalTensor>,
    /// What is the same for all of them.
    parameters: Vec<&'a GlobalTensor>,
}

/// Finds the rows, or says why the fusion is of another pattern.
fn rows_of<'a>(problem: &Problem<'a>, scheduled: &ScheduledFusion) -> Result<Rows<'a>, String> {
    let summary: &'a Summary<'a> = problem.summary;
    let is_reduced = |root: &AxisId| summary.structure.reduced.contains(root);
    let touches = |tensor: &GlobalTensor| tensor.order.iter().any(is_reduced);
    let reference = summary.largest(touches).ok_or("no tensor has the reduced dimensions")?;
    let order = &reference.order;
    if order.len() != summary.structure.roots.len() {
        return Err("no tensor has all dimensions".to_string());
    }
    let (reduced, kept): (Vec<AxisId>, Vec<AxisId>) = order.iter().copied().partition(is_reduced);
    let (whole, others): (Vec<&GlobalTensor>, Vec<&GlobalTensor>) =
        summary.globals.iter().partition(|tensor| tensor.order.len() == order.len());
    let is_run =
        |tensor: &&GlobalTensor| tensor.order == *order && tensor.dense.iter().all(|dense| *dense) && !tensor.is_part;
    if !order.ends_with(&reduced) || kept.is_empty() || !whole.iter().all(is_run) {
        return Err("rows are no run of memory with those beside them".to_string());
    }
    // What is beside them is the same for all rows, or has one element for each.
    let beside = |tensor: &&GlobalTensor| tensor.order.iter().all(is_reduced) || !touches(tensor);
    if !others.iter().all(beside) {
        return Err("a tensor has some of the dimensions of a row".to_string());
    }
    let vector = vector_width(summary, |tensor| tensor.order.len() == order.len());
    if whole.iter().any(|tensor| tensor.align % vector != 0) {
        return Err("a tensor starts within a vector".to_string());
    }
    let [row, rows] = [&reduced, &kept].map(|roots| extent_of(problem, scheduled, roots));
    let parameters = others.into_iter().filter(|tensor| tensor.order == reduced && !tensor.is_output).collect();
    Ok(Rows { kept, reduced, row, rows, vector, whole, parameters })
}

/// Chooses for the given sizes, or says why the fusion is of another pattern.
fn params(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<ShortRowParams, String> {
    let options = problem.cx.options;
    let Rows { kept, reduced, row, rows, vector, whole, parameters } = rows_of(problem, scheduled)?;
    let is_short = (2..=tuned(options, "short_rows.row", MOST)).contains(&row);
    // Vectors of such rows leave no thread idle.
    let is_round = row % vector == 0 && row.count_ones() == 1;
    if !is_short || is_round || rows < tuned(options, "short_rows.least", LEAST_ROWS) {
        return Err(format!("{rows} rows of {row} elements are few, or not short, or divide among threads"));
    }
    if reads_parameters_by_vectors(problem, scheduled) {
        return Err("threads hold a row by whole vectors, and its parameters".to_string());
    }
    let ways = Ways::new(row, vector, &whole, (scheduled, options));
    let threads = ways.chosen(tuned(options, "short_rows.choice", 0)).ok_or("a block has no room for its rows")?;
    let (block_rows, lanes) = (THREADS / threads, ways.lanes(threads));
    Ok(ShortRowParams {
        kept,
        reduced,
        row: ways.longest(threads),
        least: ways.is_shared(threads).then(|| previous_step(row, STEPS) + 1),
        vector,
        lanes,
        threads,
        rows: block_rows,
        exact_rows: rows % block_rows == 0,
        min_blocks: (REGISTERS / THREADS / ways.registers(threads)).clamp(1, 16),
        staged: whole.iter().map(|tensor| tensor.tv).collect(),
        parameters: parameters
            .iter()
            .filter(|own| own.align % lanes == 0 && own.dense.iter().all(|dense| *dense))
            .map(|own| own.tv)
            .collect(),
    })
}

/// How many threads may have each of the rows, and what that costs.
struct Ways {
    row: i64,
    vector: i64,
    /// Bytes of an element of all tensors together and of the widest, how many these are, and how many of them are read.
    bytes: i64,
    widest: i64,
    tensors: i64,
    inputs: i64,
    /// Elements that a thread takes at once at most.
    most: i64,
    reduces_pairs: bool,
}

impl Ways {
    fn new(row: i64, vector: i64, whole: &[&GlobalTensor], (scheduled, options): (&ScheduledFusion, &Options)) -> Self {
        let bytes = || whole.iter().map(|tensor| tensor.bytes);
        let (least, widest) = (bytes().min().unwrap_or(1), bytes().max().unwrap_or(1));
        Self {
            row,
            vector,
            bytes: bytes().sum(),
            widest,
            tensors: whole.len() as i64,
            inputs: whole.iter().filter(|tensor| !tensor.is_output).count() as i64,
            most: (tuned(options, "short_rows.bytes", WORD_BYTES) / least).min(MAX_ACCESS_BYTES / widest),
            reduces_pairs: scheduled.tensors.ids().any(|tv| scheduled.reduces_pairs(tv)),
        }
    }

    /// The threads of a row, of which a block has room: the best, or so many ways behind it.
    fn chosen(&self, place: i64) -> Option<i64> {
        let mut ways: Vec<i64> =
            (0..=MOST_OF_ROW.ilog2()).map(|log| 1i64 << log).filter(|way| self.fits(*way)).collect();
        sort_by_key(&mut ways, |threads| self.cost(*threads));
        let usual = *ways.get(usize::try_from(place.min(ways.len() as i64 - 1)).ok()?)?;
        // Rows whose threads meet in banks have others.
        let shared = ways.iter().copied().filter(|threads| self.is_shared(*threads));
        let own = shared.min_by_key(|threads| self.cost_of(*threads, self.row)).filter(|_| place == 0);
        let is_better =
            |own: &i64| self.is_shared(usual) && self.cost_of(usual, self.row) * 4 > self.cost_of(*own, self.row) * 5;
        Some(own.filter(is_better).unwrap_or(usual))
    }

    fn lanes(&self, threads: i64) -> i64 {
        lanes_of(self.row, threads, self.most)
    }

    /// Whether the kernel is that of other lengths, too.
    fn is_shared(&self, threads: i64) -> bool {
        let is_long = self.row > SHORTEST && self.lanes(threads) == 1;
        is_long && THREADS / threads % self.vector == 0 && !self.reduces_pairs
    }

    /// The longest row that shares the kernel: others have its places.
    fn longest(&self, threads: i64) -> i64 {
        if self.is_shared(threads) { next_step(self.row, STEPS) } else { self.row }
    }

    fn fits(&self, threads: i64) -> bool {
        let rows = THREADS / threads;
        let places = rows.saturating_mul(self.longest(threads)).saturating_mul(self.bytes);
        rows.saturating_mul(self.row) % self.vector == 0 && places <= MAX_SHARED
    }

    fn registers(&self, threads: i64) -> i64 {
        BESIDE + ceil_div(self.longest(threads), threads) * self.inputs.max(1)
    }

    fn cost_of(&self, threads: i64, row: i64) -> i64 {
        cost([row, self.lanes(threads), threads], (self.widest, self.tensors), self.registers(threads))
    }

    /// Of the rows that share the kernel, on the average.
    fn cost(&self, threads: i64) -> i64 {
        match self.is_shared(threads) {
            true => samples(self.row).map(|row| self.cost_of(threads, row)).sum::<i64>() / SAMPLES,
            false => self.cost_of(threads, self.row),
        }
    }
}

/// Lengths of the rows that share a kernel with one, odd as most of them that are no vectors.
fn samples(row: i64) -> impl Iterator<Item = i64> {
    let (below, longest) = (previous_step(row, STEPS), next_step(row, STEPS));
    (0..SAMPLES).map(move |sample| (below + (longest - below) * sample / SAMPLES) | 1)
}

/// How many elements of a row are taken at once, at most so many: a power of two of which all threads of a row have equally
/// many, or one.
fn lanes_of(row: i64, threads: i64, most: i64) -> i64 {
    let mut lanes = 1;
    while 2 * lanes <= most && row % (2 * lanes * threads) == 0 {
        lanes *= 2;
    }
    lanes
}

/// What a row costs in instructions, by elements in thousands, when so many threads have it, each so many elements at once: those
/// without an element at the end of their row, meetings in banks on the ways of an element through the tiles, and sums over
/// threads. With more registers than are roomy fewer threads run.
fn cost([row, lanes, threads]: [i64; 3], (bytes, tiles): (i64, i64), registers: i64) -> i64 {
    let taken = ceil_div(row / lanes, threads) * threads;
    let moves = 2 * tiles * conflicts([row, lanes, threads], bytes);
    let sums = STEP * threads * i64::from(threads.ilog2());
    (taken * (INSTRUCTIONS * lanes + moves) + sums) * 1000 / row * registers.max(ROOMY) / ROOMY
}

/// Words in the bank in which most threads of a warp meet, of which so many have each row, beside each other, each so many elements
/// of so many bytes: of the first word that it takes.
fn conflicts([row, lanes, threads]: [i64; 3], bytes: i64) -> i64 {
    let word = |thread: i64| (thread / threads * row + thread % threads * lanes) * bytes / WORD_BYTES;
    let words: BTreeSet<i64> = set_of((0..WARP).map(word));
    let mut banks = [0; (BANKS_BYTES / WORD_BYTES) as usize];
    words.iter().for_each(|word| banks[(word % (BANKS_BYTES / WORD_BYTES)) as usize] += 1);
    banks.into_iter().max().unwrap_or(1)
}

/// Applies the choices.
pub(super) fn apply(builder: &mut ScheduleBuilder, caching: Caching, params: &ShortRowParams) -> Result<()> {
    cache_inputs(builder, caching)?;
    recompute(builder, &|state, tv| is_cheap(state, tv, &params.reduced))?;
    let computing = compute(builder, params)?;
    let moves = Moves::new(builder, params, &computing)?;
    let outputs = builder.outputs();
    let prefix = 1 + computing.threads.len();
    let mut keep = Vec::new();
    for tensor in &params.staged {
        let registers = if outputs.contains(tensor) {
            let tile = builder.cache_before(*tensor)?;
            let registers = builder.cache_after(tile)?;
            for tv in [registers, *tensor] {
                builder.set_loops(tv, &moves.writing)?;
            }
            if params.lanes > 1 {
                builder.cache_before(tile)?;
                builder.set_loops(tile, &computing.by_words)?;
            }
            builder.set_memory(tile, Memory::Shared)?;
            builder.alloc(tile, Tile { axes: vec![moves.written], columns: Columns::InOrder })?;
            registers
        } else {
            let registers = builder.state().consumers(*tensor)[0];
            let tile = Tile { axes: vec![moves.read], columns: Columns::InOrder };
            let held = pass_input(builder, *tensor, [&moves.reading, &moves.reading], tile)?;
            if params.lanes > 1 {
                builder.set_loops(held, &computing.by_words)?;
            }
            registers
        };
        keep.push((registers, prefix));
    }
    if params.lanes > 1 {
        for tensor in &params.parameters {
            let registers = builder.state().consumers(*tensor)[0];
            builder.set_loops(registers, &computing.by_words)?;
        }
    }
    builder.min_blocks(params.min_blocks as u32)?;
    builder.inline_most(&keep)
}

fn place(axis: AxisId, parallel: ParallelType) -> Loop {
    Loop { axis, parallel }
}

/// The axes along which rows are computed.
struct Computing {
    /// Rows, and what is along one.
    own: AxisId,
    inner: AxisId,
    grid: Loop,
    /// Threads over rows, and over parts of one if several have it.
    threads: Vec<Loop>,
    /// All loops, where what is taken at once is a vector.
    by_words: Vec<Loop>,
}

/// Gives rows to threads. The length of a row is a constant, or the parts that it has are, and how many of them are full at least.
fn compute(builder: &mut ScheduleBuilder, params: &ShortRowParams) -> Result<Computing> {
    let ShortRowParams { kept, reduced, row, least, lanes, threads, rows, exact_rows, .. } = params;
    let missing = || Diagnostic::bug("short rows without a dimension");
    let inner = merge_all(builder, reduced)?.ok_or_else(missing)?;
    let own = merge_all(builder, kept)?.ok_or_else(missing)?;
    let (all, short) = match least {
        Some(least) => {
            builder.at_least(inner, *least)?;
            if !exact_rows {
                builder.at_least(own, 1)?;
            }
            (None, inner)
        }
        None => builder.split_cover(inner, 1, *row, true).map(|(all, short)| (Some(all), short))?,
    };
    let (block, line) = builder.split(own, *rows, *exact_rows)?;
    let (words, lane) = match lanes {
        1 => (short, None),
        _ => builder.split(short, *lanes, true).map(|(words, lane)| (words, Some(lane)))?,
    };
    let of_row = params.words();
    let exact = least.is_none() && of_row % threads == 0;
    let (batch, part) = builder.split_cover(words, ceil_div(of_row, *threads), *threads, exact)?;
    let mut along: Vec<AxisId> = all.into_iter().chain([batch]).collect();
    let bound = if *threads > 1 {
        vec![place(line, ParallelType::Tidy), place(part, ParallelType::Tidx)]
    } else {
        along.push(part);
        vec![place(line, ParallelType::Tidx)]
    };
    along.extend(lane);
    let grid = place(block, ParallelType::Bidx);
    let unrolled = std::iter::once(batch).chain(lane).map(|axis| place(axis, ParallelType::Unroll));
    for own in bound.iter().copied().chain([grid]).chain(unrolled) {
        builder.parallelize(own.axis, own.parallel)?;
    }
    let state = builder.state();
    for tv in state.tensors.ids().filter(|tv| state.is_reduction(*tv)).collect::<Vec<_>>() {
        let is_of_pairs = builder.state().reduces_pairs(tv);
        if is_of_pairs {
            // All of a row, which is one iteration, stays around the maximum and the sum.
            builder.rfactor_max(tv, &along[1..])?;
        }
        if *threads > 1 {
            builder.rfactor(tv, if is_of_pairs { &along[..1] } else { &along })?;
        }
    }
    let order: Vec<AxisId> = std::iter::once(&grid).chain(&bound).map(|own| own.axis).chain(along.clone()).collect();
    builder.propagate(&order)?;
    let parallel = |axis: AxisId| match axis {
        _ if Some(axis) == lane => ParallelType::Vectorize,
        _ if axis == batch => ParallelType::Unroll,
        _ => ParallelType::Serial,
    };
    let within = along.iter().map(|axis| place(*axis, parallel(*axis)));
    let by_words = std::iter::once(grid).chain(bound.iter().copied()).chain(within).collect();
    Ok(Computing { own, inner, grid, threads: bound, by_words })
}

/// How runs of rows move between memory and tiles: the part of the run in a tile, and its loops.
struct Moves {
    read: AxisId,
    reading: Vec<Loop>,
    written: AxisId,
    writing: Vec<Loop>,
}

impl Moves {
    /// Where threads take more elements than a row of a constant length has, they read beyond the last row of a block, too.
    fn new(builder: &mut ScheduleBuilder, params: &ShortRowParams, computing: &Computing) -> Result<Self> {
        let ShortRowParams { row, least, vector, lanes, threads, rows, .. } = params;
        let whole = builder.merge(computing.own, computing.inner)?;
        let step = rows * row;
        let beyond = ceil_div(params.words(), *threads) * threads * lanes - row;
        let mut windows = |width: i64| -> Result<(AxisId, Vec<Loop>)> {
            let run = match least {
                Some(_) => builder.windows_beside(whole, computing.grid.axis, *rows, computing.inner)?,
                None => {
                    let windows = Windows { step, width, left: 0, aligned: None };
                    builder.window(whole, computing.grid.axis, windows)?
                }
            };
            let (lanes, lane) = builder.split(run, *vector, true)?;
            let of_block = threads * rows;
            let steps = ceil_div(width, vector * of_block);
            let exact = least.is_none() && width % (vector * of_block) == 0;
            let (steps, thread) = match least {
                Some(_) => builder.split_cover(lanes, steps, of_block, false)?,
                None => builder.split(lanes, of_block, exact)?,
            };
            let mut loops = vec![computing.grid];
            if *threads > 1 {
                let (y, x) = builder.split(thread, *threads, true)?;
                loops.extend([place(y, ParallelType::Tidy), place(x, ParallelType::Tidx)]);
            } else {
                loops.push(place(thread, ParallelType::Tidx));
            }
            loops.extend([place(steps, ParallelType::Unroll), place(lane, ParallelType::Vectorize)]);
            Ok((run, loops))
        };
        let (written, writing) = windows(step)?;
        if beyond == 0 || least.is_some() {
            return Ok(Self { read: written, reading: writing.clone(), written, writing });
        }
        let (read, reading) = windows(step + ceil_div(beyond, *vector) * vector)?;
        Ok(Self { read, reading, written, writing })
    }
}

#[cfg(test)]
mod tests {
    use super::super::choose::tests::planned_of;
    use super::*;
    use crate::num::DType;

    #[test]
    fn rows_of_whole_vectors_with_parameters_need_no_tile() {
        let check = |body: &str, row: i64, wanted: [&str; 2]| {
            let text = format!("fusion @f(%x: bf16[?, ?], %w: bf16[?]) {{\n  {body}\n}}");
            let planned = planned_of(&text, &[(DType::BF16, &[100_000, row]), (DType::BF16, &[row])]);
            let planned = planned.expect("it is scheduled");
            assert_eq!(planned.scheduler, wanted[0], "{row}");
            assert!(planned.params_text.contains(wanted[1]), "{row}: {}", planned.params_text);
        };
        let norm = "%0 = rms_norm %x, %w eps(1e-6)\n  %out = cast %0 bf16\n  return %out";
        check(norm, 384, ["inner_persistent", "vector 8 batch 3 threads 16x8"]);
        check(norm, 96, ["inner_persistent", "vector 8 batch 3 threads 4x32"]);
        check(norm, 160, ["inner_persistent", "vector 8 batch 5 threads 4x32"]);
        // Of ten vectors a fifth of the threads would have none.
        check(norm, 80, ["short_rows", "rows of 80"]);
        check(norm, 383, ["short_rows", "rows of 321 to 384"]);
        check(norm, 65, ["short_rows", "rows of 65 to 80"]);
        check(norm, 63, ["short_rows", "rows of 63"]);
        // Without parameters a tile costs little.
        check("%0 = softmax %x axis(1)\n  %out = cast %0 bf16\n  return %out", 384, ["short_rows", "rows of 384"]);
    }

    #[test]
    fn small_elements_are_taken_by_words_where_threads_share_them_evenly() {
        let check = |row: i64, threads: i64, most: i64, lanes: i64| {
            assert_eq!(lanes_of(row, threads, most), lanes, "{threads} of {row} elements, {most} at once");
        };
        check(120, 4, 2, 2);
        check(86, 1, 2, 2);
        check(86, 2, 2, 1);
        check(100, 2, 4, 2);
        check(67, 1, 4, 1);
        check(112, 4, 4, 4);
        check(112, 4, 0, 1);
        let text = "fusion @f(%x: bf16[?, ?]) {\n  %0 = softmax %x axis(1)\n  %out = cast %0 bf16\n  return %out\n}";
        let planned = planned_of(text, &[(DType::BF16, &[100_000, 120])]).expect("it is scheduled");
        assert!(planned.params_text.contains("lanes 2"), "{}", planned.params_text);
    }

    #[test]
    fn threads_meet_in_banks_where_rows_are_as_long_as_those() {
        let check = |row: i64, threads: i64, bytes: i64, words: i64| {
            assert_eq!(conflicts([row, 1, threads], bytes), words, "{threads} of {row} elements of {bytes} bytes");
        };
        check(33, 1, 4, 1);
        check(32, 1, 4, 32);
        check(48, 1, 4, 16);
        check(71, 4, 2, 1);
        check(129, 4, 2, 5);
        check(64, 2, 2, 16);
    }

    #[test]
    fn short_odd_rows_have_one_thread_and_rows_of_whole_banks_many() {
        let least = |row: i64| (0..5).map(|log| 1 << log).min_by_key(|threads| cost([row, 1, *threads], (4, 2), 32));
        assert_eq!([least(7), least(31)], [Some(1), Some(1)]);
        assert_eq!(least(192), Some(16));
    }
}
