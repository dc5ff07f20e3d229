//! What the rule of a hunt is worth, by simulation: how often cases of known
//! rates are classified right, how many repeats that takes, and what a test with
//! a fixed number of repeats and the same errors would take.

use super::hunter::{Arm, End, Hunter, NextRepeat, Options, RepeatEnd};
use super::rule::{Finding, Rule};
use crate::rng::Rng;

fn options(seed: u64, rule: Rule) -> Options {
    Options { rule, seed, repeat: None, until_fail: false, arms: vec![Arm::Warm], devices: vec!["sim".into()] }
}

/// Hunts through cases of these rates and durations until all is decided.
/// `spent` gives the share of the budget that is gone after so many repeats.
fn hunt(rates: &[f64], options: Options, durations: &[u64], spent: impl Fn(u64, u64) -> f64) -> (Hunter, u64) {
    let mut rng = Rng::new(options.seed ^ 0xabcd);
    let mut hunter = Hunter::new(rates.len(), options);
    let (mut repeats, mut ns) = (0u64, 0u64);
    while let NextRepeat::Pick(pick) = hunter.next(spent(repeats, ns)) {
        let ended = if rng.unit() < rates[pick.case] { RepeatEnd::Failed } else { RepeatEnd::Passed };
        let dur_ns = durations.get(pick.case).copied().unwrap_or(1_000_000);
        hunter.record((pick.case, pick.arm), 0, ended, "fail.numerics", dur_ns);
        repeats += 1;
        ns += dur_ns;
        assert!(repeats < 10_000_000, "a hunt must end");
    }
    (hunter, repeats)
}

/// Of `trials` hunts for one case of that rate: right ones, missed ones, those
/// whose interval holds the rate, mean repeats to the decision and in all.
struct Score {
    right: u32,
    covered: u32,
    to_decision: f64,
    in_all: f64,
}

fn score(rule: &Rule, rate: f64, wanted: Finding, trials: u32) -> Score {
    let mut score = Score { right: 0, covered: 0, to_decision: 0.0, in_all: 0.0 };
    for trial in 0..trials {
        let (hunter, repeats) = hunt(&[rate], options(u64::from(trial) * 7919 + 1, *rule), &[], |_, _| 0.0);
        let entry = &hunter.entries()[0];
        score.right += u32::from(entry.finding == Some(wanted));
        let interval = rule.interval(entry.tally());
        score.covered += u32::from(interval.low <= rate && rate <= interval.high);
        score.to_decision += entry.decided_after as f64 / f64::from(trials);
        score.in_all += repeats as f64 / f64::from(trials);
    }
    score
}

/// The table of the README; run with `--nocapture` to see it.
#[test]
fn flakes_of_known_rates_are_found_and_clean_cases_are_not_accused() {
    let rule = Rule::default();
    let fixed = rule.fixed.runs;
    let mut table = format!(
        "fixed test with the same errors: {fixed} repeats\nrate     trials  right  covered  repeats to decision  of fixed  in all\n"
    );
    let rows = [
        (0.2, Finding::Flaky, 100),
        (0.05, Finding::Flaky, 100),
        (0.02, Finding::Flaky, 100),
        (0.01, Finding::Flaky, 100),
        (0.0, Finding::Clean, 1000),
        (0.0001, Finding::Clean, 1000),
        (0.001, Finding::Clean, 1000),
        (1.0, Finding::Broken, 100),
    ];
    for (rate, wanted, trials) in rows {
        let got = score(&rule, rate, wanted, trials);
        let share = 100.0 * got.to_decision / fixed as f64;
        table.push_str(&format!(
            "{:>6} %  {trials:>6}  {:>5}  {:>7}  {:>19.0}  {share:>6.0} %  {:>6.0}\n",
            100.0 * rate,
            got.right,
            got.covered,
            got.to_decision,
            got.in_all
        ));
        match wanted {
            Finding::Clean => assert_eq!(got.right, trials, "\n{table}"),
            _ => assert!(got.right * 100 >= 95 * trials, "\n{table}"),
        }
        // The exact interval of counts that a sequential test stopped still covers.
        assert!(got.covered * 100 >= 90 * trials || rate == 1.0, "\n{table}");
        assert!(rate == 0.001 || share < 60.0, "\n{table}");
    }
    println!("{table}");
}

