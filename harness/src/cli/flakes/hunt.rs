//! `hunt`: repeats the selected cases until each is clean or known to be flaky.

use super::log::HuntLog;
use super::scene::{Scene, budget};
use crate::case::Case;
use crate::cli::Failure;
use crate::cli::args::{Args, Command};
use crate::cli::run::options::RunOptions;
use crate::cli::run::setup::device_words;
use crate::dispatch::{self, Isolation};
use crate::exit;
use crate::flake::class::{ClassComparison, FlakeClass, classify};
use crate::flake::hunt::{Example, Hunt, Hunted};
use crate::flake::hunter::{Arm, CaseProgress, End, Options};
use crate::flake::rule::{Finding, Rule};
use crate::record::{FlakeRow, History};
use crate::report::{held_text, quoted};
use crate::stats::upper_bound;
use crate::units::show_seconds;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Cases after which a warm worker is replaced: what a failure may depend on must
/// stay short enough to be replayed.
const RECYCLE: u64 = 200;

/// How long and how hard is hunted.
struct HuntOptions {
    /// Exactly so many repeats.
    count: Option<u64>,
    until_fail: bool,
    /// The rate that must be found, and in which share of all hunts.
    bound: Option<(f64, f64)>,
    /// Seed of the order.
    order: u64,
    budget: Duration,
}

impl HuntOptions {
    fn of(args: &Args) -> Self {
        let repeat = &args.repeat;
        Self {
            count: repeat.count,
            until_fail: repeat.until_fail,
            bound: repeat.bound,
            order: repeat.shuffle.unwrap_or(repeat.seed),
            budget: budget(&args.time),
        }
    }
}

/// A case with what the hunt found.
struct JudgedCase {
    case: Arc<Case>,
    entry: CaseProgress,
    finding: Finding,
    class: FlakeClass,
    tests: Vec<ClassComparison>,
    example: Option<Example>,
}

/// Why a hunt ended, as it is told and recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HuntEnd {
    Complete,
    FirstFailure,
    Budget,
    Stopped,
    NoDevice,
}

impl HuntEnd {
    fn of(until_fail: bool, scene: &Scene, end: End) -> Self {
        match end {
            End::Own if until_fail => HuntEnd::FirstFailure,
            End::Own => HuntEnd::Complete,
            End::Late => HuntEnd::Budget,
            End::Cut if scene.plan.stop.load(Ordering::Relaxed) != 0 => HuntEnd::Stopped,
            End::Cut => HuntEnd::NoDevice,
        }
    }

    /// The name in the record.
    fn name(self) -> &'static str {
        match self {
            HuntEnd::Complete => "complete",
            HuntEnd::FirstFailure => "first_failure",
            HuntEnd::Budget => "budget",
            HuntEnd::Stopped => "stopped",
            HuntEnd::NoDevice => "no_device",
        }
    }

    /// Why a case is undecided that was not given up.
    fn why(self) -> &'static str {
        match self {
            HuntEnd::Complete => "",
            HuntEnd::FirstFailure => "the first failure ended the hunt",
            HuntEnd::Budget => "the budget was over",
            HuntEnd::Stopped => "the hunt was stopped",
            HuntEnd::NoDevice => "no device was left to run them",
        }
    }
}

pub(in crate::cli) fn hunt(args: &Args) -> Result<u8, Failure> {
    let options = HuntOptions::of(args);
    let mut scene = Scene::selected(RunOptions::of(args), None)?;
    if scene.plan.isolation == Isolation::Worker {
        scene.plan.recycle.get_or_insert(RECYCLE);
    }
    let rule = options.bound.and_then(|(rate, level)| Rule::with_bound(rate, level)).unwrap_or_default();
    let (hunted, end, refused) = go(&options, &mut scene, &rule);
    let end = HuntEnd::of(options.until_fail, &scene, end);
    let (left_out, hunted): (Vec<Hunted>, Vec<Hunted>) =
        hunted.into_iter().partition(|hunted| hunted.entry.skipped && hunted.entry.tally().failures == 0);
    let why = |hunted: Hunted| (hunted.case.id.clone(), hunted.left_out.unwrap_or_default());
    scene.skipped.extend(left_out.into_iter().map(why));
    let found: Vec<JudgedCase> = hunted.into_iter().map(judge).collect();
    let notes = keep(&mut scene, &found, &rule);
    let mut text = report(&scene, &found, &rule, end);
    let held = scene.plan.verified.as_ref().map_or(0, |verified| verified.held());
    if held > 0 {
        text.insert_str(0, &format!("{}\n", held_text(held, "repeat")));
    }
    notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
    let code = exit_code(&found, options.count, options.until_fail);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    found.iter().for_each(|found| *counts.entry(found.finding.name()).or_default() += 1);
    let repeats: u64 = found.iter().map(|found| found.entry.all_runs()).sum();
    Ok(scene.end(
        text,
        json!({ "findings": counts, "repeats": repeats, "held_to_digest": held, "ended": end.name() }),
        code,
        &refused,
    ))
}

