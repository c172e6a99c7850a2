//! Recounts everything from nothing and compares. For tests, and for an operator in doubt.
//!
//! What holds after every event and every tick:
//!
//! - a program has an entry in exactly the book of its seat, and every sum and order of a seat
//!   follows from its entries;
//! - a request stands in exactly one place: undecided or held with its program, in flight at its
//!   program's seat, or orphaned by a worker that is down;
//! - a program stands in at most one line, and only while it has something waiting and no seat;
//! - every count equals what it counts.

use std::collections::BTreeSet;

use crate::error::Error;
use crate::ids::{RequestId, Tokens};
use crate::program::{Class, Line, Program, ProgramKey};
use crate::scheduler::Scheduler;
use crate::transitions::{RequestState, Status, WorkerState};
use crate::view::Counts;
use crate::worker::Worker;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), Error> {
    if holds {
        Ok(())
    } else {
        Err(Error::Invariant(what()))
    }
}

impl Scheduler {
    /// Recounts everything.
    pub fn check(&self) -> Result<(), Error> {
        self.check_counts()?;
        for (key, program) in &self.book.programs {
            self.check_program(ProgramKey(key), program)?;
        }
        for id in self.book.requests.keys() {
            self.check_request(*id)?;
        }
        for worker in self.book.workers.values() {
            self.check_worker(worker)?;
        }
        self.check_tenants()?;
        self.check_queue()
    }

    fn check_tenants(&self) -> Result<(), Error> {
        let tenants = &self.book.queue.tenants;
        for (key, account) in tenants.iter() {
            let programs = self.book.programs.iter();
            let own: Vec<&Program> = programs
                .map(|(_, program)| program)
                .filter(|program| program.tenant == key)
                .collect();
            let entries = own.iter().filter_map(|program| program.entry);
            let charged: Tokens = entries.map(|entry| entry.own).sum();
            let global = |program: &&&Program| matches!(program.line, Some(Line::Global(..)));
            let counted = (own.len(), charged, own.iter().filter(global).count());
            let booked = (account.programs, account.charged, account.waiting());
            ensure(counted == booked, || {
                format!(
                    "tenant {:?}: counted {counted:?}, booked {booked:?}",
                    account.name
                )
            })?;
        }
        ensure(tenants.turns_are_right(), || {
            "tenants out of turn".to_owned()
        })
    }

    fn check_counts(&self) -> Result<(), Error> {
        let book = &self.book;
        let with = |status| {
            book.programs
                .iter()
                .filter(|(_, p)| p.status == status)
                .count()
        };
        let waits = |state| matches!(state, RequestState::Arrived | RequestState::Held);
        let requests = book.requests.values();
        let waiting = requests.clone().filter(|r| waits(r.state)).count();
        let up = book
            .workers
            .values()
            .filter(|w| w.state != WorkerState::Down);
        let counted = Counts {
            programs: book.names.len(),
            active: with(Status::Active),
            paused: with(Status::Paused),
            waiting,
            in_flight: book.requests.len() - waiting,
            workers: up.count(),
        };
        ensure(counted == book.counts, || {
            format!("counted {counted:?}, booked {:?}", book.counts)
        })?;
        let held = requests.filter(|r| r.state == RequestState::Held).count();
        ensure(held == book.held, || {
            format!("counted {held} held, booked {}", book.held)
        })?;
        let named = book.programs.iter().filter(|(_, p)| p.name.is_some());
        ensure(named.count() == book.names.len(), || {
            "a name without its program".to_owned()
        })
    }

