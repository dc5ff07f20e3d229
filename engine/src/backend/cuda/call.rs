//! The device memory of one checked call: inputs, outputs and workspaces, each
//! between red zones, and what is held against them after the launch.
//!
//! Outputs are poisoned. An element that still holds the poison after the launch
//! may be a result, so [`CallMemory::check_written`] launches once more on other
//! poison: what holds that one then was never written.

use super::device::{Device, DeviceBuffer};
use super::guard::{GuardedBuffer, check_zones};
use super::inspect::Question;
use super::launch::LoadedKernel;
use crate::backend::findings::{self, Elements};
use crate::diag::{Diagnostic, Result};
use std::sync::Arc;

/// What outputs hold before a launch: NaN as floats, -1 as integers.
pub const POISON: u8 = 0xff;
/// What they hold before the launch that tells what was never written.
const OTHER_POISON: u8 = 0x5b;

/// The memory of one call, each kind in the order in which it was added.
#[derive(Debug)]
pub struct CallMemory {
    device: Arc<Device>,
    inputs: Vec<GuardedBuffer>,
    outputs: Vec<OutputBuffer>,
    workspaces: Vec<Workspace>,
}

#[derive(Debug)]
struct OutputBuffer {
    buffer: GuardedBuffer,
    /// Bytes of an element.
    element: usize,
}

#[derive(Debug)]
struct Workspace {
    buffer: GuardedBuffer,
    fill: u8,
}

/// What was issued on the memory of a call.
#[derive(Clone, Copy, Debug)]
pub struct Issued<'a> {
    /// A kernel, or a function of a library.
    pub name: &'a str,
    /// What it keeps between calls.
    pub barrier: Option<&'a GuardedBuffer>,
}

impl<'a> From<&'a LoadedKernel> for Issued<'a> {
    fn from(kernel: &'a LoadedKernel) -> Self {
        Self { name: kernel.name(), barrier: kernel.barrier() }
    }
}

impl CallMemory {
    /// No memory yet.
    pub fn new(device: &Arc<Device>) -> Self {
        Self { device: Arc::clone(device), inputs: Vec::new(), outputs: Vec::new(), workspaces: Vec::new() }
    }

    /// Adds an input that holds these bytes; its address, aligned to 512.
    pub fn input(&mut self, data: &[u8]) -> Result<u64> {
        let buffer = GuardedBuffer::holding(&self.device, data)?;
        let address = buffer.address();
        self.inputs.push(buffer);
        Ok(address)
    }
    /// Adds a poisoned output with elements of that many bytes; its address.
    pub fn output(&mut self, bytes: usize, element: usize) -> Result<u64> {
        let buffer = GuardedBuffer::new(&self.device, bytes, POISON)?;
        let address = buffer.address();
        self.outputs.push(OutputBuffer { buffer, element });
        Ok(address)
    }
    /// Adds a workspace, zeroed or poisoned; its address.
    pub fn workspace(&mut self, bytes: usize, zeroed: bool) -> Result<u64> {
        let fill = if zeroed { 0 } else { POISON };
        let buffer = GuardedBuffer::new(&self.device, bytes, fill)?;
        let address = buffer.address();
        self.workspaces.push(Workspace { buffer, fill });
        Ok(address)
    }

    /// The bytes of a workspace.
    pub fn workspace_bytes(&self, number: usize) -> Result<Vec<u8>> {
        let Some(workspace) = self.workspaces.get(number) else {
            return Err(Diagnostic::bug(format!("there is no workspace {number}")));
        };
        let mut data = vec![0; workspace.buffer.len()];
        workspace.buffer.download(&mut data).map(|()| data)
    }

    /// The bytes of the outputs.
    pub fn outputs(&self) -> Result<Vec<Vec<u8>>> {
        self.outputs.iter().map(|output| output.buffer.bytes_from(0, output.buffer.len())).collect()
    }

    /// What to ask of the device of each output: whether something of it may be unwritten.
    pub fn questions(&self) -> Vec<Question> {
        let question = |OutputBuffer { buffer, element }: &OutputBuffer| Question::HoldsPoison {
            address: buffer.address(),
            bytes: buffer.len(),
            element: *element,
            poison: POISON,
        };
        self.outputs.iter().map(question).collect()
    }

    /// Copies of the outputs, on the device.
    pub fn copies(&self) -> Result<Vec<DeviceBuffer>> {
        self.outputs.iter().map(|output| output.buffer.copied()).collect()
    }

    /// Bytes of the outputs.
    pub fn output_bytes(&self) -> usize {
        self.outputs.iter().map(|output| output.buffer.len()).sum()
    }

    /// Puts other poison into the outputs, for the launch that tells what the first one left unwritten.
    pub fn poison_again(&mut self) -> Result<()> {
        for workspace in &mut self.workspaces {
            workspace.buffer.fill(workspace.fill)?;
        }
        self.outputs.iter_mut().try_for_each(|output| output.buffer.fill(OTHER_POISON))
    }

