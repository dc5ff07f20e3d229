//! Looks at memory of a device on the device: whether it is as a copy of it is, whether it holds a poison, and what its
//! digest is ([`WordSums`]). What is as it should be need not cross the bus to show it; what is not is looked at by the
//! host, which can say where.
//!
//! Invariant: an answer is about what all work issued before on the device's own stream leaves.

use super::device::{Device, DeviceBuffer};
use super::launch::{LaunchArgs, LoadedKernel};
use super::nvrtc::{CompileText, NvrtcOptions};
use crate::diag::{Diagnostic, Result};
use crate::util::{CONSTANTS, Hash128, WORD, WordSums};
use std::fmt::Write;
use std::sync::Arc;

/// Threads of a block of each kernel.
const THREADS: u32 = 256;
/// Blocks for each multiprocessor: as many as are at work at once.
const BLOCKS: u32 = 8;
/// Each thread looks at every so manyth word of 16 bytes, and one of them at the rest. A word less its poison has a zero
/// element where an element holds it, and so does what two words have of either less the poison of each where the same
/// element holds both. A word that is not whole is filled up with zeros for the digest; the sums of the
/// threads of a warp are added there, so that few meet in memory.
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

template <int WIDTH> __device__ void look(
    const uint4* memory, const uint4* again, u64 bytes, unsigned poison, unsigned other, unsigned* found) {
  const u64 words = bytes / 16, first = blockIdx.x * 256ull + threadIdx.x, step = gridDim.x * 256ull;
  bool any = false;
  #pragma unroll 4
  for (u64 i = first; i < words; i += step) {
    const uint4 x = memory[i];
    uint4 less = make_uint4(x.x ^ poison, x.y ^ poison, x.z ^ poison, x.w ^ poison);
    if (again) {
      const uint4 y = again[i];
      less = make_uint4(less.x | y.x ^ other, less.y | y.y ^ other, less.z | y.z ^ other, less.w | y.w ^ other);
    }
    any |= holds<WIDTH>(less);
  }
  if (first < bytes % 16 / WIDTH) {
    const u64 at = words * 16 + first * WIDTH;
    bool all = true;
    for (int i = 0; i < WIDTH; ++i) {
      all &= ((const u8*)memory)[at + i] == (u8)poison && (!again || ((const u8*)again)[at + i] == (u8)other);
    }
    any |= all;
  }
  if (any) *found = 1;
}

extern "C" __global__ void __launch_bounds__(256) hold_poison(
    const uint4* memory, const uint4* again, u64 bytes, u64 width, u64 poison, u64 other, unsigned* found) {
  switch (width) {
    case 1: return look<1>(memory, again, bytes, (unsigned)poison, (unsigned)other, found);
    case 2: return look<2>(memory, again, bytes, (unsigned)poison, (unsigned)other, found);
    case 4: return look<4>(memory, again, bytes, (unsigned)poison, (unsigned)other, found);
    case 8: return look<8>(memory, again, bytes, (unsigned)poison, (unsigned)other, found);
    case 16: return look<16>(memory, again, bytes, (unsigned)poison, (unsigned)other, found);
  }
  *found = 1;
}

__device__ u64 scramble(u64 x) {
  x = (x ^ (x >> 32)) * FIRST_FACTOR;
  return x ^ (x >> 29);
}

__device__ u64 scramble_more(u64 x) {
  x = scramble(x) * SECOND_FACTOR;
  return x ^ (x >> 32);
}

__device__ void add_word(u64* sums, u64 number, u64 low, u64 high) {
  low += number * LOW_STEP + LOW_START;
  high += number * HIGH_STEP + HIGH_START;
  sums[0] += scramble_more(scramble(low) + high);
  sums[1] += scramble_more(scramble(high) + low);
}

