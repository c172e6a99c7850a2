//! Requests that wait for a decision: to their seat, or into a line.

use std::collections::BTreeSet;

use super::{Policy, Turn};
use crate::book::Book;
use crate::decision::Rejection;
use crate::ids::{Millis, RequestId, Seat};
use crate::program::ProgramKey;
use crate::queue::Place;
use crate::reason::Reason;
use crate::transitions::{RequestState, WorkerState};

/// Deferred requests looked at per seat and round: those behind them wait for these anyway, and a
/// round in which one is sent is followed by another.
const DEFERRED: usize = 8;

/// Decides about every new request, and about the deferred ones of seats that `changed`. What joined
/// a line and may yet be admitted in this tick is put on `undecided`.
pub(super) fn take(
    book: &mut Book,
    policy: &dyn Policy,
    changed: &[Seat],
    now: Millis,
    undecided: &mut Vec<RequestId>,
) {
    let mut due: BTreeSet<(Place, RequestId)> = BTreeSet::new();
    for request in std::mem::take(&mut book.inbox) {
        if let Some(entry) = book.requests.get(&request) {
            due.insert((entry.place, request));
        }
    }
    for seat in changed {
        if let Some(worker) = book.workers.get(seat) {
            let deferred = worker.deferred.iter().take(DEFERRED);
            due.extend(deferred.map(|(place, request)| (*place, *request)));
        }
    }
    for (_, request) in due {
        take_one(book, policy, request, now, undecided);
    }
}

fn take_one(
    book: &mut Book,
    policy: &dyn Policy,
    request: RequestId,
    now: Millis,
    undecided: &mut Vec<RequestId>,
) {
    let Some(entry) = book.requests.get(&request) else {
        return;
    };
    if !matches!(entry.state, RequestState::Arrived | RequestState::Held) {
        return;
    }
    let (key, place) = (entry.program, entry.place);
    let need = entry.prompt;
    if policy.measures()
        && let Some(largest) = book.largest.filter(|largest| need > *largest)
    {
        let reason = Reason::Oversize { need, largest };
        book.reject(request, Rejection::Oversize, reason);
        return;
    }
    if book[key].operator {
        book.hold(request, Reason::Operator);
        return;
    }
    let Some(seat) = book[key].seat else {
        queue(book, policy, key, now);
        undecided.push(request);
        return;
    };
    match turn(book, policy, request, seat, now) {
        Turn::Go => book.send(request, Reason::Seated { seat }),
        Turn::Leave(reason) if book[key].flying.is_empty() => {
            if book[key].steps == 0 && reason == Reason::Bounced {
                book.unseat(key);
            } else {
                book.pause(key, reason);
            }
            undecided.extend(book[key].waiting.values());
            queue(book, policy, key, now);
        }
        Turn::Wait(reason) | Turn::Leave(reason) => {
            if let Some(worker) = book.workers.get_mut(&seat) {
                worker.deferred.insert(place, request);
            }
            book.hold(request, reason);
        }
    }
}

/// What every policy says of a turn, and else what this one says.
fn turn(book: &mut Book, policy: &dyn Policy, request: RequestId, seat: Seat, now: Millis) -> Turn {
    let refused = book
        .requests
        .get(&request)
        .is_some_and(|entry| entry.refuses(seat));
    if refused {
        return Turn::Leave(Reason::Bounced);
    }
    if book.sync_until.is_some() {
        return Turn::Wait(Reason::WeightSync);
    }
    match book.workers.get(&seat).map(|worker| worker.state) {
        Some(WorkerState::Ready) => policy.turn(book, request, seat, now),
        Some(WorkerState::Unready) => Turn::Wait(Reason::WorkerUnready { seat }),
        Some(WorkerState::Draining) => Turn::Leave(Reason::Draining),
        Some(WorkerState::Down) | None => Turn::Leave(Reason::WorkerDown),
    }
}

/// Puts a program in line, unless it stands in one.
fn queue(book: &mut Book, policy: &dyn Policy, key: ProgramKey, now: Millis) {
    if book[key].line.is_some() {
        return;
    }
    if let (true, Some(largest), Some(first)) = (policy.measures(), book.largest, book.head(key)) {
        // A prompt that fits where the context would not has replaced it.
        let prompt = first.prompt;
        if book[key].context > largest {
            book[key].context = prompt;
        }
    }
    if let Some(waiter) = book.waiter(key) {
        let line = policy.line(book, key, waiter, now);
        book.step_in(key, line);
    }
}
