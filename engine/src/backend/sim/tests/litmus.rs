//! Each detector finds what it is for; the kernels of `values` show that it
//! finds nothing where nothing is wrong.

use super::*;
use crate::diag::code;
use crate::kernel::{CacheHint, Scope, ShuffleMode, StmtKind, Unroll};

/// Neighbours exchange values through shared memory, with or without a barrier.
fn exchange(barrier: bool) -> Kernel {
    vector_kernel(DType::F32, DType::F32, 2, 128, |b, x, y, _| {
        let (t, i) = (tid(b), global_thread(b, 128));
        let shared = b.shared("s", DType::F32, 128, 16);
        let v = b.load("v", x, i);
        b.store(shared, t, v);
        if barrier {
            b.sync(Scope::Block);
        }
        let last = b.int(127);
        let mirrored = b.exprs().sub(last, t);
        let w = b.load("w", shared, mirrored);
        b.store(y, i, w);
    })
}

#[test]
fn barrier_orders_shared_memory() {
    let x: Vec<f32> = (0..256).map(|i| i as f32).collect();
    let expected: Vec<f32> = (0..256).map(|i| x[i / 128 * 128 + 127 - i % 128]).collect();
    check_values(exchange(true), &x, &expected);
}

#[test]
fn missing_barrier_after_a_write() {
    // Depending on the schedule the element is unwritten or its write races.
    let x = vec![0.0; 256];
    let prepared = Prepared::new(exchange(false), DType::F32, 256, f32_bytes(&x));
    let mut codes = std::collections::BTreeSet::new();
    for options in schedules() {
        codes.insert(prepared.run(&options).unwrap_err().code);
    }
    assert!(codes.contains(&code::RACE), "{codes:?}");
    assert!(codes.is_subset(&[code::RACE, code::UNINITIALISED].into()), "{codes:?}");
}

/// Write, barrier, read, write again: the second barrier is missing.
#[test]
fn missing_barrier_before_the_next_write() {
    let kernel = vector_kernel(DType::F32, DType::F32, 1, 64, |b, x, y, _| {
        let t = tid(b);
        let shared = b.shared("s", DType::F32, 64, 16);
        let rounds = b.int(2);
        b.count("r", rounds, Unroll::No, |b, _| {
            let v = b.load("v", x, t);
            b.store(shared, t, v);
            b.sync(Scope::Block);
            let last = b.int(63);
            let mirrored = b.exprs().sub(last, t);
            let w = b.load("w", shared, mirrored);
            let one = b.int(1);
            let first = b.exprs().lt(t, one);
            b.if_(first, |b| b.store(y, t, w));
        });
    });
    let message = check_detected(kernel, 64, code::RACE);
    assert!(message.contains("s (b2)["), "{message}");
    assert!(message.contains("the other side is at"), "{message}");
}

#[test]
fn warp_barrier_orders_lanes_of_one_warp_only() {
    let kernel = |sync: bool, distance: i64| {
        vector_kernel(DType::F32, DType::F32, 1, 64, move |b, x, y, _| {
            let t = tid(b);
            let shared = b.shared("s", DType::F32, 64, 16);
            let v = b.load("v", x, t);
            b.store(shared, t, v);
            if sync {
                b.sync(Scope::Warp);
            }
            let distance = b.int(distance);
            let t_data = b.exprs().as_data(t);
            let partner = b.exprs().binary(BinaryOp::BitwiseXor, t_data, distance);
            let partner = b.exprs().as_index(partner);
            let w = b.load("w", shared, partner);
            b.store(y, t, w);
        })
    };
    let x: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let swapped: Vec<f32> = (0..64).map(|i| x[i ^ 5]).collect();
    check_values(kernel(true, 5), &x, &swapped);
    check_detected(kernel(false, 5), 64, code::RACE);
    let across = Prepared::new(kernel(true, 32), DType::F32, 64, f32_bytes(&x));
    assert_eq!(across.run(&SimOptions::default()).unwrap_err().code, code::RACE);
}

