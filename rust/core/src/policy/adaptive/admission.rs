//! Who gets freed room: promises first, then tenant by tenant the overdue, then the shortest.
//!
//! If the shortest of a class does not fit the roomiest seat, nobody of that class fits anywhere:
//! each question costs one look, and each admission O(log n). (A shared prefix that only another
//! seat has could prove that wrong; such a waiter is overdue in the worst case, never forgotten.)

use super::super::{admit, off};
use super::room::{explain, room};
use super::{claims, displacement, origin};
use crate::book::Book;
use crate::decay::as_float;
use crate::decision::Decision;
use crate::ids::{Millis, Seat, Tokens};
use crate::program::{Class, Line, ProgramKey};
use crate::queue::Waiter;
use crate::reason::Reason;
use crate::tenant::TenantKey;
use crate::worker::Worker;

/// Waiters that seats refused are looked past, but only so many in one round: a worker that refuses
/// everybody must not make a tick linear.
const LOOK_PAST: usize = 8;

/// What the waiter would add, if that fits.
pub(super) fn fits(book: &Book, worker: &Worker, waiter: &Waiter, class: Class) -> Option<Tokens> {
    let need = book.need(worker, book[waiter.program].prefix, waiter.size);
    let within = worker.charged() <= worker.capacity()?;
    (within && need <= room(&book.config, worker, class)).then_some(need)
}

/// Who is looked past in one round, since a seat refused them.
#[derive(Default)]
struct Aside {
    waiters: Vec<(ProgramKey, Line)>,
    /// Those with a claim keep it, and are tried on its seat.
    claims: bool,
}

/// Admits whoever fits.
pub(super) fn fill(book: &mut Book, now: Millis) {
    let mut aside = Aside::default();
    while admit_next(book, now, &mut aside) {}
    for (key, line) in aside.waiters {
        book.step_in(key, line);
    }
}

/// Admits one program, the one whose turn it is. False: nobody fits.
fn admit_next(book: &mut Book, now: Millis, aside: &mut Aside) -> bool {
    loop {
        let refused = match try_in_turn(book, now, aside) {
            Tried::Seated => return true,
            Tried::Refused(key) => Some(key),
            Tried::Nobody => None,
        };
        let Some(key) = refused.filter(|_| aside.waiters.len() < LOOK_PAST) else {
            return false;
        };
        match book[key].line {
            Some(Line::Claim(..)) => aside.claims = true,
            Some(line) => {
                book.step_out(key);
                aside.waiters.push((key, line));
            }
            None => return false,
        }
    }
}

/// What came of looking for somebody to seat.
enum Tried {
    Seated,
    /// Seats refused this one: it is looked past.
    Refused(ProgramKey),
    Nobody,
}

/// Seats the first who fits: one with a claim, else tenant after tenant in the order of their turns.
fn try_in_turn(book: &mut Book, now: Millis, aside: &Aside) -> Tried {
    let promised = roomiest(book, Class::New)
        .filter(|_| !aside.claims)
        .and_then(|room| book.queue.claims.oldest_that_fits(room));
    if let Some(waiter) = promised
        && let done @ (Tried::Seated | Tried::Refused(_)) = try_it(book, &waiter, now)
    {
        return done;
    }
    let mut turn = book.queue.tenants.first();
    while let Some(tenant) = turn {
        let shortest = [Class::Returning, Class::New];
        let shortest = shortest.map(|class| book.queue.tenants.get(tenant).line(class).shortest());
        let candidates = [overdue(book, tenant, now), shortest[0], shortest[1]];
        for waiter in candidates.iter().flatten() {
            if let done @ (Tried::Seated | Tried::Refused(_)) = try_it(book, waiter, now) {
                return done;
            }
        }
        turn = book.queue.tenants.after(tenant);
    }
    Tried::Nobody
}

fn try_it(book: &mut Book, waiter: &Waiter, now: Millis) -> Tried {
    if seat_it(book, waiter) || displacement::seat_it(book, waiter, now) {
        Tried::Seated
    } else if was_refused(book, waiter.program) {
        Tried::Refused(waiter.program)
    } else {
        Tried::Nobody
    }
}

fn roomiest(book: &Book, class: Class) -> Option<Tokens> {
    book.standings.roomiest(class).next().map(|(room, _)| room)
}

/// The tenant's oldest waiter that fits somewhere, if it has waited too long for shortest-first.
fn overdue(book: &Book, tenant: TenantKey, now: Millis) -> Option<Waiter> {
    let classes = [Class::Returning, Class::New].into_iter();
    let fitting = classes.filter_map(|class| {
        let room = roomiest(book, class)?;
        let line = book.queue.tenants.get(tenant).line(class);
        line.oldest_that_fits(room)
    });
    let oldest = fitting.min_by_key(|waiter| waiter.place)?;
    claims::is_overdue(book, oldest.program, now).then_some(oldest)
}

