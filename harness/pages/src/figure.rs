//! Figures that tables have, as people call them.

use crate::plot::short;

/// How a figure is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) column: &'static str,
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// From the table's unit to the one that is shown.
    scale: f64,
    pub(crate) less_is_better: bool,
    /// Columns with the ends of its interval.
    pub(crate) interval: Option<(&'static str, &'static str)>,
    /// Its level is watched.
    pub(crate) watched: bool,
    /// A smaller change of its level is nobody's concern.
    pub(crate) least: f64,
}

/// The sum of the phases of compiling, made when tables are read.
pub(crate) const COMPILE: &str = "compile_ms";
pub(crate) const PHASES: [&str; 4] = ["schedule_ms", "lower_ms", "codegen_ms", "load_ms"];

const fn figure(column: &'static str, name: &'static str, unit: &'static str, scale: f64) -> Figure {
    Figure { column, name, unit, scale, less_is_better: true, interval: None, watched: true, least: 0.03 }
}

/// In the order in which a page shows them.
pub(crate) const FIGURES: [Figure; 7] = [
    Figure { interval: Some(("p10_ns", "p90_ns")), least: 0.002, ..figure("median_ns", "Kernel time", "µs", 1e-3) },
    Figure {
        less_is_better: false,
        watched: false,
        ..figure("share_of_copy", "Share of copy", "of the copy’s bandwidth", 1.0)
    },
    figure("host_us", "Host time of a call", "µs", 1.0),
    figure(COMPILE, "Compile time", "ms", 1.0),
    figure("dur_us", "Whole case", "ms", 1e-3),
    Figure { less_is_better: false, watched: false, ..figure("gbps", "Bandwidth", "GB/s", 1.0) },
    Figure { less_is_better: false, watched: false, ..figure("copy_gbps", "Bandwidth of a copy", "GB/s", 1.0) },
];

/// Columns that are neither figures above nor counters.
const PARTS: [&str; 4] = ["bytes", "samples", "p10_ns", "p90_ns"];

/// The figure of a column.
pub(crate) fn of(column: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|figure| figure.column == column)
}

/// Whether a column is an exact count of the simulator.
pub(crate) fn is_counter(column: &str) -> bool {
    let told = of(column).is_some() || PARTS.contains(&column) || PHASES.contains(&column);
    !(told || column.ends_with("_ns") || column.ends_with("_us") || column.ends_with("_ms"))
}

/// Whether a page has a use for a column.
pub(crate) fn is_shown(column: &str) -> bool {
    of(column).is_some() || PARTS.contains(&column) || PHASES.contains(&column) || is_counter(column)
}

/// `shared_wavefronts` as words.
pub(crate) fn words(column: &str) -> String {
    let mut words = column.replace('_', " ");
    if let Some(first) = words.get(..1).map(str::to_uppercase) {
        words.replace_range(..1, &first);
    }
    words
}

impl Figure {
    pub(crate) fn scaled(&self, value: f64) -> f64 {
        value * self.scale
    }

    /// `128.7 µs`.
    pub(crate) fn text(&self, value: f64) -> String {
        match self.column {
            "share_of_copy" => format!("{value:.3}"),
            _ => format!("{}\u{202f}{}", short(self.scaled(value)), self.unit),
        }
    }
}
