//! Elementwise fusions whose tensors run along two different dimensions.
//!
//! Whichever of the two threads run along, the tensors of the other side are read or written
//! an element here, an element there. So both dimensions are cut into tiles, and a block takes
//! one: tensors of the first side are accessed by threads along its dimension, those of the
//! second side by threads along the other, and their values pass through a tile in shared
//! memory between the two maps of threads. Everything is computed in the loops of the first
//! side, which is the one with more tensors: each tensor of the second side takes shared memory.
//!
//! Where rows of a side start in the middle of a vector, so that none or a narrow one fits them all, its tensors
//! are accessed by vectors that are aligned row by row: a thread of the first side writes the part of a
//! row between two multiples of the tile, wherever the row starts (`align`), and a tile takes
//! windows of the rows of the second side, from the vector on in which a part starts (`window`). So tiles
//! overlap by a vector along either dimension, in what they read; what they write does not.
//!
//! The sides of a tile are powers of two, or what wastes less: any numbers of vectors of which the threads of a block take whole
//! rows in each step, so that a step adds a constant to all places.
//!
//! Where one of the dimensions is short, or a short one lies within both, see `short`; where all are, `boxes`.
//!
//! In shared memory the rows of a tile are skewed against each other, so that neither side
//! meets itself in a bank, and places are sums of what a thread knows and of constants: a thread of the first side reads a column. Of elements of a byte it takes several
//! columns, as far as its registers reach: then it reads its part of each row by one access and turns the block of rows and
//! columns in registers.

use super::choose::{Heuristic, Params, Problem, Refusal};
use super::shared_tile::{
    BANKS_BYTES, LEAST_BYTES, MAX_SHARED, SECTOR_BYTES, THREADS, TILE_BYTES, WORD_BYTES, alike, bind_loops, blocks_of,
    extent_of, others, widths,
};
use super::short::Short;
use super::summary::{GlobalTensor, Summary};
use super::tile::{
    Caching, WARP, cache_inputs, ceil_div, collapse, keep_for_stores, merge_all, next_power_of_two, power_of_two_below,
    tuned,
};
use super::{boxes, coverage, heads, images};
use crate::diag::{Diagnostic, Result};
use crate::kernel::{MAX_ACCESS_BYTES, gcd};
use crate::schedule::{
    AxisId, Columns, Io, Loop, Memory, ParallelType, ScheduleBuilder, ScheduledFusion, Tile, TvId, Windows,
};

/// Elements that a thread reads ahead from a tile, one by one: each is a register.
const MOST_READ: i64 = 32;
/// Bytes that a thread holds of all tensors together.
const MAX_HELD: i64 = 192;
/// Indices of a dimension below which threads along it are not worth a tile.
const LEAST_EXTENT: i64 = 8;
/// Bytes of rows below which what windows read twice is not worth it.
const LINE_BYTES: i64 = 128;
/// Bytes of the widest access that fits all rows, from which on they are not aligned row by row.
const FITTING_BYTES: i64 = 8;
/// Warps of a block whose tile has sides that are no powers of two.
const FITTED_WARPS: std::ops::RangeInclusive<i64> = 4..=16;
/// The part of the cost of a tile of powers of two that another one may have, so that shapes of about one size share kernels.
const FITTED_COST: f64 = 0.95;
/// Hundredths of the wanted elements that a tile has at most, and hundredths of those that are staged.
const MOST_OF_AREA: i64 = 125;
const MOST_STAGED: i64 = 160;
/// Hundredths of the time that elements cost whose places threads compute in each step.
const IN_TURN: i64 = 140;
/// Tiles along the first dimension with which the blocks that run at once are long and thin.
const MANY_TILES: i64 = 128;

/// Its row of the table.
pub(super) const HEURISTIC: Heuristic = Heuristic {
    name: "transpose",
    writes_parts: true,
    accepts: |problem, scheduled| {
        coverage::check_plain(scheduled)?;
        coverage::check_direct(scheduled)?;
        if !problem.summary.structure.reduced.is_empty() {
            return Err(Refusal::Pattern("the fusion has reductions".to_string()));
        }
        if of_short(problem, scheduled).is_none() {
            let found = sides(problem, scheduled).map(|_| ());
            found
                .or_else(|refusal| boxes::plan(problem, scheduled).map(|_| ()).ok_or(refusal))
                .map_err(Refusal::Pattern)?;
        }
        Ok(coverage::check(problem, scheduled)?)
    },
    choose: |problem, scheduled| match of_short(problem, scheduled) {
        Some(params) => Ok(params),
        None => match sides(problem, scheduled).err().and_then(|_| boxes::plan(problem, scheduled)) {
            Some(params) => Ok(Params::Boxes(Box::new(params))),
            None => Ok(Params::Transpose(Box::new(params(problem, scheduled)?))),
        },
    },
};

