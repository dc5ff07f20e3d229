//! Axes of random programs against what their operations read, element by element.

use super::numbers::Numbers;
use super::programs::concrete;
use super::terms::{Term, Terms};
use crate::axes::{AxisId, AxisRef, Forks, FusionAxes, IndexMap, Indexed, ValueId, analyze};
use crate::fusion::ops::Form;
use crate::fusion::{Fusion, Op, OpKind, Operand, TensorId};
use crate::property::property;
use crate::text;
use arbtest::arbitrary::{Result, Unstructured};
use std::collections::BTreeMap;

/// A program in the making: tensors with their sizes.
struct Program {
    lines: Vec<String>,
    shapes: Vec<Vec<i64>>,
    used: Vec<bool>,
}

impl Program {
    fn push(&mut self, operands: &[usize], line: impl FnOnce(Vec<String>) -> String, shape: Vec<i64>) {
        let names = operands.iter().map(|operand| format!("%t{operand}")).collect();
        operands.iter().for_each(|operand| self.used[*operand] = true);
        self.lines.push(format!("  %t{} = {}", self.shapes.len(), line(names)));
        self.shapes.push(shape);
        self.used.push(false);
    }

    fn text(&self, inputs: usize) -> String {
        let list = |shape: &[i64]| shape.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        let declared: Vec<String> = (0..inputs).map(|n| format!("%t{n}: f32[{}]", list(&self.shapes[n]))).collect();
        let results: Vec<String> =
            (inputs..self.shapes.len()).filter(|n| !self.used[*n]).map(|n| format!("%t{n}")).collect();
        let (declared, body, results) = (declared.join(", "), self.lines.join("\n"), results.join(", "));
        format!("fusion @f({declared}) {{\n{body}\n  return {results}\n}}")
    }
}

fn numbers(list: &[i64]) -> String {
    list.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}

fn program(u: &mut Unstructured<'_>) -> Result<(String, Vec<Vec<i64>>)> {
    let mut program = Program { lines: Vec::new(), shapes: Vec::new(), used: Vec::new() };
    let inputs = u.int_in_range(1..=2)?;
    for _ in 0..inputs {
        let rank = u.int_in_range(1..=3)?;
        let shape = (0..rank).map(|_| u.choose(&[2, 2, 3, 4]).copied()).collect::<Result<Vec<i64>>>()?;
        program.shapes.push(shape);
        program.used.push(false);
    }
    for _ in 0..u.int_in_range(1..=7)? {
        step(u, &mut program)?;
    }
    let last = u.choose_index(program.shapes.len())?;
    let shape = program.shapes[last].clone();
    program.push(&[last], |names| format!("neg {}", names[0]), shape);
    let shapes = program.shapes[..inputs].to_vec();
    Ok((program.text(inputs), shapes))
}

fn step(u: &mut Unstructured<'_>, program: &mut Program) -> Result<()> {
    let x = program.shapes.len() - 1 - u.choose_index(program.shapes.len().min(4))?;
    let shape = program.shapes[x].clone();
    let rank = shape.len();
    match u.int_in_range(0..=9)? {
        0 | 1 => {
            let to = regrouped(u, &shape)?;
            program.push(&[x], |names| format!("reshape [{}] {}", numbers(&to), names[0]), to.clone());
        }
        2 if rank > 1 => {
            let mut order: Vec<usize> = (0..rank).collect();
            order.rotate_left(u.int_in_range(1..=rank - 1)?);
            let to: Vec<i64> = order.iter().map(|axis| shape[*axis]).collect();
            let dims: Vec<i64> = order.iter().map(|axis| *axis as i64).collect();
            program.push(&[x], |names| format!("permute {} dims({})", names[0], numbers(&dims)), to);
        }
        3 | 4 if rank > 0 => {
            let axis = u.choose_index(rank)?;
            let (mut starts, mut ends, mut to) = (vec![0; rank], shape.clone(), shape.clone());
            starts[axis] = u.int_in_range(0..=shape[axis] - 1)?;
            ends[axis] = u.int_in_range(starts[axis] + 1..=shape[axis])?;
            to[axis] = ends[axis] - starts[axis];
            let (starts, ends) = (numbers(&starts), numbers(&ends));
            program.push(&[x], |names| format!("slice {} starts({starts}) ends({ends})", names[0]), to);
        }
        5 if rank > 0 && shape.iter().product::<i64>() < 40 => {
            let widths = [u.int_in_range(0..=2)?, u.int_in_range(0..=1)?];
            let mut to = shape.clone();
            to[rank - 1] += widths[0] + widths[1];
            program.push(&[x], |names| format!("pad {}, 1.0 widths({})", names[0], numbers(&widths)), to);
        }
        6 if rank > 0 => {
            let dim = u.choose_index(rank)?;
            let fits = |other: &Vec<i64>| {
                other.len() == rank && (0..rank).all(|axis| axis == dim || other[axis] == shape[axis])
            };
            let others: Vec<usize> = (0..program.shapes.len()).filter(|n| fits(&program.shapes[*n])).collect();
            let y = *u.choose(&others)?;
            let mut to = shape.clone();
            to[dim] += program.shapes[y][dim];
            if to.iter().product::<i64>() <= 64 {
                program.push(&[x, y], |names| format!("cat {}, {} dim({dim})", names[0], names[1]), to);
            }
        }
        7 | 8 => {
            let fits = |other: &Vec<i64>| {
                other.len() == rank && other.iter().zip(&shape).all(|(a, b)| a == b || *a == 1 || *b == 1)
            };
            let others: Vec<usize> = (0..program.shapes.len()).filter(|n| fits(&program.shapes[*n])).collect();
            let y = *u.choose(&others)?;
            let to: Vec<i64> = shape.iter().zip(&program.shapes[y]).map(|(a, b)| *a.max(b)).collect();
            program.push(&[x, y], |names| format!("add {}, {}", names[0], names[1]), to);
        }
        9 if rank > 1 => {
            let axis = u.choose_index(rank)?;
            let keep = u.arbitrary()?;
            let mut to = shape.clone();
            if keep {
                to[axis] = 1;
            } else {
                to.remove(axis);
            }
            let keep = if keep { " keepdim" } else { "" };
            program.push(&[x], |names| format!("sum {} axes({axis}){keep}", names[0]), to);
        }
        _ => program.push(&[x], |names| format!("exp {}", names[0]), shape),
    }
    Ok(())
}

