//! A cache-aware gateway: it remembers which prompts it sent where, and knows no programs.
//!
//! Source: the `cache_aware` policy of `sglang-router` 0.3.2 by its defaults, its source and what it did
//! before two idle workers. While load is uneven (more than 64 requests and 1.5 times apart): the
//! engine with the fewest requests in flight. Else, if more than 30 % of this prompt was sent before:
//! the engine that the deepest matching node first went to, however busy it is; so all new programs
//! with a long common prefix go to one engine until load is uneven. Else the engine with the fewest in
//! flight, too. Its tree holds prompts, not answers, and forgets nothing here: 64 Mi characters an
//! engine are more than a day brings.

use std::collections::HashMap;

use thunder_core::Millis;

use super::Fleet;
use crate::cluster::router::{Ask, Order, Router};
use crate::engine::Finish;

const MATCH_PERCENT: u64 = 30;
const ABSOLUTE_IMBALANCE: usize = 64;

/// See the module.
pub(in crate::cluster) struct CacheAware {
    fleet: Fleet,
    /// Engines that were sent a span, in the order of the first time.
    sent: HashMap<u64, Vec<usize>>,
    in_flight: Vec<usize>,
    flights: HashMap<u64, usize>,
    orders: Vec<Order>,
}

impl CacheAware {
    pub(in crate::cluster) fn new(workers: usize) -> Self {
        Self {
            fleet: Fleet::new(workers),
            sent: HashMap::new(),
            in_flight: vec![0; workers],
            flights: HashMap::new(),
            orders: Vec::new(),
        }
    }

    fn choose(&self, ask: &Ask<'_>) -> Option<usize> {
        let in_flight = || self.fleet.workers().map(|worker| self.in_flight[worker]);
        let (most, least) = (in_flight().max()?, in_flight().min()?);
        if most - least > ABSOLUTE_IMBALANCE && 2 * most > 3 * least {
            return self.fleet.least(&self.in_flight);
        }
        let (mut matched, mut holder) = (0, None);
        for span in ask.prompt {
            let Some(engines) = self.sent.get(&span.id) else {
                break;
            };
            matched += span.tokens;
            holder = engines.first().copied();
        }
        match holder {
            Some(worker) if matched * 100 > ask.prompt_tokens() * MATCH_PERCENT => Some(worker),
            _ => self.fleet.least(&self.in_flight),
        }
    }

    fn remember(&mut self, ask: &Ask<'_>, worker: usize) {
        for span in ask.prompt {
            let engines = self.sent.entry(span.id).or_default();
            if !engines.contains(&worker) {
                engines.push(worker);
            }
        }
        self.in_flight[worker] += 1;
        self.flights.insert(ask.request, worker);
    }

    fn ended(&mut self, request: u64) {
        if let Some(worker) = self.flights.remove(&request) {
            self.in_flight[worker] -= 1;
        }
    }
}

impl Router for CacheAware {
    fn ask(&mut self, ask: &Ask<'_>, _: Millis) {
        let Some(worker) = self.choose(ask) else {
            self.orders.push(Order::no_worker(ask.request));
            return;
        };
        self.remember(ask, worker);
        self.orders.push(Order::send(ask.request, worker));
    }

    fn finished(&mut self, request: u64, _: &Finish, _: Option<&str>, _: Millis) {
        self.ended(request);
    }

    fn failed(&mut self, request: u64, _: Millis) {
        self.ended(request);
    }

    fn released(&mut self, _: &str, _: Millis) {}

    fn worker_up(&mut self, worker: usize, _: Millis) {
        self.fleet.set(worker, true);
    }

    fn worker_down(&mut self, worker: usize, _: Millis) {
        self.fleet.set(worker, false);
        self.sent.retain(|_, engines| {
            engines.retain(|&engine| engine != worker);
            !engines.is_empty()
        });
    }

    fn orders(&mut self, _: Millis) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    fn due(&self, _: Millis) -> Option<Millis> {
        (!self.orders.is_empty()).then_some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::{ask, finish, sent};
    use super::*;

    #[test]
    fn a_long_common_prefix_draws_new_programs_to_one_engine_and_a_short_one_does_not() {
        let mut router = CacheAware::new(2);
        // 1,000 of 2,000 tokens are common, then 1,000 of 4,000.
        for (request, tokens) in [(1, 2_000), (2, 2_000), (3, 4_000), (4, 2_000)] {
            ask(&mut router, request, &request.to_string(), tokens, 0);
        }
        // The third goes where fewer are in flight; the prefix stays where it went first.
        assert_eq!(sent(&mut router, 0), [(1, 0), (2, 0), (3, 1), (4, 0)]);
    }

    #[test]
    fn uneven_load_goes_before_the_prefix() {
        let mut router = CacheAware::new(2);
        for request in 0..66 {
            ask(&mut router, request, &request.to_string(), 1_100, 0);
        }
        let places: Vec<usize> = sent(&mut router, 0)
            .iter()
            .map(|(_, place)| *place)
            .collect();
        // 65 apart is more than 64.
        assert_eq!(places, [vec![0; 65], vec![1]].concat());
        for request in 0..2 {
            finish(&mut router, request, 1_100, 10, 1);
        }
        ask(&mut router, 100, "100", 1_100, 1);
        assert_eq!(sent(&mut router, 1), [(100, 0)]);
    }

    #[test]
    fn a_lost_engine_is_forgotten() {
        let mut router = CacheAware::new(2);
        ask(&mut router, 1, "a", 2_000, 0);
        router.worker_down(0, 1);
        router.failed(1, 1);
        router.worker_up(0, 2);
        ask(&mut router, 2, "b", 2_000, 2);
        ask(&mut router, 3, "c", 2_000, 2);
        // Nothing is known of the first prompt; then its prefix is on engine 0 again.
        assert_eq!(sent(&mut router, 2), [(1, 0), (2, 0), (3, 0)]);
        router.worker_down(0, 3);
        ask(&mut router, 4, "d", 2_000, 3);
        assert_eq!(sent(&mut router, 3), [(4, 1)]);
    }
}