#[test]
fn two_threads_write_one_output() {
    let kernel = vector_kernel(DType::F32, DType::F32, 1, 64, |b, x, y, _| {
        let (t, two) = (tid(b), b.int(2));
        let half = b.exprs().div(t, two);
        let v = b.load("v", x, t);
        b.store(y, half, v);
    });
    let message = check_detected(kernel, 64, code::RACE);
    assert!(message.contains("a write to y"), "{message}");
}

#[test]
fn two_blocks_write_one_output() {
    let kernel = vector_kernel(DType::F32, DType::F32, 64, 32, |b, x, y, _| {
        let t = tid(b);
        let v = b.load("v", x, t);
        b.store(y, t, v);
    });
    let message = check_detected(kernel, 32, code::RACE);
    assert!(message.contains("block (0, 0, 0)") && message.contains("block (1, 0, 0)"), "{message}");
}

#[test]
fn missing_fence_before_the_counter() {
    check_detected(super::values::last_block_sum(false), 768, code::RACE);
}

#[test]
fn missing_grid_barrier() {
    let kernel = vector_kernel(DType::F32, DType::F32, 4, 64, |b, x, y, n| {
        let scratch = b.workspace("scratch", DType::F32, n, 16, true);
        let i = global_thread(b, 64);
        let v = b.load("v", x, i);
        b.store(scratch, i, v);
        let one = b.int(1);
        let last = b.exprs().sub(n, one);
        let mirrored = b.exprs().sub(last, i);
        let w = b.load("w", scratch, mirrored);
        b.store(y, i, w);
    });
    check_detected(kernel, 256, code::RACE);
}

#[test]
fn off_by_one() {
    let kernel = vector_kernel(DType::F32, DType::F32, 2, 64, |b, x, y, n| {
        let i = global_thread(b, 64);
        // `<=` where `<` belongs.
        let inside = b.exprs().binary(BinaryOp::Le, i, n);
        b.if_(inside, |b| {
            let v = b.load("v", x, i);
            b.store(y, i, v);
        });
    });
    let message = check_detected(kernel, 100, code::OUT_OF_BOUNDS);
    assert!(message.contains("x (b0)[100] is outside its 100 elements"), "{message}");
    assert!(message.contains("block (1, 0, 0), warp 1, lane 4, thread (36, 0, 0)"), "{message}");
}

#[test]
fn negative_index_and_shared_index_out_of_bounds() {
    let negative = vector_kernel(DType::F32, DType::F32, 1, 32, |b, x, y, _| {
        let (t, one) = (tid(b), b.int(1));
        let before = b.exprs().sub(t, one);
        let v = b.load("v", x, before);
        b.store(y, t, v);
    });
    assert!(check_detected(negative, 32, code::OUT_OF_BOUNDS).contains("x (b0)[-1]"));
    let shared = vector_kernel(DType::F32, DType::F32, 1, 64, |b, x, _, _| {
        let t = tid(b);
        let s = b.shared("s", DType::F32, 63, 16);
        let v = b.load("v", x, t);
        b.store(s, t, v);
    });
    assert!(check_detected(shared, 64, code::OUT_OF_BOUNDS).contains("s (b2)[63]"));
}

#[test]
fn local_memory_out_of_bounds_and_unwritten() {
    let kernel = |write: bool, bound: i64| {
        vector_kernel(DType::F32, DType::F32, 1, 32, move |b, x, y, _| {
            let (t, zero) = (tid(b), b.int(0));
            let local = b.local("l", DType::F32, 4);
            if write {
                b.mov((local, zero), (x, zero), 4, CacheHint::Default);
            }
            let bound = b.int(bound);
            let k = b.exprs().rem(t, bound);
            let v = b.load("v", local, k);
            b.store(y, t, v);
        })
    };
    assert!(check_detected(kernel(true, 5), 32, code::OUT_OF_BOUNDS).contains("l (b2)[4]"));
    assert!(check_detected(kernel(false, 4), 32, code::UNINITIALISED).contains("l (b2)[0]"));
}