/// The choices for a short dimension, if there is one that asks for them.
fn of_short(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Option<Params> {
    let found = Short::find(problem, scheduled)?;
    let images = images::plan(problem, &found);
    // Of short runs a block has too little; a box has many.
    if images.as_ref().is_some_and(images::ImageParams::is_small)
        && let Some(own) = boxes::plan(problem, scheduled)
    {
        return Some(Params::Boxes(Box::new(own)));
    }
    let images = images.map(|params| Params::Images(Box::new(params)));
    images.or_else(|| heads::plan(problem, &found).map(Params::Heads))
}

/// One of the two dimensions, and what runs along it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Side {
    /// The roots of the dimension, outer to inner.
    roots: Vec<AxisId>,
    /// Indices of the tile.
    tile: i64,
    /// Whether the tile divides the dimension.
    exact: bool,
    /// Elements of a vector.
    vector: i64,
    /// The tensor to whose rows vectors are aligned row by row.
    aligned_to: Option<TvId>,
    /// Indices of the tile in shared memory: more than those of the tile where others meet it in the middle
    /// of a vector.
    held: i64,
}

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TransposeParams {
    /// All other dimensions, slowest first.
    others: Vec<AxisId>,
    /// The dimension along which values are computed.
    first: Side,
    /// The dimension along which the tensors behind tiles run.
    second: Side,
    /// The tensors behind tiles.
    staged: Vec<TvId>,
    /// Threads of a block.
    threads: i64,
    /// Columns of a tile that a thread of the first side takes at once.
    unit: i64,
    /// Tiles along the second dimension that are taken before the next along the first.
    neighbours: i64,
}

impl std::fmt::Display for TransposeParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { first, second, staged, threads, unit, neighbours, .. } = self;
        write!(
            f,
            "tile {}x{} vectors {}x{} threads {threads} staged {} neighbours {neighbours}",
            first.tile,
            second.tile,
            first.vector,
            second.vector,
            staged.len()
        )?;
        if *unit > 1 {
            write!(f, " columns {unit}")?;
        }
        let by_row = [first, second].map(|side| side.aligned_to.is_some());
        match by_row {
            [false, false] => Ok(()),
            [true, false] => f.write_str(" first by row"),
            [false, true] => f.write_str(" second by row"),
            [true, true] => f.write_str(" both by row"),
        }
    }
}

/// The dimensions of the two sides, and the tensors that run along each.
struct Sides<'a> {
    /// All dimensions, as groups of neighbours that every tensor walks as one run.
    groups: Vec<Vec<AxisId>>,
    /// The group of either side.
    at: [usize; 2],
    /// The tensors of either side.
    tensors: [Vec<&'a GlobalTensor>; 2],
}

/// Finds two sides, or says why there are none.
fn sides<'a>(problem: &Problem<'a>, scheduled: &ScheduledFusion) -> Result<Sides<'a>, String> {
    let (summary, options): (&'a Summary<'a>, _) = (problem.summary, problem.cx.options);
    let reference = summary.largest(|_| true).ok_or("there is no tensor")?;
    let groups = collapse(summary, &reference.order);
    let group_of = |root: AxisId| groups.iter().position(|group| group.last() == Some(&root));
    let side_of = |tensor: &GlobalTensor| {
        tensor.order.last().filter(|root| tensor.is_innermost(**root)).and_then(|root| group_of(*root))
    };
    let bytes = |tensor: &GlobalTensor| tensor.elements.saturating_mul(tensor.bytes);
    let along = |at: usize, other: usize| -> Vec<&'a GlobalTensor> {
        let has = |tensor: &GlobalTensor| groups[other].iter().all(|root| tensor.order.contains(root));
        summary.globals.iter().filter(|tensor| side_of(tensor) == Some(at) && has(tensor)).collect()
    };
    let own = side_of(reference).ok_or("the largest tensor has gaps along its innermost dimension")?;
    let total = |tensors: &[&GlobalTensor]| tensors.iter().map(|tensor| bytes(tensor)).fold(0, i64::saturating_add);
    let candidates = (0..groups.len()).filter(|at| *at != own).map(|at| (at, along(at, own)));
    let (other, theirs) = candidates
        .max_by_key(|(_, tensors)| total(tensors))
        .filter(|(_, tensors)| {
            !tensors.is_empty() && total(tensors) >= tuned(options, "transpose.least_bytes", LEAST_BYTES)
        })
        .ok_or("no large tensors run along two different dimensions")?;
    let extent = |at: usize| extent_of(problem, scheduled, &groups[at]);
    if extent(own).min(extent(other)) < tuned(options, "transpose.least_extent", LEAST_EXTENT) {
        return Err(format!("a dimension of {} is too short for tiles", extent(own).min(extent(other))));
    }
    let mine = along(own, other);
    // The side with more tensors computes; of equals the one that writes.
    let writes = |tensors: &[&GlobalTensor]| tensors.iter().filter(|tensor| tensor.is_output).count();
    let first_is_own = (mine.len(), writes(&mine)) >= (theirs.len(), writes(&theirs));
    let (at, tensors) = if first_is_own { ([own, other], [mine, theirs]) } else { ([other, own], [theirs, mine]) };
    Ok(Sides { groups, at, tensors })
}

