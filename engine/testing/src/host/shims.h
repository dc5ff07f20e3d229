// What the text of a kernel takes for granted on a device, for a host compiler.
//
// The kernels of a file stand in namespaces inside of `device`, so that a call
// of `expf` finds the function here before the one of the C library. Functions
// that need not be exact call the simulator's own scalar functions: what is
// compared is what the text says, not two mathematical libraries. What the
// device library writes in PTX is rewritten to calls of the `ptx_` functions;
// an instruction without one does not compile.

typedef __SIZE_TYPE__ size_t;

#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// Where it may stand behind `static`.
#define alignas(n) __attribute__((aligned(n)))

struct place { unsigned x, y, z; };
extern "C" place threadIdx, blockIdx, blockDim, gridDim;

// Functions of the simulator, by the number of the operation in its table.
extern "C" double (*simulated_unary)(unsigned op, double x);
extern "C" double (*simulated_binary)(unsigned op, int is_f64, double x, double y);

// What threads do together; see runtime.cpp.
extern "C" void wait_for_block();
extern "C" void wait_for_warp();
extern "C" void wait_for_grid(unsigned* counter);
extern "C" unsigned long long exchange(unsigned long long word, int source);
extern "C" int own_lane();
extern "C" unsigned char* dynamic_shared;

namespace device {

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
inline float2 make_float2(float x, float y) { return float2{x, y}; }
struct alignas(16) double2 { double x, y; };
inline double2 make_double2(double x, double y) { return double2{x, y}; }

template <class To, class From> inline To bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}
inline float __int_as_float(int x) { return bits_of<float>(x); }
inline int __float_as_int(float x) { return bits_of<int>(x); }
inline float __uint_as_float(unsigned x) { return bits_of<float>(x); }
inline unsigned __float_as_uint(float x) { return bits_of<unsigned>(x); }
inline double __longlong_as_double(long long x) { return bits_of<double>(x); }
inline long long __double_as_longlong(double x) { return bits_of<long long>(x); }

// High words of products.
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }

// Exact functions.
inline float fabsf(float x) { return __builtin_fabsf(x); }
inline float fminf(float a, float b) { return __builtin_fminf(a, b); }
// The other one of a NaN of any kind, as the device has it.
inline float fmaxf(float a, float b) { return a < b || a != a ? b : a; }
inline unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
inline double fabs(double x) { return __builtin_fabs(x); }
inline float sqrtf(float x) { return __builtin_sqrtf(x); }
inline double sqrt(double x) { return __builtin_sqrt(x); }
inline float ceilf(float x) { return __builtin_ceilf(x); }
inline double ceil(double x) { return __builtin_ceil(x); }
inline float floorf(float x) { return __builtin_floorf(x); }
inline double floor(double x) { return __builtin_floor(x); }
inline float truncf(float x) { return __builtin_truncf(x); }
inline double trunc(double x) { return __builtin_trunc(x); }
inline float rintf(float x) { return __builtin_rintf(x); }
inline double rint(double x) { return __builtin_rint(x); }
inline float fmodf(float x, float y) { return __builtin_fmodf(x, y); }
inline double fmod(double x, double y) { return __builtin_fmod(x, y); }
inline float __fmul_rn(float x, float y) { return x * y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline float copysignf(float x, float y) { return __builtin_copysignf(x, y); }
inline double copysign(double x, double y) { return __builtin_copysign(x, y); }
inline double hypot(double x, double y) { return __builtin_hypot(x, y); }
inline float ldexpf(float x, int n) { return __builtin_ldexpf(x, n); }
inline double ldexp(double x, int n) { return __builtin_ldexp(x, n); }

// Towards zero.
inline float __double2float_rz(double x) {
  const float r = (float)x;
  if (!(__builtin_fabs((double)r) > __builtin_fabs(x))) return r;
  return bits_of<float>(bits_of<unsigned>(r) - 1u);
}
inline float __ll2float_rz(long long x) {
  const float r = (float)x;
  const bool away = x < 0 ? (__int128)r < (__int128)x : (__int128)r > (__int128)x;
  return away ? bits_of<float>(bits_of<unsigned>(r) - 1u) : r;
}

inline float __ull2float_rz(unsigned long long x) {
  const float r = (float)x;
  return (unsigned __int128)r > (unsigned __int128)x ? bits_of<float>(bits_of<unsigned>(r) - 1u) : r;
}

// Memory.
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (by % 32));
}
template <class T> inline T __ldcs(const T* p) { return *p; }
template <class T> inline void __stcs(T* p, T x) { *p = x; }
template <class T> inline T __ldg(const T* p) { return *p; }
template <class T> inline T __ldcg(const T* p) { return *p; }
template <class T> inline void ptx_load(T& r, const T* p) { r = *p; }
// Asynchronous copies land at once, which is one of the moments at which they may.
// Addresses of shared memory have 32 bits: they count from what was converted last, which is used at once.
inline thread_local char* shared_window = nullptr;
inline size_t __cvta_generic_to_shared(void* p) { shared_window = (char*)p; return 0; }
inline void ptx_cp_async_ca_shared_global(unsigned to, const void* from, int bytes) { __builtin_memcpy(shared_window + to, from, bytes); }
inline void ptx_cp_async_cg_shared_global(unsigned to, const void* from) { __builtin_memcpy(shared_window + to, from, 16); }
inline void ptx_cp_async_commit_group() {}
inline void ptx_cp_async_wait_group(int) {}
inline void ptx_ld_global_cg_u8(unsigned& r, const unsigned char* p) { r = *p; }
inline void ptx_ld_global_cg_u16(unsigned short& r, const unsigned short* p) { r = *p; }
inline void ptx_ld_global_cg_u32(unsigned& r, const unsigned* p) { r = *p; }
inline void ptx_ld_global_cg_v2_u32(unsigned& x, unsigned& y, const uint2* p) { x = p->x, y = p->y; }
inline void ptx_ld_global_cg_v4_u32(unsigned& x, unsigned& y, unsigned& z, unsigned& w, const uint4* p) {
  x = p->x, y = p->y, z = p->z, w = p->w;
}

