//! The `inputs:` directive: one entry for each argument of the fusion.
//!
//! ```text
//! name = SCALAR                     integer expression, 1.5, inf, nan, true, 1.0-2.5i
//! name = DIST [ expr, ... ] MODIFIER*
//! DIST:     normal | normal(mean, sd) | uniform(lo, hi) | randint(lo, hi) | arange | arange(start, step)
//!           | full(v) | bernoulli(p) | special
//! MODIFIER: seed N | strides [expr, ...] | offset N | permuted (axis, ...) | expanded (axis, ...)
//! ```

use super::cursor::Cursor;
use super::directive::comma_separated;
use super::model::{ArgLayout, Dist, InputSpec, Number, Real, TensorSpec};
use super::source::{Fault, suggest};

const DISTS: [&str; 8] = ["normal", "uniform", "randint", "arange", "full", "bernoulli", "special", "list"];
const MAX_RANK: usize = 16;
/// Inputs of one case.
const MAX_INPUTS: usize = 4096;
/// Elements of one generated tensor's storage: a typo must not take the machine's memory.
const MAX_ELEMENTS: i64 = 1 << 32;

/// Reads the entries and appends them.
pub(crate) fn read(c: &mut Cursor<'_>, inputs: &mut Vec<(String, InputSpec)>) -> Result<(), Fault> {
    comma_separated(c, |c| {
        c.take("%");
        let at = c.here();
        let name = c.word("the name of an input")?.to_string();
        if inputs.iter().any(|(other, _)| *other == name) {
            return Err(Fault::directive(at, format!("input `{name}` is given twice")));
        }
        if inputs.len() == MAX_INPUTS {
            return Err(
                Fault::limit(at, format!("the case has more than {MAX_INPUTS} inputs")).note("split the fusion")
            );
        }
        c.expect("=")?;
        inputs.push((name, read_value(c)?));
        Ok(())
    })
}

fn read_value(c: &mut Cursor<'_>) -> Result<InputSpec, Fault> {
    if c.take("true") {
        return Ok(InputSpec::Scalar(Number::Bool(true)));
    }
    if c.take("false") {
        return Ok(InputSpec::Scalar(Number::Bool(false)));
    }
    if let Some((re, im)) = c.complex() {
        return Ok(InputSpec::Scalar(Number::Complex(Real::new(re), Real::new(im))));
    }
    if c.next_is_float() {
        return Ok(InputSpec::Scalar(Number::Float(Real::new(c.real()?))));
    }
    let letter = c.peek().is_some_and(|first| first.is_ascii_alphabetic());
    let call = ["min", "max", "ceildiv"].iter().any(|name| {
        let mut probe = c.clone();
        probe.take(name) && probe.peek() == Some('(')
    });
    if !letter || call {
        return Ok(InputSpec::Scalar(Number::Int(c.int()?)));
    }
    let at = c.here();
    let dist = read_dist(c)?;
    let sizes = c.list("[", "]", Cursor::int)?;
    if sizes.len() > MAX_RANK {
        return Err(Fault::directive(at, format!("a tensor has at most {MAX_RANK} axes, {} given", sizes.len())));
    }
    if let Some((axis, size)) = sizes.iter().enumerate().find(|(_, size)| **size < 0) {
        return Err(Fault::directive(at, format!("axis {axis} has the negative size {size}")));
    }
    let mut spec = TensorSpec { dist, sizes, seed: None, layout: ArgLayout::default() };
    while read_modifier(c, &mut spec)? {}
    check_layout(&spec).map_err(|message| Fault::directive(at, message))?;
    Ok(InputSpec::Tensor(spec))
}

fn read_dist(c: &mut Cursor<'_>) -> Result<Dist, Fault> {
    let at = c.here();
    let name = c.word("a distribution")?;
    if !DISTS.contains(&name) {
        let hint = suggest(name, DISTS.into_iter());
        return Err(Fault::directive(at, format!("unknown distribution `{name}`")).note(hint));
    }
    let integers = name == "randint";
    let args = match c.peek() == Some('(') {
        true => c.list("(", ")", |c| if integers { Ok((c.int()?, 0.0)) } else { Ok((0, c.real()?)) })?,
        false => Vec::new(),
    };
    let real = |i: usize| Real::new(args[i].1);
    let dist = match (name, args.len()) {
        ("normal", 0) => Dist::Normal(Real::new(0.0), Real::new(1.0)),
        ("normal", 2) => Dist::Normal(real(0), real(1)),
        ("uniform", 0) => Dist::Uniform(Real::new(0.0), Real::new(1.0)),
        ("uniform", 2) => Dist::Uniform(real(0), real(1)),
        ("randint", 2) if args[0].0 <= args[1].0 => Dist::Randint(args[0].0, args[1].0),
        ("randint", 2) => return Err(Fault::directive(at, "randint(lo, hi) needs lo <= hi")),
        ("arange", 0) => Dist::Arange(Real::new(0.0), Real::new(1.0)),
        ("arange", 2) => Dist::Arange(real(0), real(1)),
        ("full", 1) => Dist::Full(real(0)),
        ("bernoulli", 1) => Dist::Bernoulli(real(0)),
        ("special", 0) => Dist::Special,
        ("list", _) => Dist::List(args.iter().map(|(_, value)| Real::new(*value)).collect()),
        (_, n) => {
            return Err(Fault::directive(at, format!("`{name}` does not take {n} arguments"))
                .note("see the head of cases/README.md for the distributions"));
        }
    };
    Ok(dist)
}

