//! `policy = off`: a plain gateway. A program goes where fewest requests are in flight and stays
//! there; nothing waits while any worker is ready.

use super::{Policy, Turn, admit};
use crate::book::Book;
use crate::ids::{Millis, RequestId, Seat};
use crate::program::{Class, Line, ProgramKey};
use crate::queue::Waiter;
use crate::reason::Reason;
use crate::standing::Standing;
use crate::worker::Worker;

#[derive(Debug)]
pub(super) struct Off;

impl Policy for Off {
    fn turn(&self, _: &mut Book, _: RequestId, _: Seat, _: Millis) -> Turn {
        Turn::Go
    }

    fn line(&self, _: &mut Book, _: ProgramKey, waiter: Waiter, _: Millis) -> Line {
        Line::Global(Class::New, waiter)
    }

    fn standing(&self, _: &Book, worker: &Worker) -> Standing {
        open(worker)
    }

    fn measures(&self) -> bool {
        false
    }

    fn act(&self, book: &mut Book, _: &[Seat], _: Millis) {
        while let Some(waiter) = book.queue.line(Class::New).oldest() {
            if !admit_openly(book, waiter.program) {
                break;
            }
        }
    }

    fn why(&self, book: &Book, _: ProgramKey) -> Reason {
        if book.any_ready {
            Reason::Refused
        } else {
            Reason::NoWorker
        }
    }

    fn look(&self, _: &mut Book, _: ProgramKey, _: Millis) {}

    fn acts_at(&self, book: &Book) -> Option<Millis> {
        (!book.dirty.is_empty()).then_some(book.now)
    }
}

/// A seat that takes everybody.
pub(super) fn open(worker: &Worker) -> Standing {
    Standing::Open {
        in_flight: worker.in_flight,
        programs: worker.programs(),
    }
}

/// Admits a waiter to the least loaded of the seats that take everybody. True if one did.
pub(super) fn admit_openly(book: &mut Book, key: ProgramKey) -> bool {
    let Some(first) = book.head(key) else {
        return false;
    };
    let Some(seat) = book.standings.open().find(|seat| !first.refuses(*seat)) else {
        return false;
    };
    let in_flight = book.workers.get(&seat).map_or(0, |worker| worker.in_flight);
    admit(book, key, seat, Reason::LeastLoaded { seat, in_flight });
    true
}
