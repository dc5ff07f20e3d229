//! Which loops compute a tensor, on graphs made by hand.

use super::numbers::Numbers;
use crate::axes::{AxisId, AxisRef, Domain, DomainLoop, Extent, Foreign, Offset, Place, Sign, Storage};
use crate::diag::Result;
use Place::{Block, Serial, Thread};

fn domain(logical: &[AxisId], reduced: &[AxisId], loops: &[(AxisId, Place)]) -> Domain {
    Domain {
        logical: logical.iter().map(|axis| AxisRef::Axis(*axis)).collect(),
        reduced: reduced.to_vec(),
        loops: loops.iter().map(|(axis, place)| DomainLoop { axis: *axis, place: *place }).collect(),
        shared_loops: loops.len(),
    }
}

/// Foreign axes by name; a star where the tensor is stored at index 0 alone.
fn shown(numbers: &Numbers, foreign: Result<Foreign>) -> String {
    match foreign {
        Ok(foreign) => {
            let star = |at_zero: bool| if at_zero { "*" } else { "" };
            let axes = foreign.axes.iter().map(|own| format!("{}{}", numbers.graph[own.axis].name, star(own.at_zero)));
            let partial = foreign.partial.iter().map(|axis| format!("part of {}", numbers.graph[*axis].name));
            axes.chain(partial).collect::<Vec<_>>().join(", ")
        }
        Err(refused) => refused.message.clone(),
    }
}

#[track_caller]
fn check(numbers: &Numbers, domain: &Domain, storage: Storage, wanted: &str) {
    assert_eq!(shown(numbers, domain.covers(&numbers.graph, storage)), wanted);
}

#[test]
fn a_merged_loop_computes_a_tensor_that_lacks_a_part() {
    let mut n = Numbers::default();
    let (a, b) = (n.root(4), n.root(6));
    let m = n.graph.merge(a, b);
    let (block, thread) = n.graph.split(m, |_| Extent::CeilDiv(m, 8), Extent::Const(8), false);
    let loops = [(block, Block), (thread, Thread)];
    check(&n, &domain(&[a, b], &[], &loops), Storage::Global, "");
    check(&n, &domain(&[a], &[], &loops), Storage::Registers, "d1");
    check(&n, &domain(&[a], &[], &loops), Storage::Global, "d1*");
    check(&n, &domain(&[], &[], &loops), Storage::Global, "d0*d1.o*, d0*d1.i*");
    check(
        &n,
        &domain(&[a], &[], &loops),
        Storage::Shared,
        "shared memory is filled where the index of d1 is 0, which depends on threads and on other loops (d0*d1.o, d0*d1.i)",
    );
    check(&n, &domain(&[a], &[], &[(m, Thread)]), Storage::Shared, "d1*");
    check(&n, &domain(&[a], &[], &[(m, Serial)]), Storage::Shared, "d1");
}

#[test]
fn shared_memory_is_filled_whole_in_loops_of_its_own() {
    let mut n = Numbers::default();
    let (a, b) = (n.root(4), n.root(6));
    let m = n.graph.merge(a, b);
    let (outer, thread) = n.graph.split(m, |_| Extent::CeilDiv(m, 8), Extent::Const(8), false);
    let own = Domain { shared_loops: 0, ..domain(&[a], &[], &[(outer, Serial), (thread, Thread)]) };
    check(&n, &own, Storage::Shared, "d1*");
}

#[test]
fn loops_that_do_not_compute_a_tensor_are_refused() {
    let mut n = Numbers::default();
    let (a, b, c) = (n.root(4), n.root(6), n.root(6));
    let (o, i) = n.graph.split(a, |_| Extent::CeilDiv(a, 2), Extent::Const(2), true);
    let refused = |n: &Numbers, logical: &[AxisId], loops: &[AxisId], wanted: &str| {
        let loops: Vec<_> = loops.iter().map(|axis| (*axis, Serial)).collect();
        check(n, &domain(logical, &[], &loops), Storage::Registers, wanted);
    };
    refused(&n, &[a, b], &[o, i], "loops over d0.o, d0.i give no index to axis d1");
    refused(&n, &[a], &[o], "loops over d0.o give no index to axis d0");
    refused(&n, &[a], &[a, i], "the loop over d0.i follows from the others, over d0");
    refused(&n, &[a], &[a, a], "the loop over d0 follows from the others, over d0");
    let (one, other) = (n.graph.merge(a, b), n.graph.merge(a, c));
    refused(&n, &[b, c], &[one, other], "axis d0 has an index from loops over d0*d1, and another from d0*d2");
    // Two views of one axis are not two axes.
    let (_, four) = n.graph.split(a, |_| Extent::CeilDiv(a, 4), Extent::Const(4), true);
    refused(&n, &[i, four], &[a], "axes d0.i, d0.i#2 are not independent in these loops: d0 decides several");
}

