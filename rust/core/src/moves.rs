//! The changes that decisions stand for. Each keeps the whole book consistent.

use crate::book::Book;
use crate::config::PolicyName;
use crate::deadlines::Alarm;
use crate::decay::as_float;
use crate::decision::{Decision, Rejection};
use crate::ids::{Millis, RequestId, Seat, Tokens};
use crate::program::{Line, ProgramKey, Trace};
use crate::queue::Waiter;
use crate::reason::Reason;
use crate::transitions::{RequestState, Status};

/// Weight of the latest wait in the mean wait.
const WAIT_WEIGHT: f64 = 0.05;

/// A rejected client is told to come back no sooner, and no later.
const RETRY_AFTER: (Millis, Millis) = (1_000, 60_000);

impl Book {
    // === Requests ===

    /// Admits a waiting request to its program's seat.
    pub(crate) fn send(&mut self, request: RequestId, reason: Reason) {
        let Some(entry) = self.requests.get(&request) else {
            return;
        };
        let (key, place) = (entry.program, entry.place);
        let Some(seat) = self[key].seat else {
            return;
        };
        self.stop_waiting(request);
        let epoch = self.workers.get(&seat).map(|worker| worker.epoch);
        let program = &self[key];
        let continues =
            program.steps_here > 0 && program.flying.is_empty() && program.epoch == epoch;
        let context = self[key].context;
        let Some(entry) = self.requests.get_mut(&request) else {
            return;
        };
        entry.state = RequestState::InFlight(seat);
        entry.kept = continues.then_some(context);
        let footprint = entry.footprint();
        let program = &mut self[key];
        program.waiting.remove(&place);
        program.flying.push(request);
        program.footprint += footprint;
        self.counts.in_flight += 1;
        if let Some(worker) = self.workers.get_mut(&seat) {
            worker.in_flight += 1;
        }
        self.recharge(key);
        self.touch(seat);
        self.out.push(Decision::Admit {
            request,
            seat,
            reason,
        });
    }

    /// Tells an undecided request to wait; says nothing to one that already does.
    pub(crate) fn hold(&mut self, request: RequestId, reason: Reason) {
        let limit = self.config.hold_limit_ms;
        let Some(entry) = self.requests.get_mut(&request) else {
            return;
        };
        if entry.state != RequestState::Arrived {
            return;
        }
        entry.state = RequestState::Held;
        let due = entry.since + limit;
        self.held += 1;
        self.deadlines.set(due, Alarm::HoldLimit(request));
        self.out.push(Decision::Hold { request, reason });
    }

