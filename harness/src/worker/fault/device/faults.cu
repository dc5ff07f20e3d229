// Kernels that fail, each in one way, one section each: a section is compiled on
// its own. Arguments are addresses and numbers, all of 64 bits; no header is included.

//// copy_beyond
// Copies n words, then does more at `extra` words beside the output.
extern "C" __global__ void copy_beyond(const unsigned* in, unsigned* out, unsigned long long n, long long extra) {
  const unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i];
  if (i == 0) out[extra] = 0x600dbad;
}

//// illegal_address
// Writes where no memory is.
extern "C" __global__ void illegal_address(unsigned long long where) {
  *(volatile unsigned*)where = threadIdx.x;
}

//// misaligned
// Reads 16 bytes at an address that is a multiple of 4 only.
extern "C" __global__ void misaligned(const char* in, unsigned* out) {
  unsigned x, y, z, w;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
               : "l"(in + 4 + 16 * threadIdx.x));
  out[threadIdx.x] = x + y + z + w;
}

//// trap
extern "C" __global__ void trap(unsigned* out) {
  if (threadIdx.x == 7) asm volatile("trap;");
  out[threadIdx.x] = 1;
}

//// device_assert
extern "C" __device__ void __assertfail(const char* message, const char* file, unsigned line, const char* function, size_t size);

extern "C" __global__ void device_assert(unsigned* out) {
  if (threadIdx.x == 3) __assertfail("threadIdx.x != 3", "fault.cu", 1, "device_assert", 1);
  out[threadIdx.x] = 1;
}

//// infinite
// Never ends: the word stays as it is.
extern "C" __global__ void infinite(volatile unsigned* word) {
  while (*word == 0) {
  }
}

//// stuck_barrier
// One thread arrives at a barrier that waits for two.
extern "C" __global__ void stuck_barrier(unsigned* out) {
  __shared__ unsigned long long barrier;
  const unsigned at = (unsigned)__cvta_generic_to_shared(&barrier);
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(at) : "memory");
  unsigned long long token;
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(token) : "r"(at) : "memory");
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(at), "l"(token)
        : "memory");
  }
  out[0] = done;
}

//// takes_shared
// Takes all the shared memory that it is launched with.
extern "C" __global__ void takes_shared(unsigned* out) {
  extern __shared__ unsigned words[];
  words[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = words[threadIdx.x ^ 1];
}

//// crowded
// Lives on more registers than a full block has for each thread.
extern "C" __global__ void crowded(const volatile unsigned* in, unsigned* out) {
  unsigned held[160];
#pragma unroll
  for (int k = 0; k < 160; ++k) held[k] = in[k * 32 + threadIdx.x % 32];
  unsigned sum = in[0];
#pragma unroll
  for (int k = 159; k >= 0; --k) sum = sum * 31 + held[k];
  out[threadIdx.x] = sum;
}

//// leaves_gaps
// Leaves every third word of the output as it was. Some words that it does
// write look like a poison.
extern "C" __global__ void leaves_gaps(const unsigned* in, unsigned* out, unsigned long long n) {
  const unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  if (i < n && i % 3 != 2) out[i] = i % 7 == 0 ? 0xffffffffu : in[i];
}

//// writes_input
extern "C" __global__ void writes_input(unsigned* in, unsigned* out, unsigned long long n) {
  const unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i];
  if (i == 5) in[i] += 1;
}

//// heavy
// Memory of a module, which the driver gives it when it is loaded.
__device__ char ballast[1u << 30];
extern "C" __global__ void heavy(unsigned* out) {
  out[threadIdx.x] = ballast[threadIdx.x * 1000003ull];
}

//// racing_sum
extern "C" __global__ void racing_sum(const float* in, float* out, unsigned long long n) {
  const unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(out, in[i]);
}

//// unfinished
extern "C" __global__ void unfinished(unsigned* out) { out[threadIdx.x] = ; }

//// unknown_instruction
extern "C" __global__ void unknown_instruction(unsigned* out) {
  asm volatile("frobnicate.u32 %0, 1;" : "=r"(out[threadIdx.x]));
}
