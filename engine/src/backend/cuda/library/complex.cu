//@ c64_t :
struct alignas(8) c64_t { float re, im; };
//@ c128_t :
struct alignas(16) c128_t { double re, im; };
//@ shuffle_complex : c64_t shuffle
template <shuffle_mode mode> __device__ inline c64_t shuffle(c64_t x, int lane) {
  return c64_t{shuffle_word<mode>(x.re, lane), shuffle_word<mode>(x.im, lane)};
}
//@ shuffle_complex_double : c128_t shuffle
template <shuffle_mode mode> __device__ inline c128_t shuffle(c128_t x, int lane) {
  return c128_t{shuffle_word<mode>(x.re, lane), shuffle_word<mode>(x.im, lane)};
}
//@ streaming_complex : c64_t load_streaming store_streaming
__device__ inline c64_t load_streaming(const c64_t* p) {
  const float2 x = __ldcs(reinterpret_cast<const float2*>(p));
  return c64_t{x.x, x.y};
}
template <> __device__ inline void store_streaming<c64_t>(c64_t* p, c64_t x) {
  __stcs(reinterpret_cast<float2*>(p), make_float2(x.re, x.im));
}
//@ streaming_complex_double : c128_t load_streaming store_streaming
__device__ inline c128_t load_streaming(const c128_t* p) {
  const double2 x = __ldcs(reinterpret_cast<const double2*>(p));
  return c128_t{x.x, x.y};
}
template <> __device__ inline void store_streaming<c128_t>(c128_t* p, c128_t x) {
  __stcs(reinterpret_cast<double2*>(p), make_double2(x.re, x.im));
}
//@ cx :
// Complex numbers are computed in double and rounded once, as the reference does: products of float are exact before the sum.
struct cx { double re, im; };
template <class C> __device__ inline cx cx_of(C z) { return cx{z.re, z.im}; }
template <class C> __device__ inline C cx_round(cx z) { return C{(decltype(C::re))z.re, (decltype(C::im))z.im}; }
//@ cx_finite :
__device__ inline bool cx_finite(double x) { return fabs(x) <= 1.7976931348623157e308; }
//@ cx_infinite :
__device__ inline bool cx_infinite(double x) { return fabs(x) > 1.7976931348623157e308; }
//@ complex_of : c64_t
__device__ inline c64_t complex_of(float re, float im) { return c64_t{re, im}; }
//@ complex_of_double : c128_t
__device__ inline c128_t complex_of_double(double re, double im) { return c128_t{re, im}; }
//@ complex_to_double : c64_t c128_t
__device__ inline c128_t complex_to_double(c64_t z) { return c128_t{z.re, z.im}; }
//@ complex_to_float : c64_t c128_t
__device__ inline c64_t complex_to_float(c128_t z) { return c64_t{(float)z.re, (float)z.im}; }
//@ complex_nonzero :
template <class C> __device__ inline bool complex_nonzero(C z) { return z.re != 0 || z.im != 0; }
//@ complex_eq :
template <class C> __device__ inline bool complex_eq(C a, C b) { return a.re == b.re && a.im == b.im; }
//@ complex_isfinite : cx_finite
template <class C> __device__ inline bool complex_isfinite(C z) { return cx_finite(z.re) && cx_finite(z.im); }
//@ complex_isinf : cx_infinite
template <class C> __device__ inline bool complex_isinf(C z) { return cx_infinite(z.re) || cx_infinite(z.im); }
//@ complex_isnan :
template <class C> __device__ inline bool complex_isnan(C z) { return z.re != z.re || z.im != z.im; }
//@ complex_neg :
template <class C> __device__ inline C complex_neg(C z) { return C{-z.re, -z.im}; }
//@ complex_add :
template <class C> __device__ inline C complex_add(C a, C b) { return C{a.re + b.re, a.im + b.im}; }
//@ complex_sub :
template <class C> __device__ inline C complex_sub(C a, C b) { return C{a.re - b.re, a.im - b.im}; }
//@ complex_abs : cx_finite
template <class C> __device__ inline decltype(C::re) complex_abs(C z) {
  const double x = fabs((double)z.re), y = fabs((double)z.im);
  const double high = x > y ? x : y, low = x > y ? y : x;
  // hypot may be a unit above the larger of two numbers that are far apart: infinite, of the largest one.
  if (low < high * 1e-17 && cx_finite(high)) return (decltype(C::re))high;
  return (decltype(C::re))hypot(x, y);
}
//@ cx_mul : cx
// Each product is rounded: a contracted difference of equal ones of c128 would not be 0.
__device__ inline cx cx_mul(cx a, cx b) {
  return cx{__dmul_rn(a.re, b.re) - __dmul_rn(a.im, b.im), __dmul_rn(a.re, b.im) + __dmul_rn(a.im, b.re)};
}
//@ complex_mul : cx_mul
template <class C> __device__ inline C complex_mul(C a, C b) { return cx_round<C>(cx_mul(cx_of(a), cx_of(b))); }
//@ cx_div : cx
// Divides both by the larger part of the divisor first.
__device__ inline cx cx_div(cx a, cx b) {
  if (b.re == 0.0 && b.im == 0.0) return cx{a.re / fabs(b.re), a.im / fabs(b.im)};
  if (fabs(b.re) >= fabs(b.im)) {
    const double ratio = b.im / b.re;
    const double scale = b.re + b.im * ratio;
    return cx{(a.re + a.im * ratio) / scale, (a.im - a.re * ratio) / scale};
  }
  const double ratio = b.re / b.im;
  const double scale = b.im + b.re * ratio;
  return cx{(a.re * ratio + a.im) / scale, (a.im * ratio - a.re) / scale};
}
//@ complex_div : cx_div
template <class C> __device__ inline C complex_div(C a, C b) { return cx_round<C>(cx_div(cx_of(a), cx_of(b))); }
//@ complex_reciprocal : cx_div
template <class C> __device__ inline C complex_reciprocal(C z) { return cx_round<C>(cx_div(cx{1.0, 0.0}, cx_of(z))); }
//@ cx_special :
#define cx_inf __longlong_as_double(0x7ff0000000000000LL)
#define cx_nan __longlong_as_double(0x7ff8000000000000LL)
//@ cx_exp_of : cx cx_finite cx_infinite cx_special
// e^x (cos y + i sin y), given e^x too.
__device__ inline cx cx_exp_of(double x, double exp_x, double y) {
  if (y == 0.0) return cx{exp_x, y};
  if (cx_infinite(x) && !cx_finite(y)) return x > 0.0 ? cx{cx_inf, cx_nan} : cx{0.0, 0.0};
  if (x > 700.0 && cx_finite(x)) {
    const double half = exp(x / 2.0);
    return cx{half * cos(y) * half, half * sin(y) * half};
  }
  return cx{exp_x * cos(y), exp_x * sin(y)};
}
//@ cx_exp : cx_exp_of
__device__ inline cx cx_exp(cx z) { return cx_exp_of(z.re, exp(z.re), z.im); }
//@ complex_exp : cx_exp
template <class C> __device__ inline C complex_exp(C z) { return cx_round<C>(cx_exp(cx_of(z))); }
//@ complex_exp2 : cx_exp_of
template <class C> __device__ inline C complex_exp2(C z) {
  const double ln_2 = 0.6931471805599453;
  return cx_round<C>(cx_exp_of((double)z.re * ln_2, exp2((double)z.re), (double)z.im * ln_2));
}
//@ complex_expm1 : cx_exp
template <class C> __device__ inline C complex_expm1(C z) {
  const cx w = cx_of(z);
  if (w.im == 0.0) return cx_round<C>(cx{expm1(w.re), w.im});
  const cx e = cx_exp(w);
  if (fabs(w.re) > 1.0 || !cx_finite(w.re) || !cx_finite(w.im)) return cx_round<C>(cx{e.re - 1.0, e.im});
  const double half = sin(w.im / 2.0);
  return cx_round<C>(cx{expm1(w.re) * cos(w.im) - 2.0 * half * half, e.im});
}
//@ cx_log_abs : cx cx_finite
// ln |z|: near the unit circle through |z|^2 - 1.
__device__ inline double cx_log_abs(double x, double y) {
  const bool turned = fabs(x) < fabs(y);
  const double low = turned ? fabs(x) : fabs(y);
  const double high = turned ? fabs(y) : fabs(x);
  if (high >= 0.5 && high < 2.0 && low < 2.0) return log1p((high - 1.0) * (high + 1.0) + low * low) / 2.0;
  if (high > 1e150 && cx_finite(high)) return log(hypot(x / 2.0, y / 2.0)) + 0.6931471805599453;
  return log(hypot(x, y));
}
//@ cx_log : cx_log_abs
__device__ inline cx cx_log(cx z) { return cx{cx_log_abs(z.re, z.im), atan2(z.im, z.re)}; }
//@ complex_log : cx_log
template <class C> __device__ inline C complex_log(C z) { return cx_round<C>(cx_log(cx_of(z))); }
//@ complex_log2 : cx_log
template <class C> __device__ inline C complex_log2(C z) {
  const cx w = cx_log(cx_of(z));
  const double by = 1.0 / 0.6931471805599453;
  return cx_round<C>(cx{w.re * by, w.im * by});
}
//@ complex_log10 : cx_log
template <class C> __device__ inline C complex_log10(C z) {
  const cx w = cx_log(cx_of(z));
  const double by = 1.0 / 2.302585092994046;
  return cx_round<C>(cx{w.re * by, w.im * by});
}
//@ complex_log1p : cx_log_abs
template <class C> __device__ inline C complex_log1p(C z) {
  const double x = z.re, y = z.im;
  const double angle = atan2(y, 1.0 + x);
  if (fabs(x) < 0.5 && fabs(y) < 0.5) return cx_round<C>(cx{log1p(x * (2.0 + x) + y * y) / 2.0, angle});
  return cx_round<C>(cx{cx_log_abs(1.0 + x, y), angle});
}
//@ cx_sqrt : cx cx_infinite cx_special
__device__ inline cx cx_sqrt(cx z) {
  const double x = z.re, y = z.im;
  if (x == 0.0 && y == 0.0) return cx{0.0, y};
  if (cx_infinite(y)) return cx{cx_inf, y};
  if (cx_infinite(x)) {
    const double other = y != y ? y : copysign(0.0, y);
    return x > 0.0 ? cx{x, other} : cx{fabs(other), copysign(cx_inf, y)};
  }
  // Scaled by a power of 4, so that the sum neither overflows nor is subnormal.
  const double high = x != x || fabs(y) > fabs(x) ? fabs(y) : fabs(x);
  const double scale = high > 1e300 ? 0.0625 : high < 1e-290 ? 324518553658426726783156020576256.0 : 1.0;
  const double back = high > 1e300 ? 4.0 : high < 1e-290 ? 5.551115123125783e-17 : 1.0;
  const double u = x * scale, v = y * scale;
  const double root = sqrt((fabs(u) + hypot(u, v)) / 2.0);
  const double other = v / (2.0 * root);
  return u >= 0.0 ? cx{root * back, other * back} : cx{fabs(other) * back, copysign(root, v) * back};
}
//@ complex_sqrt : cx_sqrt
template <class C> __device__ inline C complex_sqrt(C z) { return cx_round<C>(cx_sqrt(cx_of(z))); }
//@ complex_rsqrt : cx_sqrt cx_div
template <class C> __device__ inline C complex_rsqrt(C z) { return cx_round<C>(cx_div(cx{1.0, 0.0}, cx_sqrt(cx_of(z)))); }
//@ cx_sigmoid : cx_exp cx_div
// With the exponential that does not overflow.
__device__ inline cx cx_sigmoid(cx z) {
  if (z.re < 0.0) {
    const cx e = cx_exp(z);
    return cx_div(e, cx{1.0 + e.re, 0.0 + e.im});
  }
  const cx e = cx_exp(cx{-z.re, -z.im});
  return cx_div(cx{1.0, 0.0}, cx{1.0 + e.re, 0.0 + e.im});
}
//@ complex_sigmoid : cx_sigmoid
template <class C> __device__ inline C complex_sigmoid(C z) { return cx_round<C>(cx_sigmoid(cx_of(z))); }
//@ complex_silu : cx_sigmoid cx_mul
template <class C> __device__ inline C complex_silu(C z) { return cx_round<C>(cx_mul(cx_of(z), cx_sigmoid(cx_of(z)))); }
//@ cx_turned : cx
// i z, and -i z.
__device__ inline cx cx_turned(cx z) { return cx{-z.im, z.re}; }
__device__ inline cx cx_turned_back(cx z) { return cx{z.im, -z.re}; }
//@ cx_hyperbolic : cx cx_finite
// cosh x and sinh x times two factors, without overflow in between.
__device__ inline cx cx_hyperbolic(double x, double cosh_by, double sinh_by) {
  if (fabs(x) > 700.0 && cx_finite(x)) {
    const double half = exp(fabs(x) / 2.0);
    return cx{half / 2.0 * cosh_by * half, copysign(half, x) / 2.0 * sinh_by * half};
  }
  return cx{cosh(x) * cosh_by, sinh(x) * sinh_by};
}
//@ cx_sinh : cx_hyperbolic cx_infinite cx_special
__device__ inline cx cx_sinh(cx z) {
  const double x = z.re, y = z.im;
  if (y == 0.0) return cx{sinh(x), y};
  if (x == 0.0) return cx{x, sin(y)};
  if (cx_infinite(x) && !cx_finite(y)) return cx{x, cx_nan};
  const cx both = cx_hyperbolic(x, sin(y), cos(y));
  return cx{both.im, both.re};
}
//@ cx_cosh : cx_hyperbolic cx_infinite cx_special
__device__ inline cx cx_cosh(cx z) {
  const double x = z.re, y = z.im;
  if (y == 0.0) return cx{cosh(x), x != x ? y : y * copysign(1.0, x)};
  if (x == 0.0) return cx{cos(y), cx_finite(y) ? x * sin(y) : x};
  if (cx_infinite(x) && !cx_finite(y)) return cx{cx_inf, cx_nan};
  return cx_hyperbolic(x, cos(y), sin(y));
}
//@ cx_tanh : cx cx_finite cx_infinite cx_special
__device__ inline cx cx_tanh(cx z) {
  const double x = z.re, y = z.im;
  if (y == 0.0) return cx{tanh(x), y};
  if (cx_infinite(x)) return cx{copysign(1.0, x), copysign(0.0, cx_finite(y) ? sin(2.0 * y) : 1.0)};
  if (!cx_finite(y)) return x == 0.0 ? cx{x, cx_nan} : cx{cx_nan, cx_nan};
  if (fabs(x) > 20.0) {
    const double small = exp(-fabs(x));
    return cx{copysign(1.0, x), 4.0 * sin(y) * cos(y) * small * small};
  }
  const double t = tan(y), s = sinh(x);
  const double beta = 1.0 + t * t;
  const double rho = sqrt(1.0 + s * s);
  const double scale = 1.0 + beta * s * s;
  return cx{beta * rho * s / scale, t / scale};
}
//@ complex_sinh : cx_sinh
template <class C> __device__ inline C complex_sinh(C z) { return cx_round<C>(cx_sinh(cx_of(z))); }
//@ complex_cosh : cx_cosh
template <class C> __device__ inline C complex_cosh(C z) { return cx_round<C>(cx_cosh(cx_of(z))); }
//@ complex_tanh : cx_tanh
template <class C> __device__ inline C complex_tanh(C z) { return cx_round<C>(cx_tanh(cx_of(z))); }
//@ complex_sin : cx_sinh cx_turned
template <class C> __device__ inline C complex_sin(C z) { return cx_round<C>(cx_turned_back(cx_sinh(cx_turned(cx_of(z))))); }
//@ complex_cos : cx_cosh cx_turned
template <class C> __device__ inline C complex_cos(C z) { return cx_round<C>(cx_cosh(cx_turned(cx_of(z)))); }
//@ complex_tan : cx_tanh cx_turned
template <class C> __device__ inline C complex_tan(C z) { return cx_round<C>(cx_turned_back(cx_tanh(cx_turned(cx_of(z))))); }
//@ cx_log_double : cx
// ln |2z| of a large number.
__device__ inline double cx_log_double(double x, double y) { return log(hypot(x / 2.0, y / 2.0)) + 2.0 * 0.6931471805599453; }
__device__ inline bool cx_large(double x, double y) { return fabs(x) > 1e150 || fabs(y) > 1e150; }
//@ complex_acos : cx_sqrt cx_log_double
// With the roots of 1 - z and 1 + z, of which neither part cancels.
template <class C> __device__ inline C complex_acos(C z) {
  const double x = z.re, y = z.im;
  if (y != y && (cx_infinite(x) || x == 0.0)) return x == 0.0 ? cx_round<C>(cx{1.5707963267948966, y}) : cx_round<C>(cx{y, x});
  if (cx_large(x, y)) return cx_round<C>(cx{atan2(fabs(y), x), -copysign(cx_log_double(x, y), y)});
  const cx minus = cx_sqrt(cx{1.0 - x, -y}), plus = cx_sqrt(cx{1.0 + x, y});
  return cx_round<C>(cx{2.0 * atan2(minus.re, plus.re), asinh(plus.re * minus.im - plus.im * minus.re)});
}
//@ complex_acosh : cx_sqrt cx_log_double
template <class C> __device__ inline C complex_acosh(C z) {
  const double x = z.re, y = z.im;
  if (cx_large(x, y)) return cx_round<C>(cx{cx_log_double(x, y), atan2(y, x)});
  const cx minus = cx_sqrt(cx{x - 1.0, y}), plus = cx_sqrt(cx{x + 1.0, y});
  return cx_round<C>(cx{asinh(minus.re * plus.re + minus.im * plus.im), 2.0 * atan2(minus.im, plus.re)});
}
//@ cx_asinh : cx_sqrt cx_log_double
__device__ inline cx cx_asinh(cx z) {
  const double x = z.re, y = z.im;
  if (x != x && (cx_infinite(y) || y == 0.0)) return y == 0.0 ? z : cx{y, x};
  if (cx_large(x, y)) return cx{copysign(cx_log_double(x, y), x), atan2(y, fabs(x))};
  const cx plus = cx_sqrt(cx{1.0 + y, -x}), minus = cx_sqrt(cx{1.0 - y, x});
  return cx{asinh(plus.re * minus.im - minus.re * plus.im), atan2(y, plus.re * minus.re - plus.im * minus.im)};
}
//@ complex_asinh : cx_asinh
template <class C> __device__ inline C complex_asinh(C z) { return cx_round<C>(cx_asinh(cx_of(z))); }
//@ complex_asin : cx_asinh cx_turned
template <class C> __device__ inline C complex_asin(C z) { return cx_round<C>(cx_turned_back(cx_asinh(cx_turned(cx_of(z))))); }
//@ cx_atanh : cx cx_infinite cx_special cx_log_double
// Of a real part without a sign.
__device__ inline cx cx_atanh_right(double x, double y) {
  if (cx_infinite(x) || cx_infinite(y)) return cx{0.0, y != y ? y : copysign(1.5707963267948966, y)};
  if (cx_large(x, y) && y == y) {
    const double half = hypot(x / 2.0, y / 2.0);
    return cx{x / 4.0 / half / half, copysign(1.5707963267948966, y)};
  }
  if (x == 1.0 && y == 0.0) return cx{cx_inf, y};
  if (x == 1.0 && fabs(y) < 1e-150) {
    return cx{-log(sqrt(fabs(y)) / sqrt(hypot(y, 2.0))), copysign(atan2(2.0, -fabs(y)) / 2.0, y)};
  }
  const double re = log1p(4.0 * x / ((1.0 - x) * (1.0 - x) + y * y)) / 4.0;
  return cx{re, -atan2(-2.0 * y, (1.0 - x) * (1.0 + x) - y * y) / 2.0};
}
__device__ inline cx cx_atanh(cx z) {
  if (z.re != z.re || __double_as_longlong(z.re) >= 0) return cx_atanh_right(z.re, z.im);
  const cx w = cx_atanh_right(-z.re, -z.im);
  return cx{-w.re, -w.im};
}
//@ complex_atanh : cx_atanh
template <class C> __device__ inline C complex_atanh(C z) { return cx_round<C>(cx_atanh(cx_of(z))); }
//@ complex_atan : cx_atanh cx_turned
template <class C> __device__ inline C complex_atan(C z) { return cx_round<C>(cx_turned_back(cx_atanh(cx_turned(cx_of(z))))); }
//@ complex_pow : cx_exp cx_log cx_mul cx_div cx_special
// z^w = exp(w log z); small whole powers by multiplication. 0 to the power 0 is NaN, as in PyTorch.
template <class C> __device__ inline C complex_pow(C a, C b) {
  const cx z = cx_of(a), w = cx_of(b);
  if (z.re == 0.0 && z.im == 0.0) {
    return w.re > 0.0 ? cx_round<C>(cx{0.0, 0.0}) : w.re < 0.0 ? cx_round<C>(cx{cx_inf, cx_nan}) : cx_round<C>(cx{cx_nan, cx_nan});
  }
  if (w.im == 0.0 && trunc(w.re) == w.re && fabs(w.re) <= 64.0) {
    cx power{1.0, 0.0}, square = z;
    bool begun = false;
    for (unsigned n = (unsigned)fabs(w.re); n > 0;) {
      if ((n & 1u) != 0) {
        power = begun ? cx_mul(power, square) : square;
        begun = true;
      }
      n >>= 1;
      if (n > 0) square = cx_mul(square, square);
    }
    return cx_round<C>(w.re < 0.0 ? cx_div(cx{1.0, 0.0}, power) : power);
  }
  return cx_round<C>(cx_exp(cx_mul(w, cx_log(z))));
}
//@ complex_lerp : cx_mul
// As for floats: the second form is exact at weight 1.
template <class C> __device__ inline C complex_lerp(C start, C end, C weight) {
  const cx a = cx_of(start), b = cx_of(end), w = cx_of(weight);
  const cx span{b.re - a.re, b.im - a.im};
  if (hypot(w.re, w.im) < 0.5) {
    const cx step = cx_mul(w, span);
    return cx_round<C>(cx{a.re + step.re, a.im + step.im});
  }
  const cx step = cx_mul(span, cx{1.0 - w.re, 0.0 - w.im});
  return cx_round<C>(cx{b.re - step.re, b.im - step.im});
}
