//! One kernel with everything that is told about it.

use super::{KernelChoice, KernelForm, build_kernel};
use crate::diag::{Diagnostic, Result};
use crate::fusion::{self, Fusion};
use crate::kernel::{self, Kernel};
use crate::options::CompileCx;
use crate::text;
use crate::util::Hash128;
use std::sync::Arc;

/// A kernel with every stage's text. Immutable, and shared by all calls for which it was
/// chosen.
#[derive(Debug)]
pub struct Plan {
    fusion: Fusion,
    scheduler: &'static str,
    params_text: String,
    /// None of a kernel that is written whole.
    schedule_text: Option<String>,
    kernel: Kernel,
    kernel_text: String,
    kernel_hash: Hash128,
}

impl Plan {
    /// The fusion.
    pub fn fusion(&self) -> &Fusion {
        &self.fusion
    }
    /// The name of the heuristic that took it.
    pub fn scheduler(&self) -> &'static str {
        self.scheduler
    }
    /// Whether the kernel is written whole, and follows no schedule.
    pub fn is_written(&self) -> bool {
        self.schedule_text.is_none()
    }
    /// The heuristic's parameters as text.
    pub fn params_text(&self) -> &str {
        &self.params_text
    }
    /// The schedule as text.
    pub fn schedule_text(&self) -> &str {
        self.schedule_text.as_deref().unwrap_or_default()
    }
    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }
    /// The hash of the kernel's text: plans with one hash run the same code.
    pub fn kernel_hash(&self) -> Hash128 {
        self.kernel_hash
    }
    /// The number that identifies the kernel in traces.
    pub fn trace_id(&self) -> u64 {
        (self.kernel_hash.0 >> 64) as u64
    }
    /// The kernel as text.
    pub fn kernel_text(&self) -> &str {
        &self.kernel_text
    }
}

/// Who makes kernels of fusions, or has made them before. Asked by several threads at once.
pub trait PlanSource: Sync {
    /// The kernel that was chosen for a fusion, or why it is none.
    fn plan(&self, form: &KernelForm, choice: &KernelChoice) -> Result<Arc<Plan>>;
    /// Whether that is known, so that asking for it is no work.
    fn has(&self, form: &KernelForm, choice: &KernelChoice) -> bool;
}

/// Compiles each kernel anew, and keeps nothing.
#[derive(Clone, Copy)]
pub struct FreshPlans<'a>(pub CompileCx<'a>);

impl PlanSource for FreshPlans<'_> {
    fn plan(&self, form: &KernelForm, choice: &KernelChoice) -> Result<Arc<Plan>> {
        plan(&self.0, form, choice).map(Arc::new)
    }
    fn has(&self, _form: &KernelForm, _choice: &KernelChoice) -> bool {
        false
    }
}

/// Compiles a kernel that was chosen, or says why that cannot be.
pub fn plan(cx: &CompileCx<'_>, form: &KernelForm, choice: &KernelChoice) -> Result<Plan> {
    let compiled = build_kernel(cx, &form.maker, choice)?;
    let kernel_text = kernel::print(&compiled.kernel);
    if cx.options.self_check {
        kernel::check_text(&compiled.kernel, &kernel_text)?;
    }
    let kernel_hash = Hash128::of(kernel_text.as_bytes());
    Ok(Plan {
        fusion: form.fusion().clone(),
        scheduler: compiled.scheduler,
        params_text: compiled.params_text,
        schedule_text: compiled.schedule_text,
        kernel: compiled.kernel,
        kernel_text,
        kernel_hash,
    })
}

/// Checks that a fusion reads back from its text.
pub fn check_text(fusion: &Fusion) -> Result<()> {
    if !text::can_be_written(fusion) {
        return Ok(());
    }
    let text = text::print(fusion);
    let same = match text::parse_one(&text) {
        Ok(read) => fusion::hash::content(&read) == fusion::hash::content(fusion),
        Err(_) => false,
    };
    if same {
        return Ok(());
    }
    Err(Diagnostic::bug(format!("fusion @{} does not read back from its text", fusion.name)).note(text))
}