/// The widest vector at which the rows of all tensors of a side start, of their largest type.
fn vector_of(tensors: &[&GlobalTensor], axes: usize, extent: i64) -> i64 {
    let bytes = tensors.iter().map(|tensor| tensor.bytes).max().unwrap_or(1);
    let fits = |vector: &i64| extent % vector == 0 && tensors.iter().all(|tensor| tensor.rows_aligned(*vector, axes));
    widths(bytes).find(fits).unwrap_or(1)
}

/// The tensor to whose rows vectors can be aligned, if those that fit all rows are much less: all tensors of the
/// side start their rows at the same places.
fn row_reference(tensors: &[&GlobalTensor], fitting: i64, vector: i64) -> Option<TvId> {
    let bytes = tensors.first()?.bytes;
    let is_narrow = fitting < vector && fitting * bytes < FITTING_BYTES;
    let is_aligned = match tensors {
        // One tensor may begin anywhere: nobody else has another shift.
        [own] => own.base_align % vector == 0,
        _ => tensors.iter().all(|tensor| tensor.align % vector == 0),
    };
    alike(tensors).filter(|_| is_narrow && is_aligned)
}

/// What a plan is made for.
struct Wanted {
    /// Indices of either dimension.
    extents: [i64; 2],
    /// Bytes of the widest element of either side.
    bytes: [i64; 2],
    /// Whether rows of a side start in the middle of a sector, which they share with the row before.
    shared: [bool; 2],
    /// Elements of a tile, those that shared memory has room for, those of a thread, and indices of either side at most.
    area: i64,
    room: i64,
    each: i64,
    most: [i64; 2],
}

