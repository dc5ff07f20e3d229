//! Tables that were measured once and kept beside the history: sweeps, and what the harness itself costs.

use super::parts::{case_link, counted};
use super::shell::{At, shell};
use crate::site::{Once, Site};
use maud::{Markup, html};

pub(crate) fn once(site: &Site) -> String {
    let body = html! {
        h1 { "Measured once" }
        p.lead { "Tables that were measured for a question of their time and are kept beside the history. They grow by no run." }
        @if site.once.is_empty() { p.empty { "There are none in this folder of results." } }
        @for table in &site.once { (one(site, table)) }
    };
    shell(site, At::Top, "performance.html", "Measured once", &body)
}

fn one(site: &Site, table: &Once) -> Markup {
    let numbers: Vec<bool> = (0..table.columns.len())
        .map(|at| {
            table.rows.iter().all(|row| row.get(at).is_none_or(|cell| cell.is_empty() || cell.parse::<f64>().is_ok()))
        })
        .collect();
    html! {
        section {
            h2.mono { "results/" (table.file) span.dim { " " (counted(table.rows.len(), "row")) } }
            div.scroll { table {
                thead { tr { @for (column, number) in table.columns.iter().zip(&numbers) { th.right[*number] { (crate::figure::words(column)) } } } }
                tbody { @for row in &table.rows { tr {
                    @for (at, cell) in row.iter().enumerate() {
                        td.right[numbers[at]].num[numbers[at]].long[!numbers[at]] {
                            @match site.names.find(cell).filter(|_| at == 0) {
                                Some(case) => (case_link(site, At::Top, case)),
                                None => (super::parts::breakable(cell)),
                            }
                        }
                    }
                } } }
            } }
        }
    }
}
