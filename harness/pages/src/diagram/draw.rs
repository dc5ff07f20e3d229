//! The text of a diagram's SVG.

use super::layout::{ASIDE, COLUMN, LINE, PAD, Places, Rect};
use super::{Diagram, LayerBox, Look, columns};
use maud::{Markup, html};
use std::fmt::Write;

/// Colours are those of the pages' stylesheet.
const STYLE: &str = "\
svg{--ground:#fbfbf9;--panel:#fff;--ink:#1d2023;--dim:#5b6168;--line:#8d949b;--figure:#2a5fb0;--work:#e8effa;\
--bad:#b3261e;--detour:#fbe9e7;--good:#1a6b3c;--result:#e5f2e9}\
@media(prefers-color-scheme:dark){svg{--ground:#131518;--panel:#191c20;--ink:#e5e7ea;--dim:#9ea5ad;--line:#6b737c;\
--figure:#7fb0f7;--work:#1c2a3d;--bad:#ff958a;--detour:#351b19;--good:#6cc68c;--result:#17291e}}\
text{font:13px ui-monospace,\"SF Mono\",Menlo,Consolas,\"DejaVu Sans Mono\",monospace;fill:var(--dim)}\
text.n{font-weight:650;fill:var(--ink)}.ground{fill:var(--ground)}\
rect{fill:var(--panel);stroke:var(--line)}.ground{stroke:none}.work{fill:var(--work);stroke:var(--figure)}\
.detour{fill:var(--detour);stroke:var(--bad)}.free{stroke-dasharray:4 3}.result{fill:var(--result);stroke:var(--good)}\
path{fill:none;stroke:var(--line);stroke-width:1.3}marker path{fill:var(--line);stroke:none}";

impl Look {
    fn class(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Detour => "detour",
            Self::Free => "free",
            Self::Given => "given",
            Self::Result => "result",
            Self::Passed => "passed",
        }
    }
    /// Tensors have round ends.
    fn radius(self) -> usize {
        match self {
            Self::Work | Self::Detour | Self::Free => 3,
            Self::Given | Self::Result | Self::Passed => 14,
        }
    }
}

pub(super) fn svg(diagram: &Diagram, places: &Places) -> String {
    let Places { width, height, .. } = places;
    let markup = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height) role="img" {
            title { (diagram.title) }
            style { (maud::PreEscaped(STYLE)) }
            defs {
                marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto" {
                    path d="M0 0 8 4 0 8z" {}
                }
            }
            rect.ground width=(width) height=(height) {}
            (line(&diagram.title, "n", ASIDE as usize, LINE + PAD))
            (line(&diagram.about, "a", ASIDE as usize, 2 * LINE + PAD))
            @for way in &places.ways { path d=(curve(way)) marker-end="url(#tip)" {} }
            @for (one, place) in diagram.boxes.iter().zip(&places.boxes) { (layer_box(one, *place)) }
        }
    };
    let mut text = markup.into_string();
    text.push('\n');
    text
}

fn layer_box(one: &LayerBox, place: Rect) -> Markup {
    let Rect { x, y, width, height } = place;
    html! {
        g {
            @if !one.tip.is_empty() { title { (one.tip) } }
            rect class=(one.look.class()) x=(x) y=(y) width=(width) height=(height) rx=(one.look.radius()) {}
            @for (at, text) in one.lines.iter().enumerate() {
                @let left = x + (width - columns(text) * COLUMN) / 2;
                (line(text, if at == 0 { "n" } else { "a" }, left, y + PAD + LINE * (at + 1) - 4))
            }
        }
    }
}

/// A line of text, as wide as its columns say.
fn line(text: &str, class: &str, x: usize, y: usize) -> Markup {
    html! {
        @if !text.is_empty() {
            text class=(class) x=(x) y=(y) textLength=(columns(text) * COLUMN) lengthAdjust="spacingAndGlyphs" { (text) }
        }
    }
}

/// Straight down along layers, bent between them.
fn curve(points: &[(usize, usize)]) -> String {
    let mut data = String::new();
    for (at, &(x, y)) in points.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = match at.checked_sub(1).map(|last| points[last]) {
            None => write!(data, "M{x} {y}"),
            Some((_, above)) if at % 2 == 1 && above == y => Ok(()),
            Some(_) if at % 2 == 1 => write!(data, "V{y}"),
            Some((left, above)) => {
                let middle = (above + y) / 2;
                write!(data, "C{left} {middle} {x} {middle} {x} {y}")
            }
        };
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_as_wide_as_its_columns() {
        let mut diagram = Diagram::new("a < b", "c & d");
        diagram.add(Look::Work, vec!["x<y".into()], "\"<&>\"", &[]);
        let svg = diagram.svg();
        assert!(
            svg.contains("<title>\"&lt;&amp;&gt;\"</title>")
                || svg.contains("<title>&quot;&lt;&amp;&gt;&quot;</title>"),
            "{svg}"
        );
        assert!(svg.contains(">a &lt; b<") && svg.contains(">c &amp; d<"), "{svg}");
        assert!(svg.contains(r#"textLength="24" lengthAdjust="spacingAndGlyphs">x&lt;y<"#), "{svg}");
    }

    #[test]
    fn ways_are_straight_along_layers() {
        let drawn = curve(&[(5, 10), (5, 20), (9, 50), (9, 60), (7, 90)]);
        assert_eq!(drawn, "M5 10V20C5 35 9 35 9 50V60C9 75 7 75 7 90");
        assert_eq!(curve(&[(5, 10), (5, 10), (5, 40)]), "M5 10C5 25 5 25 5 40");
    }
}
