//! Random accesses to shared memory between random barriers: the detector finds
//! a race exactly where the definition has one.

use super::*;
use crate::diag::code;
use crate::kernel::Scope;
use arbtest::arbitrary::{Result, Unstructured};

const THREADS: i64 = 64;

/// One step of every thread `t`; the element is `(t * scale + offset) % THREADS`.
#[derive(Clone, Copy, Debug)]
enum Step {
    Access { write: bool, scale: i64, offset: i64 },
    Sync(Scope),
}

fn steps(u: &mut Unstructured<'_>) -> Result<Vec<Step>> {
    let count = u.int_in_range(1..=6)?;
    (0..count)
        .map(|_| {
            Ok(match u.int_in_range(0..=4)? {
                0 => Step::Sync(Scope::Block),
                1 => Step::Sync(Scope::Warp),
                n => Step::Access {
                    write: n == 2,
                    scale: *u.choose(&[1, 1, 1, 0, 2, 3, 31])?,
                    offset: *u.choose(&[0, 0, 0, 1, 32, 63])?,
                },
            })
        })
        .collect()
}

fn build(steps: &[Step]) -> Kernel {
    vector_kernel(DType::F32, DType::F32, 1, THREADS as u32, |b, x, y, _| {
        let t = tid(b);
        let shared = b.shared("s", DType::F32, THREADS, 16);
        let v = b.load("v", x, t);
        b.store(shared, t, v);
        b.sync(Scope::Block);
        for step in steps {
            match *step {
                Step::Sync(scope) => b.sync(scope),
                Step::Access { write, scale, offset } => {
                    let (scale, offset, all) = (b.int(scale), b.int(offset), b.int(THREADS));
                    let scaled = b.exprs().mul(t, scale);
                    let shifted = b.exprs().add(scaled, offset);
                    let at = b.exprs().rem(shifted, all);
                    if write {
                        b.store(shared, at, v);
                    } else {
                        b.load("w", shared, at);
                    }
                }
            }
        }
        b.store(y, t, v);
    })
}

/// Two threads access one element, one of them writes, and no barrier of both
/// lies between.
fn has_race(steps: &[Step]) -> bool {
    let element = |t: i64, scale: i64, offset: i64| (t * scale + offset) % THREADS;
    for (first, one) in steps.iter().enumerate() {
        for (second, other) in steps.iter().enumerate().skip(first) {
            let (Step::Access { write: w1, scale: s1, offset: o1 }, Step::Access { write: w2, scale: s2, offset: o2 }) =
                (*one, *other)
            else {
                continue;
            };
            let between = &steps[first..second];
            let has = |scope| between.iter().any(|step| matches!(step, Step::Sync(s) if *s == scope));
            if !(w1 || w2) || has(Scope::Block) {
                continue;
            }
            let warp_ordered = has(Scope::Warp);
            for t1 in 0..THREADS {
                for t2 in (0..THREADS).filter(|&t2| t2 != t1) {
                    let ordered = warp_ordered && t1 / 32 == t2 / 32;
                    if !ordered && element(t1, s1, o1) == element(t2, s2, o2) {
                        return true;
                    }
                }
            }
        }
    }
    false
}

#[test]
fn races_are_found_exactly_where_they_are() {
    let bytes = f32_bytes(&[1.0; THREADS as usize]);
    let (mut clean, mut racy) = (0, 0);
    crate::property::property(|u| {
        let steps = steps(u)?;
        let expected = has_race(&steps);
        let prepared = Prepared::new(build(&steps), DType::F32, THREADS as usize, bytes.clone());
        for options in schedules().into_iter().step_by(3) {
            match prepared.run(&options) {
                Ok(_) => assert!(!expected, "a race is missed under {options:?}: {steps:?}"),
                Err(error) => assert!(expected && error.code == code::RACE, "{error} under {options:?}: {steps:?}"),
            }
        }
        *(if expected { &mut racy } else { &mut clean }) += 1;
        Ok(())
    })
    .cases(3000);
    assert!(clean > 10 && racy > 10, "{clean} clean and {racy} racy kernels");
}
