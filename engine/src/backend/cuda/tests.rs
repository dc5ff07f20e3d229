//! Golden texts of printed kernels, and their compilation by NVRTC:
//! `FUSEWRIGHT_NVRTC` names the library, its folder or a `site-packages` folder.

#[path = "tests/gpu.rs"]
mod needs_gpu;

use super::machine_code::has_misread_predicate;
use super::nvrtc::{Nvrtc, NvrtcOptions, NvrtcSearch};
use super::{emit, samples};
use crate::kernel::{IndexOp, Kernel, KernelBuilder, Unroll};
use crate::num::{DType, UnaryOp, Value};
use expect_test::{Expect, expect};
use std::path::PathBuf;

/// The library that the environment of the test names, or one on the usual paths.
#[track_caller]
pub(super) fn nvrtc() -> Nvrtc {
    Nvrtc::open(&nvrtc_search()).expect("NVRTC is found")
}

/// Where tests look for the library.
pub(super) fn nvrtc_search() -> NvrtcSearch {
    let place = std::env::var_os("FUSEWRIGHT_NVRTC").map(PathBuf::from);
    let (path, folders) = match place {
        Some(place) if place.is_file() => (Some(place), Vec::new()),
        Some(place) => (None, vec![place]),
        None => (None, Vec::new()),
    };
    NvrtcSearch { path, folders }
}

fn check_text(kernel: &Kernel, expected: Expect) {
    expected.assert_eq(&emit(kernel).kernel);
}

/// Compiles for the architecture that has all features; no kernel here may spill.
fn check_compiles(kernels: &[Kernel]) {
    check_compiles_for((9, 0), kernels);
}

fn check_compiles_for(compute_capability: (u32, u32), kernels: &[Kernel]) {
    let nvrtc = nvrtc();
    for kernel in kernels {
        let source = emit(kernel);
        let cubin = match nvrtc.compile(&source, &NvrtcOptions::new(compute_capability, true)) {
            Ok(cubin) => cubin,
            Err(error) => panic!("{error}\n{}", source.text()),
        };
        assert!(cubin.bytes.starts_with(b"\x7fELF"), "{} is no ELF file", kernel.name);
        keep(kernel, &cubin.bytes);
        let resources = cubin.resources.expect("the log has the assembler's report");
        println!("{}: {resources:?}, {} bytes of text", kernel.name, source.text().len());
        assert!(resources.registers > 0);
        assert_eq!((resources.spill_loads, resources.spill_stores), (0, 0), "{}", kernel.name);
        assert!(!cubin.log.contains("warning"), "{}", cubin.log);
    }
}

