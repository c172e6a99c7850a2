//! A cache-aware gateway: it remembers which prompts it sent where, and knows no programs.
//!
//! Source: the `cache_aware` policy of `sglang-router` by its documented defaults: while load is
//! uneven (64 requests and 1.5 times apart) the engine with the fewest requests in flight; else the
//! engine that got the longest prefix of this prompt before, if that is more than 30 % of it; else
//! the one that was sent least. Its tree forgets nothing here: a day is shorter than its memory.

use std::collections::HashMap;

use thunder_core::{Millis, Tokens};

use super::router::{Ask, Order, Router};
use crate::engine::Finish;

const MATCH_PERCENT: u64 = 30;
const ABSOLUTE_IMBALANCE: usize = 64;

/// See the module.
pub(super) struct CacheAware {
    /// Engines that were sent a span, in the order of the first time.
    sent: HashMap<u64, Vec<usize>>,
    sent_tokens: Vec<u64>,
    in_flight: Vec<usize>,
    flights: HashMap<u64, usize>,
    orders: Vec<Order>,
}

impl CacheAware {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            sent: HashMap::new(),
            sent_tokens: vec![0; workers],
            in_flight: vec![0; workers],
            flights: HashMap::new(),
            orders: Vec::new(),
        }
    }

    fn choose(&self, ask: &Ask<'_>) -> usize {
        let most = self.in_flight.iter().max().copied().unwrap_or(0);
        let least = self.in_flight.iter().min().copied().unwrap_or(0);
        if most - least > ABSOLUTE_IMBALANCE && 2 * most > 3 * least {
            return lowest(&self.in_flight);
        }
        let (mut matched, mut holder) = (0, None);
        for span in ask.prompt {
            let Some(engines) = self.sent.get(&span.id) else {
                break;
            };
            matched += span.tokens;
            holder = engines.first().copied();
        }
        let prompt: u64 = ask.prompt.iter().map(|span| span.tokens).sum();
        match holder {
            Some(worker) if matched * 100 > prompt * MATCH_PERCENT => worker,
            _ => lowest(&self.sent_tokens),
        }
    }
}

fn lowest<T: Ord + Copy>(values: &[T]) -> usize {
    let least = values.iter().enumerate().min_by_key(|(_, value)| **value);
    least.map_or(0, |(index, _)| index)
}

impl Router for CacheAware {
    fn ask(&mut self, ask: &Ask<'_>, _: Millis) {
        let worker = self.choose(ask);
        for span in ask.prompt {
            let engines = self.sent.entry(span.id).or_default();
            if !engines.contains(&worker) {
                engines.push(worker);
                self.sent_tokens[worker] += span.tokens;
            }
        }
        self.in_flight[worker] += 1;
        self.flights.insert(ask.request, worker);
        self.orders.push(Order::Send {
            request: ask.request,
            worker,
        });
    }

    fn progress(&mut self, _: u64, _: Tokens, _: Millis) {}

    fn finished(&mut self, request: u64, _: &Finish, _: Option<&str>, _: Millis) {
        if let Some(worker) = self.flights.remove(&request) {
            self.in_flight[worker] -= 1;
        }
    }

    fn released(&mut self, _: &str, _: Millis) {}

    fn orders(&mut self, _: Millis) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    fn due(&self, _: Millis) -> Option<Millis> {
        (!self.orders.is_empty()).then_some(0)
    }
}
