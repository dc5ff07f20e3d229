//! Several kernels in one text, for those who ask whether kernels compile and what they take.
//!
//! In: kernels. Out: what each takes of a multiprocessor, or why it does not
//! compile. The front end reads the library's functions once for all of them and the assembler
//! starts once: sixteen in a text take a tenth (large ones) to a third less time than alone. The
//! machine code is one file of all, which nobody finds by one kernel's key, so it is not kept.
//!
//! Invariant: a kernel's answer does not depend on its company. Where the text of several is
//! rejected, or was not optimized for one of them, each kernel is compiled alone.

use super::compiler::Compiler;
use super::nvrtc::{NvrtcOptions, Resources, resources_by_entry};
use super::print::{emit, emit_together};
use crate::diag::Result;
use crate::kernel::Kernel;
use crate::options::{CompileCx, Phase};

/// The text's name in messages.
const NAME: &str = "together";

impl Compiler {
    /// Compiles kernels in one text: what each takes, where the log says, or why it does not compile. A single one
    /// is compiled, or found, as by [`Compiler::compile`].
    pub fn compile_together(&self, cx: &CompileCx<'_>, kernels: &[&Kernel]) -> Vec<Result<Option<Resources>>> {
        let options = NvrtcOptions::of(cx);
        let alone =
            |kernel: &&Kernel| self.compile(cx, &emit(kernel), &options, 0).map(|compiled| compiled.cubin.resources);
        if kernels.len() < 2 {
            return kernels.iter().map(alone).collect();
        }
        let (text, entries) = emit_together(kernels.iter().copied());
        match cx.span(Phase::Codegen, NAME, 0, || self.compile_anywhere(None, &text, NAME, &options)) {
            Ok(cubin) if !cubin.is_plain() => {
                let mut figures = resources_by_entry(&cubin.log);
                entries.iter().map(|entry| Ok(figures.remove(entry.as_str()))).collect()
            }
            _ => kernels.iter().map(alone).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::super::tests::nvrtc;
    use super::*;
    use crate::kernel::Param;
    use crate::num::DType;
    use crate::options::{DeviceDesc, NoTrace, Options};

    /// Compiles kernels together and each alone, and compares the answers.
    fn check_together(kernels: &[Kernel]) -> Vec<Result<Option<Resources>>> {
        let (device, options) = (DeviceDesc::h200(), Options::default());
        let cx = CompileCx { options: &options, device: &device, trace: &NoTrace };
        let compiler = Compiler::new(nvrtc());
        let kernels: Vec<&Kernel> = kernels.iter().collect();
        let together = compiler.compile_together(&cx, &kernels);
        assert_eq!(together.len(), kernels.len());
        for (kernel, answer) in kernels.iter().zip(&together) {
            let alone = compiler.compile(&cx, &emit(kernel), &NvrtcOptions::of(&cx), 0);
            assert_eq!(*answer, alone.map(|compiled| compiled.cubin.resources), "{}", kernel.name);
        }
        together
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn needs_nvrtc_kernels_take_together_what_they_take_alone() {
        // The same kernel twice, too: names are those of the text.
        let (sums, adds) = (samples::row_sum(), samples::vector_add());
        let answers = check_together(&[sums.clone(), adds, samples::all_ops(DType::F32), sums]);
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Some(figures)) if figures.registers > 0)));
        assert!(check_together(&[]).is_empty());
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn needs_nvrtc_who_does_not_compile_is_told_from_his_company() {
        // More parameters than a kernel may have, 32 KiB: of eight bytes each, since the compiler takes its time for many.
        let mut huge = samples::row_sum();
        let sizes: Vec<_> = huge.params.values().filter(|param| param.dtype.is_some()).cloned().collect();
        let wide = Param { dtype: Some(DType::I64), ..sizes[0].clone() };
        while huge.params.len() < 4_200 {
            huge.params.push(wide.clone());
        }
        let answers = check_together(&[samples::vector_add(), huge, samples::row_sum()]);
        let failed: Vec<bool> = answers.iter().map(Result::is_err).collect();
        assert_eq!(failed, [false, true, false]);
    }
}
