//! A drawing of boxes in layers, with ways between them, as one SVG file.
//!
//! Inputs: boxes of some lines of text, each with the boxes that lead to it. Outputs: a text that needs nothing else, in
//! light and dark by the reader's preference.
//!
//! - `layout` says where boxes and ways are;
//! - `draw` writes them.
//!
//! Invariants: the same boxes give the same text. No two boxes overlap, no way crosses a box, and text keeps to its box in
//! whatever font it is shown. There are no cycles: a box is added behind those that lead to it.

mod draw;
mod layout;
#[cfg(test)]
mod tests;

/// Boxes and ways between them.
#[derive(Clone, Debug, Default)]
pub struct Diagram {
    title: String,
    about: String,
    boxes: Vec<LayerBox>,
    /// From a box to a later one.
    ways: Vec<(usize, usize)>,
}

/// A box of a diagram.
#[derive(Clone, Debug)]
struct LayerBox {
    look: Look,
    lines: Vec<String>,
    tip: String,
}

/// Which box of a diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoxId(usize);

/// What a box looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Something that is done.
    Work,
    /// Something that is done, but not where it should be.
    Detour,
    /// Something that needs no doing.
    Free,
    /// What is there before, comes of it, or passes between.
    Given,
    /// See [`Look::Given`].
    Result,
    /// See [`Look::Given`].
    Passed,
}

impl Diagram {
    /// An empty one: a title, and a line below it.
    pub fn new(title: impl Into<String>, about: impl Into<String>) -> Self {
        Self { title: title.into(), about: about.into(), ..Self::default() }
    }

    /// Adds a box behind those that lead to it. The first of its lines is its name; the tip is
    /// shown to who points at it.
    pub fn add(&mut self, look: Look, lines: Vec<String>, tip: impl Into<String>, from: &[BoxId]) -> BoxId {
        let id = self.boxes.len();
        self.boxes.push(LayerBox { look, lines, tip: tip.into() });
        let mut from: Vec<usize> = from.iter().map(|from| from.0).filter(|from| *from < id).collect();
        from.sort_unstable();
        from.dedup();
        self.ways.extend(from.into_iter().map(|from| (from, id)));
        BoxId(id)
    }

    /// The whole drawing.
    pub fn svg(&self) -> String {
        draw::svg(self, &layout::place(self))
    }
}

impl LayerBox {
    /// Columns of its longest line.
    fn columns(&self) -> usize {
        self.lines.iter().map(|line| columns(line)).max().unwrap_or(0)
    }
}

/// Columns of a line. Its text is drawn just as wide, whatever its characters and font are.
fn columns(line: &str) -> usize {
    line.chars().count()
}