    fn check_program(&self, key: ProgramKey, program: &Program) -> Result<(), Error> {
        let book = &self.book;
        let say = |what: &str| format!("program {:?}: {what}", program.name);
        ensure(
            program.seat.is_some() == (program.status == Status::Active),
            || say("active without a seat, or seated without being active"),
        )?;
        ensure(
            program.entry.map(|entry| entry.seat) == program.seat,
            || say("its entry is not in its seat's book"),
        )?;
        ensure(program.seat.is_none() || program.line.is_none(), || {
            say("seated and in line")
        })?;
        ensure(
            program.line.is_none() || !program.waiting.is_empty(),
            || say("in line with nothing waiting"),
        )?;
        if let Some(name) = &program.name {
            ensure(book.names.get(name) == Some(&key), || {
                say("not under its name")
            })?;
        } else {
            ensure(!program.is_silent(), || {
                say("nameless, and nothing under way")
            })?;
        }
        let footprint = program.flying.iter().filter_map(|id| book.requests.get(id));
        let footprint: Tokens = footprint.map(crate::request::Request::footprint).sum();
        ensure(footprint == program.footprint, || say("footprint"))?;
        if let Some(entry) = program.entry {
            ensure(entry.own + entry.discount == program.occupies(), || {
                say("charge")
            })?;
            ensure(entry.acting.is_some() == program.is_silent(), || {
                say("phase")
            })?;
        }
        Ok(())
    }

    fn check_request(&self, id: RequestId) -> Result<(), Error> {
        let book = &self.book;
        let Some(request) = book.requests.get(&id) else {
            return Ok(());
        };
        let program = book.programs.get(request.program.0);
        let Some(program) = program else {
            return Err(Error::Invariant(format!("request {id} without a program")));
        };
        let waits = program.waiting.get(&request.place) == Some(&id);
        let flies = program.flying.contains(&id);
        let right = match request.state {
            RequestState::Arrived | RequestState::Held => waits && !flies,
            RequestState::InFlight(seat) => flies && !waits && program.seat == Some(seat),
            RequestState::Orphaned => !flies && !waits && program.orphans > 0,
        };
        ensure(right, || format!("request {id} is {:?}", request.state))
    }

    fn check_worker(&self, worker: &Worker) -> Result<(), Error> {
        let book = &self.book;
        let say = |what: &str| format!("worker {}: {what}", worker.seat);
        let mut fresh = Worker::new(worker.seat, worker.facts, book.config.paper_half_life_ms);
        let mut in_flight = 0;
        for (key, program) in &book.programs {
            if let Some(entry) = program.entry.filter(|entry| entry.seat == worker.seat) {
                entry.write(ProgramKey(key), &mut fresh);
                in_flight += program.flying.len();
            }
        }
        ensure(fresh.own == worker.own, || say("own charges"))?;
        ensure(fresh.shared.once() == worker.shared.once(), || {
            say("shared prefixes")
        })?;
        ensure(fresh.acting == worker.acting, || say("acting programs"))?;
        ensure(fresh.reasoning == worker.reasoning, || {
            say("reasoning programs")
        })?;
        ensure(fresh.displaceable == worker.displaceable, || {
            say("displaceable programs")
        })?;
        ensure(fresh.marked == worker.marked, || say("marked programs"))?;
        ensure(in_flight == worker.in_flight as usize, || {
            say("requests in flight")
        })?;
        for (place, id) in &worker.deferred {
            let request = book.requests.get(id);
            let right = request.is_some_and(|r| {
                r.place == *place
                    && r.state == RequestState::Held
                    && book[r.program].seat == Some(worker.seat)
            });
            ensure(right, || say(&format!("request {id} is deferred here")))?;
        }
        Ok(())
    }

    fn check_queue(&self) -> Result<(), Error> {
        let book = &self.book;
        let mut standing = BTreeSet::new();
        let tenants = &book.queue.tenants;
        let global = [Class::Returning, Class::New].map(|class| tenants.lines(class));
        let lines = global
            .into_iter()
            .flatten()
            .chain([&book.queue.claims])
            .chain(book.workers.values().map(|w| &w.returning));
        for line in lines {
            for waiter in line.iter() {
                let program = book.programs.get(waiter.program.0);
                let right = program.and_then(|p| p.line).is_some_and(|line| match line {
                    Line::Global(_, w) | Line::Origin(_, w) | Line::Claim(_, w) => w == waiter,
                });
                ensure(right && standing.insert(waiter.program), || {
                    format!("{waiter:?} stands in a line that its program does not know")
                })?;
                ensure(book.waiter(waiter.program) == Some(waiter), || {
                    format!("{waiter:?} is not how its program waits")
                })?;
            }
        }
        let in_line = book.programs.iter().filter(|(_, p)| p.line.is_some());
        ensure(in_line.count() == standing.len(), || {
            "a program is in no line though it says so".to_owned()
        })
    }
}
