//! The loop: whatever is due next happens, until the day is over.

mod outages;

use std::collections::{BTreeMap, BTreeSet};

use super::baselines::{CacheAware, Pinned, ThunderAgent, TtlPinning};
use super::report::{Report, Tally};
use super::router::{Ask, Order, Router};
use super::scheduler::Core;
use super::spec::{RouterSpec, Spec, SpecError};
use crate::engine::{Engine, EventKind, Finish, Submission};
use crate::random::Random;
use crate::span::link;
use crate::workload::{Program, Turn};

/// One place in the closed loop.
struct Slot {
    program: Program,
    name: String,
    session: u64,
    /// How many programs it has had.
    ordinal: u64,
    /// The turn it waits for, once it was asked.
    turn: Option<Turn>,
    /// The engine that served it last.
    worker: Option<usize>,
}

/// A request under way.
struct Flight {
    slot: usize,
    asked_us: u64,
    sent_us: Option<u64>,
    worker: usize,
}

/// See the module.
pub(super) struct World<'a> {
    spec: &'a Spec,
    engines: Vec<Engine>,
    router: Box<dyn Router>,
    slots: Vec<Slot>,
    flights: BTreeMap<u64, Flight>,
    requests: u64,
    /// When each slot's next turn is ready, and the slot.
    ready: BTreeSet<(u64, usize)>,
    /// When each engine has something to tell, and the engine.
    telling: BTreeSet<(u64, usize)>,
    told: Vec<Option<u64>>,
    /// When engines go (false) and come back, and which.
    fates: BTreeSet<(u64, usize, bool)>,
    up: Vec<bool>,
    now_us: u64,
    warm_us: u64,
    /// Retractions, and prefill for their sake, before the measured part.
    before: Option<(u64, u64)>,
    /// The same, of engines that are gone.
    buried: (u64, u64),
    tally: Tally,
}

/// New programs of a cold start arrive over this long, µs.
const RAMP_US: u64 = 10_000_000;
/// A program that was refused for good is replaced after this long, µs.
const REPLACE_US: u64 = 1_000_000;

impl<'a> World<'a> {
    pub(super) fn new(spec: &'a Spec) -> Result<Self, SpecError> {
        spec.validate()?;
        let engines: Result<Vec<Engine>, SpecError> = (0..spec.workers)
            .map(|worker| engine(spec, worker))
            .collect();
        let capacities: Vec<u64> = (0..spec.workers)
            .map(|worker| spec.capacity(worker))
            .collect();
        let router: Box<dyn Router> = match &spec.router {
            RouterSpec::Core(config) => Box::new(Core::new(spec, config.clone())?),
            RouterSpec::Pinned | RouterSpec::Bound => Box::new(Pinned::new(spec.workers)),
            RouterSpec::CacheAware => Box::new(CacheAware::new(spec.workers)),
            RouterSpec::ThunderAgent => Box::new(ThunderAgent::new(&capacities)),
            RouterSpec::TtlPinning { ttl_ms } => Box::new(TtlPinning::new(&capacities, *ttl_ms)),
        };
        let slots: Vec<Slot> = (0..spec.programs)
            .map(|index| {
                let mut slot = new_program(spec, index, 0);
                slot.program.begin_midway();
                slot
            })
            .collect();
        let mut ramp = Random::new(spec.seed, &[u64::MAX]);
        let ready = (0..spec.programs)
            .map(|index| (ramp.below(RAMP_US), index))
            .collect();
        let outages = spec.outages.iter().flat_map(|outage| {
            let at = |seconds: u64, up| (seconds * 1_000_000, outage.worker, up);
            [at(outage.from_s, false), at(outage.until_s, true)]
        });
        Ok(Self {
            spec,
            engines: engines?,
            router,
            slots,
            flights: BTreeMap::new(),
            requests: 0,
            ready,
            telling: BTreeSet::new(),
            told: vec![None; spec.workers],
            fates: outages.collect(),
            up: vec![true; spec.workers],
            now_us: 0,
            warm_us: spec.warmup_s * 1_000_000,
            before: None,
            buried: (0, 0),
            tally: Tally::default(),
        })
    }

