//! A definition under construction: its builder, and what its inputs are.

use super::embedding::Renewal;
use super::recipe::{InputRecipe, PyNumber};
use super::value::Py;
use engine::diag::{Diagnostic, Result, Span, code};
use engine::fusion::{AxisDecl, FusionBuilder, InputLayout, Operand, is_name};
use engine::num::{DType, Value};
use std::collections::BTreeSet;

/// A definition that a script makes.
#[derive(Debug)]
pub(super) struct DefinitionDraft {
    pub(super) builder: FusionBuilder,
    /// The function that defines it, or the place that starts it.
    pub(super) place: Span,
    pub(super) name: String,
    pub(super) inputs: Option<Vec<InputRecipe>>,
    /// Whether an error was reported while it was defined.
    pub(super) refused: bool,
    /// Random operations without a seed of their own.
    pub(super) draws: u64,
    /// Tables that lookups change.
    pub(super) renewals: Vec<Renewal>,
    /// Something was declared.
    started: bool,
    /// Names of values.
    taken: BTreeSet<String>,
}

/// An input tensor as it is declared.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Declared {
    /// Sizes; -1 for any.
    pub(super) shape: Vec<i64>,
    /// In memory order, outermost first; `None` for broadcast and expanded axes.
    pub(super) contiguity: Vec<Option<bool>>,
    /// For each axis its rank among the strides, 0 the innermost; empty for row-major.
    pub(super) stride_order: Vec<i64>,
    pub(super) dtype: DType,
    pub(super) is_cpu: bool,
}

impl DefinitionDraft {
    pub(super) fn new(place: Span) -> Self {
        Self {
            builder: FusionBuilder::new("fusion"),
            place,
            name: "fusion".into(),
            inputs: None,
            refused: false,
            draws: 0,
            renewals: Vec::new(),
            started: false,
            taken: BTreeSet::new(),
        }
    }

    /// A function of this name defines it.
    pub(super) fn called(&mut self, name: &str, place: Span) {
        if !self.started && is_name(name) {
            self.builder = FusionBuilder::new(name);
            (self.name, self.place) = (name.into(), place);
        }
    }

    /// A name that no other value has: the wanted one, or one made from it.
    fn free_name(&mut self, wanted: Option<&String>) -> String {
        let wanted = wanted.filter(|name| is_name(name) && *name != "_").cloned();
        let number = self.taken.len();
        let mut name = wanted.unwrap_or_else(|| format!("in{number}"));
        if self.taken.contains(&name) {
            name = (number..).map(|n| format!("in{n}")).find(|name| !self.taken.contains(name)).unwrap_or(name);
        }
        self.taken.insert(name.clone());
        name
    }

    /// Names results by the names on the left of their assignment. A name that
    /// stands for several values names the first one.
    pub(super) fn name_results(&mut self, targets: &[String], results: &[Operand]) -> Result<()> {
        for (target, result) in targets.iter().zip(results) {
            let named = matches!(result, Operand::Tensor(_)) && is_name(target) && target != "_";
            if named && !target.bytes().all(|b| b.is_ascii_digit()) && self.taken.insert(target.clone()) {
                self.builder.set_name(*result, target)?;
            }
        }
        Ok(())
    }

    /// The rank of a tensor.
    pub(super) fn rank(&self, operand: Operand) -> Option<usize> {
        match operand {
            Operand::Tensor(t) => Some(self.builder.axes(t).len()),
            Operand::Scalar(_) => None,
        }
    }

    /// Declares an input scalar.
    pub(super) fn scalar(&mut self, target: Option<&String>, dtype: DType) -> Result<Operand> {
        self.started = true;
        let name = self.free_name(target);
        self.builder.scalar(&name, dtype)
    }

    /// A constant; without a type it has the one that Python's number has.
    pub(super) fn constant(&mut self, number: PyNumber, dtype: Option<DType>) -> Result<Operand> {
        let (value, own) = value_of(number)?;
        match dtype {
            None => self.builder.constant(value, own),
            Some(dtype) if own == DType::U64 && dtype != own => {
                let wide = self.builder.constant(value, own)?;
                self.builder.cast(wide, dtype)
            }
            Some(dtype) => self.builder.constant(value, dtype),
        }
    }

