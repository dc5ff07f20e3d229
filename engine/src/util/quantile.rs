//! Quantiles of measurements.

/// The value at a share of the sorted samples, for example 0.5 for the median;
/// between two samples, the weighted mean.
pub fn quantile(samples: &[f64], share: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = share.clamp(0.0, 1.0) * (sorted.len().checked_sub(1)?) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    Some(sorted[below] + (sorted[above] - sorted[below]) * position.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        let samples = [4.0, 1.0, 3.0, 2.0, 5.0];
        assert_eq!(quantile(&samples, 0.5), Some(3.0));
        assert_eq!(quantile(&samples, 0.1), Some(1.4));
        assert_eq!(quantile(&[90.0, 110.0], 0.5), Some(100.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