/// Among clean cases, a round goes to suspects more often; all are decided.
#[test]
fn repeats_go_where_they_decide_most() {
    let rule = Rule::default();
    let mut rates = vec![0.0; 60];
    (rates[7], rates[20], rates[33]) = (0.05, 0.2, 1.0);
    let (hunter, repeats) = hunt(&rates, options(3, rule), &[], |_, _| 0.0);
    let findings: Vec<_> = hunter.entries().iter().map(|entry| entry.finding).collect();
    for (case, rate) in rates.iter().enumerate() {
        let wanted = match *rate {
            1.0 => Finding::Broken,
            0.0 => Finding::Clean,
            _ => Finding::Flaky,
        };
        assert_eq!(findings[case], Some(wanted), "case {case}");
    }
    assert!(repeats < 61 * rule.fixed.runs, "{repeats}");
    // With a budget for a tenth of that, suspects are decided and the others are not yet.
    let budget = (repeats / 10) as f64;
    let (hunter, _) = hunt(&rates, options(3, rule), &[], |repeats, _| repeats as f64 / budget);
    for case in [20, 33] {
        assert!(hunter.entries()[case].finding.is_some(), "case {case}: {:?}", hunter.entries()[case]);
    }
    assert_eq!(hunter.entries()[0].finding, None);
    let suspect = hunter.entries()[20].tally().runs();
    assert!(suspect > hunter.entries()[0].tally().runs(), "{suspect}");
}

/// A case that takes a hundred times longer than the others does not eat the budget.
#[test]
fn slow_cases_wait() {
    let durations: Vec<u64> = (0..50).map(|case| if case == 0 { 100_000_000 } else { 1_000_000 }).collect();
    let budget = 1_500_000.0 * 433.0 * 50.0;
    let (hunter, _) = hunt(&[0.0; 50], options(1, Rule::default()), &durations, |_, ns| ns as f64 / budget);
    let clean = hunter.entries().iter().filter(|entry| entry.finding == Some(Finding::Clean)).count();
    assert_eq!(clean, 49);
}

/// In a hunt that is far too short for its cases, what has failed is decided.
#[test]
fn suspects_do_not_wait_for_the_next_round() {
    let mut rates = vec![0.0; 1000];
    rates[400] = 0.3;
    let (hunter, _) = hunt(&rates, options(8, Rule::default()), &[], |repeats, _| repeats as f64 / 6000.0);
    let entry = &hunter.entries()[400];
    assert_eq!(entry.finding, Some(Finding::Flaky), "{entry:?}");
    assert!(hunter.entries().iter().all(|entry| entry.tally().runs() >= 4));
}

#[test]
fn counts_of_the_user() {
    let exactly = Options { repeat: Some(37), ..options(1, Rule::default()) };
    let (hunter, repeats) = hunt(&[0.0, 0.5, 1.0], exactly, &[], |_, _| 0.0);
    assert_eq!(repeats, 3 * 37);
    assert!(hunter.entries().iter().all(|entry| entry.tally().runs() == 37));
    let first = Options { until_fail: true, ..options(1, Rule::default()) };
    let (hunter, _) = hunt(&[0.0, 0.1], first, &[], |_, _| 0.0);
    assert_eq!(hunter.entries()[1].tally().failures, 1);
}

