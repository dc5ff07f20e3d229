//! Case files as pages, so that a link to a case's line leads somewhere wherever the pages are.

use super::shell::{At, shell};
use crate::site::Site;
use crate::slug;
use maud::html;

/// The page of a case file, from the top folder on.
pub(crate) fn file_page(path: &str) -> String {
    format!("file/{}.html", slug::case(path))
}

pub(crate) fn file(site: &Site, path: &str, text: &str) -> String {
    let body = html! {
        h1.mono { (path) }
        div.scroll { pre.source {
            @for (number, line) in text.lines().enumerate() {
                span id={ "L" (number + 1) } { a href={ "#L" (number + 1) } aria-label={ "line " (number + 1) } { (number + 1) } (line) "\n" }
            }
        } }
    };
    shell(site, At::Below, "cases.html", path, &body)
}
