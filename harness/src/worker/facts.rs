//! Facts of a compiled fusion, and the expectations of a case about them.

use super::nameless;
use crate::case::{Case, Expect, Relation, TextSpec};
use crate::outcome::{Bless, Digest};
use crc32fast::Hasher;
use engine::backend::cuda::{emit, nvrtc::NvrtcOptions};
use engine::compile::Plan;
use engine::kernel::{BoundLaunch, Scope, Stmt, StmtKind};
use engine::program::{Launch, Program, Step};
use engine::runtime::results_digest;
use engine::tensor::HostTensor;
use std::collections::BTreeMap;

/// The facts of [`crate::case::FACTS`]: those of a kernel are known where it is the only one.
pub(super) fn gather(program: &Program) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let segments = &program.segments.segments;
    let of = |name: &str| segments.iter().filter(|segment| segment.kind.name() == name).count();
    let counts = [
        ("segments", segments.len()),
        ("views", of("view")),
        ("joined", of("joined")),
        ("copies", program.steps.iter().filter(|step| matches!(step, Step::Copy(_))).count()),
        ("aliases", program.aliases()),
        ("kernels", program.launches().count()),
        ("library", program.library_calls().count()),
        ("host", program.on_host().count()),
    ];
    facts.extend(counts.map(|(name, count)| (name.to_string(), count.to_string())));
    if let (Some(Launch { plan, launch, .. }), 1) = (program.launches().next(), segments.len()) {
        of_kernel(plan, launch, &mut facts);
    }
    facts
}

fn of_kernel(plan: &Plan, launch: &BoundLaunch, facts: &mut BTreeMap<String, String>) {
    let kernel = plan.kernel();
    let mut counts = Counts::default();
    counts.walk(&kernel.body);
    let mut put = |name: &str, value: String| facts.insert(name.to_string(), value);
    put("scheduler", plan.scheduler().into());
    put("index", (kernel.index_type.bytes() * 8).to_string());
    put("vector", counts.vector.max(1).to_string());
    put("barriers", counts.barriers.to_string());
    put("shared", launch.shared_bytes.to_string());
    put("threads", launch.threads().to_string());
    put("blocks", launch.blocks().to_string());
}

#[derive(Default)]
struct Counts {
    vector: u32,
    barriers: u32,
}

impl Counts {
    fn walk(&mut self, block: &[Stmt]) {
        for stmt in block {
            match &stmt.kind {
                StmtKind::Move { lanes, .. } | StmtKind::CopyAsync { lanes, .. } => {
                    self.vector = self.vector.max(*lanes)
                }
                StmtKind::Sync(Scope::Block) => self.barriers += 1,
                StmtKind::For { body, .. } => self.walk(body),
                StmtKind::If { then, otherwise, .. } => {
                    self.walk(then);
                    self.walk(otherwise);
                }
                _ => {}
            }
        }
    }
}

/// The expectations that do not hold, and their rewritten form.
pub(super) fn check(case: &Case, facts: &BTreeMap<String, String>) -> (Vec<String>, Vec<Bless>) {
    let (mut broken, mut bless) = (Vec::new(), Vec::new());
    for expect in &case.expects {
        let Some(value) = facts.get(&expect.fact) else {
            broken.push(format!(
                "{}:{}: `{}` is not known: it is of a kernel that is the whole",
                case.file, expect.line, expect.fact
            ));
            continue;
        };
        if holds(expect, value) {
            continue;
        }
        let wanted = expect.values.join(", ");
        broken.push(format!(
            "{}:{}: {} is {value}, expected {} {wanted}",
            case.file,
            expect.line,
            expect.fact,
            sign(expect.op)
        ));
        if expect.op == Relation::Eq {
            bless.push(Bless { line: expect.line, key: expect.fact.clone(), old: wanted, new: value.clone() });
        }
    }
    (broken, bless)
}

fn holds(expect: &Expect, value: &str) -> bool {
    let equal = |wanted: &String| match (wanted.parse::<i64>(), value.parse::<i64>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => wanted == value,
    };
    let order = || Some(value.parse::<i64>().ok()?.cmp(&expect.values.first()?.parse::<i64>().ok()?));
    match expect.op {
        Relation::Eq | Relation::In => expect.values.iter().any(equal),
        Relation::Ne => !expect.values.iter().any(equal),
        Relation::Lt => order().is_some_and(|o| o.is_lt()),
        Relation::Le => order().is_some_and(|o| o.is_le()),
        Relation::Gt => order().is_some_and(|o| o.is_gt()),
        Relation::Ge => order().is_some_and(|o| o.is_ge()),
    }
}

fn sign(op: Relation) -> &'static str {
    match op {
        Relation::Eq => "=",
        Relation::Ne => "!=",
        Relation::Lt => "<",
        Relation::Le => "<=",
        Relation::Gt => ">",
        Relation::Ge => ">=",
        Relation::In => "in",
    }
}

/// The conditions on texts that do not hold. `text_of` gives a stage's text.
pub(super) fn check_texts(case: &Case, text_of: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut broken = Vec::new();
    for TextSpec { line, stage, present, text } in &case.texts {
        match text_of(stage) {
            None => broken.push(format!("{}:{line}: there is no {stage} text to look into", case.file)),
            Some(whole) if squeeze(&whole).contains(&squeeze(text)) == *present => {}
            Some(_) if *present => {
                broken.push(format!("{}:{line}: the {stage} text does not have \"{text}\"", case.file))
            }
            Some(_) => broken.push(format!("{}:{line}: the {stage} text has \"{text}\"", case.file)),
        }
    }
    broken
}

/// The CRC of the texts of all kernels, which shows when generated code changed;
/// nothing where there is no kernel.
pub(super) fn kernel_crc(program: &Program) -> Option<u32> {
    let mut crc = None;
    for launch in program.launches() {
        crc.get_or_insert_with(Hasher::new).update(launch.plan.kernel_text().as_bytes());
    }
    crc.map(Hasher::finalize)
}

/// The digest of all that decides what the device does: the CUDA text of each kernel, how it is compiled and launched and with
/// which numbers, and the steps with types, sizes, strides and places of their values. Of two that are equal the machine code is,
/// if one compiler made it. The names of kernels are left out: they hold a digest of what they were printed from.
pub(super) fn code_digest(program: &Program) -> Digest {
    let (mut parts, mut steps) = (Vec::new(), program.to_string());
    for launch in program.launches() {
        let source = emit(launch.plan.kernel());
        let BoundLaunch { grid, block, params, shared_bytes, .. } = &launch.launch;
        let numbers = format!("{grid:?} {block:?} {shared_bytes} {} {params:?}", source.cooperative);
        parts.extend([nameless(&launch.plan, &source.text()), numbers]);
        steps = nameless(&launch.plan, &steps);
    }
    // Of any device and version: what a build always passes.
    parts.extend([steps, NvrtcOptions::new((9, 0), true).flags((13, 0)).join(" ")]);
    Digest::of_all(parts.iter().map(|part| Digest::of(part.as_bytes())))
}

/// The digest of results: their types, sizes and strides, and their bytes.
pub(super) fn out_digest<'a>(outputs: impl IntoIterator<Item = &'a HostTensor>) -> Digest {
    Digest(results_digest(outputs).0)
}
