//! A profile as a table for people.

use super::profile::{ProgramProfile, StepCost, StepProfile};
use crate::options::Phase;
use std::fmt::{Display, Formatter, Result};
use std::time::Duration;

/// The phases that have a column, with its head.
const PHASES: [(Phase, &str); 4] =
    [(Phase::Schedule, "schedule"), (Phase::Lower, "lower"), (Phase::Codegen, "codegen"), (Phase::Load, "load")];

impl Display for ProgramProfile {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let making = milliseconds(self.making);
        writeln!(f, "profile @{} on {}: made in {making} ms", self.name, self.device)?;
        let is_counted = self.steps.iter().any(|step| matches!(step.cost, StepCost::Counted(_)));
        let heads = PHASES.map(|(_, head)| format!("{head} ms"));
        let costs: &[&str] = match is_counted {
            true => &["instructions", "sectors", "of the least"],
            false => &["time us", "GB/s", "of a copy"],
        };
        let mut rows = vec![row("segment", "by", heads, "KiB", costs.iter().map(|cost| cost.to_string()).collect())];
        rows.extend(self.steps.iter().map(|step| of_step(step, is_counted)));
        for row in &rows {
            let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
            let cell = |(column, text): (usize, &String)| match column {
                0 | 1 => format!("{text:<width$}", width = width(column)),
                _ => format!("{text:>width$}", width = width(column)),
            };
            let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
            writeln!(f, "{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

fn row(segment: &str, by: &str, phases: [String; 4], moved: &str, costs: Vec<String>) -> Vec<String> {
    let mut row = vec![segment.to_string(), by.to_string()];
    row.extend(phases);
    row.push(moved.to_string());
    row.extend(costs);
    row
}

fn of_step(step: &StepProfile, is_counted: bool) -> Vec<String> {
    let segment = step.segment.map_or_else(|| "-".to_string(), |segment| segment.to_string());
    let phases = PHASES.map(|(phase, _)| step.compile_time(phase).map_or_else(String::new, milliseconds));
    let share = |share: Option<f64>| share.map_or_else(String::new, |share| format!("{share:.2}"));
    let costs = match &step.cost {
        StepCost::Nothing => vec![String::new(); 3],
        StepCost::Timed { ns, .. } => {
            let speed = step.gigabytes_per_second().map_or_else(String::new, |speed| format!("{speed:.0}"));
            vec![format!("{:.2}", ns / 1e3), speed, share(step.share_of_copy())]
        }
        StepCost::Counted(counters) => {
            let (moved, least) = (
                counters.load_sectors + counters.store_sectors,
                counters.load_sectors_ideal + counters.store_sectors_ideal,
            );
            let ratio = (least > 0).then(|| moved as f64 / least as f64);
            vec![counters.total_warp_instructions().to_string(), moved.to_string(), share(ratio)]
        }
        // The columns are others where the simulator counts.
        StepCost::Host(_) if is_counted => vec![String::new(); 3],
        StepCost::Host(time) => vec![format!("{:.2}", time.as_secs_f64() * 1e6), String::new(), String::new()],
    };
    row(&segment, step.made_by, phases, &format!("{:.1}", step.bytes() as f64 / 1024.0), costs)
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e3)
}
