//! Seeded randomness: the same seed gives the same day on every machine.

use std::f64::consts::TAU;

use crate::span::link;

/// A generator of its own stream; cheap to make, so that every program has one.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

/// A log-normal distribution, cut to a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogNormal {
    /// Its median.
    pub median: f64,
    /// Standard deviation of the logarithm.
    pub sigma: f64,
    /// Smaller draws become this.
    pub least: f64,
    /// Larger draws become this.
    pub most: f64,
}

impl LogNormal {
    /// `median` and `sigma` over a range.
    pub const fn new(median: f64, sigma: f64, least: f64, most: f64) -> Self {
        Self {
            median,
            sigma,
            least,
            most,
        }
    }
}

impl Random {
    /// The stream named by `seed` and `path`, such as a slot and an ordinal.
    pub fn new(seed: u64, path: &[u64]) -> Self {
        Self {
            state: path
                .iter()
                .fold(link(0x7468_756e_6465_7200, seed), |id, part| {
                    link(id, *part)
                }),
        }
    }

    /// 64 random bits (`SplitMix64`).
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        link(self.state, 0)
    }

    /// Uniform in `[0, 1)`.
    #[allow(clippy::cast_precision_loss)] // 53 bits fit.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in `0..most`; 0 for an empty range.
    pub fn below(&mut self, most: u64) -> u64 {
        if most == 0 { 0 } else { self.bits() % most }
    }

    /// A draw from `law`.
    pub fn log_normal(&mut self, law: LogNormal) -> f64 {
        let (radius, angle) = (self.unit(), self.unit());
        // 1 − u is never 0. Box and Muller.
        let normal = (-2.0 * (1.0 - radius).ln()).sqrt() * (TAU * angle).cos();
        (law.median.ln() + law.sigma * normal)
            .exp()
            .clamp(law.least, law.most)
    }

    /// A draw from `law`, as a whole number.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Cut to a sane range.
    pub fn tokens(&mut self, law: LogNormal) -> u64 {
        self.log_normal(law).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_their_own_and_repeat() {
        let draw = |seed, path: &[u64]| {
            let mut random = Random::new(seed, path);
            [random.bits(), random.bits(), random.bits()]
        };
        assert_eq!(draw(1, &[2, 3]), draw(1, &[2, 3]));
        assert_ne!(draw(1, &[2, 3]), draw(1, &[3, 2]));
        assert_ne!(draw(1, &[2, 3]), draw(2, &[2, 3]));
    }

    #[test]
    fn a_log_normal_has_its_median_and_keeps_its_range() {
        let law = LogNormal::new(100.0, 0.8, 10.0, 1_000.0);
        let mut random = Random::new(7, &[]);
        let mut draws: Vec<f64> = (0..20_000).map(|_| random.log_normal(law)).collect();
        draws.sort_by(f64::total_cmp);
        assert!((97.0..103.0).contains(&draws[10_000]), "{}", draws[10_000]);
        assert!(draws[0] >= 10.0 && draws[19_999] <= 1_000.0);
        // One standard deviation up is the 84th percentile: 100·e^0.8 = 223.
        assert!((212.0..234.0).contains(&draws[16_827]), "{}", draws[16_827]);
    }
}
