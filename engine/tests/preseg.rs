//! Passes over whole fusions change no value: random fusions before and after each pass alone, and
//! after the whole table, have the same outputs and updates bit for bit, but for what a
//! NaN holds, which no operation tells apart.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::property::draws::{self, drawn};
use engine::compile::{BoundFusion, result_metas};
use engine::fusion::{Fusion, FusionBuilder, Operand, Src, TensorId, bind, layouts, ops};
use engine::num::{BinaryOp, DType};
use engine::options::{CompileCx, DeviceDesc, NoTrace, Options};
use engine::preseg::{PASSES, run};
use engine::program::ResultMemory;
use engine::refeval::{self, Evaluation};
use engine::runtime::Session;
use engine::tensor::{Arg, ArgMeta, HostTensor};
use engine::{options::SimOptions, text};
use std::collections::{BTreeMap, BTreeSet};
use testing::fusions::{Limits, arguments, generate};
use testing::{Draw, Reference};

/// How often each pass changed something.
type Counts = BTreeMap<String, usize>;

/// All passes switched off but these.
fn only(wanted: impl Fn(&str) -> bool) -> Options {
    let others = PASSES.iter().filter(|pass| !wanted(pass.name)).map(|pass| pass.name.to_string());
    Options { disabled_passes: others.collect(), ..Options::default() }
}

/// A device whose library takes a second for a few operations on matrices at odd places.
fn slow_at_odd_places() -> DeviceDesc {
    DeviceDesc { product_rates: [1, 1, 1, 1 << 50], ..DeviceDesc::h200() }
}

/// What passes leave of a fusion for arguments, after which it reads back from its text; nothing if that text was `met`:
/// most passes leave what others leave, too.
fn presegment(
    options: &Options,
    fusion: &Fusion,
    args: &[Arg],
    counts: &mut Counts,
    met: &mut BTreeSet<String>,
) -> Option<Fusion> {
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let (bindings, alignments) = (bind(fusion, &metas).unwrap(), vec![16; metas.len()]);
    let bound = BoundFusion { fusion, bindings: &bindings, args: &metas, alignments: &alignments };
    let device = slow_at_odd_places();
    let cx = CompileCx { options, device: &device, trace: &NoTrace };
    let mut told = |pass: &str, _: &Fusion| *counts.entry(pass.to_string()).or_default() += 1;
    let made = match run(&cx, &bound, &mut told) {
        Ok(made) => made.fusion.into_owned(),
        Err(error) => panic!("{error}\n{}", text::print(fusion)),
    };
    if text::can_be_written(&made) {
        let own = text::print(&made);
        if met.contains(&own) {
            return None;
        }
        let read = text::parse_one(&own).unwrap_or_else(|error| panic!("{error:?}\n{}\n{own}", text::print(fusion)));
        let same = engine::fusion::hash::content(&read) == engine::fusion::hash::content(&made);
        assert!(same, "it does not read back\n{}\n{own}", text::print(fusion));
        met.insert(own);
    }
    Some(made)
}

fn check_same(expected: &Evaluation, fusion: &Fusion, made: &Fusion, args: &[Arg], what: &str) {
    let told = || format!("{what}\n{}\n{}", text::print(fusion), text::print(made));
    let found = refeval::evaluate_all(made, args).unwrap_or_else(|error| panic!("{error}\n{}", told()));
    let updates = |of: &Evaluation| of.updates.iter().map(|(_, tensor)| tensor.clone()).collect::<Vec<HostTensor>>();
    assert_eq!(expected.outputs.len(), found.outputs.len(), "{}", told());
    let pairs = expected.outputs.iter().zip(&found.outputs);
    for (a, b) in pairs.chain(updates(expected).iter().zip(&updates(&found))) {
        assert!(a.dtype() == b.dtype() && a.sizes() == b.sizes(), "{}", told());
        let shown = |tensor: &HostTensor| tensor.values().map(|value| value.shown(a.dtype())).collect::<Vec<_>>();
        assert_eq!(shown(a), shown(b), "{}", told());
    }
}

/// Each pass alone, the whole table, and the table without each pass.
fn check(fusion: &Fusion, args: &[Arg], counts: &mut Counts) -> bool {
    let Ok(expected) = refeval::evaluate_all(fusion, args) else { return false };
    let mut met = BTreeSet::new();
    let mut hold = |options: &Options, counts: &mut Counts, what: &str| {
        if let Some(made) = presegment(options, fusion, args, counts, &mut met) {
            check_same(&expected, fusion, &made, args, what);
        }
    };
    hold(&Options::default(), counts, "all passes");
    for pass in PASSES {
        hold(&only(|name| name == pass.name), &mut Counts::new(), pass.name);
        hold(&only(|name| name != pass.name), &mut Counts::new(), &format!("without {}", pass.name));
    }
    true
}

#[test]
fn passes_change_no_value_of_the_whole_language() {
    let limits = Limits { ops: 16, rank: 3, sizes: vec![0, 1, 1, 2, 3, 5, 8], ..Limits::whole_language() };
    let (mut counts, mut ran) = (Counts::new(), 0);
    let seeds = drawn(1000);
    for &seed in &seeds {
        let mut draw = Draw::new(seed);
        let bytes = draw.bytes(24 + seed as usize % 150);
        let generated = generate(&bytes, &limits);
        ran += usize::from(check(&generated.fusion, &arguments(&generated, &mut draw), &mut counts));
    }
    println!("{ran} ran, {counts:?}");
    let part = if draws::is_all() { 2 } else { 3 };
    assert!(ran * 10 > seeds.len() * 7 && counts.len() > PASSES.len() / part, "{ran} ran, {counts:?}");
}