    /// What to ask of the device then, given copies of what the first launch left: whether something is unwritten.
    pub fn questions_again(&self, first: &[DeviceBuffer]) -> Vec<Question> {
        let question =
            |(OutputBuffer { buffer, element }, first): (&OutputBuffer, &DeviceBuffer)| Question::HoldsBoth {
                addresses: [first.address(), buffer.address()],
                bytes: buffer.len(),
                element: *element,
                poisons: [POISON, OTHER_POISON],
            };
        self.outputs.iter().zip(first).map(question).collect()
    }

    /// The outputs alone, in their order.
    pub fn into_outputs(self) -> impl Iterator<Item = GuardedBuffer> {
        self.outputs.into_iter().map(|output| output.buffer)
    }

    /// Fails with `B0107` if a red zone was written: of any buffer of the call, or
    /// of what the kernel keeps between calls.
    pub fn check_zones<'a>(&self, issued: impl Into<Issued<'a>>) -> Result<()> {
        self.check_zones_and(issued.into(), &[])
    }

    /// The same, of further buffers too that the kernel reads.
    pub fn check_zones_and(&self, issued: Issued<'_>, others: &[(String, &GuardedBuffer)]) -> Result<()> {
        let mut named = others.to_vec();
        let numbered = |what: &str, number: usize| format!("{what} {number}");
        named.extend(self.inputs.iter().enumerate().map(|(n, buffer)| (numbered("input", n), buffer)));
        named.extend(self.outputs.iter().enumerate().map(|(n, output)| (numbered("output", n), &output.buffer)));
        named.extend(self.workspaces.iter().enumerate().map(|(n, w)| (numbered("workspace", n), &w.buffer)));
        named.extend(issued.barrier.map(|buffer| ("grid barrier".to_string(), buffer)));
        let named: Vec<(&str, &GuardedBuffer)> = named.iter().map(|(name, buffer)| (name.as_str(), *buffer)).collect();
        check_zones(&named).map_err(|error| error.note(format!("by kernel {}", issued.name)))
    }

    /// Fails with `B0109` if an input does not hold what it was given.
    pub fn check_inputs<'a>(
        &self,
        issued: impl Into<Issued<'a>>,
        given: impl IntoIterator<Item = (usize, &'a [u8])>,
    ) -> Result<()> {
        let name = issued.into().name;
        for (buffer, (number, data)) in self.inputs.iter().zip(given) {
            buffer
                .check_unchanged(&format!("input {number}"), data)
                .map_err(|error| error.note(format!("by kernel {name}")))?;
        }
        Ok(())
    }

    /// Fails with `B0108` if a launch leaves elements of its outputs unwritten.
    /// `found` are the outputs of the launch that was, `names` theirs; `launch`
    /// repeats it and waits. Most outputs hold no poison and need no second launch; says
    /// whether there was one, whose results then are in memory.
    pub fn check_written<'a>(
        &mut self,
        issued: impl Into<Issued<'a>>,
        found: &[Vec<u8>],
        names: impl Fn(usize) -> String,
        launch: impl FnOnce() -> Result<()>,
    ) -> Result<bool> {
        let suspect = |(output, data): (&OutputBuffer, &Vec<u8>)| poisoned(data, output.element).count > 0;
        if !self.outputs.iter().zip(found).any(suspect) {
            return Ok(false);
        }
        self.poison_again()?;
        launch()?;
        let (again, issued) = (self.outputs()?, issued.into());
        for (number, (output, (first, second))) in self.outputs.iter().zip(found.iter().zip(&again)).enumerate() {
            let elements = untouched(first, second, output.element);
            if elements.count > 0 {
                return Err(findings::unwritten(issued.name, number, &names(number), &elements));
            }
        }
        Ok(true)
    }
}

/// The elements that hold the poison: unwritten, or results that look like it.
fn poisoned(data: &[u8], element: usize) -> Elements {
    findings::poisoned(data, element, POISON)
}

/// The elements that hold the poison of the first launch and, after the second, that of the second.
fn untouched(first: &[u8], second: &[u8], element: usize) -> Elements {
    let width = element.max(1);
    findings::elements_where(first, width, |number, bytes| {
        let again = second.get(number * width..(number + 1) * width).unwrap_or_default();
        findings::is_poison(bytes, POISON) && findings::is_poison(again, OTHER_POISON)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Element 1 is a result that looks like the poison, element 2 was never written.
    #[test]
    fn results_that_look_like_poison_are_not_unwritten() {
        let first = [1, 2, POISON, POISON, POISON, POISON, POISON, 7];
        let second = [1, 2, POISON, POISON, OTHER_POISON, OTHER_POISON, OTHER_POISON, 7];
        assert_eq!(poisoned(&first, 2), Elements { count: 2, first: vec![1, 2] });
        assert_eq!(untouched(&first, &second, 2), Elements { count: 1, first: vec![2] });
        assert_eq!(untouched(&first, &first, 2), Elements::default());
    }
}
