//! What segmentation knows of each operation.

use super::across::{LARGE, SHORT_ROW, bytes, many_side_by_side, run_across};
use super::aliases::Aliases;
use super::search::Groups;
use super::summary::{Conflict, check};
use crate::compile::{MaxAndSum, find_max_and_sum};
use crate::fusion::ops::Form;
use crate::fusion::{Bindings, Fusion, Op, OpId, OpKind, Operand, TensorId};
use crate::kernel::MAX_ACCESS_BYTES;
use crate::options::DeviceDesc;
use crate::products::find_activation;
use crate::schedule::heuristic::{
    MOST_SUMMED, is_uneven, longest_row, longest_shared_row, may_add_columns, may_hold_columns, may_share_columns,
};
use crate::schedule::widens;
use crate::tensor::{ArgMeta, TensorMeta};
use crate::util::SecondaryMap;
use std::collections::BTreeSet;

/// Columns of maxima and sums of exponentials below them that blocks hold all the same: of few rows, in whole vectors; and any
/// of so few elements in all.
const QUICK_COLUMN: i64 = 2048;
const FEW_ELEMENTS: i64 = 16 << 20;

/// A fusion with decided axes, its sizes, and what follows for each operation.
pub(super) struct OpFacts<'a> {
    pub(super) fusion: &'a Fusion,
    pub(super) bindings: &'a Bindings,
    /// Bytes of each tensor, were its sizes rounded up to powers of two: what is cut where
    /// holds for all sizes between these.
    pub(super) bytes: SecondaryMap<TensorId, i64>,
    /// Reductions of rows, or of columns, that blocks cannot hold.
    pub(super) long_rows: SecondaryMap<OpId, bool>,
    /// Whether there are such that lie across memory, or large results in which rows may.
    pub(super) has_rows_across: bool,
    /// Reductions of many long rows that lie along memory where they are read.
    pub(super) rows_along: SecondaryMap<OpId, bool>,
    /// The axis along which neighbours of a large result of the whole lie side by side, many of them.
    pub(super) nearest: SecondaryMap<TensorId, Option<usize>>,
    /// Reductions across memory that one kernel may do with reductions of the rows between.
    pub(super) columns: SecondaryMap<OpId, bool>,
    /// Reductions of a number of elements that is no whole vectors.
    pub(super) uneven: SecondaryMap<OpId, bool>,
    /// Reductions across memory over a few positions, which one kernel may do before those of rows of what they make.
    pub(super) few: SecondaryMap<OpId, bool>,
    /// Maxima and sums of exponentials below them that a kernel may reduce in one go, by the difference between.
    pub(super) online: SecondaryMap<OpId, Option<MaxAndSum>>,
    /// Operations that no kernel computes, those included whose results are returned as views or seen by
    /// products alone, that join what kernels write in place, or that a library computes with the product before them.
    pub(super) host: SecondaryMap<OpId, bool>,
    /// Operations that move nothing, and only for products.
    pub(super) seen_by_products: SecondaryMap<OpId, bool>,
    /// Operations that join what kernels write into the whole.
    pub(super) joined: SecondaryMap<OpId, bool>,
    /// The product with which a library computes an operation.
    pub(super) with_product: SecondaryMap<OpId, Option<OpId>>,
    /// Which of those that is.
    pub(super) aliases: &'a Aliases,
    /// Operations before which the fusion is cut.
    pub(super) cuts: SecondaryMap<OpId, bool>,
    /// Operations that read each tensor, in order.
    pub(super) readers: SecondaryMap<TensorId, Vec<OpId>>,
    /// Tensors that the fusion returns, or writes into an input.
    pub(super) returned: SecondaryMap<TensorId, bool>,
}

