//! Looks at memory of a device on the device: whether it is as a copy of it is, and whether it holds a poison. What is as
//! it should be need not cross the bus to show it; what is not is looked at by the host, which can say where.
//!
//! Invariant: an answer is about what all work issued before on the device's own stream leaves.

use super::device::{Device, DeviceBuffer};
use super::launch::{LaunchArgs, LoadedKernel};
use super::nvrtc::{Nvrtc, NvrtcOptions};
use crate::diag::Result;
use std::sync::Arc;

/// Threads of a block of either kernel.
const THREADS: u32 = 256;
/// Blocks for each multiprocessor: as many as are at work at once.
const BLOCKS: u32 = 8;
/// Bytes that a thread reads at once.
const WORD: usize = 16;

/// Each thread looks at every so manyth word of 16 bytes, and one of them at the rest. A word less its poison has a zero
/// element where an element holds it.
const TEXT: &str = r#"
typedef unsigned long long u64;
typedef unsigned char u8;

extern "C" __global__ void __launch_bounds__(256) differ(const uint4* a, const uint4* b, u64 bytes, unsigned* found) {
  const u64 words = bytes / 16, first = blockIdx.x * 256ull + threadIdx.x, step = gridDim.x * 256ull;
  unsigned other = 0;
  #pragma unroll 4
  for (u64 i = first; i < words; i += step) {
    const uint4 x = a[i], y = b[i];
    other |= (x.x ^ y.x) | (x.y ^ y.y) | (x.z ^ y.z) | (x.w ^ y.w);
  }
  if (first < bytes % 16) {
    const u64 at = words * 16 + first;
    other |= ((const u8*)a)[at] ^ ((const u8*)b)[at];
  }
  if (other) *found = 1;
}

template <int WIDTH> __device__ bool holds(uint4 x) {
  if (WIDTH == 16) return !(x.x | x.y | x.z | x.w);
  if (WIDTH == 8) return !(x.x | x.y) || !(x.z | x.w);
  if (WIDTH == 4) return !x.x || !x.y || !x.z || !x.w;
  const unsigned low = WIDTH == 2 ? 0x00010001u : 0x01010101u, high = WIDTH == 2 ? 0x80008000u : 0x80808080u;
  return (((x.x - low) & ~x.x) | ((x.y - low) & ~x.y) | ((x.z - low) & ~x.z) | ((x.w - low) & ~x.w)) & high;
}

template <int WIDTH> __device__ void look(const uint4* memory, u64 bytes, unsigned poison, unsigned* found) {
  const u64 words = bytes / 16, first = blockIdx.x * 256ull + threadIdx.x, step = gridDim.x * 256ull;
  bool any = false;
  #pragma unroll 4
  for (u64 i = first; i < words; i += step) {
    const uint4 x = memory[i];
    any |= holds<WIDTH>(make_uint4(x.x ^ poison, x.y ^ poison, x.z ^ poison, x.w ^ poison));
  }
  if (first < bytes % 16 / WIDTH) {
    const u8* element = (const u8*)memory + words * 16 + first * WIDTH;
    bool all = true;
    for (int i = 0; i < WIDTH; ++i) all &= element[i] == (u8)poison;
    any |= all;
  }
  if (any) *found = 1;
}

extern "C" __global__ void __launch_bounds__(256) hold_poison(
    const uint4* memory, u64 bytes, u64 width, u64 poison, unsigned* found) {
  switch (width) {
    case 1: return look<1>(memory, bytes, (unsigned)poison, found);
    case 2: return look<2>(memory, bytes, (unsigned)poison, found);
    case 4: return look<4>(memory, bytes, (unsigned)poison, found);
    case 8: return look<8>(memory, bytes, (unsigned)poison, found);
    case 16: return look<16>(memory, bytes, (unsigned)poison, found);
  }
  *found = 1;
}
"#;

/// What is asked of memory, whose address is a multiple of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether two parts hold other bytes.
    Differ {
        /// Where they begin.
        addresses: [u64; 2],
        /// Of each.
        bytes: usize,
    },
    /// Whether an element of so many bytes is all poison. One of a width that no type has is taken to be.
    HoldsPoison {
        /// Where the first one begins.
        address: u64,
        /// Of all.
        bytes: usize,
        /// Bytes of one.
        element: usize,
        /// Every byte of what was never written.
        poison: u8,
    },
}

/// The kernels, and where they answer.
#[derive(Debug)]
pub struct Inspector {
    device: Arc<Device>,
    differ: LoadedKernel,
    hold_poison: LoadedKernel,
    found: DeviceBuffer,
}

impl Inspector {
    /// Compiles and loads the kernels.
    pub fn new(device: &Arc<Device>, nvrtc: &Nvrtc) -> Result<Self> {
        let options = NvrtcOptions::new(device.desc().compute_capability, true);
        let cubin = nvrtc.compile_text(TEXT, "inspect", &options)?;
        Ok(Self {
            device: Arc::clone(device),
            differ: LoadedKernel::load_entry(device, &cubin.bytes, "differ", 0, 4)?,
            hold_poison: LoadedKernel::load_entry(device, &cubin.bytes, "hold_poison", 0, 5)?,
            found: device.alloc_kept(ANSWER)?,
        })
    }

