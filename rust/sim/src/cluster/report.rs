//! What came of a day.

use super::spec::Spec;

/// Figures of the measured part of a day. Times are milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Turns answered.
    pub steps: u64,
    /// Programs that ended.
    pub programs: u64,
    /// Turns answered per minute.
    pub steps_per_min: f64,
    /// Programs that ended per hour.
    pub programs_per_hour: f64,
    /// Prompt tokens of the turns answered.
    pub prompt_tokens: u64,
    /// Of those, found on a device.
    pub cached_device_tokens: u64,
    /// Of those, brought back from a host.
    pub cached_host_tokens: u64,
    /// Of the prompt tokens, what a perfect cache would have found.
    pub reusable_tokens: u64,
    /// Computed though it had been computed before: the reusable that was not found, and what
    /// retractions cost.
    pub recomputed_tokens: u64,
    /// Tokens generated in those turns.
    pub generated_tokens: u64,
    /// Requests that lost their KV while they ran.
    pub retractions: u64,
    /// Requests refused, to be tried again or for good.
    pub refused: u64,
    /// Requests that ended without an answer since their engine was gone; their turns asked again.
    pub failed: u64,
    /// Programs paused.
    pub pauses: u64,
    /// How long the router held requests.
    pub hold_p50_ms: u64,
    /// The same, 99th percentile.
    pub hold_p99_ms: u64,
    /// The same, longest; those still held at the end of the day count.
    pub hold_max_ms: u64,
    /// From asking to the first token: the router's hold and the engine's queue and prefill.
    pub first_token_p50_ms: u64,
    /// The same, 99th percentile.
    pub first_token_p99_ms: u64,
    /// From asking to the end of the answer.
    pub turn_p50_ms: u64,
    /// The same, 90th percentile.
    pub turn_p90_ms: u64,
    /// The same, 99th percentile.
    pub turn_p99_ms: u64,
}

impl Report {
    /// Share of prompt tokens that some cache had.
    pub fn hit_rate(&self) -> f64 {
        share(
            self.cached_device_tokens + self.cached_host_tokens,
            self.prompt_tokens,
        )
    }

    /// Share that a perfect cache would have had.
    pub fn ideal_hit_rate(&self) -> f64 {
        share(self.reusable_tokens, self.prompt_tokens)
    }
}

#[allow(clippy::cast_precision_loss)] // A share of tokens needs no more.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// What is gathered on the way, in microseconds.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) report: Report,
    pub(super) holds: Vec<u64>,
    pub(super) first_tokens: Vec<u64>,
    pub(super) turns: Vec<u64>,
}

impl Tally {
    #[allow(clippy::cast_precision_loss)] // Counts are far below 2^52.
    pub(super) fn close(mut self, spec: &Spec) -> Report {
        let mut report = self.report;
        let seconds = spec.measured_s as f64;
        report.steps_per_min = report.steps as f64 * 60.0 / seconds;
        report.programs_per_hour = report.programs as f64 * 3_600.0 / seconds;
        [report.hold_p50_ms, report.hold_p99_ms, report.hold_max_ms] =
            percentiles(&mut self.holds, [50, 99, 100]);
        [report.first_token_p50_ms, report.first_token_p99_ms] =
            percentiles(&mut self.first_tokens, [50, 99]);
        [report.turn_p50_ms, report.turn_p90_ms, report.turn_p99_ms] =
            percentiles(&mut self.turns, [50, 90, 99]);
        report
    }
}

/// Nearest-rank percentiles of microseconds, in milliseconds; zeros where there are none.
fn percentiles<const N: usize>(values: &mut [u64], wanted: [usize; N]) -> [u64; N] {
    values.sort_unstable();
    wanted.map(|percent| {
        let rank = (values.len() * percent).div_ceil(100).max(1);
        values.get(rank - 1).map_or(0, |us| us / 1_000)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let mut values: Vec<u64> = (1..=200).rev().map(|ms| ms * 1_000).collect();
        assert_eq!(percentiles(&mut values, [50, 99, 100]), [100, 198, 200]);
        assert_eq!(percentiles(&mut [7_000], [50, 99]), [7, 7]);
        assert_eq!(percentiles(&mut [], [50]), [0]);
    }
}