#[test]
fn unwritten_shared_memory_and_workspace() {
    let kernel = |shared: bool| {
        vector_kernel(DType::F32, DType::F32, 1, 64, move |b, x, y, n| {
            let t = tid(b);
            let s = if shared { b.shared("s", DType::F32, 64, 16) } else { b.workspace("w", DType::F32, n, 16, false) };
            let width = b.int(63);
            let inside = b.exprs().lt(t, width);
            b.if_(inside, |b| {
                let v = b.load("v", x, t);
                b.store(s, t, v);
            });
            b.sync(Scope::Block);
            let v = b.load("w", s, t);
            b.store(y, t, v);
        })
    };
    assert!(check_detected(kernel(true), 64, code::UNINITIALISED).contains("s (b2)[63]"));
    assert!(check_detected(kernel(false), 64, code::UNINITIALISED).contains("w (b2)[63]"));
}

#[test]
fn misaligned_vector_move() {
    let kernel = vector_kernel(DType::F32, DType::F32, 1, 32, |b, x, y, _| {
        let (t, three, zero) = (tid(b), b.int(3), b.int(0));
        let base = b.exprs().mul(t, three);
        let local = b.local("l", DType::F32, 4);
        b.mov((local, zero), (x, base), 4, CacheHint::Default);
        let v = b.load("v", local, zero);
        b.store(y, t, v);
    });
    let message = check_detected(kernel, 128, code::MISALIGNED);
    assert!(message.contains("16 bytes at x (b0)[3] is 12 bytes"), "{message}");
}

/// The buffer is less aligned than the moves that touch it want.
#[test]
fn alignment_that_nobody_promised() {
    let mut b = KernelBuilder::new("k", DType::I32);
    let n = b.size("n", 0, 0);
    let x = b.input("x", 0, DType::F32, n, 4);
    let y = b.output("y", 0, DType::F32, n, 16);
    let (t, four, zero) = (tid(&mut b), b.int(4), b.int(0));
    let base = b.exprs().mul(t, four);
    let local = b.local("l", DType::F32, 4);
    b.mov((local, zero), (x, base), 4, CacheHint::Default);
    b.mov((y, base), (local, zero), 4, CacheHint::Default);
    let one = b.int(1);
    check_detected(b.finish_1d(one, 32), 128, code::MISALIGNED);
}

#[test]
fn barrier_under_divergence() {
    let kernel = |bound: i64, scope: Scope| {
        vector_kernel(DType::F32, DType::F32, 1, 64, move |b, x, y, _| {
            let (t, bound) = (tid(b), b.int(bound));
            let some = b.exprs().lt(t, bound);
            b.if_(some, |b| b.sync(scope));
            let v = b.load("v", x, t);
            b.store(y, t, v);
        })
    };
    let message = check_detected(kernel(16, Scope::Block), 64, code::DIVERGENCE);
    assert!(message.contains("only 16 of 32 threads of a warp are here, lanes 0-15"), "{message}");
    check_detected(kernel(40, Scope::Warp), 64, code::DIVERGENCE);
    // Whole warps stay away: the others wait for ever.
    let message = check_detected(kernel(32, Scope::Block), 64, code::DEADLOCK);
    assert!(message.contains("warps [0] wait at `sync"), "{message}");
    assert!(message.contains("1 of 2 warps arrived") && message.contains("warps [1] ended"), "{message}");
}

#[test]
fn warps_at_different_barriers() {
    let kernel = vector_kernel(DType::F32, DType::F32, 1, 64, |b, x, y, _| {
        let (t, bound) = (tid(b), b.int(32));
        let some = b.exprs().lt(t, bound);
        b.if_else(some, |b| b.sync(Scope::Block), |b| b.sync(Scope::Block));
        let v = b.load("v", x, t);
        b.store(y, t, v);
    });
    check_detected(kernel, 64, code::DIVERGENCE);
}

