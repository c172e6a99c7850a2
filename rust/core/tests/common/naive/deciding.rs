//! A tick: turns first, then relief, promises and the queue, until nothing changes any more.

use thunder_core::{Millis, RequestId, Tokens, WorkerState};

use super::{At, DEFERRED, Naive, Request, Verdict};

impl Naive {
    pub fn tick(&mut self, now: Millis) -> Vec<Verdict> {
        self.now = now;
        let limit = self.config.hold_limit_ms;
        for request in self.requests.clone() {
            if request.at == At::Held && request.arrived + limit <= now {
                self.out.push(Verdict::Reject(request.id));
                self.ends(&request);
            }
        }
        loop {
            let before = format!("{:?}{:?}{:?}", self.programs, self.requests, self.out);
            loop {
                let before = format!("{:?}{:?}", self.requests, self.out);
                self.settle_silent();
                self.take_turns();
                if before == format!("{:?}{:?}", self.requests, self.out) {
                    break;
                }
            }
            for seat in 0..self.workers.len() {
                self.relieve(seat);
            }
            for seat in 0..self.workers.len() {
                self.serve_claim(seat);
            }
            self.make_claims();
            while self.admit_next() {}
            if before == format!("{:?}{:?}{:?}", self.programs, self.requests, self.out) {
                break;
            }
        }
        for request in &mut self.requests {
            if request.at == At::Undecided {
                request.at = At::Held;
                self.out.push(Verdict::Hold(request.id));
            }
        }
        let mut out = std::mem::take(&mut self.out);
        out.sort();
        out
    }

    pub(super) fn take_turns(&mut self) {
        let mut looked_at = vec![0; self.workers.len()];
        for request in self.requests.clone() {
            if request.at == At::Held
                && request.deferred
                && let Some(seat) = self.is(request.program).seat
            {
                looked_at[seat] += 1;
                if looked_at[seat] > DEFERRED {
                    continue;
                }
            }
            if matches!(request.at, At::Flying | At::Orphaned)
                || !self.requests.iter().any(|r| r.id == request.id)
            {
                continue;
            }
            let key = request.program;
            if request.prompt > self.largest() {
                self.out.push(Verdict::Reject(request.id));
                self.ends(&request);
                continue;
            }
            match self.is(key).seat {
                Some(seat) => self.take_turn(&request, seat),
                None => self.queue(key),
            }
        }
    }

    pub(super) fn take_turn(&mut self, request: &Request, seat: usize) {
        let key = request.program;
        let between = !self.flies(key);
        match self.workers[seat].state {
            WorkerState::Ready => {}
            WorkerState::Draining if between => {
                self.pause(key);
                self.queue(key);
                return;
            }
            _ => {
                self.defer(request.id);
                return;
            }
        }
        if between && (self.slice_is_over(key, seat) || self.is(key).marked) {
            self.pause(key);
            self.queue(key);
            return;
        }
        let capacity = self.workers[seat].capacity;
        let size = self.occupies(key, request.prompt);
        let need = size.saturating_sub(self.occupies(key, 0));
        let over = (self.charged(seat) + need).saturating_sub(capacity);
        let victims = self.cheapest(self.acting(seat), over);
        let freed: Tokens = victims.iter().map(|p| self.occupies(*p, 0)).sum();
        if freed >= over && (over == 0 || size <= capacity) {
            for victim in victims {
                self.pause(victim);
            }
            self.send(request.id, seat);
        } else if between {
            self.pause(key);
            self.queue(key);
        } else {
            self.defer(request.id);
        }
    }

    /// It waits for the seat that its program has.
    fn defer(&mut self, id: RequestId) {
        let held = self.requests.iter_mut().find(|r| r.id == id);
        let held = held.expect("known");
        held.deferred = true;
        if held.at == At::Undecided {
            held.at = At::Held;
            self.out.push(Verdict::Hold(id));
        }
    }

    pub(super) fn queue(&mut self, key: usize) {
        if let Some(first) = self.waits(key).cloned()
            && self.is(key).context > self.largest()
        {
            self.of(key).context = first.prompt;
        }
    }

    pub(super) fn settle_silent(&mut self) {
        for key in self.known() {
            if let Some(seat) = self.is(key).seat
                && self.is_silent(key)
                && (self.is(key).marked || (self.is(key).turned && self.leaves(key, seat)))
            {
                self.pause(key);
            }
            self.of(key).turned = false;
        }
    }

    /// Whether a program gives up its seat as its turn ends.
    fn leaves(&self, program: usize, seat: usize) -> bool {
        let drains = self.workers[seat].state == WorkerState::Draining;
        drains || self.slice_is_over(program, seat)
    }

    pub(super) fn slice_is_over(&self, program: usize, seat: usize) -> bool {
        let Some(slice) = self.config.time_slice_ms else {
            return false;
        };
        let restore = Self::cost(self.is(program).context);
        let own = slice.max((self.config.time_slice_restore_factor * restore) as Millis);
        let oldest = || {
            let queued = self.queued().into_iter();
            queued.min_by_key(|p| self.place(*p))
        };
        let waiter = match self.config.reservation_ms {
            Some(_) => self.claimer(seat),
            None => oldest(),
        };
        waiter.is_some_and(|waiter| {
            self.now - self.is(program).seated >= own && self.waited(waiter) >= slice
        })
    }

    pub(super) fn admit(&mut self, key: usize, seat: usize) {
        let now = self.now;
        let first = self.place(key);
        let place = self.workers[seat].seat;
        let program = self.of(key);
        program.claim = None;
        let returns = program.had_seat;
        program.had_seat = true;
        program.seat = Some(seat);
        program.seated = now;
        program.steps_here = 0;
        program.marked = false;
        if returns && let Some(name) = program.name.clone() {
            self.out.push(Verdict::Restore(name, place));
        }
        self.send(first, seat);
    }

    pub(super) fn send(&mut self, id: RequestId, seat: usize) {
        let request = self
            .requests
            .iter_mut()
            .find(|r| r.id == id)
            .expect("known");
        request.at = At::Flying;
        self.out.push(Verdict::Admit(id, self.workers[seat].seat));
    }

    pub(super) fn pause(&mut self, key: usize) {
        for request in self.requests.iter_mut().filter(|r| r.program == key) {
            request.deferred = false;
        }
        let program = self.of(key);
        program.seat = None;
        program.marked = false;
        if let Some(name) = program.name.clone() {
            self.out.push(Verdict::Pause(name));
        }
    }
}
