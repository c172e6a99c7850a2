//! The face of the core: one method per event, and `tick` for the decisions.
//!
//! An event writes down what happened and marks what it touched; it decides nothing. A tick rings
//! the alarms that are due, lets the policy act on what was marked, and hands out the decisions.

use std::mem;

use crate::book::Book;
use crate::config::SchedulerConfig;
use crate::deadlines::Alarm;
use crate::decision::{Decision, Rejection};
use crate::error::Error;
use crate::event::{Arrival, Memory, SeatFacts, Usage};
use crate::ids::{Millis, RequestId, Seat, Tokens, WorkerId};
use crate::learn::MOST_TOKENS;
use crate::policy;
use crate::reason::Reason;
use crate::request::Request;
use crate::transitions::{
    RequestEvent, RequestState, RequestStep, WorkerState, request_step, worker_step,
};
use crate::worker::Worker;

/// Programs, workers and the global waiting queue: events in, decisions out.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) book: Book,
}

impl Scheduler {
    /// A scheduler that knows nothing yet.
    pub fn new(config: SchedulerConfig) -> Result<Self, Error> {
        config.validate()?;
        Ok(Self {
            book: Book::new(config),
        })
    }

    // === Workers ===

    /// The seat serves, with this engine; also a change of its capacity.
    pub fn worker_up(&mut self, seat: Seat, facts: SeatFacts, now: Millis) -> Result<(), Error> {
        facts.validate()?;
        let book = &mut self.book;
        book.clock(now);
        let half_life = book.config.paper_half_life_ms;
        let known = book.workers.entry(seat);
        let worker = known.or_insert_with(|| Worker::new(seat, facts, half_life));
        worker.state = worker_step(seat.worker, worker.state, WorkerState::Ready)?;
        worker.facts = facts;
        book.survey();
        book.touch(seat);
        Ok(())
    }

    /// Every rank takes no new work for now; its programs keep their seats.
    pub fn worker_unready(&mut self, worker: WorkerId, now: Millis) -> Result<(), Error> {
        self.change_worker(worker, WorkerState::Unready, now)
    }

    /// Programs leave as they turn; nothing new comes.
    pub fn worker_draining(&mut self, worker: WorkerId, now: Millis) -> Result<(), Error> {
        self.change_worker(worker, WorkerState::Draining, now)
    }

    /// Gone: its programs are queued or placed elsewhere with their sizes, no KV anywhere.
    ///
    /// Requests in flight there stay until the caller ends or bounces them.
    pub fn worker_down(&mut self, worker: WorkerId, now: Millis) -> Result<(), Error> {
        self.change_worker(worker, WorkerState::Down, now)
    }

    fn change_worker(
        &mut self,
        worker: WorkerId,
        to: WorkerState,
        now: Millis,
    ) -> Result<(), Error> {
        let book = &mut self.book;
        let seats = book.seats_of(worker)?;
        for seat in &seats {
            worker_step(worker, book.workers[seat].state, to)?;
        }
        book.clock(now);
        for seat in seats {
            let Some(rank) = book.workers.get_mut(&seat) else {
                continue;
            };
            let from = rank.state;
            rank.state = worker_step(worker, from, to)?;
            if rank.state == WorkerState::Down && from != WorkerState::Down {
                rank.epoch += 1;
                book.abandon(seat);
            }
            book.touch(seat);
        }
        book.survey();
        Ok(())
    }

    /// The engine dropped its KV cache.
    pub fn kv_flushed(&mut self, worker: WorkerId, now: Millis) -> Result<(), Error> {
        let seats = self.book.seats_of(worker)?;
        self.book.clock(now);
        for seat in seats {
            self.book.flush(seat);
        }
        Ok(())
    }

    /// Admit nothing until `weight_sync_end`, or until the watchdog's time is over.
    pub fn weight_sync_begin(&mut self, now: Millis) {
        let book = &mut self.book;
        let now = book.clock(now);
        if let Some(until) = book.sync_until {
            book.deadlines.clear(until, Alarm::WeightSync);
        }
        let until = now + book.config.weight_sync_timeout_ms;
        book.sync_until = Some(until);
        book.deadlines.set(until, Alarm::WeightSync);
    }

