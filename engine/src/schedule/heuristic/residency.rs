//! How many registers a thread of a normalisation needs, how many blocks of it
//! then fit a multiprocessor, and how many bytes of loads they keep in flight.
//!
//! In: the fusion as it will be computed (inputs cached, cheap values forked) and
//! a device. Out: for each way to hold a row ([`Holding`]) the registers, and the
//! share of the time that is lost for want of loads in flight.
//!
//! A thread that holds `n` elements needs about `fixed + n * bytes / 4` registers,
//! where `bytes` is the most that one element occupies at any time: what is live
//! from one stage to the next, the next row's elements where they are loaded
//! ahead, and parameters that stay. Memory is busy while the loads in flight are
//! at least latency times bandwidth.
//! (The constants were fitted to the assembler's figures and to times on an H200.)

use super::tile::ceil_div;
use crate::options::DeviceDesc;
use crate::schedule::{AxisId, Compute, Io, ScheduledFusion, Stages, TvId, TvOp};
use std::collections::BTreeSet;

/// Bytes of a register.
pub(super) const REGISTER_BYTES: i64 = 4;
/// Registers that a thread needs whatever it holds, and for each global tensor.
const FIXED: i64 = 16;
const PER_TENSOR: i64 = 2;
/// More of them where rows start at odd places.
const FIXED_SHIFTED: i64 = 4;
/// Fewer of them where the next row is loaded ahead there; and instead of all of these
/// where parameters are kept beside it.
const AHEAD_FEWER: i64 = 4;
const FIXED_AHEAD_KEPT: i64 = 24;
/// More of them where the threads' vectors are not exactly the row.
const FIXED_MASKED: i64 = 12;
/// And for each tensor, where two rows are tested at a time.
const MASKED_AHEAD: i64 = 5;
/// More of them where values are computed again instead of held.
const FIXED_RELOAD: i64 = 24;
/// More of them where random numbers are drawn.
const FIXED_RANDOM: i64 = 24;
/// More of them for each parameter that is read where it is used, by blocks that do
/// not take turns: some vectors are on their way.
const PER_REREAD: i64 = 5;
/// Elements that a thread holds, beyond which each takes a register more, or half of one where it is as wide in memory.
const MANY_ELEMENTS: i64 = 32;
/// Registers of a thread whatever it holds, where the assembler is told that it has no more than it needs.
const FIXED_SQUEEZED: i64 = 20;
/// More than this no thread is given.
const MOST_REGISTERS: i64 = 200;
/// Shared memory that is left to reductions.
const MIN_EXCHANGE: i64 = 8 << 10;
/// Time from a load to its value, in nanoseconds, with memory under load.
const LATENCY_NS: u64 = 900;

/// Bytes that a thread holds for each element of its part of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ElementBytes {
    /// What differs from row to row, in memory: read, and written.
    pub(super) read: i64,
    pub(super) written: i64,
    /// The most that is live at once where a row is loaded at its start.
    pub(super) early: i64,
    /// The same where each input is loaded by the stage that first uses it, unless
    /// others use it too.
    pub(super) late: i64,
    /// Parameters, which are the same for all rows: converted, and in memory.
    pub(super) parameters: i64,
    pub(super) parameters_read: i64,
    /// What is computed and then held for later stages.
    pub(super) computed: i64,
    /// Whether random numbers are drawn.
    pub(super) is_random: bool,
}

/// How a thread comes by the elements that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Loads {
    /// All at the start of a row.
    Early,
    /// The next row's while it works on this one.
    Ahead,
    /// Vector by vector, where they are used.
    Late,
    /// The same, by every stage again: nothing of a row is held.
    Reload,
}

/// Where parameters are while rows take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Parameters {
    /// In registers, as they came from memory.
    Kept,
    /// In the caches of the multiprocessor: they are read where they are used.
    Reread,
    /// In shared memory, as the thread needs them: where they start at odd places,
    /// reading them from there would take an access for each element.
    Staged,
}

/// A way to hold rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Holding {
    /// Whether a block takes one row after the other.
    pub(super) turns: bool,
    pub(super) loads: Loads,
    pub(super) parameters: Parameters,
}

