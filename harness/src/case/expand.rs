//! One case file: split into front matter and fusions, and expanded into cases.

use super::directive::{self, Raw};
use super::header::{self, CaseAxis, Header};
use super::model::Case;
use super::schedule;
use super::source::{Bindings, CaseError, ExpandedText, Fault, Source, variable};
use engine::diag::code::CASE_LIMIT;
use std::collections::BTreeSet;
use std::ops::Range;

/// Expanded ids of one file.
pub const MAX_IDS_PER_FILE: usize = 4096;
/// Bytes of all cases of one file after substitution.
const MAX_EXPANDED_BYTES: usize = 64 << 20;
/// Fusions of one file, hidden ones with them.
const MAX_BLOCKS: usize = MAX_IDS_PER_FILE;
/// Mistakes of one file that are told.
pub(super) const MAX_FAULTS: usize = 100;
/// Runs of one case on the simulator.
const MAX_SIM_RUNS: usize = 64;
/// Characters of an id.
const MAX_ID_LEN: usize = 200;

/// For which kind of device a file is expanded: `[sim]` replaces axes on the
/// simulator, and the reference follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The simulator or the reference.
    Sim,
    /// A GPU.
    Cuda,
}

/// A fusion of a file with its comments.
struct FusionSource {
    name: String,
    range: Range<usize>,
    directives: Vec<Raw>,
}

impl FusionSource {
    /// Whether it is no case, only what others are the same as.
    fn is_hidden(&self) -> bool {
        self.name.starts_with('_')
    }
}

/// Expands a file. Every error that can be found is reported.
pub(crate) fn expand(source: &Source, target: Target) -> (Vec<Case>, Vec<CaseError>) {
    let mut faults = Vec::new();
    let cases = expand_file(source, target, &mut faults);
    (cases, told(source, faults))
}

/// The first mistakes of a file, each once; the rest are counted.
pub(super) fn told(source: &Source, faults: impl IntoIterator<Item = Fault>) -> Vec<CaseError> {
    let unique: BTreeSet<CaseError> = faults.into_iter().map(|fault| source.error(fault)).collect();
    let count = unique.len();
    // A limit explains the others, wherever it stands.
    let (limits, others): (Vec<_>, Vec<_>) = unique.into_iter().partition(|error| error.code == CASE_LIMIT.0);
    let mut errors: Vec<CaseError> = limits.into_iter().chain(others).take(MAX_FAULTS).collect();
    if count > MAX_FAULTS {
        let message = format!("the file has more mistakes: the first {MAX_FAULTS} of at least {count} are shown");
        errors.push(source.error(Fault::limit(0, message).note("mend these first")));
    }
    errors
}

fn expand_file(source: &Source, target: Target, faults: &mut Vec<Fault>) -> Vec<Case> {
    let Some((front, body)) = split(source, faults) else { return Vec::new() };
    let header = header::parse(&source.text[front.clone()], front.start, faults);
    let mut in_blocks = Vec::new();
    let blocks = blocks(source, body.clone(), &mut in_blocks);
    if blocks.is_empty() {
        faults.push(Fault::header(body.start, "the file has no `fusion @Name(...)`"));
    }
    check_axes_used(source, &header, &blocks, faults);
    check_golden_points(source, &header, &blocks, faults);
    let broken = !faults.is_empty();
    faults.extend(in_blocks);
    if broken {
        // Expansion on top of a broken header would only repeat the same complaint.
        return check_directives(source, &header, &blocks, faults);
    }
    let mut cases = Vec::new();
    let mut bytes = 0;
    check_twins_used(source, &blocks, faults);
    for block in blocks.iter().filter(|block| !block.is_hidden()) {
        let pair = (block, twin(source, &blocks, block));
        let axes = axes_of(source, &header, pair, target);
        let count = axes.iter().try_fold(1usize, |n, axis| n.checked_mul(axis.points.len()));
        if count.is_none_or(|n| n + cases.len() > MAX_IDS_PER_FILE) {
            let message = format!("the file expands to more than {MAX_IDS_PER_FILE} ids");
            faults.push(Fault::limit(block.range.start, message).note("split the file or its axes"));
            return Vec::new();
        }
        // Counted before anything of that size is made: a point is copied for each case.
        bytes += points_bytes(&axes);
        if bytes <= MAX_EXPANDED_BYTES {
            for point in product(&axes) {
                if faults.len() > MAX_FAULTS {
                    return Vec::new();
                }
                let Some(case) = build(source, &header, pair, &point, faults) else { continue };
                bytes += bytes_of(&case);
                if bytes > MAX_EXPANDED_BYTES {
                    break;
                }
                cases.push(case);
            }
        }
        if bytes > MAX_EXPANDED_BYTES {
            let message = format!("the cases of the file have more than {MAX_EXPANDED_BYTES} bytes of text together");
            faults.push(Fault::limit(block.range.start, message).note("split the file or its axes"));
            return Vec::new();
        }
    }
    cases
}

