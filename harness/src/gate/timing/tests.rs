//! Findings about single cases; how often the gate is wrong, and what it sees, over simulated histories.

use super::*;
use crate::rng::Rng;

fn slower(found: &TimingGate) -> Vec<&str> {
    found.rows.iter().filter(|row| row.finding == TimeFinding::Slower).map(|row| row.id.as_str()).collect()
}

/// Whether it is slower than it may be, one or all.
fn is_regression(found: &TimingGate) -> bool {
    !slower(found).is_empty() || found.together.is_some_and(|all| all.is_slower)
}

/// Cases whose runs vary by a share of their own, and runs that vary as a whole.
struct World {
    rng: Rng,
    noise: Vec<f64>,
    /// How much a run as a whole varies.
    of_runs: f64,
}

impl World {
    fn new(seed: u64, cases: usize, noise: f64, of_runs: f64) -> Self {
        // Some cases vary three times as much as others.
        let noise = (0..cases).map(|i| noise * [0.6, 1.0, 1.8][i % 3]).collect();
        Self { rng: Rng::new(seed), noise, of_runs }
    }

    /// What all cases take in one run, as a share of what they should.
    fn run(&mut self) -> Vec<f64> {
        let all = self.of_runs * self.rng.normal();
        (0..self.noise.len()).map(|i| (all + self.noise[i] * self.rng.normal()).exp()).collect()
    }

    fn history(&mut self, runs: usize) -> TimeHistory {
        let mut history = TimeHistory::new();
        for run in 0..runs {
            for (i, share) in self.run().into_iter().enumerate() {
                let past = PastTime {
                    run: format!("r{run:03}"),
                    ns: 1000.0 * (i + 1) as f64 * share,
                    code: "old".into(),
                    epoch: 0,
                    is_reference: true,
                };
                history.entry(id(i)).or_default().push(past);
            }
        }
        history
    }

    /// What they take now; `slower` says by which factor.
    fn now(&mut self, code: &str, slower: impl Fn(usize) -> f64) -> BTreeMap<String, Timed> {
        let shares = self.run().into_iter().enumerate();
        let ns = |i: usize, share: f64| 1000.0 * (i + 1) as f64 * share * slower(i);
        shares.map(|(i, share)| (id(i), Timed { ns: ns(i, share), code: code.into() })).collect()
    }
}

fn id(i: usize) -> String {
    format!("A.c{i:03}")
}

#[track_caller]
fn check_found(found: &TimingGate, i: usize, wanted: TimeFinding) {
    let row = found.rows.iter().find(|row| row.id == id(i)).expect("a row");
    assert_eq!(row.finding, wanted, "{row:?}");
}

#[test]
fn one_case_is_slower_faster_or_as_it_was() {
    let mut world = World::new(1, 30, 0.003, 0.001);
    let history = world.history(10);
    let factor = |i: usize| [1.08, 0.9, 1.0][i.min(2)];
    let found = TimingGate::of(&history, &world.now("new", factor));
    check_found(&found, 0, TimeFinding::Slower);
    check_found(&found, 1, TimeFinding::Faster);
    check_found(&found, 5, TimeFinding::Same);
    assert_eq!((slower(&found), is_regression(&found)), (vec!["A.c000"], true));
    assert!((found.rows[0].ratio() - 1.08).abs() < 0.01, "{:?}", found.rows[0]);
    // With the same code it is the machine's doing.
    let found = TimingGate::of(&history, &world.now("old", factor));
    check_found(&found, 0, TimeFinding::Machine);
    assert!(!is_regression(&found) && found.suspects().is_empty());
    // Nobody knows that what was measured before digests were recorded had the same code.
    let before = |code: &mut Code| *code = Code::Unknown("kernel".into());
    let (mut history, mut now) = (history, world.now("old", factor));
    history.values_mut().flatten().for_each(|time| before(&mut time.code));
    now.values_mut().for_each(|time| before(&mut time.code));
    let found = TimingGate::of(&history, &now);
    check_found(&found, 0, TimeFinding::Slower);
    assert!(found.rows.iter().all(|row| !row.same_code && row.noise.is_some()) && found.to_look_at().len() == 30);
}

