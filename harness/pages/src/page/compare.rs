//! Any two runs side by side: the script reads what each came to.

use super::shell::{At, shell};
use crate::site::Site;
use maud::html;

pub(crate) fn compare(site: &Site) -> String {
    let body = html! {
        h1 { "Two runs side by side" }
        form #pick {
            label { "Earlier" select #a name="a" {} }
            label { "Later" select #b name="b" {} }
        }
        noscript { p.note { "Comparing any two runs needs JavaScript. The page of each run says what changed since the run before." } }
        div #compared aria-live="polite" {}
    };
    shell(site, At::Top, "compare.html", "Compare", &body)
}