/// Chains of what passes are about, on few tensors of few sizes, so that many operations undo or
/// repeat each other.
struct Chain {
    draw: Draw,
    builder: FusionBuilder,
    tensors: Vec<TensorId>,
}

impl Chain {
    fn call(&mut self, name: &str, fill: impl FnOnce(ops::Args) -> ops::Args) -> Option<Operand> {
        self.builder.apply(&fill(ops::Args::new(ops::find(name)?))).ok()?.first().copied()
    }

    fn ints(&mut self, count: usize, of: &[i64]) -> Vec<i64> {
        (0..count).map(|_| self.draw.choose(of)).collect()
    }

    /// One more input with its argument.
    fn input(&mut self, seed: u64, shape: &[i64], args: &mut Vec<Arg>) -> TensorId {
        use engine::fusion::AxisDecl::{Broadcast, Const, Symbolic};
        let position = args.len();
        let dtype = self.draw.choose(&[DType::F32, DType::F32, DType::BF16, DType::F64, DType::I32]);
        let open = self.draw.once_in(2);
        let dims = shape.iter().map(|&size| match size {
            1 if !open => Broadcast,
            _ if open => Symbolic,
            size => Const(size),
        });
        let made = self.builder.tensor(&format!("x{position}"), dtype, &dims.collect::<Vec<_>>()).unwrap();
        let Operand::Tensor(tensor) = made else { panic!("an input is a tensor") };
        let mut draw = Draw::new(seed ^ 77 ^ position as u64);
        let numbers = [-0.0, 0.0, 1.0, -1.5, 3.25, f64::NAN, f64::INFINITY, 1e-40, -1e-30, 65504.0, 1e300];
        let element = |_: &[i64]| match dtype.is_float() {
            true => engine::num::Value::Float(draw.choose(&numbers)),
            false => engine::num::Value::Int(draw.choose(&[0, 1, -1, 300, i64::from(i32::MAX)])),
        };
        args.push(Arg::Tensor(HostTensor::from_fn(dtype, shape, element).unwrap()));
        tensor
    }

    /// A tensor from a position along an axis to another one.
    fn cut(&mut self, x: TensorId, dim: i64, from: i64, to: i64) -> Option<Operand> {
        let rank = self.builder.axes(x).len();
        let at = |other: i64, own: i64| (0..rank as i64).map(move |axis| if axis == dim { own } else { other }.into());
        let [starts, ends] = [at(0, from), at(99, to)].map(|list| ops::OpArg::Values(list.collect()));
        self.call("slice", |args| args.value("x", x).with("starts", starts).with("ends", ends))
    }

    /// A tensor cut in two along an axis, and joined again, mostly in the same order.
    fn cut_and_joined(&mut self, x: TensorId, dim: i64) -> Option<Operand> {
        let mut parts = vec![Src::from(self.cut(x, dim, 0, 1)?), self.cut(x, dim, 1, 99)?.into()];
        if self.draw.once_in(4) {
            parts.reverse();
        }
        let dim = ops::OpArg::Int(dim);
        self.call("cat", |args| args.with("tensors", ops::OpArg::Values(parts)).with("dim", dim))
    }

    /// What is computed of a tensor `[_, 4]` and of the same with the halves of its rows turned.
    fn turned(&mut self, x: TensorId) -> Option<Operand> {
        let mut half = |from: i64| {
            let [starts, ends] = [[0, from], [99, from + 2]].map(|at| ops::OpArg::Values(at.map(Src::from).to_vec()));
            self.call("slice", |args| args.value("x", x).with("starts", starts).with("ends", ends))
        };
        let (first, second) = (half(0)?, half(2)?);
        let second = self.builder.neg(second).ok()?;
        let parts = ops::OpArg::Values(vec![second.into(), first.into()]);
        let turned = self.call("cat", |args| args.with("tensors", parts).with("dim", ops::OpArg::Int(1)))?;
        let sum = self.builder.add(turned, x).ok()?;
        if self.draw.once_in(2) { self.builder.mul(sum, x).ok() } else { Some(sum) }
    }

    /// Sums or products of what is before each element of a tensor `[3, 4]`, written with an element in front.
    fn behind_one(&mut self, x: TensorId) -> Option<Operand> {
        let dtype = self.builder.dtype(Operand::Tensor(x));
        let (name, first) = self.draw.choose(&[("cumsum", 0i64), ("cumprod", 1)]);
        let shape = ops::OpArg::Values([3i64, 1].map(Src::from).to_vec());
        let dtype = ops::OpArg::DType(dtype);
        let one = self.call("full", |args| args.with("shape", shape).value("value", first).with("dtype", dtype))?;
        let parts = ops::OpArg::Values(vec![one.into(), self.cut(x, 1, 0, 3)?.into()]);
        let joined = self.call("cat", |args| args.with("tensors", parts).with("dim", ops::OpArg::Int(1)))?;
        self.call(name, |args| args.value("x", joined).with("dim", ops::OpArg::Int(1)))
    }

