//! The values of a program, of which some are copies of others: a *fork* gives one use of a
//! tensor a copy of its own, with copies of what it is computed from, so that its axes are
//! classes of their own.

use super::operations::is_transform;
use crate::fusion::ops::Form;
use crate::fusion::{Fusion, OpId, OpKind, Operand, TensorId};
use crate::util::{EntityId, PrimaryMap, SecondaryMap, entity_id};
use std::collections::{BTreeMap, BTreeSet};

entity_id!(
    /// A value of a program in the making: a tensor, or a copy of one.
    #[allow(unreachable_pub, reason = "the macro declares public ids")]
    pub struct DraftId, "u"
);

/// A use of a value: who uses it, as which of its operands.
pub(super) type Use = (DraftId, usize);

/// A value.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) tensor: TensorId,
    /// The operation; none for inputs.
    pub(super) op: Option<OpId>,
    /// Its operands; none in place of a scalar.
    pub(super) operands: Vec<Option<DraftId>>,
}

/// All values of a program; those of the fusion's tensors come first, in their order.
#[derive(Clone, Debug)]
pub(super) struct Values<'a> {
    pub(super) fusion: &'a Fusion,
    pub(super) all: PrimaryMap<DraftId, Draft>,
}

impl<'a> Values<'a> {
    /// Each tensor once.
    pub(super) fn new(fusion: &'a Fusion) -> Self {
        let mut all = PrimaryMap::new();
        for tensor in fusion.tensors.ids() {
            let op = fusion.definition(tensor);
            let operand = |operand: &Operand| match *operand {
                Operand::Tensor(tensor) => Some(Self::of(tensor)),
                Operand::Scalar(_) => None,
            };
            let operands = op.map(|op| fusion.ops[op].inputs.iter().map(operand).collect()).unwrap_or_default();
            all.push(Draft { tensor, op, operands });
        }
        let mut values = Self { fusion, all };
        values.set_tables_apart();
        values
    }

    /// Gives each lookup a table of its own, where others read it too.
    fn set_tables_apart(&mut self) {
        let counts = self.use_counts();
        for op in self.fusion.ops.values() {
            let Some(lookup) = op.kind.lookup() else { continue };
            let own = (Self::of(op.output()), lookup.table);
            if self.source(own).is_some_and(|table| self.is_input(table) && counts[table] > 1) {
                self.fork(own);
            }
        }
    }

    /// The value of a tensor that is no copy.
    pub(super) fn of(tensor: TensorId) -> DraftId {
        DraftId::from_index(tensor.index())
    }

    /// Every use of an input reads an input of its own.
    pub(super) fn with_inputs_by_use(mut self) -> Self {
        let uses: Vec<Use> = self.uses().filter(|own| self.source(*own).is_some_and(|v| self.is_input(v))).collect();
        for own in uses {
            self.fork(own);
        }
        self
    }

    /// Every operand of an operation that moves indices is made of inputs of its own, by so many copies of operations at most.
    pub(super) fn with_operands_by_move(mut self, most: usize) -> Option<Self> {
        let moves = |own: &Use| self.all[own.0].op.is_some_and(|op| is_transform(&self.fusion.ops[op].kind));
        let uses: Vec<Use> = self.uses().filter(moves).collect();
        let mut copies = 0;
        for own in uses {
            let Some(cone) = self.source(own).and_then(|source| self.cone(source)) else { continue };
            let counts = self.use_counts();
            if cone.iter().any(|value| counts[*value] > 1) {
                copies += self.fork(own);
            }
            if copies > most {
                return None;
            }
        }
        Some(self)
    }

    /// All uses, in order of operations.
    fn uses(&self) -> impl Iterator<Item = Use> {
        let mut uses: Vec<(Option<OpId>, Use)> = Vec::new();
        for (id, value) in self.all.iter() {
            uses.extend((0..value.operands.len()).map(|operand| (value.op, (id, operand))));
        }
        uses.sort();
        uses.into_iter().map(|(_, own)| own)
    }

    fn is_input(&self, value: DraftId) -> bool {
        self.all[value].op.is_none()
    }

    pub(super) fn source(&self, (user, operand): Use) -> Option<DraftId> {
        self.all[user].operands[operand]
    }

