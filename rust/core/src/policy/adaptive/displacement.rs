//! When an idle program gives way: its tool must outlast what restoring it costs everyone.
//!
//! Pausing an idle program frees its room for as long as its tool still runs, and costs a restore,
//! during which the seat's active programs wait. Worth it when
//! E[remaining | kind, elapsed] > restore seconds · active / η. That is true from some moment of a
//! call on, if ever: it is asked when the call begins and then each time its age has doubled.

use super::super::admit;
use super::admission::fits;
use super::room::{explain, room};
use crate::book::Book;
use crate::config::SchedulerConfig;
use crate::decay::as_float;
use crate::ids::{Millis, Seat, Tokens};
use crate::program::ProgramKey;
use crate::queue::Waiter;
use crate::reason::Reason;
use crate::worker::Worker;

/// A call is not looked at again before it is this old.
const FIRST_LOOK: Millis = 1_000;

/// Milliseconds to bring this much context back: from the host tier, as far as paused programs were
/// still found there. A tier smaller than all who are paused keeps few of them, and its price rises
/// towards recomputing until no more are paused than it keeps.
pub(super) fn restore_ms(config: &SchedulerConfig, worker: &Worker, context: Tokens) -> f64 {
    let recompute = worker.recompute_ms(context);
    if config.host_tier && context <= worker.facts.host_tokens {
        let load_back = worker.load_back_ms(context);
        load_back + (1.0 - worker.survival) * (recompute - load_back)
    } else {
        recompute
    }
}

/// How long it will still hold its room for nothing, and how long that must be; None where nothing
/// is displaced. Who does not come back holds it until its lease ends, and needs no restore.
fn stakes(book: &Book, key: ProgramKey, now: Millis) -> Option<(Millis, Millis)> {
    let eta = book.config.displacement_eta;
    let program = &book[key];
    let worker = book.workers.get(&program.seat?)?;
    if eta <= 0.0 || !program.is_pausable() {
        return None;
    }
    let elapsed = now.saturating_sub(program.seen);
    let outlook = book.tools.outlook(program.tool, elapsed);
    let returns = outlook.returns;
    let left = super::lease(book, key).saturating_sub(elapsed);
    let expected = returns * as_float(outlook.remaining) + (1.0 - returns) * as_float(left);
    let restore = returns * restore_ms(&book.config, worker, program.context);
    let threshold = restore * as_float(worker.programs() as u64) / eta;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates"
    )]
    Some((expected as Millis, threshold as Millis))
}

/// Marks a silent program as displaceable once it is, and else looks again later.
pub(super) fn consider(book: &mut Book, key: ProgramKey, now: Millis) {
    let Some((expected, threshold)) = stakes(book, key, now) else {
        return;
    };
    if expected > threshold {
        if !book[key].displaceable {
            book[key].displaceable = true;
            book.recharge(key);
        }
        return;
    }
    let elapsed = now.saturating_sub(book[key].seen);
    let again = book[key].seen + FIRST_LOOK.max(2 * elapsed);
    book.wake(key, again);
}

/// Seats the waiter where displaceable programs make most room.
pub(super) fn seat_it(book: &mut Book, waiter: &Waiter, now: Millis) -> bool {
    let Some(first) = book.head(waiter.program) else {
        return false;
    };
    let mut seats = book.standings.reclaimable().map(|(_, seat)| seat);
    let seat = seats.find(|seat| !first.refuses(*seat));
    drop(seats);
    seat.is_some_and(|seat| on(book, waiter, seat, now))
}

/// Seats the waiter on this seat by displacing idle programs, if that is enough.
pub(super) fn on(book: &mut Book, waiter: &Waiter, seat: Seat, now: Millis) -> bool {
    let key = waiter.program;
    let class = book[key].class();
    let Some(worker) = book.workers.get(&seat) else {
        return false;
    };
    let need = book.need(worker, book[key].prefix, waiter.size);
    let missing = need.saturating_sub(room(&book.config, worker, class));
    if missing > worker.displaceable.tokens() {
        return false;
    }
    let cost = |tokens| restore_ms(&book.config, worker, tokens);
    let still =
        |key| stakes(book, key, now).is_some_and(|(expected, threshold)| expected > threshold);
    let victims = worker.displaceable.cheapest(missing, cost, still);
    if victims.iter().map(|(tokens, _)| tokens).sum::<Tokens>() < missing {
        return false;
    }
    for (_, victim) in victims {
        if let Some((expected, threshold)) = stakes(book, victim, now) {
            let reason = Reason::Displaced {
                expected,
                threshold,
            };
            book.pause(victim, reason);
        }
    }
    let Some(worker) = book.workers.get(&seat) else {
        return false;
    };
    let Some(need) = fits(book, worker, waiter, class) else {
        return false;
    };
    let room = explain(&book.config, worker, class, need);
    admit(book, key, seat, Reason::Fits(room));
    true
}