    /// A tensor with the first positions of two of its axes behind the others.
    fn rolled(&mut self, mut x: TensorId) -> Option<Operand> {
        for dim in [0, 1] {
            let parts = vec![Src::from(self.cut(x, dim, 1, 99)?), self.cut(x, dim, 0, 1)?.into()];
            let (parts, dim) = (ops::OpArg::Values(parts), ops::OpArg::Int(dim));
            let Operand::Tensor(joined) = self.call("cat", |args| args.with("tensors", parts).with("dim", dim))? else {
                return None;
            };
            x = joined;
        }
        Some(Operand::Tensor(x))
    }

    /// Sums or extremes up to each element, in the type in which such are combined.
    fn scanned(&mut self, x: TensorId, dim: i64) -> Option<Operand> {
        let dtype = self.builder.dtype(Operand::Tensor(x));
        let wide = self.builder.cast(x, dtype.compute()).ok()?;
        let name = self.draw.choose(&["cumsum", "cummax"]);
        let scanned = self.call(name, |args| args.value("x", wide).with("dim", ops::OpArg::Int(dim)))?;
        self.builder.cast(scanned, dtype).ok()
    }

    /// Elements of what is computed of a tensor at the first and the second position of an axis.
    fn looked_up(&mut self, x: TensorId, dim: i64) -> Option<Operand> {
        let table = self.builder.neg(x).ok()?;
        let rank = self.builder.axes(x).len();
        let name = self.draw.choose(&["index_select", "take_along_axis", "gather"]);
        let axes = if name == "index_select" { 1 } else { rank };
        let extents: Vec<Src> = (0..axes).map(|_| 1.into()).collect();
        let index = self.builder.full(&extents, self.draw.below(2) as i64, DType::I64).ok()?;
        let dim = ops::OpArg::Int(dim);
        self.call(name, |args| args.value("x", table).value("index", index).with("dim", dim))
    }

    /// Rows of a tensor put where an index says, the same for all of a row.
    fn rows_put(&mut self, x: TensorId, dim: i64) -> Option<Operand> {
        let rank = self.builder.axes(x).len();
        let mut shape: Vec<Src> = Vec::new();
        for axis in 0..rank as i64 {
            shape.push(self.builder.size(x, axis).ok()?.into());
        }
        let place = self.draw.below(2) as i64;
        *shape.get_mut(dim as usize)? = (1 + place).into();
        let index = self.builder.full(&[(1 + place).into()], place, DType::I64).ok()?;
        let others: Vec<bool> = (0..rank as i64).map(|axis| axis != dim).collect();
        let index = self.builder.broadcast(index, &others).ok()?;
        let index = self.call("expand", |args| args.value("x", index).with("shape", ops::OpArg::Values(shape)))?;
        let rows = self.builder.neg(x).ok()?;
        let src = if self.draw.once_in(3) { Src::from(1) } else { rows.into() };
        let dim = ops::OpArg::Int(dim);
        self.call("scatter", |args| args.value("x", x).value("index", index).value("src", src).with("dim", dim))
    }

    /// What is looked up along two axes of `[2, 3, 16]`, one after the other, at places that are computed or held by an input.
    fn mirrored(&mut self, x: TensorId) -> Option<Operand> {
        let mut looked_up = Operand::Tensor(x);
        for _ in 0..2 {
            let (axis, size) = self.draw.choose(&[(0_i64, 2_i64), (1, 3), (2, 16)]);
            let own = self.call("iota", |args| args.value("length", size + 1).value("start", -1));
            let mut index = own.and_then(|own| self.builder.abs(own).ok())?;
            if self.draw.once_in(3) {
                index = self.builder.sub(size - 1, index).ok()?;
            }
            if self.draw.once_in(3) {
                index = self.builder.cast(index, DType::U8).ok()?;
            }
            let dim = ops::OpArg::Int(axis);
            looked_up =
                self.call("index_select", |args| args.value("x", looked_up).value("index", index).with("dim", dim))?;
        }
        if self.draw.once_in(2) { self.builder.neg(looked_up).ok() } else { Some(looked_up) }
    }

    /// The greatest probability along the last axis.
    fn peak(&mut self, x: TensorId) -> Option<Operand> {
        let name = self.draw.choose(&["softmax", "log_softmax"]);
        let probabilities = self.call(name, |args| args.value("x", x))?;
        self.builder.max(probabilities, &[-1], self.draw.once_in(2)).ok()
    }

    /// A scan of `[2, 3, 16]` elements from the last to the first along an axis, of which most are turned round for that.
    fn scanned_back(&mut self, x: TensorId) -> Option<Operand> {
        let (axis, size) = self.draw.choose(&[(1_i64, 3_i64), (2, 16)]);
        let name = self.draw.choose(&["cumsum", "cummax"]);
        let dim = || ops::OpArg::Int(axis);
        let index = self.call("iota", |args| args.value("length", size).value("start", size - 1).value("step", -1))?;
        let turned = self.call("index_select", |args| args.value("x", x).value("index", index).with("dim", dim()))?;
        let scanned = self.call(name, |args| args.value("x", turned).with("dim", dim()))?;
        self.call("index_select", |args| args.value("x", scanned).value("index", index).with("dim", dim()))
    }