/// Reads every directive once, so that a file's errors come at once even when
/// its header is broken. Directives that use axes are left for the next run.
fn check_directives(source: &Source, header: &Header, blocks: &[FusionSource], faults: &mut Vec<Fault>) -> Vec<Case> {
    let first: Bindings = header.axes.iter().filter_map(|axis| axis.points.first().cloned()).flatten().collect();
    for block in blocks {
        let mut case = Case::default();
        for raw in &block.directives {
            let result = ExpandedText::substitute(source, raw.body.clone(), &first);
            if let Ok(text) = result {
                faults.extend(directive::read(&mut case, raw, &text, source).err());
            }
        }
    }
    Vec::new()
}

/// The ranges of the front matter and of the body.
pub(super) fn split(source: &Source, faults: &mut Vec<Fault>) -> Option<(Range<usize>, Range<usize>)> {
    let mut fences = source.lines(0..source.text.len()).filter(|(_, line)| line.trim_end() == "---").map(|(at, _)| at);
    if fences.next() != Some(0) {
        let fault = Fault::header(0, "the first line must be `---`, the start of the front matter");
        faults.push(fault.note("---\\nversion = 1\\nsuite = \"PointwiseTest\"\\nabout = \"why\"\\n---"));
        return None;
    }
    let Some(end) = fences.next() else {
        faults.push(Fault::header(0, "the front matter is not closed by a second `---` line"));
        return None;
    };
    let start = source.text.find('\n').map_or(0, |i| i + 1);
    let body = source.text[end..].find('\n').map_or(source.text.len(), |i| end + i + 1);
    Some((start..end, body..source.text.len()))
}

/// Cuts the body at lines that start with `fusion @Name`.
fn blocks(source: &Source, body: Range<usize>, faults: &mut Vec<Fault>) -> Vec<FusionSource> {
    let mut blocks: Vec<FusionSource> = Vec::new();
    let mut names = BTreeSet::new();
    let mut schedule = schedule::Block::default();
    for (at, line) in source.lines(body.clone()) {
        if let Some(name) = fusion_name(line) {
            faults.extend(std::mem::take(&mut schedule).end());
            if !names.insert(name.to_string()) {
                faults.push(Fault::header(at, format!("the file has two fusions named `@{name}`")));
            }
            if blocks.len() == MAX_BLOCKS {
                let message = format!("the file has more than {MAX_BLOCKS} fusions");
                faults.push(Fault::limit(at, message).note("split the file"));
                return blocks;
            }
            if let Some(last) = blocks.last_mut() {
                last.range.end = at;
            }
            blocks.push(FusionSource { name: name.to_string(), range: at..body.end, directives: Vec::new() });
        }
        let behind = match schedule.take(at, line) {
            Ok(Some(behind)) if !behind.is_empty() => directive::find(behind.start, &source.text[behind])
                .map(|raw| raw.map(|raw| Raw { alone: false, ..raw })),
            Ok(Some(_)) => None,
            Ok(None) => directive::find(at, line),
            Err(fault) => Some(Err(fault)),
        };
        match (behind, blocks.last_mut()) {
            (None, _) => {}
            (Some(Err(fault)), _) => faults.push(fault),
            (Some(Ok(raw)), Some(block)) => block.directives.push(raw),
            (Some(Ok(raw)), None) => faults.push(
                Fault::directive(raw.body.start, "a directive stands before the first fusion")
                    .note("directives follow the fusion that they belong to"),
            ),
        }
    }
    faults.extend(schedule.end());
    blocks
}