    /// Declares an input tensor.
    pub(super) fn tensor(&mut self, target: Option<&String>, declared: Declared) -> Result<Operand> {
        self.started = true;
        let declared = unpacked(declared)?;
        let rank = declared.shape.len();
        let length = |what: &str, length: usize| {
            let message = format!("define_tensor: `{what}` has {length} entries for {rank} axes");
            Err(Diagnostic::user(code::LAYOUT, message))
        };
        if declared.contiguity.len() != rank {
            return length("contiguity", declared.contiguity.len());
        }
        if !declared.stride_order.is_empty() && declared.stride_order.len() != rank {
            return length("stride_order", declared.stride_order.len());
        }
        if declared.is_cpu && rank > 0 {
            let message = format!("define_tensor: a tensor of rank {rank} lies on the CPU");
            return Err(Diagnostic::user(code::LAYOUT, message).note("only tensors of rank 0 may"));
        }
        let order = memory_order(&declared.stride_order, rank)?;
        let mut dims = Vec::with_capacity(rank);
        for (axis, &size) in declared.shape.iter().enumerate() {
            dims.push(match size {
                -1 => AxisDecl::Symbolic,
                0.. => AxisDecl::Const(size),
                _ => {
                    let message = format!("define_tensor: axis {axis} has the size {size}");
                    let note = "sizes are -1 (any), 0, 1 (broadcast) or greater";
                    return Err(Diagnostic::user(code::EXTENT, message).note(note));
                }
            });
        }
        let name = self.free_name(target);
        let tensor = self.builder.tensor(&name, declared.dtype, &dims)?;
        // Nothing contiguous in no particular order: any layout.
        let flags = declared.shape.iter().map(|&size| (size != 1).then_some(false));
        let any = declared.stride_order.is_empty() && flags.eq(declared.contiguity.iter().copied());
        if !any {
            self.builder.set_layout(tensor, InputLayout { contiguity: declared.contiguity, order })?;
        }
        Ok(tensor)
    }
}

/// The axes outermost first: the one of the largest rank among the strides first.
fn memory_order(stride_order: &[i64], rank: usize) -> Result<Vec<u32>> {
    let mut order: Vec<Option<u32>> = vec![None; rank];
    if stride_order.is_empty() {
        return Ok((0..rank as u32).collect());
    }
    for (axis, &given) in stride_order.iter().enumerate() {
        let from_start = if given < 0 { given.checked_add(rank as i64) } else { Some(given) };
        let place = from_start.and_then(|at| usize::try_from(at).ok()).filter(|&at| at < rank);
        match place.map(|at| rank - 1 - at) {
            Some(place) if order[place].is_none() => order[place] = Some(axis as u32),
            _ => {
                let message = format!(
                    "define_tensor: stride_order {stride_order:?} does not name each of 0 to {} once",
                    rank - 1
                );
                return Err(Diagnostic::user(code::LAYOUT, message));
            }
        }
    }
    Ok(order.into_iter().flatten().collect())
}

/// Two packed numbers of 4 bits are one element outside of a definition and
/// two inside: the innermost size doubles.
fn unpacked(mut declared: Declared) -> Result<Declared> {
    if declared.dtype.name() != "f4e2m1fn_x2" {
        return Ok(declared);
    }
    let rank = declared.shape.len();
    let innermost = declared.stride_order.iter().position(|&at| at == 0).or(rank.checked_sub(1));
    let (Some(dtype), Some(innermost)) = (DType::from_name("f4e2m1fn"), innermost) else {
        let message = "define_tensor: a packed type needs an axis to unpack";
        return Err(Diagnostic::user(code::EXTENT, message));
    };
    declared.dtype = dtype;
    if let Some(size) = declared.shape.get_mut(innermost).filter(|size| **size > 0) {
        *size = size.saturating_mul(2);
    }
    Ok(declared)
}