    /// How many of `[2, 3, 16]` numbers are each of a few, or as often another number.
    fn counted(&mut self, x: TensorId) -> Option<Operand> {
        let list = |numbers: &[i64]| ops::OpArg::Values(numbers.iter().map(|&number| Src::from(number)).collect());
        let line = self.call("reshape", |args| args.value("x", x).with("shape", list(&[96])))?;
        let whole = self.builder.cast(line, DType::I64).ok()?;
        let index = self.builder.binary(BinaryOp::Remainder, whole, 5).ok()?;
        let number = self.draw.choose(&[1_i64, 3, -2]);
        let places = self.builder.full(&[5.into()], 0, DType::I64).ok()?;
        let each = self.builder.full(&[96.into()], number, DType::I64).ok()?;
        self.call("index_put_accumulate", |args| args.value("acc", places).value("index", index).value("value", each))
    }

    /// Elements of a line that are found by what is joined of pairs and seen in other axes, `[2, 3, 16]` of them each.
    fn decoded(&mut self, x: TensorId) -> Option<Operand> {
        let list = |numbers: &[i64]| ops::OpArg::Values(numbers.iter().map(|&number| Src::from(number)).collect());
        let line = self.call("reshape", |args| args.value("x", x).with("shape", list(&[96])))?;
        let numbers = self.builder.cast(x, DType::I32).ok()?;
        let mut pair = Vec::new();
        for by in [3_i64, 7] {
            let own = self.builder.bitwise_and(numbers, by).ok()?;
            pair.push(self.builder.broadcast(own, &[false, false, false, true]).ok()?.into());
        }
        let joined =
            self.call("cat", |args| args.with("tensors", ops::OpArg::Values(pair)).with("dim", ops::OpArg::Int(3)))?;
        let index = self.call("reshape", |args| args.value("x", joined).with("shape", list(&[192])))?;
        let found = self
            .call("index_select", |args| args.value("x", line).value("index", index).with("dim", ops::OpArg::Int(0)))?;
        let shape = self.draw.choose(&[[6_i64, 32], [12, 16], [48, 4], [64, 3]]);
        let found = self.call("reshape", |args| args.value("x", found).with("shape", list(&shape)))?;
        self.builder.neg(found).ok()
    }

    /// Rows that are looked up, in groups.
    fn groups_looked_up(&mut self, x: TensorId) -> Option<Operand> {
        let (place, groups) = (self.draw.below(2) as i64, self.draw.choose(&[1_i64, 2, 3]));
        let index = self.builder.full(&[(2 * groups).into()], place, DType::I64).ok()?;
        let index = self.builder.mul(index, 1).ok()?;
        let rows =
            self.call("index_select", |args| args.value("x", x).value("index", index).with("dim", ops::OpArg::Int(0)))?;
        let rows = self.builder.neg(rows).ok()?;
        let shape = ops::OpArg::Values([groups, 2, -1].map(Src::from).to_vec());
        let split = self.call("reshape", |args| args.value("x", rows).with("shape", shape))?;
        self.builder.sum(split, &[1], false).ok()
    }

    /// Rows that are added where an index says, and then up in groups with weights.
    fn groups_added(&mut self, rows: TensorId, weight: TensorId) -> Option<Operand> {
        let dtype = self.draw.choose(&[DType::F32, DType::BF16]);
        let (rows, weight) = (self.builder.cast(rows, dtype).ok()?, self.builder.cast(weight, dtype).ok()?);
        let place = self.draw.below(4) as i64;
        let index = self.builder.full(&[3.into()], place, DType::I64).ok()?;
        let index = self.builder.mul(index, 1).ok()?;
        let number = if self.draw.once_in(4) { 1.0 } else { 0.0 };
        let acc = self.builder.full(&[4.into(), 4.into()], number, dtype).ok()?;
        let put = self
            .call("index_put_accumulate", |args| args.value("acc", acc).value("index", index).value("value", rows))?;
        let shape = ops::OpArg::Values([2, 2, 4].map(Src::from).to_vec());
        let groups = self.call("reshape", |args| args.value("x", put).with("shape", shape))?;
        let weight = self.builder.broadcast(weight, &[false, false, true]).ok()?;
        let product = self.builder.mul(groups, weight).ok()?;
        let sums = self.builder.sum(product, &[1], false).ok()?;
        self.builder.cast(sums, dtype).ok()
    }

    /// Narrow rows that are widened, seen in other axes, and added where an index says.
    fn widened_added(&mut self, x: TensorId) -> Option<Operand> {
        let narrow = self.draw.choose(&[DType::BF16, DType::F16, DType::F8E5M2]);
        let narrow = self.builder.cast(x, narrow).ok()?;
        let wide = self.draw.choose(&[DType::F32, DType::F64]);
        let mut seen = self.builder.cast(narrow, wide).ok()?;
        if self.draw.once_in(2) {
            seen = self.builder.permute(seen, &[1, 0]).ok()?;
        }
        let shape = self.draw.choose(&[[6_i64, 2], [2, 6], [4, 3], [12, 1]]);
        let list = ops::OpArg::Values(shape.map(Src::from).to_vec());
        let seen = self.call("reshape", |args| args.value("x", seen).with("shape", list))?;
        let place = self.draw.below(4) as i64;
        let index = self.builder.full(&[shape[0].into()], place, DType::I64).ok()?;
        let index = self.builder.mul(index, 1).ok()?;
        let number = if self.draw.once_in(2) { -0.0 } else { 1.0 };
        let acc = self.builder.full(&[4.into(), shape[1].into()], number, wide).ok()?;
        let acc = if self.draw.once_in(2) { self.builder.neg(acc).ok()? } else { acc };
        self.call("index_put_accumulate", |args| args.value("acc", acc).value("index", index).value("value", seen))
    }