impl<'a> OpFacts<'a> {
    /// For a device, and arguments and results that lie like this; the fusion is cut before some tensors, and returns the results of
    /// operations as views. `libraries` says whether there are any, and `with_online` whether a maximum and a sum may be
    /// reduced in one go.
    pub(super) fn new(
        device: &DeviceDesc,
        fusion: &'a Fusion,
        bindings: &'a Bindings,
        cut_results: &[TensorId],
        aliases: &'a Aliases,
        (args, results): (&[ArgMeta], &[TensorMeta]),
        (libraries, with_online): (bool, bool),
    ) -> Self {
        let size = |tensor: TensorId, axis: usize| bindings.scalar(fusion.tensors[tensor].axes[axis].extent).as_i64();
        let mut bytes = SecondaryMap::new();
        for (id, tensor) in fusion.tensors.iter() {
            let sizes = (0..tensor.axes.len()).map(|axis| magnitude(size(id, axis)));
            bytes.set(id, sizes.fold(tensor.dtype.bytes() as i64, i64::saturating_mul));
        }
        let (mut online, mut of_online) = (SecondaryMap::new(), SecondaryMap::<OpId, bool>::new());
        let pairs = if with_online { find_max_and_sum(fusion) } else { Vec::new() };
        for pair in pairs.into_iter().filter(|pair| !is_reduced_otherwise(fusion, pair)) {
            online.set(pair.difference, Some(pair));
            [pair.max, pair.sum].into_iter().for_each(|op| of_online.set(op, true));
        }
        let (mut nearest, mut has_rows_across) = (SecondaryMap::new(), false);
        for (result, meta) in fusion.outputs.iter().zip(results) {
            let axis = many_side_by_side(meta);
            has_rows_across |= axis.is_some();
            nearest.set(*result, axis);
        }
        let mut long_rows = SecondaryMap::new();
        let (mut rows_along, mut columns, mut few) = (SecondaryMap::new(), SecondaryMap::new(), SecondaryMap::new());
        let mut uneven = SecondaryMap::new();
        for id in fusion.ops.ids() {
            if let Some(rows) = Rows::of(fusion, bindings, args, id) {
                has_rows_across |= rows.is_across();
                long_rows.set(id, !rows.are_held(device, of_online[id]));
                rows_along.set(id, !rows.is_across() && rows.are_many_long());
                uneven.set(id, is_uneven(rows.length));
                few.set(id, rows.is_across() && rows.length <= MOST_SUMMED);
                columns.set(id, rows.is_across() && may_add_columns(rows.length, rows.all / rows.length.max(1)));
            }
        }
        let mut host = SecondaryMap::new();
        for (id, op) in fusion.ops.iter() {
            host.set(id, aliases.ops[id] || !kernels_take(&op.kind));
        }
        let mut cuts = SecondaryMap::new();
        for op in cut_results.iter().filter_map(|tensor| fusion.definition(*tensor)) {
            cuts.set(op, true);
        }
        let mut returned = SecondaryMap::new();
        for tensor in fusion.outputs.iter().chain(fusion.updates.iter().map(|update| &update.tensor)) {
            returned.set(*tensor, true);
        }
        let with_product = SecondaryMap::new();
        let mut this = Self {
            fusion,
            bindings,
            bytes,
            long_rows,
            has_rows_across,
            rows_along,
            nearest,
            columns,
            uneven,
            few,
            online,
            host,
            seen_by_products: SecondaryMap::new(),
            joined: SecondaryMap::new(),
            with_product,
            aliases,
            cuts,
            readers: fusion.readers(),
            returned,
        };
        if libraries {
            this.find_activations();
        }
        this.find_views();
        this
    }

    /// Leaves to nobody what moves nothing, and only for products of matrices: these take operands in
    /// either order and from within others, so a kernel would only copy.
    fn find_views(&mut self) {
        let fusion = self.fusion;
        for (id, op) in fusion.ops.iter().rev() {
            let output = op.output();
            let readers = &self.readers[output];
            let is_view = moves_nothing(op) && self.bytes[output] != 0 && !self.returned[output] && !self.cuts[id];
            let is_seen = |reader: &OpId| is_product(&fusion.ops[*reader]) || self.seen_by_products[*reader];
            if is_view && !readers.is_empty() && readers.iter().all(is_seen) {
                self.seen_by_products.set(id, true);
                self.host.set(id, true);
            }
        }
    }

    /// Gives products the activations that libraries compute with them.
    fn find_activations(&mut self) {
        let kept = |tensor: TensorId| self.returned[tensor];
        let mut found = Vec::new();
        for op in self.fusion.ops.ids() {
            if !is_product(&self.fusion.ops[op]) || self.bytes[self.fusion.ops[op].output()] == 0 {
                continue;
            }
            let activation = find_activation(self.fusion, op, &self.readers, &kept);
            let is_free = |op: &OpId| !self.cuts[*op] && !self.aliases.ops[*op];
            found.extend(activation.filter(|found| found.ops.iter().all(is_free)).map(|found| (op, found.ops)));
        }
        for (product, ops) in found {
            for op in ops {
                self.host.set(op, true);
                self.with_product.set(op, Some(product));
            }
        }
    }