/// Hunts. Gives what is known of each case, why it ended, and which slots refused
/// their device.
fn go(hunted: &HuntOptions, scene: &mut Scene, rule: &Rule) -> (Vec<Hunted>, End, Vec<(String, String)>) {
    let (slots, devices) = scene.device_of_slots();
    let options = Options {
        rule: *rule,
        seed: hunted.order,
        repeat: hunted.count,
        until_fail: hunted.until_fail,
        arms: arms(hunted, scene.plan.isolation),
        devices,
    };
    let what = format!(
        "hunting {} cases for up to {}: a failure in {} of runs is found in {:.0} of 100 hunts;",
        scene.cases.len(),
        show_seconds(hunted.budget.as_nanos() as u64),
        crate::flake::rule::percent(rule.sprt.p1),
        100.0 * (1.0 - rule.sprt.beta)
    );
    let progress = scene.progress(scene.cases.len(), &what);
    let standards = scene.standards.clone();
    let (seed, budget) = (scene.options.repeat.seed, hunted.budget);
    let hunt = Hunt::new(scene.cases.clone(), standards, options, slots, seed, Some(budget));
    let plan = scene.plan.clone();
    let mut log = HuntLog::new(&plan, &mut scene.store, progress);
    let (mut decided, mut failing, mut arm) = (0, 0, Arm::Warm);
    dispatch::run(&plan, &hunt, &mut |event| {
        log.event(&event);
        let (news, now) = hunt.news();
        for news in news {
            decided += usize::from(news.first);
            if news.finding != Finding::Clean {
                failing += usize::from(news.first);
                log.progress.say(&format!("{}  {}", scene.cases[news.case].id, rule.words(news.finding, news.tally)));
            }
        }
        if now != arm {
            arm = now;
            log.progress.say(told(arm));
        }
        log.progress.at(decided, &format!("{} repeats, {failing} not clean", log.attempts));
    });
    log.progress.close();
    let refused = std::mem::take(&mut log.refused);
    let (hunted, end) = hunt.close();
    (hunted, end, refused)
}

/// Records what was found, and adds it to the history. Returns what was wrong there.
fn keep(scene: &mut Scene, found: &[JudgedCase], rule: &Rule) -> Vec<String> {
    for found in found {
        scene.store.append("hunt", &record(found, rule));
    }
    let rows = found.iter().map(|found| row(found, rule, scene)).collect();
    let history = History::of(&scene.options.cases.folders.results, &scene.devices.history);
    // Tables are derived from records: where there is no record, there is no row.
    if scene.store.error().is_some() {
        return Vec::new();
    }
    let verified = scene.plan.verified.as_ref().map(|verified| verified.learnt()).unwrap_or_default();
    let learnt = history.learn_flakes(rows).and_then(|mut notes| {
        // A row of another table names its run: what that was is said there.
        notes.extend(history.note_run(scene.store.dir())?);
        match history.learn_verified(&scene.store.id, &verified) {
            Ok(more) => notes.extend(more),
            Err(error) => notes.push(format!("verified.csv: {error}: what passed is compared again next time")),
        }
        Ok(notes)
    });
    learnt.unwrap_or_else(|error| {
        scene.store.fail("history", &error);
        Vec::new()
    })
}

/// Where every repeat is alone anyway, there is nothing warm to compare with.
fn arms(options: &HuntOptions, isolation: Isolation) -> Vec<Arm> {
    match (options.count.is_some() || options.until_fail, isolation) {
        (true, _) => vec![Arm::Warm],
        (_, Isolation::Case) => vec![Arm::Warm, Arm::Quiet, Arm::Loaded],
        _ => vec![Arm::Warm, Arm::Alone, Arm::Quiet, Arm::Loaded],
    }
}

fn told(arm: Arm) -> &'static str {
    match arm {
        Arm::Warm => "all cases, warm",
        Arm::Alone => "those that failed, each alone in a fresh worker",
        Arm::Quiet => "those that failed, among others",
        Arm::Loaded => "those that failed, among others and under load",
        Arm::Over => "the hunt is over",
    }
}

fn judge(Hunted { case, entry, example, .. }: Hunted) -> JudgedCase {
    let finding = entry.finding.unwrap_or(Finding::Undecided);
    let failed = matches!(finding, Finding::Flaky | Finding::Broken);
    let (class, tests) = if failed { classify(&entry.conditions) } else { (FlakeClass::Untested, Vec::new()) };
    JudgedCase { case, entry, finding, class, tests, example }
}