    /// What is computed in some axes and read in others, and sometimes in the first ones again.
    fn regrouped(&mut self, x: TensorId) -> Option<Operand> {
        let own = self.builder.axes(x).to_vec();
        let mut last = self.builder.neg(x).ok()?;
        for _ in 0..1 + self.draw.below(2) {
            let shape = self.draw.choose(&[&[-1_i64][..], &[2, -1], &[-1, 2], &[-1, 3], &[3, 2, -1], &[-1, 1, 2]]);
            let shape = ops::OpArg::Values(shape.iter().map(|&size| Src::from(size)).collect());
            let seen = self.call("reshape", |args| args.value("x", last).with("shape", shape))?;
            let Operand::Tensor(tensor) = seen else { return None };
            let rank = self.builder.axes(tensor).len() as i64;
            let turned = (0..rank).rev().collect::<Vec<_>>();
            last = match self.draw.below(5) {
                4 => {
                    let part = self.position(tensor, rank - 1)?;
                    self.builder.abs(part).ok()?
                }
                0 => self.builder.sum(seen, &[rank - 1], true).and_then(|sum| self.builder.add(seen, sum)).ok()?,
                1 => self.builder.permute(seen, &turned).and_then(|moved| self.builder.abs(moved)).ok()?,
                2 => self.builder.max(seen, &[0], false).ok()?,
                _ => self.builder.abs(seen).ok()?,
            };
            if self.draw.once_in(4)
                && let Operand::Tensor(tensor) = last
            {
                self.tensors.push(tensor);
            }
        }
        if self.draw.once_in(2) {
            return Some(last);
        }
        let shape = ops::OpArg::Values(own.iter().map(|axis| axis.extent.into()).collect());
        let back = self.call("reshape", |args| args.value("x", last).with("shape", shape))?;
        self.builder.add(back, x).ok()
    }

    /// The first or the second position of an axis.
    fn position(&mut self, x: TensorId, dim: i64) -> Option<Operand> {
        let (index, dim) = (self.draw.below(2) as i64, ops::OpArg::Int(dim));
        self.call("select", |args| args.value("x", x).value("index", index).with("dim", dim))
    }

    /// Parts of what is computed, and sometimes all of it.
    fn shown(&mut self, x: TensorId, dim: i64) -> Option<Operand> {
        let computed = match self.draw.below(4) {
            0 => self.builder.cast(x, self.draw.choose(&[DType::F32, DType::F64, DType::I64])),
            1 => self.builder.mul(x, x),
            2 => self.builder.abs(x),
            _ => self.builder.neg(x),
        };
        let Operand::Tensor(tensor) = computed.ok()? else { return None };
        let mut parts = Vec::new();
        for _ in 0..2 {
            let widths = self.draw.choose(&[[1, -1], [-1, 1], [1, 0], [2, -1]]);
            let list = |numbers: &[i64]| ops::OpArg::Values(numbers.iter().map(|&number| Src::from(number)).collect());
            let value = self.draw.choose(&[0.0, 0.0, -0.0, 1.0, 0.1]);
            parts.push(match self.draw.below(4) {
                0 => self.position(tensor, dim)?,
                1 => self.cut(tensor, dim, 0, 1)?,
                _ => self.call("pad", |args| {
                    let args = args.value("x", tensor).with("widths", list(&widths));
                    if value == 1.0 { args } else { args.value("value", value) }
                })?,
            });
        }
        if self.draw.once_in(2)
            && let Operand::Tensor(part) = parts[1]
        {
            let rank = self.builder.axes(part).len() as i64;
            parts[1] = self.cut(part, rank - 1, 0, 2)?;
        }
        if self.draw.once_in(3) {
            parts.push(Operand::Tensor(tensor));
        }
        let mut last = parts[0];
        for part in &parts[1..] {
            last = self.builder.sub(last, *part).or_else(|_| self.builder.abs(*part)).ok()?;
        }
        Some(last)
    }

    /// The first element along an axis, or its position. Zeros have one sign: of both the pass has the greatest or the least one.
    fn first(&mut self, x: TensorId, dim: i64) -> Option<Operand> {
        let x = self.builder.add(x, 0).ok()?;
        let largest = ops::OpArg::Bool(self.draw.once_in(2));
        let args = ops::Args::new(ops::find("topk")?).value("x", x).value("k", 1).with("dim", ops::OpArg::Int(dim));
        let made = self.builder.apply(&args.with("largest", largest)).ok()?;
        Some(made[self.draw.below(2)])
    }

    /// Rows beside columns of the positions along an axis.
    fn positions(&mut self) -> Option<Operand> {
        let length = self.draw.choose(&[2_i64, 3]);
        let along = self.call("iota", |args| args.value("length", length))?;
        let along = if self.draw.once_in(2) { self.builder.neg(along).ok()? } else { along };
        let [rows, columns] = [[false, true], [true, false]].map(|flags| self.builder.broadcast(along, &flags));
        let distance = self.builder.sub(rows.ok()?, columns.ok()?).ok()?;
        self.builder.cast(distance, DType::F32).ok()
    }