extern "C" __global__ void __launch_bounds__(256) sum_words(const ulonglong2* memory, u64 bytes, u64* found) {
  const u64 words = bytes / 16, rest = bytes % 16, first = blockIdx.x * 256ull + threadIdx.x, step = gridDim.x * 256ull;
  u64 sums[2] = {0, 0};
  #pragma unroll 4
  for (u64 i = first; i < words; i += step) {
    const ulonglong2 x = memory[i];
    add_word(sums, i, x.x, x.y);
  }
  if (first == 0 && rest) {
    u64 halves[2] = {0, 0};
    for (u64 i = 0; i < rest; ++i) halves[i / 8] |= (u64)((const u8*)memory)[words * 16 + i] << (8 * (i % 8));
    add_word(sums, words, halves[0], halves[1]);
  }
  for (int half = 0; half < 2; ++half) {
    for (int far = 16; far; far /= 2) sums[half] += __shfl_down_sync(0xffffffffu, sums[half], far);
    if (threadIdx.x % 32 == 0) atomicAdd(found + half, sums[half]);
  }
}
"#;

/// The text with the numbers of the digest.
fn text() -> String {
    let mut text = String::new();
    for (name, number) in CONSTANTS {
        // Writing to a text never fails.
        let _ = writeln!(text, "#define {name} {number:#x}ull");
    }
    text + TEXT
}

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
    /// Whether the same element of two parts is all poison, in each another one: what two launches left unwritten. Of
    /// widths as above.
    HoldsBoth {
        /// Where they begin.
        addresses: [u64; 2],
        /// Of each.
        bytes: usize,
        /// Bytes of an element.
        element: usize,
        /// Every byte of what was never written, in each.
        poisons: [u8; 2],
    },
}

/// The kernels, and where they answer.
#[derive(Debug)]
pub struct Inspector {
    device: Arc<Device>,
    differ: LoadedKernel,
    hold_poison: LoadedKernel,
    sum_words: LoadedKernel,
    found: DeviceBuffer,
}

impl Inspector {
    /// Compiles and loads the kernels.
    pub fn new(device: &Arc<Device>, compiler: &dyn CompileText) -> Result<Self> {
        let options = NvrtcOptions::new(device.desc().compute_capability, true);
        let cubin = compiler.compile_text(&text(), "inspect", &options)?;
        Ok(Self {
            device: Arc::clone(device),
            differ: LoadedKernel::load_entry(device, &cubin.bytes, "differ", 0, 4)?,
            hold_poison: LoadedKernel::load_entry(device, &cubin.bytes, "hold_poison", 0, 7)?,
            sum_words: LoadedKernel::load_entry(device, &cubin.bytes, "sum_words", 0, 3)?,
            found: device.alloc_kept(SUMS)?,
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
                    let words = [address, 0, bytes as u64, element as u64, repeated(poison), 0, found];
                    self.launch(&self.hold_poison, bytes, &words)?;
                }
                Question::HoldsBoth { addresses: [a, b], bytes, element, poisons: [first, second] } => {
                    let poisons = [repeated(first), repeated(second)];
                    let words = [a, b, bytes as u64, element as u64, poisons[0], poisons[1], found];
                    self.launch(&self.hold_poison, bytes, &words)?;
                }
            }
        }
        self.found.download(0, &mut answer)?;
        Ok(answer != [0; ANSWER])
    }

    /// The digest of so many bytes at an address, which is a multiple of 16; waits for it. The caller answers for the memory
    /// as above.
    pub fn digest(&mut self, address: u64, bytes: usize) -> Result<Hash128> {
        if !address.is_multiple_of(WORD as u64) {
            return Err(Diagnostic::bug("memory that is digested on the device begins within a word"));
        }
        let mut sums = [0; SUMS];
        self.found.fill(0, SUMS, 0)?;
        self.launch(&self.sum_words, bytes, &[address, bytes as u64, self.found.address()])?;
        self.found.download(0, &mut sums)?;
        let half = |which: usize| sums[8 * which..].first_chunk().map_or(0, |half| u64::from_le_bytes(*half));
        Ok(WordSums([half(0), half(1)]).digest(bytes as u64))
    }

    fn launch(&self, kernel: &LoadedKernel, bytes: usize, args: &[u64]) -> Result<()> {
        let enough = bytes.div_ceil(WORD * THREADS as usize);
        let most = (BLOCKS * self.device.desc().sm_count).max(1);
        let blocks = u32::try_from(enough).map_or(most, |enough| enough.clamp(1, most));
        kernel.launch([blocks, 1, 1], [THREADS, 1, 1], &LaunchArgs::words(args))
    }
}

