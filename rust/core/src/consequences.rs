//! What some events entail beyond the request or seat that they name.

use crate::book::Book;
use crate::deadlines::Alarm;
use crate::event::Memory;
use crate::ids::{Millis, RequestId, Seat};
use crate::program::{ProgramKey, Trace};
use crate::reason::Reason;
use crate::transitions::{RequestState, Status, WorkerState};

impl Book {
    /// A seat is gone: its programs keep their sizes and look for another.
    pub(crate) fn abandon(&mut self, seat: Seat) {
        let Some(worker) = self.workers.get(&seat) else {
            return;
        };
        let hopeful = worker.returning.iter().map(|waiter| waiter.program);
        let outside: Vec<ProgramKey> = hopeful.chain(worker.claim).collect();
        for key in worker.members() {
            for request in std::mem::take(&mut self[key].flying) {
                if let Some(entry) = self.requests.get_mut(&request) {
                    entry.state = RequestState::Orphaned;
                    self[key].orphans += 1;
                }
            }
            self[key].footprint = 0;
            self.pause(key, Reason::WorkerDown);
            self[key].trace = None;
            self.reconsider(key);
        }
        for key in outside {
            self.step_out(key);
            self.reconsider(key);
        }
        if let Some(worker) = self.workers.get_mut(&seat) {
            worker.in_flight = 0;
        }
    }

    /// The next tick decides again about everything that a program waits with.
    pub(crate) fn reconsider(&mut self, key: ProgramKey) {
        let waiting: Vec<RequestId> = self[key].waiting.values().copied().collect();
        self.inbox.extend(waiting);
    }

    /// A seat's cache is empty: what was left or meant to be kept there is not any more.
    pub(crate) fn flush(&mut self, seat: Seat) {
        if let Some(worker) = self.workers.get_mut(&seat) {
            worker.epoch += 1;
        }
        self.touch(seat);
    }

    /// Weights are exchanged, or nobody believes it any more.
    pub(crate) fn end_sync(&mut self) {
        if let Some(until) = self.sync_until.take() {
            self.deadlines.clear(until, Alarm::WeightSync);
        }
        let seats: Vec<Seat> = self.workers.keys().copied().collect();
        for seat in seats {
            self.flush(seat);
        }
    }

    /// A request comes back unserved: to its old place, away from who refused it.
    pub(crate) fn take_back(&mut self, request: RequestId, now: Millis) {
        let Some(entry) = self.requests.get(&request) else {
            return;
        };
        let (key, place) = (entry.program, entry.place);
        let refused = entry.flies_at();
        if refused.is_some() {
            self.land(request);
        } else {
            self[key].orphans -= 1;
            self.counts.in_flight -= 1;
        }
        let Some(entry) = self.requests.get_mut(&request) else {
            return;
        };
        entry.state = RequestState::Arrived;
        entry.since = now;
        entry.decoded = 0;
        entry.kept = None;
        if let Some(seat) = refused
            && !entry.refused_by.contains(&seat.worker)
        {
            entry.refused_by.push(seat.worker);
        }
        self[key].waiting.insert(place, request);
        self[key].seen = now;
        self.counts.waiting += 1;
        self.inbox.push(request);
        self.realign(key);
        self.recharge(key);
        let again = now + self.config.tick_ms;
        self.deadlines.set(again, Alarm::Forgive(request));
    }

    /// A refused request may try everyone again once nobody else is left to try.
    pub(crate) fn forgive(&mut self, request: RequestId) {
        let Some(entry) = self.requests.get(&request) else {
            return;
        };
        let waits = matches!(entry.state, RequestState::Arrived | RequestState::Held);
        if !waits || entry.refused_by.is_empty() {
            return;
        }
        let ready = |state| state == WorkerState::Ready;
        let mut others = self.workers.values().filter(|w| ready(w.state));
        if others.any(|worker| !entry.refuses(worker.seat)) {
            let again = self.now + self.config.tick_ms;
            self.deadlines.set(again, Alarm::Forgive(request));
            return;
        }
        let key = entry.program;
        if let Some(entry) = self.requests.get_mut(&request) {
            entry.refused_by.clear();
        }
        self.step_out(key);
        self.reconsider(key);
    }

    /// A request failed in flight: a program that has no size yet keeps what it took to get here.
    pub(crate) fn keep_size(&mut self, request: RequestId) {
        let Some(entry) = self.requests.get(&request) else {
            return;
        };
        let in_flight = matches!(
            entry.state,
            RequestState::InFlight(_) | RequestState::Orphaned
        );
        let (key, footprint) = (entry.program, entry.footprint());
        if in_flight && self[key].context == 0 && self[key].peak == 0 {
            self[key].context = footprint;
        }
    }

    /// A program ended. What is under way of it goes on without a name.
    pub(crate) fn release(&mut self, key: ProgramKey) {
        if self[key].is_silent() {
            self.forget_program(key);
            return;
        }
        if let Some(name) = self[key].name.take() {
            self.names.remove(&name);
            self.counts.programs -= 1;
        }
        self.silence(key);
        if std::mem::take(&mut self[key].operator) {
            self.reconsider(key);
        }
        self.realign(key);
        self.recharge(key);
    }

    /// A program that an earlier run knew: on its seat where there is room, else paused.
    pub(crate) fn recall(
        &mut self,
        name: &str,
        memory: Memory<'_>,
        seat: Option<Seat>,
        now: Millis,
    ) {
        let key = self.enrol(Some(name));
        let program = &mut self[key];
        program.operator = memory.operator;
        program.group = memory.group.map(Into::into);
        program.context = memory.context_tokens;
        program.steps = 1;
        program.seen = now.saturating_sub(memory.idle_ms);
        let known = seat.and_then(|seat| self.workers.get(&seat));
        let fits = known.is_some_and(|worker| {
            worker.state == WorkerState::Ready
                && worker
                    .free()
                    .is_none_or(|free| memory.context_tokens <= free)
        });
        let trace = known.map(|worker| Trace {
            seat: worker.seat,
            epoch: worker.epoch,
            inflow: worker.inflow,
            device_slack: worker.free().unwrap_or(0),
            reach_slack: worker.free().unwrap_or(0),
        });
        if let (true, Some(seat)) = (fits && !memory.operator, seat) {
            self.set_status(key, Status::Active);
            let program = &mut self[key];
            program.seat = Some(seat);
            program.seated = now;
            program.steps_here = 1;
            self.recharge(key);
        } else {
            self.set_status(key, Status::Paused);
            self[key].trace = trace;
        }
        self.turned.push(key);
    }
}
