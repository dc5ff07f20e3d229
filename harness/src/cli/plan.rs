//! `plan`: what `run` with the same options would do, without starting a
//! worker: slots, order, predicted time, and what is skipped and why.
//!
//! The prediction deals the cases out as the queue does: each goes to the slot
//! that is free first, of those that meet its requirements. Durations are those of earlier runs; a case without one
//! is taken as the median. What workers need to start is not in it. With `--cross`
//! each case goes to one slot of every device that it can run on.

use super::args::{Args, Listing};
use super::broken::{Broken, code_with, or_malformed};
use super::run::split_required;
use super::session::{self, CaseOptions};
use super::{Failure, devices, list, runs};
use crate::dispatch::{self, SlotSpec};
use crate::exit;
use crate::outcome::{Conclusion, Last};
use crate::record::History;
use crate::report::{self, Column};
use crate::select::Past;
use crate::units::show_time;
use serde_json::json;
use std::collections::BTreeSet;

/// A case with its place in the plan.
#[derive(Clone, Debug, PartialEq)]
struct Placed {
    id: String,
    slot: usize,
    start_ns: u64,
    dur_ns: u64,
    last: Option<Last>,
}

/// All that `plan` knows.
struct PlanReport {
    labels: Vec<String>,
    placed: Vec<Placed>,
    skipped: Vec<Conclusion>,
    /// Taken for cases that never ran; `None` if nothing is recorded at all.
    median_ns: Option<u64>,
    /// Devices, shards and the like.
    notes: Vec<String>,
    total: usize,
    /// Whether each case runs on every device.
    cross: bool,
}

pub(super) fn plan(args: &Args) -> Result<u8, Failure> {
    let (options, cross) = (CaseOptions::of(args), args.devices.cross);
    let devices = devices::resolve(&args.devices, args.evidence.sanitize.as_ref())?;
    let loaded = session::load_sound(&options, devices.target)?;
    let total = loaded.cases.len();
    let broken = Broken::of(&options.wanted, &loaded.errors, "are planned");
    let chosen = session::choose(&options, loaded.cases, &devices.history);
    let chosen = chosen.map_err(|why| or_malformed(&loaded.errors, why))?;
    // Standard output is the plan alone.
    broken.iter().for_each(|broken| crate::console::complain(&broken.text));
    let past = session::past(&options.folders.results, &devices.history);
    let (mut cases, skipped) = split_required(chosen.cases, &devices);
    let history = History::of(&options.folders.results, &devices.history);
    dispatch::order(&mut cases, &history.known());
    let labels: Vec<String> = devices.slots.iter().map(|slot| slot.label.clone()).collect();
    let ids: Vec<&str> = cases.iter().map(|case| case.id.as_str()).collect();
    let fits = |case: usize, slot: usize| devices.slots[slot].unfit(&cases[case].require).is_none();
    let names: Vec<String> = devices.slots.iter().map(SlotSpec::device_name).collect();
    let each = cross.then(|| dispatch::one_of_each(&names));
    let (placed, median_ns) = deal(&ids, &past, labels.len(), each.as_deref(), &fits);
    let notes = devices.notes.into_iter().chain(chosen.notes).collect();
    let plan = PlanReport { labels, placed, skipped, median_ns, notes, total, cross: each.is_some() };
    crate::console::print(&match args.output.listing {
        Listing::Usual | Listing::Table => plan.text(),
        Listing::Json => plan.json(),
        Listing::Names => ids.iter().map(|id| format!("{id}\n")).collect(),
    });
    Ok(code_with(broken.as_ref(), exit::OK))
}

/// Deals cases out to slots, each once or to each of some slots; returns the
/// duration taken for unknown ones too.
fn deal(
    ids: &[&str],
    past: &Past,
    slots: usize,
    each: Option<&[usize]>,
    fits: &dyn Fn(usize, usize) -> bool,
) -> (Vec<Placed>, Option<u64>) {
    let dur = |id: &str| past.last(id).and_then(|last| last.dur_ns);
    let mut known: Vec<u64> = ids.iter().filter_map(|id| dur(id)).collect();
    known.sort_unstable();
    let median = known.get(known.len() / 2).copied();
    let mut free = vec![0u64; slots.max(1)];
    let mut placed = Vec::new();
    for (case, id) in ids.iter().enumerate() {
        let suited = |slot: &usize| fits(case, *slot);
        let taken = match each {
            Some(each) => each.iter().copied().filter(suited).collect(),
            None => vec![(0..free.len()).filter(suited).min_by_key(|slot| free[*slot]).unwrap_or(0)],
        };
        for slot in taken {
            let (start_ns, dur_ns) = (free[slot], dur(id).or(median).unwrap_or(0));
            // Where nothing is known, cases still go round.
            free[slot] = start_ns.saturating_add(dur_ns.max(1));
            placed.push(Placed { id: id.to_string(), slot, start_ns, dur_ns, last: past.last(id).cloned() });
        }
    }
    (placed, median)
}

