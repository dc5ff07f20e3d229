use super::*;
use crate::Draw;
use engine::fusion::bind;
use engine::tensor::{ArgMeta, TensorMeta};

fn args(generated: &Generated) -> Vec<ArgMeta> {
    let fusion = &generated.fusion;
    let dtype = |operand: &Operand| match *operand {
        Operand::Tensor(t) => fusion.tensors[t].dtype,
        Operand::Scalar(s) => fusion.scalars[s].dtype,
    };
    let meta = |(operand, sizes): (&Operand, &Option<Vec<i64>>)| match sizes {
        None => ArgMeta::Scalar(scalar_value(dtype(operand), INPUT_BYTE)),
        Some(sizes) => {
            let stride = |axis: usize| sizes[axis + 1..].iter().map(|size| (*size).max(1)).product();
            let strides = (0..sizes.len()).map(stride).collect();
            ArgMeta::Tensor(TensorMeta { dtype: dtype(operand), sizes: sizes.clone(), strides })
        }
    };
    fusion.inputs.iter().zip(&generated.sizes).map(meta).collect()
}

#[test]
fn drawn_fusions_are_valid_bind_to_their_sizes_and_are_seldom_refused() {
    let (mut accepted, mut rejected) = (0, 0);
    let mut seen = std::collections::BTreeSet::new();
    let mut draw = Draw::new(1);
    for round in 0..600 {
        let bytes = draw.bytes(round % 200);
        let generated = generate(&bytes, &Limits { tame: round % 3 == 0, ..Limits::default() });
        bind(&generated.fusion, &args(&generated)).unwrap_or_else(|e| panic!("{e}\n{:?}", generated.fusion));
        accepted += generated.accepted;
        rejected += generated.rejected;
        seen.extend(generated.fusion.ops.values().map(|op| op.kind.name()));
    }
    assert!(rejected * 3 < accepted, "{rejected} of {} draws were refused", accepted + rejected);
    let all = UnaryOp::ALL.len() + BinaryOp::ALL.len();
    assert!(seen.len() > all * 3 / 4, "only {} operations were drawn", seen.len());
}