/// Chooses for the given sizes.
fn params(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<TransposeParams> {
    let Sides { groups, at, tensors } = sides(problem, scheduled).map_err(Diagnostic::bug)?;
    let extents = at.map(|at| extent_of(problem, scheduled, &groups[at]));
    let fitting = [0, 1].map(|side| vector_of(&tensors[side], groups[at[side]].len(), extents[side]));
    // Elements of a tile: of equal sides, as far as the dimensions reach.
    let widest = tensors[1].iter().map(|tensor| tensor.bytes).max().unwrap_or(1);
    let staged_bytes: i64 = tensors[1].iter().map(|tensor| tensor.bytes).sum();
    let held: i64 = tensors.iter().flatten().map(|tensor| tensor.bytes).sum();
    let room = (MAX_SHARED / staged_bytes).min(MAX_HELD * THREADS / held);
    let elements = tuned(problem.cx.options, "transpose.tile_bytes", TILE_BYTES) / widest;
    let bytes = tensors.each_ref().map(|side| side.iter().map(|tensor| tensor.bytes).max().unwrap_or(1));
    let wanted = Wanted {
        extents,
        bytes,
        shared: [0, 1].map(|side| extents[side] * bytes[side] % SECTOR_BYTES != 0),
        area: power_of_two_below(elements.min(room)).max(WARP),
        room: MAX_SHARED / staged_bytes,
        each: (MAX_HELD / held).min(MOST_READ),
        // Threads along a side take one vector each.
        most: [0, 1].map(|side| next_power_of_two(extents[side]).min(THREADS * fitting[side])),
    };
    let Some((plan, aligned_to)) = plan(problem, &tensors, &wanted, fitting) else {
        return Err(Diagnostic::bug("a tile has no threads"));
    };
    let Plan { vectors, threads, tiles, held, .. } = plan;
    let side = |side: usize| Side {
        roots: groups[at[side]].clone(),
        tile: tiles[side],
        exact: extents[side] % tiles[side] == 0 && aligned_to[side].is_none(),
        vector: vectors[side],
        aligned_to: aligned_to[side],
        held: held[side],
    };
    let turns = aligned_to == [None, None] && extents[0].saturating_mul(bytes[0]) >= LINE_BYTES;
    Ok(TransposeParams {
        others: others(problem, &groups, &at),
        first: side(0),
        second: side(1),
        staged: tensors[1].iter().map(|tensor| tensor.tv).collect(),
        threads,
        unit: if turns { unit_of(vectors, tiles, threads, widest) } else { 1 },
        // Blocks that share sectors of what is written shall be next to each other.
        neighbours: if wanted.shared[0] {
            1
        } else {
            neighbours([ceil_div(extents[0], tiles[0]), ceil_div(extents[1], tiles[1])])
        },
    })
}

/// How threads share a tile, and the tensors to whose rows vectors are aligned: by the widest vectors that are worth it.
fn plan(
    problem: &Problem<'_>,
    tensors: &[Vec<&GlobalTensor>; 2],
    wanted: &Wanted,
    fitting: [i64; 2],
) -> Option<(Plan, [Option<TvId>; 2])> {
    let options = problem.cx.options;
    let most = [
        tuned(options, "transpose.first_rows", MAX_ACCESS_BYTES),
        tuned(options, "transpose.second_rows", MAX_ACCESS_BYTES),
    ];
    // Results are not written by windows, which overlap.
    let reads = tensors[1].iter().all(|tensor| !tensor.is_output);
    let along = |side: usize, bytes: i64| {
        let most = if wanted.bytes[side] == 1 { WORD_BYTES } else { most[side] };
        let vector = (bytes.min(most) / wanted.bytes[side]).max(1);
        let is_long = wanted.extents[side].saturating_mul(wanted.bytes[side]) >= LINE_BYTES;
        let reference = row_reference(&tensors[side], fitting[side], vector).filter(|_| reads && is_long);
        reference.map(|reference| (vector, reference))
    };
    let pairs =
        [[MAX_ACCESS_BYTES; 2], [WORD_BYTES, MAX_ACCESS_BYTES], [MAX_ACCESS_BYTES, WORD_BYTES], [WORD_BYTES; 2]];
    let both = pairs.into_iter().map(|bytes| [along(0, bytes[0]), along(1, bytes[1])]);
    let first = [MAX_ACCESS_BYTES, WORD_BYTES].into_iter().map(|bytes| [along(0, bytes), None]);
    both.chain(first).chain([[None, None]]).find_map(|by_row| {
        let vectors = [0, 1].map(|side| by_row[side].map_or(fitting[side], |(vector, _)| vector));
        let plan = Plan::new(wanted, vectors, by_row.map(|by| by.is_some()))?;
        Some((plan, by_row.map(|by| by.map(|(_, reference)| reference))))
    })
}

/// How threads share a tile.
struct Plan {
    /// Elements of a vector along either side.
    vectors: [i64; 2],
    /// Threads of a block.
    threads: i64,
    /// Indices of either dimension of which a block writes the results.
    tiles: [i64; 2],
    /// Indices of which it holds values in shared memory.
    held: [i64; 2],
    /// Elements for which its threads take time to stage them.
    staged: i64,
}

impl Plan {
    /// The tile of powers of two, or one of other sides if that is much better.
    fn new(wanted: &Wanted, vectors: [i64; 2], by_row: [bool; 2]) -> Option<Self> {
        let Wanted { extents, bytes, shared, area, most, .. } = *wanted;
        let sides = tile_sides(area, most, [0, 1].map(|side| (extents[side], bytes[side], shared[side])));
        let plain = Self::of_powers(sides, vectors, by_row);
        // Sides of bytes are powers of two.
        let fitted = if bytes == [1, 1] { None } else { Self::fitted(wanted, vectors, by_row) };
        let bound = plain.as_ref().map_or(f64::INFINITY, |plan| FITTED_COST * plan.cost(wanted));
        fitted.filter(|plan| plan.cost(wanted) < bound).or(plain)
    }

    /// For a tile of powers of two; none if aligning vectors row by row would read too much twice. A part of a row of the
    /// first side needs values from up to a vector before its tile; of the second side as many lie outside
    /// of the windows of whole vectors. Either way all threads have whole steps.
    fn of_powers([first, second]: [i64; 2], vectors: [i64; 2], by_row: [bool; 2]) -> Option<Self> {
        // A tile of few elements may be narrower than a vector.
        let narrow = [vectors[0].min(first), vectors[1].min(second)];
        let threads = THREADS.min(first * second / narrow[0].max(narrow[1]));
        // Rows that one step of all threads takes.
        let staged = (threads * narrow[1] / second).clamp(1, first);
        let computed = (threads * narrow[0] / first).clamp(1, second).max(narrow[1]);
        let slack = [0, 1].map(|side| if by_row[side] { narrow[side] - 1 } else { 0 });
        let held = [ceil_div(first + slack[0], staged) * staged, second];
        let tiles = [first, (second - slack[1]) / computed * computed];
        let is_worth_it = 4 * held[0] <= 5 * first && 4 * tiles[1] >= 3 * second && narrow == vectors;
        let plan = Self { vectors: narrow, threads, tiles, held, staged: held[0] * held[1] };
        (by_row == [false; 2] || is_worth_it).then_some(plan)
    }

    /// The best tile of which all threads compute whole rows in each step: of a row as many vectors as divide their number.
    fn fitted(wanted: &Wanted, vectors: [i64; 2], by_row: [bool; 2]) -> Option<Self> {
        let mut best: Option<(f64, Self)> = None;
        for threads in FITTED_WARPS.map(|warps| warps * WARP) {
            for lanes in (1..=threads).filter(|lanes| threads % lanes == 0) {
                let (first, rows) = (lanes * vectors[0], threads / lanes);
                let step = rows / gcd(rows, vectors[1]) * vectors[1];
                let seconds =
                    (1..).map(|steps| steps * step).take_while(|second| Self::is_room(wanted, first * second));
                for plan in seconds.filter_map(|second| Self::of(wanted, vectors, by_row, threads, [first, second])) {
                    let cost = plan.cost(wanted);
                    if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                        best = Some((cost, plan));
                    }
                }
            }
        }
        best.map(|(_, plan)| plan)
    }

    /// Whether so many elements are not too many for a tile.
    fn is_room(wanted: &Wanted, elements: i64) -> bool {
        100 * elements <= MOST_OF_AREA * wanted.area
    }

    /// A tile of these sides, unless it is too small or too much beside it is staged.
    fn of(
        wanted: &Wanted,
        vectors: [i64; 2],
        by_row: [bool; 2],
        threads: i64,
        [first, second]: [i64; 2],
    ) -> Option<Self> {
        let is_reached = [first, second].iter().zip(wanted.most).all(|(tile, most)| *tile <= most);
        let elements = first * second;
        if !is_reached || 2 * elements < wanted.area || elements > wanted.each * threads {
            return None;
        }
        // Windows reach a vector further.
        let width = second + if by_row[1] { vectors[1] } else { 0 };
        let needed = first + if by_row[0] { vectors[0] - 1 } else { 0 };
        let lanes = width / vectors[1];
        let in_turn = ceil_div(needed * lanes, threads) * threads * vectors[1];
        let by_steps = (threads % lanes == 0).then(|| ceil_div(needed, threads / lanes) * threads * vectors[1]);
        let (rows, taken, staged) = match by_steps.filter(|taken| 100 * taken <= IN_TURN * in_turn) {
            Some(taken) => (taken / width, taken, taken),
            None => (needed, in_turn, in_turn * IN_TURN / 100),
        };
        let plan = Self { vectors, threads, tiles: [first, second], held: [rows, width], staged };
        (rows * width <= wanted.room && 100 * taken <= MOST_STAGED * elements).then_some(plan)
    }

    /// What a tile costs for each element that is needed.
    fn cost(&self, wanted: &Wanted) -> f64 {
        let Self { tiles: [first, second], threads, staged, .. } = *self;
        let parts = [0, 1].map(|side| ceil_div(wanted.extents[side], self.tiles[side]) as f64);
        let needed = wanted.extents[0] as f64 * wanted.extents[1] as f64 / (parts[0] * parts[1]);
        let [written, staged] = [first * second, staged].map(|elements| elements as f64 / needed);
        let broken = [0, 1].map(|side| {
            let dimension = (wanted.extents[side], wanted.bytes[side], wanted.shared[side]);
            broken(dimension, self.tiles[side].min(wanted.extents[side]))
        });
        let [full, sides, blocks] = [
            wanted.area as f64 / (first * second) as f64,
            first as f64 / second as f64,
            threads as f64 / THREADS as f64,
        ];
        // Threads outside take time, but no memory.
        let outside = 0.4 + 0.3 * (written + staged);
        outside
            * full.max(1.0).sqrt()
            * broken[0]
            * broken[1]
            * (1.0 + 0.01 * sides.log2().abs() + 0.02 * blocks.log2().abs())
    }
}