    /// Whether a kernel of all operations would hold rows that it should not.
    pub(super) fn holds_rows_across(&self) -> bool {
        let ops: Vec<OpId> = self.fusion.ops.ids().collect();
        self.has_rows_across && matches!(check(self, &ops), Err(Conflict::Row))
    }

    /// Whether groups would store differences or exponentials that lie between a maximum and a sum, which then are no
    /// reduction in one go: nobody who reads them can compute them again.
    pub(super) fn stores_online(&self, groups: &Groups<'_>) -> bool {
        groups.ops.iter().enumerate().any(|(position, ops)| {
            let pairs = ops.iter().filter_map(|op| self.online[*op]);
            let mut whole = pairs.filter(|pair| ops.contains(&pair.max) && ops.contains(&pair.sum));
            whole.any(|pair| {
                let between = [pair.difference, pair.exponential].map(|op| self.fusion.ops[op].output());
                groups.results(position).iter().any(|result| between.contains(result))
            })
        })
    }

    /// From now on nobody computes these operations: kernels write what they join where it lies in the whole.
    pub(super) fn with_joined(mut self, joined: &[OpId]) -> Self {
        for op in joined {
            self.joined.set(*op, true);
            self.host.set(*op, true);
        }
        self
    }

    /// From now on no kernel reduces over two sets of dimensions.
    pub(super) fn without_columns(mut self) -> Self {
        self.columns = SecondaryMap::new();
        self.few = SecondaryMap::new();
        self
    }

    /// The bytes of a tensor's elements, which other sizes have others of.
    pub(super) fn exact_bytes(&self, tensor: TensorId) -> i64 {
        bytes(self.fusion, self.bindings, tensor)
    }

    /// Whether operations reduce over rows and over columns, or a few positions.
    pub(super) fn has_columns_beside_rows(&self, ops: &[OpId]) -> bool {
        let reductions = || ops.iter().filter(|op| matches!(self.fusion.ops[**op].kind, OpKind::Reduce { .. }));
        let is_across = |op: &&OpId| self.columns[**op] || self.few[**op];
        let (across, rows): (Vec<&OpId>, Vec<&OpId>) = reductions().partition(is_across);
        !across.is_empty() && !rows.is_empty()
    }

    /// All that groups of the fusion's operations follow from.
    pub(super) fn key(&self) -> Vec<i64> {
        let bytes = self.fusion.tensors.ids().map(|tensor| self.bytes[tensor]);
        let flags = |op| {
            i64::from(self.long_rows[op])
                | i64::from(self.aliases.ops[op]) << 1
                | i64::from(self.columns[op]) << 2
                | i64::from(self.rows_along[op]) << 3
                | i64::from(self.joined[op]) << 4
                | i64::from(self.few[op]) << 5
                | i64::from(self.uneven[op]) << 6
        };
        let nearest = self.fusion.outputs.iter().map(|result| self.nearest[*result].map_or(-1, |axis| axis as i64));
        bytes.chain(self.fusion.ops.ids().map(flags)).chain(nearest).collect()
    }
}

/// What an operation reduces.
pub(super) struct Rows {
    /// Elements of one, and of all, and the bytes of these.
    length: i64,
    all: i64,
    bytes: i64,
    /// Where they lie across memory, the bytes that are one run there.
    run: Option<i64>,
    /// Whether the last dimension is one of theirs.
    is_along: bool,
}

impl Rows {
    /// Of a reduction, for arguments that lie like this.
    pub(super) fn of(fusion: &Fusion, bindings: &Bindings, args: &[ArgMeta], id: OpId) -> Option<Self> {
        let op = &fusion.ops[id];
        let (OpKind::Reduce { axes, .. }, Some(Operand::Tensor(input))) = (&op.kind, op.inputs.first()) else {
            return None;
        };
        let sizes = bindings.sizes(fusion, *input);
        let last = sizes.iter().rposition(|size| *size > 1);
        let all = sizes.iter().copied().fold(1, i64::saturating_mul);
        Some(Self {
            length: axes.iter().map(|axis| sizes[*axis as usize]).fold(1, i64::saturating_mul),
            all,
            bytes: all.saturating_mul(fusion.tensors[*input].dtype.bytes() as i64),
            run: run_across(fusion, bindings, &|tensor| argument(fusion, args, tensor), id),
            is_along: last.is_some_and(|last| axes.contains(&(last as u32))),
        })
    }

