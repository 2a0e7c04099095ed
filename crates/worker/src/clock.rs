//! Moments, and the forms of Unix time as text.

use jiff::Timestamp;
pub(crate) use uncia_clock::{Moment, monotonic_ns, unix_ns};

/// A Unix time as Lambda writes LastModified: `2024-05-01T12:30:00.123+0000`.
pub(crate) fn iso_8601(unix_ms: i64) -> String {
    format(unix_ms, "%Y-%m-%dT%H:%M:%S.%3f+0000")
}

/// A Unix time as Lambda's events write it: `2024-05-01T12:30:00.123Z`.
pub(crate) fn rfc_3339(unix_ms: i64) -> String {
    format(unix_ms, "%Y-%m-%dT%H:%M:%S.%3fZ")
}

/// A Unix time as an HTTP access log writes it, which is the form of `requestContext.time`:
/// `01/May/2024:12:30:00 +0000`.
pub(crate) fn common_log(unix_ms: i64) -> String {
    format(unix_ms, "%d/%b/%Y:%H:%M:%S +0000")
}

/// A Unix time as signatures name it: `20240501T123000Z`.
pub(crate) fn basic_iso_8601(unix_ms: i64) -> String {
    format(unix_ms, "%Y%m%dT%H%M%SZ")
}

/// A Unix time as AWS's JSON protocols write it: seconds, to the millisecond.
pub(crate) fn epoch_seconds(unix_ns: i128) -> f64 {
    (unix_ns.div_euclid(1_000_000)) as f64 / 1_000.0
}

fn format(unix_ms: i64, form: &str) -> String {
    // Within the years that the calendar has, -9999 to 9999.
    let time = Timestamp::from_millisecond(unix_ms).unwrap_or_default();
    time.strftime(form).to_string()
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
        assert_eq!(basic_iso_8601(1_714_566_600_123), "20240501T123000Z");
        assert_eq!(common_log(1_714_566_600_123), "01/May/2024:12:30:00 +0000");
    }
}
