//! The canary: a small kernel with a known result, run before a worker takes
//! cases on a device that is under suspicion. All sums are exact integers, so
//! the result is one sequence of bytes on any device.

use super::device::Device;
use crate::proto::CanaryResult;
use engine::diag::Result;
use engine::num::DType;
use engine::options::NoTrace;
use engine::runtime::Session;
use engine::tensor::{Arg, HostTensor};

const ROWS: i64 = 6;
const COLUMNS: i64 = 96;
const TEXT: &str = "fusion @canary(%x: f32[?, ?]) {\n  %0 = mul %x, 3.0\n  %1 = add %0, 1.0\n  %2 = sum %1 axes(1)\n  return %1, %2\n}\n";

/// Runs it, on another input than its result belongs to where it is to be spoilt.
pub(super) fn run(device: &Device, spoil: bool) -> CanaryResult {
    let Device::Session { session, .. } = device else {
        return CanaryResult::Skipped("the reference has no device".into());
    };
    match compute(session, spoil) {
        Ok((sum, wanted)) if sum == wanted => CanaryResult::Right,
        Ok((sum, wanted)) => CanaryResult::Wrong(format!("the result has checksum {sum:08x}, not {wanted:08x}")),
        Err(error) => CanaryResult::Wrong(error.to_string().lines().next().unwrap_or_default().into()),
    }
}

/// What the input holds at a place: small integers without a short period.
fn element(row: i64, column: i64) -> f64 {
    ((row * 31 + column * 7) % 61 - 30) as f64
}

/// The checksums of what comes out and of what must.
fn compute(session: &Session, spoil: bool) -> Result<(u32, u32)> {
    let place = |row| (0..COLUMNS).map(move |column| (row, column));
    let places: Vec<(i64, i64)> = (0..ROWS).flat_map(place).collect();
    let mut input: Vec<f64> = places.iter().map(|(row, column)| element(*row, *column)).collect();
    let mapped: Vec<f64> = input.iter().map(|x| 3.0 * x + 1.0).collect();
    let sums: Vec<f64> = mapped.chunks(COLUMNS as usize).map(|row| row.iter().sum()).collect();
    let wanted = checksum(&[&mapped, &sums]);
    if spoil {
        input[places.len() / 2] += 1.0;
    }
    let fusion = engine::text::parse_one(TEXT).map_err(|mut errors| Box::new(errors.remove(0)))?;
    let input = HostTensor::from_f64(DType::F32, &[ROWS, COLUMNS], &input)?;
    let run = session.run(&fusion, &[Arg::Tensor(input)], &NoTrace)?;
    let outputs: Vec<Vec<f64>> = run.outputs.iter().map(HostTensor::to_f64).collect();
    Ok((checksum(&outputs.iter().map(Vec::as_slice).collect::<Vec<_>>()), wanted))
}

fn checksum(parts: &[&[f64]]) -> u32 {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().flat_map(|x| (*x as f32).to_le_bytes())).collect();
    crc32fast::hash(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::DeviceSpec;

    #[test]
    fn the_result_is_right_on_a_well_device_and_wrong_on_a_sick_one() {
        let device = Device::open(&DeviceSpec::Sim { ordinal: 0, threads: 1 }, &Default::default()).expect("opens");
        assert_eq!(run(&device, false), CanaryResult::Right);
        let spoilt = run(&device, true);
        assert!(matches!(&spoilt, CanaryResult::Wrong(why) if why.contains("checksum")), "{spoilt:?}");
        assert!(matches!(run(&Device::Reference, true), CanaryResult::Skipped(_)));
    }
}
