//! Runs a fusion that is more than one kernel, segment by segment, as a front end
//! does that keeps the values itself, in a table by the ids of the whole.
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
use engine::segment::Segments;
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

    // The caller's table: what each value of the whole is.
    let mut values: BTreeMap<Operand, Arg> = cut.fusion.inputs.iter().copied().zip(args.iter().cloned()).collect();
    for (position, segment) in cut.segments.iter().enumerate() {
        let mut given = Vec::new();
        for input in &segment.inputs {
            given.push(match (values.get(input), *input) {
                (Some(value), _) => value.clone(),
                // An extent of an input that the segment does not read.
                (None, Operand::Scalar(scalar)) => match cut.scalar(scalar) {
                    Some(value) => Arg::Scalar(value),
                    None => return Err(Diagnostic::bug(format!("{scalar} is not there"))),
                },
                (None, Operand::Tensor(tensor)) => return Err(Diagnostic::bug(format!("{tensor} is not there"))),
            });
        }
        // A segment is a fusion like any other; those of the host run there.
        let (by, outputs) = (segment.kind.name(), session.run(&segment.fusion, &given, &NoTrace)?.outputs);
        let returned: Vec<Operand> = segment.outputs.iter().copied().map(Operand::Tensor).collect();
        let numbers =
            |operands: &[Operand]| operands.iter().map(|operand| number_of(&cut, *operand)).collect::<Vec<_>>();
        let (taken, made) = (numbers(&segment.inputs).join(" "), numbers(&returned).join(" "));
        println!("segment {position}, {by}: takes {taken}, returns {made}");
        for tensor in &segment.last_uses {
            values.remove(&Operand::Tensor(*tensor));
        }
        values.extend(returned.into_iter().zip(outputs.into_iter().map(Arg::Tensor)));
    }

    let expected = evaluate(&fusion, &args)?;
    for (output, expected) in cut.fusion.outputs.iter().copied().map(Operand::Tensor).zip(&expected) {
        let Some(Arg::Tensor(found)) = values.get(&output) else { continue };
        let pairs = found.values().zip(expected.values());
        let error = pairs.map(|(a, b)| (a.as_f64() - b.as_f64()).abs()).fold(0.0, f64::max);
        println!("value {}: {:?}, at most {error:.1e} from the reference", number_of(&cut, output), found.sizes());
    }
    Ok(())
}

/// The number of a value in the definition; values within composites have none.
fn number_of(cut: &Segments, value: Operand) -> String {
    cut.ids.id(value).map_or_else(|| "-".into(), |number| number.to_string())
}