#[test]
fn text_of_vector_moves_and_a_scalar_tail() {
    check_text(
        &samples::vector_add(),
        expect![[r#"
            extern "C" __global__ void __launch_bounds__(128, 1) vector_add(
                const int n,
                const bf16_t* __restrict__ x,
                const bf16_t* __restrict__ w,
                bf16_t* __restrict__ y
            ) {
              const int thread_x = threadIdx.x;
              const int block_x = blockIdx.x;
              alignas(16) bf16_t xs[8];
              alignas(16) bf16_t ws[8];
              alignas(16) bf16_t ys[8];
              // ys
              const int i0 = (block_x * 128 + thread_x) * 8;
              if (i0 + 8 <= n) {
                // xs
                *reinterpret_cast<uint4*>(&xs[0]) = load_streaming(reinterpret_cast<const uint4*>(&x[i0]));
                // ws
                *reinterpret_cast<uint4*>(&ws[0]) = *reinterpret_cast<const uint4*>(&w[i0]);
                // ys
                #pragma unroll
                for (int j = 0; j < 8; ++j) {
                  ys[j] = to_bf16(to_float(xs[j]) + to_float(ws[j]));
                }
                store_streaming(reinterpret_cast<uint4*>(&y[i0]), *reinterpret_cast<const uint4*>(&ys[0]));
              } else {
                #pragma unroll 1
                for (int i = i0; i < n; ++i) {
                  const bf16_t x_1 = load_streaming(&x[i]);
                  const bf16_t w_1 = w[i];
                  store_streaming<bf16_t>(&y[i], to_bf16(to_float(x_1) + to_float(w_1)));
                }
              }
            }
        "#]],
    );
}

#[test]
fn text_of_a_block_reduction() {
    check_text(
        &samples::row_sum(),
        expect![[r#"
            extern "C" __global__ void __launch_bounds__(256, 1) row_sum(
                const int rows,
                const int columns,
                const float* __restrict__ x,
                float* __restrict__ y
            ) {
              const int thread_x = threadIdx.x;
              const int block_x = blockIdx.x;
              __shared__ alignas(16) float warp_sums[8];
              float acc;
              float total;
              acc = 0.0f;
              // warp_sum
              #pragma unroll 4
              for (int i = thread_x; i < columns; i += 256) {
                const float value = x[block_x * columns + i];
                acc = acc + value;
              }
              const float other = shuffle<shuffle_xor>(acc, 16);
              const float warp_sum = acc + other;
              const float other_1 = shuffle<shuffle_xor>(warp_sum, 8);
              const float warp_sum_1 = warp_sum + other_1;
              const float other_2 = shuffle<shuffle_xor>(warp_sum_1, 4);
              const float warp_sum_2 = warp_sum_1 + other_2;
              const float other_3 = shuffle<shuffle_xor>(warp_sum_2, 2);
              const float warp_sum_3 = warp_sum_2 + other_3;
              const float other_4 = shuffle<shuffle_xor>(warp_sum_3, 1);
              const float warp_sum_4 = warp_sum_3 + other_4;
              if ((thread_x & 31) == 0) {
                warp_sums[thread_x >> 5] = warp_sum_4;
              }
              __syncthreads();
              total = 0.0f;
              #pragma unroll
              for (int w = 0; w < 8; ++w) {
                const float more = warp_sums[w];
                total = total + more;
              }
              if (thread_x == 0) {
                y[block_x] = total;
              }
            }
        "#]],
    );
}

#[test]
fn text_of_a_grid_reduction_with_atomics() {
    check_text(
        &samples::sum_all(),
        expect![[r#"
            extern "C" __global__ void __launch_bounds__(256, 1) sum_all(
                const long long n,
                const long long blocks,
                const float* __restrict__ x,
                float* __restrict__ y,
                float* partials,
                int* arrivals
            ) {
              const int thread_x = threadIdx.x;
              const int block_x = blockIdx.x;
              __shared__ alignas(16) float warp_sums[8];
              __shared__ bool is_last[1];
              float acc;
              acc = 0.0f;
              // warp_sum
              #pragma unroll
              for (long long k = 0LL; k < 4LL; ++k) {
                const long long i0 = (long long)block_x * 1024LL + k * 256LL + (long long)thread_x;
                if (i0 < n) {
                  const float value = x[i0];
                  acc = acc + value;
                }
              }
              const float other = shuffle<shuffle_down>(acc, 16);
              const float warp_sum = acc + other;
              const float other_1 = shuffle<shuffle_down>(warp_sum, 8);
              const float warp_sum_1 = warp_sum + other_1;
              const float other_2 = shuffle<shuffle_down>(warp_sum_1, 4);
              const float warp_sum_2 = warp_sum_1 + other_2;
              const float other_3 = shuffle<shuffle_down>(warp_sum_2, 2);
              const float warp_sum_3 = warp_sum_2 + other_3;
              const float other_4 = shuffle<shuffle_down>(warp_sum_3, 1);
              const float warp_sum_4 = warp_sum_3 + other_4;
              if ((thread_x & 31) == 0) {
                warp_sums[thread_x >> 5] = warp_sum_4;
              }
              __syncthreads();
              const float sum_0 = warp_sums[0];
              const float sum_1 = warp_sums[1];
              const float sum_2 = warp_sums[2];
              const float sum_3 = warp_sums[3];
              const float sum_4 = warp_sums[4];
              const float sum_5 = warp_sums[5];
              const float sum_6 = warp_sums[6];
              const float sum_7 = warp_sums[7];
              const float block_total = sum_0 + sum_1 + sum_2 + sum_3 + sum_4 + sum_5 + sum_6 + sum_7;
              if (thread_x == 0) {
                partials[(long long)block_x] = block_total;
                __threadfence();
                const int i0 = (int)blocks - 1;
                const int before = (int)atomicInc(reinterpret_cast<unsigned*>(&arrivals[0]), i0);
                is_last[0] = before == i0;
              }
              __syncthreads();
              const bool last = is_last[0];
              if (last) {
                __threadfence();
                if (thread_x == 0) {
                  acc = 0.0f;
                  #pragma unroll 1
                  for (long long p = 0LL; p < blocks; ++p) {
                    const float more = load_global(&partials[p]);
                    acc = acc + more;
                  }
                  y[0] = acc;
                }
              }
            }
        "#]],
    );
}

#[test]
fn text_of_atomics() {
    check_text(
        &samples::count_above(),
        expect![[r#"
        extern "C" __global__ void __launch_bounds__(256, 1) count_above(
            const int n,
            const int limit,
            const int* __restrict__ x,
            int* __restrict__ count,
            int* __restrict__ largest
        ) {
          const int thread_x = threadIdx.x;
          const int block_x = blockIdx.x;
          const int i0 = block_x * 256 + thread_x;
          if (i0 < n) {
            const int value = x[i0];
            if (value > limit) {
              atomicAdd(&count[0], 1);
              atomicMax(&largest[0], value);
            }
          }
        }
    "#]],
    );
}

#[test]
fn text_of_a_grid_barrier_and_dynamic_shared_memory() {
    let source = emit(&samples::grid_reverse());
    assert_eq!((source.barrier_bytes, source.cooperative, source.dynamic_shared), (4, true, 50_176));
    check_text(
        &samples::grid_reverse(),
        expect![[r#"
            extern "C" __global__ void __launch_bounds__(256, 2) grid_reverse(
                const int n,
                const int* __restrict__ x,
                int* __restrict__ y,
                int* copy,
                unsigned* grid_barrier
            ) {
              const int thread_x = threadIdx.x;
              const int block_x = blockIdx.x;
              extern __shared__ __align__(128) unsigned char shared_memory[];
              int* const stage = reinterpret_cast<int*>(shared_memory + 0);
              double* const unused = reinterpret_cast<double*>(shared_memory + 1024);
              const int i0 = block_x * 256 + thread_x;
              if (i0 < n) {
                const int value = x[i0];
                stage[thread_x] = value;
                const int staged = stage[thread_x];
                copy[i0] = staged;
              }
              grid_sync(grid_barrier);
              if (i0 < n) {
                const int value = copy[i0];
                const int other = load_global(&copy[n - 1 - i0]);
                y[i0] = wrap_add(value, other);
              }
            }
        "#]],
    );
}

#[test]
fn text_of_random_numbers() {
    let source = emit(&samples::random_numbers());
    assert!(["philox", "unit_f32", "unit_f64"].iter().all(|name| source.library.contains(name)), "{}", source.library);
    check_text(
        &samples::random_numbers(),
        expect![[r#"
        extern "C" __global__ void __launch_bounds__(128, 1) random_numbers(
            const int n,
            const long long seed,
            const long long offset,
            float* __restrict__ y,
            double* __restrict__ z
        ) {
          const int thread_x = threadIdx.x;
          const int block_x = blockIdx.x;
          const int i0 = (block_x * 128 + thread_x) * 4;
          const philox_block block0 = philox(seed, offset, shift_right((long long)i0, 2LL));
          const float u = unit_f32(block0.x0);
          const float u_1 = unit_f32(block0.x1);
          const float u_2 = unit_f32(block0.x2);
          const float u_3 = unit_f32(block0.x3);
          const philox_block block1 = philox(seed, offset, (long long)i0);
          const double d = unit_f64(block1.x0, block1.x1);
          const double d_1 = unit_f64(block1.x2, block1.x3);
          y[i0] = u;
          y[i0 + 1] = u_1;
          y[i0 + 2] = u_2;
          y[i0 + 3] = u_3;
          z[i0] = d;
          z[i0 + 1] = d_1;
        }
    "#]],
    );
}

#[test]
fn text_of_formulas() {
    check_text(
        &samples::formulas(),
        expect![[r#"
        extern "C" __global__ void __launch_bounds__(64, 1) formulas(
            const int n,
            const float scale,
            const float* __restrict__ float_1,
            float* __restrict__ y
        ) {
          const int thread_x = threadIdx.x;
          const int block_x = blockIdx.x;
          #pragma unroll 1
          for (int j = 0; j < 10; ++j) {
            const int i0 = remainder_by<7>(quotient_by<3>(block_x * 10 + j)) * n - (thread_x - j);
            if (i0 >= 3 && i0 < n) {
              const float v = float_1[i0];
              const int i1 = block_x * n + thread_x;
              const float w = float_1[i1];
              const float v0 = v * v;
              const float v1 = ((((v - (-(-v0) - w)) / v0 * scale + w) * scale + w) * scale + w) * scale;
              const float v2 = ((((((v1 + w) * scale + w) * scale + w) * scale + w) * scale + w) * scale + w) * scale;
              const float v3 = ((((((v2 + w) * scale + w) * scale + w) * scale + w) * scale + w) * scale + w) * scale;
              const float v4 = ((((v3 + w) * scale + w) * scale + w) * scale + w) * scale + w;
              y[i1] = v4 > scale ? v4 : -inf_f32;
            }
          }
        }
    "#]],
    );
}

#[test]
fn text_is_a_function_of_the_kernel() {
    let text = emit(&samples::sum_all()).text();
    for _ in 0..20 {
        assert_eq!(emit(&samples::sum_all()).text(), text);
    }
}

#[test]
fn only_used_library_functions_are_printed() {
    let library = emit(&samples::vector_add()).library;
    for (name, is_used) in [("to_bf16", true), ("to_float", true), ("sigmoid", false), ("half_t", false)] {
        assert_eq!(library.contains(name), is_used, "{name} in\n{library}");
    }
}

#[test]
fn one_plus_erf_has_its_own_form_unless_erf_is_used_elsewhere() {
    let text = emit(&samples::gelu_chain(samples::PLAIN)).kernel;
    assert!(text.contains("erf_plus_1_short(") && !text.contains("erf_fast("), "{text}");
    let both = samples::chain("both", samples::PLAIN, |b, [x]| {
        let (erf, one) = (b.exprs().unary(UnaryOp::Erf, x), b.exprs().value(Value::Float(1.0), DType::F32));
        let sum = b.exprs().add(erf, one);
        b.exprs().mul(sum, erf)
    });
    let text = emit(&both).kernel;
    assert!(!text.contains("erf_plus_1(") && text.contains("erf_fast("), "{text}");
}

/// Where `FUSEWRIGHT_CUBINS` names a folder, leaves the machine code there for disassembly.
fn keep(kernel: &Kernel, cubin: &[u8]) {
    if let Some(folder) = std::env::var_os("FUSEWRIGHT_CUBINS") {
        let file = PathBuf::from(folder).join(format!("{}.cubin", kernel.name));
        std::fs::write(file, cubin).expect("the folder can be written");
    }
}

#[test]
#[ignore = "needs NVRTC"]
fn needs_nvrtc_samples_compile() {
    check_compiles(&[
        samples::vector_add(),
        samples::row_sum(),
        samples::sum_all(),
        samples::count_above(),
        samples::grid_reverse(),
        samples::formulas(),
        samples::random_numbers(),
        samples::gelu_chain(samples::PLAIN),
        samples::unary_chain(UnaryOp::Exp),
        samples::unary_chain(UnaryOp::Silu),
        samples::unary_chain(UnaryOp::Tanh),
        samples::unary_chain(UnaryOp::Rsqrt),
        samples::unary_chain(UnaryOp::Reciprocal),
        samples::unary_chain(UnaryOp::Log),
        samples::unary_chain(UnaryOp::Sqrt),
        samples::writes_behind_the_end(),
        samples::reads_nowhere(),
    ]);
}

#[test]
#[ignore = "needs NVRTC"]
fn needs_nvrtc_what_the_assembler_gets_wrong_is_not_used() {
    let text = r#"extern "C" __global__ void k(const int* x, int* y) {
      const int low = x[threadIdx.x] < 255 ? x[threadIdx.x] : 255;
      const int clamped = low > 0 ? low : 0;
      y[threadIdx.x] = clamped == 255 ? -1 : clamped;
    }"#;
    let (nvrtc, options) = (nvrtc(), NvrtcOptions::new((9, 0), true));
    let optimized = nvrtc.compile_with(text, "k", &options, &options.flags(nvrtc.version())).unwrap();
    assert!(
        has_misread_predicate(&optimized.bytes),
        "this assembler keeps the test apart; the second compilation may go"
    );
    assert!(!has_misread_predicate(&nvrtc.compile_text(text, "k", &options).unwrap().bytes));
}

#[test]
#[ignore = "needs NVRTC"]
fn needs_nvrtc_every_operation_compiles_for_every_data_type() {
    let kernels: Vec<_> = DType::FUSION.iter().copied().map(samples::all_ops).collect();
    check_compiles(&kernels);
}

#[test]
#[ignore = "needs NVRTC"]
fn needs_nvrtc_conversions_compile_for_every_generation() {
    // The first has no instructions for floats of eight bits.
    for compute_capability in [(8, 0), (8, 9), (10, 0)] {
        let kernels: Vec<_> =
            DType::FUSION.iter().copied().filter(|dtype| dtype.bytes() == 1).map(samples::all_ops).collect();
        check_compiles_for(compute_capability, &kernels);
        check_compiles_for(compute_capability, &[samples::all_ops(DType::F32)]);
    }
}

#[test]
fn the_end_of_a_loop_that_is_a_choice_is_one_operand() {
    let mut b = KernelBuilder::new("choice", DType::I32);
    let n = b.size("n", 0, 0);
    let y = b.output("y", 0, DType::F32, n, 4);
    let seven = b.int(7);
    let end = b.exprs().index(IndexOp::Min, n, seven);
    let zero = b.exprs().value(Value::Float(0.0), DType::F32);
    b.count("i", end, Unroll::No, |b, i| b.store(y, i, zero));
    let one = b.int(1);
    let text = emit(&b.finish_1d(one, 1)).text();
    assert!(text.contains("for (int i = 0; i < (7 < n ? 7 : n); ++i) {"), "{text}");
}
