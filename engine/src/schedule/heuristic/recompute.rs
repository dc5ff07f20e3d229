//! Values that are computed again by every stage that uses them, so that they
//! need not be kept from one loop nest to another.

use crate::diag::Result;
use crate::schedule::{AxisId, ScheduleBuilder, ScheduledFusion, Stages, TvId};
use crate::util::{SecondaryMap, sort_by_key};

/// Gives every later stage its own copy of the values that are worth it, until
/// only others cross from stage to stage. Those who read one in the same stage share
/// the copy, and what it is computed of.
///
/// One pass, users first: forking a value may make its operands cross, which come
/// later, and a fork, which has one user, crosses nothing. So no value is looked at
/// twice, and stages are not derived anew after each fork.
pub(super) fn recompute(
    builder: &mut ScheduleBuilder,
    is_worth: &dyn Fn(&ScheduledFusion, TvId) -> bool,
) -> Result<()> {
    let stages = Stages::new(builder.state());
    let order = builder.state().topological();
    let mut consumers = builder.state().all_consumers();
    // Where each value is computed, as `Stages` would place it after the forks so far.
    let mut placed: SecondaryMap<TvId, u32> = SecondaryMap::new();
    for tv in order.into_iter().rev() {
        let state = builder.state();
        let mut users = std::mem::take(&mut consumers[tv]);
        sort_by_key(&mut users, |user| (placed[*user], *user));
        let (Some(first), Some(last)) = (users.first(), users.last()) else {
            placed.set(tv, stages.earliest(tv));
            continue;
        };
        let (first, crosses) = (placed[*first], placed[*first] != placed[*last]);
        let forked = crosses && is_worth(state, tv);
        let stays = state.is_reduction(tv) || crosses && !forked;
        placed.set(tv, if stays { stages.earliest(tv) } else { first });
        if !forked {
            continue;
        }
        let mut operands = state.producers(tv);
        operands.sort_unstable();
        operands.dedup();
        // They are sorted by stage.
        let mut later = &users[users.partition_point(|user| placed[*user] <= first)..];
        while let Some(stage) = later.first().map(|user| placed[*user]) {
            let (together, others) = later.split_at(later.partition_point(|user| placed[*user] <= stage));
            let fork = builder.cache_fork(tv, together)?;
            placed.set(fork, stage);
            operands.iter().for_each(|operand| consumers[*operand].push(fork));
            later = others;
        }
    }
    Ok(())
}

/// Computes values anew in each iteration of a loop instead of holding them outside, if they are worth it: those that only
/// run through the loop as they are read.
pub(super) fn recompute_in_loop(
    builder: &mut ScheduleBuilder,
    axis: AxisId,
    is_worth: &dyn Fn(&ScheduledFusion, TvId) -> bool,
) -> Result<()> {
    // No step below changes who reads what.
    let consumers = builder.state().all_consumers();
    for tv in builder.state().topological().into_iter().rev() {
        let state = builder.state();
        let users = &consumers[tv];
        let is_inside = |tv: TvId| state.tensors[tv].has_loop(axis);
        if is_worth(state, tv) && !users.is_empty() && users.iter().all(|user| is_inside(*user)) && !is_inside(tv) {
            builder.recompute_in(tv, axis)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Compute, scheduled_fusion};
    use crate::text;

    /// Looks for one value after the other, with new stages after each.
    fn one_by_one(builder: &mut ScheduleBuilder, is_worth: impl Fn(&ScheduledFusion, TvId) -> bool) {
        loop {
            let (stages, state) = (Stages::new(builder.state()), builder.state());
            let order = state.topological();
            let Some(tv) = order.into_iter().rev().find(|tv| stages.crosses(*tv) && is_worth(state, *tv)) else {
                return;
            };
            let mut users = state.consumers(tv);
            users.sort_by_key(|user| (stages.placed(*user), *user));
            for together in users.chunk_by(|one, next| stages.placed(*one) == stages.placed(*next)).skip(1) {
                builder.cache_fork(tv, together).expect("they read it");
            }
        }
    }

    fn check(lines: &str, forks: usize) {
        let text = format!("fusion @F(%x: f32[?, ?], %y: f32[?, ?]) {{\n{lines}\n}}");
        let fusion = text::parse_one(&text).expect("it is a fusion");
        let start = scheduled_fusion(&fusion).expect("it can be scheduled");
        let is_worth = |state: &ScheduledFusion, tv: TvId| {
            let op = state.tensors[tv].op.as_ref();
            op.is_some_and(|op| matches!(op.compute, Compute::Binary(_) | Compute::Unary(_)))
        };
        let (mut found, mut expected) = (ScheduleBuilder::new(start.clone()), ScheduleBuilder::new(start.clone()));
        recompute(&mut found, &is_worth).expect("users read what they use");
        one_by_one(&mut expected, is_worth);
        assert_eq!(found.state().schedule_text(), expected.state().schedule_text(), "{text}");
        assert_eq!(found.state().tensors.len(), start.tensors.len() + forks, "{text}");
    }

    #[test]
    fn one_pass_forks_what_repeated_searches_fork() {
        let deep = "%a = add %x, 0.5\n%b = mul %a, %a\n%m = max %b axes(1) keepdim\n%c = sub %b, %m\n\
                    %e = exp %c\n%s = sum %e axes(1) keepdim\n%r = div %e, %s";
        // Both `a` and `b` once for `c`; they, `c` and `e` once more for `r`.
        check(&format!("{deep}\nreturn %r"), 6);
        // For `t` and the last `b` one `a` does.
        check(&format!("{deep}\n%t = add %r, %a\nreturn %t, %b"), 6);
        check("%a = add %x, %y\n%s = sum %a axes(1)\nreturn %s, %a", 0);
        check("%a = add %x, %y\n%s = sum %a axes(1)\nreturn %s", 0);
    }
}
