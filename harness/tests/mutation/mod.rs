//! The judges judge: kernels of cases are changed in every barrier, wait, predicate and index, and each change of a
//! place is found out by a checker or the simulator, or it is proven that nobody can tell the mutant from the kernel.
//!
//! A mutant is judged in the launch of its case and in launches of smaller and larger tensors, so that boundaries are
//! met. That all runs gave equal results is no proof, since other inputs and orders of threads may tell: a proof is about
//! all of them, in each launch. Of each change of a place mutants are judged until one is found out. Places that no launch reaches are counted
//! apart: there is nothing to find out, and nothing is proven.

#![allow(clippy::print_stderr, reason = "numbers are the result")]

mod judge;
mod launches;
mod mutate;

use crate::draws;
use crate::order::{corpus, on_each};
use engine::kernel::{Kernel, Scope, StmtKind};
use harness::corpus::CaseKernel;
use judge::{Subject, Verdict};
use mutate::{Change, Mutant, Site, has_swizzle, mutants};
use std::collections::{BTreeMap, BTreeSet};

/// Threads of a launch that is judged, at most.
const MAX_THREADS: u64 = 2048;
/// Statements of such a kernel, at most.
const MAX_STATEMENTS: usize = 160;

/// Changes of places that no checker proves to be none, and why they are.
struct ProvenByHand {
    /// What the names of cases begin with: of all sizes and types of a test alike.
    tests: &'static [&'static str],
    change: Change,
    places: &'static [&'static str],
    why: &'static str,
}

const PROVEN_BY_HAND: [ProvenByHand; 6] = [
    ProvenByHand {
        tests: &["ScheduleTest.SoftmaxOfAll/", "SDPATest.Forward/"],
        change: Change::Term,
        places: &[
            "if blockIdx.x * 4 + i.v10 < x_n0 { .. }",
            "if blockIdx.x * 8 + threadIdx.y < elements.p4 && threadIdx.x * 2 + v.v24 < t0_n3 { .. }",
        ],
        why: "exp(-inf - m) is 0 unless m is NaN or -inf. m is the largest of all elements: then each exp(x - m) is NaN, \
              and every block has a row inside",
    },
    ProvenByHand {
        tests: &["NormalizationTest.ThunderRmsNormBackward/"],
        change: Change::Term,
        places: &[
            "if blockIdx.x * 32 + threadIdx.y < t0_n0 && threadIdx.x < t0_n1 { .. }",
            "if blockIdx.x * 8 + threadIdx.y < t0_n0 && threadIdx.x * 4 < t0_n1 { .. }",
        ],
        why: "-(0 * 0) * 0 * t15 is a zero unless t15 is NaN or inf. It is 1 / t9^2 = rsqrt(t6)^2, with t6 at least 1e-5 \
              or NaN: never inf, and where it is NaN so is each product of the row's own elements",
    },
    ProvenByHand {
        tests: &[
            "CodegenReductionTest.ColumnsRagged",
            "ReductionSchedulerTest.OuterKinds/",
            "ReductionSchedulerTest.Axes3d/",
        ],
        change: Change::Index,
        places: &[
            "store T0.b3[1] = -inff32",
            "store T0.b3[2] = -inff32",
            "store T0.b3[1] = inff32",
            "store T0.b3[2] = inff32",
        ],
        why: "of a maximum in the last block: before it is set anew it is the block's own maximum, which is among those \
              of all blocks that follow",
    },
    ProvenByHand {
        tests: &["SegmentationTest.RandomNumbersOfBothAxes/"],
        change: Change::Term,
        places: &["if threadIdx.y < t0_n0 && blockIdx.x * 32 + threadIdx.x < t0_n1 { .. }"],
        why: "rows outside are filled with 0, which times a number of [0, 1) is 0, and a sum that begins with 0 stays \
              what it is",
    },
    ProvenByHand {
        tests: &["NormSegmentationTest.BiasGeluBackward/"],
        change: Change::Term,
        places: &["if threadIdx.y < g_n0 && blockIdx.x * 32 + threadIdx.x < g_n1 { .. }"],
        why: "columns outside are not stored. Rows outside add the slope at the column's bias times 0: a zero unless the \
              bias is NaN or inf, and then the slope of each row inside is NaN",
    },
    ProvenByHand {
        tests: &["ReductionSchedulerTest.StridedBroadcast/", "ReductionSchedulerTest.StridedInput/"],
        change: Change::Term,
        places: &[
            "if blockIdx.y * 32 + (u.v7 * 16 + threadIdx.y) < x_n0 && (blockIdx.x * 16 + threadIdx.x) * 4 + 3 < x_n1 { .. }",
            "if blockIdx.y * 32 + (u.v7 * 16 + threadIdx.y) < x_n0 && (blockIdx.x * 16 + threadIdx.x) * 4 + v.v13 < x_n1 \
             { .. }",
            "if blockIdx.x * 32 + threadIdx.x < x_n0 && blockIdx.y * 64 + (u.v0 * 16 + threadIdx.y) < x_n1 { .. }",
        ],
        why: "of columns outside, which are filled or repeat those inside: their sums are not stored",
    },
];

