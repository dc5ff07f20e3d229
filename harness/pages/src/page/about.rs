//! How to read the pages: what marks mean, and how often they are wrong.

use super::shell::{At, shell};
use crate::site::Site;
use crate::{FALSE_CONFIRMED, FALSE_NEW, LEAST, SURE};
use maud::html;

pub(crate) fn about(site: &Site) -> String {
    let body = html! {
        h1 { "Reading these pages" }
        div.prose {
            h2 { "Devices and commands" }
            p { "Results of one model of device stand together, and never beside those of another: times of a GPU, counters of the simulator and the reference have nothing in common. "
                "Runs of one model may be of several GPUs. Where a run was on another GPU than the run before it, drawings have a mark at the top, and a change there says " q { "other GPU" } ". "
                "Figures come from any command that measures; each run’s command stands beside it. Of the oldest runs neither command nor GPU was written down." }
            h2 { "Drawings" }
            p { "Runs stand side by side at equal distances, however much time lies between them. The line is the median of a run’s samples, the band or the whiskers reach from the 10th to the 90th percentile. "
                "Axes do not begin at zero, and never show less than two hundredths of the value above and below, so that noise does not look like a mountain. "
                "Where a screen has fewer columns than there are runs, neighbours are drawn as one, with the least and the greatest of their intervals. "
                "A mark at the bottom is a run whose kernel’s text differs from that of the run before." }
            h2 { "Changes" }
            p { "A figure’s level is the mean of the runs since its last change; what lies beyond the noise of those runs is told at once as " q { "new" } ", from run " (LEAST + 1) " on. "
                "After " (SURE) " runs it is confirmed if it stands, and else withdrawn. "
                "Without any change, a night of a case tells one with a probability of at most " span.num { (FALSE_NEW * 100.0) "\u{202f}%" } ", and confirms one with at most " span.num { (format!("{:.3}", FALSE_CONFIRMED * 100.0)) "\u{202f}%" } ": "
                "of 2,000 cases about " span.num { (format!("{:.0}", FALSE_NEW * 2000.0)) } " a night are told and withdrawn again, and one in ten nights is confirmed wrongly. Both rates are measured by a test, on noise of a normal distribution. "
                "A change of four standard deviations is told on its night or the next in 19 of 20 cases, one of five in nearly all." }
            p { "Series of up to " (LEAST) " runs have no level yet. There two neighbours are told apart where their intervals do not touch and they differ by more than 2 %." }
            p { "Counters of the simulator are exact: each that differs is told, and one of cost that rose is for the worse. Its times are those of the host it ran on: they are drawn, and not judged." }
            p { "With a change stands what else changed with it, as far as the record has it: the commits, the kernel’s text, the GPU, its driver. " q { "Same kernel text" } " means that the generated code is the same byte for byte: then it is the machine." }
            h2 { "Share of copy" }
            p { "The time of a copy of the same number of bytes on the same GPU in the same run, as a part of the time of the case. 1 is as fast as a copy. Some exceed it, since they write less than they read." }
            h2 { "Verdicts" }
            p { "A row stands where a case came to another outcome than before. What the machine did wrong is " q { "infra" } ", a failure that passes when it is tried again " q { "flaky" } "." }
            h2 { "Keys" }
            p { kbd { "/" } " goes to the search, " kbd { "↓" } " and " kbd { "↑" } " through what it found, " kbd { "Enter" } " to the page. In a drawing " kbd { "←" } " and " kbd { "→" } " go from run to run, with " kbd { "Shift" } " ten at once." }
        }
    };
    shell(site, At::Top, "about.html", "Reading", &body)
}
