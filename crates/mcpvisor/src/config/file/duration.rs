//! Parses durations such as `500ms`, `30s` and `1m30s`.
//!
//! A bare number is rejected: some tools mean seconds by it, others milliseconds.

use std::time::Duration;

pub use mcpvisor_core::settings::MAX_DURATION;

/// Digits after the point that are read: more than any unit has nanoseconds.
const MAX_DIGITS: usize = 16;

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidDuration {
    /// The text is empty.
    #[error("is empty; write a duration such as \"30s\"")]
    Empty,
    /// A number has no unit.
    #[error("has no unit; write \"500ms\", \"30s\", \"2m\" or \"1h\"")]
    NoUnit,
    /// A part is not a number followed by ms, s, m or h.
    #[error("is not a duration; write \"500ms\", \"30s\", \"2m\" or \"1h\"")]
    Unreadable,
    /// It is longer than [`MAX_DURATION`].
    #[error("is longer than a year")]
    TooLong,
}

/// Reads a duration with units: `ms`, `s`, `m`, `h`, several in a row, with fractions.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(mcpvisor::config::parse_duration("1m30s"), Ok(Duration::from_secs(90)));
/// assert_eq!(mcpvisor::config::parse_duration("0.5s"), Ok(Duration::from_millis(500)));
/// assert!(mcpvisor::config::parse_duration("30").is_err());
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(InvalidDuration::Empty);
    }
    // In whole nanoseconds, so that a written duration is read back exactly.
    let mut total = 0_u128;
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split(after, |c| c.is_ascii_alphabetic());
        let part = nanos(number, unit)?;
        total = total.saturating_add(part);
        rest = after.trim_start();
    }
    match u64::try_from(total).map(Duration::from_nanos) {
        Ok(duration) if duration <= MAX_DURATION => Ok(duration),
        _ => Err(InvalidDuration::TooLong),
    }
}

/// Converts a number with a unit to nanoseconds, saturating.
fn nanos(number: &str, unit: &str) -> Result<u128, InvalidDuration> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(InvalidDuration::Unreadable);
    }
    let unit = nanos_of(unit)?;
    let fraction = &fraction[..fraction.len().min(MAX_DIGITS)];
    let digits = |digits: &str| match digits {
        "" => 0,
        digits => digits.parse::<u128>().unwrap_or(u128::MAX),
    };
    let scale = fraction.bytes().fold(1, |scale: u128, _| scale * 10);
    let whole = digits(whole).saturating_mul(unit);
    Ok(whole.saturating_add(digits(fraction) * unit / scale))
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

fn nanos_of(unit: &str) -> Result<u128, InvalidDuration> {
    match unit {
        "ms" => Ok(1_000_000),
        "s" => Ok(1_000_000_000),
        "m" => Ok(60_000_000_000),
        "h" => Ok(3_600_000_000_000),
        "" => Err(InvalidDuration::NoUnit),
        _ => Err(InvalidDuration::Unreadable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_carry_their_unit() {
        let read = |text| parse_duration(text).unwrap();
        assert_eq!(read("500ms"), Duration::from_millis(500));
        assert_eq!(read("2m"), Duration::from_secs(120));
        assert_eq!(read("1h 30m"), Duration::from_secs(5_400));
        assert_eq!(read("1.5s"), Duration::from_millis(1_500));
        assert_eq!(read("0s"), Duration::ZERO);
        assert_eq!(read(".5m1.s"), Duration::from_secs(31));
        let exact = Duration::new(31_535_999, 123_456_789);
        assert_eq!(read("31535999.123456789s"), exact);
        assert_eq!(read("0.00000000000000000000009h"), Duration::ZERO);
    }

    #[test]
    fn ambiguous_durations_are_rejected() {
        assert_eq!(parse_duration(" "), Err(InvalidDuration::Empty));
        assert_eq!(parse_duration("30"), Err(InvalidDuration::NoUnit));
        assert_eq!(parse_duration("-5s"), Err(InvalidDuration::Unreadable));
        assert_eq!(parse_duration("1..5s"), Err(InvalidDuration::Unreadable));
        assert_eq!(parse_duration(".s"), Err(InvalidDuration::Unreadable));
        assert_eq!(parse_duration("3 weeks"), Err(InvalidDuration::NoUnit));
        assert_eq!(parse_duration("9w"), Err(InvalidDuration::Unreadable));
        assert_eq!(parse_duration("99999999h"), Err(InvalidDuration::TooLong));
        assert_eq!(
            parse_duration(&format!("{}s", "9".repeat(400))),
            Err(InvalidDuration::TooLong)
        );
    }
}