    /// What is computed of a tensor beside the same at other places.
    fn met(&mut self, x: TensorId) -> Option<Operand> {
        let rank = self.builder.axes(x).len();
        let mut made = self.builder.neg(x).ok()?;
        if self.draw.once_in(2) {
            made = self.builder.mul(made, x).ok()?;
        }
        let mut placed = || match self.draw.below(3) {
            0 => Some((made, self.draw.once_in(2))),
            turned => {
                let dims: Vec<i64> = (0..rank).map(|axis| ((axis + turned) % rank) as i64).collect();
                Some((self.builder.permute(made, &dims).ok()?, self.draw.once_in(2)))
            }
        };
        let (a, b) = (placed()?, placed()?);
        let mut beside = |(x, is_last): (Operand, bool)| {
            let flags: Vec<bool> = (0..=rank).map(|axis| axis == if is_last { rank } else { 0 }).collect();
            self.builder.broadcast(x, &flags).ok()
        };
        let (a, b) = (beside(a)?, beside(b)?);
        self.builder.sub(a, b).ok()
    }

    fn step(&mut self) -> Option<Operand> {
        // Half of the time on with what was made last.
        let last = self.tensors[self.tensors.len() - 1];
        let (x, y) = (self.draw.choose(&self.tensors), self.draw.choose(&self.tensors));
        let x = if self.draw.once_in(2) { last } else { x };
        let rank = self.builder.axes(x).len();
        let list = |numbers: Vec<i64>| ops::OpArg::Values(numbers.into_iter().map(Src::from).collect());
        let dim = self.draw.below(rank.max(1)) as i64;
        match self.draw.below(23) {
            0 => {
                let turn = self.draw.below(rank.max(1));
                let dims: Vec<i64> = (0..rank).map(|axis| ((axis + turn) % rank) as i64).collect();
                self.builder.permute(x, &dims).ok()
            }
            1 => {
                let place = self.draw.below(rank + 1);
                self.builder.broadcast(x, &(0..=rank).map(|axis| axis == place).collect::<Vec<_>>()).ok()
            }
            2 => self.builder.squeeze(x, &(0..rank).map(|axis| axis as i64 == dim).collect::<Vec<_>>()).ok(),
            3 => {
                let to = self.draw.choose(&[DType::F64, DType::F32, DType::BF16, DType::F16, DType::I32, DType::I64]);
                self.builder.cast(x, to).ok()
            }
            4 => self.builder.set(x).ok(),
            5 => {
                let shape = self.draw.choose(&[&[-1_i64][..], &[1, -1], &[2, -1], &[-1, 1, 3], &[-1, 2, 1]]);
                self.call("reshape", |args| args.value("x", x).with("shape", list(shape.to_vec())))
            }
            6 => {
                let (starts, ends) = (self.ints(rank, &[0, 0, 0, 1]), self.ints(rank, &[1, 2, 9, 9]));
                self.call("slice", |args| args.value("x", x).with("starts", list(starts)).with("ends", list(ends)))
            }
            7 => {
                let widths = self.ints(2, &[0, 0, 1, -1]);
                self.call("pad", |args| args.value("x", x).with("widths", list(widths)))
            }
            8 => {
                let tensors = ops::OpArg::Values(vec![x.into(), if self.draw.once_in(3) { x } else { y }.into()]);
                self.call("cat", |args| args.with("tensors", tensors).with("dim", ops::OpArg::Int(dim)))
            }
            9 => {
                let counts = self.ints(rank, &[1, 1, 2, 3]);
                self.call("repeat", |args| args.value("x", x).with("counts", ops::OpArg::Ints(counts)))
            }
            10 | 11 => match self.draw.below(4) {
                0 => {
                    // Twice, behind moves or a function that are twins as well.
                    let twins = [self.builder.neg(x).ok()?, self.builder.neg(x).ok()?];
                    let [a, b] = twins.map(|twin| self.builder.max(twin, &[dim], false));
                    self.builder.sub(a.ok()?, b.ok()?).ok()
                }
                1 => self.builder.sum(x, &[dim], true).ok(),
                2 => self.scanned(x, dim),
                _ => self.builder.neg(x).ok(),
            },
            12 => self.cut_and_joined(x, dim),
            13 => {
                let wide = self.builder.cast(x, DType::F64).ok()?;
                self.builder.cast(wide, self.builder.dtype(Operand::Tensor(x))).ok()
            }
            14 => self.looked_up(x, dim),
            15 => self.rows_put(x, dim),
            16 => self.groups_looked_up(x),
            17 => self.regrouped(x),
            18 => self.first(x, dim),
            19 => self.positions(),
            20 => self.shown(x, dim),
            21 => self.met(x),
            _ => self.call("matmul", |args| args.value("a", x).value("b", y)),
        }
    }
}