/// Other sizes of as many elements.
fn regrouped(u: &mut Unstructured<'_>, shape: &[i64]) -> Result<Vec<i64>> {
    let mut rest: i64 = shape.iter().product();
    let mut to = Vec::new();
    while rest > 1 && to.len() < 4 {
        let factors: Vec<i64> = (2..=rest).filter(|factor| rest % factor == 0).collect();
        let factor = *u.choose(&factors)?;
        to.push(factor);
        rest /= factor;
    }
    if rest > 1 || to.is_empty() || u.ratio(1, 6)? {
        to.push(rest);
    }
    Ok(to)
}

fn sizes(fusion: &Fusion, tensor: TensorId) -> Vec<i64> {
    let size = |axis: &crate::fusion::Axis| fusion.const_scalar(axis.extent).unwrap().as_i64();
    fusion.tensors[tensor].axes.iter().map(size).collect()
}

/// The elements of some sizes, in order.
fn elements(sizes: &[i64]) -> Vec<Vec<i64>> {
    sizes.iter().fold(vec![Vec::new()], |all, size| {
        all.iter().flat_map(|at| (0..*size).map(move |i| [at.as_slice(), &[i]].concat())).collect()
    })
}

/// The element of an operand that an element of a result is made of; none where it is of a
/// constant, and of what is reduced.
fn read(fusion: &Fusion, op: &Op, operand: usize, at: &[i64]) -> Option<Vec<i64>> {
    let Operand::Tensor(tensor) = op.inputs[operand] else { return None };
    let from = sizes(fusion, tensor);
    let of = |axis: usize, index: i64| if from[axis] == 1 { 0 } else { index };
    let constant = |operand: &Operand| match *operand {
        Operand::Scalar(scalar) => fusion.const_scalar(scalar).unwrap().as_i64(),
        Operand::Tensor(_) => unreachable!("a scalar is wanted"),
    };
    let moved = |starts: Vec<i64>| {
        let at: Vec<i64> = at.iter().zip(starts).map(|(index, start)| index + start).collect();
        at.iter().zip(&from).all(|(index, size)| (0..*size).contains(index)).then_some(at)
    };
    match &op.kind {
        OpKind::Reduce { .. } => None,
        OpKind::Permute { perm } => {
            let mut to = vec![0; at.len()];
            perm.iter().zip(at).for_each(|(axis, index)| to[*axis as usize] = *index);
            Some(to)
        }
        OpKind::Broadcast { flags } => Some(at.iter().zip(flags).filter(|(_, new)| !**new).map(|(i, _)| *i).collect()),
        OpKind::Squeeze { flags } => {
            let mut at = at.iter();
            Some(flags.iter().map(|gone| if *gone { 0 } else { *at.next().unwrap() }).collect())
        }
        OpKind::Call(call) => match call.movement().form.unwrap() {
            Form::Slice => moved(op.inputs[call.operands("starts")].iter().map(constant).collect()),
            Form::Pad => {
                let widths: Vec<i64> = op.inputs[call.operands("widths")].iter().map(constant).collect();
                moved(widths.chunks_exact(2).rev().map(|pair| -pair[0]).collect())
            }
            Form::Cat => {
                let before = op.inputs[..operand].iter().map(|other| match *other {
                    Operand::Tensor(tensor) => sizes(fusion, tensor)[call.axis("dim")],
                    Operand::Scalar(_) => 0,
                });
                let mut starts = vec![0; at.len()];
                starts[call.axis("dim")] = -before.sum::<i64>();
                moved(starts)
            }
            Form::Reshape => {
                let place = elements(&sizes(fusion, op.output())).iter().position(|other| other == at);
                Some(elements(&from)[place.unwrap()].clone())
            }
            other => panic!("{other:?} is not drawn"),
        },
        _ => Some((0..from.len()).map(|axis| of(axis, at[axis])).collect()),
    }
}

