//! Recorded results as a folder of static pages, for people.
//!
//! Inputs: a folder of results (`history/`, `peers/`, `crashes/`, headers of `runs/`) and what the harness knows of cases
//! ([`Given`]). Outputs: a folder of HTML files with one stylesheet and one script, which need no server, no network and no
//! build step: any web space or artefact of a job can hold it.
//!
//! - `history/` reads the tables into columns, `crash` is the form of a kind of crash;
//! - `detect` finds changes of level, on-line;
//! - `plot/` draws SVG, `page/` writes one kind of page each, `write` all of them;
//! - `diagram/` draws boxes in layers, for whoever has some: it reads no results.
//!
//! Invariants: the same results give the same bytes. A page reads without its script; search and the comparison of any two
//! runs need it. Every text from outside is escaped.

mod crash;
mod detect;
mod diagram;
mod figure;
mod given;
mod history;
mod page;
mod plot;
mod site;
mod slug;
mod write;

pub use crash::{Crash, Sight};
pub use detect::MAD_TO_SIGMA;
use detect::{LEAST, SURE};
pub use diagram::{BoxId, Diagram, Look};
pub use given::{CaseFact, Failed, Given, Quarantined};
pub use write::{Written, write};

/// How often a night of a case tells a change where there is none, and how often one is confirmed. Measured by the test
/// `false_alarms` on noise of a normal distribution, and stated on the page on reading.
const FALSE_NEW: f64 = 0.0015;
const FALSE_CONFIRMED: f64 = 0.00005;
