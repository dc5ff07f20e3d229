//! The front matter of a case file: TOML between two `---` lines.
//!
//! ```toml
//! version = 1                     # required
//! suite   = "PointwiseTest"       # required; letters, digits, _
//! tags    = ["resize"]
//! about   = "why these cases exist"  # required
//! [axes]                          # cartesian product, in this order
//! dtype = ["f32", "bf16"]
//! size  = [{ m = 123, n = 1024 }, { m = 1, n = 7 }]   # zipped; `_hidden` keys stay out of the id
//! [sim]                           # replaces axes of the same name on the simulator
//! size  = [{ m = 5, n = 33 }]
//! [limits]
//! timeout = "60s"
//! [require]
//! device = ["cuda"]               # sim, cuda
//! arch = 90
//! memory = "2GiB"
//! ```

use super::expand::MAX_IDS_PER_FILE;
use super::model::Require;
use super::source::{Bindings, Fault, suggest};
use crate::escape::short;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// How many errors of one front matter are reported.
const MAX_ERRORS: usize = 100;
/// Axes of a file.
const MAX_AXES: usize = 64;
/// Characters of a tag.
const MAX_TAG: usize = 60;

type HeaderEntry<'a, 'i> = (&'a str, usize, &'a Spanned<DeValue<'i>>);

/// What the front matter says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Header {
    pub(crate) suite: String,
    pub(crate) tags: Vec<String>,
    pub(crate) about: String,
    pub(crate) axes: Vec<CaseAxis>,
    pub(crate) sim_axes: Vec<CaseAxis>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) require: Require,
}

/// An axis: its points, each of which binds one or more names.
#[derive(Clone, Debug)]
pub(crate) struct CaseAxis {
    pub(crate) name: String,
    pub(crate) offset: usize,
    pub(crate) points: Vec<Bindings>,
}

impl CaseAxis {
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.points.first().into_iter().flatten().map(|(name, _)| name.as_str())
    }
}

/// Reads the front matter; `base` is its offset in the file. All faults are
/// collected; the header is what could be read.
pub(crate) fn parse(text: &str, base: usize, faults: &mut Vec<Fault>) -> Header {
    let (table, errors) = DeTable::parse_recoverable(text);
    let count = errors.len();
    for error in errors.into_iter().take(MAX_ERRORS) {
        let at = base + error.span().map_or(0, |span| span.start);
        faults.push(Fault::header(at, error.message().lines().next().unwrap_or("malformed TOML").to_lowercase()));
    }
    if count > MAX_ERRORS {
        faults
            .push(Fault::header(base, format!("{count} errors in the front matter: the first {MAX_ERRORS} are shown")));
    }
    let mut reader = Reader { base, faults };
    reader.header(table.get_ref())
}

struct Reader<'f> {
    base: usize,
    faults: &'f mut Vec<Fault>,
}

