//! From segments to values and steps.

use super::arena::{self, Lifetime};
use super::steps::{self, Copy, HostCall, HostInput, Launch, LibraryCall, Program, Step, Storage, Value, ValueId};
use crate::compile::{Plan, bind_launch};
use crate::diag::{Diagnostic, Result};
use crate::fusion::{self, Bindings, FoundView, Operand, TensorId};
use crate::kernel::ParamKind;
use crate::segment::{LibraryPart, Place, Segment, SegmentKind, Segments};
use crate::tensor::{ArgMeta, TensorMeta};
use crate::util::{PrimaryMap, SecondaryMap};
use smallvec::SmallVec;
use std::sync::Arc;

/// The number of the bias among the operands of a product.
const BIAS: usize = 2;

impl Program {
    /// The steps and places for arguments that lie as those for which the segments
    /// were cut; scalars may have other values that give the same sizes.
    pub fn new(segments: Arc<Segments>, args: &[ArgMeta]) -> Result<Self> {
        let bindings = segments.bind(args)?;
        let mut building = Building::new(&segments, &bindings, args)?;
        for position in 0..segments.segments.len() {
            building.segment(position)?;
        }
        building.updates()?;
        let outputs = building.outputs()?;
        building.find_last_reads(&outputs);
        let arena_bytes = building.place();
        let Building { values, steps, .. } = building;
        Ok(Self { segments, values, steps, outputs, arena_bytes })
    }
}

/// A program under way.
struct Building<'a> {
    segments: &'a Segments,
    bindings: &'a Bindings,
    values: PrimaryMap<ValueId, Value>,
    of: SecondaryMap<TensorId, Option<ValueId>>,
    /// The results that are copies of views.
    copied: SecondaryMap<TensorId, Option<ValueId>>,
    steps: Vec<Step>,
}

impl<'a> Building<'a> {
    fn new(segments: &'a Segments, bindings: &'a Bindings, args: &[ArgMeta]) -> Result<Self> {
        let (values, of, copied) = (PrimaryMap::new(), SecondaryMap::new(), SecondaryMap::new());
        let mut this = Self { segments, bindings, values, of, copied, steps: Vec::new() };
        for (position, tensor) in segments.fusion.input_tensors() {
            let Some(ArgMeta::Tensor(meta)) = args.get(position) else {
                return Err(Diagnostic::bug(format!("argument {position} was checked to be a tensor")));
            };
            this.add(tensor, meta.clone(), Storage::Input(position as u32));
        }
        Ok(this)
    }

    fn add(&mut self, tensor: TensorId, meta: TensorMeta, storage: Storage) -> ValueId {
        let value = self.values.push(Value { tensor, meta, storage });
        self.of.set(tensor, Some(value));
        value
    }

    fn value(&self, tensor: TensorId) -> Result<ValueId> {
        self.of[tensor].ok_or_else(|| Diagnostic::bug(format!("{tensor} is read before a segment returns it")))
    }

    /// Whose memory a result is: the caller's, if it is returned and is not what an
    /// input becomes.
    fn storage(&self, tensor: TensorId) -> Storage {
        let fusion = &self.segments.fusion;
        let is_update = fusion.updates.iter().any(|update| update.tensor == tensor);
        match fusion.outputs.iter().position(|output| *output == tensor) {
            Some(output) if !is_update => Storage::Output(output as u32),
            _ => Storage::Arena { offset: 0 },
        }
    }

    fn segment(&mut self, position: usize) -> Result<()> {
        let segments = self.segments;
        let segment = &segments.segments[position];
        let inputs: Vec<HostInput> = segment.inputs.iter().map(|input| self.input(*input)).collect::<Result<_>>()?;
        match segment.kind {
            SegmentKind::View => return self.view(segment, &inputs),
            SegmentKind::Joined => return self.joined(segment),
            SegmentKind::Kernel(_) | SegmentKind::Library(_) | SegmentKind::Host(_) => {}
        }
        let mut outputs = Vec::with_capacity(segment.outputs.len());
        let mut copies = Vec::new();
        for (&tensor, meta) in segment.outputs.iter().zip(&segment.metas) {
            if let Some(place) = segments.place_of(tensor) {
                outputs.push(self.part(tensor, place, meta)?);
                continue;
            }
            let storage = self.storage(tensor);
            let placed = self.result_layout(storage).filter(|placed| !placed.has_places_of(meta));
            let own = if placed.is_some() { Storage::Arena { offset: 0 } } else { storage };
            let from = self.add(tensor, meta.clone(), own);
            outputs.push(from);
            copies.extend(placed.map(|placed| (from, Value { tensor, meta: placed, storage })));
        }
        let step = match &segment.kind {
            SegmentKind::Kernel(plan) => Step::Launch(self.launch(position, segment, plan, &inputs, outputs)?),
            SegmentKind::View | SegmentKind::Joined => return Err(Diagnostic::bug("what nobody computes has no step")),
            SegmentKind::Library(part) => Step::Library(self.library(position, part, inputs, outputs)?),
            SegmentKind::Host(_) => Step::Host(HostCall { segment: position, inputs, outputs, frees: Vec::new() }),
        };
        self.steps.push(step);
        copies.into_iter().for_each(|(from, to)| self.copy_out(from, to));
        Ok(())
    }

