//! Pinning with a time to live: a program's KV stays on its engine for a while after a turn, in case
//! the tool is quick.
//!
//! Source: the idea of Continuum (arXiv 2511.02230), without its estimate of each tool's time: one
//! time to live for all. A program stays on the engine it began on. There, turns of programs whose KV
//! is pinned go first, then those that asked first; the head of the queue waits until its prompt
//! fits beside what runs and what is pinned, and nobody overtakes it. Nothing is kept free for
//! growth. Where pins alone keep the head out, the oldest pin gives way.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use thunder_core::{Millis, Tokens};

use super::Fleet;
use crate::cluster::router::{Ask, Order, Router};
use crate::engine::Finish;

struct Program {
    name: String,
    worker: usize,
    /// What it holds while it runs or is pinned.
    tokens: Tokens,
    running: bool,
    pinned_until: Option<Millis>,
    waiting: Option<(u64, Tokens)>,
}

/// See the module.
pub(in crate::cluster) struct TtlPinning {
    fleet: Fleet,
    ttl_ms: Millis,
    capacities: Vec<Tokens>,
    /// Tokens that run or are pinned, by engine.
    held: Vec<Tokens>,
    /// By the order of their first request.
    programs: BTreeMap<u64, Program>,
    names: HashMap<String, u64>,
    arrived: u64,
    counts: Vec<usize>,
    flights: HashMap<u64, (u64, Tokens)>,
    /// When pins end.
    pins: BTreeSet<(Millis, u64)>,
    orders: Vec<Order>,
}

impl TtlPinning {
    pub(in crate::cluster) fn new(capacities: &[Tokens], ttl_ms: Millis) -> Self {
        Self {
            fleet: Fleet::new(capacities.len()),
            ttl_ms,
            capacities: capacities.to_vec(),
            held: vec![0; capacities.len()],
            programs: BTreeMap::new(),
            names: HashMap::new(),
            arrived: 0,
            counts: vec![0; capacities.len()],
            flights: HashMap::new(),
            pins: BTreeSet::new(),
            orders: Vec::new(),
        }
    }

    fn id(&mut self, name: &str) -> Option<u64> {
        if let Some(&id) = self.names.get(name) {
            return Some(id);
        }
        let worker = self.fleet.least(&self.counts)?;
        self.arrived += 1;
        self.counts[worker] += 1;
        self.names.insert(name.to_owned(), self.arrived);
        let program = Program {
            name: name.to_owned(),
            worker,
            tokens: 0,
            running: false,
            pinned_until: None,
            waiting: None,
        };
        self.programs.insert(self.arrived, program);
        Some(self.arrived)
    }

    /// Gives a program's tokens back.
    fn let_go(&mut self, id: u64) {
        let Some(one) = self.programs.get_mut(&id) else {
            return;
        };
        self.held[one.worker] -= std::mem::take(&mut one.tokens);
        one.running = false;
        if let Some(until) = one.pinned_until.take() {
            self.pins.remove(&(until, id));
        }
    }

    fn unpin(&mut self, id: u64) {
        self.let_go(id);
        if let Some(one) = self.programs.get(&id) {
            self.orders.push(Order::Yield {
                program: one.name.clone(),
                worker: one.worker,
            });
        }
    }

    /// Sends from the head of an engine's queue for as long as there is room.
    fn serve(&mut self, worker: usize) {
        while let Some((id, request, prompt)) = self.head(worker) {
            let own = self.programs[&id].tokens;
            if self.held[worker] - own + prompt > self.capacities[worker] {
                let here = |one: &Program| one.worker == worker;
                if self.programs.values().any(|one| here(one) && one.running) {
                    return;
                }
                let pins = self.pins.iter();
                let mut others = pins.filter(|(_, other)| *other != id);
                if let Some(&(_, pinned)) = others.find(|(_, other)| here(&self.programs[other])) {
                    self.unpin(pinned);
                    continue;
                }
            }
            self.let_go(id);
            if let Some(one) = self.programs.get_mut(&id) {
                one.waiting = None;
                one.running = true;
                one.tokens = prompt;
                self.held[worker] += prompt;
            }
            self.flights.insert(request, (id, prompt));
            self.orders.push(Order::send(request, worker));
        }
    }

    fn head(&self, worker: usize) -> Option<(u64, u64, Tokens)> {
        let waiting = self.programs.iter().filter_map(|(&id, one)| {
            let (request, prompt) = one.waiting.filter(|_| one.worker == worker)?;
            Some((one.pinned_until.is_none(), request, id, prompt))
        });
        waiting
            .min()
            .map(|(_, request, id, prompt)| (id, request, prompt))
    }

    fn end(&mut self, request: u64) -> Option<u64> {
        let (id, _) = self.flights.remove(&request)?;
        self.let_go(id);
        Some(id)
    }
}

impl Router for TtlPinning {
    fn ask(&mut self, ask: &Ask<'_>, _: Millis) {
        let Some(id) = self.id(ask.program) else {
            self.orders.push(Order::no_worker(ask.request));
            return;
        };
        let Some(one) = self.programs.get_mut(&id) else {
            return;
        };
        one.waiting = Some((ask.request, ask.prompt_tokens()));
        let worker = one.worker;
        self.serve(worker);
    }