fn fusion_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("fusion")?;
    let name = rest.trim_start().strip_prefix('@')?;
    let len = name.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    (rest.starts_with([' ', '\t']) && len > 0).then(|| &name[..len])
}

fn variables<'a>(source: &'a Source, range: &Range<usize>) -> BTreeSet<&'a str> {
    let text = &source.text[range.clone()];
    text.match_indices('$').filter_map(|(at, _)| variable(&text[at..])).map(|(name, _)| name).collect()
}

fn check_axes_used(source: &Source, header: &Header, blocks: &[FusionSource], faults: &mut Vec<Fault>) {
    let used: BTreeSet<&str> = blocks.iter().flat_map(|block| variables(source, &block.range)).collect();
    for axis in &header.axes {
        if !axis.points.is_empty() && !axis.names().any(|name| used.contains(name)) {
            faults.push(Fault::header(axis.offset, format!("no fusion of the file uses the axis `{}`", axis.name)));
        }
    }
}

/// A text of a point that no axis has would never be compared.
fn check_golden_points(source: &Source, header: &Header, blocks: &[FusionSource], faults: &mut Vec<Fault>) {
    let axes = || header.axes.iter().chain(&header.sim_axes).flat_map(|axis| axis.points.iter().flatten());
    for raw in blocks.iter().flat_map(|block| &block.directives) {
        if !matches!(raw.keyword, "schedule" | "kernel") {
            continue;
        }
        let pairs = source.text[raw.body.clone()].split(',').filter_map(|pair| pair.trim().split_once('='));
        for (name, value) in pairs {
            if !axes().any(|(other, known)| other == name && known == value) {
                let message = format!("no axis `{name}` has the value `{value}`");
                faults.push(Fault::directive(raw.body.start, message));
            }
        }
    }
}

/// The block that the block says it is the same as.
fn twin<'b>(source: &Source, blocks: &'b [FusionSource], block: &FusionSource) -> Option<&'b FusionSource> {
    let raw = block.directives.iter().rfind(|raw| raw.keyword == "same-as")?;
    let name = source.text[raw.body.clone()].trim().strip_prefix('@')?;
    blocks.iter().find(|other| other.name == name)
}

/// A block and the block that it is the same as.
type Pair<'b> = (&'b FusionSource, Option<&'b FusionSource>);

/// A hidden fusion that nothing is the same as would never be looked at.
fn check_twins_used(source: &Source, blocks: &[FusionSource], faults: &mut Vec<Fault>) {
    let twins: BTreeSet<&str> =
        blocks.iter().filter_map(|block| twin(source, blocks, block)).map(|twin| twin.name.as_str()).collect();
    for block in blocks.iter().filter(|block| block.is_hidden()) {
        if !twins.contains(block.name.as_str()) {
            let message = format!("`@{}` is no case, and no fusion is the same as it", block.name);
            faults.push(Fault::header(block.range.start, message).note("a name without `_` in front makes it a case"));
        }
    }
}

/// The axes that a block, or its twin, mentions: the others would only repeat it.
fn axes_of<'h>(source: &Source, header: &'h Header, (block, twin): Pair<'_>, target: Target) -> Vec<&'h CaseAxis> {
    let mut used = variables(source, &block.range);
    used.extend(twin.iter().flat_map(|twin| variables(source, &twin.range)));
    let replaced = |axis: &'h CaseAxis| match target {
        Target::Sim => header.sim_axes.iter().find(|other| other.name == axis.name).unwrap_or(axis),
        Target::Cuda => axis,
    };
    header.axes.iter().map(replaced).filter(|axis| axis.names().any(|name| used.contains(name))).collect()
}

/// The points of the cartesian product, the last axis fastest.
fn product(axes: &[&CaseAxis]) -> Vec<Bindings> {
    let mut points: Vec<Bindings> = vec![Vec::new()];
    for axis in axes {
        points = points
            .iter()
            .flat_map(|point| axis.points.iter().map(move |more| [point.as_slice(), more.as_slice()].concat()))
            .collect();
    }
    points
}

