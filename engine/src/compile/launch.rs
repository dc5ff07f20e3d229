//! A kernel's numbers for one call.

use super::Plan;
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::{self, BoundLaunch, BoundParam, ParamKind};
use crate::options::DeviceDesc;
use crate::tensor::{ArgMeta, TensorMeta};

/// Binds a plan's launch and holds its numbers against the arguments and the
/// predicted outputs: the kernel must not reach beyond either.
pub fn bind_launch(plan: &Plan, args: &[ArgMeta], outputs: &[TensorMeta]) -> Result<BoundLaunch> {
    let kernel = plan.kernel();
    if !outputs.is_empty() && outputs.iter().all(|meta| meta.numel() == Some(0)) {
        return Ok(empty_launch(plan));
    }
    // Kernels know the strides of an output behind those of the inputs.
    let numbered: Vec<ArgMeta> = args.iter().cloned().chain(outputs.iter().cloned().map(ArgMeta::Tensor)).collect();
    let mut launch = kernel::bind(kernel, &numbered)?;
    let mut written = vec![false; outputs.len()];
    for param in kernel.params.values() {
        let (what, buffer, limit) = match param.kind {
            ParamKind::Input { input, buffer } => {
                let Some(ArgMeta::Tensor(meta)) = args.get(input as usize) else { continue };
                (format!("input {input}"), buffer, meta.span())
            }
            ParamKind::Output { output, buffer } => {
                if let Some(written) = written.get_mut(output as usize) {
                    *written = true;
                }
                let meta = outputs.get(output as usize);
                let end = meta.and_then(TensorMeta::span).map(|span| span + i64::from(kernel.buffers[buffer].start));
                let gaps = end.zip(meta.and_then(TensorMeta::numel)).map_or(0, |(end, elements)| end - elements);
                launch.gaps[buffer] = u64::try_from(gaps).unwrap_or(0);
                (format!("output {output}"), buffer, end)
            }
            _ => continue,
        };
        let len = launch.buffer_lens[buffer];
        let exact = matches!(param.kind, ParamKind::Output { .. });
        let limit = limit.and_then(|n| u64::try_from(n).ok());
        if limit.is_none_or(|limit| if exact { len != limit } else { len > limit }) {
            let (name, given) = (&kernel.name, limit.unwrap_or(0));
            return Err(with_params(
                plan,
                &launch,
                format!("{what} has {given} elements, kernel {name} takes it for {len}"),
            ));
        }
    }
    if launch.is_empty() {
        let (grid, name) = (launch.grid, &kernel.name);
        let message = format!("kernel {name} has grid {grid:?}, though an output has elements");
        return Err(with_params(plan, &launch, message));
    }
    if let Some(output) = written.iter().position(|written| !written) {
        let name = &plan.fusion().tensors[plan.fusion().outputs[output]].name;
        return Err(Diagnostic::bug(format!("kernel {} does not write output {output} `%{name}`", kernel.name)));
    }
    Ok(launch)
}

/// Whether all blocks of a launch run at once, where they wait for each other: as many as bounds of registers and
/// shared memory leave room for.
pub fn check_together(plan: &Plan, launch: &BoundLaunch, device: &DeviceDesc) -> Result<()> {
    let bounds = &plan.kernel().launch;
    if !bounds.cooperative {
        return Ok(());
    }
    let resident = device.resident_blocks(bounds.max_threads, 1, launch.shared_bytes).min(bounds.min_blocks);
    let (blocks, together) = (launch.blocks(), u64::from(device.sm_count) * u64::from(resident));
    if blocks <= together {
        return Ok(());
    }
    let message = format!("{blocks} blocks wait for each other, of which {together} are sure to run at once");
    Err(Diagnostic::unsupported(code::LAUNCH_LIMIT, message)
        .note("let each take several indices in turn (`split A into N`), or have room for more with `min_blocks`"))
}

/// A launch that does not fit, with the value of each number that it was computed from: no stage
/// of such a call can be shown, so this is all of the kernel that there is to see.
fn with_params(plan: &Plan, launch: &BoundLaunch, message: String) -> Box<Diagnostic> {
    let declared = plan.kernel_text().lines().map(str::trim).filter(|line| line.starts_with("param "));
    let scalar = |param: &BoundParam| match param {
        BoundParam::Scalar { dtype, value } => Some(value.shown(*dtype)),
        BoundParam::Pointer(_) => None,
    };
    let shown = declared.zip(&launch.params).filter_map(|(line, param)| Some((line, scalar(param)?)));
    let error = shown.fold(Diagnostic::bug(message), |error, (line, value)| error.note(format!("`{line}` is {value}")));
    match plan.kernel_text().lines().find(|line| line.trim_start().starts_with("launch ")) {
        Some(line) => error.note(format!("`{}`", line.trim())),
        None => error,
    }
}

/// The launch of nothing.
fn empty_launch(plan: &Plan) -> BoundLaunch {
    let mut nothing = crate::util::PrimaryMap::new();
    for _ in plan.kernel().buffers.ids() {
        nothing.push(0);
    }
    let (buffer_lens, gaps) = (nothing.clone(), nothing);
    BoundLaunch { grid: [0; 3], block: [1; 3], params: Vec::new(), buffer_lens, gaps, shared_bytes: 0 }
}