/// Four bytes, each the same.
fn repeated(byte: u8) -> u64 {
    u64::from(u32::from_ne_bytes([byte; 4]))
}

/// Bytes of an answer.
const ANSWER: usize = 4;
/// Bytes of the sums of words.
const SUMS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cuda::tests::nvrtc;

    #[test]
    #[ignore = "needs NVRTC"]
    fn needs_nvrtc_what_inspects_memory_compiles() {
        let nvrtc = nvrtc();
        for compute_capability in [(8, 0), (9, 0), (10, 0)] {
            nvrtc.compile_text(&text(), "inspect", &NvrtcOptions::new(compute_capability, true)).expect("compiles");
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
    fn needs_gpu_digests_are_those_of_the_host() {
        let (device, mut inspector) = opened();
        for len in [0, 1, 8, 15, 16, 17, 511, 4096, 4099, (1 << 20) + 5, 40 << 20, (300 << 20) + 13] {
            let (mut given, mut memory) = (bytes(len), device.alloc(len).unwrap());
            memory.upload(0, &given).unwrap();
            let mut check = |memory: &DeviceBuffer, given: &[u8]| {
                let wanted = WordSums::of(0, given).digest(len as u64);
                assert_eq!(inspector.digest(memory.address(), len).unwrap(), wanted, "{len}");
            };
            check(&memory, &given);
            for at in [0, len / 2, len.saturating_sub(1)].into_iter().filter(|at| *at < len) {
                given[at] ^= 0x80;
                memory.upload(at, &given[at..=at]).unwrap();
                check(&memory, &given);
            }
            if len > 32 {
                check(&memory, &given);
                assert!(inspector.digest(memory.address() + 8, 16).is_err());
                let wanted = WordSums::of(0, &given[16..]).digest(len as u64 - 16);
                assert_eq!(inspector.digest(memory.address() + 16, len - 16).unwrap(), wanted, "{len}");
            }
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
        let [mut first, mut second] = [(); 2].map(|()| device.alloc(4099 * 16).unwrap());
        for element in [1, 2, 4, 8, 16] {
            for count in [1, 7, 16, 4099] {
                let len = element * count;
                let question = [Question::HoldsBoth {
                    addresses: [first.address(), second.address()],
                    bytes: len,
                    element,
                    poisons: [0xff, 0x5b],
                }];
                let mut both = |first_at: Option<usize>, second_at: Option<usize>| {
                    for (buffer, at, poison) in [(&mut first, first_at, 0xff), (&mut second, second_at, 0x5b)] {
                        // No byte of it is the other one's poison.
                        buffer.upload(0, &vec![7; len]).unwrap();
                        at.iter().for_each(|at| buffer.fill(at * element, element, poison).unwrap());
                    }
                    inspector.any(&question).unwrap()
                };
                assert!(!both(None, None) && !both(Some(0), None) && !both(None, Some(count - 1)));
                for at in [0, count / 2, count - 1] {
                    assert!(both(Some(at), Some(at)), "{element} {count} {at}");
                    assert!(count == 1 || !both(Some(at), Some((at + 1) % count)), "{element} {count} {at}");
                }
            }
        }
        let other = Question::HoldsPoison { address: 0, bytes: 0, element: 3, poison: 0xff };
        assert!(inspector.any(&[other]).unwrap());
    }
}