fn record(found: &JudgedCase, rule: &Rule) -> serde_json::Value {
    let JudgedCase { case, entry, finding, class, tests, example } = found;
    let tally = entry.tally();
    let interval = rule.interval(tally);
    let count = |tally: crate::flake::rule::Tally| json!([tally.failures, tally.runs()]);
    let conditions = &entry.conditions;
    let tests: Vec<_> =
        tests.iter().map(|t| json!({ "of": t.class.name(), "p": t.p, "p_corrected": t.corrected })).collect();
    json!({
        "case_id": case.id,
        "finding": finding.name(),
        "class": if tests.is_empty() { None } else { Some(class.name()) },
        "runs": tally.runs(),
        "failures": tally.failures,
        "low": interval.low,
        "high": interval.high,
        "confidence": rule.confidence,
        "decided_after": entry.finding.map(|_| entry.decided_after),
        "fixed_runs": rule.fixed.runs,
        "conditions": {
            "alone": count(conditions.alone),
            "quiet": count(conditions.quiet),
            "loaded": count(conditions.loaded),
            "devices": conditions.devices.iter().map(|(name, tally)| (name.clone(), count(*tally))).collect::<BTreeMap<_, _>>(),
        },
        "tests": tests,
        "outcomes": entry.outcomes,
        "given_up": entry.given_up(),
        "example": example.as_ref().map(|e| json!({ "outcome": e.outcome, "worker_id": e.worker, "position": e.position, "seed": e.seed })),
    })
}

fn row(found: &JudgedCase, rule: &Rule, scene: &Scene) -> FlakeRow {
    let JudgedCase { case, entry, finding, class, tests, .. } = found;
    let tally = entry.tally();
    let interval = rule.interval(tally);
    FlakeRow {
        case_id: case.id.clone(),
        runs: tally.runs(),
        failures: tally.failures,
        rate: tally.rate(),
        low: interval.low,
        high: interval.high,
        finding: finding.name().into(),
        class: if tests.is_empty() { String::new() } else { class.name().into() },
        last_run: scene.store.id.clone(),
        commit: scene.store.commit().into(),
    }
}

/// Findings, what they depend on, and how to see them again.
fn report(scene: &Scene, found: &[JudgedCase], rule: &Rule, end: HuntEnd) -> String {
    let mut text = String::new();
    // Also those below the rate that is looked for: one crash is news.
    let mut shown: Vec<&JudgedCase> = found.iter().filter(|f| f.entry.tally().failures > 0).collect();
    let finding = |f: &JudgedCase, wanted: Finding| f.finding != wanted;
    let rank = |f: &JudgedCase| {
        let order = [Finding::Broken, Finding::Flaky, Finding::Undecided].map(|wanted| finding(f, wanted));
        (order, f.case.id.clone())
    };
    shown.sort_by_key(|found| rank(found));
    for found in &shown {
        let JudgedCase { case, entry, finding, class, tests, example } = found;
        let tally = entry.tally();
        let _ = writeln!(text, "\n{}  {}", case.id, rule.words(*finding, tally));
        let outcomes: Vec<String> = entry.outcomes.iter().map(|(name, n)| format!("{name} {n}")).collect();
        let _ = writeln!(text, "  failures: {}", outcomes.join(", "));
        if *class != FlakeClass::Untested {
            let _ = writeln!(text, "  {}", class.name());
        }
        for test in tests {
            let _ = writeln!(text, "    {}", test.words());
        }
        if let Some(example) = example {
            let _ = writeln!(text, "  {}", example.detail);
            text.push_str(&lines(scene, &quoted(&case.id), example));
        }
    }
    text.push_str(&summary(scene, found, rule, end));
    text
}

/// The commands that show a failure again: alone, and as its worker came to it.
fn lines(scene: &Scene, id: &str, example: &Example) -> String {
    // Of several GPUs only this one is known to show it.
    let slot = example.slot.and_then(|slot| scene.plan.slots.get(slot)).filter(|_| scene.devices.choices.len() > 1);
    let again = &scene.options.again;
    let tail = match slot {
        Some(slot) => {
            let words = device_words(scene.options.devices.nvml.as_deref(), &scene.devices, slot);
            let words: String = words.iter().map(|word| format!(" {}", quoted(word))).collect();
            again.tail(&words, Command::Run, example.seed)
        }
        None => again.tail(&scene.devices.again, Command::Run, example.seed),
    };
    let mut text = format!("  again:    cargo run -p harness -- --exact {id} --retries 0{tail}\n");
    if example.position > 0 {
        let worker = format!("{}@{}", example.worker, scene.store.id);
        let _ = writeln!(
            text,
            "  with its neighbours: cargo run -p harness -- replay --worker {worker} --exact {id} --minimize{}",
            again.results()
        );
    }
    text
}