    pub(super) fn play(mut self) -> Report {
        let end_us = (self.spec.warmup_s + self.spec.measured_s) * 1_000_000;
        while let Some(next) = self.next_us() {
            if next >= end_us {
                break;
            }
            self.now_us = next;
            if self.before.is_none() && next >= self.warm_us {
                self.before = Some(self.retracted());
            }
            while let Some((at, worker, up)) =
                self.fates.first().copied().filter(|(at, ..)| *at <= next)
            {
                self.fates.remove(&(at, worker, up));
                if up {
                    self.come_back(worker);
                } else {
                    self.lose(worker);
                }
            }
            while let Some((_, worker)) =
                self.telling.first().copied().filter(|(at, _)| *at <= next)
            {
                self.hear(worker);
            }
            while let Some((at, slot)) = self.ready.first().copied().filter(|(at, _)| *at <= next) {
                self.ready.remove(&(at, slot));
                self.ask(slot);
            }
            for order in self.router.orders(self.now_us / 1_000) {
                self.carry_out(order);
            }
        }
        self.close(end_us)
    }

    fn next_us(&self) -> Option<u64> {
        let engines = self.telling.first().map(|(at, _)| *at);
        let slots = self.ready.first().map(|(at, _)| *at);
        let fates = self.fates.first().map(|(at, ..)| *at);
        // A millisecond is over when its last microsecond is.
        let router = self.router.due(self.now_us / 1_000).map(|wait| match wait {
            0 => self.now_us,
            wait => (self.now_us / 1_000 + wait) * 1_000,
        });
        [engines, slots, fates, router].into_iter().flatten().min()
    }

    /// An engine tells what happened.
    fn hear(&mut self, worker: usize) {
        let events = self.engines[worker].advance(self.now_us);
        for event in events {
            match event.kind {
                EventKind::FirstToken { .. } => {
                    if let Some(flight) = self.flights.get(&event.request)
                        && event.at_us >= self.warm_us
                    {
                        self.tally.first_tokens.push(event.at_us - flight.asked_us);
                    }
                }
                EventKind::Progress { decoded } => {
                    self.router
                        .progress(event.request, decoded, self.now_us / 1_000);
                }
                EventKind::Finished(finish) => self.answered(event.request, &finish),
                EventKind::Retracted | EventKind::Displaced => {}
            }
        }
        self.wind(worker);
    }

    /// A turn is over: its tool starts, or the program ends.
    fn answered(&mut self, request: u64, finish: &Finish) {
        let Some(flight) = self.flights.remove(&request) else {
            return;
        };
        let slot = &mut self.slots[flight.slot];
        let Some(turn) = slot.turn.take() else { return };
        slot.worker = Some(flight.worker);
        self.router
            .finished(request, finish, turn.tool, self.now_us / 1_000);
        if self.now_us >= self.warm_us {
            let cached = finish.cached_device + finish.cached_host;
            let report = &mut self.tally.report;
            report.steps += 1;
            report.prompt_tokens += finish.prompt_tokens;
            report.cached_device_tokens += finish.cached_device;
            report.cached_host_tokens += finish.cached_host;
            report.reusable_tokens += turn.reusable_tokens;
            report.recomputed_tokens += turn.reusable_tokens.saturating_sub(cached);
            report.generated_tokens += finish.completion_tokens;
            self.tally.turns.push(self.now_us - flight.asked_us);
        }
        if turn.tool.is_some() {
            self.ready.insert((self.now_us + turn.tool_us, flight.slot));
        } else {
            self.replace(flight.slot, self.now_us);
        }
    }

    /// The slot's program is over; the next one is ready at `at_us`.
    fn replace(&mut self, index: usize, at_us: u64) {
        let slot = &self.slots[index];
        if self.spec.releases {
            self.router.released(&slot.name, self.now_us / 1_000);
            if self.spec.keeps_sessions()
                && let Some(worker) = slot.worker
            {
                self.engines[worker].close_session(slot.session, self.now_us);
            }
        }
        if self.now_us >= self.warm_us {
            self.tally.report.programs += 1;
        }
        self.slots[index] = new_program(self.spec, index, slot.ordinal + 1);
        self.ready.insert((at_us, index));
    }

