//! Chooses the quietest GPUs, and says why.

use super::nvml::Gpu;
use crate::units::show_bytes;

/// A chosen GPU and the reason in words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) gpu: Gpu,
    pub(crate) why: String,
}

/// Memory within this of each other counts as equal: a driver keeps some for itself.
const MEMORY_GRAIN: u64 = 256 << 20;

/// The `count` quietest of `gpus`, in the order of their index. Compared by, in
/// this order: uncorrected ECC errors, an exclusive or prohibited mode, foreign
/// processes, memory in use, utilisation, clock events, temperature.
pub(crate) fn quietest(gpus: &[Gpu], count: usize) -> Vec<Choice> {
    let mut ranked: Vec<&Gpu> = gpus.iter().filter(|gpu| !prohibited(gpu)).collect();
    ranked.sort_by_key(|gpu| {
        (
            gpu.ecc_uncorrected.unwrap_or(0),
            gpu.procs.as_ref().map_or(0, Vec::len),
            gpu.mem_used_bytes.unwrap_or(0) / MEMORY_GRAIN,
            gpu.util_gpu.unwrap_or(0),
            gpu.clock_event_reasons.len(),
            gpu.temp_c.unwrap_or(0),
            gpu.index,
        )
    });
    let mut chosen: Vec<Choice> =
        ranked.into_iter().take(count).map(|gpu| Choice { gpu: gpu.clone(), why: describe(gpu) }).collect();
    chosen.sort_by_key(|choice| choice.gpu.index);
    chosen
}

/// Whether no process may use the GPU.
fn prohibited(gpu: &Gpu) -> bool {
    gpu.compute_mode.as_deref() == Some("Prohibited")
}

/// The state of a GPU in words.
fn describe(gpu: &Gpu) -> String {
    let mut words = Vec::new();
    match gpu.procs.as_deref() {
        Some([]) => words.push("no process".into()),
        Some([_]) => words.push("1 process".into()),
        Some(list) => words.push(format!("{} processes", list.len())),
        None => words.push("processes unknown".into()),
    }
    let known = |value: Option<u64>| value.map_or("unknown".into(), show_bytes);
    words.push(format!("{} of {} in use", known(gpu.mem_used_bytes), known(gpu.mem_total_bytes)));
    words.push(gpu.util_gpu.map_or("utilisation unknown".into(), |util| format!("{util} % busy")));
    match gpu.ecc_uncorrected {
        Some(0) => words.push("no ECC error".into()),
        Some(n) => words.push(format!("{n} uncorrected ECC errors")),
        None => {}
    }
    if !gpu.clock_event_reasons.is_empty() {
        words.push(format!("clocks held by {}", gpu.clock_event_reasons.join(" ")));
    }
    words.extend(gpu.temp_c.map(|t| format!("{t} C")));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32) -> Gpu {
        Gpu {
            index,
            uuid: format!("GPU-{index}"),
            procs: Some(vec![]),
            mem_used_bytes: Some(600 << 20),
            ..Gpu::default()
        }
    }

    #[track_caller]
    fn check(gpus: &[Gpu], count: usize, indices: &[u32]) {
        let chosen: Vec<u32> = quietest(gpus, count).iter().map(|choice| choice.gpu.index).collect();
        assert_eq!(chosen, indices);
    }

    #[test]
    fn the_quietest_are_taken() {
        let busy = Gpu { util_gpu: Some(97), procs: Some(vec![1, 2]), ..gpu(0) };
        let full = Gpu { mem_used_bytes: Some(70 << 30), ..gpu(1) };
        let sick = Gpu { ecc_uncorrected: Some(2), ..gpu(2) };
        let closed = Gpu { compute_mode: Some("Prohibited".into()), ..gpu(3) };
        let warm = Gpu { temp_c: Some(60), ..gpu(4) };
        let gpus = [busy, full, sick, closed, warm, gpu(5)];
        check(&gpus, 1, &[5]);
        check(&gpus, 2, &[4, 5]);
        check(&gpus, 3, &[1, 4, 5]);
        check(&gpus, 4, &[0, 1, 4, 5]);
        check(&gpus, 9, &[0, 1, 2, 4, 5]);
        check(&[gpu(1), gpu(0)], 1, &[0]);
        check(&[], 1, &[]);
        assert!(quietest(&gpus, 4)[0].why.starts_with("2 processes, 600.0 MiB of unknown in use, 97 % busy"));
    }
}
