//! The policies, and the cycle that they share.
//!
//! A policy answers a few questions and composes moves. The cycle around it is the same for all:
//! requests of seated programs go first, then seats that changed are measured again, then the
//! policy acts, until nothing changes any more. Another policy is another file and one more arm
//! in [`of`].

mod adaptive;
mod marks;
mod off;
mod paper;
mod turns;

use std::collections::BTreeSet;

use crate::book::Book;
use crate::config::{PolicyName, SchedulerConfig};
use crate::decision::Rejection;
use crate::ids::{Millis, RequestId, Seat, Tokens};
use crate::program::{Class, Line, ProgramKey};
use crate::queue::Waiter;
use crate::reason::Reason;
use crate::standing::Standing;
use crate::transitions::{Status, WorkerState};
use crate::worker::Worker;

/// Where a request of a seated program goes.
pub(crate) enum Turn {
    /// To its seat.
    Go,
    /// It waits for its seat.
    Wait(Reason),
    /// Its program gives up the seat and queues.
    Leave(Reason),
}

/// What makes one policy differ from another.
pub(crate) trait Policy {
    /// Where a request goes whose program has this seat, which is ready.
    fn turn(&self, book: &mut Book, request: RequestId, seat: Seat, now: Millis) -> Turn;

    /// Which line a program joins that has to wait.
    fn line(&self, book: &mut Book, key: ProgramKey, waiter: Waiter, now: Millis) -> Line;

    /// How a seat presents itself to waiters.
    fn standing(&self, book: &Book, worker: &Worker) -> Standing;

    /// Whether programs can be too large for every seat.
    fn measures(&self) -> bool;

    /// Pauses who must go and seats who may come. `seats` changed since it last acted.
    fn act(&self, book: &mut Book, seats: &[Seat], now: Millis);

    /// Why a waiting program still waits.
    fn why(&self, book: &Book, key: ProgramKey) -> Reason;

    /// A program's turn just ended.
    fn turned(&self, _book: &mut Book, _key: ProgramKey, _now: Millis) {}

    /// A program's turn just ended, or its own moment has come.
    fn look(&self, book: &mut Book, key: ProgramKey, now: Millis);

    /// An answer taught something about a seat.
    fn taught(&self, _book: &mut Book, _seat: Seat, _now: Millis) {}

    /// When it wants to act without an event.
    fn acts_at(&self, book: &Book) -> Option<Millis>;
}

fn of(name: PolicyName) -> &'static dyn Policy {
    match name {
        PolicyName::Off => &off::Off,
        PolicyName::Paper => &paper::Paper,
        PolicyName::Adaptive => &adaptive::Adaptive,
    }
}

/// Makes every decision that is due.
pub(crate) fn decide(book: &mut Book, now: Millis) {
    let policy = of(book.config.policy);
    let mut undecided = Vec::new();
    loop {
        let seats = let_turns_pass(book, policy, now, &mut undecided);
        for seat in &seats {
            measure(book, *seat);
        }
        if book.sync_until.is_none() {
            let seats: Vec<Seat> = seats.into_iter().collect();
            policy.act(book, &seats, now);
        }
        if book.inbox.is_empty() && book.dirty.is_empty() && book.turned.is_empty() {
            break;
        }
    }
    for request in undecided {
        hold_or_reject(book, policy, request);
    }
}

/// Lets programs that have a seat leave it or go on, until none of them moves: room that one gives
/// up is another's before it is anybody's who waits. Returns the seats that changed.
fn let_turns_pass(
    book: &mut Book,
    policy: &dyn Policy,
    now: Millis,
    undecided: &mut Vec<RequestId>,
) -> BTreeSet<Seat> {
    let mut changed = BTreeSet::new();
    loop {
        for key in std::mem::take(&mut book.turned) {
            if book.programs.contains(key.0) {
                policy.turned(book, key, now);
                look(book, key, now);
            }
        }
        let seats = std::mem::take(&mut book.dirty);
        for seat in &seats {
            if let Some(worker) = book.workers.get_mut(seat) {
                worker.dirty = false;
            }
        }
        turns::take(book, policy, &seats, now, undecided);
        changed.extend(seats);
        if book.inbox.is_empty() && book.dirty.is_empty() && book.turned.is_empty() {
            return changed;
        }
    }
}

