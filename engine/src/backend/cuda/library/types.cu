//@ bf16_t :
struct bf16_t { unsigned short bits; };
//@ half_t :
struct half_t { unsigned short bits; };
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
