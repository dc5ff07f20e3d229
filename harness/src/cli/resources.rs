//! What compiled kernels take of a multiprocessor, as a table: a row for each
//! case, so that two versions of the compiler compare line by line.
//!
//! In: kernels with the assembler's figures. Out: CSV. Invariant: rows stand by
//! case id, and equal kernels give equal rows whichever case was compiled.

use engine::backend::cuda::nvrtc::Resources;
use engine::compile::Plan;
use engine::kernel::shared_layout;
use engine::options::DeviceDesc;

/// A row: a case and what its kernel takes.
#[derive(serde::Serialize)]
struct Row<'a> {
    case: &'a str,
    kernel: &'a str,
    scheduler: &'a str,
    /// Threads of a block.
    threads: u32,
    /// Blocks that should fit a multiprocessor, by the launch bounds.
    min_blocks: u32,
    registers: u32,
    spill_stores: u32,
    spill_loads: u32,
    stack_bytes: u32,
    /// Shared memory of a block in bytes.
    shared_bytes: u32,
    /// Blocks that do fit a multiprocessor.
    resident_blocks: u32,
    resident_threads: u32,
    params: &'a str,
}

/// The table of the given kernels, each with the cases that run it.
pub(super) fn table<'a>(
    device: &DeviceDesc,
    kernels: impl Iterator<Item = (&'a [String], &'a Plan, Resources)>,
) -> Result<Vec<u8>, csv::Error> {
    let mut rows: Vec<Row<'_>> = kernels.flat_map(|(cases, plan, found)| rows(device, cases, plan, found)).collect();
    rows.sort_by_key(|row| row.case);
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    writer.into_inner().map_err(|error| error.into_error().into())
}

fn rows<'a>(device: &DeviceDesc, cases: &'a [String], plan: &'a Plan, found: Resources) -> Vec<Row<'a>> {
    let kernel = plan.kernel();
    let threads = kernel.launch.max_threads;
    // A kernel whose shared memory has no constant size does not get here.
    let shared_bytes = shared_layout(kernel).map_or(0, |(_, bytes)| bytes);
    let resident_blocks = device.resident_blocks(threads, found.registers, shared_bytes);
    let row = |case: &'a String| Row {
        case,
        kernel: &kernel.name,
        scheduler: plan.scheduler(),
        threads,
        min_blocks: kernel.launch.min_blocks,
        registers: found.registers,
        spill_stores: found.spill_stores,
        spill_loads: found.spill_loads,
        stack_bytes: found.stack_bytes,
        shared_bytes,
        resident_blocks,
        resident_threads: resident_blocks * threads,
        params: plan.params_text(),
    };
    cases.iter().map(row).collect()
}
