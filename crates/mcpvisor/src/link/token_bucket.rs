//! How much may come in how short a time.

use std::time::{Duration, Instant};

/// So many may come at once.
pub(crate) const BURST: u32 = 2_000;

/// One more may come each so often: 1,000 in a second.
pub(crate) const EACH: Duration = Duration::from_millis(1);

/// A bucket of places, which fills up again in the course of time.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// When all places will be free again; never taken from means that they are.
    full_at: Option<Instant>,
}

impl Bucket {
    /// How many places are free.
    pub(crate) fn free(&self, now: Instant) -> u32 {
        let taken = self.taken(now).as_nanos().div_ceil(EACH.as_nanos());
        BURST.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX))
    }

    /// Takes so many places.
    pub(crate) fn take(&mut self, now: Instant, places: u32) {
        self.full_at = Some(now + self.taken(now) + EACH * places);
    }

    /// How long it would take until all places are free.
    fn taken(&self, now: Instant) -> Duration {
        self.full_at.map_or(Duration::ZERO, |full_at| {
            full_at.saturating_duration_since(now)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes one place after the other, until there is none.
    fn exhaust(bucket: &mut Bucket, now: Instant) -> u32 {
        let mut taken = 0;
        while bucket.free(now) > 0 {
            bucket.take(now, 1);
            taken += 1;
        }
        taken
    }

    #[test]
    fn a_burst_is_let_through_and_then_a_steady_stream() {
        let start = Instant::now();
        let mut bucket = Bucket::default();
        assert_eq!(exhaust(&mut bucket, start), BURST);
        assert_eq!(exhaust(&mut bucket, start + EACH / 2), 0);
        assert_eq!(exhaust(&mut bucket, start + EACH), 1);
        assert_eq!(exhaust(&mut bucket, start + Duration::from_secs(1)), 999);
    }

    #[test]
    fn rest_gives_back_a_burst_and_no_more() {
        let start = Instant::now();
        let mut bucket = Bucket::default();
        exhaust(&mut bucket, start);
        let later = start + Duration::from_secs(3_600);
        assert_eq!(exhaust(&mut bucket, later), BURST);
    }

    #[test]
    fn something_large_takes_many_places() {
        let now = Instant::now();
        let mut bucket = Bucket::default();
        assert_eq!(bucket.free(now), BURST);
        bucket.take(now, BURST - 1);
        assert_eq!(bucket.free(now), 1);
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_gives_nothing() {
        let now = Instant::now() + EACH;
        let mut bucket = Bucket::default();
        exhaust(&mut bucket, now);
        assert_eq!(exhaust(&mut bucket, now - EACH), 0);
    }
}
