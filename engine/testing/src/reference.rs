//! What a kernel computes on the simulator, held to the reference.
//!
//! Input: a fusion with arguments, and kernels that are to compute it. A kernel
//! is wrong if the verifier or a detector refuses it, if an element of an output
//! is not written, if an output has no memory though it has elements, or if a
//! value is not that of the reference within the tolerance of the output.

use engine::backend::sim;
use engine::diag::{Diagnostic, Result};
use engine::fusion::{Bindings, Fusion, bind_args};
use engine::kernel::{self, Kernel};
use engine::options::SimOptions;
use engine::refeval::{self, Tolerance};
use engine::tensor::{Arg, ArgMeta, HostTensor};

/// A fusion on arguments, and its values.
#[derive(Clone, Debug)]
pub struct Reference<'a> {
    fusion: &'a Fusion,
    args: &'a [Arg],
    bindings: Bindings,
    outputs: Vec<HostTensor>,
    /// The absolute part of tolerances is multiplied by it.
    scale: f64,
    /// Whether values of floats are compared.
    floats: bool,
}

/// What each argument's first element is aligned to in bytes, as a run has it.
pub fn alignments(args: &[Arg]) -> Vec<u32> {
    let alignment = |arg: &Arg| match arg {
        Arg::Tensor(tensor) => match tensor.offset * tensor.meta.dtype.bytes() {
            0 => 16,
            bytes => 1 << bytes.trailing_zeros().min(4),
        },
        Arg::Scalar(_) => 1,
    };
    args.iter().map(alignment).collect()
}

impl<'a> Reference<'a> {
    /// Evaluates a fusion.
    pub fn of(fusion: &'a Fusion, args: &'a [Arg]) -> Result<Self> {
        let (bindings, outputs) = (bind_args(fusion, args)?, refeval::evaluate(fusion, args)?);
        Ok(Self { fusion, args, bindings, outputs, scale: 1.0, floats: true })
    }

    /// The same for values of any size: rounding errors are relative to the
    /// largest finite magnitude of all values on the way.
    pub fn scaled(mut self) -> Result<Self> {
        let mut all = self.fusion.clone();
        all.outputs = all.tensors.ids().collect();
        let values = refeval::evaluate(&all, self.args)?;
        let magnitudes = values.iter().flat_map(|tensor| tensor.values()).map(|value| value.as_f64().abs());
        self.scale = magnitudes.filter(|value| value.is_finite()).fold(1.0, f64::max);
        Ok(self)
    }

    /// The same without the values of floats, where a wild function of a rounding
    /// error is not comparable. All else is checked.
    pub fn without_floats(self) -> Self {
        Self { floats: false, ..self }
    }

    /// The sizes of everything.
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// The values.
    pub fn outputs(&self) -> &[HostTensor] {
        &self.outputs
    }

    /// Compares one output; an error says what is wrong.
    pub fn compare(&self, output: usize, found: &HostTensor) -> Result<()> {
        let Some((tensor, expected)) = self.fusion.outputs.get(output).copied().zip(self.outputs.get(output)) else {
            return Err(Diagnostic::bug(format!("there is no output {output}")));
        };
        if !self.floats && self.fusion.tensors[tensor].dtype.is_float() {
            return Ok(());
        }
        let own = Tolerance::for_output(self.fusion, &self.bindings, tensor);
        let comparison = refeval::compare(found, expected, Tolerance { abs: own.abs * self.scale, ..own })?;
        if comparison.passed() {
            return Ok(());
        }
        Err(Diagnostic::bug(format!("output {output}, %{}: {comparison}", self.fusion.tensors[tensor].name)))
    }

    /// Compares all outputs of a run.
    pub fn compare_all(&self, found: &[HostTensor]) -> Result<()> {
        if found.len() != self.outputs.len() {
            return Err(Diagnostic::bug(format!("{} outputs of {}", found.len(), self.outputs.len())));
        }
        found.iter().enumerate().try_for_each(|(output, found)| self.compare(output, found))
    }

    /// Verifies a kernel, runs it on the simulator and compares what it wrote.
    pub fn check_kernel(&self, kernel: &Kernel, options: &SimOptions) -> Result<()> {
        let metas: Vec<ArgMeta> = self.args.iter().map(Arg::meta).collect();
        kernel::verify(kernel)?;
        let launch = kernel::bind(kernel, &metas)?;
        let mut memory = sim::SimMemory::new(kernel, &launch);
        for (input, arg) in self.args.iter().enumerate() {
            if let Arg::Tensor(tensor) = arg {
                let start = tensor.offset * tensor.meta.dtype.bytes();
                let end = start + tensor.meta.span_bytes()?;
                memory.fill_input(input as u32, &tensor.data[start..end])?;
            }
        }
        if !launch.is_empty() {
            let report = sim::run(kernel, &launch, &mut memory, options)?;
            if report.unwritten.iter().any(|(.., missing)| *missing > 0) {
                return Err(Diagnostic::bug(format!("elements are not written: {:?}", report.unwritten)));
            }
        }
        for (output, expected) in self.outputs.iter().enumerate() {
            // A kernel writes its results dense, whatever strides the reference gives them.
            let mut found = expected.to_contiguous();
            match memory.output(output as u32).and_then(|bytes| bytes.get(..found.data.len())) {
                Some(bytes) => found.data.copy_from_slice(bytes),
                None if expected.numel() == 0 => {}
                None => return Err(Diagnostic::bug(format!("output {output} has no memory, or too little"))),
            }
            if launch.is_empty() && expected.numel() > 0 {
                return Err(Diagnostic::bug(format!("output {output} has elements, and nothing is launched")));
            }
            self.compare(output, &found)?;
        }
        Ok(())
    }
}