/// Reads one modifier; false when none is next.
fn read_modifier(c: &mut Cursor<'_>, spec: &mut TensorSpec) -> Result<bool, Fault> {
    let at = c.here();
    let axis = |c: &mut Cursor<'_>| {
        let at = c.here();
        let axis = c.int()?;
        usize::try_from(axis).map_err(|_| Fault::directive(at, format!("axis {axis} is negative")))
    };
    if c.take("seed") {
        let seed = c.int()?;
        spec.seed = Some(seed as u64);
    } else if c.take("strides") {
        spec.layout.strides = Some(c.list("[", "]", Cursor::int)?);
    } else if c.take("offset") {
        let offset = c.int()?;
        spec.layout.offset =
            usize::try_from(offset).map_err(|_| Fault::directive(at, format!("the offset {offset} is negative")))?;
    } else if c.take("permuted") {
        spec.layout.permuted = Some(c.list("(", ")", axis)?);
    } else if c.take("expanded") {
        spec.layout.expanded = c.list("(", ")", axis)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

fn check_layout(spec: &TensorSpec) -> Result<(), String> {
    let rank = spec.sizes.len();
    let ArgLayout { strides, offset, permuted, expanded } = &spec.layout;
    if let Some(strides) = strides {
        if strides.len() != rank {
            return Err(format!("{} strides for {rank} axes", strides.len()));
        }
        if let Some(stride) = strides.iter().find(|stride| **stride < 0) {
            return Err(format!("the stride {stride} is negative"));
        }
        if permuted.is_some() || !expanded.is_empty() {
            return Err("`strides` cannot be combined with `permuted` or `expanded`".into());
        }
    }
    if let Some(order) = permuted {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if sorted != (0..rank).collect::<Vec<_>>() {
            return Err(format!("`permuted` must name each of the {rank} axes once"));
        }
    }
    if let Some(axis) = expanded.iter().find(|axis| **axis >= rank) {
        return Err(format!("`expanded` names axis {axis} of {rank} axes"));
    }
    if let Dist::List(values) = &spec.dist
        && spec.sizes.iter().try_fold(1i64, |n, size| n.checked_mul(*size)) != Some(values.len() as i64)
    {
        return Err(format!("`list` has {} values for a tensor of {:?}", values.len(), spec.sizes));
    }
    let count = spec.sizes.iter().try_fold(1i64, |n, size| n.checked_mul(*size)).unwrap_or(i64::MAX);
    if count > MAX_ELEMENTS && !spec.sizes.contains(&0) {
        return Err(format!("the tensor has more than {MAX_ELEMENTS} elements"));
    }
    let elements = layout_span(spec).and_then(|n| n.checked_add(i64::try_from(*offset).ok()?));
    match elements {
        Some(n) if n <= MAX_ELEMENTS => Ok(()),
        Some(n) => Err(format!("the tensor takes {n} elements of storage, more than {MAX_ELEMENTS}")),
        None => Err("the size of the tensor overflows 64 bits".into()),
    }
}

/// The strides that a specification asks for. Expanded axes have stride 0; the
/// others are dense in the permuted order, a size of 0 counting as 1.
pub(crate) fn strides(spec: &TensorSpec) -> Option<Vec<i64>> {
    if let Some(strides) = &spec.layout.strides {
        return Some(strides.clone());
    }
    let rank = spec.sizes.len();
    let order = spec.layout.permuted.clone().unwrap_or_else(|| (0..rank).collect());
    let mut strides = vec![0; rank];
    let mut next = 1i64;
    for axis in order.into_iter().rev() {
        if !spec.layout.expanded.contains(&axis) {
            strides[axis] = next;
            next = next.checked_mul(spec.sizes[axis].max(1))?;
        }
    }
    Some(strides)
}

/// Elements of storage from the first to the last of the view, which is
/// `1 + sum (size - 1) * stride`, or 0 when the tensor is empty.
pub(crate) fn layout_span(spec: &TensorSpec) -> Option<i64> {
    if spec.sizes.contains(&0) {
        return Some(0);
    }
    let strides = strides(spec)?;
    spec.sizes
        .iter()
        .zip(&strides)
        .try_fold(1i64, |sum, (size, stride)| sum.checked_add((size - 1).checked_mul(*stride)?))
}