const SLOTS: [Column; 3] = [Column::new("slot"), Column::new("cases").right(), Column::new("busy").right()];
const ORDER: [Column; 6] = [
    Column::new("order").right(),
    Column::new("slot"),
    Column::new("start").right(),
    Column::new("takes").right(),
    Column::new("last").spare(1),
    Column::new("case").shortens(),
];
const SKIPPED: [Column; 3] = [Column::new("skipped").shortens(), Column::new("why"), Column::new("").shortens()];

impl PlanReport {
    fn makespan(&self) -> u64 {
        self.placed.iter().map(|placed| placed.start_ns.saturating_add(placed.dur_ns)).max().unwrap_or(0)
    }

    /// A predicted time, if there is a prediction.
    fn time(&self, ns: u64) -> String {
        self.median_ns.map_or("?".into(), |_| show_time(ns))
    }

    /// Cases and busy time of a slot.
    fn load(&self, slot: usize) -> (usize, u64) {
        let of_slot = self.placed.iter().filter(|placed| placed.slot == slot);
        of_slot.fold((0, 0), |(n, busy), placed| (n + 1, busy.saturating_add(placed.dur_ns)))
    }

    fn unknown(&self) -> usize {
        let unknown = |placed: &&Placed| placed.last.as_ref().is_none_or(|last| last.dur_ns.is_none());
        self.placed.iter().filter(unknown).map(|placed| &placed.id).collect::<BTreeSet<_>>().len()
    }

    /// Cases that run, however often.
    fn cases(&self) -> usize {
        self.placed.iter().map(|placed| &placed.id).collect::<BTreeSet<_>>().len()
    }

    fn text(&self) -> String {
        let mut text: String = self.notes.iter().map(|note| format!("{note}\n")).collect();
        let (run, skipped, slots) = (self.cases(), self.skipped.len(), self.labels.len());
        let each = if self.cross { ", each on every device" } else { "" };
        text.push_str(&format!(
            "{run} of {} cases would run on {slots} slots{each}, {skipped} be skipped\n",
            self.total
        ));
        text.push_str(&match (self.median_ns, self.unknown()) {
            (None, _) => "no duration is recorded for them: the time cannot be predicted\n".into(),
            (Some(_), 0) => format!("predicted time {}\n", show_time(self.makespan())),
            (Some(median), unknown) => format!(
                "predicted time {}; {unknown} cases never ran and are taken as {}, the median\n",
                show_time(self.makespan()),
                show_time(median)
            ),
        });
        if self.placed.is_empty() {
            return text + &self.skipped_text();
        }
        let slots = self.labels.iter().enumerate().map(|(slot, label)| {
            let (cases, busy) = self.load(slot);
            vec![label.clone(), cases.to_string(), self.time(busy)]
        });
        text.push_str(&format!("\n{}", report::table(&SLOTS, &slots.collect::<Vec<_>>(), runs::columns())));
        let rows = self.placed.iter().enumerate().map(|(i, placed)| {
            vec![
                (i + 1).to_string(),
                self.labels.get(placed.slot).cloned().unwrap_or_default(),
                self.time(placed.start_ns),
                placed.last.as_ref().and_then(|last| last.dur_ns).map_or("?".into(), show_time),
                placed.last.as_ref().map_or("never", |last| last.verdict().name()).to_string(),
                placed.id.clone(),
            ]
        });
        text.push_str(&format!("\n{}", report::table(&ORDER, &rows.collect::<Vec<_>>(), runs::columns())));
        text + &self.skipped_text()
    }

    fn skipped_text(&self) -> String {
        let row = |skipped: &Conclusion| {
            let outcome = &skipped.result.outcome;
            vec![skipped.case.id.clone(), outcome.outcome.clone(), outcome.detail.clone()]
        };
        match self.skipped.is_empty() {
            true => String::new(),
            false => {
                let rows: Vec<Vec<String>> = self.skipped.iter().map(row).collect();
                format!("\n{}", report::table(&SKIPPED, &rows, runs::columns()))
            }
        }
    }