/// For every element of a value: what it is made of, against the index map of its axes.
fn check_value(fusion: &Fusion, axes: &FusionAxes, numbers: &Numbers, id: ValueId) {
    let value = &axes.values[id];
    let mut terms = Terms { numbers, terms: Vec::new() };
    let own: Vec<AxisId> = value.axes.iter().filter_map(|axis| axis.indexed()).collect();
    let bound: Vec<_> = own.iter().map(|axis| (*axis, Indexed::inside(terms.add_term(Term::Loop(*axis))))).collect();
    let mut map = IndexMap::new(&axes.graph, bound);
    let indices = |map: &mut IndexMap<'_, usize>, terms: &mut Terms<'_>, list: &[AxisRef]| -> Vec<Option<usize>> {
        list.iter().map(|axis| axis.indexed().map(|axis| map.index(terms, axis).unwrap())).collect()
    };
    for at in elements(&sizes(fusion, value.tensor)) {
        let point = |axis: AxisId| at[value.axes.iter().position(|own| own.indexed() == Some(axis)).unwrap()];
        let mut seen: BTreeMap<ValueId, Vec<i64>> = BTreeMap::new();
        let mut open = vec![(id, at.clone())];
        while let Some((other, index)) = open.pop() {
            if let Some(known) = seen.get(&other) {
                assert_eq!(*known, index, "{other} is needed twice for {id} at {at:?}");
                continue;
            }
            for (term, index) in indices(&mut map, &mut terms, &axes.values[other].axes).into_iter().zip(&index) {
                let index_of = term.map_or(0, |term| terms.value(term, &point));
                assert_eq!(index_of, *index, "the index of {other} for {id} at {at:?}");
            }
            seen.insert(other, index.clone());
            let Some(op) = axes.values[other].op else { continue };
            for (position, operand) in axes.values[other].operands.iter().enumerate() {
                let Some(operand) = operand else { continue };
                let from = read(fusion, &fusion.ops[op], position, &index);
                if other == id && !matches!(fusion.ops[op].kind, OpKind::Reduce { .. }) {
                    let wanted: Vec<AxisId> = operand.axes.iter().filter_map(|axis| axis.indexed()).collect();
                    let predicate = map.predicate(&mut terms, &wanted).unwrap();
                    let holds = predicate.iter().all(|term| terms.value(*term, &point) == 1);
                    assert_eq!(holds, from.is_some(), "whether {id} reads operand {position} at {at:?}");
                }
                open.extend(from.map(|from| (operand.value, from)));
            }
        }
    }
}

#[test]
fn axes_have_the_indices_that_operations_read() {
    let (mut taken, mut forked, mut refused) = (0, 0, 0);
    property(|u| {
        let (text, shapes) = program(u)?;
        let shapes: Vec<&[i64]> = shapes.iter().map(Vec::as_slice).collect();
        let fusion = concrete(&text, &shapes);
        let Ok(axes) = analyze(&fusion, Forks::Uses) else {
            refused += 1;
            return Ok(());
        };
        taken += 1;
        forked += usize::from(axes.values.len() > fusion.tensors.len());
        let numbers = Numbers { graph: axes.graph.clone(), ..Numbers::default() };
        let run = std::panic::AssertUnwindSafe(|| {
            axes.values.ids().for_each(|id| check_value(&fusion, &axes, &numbers, id));
        });
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("{}\n{}", text::print(&fusion), super::programs::shown(&fusion, &axes));
            std::panic::resume_unwind(panic);
        }
        Ok(())
    })
    .bytes(32..=256)
    .cases(3_000);
    assert!(refused * 8 < taken && forked * 10 > taken, "{taken} were taken, {forked} forked, {refused} refused");
}