    /// Whether any of it is so; waits for the answer. The caller answers for the memory: it stays allocated meanwhile.
    pub fn any(&mut self, questions: &[Question]) -> Result<bool> {
        if questions.is_empty() {
            return Ok(false);
        }
        let (mut answer, found) = ([0; ANSWER], self.found.address());
        self.found.fill(0, ANSWER, 0)?;
        for question in questions {
            match *question {
                Question::Differ { addresses: [a, b], bytes } => {
                    self.launch(&self.differ, bytes, &[a, b, bytes as u64, found])?;
                }
                Question::HoldsPoison { address, bytes, element, poison } => {
                    let poison = u64::from(u32::from_ne_bytes([poison; 4]));
                    self.launch(&self.hold_poison, bytes, &[address, bytes as u64, element as u64, poison, found])?;
                }
            }
        }
        self.found.download(0, &mut answer)?;
        Ok(answer != [0; ANSWER])
    }

    fn launch(&self, kernel: &LoadedKernel, bytes: usize, args: &[u64]) -> Result<()> {
        let enough = bytes.div_ceil(WORD * THREADS as usize);
        let most = (BLOCKS * self.device.desc().sm_count).max(1);
        let blocks = u32::try_from(enough).map_or(most, |enough| enough.clamp(1, most));
        kernel.launch([blocks, 1, 1], [THREADS, 1, 1], &LaunchArgs::words(args))
    }
}

/// Bytes of an answer.
const ANSWER: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cuda::tests::nvrtc;

    #[test]
    #[ignore = "needs NVRTC"]
    fn needs_nvrtc_what_inspects_memory_compiles() {
        let nvrtc = nvrtc();
        for compute_capability in [(8, 0), (9, 0), (10, 0)] {
            nvrtc.compile_text(TEXT, "inspect", &NvrtcOptions::new(compute_capability, true)).expect("compiles");
        }
    }

    fn opened() -> (Arc<Device>, Inspector) {
        let device = Device::open(0).expect("there is a GPU");
        let inspector = Inspector::new(&device, &nvrtc()).expect("it compiles");
        (device, inspector)
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 23) as u8 & 0x7f).collect()
    }

    #[test]
    #[ignore = "needs a GPU and NVRTC"]
    fn needs_gpu_one_byte_is_seen_wherever_it_is() {
        let (device, mut inspector) = opened();
        assert!(!inspector.any(&[]).unwrap());
        for len in [1, 15, 16, 17, 4096, 4099, (1 << 20) + 5, 40 << 20] {
            let given = bytes(len);
            let (mut a, mut b) = (device.alloc(len).unwrap(), device.alloc(len).unwrap());
            a.upload(0, &given).unwrap();
            b.copy_from(&a, len).unwrap();
            let question = Question::Differ { addresses: [a.address(), b.address()], bytes: len };
            assert!(!inspector.any(&[question]).unwrap(), "{len}");
            for at in [0, len / 2, len.saturating_sub(17), len - 1] {
                b.fill(at, 1, 0xee).unwrap();
                assert!(inspector.any(&[question]).unwrap(), "{len}: byte {at}");
                b.upload(at, &given[at..=at]).unwrap();
                assert!(!inspector.any(&[question, question]).unwrap(), "{len}: byte {at}");
            }
            assert_eq!(b.all_bytes().unwrap(), given);
        }
    }

    #[test]
    #[ignore = "needs a GPU and NVRTC"]
    fn needs_gpu_one_whole_element_of_poison_is_seen() {
        let (device, mut inspector) = opened();
        for element in [1, 2, 4, 8, 16] {
            for count in [1, 7, 16, 1000, (1 << 20) + 3] {
                let len = element * count;
                let mut memory = device.alloc(len).unwrap();
                memory.upload(0, &bytes(len)).unwrap();
                let question =
                    |poison| Question::HoldsPoison { address: memory.address(), bytes: len, element, poison };
                let question = [question(0xff)];
                assert!(!inspector.any(&question).unwrap(), "{element} {count}");
                for at in [0, count / 3, count - 1] {
                    // All but one byte, and no whole element at its place.
                    memory.fill(at * element + 1, element - 1, 0xff).unwrap();
                    assert!(!inspector.any(&question).unwrap(), "{element} {count} {at}");
                    if at + 1 < count {
                        memory.fill(at * element + 1, element, 0xff).unwrap();
                        assert_eq!(inspector.any(&question).unwrap(), element == 1, "{element} {count} {at}");
                        memory.upload(at * element, &bytes(2 * element)).unwrap();
                    }
                    memory.fill(at * element, element, 0xff).unwrap();
                    assert!(inspector.any(&question).unwrap(), "{element} {count} {at}");
                    memory.upload(at * element, &bytes(element)).unwrap();
                    assert!(!inspector.any(&question).unwrap(), "{element} {count} {at}");
                }
            }
        }
        let other = Question::HoldsPoison { address: 0, bytes: 0, element: 3, poison: 0xff };
        assert!(inspector.any(&[other]).unwrap());
    }
}