#[test]
fn shuffle_under_divergence_and_of_a_missing_lane() {
    let kernel = |threads: u32, bound: i64| {
        vector_kernel(DType::F32, DType::F32, 1, threads, move |b, x, y, _| {
            let (t, bound, mask) = (tid(b), b.int(bound), b.int(16));
            let some = b.exprs().lt(t, bound);
            let v = b.load("v", x, t);
            b.if_(some, |b| {
                let w = b.shuffle("w", v, ShuffleMode::Xor, mask);
                b.store(y, t, w);
            });
        })
    };
    check_detected(kernel(32, 31), 32, code::DIVERGENCE);
    check_detected(kernel(40, 1000), 40, code::DIVERGENCE);
}

#[test]
fn grid_barrier_beyond_residency_and_missed_by_a_block() {
    let kernel = |bound: i64| {
        vector_kernel(DType::F32, DType::F32, 4, 32, move |b, x, y, _| {
            let i = global_thread(b, 32);
            let (bx, bound) = (b.exprs().block_idx(Dim::X), b.int(bound));
            let some = b.exprs().lt(bx, bound);
            b.if_(some, |b| b.sync(Scope::Grid));
            let v = b.load("v", x, i);
            b.store(y, i, v);
        })
    };
    let message = check_detected(kernel(3), 128, code::DEADLOCK);
    assert!(message.contains("3 of 4 warps arrived"), "{message}");
    let whole = Prepared::new(kernel(4), DType::F32, 128, f32_bytes(&[1.0; 128]));
    let narrow = SimOptions { resident_blocks: 3, ..SimOptions::default() };
    let error = whole.run(&narrow).unwrap_err();
    assert!(error.code == code::DEADLOCK && error.message.contains("all 4 blocks resident"), "{error}");
    whole.run(&SimOptions { resident_blocks: 4, ..narrow }).unwrap();
}

#[test]
fn outputs_that_stay_unwritten_are_counted() {
    let kernel = vector_kernel(DType::F32, DType::F32, 1, 32, |b, x, y, _| {
        let t = tid(b);
        let v = b.load("v", x, t);
        b.store(y, t, v);
    });
    let prepared = Prepared::new(kernel, DType::F32, 100, f32_bytes(&[1.0; 100]));
    let (_, report) = prepared.run(&SimOptions::default()).unwrap();
    assert_eq!(report.unwritten[0].2, 68);
}

#[test]
fn endless_loop_hits_the_step_limit() {
    let kernel = vector_kernel(DType::F32, DType::F32, 1, 32, |b, x, y, n| {
        let zero = b.int(0);
        let t = tid(b);
        // The counter wraps before it reaches the end.
        let end = b.int(i64::from(i32::MAX));
        let start = b.exprs().mul(n, zero);
        b.for_("j", (start, end, 2), Unroll::No, |b, _| {
            let v = b.load("v", x, t);
            b.store(y, t, v);
        });
    });
    let prepared = Prepared::new(kernel, DType::F32, 32, f32_bytes(&[1.0; 32]));
    let options = SimOptions { max_steps: 1000, ..SimOptions::default() };
    let error = prepared.run(&options).unwrap_err();
    assert!(error.message.contains("limit of 1000 steps"), "{error}");
}

#[test]
fn statements_are_found_by_their_number() {
    let kernel = exchange(true);
    let total = super::super::compile::count(&kernel.body);
    let last = super::super::compile::statement(&kernel.body, total - 1).unwrap();
    assert!(matches!(last.kind, StmtKind::Store { .. }));
    assert!(super::super::compile::statement(&kernel.body, total).is_none());
}

#[test]
fn launches_beyond_the_simulated_memory_are_refused() {
    let kernel = exchange(true);
    let launch = bind(&kernel, &[vector(DType::F32, 1 << 30)]).unwrap();
    let mut memory = SimMemory::new(&kernel, &launch);
    assert_eq!(memory.fill_input(0, &[]).unwrap_err().code, code::DEVICE_MEMORY);
    let error = run(&kernel, &launch, &mut memory, &SimOptions::default()).unwrap_err();
    assert!(error.message.contains("needs 8589934592 bytes"), "{error}");
}

