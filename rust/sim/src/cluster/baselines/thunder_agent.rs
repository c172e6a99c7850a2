//! What the public `ThunderAgent` does, in our words: its behaviour, faults included.
//!
//! Source: the code published beside arXiv 2602.13692, with its defaults. Every 5 s it resumes, then
//! pauses. A program counts for all its tokens and 100 more wherever it is registered, acting or
//! reasoning: there is no decay, and the prefix that programs share counts for each of them (the
//! correction for it exists and is never called). Where an engine is over its capacity, acting
//! programs are paused, shortest first, until it is not; if none is left, reasoning ones are marked,
//! and since a mark frees nothing, all of them are. A marked program pauses when its turn ends,
//! though the pressure may be over. Paused programs are resumed, those with a request first, then new
//! ones, then idle ones, the shortest first within each, as many as fit the room of all engines
//! together; the largest of them goes where there is most room. A new program starts at once only if
//! nobody waits. Who has waited for 30 minutes is let in whatever room there is. A failed request
//! leaves its program reasoning, and an engine that is gone keeps its programs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use thunder_core::{Millis, Tokens};

use super::Fleet;
use crate::cluster::router::{Ask, Order, Router};
use crate::engine::Finish;

const INTERVAL_MS: Millis = 5_000;
const FORCED_AFTER_MS: Millis = 1_800_000;
/// Tokens kept for each registered program.
const BUFFER: i64 = 100;

#[derive(Default)]
struct Program {
    name: String,
    tokens: Tokens,
    /// Tokens when it was queued: its place among the queued.
    queued_tokens: Tokens,
    turns: u64,
    acting: bool,
    marked: bool,
    /// The engine it is registered with; None while it is paused.
    worker: Option<usize>,
    /// Where it was before it was paused.
    origin: Option<usize>,
    /// The request that waits for it to be resumed, and since when.
    waiting: Option<(u64, Millis)>,
}

impl Program {
    fn needs(&self) -> i64 {
        signed(self.tokens) + BUFFER
    }

    /// Returning turns, then new programs, then idle ones.
    fn class(&self) -> u8 {
        match (self.turns, self.acting) {
            (1, _) => 1,
            (_, false) => 0,
            (_, true) => 2,
        }
    }
}

/// See the module.
pub(in crate::cluster) struct ThunderAgent {
    fleet: Fleet,
    capacities: Vec<i64>,
    /// By the order of their first request.
    programs: BTreeMap<u64, Program>,
    names: HashMap<String, u64>,
    arrived: u64,
    flights: HashMap<u64, (u64, Tokens)>,
    /// Since when programs have waited with a request, and which.
    waits: BTreeSet<(Millis, u64)>,
    next_check: Millis,
    orders: Vec<Order>,
}

impl ThunderAgent {
    pub(in crate::cluster) fn new(capacities: &[Tokens]) -> Self {
        Self {
            fleet: Fleet::new(capacities.len()),
            capacities: capacities.iter().copied().map(signed).collect(),
            programs: BTreeMap::new(),
            names: HashMap::new(),
            arrived: 0,
            flights: HashMap::new(),
            waits: BTreeSet::new(),
            next_check: INTERVAL_MS,
            orders: Vec::new(),
        }
    }

    fn room(&self, worker: usize) -> i64 {
        let registered = self.programs.values();
        let registered = registered.filter(|one| one.worker == Some(worker));
        self.capacities[worker] - registered.map(Program::needs).sum::<i64>()
    }

    /// Where a new program may start at once: nobody waits, and of the engines with room for it, the
    /// one with the fewest tokens.
    fn start(&self, needs: i64) -> Option<usize> {
        if self
            .programs
            .values()
            .any(|one| one.worker.is_none() && one.queued_tokens > 0)
        {
            return None;
        }
        let used = |worker: usize| self.capacities[worker] - self.room(worker);
        let fits = self
            .fleet
            .workers()
            .filter(|&worker| self.room(worker) >= needs);
        fits.min_by_key(|&worker| used(worker))
    }

    fn queue(&mut self, id: u64) {
        if let Some(one) = self.programs.get_mut(&id) {
            one.queued_tokens = one.tokens.max(1);
            one.origin = one.worker.take();
        }
    }

    fn resume(&mut self, id: u64, worker: usize) {
        let Some(one) = self.programs.get_mut(&id) else {
            return;
        };
        one.worker = Some(worker);
        one.origin = None;
        one.queued_tokens = 0;
        if let Some((request, since)) = one.waiting.take() {
            self.waits.remove(&(since, id));
            self.flights.insert(request, (id, one.tokens));
            self.orders.push(Order::send(request, worker));
        }
    }