    /// A value in its place in another, which is there from its first part on.
    fn part(&mut self, tensor: TensorId, place: &Place, meta: &TensorMeta) -> Result<ValueId> {
        if *meta != place.meta {
            let name = &self.segments.fusion.tensors[tensor].name;
            return Err(Diagnostic::bug(format!("`%{name}` lies otherwise than as a part of what it is joined to")));
        }
        let whole = match self.of[place.whole] {
            Some(whole) => whole,
            None => self.add(place.whole, place.whole_meta.clone(), self.storage(place.whole)),
        };
        Ok(self.add(tensor, meta.clone(), Storage::AliasOf { value: whole, offset: place.offset }))
    }

    /// What was joined of parts lies as it was expected to.
    fn joined(&mut self, segment: &Segment) -> Result<()> {
        for (&tensor, meta) in segment.outputs.iter().zip(&segment.metas) {
            let (whole, placed) = (self.value(tensor)?, self.result_layout(self.storage(tensor)));
            let is_placed = placed.is_none_or(|placed| placed.has_places_of(meta));
            if self.values[whole].meta != *meta || !is_placed {
                let name = &self.segments.fusion.tensors[tensor].name;
                return Err(Diagnostic::bug(format!("`%{name}` was joined in another layout than is wanted")));
            }
        }
        Ok(())
    }

    /// How a result of the caller lies.
    fn result_layout(&self, storage: Storage) -> Option<TensorMeta> {
        match storage {
            Storage::Output(output) => self.segments.outputs.get(output as usize).cloned(),
            _ => None,
        }
    }

    /// Copies a value into a result.
    fn copy_out(&mut self, from: ValueId, result: Value) {
        let tensor = result.tensor;
        let to = self.values.push(result);
        self.copied.set(tensor, Some(to));
        self.steps.push(Step::Copy(Copy::new(from, to)));
    }

    /// A view is no step. One that is returned is copied where it would share memory that it may
    /// not.
    fn view(&mut self, segment: &Segment, inputs: &[HostInput]) -> Result<()> {
        let metas: Vec<ArgMeta> = inputs.iter().map(|input| self.meta(input)).collect();
        let read = inputs.iter().find_map(HostInput::value);
        let part = &segment.fusion;
        let found = match (read, part.ops.ids().next()) {
            (Some(read), Some(op)) => {
                fusion::find_view(part, &fusion::bind(part, &metas)?, op, &self.values[read].meta)?
            }
            _ => None,
        };
        let Some(FoundView { place, copies }) = found else { return Err(Diagnostic::bug("a view is none any more")) };
        let (Some(read), Some(&tensor), Some(meta)) = (read, segment.outputs.first(), segment.metas.first()) else {
            return Err(Diagnostic::bug("a view reads one tensor and returns one"));
        };
        if place.strides != meta.strides {
            let (name, strides) = (&self.segments.fusion.tensors[tensor].name, &meta.strides);
            let message =
                format!("the view `%{name}` has strides {:?}, later segments expect {strides:?}", place.strides);
            return Err(Diagnostic::bug(message).note("they were compiled for the latter"));
        }
        let read = if copies { self.copy_of(read) } else { read };
        let (root, start) = steps::root(&self.values, read);
        let offset = start + place.offset.unsigned_abs() * meta.dtype.bytes() as u64;
        let view = self.add(tensor, meta.clone(), Storage::AliasOf { value: root, offset });
        let storage = self.storage(tensor);
        if let Some(meta) = self.result_layout(storage)
            && !self.is_returned_in_place(root, view, storage, &meta)
        {
            self.copy_out(view, Value { tensor, meta, storage });
        }
        Ok(())
    }

