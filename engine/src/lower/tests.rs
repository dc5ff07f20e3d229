//! Tests of the way from a fusion to a verified kernel.

use super::{Compiled, compile_fusion};
use crate::diag::Result;
use crate::fusion::{Dim, Fusion, FusionBuilder, Operand};
use crate::kernel;
use crate::num::DType;
use crate::options::{CompileCx, DeviceDesc, NoTrace, Options};
use crate::tensor::{ArgMeta, TensorMeta};

const SYM2: &[Dim] = &[Dim::Symbolic, Dim::Symbolic];

fn fusion(build: impl FnOnce(&mut FusionBuilder) -> Result<Operand>) -> Fusion {
    let mut b = FusionBuilder::new("f");
    let y = build(&mut b).unwrap();
    b.output(y).unwrap();
    b.finish().unwrap()
}

fn compile(fusion: &Fusion, sizes: &[&[i64]]) -> Result<Compiled> {
    let args: Vec<ArgMeta> = fusion
        .input_tensors()
        .zip(sizes)
        .map(|((_, tensor), sizes)| ArgMeta::Tensor(TensorMeta::contiguous(fusion.tensors[tensor].dtype, sizes)))
        .collect();
    let device = DeviceDesc::h200();
    let options = Options::default();
    let cx = CompileCx { options: &options, device: &device, trace: &NoTrace };
    compile_fusion(&cx, fusion, &args, &vec![16; args.len()])
}

#[track_caller]
fn show(fusion: &Fusion, sizes: &[&[i64]]) {
    match compile(fusion, sizes) {
        Ok(c) => eprintln!("{} {}\n{}\n{}", c.scheduler, c.params_text, c.schedule_text, kernel::print(&c.kernel)),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn look() {
    let f = fusion(|b| {
        let x = b.tensor("x", DType::BF16, SYM2)?;
        let y = b.tensor("y", DType::BF16, SYM2)?;
        let p = b.mul(x, y)?;
        b.cast(p, DType::BF16)
    });
    show(&f, &[&[16384, 4096], &[16384, 4096]]);
    let f = fusion(|b| {
        let x = b.tensor("x", DType::BF16, SYM2)?;
        let p = b.sum(x, &[1], false)?;
        b.cast(p, DType::BF16)
    });
    show(&f, &[&[16384, 4096]]);
    show(&f, &[&[8192, 4097]]);
    let f = fusion(|b| {
        let x = b.tensor("x", DType::BF16, SYM2)?;
        let p = b.softmax(x, -1)?;
        b.cast(p, DType::BF16)
    });
    show(&f, &[&[16384, 4096]]);
    show(&f, &[&[8192, 4097]]);
}
