//! Special functions: the logarithm of a binomial coefficient, derivatives of that of the gamma function, and the regularised
//! incomplete beta function with its inverse.

/// Steps of the continued fraction. It needs about the root of the larger
/// parameter; beyond this bound, parameters of 10^12, digits are lost.
const STEPS: u32 = 1_000_000;
/// Relative change at which the continued fraction has converged.
const CONVERGED: f64 = 1e-15;
/// From here on the asymptotic series of the derivatives of the gamma function's logarithm have 14 digits.
const ASYMPTOTIC: f64 = 32.0;

/// The natural logarithm of the gamma function.
pub(super) fn ln_gamma(x: f64) -> f64 {
    libm::lgamma(x)
}

/// The logarithm of `n` over `k`; minus infinity where `k` exceeds `n`.
pub(super) fn ln_choose(n: u64, k: u64) -> f64 {
    if k > n {
        return f64::NEG_INFINITY;
    }
    let (n, k) = (n as f64, k as f64);
    ln_gamma(n + 1.0) - ln_gamma(k + 1.0) - ln_gamma(n - k + 1.0)
}

/// The regularised incomplete beta function `I_x(a, b)`, for `a`, `b` above 0:
/// the probability that a beta variable is at most `x`. Outside of 0..1 it is 0 or 1.
pub(super) fn beta_cdf(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    // The fraction converges quickly below the mean; above it the mirror image does.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, 1.0 - x) / b
    }
}

/// The continued fraction of the incomplete beta function, by Lentz's method.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    let away_from_zero = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for step in 1..STEPS {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / away_from_zero(1.0 + even * d);
        c = away_from_zero(1.0 + even / c);
        value *= d * c;
        d = 1.0 / away_from_zero(1.0 + odd * d);
        c = away_from_zero(1.0 + odd / c);
        value *= d * c;
        if (d * c - 1.0).abs() < CONVERGED {
            break;
        }
    }
    value
}

/// The `x` with `I_x(a, b) = p`.
pub(super) fn beta_quantile(a: f64, b: f64, p: f64) -> f64 {
    if p <= 0.0 {
        return 0.0;
    }
    if p >= 1.0 {
        return 1.0;
    }
    bisect(0.0, 1.0, |x| beta_cdf(a, b, x) < p)
}

/// Where a condition that holds at first ceases to hold, to the last digit.
fn bisect(mut low: f64, mut high: f64, below: impl Fn(f64) -> bool) -> f64 {
    loop {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            return middle;
        }
        if below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
}

/// The derivative of the logarithm of the gamma function, for arguments above 0.
pub(super) fn digamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < ASYMPTOTIC {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    sum + x.ln() - 0.5 / x - square * (1.0 / 12.0 - square * (1.0 / 120.0 - square / 252.0))
}

/// The derivative of that.
pub(super) fn trigamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < ASYMPTOTIC {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    sum + 1.0 / x + square / 2.0 + square / x * (1.0 / 6.0 - square * (1.0 / 30.0 - square / 42.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(got: f64, wanted: f64, digits: i32) {
        let bound = 0.5 * 10f64.powi(-digits) * wanted.abs().max(1.0);
        assert!((got - wanted).abs() <= bound, "{got} where {wanted} is due");
    }

    #[test]
    fn gamma_and_binomial_coefficients() {
        check(ln_gamma(0.5), 0.572_364_942_924_700_1, 14);
        check(ln_gamma(10.0), 12.801_827_480_081_469, 14);
        check(ln_gamma(100.0), 359.134_205_369_575_4, 14);
        check(ln_choose(52, 5).exp(), 2_598_960.0, 11);
        assert_eq!(ln_choose(3, 4), f64::NEG_INFINITY);
    }

    #[test]
    fn derivatives_of_the_gamma_functions_logarithm() {
        check(digamma(1.0), -0.577_215_664_901_532_9, 12);
        check(digamma(0.25), -4.227_453_533_376_265, 12);
        check(trigamma(1.0), std::f64::consts::PI.powi(2) / 6.0, 12);
        check(trigamma(0.25), 17.197_329_154_507_11, 12);
        check(trigamma(40.0), 0.025_315_103_841_3, 12);
    }

    /// `I_p(k, n - k + 1)` is the upper tail of a binomial distribution.
    #[test]
    fn the_incomplete_beta_function_is_a_binomial_tail() {
        for (n, p) in [(4u64, 0.5), (17, 0.03), (60, 0.4), (500, 0.99)] {
            let term = |i: u64| (ln_choose(n, i) + i as f64 * f64::ln(p) + (n - i) as f64 * f64::ln_1p(-p)).exp();
            for k in 1..=n.min(40) {
                let tail: f64 = (k..=n).map(term).sum();
                check(beta_cdf(k as f64, (n - k + 1) as f64, p), tail, 12);
            }
        }
        check(beta_cdf(2.0, 3.0, 0.5), 0.6875, 15);
    }

    /// Student's t at 97.5 %, from the printed tables: 12.706 2.571 2.228 2.042.
    #[test]
    fn the_incomplete_beta_function_is_a_tail_of_t() {
        for (df, t) in [(1.0, 12.706_204_736), (5.0, 2.570_581_836), (10.0, 2.228_138_852), (30.0, 2.042_272_456)] {
            check(beta_cdf(df / 2.0, 0.5, df / (df + t * t)), 0.05, 9);
        }
    }

    #[test]
    fn quantiles_invert() {
        for (a, b) in [(0.5, 0.5), (0.5, 300.5), (21.0, 630.0), (3e5, 7e5)] {
            for p in [1e-9, 0.025, 0.5, 0.975] {
                check(beta_cdf(a, b, beta_quantile(a, b, p)) / p, 1.0, 7);
            }
        }
        // The arcsine distribution has a closed form.
        check(beta_quantile(0.5, 0.5, 0.3), (0.15 * std::f64::consts::PI).sin().powi(2), 14);
        assert_eq!((beta_quantile(2.0, 2.0, 0.0), beta_quantile(2.0, 2.0, 1.0)), (0.0, 1.0));
    }
}