#[test]
fn a_partial_result_keeps_a_part_of_what_it_reduces() {
    let mut n = Numbers::default();
    let (a, r) = (n.root(4), n.root(64));
    let (o, i) = n.graph.split(r, |_| Extent::CeilDiv(r, 8), Extent::Const(8), false);
    let partial = domain(&[a, i], &[r], &[(a, Block), (o, Serial), (i, Thread)]);
    check(&n, &partial, Storage::Registers, "");
    // What is left of it.
    check(&n, &domain(&[a], &[i], &[(a, Block), (i, Thread)]), Storage::Registers, "");
    // A loop over what is kept and what is reduced adds nothing up.
    let m = n.graph.merge(a, r);
    check(
        &n,
        &domain(&[a], &[r], &[(m, Serial)]),
        Storage::Registers,
        "the loop over d0*d1 runs over d0, which is kept, and over d1, which is reduced",
    );
}

#[test]
fn a_reduction_adds_each_value_once() {
    let mut n = Numbers::default();
    let (a, r, b) = (n.root(4), n.root(8), n.root(3));
    let loops = |list: [(AxisId, Place); 3]| domain(&[a], &[r], &list);
    check(&n, &loops([(a, Block), (b, Serial), (r, Serial)]), Storage::Registers, "d2");
    check(&n, &loops([(a, Block), (b, Thread), (r, Serial)]), Storage::Registers, "d2");
    check(
        &n,
        &loops([(a, Block), (r, Serial), (b, Serial)]),
        Storage::Registers,
        "the loop over d2 stands inside those that reduce d1",
    );
    // A thread holds a value for each index of a loop over what is kept and more, but not where others share the loop.
    let both = n.graph.merge(b, a);
    let held = Domain { shared_loops: 0, ..domain(&[a], &[r], &[(r, Serial), (both, Serial)]) };
    check(&n, &held, Storage::Registers, "d2");
    check(
        &n,
        &Domain { shared_loops: 2, ..held },
        Storage::Registers,
        "the loop over d2 stands inside those that reduce d1",
    );
    // Threads have no place in that order.
    check(&n, &loops([(a, Block), (r, Thread), (b, Serial)]), Storage::Registers, "d2");
    check(
        &n,
        &loops([(a, Thread), (b, Block), (r, Block)]),
        Storage::Registers,
        "d1 is reduced over blocks: the last one has the value, and no other block of d2",
    );
    let m = n.graph.merge(r, b);
    check(
        &n,
        &domain(&[a], &[r], &[(a, Block), (m, Thread)]),
        Storage::Registers,
        "the loop over d1*d2 adds what is reduced over d1 for each index of d2",
    );
}

#[test]
fn a_slice_reaches_a_part() {
    let mut n = Numbers::default();
    let x = n.root(8);
    let cut = n.graph.resize(x, Extent::Const(5), Offset::constant(-2), Offset::constant(-1));
    let part = domain(&[x], &[], &[(cut, Serial)]);
    check(&n, &part, Storage::Registers, "part of d0");
    check(&n, &part, Storage::Global, "the loops reach a part of axis d0 only, which is written");
    check(&n, &domain(&[cut], &[], &[(x, Serial)]), Storage::Global, "");
    let reduced = domain(&[], &[x], &[(cut, Serial)]);
    check(&n, &reduced, Storage::Registers, "the loops reach a part of axis d0 only, which is reduced");
    // Of which nothing is known may be cut or padded.
    let scalar = n.scalars.push(1);
    let either = Offset::sum(0, [(1, scalar)], Sign::Unknown);
    let moved = n.graph.resize(x, Extent::Const(9), either, Offset::constant(0));
    check(&n, &domain(&[moved], &[], &[(x, Serial)]), Storage::Registers, "part of d0.r#2");
    check(&n, &domain(&[x], &[], &[(moved, Serial)]), Storage::Registers, "part of d0");
}
