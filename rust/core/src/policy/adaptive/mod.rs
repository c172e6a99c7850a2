//! `policy = adaptive`: what evidence says is better than the published policy.
//!
//! Freed room is used at once, shortest waiter first, returning programs before new ones. A seat
//! keeps room for the growth of those who are on it. Nobody waits without bound: after
//! `reservation_ms` the oldest waiter gets a claim on a seat, and after `time_slice_ms` those on
//! that seat yield to it as they turn. Idle programs give way only where their tools outlast what
//! restoring them costs. Each piece is a file, and each has its switch in the configuration.

mod admission;
mod claims;
mod displacement;
mod misses;
mod origin;
mod relief;
mod room;

use super::{Policy, Turn, off};
use crate::book::Book;
use crate::ids::{Millis, RequestId, Seat};
use crate::program::{Line, ProgramKey};
use crate::queue::Waiter;
use crate::reason::Reason;
use crate::standing::Standing;
use crate::worker::Worker;

pub(crate) use room::margin;

#[derive(Debug)]
pub(super) struct Adaptive;

impl Policy for Adaptive {
    fn turn(&self, book: &mut Book, request: RequestId, seat: Seat, now: Millis) -> Turn {
        let Some(entry) = book.requests.get(&request) else {
            return Turn::Go;
        };
        let (key, prompt) = (entry.program, entry.prompt);
        let between_turns = book[key].flying.is_empty();
        if between_turns && let Some(reason) = claims::slice_is_over(book, key, seat, now) {
            return Turn::Leave(reason);
        }
        if between_turns && book[key].marked {
            return Turn::Leave(relief::pressure(book, seat));
        }
        relief::make_room_for_turn(book, key, seat, prompt)
    }

    fn line(&self, book: &mut Book, key: ProgramKey, waiter: Waiter, now: Millis) -> Line {
        origin::line(book, key, waiter, now)
    }

    fn standing(&self, book: &Book, worker: &Worker) -> Standing {
        if worker.capacity().is_none() {
            off::open(worker)
        } else if worker.claim.is_some() {
            Standing::Out
        } else {
            room::standing(&book.config, worker)
        }
    }

    fn measures(&self) -> bool {
        true
    }

    fn act(&self, book: &mut Book, seats: &[Seat], now: Millis) {
        if book.config.event_driven {
            act_on(book, seats, now);
        } else if now >= book.next_act {
            book.next_act = now + book.config.tick_ms;
            let all: Vec<Seat> = book.workers.keys().copied().collect();
            act_on(book, &all, now);
        }
    }

    fn why(&self, book: &Book, key: ProgramKey) -> Reason {
        admission::why(book, key)
    }

    fn turned(&self, book: &mut Book, key: ProgramKey, now: Millis) {
        if let Some(seat) = book[key].seat
            && book[key].is_silent()
            && let Some(reason) = claims::slice_is_over(book, key, seat, now)
        {
            book.pause(key, reason);
        }
    }

    fn look(&self, book: &mut Book, key: ProgramKey, now: Millis) {
        match book[key].line {
            Some(Line::Origin(..)) => origin::look(book, key, now),
            None if book[key].is_silent() => idle(book, key, now),
            _ => {}
        }
    }

    fn taught(&self, book: &mut Book, seat: Seat, now: Millis) {
        misses::adjust(book, seat, now);
    }

    fn acts_at(&self, book: &Book) -> Option<Millis> {
        let changed = !book.dirty.is_empty();
        if book.config.event_driven {
            let now = changed.then_some(book.now);
            now.or_else(|| claims::next_claim_at(book))
        } else {
            let waits = book.counts.waiting > 0;
            (changed || waits).then_some(book.next_act.max(book.now))
        }
    }
}

fn act_on(book: &mut Book, seats: &[Seat], now: Millis) {
    for seat in seats {
        relief::relieve(book, *seat);
    }
    for seat in seats {
        claims::serve(book, *seat, now);
    }
    claims::make(book, now);
    for seat in seats {
        origin::serve(book, *seat);
    }
    admission::fill(book, now);
    admission::prepare(book);
}

/// A silent program: may it keep its seat, if it has one, and until when?
fn idle(book: &mut Book, key: ProgramKey, now: Millis) {
    if let Some(seat) = book[key].seat
        && book[key].marked
    {
        let reason = relief::pressure(book, seat);
        book.pause(key, reason);
    }
    if book[key].lapsed {
        return;
    }
    let lease = lease(book, key);
    let silent = now.saturating_sub(book[key].seen);
    if silent >= lease {
        book.lapse(key);
        book.pause(key, Reason::Lease { silent, lease });
        return;
    }
    displacement::consider(book, key, now);
    let ends = book[key].seen + lease;
    book.wake(key, ends);
}

/// How long a program may be silent before it gives up its seat.
fn lease(book: &Book, key: ProgramKey) -> Millis {
    let expected = book.tools.outlook(book[key].tool, 0).remaining;
    let config = &book.config;
    config.lease_min_ms.max(expected + config.lease_ms)
}