impl Holding {
    /// All ways, the usual first.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let loads = [
            (false, Loads::Early),
            (true, Loads::Ahead),
            (true, Loads::Early),
            (false, Loads::Late),
            (true, Loads::Late),
            (false, Loads::Reload),
        ];
        let parameters = [Parameters::Kept, Parameters::Reread, Parameters::Staged];
        let ways = loads.into_iter().flat_map(move |way| parameters.map(|parameters| (way, parameters)));
        ways.map(|((turns, loads), parameters)| Self { turns, loads, parameters })
    }
}

/// What the model knows of a fusion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model<'a> {
    pub(super) device: &'a DeviceDesc,
    pub(super) bytes: ElementBytes,
    /// The same as elements lie in memory ([`Packing::AsInMemory`]), where the assembler leaves them so: in rows of
    /// small elements at odd places that do not take turns, with one parameter at most.
    pub(super) as_in_memory: Option<ElementBytes>,
    /// Bytes that are live of an element of a row that is loaded at its start, as they lie in memory.
    pub(super) squeezed_bytes: i64,
    /// Whether rows start at odd places.
    pub(super) shifted: bool,
    /// Whether the threads' vectors may reach over the end of the row.
    pub(super) masked: bool,
    /// Tensors in global memory.
    pub(super) tensors: i64,
    /// Inputs that are the same for all rows.
    pub(super) parameters: i64,
}

