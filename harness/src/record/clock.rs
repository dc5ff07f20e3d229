//! Calendar time in UTC, from seconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

/// Year, month and day of a day number since 1970-01-01 (proleptic Gregorian;
/// era of 400 years = 146,097 days, years counted from March).
fn civil(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_index + 2) / 5 + 1) as u32;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 } as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The number of a day since 1970-01-01, as [`civil`] takes it.
fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Seconds since 1970 of a moment as [`utc_stamp`] writes it.
pub(crate) fn seconds_of(stamp: &str) -> Option<i64> {
    let form = |(c, wanted): (u8, u8)| c == wanted || wanted == b'0' && c.is_ascii_digit();
    let like = b"0000-00-00T00:00:00Z";
    if stamp.len() != like.len() || !stamp.bytes().zip(*like).all(form) {
        return None;
    }
    let number = |from: usize, to: usize| stamp[from..to].parse::<i64>().ok();
    let day = day_number(number(0, 4)?, number(5, 7)?, number(8, 10)?);
    Some(86_400 * day + 3600 * number(11, 13)? + 60 * number(14, 16)? + number(17, 19)?)
}

fn seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

fn format(seconds: i64, compact: bool) -> String {
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let rest = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    match compact {
        true => format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z"),
        false => format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"),
    }
}

/// Now, as RFC 3339, or compact for names.
pub(crate) fn utc_stamp(compact: bool) -> String {
    format(seconds(), compact)
}

/// A moment, as RFC 3339.
pub(super) fn utc_of(time: SystemTime) -> String {
    format(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64), false)
}

/// Today, `YYYY-MM-DD`.
pub(crate) fn today() -> String {
    utc_stamp(false)[..10].to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_instants() {
        assert_eq!(super::format(0, false), "1970-01-01T00:00:00Z");
        assert_eq!(super::format(951_782_399, false), "2000-02-28T23:59:59Z");
        assert_eq!(super::format(951_782_400, true), "20000229T000000Z");
        assert_eq!(super::format(4_107_542_399, false), "2100-02-28T23:59:59Z");
        for seconds in [0, 951_782_399, 951_782_400, 1_709_164_800, 4_107_542_399, 4_107_542_400] {
            assert_eq!(super::seconds_of(&super::format(seconds, false)), Some(seconds));
        }
        for other in ["", "20000229T000000Z", "2000-02-29 00:00:00Z", "2000-02-29T00:00:00+", "üüüüüüüüüü"] {
            assert_eq!(super::seconds_of(other), None, "{other}");
        }
    }
}
