//@ load_streaming :
// Reads once: the line is the first to leave the caches. Only for memory that the launch never writes.
template <class T> __device__ inline T load_streaming(const T* p) {
  T r;
  if constexpr (sizeof(T) == 1) {
    *reinterpret_cast<unsigned char*>(&r) = __ldcs(reinterpret_cast<const unsigned char*>(p));
  } else if constexpr (sizeof(T) == 2) {
    *reinterpret_cast<unsigned short*>(&r) = __ldcs(reinterpret_cast<const unsigned short*>(p));
  } else {
    r = __ldcs(p);
  }
  return r;
}
//@ store_streaming :
// Written once: the line is the first to leave the caches.
template <class T> __device__ inline void store_streaming(T* p, T x) {
  if constexpr (sizeof(T) == 1) {
    __stcs(reinterpret_cast<unsigned char*>(p), *reinterpret_cast<unsigned char*>(&x));
  } else if constexpr (sizeof(T) == 2) {
    __stcs(reinterpret_cast<unsigned short*>(p), *reinterpret_cast<unsigned short*>(&x));
  } else {
    __stcs(p, x);
  }
}
//@ word_of :
// The word of so many bytes that one access moves.
template <int bytes> struct word_of;
template <> struct word_of<1> { using type = unsigned char; };
template <> struct word_of<2> { using type = unsigned short; };
template <> struct word_of<4> { using type = unsigned; };
template <> struct word_of<8> { using type = uint2; };
template <> struct word_of<16> { using type = uint4; };
//@ load_again : word_of
// Reads through all caches, each time that it is called: the compiler neither keeps what an earlier call read nor
// moves a call out of a loop. Only for memory that the launch never writes.
__device__ inline void reload_words(unsigned char* r, const unsigned char* p) {
  unsigned x;
  asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(x) : "l"(p));
  *r = (unsigned char)x;
}
__device__ inline void reload_words(unsigned short* r, const unsigned short* p) {
  asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(*r) : "l"(p));
}
__device__ inline void reload_words(unsigned* r, const unsigned* p) {
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(*r) : "l"(p));
}
__device__ inline void reload_words(uint2* r, const uint2* p) {
  asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(r->x), "=r"(r->y) : "l"(p));
}
__device__ inline void reload_words(uint4* r, const uint4* p) {
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r->x), "=r"(r->y), "=r"(r->z), "=r"(r->w)
               : "l"(p));
}
template <class T> __device__ inline T load_again(const T* p) {
  using word = typename word_of<sizeof(T)>::type;
  T r;
  reload_words(reinterpret_cast<word*>(&r), reinterpret_cast<const word*>(p));
  return r;
}
//@ load_global : word_of
// Reads past the first-level cache: sees what other blocks wrote. Never moved or merged by the compiler.
__device__ inline void load_words(unsigned char* r, const unsigned char* p) {
  unsigned x;
  asm volatile("ld.global.cg.u8 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  *r = (unsigned char)x;
}
__device__ inline void load_words(unsigned short* r, const unsigned short* p) {
  asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(*r) : "l"(p) : "memory");
}
__device__ inline void load_words(unsigned* r, const unsigned* p) {
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(*r) : "l"(p) : "memory");
}
__device__ inline void load_words(uint2* r, const uint2* p) {
  asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(r->x), "=r"(r->y) : "l"(p) : "memory");
}
__device__ inline void load_words(uint4* r, const uint4* p) {
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r->x), "=r"(r->y), "=r"(r->z), "=r"(r->w)
               : "l"(p)
               : "memory");
}
template <class T> __device__ inline T load_global(const T* p) {
  using word = typename word_of<sizeof(T)>::type;
  T r;
  load_words(reinterpret_cast<word*>(&r), reinterpret_cast<const word*>(p));
  return r;
}
//@ load_unaligned :
// Elements from an index on, wherever they lie: put together from the two words that they touch, of which those
// are read that have an element of the buffer. Others of the elements may be anything that their type can be.
template <class E> constexpr unsigned bits_of_word = 0xffffffffu;
template <> constexpr unsigned bits_of_word<bool> = 0x01010101u;
template <class T, class E, class I, class F> __device__ inline T load_unaligned(const E* p, I index, I len, F load) {
  constexpr int words = sizeof(T) / 4, element = sizeof(E), lanes = sizeof(T) / element;
  const char* start = reinterpret_cast<const char*>(p) + static_cast<long long>(index) * element;
  const int skip = static_cast<int>(reinterpret_cast<size_t>(start)) & (sizeof(T) - 1);
  const T* first = reinterpret_cast<const T*>(start - skip);
  const I second = index + (lanes - skip / element);
  alignas(16) unsigned w[2 * words] = {};
  if (second > 0 && index < len) *reinterpret_cast<T*>(&w[0]) = load(first);
  if (skip != 0 && second > -lanes && second < len) *reinterpret_cast<T*>(&w[words]) = load(first + 1);
#pragma unroll
  for (int step = words / 2; step > 0; step /= 2) {
#pragma unroll
    for (int i = 0; i + step < 2 * words; ++i) w[i] = skip & (4 * step) ? w[i + step] : w[i];
  }
  if constexpr (element < 4) {
#pragma unroll
    for (int i = 0; i < words; ++i) w[i] = __funnelshift_r(w[i], w[i + 1], 8 * (skip & 3)) & bits_of_word<E>;
  }
  return *reinterpret_cast<T*>(&w[0]);
}
template <class T, class E, class I> __device__ inline T load_unaligned(const E* p, I index, I len) {
  return load_unaligned<T>(p, index, len, [](const T* word) { return *word; });
}
//@ store_unaligned :
// Elements to a place that need not be a multiple of their size. Of two threads of a warp that are here together and
// whose elements are beside each other, the second writes the word that both touch; what is left of a thread's own
// elements, at the ends, it writes one by one.
template <class T, class E, class F> __device__ inline void store_unaligned(E* to, const T* from, F store) {
  constexpr int words = sizeof(T) / 4, lanes = sizeof(T) / sizeof(E);
  const unsigned long long start = reinterpret_cast<unsigned long long>(to);
  const int skip = static_cast<int>(start) & (sizeof(T) - 1);
  if (skip == 0) {
    store(reinterpret_cast<T*>(to), *from);
    return;
  }
  const unsigned together = __activemask();
  const int lane = (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31;
  const unsigned* own = reinterpret_cast<const unsigned*>(from);
  alignas(16) unsigned w[2 * words] = {};
#pragma unroll
  for (int i = 0; i < words; ++i) w[words + i] = own[i];
  bool follows = false, is_followed = false;
  if ((together & (together - 1)) != 0) {
    const unsigned long long before = __shfl_up_sync(together, start, 1), behind = __shfl_down_sync(together, start, 1);
    follows = lane > 0 && (together >> (lane - 1) & 1) != 0 && before + sizeof(T) == start;
    is_followed = lane < 31 && (together >> (lane + 1) & 1) != 0 && start + sizeof(T) == behind;
#pragma unroll
    for (int i = 0; i < words; ++i) w[i] = __shfl_up_sync(together, own[i], 1);
  }
  // Elements of the first of the two words.
  const int first = lanes - skip / static_cast<int>(sizeof(E));
  const E* elements = reinterpret_cast<const E*>(from);
#pragma unroll
  for (int i = 0; i < lanes; ++i) {
    if (i < first ? !follows : !is_followed) store(to + i, elements[i]);
  }
  const int left = static_cast<int>(sizeof(T)) - skip;
#pragma unroll
  for (int step = words / 2; step > 0; step /= 2) {
#pragma unroll
    for (int i = 0; i + step < 2 * words; ++i) w[i] = left & (4 * step) ? w[i + step] : w[i];
  }
  if constexpr (sizeof(E) < 4) {
#pragma unroll
    for (int i = 0; i < words; ++i) w[i] = __funnelshift_r(w[i], w[i + 1], 8 * (left & 3));
  }
  if (follows) store(reinterpret_cast<T*>(start - skip), *reinterpret_cast<T*>(&w[0]));
}
template <class T, class E> __device__ inline void store_unaligned(E* to, const T* from) {
  store_unaligned<T, E>(to, from, [](auto* to, auto value) { *to = value; });
}
//@ copy_async :
// Starts a copy of 4, 8 or 16 bytes from global to shared memory, both aligned to as many.
template <int bytes> __device__ inline void copy_async(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
               :
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from), "n"(bytes)
               : "memory");
}
//@ copy_async_global :
// As copy_async, of 16 bytes and past the first-level cache.
__device__ inline void copy_async_global(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}
//@ commit_group :
// Ends this thread's group of copies.
__device__ inline void commit_group() { asm volatile("cp.async.commit_group;" : : : "memory"); }
//@ wait_group :
// Waits for this thread's groups of copies but the latest few.
template <int open> __device__ inline void wait_group() { asm volatile("cp.async.wait_group %0;" : : "n"(open) : "memory"); }
//@ shuffle :
// Lane exchange of a whole warp for any type of at most 8 bytes.
enum shuffle_mode { shuffle_xor, shuffle_up, shuffle_down, shuffle_index };
template <shuffle_mode mode, class W> __device__ inline W shuffle_word(W x, int lane) {
  if constexpr (mode == shuffle_xor) return __shfl_xor_sync(0xffffffffu, x, lane);
  if constexpr (mode == shuffle_up) return __shfl_up_sync(0xffffffffu, x, lane);
  if constexpr (mode == shuffle_down) return __shfl_down_sync(0xffffffffu, x, lane);
  if constexpr (mode == shuffle_index) return __shfl_sync(0xffffffffu, x, lane);
}
template <shuffle_mode mode, class T> __device__ inline T shuffle(T x, int lane) {
  T r;
  if constexpr (sizeof(T) == 1) {
    *reinterpret_cast<unsigned char*>(&r) =
        (unsigned char)shuffle_word<mode>((unsigned)*reinterpret_cast<unsigned char*>(&x), lane);
  } else if constexpr (sizeof(T) == 2) {
    *reinterpret_cast<unsigned short*>(&r) =
        (unsigned short)shuffle_word<mode>((unsigned)*reinterpret_cast<unsigned short*>(&x), lane);
  } else {
    r = shuffle_word<mode>(x, lane);
  }
  return r;
}
//@ shuffle_checked : shuffle
// As shuffle; a lane or distance outside 0..31 gives the own value.
template <shuffle_mode mode, class T> __device__ inline T shuffle_checked(T x, int lane) {
  const T other = shuffle<mode>(x, lane & 31);
  return (unsigned)lane < 32u ? other : x;
}
//@ team_sync :
// Barrier of the blocks of a cooperative launch that differ in blockIdx.x alone, as grid_sync
// with a counter for each such team, 32 bytes apart.
__device__ inline void team_sync(unsigned* counters) {
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    unsigned* const counter = counters + 8 * (blockIdx.z * gridDim.y + blockIdx.y);
    const unsigned step = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
    unsigned before;
    unsigned now;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter), "r"(step)
                 : "memory");
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    } while (((before ^ now) & 0x80000000u) == 0);
  }
  __syncthreads();
}
//@ grid_sync :
// Barrier of all blocks of a cooperative launch. The counter starts at zero and
// its low bits return to zero each time, so it serves any number of barriers and
// launches in a row: block 0 adds 2^31 - (blocks - 1), the others 1, and the top
// bit flips when the last one has arrived.
__device__ inline void grid_sync(unsigned* counter) {
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    const bool first = blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
    const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
    __threadfence();
    const unsigned before = atomicAdd(counter, first ? 0x80000000u - (blocks - 1) : 1u);
    unsigned now;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    } while (((before ^ now) & 0x80000000u) == 0);
    __threadfence();
  }
  __syncthreads();
}