    fn json(&self) -> String {
        let slots = self.labels.iter().enumerate().map(|(slot, label)| {
            let (cases, busy_ns) = self.load(slot);
            json!({ "slot": label, "cases": cases, "busy_ns": busy_ns })
        });
        let order = self.placed.iter().map(|placed| {
            json!({
                "id": placed.id,
                "slot": self.labels.get(placed.slot),
                "start_ns": self.median_ns.map(|_| placed.start_ns),
                "expected_ns": placed.last.as_ref().and_then(|last| last.dur_ns),
                "last": placed.last.as_ref().map(list::verdict),
            })
        });
        let skipped = self.skipped.iter().map(|skipped| {
            let outcome = &skipped.result.outcome;
            json!({ "id": skipped.case.id, "outcome": outcome.outcome, "why": outcome.detail })
        });
        let plan = json!({
            "total": self.total,
            "predicted_ns": self.median_ns.map(|_| self.makespan()),
            "assumed_ns": self.median_ns,
            "unknown": self.unknown(),
            "notes": self.notes,
            "slots": slots.collect::<Vec<_>>(),
            "order": order.collect::<Vec<_>>(),
            "skipped": skipped.collect::<Vec<_>>(),
        });
        format!("{plan:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(durations: &[(&str, u64)]) -> Past {
        let last = |dur_ns| Last { outcome: "pass".into(), dur_ns: Some(dur_ns), runs: 1 };
        Past { cases: durations.iter().map(|(id, ns)| (id.to_string(), last(*ns))).collect(), ..Past::default() }
    }

    /// Cases with slots, start and duration.
    #[track_caller]
    fn check(ids: &[&str], past: &Past, slots: usize, wanted: &[(usize, u64, u64)]) {
        let (placed, _) = deal(ids, past, slots, None, &|_, _| true);
        let got: Vec<_> = placed.iter().map(|p| (p.slot, p.start_ns, p.dur_ns)).collect();
        assert_eq!(got, wanted);
    }

    #[test]
    fn each_case_goes_to_the_slot_that_is_free_first() {
        let past = past(&[("a", 5), ("b", 3), ("c", 3), ("d", 1)]);
        check(&["a", "b", "c", "d"], &past, 2, &[(0, 0, 5), (1, 0, 3), (1, 3, 3), (0, 5, 1)]);
        check(&["new", "a", "b"], &past, 1, &[(0, 0, 5), (0, 5, 5), (0, 10, 3)]);
        check(&["x", "y"], &Past::default(), 2, &[(0, 0, 0), (1, 0, 0)]);
        check(&[], &past, 2, &[]);
        let (placed, _) = deal(&["a", "b", "c"], &past, 2, None, &|case, slot| case != 1 || slot == 0);
        assert_eq!(placed.iter().map(|p| (p.slot, p.start_ns)).collect::<Vec<_>>(), [(0, 0), (0, 5), (1, 0)]);
    }

    /// Slots 0 and 2 are those of two devices; the second cannot run `b`.
    #[test]
    fn across_devices_each_case_goes_to_every_one() {
        let past = past(&[("a", 5), ("b", 3)]);
        let ids = ["a", "b", "new"];
        let (placed, median_ns) = deal(&ids, &past, 3, Some(&[0, 2]), &|case, slot| case != 1 || slot == 0);
        let got: Vec<_> = placed.iter().map(|p| (p.id.as_str(), p.slot, p.start_ns)).collect();
        assert_eq!(got, [("a", 0, 0), ("a", 2, 0), ("b", 0, 5), ("new", 0, 8), ("new", 2, 5)]);
        let labels = ["sim0", "sim0.1", "sim1"].map(String::from).into();
        let plan =
            PlanReport { labels, placed, skipped: Vec::new(), median_ns, notes: Vec::new(), total: 4, cross: true };
        assert_eq!((plan.cases(), plan.unknown()), (3, 1));
        assert!(
            plan.text().starts_with("3 of 4 cases would run on 3 slots, each on every device, 0 be"),
            "{}",
            plan.text()
        );
    }

    /// No slot waits while cases are left, so the time is within the bound of
    /// list scheduling: the mean load plus the longest case.
    #[test]
    fn predictions_are_within_the_bound_of_list_scheduling() {
        crate::property::property(|u| {
            let slots = u.int_in_range(1..=8)?;
            let count = u.int_in_range(1..=50)?;
            let names: Vec<String> = (0..count).map(|i| format!("c{i}")).collect();
            let mut durations = Vec::new();
            for name in &names {
                durations.push((name.as_str(), u.int_in_range(1..=1000)?));
            }
            let ids: Vec<&str> = names.iter().map(String::as_str).collect();
            let (placed, median_ns) = deal(&ids, &past(&durations), slots, None, &|_, _| true);
            let labels = vec![String::new(); slots];
            let plan = PlanReport {
                labels,
                placed,
                skipped: Vec::new(),
                median_ns,
                notes: Vec::new(),
                total: count,
                cross: false,
            };
            let sum: u64 = durations.iter().map(|(_, ns)| ns).sum();
            let longest = durations.iter().map(|(_, ns)| *ns).max().unwrap_or(0);
            let mean = sum.div_ceil(slots as u64);
            assert!(plan.makespan() >= mean.max(longest) && plan.makespan() <= mean + longest, "{}", plan.makespan());
            assert_eq!((0..slots).map(|slot| plan.load(slot).1).sum::<u64>(), sum);
            Ok(())
        });
    }
}
