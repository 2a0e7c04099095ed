//! Moments, and the forms of Unix time as text.

pub use uncia_clock::{Moment, unix_ns};

/// A Unix time as Lambda writes LastModified: `2024-05-01T12:30:00.123+0000`.
pub fn iso_8601(unix_ms: i64) -> String {
    let (days, in_day) = (unix_ms.div_euclid(86_400_000), unix_ms.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let (hours, minutes) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (seconds, milliseconds) = (in_day / 1_000 % 60, in_day % 1_000);
    format!(
        "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{milliseconds:03}+0000"
    )
}

/// A Unix time as an HTTP access log writes it, which is the form of `requestContext.time`:
/// `01/May/2024:12:30:00 +0000`.
pub fn common_log(unix_ms: i64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, in_day) = (unix_ms.div_euclid(86_400_000), unix_ms.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let month = MONTHS[month as usize - 1];
    let (hours, minutes, seconds) = (in_day / 3_600_000, in_day / 60_000 % 60, in_day / 1_000 % 60);
    format!("{day:02}/{month}/{year:04}:{hours:02}:{minutes:02}:{seconds:02} +0000")
}

/// Year, month and day of a number of days since 1 January 1970 in the Gregorian calendar.
///
/// Counts from 1 March of the year 0, so that the leap day ends the year, in cycles of 400 years
/// (146,097 days).
fn civil(days: i64) -> (i64, u32, u32) {
    const DAYS_TO_EPOCH: i64 = 719_468;
    const CYCLE: i64 = 146_097;
    let shifted = days + DAYS_TO_EPOCH;
    let (cycle, day_of_cycle) = (shifted.div_euclid(CYCLE), shifted.rem_euclid(CYCLE));
    let leap_corrected =
        day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524 - day_of_cycle / 146_096;
    let year_of_cycle = leap_corrected / 365;
    let day_of_year =
        day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    // March to July, and August to December, alternate 31 and 30 days: 153 days in five months.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = cycle * 400 + year_of_cycle + i64::from(month <= 2);
    (year, month as u32, day as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_the_calendar() {
        assert_eq!(iso_8601(0), "1970-01-01T00:00:00.000+0000");
        assert_eq!(iso_8601(951_782_400_000), "2000-02-29T00:00:00.000+0000");
        assert_eq!(iso_8601(951_868_800_000), "2000-03-01T00:00:00.000+0000");
        assert_eq!(iso_8601(1_714_566_600_123), "2024-05-01T12:30:00.123+0000");
        assert_eq!(iso_8601(4_102_444_799_999), "2099-12-31T23:59:59.999+0000");
        assert_eq!(common_log(1_714_566_600_123), "01/May/2024:12:30:00 +0000");
    }
}