fn was_refused(book: &Book, key: ProgramKey) -> bool {
    let first = book.head(key);
    first.is_some_and(|first| !first.refused_by.is_empty())
}

/// Seats the waiter at its origin, else where most room is, else where nobody counts.
fn seat_it(book: &mut Book, waiter: &Waiter) -> bool {
    let key = waiter.program;
    let class = book[key].class();
    if let Some(seat) = origin::origin(book, key)
        && admit_if_fits(book, waiter, seat, class, Reason::Origin)
    {
        return true;
    }
    let Some(first) = book.head(key) else {
        return false;
    };
    let mut seats = book.standings.roomiest(class).map(|(_, seat)| seat);
    let seat = seats.find(|seat| !first.refuses(*seat));
    drop(seats);
    if let Some(seat) = seat
        && admit_if_fits(book, waiter, seat, class, Reason::Fits)
    {
        return true;
    }
    off::admit_openly(book, key)
}

fn admit_if_fits(
    book: &mut Book,
    waiter: &Waiter,
    seat: Seat,
    class: Class,
    reason: fn(crate::reason::Room) -> Reason,
) -> bool {
    let Some(worker) = book.workers.get(&seat) else {
        return false;
    };
    let Some(need) = fits(book, worker, waiter, class) else {
        return false;
    };
    let room = explain(&book.config, worker, class, need);
    admit(book, waiter.program, seat, reason(room));
    true
}

/// The seat that a waiter is measured against when it is told why it waits.
fn nearest(book: &Book, key: ProgramKey) -> Option<&Worker> {
    let seat = match book[key].line? {
        Line::Claim(seat, _) | Line::Origin(seat, _) => seat,
        Line::Global(class, _) => book.standings.roomiest(class).next()?.1,
    };
    book.workers.get(&seat)
}

/// Why a waiter waits.
pub(super) fn why(book: &Book, key: ProgramKey) -> Reason {
    if !book.any_ready {
        return Reason::NoWorker;
    }
    let behind = Reason::Behind {
        waiting: book.counts.waiting,
    };
    let (Some(waiter), Some(worker)) = (book.waiter(key), nearest(book, key)) else {
        return behind;
    };
    let class = book[key].class();
    let need = book.need(worker, book[key].prefix, waiter.size);
    if book.queue.tenants.yields(book[key].tenant) {
        another_turn(book, key)
    } else if need > room(&book.config, worker, class) {
        Reason::NoRoom(explain(&book.config, worker, class, need))
    } else if was_refused(book, key) {
        Reason::Refused
    } else {
        behind
    }
}

fn another_turn(book: &Book, key: ProgramKey) -> Reason {
    let tenants = &book.queue.tenants;
    let own = tenants.get(book[key].tenant);
    let other = tenants.get(tenants.first().unwrap_or(book[key].tenant));
    Reason::AnotherTurn {
        occupied: own.charged,
        weight: own.weight,
        other: other.charged,
        other_weight: other.weight,
    }
}

/// Tells those who are next that their turn comes, once per wait.
pub(super) fn prepare(book: &mut Book) {
    let Some(tenant) = book.queue.tenants.first() else {
        return;
    };
    for class in [Class::Returning, Class::New] {
        if let Some(waiter) = book.queue.tenants.get(tenant).line(class).shortest() {
            announce(book, waiter.program);
        }
    }
}

/// Tells one.
pub(super) fn announce(book: &mut Book, key: ProgramKey) {
    if book[key].prepared {
        return;
    }
    let Some(program) = book[key].name.clone() else {
        return;
    };
    let (Some(waiter), Some(worker)) = (book.waiter(key), nearest(book, key)) else {
        return;
    };
    let class = book[key].class();
    let need = book.need(worker, book[key].prefix, waiter.size);
    let missing = need.saturating_sub(room(&book.config, worker, class));
    let rate = worker.freed.rate(book.now);
    let wait = if rate > 0.0 {
        as_float(missing) / rate
    } else {
        as_float(book.config.tick_ms)
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates"
    )]
    let expected_wait = (wait as Millis).min(book.config.hold_limit_ms);
    let reason = Reason::Next(explain(&book.config, worker, class, need));
    book[key].prepared = true;
    book.out.push(Decision::Prepare {
        program,
        expected_wait,
        reason,
    });
}
