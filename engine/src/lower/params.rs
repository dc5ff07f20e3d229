//! Parameters: sizes, strides, scalars and pointers, each declared on first use.

use super::context::{Lowering, identifier};
use super::scalars::{hoist, input_name};
use crate::axes::{AxisRef, Offset};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ScalarId;
use crate::kernel::{BufId, ExprId, IndexOp, ValueKind};
use crate::num::DType;
use crate::schedule::{AxisId, Extent, Io, MemoryAxis, Parts, TensorLayout, Tv, TvId};

impl Lowering<'_> {
    /// The extent of an axis: a constant or an expression over parameters.
    pub(super) fn extent(&mut self, axis: AxisId) -> Result<ExprId> {
        if let Some(extent) = self.extents[axis] {
            return Ok(extent);
        }
        // What a schedule promises of a size holds for those that it was chosen for, and is tested where it was written by hand.
        let promised = self.scheduled.axes.constant_size(axis);
        let extent = match promised.map_or(self.scheduled.axes[axis].extent, Extent::Const) {
            Extent::Const(value) => self.b.int(value),
            Extent::Scalar(scalar) => self.scalar_index(scalar)?,
            Extent::CeilDiv(of, factor) => {
                let of = self.extent(of)?;
                let less = self.b.int(factor - 1);
                let factor = self.b.int(factor);
                let sum = self.b.exprs().add(of, less);
                let quotient = self.b.exprs().div(sum, factor);
                self.hoist("parts", quotient)
            }
            Extent::Product(a, b) => {
                let (a, b) = (self.extent(a)?, self.extent(b)?);
                let product = self.b.exprs().mul(a, b);
                self.hoist("elements", product)
            }
            Extent::Plus(of, more) => {
                let of = self.extent(of)?;
                let more = self.b.int(more);
                let sum = self.b.exprs().add(of, more);
                self.hoist("padded", sum)
            }
            Extent::Times(of, times) => {
                let of = self.extent(of)?;
                let times = self.b.int(times);
                let product = self.b.exprs().mul(of, times);
                self.hoist("run", product)
            }
            Extent::Share(of, parts) => self.share(of, parts)?,
            Extent::Shares(of, share) => {
                let (of, share) = (self.extent(of)?, self.extent(share)?);
                let shares = self.b.exprs().ceil_div(of, share);
                self.hoist("shares", shares)
            }
        };
        // Tiles have room for so many indices of sizes that share a kernel.
        if self.scheduled.axes[axis].least > 0
            && let Some(most) = self.scheduled.axes.most_extent(axis)
        {
            self.b.assume_at_most(extent, most);
        }
        self.extents.set(axis, Some(extent));
        Ok(extent)
    }

    /// A scalar that is a size, or a sum of sizes, as an index.
    fn scalar_index(&mut self, scalar: ScalarId) -> Result<ExprId> {
        self.scalars.index(&mut self.b, scalar)
    }

    /// How far an axis is moved: a number, or a parameter.
    pub(super) fn offset(&mut self, offset: &Offset) -> Result<ExprId> {
        if let Some(known) = self.offsets.get(offset) {
            return Ok(*known);
        }
        let mut sum = self.b.int(offset.constant);
        for (factor, scalar) in &offset.terms {
            let value = self.scalar_index(*scalar)?;
            let factor = self.b.int(*factor);
            let term = self.b.exprs().mul(value, factor);
            sum = self.b.exprs().add(sum, term);
        }
        let sum = self.hoist("offset", sum);
        self.offsets.insert(offset.clone(), sum);
        Ok(sum)
    }

    /// The indices of a part of an axis: [`Parts::share`] over parameters.
    fn share(&mut self, of: AxisId, parts: Parts) -> Result<ExprId> {
        let extent = self.extent(of)?;
        let (one, places) = (self.b.int(1), self.b.int(parts.places));
        let places = match parts.beside {
            None => places,
            Some(beside) => {
                let beside = self.extent(beside)?;
                let beside = self.b.exprs().index(IndexOp::Max, beside, one);
                self.b.exprs().div(places, beside)
            }
        };
        let parts = self.b.exprs().index(IndexOp::Min, places, extent);
        let parts = self.b.exprs().index(IndexOp::Max, parts, one);
        let share = self.b.exprs().ceil_div(extent, parts);
        let share = self.b.exprs().index(IndexOp::Max, share, one);
        Ok(self.hoist("share", share))
    }

    /// Turns an expression over parameters into a parameter computed on the
    /// host, unless it is trivial.
    pub(super) fn hoist(&mut self, name: &str, value: ExprId) -> ExprId {
        hoist(&mut self.b, name, value)
    }

    /// A scalar of the fusion, of the scalar's type: data.
    pub(super) fn scalar(&mut self, scalar: ScalarId) -> Result<ExprId> {
        self.scalars.value(&mut self.b, scalar)
    }

    /// The stride of an axis of an input or an output, with what the class knows of it.
    pub(super) fn stride(&mut self, io: Io, axis: MemoryAxis) -> ExprId {
        let fusion = &self.scheduled.fusion;
        let (number, of) = match io {
            Io::Input(input) => (input, input_name(fusion, input)),
            Io::Output(output) => {
                let tensor = fusion.outputs[output as usize];
                (fusion.inputs.len() as u32 + output, identifier(&fusion.tensors[tensor].name))
            }
        };
        if let Some(known) = self.find_stride(number, axis.axis as u32) {
            return known;
        }
        let param = self.b.stride(format!("{of}_s{}", axis.axis), number, axis.axis as u32);
        self.b.assume_multiple_of(param, axis.stride_fact);
        param
    }

    fn find_stride(&mut self, input: u32, axis: u32) -> Option<ExprId> {
        let kind = crate::kernel::ParamKind::Stride { input, axis };
        let (id, _) = self.b.params().find(|(_, param)| param.kind == kind)?;
        let index_type = self.b.index_type();
        Some(self.b.exprs().param(id, index_type, ValueKind::Index))
    }

    /// The layout of a global tensor: the class's for inputs and for outputs that are parts of something else, dense
    /// row-major for other outputs. Random tensors have none in memory; their elements are
    /// counted like those of an output.
    pub(super) fn layout(&self, tv: TvId) -> Result<TensorLayout> {
        let data = &self.scheduled.tensors[tv];
        if let Some(Io::Output(output)) = data.io
            && let Some(part) = self.class.part(output)
        {
            return Ok(part.clone());
        }
        match data.io {
            Some(Io::Input(input)) => self.class.layouts[input as usize]
                .clone()
                .ok_or_else(|| Diagnostic::bug(format!("input {input} has no layout"))),
            None if !self.facts.is_random(tv) && !self.scheduled.is_workspace(tv) => {
                Err(Diagnostic::bug(format!("{} is not in global memory", data.name)))
            }
            Some(Io::Output(_)) | None => {
                let order = (0..data.axes.len())
                    .filter(|axis| data.axes[*axis].indexed().is_some())
                    .map(|axis| MemoryAxis { axis, dense: true, stride_fact: 1 })
                    .collect();
                Ok(TensorLayout { align: 16, start: 0, order, size_facts: vec![1; data.axes.len()] })
            }
        }
    }

    /// The pointer of a global tensor. Tensors of one input share it.
    pub(super) fn global(&mut self, tv: TvId) -> Result<BufId> {
        if let Some(buffer) = self.buffers[tv] {
            return Ok(buffer);
        }
        let data = &self.scheduled.tensors[tv];
        let io = data.io;
        let is_same = |other: TvId, twin: &Tv| other != tv && io.is_some() && twin.io == io;
        let twin = self
            .scheduled
            .tensors
            .iter()
            .find(|(other, twin)| is_same(*other, twin) && self.buffers[*other].is_some())
            .and_then(|(other, _)| self.buffers[other]);
        if let Some(buffer) = twin {
            self.buffers.set(tv, Some(buffer));
            return Ok(buffer);
        }
        let layout = self.layout(tv)?;
        let len = self.reach(tv, &layout)?;
        let (name, dtype) = (identifier(&data.name), data.dtype);
        let buffer = match io {
            Some(Io::Input(input)) => self.b.input(name, input, dtype, len, layout.align),
            Some(Io::Output(output)) => self.b.output_from(name, output, dtype, len, (layout.align, layout.start)),
            None => self.b.workspace(name, dtype, len, layout.align, false),
        };
        self.buffers.set(tv, Some(buffer));
        Ok(buffer)
    }

    /// The number of elements up to a tensor's last: those before its first and [`Self::span`].
    fn reach(&mut self, tv: TvId, layout: &TensorLayout) -> Result<ExprId> {
        let (start, span) = (self.b.int(layout.start.into()), self.span(tv, layout)?);
        Ok(self.b.exprs().add(span, start))
    }

    /// The number of elements from a tensor's first to its last:
    /// `1 + sum (extent - 1) * stride`, or the product of the extents where the
    /// tensor is dense; 0 where an extent is 0.
    fn span(&mut self, tv: TvId, layout: &TensorLayout) -> Result<ExprId> {
        let axes = self.scheduled.tensors[tv].axes.clone();
        let io = self.scheduled.tensors[tv].io;
        if layout.is_dense() {
            let mut product = self.b.int(1);
            for axis in &layout.order {
                let extent = self.memory_extent(&axes, axis)?;
                product = self.b.exprs().mul(product, extent);
            }
            return Ok(product);
        }
        let one = self.b.int(1);
        let zero = self.b.int(0);
        let mut reach = one;
        let mut elements = one;
        let mut inner: Option<(ExprId, ExprId)> = None;
        for axis in layout.order.iter().rev() {
            let extent = self.memory_extent(&axes, axis)?;
            let stride = match (axis.dense, inner, io) {
                (true, None, _) => one,
                (true, Some((stride, extent)), _) => self.b.exprs().mul(stride, extent),
                (false, _, Some(io)) => self.stride(io, *axis),
                (false, _, None) => return Err(Diagnostic::bug("a strided tensor is no argument")),
            };
            let steps = self.b.exprs().sub(extent, one);
            let span = self.b.exprs().mul(steps, stride);
            reach = self.b.exprs().add(reach, span);
            elements = self.b.exprs().mul(elements, extent);
            inner = Some((stride, extent));
        }
        let empty = self.b.exprs().binary(crate::num::BinaryOp::Eq, elements, zero);
        Ok(self.b.exprs().ternary(crate::num::TernaryOp::Where, empty, zero, reach))
    }

    /// The extent of a memory axis: of its root where it is concrete, else 1.
    fn memory_extent(&mut self, axes: &[AxisRef], axis: &MemoryAxis) -> Result<ExprId> {
        match axes[axis.axis].in_memory() {
            Some(axis) => self.extent(axis),
            None => Ok(self.b.int(1)),
        }
    }

    /// Converts a place in the launch to the index type.
    pub(super) fn as_index(&mut self, value: ExprId) -> ExprId {
        let index_type: DType = self.b.index_type();
        self.b.exprs().cast(value, index_type)
    }
}
