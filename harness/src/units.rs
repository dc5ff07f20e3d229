//! Durations and amounts of memory as people write them.

/// Milliseconds of `500ms`, `60s`, `1.5m`, `2h`, `30d`; a bare number is seconds.
pub(crate) fn duration_ms(text: &str) -> Option<u64> {
    let units = [("ms", 1.0), ("s", 1e3), ("m", 6e4), ("h", 3.6e6), ("d", 8.64e7), ("", 1e3)];
    scaled(text, &units)
}

/// Bytes of `2GiB`, `512MiB`, `4KiB`, `100B`; a bare number is bytes.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let units =
        [("GiB", 1073741824.0), ("MiB", 1048576.0), ("KiB", 1024.0), ("GB", 1e9), ("MB", 1e6), ("B", 1.0), ("", 1.0)];
    scaled(text, &units)
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let (_, factor) = units.iter().find(|(unit, _)| *unit == text[digits..].trim())?;
    let value = number * factor;
    (value.is_finite() && value <= 9e15).then_some(value.round() as u64)
}

/// A duration for people: `0.004 s`, `1.23 s`, `2 m 05 s`.
pub(crate) fn show_seconds(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        s if s < 60.0 => format!("{s:.2} s"),
        s => format!("{} m {:02} s", (s / 60.0) as u64, (s % 60.0) as u64),
    }
}

/// A short duration for people: `150 us`, `26.1 ms`, `1.23 s`, `2 m 05 s`.
pub(crate) fn show_time(ns: u64) -> String {
    match ns as f64 {
        t if t < 1e6 => format!("{:.0} us", t / 1e3),
        t if t < 1e9 => format!("{:.1} ms", t / 1e6),
        _ => show_seconds(ns),
    }
}

/// `1 thread`, `2 threads`, `3 processes`.
pub(crate) fn counted(count: impl TryInto<u64>, what: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    let ending = match what.ends_with('s') {
        _ if count == 1 => "",
        true => "es",
        false => "s",
    };
    format!("{count} {what}{ending}")
}

/// An amount of memory for people.
pub(crate) fn show_bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!([counted(1u64, "thread"), counted(0u64, "thread")], ["1 thread", "0 threads"]);
        assert_eq!(
            [counted(1usize, "worker process"), counted(2usize, "worker process")],
            ["1 worker process", "2 worker processes"]
        );
    }

    #[test]
    fn units_scale_and_nonsense_is_refused() {
        assert_eq!(duration_ms("500ms"), Some(500));
        assert_eq!(duration_ms("1.5m"), Some(90_000));
        assert_eq!(duration_ms("7"), Some(7_000));
        for bad in ["", "s", "-1s", "1 week", "1e99h", "99999999999999999999h"] {
            assert_eq!(duration_ms(bad), None, "{bad}");
        }
        assert_eq!(bytes("2GiB"), Some(2 << 30));
        assert_eq!(show_bytes(3 << 30), "3.0 GiB");
        assert_eq!(show_seconds(125_000_000_000), "2 m 05 s");
    }
}