/// A chain with its arguments: dense tensors, of special numbers too.
fn chain(seed: u64) -> (Fusion, Vec<Arg>) {
    let mut this = Chain { draw: Draw::new(seed), builder: FusionBuilder::new("chain"), tensors: Vec::new() };
    let shapes: [&[i64]; 4] = [&[2, 3], &[3, 1], &[1, 2], &[0, 2]];
    let mut args = Vec::new();
    let count = 3 + this.draw.below(2);
    for shape in &shapes[..count] {
        let tensor = this.input(seed, shape, &mut args);
        this.tensors.push(tensor);
    }
    for _ in 0..20 {
        if let Some(Operand::Tensor(made)) = this.step() {
            this.tensors.push(made);
        }
    }
    let count = this.tensors.len();
    for _ in 0..3 {
        let returned = this.tensors[count - 1 - this.draw.below(count.min(6))];
        this.builder.output(returned).unwrap();
    }
    if this.draw.once_in(4) {
        for rows in [3, this.draw.choose(&[1, 3])] {
            let x = this.input(seed, &[rows, 4], &mut args);
            if let Some(turned) = this.turned(x) {
                this.builder.output(turned).unwrap();
            }
        }
    }
    if this.draw.once_in(8) {
        let (rows, weight) = (this.input(seed, &[3, 4], &mut args), this.input(seed, &[2, 2], &mut args));
        if let Some(sums) = this.groups_added(rows, weight) {
            this.builder.output(sums).unwrap();
        }
    }
    if this.draw.once_in(8) {
        let x = this.input(seed, &[3, 4], &mut args);
        if let Some(made) = this.behind_one(x) {
            this.builder.output(made).unwrap();
        }
    }
    if this.draw.once_in(8) {
        let rows = this.input(seed, &[3, 4], &mut args);
        if let Some(sums) = this.widened_added(rows) {
            this.builder.output(sums).unwrap();
        }
    }
    (this.builder.finish().unwrap(), args)
}

/// Windows of a tensor that are joined, what is computed of places of it behind a pad, and a tensor that is rolled.
fn windows(seed: u64) -> (Fusion, Vec<Arg>) {
    let mut this = Chain { draw: Draw::new(seed), builder: FusionBuilder::new("windows"), tensors: Vec::new() };
    let mut args = Vec::new();
    let shape = [this.draw.choose(&[1, 2, 3]), this.draw.choose(&[64, 70])];
    let x = this.input(seed, &shape, &mut args);
    let list = |numbers: &[i64]| ops::OpArg::Values(numbers.iter().map(|&number| Src::from(number)).collect());
    let mut parts = Vec::new();
    for _ in 0..2 + this.draw.below(3) {
        let widths = this.draw.choose(&[[1, -1, 0, 0], [-2, 2, 1, -1], [0, 0, 0, 0], [0, 0, -1, 1]]);
        let part = this.call("pad", |args| args.value("x", x).with("widths", list(&widths))).unwrap();
        parts.push(if this.draw.once_in(3) { this.builder.neg(part).unwrap() } else { part }.into());
    }
    let joined =
        this.call("cat", |args| args.with("tensors", ops::OpArg::Values(parts)).with("dim", ops::OpArg::Int(0)));
    let ends = [this.draw.choose(&[0, 1]), this.draw.choose(&[1, 3])];
    let padded = this.call("pad", |args| args.value("x", x).with("widths", list(&ends)).value("value", 2)).unwrap();
    let moved = if this.draw.once_in(2) {
        let turned = [shape[1] + ends[0] + ends[1], shape[0]];
        this.call("reshape", |args| args.value("x", padded).with("shape", list(&turned)))
    } else {
        let [start, step] = [this.draw.choose(&[0, 1, 5]), this.draw.choose(&[1, 2, 3])];
        let index =
            this.call("iota", |args| args.value("length", 20).value("start", start).value("step", step)).unwrap();
        this.call("index_select", |args| args.value("x", padded).value("index", index).with("dim", ops::OpArg::Int(1)))
    };
    let computed = moved.and_then(|moved| this.builder.neg(moved).ok());
    let rows = this.input(seed, &[2, 3, 16], &mut args);
    let rolled = this.rolled(rows);
    let mirrored = this.mirrored(rows);
    let decoded = this.decoded(rows);
    // Where something is reduced, what is computed at places is left as it is.
    let peak = if this.draw.once_in(3) { this.peak(rows) } else { None };
    let (scanned, counted) = (this.scanned_back(rows), this.counted(rows));
    for result in [joined, computed, rolled, mirrored, decoded, peak, scanned, counted].into_iter().flatten() {
        this.builder.output(result).unwrap();
    }
    (this.builder.finish().unwrap(), args)
}

#[test]
fn passes_change_no_value_of_chains() {
    let (mut counts, mut ran) = (Counts::new(), 0);
    let seeds = drawn(2000);
    for (fusion, args) in seeds.iter().copied().map(chain).chain(drawn(100).into_iter().map(windows)) {
        let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
        if bind(&fusion, &metas).is_ok() {
            ran += usize::from(check(&fusion, &args, &mut counts));
        }
    }
    println!("{ran} ran, {counts:?}");
    assert!(ran * 20 > seeds.len() * 3, "{ran} ran");
    let few = if draws::is_all() { 10 } else { 0 };
    // Products that are widened are few among them, if any, and have a test of their own.
    let is_frequent = |pass: &str| counts.get(pass).is_some_and(|count| *count > few);
    assert!(PASSES.iter().all(|pass| pass.name == "pitches" || is_frequent(pass.name)), "{counts:?}");
}

