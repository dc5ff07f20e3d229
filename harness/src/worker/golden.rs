//! The texts of stages that stand in a case file, held to those of a program: of its
//! kernels one after the other.

use crate::case::{Case, Golden};
use crate::outcome::Bless;
use engine::compile::Plan;
use engine::kernel::{self, Kernel};
use engine::options::DeviceDesc;
use engine::program::{Launch, Program};
use engine::schedule::scheduled_tensors;
use engine::text;

/// The texts that are others, in words, and their rewritten form. Schedules are made for a device: a program for
/// another than the simulator's is held to nothing.
pub(crate) fn check(case: &Case, program: &Program, device: &DeviceDesc) -> (Vec<String>, Vec<Bless>) {
    let (mut broken, mut bless) = (Vec::new(), Vec::new());
    if device.name != DeviceDesc::h200().name {
        return (broken, bless);
    }
    for Golden { line, stage, text } in &case.goldens {
        let own = text_of(program, stage);
        if own == *text {
            continue;
        }
        let difference = first_difference(text, &own);
        broken.push(format!("{}:{line}: the {stage} is another\n{difference}", case.file));
        bless.push(Bless { line: *line, key: stage.clone(), old: text.clone(), new: own });
    }
    (broken, bless)
}

fn text_of(program: &Program, stage: &str) -> String {
    let of_kernel = |plan: &Plan| match stage {
        "schedule" => schedule_text(plan),
        _ => nameless(plan, plan.kernel_text()),
    };
    let text = of_kernels(program, of_kernel);
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A text of each kernel; of several, with the number of its segment before it.
pub(super) fn of_kernels(program: &Program, text: impl Fn(&Plan) -> String) -> String {
    if let Some(launch) = program.one_kernel() {
        return text(&launch.plan);
    }
    let kernels =
        program.launches().map(|launch| format!(";; {}\n{}\n", of_launch(launch), text(&launch.plan).trim_end()));
    kernels.collect()
}

/// What a kernel does in a program of several.
fn of_launch(launch: &Launch) -> String {
    format!("segment {}", launch.segment)
}

/// Heuristic, its parameters, and the steps.
pub(super) fn schedule_text(plan: &Plan) -> String {
    format!("scheduler {}\n{}\n{}", plan.scheduler(), plan.params_text(), plan.schedule_text())
}

/// The schedule as a block that a case may have, below who made it and his parameters; then the
/// fusion that it schedules, and what the steps make of its tensors.
pub(super) fn schedule_in_full(plan: &Plan) -> String {
    let head = format!("scheduler {}\n{}", plan.scheduler(), plan.params_text());
    let head = head.lines().map(|line| format!(";; {line}\n"));
    if plan.is_written() {
        return format!("{};; the kernel is written whole, and follows no schedule\n", head.collect::<String>());
    }
    let steps = plan.schedule_text().lines().map(|step| format!(";   {step}\n"));
    let tensors = scheduled_tensors(plan.fusion(), plan.schedule_text()).unwrap_or_else(|refused| refused.to_string());
    let below = format!("{}{tensors}", text::print(plan.fusion()));
    let below = below.lines().map(|line| format!(";; {line}\n"));
    format!(
        "{}; schedule {{\n{}; }}\n{}",
        head.collect::<String>(),
        steps.collect::<String>(),
        below.collect::<String>()
    )
}

/// A text of a plan's kernel. Its name ends with a hash of all the rest, so that
/// whatever changes would change every line that names it too: it is left out.
pub(crate) fn nameless(plan: &Plan, text: &str) -> String {
    let name = &plan.kernel().name;
    text.replace(name.as_str(), name.rsplit_once('_').map_or(name, |(head, _)| head))
}

/// Whether a kernel is that of a plan, but for its name.
pub(super) fn is_same_kernel(plan: &Plan, other: &Kernel) -> bool {
    let bare = |text: &str, kernel: &Kernel| text.replace(kernel.name.as_str(), "");
    bare(plan.kernel_text(), plan.kernel()) == bare(&kernel::print(other), other)
}

/// The first lines that are not the same; `harness kernels` shows all.
fn first_difference(wanted: &str, got: &str) -> String {
    let (mut a, mut b) = (wanted.lines(), got.lines());
    let mut number = 1;
    loop {
        match (a.next(), b.next()) {
            (x, y) if x == y && x.is_some() => number += 1,
            (x, y) => {
                let side =
                    |sign: char, line: Option<&str>| line.map_or(String::new(), |line| format!("\n{sign}{line}"));
                return format!("line {number}:{}{}", side('-', x), side('+', y));
            }
        }
    }
}
