//! When a seat overflows all the same: who gives up its room, and only as many as must.
//!
//! Pressure begins at `mark_running_above` of capacity, which is where the least margin ends, so
//! relief never undoes an admission. Acting programs are paused first. Running ones are marked, to
//! be paused at the end of their turn, only for what acting ones could not free; and the marks are
//! drawn anew whenever the seat changes, so they vanish with the pressure.

use super::super::{Turn, marks, measure};
use super::displacement::restore_ms;
use super::room::explain;
use crate::book::Book;
use crate::decay::as_float;
use crate::ids::{Seat, Tokens};
use crate::program::ProgramKey;
use crate::reason::Reason;
use crate::worker::Worker;

/// Where pressure begins.
fn limit(book: &Book, worker: &Worker) -> Option<Tokens> {
    let capacity = as_float(worker.capacity()?);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within capacity"
    )]
    Some((capacity * book.config.mark_running_above).floor() as Tokens)
}

/// The seat's pressure, as a reason.
pub(super) fn pressure(book: &Book, seat: Seat) -> Reason {
    let worker = book.workers.get(&seat);
    Reason::Pressure {
        charged: worker.map_or(0, Worker::charged),
        limit: worker.and_then(|w| limit(book, w)).unwrap_or(0),
        capacity: worker.and_then(Worker::capacity).unwrap_or(0),
    }
}

/// Brings a seat's charge down to its limit, as far as that is possible now.
pub(super) fn relieve(book: &mut Book, seat: Seat) {
    let Some(worker) = book.workers.get(&seat) else {
        return;
    };
    let over = limit(book, worker).map_or(0, |limit| worker.charged().saturating_sub(limit));
    // Whoever is alone may have all of it.
    let over = if worker.programs() > 1 { over } else { 0 };
    if over == 0 && worker.marked.len() == 0 {
        return;
    }
    let victims = acting_that_free(book, worker, over);
    pause_all(book, seat, victims);
    let Some(worker) = book.workers.get(&seat) else {
        return;
    };
    let over = limit(book, worker).map_or(0, |limit| worker.charged().saturating_sub(limit));
    let over = if worker.programs() > 1 { over } else { 0 };
    mark_running(book, seat, over);
    measure(book, seat);
}

/// The acting programs whose pause frees this much at least cost, as far as that goes.
fn acting_that_free(book: &Book, worker: &Worker, over: Tokens) -> Vec<(Tokens, ProgramKey)> {
    let cost = |tokens| restore_ms(&book.config, worker, tokens);
    let may = |key| book[key].is_pausable();
    worker.acting.cheapest(over, cost, may)
}

fn pause_all(book: &mut Book, seat: Seat, victims: Vec<(Tokens, ProgramKey)>) {
    for (_, victim) in victims {
        let reason = pressure(book, seat);
        book.pause(victim, reason);
    }
}

fn mark_running(book: &mut Book, seat: Seat, over: Tokens) {
    let Some(worker) = book.workers.get(&seat) else {
        return;
    };
    let cost = |tokens| restore_ms(&book.config, worker, tokens);
    let wanted = worker.reasoning.cheapest(over, cost, |_| true);
    marks::draw(book, seat, &wanted);
}

/// Where the next turn of a seated program goes: on, if the seat can hold it, even if acting
/// programs must leave for it. Nothing is ever sent past the seat's capacity.
pub(super) fn make_room_for_turn(
    book: &mut Book,
    key: ProgramKey,
    seat: Seat,
    prompt: Tokens,
) -> Turn {
    let Some(worker) = book.workers.get(&seat) else {
        return Turn::Go;
    };
    let Some(capacity) = worker.capacity() else {
        return Turn::Go;
    };
    let program = &book[key];
    let own = program.entry.map_or(0, |entry| entry.own);
    let size = program.occupies_with(prompt);
    let need = book.need(worker, program.prefix, size).saturating_sub(own);
    let over = (worker.charged() + need).saturating_sub(capacity);
    if over == 0 {
        return Turn::Go;
    }
    let victims = acting_that_free(book, worker, over);
    let freed: Tokens = victims.iter().map(|(tokens, _)| tokens).sum();
    if freed >= over && size <= capacity {
        pause_all(book, seat, victims);
        return Turn::Go;
    }
    if book[key].flying.is_empty() {
        return Turn::Leave(pressure(book, seat));
    }
    let worker = &book.workers[&seat];
    let class = book[key].class();
    Turn::Wait(Reason::NoRoom(explain(&book.config, worker, class, need)))
}
