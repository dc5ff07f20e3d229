//! What every page has: head, heading, links, search.

use crate::site::Site;
use maud::{DOCTYPE, Markup, html};

/// A page's place, for its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Top,
    /// One folder below.
    Below,
}

impl At {
    pub(crate) fn up(self) -> &'static str {
        match self {
            At::Top => "",
            At::Below => "../",
        }
    }
}

/// Pages in the order of their links.
const LINKS: [(&str, &str); 9] = [
    ("index.html", "Health"),
    ("performance.html", "Performance"),
    ("cases.html", "Cases"),
    ("runs.html", "Runs"),
    ("compare.html", "Compare"),
    ("flakes.html", "Flakes"),
    ("crashes.html", "Crashes"),
    ("devices.html", "Devices"),
    ("about.html", "Reading"),
];

/// A whole page. `here` is the file of the link that is on.
pub(crate) fn shell(site: &Site, at: At, here: &str, title: &str, body: &Markup) -> String {
    let up = at.up();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · " (site.given.title) }
                link rel="icon" href="data:,";
                link rel="stylesheet" href={ (up) "style.css" };
                script src={ (up) "app.js" } data-up=(up) defer {}
            }
            body {
                a.skip href="#main" { "To the content" }
                header {
                    a.home href={ (up) "index.html" } { (site.given.title) }
                    form.search role="search" action={ (up) "cases.html" } {
                        input #search type="search" name="q" placeholder="Find a case or run" autocomplete="off"
                            aria-label="Find a case or run; the key / comes here" aria-controls="found";
                        ul #found role="listbox" aria-label="Found" hidden {}
                    }
                    nav aria-label="Pages" {
                        @for (file, name) in LINKS {
                            a href={ (up) (file) } aria-current=[(file == here).then_some("page")] { (name) }
                        }
                    }
                }
                main #main tabindex="-1" { (body) }
                footer { (site.given.made) }
            }
        }
    };
    page.into_string()
}
