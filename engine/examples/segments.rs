//! Runs a fusion that is more than one kernel, segment by segment, as a front end
//! does that keeps the values itself.
//!
//! `cargo run -p engine --example segments` prints for each segment what it asks for
//! and what it returns, by the numbers of the definition: inputs from 0 on, then
//! results; extents of inputs are -1, -2, ...

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use engine::diag::{Diagnostic, Result};
use engine::fusion::Operand;
use engine::num::{DType, Value};
use engine::options::{NoTrace, Options};
use engine::refeval::evaluate;
use engine::runtime::Session;
use engine::segment::SegmentKind;
use engine::tensor::{Arg, HostTensor};
use engine::text;
use std::collections::BTreeMap;

/// An attention-free block: a norm, two products with an activation between them,
/// a residual sum. Its mean takes the number of columns, which no tensor it reads shows.
const BLOCK: &str = "fusion @block(%x: f32[?, ?], %up: f32[?, ?], %down: f32[?, ?], %g: f32[?]) {
  %normal = rms_norm %x, %g eps(1e-6)
  %wide = matmul %normal, %up
  %active = gelu %wide
  %narrow = matmul %active, %down
  %result = add %narrow, %x
  %total = sum %result axes(1)
  %columns = size %up axis(1)
  %mean = div %total, %columns
  return %result, %mean
}";

fn main() -> Result<()> {
    let fusion = text::parse_one(BLOCK).map_err(|mut errors| Box::new(errors.remove(0)))?;
    let (rows, columns, hidden) = (6, 8, 16);
    let sizes: [&[i64]; 4] = [&[rows, columns], &[columns, hidden], &[hidden, columns], &[columns]];
    let number = |index: &[i64]| Value::Float(index.iter().sum::<i64>() as f64 / 8.0 - 1.0);
    let tensors = sizes.iter().map(|sizes| HostTensor::from_fn(DType::F32, sizes, number));
    let args: Vec<Arg> = tensors.map(|tensor| tensor.map(Arg::Tensor)).collect::<Result<_>>()?;

    let session = Session::any(Options::default());
    let metas: Vec<_> = args.iter().map(Arg::meta).collect();
    let cut = session.segment(&fusion, &metas, &vec![16; args.len()], &NoTrace)?;

    // The caller's table: what each value is, by its number.
    let mut values: BTreeMap<i64, Arg> = (0..).zip(args.iter().cloned()).collect();
    let id = |value| cut.ids.id(value).ok_or_else(|| Diagnostic::bug("a segment hands on a value of the definition"));
    for (position, segment) in cut.segments.iter().enumerate() {
        let mut given = Vec::new();
        for input in &segment.inputs {
            given.push(match (values.get(&id(*input)?), *input) {
                (Some(value), _) => value.clone(),
                // An extent, or a scalar that is computed from some.
                (None, Operand::Scalar(scalar)) => Arg::Scalar(cut.scalar(scalar)),
                (None, Operand::Tensor(tensor)) => return Err(Diagnostic::bug(format!("{tensor} is not there"))),
            });
        }
        let (by, outputs) = match &segment.kind {
            SegmentKind::Kernel(scheduler) => (*scheduler, session.run(&segment.fusion, &given, &NoTrace)?.outputs),
            SegmentKind::Host(_) => ("host", evaluate(&segment.fusion, &given)?),
        };
        let asked = segment.inputs.iter().map(|input| id(*input)).collect::<Result<Vec<_>>>()?;
        let returned = segment.outputs.iter().map(|output| id(Operand::Tensor(*output))).collect::<Result<Vec<_>>>()?;
        println!("segment {position}, {by}: takes {asked:?}, returns {returned:?}");
        for tensor in &segment.last_uses {
            values.remove(&id(Operand::Tensor(*tensor))?);
        }
        values.extend(returned.into_iter().zip(outputs.into_iter().map(Arg::Tensor)));
    }

    let expected = evaluate(&fusion, &args)?;
    for (output, expected) in cut.fusion.outputs.iter().zip(&expected) {
        let number = id(Operand::Tensor(*output))?;
        let Some(Arg::Tensor(found)) = values.get(&number) else { continue };
        let pairs = found.values().zip(expected.values());
        let error = pairs.map(|(a, b)| (a.as_f64() - b.as_f64()).abs()).fold(0.0, f64::max);
        println!("value {number}: {:?}, at most {error:.1e} from the reference", found.sizes());
    }
    Ok(())
}
