//! `policy = paper`: the published policy. Source: arXiv 2602.13692, equations 7, 10 and 11.
//!
//! Every Δt each seat is compared with its capacity: reasoning programs count whole, acting ones
//! with f(t) = 2^(-t) of their present tool call. Above `λ_max`·C programs are paused, acting before
//! reasoning (a reasoning one at the end of its turn), shortest first. Below `λ_min`·C waiting
//! programs are restored where most room is. All of them have a request, so all count as reasoning,
//! and `S_restore` orders them shortest first. A newcomer that nobody waits before need not wait for
//! Δt. Returning turns of active programs always pass: between two Δt a seat may overflow, which
//! is what the pauses then answer.

use super::{Policy, Turn, admit, marks, measure, off};
use crate::book::Book;
use crate::decay::as_float;
use crate::ids::{Millis, RequestId, Seat, Tokens};
use crate::program::{Class, Line, ProgramKey};
use crate::queue::Waiter;
use crate::reason::{Reason, Room};
use crate::standing::Standing;
use crate::transitions::{Status, WorkerState};
use crate::worker::Worker;

/// Everyone stands in one line.
const LINE: Class = Class::Returning;

#[derive(Debug)]
pub(super) struct Paper;

impl Policy for Paper {
    fn turn(&self, book: &mut Book, request: RequestId, seat: Seat, _: Millis) -> Turn {
        let Some(entry) = book.requests.get(&request) else {
            return Turn::Go;
        };
        let program = &book[entry.program];
        if program.marked && program.flying.is_empty() {
            Turn::Leave(pressure(book, seat))
        } else {
            Turn::Go
        }
    }

    fn line(&self, _: &mut Book, _: ProgramKey, waiter: Waiter, _: Millis) -> Line {
        Line::Global(LINE, waiter)
    }

    fn standing(&self, book: &Book, worker: &Worker) -> Standing {
        let Some(room) = room(book, worker) else {
            return off::open(worker);
        };
        Standing::Room {
            returning: room,
            new: room,
            reclaimed: None,
        }
    }

    fn measures(&self) -> bool {
        true
    }

    fn act(&self, book: &mut Book, _: &[Seat], now: Millis) {
        if now >= book.next_act {
            book.next_act = now + book.config.paper_tick_ms;
            let seats: Vec<Seat> = book.workers.keys().copied().collect();
            for seat in seats {
                relieve(book, seat);
                measure(book, seat);
            }
            while restore_shortest(book) {}
        } else if book.queue.line(LINE).len() == 1
            && let Some(only) = book.queue.line(LINE).oldest()
            && book[only.program].status == Status::New
        {
            restore_shortest(book);
        }
    }

    fn why(&self, book: &Book, key: ProgramKey) -> Reason {
        if !book.any_ready {
            return Reason::NoWorker;
        }
        let roomiest = book.standings.roomiest(LINE).next();
        let worker = roomiest.and_then(|(_, seat)| book.workers.get(&seat));
        match (worker, book.waiter(key)) {
            (Some(worker), Some(waiter)) => Reason::NoRoom(explain(worker, waiter.size)),
            _ => Reason::Behind {
                waiting: book.counts.waiting,
            },
        }
    }

    fn look(&self, book: &mut Book, key: ProgramKey, _: Millis) {
        let program = &book[key];
        if let Some(seat) = program.seat
            && program.marked
            && program.is_silent()
        {
            let reason = pressure(book, seat);
            book.pause(key, reason);
        }
    }

    fn acts_at(&self, book: &Book) -> Option<Millis> {
        let idle = book.counts.active == 0 && book.counts.waiting == 0;
        (!idle).then_some(book.next_act.max(book.now))
    }
}

/// Σ over reasoning c + Σ over acting c · f(t). Equation 7.
fn usage(book: &Book, worker: &Worker) -> f64 {
    as_float(worker.reasoning.tokens()) + worker.fading.value(book.now)
}

/// What may still be restored here: `λ_min`·C less the usage, and all of an empty seat.
fn room(book: &Book, worker: &Worker) -> Option<Tokens> {
    let capacity = worker.capacity()?;
    if worker.charged() == 0 {
        return Some(capacity);
    }
    let room = as_float(capacity) * book.config.paper_lambda_min - usage(book, worker);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounds down"
    )]
    Some(room.max(0.0) as Tokens)
}

/// Where pausing begins, and ends.
fn limit(book: &Book, worker: &Worker) -> f64 {
    as_float(worker.capacity().unwrap_or(0)) * book.config.paper_lambda_max
}

fn pressure(book: &Book, seat: Seat) -> Reason {
    let worker = book.workers.get(&seat);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within capacity"
    )]
    let limit = worker.map_or(0, |worker| limit(book, worker) as Tokens);
    Reason::Pressure {
        charged: worker.map_or(0, Worker::charged),
        limit,
        capacity: worker.and_then(Worker::capacity).unwrap_or(0),
    }
}

fn explain(worker: &Worker, need: Tokens) -> Room {
    Room {
        need,
        seat: worker.seat,
        free: worker.free().unwrap_or(0),
        capacity: worker.capacity().unwrap_or(0),
        margin: 0.0,
    }
}

/// Pauses or marks who frees ΔC, and unmarks everybody else.
fn relieve(book: &mut Book, seat: Seat) {
    let Some(worker) = book.workers.get(&seat) else {
        return;
    };
    if worker.capacity().is_none() {
        return;
    }
    let over = (usage(book, worker) - limit(book, worker)).max(0.0).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounds up"
    )]
    let over = over as Tokens;
    let acting = worker
        .acting
        .shortest_first(over, |key| book[key].is_pausable());
    let freed: Tokens = acting.iter().map(|(tokens, _)| tokens).sum();
    let still_over = over.saturating_sub(freed);
    let running = worker.reasoning.shortest_first(still_over, |_| true);
    for (_, key) in acting {
        let reason = pressure(book, seat);
        book.pause(key, reason);
    }
    marks::draw(book, seat, &running);
}

/// Restores the shortest waiter where most room is, if it fits. True if it did.
fn restore_shortest(book: &mut Book) -> bool {
    let Some(waiter) = book.queue.line(LINE).shortest() else {
        return false;
    };
    let Some(first) = book.head(waiter.program) else {
        return false;
    };
    let mut seats = book.standings.roomiest(LINE);
    let roomiest = seats.find(|(_, seat)| !first.refuses(*seat));
    drop(seats);
    if let Some((room, seat)) = roomiest
        && waiter.size <= room
        && let Some(worker) = book.workers.get(&seat)
        && worker.state == WorkerState::Ready
    {
        let reason = Reason::Fits(explain(worker, waiter.size));
        admit(book, waiter.program, seat, reason);
        return true;
    }
    off::admit_openly(book, waiter.program)
}
