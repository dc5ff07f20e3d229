//! What the compiler makes of a case now: texts and launch of each kernel, why an
//! operation is on the host, or the refusal.

use super::list::{KernelRow, ListEntry};
use crate::case::Case;
use crate::outcome::Bless;
use crate::worker;
use engine::backend::cuda::emit;
use engine::compile::Plan;
use engine::kernel::BoundLaunch;
use engine::options::DeviceDesc;
use engine::program::{Launch, Program};
use engine::runtime::Session;
use engine::segment::SegmentKind;
use engine::util::Hash128;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A case with what became of it.
#[derive(Clone, Debug)]
pub(crate) struct CompiledCase {
    /// Of each segment in order; of a case that is refused, one.
    pub(crate) entries: Vec<ListEntry>,
    program: Option<Arc<Program>>,
}

impl CompiledCase {
    /// How the texts in the case's file would have to be rewritten, if it compiles.
    pub(crate) fn goldens(&self, case: &Case) -> Option<Vec<Bless>> {
        self.program.as_deref().map(|program| worker::check_goldens(case, program, &DeviceDesc::h200()).1)
    }

    /// The whole CUDA text of each kernel.
    pub(crate) fn cuda_texts(&self) -> impl Iterator<Item = String> {
        let launches = self.program.iter().flat_map(|program| program.launches());
        launches.map(|launch| cuda_text(&launch.plan))
    }
}

/// Compiles cases on all cores; results in the order of the cases. Nothing runs.
pub(crate) fn compile(cases: &[Case], session: &Session) -> Vec<CompiledCase> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(i) else { return };
            let compiled = one(case, session);
            done.lock().unwrap_or_else(PoisonError::into_inner).insert(i, compiled);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(work);
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

fn one(case: &Case, session: &Session) -> CompiledCase {
    match worker::program(case, session) {
        Ok(program) => {
            let mut launches = program.launches();
            let entries = program.segments.segments.iter().filter_map(|segment| match &segment.kind {
                SegmentKind::View | SegmentKind::Joined => Some(ListEntry::View),
                SegmentKind::Library(part) => Some(ListEntry::Library(part.found.to_string())),
                SegmentKind::Host(why) => Some(ListEntry::Host(why.code.0.into())),
                SegmentKind::Kernel(_) => launches.next().map(kernel_row).map(ListEntry::Kernel),
            });
            CompiledCase { entries: entries.collect(), program: Some(program.clone()) }
        }
        Err(refused) => {
            let codes: Vec<&str> = refused.iter().map(|diagnostic| diagnostic.code.0).collect();
            CompiledCase { entries: vec![ListEntry::Refused(codes.join(" "))], program: None }
        }
    }
}

fn kernel_row(launch: &Launch) -> KernelRow {
    let plan = &launch.plan;
    KernelRow {
        scheduler: plan.scheduler().into(),
        parameters: plan.params_text().into(),
        launch: launch_text(plan, &launch.launch),
        kernel: digest(&worker::nameless(plan, plan.kernel_text())),
        cuda: digest(&cuda_text(plan)),
    }
}

/// Grid, block, bytes of shared memory, and whether all blocks are resident at once.
fn launch_text(plan: &Plan, launch: &BoundLaunch) -> String {
    let shape = |[x, y, z]: [u32; 3]| format!("{x}x{y}x{z}");
    let cooperative = if emit(plan.kernel()).cooperative { " cooperative" } else { "" };
    let (grid, block) = (shape(launch.grid), shape(launch.block));
    format!("grid {grid} block {block} shared {}{cooperative}", launch.shared_bytes)
}

fn cuda_text(plan: &Plan) -> String {
    worker::nameless(plan, &emit(plan.kernel()).text())
}

/// 16 hex digits: two texts of a corpus of thousands do not meet.
pub(super) fn digest(text: &str) -> String {
    format!("{:016x}", (Hash128::of(text.as_bytes()).0 >> 64) as u64)
}
