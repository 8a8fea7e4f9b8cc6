//! Durations as people write them: `500ms`, `30s`, `1m30s`.
//!
//! A bare number has no unit and is refused: some tools mean seconds by it, some milliseconds.

use std::time::Duration;

/// The longest duration that is accepted: a year is longer than anything that is waited for, and
/// adding it to a clock never overflows.
pub const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidDuration {
    /// There is nothing.
    #[error("is empty; write a duration such as \"30s\"")]
    Empty,
    /// There is a number without a unit.
    #[error("has no unit; write \"500ms\", \"30s\", \"2m\" or \"1h\"")]
    NoUnit,
    /// Something is not a number followed by ms, s, m or h.
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
    let mut total = 0.0;
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split(after, |c| c.is_ascii_alphabetic());
        let number: f64 = number.parse().map_err(|_| InvalidDuration::Unreadable)?;
        total += number * seconds(unit)?;
        rest = after.trim_start();
    }
    if total > MAX_DURATION.as_secs_f64() {
        return Err(InvalidDuration::TooLong);
    }
    Ok(Duration::from_secs_f64(total))
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

fn seconds(unit: &str) -> Result<f64, InvalidDuration> {
    match unit {
        "ms" => Ok(0.001),
        "s" => Ok(1.0),
        "m" => Ok(60.0),
        "h" => Ok(3_600.0),
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
    }

    #[test]
    fn what_could_be_misread_is_refused() {
        assert_eq!(parse_duration(" "), Err(InvalidDuration::Empty));
        assert_eq!(parse_duration("30"), Err(InvalidDuration::NoUnit));
        assert_eq!(parse_duration("-5s"), Err(InvalidDuration::Unreadable));
        assert_eq!(parse_duration("1..5s"), Err(InvalidDuration::Unreadable));
        assert_eq!(parse_duration("3 weeks"), Err(InvalidDuration::NoUnit));
        assert_eq!(parse_duration("9w"), Err(InvalidDuration::Unreadable));
        assert_eq!(parse_duration("99999999h"), Err(InvalidDuration::TooLong));
        assert_eq!(
            parse_duration(&format!("{}s", "9".repeat(400))),
            Err(InvalidDuration::TooLong)
        );
    }
}