/// Contiguity and order of given strides, as nvFuser derives them: axes by
/// descending stride, those of stride 0 at their own position; an axis is
/// contiguous if its stride is the size times the stride of the next inner axis
/// that is neither of size 1 nor of stride 0.
pub(super) fn described(sizes: &[i64], strides: &[i64], dtype: DType, is_static: bool, is_cpu: bool) -> Declared {
    let rank = sizes.len();
    let mut order: Vec<usize> = (0..rank).filter(|&axis| strides[axis] != 0).collect();
    order.sort_by_key(|&axis| std::cmp::Reverse(strides[axis]));
    for axis in (0..rank).filter(|&axis| strides[axis] == 0) {
        order.insert(axis.min(order.len()), axis);
    }
    let mut stride_order = vec![0; rank];
    let mut contiguity = vec![None; rank];
    let mut expected = 1i64;
    for (place, &axis) in order.iter().enumerate().rev() {
        stride_order[axis] = (rank - 1 - place) as i64;
        if strides[axis] != 0 && sizes[axis] != 1 {
            contiguity[place] = Some(strides[axis] == expected);
            expected = strides[axis].saturating_mul(sizes[axis]);
        }
    }
    let shape = sizes.iter().map(|&size| if is_static || size == 1 { size } else { -1 }).collect();
    Declared { shape, contiguity, stride_order, dtype, is_cpu }
}

/// A number and the type that Python's number has in a definition.
pub(super) fn value_of(number: PyNumber) -> Result<(Value, DType)> {
    match number {
        PyNumber::Bool(v) => Ok((Value::Bool(v), DType::Bool)),
        PyNumber::Float(v) => Ok((Value::Float(v), DType::F64)),
        PyNumber::Int(v) => match (i64::try_from(v), u64::try_from(v)) {
            (Ok(v), _) => Ok((Value::Int(v), DType::I64)),
            // Unsigned numbers of 64 bits are held by their bits.
            (_, Ok(v)) => Ok((Value::Int(v.cast_signed()), DType::U64)),
            _ => Err(Diagnostic::user(code::BAD_NUMBER, format!("the integer {v} has more than 64 bits"))),
        },
        PyNumber::Complex(re, im) => Ok((Value::Complex(re, im), DType::C128)),
    }
}

/// The most arguments of a run.
const MAX_INPUTS: usize = 4096;

/// Arguments of a run; lists among them are passed element by element.
pub(super) fn recipes(inputs: &Py) -> Option<Vec<InputRecipe>> {
    let one = |item: &Py| match item {
        Py::Tensor(tensor) => Some(InputRecipe::Tensor(tensor.clone())),
        Py::Number(number) => Some(InputRecipe::Scalar(*number)),
        _ => None,
    };
    let mut recipes = Vec::new();
    for item in inputs.items()? {
        for part in item.items().unwrap_or(std::slice::from_ref(item)) {
            recipes.push(one(part)?);
        }
        if recipes.len() > MAX_INPUTS {
            return None;
        }
    }
    Some(recipes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_described_as_nvfuser_does() {
        let check = |sizes: &[i64], strides: &[i64], contiguity: &[Option<bool>], order: &[i64]| {
            let declared = described(sizes, strides, DType::F32, false, false);
            assert_eq!(
                (&declared.contiguity[..], &declared.stride_order[..]),
                (contiguity, order),
                "{sizes:?} {strides:?}"
            );
        };
        let (yes, no) = (Some(true), Some(false));
        check(&[2, 3], &[3, 1], &[yes, yes], &[1, 0]);
        check(&[2, 3], &[1, 2], &[yes, yes], &[0, 1]);
        check(&[2, 3], &[4, 1], &[no, yes], &[1, 0]);
        check(&[2, 1, 3], &[3, 3, 1], &[yes, None, yes], &[2, 1, 0]);
        check(&[5, 4, 3], &[0, 0, 1], &[None, None, yes], &[2, 1, 0]);
        check(&[4, 5], &[1, 0], &[yes, None], &[1, 0]);
        check(&[2, 32, 1], &[32, 1, 32], &[yes, None, yes], &[2, 0, 1]);
        check(&[], &[], &[], &[]);
    }

    #[test]
    fn orders_become_axes() {
        assert_eq!(memory_order(&[0, 1], 2).unwrap(), [1, 0]);
        assert_eq!(memory_order(&[-1, 0, 1], 3).unwrap(), [0, 2, 1]);
        assert!(memory_order(&[0, 0], 2).is_err() && memory_order(&[0, 2], 2).is_err());
        assert!(memory_order(&[i64::MIN, 0], 2).is_err());
    }
}
