//! Outputs where nvFuser places them.

use engine::diag::Result;
use engine::fusion::{Fusion, bind, placements};
use engine::tensor::{Arg, HostTensor};

/// The outputs of the reference with the strides that nvFuser gives them.
pub(crate) fn placed(fusion: &Fusion, args: &[Arg], outputs: Vec<HostTensor>) -> Result<Vec<HostTensor>> {
    let unpacked: Vec<Arg> = args.iter().map(Arg::unpacked).collect::<Result<_>>()?;
    let metas: Vec<_> = unpacked.iter().map(Arg::meta).collect();
    let placements = placements(fusion, &bind(fusion, &metas)?, &metas)?;
    let lay = |(output, meta): (HostTensor, engine::tensor::TensorMeta)| {
        if output.meta.strides == meta.strides {
            return Ok(output);
        }
        HostTensor::strided(meta, |index| output.get(index))
    };
    outputs.into_iter().zip(placements).map(lay).collect()
}