    /// A slot's next turn asks the router.
    fn ask(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if slot.turn.is_none() {
            slot.turn = slot.program.turn();
        }
        let Some(turn) = &slot.turn else { return };
        self.requests += 1;
        let flight = Flight {
            slot: index,
            asked_us: self.now_us,
            sent_us: None,
            worker: usize::MAX,
        };
        self.flights.insert(self.requests, flight);
        let ask = Ask {
            request: self.requests,
            program: &slot.name,
            prompt: &turn.prompt,
            prefix: self.spec.source.prefix(),
        };
        self.router.ask(&ask, self.now_us / 1_000);
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Send { request, worker } => self.send(request, worker),
            Order::Refuse {
                request,
                retry_after,
            } => {
                self.tally.report.refused += u64::from(self.now_us >= self.warm_us);
                let Some(flight) = self.flights.remove(&request) else {
                    return;
                };
                match retry_after {
                    Some(wait) => {
                        self.ready.insert((self.now_us + wait * 1_000, flight.slot));
                    }
                    None => self.replace(flight.slot, self.now_us + REPLACE_US),
                }
            }
            Order::Yield { program, worker } => {
                self.tally.report.pauses += u64::from(self.now_us >= self.warm_us);
                if self.spec.keeps_sessions()
                    && let Some(slot) = self.slots.iter().find(|slot| slot.name == program)
                {
                    self.engines[worker].close_session(slot.session, self.now_us);
                    self.wind(worker);
                }
            }
        }
    }

    fn send(&mut self, request: u64, worker: usize) {
        let Some(flight) = self.flights.get_mut(&request) else {
            return;
        };
        let slot = &self.slots[flight.slot];
        let Some(turn) = &slot.turn else { return };
        if !self.up[worker] {
            self.fail(request);
            return;
        }
        flight.worker = worker;
        flight.sent_us = Some(self.now_us);
        if self.now_us >= self.warm_us {
            self.tally.holds.push(self.now_us - flight.asked_us);
        }
        let spec = Submission {
            request,
            prompt: turn.prompt.clone(),
            conversation: turn.conversation.clone(),
            output_tokens: turn.output_tokens,
            max_tokens: self.spec.max_tokens.max(turn.output_tokens),
            priority: 0,
            session: self.spec.keeps_sessions().then_some(slot.session),
            progress: self.router.listens(),
        };
        let refused = self.engines[worker].submit(spec, self.now_us).is_err();
        self.wind(worker);
        if refused {
            // Only a prompt longer than the pool: the router's budget is the pool's, so a baseline.
            self.router.failed(request, self.now_us / 1_000);
            self.carry_out(Order::Refuse {
                request,
                retry_after: None,
            });
        }
    }

    /// Notes when the engine has something to tell.
    fn wind(&mut self, worker: usize) {
        if let Some(at) = self.told[worker].take() {
            self.telling.remove(&(at, worker));
        }
        self.told[worker] = self.engines[worker].next_event_us();
        if let Some(at) = self.told[worker] {
            self.telling.insert((at, worker));
        }
    }

    /// Retractions so far, and tokens computed again for them, over all engines.
    fn retracted(&self) -> (u64, u64) {
        let counts = self.engines.iter().map(Engine::counts);
        counts.fold(self.buried, |(times, tokens), one| {
            (times + one.retractions, tokens + one.recomputed)
        })
    }

    fn close(mut self, end_us: u64) -> Report {
        let held = self
            .flights
            .values()
            .filter(|flight| flight.sent_us.is_none());
        self.tally
            .holds
            .extend(held.map(|flight| end_us - flight.asked_us));
        let (times, tokens) = self.retracted();
        let (times_before, tokens_before) = self.before.unwrap_or_default();
        self.tally.report.retractions = times - times_before;
        self.tally.report.recomputed_tokens += tokens - tokens_before;
        self.tally.close(self.spec)
    }
}

fn engine(spec: &Spec, worker: usize) -> Result<Engine, SpecError> {
    Engine::new(spec.engine(worker)).map_err(|error| SpecError(error.to_string()))
}

fn new_program(spec: &Spec, index: usize, ordinal: u64) -> Slot {
    let path = [index as u64, ordinal];
    Slot {
        program: spec.source.program(spec.seed, &path, spec.tool_scale),
        name: format!("{index}.{ordinal}"),
        session: link(link(spec.seed, path[0]), path[1]),
        ordinal,
        turn: None,
        worker: None,
    }
}