// Blocks run one after another and threads give way at barriers only, so a
// plain read and write is atomic.
template <class T> inline T atomicAdd(T* p, T x) {
  const T old = *p;
  *p = old + x;
  return old;
}
inline int atomicAdd(int* p, int x) {
  const int old = *p;
  *p = (int)((unsigned)old + (unsigned)x);
  return old;
}
inline int atomicMax(int* p, int x) {
  const int old = *p;
  *p = old < x ? x : old;
  return old;
}
inline int atomicMin(int* p, int x) {
  const int old = *p;
  *p = x < old ? x : old;
  return old;
}
inline unsigned atomicInc(unsigned* p, unsigned limit) {
  const unsigned old = *p;
  *p = old >= limit ? 0u : old + 1u;
  return old;
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __syncthreads() { wait_for_block(); }
inline void __syncwarp() { wait_for_warp(); }

// No other thread is here at the same time.
inline unsigned __activemask() { return 1u << own_lane(); }

template <class T> inline T shuffled(T x, int source) {
  unsigned long long word = 0;
  __builtin_memcpy(&word, &x, sizeof(x));
  word = exchange(word, source >= 0 && source < 32 ? source : own_lane());
  __builtin_memcpy(&x, &word, sizeof(x));
  return x;
}
template <class T> inline T __shfl_sync(unsigned, T x, int lane) { return shuffled(x, lane & 31); }
template <class T> inline T __shfl_xor_sync(unsigned, T x, int mask) { return shuffled(x, own_lane() ^ mask); }
template <class T> inline T __shfl_up_sync(unsigned, T x, int distance) { return shuffled(x, own_lane() - distance); }
template <class T> inline T __shfl_down_sync(unsigned, T x, int distance) { return shuffled(x, own_lane() + distance); }

// Instructions that the library writes itself.
inline void ptx_max_NaN_f32(float& r, float a, float b) { r = a != a || b != b ? __builtin_nanf("") : a > b ? a : b > a ? b : __builtin_signbit(a) ? b : a; }
inline void ptx_prmt_b32(int& r, int x) { r = x; }
inline void ptx_min_NaN_f32(float& r, float a, float b) { r = a != a || b != b ? __builtin_nanf("") : a < b ? a : b < a ? b : __builtin_signbit(a) ? a : b; }
inline float flushed(float x) { return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x; }
inline void ptx_ex2_approx_ftz_f32(float& r, float x) { r = flushed((float)simulated_unary(OP_EXP2, (double)flushed(x))); }
inline void ptx_ex2_approx_f32(float& r, float x) { r = (float)simulated_unary(OP_EXP2, (double)x); }
inline void ptx_rcp_approx_ftz_f32(float& r, float x) { r = flushed(1.0f / flushed(x)); }
inline void ptx_mov_b32(float& r, unsigned short high) { r = bits_of<float>((unsigned)high << 16); }

// Nearest even of a float to a format of 16 bits with that many of mantissa.
inline unsigned short to_bits16(float x, int mantissa, int bias) {
  const unsigned bits = bits_of<unsigned>(x);
  const unsigned sign = bits >> 16 & 0x8000u;
  const int width = 15 - mantissa;
  const unsigned top = ((1u << width) - 1u) << mantissa;
  if (x != x) return (unsigned short)0x7fffu;
  if (__builtin_isinf(x)) return (unsigned short)(sign | top);
  // The spacing of the format at x, at least that of its subnormal numbers.
  int exponent = 0;
  if (x == 0.0f) return (unsigned short)sign;
  __builtin_frexp((double)x, &exponent);
  const int least = 2 - bias;
  const int place = (exponent < least ? least : exponent) - 1 - mantissa;
  const double steps = __builtin_rint(__builtin_ldexp(__builtin_fabs((double)x), -place));
  // So many steps above the format's number of least exponent at that spacing.
  const unsigned base = (unsigned)((exponent < least ? least : exponent) - least) << mantissa;
  const unsigned result = base + (unsigned)steps;
  return (unsigned short)(sign | (result > top ? top : result));
}
inline void ptx_cvt_rn_bf16_f32(unsigned short& r, float x) { r = to_bits16(x, 7, 127); }
inline void ptx_cvt_rn_f16_f32(unsigned short& r, float x) { r = to_bits16(x, 10, 15); }
inline void ptx_cvt_f32_f16(float& r, unsigned short bits) {
  const unsigned mantissa = bits & 0x3ffu;
  const int exponent = bits >> 10 & 31;
  double value = exponent == 0 ? __builtin_ldexp((double)mantissa, -24) : __builtin_ldexp((double)(mantissa + 1024u), exponent - 25);
  if (exponent == 31) value = mantissa != 0 ? __builtin_nan("") : __builtin_inf();
  r = (float)(bits >> 15 != 0 ? -value : value);
}
// NaN gives 0 only where an `int` is made of a `float`.
template <class Int, class Float> inline Int saturated(Float x) {
  const Int most = (Int)(~0ULL >> (65 - 8 * sizeof(Int)));
  const Float limit = (Float)(1ULL << (8 * sizeof(Int) - 1));
  return x != x ? (sizeof(Int) == 4 && sizeof(Float) == 4 ? (Int)0 : (Int)(-most - 1)) : x >= limit ? most : x < -limit ? (Int)(-most - 1) : (Int)x;
}
inline void ptx_cvt_rzi_s32_f32(int& r, float x) { r = saturated<int>(x); }
inline void ptx_cvt_rzi_s32_f64(int& r, double x) { r = saturated<int>(x); }
inline void ptx_cvt_rzi_s64_f32(long long& r, float x) { r = saturated<long long>(x); }
inline void ptx_cvt_rzi_s64_f64(long long& r, double x) { r = saturated<long long>(x); }
// Whole numbers of at most 16 bits; the text does not use what NaN of 64 bits gives.
inline int saturated_narrow(double x, int low, int high) { return x != x ? 0 : x >= high ? high : x <= low ? low : (int)x; }
inline void ptx_cvt_rzi_s16_f32(short& r, float x) { r = (short)saturated_narrow(x, -32768, 32767); }
inline void ptx_cvt_rzi_s16_f64(short& r, double x) { r = (short)saturated_narrow(x, -32768, 32767); }
inline void ptx_cvt_rzi_u16_f32(unsigned short& r, float x) { r = (unsigned short)saturated_narrow(x, 0, 65535); }
inline void ptx_cvt_rzi_u16_f64(unsigned short& r, double x) { r = (unsigned short)saturated_narrow(x, 0, 65535); }
// Without a sign; of NaN the text uses nothing.
template <class Int, class Float> inline Int saturated_unsigned(Float x) {
  const Float limit = (Float)(1ULL << (8 * sizeof(Int) - 1)) * 2;
  return !(x > 0) ? (Int)0 : x >= limit ? (Int)~(Int)0 : (Int)x;
}
inline void ptx_cvt_rzi_u32_f32(unsigned& r, float x) { r = saturated_unsigned<unsigned>(x); }
inline void ptx_cvt_rzi_u32_f64(unsigned& r, double x) { r = saturated_unsigned<unsigned>(x); }
inline void ptx_cvt_rzi_u64_f32(unsigned long long& r, float x) { r = saturated_unsigned<unsigned long long>(x); }
inline void ptx_cvt_rzi_u64_f64(unsigned long long& r, double x) { r = saturated_unsigned<unsigned long long>(x); }
inline void ptx_cvt_rzi_s8_f32(int& r, float x) { r = saturated_narrow(x, -128, 127); }
inline void ptx_cvt_rzi_s8_f64(int& r, double x) { r = saturated_narrow(x, -128, 127); }
inline void ptx_cvt_rzi_u8_f32(int& r, float x) { r = saturated_narrow(x, 0, 255); }
inline void ptx_cvt_rzi_u8_f64(int& r, double x) { r = saturated_narrow(x, 0, 255); }

// Calls a kernel with the arguments that an array points to.
template <class T> struct plain { using type = T; };
template <class T> struct plain<const T> { using type = T; };
template <int... is> struct numbers {};
template <int n, int... is> struct counted : counted<n - 1, n - 1, is...> {};
template <int... is> struct counted<0, is...> { using type = numbers<is...>; };
template <class... Args, int... is> inline void call_each(void (*kernel)(Args...), void** args, numbers<is...>) {
  kernel(*static_cast<typename plain<Args>::type*>(args[is])...);
}
template <class... Args> inline void call(void (*kernel)(Args...), void** args) {
  call_each(kernel, args, typename counted<sizeof...(Args)>::type());
}

}  // namespace device