    /// Whether a view is returned as it lies in the memory of `root`. Memory of the program that it
    /// covers becomes that of the result. Memory that the caller has otherwise is shared only
    /// if results may, and if it keeps the value.
    fn is_returned_in_place(&mut self, root: ValueId, view: ValueId, storage: Storage, meta: &TensorMeta) -> bool {
        let own = &self.values[view];
        let is_shared = self.segments.may_alias(own.tensor, &own.meta);
        let covers = steps::root(&self.values, view).1 == 0 && own.bytes() == self.values[root].bytes();
        match self.values[root].storage {
            Storage::Input(position) => is_shared && !self.is_updated(position),
            Storage::Output(_) => is_shared,
            Storage::Arena { .. } if covers && (is_shared || own.meta.has_places_of(meta)) => {
                self.values[root].storage = storage;
                true
            }
            Storage::Arena { .. } | Storage::AliasOf { .. } => false,
        }
    }

    fn is_updated(&self, position: u32) -> bool {
        self.segments.fusion.updates.iter().any(|update| update.input == position)
    }

    /// A dense row-major copy of a value.
    fn copy_of(&mut self, from: ValueId) -> ValueId {
        let own = self.values[from].clone();
        let meta = TensorMeta::contiguous(own.meta.dtype, &own.meta.sizes);
        let to = self.values.push(Value { meta, storage: Storage::Arena { offset: 0 }, ..own });
        self.steps.push(Step::Copy(Copy::new(from, to)));
        to
    }

    /// A value seen by another layout.
    fn seen_as(&mut self, value: ValueId, meta: &TensorMeta) -> ValueId {
        let own = &self.values[value];
        if own.meta == *meta {
            return value;
        }
        let (root, offset) = steps::root(&self.values, value);
        let storage = Storage::AliasOf { value: root, offset };
        self.values.push(Value { tensor: own.tensor, meta: meta.clone(), storage })
    }

    fn input(&self, operand: Operand) -> Result<HostInput> {
        match operand {
            Operand::Tensor(tensor) => self.value(tensor).map(HostInput::Value),
            Operand::Scalar(scalar) => Ok(HostInput::Scalar(self.bindings.scalar(scalar))),
        }
    }

    fn meta(&self, input: &HostInput) -> ArgMeta {
        match *input {
            HostInput::Value(value) => ArgMeta::Tensor(self.values[value].meta.clone()),
            HostInput::Scalar(number) => ArgMeta::Scalar(number),
        }
    }

    fn launch(
        &self,
        position: usize,
        segment: &Segment,
        plan: &Arc<Plan>,
        inputs: &[HostInput],
        outputs: Vec<ValueId>,
    ) -> Result<Launch> {
        let metas: Vec<ArgMeta> = inputs.iter().map(|input| self.meta(input)).collect();
        let launch = bind_launch(plan, &metas, &segment.metas)?;
        self.check_starts(plan, &outputs)?;
        let inputs = inputs.iter().map(HostInput::value).collect();
        Ok(Launch { segment: position, plan: plan.clone(), launch, inputs, outputs, frees: Vec::new() })
    }

    /// Fails where an output that is a part of something else begins elsewhere than its kernel was made for.
    fn check_starts(&self, plan: &Plan, outputs: &[ValueId]) -> Result<()> {
        for param in plan.kernel().params.values() {
            let ParamKind::Output { output, buffer } = param.kind else { continue };
            let (buffer, place) =
                (&plan.kernel().buffers[buffer], steps::root(&self.values, outputs[output as usize]).1);
            let is_aligned = |bytes: u64| bytes.is_multiple_of(buffer.align.into());
            if !place.checked_sub(buffer.start_bytes()).is_some_and(is_aligned) {
                let (kernel, name) = (&plan.kernel().name, &buffer.name);
                return Err(Diagnostic::bug(format!(
                    "kernel {kernel} writes {name} at another place than byte {place}"
                )));
            }
        }
        Ok(())
    }

    /// Operands that no library takes as they lie are copied, a bias that is repeated as often as it is added.
    fn library(
        &mut self,
        segment: usize,
        part: &LibraryPart,
        given: Vec<HostInput>,
        outputs: Vec<ValueId>,
    ) -> Result<LibraryCall> {
        let (mut inputs, mut operands) = (given.clone(), SmallVec::new());
        for (number, (&input, &is_copied)) in part.operands.iter().zip(&part.found.copied).enumerate() {
            let Some(HostInput::Value(mut value)) = given.get(input).copied() else {
                return Err(Diagnostic::bug(format!("operand {input} of a library is no tensor")));
            };
            let sizes = self.values[value].meta.sizes.clone();
            if let (BIAS, Some(repeated)) = (number, &part.found.bias) {
                value = self.seen_as(value, repeated);
            }
            if is_copied {
                value = self.copy_of(value);
            }
            // The operation itself takes a bias as it was given, and what was declared to lie as it does.
            if self.values[value].meta.sizes == sizes && !self.declares_layout(segment, input) {
                inputs[input] = HostInput::Value(value);
            }
            operands.push(value);
        }
        let call = HostCall { segment, inputs, outputs, frees: Vec::new() };
        Ok(LibraryCall { product: part.found.product.clone(), operands, call })
    }