    fn listens(&self) -> bool {
        true
    }

    fn progress(&mut self, request: u64, decoded: Tokens, _: Millis) {
        if let Some((id, prompt)) = self.flights.get(&request)
            && let Some(one) = self.programs.get_mut(id)
        {
            let tokens = prompt + decoded;
            self.held[one.worker] = self.held[one.worker] + tokens - one.tokens;
            one.tokens = tokens;
        }
    }

    fn finished(&mut self, request: u64, finish: &Finish, _: Option<&str>, now: Millis) {
        let Some(id) = self.end(request) else { return };
        let Some(one) = self.programs.get_mut(&id) else {
            return;
        };
        let until = now + self.ttl_ms;
        one.tokens = finish.prompt_tokens + finish.completion_tokens;
        one.pinned_until = Some(until);
        let worker = one.worker;
        self.held[worker] += one.tokens;
        self.pins.insert((until, id));
        self.serve(worker);
    }

    fn failed(&mut self, request: u64, _: Millis) {
        self.end(request);
    }

    fn released(&mut self, program: &str, _: Millis) {
        let Some(id) = self.names.remove(program) else {
            return;
        };
        self.let_go(id);
        if let Some(one) = self.programs.remove(&id) {
            self.counts[one.worker] -= 1;
            self.serve(one.worker);
        }
    }

    fn worker_up(&mut self, worker: usize, _: Millis) {
        self.fleet.set(worker, true);
    }

    fn worker_down(&mut self, worker: usize, _: Millis) {
        self.fleet.set(worker, false);
        let here = self.programs.iter();
        let here: Vec<u64> = here
            .filter(|(_, one)| one.worker == worker)
            .map(|(&id, _)| id)
            .collect();
        for id in here {
            self.let_go(id);
            let waiting = self.programs.remove(&id).and_then(|one| {
                self.names.remove(&one.name);
                one.waiting
            });
            // Its next try begins elsewhere.
            self.orders
                .extend(waiting.map(|(request, _)| Order::no_worker(request)));
        }
        self.counts[worker] = 0;
    }

    fn orders(&mut self, now: Millis) -> Vec<Order> {
        while let Some(&(until, id)) = self.pins.first()
            && until <= now
        {
            let worker = self.programs[&id].worker;
            self.unpin(id);
            self.serve(worker);
        }
        std::mem::take(&mut self.orders)
    }

    fn due(&self, now: Millis) -> Option<Millis> {
        if !self.orders.is_empty() {
            return Some(0);
        }
        let next = self.pins.first();
        next.map(|(until, _)| until.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::{ask, finish, sent};
    use super::*;

    /// One engine of 1,000 tokens where `a` has just had a turn and holds 500.
    fn pinned() -> TtlPinning {
        let mut router = TtlPinning::new(&[1_000], 2_000);
        ask(&mut router, 1, "a", 400, 0);
        finish(&mut router, 1, 400, 100, 0);
        sent(&mut router, 0);
        router
    }

    #[test]
    fn a_pinned_program_goes_on_before_those_who_asked_earlier() {
        let mut router = pinned();
        ask(&mut router, 2, "b", 400, 100);
        ask(&mut router, 3, "c", 400, 200);
        // b fits beside the pin, c does not; a returns, and the engine is full.
        assert_eq!(sent(&mut router, 200), [(2, 0)]);
        ask(&mut router, 4, "a", 550, 300);
        assert_eq!(sent(&mut router, 300), [(4, 0)]);
        finish(&mut router, 2, 400, 0, 400);
        assert_eq!(sent(&mut router, 400), []);
        router.released("b", 500);
        assert_eq!(sent(&mut router, 500), [(3, 0)]);
    }

    #[test]
    fn a_pin_ends_with_its_time_and_the_next_in_line_is_served() {
        let mut router = pinned();
        ask(&mut router, 2, "b", 300, 50);
        ask(&mut router, 3, "c", 600, 100);
        assert_eq!(sent(&mut router, 100), [(2, 0)]);
        assert_eq!(router.due(100), Some(1_900));
        assert_eq!(sent(&mut router, 1_999), []);
        let yielded = Order::Yield {
            program: "a".to_owned(),
            worker: 0,
        };
        assert_eq!(router.orders(2_000), [yielded, Order::send(3, 0)]);
    }

    #[test]
    fn where_only_pins_keep_the_head_out_the_oldest_gives_way() {
        let mut router = pinned();
        ask(&mut router, 2, "b", 600, 100);
        assert_eq!(sent(&mut router, 100), [(2, 0)]);
        assert_eq!(router.held, [600]);
    }

    #[test]
    fn growth_counts_and_a_lost_engine_holds_nothing() {
        let mut router = pinned();
        ask(&mut router, 2, "b", 400, 100);
        router.progress(2, 50, 200);
        assert_eq!(router.held, [950]);
        ask(&mut router, 3, "c", 400, 300);
        sent(&mut router, 300);
        router.worker_down(0, 400);
        router.failed(2, 400);
        assert_eq!(router.held, [0]);
        assert_eq!(router.orders(400), [Order::no_worker(3)]);
    }
}