    /// Ends a waiting request with an error.
    pub(crate) fn reject(&mut self, request: RequestId, kind: Rejection, reason: Reason) {
        let (soon, late) = RETRY_AFTER;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped"
        )]
        let retry_after = (self.mean_wait as Millis).clamp(soon, late);
        self.forget_request(request);
        self.out.push(Decision::Reject {
            request,
            kind,
            retry_after,
            reason,
        });
    }

    /// Takes a request off the waiting ones, in whatever way it waited.
    fn stop_waiting(&mut self, request: RequestId) {
        let (now, limit) = (self.now, self.config.hold_limit_ms);
        let Some(entry) = self.requests.get(&request) else {
            return;
        };
        let (key, place, since) = (entry.program, entry.place, entry.since);
        let was_held = entry.state == RequestState::Held;
        if was_held {
            self.held -= 1;
            self.deadlines
                .clear(since + limit, Alarm::HoldLimit(request));
            let wait = as_float(now.saturating_sub(since));
            self.mean_wait += WAIT_WEIGHT * (wait - self.mean_wait);
        }
        self.counts.waiting -= 1;
        if let Some(seat) = self[key].seat
            && let Some(worker) = self.workers.get_mut(&seat)
        {
            worker.deferred.remove(&place);
        }
    }

    /// Removes a request, and its program where nothing is left of it.
    pub(crate) fn forget_request(&mut self, request: RequestId) {
        let Some(entry) = self.requests.get(&request) else {
            return;
        };
        let (key, place) = (entry.program, entry.place);
        match entry.state {
            RequestState::Arrived | RequestState::Held => {
                self.stop_waiting(request);
                self[key].waiting.remove(&place);
            }
            RequestState::InFlight(_) => self.land(request),
            RequestState::Orphaned => {
                self[key].orphans -= 1;
                self.counts.in_flight -= 1;
            }
        }
        self.requests.remove(&request);
        self.settle(key);
    }

    /// Takes a request out of flight.
    pub(crate) fn land(&mut self, request: RequestId) {
        let Some(entry) = self.requests.get(&request) else {
            return;
        };
        let Some(seat) = entry.flies_at() else {
            return;
        };
        let (key, footprint) = (entry.program, entry.footprint());
        let program = &mut self[key];
        program.flying.retain(|flying| *flying != request);
        program.footprint -= footprint;
        self.counts.in_flight -= 1;
        if let Some(worker) = self.workers.get_mut(&seat) {
            worker.in_flight -= 1;
        }
        self.touch(seat);
    }

    // === Programs ===

    /// After a request of it ended: its entry, or its end.
    pub(crate) fn settle(&mut self, key: ProgramKey) {
        let now = self.now;
        let program = &mut self[key];
        if program.flying.is_empty() && program.peak > 0 {
            program.context = std::mem::take(&mut program.peak);
        }
        if program.is_silent() {
            program.seen = now;
            if program.is_over() || program.status == Status::New {
                self.forget_program(key);
                return;
            }
            self.turned.push(key);
        }
        self.realign(key);
        self.recharge(key);
    }

    /// Removes a program. Its requests must be gone.
    pub(crate) fn forget_program(&mut self, key: ProgramKey) {
        self.step_out(key);
        self.silence(key);
        self.discharge(key);
        let program = self.programs.remove(key.0);
        self.queue.tenants.leave(program.tenant);
        if let Some(count) = self.count_of(program.status) {
            *count -= 1;
        }
        if let Some(name) = program.name {
            self.names.remove(&name);
            self.counts.programs -= 1;
        }
    }

    /// Gives a waiting program a seat. Its requests are sent next.
    pub(crate) fn place(&mut self, key: ProgramKey, seat: Seat, reason: &Reason) {
        let now = self.now;
        self.step_out(key);
        let returns = self[key].status == Status::Paused;
        self.set_status(key, Status::Active);
        let program = &mut self[key];
        program.seat = Some(seat);
        program.seated = now;
        program.steps_here = 0;
        program.marked = false;
        program.prepared = false;
        if returns && let Some(program) = program.name.clone() {
            self.out.push(Decision::Restore {
                program,
                seat,
                reason: reason.clone(),
            });
        }
        self.recharge(key);
    }

    /// Takes a program's seat away. Nothing of it may be in flight there.
    pub(crate) fn pause(&mut self, key: ProgramKey, reason: Reason) {
        let Some(seat) = self[key].seat else {
            return;
        };
        self.leave_seat(key, Status::Paused);
        if let Some(program) = self[key].name.clone() {
            self.out.push(Decision::Pause {
                program,
                seat,
                reason,
            });
        }
    }

    /// The same without a word: for a newcomer whose only request bounced.
    pub(crate) fn unseat(&mut self, key: ProgramKey) {
        self.leave_seat(key, Status::New);
    }

    fn leave_seat(&mut self, key: ProgramKey, to: Status) {
        let Some(seat) = self[key].seat else {
            return;
        };
        self.discharge(key);
        let waiting: Vec<_> = self[key].waiting.keys().copied().collect();
        if let Some(worker) = self.workers.get_mut(&seat) {
            for place in waiting {
                worker.deferred.remove(&place);
            }
            let charged = worker.charged();
            let slack = |reach: Option<Tokens>| reach.unwrap_or(0).saturating_sub(charged);
            let trace = Trace {
                seat,
                epoch: worker.epoch,
                inflow: worker.inflow,
                device_slack: slack(worker.capacity()),
                reach_slack: slack(worker.reach()),
            };
            self[key].trace = Some(trace);
        }
        self.set_status(key, to);
        let program = &mut self[key];
        program.seat = None;
        program.marked = false;
        program.displaceable = false;
    }

    // === Lines ===

    /// What a waiting program looks like in a queue.
    pub(crate) fn waiter(&self, key: ProgramKey) -> Option<Waiter> {
        let program = &self[key];
        let (place, request) = program.waiting.first_key_value()?;
        let prompt = self.requests.get(request)?.prompt;
        Some(Waiter {
            size: program.occupies_with(prompt),
            place: *place,
            program: key,
        })
    }

    /// Puts a program in line.
    pub(crate) fn step_in(&mut self, key: ProgramKey, line: Line) {
        self.step_out(key);
        let tenant = self[key].tenant;
        match line {
            Line::Global(class, waiter) => self.queue.tenants.insert(tenant, class, waiter),
            Line::Origin(seat, waiter) => {
                if let Some(worker) = self.workers.get_mut(&seat) {
                    worker.returning.insert(waiter);
                }
                self.touch(seat);
            }
            Line::Claim(seat, waiter) => {
                self.queue.claims.insert(waiter);
                if let Some(worker) = self.workers.get_mut(&seat) {
                    worker.claim = Some(key);
                }
            }
        }
        self[key].line = Some(line);
    }

    /// After its size, its class or its earliest request changed: the same line, at the right place.
    pub(crate) fn realign(&mut self, key: ProgramKey) {
        if let Some(line) = self.step_out(key)
            && let Some(waiter) = self.waiter(key)
        {
            // The other policies have one line for both classes.
            let line = match line {
                Line::Global(..) if self.config.policy == PolicyName::Adaptive => {
                    Line::Global(self[key].class(), waiter)
                }
                _ => line.of(waiter),
            };
            self.step_in(key, line);
        }
    }

    /// Takes it out, wherever it stands.
    pub(crate) fn step_out(&mut self, key: ProgramKey) -> Option<Line> {
        let line = self[key].line.take()?;
        let tenant = self[key].tenant;
        match line {
            Line::Global(class, waiter) => self.queue.tenants.remove(tenant, class, &waiter),
            Line::Origin(seat, waiter) => {
                if let Some(worker) = self.workers.get_mut(&seat) {
                    worker.returning.remove(&waiter);
                }
            }
            Line::Claim(seat, waiter) => {
                self.queue.claims.remove(&waiter);
                if let Some(worker) = self.workers.get_mut(&seat) {
                    worker.claim = None;
                }
                self.touch(seat);
            }
        }
        Some(line)
    }
}