    /// Whether a segment says of one of its inputs how it lies.
    fn declares_layout(&self, segment: usize, input: usize) -> bool {
        let part = &self.segments.segments[segment].fusion;
        matches!(part.inputs.get(input), Some(Operand::Tensor(tensor)) if part.tensors[*tensor].layout.is_some())
    }

    /// Writes updates into their inputs, all after everything has been read: what one
    /// input becomes may be what another was.
    fn updates(&mut self) -> Result<()> {
        let mut copies = Vec::new();
        for update in &self.segments.fusion.updates {
            let Some(&Operand::Tensor(target)) = self.segments.fusion.inputs.get(update.input as usize) else {
                return Err(Diagnostic::bug(format!("input {} is updated, and is no tensor", update.input)));
            };
            let (to, mut from) = (self.value(target)?, self.value(update.tensor)?);
            if matches!(self.values[steps::root(&self.values, from).0].storage, Storage::Input(_)) {
                from = self.copy_of(from);
            }
            copies.push(Step::Copy(Copy::new(from, to)));
        }
        self.steps.extend(copies);
        Ok(())
    }

    /// What each output is at the end: of a tensor that an input becomes, that input.
    fn outputs(&self) -> Result<Vec<ValueId>> {
        let fusion = &self.segments.fusion;
        let place = |output: &TensorId| {
            let update = fusion.updates.iter().find(|update| update.tensor == *output);
            match update.and_then(|update| fusion.inputs.get(update.input as usize)) {
                Some(&Operand::Tensor(target)) => self.value(target),
                _ => self.copied[*output].map_or_else(|| self.value(*output), Ok),
            }
        };
        fusion.outputs.iter().map(place).collect()
    }

    /// Says of each step which values it is the last to read. What nothing reads is
    /// free after the step that writes it.
    fn find_last_reads(&mut self, outputs: &[ValueId]) {
        let mut kept: SecondaryMap<ValueId, bool> = SecondaryMap::new();
        let root = |value| steps::root(&self.values, value).0;
        outputs.iter().for_each(|value| kept.set(root(*value), true));
        for step in self.steps.iter_mut().rev() {
            let mut ended = Vec::new();
            for value in step.reads().into_iter().chain(step.writes().iter().copied()).map(root) {
                if !kept[value] && matches!(self.values[value].storage, Storage::Arena { .. }) {
                    kept.set(value, true);
                    ended.push(value);
                }
            }
            match step {
                Step::Launch(launch) => launch.frees = ended,
                Step::Library(library) => library.call.frees = ended,
                Step::Host(call) => call.frees = ended,
                Step::Copy(copy) => copy.frees = ended,
            }
        }
    }

    /// Gives values between steps their places; the bytes that takes.
    fn place(&mut self) -> u64 {
        let (mut places, mut lives): (Vec<ValueId>, Vec<Lifetime>) = (Vec::new(), Vec::new());
        let mut position: SecondaryMap<ValueId, Option<usize>> = SecondaryMap::new();
        for (step, todo) in self.steps.iter().enumerate() {
            // A part takes the place of the whole.
            for value in todo.writes().iter().map(|value| steps::root(&self.values, *value).0) {
                let is_new = position[value].is_none();
                if is_new && matches!(self.values[value].storage, Storage::Arena { .. }) {
                    position.set(value, Some(places.len()));
                    places.push(value);
                    lives.push(Lifetime { bytes: self.values[value].bytes(), first: step, last: step });
                }
            }
            let touched = todo.reads().into_iter().chain(todo.writes().iter().copied());
            for place in touched.filter_map(|value| position[steps::root(&self.values, value).0]) {
                lives[place].last = step;
            }
        }
        let (offsets, bytes) = arena::place(&lives);
        for (value, offset) in places.into_iter().zip(offsets) {
            self.values[value].storage = Storage::Arena { offset };
        }
        bytes
    }
}