/// What passes leave is cut, compiled and run, and its results lie where the definition says.
#[test]
fn chains_run_with_passes_and_without() {
    let sim = SimOptions { threads: 1, count: false, ..SimOptions::default() };
    let session = |options| Session::simulator(slow_at_odd_places(), sim, options);
    let (with, without) = (session(Options::default()), session(only(|_| false)));
    let mut ran = 0;
    let seeds = drawn(200);
    let chains = seeds.iter().map(|seed| (*seed, chain(*seed)));
    for (seed, (fusion, args)) in chains.chain(drawn(40).into_iter().map(|seed| (seed, windows(seed)))) {
        let Ok(reference) = Reference::of(&fusion, &args) else { continue };
        let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
        let bindings = bind(&fusion, &metas).unwrap();
        let bound = BoundFusion { fusion: &fusion, bindings: &bindings, args: &metas, alignments: &[] };
        let (own, views) = (result_metas(&bound).unwrap(), layouts(&fusion, &bindings, &metas).unwrap());
        let [a, _] = [&with, &without].map(|session| {
            let run = match session.run(&fusion, &args, &NoTrace) {
                Ok(run) => run,
                Err(error) => panic!("seed {seed}: {error}\n{}", text::print(&fusion)),
            };
            // Passes may show that a result is a view, which lies as it would in eager mode.
            for (position, memory) in run.program.result_memories().enumerate() {
                let view = &views[fusion.outputs[position]];
                let wanted = if memory == ResultMemory::Own { &own[position] } else { view };
                let found = &run.outputs[position].meta;
                assert!(found.has_places_of(wanted), "seed {seed}: {found:?}, {wanted:?}\n{}", text::print(&fusion));
            }
            run.outputs
        });
        reference.compare_all(&a).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", text::print(&fusion)));
        ran += 1;
    }
    assert!(ran * 10 > seeds.len() * 3, "{ran} ran");
}

/// A tensor of small integers whose last two axes are in this order in memory.
fn small(draw: &mut Draw, sizes: &[i64], turned: bool) -> Arg {
    let rank = sizes.len();
    let mut meta = engine::tensor::TensorMeta::contiguous(DType::BF16, sizes);
    if turned && rank > 1 {
        (meta.strides[rank - 2], meta.strides[rank - 1]) = (1, sizes[rank - 2]);
    }
    let element = |_: &[i64]| engine::num::Value::Float(draw.below(9) as f64 - 4.0);
    Arg::Tensor(HostTensor::strided(meta, element).unwrap())
}

/// A product of drawn sizes, with operands in any order, and what a kernel makes of its result.
struct DrawnProduct {
    fusion: Fusion,
    args: Vec<Arg>,
    n: i64,
    k: i64,
    is_aligned: bool,
}

fn product(seed: u64) -> DrawnProduct {
    let mut draw = Draw::new(seed);
    let [m, n, k] = [(); 3].map(|()| draw.choose(&[2, 3, 6, 8, 12, 15, 16, 17]));
    let stack: Vec<i64> = (0..draw.below(2)).map(|_| 1 + draw.below(3) as i64).collect();
    let sizes = |own: [i64; 2]| stack.iter().copied().chain(own).collect::<Vec<_>>();
    let is_linear = draw.once_in(2);
    let [is_left_turned, is_right_turned] = [(); 2].map(|()| draw.once_in(2));
    let right = if is_linear { vec![n, k] } else { sizes([k, n]) };
    let mut args = vec![small(&mut draw, &sizes([m, k]), is_left_turned), small(&mut draw, &right, is_right_turned)];
    let (all, own) = ("?, ".repeat(stack.len()), "?, ".repeat(right.len() - 2));
    let mut inputs = format!("%a: bf16[{all}?, ?], %b: bf16[{own}?, ?]");
    let left = draw.choose(&["%x = set %a", "%y = neg %a\n%x = cast %y bf16"]);
    let made = match (is_linear, draw.once_in(2)) {
        (false, _) => "%c = matmul %x, %b",
        (true, false) => "%c = linear %x, %b",
        (true, true) => {
            inputs += ", %d: bf16[?]";
            args.push(small(&mut draw, &[n], false));
            "%c = linear %x, %b bias(%d)"
        }
    };
    let relu = "%e = relu %c\nreturn %e";
    let behind = draw.choose(&["return %c", relu, "%e = relu %c\nreturn %c, %e", "%e = sum %c axes(-1)\nreturn %e"]);
    let fusion = text::parse_one(&format!("fusion @f({inputs}) {{\n{left}\n{made}\n{behind}\n}}")).unwrap();
    DrawnProduct { fusion, args, n, k, is_aligned: [m, n, k].iter().all(|size| size % 8 == 0) }
}

/// Products that are widened have their values, whatever the order of operands and whoever writes or reads them.
#[test]
fn wider_products_have_their_values() {
    let sim = SimOptions { threads: 1, count: false, ..SimOptions::default() };
    let session = Session::simulator(slow_at_odd_places(), sim, Options::default());
    let mut widened = 0;
    for seed in 0..60 {
        let DrawnProduct { fusion, args, n, k, is_aligned } = product(seed);
        let told = |error| -> String { format!("seed {seed}: {error}\n{}", text::print(&fusion)) };
        let run = session.run(&fusion, &args, &NoTrace).unwrap_or_else(|error| panic!("{}", told(error.to_string())));
        let compared = Reference::of(&fusion, &args).unwrap().compare_all(&run.outputs);
        compared.unwrap_or_else(|error| panic!("{}", told(error.to_string())));
        let products: Vec<[i64; 2]> =
            run.program.library_calls().map(|call| [call.product.n, call.product.k]).collect();
        assert!(products.len() == 1 && (!is_aligned || products[0] == [n, k]), "{products:?}");
        widened += usize::from(products[0] != [n, k]);
    }
    assert!(widened > 30, "{widened}");
}