    /// Proceed; KV residency is zero everywhere. Without a sync under way it is a mere flush.
    pub fn weight_sync_end(&mut self, now: Millis) {
        self.book.clock(now);
        self.book.end_sync();
    }

    // === Requests ===

    /// A request came.
    pub fn arrive(
        &mut self,
        request: RequestId,
        arrival: Arrival<'_>,
        now: Millis,
    ) -> Result<(), Error> {
        let book = &mut self.book;
        if book.requests.contains_key(&request) {
            return Err(Error::DuplicateRequest(request));
        }
        let now = book.clock(now);
        let known = arrival
            .program
            .and_then(|name| book.names.get(name).copied());
        let key = known.unwrap_or_else(|| book.enrol(arrival.program));
        if book[key].is_silent() && book[key].steps > 0 {
            let (tool, duration) = (book[key].tool, now.saturating_sub(book[key].seen));
            book.tools.took(tool, duration);
        }
        book.account_to(key, arrival.tenant);
        let turn = book.places;
        book.places += 1;
        let program = &mut book[key];
        if let Some(group) = arrival.group
            && program.group.as_deref() != Some(group)
        {
            program.group = Some(group.into());
        }
        program.prefix = program.prefix.or(arrival.prefix);
        program.seen = now;
        program.lapsed = false;
        program.waiting.insert(turn, request);
        book.requests.insert(
            request,
            Request {
                program: key,
                state: RequestState::Arrived,
                place: turn,
                arrived: now,
                since: now,
                prompt: arrival.prompt_tokens.min(MOST_TOKENS),
                decoded: 0,
                prefix: arrival.prefix,
                refused_by: Vec::new(),
                kept: None,
            },
        );
        book.counts.waiting += 1;
        book.inbox.push(request);
        book.recharge(key);
        Ok(())
    }

    /// Its worker refused it before it started: back to its place, and not that worker again.
    pub fn bounced(&mut self, request: RequestId, now: Millis) -> Result<(), Error> {
        let book = &mut self.book;
        let entry = book.request(request)?;
        request_step(request, entry.state, RequestEvent::Bounced)?;
        let now = book.clock(now);
        book.take_back(request, now);
        Ok(())
    }

    /// `decoded` tokens so far, in total.
    pub fn progress(
        &mut self,
        request: RequestId,
        decoded: Tokens,
        now: Millis,
    ) -> Result<(), Error> {
        let book = &mut self.book;
        let entry = book.request(request)?;
        request_step(request, entry.state, RequestEvent::Progress)?;
        book.clock(now);
        let Some(entry) = book.requests.get_mut(&request) else {
            return Ok(());
        };
        let gained = decoded.min(MOST_TOKENS).saturating_sub(entry.decoded);
        entry.decoded += gained;
        let (key, flies) = (entry.program, entry.flies_at().is_some());
        if flies && gained > 0 {
            book[key].footprint += gained;
            book.recharge(key);
        }
        Ok(())
    }

    /// Answered whole. Where the usage does not say, the estimate stands.
    pub fn finished(
        &mut self,
        request: RequestId,
        usage: Usage<'_>,
        now: Millis,
    ) -> Result<(), Error> {
        let book = &mut self.book;
        let entry = book.request(request)?;
        let step = request_step(request, entry.state, RequestEvent::Finished)?;
        debug_assert_eq!(step, RequestStep::Ends, "an answer ends a request");
        let now = book.clock(now);
        book.learn(request, usage, now);
        book.forget_request(request);
        Ok(())
    }

    /// Ended by an error at any stage: the program keeps its size.
    pub fn failed(&mut self, request: RequestId, now: Millis) -> Result<(), Error> {
        self.end_without_answer(request, RequestEvent::Failed, now)
    }

    /// The client left, held or in flight. A held one leaves no trace.
    pub fn cancelled(&mut self, request: RequestId, now: Millis) -> Result<(), Error> {
        self.end_without_answer(request, RequestEvent::Cancelled, now)
    }

    fn end_without_answer(
        &mut self,
        request: RequestId,
        event: RequestEvent,
        now: Millis,
    ) -> Result<(), Error> {
        let book = &mut self.book;
        let entry = book.request(request)?;
        request_step(request, entry.state, event)?;
        book.clock(now);
        book.keep_size(request);
        book.forget_request(request);
        Ok(())
    }