fn summary(scene: &Scene, found: &[JudgedCase], rule: &Rule, end: HuntEnd) -> String {
    let mut text = String::from("\n");
    let of = |finding: Finding| found.iter().filter(move |f| f.finding == finding);
    let bound = |f: &JudgedCase| upper_bound(f.entry.tally().failures, f.entry.tally().runs(), rule.confidence);
    let level = 100.0 * rule.confidence;
    let worst = |finding| crate::flake::rule::percent_above(of(finding).map(bound).fold(0.0, f64::max));
    let (clean, undecided) = (of(Finding::Clean).count(), of(Finding::Undecided).count());
    if clean > 0 {
        let failed = of(Finding::Clean).filter(|f| f.entry.tally().failures > 0).count();
        let rare =
            if failed > 0 { format!("; {failed} of them failed now and then, see above") } else { String::new() };
        let _ = writeln!(text, "{clean} clean: rate < {} at {level:.0} %{rare}", worst(Finding::Clean));
    }
    if undecided > 0 {
        let open: Vec<&JudgedCase> = of(Finding::Undecided).collect();
        let never = open.iter().filter(|f| f.entry.tally().runs() == 0).count();
        let given_up: Vec<(&str, &str)> =
            open.iter().filter_map(|f| Some((f.case.id.as_str(), f.entry.given_up()?))).collect();
        let why = if given_up.len() < open.len() { end.why() } else { "" };
        let because = |mark: &str| if why.is_empty() { String::new() } else { format!("{mark} {why}") };
        let _ = match never {
            0 => {
                let mut bounds: Vec<f64> = open.iter().map(|f| bound(f)).collect();
                bounds.sort_by(f64::total_cmp);
                let half = crate::flake::rule::percent_above(bounds[bounds.len() / 2]);
                let (all, because) = (worst(Finding::Undecided), because(";"));
                writeln!(text, "{undecided} undecided: rate < {all} at {level:.0} %, of half of them < {half}{because}")
            }
            _ => writeln!(text, "{undecided} undecided, {never} of them never run{}", because(":")),
        };
        for (id, what) in given_up {
            let _ = writeln!(text, "given up {id}: {what}, again and again: the machine's fault");
        }
    }
    text.push_str(&causes(found));
    for (id, why) in &scene.skipped {
        let _ = writeln!(text, "skipped {id}: {why}");
    }
    let decided: Vec<&JudgedCase> = found.iter().filter(|f| f.entry.finding.is_some()).collect();
    let used: u64 = decided.iter().map(|f| f.entry.decided_after).sum();
    let all: u64 = found.iter().map(|f| f.entry.all_runs()).sum();
    let _ = write!(text, "{all} repeats");
    if !decided.is_empty() {
        let fixed = rule.fixed.runs * decided.len() as u64;
        let _ = write!(
            text,
            "; {used} for {} decisions, {:.0} % of the {fixed} that a fixed number with the same errors takes",
            decided.len(),
            100.0 * used as f64 / fixed as f64
        );
    }
    let (flaky, broken) = (of(Finding::Flaky).count(), of(Finding::Broken).count());
    let _ = writeln!(text, "\n{clean} clean, {flaky} flaky, {broken} broken, {undecided} undecided");
    text
}

/// How often each outcome was seen, over all cases.
fn causes(found: &[JudgedCase]) -> String {
    let mut causes: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for (outcome, count) in found.iter().flat_map(|found| &found.entry.outcomes) {
        let cause = causes.entry(outcome).or_default();
        *cause = (cause.0 + 1, cause.1 + count);
    }
    let line = |(outcome, (cases, failures))| format!("{outcome}: {failures} failures of {cases} cases\n");
    causes.into_iter().map(line).collect()
}

/// Broken outranks flaky, that an incomplete hunt. A hunt with a count is complete
/// when each case has reached it, one without when each case is decided.
fn exit_code(found: &[JudgedCase], count: Option<u64>, until_fail: bool) -> u8 {
    let of = |finding: Finding| found.iter().filter(move |f| f.finding == finding);
    let hard =
        |f: &JudgedCase| f.entry.outcomes.keys().any(|name| name.starts_with("crash") || name.starts_with("hang"));
    let failed = found.iter().any(|f| f.entry.tally().failures > 0);
    let open = |f: &JudgedCase| match count {
        Some(count) => f.entry.tally().runs() < count,
        None => f.finding == Finding::Undecided,
    };
    match () {
        () if of(Finding::Broken).any(hard) => exit::CRASHED,
        () if of(Finding::Broken).count() > 0 => exit::FAILED,
        () if of(Finding::Flaky).count() > 0 || (count.is_some() || until_fail) && failed => exit::FLAKY,
        () if found.iter().any(open) => exit::INCOMPLETE,
        () => exit::OK,
    }
}