/// Failed cases are run alone, then with and without load; each arm starts when
/// the one before has ended, and a case that never failed is no subject of any.
#[test]
fn arms_follow_each_other() {
    let arms = vec![Arm::Warm, Arm::Alone, Arm::Quiet, Arm::Loaded];
    let mut hunter = Hunter::new(4, Options { arms, ..options(9, Rule::default()) });
    let mut rng = Rng::new(4);
    let mut seen = vec![];
    let mut held = vec![];
    loop {
        match hunter.next(0.0) {
            NextRepeat::Over => break,
            NextRepeat::Pick(pick) => {
                if seen.last() != Some(&pick.arm) {
                    assert!(held.is_empty(), "{pick:?} while {held:?} is under way");
                    seen.push(pick.arm);
                }
                held.push(pick);
                if held.len() < 3 {
                    continue;
                }
            }
            NextRepeat::Wait => assert!(!held.is_empty()),
        }
        // Case 2 fails warm only.
        let pick = held.remove(rng.below(held.len()));
        let failed = pick.case == 2 && pick.arm != Arm::Alone && rng.unit() < 0.3;
        let ended = if failed { RepeatEnd::Failed } else { RepeatEnd::Passed };
        hunter.record((pick.case, pick.arm), 0, ended, "crash.sigsegv", 1000);
    }
    assert_eq!(seen, [Arm::Warm, Arm::Alone, Arm::Quiet, Arm::Loaded]);
    let conditions = &hunter.entries()[2].conditions;
    assert!(conditions.alone.passes >= 10 && conditions.quiet.runs() >= 10 && conditions.loaded.runs() >= 10);
    assert_eq!(hunter.entries()[0].conditions.alone.runs(), 0);
    assert_eq!(super::class::classify(conditions).0, super::class::FlakeClass::State);
}

/// A budget that ends within the second round still leaves time for every arm,
/// and what the arms leave goes to the cases that are open.
#[test]
fn most_of_a_budget_is_not_all_of_it() {
    let mut rates = vec![0.0; 1000];
    (rates[300], rates[700]) = (0.7, 1.0);
    let arms = vec![Arm::Warm, Arm::Alone, Arm::Quiet, Arm::Loaded];
    let options = Options { arms, ..options(7, Rule::default()) };
    let (hunter, repeats) = hunt(&rates, options, &[], |repeats, _| repeats as f64 / 1900.0);
    let entry = &hunter.entries()[300];
    let super::class::Conditions { alone, quiet, loaded, .. } = &entry.conditions;
    assert_eq!(entry.finding, Some(Finding::Flaky));
    for (arm, tally) in [("alone", alone), ("quiet", quiet), ("loaded", loaded)] {
        assert!(tally.runs() >= 10, "{arm}: {tally:?}");
    }
    assert_eq!(repeats, 1900);
    let warm: u64 = hunter.entries().iter().map(|entry| entry.tally().runs()).sum();
    assert!(warm > 1400, "{warm}");
}

/// A plain count has no later arm to save for, and its finding is that of all runs.
#[test]
fn plain_counts_use_all_of_the_budget() {
    let exactly = Options { repeat: Some(1_000_000), ..options(1, Rule::default()) };
    let (late, repeats) = hunt(&[0.0, 0.5, 1.0], exactly.clone(), &[], |repeats, _| repeats as f64 / 3000.0);
    assert_eq!((repeats, late.end()), (3000, End::Late));
    let mut hunter = Hunter::new(1, exactly);
    assert_eq!(hunter.end(), End::Cut, "nobody asks it any more");
    let mut told = Vec::new();
    for run in 0..900 {
        let NextRepeat::Pick(pick) = hunter.next(0.0) else { panic!("it has not had its count") };
        let ended = if run > 500 && run % 8 == 0 { RepeatEnd::Failed } else { RepeatEnd::Passed };
        told.extend(hunter.record((pick.case, pick.arm), 0, ended, "fail.numerics", 1));
    }
    assert_eq!(told, [Finding::Clean, Finding::Flaky]);
    assert_eq!(hunter.entries()[0].finding, Some(Finding::Flaky));
}

/// What the machine spoils is not counted, and does not go on for ever.
#[test]
fn a_case_that_cannot_be_run_is_given_up() {
    let mut hunter = Hunter::new(2, options(2, Rule::default()));
    let mut spoiled = 0;
    while let NextRepeat::Pick(pick) = hunter.next(0.0) {
        let ended = if pick.case == 0 { RepeatEnd::Spoiled } else { RepeatEnd::Skipped };
        spoiled += u32::from(pick.case == 0);
        hunter.record((pick.case, pick.arm), 0, ended, "infra.gpu_lost", 1);
    }
    assert!(spoiled < 10, "{spoiled}");
    // That is no end of the budget.
    assert_eq!((hunter.end(), hunter.entries()[0].given_up()), (End::Own, Some("infra.gpu_lost")));
    assert_eq!(hunter.entries()[0].finding, None);
    assert!(hunter.entries()[1].skipped);
}
