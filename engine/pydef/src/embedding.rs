//! What a lookup of rows does to its table: with `max_norm` the rows that are
//! looked up are scaled down in the table itself, before they are looked up. So
//! an input that is the table is updated, though no output says so.

use super::draft::DefinitionDraft;
use super::interp::Interp;
use engine::diag::Result;
use engine::fusion::ops::{Args, OpArg};
use engine::fusion::{Operand, Src};

/// A table and what it is after the lookups so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Renewal {
    table: Operand,
    renewed: Operand,
}

impl Interp<'_> {
    /// The arguments of a lookup, with the table as earlier ones leave it.
    pub(super) fn renewed_table(&self, draft: usize, args: Args) -> Args {
        let table = |src: Src| self.drafts[draft].renewals.iter().find(|renewal| Src::from(renewal.table) == src);
        match args.opt("weight").and_then(table).filter(|_| args.row().py.updates_table) {
            Some(renewal) => args.with("weight", OpArg::Value(renewal.renewed.into())),
            None => args,
        }
    }

    /// Notes that the rows that were looked up are those of the table from now on.
    pub(super) fn renew_table(&mut self, draft: usize, args: &Args, rows: Operand) -> Result<()> {
        let (Ok(Src::Tensor(ids)), Ok(Src::Tensor(weight)), Some(_)) =
            (args.src("input"), args.src("weight"), args.opt("max_norm"))
        else {
            return Ok(());
        };
        let (ids, weight) = (Operand::Tensor(ids), Operand::Tensor(weight));
        let known = self.drafts[draft].renewals.iter().position(|renewal| renewal.renewed == weight);
        if known.is_none() && !self.drafts[draft].builder.is_input(weight) {
            return Ok(());
        }
        let value = |operand: Operand| OpArg::Value(operand.into());
        let width: Src = self.drafts[draft].builder.size(weight, 1)?.into();
        let line = |extents: Vec<Src>| OpArg::Values(extents);
        let ids = self.applied(draft, "reshape", &[("x", value(ids)), ("shape", line(vec![(-1).into()]))])?;
        let rows = self.applied(draft, "reshape", &[("x", value(rows)), ("shape", line(vec![(-1).into(), width]))])?;
        let builder = &mut self.drafts[draft].builder;
        let count: Src = builder.size(ids, 0)?.into();
        let ids = builder.broadcast(ids, &[false, true])?;
        let index = self.applied(draft, "expand", &[("x", value(ids)), ("shape", line(vec![count, width]))])?;
        let given = [("x", value(weight)), ("index", value(index)), ("src", value(rows)), ("dim", OpArg::Int(0))];
        let renewed = self.applied(draft, "scatter", &given)?;
        let renewals = &mut self.drafts[draft].renewals;
        match known {
            Some(known) => renewals[known].renewed = renewed,
            None => renewals.push(Renewal { table: weight, renewed }),
        }
        Ok(())
    }
}

impl DefinitionDraft {
    /// Updates the tables, but for those that the definition updates itself.
    pub(super) fn update_tables(&mut self) -> Result<()> {
        for renewal in std::mem::take(&mut self.renewals) {
            if !self.builder.is_updated(renewal.table) {
                self.builder.update(renewal.renewed, renewal.table)?;
            }
        }
        Ok(())
    }
}
