//! Back to where it was: a paused program prefers the seat where its KV may still be.
//!
//! Engines evict lazily, so *paused* does not mean *evicted*: the KV is there until as many tokens
//! have flowed in as the seat had to spare. The program waits for that seat as long as recomputing
//! elsewhere would take, and then takes any. Whatever happens next, that costs at most twice the
//! better choice (the ski-rental bound), and it needs no forecast.

use super::super::admit;
use super::admission::fits;
use super::room::explain;
use crate::book::Book;
use crate::ids::{Millis, Seat};
use crate::program::{Class, Line, ProgramKey};
use crate::queue::Waiter;
use crate::reason::Reason;
use crate::transitions::WorkerState;

/// The seat where a program's KV may still be, if it may go there.
pub(super) fn origin(book: &Book, key: ProgramKey) -> Option<Seat> {
    let trace = book[key].trace.filter(|_| book.config.origin_affinity)?;
    let worker = book.workers.get(&trace.seat)?;
    let slack = if book.config.host_tier {
        trace.reach_slack
    } else {
        trace.device_slack
    };
    let kept = worker.epoch == trace.epoch && worker.inflow - trace.inflow < slack;
    let open = worker.state == WorkerState::Ready && worker.claim.is_none();
    let first = book.head(key)?;
    (kept && open && !first.refuses(trace.seat)).then_some(trace.seat)
}

/// Which line a program joins: its origin's while that is worth waiting for, else the global one.
pub(super) fn line(book: &mut Book, key: ProgramKey, waiter: Waiter, now: Millis) -> Line {
    let class = book[key].class();
    if class == Class::Returning
        && let Some(seat) = origin(book, key)
    {
        let patience = patience(book, seat, waiter);
        let left = patience.saturating_sub(book.waited(key, now));
        if left > 0 {
            let until = now + left;
            book.wake(key, until);
            return Line::Origin(seat, waiter);
        }
    }
    Line::Global(class, waiter)
}

/// Its time at the origin's line may be over.
pub(super) fn look(book: &mut Book, key: ProgramKey, now: Millis) {
    if let Some(waiter) = book.waiter(key) {
        let line = line(book, key, waiter, now);
        book.step_in(key, line);
    }
}

/// Seats those who wait for this seat, shortest first, as far as they fit.
pub(super) fn serve(book: &mut Book, seat: Seat) {
    loop {
        let Some(worker) = book.workers.get(&seat) else {
            return;
        };
        let Some(waiter) = worker.returning.shortest() else {
            return;
        };
        let key = waiter.program;
        if origin(book, key).is_none() || book.queue.tenants.yields(book[key].tenant) {
            // Claimed, flushed or not ready by now, or another tenant's turn: nothing to wait for.
            let class = book[key].class();
            book.step_in(key, Line::Global(class, waiter));
            continue;
        }
        let class = book[key].class();
        let Some(need) = fits(book, worker, &waiter, class) else {
            return;
        };
        let room = explain(&book.config, worker, class, need);
        admit(book, key, seat, Reason::Origin(room));
    }
}

fn patience(book: &Book, seat: Seat, waiter: Waiter) -> Millis {
    let recompute = book
        .workers
        .get(&seat)
        .map_or(0.0, |worker| worker.recompute_ms(waiter.size));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates"
    )]
    let recompute = recompute as Millis;
    recompute.min(book.config.reservation_ms.unwrap_or(Millis::MAX / 2))
}