    /// Whether a value may be computed twice: it costs a load or an operation on elements.
    fn may_be_copied(&self, value: DraftId) -> bool {
        let Some(op) = self.all[value].op else { return true };
        match &self.fusion.ops[op].kind {
            OpKind::Reduce { .. } => false,
            OpKind::Call(call) => {
                let moves = matches!(call.movement().form, Some(Form::Slice | Form::Pad | Form::Cat | Form::Reshape));
                moves || call.row.random.is_some() || call.lookup().is_some()
            }
            OpKind::Unary(_)
            | OpKind::Binary(_)
            | OpKind::Ternary(_)
            | OpKind::Cast(_)
            | OpKind::Set
            | OpKind::Broadcast { .. }
            | OpKind::Squeeze { .. }
            | OpKind::Permute { .. }
            | OpKind::Full
            | OpKind::Index { .. } => true,
        }
    }

    /// What is computed for a value, itself first; none if a part of it may not be copied.
    pub(super) fn cone(&self, value: DraftId) -> Option<BTreeSet<DraftId>> {
        let (mut cone, mut open) = (BTreeSet::new(), vec![value]);
        while let Some(value) = open.pop() {
            if !self.may_be_copied(value) {
                return None;
            }
            if cone.insert(value) {
                open.extend(self.all[value].operands.iter().flatten());
            }
        }
        Some(cone)
    }

    /// Gives a use copies of its own of what may be copied; says how many operations those are.
    pub(super) fn fork(&mut self, own: Use) -> usize {
        let Some(cone) = self.source(own).and_then(|source| self.cone(source)) else { return 0 };
        let mut copies: BTreeMap<DraftId, DraftId> = BTreeMap::new();
        for value in &cone {
            copies.insert(*value, self.all.push(self.all[*value].clone()));
        }
        for copy in copies.values() {
            for operand in self.all[*copy].operands.iter_mut().flatten() {
                *operand = copies.get(operand).copied().unwrap_or(*operand);
            }
        }
        let source = &mut self.all[own.0].operands[own.1];
        *source = source.and_then(|source| copies.get(&source).copied());
        self.operations(&cone)
    }

    /// How many of some values are results of operations.
    pub(super) fn operations(&self, cone: &BTreeSet<DraftId>) -> usize {
        cone.iter().filter(|value| !self.is_input(**value)).count()
    }

    /// The values that results depend on.
    pub(super) fn live(&self) -> SecondaryMap<DraftId, bool> {
        let updates = self.fusion.updates.iter().map(|update| update.tensor);
        let results = self.fusion.outputs.iter().copied().chain(updates).map(Self::of);
        let mut live: SecondaryMap<DraftId, bool> = SecondaryMap::new();
        let mut open: Vec<DraftId> = results.collect();
        while let Some(value) = open.pop() {
            if !live[value] {
                live.set(value, true);
                open.extend(self.all[value].operands.iter().flatten());
            }
        }
        live
    }

    /// How many uses each value has among those that results depend on.
    pub(super) fn use_counts(&self) -> SecondaryMap<DraftId, usize> {
        let live = self.live();
        let mut counts: SecondaryMap<DraftId, usize> = SecondaryMap::new();
        for (_, value) in self.all.iter().filter(|(id, _)| live[*id]) {
            for operand in value.operands.iter().flatten() {
                counts[*operand] += 1;
            }
        }
        for output in &self.fusion.outputs {
            counts[Self::of(*output)] += 1;
        }
        counts
    }

    /// The values that are computed from one, itself among them.
    pub(super) fn ahead_of(&self, value: DraftId) -> BTreeSet<DraftId> {
        let mut users: BTreeMap<DraftId, Vec<DraftId>> = BTreeMap::new();
        for (user, data) in self.all.iter() {
            data.operands.iter().flatten().for_each(|operand| users.entry(*operand).or_default().push(user));
        }
        let (mut found, mut open) = (BTreeSet::new(), vec![value]);
        while let Some(value) = open.pop() {
            if found.insert(value) {
                open.extend(users.get(&value).into_iter().flatten());
            }
        }
        found
    }

    /// The uses from which a value is computed.
    pub(super) fn uses_behind(&self, value: DraftId) -> BTreeSet<Use> {
        let (mut uses, mut open) = (BTreeSet::new(), vec![value]);
        while let Some(value) = open.pop() {
            for (position, operand) in self.all[value].operands.iter().enumerate() {
                if let Some(operand) = operand
                    && uses.insert((value, position))
                {
                    open.push(*operand);
                }
            }
        }
        uses
    }
}
