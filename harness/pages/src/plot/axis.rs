//! Numbers as labels of axes, and ranges that show what there is to see.

/// A range around values that leaves air above and below, and does not make a mountain of noise.
pub(crate) fn around(low: f64, high: f64, least_ratio: f64) -> (f64, f64) {
    if !(low.is_finite() && high.is_finite()) {
        return (0.0, 1.0);
    }
    let middle = f64::midpoint(low, high);
    let least = (middle.abs() * least_ratio).max(f64::MIN_POSITIVE);
    let half = ((high - low) / 2.0 * 1.12).max(least);
    let from = if low >= 0.0 { (middle - half).max(0.0) } else { middle - half };
    let to = middle + half;
    if to > from { (from, to) } else { (from, from + 1.0) }
}

/// A figure with four digits that matter, and a letter for thousands and more.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    let (scaled, letter) = match size {
        _ if size >= 1e12 => (value / 1e12, "T"),
        _ if size >= 1e9 => (value / 1e9, "G"),
        _ if size >= 1e6 => (value / 1e6, "M"),
        _ if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 1000.0 || size == 0.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{letter}").replace('-', "\u{2212}")
}

/// A change: `+5.2 %`.
pub(crate) fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    let digits = usize::from(percent.abs() < 99.5);
    let text = format!("{:.digits$}", percent.abs());
    let sign = match () {
        () if text == "0.0" => "",
        () if percent > 0.0 => "+",
        () => "\u{2212}",
    };
    format!("{sign}{text}\u{202f}%")
}

/// How many labels of some width have room without touching.
pub(crate) fn room(pixels: i32, label: i32, most: usize) -> usize {
    ((pixels / (label + 14)) as usize).clamp(2, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let rows =
            [(0.0, "0"), (1234.5, "1234"), (128.73, "128.7"), (0.9634, "0.963"), (26_000.0, "26k"), (1.5e9, "1.5G")];
        for (value, text) in rows {
            assert_eq!(short(value), text);
        }
        assert_eq!((percent(0.0523).as_str(), percent(-0.5).as_str()), ("+5.2\u{202f}%", "\u{2212}50.0\u{202f}%"));
        assert_eq!(percent(-0.0001), "0.0\u{202f}%");
    }

    #[test]
    fn ranges_are_never_empty() {
        for (low, high) in [(0.0, 0.0), (5.0, 5.0), (f64::NAN, 1.0), (-3.0, -3.0), (1.0, 2.0)] {
            let (from, to) = around(low, high, 0.02);
            assert!(from < to && (low.is_nan() || (from <= low && high <= to)), "{low} {high}: {from} {to}");
        }
    }
}