/// The sides of a tile of so many elements, of dimensions with so many indices, bytes of an
/// element and whether rows share sectors: powers of two, such that little of the tiles lies
/// outside and the parts of rows are whole lines.
fn tile_sides(area: i64, most: [i64; 2], dimensions: [(i64, i64, bool); 2]) -> [i64; 2] {
    let covered = |(extent, ..): (i64, i64, bool), tile: i64| (ceil_div(extent, tile) * tile) as f64 / extent as f64;
    let cost = |sides: [i64; 2]| {
        let of = |side: usize| (covered(dimensions[side], sides[side]), broken(dimensions[side], sides[side]));
        let ([(first_covered, first_broken), (second_covered, second_broken)], [first, second]) =
            ([of(0), of(1)], sides.map(|side| side as f64));
        // Threads outside take time, but no memory.
        let outside = 0.7 + 0.3 * first_covered * second_covered;
        // What the dimensions are too short for, nothing helps.
        let full = (area as f64 / (first * second)).max(1.0);
        outside * full * first_broken * second_broken * (1.0 + 0.01 * (first / second).log2().abs())
    };
    let sides = (0..=area.ilog2()).map(|log| [(1i64 << log).min(most[0]), (area >> log).min(most[1])]);
    let best = sides.min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
    best.unwrap_or(most)
}

