//! Which axes of an operand are axes of the result.

use crate::fusion::OpKind;

/// Which axes of an operand, of which there are `rank`, are axes of the result: pairs of
/// their positions. Of operations that resize or regroup axes all are paired.
pub fn axis_pairs(kind: &OpKind, operand: usize, rank: usize, output_rank: usize) -> Vec<(usize, usize)> {
    if let Some(lookup) = kind.lookup() {
        return lookup.pairs(operand, rank, output_rank);
    }
    match kind {
        OpKind::Broadcast { flags } => kept(flags).enumerate().collect(),
        OpKind::Squeeze { flags } => kept(flags).enumerate().map(|(to, from)| (from, to)).collect(),
        OpKind::Permute { perm } => perm.iter().enumerate().map(|(to, from)| (*from as usize, to)).collect(),
        OpKind::Reduce { axes, .. } => {
            let dropped: Vec<bool> = (0..rank).map(|axis| axes.contains(&(axis as u32))).collect();
            kept(&dropped).enumerate().map(|(to, from)| (from, to)).collect()
        }
        OpKind::Unary(_)
        | OpKind::Binary(_)
        | OpKind::Ternary(_)
        | OpKind::Cast(_)
        | OpKind::Set
        | OpKind::Full
        | OpKind::Index { .. }
        // Schedules refuse the other primitives.
        | OpKind::Call(_) => (0..rank.min(output_rank)).map(|axis| (axis, axis)).collect(),
    }
}

/// Positions whose flag is not set.
fn kept(flags: &[bool]) -> impl Iterator<Item = usize> + '_ {
    flags.iter().enumerate().filter(|(_, flag)| !**flag).map(|(axis, _)| axis)
}
