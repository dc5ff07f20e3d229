//@ bf16_t :
struct bf16_t { unsigned short bits; };
//@ half_t :
struct half_t { unsigned short bits; };
//@ e4m3_t :
struct e4m3_t { unsigned char bits; };
//@ e5m2_t :
struct e5m2_t { unsigned char bits; };
//@ e8m0_t :
struct e8m0_t { unsigned char bits; };
//@ e2m1_t :
// Four bits, with zeros above.
struct e2m1_t { unsigned char bits; };
//@ special_f32 :
#define inf_f32 __int_as_float(0x7f800000)
#define nan_f32 __int_as_float(0x7fc00000)
//@ special_f64 :
#define inf_f64 __longlong_as_double(0x7ff0000000000000LL)
#define nan_f64 __longlong_as_double(0x7ff8000000000000LL)
//@ bf16_to_float : bf16_t
__device__ inline float to_float(bf16_t x) {
  float r;
  asm("mov.b32 %0, {0, %1};" : "=f"(r) : "h"(x.bits));
  return r;
}
//@ half_to_float : half_t
__device__ inline float to_float(half_t x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits));
  return r;
}
//@ widen_float :
// The value of exponent and fraction without what is special: in place they read as one that is 2^(127 - bias) too small.
template <int fraction, int bias> __device__ inline float widen_float(unsigned magnitude) {
  return __uint_as_float(magnitude << (23 - fraction)) * __uint_as_float((254u - bias) << 23);
}
//@ narrow_float :
// Rounds the bits of a magnitude to exponent and fraction, ties to even; what is out of range gives a code that is too large.
template <int fraction, int bias> __device__ inline unsigned narrow_float(unsigned magnitude) {
  // The sum aligns the fraction to units of the least subnormal number, and rounds.
  const unsigned aligned = (151u - bias - fraction) << 23;
  const unsigned small = __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(aligned)) - aligned;
  const unsigned odd = magnitude >> (23 - fraction) & 1u;
  const unsigned usual = (magnitude - ((127u - bias) << 23) + ((1u << (22 - fraction)) - 1u) + odd) >> (23 - fraction);
  return magnitude < (128u - bias) << 23 ? small : usual;
}
//@ e4m3_to_float : e4m3_t widen_float
__device__ inline float to_float(e4m3_t x) {
#if __CUDA_ARCH__ >= 890
  unsigned pair;
  float r;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)x.bits));
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"((unsigned short)pair));
  return r;
#else
  const unsigned magnitude = x.bits & 0x7fu;
  const unsigned value = magnitude == 0x7fu ? 0x7fc00000u : __float_as_uint(widen_float<3, 7>(magnitude));
  return __uint_as_float(value | (x.bits & 0x80u) << 24);
#endif
}
//@ e5m2_to_float : e5m2_t
// The upper half of a number of 16 bits.
__device__ inline float to_float(e5m2_t x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"((unsigned short)(x.bits << 8)));
  return r;
}
//@ e8m0_to_float : e8m0_t
__device__ inline float to_float(e8m0_t x) {
  return __uint_as_float(x.bits == 0 ? 0x00400000u : x.bits == 255 ? 0x7fc00000u : (unsigned)x.bits << 23);
}
//@ e2m1_to_float : e2m1_t widen_float
__device__ inline float to_float(e2m1_t x) {
  return __uint_as_float(__float_as_uint(widen_float<1, 1>(x.bits & 7u)) | (x.bits & 8u) << 28);
}
//@ round_to_odd :
// The nearest float towards zero, its last bit set if that lost something:
// rounding the result again to fewer bits then equals rounding once.
__device__ inline float round_to_odd(double x) {
  const float r = __double2float_rz(x);
  return (double)r == x || x != x ? r : __int_as_float(__float_as_int(r) | 1);
}
__device__ inline float round_to_odd(long long x) {
  const float r = __ll2float_rz(x);
  return (long long)r == x ? r : __int_as_float(__float_as_int(r) | 1);
}
//@ round_to_odd_unsigned :
// The same of a number without a sign.
__device__ inline float round_to_odd_unsigned(unsigned long long x) {
  const float r = __ull2float_rz(x);
  return (unsigned long long)r == x ? r : __int_as_float(__float_as_int(r) | 1);
}
//@ to_bf16 : bf16_t
__device__ inline bf16_t to_bf16(float x) {
  bf16_t r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
  return r;
}
//@ to_half : half_t
__device__ inline half_t to_half(float x) {
  half_t r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
  return r;
}
//@ to_e4m3 : e4m3_t narrow_float
// NaN above the greatest number, 448, where the instruction saturates.
__device__ inline e4m3_t to_e4m3(float x) {
  const unsigned sign = __float_as_uint(x) >> 24 & 0x80u;
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return e4m3_t{(unsigned char)(fabsf(x) <= 464.0f ? pair : sign | 0x7fu)};
#else
  const unsigned code = narrow_float<3, 7>(__float_as_uint(x) & 0x7fffffffu);
  return e4m3_t{(unsigned char)(sign | (code < 0x7fu ? code : 0x7fu))};
#endif
}
//@ to_e4m3_within : e4m3_t to_e4m3
// The same of what is at most 448 in magnitude, or NaN.
__device__ inline e4m3_t to_e4m3_within(float x) {
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return e4m3_t{(unsigned char)pair};
#else
  return to_e4m3(x);
#endif
}
//@ to_e5m2 : e5m2_t narrow_float
// Infinite above the greatest number, 57344, where the instruction saturates.
__device__ inline e5m2_t to_e5m2(float x) {
  const unsigned sign = __float_as_uint(x) >> 24 & 0x80u;
  const unsigned special = sign | (x != x ? 0x7fu : 0x7cu);
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return e5m2_t{(unsigned char)(fabsf(x) < 61440.0f ? pair : special)};
#else
  const unsigned code = narrow_float<2, 15>(__float_as_uint(x) & 0x7fffffffu);
  return e5m2_t{(unsigned char)(code < 0x7cu ? sign | code : special)};
#endif
}
//@ to_e5m2_within : e5m2_t to_e5m2
// The same of what is at most 57344 in magnitude, or NaN.
__device__ inline e5m2_t to_e5m2_within(float x) {
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return e5m2_t{(unsigned char)pair};
#else
  return to_e5m2(x);
#endif
}
//@ to_e8m0 : e8m0_t
// The magnitude as a power of two, ties up; NaN above the greatest.
__device__ inline e8m0_t to_e8m0(float x) {
  const unsigned magnitude = __float_as_uint(x) & 0x7fffffffu;
  const unsigned small = magnitude > 0x00400000u ? 1u : 0u;
  const unsigned code = magnitude < 0x00800000u ? small : (magnitude + 0x00400000u) >> 23;
  return e8m0_t{(unsigned char)(magnitude >= 0x7f800000u ? 255u : code)};
}
//@ to_e2m1 : e2m1_t
// At most 6 in magnitude, which NaN becomes too. To the nearest half, of 2 and more to the nearest one, of 4 and more
// to the nearest even number: to multiples of the last place of a sum with 2^22 times the power of two below, or 1.
__device__ inline e2m1_t to_e2m1(float x) {
  const float magnitude = fminf(fabsf(x), 6.0f);
  const unsigned power = max(__float_as_uint(magnitude) & 0x7f800000u, 0x3f800000u);
  const unsigned unit = power + (22u << 23);
  const unsigned steps = __float_as_uint(magnitude + __uint_as_float(unit)) - unit;
  const unsigned sign = x == x ? __float_as_uint(x) >> 28 & 8u : 0u;
  return e2m1_t{(unsigned char)(sign | (steps + (power >> 22) - 254u))};
}
//@ to_int :
// Truncates; saturates; NaN gives 0.
__device__ inline int to_int(float x) {
  int r;
  asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}