/// What parts of rows cost that are no whole lines, of a dimension as for `tile_sides`.
fn broken((extent, bytes, shared): (i64, i64, bool), tile: i64) -> f64 {
    let bytes = tile * bytes;
    // Where a part of a row ends within a sector, two blocks touch it.
    let ends = if shared && tile < extent { 1.0 + 64.0 / bytes as f64 } else { 1.0 };
    ends * match bytes {
        128.. => 1.0,
        64.. => 1.3,
        32.. => 2.0,
        _ => 3.0,
    }
}

/// How many tiles along the second dimension are taken before the next along the first one:
/// blocks that run at once shall lie close together along both, so that what they touch of a
/// row in memory is one run.
fn neighbours(counts: [i64; 2]) -> i64 {
    let few_idle = |group: &i64| 25 * ceil_div(counts[1], *group) * group <= 26 * counts[1];
    let groups = [16, 8, 4].into_iter().filter(|group| counts[1] >= 2 * group);
    if counts[0] < MANY_TILES { 1 } else { groups.into_iter().find(few_idle).unwrap_or(1) }
}

/// The columns of a tile of elements of so many bytes that a thread takes at once: as many as one access moves, and as
/// its share of the tile has beside a vector. Elements of two bytes and more are read one by one just as well (on an H200: bytes
/// gain a fifth, elements of two bytes lose up to a twentieth).
fn unit_of(vectors: [i64; 2], [first, second]: [i64; 2], threads: i64, bytes: i64) -> i64 {
    if 2 * bytes >= WORD_BYTES {
        return 1;
    }
    let share = first * second / threads / vectors[0];
    // So that steps stay whole.
    let whole = 1 << share.max(1).trailing_zeros();
    power_of_two_below((MAX_ACCESS_BYTES / bytes).min(vectors[1])).min(whole)
}

/// The loops of one side within a tile.
struct Along {
    /// Threads along its dimension and then along the other one.
    thread: AxisId,
    /// The other's steps.
    steps: AxisId,
    /// Neighbours along the other one that a thread takes in each step, if there are several.
    unit: Option<AxisId>,
    /// The vector.
    vector: AxisId,
}

impl Along {
    fn new(
        builder: &mut ScheduleBuilder,
        (own, vector): (AxisId, i64),
        (other, unit): (AxisId, i64),
        threads: i64,
    ) -> Result<Self> {
        let (lanes, vector) = builder.split(own, vector, true)?;
        let extent = |builder: &ScheduleBuilder, axis| builder.state().axes.constant_extent(axis).unwrap_or(1);
        let (other, unit) = if unit > 1 {
            let (units, unit) = builder.split(other, unit, true)?;
            (units, Some(unit))
        } else {
            (other, None)
        };
        let (own, rows) = (extent(builder, lanes), extent(builder, other));
        let across = (threads / own).clamp(1, rows);
        if rows % across != 0 || own * across != threads {
            // All in turn: rows are no whole steps.
            let all = builder.merge(other, lanes)?;
            let (steps, thread) = builder.split(all, threads, own * rows % threads == 0)?;
            return Ok(Self { thread, steps, unit, vector });
        }
        let (steps, rows) = builder.split(other, across, true)?;
        let thread = builder.merge(rows, lanes)?;
        Ok(Self { thread, steps, unit, vector })
    }

    fn outer(&self) -> [Loop; 2] {
        let place = |axis, parallel| Loop { axis, parallel };
        [place(self.thread, ParallelType::Tidx), place(self.steps, ParallelType::Unroll)]
    }

    /// Outer to inner, with the vector innermost.
    fn loops(&self) -> Vec<Loop> {
        let unit = self.unit.map(|axis| Loop { axis, parallel: ParallelType::Unroll });
        let vector = Loop { axis: self.vector, parallel: ParallelType::Vectorize };
        self.outer().into_iter().chain(unit).chain([vector]).collect()
    }

    /// The same for what moves the neighbours along the other dimension together.
    fn turned(&self) -> Option<Vec<Loop>> {
        let unit = Loop { axis: self.unit?, parallel: ParallelType::Vectorize };
        let vector = Loop { axis: self.vector, parallel: ParallelType::Unroll };
        Some(self.outer().into_iter().chain([vector, unit]).collect())
    }
}

/// How axes are divided: into blocks and threads of either side.
struct Layout {
    /// What of either dimension lies in shared memory.
    held: [AxisId; 2],
    grid: AxisId,
    computing: Along,
    staging: Along,
}