    // === Programs ===

    /// The program ended. True if it was known. Requests under way still end on their own.
    pub fn release(&mut self, program: &str, now: Millis) -> bool {
        let book = &mut self.book;
        book.clock(now);
        let Ok(key) = book.named(program) else {
            return false;
        };
        book.release(key);
        true
    }

    /// An operator's pause: held until `restore`, whatever room there is.
    pub fn pause(&mut self, program: &str, now: Millis) -> Result<(), Error> {
        let book = &mut self.book;
        let key = book.named(program)?;
        book.clock(now);
        book[key].operator = true;
        book.step_out(key);
        if book[key].flying.is_empty() {
            book.pause(key, Reason::Operator);
        }
        Ok(())
    }

    /// Ends an operator's pause.
    pub fn restore(&mut self, program: &str, now: Millis) -> Result<(), Error> {
        let book = &mut self.book;
        let key = book.named(program)?;
        book.clock(now);
        if mem::take(&mut book[key].operator) {
            let waiting: Vec<RequestId> = book[key].waiting.values().copied().collect();
            book.inbox.extend(waiting);
            book.turned.push(key);
        }
        Ok(())
    }

    /// Takes a program over from an earlier run: acting, nothing in flight.
    pub fn remember(
        &mut self,
        program: &str,
        memory: Memory<'_>,
        now: Millis,
    ) -> Result<(), Error> {
        let book = &mut self.book;
        if let Ok(key) = book.named(program) {
            return Err(Error::BadTransition {
                what: format!("program {program:?}"),
                state: book[key].status.as_str(),
                event: "a memory of an earlier run",
            });
        }
        let now = book.clock(now);
        let seat = memory.seat.map(|(worker, rank)| Seat { worker, rank });
        book.recall(program, memory, seat, now);
        Ok(())
    }

    // === Deciding ===

    /// All decisions due now, in the order in which to carry them out.
    pub fn tick(&mut self, now: Millis) -> Vec<Decision> {
        let book = &mut self.book;
        let now = book.clock(now);
        while let Some(alarm) = book.deadlines.ring(now) {
            match alarm {
                Alarm::WeightSync => book.end_sync(),
                Alarm::Deserted => deserted(book),
                Alarm::HoldLimit(request) => hold_limit(book, request, now),
                Alarm::Forgive(request) => book.forgive(request),
                Alarm::Program(key) => {
                    book[key].alarm = None;
                    policy::look(book, key, now);
                }
            }
        }
        policy::decide(book, now);
        mem::take(&mut book.out)
    }

    /// Milliseconds until `tick` must be called again without any event; None: no need.
    pub fn next_tick_ms(&self, now: Millis) -> Option<Millis> {
        let book = &self.book;
        let now = now.max(book.now);
        if !(book.inbox.is_empty() && book.turned.is_empty() && book.out.is_empty()) {
            return Some(0);
        }
        let alarm = book.deadlines.first();
        let at = [alarm, policy::acts_at(book)].into_iter().flatten().min()?;
        Some(at.saturating_sub(now))
    }
}

/// Nobody came back: whoever waits is told so, and so is whoever comes until a worker is up. While
/// weights are exchanged workers may restart, so waiting begins anew.
fn deserted(book: &mut Book) {
    if book.sync_until.is_some() {
        book.deserted_at = None;
        book.desert();
        return;
    }
    let held = book.requests.iter();
    let held = held.filter(|(_, entry)| entry.state == RequestState::Held);
    let mut held: Vec<RequestId> = held.map(|(request, _)| *request).collect();
    held.sort_unstable();
    for request in held {
        book.reject(request, Rejection::NoWorker, Reason::Deserted);
    }
}

fn hold_limit(book: &mut Book, request: RequestId, now: Millis) {
    let Some(entry) = book.requests.get(&request) else {
        return;
    };
    if entry.state != RequestState::Held {
        return;
    }
    let reason = Reason::HoldLimit {
        held: now.saturating_sub(entry.since),
        limit: book.config.hold_limit_ms,
    };
    let kind = if book.any_ready {
        Rejection::HoldLimit
    } else {
        Rejection::NoWorker
    };
    book.reject(request, kind, reason);
}
