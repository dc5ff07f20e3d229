//! Keeps the loops of a computation free of circles.
//!
//! A tensor that is computed inside the first `n` loops of its users puts all
//! of them into one loop nest down to depth `n`. If one user needs another
//! through a value that is kept outside those loops (`y = f(x)`, `z = y - x`,
//! with `y` kept in an array for a wide store and `x` inlined into both), the
//! nest would have to stand both before and after that value.
//!
//! At each depth the tensors that share the next loop form groups. A circle of
//! groups is broken by keeping a tensor with several users in an array too:
//! without such tensors a group is a tree towards one value, and a circle of
//! groups would be a circle of values.

use super::ir::{ScheduledFusion, TvId};
use crate::util::{DisjointSets, SecondaryMap};

/// Lowers inline positions until no loop nests depend on each other in a circle.
pub(super) fn break_circles(scheduled: &ScheduledFusion, positions: &mut SecondaryMap<TvId, usize>) {
    let order = scheduled.topological();
    let mut place: SecondaryMap<TvId, usize> = SecondaryMap::new();
    order.iter().enumerate().for_each(|(at, tv)| place.set(*tv, at));
    let consumers = scheduled.all_consumers();
    let users: Vec<Vec<usize>> =
        order.iter().map(|tv| consumers[*tv].iter().map(|user| place[*user]).collect()).collect();
    let mut depths: Vec<usize> = order.iter().map(|tv| positions[*tv]).collect();
    for depth in 0..depths.iter().copied().max().unwrap_or(0) {
        loop {
            let circle = in_circles(&users, &depths, depth);
            let bridge = (0..order.len()).find(|at| circle[*at] && depths[*at] > depth && users[*at].len() > 1);
            let Some(bridge) = bridge else { break };
            depths[bridge] = depth;
        }
    }
    order.iter().zip(depths).for_each(|(tv, depth)| positions.set(*tv, depth));
}

/// Which tensors' groups at a depth lie on circles, or between two. Tensors are
/// numbered in topological order.
fn in_circles(users: &[Vec<usize>], depths: &[usize], depth: usize) -> Vec<bool> {
    // A group is named by its first member.
    let mut groups = DisjointSets::new(users.len());
    for (tv, users) in users.iter().enumerate().filter(|(tv, _)| depths[*tv] > depth) {
        for user in users {
            groups.union(tv, *user);
        }
    }
    let group: Vec<usize> = (0..users.len()).map(|tv| groups.find(tv)).collect();
    let (mut needs, mut needed_by) = (vec![Vec::new(); users.len()], vec![Vec::new(); users.len()]);
    for (tv, users) in users.iter().enumerate() {
        for user in users.iter().filter(|user| group[tv] != group[**user]) {
            needed_by[group[tv]].push(group[*user]);
            needs[group[*user]].push(group[tv]);
        }
    }
    // A group that needs no live group, or that no live group needs, is on no circle.
    let mut live = vec![true; users.len()];
    for (from, to) in [(&needs, &needed_by), (&needed_by, &needs)] {
        let mut waiting: Vec<usize> =
            from.iter().map(|others| others.iter().filter(|other| live[**other]).count()).collect();
        let mut free: Vec<usize> = (0..live.len()).filter(|group| live[*group] && waiting[*group] == 0).collect();
        while let Some(group) = free.pop() {
            live[group] = false;
            for &other in to[group].iter().filter(|other| live[**other]) {
                waiting[other] -= 1;
                if waiting[other] == 0 {
                    free.push(other);
                }
            }
        }
    }
    group.iter().map(|group| live[*group]).collect()
}