__device__ inline int to_int(double x) {
  int r;
  asm("cvt.rzi.s32.f64 %0, %1;" : "=r"(r) : "d"(x));
  return x != x ? 0 : r;
}
//@ to_long :
// Truncates; saturates; NaN gives 0.
__device__ inline long long to_long(float x) {
  long long r;
  asm("cvt.rzi.s64.f32 %0, %1;" : "=l"(r) : "f"(x));
  return x != x ? 0 : r;
}
__device__ inline long long to_long(double x) {
  long long r;
  asm("cvt.rzi.s64.f64 %0, %1;" : "=l"(r) : "d"(x));
  return x != x ? 0 : r;
}
//@ to_i8 :
// Truncates; saturates; NaN gives 0. Not `to_int` and a clamp: an assembler has been
// seen to compare a clamped number with its bound wrongly.
__device__ inline signed char to_i8(float x) {
  int r;
  asm("cvt.rzi.s8.f32 %0, %1;" : "=r"(r) : "f"(x));
  return (signed char)r;
}
__device__ inline signed char to_i8(double x) {
  int r;
  asm("cvt.rzi.s8.f64 %0, %1;" : "=r"(r) : "d"(x));
  return x != x ? 0 : (signed char)r;
}
//@ to_u8 :
// The same.
__device__ inline unsigned char to_u8(float x) {
  int r;
  asm("cvt.rzi.u8.f32 %0, %1;" : "=r"(r) : "f"(x));
  return (unsigned char)r;
}
__device__ inline unsigned char to_u8(double x) {
  int r;
  asm("cvt.rzi.u8.f64 %0, %1;" : "=r"(r) : "d"(x));
  return x != x ? 0 : (unsigned char)r;
}
//@ to_i16 :
// The same.
__device__ inline short to_i16(float x) {
  short r;
  asm("cvt.rzi.s16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return x != x ? (short)0 : r;
}
__device__ inline short to_i16(double x) {
  short r;
  asm("cvt.rzi.s16.f64 %0, %1;" : "=h"(r) : "d"(x));
  return x != x ? (short)0 : r;
}
//@ to_u16 :
// The same.
__device__ inline unsigned short to_u16(float x) {
  unsigned short r;
  asm("cvt.rzi.u16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return x != x ? (unsigned short)0 : r;
}
__device__ inline unsigned short to_u16(double x) {
  unsigned short r;
  asm("cvt.rzi.u16.f64 %0, %1;" : "=h"(r) : "d"(x));
  return x != x ? (unsigned short)0 : r;
}
//@ to_u32 :
// The same.
__device__ inline unsigned to_u32(float x) {
  unsigned r;
  asm("cvt.rzi.u32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return x != x ? 0u : r;
}
__device__ inline unsigned to_u32(double x) {
  unsigned r;
  asm("cvt.rzi.u32.f64 %0, %1;" : "=r"(r) : "d"(x));
  return x != x ? 0u : r;
}
//@ to_u64 :
// The same.
__device__ inline unsigned long long to_u64(float x) {
  unsigned long long r;
  asm("cvt.rzi.u64.f32 %0, %1;" : "=l"(r) : "f"(x));
  return x != x ? 0ULL : r;
}
__device__ inline unsigned long long to_u64(double x) {
  unsigned long long r;
  asm("cvt.rzi.u64.f64 %0, %1;" : "=l"(r) : "d"(x));
  return x != x ? 0ULL : r;
}
