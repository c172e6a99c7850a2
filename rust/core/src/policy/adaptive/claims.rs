//! Bounded waiting: the oldest waiter gets a claim on a seat, and in time those on it yield.
//!
//! Shortest first alone would let a large program starve. A waiter that has waited `reservation_ms`
//! claims the roomiest seat that could ever hold it: nobody else is seated there until it is. Room
//! elsewhere stays open to all, so the claim costs only what the seat frees meanwhile. Claims are as
//! many as seats, oldest waiter first. After `time_slice_ms` even the programs on that seat yield, as
//! their turns come, if they had it for as long and for long against what restoring them costs.

use super::super::{admit, measure};
use super::admission::{announce, fits};
use super::displacement;
use super::room::explain;
use crate::book::Book;
use crate::ids::{Millis, Seat};
use crate::program::{Class, Line, ProgramKey};
use crate::queue::Waiter;
use crate::reason::Reason;
use crate::transitions::WorkerState;
use crate::worker::Worker;

/// Whether a waiter has waited too long for shortest-first.
pub(super) fn is_overdue(book: &Book, key: ProgramKey, now: Millis) -> bool {
    let bound = book.config.reservation_ms;
    bound.is_some_and(|bound| book.waited(key, now) >= bound)
}

/// The oldest waiter of each tenant without a claim, in the order of their turns.
fn oldest_of_each(book: &Book) -> impl Iterator<Item = Waiter> {
    let tenants = &book.queue.tenants;
    let turns = std::iter::successors(tenants.first(), |tenant| tenants.after(*tenant));
    turns.filter_map(|tenant| {
        let lines = [Class::Returning, Class::New];
        let oldest = lines.map(|class| tenants.get(tenant).line(class).oldest());
        oldest
            .into_iter()
            .flatten()
            .min_by_key(|waiter| waiter.place)
    })
}

/// When the next waiter will have waited long enough for a claim.
pub(super) fn next_claim_at(book: &Book) -> Option<Millis> {
    let bound = book.config.reservation_ms?;
    let heads = oldest_of_each(book).filter_map(|waiter| book.head(waiter.program));
    let due = heads.map(|head| head.arrived + bound);
    due.filter(|due| *due > book.now).min()
}

/// Gives claims to those who are overdue and whose tenant's turn it is, as long as there are seats
/// to claim: the overdue of one tenant do not pass whom another has waiting.
pub(super) fn make(book: &mut Book, now: Millis) {
    loop {
        let oldest = oldest_of_each(book).next();
        let overdue = oldest.filter(|waiter| is_overdue(book, waiter.program, now));
        let Some(waiter) = overdue else {
            return;
        };
        let key = waiter.program;
        let Some(seat) = claimable(book, &waiter) else {
            return;
        };
        book.step_in(key, Line::Claim(seat, waiter));
        measure(book, seat);
        serve(book, seat, now);
        if book[key].seat.is_none() {
            announce(book, key);
        }
    }
}

/// The roomiest unclaimed seat that could hold the waiter if it were empty.
fn claimable(book: &Book, waiter: &Waiter) -> Option<Seat> {
    let first = book.head(waiter.program)?;
    let mut seats = book.standings.roomiest(Class::New).map(|(_, seat)| seat);
    seats.find(|seat| {
        let capacity = book.workers.get(seat).and_then(Worker::capacity);
        capacity.is_some_and(|capacity| waiter.size <= capacity) && !first.refuses(*seat)
    })
}

/// Seats the one who claims this seat, if it fits by now.
pub(super) fn serve(book: &mut Book, seat: Seat, now: Millis) {
    let Some(worker) = book.workers.get(&seat) else {
        return;
    };
    let Some(key) = worker.claim else {
        return;
    };
    let Some(waiter) = book.waiter(key) else {
        return;
    };
    let class = book[key].class();
    let capacity = worker.capacity().unwrap_or(0);
    if worker.state != WorkerState::Ready || waiter.size > capacity {
        book.step_in(key, Line::Global(class, waiter));
        measure(book, seat);
        return;
    }
    if let Some(need) = fits(book, worker, &waiter, class) {
        let room = explain(&book.config, worker, class, need);
        let reason = Reason::Reserved {
            room,
            waited: book.waited(key, now),
        };
        admit(book, key, seat, reason);
    } else if displacement::on(book, &waiter, seat, now) {
        measure(book, seat);
    }
}

/// Why a program has to yield its seat now, between two turns.
pub(super) fn slice_is_over(
    book: &Book,
    key: ProgramKey,
    seat: Seat,
    now: Millis,
) -> Option<Reason> {
    let slice = book.config.time_slice_ms?;
    let worker = book.workers.get(&seat)?;
    let program = &book[key];
    let restore = displacement::restore_ms(&book.config, worker, program.context);
    let least = book.config.time_slice_restore_factor * restore;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates"
    )]
    let slice = slice.max(least as Millis);
    let seated = now.saturating_sub(program.seated);
    let other = if book.config.reservation_ms.is_some() {
        worker.claim
    } else {
        let oldest = oldest_of_each(book).min_by_key(|waiter| waiter.place);
        oldest.map(|oldest| oldest.program)
    };
    let waited = book.waited(other?, now);
    let over = seated >= slice && waited >= book.config.time_slice_ms?;
    over.then_some(Reason::TimeSlice { seated, waited })
}