/// Bytes of all points of a product: an axis of `k` points with `b` bytes in all
/// stands in `count / k * b` bytes.
fn points_bytes(axes: &[&CaseAxis]) -> usize {
    let count: usize = axes.iter().map(|axis| axis.points.len()).product();
    let bytes_in =
        |axis: &CaseAxis| axis.points.iter().flatten().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    axes.iter().map(|axis| count / axis.points.len().max(1) * bytes_in(axis)).sum()
}

/// Bytes of the texts that each case has for itself.
pub(super) fn bytes_of(case: &Case) -> usize {
    let twin = case.same_as.as_ref().map_or(0, |same| same.text.len());
    let schedule = case.schedule.as_ref().map_or(0, String::len);
    case.id.len()
        + case.text.len()
        + schedule
        + twin
        + case.about.len()
        + case.tags.iter().map(String::len).sum::<usize>()
}

fn build(
    source: &Source,
    header: &Header,
    (block, twin): Pair<'_>,
    point: &Bindings,
    faults: &mut Vec<Fault>,
) -> Option<Case> {
    let text = match ExpandedText::substitute(source, block.range.clone(), point) {
        Ok(text) => text.text,
        Err(fault) => {
            faults.push(fault);
            return None;
        }
    };
    let mut case = Case {
        id: id(&header.suite, &block.name, point),
        suite: header.suite.clone(),
        name: block.name.clone(),
        tags: header.tags.clone(),
        about: header.about.clone(),
        file: source.display.clone(),
        line: source.line(block.range.start),
        schedule: schedule::of_text(&text),
        text,
        timeout_ms: header.timeout_ms,
        require: header.require.clone(),
        ..Case::default()
    };
    if case.id.len() > MAX_ID_LEN {
        faults.push(Fault::limit(
            block.range.start,
            format!("the id has {} characters, more than {MAX_ID_LEN}: {}", case.id.len(), case.id),
        ));
        return None;
    }
    // A case with a directive that is wrong is kept: its text can be read, and is not run.
    for raw in &block.directives {
        let read = ExpandedText::substitute(source, raw.body.clone(), point)
            .and_then(|text| directive::read(&mut case, raw, &text, source));
        faults.extend(read.err());
    }
    faults.extend(fill_twin(&mut case, source, (block, twin), point).err());
    faults.extend(contradiction(&case, block));
    let runs = case.sim.runs();
    if runs > MAX_SIM_RUNS {
        let at = directive_place(block, "sim");
        let message = format!("the case asks for {runs} simulated runs, more than {MAX_SIM_RUNS}");
        faults.push(Fault::limit(at, message).note("a run is one seed of one schedule; lockstep has one seed"));
        return None;
    }
    Some(case)
}

/// Gives a case that is the same as another its twin's text.
fn fill_twin(case: &mut Case, source: &Source, (block, twin): Pair<'_>, point: &Bindings) -> Result<(), Fault> {
    let Some(same) = &mut case.same_as else { return Ok(()) };
    let Some(twin) = twin.filter(|twin| twin.name != block.name) else {
        let message = format!("the file has no other fusion `@{}`", same.name);
        return Err(Fault::directive(directive_place(block, "same-as"), message));
    };
    same.text = ExpandedText::substitute(source, twin.range.clone(), point)?.text;
    same.text_line = source.line(twin.range.start);
    Ok(())
}

/// Where a block has a directive, or where it starts.
fn directive_place(block: &FusionSource, keyword: &str) -> usize {
    block.directives.iter().rfind(|raw| raw.keyword == keyword).map_or(block.range.start, |raw| raw.body.start)
}

/// Directives that could never hold together.
fn contradiction(case: &Case, block: &FusionSource) -> Option<Fault> {
    let results = !(case.outputs.is_empty() && case.values.is_empty() && case.same_as.is_none());
    let fault = |keyword, message| Some(Fault::directive(directive_place(block, keyword), message));
    if !case.refusals().is_empty() && results {
        return fault("error", "a case that must be refused has no results to speak of");
    }
    None
}

/// `Suite.Name/axis=value,...`; names that start with `_` are left out.
fn id(suite: &str, name: &str, point: &Bindings) -> String {
    let shown: Vec<String> =
        point.iter().filter(|(key, _)| !key.starts_with('_')).map(|(key, value)| format!("{key}={value}")).collect();
    let slash = if shown.is_empty() { "" } else { "/" };
    format!("{suite}.{name}{slash}{}", shown.join(","))
}