/// What threads of a kernel do together, as far as it needs other mutants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Alone,
    Blocks,
    Tiles,
    Copies,
    Grid,
}

/// The kind and the number of statements.
fn kind(kernel: &Kernel) -> (Kind, usize) {
    fn walk(block: &engine::kernel::Block, kind: &mut Kind, count: &mut usize) {
        for stmt in block {
            *count += 1;
            *kind = (*kind).max(match &stmt.kind {
                StmtKind::Sync(Scope::Block) => Kind::Blocks,
                StmtKind::CopyAsync { .. } => Kind::Copies,
                StmtKind::Fence(_) | StmtKind::Sync(Scope::Grid) => Kind::Grid,
                StmtKind::For { body, .. } => {
                    walk(body, kind, count);
                    Kind::Alone
                }
                StmtKind::If { then, otherwise, .. } => {
                    walk(then, kind, count);
                    walk(otherwise, kind, count);
                    Kind::Alone
                }
                _ => Kind::Alone,
            });
        }
    }
    let (mut found, mut count) = (Kind::Alone, 0);
    walk(&kernel.body, &mut found, &mut count);
    if found == Kind::Blocks && has_swizzle(kernel) {
        found = Kind::Tiles;
    }
    (found, count)
}

/// That many kernels, of each kind as many as of the others where there are so many. Which these are goes by the sums
/// of their cases' names, so that a new case seldom puts another into the place of an old one.
fn sample(kernels: &[CaseKernel], count: usize) -> Vec<&CaseKernel> {
    let mut kinds: BTreeMap<Kind, Vec<&CaseKernel>> = BTreeMap::new();
    for found in kernels {
        let threads = found.launch.blocks() * u64::from(found.launch.threads());
        let (kind, statements) = kind(found.plan.kernel());
        if !found.launch.is_empty() && threads <= MAX_THREADS && statements <= MAX_STATEMENTS {
            kinds.entry(kind).or_default().push(found);
        }
    }
    let (mut all, mut left) = (Vec::new(), kinds.len());
    let mut kinds: Vec<Vec<&CaseKernel>> = kinds.into_values().collect();
    kinds.sort_by_key(Vec::len);
    for mut own in kinds {
        let wanted = ((count - all.len()) / left).min(own.len());
        own.sort_by_key(|found| crc32fast::hash(found.id.as_bytes()));
        all.extend(own.into_iter().take(wanted));
        left -= 1;
    }
    all
}

/// Judges every place of a sample of the kernels of cases.
fn check_mutants(count: usize) {
    let (_, kernels) = corpus();
    let sample = sample(kernels, count);
    let judged = on_each(&sample, |found| {
        let kernel = found.plan.kernel();
        let subject = Subject::new(&found.id, kernel, launches::launches(kernel, &found.launch))
            .unwrap_or_else(|error| panic!("{}: {error}", found.id));
        let all = if subject.launches() > 0 { mutants(kernel) } else { Vec::new() };
        (subject.name, subject.launches(), judge(&subject, &all))
    });
    let mut totals = Totals::default();
    for (name, launches, judged) in &judged {
        // That kernels are in order is asked of all of them elsewhere.
        if *launches == 0 {
            eprintln!("{name} is left out: not proven in order, or not run");
            continue;
        }
        totals.kernels += 1;
        totals.add(name, *launches, judged);
    }
    eprintln!("{} kernels\n{}", totals.kernels, totals.table());
    let all = totals.sites.values().sum::<usize>();
    let of =
        |wanted: Verdict| totals.sites.iter().filter(|((_, own), _)| *own == wanted).map(|(_, n)| n).sum::<usize>();
    let (open, unreached) = (of(Verdict::Survives), of(Verdict::Unreached));
    let mut unknown = Vec::new();
    for own in &totals.survivors {
        match own.proof_by_hand() {
            Some(why) => eprintln!("{}: {:?} at `{}`: {why}", own.name, own.change, own.place),
            None => unknown.push(own),
        }
    }
    eprintln!("{open} left");
    assert!(unknown.is_empty(), "neither found out nor proven: {unknown:#?}");
    // Tests of vectors that are repeated for their single elements, and what is left of them where sizes are multiples.
    let (proven, places) = (totals.proven_places, totals.places);
    assert!(proven * 20 <= places, "at {proven} of {places} places nothing can be changed that anybody sees");
    assert!(unreached * 20 <= all, "{unreached} of {all} changes are not reached in any launch");
    for change in [Change::Barrier, Change::Fence, Change::Term, Change::Narrowed, Change::Index, Change::Swizzle] {
        assert!(totals.mutants.keys().any(|(own, _)| *own == change), "no kernel has a {change:?} to change");
    }
}

