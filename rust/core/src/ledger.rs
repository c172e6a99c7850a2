//! What seats are charged for whom: the only place where a charge changes.
//!
//! A seat's book has one entry per program on it, and everything that is summed or ordered per seat
//! follows from these entries. When anything about a program changes, its entry is written anew;
//! nothing else ever touches a sum.

use crate::book::Book;
use crate::config::PolicyName;
use crate::event::Tenant;
use crate::ids::{Millis, Seat, Tokens};
use crate::program::ProgramKey;
use crate::worker::Worker;

/// A seat's entry for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) seat: Seat,
    /// What the program is charged for itself.
    pub(crate) own: Tokens,
    /// What it is let off, since others share it.
    pub(crate) discount: Tokens,
    pub(crate) prefix: Option<u64>,
    /// Since when it acts; None while it reasons.
    pub(crate) acting: Option<Millis>,
    /// Whether it may be displaced.
    pub(crate) displaceable: bool,
    /// Whether it is paused at the end of its turn.
    pub(crate) marked: bool,
}

impl Entry {
    pub(crate) fn write(&self, key: ProgramKey, worker: &mut Worker) {
        worker.own += self.own;
        if let Some(prefix) = self.prefix {
            worker.shared.join(prefix, self.discount);
        }
        if let Some(since) = self.acting {
            worker.acting.insert(self.own, key);
            worker.fading.add(self.own, since);
            if self.displaceable {
                worker.displaceable.insert(self.own, key);
            }
        } else {
            worker.reasoning.insert(self.own, key);
            if self.marked {
                worker.marked.insert(self.own, key);
            }
        }
    }

    fn erase(&self, key: ProgramKey, worker: &mut Worker) {
        worker.own -= self.own;
        if let Some(prefix) = self.prefix {
            worker.shared.leave(prefix, self.discount);
        }
        if let Some(since) = self.acting {
            worker.acting.remove(self.own, key);
            worker.fading.remove(self.own, since);
            worker.displaceable.remove(self.own, key);
        } else {
            worker.reasoning.remove(self.own, key);
            worker.marked.remove(self.own, key);
        }
    }
}

impl Book {
    /// Writes a program's entry anew. Call it after any change to a program that has a seat.
    pub(crate) fn recharge(&mut self, key: ProgramKey) {
        let program = &mut self.programs[key.0];
        if !program.is_silent() {
            program.displaceable = false;
        }
        let Some(seat) = program.seat else {
            return;
        };
        let Some(worker) = self.workers.get_mut(&seat) else {
            return;
        };
        let size = program.occupies();
        let believed = match program.prefix {
            Some(prefix) if self.config.shared_prefix => worker.shared.believed(prefix),
            _ => 0,
        };
        let discount = believed.min(size);
        let entry = Entry {
            seat,
            own: size - discount,
            discount,
            prefix: program.prefix,
            acting: program.is_silent().then_some(program.seen),
            displaceable: program.displaceable,
            marked: program.marked,
        };
        if program.entry == Some(entry) {
            return;
        }
        let before = program.entry.map_or(0, |entry| entry.own);
        self.queue.tenants.charge(program.tenant, before, entry.own);
        if let Some(old) = program.entry.replace(entry) {
            // Joining first keeps a shared prefix known while its only member is written anew.
            if let Some(prefix) = entry.prefix {
                worker.shared.join(prefix, entry.discount);
            }
            old.erase(key, worker);
            entry.write(key, worker);
            if let Some(prefix) = entry.prefix {
                worker.shared.leave(prefix, entry.discount);
            }
        } else {
            entry.write(key, worker);
        }
        self.touch(seat);
    }

    /// Accounts a program to another tenant, with what it is charged and where it waits.
    pub(crate) fn account_to(&mut self, key: ProgramKey, tenant: Option<Tenant<'_>>) {
        let tenant = tenant.filter(|_| self.config.policy == PolicyName::Adaptive);
        let (from, charged) = (self[key].tenant, self[key].entry.map_or(0, |e| e.own));
        let to = self.queue.tenants.join(tenant);
        if from != to {
            let line = self.step_out(key);
            self.queue.tenants.charge(from, charged, 0);
            self.queue.tenants.charge(to, 0, charged);
            self[key].tenant = to;
            if let Some(line) = line {
                self.step_in(key, line);
            }
        }
        self.queue.tenants.leave(from);
    }

    /// Takes a program's entry out of its seat's book.
    pub(crate) fn discharge(&mut self, key: ProgramKey) {
        let Some(entry) = self[key].entry.take() else {
            return;
        };
        let (now, tenant) = (self.now, self[key].tenant);
        self.queue.tenants.charge(tenant, entry.own, 0);
        if let Some(worker) = self.workers.get_mut(&entry.seat) {
            entry.erase(key, worker);
            worker.freed.add(crate::decay::as_float(entry.own), now);
        }
        self.touch(entry.seat);
    }

    /// What a program of this size would add to a seat.
    pub(crate) fn need(&self, worker: &Worker, prefix: Option<u64>, size: Tokens) -> Tokens {
        if self.config.shared_prefix {
            worker.shared.need(prefix, size)
        } else {
            size
        }
    }
}