    fn resume_all(&mut self) {
        let mut rooms: Vec<(i64, usize)> = self
            .fleet
            .workers()
            .map(|worker| (self.room(worker), worker))
            .filter(|(room, _)| *room > BUFFER)
            .collect();
        let mut total: i64 = rooms.iter().map(|(room, _)| room).sum();
        let paused = self.programs.iter().filter(|(_, one)| one.worker.is_none());
        let mut paused: Vec<(&u64, &Program)> = paused.collect();
        paused.sort_by_key(|(_, one)| (one.class(), one.queued_tokens));
        let mut chosen: Vec<(i64, u64)> = Vec::new();
        for (&id, one) in paused {
            if one.needs() <= total {
                total -= one.needs();
                chosen.push((one.needs(), id));
            }
        }
        chosen.sort_by_key(|(needs, _)| Reverse(*needs));
        for (needs, id) in chosen {
            let most = rooms.iter_mut().max_by_key(|(room, _)| *room);
            let Some((room, worker)) = most.filter(|(room, _)| *room >= needs) else {
                continue;
            };
            *room -= needs;
            let worker = *worker;
            self.resume(id, worker);
        }
    }

    fn relieve(&mut self, worker: usize) {
        while self.room(worker) < 0 {
            let here = |(_, one): &(&u64, &Program)| one.worker == Some(worker) && !one.marked;
            let shortest = self
                .programs
                .iter()
                .filter(here)
                .min_by_key(|(_, one)| (!one.acting, one.tokens));
            let Some((&id, one)) = shortest else {
                return;
            };
            if one.acting {
                self.pause(id, worker);
            } else if let Some(one) = self.programs.get_mut(&id) {
                one.marked = true;
            }
        }
    }

    fn pause(&mut self, id: u64, worker: usize) {
        self.queue(id);
        let program = self.programs.get(&id).map(|one| one.name.clone());
        let yields = program.map(|program| Order::Yield { program, worker });
        self.orders.extend(yields);
    }

    /// Those who have waited too long are let in: at their origin, or where the fewest programs are.
    fn force(&mut self, now: Millis) {
        while let Some(&(since, id)) = self.waits.first()
            && since + FORCED_AFTER_MS <= now
        {
            let mut counts = vec![0; self.capacities.len()];
            for worker in self.programs.values().filter_map(|one| one.worker) {
                counts[worker] += 1;
            }
            let origin = self.programs.get(&id).and_then(|one| one.origin);
            let Some(worker) = origin.or_else(|| self.fleet.least(&counts)) else {
                return;
            };
            self.resume(id, worker);
        }
    }
}

impl Router for ThunderAgent {
    fn ask(&mut self, ask: &Ask<'_>, now: Millis) {
        let id = *self.names.entry(ask.program.to_owned()).or_insert_with(|| {
            self.arrived += 1;
            self.arrived
        });
        let one = self.programs.entry(id).or_default();
        let known = one.turns > 0;
        if !known {
            ask.program.clone_into(&mut one.name);
        }
        one.turns += 1;
        one.tokens = ask.prompt_tokens();
        one.acting = false;
        let needs = one.needs();
        if let Some(worker) = one.worker {
            self.flights.insert(ask.request, (id, ask.prompt_tokens()));
            self.orders.push(Order::send(ask.request, worker));
            return;
        }
        one.waiting = Some((ask.request, now));
        self.waits.insert((now, id));
        if !known {
            match self.start(needs) {
                Some(worker) => self.resume(id, worker),
                None => self.queue(id),
            }
        }
    }

    fn listens(&self) -> bool {
        true
    }

    fn progress(&mut self, request: u64, decoded: Tokens, _: Millis) {
        if let Some((id, prompt)) = self.flights.get(&request)
            && let Some(one) = self.programs.get_mut(id)
        {
            one.tokens = prompt + decoded;
        }
    }

    fn finished(&mut self, request: u64, finish: &Finish, _: Option<&str>, _: Millis) {
        let Some((id, _)) = self.flights.remove(&request) else {
            return;
        };
        let Some(one) = self.programs.get_mut(&id) else {
            return;
        };
        one.acting = true;
        one.tokens = finish.prompt_tokens + finish.completion_tokens;
        if std::mem::take(&mut one.marked)
            && let Some(worker) = one.worker
        {
            self.pause(id, worker);
        }
    }

    fn failed(&mut self, request: u64, _: Millis) {
        self.flights.remove(&request);
    }

    fn released(&mut self, program: &str, _: Millis) {
        if let Some(id) = self.names.remove(program) {
            let waiting = self.programs.remove(&id).and_then(|one| one.waiting);
            if let Some((_, since)) = waiting {
                self.waits.remove(&(since, id));
            }
        }
    }

    fn worker_up(&mut self, worker: usize, _: Millis) {
        self.fleet.set(worker, true);
    }

    fn worker_down(&mut self, worker: usize, _: Millis) {
        self.fleet.set(worker, false);
    }

    fn orders(&mut self, now: Millis) -> Vec<Order> {
        self.force(now);
        while self.next_check <= now {
            self.next_check += INTERVAL_MS;
            self.resume_all();
            for worker in 0..self.capacities.len() {
                self.relieve(worker);
            }
        }
        std::mem::take(&mut self.orders)
    }

    fn due(&self, now: Millis) -> Option<Millis> {
        if !self.orders.is_empty() {
            return Some(0);
        }
        let forced = self.waits.first().map(|(since, _)| since + FORCED_AFTER_MS);
        let next = forced.map_or(self.next_check, |at| at.min(self.next_check));
        Some(next.saturating_sub(now))
    }
}

/// Token counts are far below 2^63.
fn signed(tokens: Tokens) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