/// Divides the dimensions.
fn lay_out(builder: &mut ScheduleBuilder, params: &TransposeParams) -> Result<Layout> {
    let TransposeParams { others, first, second, threads, .. } = params;
    let missing = || Diagnostic::bug("a side of a transposition has no dimension");
    let first_axis = merge_all(builder, &first.roots)?.ok_or_else(missing)?;
    let second_axis = merge_all(builder, &second.roots)?.ok_or_else(missing)?;
    let laid_out = match first.aligned_to {
        Some(reference) => builder.align(first_axis, first.vector, reference, None)?,
        None => first_axis,
    };
    let (first_block, first_tile) = builder.split(laid_out, first.tile, first.exact)?;
    let (second_block, second_tile) = builder.split(second_axis, second.tile, second.exact)?;
    let first_held = match first.held > first.tile {
        true => {
            let left = if first.aligned_to.is_some() { first.vector - 1 } else { 0 };
            let windows = Windows { step: first.tile, width: first.held, left, aligned: None };
            builder.window(first_axis, first_block, windows)?
        }
        false => first_tile,
    };
    let second_held = match second.aligned_to {
        Some(reference) => {
            let aligned = Some((second.vector, reference));
            let windows = Windows { step: second.tile, width: second.held, left: 0, aligned };
            builder.window(second_axis, second_block, windows)?
        }
        None => second_tile,
    };
    let blocks = if params.neighbours > 1 {
        let (far, near) = builder.split(second_block, params.neighbours, false)?;
        vec![far, first_block, near]
    } else {
        vec![second_block, first_block]
    };
    let others = merge_all(builder, others)?;
    let blocks: Vec<AxisId> = others.into_iter().chain(blocks).collect();
    let grid = merge_all(builder, &blocks)?.ok_or_else(missing)?;
    let computing = Along::new(builder, (first_tile, first.vector), (second_tile, params.unit), *threads)?;
    let staging = Along::new(builder, (second_held, second.vector), (first_held, 1), *threads)?;
    Ok(Layout { held: [first_held, second_held], grid, computing, staging })
}

/// Applies the choices.
pub(super) fn apply(builder: &mut ScheduleBuilder, caching: Caching, params: &TransposeParams) -> Result<()> {
    let caches = cache_inputs(builder, caching)?;
    let layout = lay_out(builder, params)?;
    let grid = bind_loops(builder, layout.grid, &layout.computing.loops())?;
    let elements = params.first.tile * params.second.tile / params.threads;
    builder.min_blocks(blocks_of(params.threads, builder.inputs().len(), elements))?;
    let mut keep: Vec<(TvId, usize)> = caches.into_iter().map(|cache| (cache, 2)).collect();
    for tensor in &params.staged {
        pass_through_tile(builder, params, (grid, &layout), *tensor, &mut keep)?;
    }
    keep.extend(keep_for_stores(builder, layout.computing.vector));
    keep.extend(keep_for_stores(builder, layout.staging.vector));
    builder.inline_most(&keep)
}

/// Puts a tile between a tensor of the second side, or its registers in the loops of that side, and all others.
fn pass_through_tile(
    builder: &mut ScheduleBuilder,
    params: &TransposeParams,
    (grid, layout): (Loop, &Layout),
    tensor: TvId,
    keep: &mut Vec<(TvId, usize)>,
) -> Result<()> {
    let in_grid = |loops: Vec<Loop>| -> Vec<Loop> { std::iter::once(grid).chain(loops).collect() };
    let turned = layout.computing.turned().map(in_grid);
    let is_output = matches!(builder.state().tensors[tensor].io, Some(Io::Output(_)));
    let (tile, registers) = if is_output {
        let tile = builder.cache_before(tensor)?;
        (tile, builder.cache_after(tile)?)
    } else {
        let registers = builder.state().consumers(tensor)[0];
        (builder.cache_after(registers)?, registers)
    };
    let own_loops = in_grid(layout.staging.loops());
    for tv in [registers, if is_output { tensor } else { tile }] {
        builder.set_loops(tv, &own_loops)?;
    }
    builder.set_memory(tile, Memory::Shared)?;
    let [first, second] = layout.held;
    let bytes = builder.state().tensors[tile].dtype.bytes() as i64;
    builder.alloc(tile, tile_of(first, second, params, bytes))?;
    keep.push((registers, 2));
    match (is_output, &turned) {
        (true, Some(turned)) => {
            builder.set_loops(tile, turned)?;
            keep.extend(builder.state().producers(tile).into_iter().map(|value| (value, 3)));
        }
        // All that a thread reads: what it tests before it writes would else come before each read, one after the other.
        (false, _) if turned.is_some() || params.first.tile * params.second.tile / params.threads <= MOST_READ => {
            let block = builder.cache_after(tile)?;
            builder.set_loops(block, &turned.unwrap_or_else(|| in_grid(layout.computing.loops())))?;
            keep.push((block, 2));
        }
        _ => {}
    }
    Ok(())
}

