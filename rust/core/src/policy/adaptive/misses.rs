//! When the engine drops what was meant to be kept: a wider margin, for as long as it helps.
//!
//! An engine that cannot be told whose KV to drop first drops the least recently used, which may
//! be an acting program's. Its cached-token counts show it. Where more than `aimd_raise_above` of
//! GPU time goes to recomputing such programs the seat's margin grows, below `aimd_lower_below` it
//! shrinks again, slowly. Where sessions can be closed the right KV goes first, and this rests.

use crate::book::Book;
use crate::ids::{Millis, Seat};

/// Time that a change gets to show its effect.
const SETTLE: Millis = 10_000;

/// How much a margin grows at a time, as a fraction of capacity.
const RAISE: f64 = 0.02;

/// How much it shrinks at a time.
const LOWER: f64 = 0.005;

/// After an answer: the seat's margin may have to follow its misses.
pub(super) fn adjust(book: &mut Book, seat: Seat, now: Millis) {
    let config = &book.config;
    let Some(worker) = book.workers.get_mut(&seat) else {
        return;
    };
    let rests = !config.aimd || worker.facts.sessions;
    if rests || now < worker.extra_margin_since + SETTLE {
        return;
    }
    let recomputing = worker.recomputed.rate(now);
    if recomputing > config.aimd_raise_above {
        worker.extra_margin = (worker.extra_margin + RAISE).min(config.aimd_cap);
    } else if recomputing < config.aimd_lower_below {
        worker.extra_margin = (worker.extra_margin - LOWER).max(0.0);
    }
    worker.extra_margin_since = now;
    book.touch(seat);
}