/// A program's own moment: what every policy does, then what this one does.
pub(crate) fn look(book: &mut Book, key: ProgramKey, now: Millis) {
    if book[key].operator {
        return;
    }
    if !book[key].is_silent() {
        of(book.config.policy).look(book, key, now);
        return;
    }
    let program = &book[key];
    let limit = book.config.idle_timeout_ms;
    let silent = now.saturating_sub(program.seen);
    if silent >= limit {
        if let Some(program) = program.name.clone() {
            let reason = Reason::Idle { silent, limit };
            book.out
                .push(crate::decision::Decision::Expire { program, reason });
        }
        book.forget_program(key);
        return;
    }
    let expires = program.seen + limit;
    let seat = book[key].seat.and_then(|seat| book.workers.get(&seat));
    if seat.is_some_and(|worker| worker.state == WorkerState::Draining) {
        book.pause(key, Reason::Draining);
    }
    of(book.config.policy).look(book, key, now);
    book.wake(key, expires);
}

/// An answer taught something about a seat.
pub(crate) fn taught(book: &mut Book, seat: Seat, now: Millis) {
    of(book.config.policy).taught(book, seat, now);
}

/// What a seat keeps free beside a program that returns, for people to see.
pub(crate) fn margin(config: &SchedulerConfig, worker: &Worker) -> Tokens {
    match config.policy {
        PolicyName::Off | PolicyName::Paper => 0,
        PolicyName::Adaptive => adaptive::margin(config, worker, Class::Returning),
    }
}

/// When the policy wants to act without an event.
pub(crate) fn acts_at(book: &Book) -> Option<Millis> {
    if book.sync_until.is_some() {
        return (!book.dirty.is_empty()).then_some(book.now);
    }
    of(book.config.policy).acts_at(book)
}

/// Finds a seat's standing again.
pub(crate) fn measure(book: &mut Book, seat: Seat) {
    let Some(worker) = book.workers.get(&seat) else {
        return;
    };
    let standing = if worker.state == WorkerState::Ready {
        of(book.config.policy).standing(book, worker)
    } else {
        Standing::Out
    };
    if let Some(worker) = book.workers.get_mut(&seat) {
        let before = std::mem::replace(&mut worker.standing, standing);
        book.standings.change(seat, before, standing);
    }
}

/// Seats a waiting program and sends its first request; the others follow in the next round.
pub(crate) fn admit(book: &mut Book, key: ProgramKey, seat: Seat, reason: Reason) {
    let Some(first) = book[key].waiting.values().next().copied() else {
        return;
    };
    let claimed = match book[key].line {
        Some(Line::Claim(claimed, _)) => Some(claimed),
        _ => None,
    };
    book.place(key, seat, &reason);
    book.send(first, reason);
    book.reconsider(key);
    measure(book, seat);
    if let Some(claimed) = claimed {
        measure(book, claimed);
    }
}

fn hold_or_reject(book: &mut Book, policy: &dyn Policy, request: RequestId) {
    let Some(entry) = book.requests.get(&request) else {
        return;
    };
    let (key, bounced) = (entry.program, !entry.refused_by.is_empty());
    if entry.state != crate::transitions::RequestState::Arrived {
        return;
    }
    let program = &book[key];
    let newcomer = program.status == Status::New || program.waiting.len() > 1;
    let (waiting, limit) = (book.held, book.config.queue_limit);
    if newcomer && !bounced && waiting >= limit {
        let reason = Reason::QueueFull { waiting, limit };
        book.reject(request, Rejection::QueueFull, reason);
        return;
    }
    if book.sync_until.is_some() {
        book.hold(request, Reason::WeightSync);
        return;
    }
    if book.is_deserted() {
        book.reject(request, Rejection::NoWorker, Reason::Deserted);
        return;
    }
    let reason = policy.why(book, key);
    book.hold(request, reason);
    if book.counts.workers == 0 {
        book.desert();
    }
}
