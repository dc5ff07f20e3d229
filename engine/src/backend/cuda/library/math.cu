//@ max_nan :
// The larger one; NaN wins.
__device__ inline float max_nan(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
__device__ inline double max_nan(double a, double b) { return a != a || a >= b ? a : b; }
//@ min_nan :
// The smaller one; NaN wins.
__device__ inline float min_nan(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
__device__ inline double min_nan(double a, double b) { return a != a || a <= b ? a : b; }
//@ sign_of :
// NaN gives 0; asked for by itself, since an assembler that knows the range of `x`
// has been seen to forget it in a comparison.
template <class T> __device__ inline T sign_of(T x) { return x != x ? T(0) : (T)((x > T(0)) - (x < T(0))); }
//@ threshold :
// a > b ? a : c. NaN is asked for by itself, as above.
template <class T> __device__ inline T threshold(T a, T b, T c) { return a <= b || a != a || b != b ? c : a; }
//@ sign_bit :
__device__ inline bool sign_bit(float x) { return __float_as_int(x) < 0; }
__device__ inline bool sign_bit(double x) { return __double_as_longlong(x) < 0; }
//@ erf_fast : min_nan
// The error function as x P(x^2) / Q(x^2), fitted for the least relative error
// on [0, 3.85], where it reaches 1 to within rounding. Relative error below
// 2^-21; never beyond 1. No branch, and few instructions that run at half rate.
__device__ inline float erf_fast(float x) {
  const float a = min_nan(fabsf(x), 3.85f);
  const float t = a * a;
  float p = 2.1082613e-6f;
  p = fmaf(p, t, 2.8567485e-4f);
  p = fmaf(p, t, 3.6739712e-3f);
  p = fmaf(p, t, 5.247983e-2f);
  p = fmaf(p, t, 1.8789877e-1f);
  p = fmaf(p, t, 1.1283792f);
  float q = 3.8731727e-5f;
  q = fmaf(q, t, 1.1455091e-3f);
  q = fmaf(q, t, 1.4784975e-2f);
  q = fmaf(q, t, 1.1312939e-1f);
  q = fmaf(q, t, 4.9985382e-1f);
  q = fmaf(q, t, 1.0f);
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(q));
  return copysignf(min_nan(a * p * r, 1.0f), x);
}
//@ erf_plus_1 : min_nan
// 1 + erf(x) without the cancellation of the plain sum: with a = |x| and
// erfc(a) = 2^q(a), q a polynomial fitted on [0, 4], it is 2 - erfc(a) or
// erfc(a) by the sign. Error below 2e-7, and below 2^-18 of the result on [-4, 4];
// beyond, erfc is taken as 0, so that a large factor finds nothing to enlarge.
__device__ inline float erf_plus_1(float x) {
  const float a = min_nan(fabsf(x), 4.0f);
  float q = -5.8921904e-7f;
  q = fmaf(q, a, 1.3226808e-5f);
  q = fmaf(q, a, -1.2716408e-4f);
  q = fmaf(q, a, 6.6085154e-4f);
  q = fmaf(q, a, -1.7285991e-3f);
  q = fmaf(q, a, -7.6036033e-4f);
  q = fmaf(q, a, 2.8452016e-2f);
  q = fmaf(q, a, -1.4864236e-1f);
  q = fmaf(q, a, -9.1837114e-1f);
  q = fmaf(q, a, -1.6279123f);
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(q * a));
  // a - 4 is 0 there, and NaN where an assembler forgot that x may be.
  r = fabsf(x) > 4.0f ? a - 4.0f : r;
  return x < 0.0f ? r : 2.0f - r;
}
//@ erf_plus_1_short :
// As erf_plus_1, with an error below 2^-14.5 of the result besides. The polynomial falls on
// beyond 4.
__device__ inline float erf_plus_1_short(float x) {
  const float a = fabsf(x);
  float q = -2.193542e-3f;
  q = fmaf(q, a, 2.5829638e-2f);
  q = fmaf(q, a, -1.4224087e-1f);
  q = fmaf(q, a, -9.22792e-1f);
  q = fmaf(q, a, -1.6270102f);
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(q * a));
  // r - r is 0 there, and NaN where an assembler forgot that x may be.
  r = a > 4.0f ? r - r : r;
  return x < 0.0f ? r : 2.0f - r;
}
//@ sigmoid :
// 1 / (1 + exp(-x)) through exp(-|x|), which does not overflow.
__device__ inline float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
__device__ inline double sigmoid(double x) {
  const double e = exp(-fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
//@ silu : sigmoid
template <class T> __device__ inline T silu(T x) { return x * sigmoid(x); }
//@ ex2_flush :
__device__ inline float ex2_flush(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
//@ ex2_fast :
// Keeps subnormal results.
__device__ inline float ex2_fast(float x) {
  float r;
  asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
//@ rcp_fast :
__device__ inline float rcp_fast(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
//@ gelu_slope : ex2_flush rcp_fast
// The derivative of x (1 + erf(x / sqrt(2))) / 2. With a = |x|, it is r or 1 - r by the sign, where
// r = exp(-a^2 / 2) (E(a) - a / sqrt(2 pi)), and E(a) = exp(a^2 / 2) erfc(a / sqrt(2)) / 2 a polynomial in
// 1 / (1 + 0.255 a), fitted on [0, 10]. Error about 2^-22; relative to the two terms of r about 2^-21 for a < 3, and
// 2^-17 at 13, by the exponential, which is flushed from there on.
__device__ inline float gelu_slope(float x) {
  const float a = fabsf(x);
  const float t = rcp_fast(fmaf(0.255f, a, 1.0f));
  float q = -0.082916826f;
  q = fmaf(q, t, 0.28515753f);
  q = fmaf(q, t, -0.1843807f);
  q = fmaf(q, t, 0.22124812f);
  q = fmaf(q, t, 0.050253466f);
  q = fmaf(q, t, 0.109459f);
  q = fmaf(q, t, 0.10117939f);
  const float terms = fmaf(q, t, a * -0.3989423f);
  const float power = ex2_flush(x * x * -0.72134752f);
  return x < 0.0f ? power * terms : fmaf(-power, terms, 1.0f);
}
//@ tanh_plus_1 : ex2_flush rcp_fast
// tanh(x) + 1 as 2 / (1 + exp(-2 x)): nothing cancels where that is small.
__device__ inline float tanh_plus_1(float x) { return 2.0f * rcp_fast(1.0f + ex2_flush(x * -2.8853900817779268f)); }
//@ exp_flush : ex2_flush
__device__ inline float exp_flush(float x) { return ex2_flush(x * 1.4426950408889634f); }
//@ exp_fast : ex2_fast
__device__ inline float exp_fast(float x) { return ex2_fast(x * 1.4426950408889634f); }
//@ sigmoid_flush : ex2_flush rcp_fast
__device__ inline float sigmoid_flush(float x) {
  return rcp_fast(1.0f + ex2_flush(x * -1.4426950408889634f));
}
//@ sigmoid_fast : ex2_fast rcp_fast
__device__ inline float sigmoid_fast(float x) {
  const float power = ex2_fast(fabsf(x) * -1.4426950408889634f);
  const float r = rcp_fast(1.0f + power);
  return x < 0.0f ? power * r : r;
}
//@ silu_flush : sigmoid_flush
__device__ inline float silu_flush(float x) { return x * sigmoid_flush(x); }
//@ silu_fast : sigmoid_fast
__device__ inline float silu_fast(float x) { return x * sigmoid_fast(x); }
//@ float_rem :
// Remainder with the sign of the divisor.
__device__ inline float float_rem(float a, float b) {
  const float r = fmodf(a, b);
  return r != 0.0f && (r < 0.0f) != (b < 0.0f) ? r + b : r;
}
__device__ inline double float_rem(double a, double b) {
  const double r = fmod(a, b);
  return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}
//@ lerp :
// Exact at both ends.
template <class T> __device__ inline T lerp(T start, T end, T weight) {
  const T span = end - start;
  return weight < T(0.5) && weight > T(-0.5) ? start + weight * span : end - span * (T(1) - weight);
}
//@ wrap_add :
// Integer arithmetic that wraps: the low bits of an unsigned result.
template <class T> __device__ inline T wrap_add(T a, T b) { return (T)((unsigned long long)a + (unsigned long long)b); }
//@ wrap_sub :
template <class T> __device__ inline T wrap_sub(T a, T b) { return (T)((unsigned long long)a - (unsigned long long)b); }
//@ wrap_mul :
template <class T> __device__ inline T wrap_mul(T a, T b) { return (T)((unsigned long long)a * (unsigned long long)b); }
//@ held :
// The same number, which the assembler does not look through. That of CUDA 13.0
// - makes one instruction of max(max(a, -b), c) on 32-bit integers, and loses the sign of b;
// - makes one instruction of m = max(a, b) and m == b on 16-bit integers, which bytes are
//   computed in, and answers m == b for the upper half of the register.
template <class T> __device__ inline T held(T x) { return x; }
__device__ inline int held(int x) {
  int r;
  asm("prmt.b32 %0, %1, 0, 0x3210;" : "=r"(r) : "r"(x));
  return r;
}
__device__ inline signed char held(signed char x) { return (signed char)held((int)x); }
__device__ inline unsigned char held(unsigned char x) { return (unsigned char)held((int)x); }
//@ held_others : held
// The same of the other integers that one register holds.
__device__ inline unsigned held(unsigned x) { return (unsigned)held((int)x); }
__device__ inline short held(short x) { return (short)held((int)x); }
__device__ inline unsigned short held(unsigned short x) { return (unsigned short)held((int)x); }
//@ int_min : held
template <class T> __device__ inline T int_min(T a, T b) { return held(b < a ? b : a); }
//@ int_max : held
template <class T> __device__ inline T int_max(T a, T b) { return held(a < b ? b : a); }
//@ wrap_neg : held
template <class T> __device__ inline T wrap_neg(T a) { return held((T)(0ULL - (unsigned long long)a)); }
//@ wrap_abs : wrap_neg
template <class T> __device__ inline T wrap_abs(T a) { return a < T(0) ? wrap_neg(a) : a; }
//@ quotients :
// Numbers divided by one that they have in common, rounded as `/` rounds. The product with the reciprocal is off by two
// roundings at most, and what that leaves of the number is known exactly; with its quotient added, the sum is the quotient
// rounded once (Markstein). So it is where nothing overflows or is no normal number: of 0 and magnitudes of 2^-100..2^64, by
// 2^-60..2^24. Of zeros the sum has their sign, too, since the remainder is added with its sign turned.
template <int n> __device__ inline void quotients(float (&x)[n], float by) {
  const float reciprocal = 1.0f / by;
  const float turned = -reciprocal;
  // By the bits without the sign, 0 behind all others.
  unsigned least = ~0u;
  float most = 0.0f;
  #pragma unroll
  for (int i = 0; i < n; ++i) {
    const unsigned order = __float_as_uint(x[i]) * 2u - 1u;
    least = order < least ? order : least;
    most = fmaxf(most, fabsf(x[i]));
  }
  if (by >= 0x1p-60f && by <= 0x1p24f && least >= (27u << 24) - 1u && most <= 0x1p64f) {
    #pragma unroll
    for (int i = 0; i < n; ++i) {
      const float q = __fmul_rn(x[i], reciprocal);
      x[i] = fmaf(fmaf(q, by, -x[i]), turned, q);
    }
  } else {
    #pragma unroll
    for (int i = 0; i < n; ++i) x[i] = x[i] / by;
  }
}
//@ to_e4m3_all : e4m3_t to_e4m3 max_nan
// `to_e4m3` of all elements of a vector, of which it may be known that they are at most 448 in magnitude, or NaN.
template <int n, bool is_within> __device__ inline void to_e4m3_all(e4m3_t* to, const float (&x)[n]) {
#if __CUDA_ARCH__ >= 890
  float even = 0.0f, odd = 0.0f;
  #pragma unroll
  for (int i = 0; i < n; i += 2) {
    even = max_nan(even, fabsf(x[i]));
    odd = max_nan(odd, fabsf(x[i + 1]));
  }
  if (is_within || max_nan(even, odd) <= 464.0f) {
    #pragma unroll
    for (int i = 0; i < n; i += 2) {
      unsigned short pair;
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(x[i + 1]), "f"(x[i]));
      *reinterpret_cast<unsigned short*>(&to[i]) = pair;
    }
    return;
  }
#endif
  #pragma unroll
  for (int i = 0; i < n; ++i) to[i] = to_e4m3(x[i]);
}
//@ to_e5m2_all : e5m2_t to_e5m2 max_nan
// `to_e5m2` of all elements of a vector, of which it may be known that they are at most 57344 in magnitude, or NaN.
template <int n, bool is_within> __device__ inline void to_e5m2_all(e5m2_t* to, const float (&x)[n]) {
#if __CUDA_ARCH__ >= 890
  float even = 0.0f, odd = 0.0f;
  #pragma unroll
  for (int i = 0; i < n; i += 2) {
    even = max_nan(even, fabsf(x[i]));
    odd = max_nan(odd, fabsf(x[i + 1]));
  }
  if (is_within || max_nan(even, odd) < 61440.0f) {
    #pragma unroll
    for (int i = 0; i < n; i += 2) {
      unsigned short pair;
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(x[i + 1]), "f"(x[i]));
      *reinterpret_cast<unsigned short*>(&to[i]) = pair;
    }
    return;
  }
#endif
  #pragma unroll
  for (int i = 0; i < n; ++i) to[i] = to_e5m2(x[i]);
}
//@ int_div : wrap_neg
// Truncates; 0 for a zero divisor; wraps for the most negative value by -1.
template <class T> __device__ inline T int_div(T a, T b) {
  if (b == T(0)) return T(0);
  return T(-1) < T(0) && b == T(-1) ? wrap_neg(a) : (T)(a / b);
}
//@ int_rem :
// Sign of the dividend; 0 for a zero divisor.
template <class T> __device__ inline T int_rem(T a, T b) {
  return b == T(0) || (T(-1) < T(0) && b == T(-1)) ? T(0) : (T)(a % b);
}
//@ int_mod : int_rem
// Sign of the divisor; 0 for a zero divisor.
template <class T> __device__ inline T int_mod(T a, T b) {
  const T r = int_rem(a, b);
  return r != T(0) && (r < T(0)) != (b < T(0)) ? (T)(r + b) : r;
}
//@ quotient :
// n / d for n of 0..2^31, by the reciprocal of d: a multiplier in the low word, a shift in the high one.
__device__ inline int quotient(int n, long long reciprocal) {
  return (int)(__umulhi((unsigned)n << 1, (unsigned)reciprocal) >> (unsigned)(reciprocal >> 32));
}
//@ remainder_of : quotient
__device__ inline int remainder_of(int n, int d, long long reciprocal) { return n - quotient(n, reciprocal) * d; }
//@ reciprocal_of :
// ceil(log2 d), and floor(2^(bits + that) / d) + 1: a multiplier for numerators of so many bits (kernel/reciprocals.rs proves it).
__host__ __device__ constexpr unsigned ceil_log2(unsigned d) {
  unsigned log = 0;
  while ((1ull << log) < d) ++log;
  return log;
}
__host__ __device__ constexpr unsigned long long reciprocal_of(unsigned d, unsigned bits) {
  unsigned long long quotient = 0, rest = 1;
  for (unsigned bit = 0; bit < bits + ceil_log2(d); ++bit) {
    rest *= 2;
    quotient = quotient * 2 + rest / d;
    rest %= d;
  }
  return quotient + 1;
}
//@ quotient_by : reciprocal_of
// n / d for n that is not negative, else any number. Divisions of numbers that are known to be small, the compiler of CUDA 13.0 does in
// 8 or 16 bits, and moves constants out of remainders in addresses as if these could not wrap: (i + 4) % 7 * 6 became
// i % 7 * 6 + 24 with a first part that was negative. It does so with no product.
template <unsigned d> __device__ inline int quotient_by(int n) {
  constexpr unsigned long long multiplier = reciprocal_of(d, 31);
  return (int)((unsigned)(((unsigned long long)((unsigned)n << 1) * multiplier) >> 32) >> ceil_log2(d));
}
template <unsigned d> __device__ inline long long quotient_by(long long n) {
  constexpr unsigned long long multiplier = reciprocal_of(d, 63);
  return (long long)(__umul64hi((unsigned long long)n << 1, multiplier) >> ceil_log2(d));
}
//@ remainder_by : quotient_by
template <unsigned d, class T> __device__ inline T remainder_by(T n) { return n - quotient_by<d>(n) * (T)d; }
//@ ceil_div :
template <class T> __device__ inline T ceil_div(T a, T b) { return b == T(0) ? T(0) : (T)(a / b + (a % b != T(0))); }
//@ int_pow : wrap_mul
// Wraps; a negative exponent gives the truncated reciprocal.
template <class T> __device__ inline T int_pow(T base, T exponent) {
  if (exponent < T(0)) {
    return base == T(1) ? T(1) : base == T(-1) ? ((exponent & T(1)) != T(0) ? T(-1) : T(1)) : T(0);
  }
  T result = T(1);
  while (exponent > T(0)) {
    if ((exponent & T(1)) != T(0)) result = wrap_mul(result, base);
    base = wrap_mul(base, base);
    exponent = (T)(exponent >> 1);
  }
  return result;
}
//@ int_gcd : wrap_abs
template <class T> __device__ inline T int_gcd(T a, T b) {
  unsigned long long x = a < T(0) ? 0ULL - (unsigned long long)a : (unsigned long long)a;
  unsigned long long y = b < T(0) ? 0ULL - (unsigned long long)b : (unsigned long long)b;
  while (y != 0) {
    const unsigned long long r = x % y;
    x = y;
    y = r;
  }
  return (T)x;
}
//@ shift_left :
// 0 when the amount is negative or not below the width.
template <class T> __device__ inline T shift_left(T a, T b) {
  return (unsigned long long)b < 8 * sizeof(T) ? (T)((unsigned long long)a << (unsigned)b) : T(0);
}
//@ shift_right :
// Arithmetic; amounts that are negative or not below the width saturate.
template <class T> __device__ inline T shift_right(T a, T b) {
  return (T)((long long)a >> ((unsigned long long)b < 8 * sizeof(T) ? (unsigned)b : 63u));
}
//@ shift_right_zero :
// Brings in zeros; 0 when the amount is negative or not below the width.
template <class T> __device__ inline T shift_right_zero(T a, T b) {
  const unsigned long long mask = ~0ULL >> (64 - 8 * sizeof(T));
  return (unsigned long long)b < 8 * sizeof(T) ? (T)(((unsigned long long)a & mask) >> (unsigned)b) : T(0);
}
//@ int_clamp :
template <class T> __device__ inline T int_clamp(T x, T low, T high) {
  const T raised = x < low ? low : x;
  return high < raised ? high : raised;
}
//@ int_lerp : wrap_add wrap_sub wrap_mul
template <class T> __device__ inline T int_lerp(T start, T end, T weight) {
  return wrap_add(start, wrap_mul(weight, wrap_sub(end, start)));
}