/// The tile of a tensor: a row for each index of the first side. Of the threads of the first side that read together, which
/// is all of a warp or as many as fill the banks, some read `lanes` rows apart by its vector and the others neighbours in
/// each; skewed (of bytes rotated) by as many elements, at least a bank, beside those that fill all banks with so many rows, they meet in none.
fn tile_of(first: AxisId, second: AxisId, params: &TransposeParams, bytes: i64) -> Tile {
    let (vector, row) = (params.first.vector, params.second.held);
    let lanes = (params.first.tile / vector).min(WARP);
    let together = (BANKS_BYTES / (params.unit * bytes.min(4))).min(WARP);
    let neighbours = next_power_of_two(params.unit * (together / lanes).max(1));
    let apart = params.second.vector.max(4 / bytes.min(4)).max(neighbours);
    if bytes == 1 {
        // Four share a word of a bank: rows that go round meet in none, of which skewed ones have some.
        let by = if apart < row { apart } else { 0 };
        return Tile { axes: vec![first, second], columns: Columns::Rotated { by, every: vector } };
    }
    let filling = (-vector * row).rem_euclid((BANKS_BYTES / bytes).max(1));
    let by = [apart + filling, apart].into_iter().find(|by| *by < row && by % params.second.vector == 0).unwrap_or(0);
    Tile { axes: vec![first, second], columns: Columns::Skewed { by, every: vector } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(extents: [i64; 2], bytes: i64, fitting: [i64; 2]) -> Wanted {
        Wanted {
            extents,
            bytes: [bytes; 2],
            shared: extents.map(|extent| extent * bytes % SECTOR_BYTES != 0),
            area: TILE_BYTES / bytes,
            room: MAX_SHARED / bytes,
            each: (MAX_HELD / (2 * bytes)).min(MOST_READ),
            most: [0, 1].map(|side| next_power_of_two(extents[side]).min(THREADS * fitting[side])),
        }
    }

    /// The plan and what it is for, of elements of so many bytes, with vectors of so many that are aligned row by row.
    fn planned(extents: [i64; 2], bytes: i64, vectors: [i64; 2], by_row: [bool; 2]) -> (Wanted, Option<Plan>) {
        let fitting = [0, 1].map(|side| if by_row[side] { 1 } else { vectors[side] });
        let wanted = wanted(extents, bytes, fitting);
        let plan = Plan::new(&wanted, vectors, by_row);
        (wanted, plan)
    }

    #[test]
    fn steps_of_any_plan_are_whole_rows_and_windows_hold_what_is_read() {
        for bytes in [1, 2, 4, 8, 16] {
            let wide = MAX_ACCESS_BYTES / bytes;
            for (extent, other) in [(72, 567), (945, 787), (95, 4059), (105, 775), (64, 4096), (333, 41), (24, 100_000)]
            {
                for by_row in [[false; 2], [true, false], [false, true], [true; 2]] {
                    let (wanted, plan) = planned([extent, other], bytes, [wide; 2], by_row);
                    let Some(plan) = plan else {
                        assert_ne!(by_row, [false; 2], "{extent} {other} {bytes}");
                        continue;
                    };
                    let Plan { vectors, threads, tiles: [first, second], held: [rows, width], .. } = plan;
                    let step = threads * vectors[0] / first;
                    assert!(first % vectors[0] == 0 && second % vectors[1] == 0 && width % vectors[1] == 0);
                    assert!(step >= 1 && second % step == 0 && threads * vectors[0] % first == 0, "{first}x{second}");
                    let reach = [0, 1].map(|side| if by_row[side] { vectors[side] - 1 } else { 0 });
                    assert!(rows >= first + reach[0] && width >= second + reach[1], "{rows}x{width}");
                    assert!(rows * width * bytes <= MAX_SHARED && first * second <= 2 * wanted.area);
                }
            }
        }
    }

    #[test]
    fn sides_that_fit_take_the_place_of_powers_of_two_that_do_not() {
        let tiles = |extents, bytes, vectors| {
            let (wanted, plan) = planned(extents, bytes, vectors, [false; 2]);
            let plan = plan.expect("without rows to align there is always one");
            (plan.tiles, plan.cost(&wanted))
        };
        for (bytes, wide) in [(1, 16), (2, 8), (4, 4), (8, 2)] {
            let ([first, second], _) = tiles([8192, 1024], bytes, [wide; 2]);
            assert!(first.count_ones() == 1 && second.count_ones() == 1, "{first}x{second}");
        }
        for (channels, bytes) in [(72, 2), (40, 4), (24, 8)] {
            let wide = MAX_ACCESS_BYTES / bytes;
            let ([first, second], cost) = tiles([channels, 4096], bytes, [wide; 2]);
            assert!(first % channels == 0 && cost < 1.25, "{first}x{second} {cost}");
        }
    }

    #[test]
    fn vectors_are_aligned_by_row_where_little_is_staged_twice() {
        for (bytes, wide) in [(1, 16), (2, 8), (4, 4), (8, 2)] {
            let (_, plan) = planned([4095, 4097], bytes, [wide; 2], [true; 2]);
            let plan = plan.expect("long rows have room for windows");
            assert!(10 * plan.held[0] * plan.held[1] <= 17 * plan.tiles[0] * plan.tiles[1], "{bytes}");
        }
    }
}
