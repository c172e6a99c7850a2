//! What a seat has room for, and whom to pause where it has none.

use thunder_core::Tokens;

use super::Naive;

impl Naive {
    pub(super) fn acting(&self, seat: usize) -> Vec<usize> {
        let on = self.on(seat).into_iter();
        on.filter(|p| self.is_silent(*p) && self.is(*p).steps_here > 0)
            .collect()
    }

    pub(super) fn cost(tokens: Tokens) -> f64 {
        let tokens = tokens as f64;
        500.0 * tokens / 1e3 + 100.0 * tokens * tokens / 2.0 / 1e6
    }

    /// The smallest until it is enough, without the redundant; or one alone if that is cheaper.
    pub(super) fn cheapest(&self, mut among: Vec<usize>, amount: Tokens) -> Vec<usize> {
        let size = |p: &usize| self.occupies(*p, 0);
        among.sort_by_key(|p| (size(p), *p));
        let mut picks: Vec<usize> = Vec::new();
        for program in &among {
            if picks.iter().map(size).sum::<Tokens>() >= amount {
                break;
            }
            picks.push(*program);
        }
        for at in (0..picks.len()).rev() {
            let rest: Tokens = picks.iter().map(size).sum::<Tokens>() - size(&picks[at]);
            if rest >= amount {
                picks.remove(at);
            }
        }
        let total: f64 = picks.iter().map(|p| Self::cost(size(p))).sum();
        let alone = among.iter().find(|p| size(p) >= amount);
        match alone {
            Some(alone) if Self::cost(size(alone)) < total => vec![*alone],
            _ => picks,
        }
    }

    pub(super) fn over(&self, seat: usize) -> Tokens {
        if self.on(seat).len() < 2 {
            return 0;
        }
        let limit = self.workers[seat].capacity as f64 * self.config.mark_running_above;
        self.charged(seat).saturating_sub(limit.floor() as Tokens)
    }

    pub(super) fn relieve(&mut self, seat: usize) {
        for victim in self.cheapest(self.acting(seat), self.over(seat)) {
            self.pause(victim);
        }
        let on = self.on(seat);
        let running = on.iter().copied().filter(|p| !self.is_silent(*p)).collect();
        let wanted = self.cheapest(running, self.over(seat));
        for program in on {
            self.of(program).marked = wanted.contains(&program) && !self.is_silent(program);
        }
    }

    pub(super) fn margin(&self, seat: usize, returning: bool) -> Tokens {
        let config = &self.config;
        let steps = if returning {
            config.growth_steps_paused
        } else {
            config.growth_steps_new
        };
        let capacity = self.workers[seat].capacity as f64;
        let growth = steps * self.workers[seat].growth.unwrap_or(0.0) * self.on(seat).len() as f64;
        let fraction = (growth / capacity).clamp(config.margin_min, config.margin_max);
        (fraction.min(config.aimd_cap) * capacity).ceil() as Tokens
    }

    pub(super) fn room(&self, seat: usize, returning: bool) -> Tokens {
        let free = self.workers[seat]
            .capacity
            .saturating_sub(self.charged(seat));
        if self.charged(seat) == 0 {
            free
        } else {
            free.saturating_sub(self.margin(seat, returning))
        }
    }
}