impl Model<'_> {
    /// Registers of a thread that holds so many elements of a row.
    pub(super) fn registers(&self, holding: Holding, elements: i64) -> i64 {
        let as_in_memory = self.as_in_memory.as_ref().filter(|_| !holding.turns);
        let bytes = as_in_memory.unwrap_or(&self.bytes);
        let live = match holding.loads {
            Loads::Early => bytes.early,
            Loads::Ahead => bytes.early + bytes.read,
            Loads::Late => bytes.late,
            Loads::Reload => 0,
        };
        let reload = if holding.loads == Loads::Reload { FIXED_RELOAD } else { 0 };
        let late = holding.loads == Loads::Late;
        let reads_again = holding.parameters == Parameters::Reread;
        // At odd places single elements are on their way, one by one where they are used.
        let reread = match (late, self.shifted) {
            (true, is_shifted) => !is_shifted,
            (false, true) => reads_again && !holding.turns,
            (false, false) => reads_again && (!holding.turns || self.is_wide()),
        };
        let reread = if reread { PER_REREAD * self.parameters } else { 0 };
        // Conversions of what does not change leave the loop over rows.
        let parameters = match holding.parameters {
            Parameters::Kept if holding.turns || self.shifted => bytes.parameters,
            Parameters::Kept => bytes.parameters_read,
            Parameters::Reread | Parameters::Staged => 0,
        };
        let held = ceil_div(elements * (live + parameters), REGISTER_BYTES);
        let random = if bytes.is_random { FIXED_RANDOM } else { 0 };
        let fixed = FIXED + PER_TENSOR * self.tensors + reload + reread + random;
        let kept = holding.parameters == Parameters::Kept && self.parameters > 0;
        // Of what is as large in memory as in registers the next row takes more.
        let wide = if self.loads_small() { 0 } else { held / 4 };
        let many = if live > 0 { (elements - MANY_ELEMENTS).max(0) } else { 0 };
        let many = if self.is_wide() { many / 2 } else { many };
        match (self.shifted, self.masked) {
            // Single elements are tested and replaced, in registers of their own.
            (true, _) if holding.loads == Loads::Ahead && kept => FIXED_AHEAD_KEPT + random + held + wide,
            (true, _) if holding.loads == Loads::Ahead => fixed - AHEAD_FEWER + held + wide,
            (true, _) if as_in_memory.is_some() => fixed + FIXED_SHIFTED + held,
            (true, _) => fixed + FIXED_SHIFTED + held + held / 8,
            (false, true) if holding.loads == Loads::Ahead => {
                fixed + FIXED_MASKED + MASKED_AHEAD * self.tensors + held + many
            }
            (false, true) => fixed + FIXED_MASKED + held + many,
            (false, false) => fixed + held + many,
        }
    }

    /// The fewest registers with which a thread holds so many elements of a row that is loaded at its start by blocks that come
    /// and go, and reads parameters where they are used. With more the assembler keeps what it converted, and loads parameters
    /// early; with these it does neither. None where that is not known: of rows at odd places, where more is held than what was
    /// loaded, and of exact rows as wide in memory as in registers, of which the assembler holds differences, too.
    pub(super) fn squeezed(&self, holding: Holding, elements: i64) -> Option<i64> {
        let once = !holding.turns && holding.loads == Loads::Early && holding.parameters == Parameters::Reread;
        let is_bare = self.bytes.computed == 0 && !self.bytes.is_random;
        let is_known = once && is_bare && !self.shifted && (self.masked || !self.is_wide());
        let held = ceil_div(elements * self.squeezed_bytes, REGISTER_BYTES);
        // A row whose vectors are narrow for the sake of its parameters has more of them.
        let is_narrow = self.bytes.parameters_read > self.parameters * self.bytes.read;
        let narrow = if is_narrow { PER_REREAD * self.parameters } else { 0 };
        is_known.then_some(FIXED_SQUEEZED + PER_TENSOR * self.tensors + held + narrow)
    }

    /// Whether at least twice what is loaded is live at once, as it is where elements that are smaller than a
    /// register have one each.
    pub(super) fn loads_small(&self) -> bool {
        2 * self.bytes.read <= self.bytes.early
    }

    /// Whether elements are as wide in memory as in registers: then a thread takes what the model says.
    pub(super) fn is_wide(&self) -> bool {
        self.bytes.early <= self.bytes.read
    }

    /// Whether rows at odd places hold small elements and read no parameters: a thread has few accesses for what it
    /// holds.
    pub(super) fn is_bare(&self) -> bool {
        self.shifted && self.parameters == 0 && self.loads_small()
    }

    /// Whether a block can have so much shared memory beside that of reductions.
    pub(super) fn holds_shared(&self, bytes: i64) -> bool {
        bytes == 0 || bytes <= i64::from(self.device.shared_per_block) - MIN_EXCHANGE
    }

    /// Blocks of so many threads that fit a multiprocessor; none if a thread has
    /// not the registers that it needs.
    pub(super) fn blocks(&self, registers: i64, shared: i64, threads: i64) -> Option<i64> {
        if registers > MOST_REGISTERS {
            return None;
        }
        let [threads, registers, shared] = [threads, registers, shared].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let blocks = self.device.resident_blocks(threads, registers, shared);
        (blocks > 0).then_some(i64::from(blocks))
    }

    /// Thousandths of the time that are lost because a multiprocessor with so many
    /// blocks of so many elements has too few loads in flight.
    pub(super) fn idle_memory(&self, holding: Holding, blocks: i64, elements: i64) -> i64 {
        let held = blocks.saturating_mul(elements).saturating_mul(self.bytes.read.max(1));
        // A block that loads ahead always does; of the others, those that do not
        // compute or wait just then.
        let in_flight = match holding.loads {
            Loads::Ahead => held,
            Loads::Early => held / (blocks + 1) * blocks,
            Loads::Late if self.holds_twice_what_it_loads() => held / (blocks + 1) * blocks,
            Loads::Late | Loads::Reload => held / (blocks + 1) * blocks / 2,
        };
        let wanted = self.wanted_in_flight();
        let lacking = (wanted - in_flight.min(wanted)) * 1000 / wanted;
        300 * lacking / 1000 * lacking / 1000
    }

    /// Whether a thread that loads all at the start of a row holds more than twice what
    /// it loads: it computes so long with the single elements of odd places that
    /// memory waits for registers, not for loads.
    pub(super) fn holds_twice_what_it_loads(&self) -> bool {
        self.shifted && self.parameters > 0 && self.bytes.early > 2 * self.bytes.read
    }

    /// Bytes of loads of a multiprocessor that keep memory busy: latency times
    /// bandwidth.
    fn wanted_in_flight(&self) -> i64 {
        let per_second = self.device.memory_bandwidth / u64::from(self.device.sm_count.max(1));
        i64::try_from(LATENCY_NS * (per_second / 1000) / 1_000_000).unwrap_or(i64::MAX).max(1)
    }
}

/// How elements that were loaded lie in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// Each in a register.
    Apart,
    /// As in memory, and those that several stages need sometimes converted too; bytes take two.
    Converted,
    /// As in memory.
    AsInMemory,
}