#[test]
fn residency_follows_threads_and_shared_memory() {
    let h200 = crate::options::DeviceDesc::h200();
    let resident = |threads: u32, shared: i64| {
        let kernel = vector_kernel(DType::F32, DType::F32, 1, threads, |b, _, _, _| {
            b.shared("s", DType::I8, shared, 16);
        });
        resident_blocks(&h200, &bind(&kernel, &[vector(DType::F32, 1)]).unwrap())
    };
    assert_eq!(resident(1024, 16), 2 * 132);
    assert_eq!(resident(33, 16), 32 * 132);
    assert_eq!(resident(128, 100 << 10), 2 * 132);
}

/// What takes part in handing data from one block to the other.
#[derive(Clone, Copy, Debug)]
struct Handing {
    /// The thread that writes the data; thread 0 updates the counter.
    writer: i64,
    /// The fence after the write is by the writer, before the barrier.
    early_fence: bool,
    /// The fence is by thread 0, right before it updates the counter.
    late_fence: bool,
    /// Whether a barrier stands between write and counter.
    barrier: bool,
    /// Whether thread 0 fences after it updated the counter.
    reader_fence: bool,
}

/// Two blocks write one element each; the last one to arrive reads the other's
/// in thread 0.
fn hand_over(h: Handing) -> Kernel {
    vector_kernel(DType::F32, DType::F32, 2, 64, move |b, x, y, _| {
        let (t, i) = (tid(b), global_thread(b, 64));
        let (zero, one, two) = (b.int(0), b.int(1), b.int(2));
        let data = b.workspace("data", DType::F32, two, 16, false);
        let counter = b.workspace("counter", DType::I32, one, 4, true);
        let bx = b.exprs().block_idx(Dim::X);
        let writer = b.int(h.writer);
        let writes = b.exprs().binary(BinaryOp::Eq, t, writer);
        let leads = b.exprs().binary(BinaryOp::Eq, t, zero);
        let v = b.load("v", x, i);
        b.store(y, i, v);
        b.if_(writes, |b| {
            b.store(data, bx, v);
            if h.early_fence {
                b.fence(Scope::Grid);
            }
        });
        if h.barrier {
            b.sync(Scope::Block);
        }
        b.if_(leads, |b| {
            if h.late_fence {
                b.fence(Scope::Grid);
            }
            let old = b.atomic("old", crate::kernel::AtomicOp::Add, (counter, zero), one);
            let last = b.exprs().binary(BinaryOp::Eq, old, one);
            b.if_(last, |b| {
                if h.reader_fence {
                    b.fence(Scope::Grid);
                }
                let other = b.exprs().sub(one, bx);
                b.load("w", data, other);
            });
        });
    })
}

#[test]
fn data_is_handed_over_by_barrier_fence_counter_fence() {
    let whole = Handing { writer: 5, early_fence: false, late_fence: true, barrier: true, reader_fence: true };
    let own = Handing { writer: 0, barrier: false, ..whole };
    let good =
        [whole, own, Handing { early_fence: true, late_fence: false, ..own }, Handing { early_fence: true, ..whole }];
    let bad = [
        Handing { reader_fence: false, ..whole },
        Handing { late_fence: false, ..whole },
        Handing { reader_fence: false, ..own },
        Handing { late_fence: false, ..own },
        // Another thread's write is not ordered before thread 0's fence.
        Handing { barrier: false, writer: 40, ..whole },
        // Thread 0, which updates the counter, never fenced.
        Handing { early_fence: true, late_fence: false, ..whole },
    ];
    let x = f32_bytes(&[1.0; 128]);
    for handing in good {
        let prepared = Prepared::new(hand_over(handing), DType::F32, 128, x.clone());
        for options in schedules() {
            prepared.run(&options).unwrap_or_else(|error| panic!("{handing:?}: {error}"));
        }
    }
    for handing in bad {
        let prepared = Prepared::new(hand_over(handing), DType::F32, 128, x.clone());
        for options in schedules() {
            let error = prepared.run(&options).expect_err("the hand-over is not ordered");
            // Without the barrier the reader may even come before the writer.
            let early = !handing.barrier && error.code == code::UNINITIALISED;
            assert!(error.code == code::RACE || early, "{handing:?} under {options:?}: {error}");
        }
    }
}