/// Judges mutants, of each change of a place until one is found out.
fn judge(subject: &Subject<'_>, mutants: &[Mutant]) -> Vec<Judged> {
    let (mut judged, mut done) = (Vec::new(), BTreeSet::new());
    for mutant in mutants {
        let change = (mutant.site, mutant.change);
        if !done.contains(&change) {
            let verdict = subject.judge(mutant);
            if verdict.is_caught() {
                done.insert(change);
            }
            judged.push(Judged::new(mutant, verdict));
        }
    }
    judged
}

/// A mutant without its kernel.
struct Judged {
    change: Change,
    site: Site,
    place: String,
    verdict: Verdict,
}

impl Judged {
    fn new(mutant: &Mutant, verdict: Verdict) -> Self {
        Self { change: mutant.change, site: mutant.site, place: mutant.place.clone(), verdict }
    }
}

/// A change that nobody found out, and no checker proved to be none.
#[derive(Debug)]
struct Survivor {
    name: String,
    change: Change,
    place: String,
}

impl Survivor {
    /// Why nobody could find it out.
    fn proof_by_hand(&self) -> Option<&'static str> {
        let is_of = |own: &&ProvenByHand| {
            let of_test = own.tests.iter().any(|test| self.name.starts_with(test));
            of_test && self.change == own.change && own.places.contains(&self.place.as_str())
        };
        PROVEN_BY_HAND.iter().find(is_of).map(|own| own.why)
    }
}

/// What became of mutants, and of the changes of places: one is found out if one of its mutants is.
#[derive(Default)]
struct Totals {
    mutants: BTreeMap<(Change, Verdict), usize>,
    sites: BTreeMap<(Change, Verdict), usize>,
    survivors: Vec<Survivor>,
    kernels: usize,
    /// Barriers, terms, indices and the like, whatever was done to them; and those of which each change is proven.
    places: usize,
    proven_places: usize,
}

impl Totals {
    fn add(&mut self, name: &str, launches: usize, judged: &[Judged]) {
        let mut sites: BTreeMap<(Site, Change), Vec<&Judged>> = BTreeMap::new();
        for own in judged {
            *self.mutants.entry((own.change, own.verdict)).or_insert(0) += 1;
            sites.entry((own.site, own.change)).or_default().push(own);
        }
        let mut places: BTreeMap<Site, bool> = BTreeMap::new();
        for ((site, change), mutants) in sites {
            let found = mutants.iter().map(|own| own.verdict).find(|verdict| verdict.is_caught());
            let left = mutants.iter().map(|own| own.verdict).max();
            let Some(verdict) = found.or(left) else { continue };
            *places.entry(site).or_insert(true) &= verdict.is_proof();
            *self.sites.entry((change, verdict)).or_insert(0) += 1;
            let place = mutants[0].place.clone();
            if verdict == Verdict::Survives {
                self.survivors.push(Survivor { name: name.into(), change, place });
            } else if verdict.is_proof() {
                eprintln!("{name} in {launches} launches: {change:?} at `{place}`: {verdict:?}");
            }
        }
        self.places += places.len();
        self.proven_places += places.values().filter(|proven| **proven).count();
    }

    fn proven(&self) -> usize {
        self.sites.iter().filter(|((_, verdict), _)| verdict.is_proof()).map(|(_, n)| n).sum()
    }

    fn table(&self) -> String {
        let mut text = String::from("mutants changes\n");
        let keys: BTreeSet<_> = self.mutants.keys().chain(self.sites.keys()).collect();
        for key in keys {
            let of = |map: &BTreeMap<_, usize>| map.get(key).copied().unwrap_or(0);
            text.push_str(&format!("{:7} {:7}  {:?}: {:?}\n", of(&self.mutants), of(&self.sites), key.0, key.1));
        }
        let sum = |map: &BTreeMap<_, usize>| map.values().sum::<usize>();
        text + &format!(
            "{:7} {:7}  in all, {} of them proven; {} places, {} of them proven\n",
            sum(&self.mutants),
            sum(&self.sites),
            self.proven(),
            self.places,
            self.proven_places
        )
    }
}

#[test]
fn mutants_of_kernels_of_cases_are_found_out() {
    check_mutants(if draws::is_all() { 18 } else { 10 });
}

#[test]
#[ignore = "minutes: every place of more than two hundred kernels"]
fn mutants_of_two_hundred_kernels_are_found_out() {
    check_mutants(240);
}
