//! A backend of plotters that writes compact SVG with classes.
//!
//! Inputs: what a chart draws, in half pixels, with a [`Ink`] in the place of each colour. Output: an `svg` element whose
//! text, lines and areas have the inks' classes, without widths, fonts or colours of their own.

use maud::{PreEscaped, html};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind, FontTransform,
};
use std::convert::Infallible;
use std::fmt::Write;

/// Half pixels a pixel: lines that are fine on any screen, with whole numbers.
pub(crate) const SCALE: i32 = 2;

/// What something is drawn as: the colour is the stylesheet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    /// Lines of the mesh, text of axes.
    Mesh,
    Axis,
    Label,
    /// A line of figures, the area of its interval, its points.
    Line,
    Band,
    Point,
    /// Something got worse or better; other code; another device.
    Bad,
    Good,
    Code,
    Other,
    /// A bound that cannot be passed, and a goal.
    Roof,
    Goal,
    /// Words beside a mark.
    BadText,
    GoodText,
}

const INKS: [(Ink, &str); 14] = [
    (Ink::Mesh, "m"),
    (Ink::Axis, "x"),
    (Ink::Label, "t"),
    (Ink::Line, "l"),
    (Ink::Band, "b"),
    (Ink::Point, "p"),
    (Ink::Bad, "w"),
    (Ink::Good, "g"),
    (Ink::Code, "k"),
    (Ink::Other, "o"),
    (Ink::Roof, "r"),
    (Ink::Goal, "q"),
    (Ink::BadText, "tw"),
    (Ink::GoodText, "tg"),
];

impl Ink {
    /// As a colour of plotters: its number.
    pub(crate) fn color(self) -> plotters::style::RGBColor {
        plotters::style::RGBColor(self as u8, 0, 0)
    }
}

fn class(color: BackendColor) -> &'static str {
    INKS.get(usize::from(color.rgb.0)).map_or("x", |(_, class)| class)
}

/// A drawing under way.
pub(crate) struct Svg<'a> {
    size: (u32, u32),
    out: &'a mut String,
    /// Lines of one class, which are one element.
    lines: Option<(&'static str, String)>,
}

impl<'a> Svg<'a> {
    /// Of a size in pixels. What is drawn goes behind what `out` holds.
    pub(crate) fn new(out: &'a mut String, (width, height): (i32, i32)) -> Self {
        Self { size: ((width * SCALE) as u32, (height * SCALE) as u32), out, lines: None }
    }

    fn put(&mut self, markup: &PreEscaped<String>) {
        self.end_lines();
        self.out.push_str(&markup.0);
    }

    fn line(&mut self, points: impl Iterator<Item = BackendCoord>, class: &'static str) {
        if self.lines.as_ref().is_none_or(|(known, _)| *known != class) {
            self.end_lines();
        }
        let (_, data) = self.lines.get_or_insert_with(|| (class, String::new()));
        data.push_str(&path_data(points, false));
    }

    fn end_lines(&mut self) {
        if let Some((class, data)) = self.lines.take() {
            self.out.push_str(&html! { path class=(class) d=(data) {} }.0);
        }
    }
}

impl Drop for Svg<'_> {
    fn drop(&mut self) {
        self.end_lines();
    }
}

/// Steps from point to point: shorter than places.
fn path_data(points: impl Iterator<Item = BackendCoord>, closed: bool) -> String {
    let (mut data, mut last) = (String::new(), None);
    for (x, y) in points {
        // Writing to a string does not fail.
        let _ = match last {
            None => write!(data, "M{x} {y}"),
            Some((a, b)) if (a, b) == (x, y) => Ok(()),
            Some((a, b)) if b == y => write!(data, "h{}", x - a),
            Some((a, b)) if a == x => write!(data, "v{}", y - b),
            Some((a, b)) if y < b => write!(data, "l{}{}", x - a, y - b),
            Some((a, b)) => write!(data, "l{} {}", x - a, y - b),
        };
        last = Some((x, y));
    }
    if closed {
        data.push('z');
    }
    data
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl DrawingBackend for Svg<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }
    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }
    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Drawn {
        self.line([(x, y), (x + 1, y)].into_iter(), class(color));
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.line([from, to].into_iter(), class(style.color()));
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(&mut self, (a, b): BackendCoord, (c, d): BackendCoord, style: &S, _: bool) -> Drawn {
        let (x, y) = (a.min(c), b.min(d));
        self.put(
            &html! { rect class=(class(style.color())) x=(x) y=(y) width=(a.abs_diff(c)) height=(b.abs_diff(d)) {} },
        );
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        self.line(path.into_iter(), class(style.color()));
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, area: I, style: &S) -> Drawn {
        self.put(&html! { path class=(class(style.color())) d=(path_data(area.into_iter(), true)) {} });
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(&mut self, (x, y): BackendCoord, radius: u32, style: &S, _: bool) -> Drawn {
        self.put(&html! { circle class=(class(style.color())) cx=(x) cy=(y) r=(radius) {} });
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, (x, y): BackendCoord) -> Drawn {
        use plotters_backend::text_anchor::{HPos, VPos};
        let anchor = match style.anchor().h_pos {
            HPos::Left => "",
            HPos::Center => " c",
            HPos::Right => " e",
        };
        let down = match style.anchor().v_pos {
            VPos::Top => ".8em",
            VPos::Center => ".35em",
            VPos::Bottom => "-.25em",
        };
        let class = class(style.color());
        self.put(&html! { text class={ (class) (anchor) } x=(x) y=(y) dy=(down) { (text) } });
        Ok(())
    }

    /// Digits and letters of a sans-serif font are about so wide.
    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let wide = style.size() * 0.56 * text.chars().count() as f64;
        match style.transform() {
            FontTransform::Rotate90 | FontTransform::Rotate270 => Ok((style.size() as u32, wide as u32)),
            _ => Ok((wide as u32, style.size() as u32)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inks_are_in_the_order_of_their_numbers() {
        for (at, (ink, _)) in INKS.iter().enumerate() {
            assert_eq!(*ink as usize, at);
        }
    }

    #[test]
    fn paths_are_steps() {
        let path = |closed| path_data([(1, 2), (4, 2), (4, 9), (6, 5), (6, 5), (5, 7)].into_iter(), closed);
        assert_eq!((path(false).as_str(), path(true).as_str()), ("M1 2h3v7l2-4l-1 2", "M1 2h3v7l2-4l-1 2z"));
    }
}
