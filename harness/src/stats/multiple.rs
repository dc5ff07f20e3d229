//! The correction for many tests at once. It gives adjusted p-values in the order
//! of the input: compare each with the level as if it were the only one.

/// Holm: the chance of any false alarm stays below the level.
pub(crate) fn holm(p: &[f64]) -> Vec<f64> {
    let order = ascending(p);
    let mut adjusted = vec![0.0; p.len()];
    let mut largest: f64 = 0.0;
    for (rank, i) in order.into_iter().enumerate() {
        largest = largest.max((p.len() - rank) as f64 * p[i]);
        adjusted[i] = largest.min(1.0);
    }
    adjusted
}

/// Benjamini and Hochberg: of what is called significant at a level, that share at most is a false alarm.
pub(crate) fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let order = ascending(p);
    let mut adjusted = vec![0.0; p.len()];
    let mut least: f64 = 1.0;
    for (rank, i) in order.into_iter().enumerate().rev() {
        least = least.min(p.len() as f64 * p[i] / (rank + 1) as f64);
        adjusted[i] = least;
    }
    adjusted
}

fn ascending(p: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(got: &[f64], wanted: &[f64]) {
        let near = got.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(near && got.len() == wanted.len(), "{got:?} where {wanted:?} is due");
    }

    #[test]
    fn small_sets() {
        check(&holm(&[0.01, 0.02, 0.03, 0.04, 0.05]), &[0.05, 0.08, 0.09, 0.09, 0.09]);
        check(&holm(&[0.04, 0.01, 0.5]), &[0.08, 0.03, 0.5]);
        check(&holm(&[]), &[]);
        check(&holm(&[0.7]), &[0.7]);
        check(&benjamini_hochberg(&[0.01, 0.02, 0.03, 0.04, 0.05]), &[0.05; 5]);
        check(&benjamini_hochberg(&[0.04, 0.01, 0.5]), &[0.06, 0.03, 0.5]);
        check(&benjamini_hochberg(&[]), &[]);
    }

    /// The fifteen p-values of the paper of Benjamini and Hochberg (1995), of which
    /// the chance of any false alarm allows three at 5 %.
    #[test]
    fn the_published_example() {
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
            0.7590, 1.0,
        ];
        assert_eq!(holm(&p).iter().filter(|p| **p <= 0.05).count(), 3);
        // Of which a share of false alarms of 5 % allows four.
        assert_eq!(benjamini_hochberg(&p).iter().filter(|p| **p <= 0.05).count(), 4);
    }
}