impl Reader<'_> {
    fn fault(&mut self, offset: usize, message: impl Into<String>) {
        self.faults.push(Fault::header(offset, message));
    }

    /// The entries of a table in the order in which they stand in the file.
    fn entries<'a, 'i>(&self, table: &'a DeTable<'i>) -> Vec<HeaderEntry<'a, 'i>> {
        let mut entries: Vec<HeaderEntry<'a, 'i>> =
            table.iter().map(|(key, value)| (name(key), self.base + key.span().start, value)).collect();
        entries.sort_by_key(|entry| entry.1);
        entries
    }

    fn at(&self, value: &Spanned<DeValue<'_>>) -> usize {
        self.base + value.span().start
    }

    fn unknown(&mut self, at: usize, what: &str, key: &str, known: &[&str]) {
        let hint = suggest(key, known.iter().copied());
        self.faults.push(Fault::header(at, format!("unknown {what} `{key}`")).note(hint));
    }

    fn header(&mut self, table: &DeTable<'_>) -> Header {
        let known = ["version", "suite", "tags", "about", "axes", "sim", "limits", "require"];
        let mut header = Header::default();
        let mut version = None;
        for (key, at, value) in self.entries(table) {
            match key {
                "version" => version = self.integer(value),
                "suite" => header.suite = self.string(value).unwrap_or_default(),
                "about" => header.about = self.plain(value).unwrap_or_default(),
                "tags" => header.tags = self.tags(value),
                "axes" => header.axes = self.axes(value),
                "sim" => header.sim_axes = self.axes(value),
                "limits" => self.limits(value, &mut header),
                "require" => self.require(value, &mut header.require),
                _ => self.unknown(at, "field", key, &known),
            }
        }
        match version {
            Some(1) => {}
            Some(v) => {
                self.fault(self.base, format!("case format version {v} is not known; this harness reads version 1"))
            }
            None => self.fault(self.base, "`version = 1` is missing"),
        }
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if header.suite.is_empty() {
            self.fault(self.base, "`suite = \"...\"` is missing");
        } else if !header.suite.chars().all(legal) {
            self.fault(self.base, format!("the suite name `{}` may hold only letters, digits and `_`", header.suite));
        }
        if header.about.trim().is_empty() {
            self.fault(self.base, "`about = \"...\"` is missing: say why these cases exist");
        }
        self.check_overrides(&header);
        header
    }

    /// `[sim]` may only replace axes that exist, and must bind the same names.
    fn check_overrides(&mut self, header: &Header) {
        for axis in &header.sim_axes {
            match header.axes.iter().find(|other| other.name == axis.name) {
                None => {
                    let names: Vec<&str> = header.axes.iter().map(|other| other.name.as_str()).collect();
                    self.unknown(axis.offset, "axis in [sim]", &axis.name, &names);
                }
                Some(other) if !other.names().eq(axis.names()) => {
                    self.fault(axis.offset, format!("axis `{}` binds other names in [sim] than in [axes]", axis.name));
                }
                Some(_) => {}
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        for axis in &header.axes {
            for name in axis.names() {
                if !seen.insert(name) {
                    self.fault(axis.offset, format!("the name `{name}` is bound by two axes"));
                }
            }
        }
    }

    fn axes(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<CaseAxis> {
        let Some(table) = self.table(value) else { return Vec::new() };
        let mut axes = Vec::new();
        if table.len() > MAX_AXES {
            let message = format!("the file has {} axes, more than {MAX_AXES}", table.len());
            self.faults.push(Fault::limit(self.at(value), message).note("split the file or its axes"));
            return axes;
        }
        for (key, offset, value) in self.entries(table) {
            let points = self.points(key, offset, value);
            axes.push(CaseAxis { name: key.to_string(), offset, points });
        }
        axes
    }

    fn points(&mut self, key: &str, offset: usize, value: &Spanned<DeValue<'_>>) -> Vec<Bindings> {
        let Some(items) = value.get_ref().as_array() else {
            self.fault(self.at(value), format!("axis `{key}` must be an array of values or of tables"));
            return Vec::new();
        };
        if items.is_empty() {
            self.fault(offset, format!("axis `{key}` has no values"));
        }
        if items.len() > MAX_IDS_PER_FILE {
            let message =
                format!("axis `{key}` has {} values, more than the {MAX_IDS_PER_FILE} ids of a file", items.len());
            self.faults.push(Fault::limit(offset, message).note("split the file or its axes"));
            return Vec::new();
        }
        let mut points: Vec<Bindings> = Vec::new();
        for item in items.iter() {
            let before = self.faults.len();
            let point = match item.get_ref().as_table() {
                Some(table) => {
                    let entries = self.entries(table);
                    entries.into_iter().filter_map(|(k, at, v)| self.binding(k, at, v)).collect()
                }
                None => self.binding(key, self.at(item), item).into_iter().collect::<Bindings>(),
            };
            if self.faults.len() > before {
                continue;
            }
            let names = |p: &Bindings| p.iter().map(|(k, _)| k.clone()).collect::<Vec<_>>();
            if points.first().is_some_and(|first| names(first) != names(&point)) {
                let first = names(&points[0]).join(", ");
                self.fault(
                    self.at(item),
                    format!("the points of axis `{key}` must bind the same names in one order: {first}"),
                );
            } else if point.is_empty() {
                self.fault(self.at(item), format!("a point of axis `{key}` binds nothing"));
            } else {
                points.push(point);
            }
        }
        points
    }

    fn binding(&mut self, key: &str, at: usize, value: &Spanned<DeValue<'_>>) -> Option<(String, String)> {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(flag) => flag.to_string(),
            other => {
                self.fault(
                    self.at(value),
                    format!("`{key}` must be a string, a number or a truth value, not {}", other.type_str()),
                );
                return None;
            }
        };
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if key.is_empty() || !key.chars().all(word) {
            self.fault(at, format!("the axis name `{key}` may hold only letters, digits and `_`"));
            return None;
        }
        if text.contains(['\n', '\r']) {
            self.fault(
                self.at(value),
                format!("the value of `{key}` holds a line break, which would shift the places of errors"),
            );
            return None;
        }
        let legal = |c: char| word(c) || matches!(c, '.' | '+' | '-');
        if !key.starts_with('_') && (text.is_empty() || !text.chars().all(legal)) {
            self.faults.push(
                Fault::header(self.at(value), format!("the value `{text}` of `{key}` cannot stand in a case id"))
                    .note("use letters, digits and `_.+-`, or a key that starts with `_`, which stays out of the id"),
            );
            return None;
        }
        Some((key.to_string(), text))
    }

    fn limits(&mut self, value: &Spanned<DeValue<'_>>, header: &mut Header) {
        let Some(table) = self.table(value) else { return };
        for (key, at, value) in self.entries(table) {
            match key {
                "timeout" => {
                    let text = self.string(value).unwrap_or_default();
                    match crate::units::duration_ms(&text) {
                        Some(ms) if ms > 0 => header.timeout_ms = Some(ms),
                        _ => self
                            .fault(self.at(value), format!("`{text}` is not a duration such as \"60s\" or \"500ms\"")),
                    }
                }
                _ => self.unknown(at, "limit", key, &["timeout"]),
            }
        }
    }

    fn require(&mut self, value: &Spanned<DeValue<'_>>, require: &mut Require) {
        let Some(table) = self.table(value) else { return };
        for (key, at, value) in self.entries(table) {
            match key {
                "device" => {
                    require.device = self.strings(value);
                    let known = ["sim", "cuda", "ref"];
                    for name in require.device.clone() {
                        if !known.contains(&name.as_str()) {
                            self.unknown(self.at(value), "device", &name, &known);
                        }
                    }
                }
                "arch" => match self.integer(value) {
                    Some(arch @ 1..=999) => require.arch = u32::try_from(arch).ok(),
                    Some(arch) => {
                        self.fault(self.at(value), format!("`arch = {arch}` is no compute capability such as 90"))
                    }
                    None => {}
                },
                "memory" => {
                    let text = self.string(value).unwrap_or_default();
                    require.memory = crate::units::bytes(&text);
                    if require.memory.is_none() {
                        self.fault(self.at(value), format!("`{text}` is not an amount of memory such as \"2GiB\""));
                    }
                }
                "gpus" => {
                    require.gpus = self.integer(value).and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
                    if require.gpus.is_none() {
                        self.fault(self.at(value), "`gpus` is a number of devices, from 1");
                    }
                }
                _ => self.unknown(at, "requirement", key, &["device", "arch", "memory", "gpus"]),
            }
        }
    }

    fn table<'a, 'i>(&mut self, value: &'a Spanned<DeValue<'i>>) -> Option<&'a DeTable<'i>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.fault(self.at(value), format!("expected a table, found {}", value.get_ref().type_str()));
        }
        table
    }

    fn string(&mut self, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let text = value.get_ref().as_str().map(String::from);
        if text.is_none() {
            self.fault(self.at(value), format!("expected a string, found {}", value.get_ref().type_str()));
        }
        text
    }

    /// A string without control characters: it is printed as it is.
    fn plain(&mut self, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let text = self.string(value)?;
        if let Some(c) = text.chars().find(|c| c.is_control() && *c != '\n') {
            self.fault(self.at(value), format!("the text holds the control character {c:?}"));
        }
        Some(text)
    }

    /// Words to select by.
    fn tags(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<String> {
        let tags = self.strings(value);
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        for tag in &tags {
            if tag.is_empty() || tag.len() > MAX_TAG || !tag.chars().all(legal) {
                let message = format!("the tag `{}` is not up to {MAX_TAG} letters, digits and `_-.`", short(tag));
                self.fault(self.at(value), message);
            }
        }
        tags
    }

    fn strings(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<String> {
        match value.get_ref().as_array() {
            Some(items) => items.iter().filter_map(|item| self.string(item)).collect(),
            None => {
                self.fault(
                    self.at(value),
                    format!("expected an array of strings, found {}", value.get_ref().type_str()),
                );
                Vec::new()
            }
        }
    }

    fn integer(&mut self, value: &Spanned<DeValue<'_>>) -> Option<i64> {
        let number = value.get_ref().as_integer().and_then(|n| i64::from_str_radix(n.as_str(), n.radix()).ok());
        if number.is_none() {
            self.fault(self.at(value), format!("expected an integer, found {}", value.get_ref().type_str()));
        }
        number
    }
}

fn name<'a>(key: &'a Spanned<DeString<'_>>) -> &'a str {
    key.get_ref().as_ref()
}