impl Packing {
    pub(super) const ALL: [Self; 3] = [Self::Apart, Self::Converted, Self::AsInMemory];
}

/// Counts what a thread holds of a row.
pub(super) fn element_bytes(scheduled: &ScheduledFusion, reduced: &BTreeSet<AxisId>, packing: Packing) -> ElementBytes {
    let stages = Stages::new(scheduled);
    let along = |tv: TvId, wanted: bool| scheduled.tensors[tv].indexed().any(|axis| reduced.contains(&axis) == wanted);
    let size = |tv: TvId| scheduled.tensors[tv].dtype.bytes() as i64;
    let register = |tv: TvId| size(tv).max(REGISTER_BYTES);
    let held = |tv: TvId, crosses: bool| match (packing, size(tv)) {
        (Packing::Apart, _) => register(tv),
        (Packing::Converted, 1) => 2,
        (Packing::Converted, 2) if crosses => 3,
        (_, size) => size,
    };
    let mut bytes = ElementBytes::default();
    // For each stage what it begins and ends with.
    let (mut early, mut late): (Vec<[i64; 2]>, Vec<[i64; 2]>) = (Vec::new(), Vec::new());
    let live = |spans: &mut Vec<[i64; 2]>, from: Option<u32>, first: u32, last: u32, size: i64| {
        spans.resize(spans.len().max(last as usize + 1), [0; 2]);
        for (stage, [begin, end]) in spans.iter_mut().enumerate().take(last as usize + 1).skip(first as usize) {
            *begin += if from == Some(stage as u32) { 0 } else { size };
            *end += if stage as u32 == last { 0 } else { size };
        }
    };
    let is_random = |tv: &TvOp| matches!(tv.compute, Compute::Random(_));
    bytes.is_random = scheduled.tensors.values().any(|tv| tv.op.as_ref().is_some_and(is_random));
    let consumers = scheduled.all_consumers();
    // Of what lacks the axis that vectors are cut from there is one value for a vector, which is little.
    let last = reduced.last();
    let is_little =
        |tv: TvId| packing != Packing::Apart && scheduled.tensors[tv].indexed().all(|axis| Some(&axis) != last);
    for tv in scheduled.tensors.ids().filter(|tv| along(*tv, true) && !is_little(*tv)) {
        if matches!(scheduled.tensors[tv].io, Some(Io::Output(_))) {
            bytes.written += size(tv);
        }
        let users = || consumers[tv].iter().map(|user| stages.placed(*user));
        let (Some(first), Some(last)) = (users().min(), users().max()) else { continue };
        let load = is_load(scheduled, tv);
        if load && !along(tv, false) {
            bytes.parameters += register(tv);
            bytes.parameters_read += size(tv);
        } else if load {
            let held = held(tv, first != last);
            bytes.read += size(tv);
            live(&mut early, None, 0, last, held);
            if first != last {
                live(&mut late, Some(first), first, last, held);
            }
        } else if stages.crosses(tv) {
            let own = stages.placed(tv);
            bytes.computed += register(tv);
            live(&mut early, Some(own), own, last, register(tv));
            live(&mut late, Some(own), own, last, register(tv));
        }
    }
    let most = |spans: &[[i64; 2]]| spans.iter().flatten().copied().max().unwrap_or(0);
    (bytes.early, bytes.late) = (most(&early), most(&late));
    bytes
}