#[test]
fn what_noise_hides_is_unknown() {
    let mut world = World::new(2, 12, 0.1, 0.0);
    let history = world.history(5);
    let found = TimingGate::of(&history, &world.now("new", |_| 1.0));
    assert!(found.rows.iter().all(|row| row.finding == TimeFinding::Unknown), "{found:?}");
    // Nor does one run tell what noise is.
    let mut world = World::new(3, 2, 0.001, 0.0);
    let history = world.history(1);
    let found = TimingGate::of(&history, &world.now("new", |_| 2.0));
    check_found(&found, 0, TimeFinding::Unknown);
    assert_eq!((found.rows[0].noise, found.together), (None, None));
    assert_eq!(TimingGate::of(&TimeHistory::new(), &world.now("new", |_| 1.0)).new.len(), 2);
}

/// All cases are slower by less than any of them could be told for: nothing is divided out.
#[test]
fn all_slower_together_is_a_regression() {
    for code in ["new", "old"] {
        let mut world = World::new(4, 60, 0.02, 0.002);
        let history = world.history(12);
        let found = TimingGate::of(&history, &world.now(code, |_| 1.03));
        let all = found.together.expect("enough runs");
        assert!(all.is_slower && is_regression(&found), "{all:?}");
        assert!((all.ratio - 1.03).abs() < 0.01 && all.cases == 60, "{all:?}");
        assert_eq!((all.same_code, found.suspects().len()), (if code == "old" { 60 } else { 0 }, 60));
    }
}

/// What was found slower is no reference until it is accepted.
#[test]
fn a_level_that_is_too_high_is_no_reference() {
    let mut world = World::new(5, 30, 0.003, 0.001);
    let mut history = world.history(10);
    let slow = |i: usize| if i == 0 { 1.08 } else { 1.0 };
    for (case, timed) in world.now("new", slow) {
        let is_reference = case != id(0);
        let past = PastTime { run: "r900".into(), ns: timed.ns, code: timed.code, epoch: 0, is_reference };
        history.entry(case).or_default().push(past);
    }
    check_found(&TimingGate::of(&history, &world.now("new", slow)), 0, TimeFinding::Slower);
    let past = history.get_mut(&id(0)).expect("a case");
    let last = past.len() - 1;
    past.iter_mut().enumerate().for_each(|(at, time)| time.is_reference = at == last);
    // With the code that was accepted.
    check_found(&TimingGate::of(&history, &world.now("new", slow)), 0, TimeFinding::Same);
}

/// How often a night without a change is red, and how often a planted slowdown is found, over many simulated histories.
/// `-- --nocapture` prints the table that harness/README.md has.
#[test]
fn alarms_are_rare_and_slowdowns_are_found() {
    const CASES: usize = 56;
    const NIGHTS: u64 = 150;
    println!("| noise | false alarms | 3 % found, suspected | 5 % | 10 % | all 2 % |");
    for (at, noise) in [0.003, 0.01, 0.02].into_iter().enumerate() {
        let (mut alarms, mut found, mut suspected, mut all) = (0, [0; 3], [0; 3], 0);
        for night in 0..NIGHTS {
            let mut world = World::new(1000 * at as u64 + night, CASES, noise, noise / 4.0);
            let history = world.history(10);
            alarms += usize::from(is_regression(&TimingGate::of(&history, &world.now("new", |_| 1.0))));
            for (j, factor) in [1.03, 1.05, 1.10].into_iter().enumerate() {
                // The case of medium noise.
                let gate = TimingGate::of(&history, &world.now("new", |i| if i == 1 { factor } else { 1.0 }));
                found[j] += usize::from(slower(&gate).contains(&"A.c001"));
                suspected[j] += usize::from(gate.suspects().contains(&id(1)));
            }
            all += usize::from(
                TimingGate::of(&history, &world.now("new", |_| 1.02)).together.is_some_and(|all| all.is_slower),
            );
        }
        let percent = |count: usize| 100 * count as u64 / NIGHTS;
        let power: Vec<String> =
            (0..3).map(|j| format!("{} %, {} %", percent(found[j]), percent(suspected[j]))).collect();
        println!("| {} % | {alarms} of {NIGHTS} | {} | {} % |", noise * 100.0, power.join(" | "), percent(all));
        // 1 % is allowed of single cases and of all together: three standard deviations above.
        assert!(alarms <= 8, "{alarms} of {NIGHTS} nights without a change were red at {noise}");
        if at == 0 {
            assert!(found[0] as u64 >= NIGHTS * 95 / 100 && all as u64 >= NIGHTS * 95 / 100, "{found:?} {all}");
        }
        if at < 2 {
            assert!(found[2] as u64 >= NIGHTS * 95 / 100, "{found:?}");
        }
    }
}