    fn is_across(&self) -> bool {
        self.run.is_some()
    }

    /// Whether it matters how they lie.
    fn are_many_long(&self) -> bool {
        self.length > SHORT_ROW && self.bytes >= LARGE
    }

    /// Whether blocks of a device hold them; `is_online` says whether maxima and sums may be reduced in one go.
    pub(super) fn are_held(&self, device: &DeviceDesc, is_online: bool) -> bool {
        let &Self { length, all, run, is_along, .. } = self;
        match run {
            Some(run) => {
                // Read once for both and once more, large columns take less time than in blocks that hold them together.
                let is_quick = length <= QUICK_COLUMN && run % MAX_ACCESS_BYTES == 0 || all <= FEW_ELEMENTS;
                let is_short = may_hold_columns(length, run);
                is_short || (!is_online || is_quick) && may_share_columns(device, length, run)
            }
            None => length <= if is_along { longest_shared_row(device) } else { longest_row(device) },
        }
    }
}

/// Whether differences or exponentials are reduced in another way too: then they are held, or read twice all the same.
fn is_reduced_otherwise(fusion: &Fusion, pair: &MaxAndSum) -> bool {
    let mut made: BTreeSet<TensorId> = BTreeSet::from([fusion.ops[pair.difference].output()]);
    for (id, op) in fusion.ops.iter().filter(|(id, _)| *id != pair.sum) {
        if fusion.tensor_inputs(id).any(|tensor| made.contains(&tensor)) {
            if matches!(op.kind, OpKind::Reduce { .. }) {
                return true;
            }
            made.extend(&op.outputs);
        }
    }
    false
}

/// How a tensor lies that is an argument.
fn argument<'a>(fusion: &Fusion, args: &'a [ArgMeta], tensor: TensorId) -> Option<&'a TensorMeta> {
    let position = fusion.inputs.iter().position(|input| *input == Operand::Tensor(tensor))?;
    match args.get(position) {
        Some(ArgMeta::Tensor(meta)) => Some(meta),
        _ => None,
    }
}

/// The least power of two that is not below a size; 0 stays.
fn magnitude(size: i64) -> i64 {
    let size = size.unsigned_abs();
    if size == 0 { 0 } else { i64::try_from(size.checked_next_power_of_two().unwrap_or(u64::MAX)).unwrap_or(i64::MAX) }
}

/// Whether the result of an operation is its operand, or a copy of it, seen otherwise.
fn moves_nothing(op: &Op) -> bool {
    match &op.kind {
        OpKind::Permute { .. } | OpKind::Broadcast { .. } | OpKind::Squeeze { .. } => true,
        kind => is_reshape(kind),
    }
}

/// Whether an operation joins tensors.
pub(super) fn is_join(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Call(call) if call.movement().form == Some(Form::Cat))
}

/// Whether an operation gives what it reads other axes.
pub(super) fn is_reshape(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Call(call) if call.movement().form == Some(Form::Reshape))
}

fn is_product(op: &Op) -> bool {
    matches!(&op.kind, OpKind::Call(call) if matches!(call.movement().form, Some(Form::Matmul | Form::Linear)))
}

/// Whether kernels take an operation together with others, on some types: of calls, those that make random numbers, look
/// up, pad, join or scan. One that it refuses is a segment of its own, for which [`Template`](crate::template::Template) may
/// have a kernel.
pub(super) fn kernels_take(kind: &OpKind) -> bool {
    match kind {
        OpKind::Call(call) => {
            call.row.random.is_some() || call.lookup().is_some() || widens(kind) || kind.scanned().is_some()
        }
        _ => true,
    }
}

/// Whether kernels that reduce take an operation: those that pad, join or scan do not.
pub(super) fn reductions_take(kind: &OpKind) -> bool {
    kernels_take(kind) && !widens(kind) && kind.scanned().is_none()
}