/// Whether a tensor is a register copy of an input, or of what an index says of one.
pub(super) fn is_load(scheduled: &ScheduledFusion, tv: TvId) -> bool {
    let copy = matches!(&scheduled.tensors[tv].op, Some(op) if matches!(op.compute, Compute::Copy | Compute::Lookup));
    let input = |from: &TvId| matches!(scheduled.tensors[*from].io, Some(Io::Input(_)));
    copy && scheduled.tensors[tv].io.is_none() && scheduled.producers(tv).iter().any(input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{ScheduleBuilder, scheduled_fusion};

    fn bytes_of(body: &str, packing: Packing) -> ElementBytes {
        let text = format!("fusion @f(%x: bf16[?, ?], %y: bf16[?, ?], %w: bf16[?]) {{\n  {body}\n}}");
        let fusion = crate::text::parse_one(&text).expect("the text is right");
        let mut builder = ScheduleBuilder::new(scheduled_fusion(&fusion).expect("it has kernels"));
        for input in builder.inputs() {
            builder.cache_after(input).expect("it is read");
        }
        let over = |tv| builder.state().reduced_leaves(tv);
        let reduced = builder.state().tensors.ids().flat_map(over).collect();
        element_bytes(builder.state(), &reduced, packing)
    }

    #[test]
    fn what_crosses_stages_is_held() {
        // What was converted of x for the sum is read again after it; y only then.
        let body = "%0 = sum %x axes(1) keepdim\n  %1 = div %x, %0\n  %2 = mul %1, %y\n  %3 = broadcast %w flags(true, false)\n  %4 = mul %2, %3\n  return %4";
        let bytes = bytes_of(body, Packing::Converted);
        assert_eq!((bytes.read, bytes.early, bytes.late), (4, 6, 4));
        assert_eq!((bytes.parameters, bytes.parameters_read), (4, 2));
        // Single elements take a register each.
        let apart = bytes_of(body, Packing::Apart);
        assert_eq!((apart.early, apart.late), (8, 4));
    }

    #[test]
    fn registers_and_loads_in_flight() {
        let device = DeviceDesc::h200();
        let bytes = ElementBytes {
            read: 2,
            written: 2,
            early: 3,
            late: 3,
            parameters: 8,
            parameters_read: 4,
            computed: 0,
            is_random: false,
        };
        let model = Model {
            device: &device,
            bytes,
            as_in_memory: None,
            squeezed_bytes: 2,
            shifted: false,
            masked: false,
            tensors: 4,
            parameters: 2,
        };
        let holding = |turns, loads, parameters| Holding { turns, loads, parameters };
        let ahead = holding(true, Loads::Ahead, Parameters::Reread);
        assert_eq!(model.registers(ahead, 32), FIXED + 4 * PER_TENSOR + 40);
        let kept = holding(true, Loads::Ahead, Parameters::Kept);
        assert_eq!(model.registers(kept, 32) - model.registers(ahead, 32), 64);
        // At odd places: kept, and in memory that is read element by element.
        let odd = Model { shifted: true, ..model };
        assert_eq!(odd.registers(kept, 32), FIXED_AHEAD_KEPT + 104 + 26);
        assert_eq!(odd.registers(ahead, 32), FIXED + 4 * PER_TENSOR - AHEAD_FEWER + 40 + 10);
        let small = Model { bytes: ElementBytes { early: 4, ..bytes }, ..odd };
        assert_eq!(small.registers(ahead, 32), FIXED + 4 * PER_TENSOR - AHEAD_FEWER + 48);
        // Rows that come once are in registers as in memory.
        let once = Model { as_in_memory: Some(ElementBytes { early: 2, ..bytes }), ..odd };
        let early = holding(false, Loads::Early, Parameters::Reread);
        assert_eq!(odd.registers(early, 32) - once.registers(early, 32), 24 + 3 - 16);
        assert_eq!(odd.registers(ahead, 32), once.registers(ahead, 32));
        let masked = Model { masked: true, ..model };
        let more = FIXED_MASKED + 4 * MASKED_AHEAD;
        assert_eq!(masked.registers(ahead, 32) - model.registers(ahead, 32), more);
        // Where each row reads them, two are on their way.
        let once = holding(false, Loads::Early, Parameters::Reread);
        assert_eq!(model.registers(once, 32), FIXED + 4 * PER_TENSOR + 2 * PER_REREAD + 24);
        // As it lies in memory a row takes two thirds of what is held of it otherwise, and none for what is on its way.
        assert_eq!(model.squeezed(once, 64), Some(FIXED_SQUEEZED + 4 * PER_TENSOR + 32));
        assert_eq!((model.squeezed(ahead, 64), odd.squeezed(once, 64)), (None, None));
        // 32,727 bytes are wanted: with half of them 7 % are lost, with all nothing.
        assert_eq!(model.wanted_in_flight(), 32_727);
        let lost = |blocks| model.idle_memory(ahead, blocks, 2048);
        assert_eq!((lost(8), lost(4)), (0, 74));
        assert!(model.idle_memory(holding(false, Loads::Early, Parameters::Kept), 4, 2048) > lost(4));
        assert_eq!(model.blocks(MOST_REGISTERS + 1, 0, 32), None);
    }
}
