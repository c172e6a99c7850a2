//! Who waits, who is next, and what is promised to those who waited long.

use thunder_core::{Millis, RequestId, Tokens};

use super::Naive;

impl Naive {
    /// Waiting programs without a seat.
    pub(super) fn queued(&self) -> Vec<usize> {
        let all = self.known().into_iter();
        all.filter(|p| self.is(*p).seat.is_none() && self.waits(*p).is_some())
            .collect()
    }

    pub(super) fn size(&self, program: usize) -> Tokens {
        self.occupies(program, self.waits(program).expect("it waits").prompt)
    }

    pub(super) fn place(&self, program: usize) -> RequestId {
        self.waits(program).expect("it waits").id
    }

    pub(super) fn returns(&self, program: usize) -> bool {
        self.is(program).steps > 0
    }

    pub(super) fn waited(&self, program: usize) -> Millis {
        self.now - self.waits(program).expect("it waits").arrived
    }

    pub(super) fn is_overdue(&self, program: usize) -> bool {
        let bound = self.config.reservation_ms;
        bound.is_some_and(|bound| self.waited(program) >= bound)
    }

    pub(super) fn claimer(&self, seat: usize) -> Option<usize> {
        self.queued()
            .into_iter()
            .find(|p| self.is(*p).claim == Some(seat))
    }

    /// Seats that take new work and are promised to nobody.
    fn open_seats(&self) -> Vec<usize> {
        let seats = 0..self.workers.len();
        seats
            .filter(|seat| self.is_ready(*seat) && self.claimer(*seat).is_none())
            .collect()
    }

    pub(super) fn roomiest(&self, returning: bool) -> Option<(Tokens, usize)> {
        let seats = self.open_seats().into_iter();
        seats.map(|seat| (self.room(seat, returning), seat)).max()
    }

    /// A tenant's waiters of one class without a claim.
    pub(super) fn line(&self, tenant: Option<&String>, returning: bool) -> Vec<usize> {
        let queued = self.queued().into_iter();
        let unclaimed = queued.filter(|p| self.is(*p).claim.is_none());
        unclaimed
            .filter(|p| self.is(*p).tenant.as_ref() == tenant && self.returns(*p) == returning)
            .collect()
    }

    pub(super) fn admit_next(&mut self) -> bool {
        let fits = |program: usize, returning: bool| {
            let roomiest = self.roomiest(returning);
            roomiest.is_some_and(|(room, _)| self.size(program) <= room)
        };
        let queued = self.queued().into_iter();
        let claimed = queued.filter(|p| self.is(*p).claim.is_some());
        let promised = claimed
            .filter(|p| fits(*p, false))
            .min_by_key(|p| self.place(*p));
        let mut candidates: Vec<usize> = promised.into_iter().collect();
        for tenant in self.turns() {
            let mut fitting: Vec<usize> = Vec::new();
            for returning in [true, false] {
                let line = self.line(tenant.as_ref(), returning).into_iter();
                fitting.extend(line.filter(|p| fits(*p, returning)));
            }
            let oldest = fitting.into_iter().min_by_key(|p| self.place(*p));
            candidates.extend(oldest.filter(|p| self.is_overdue(*p)));
            for returning in [true, false] {
                let line = self.line(tenant.as_ref(), returning).into_iter();
                candidates.extend(line.min_by_key(|p| (self.size(*p), self.place(*p))));
            }
        }
        for program in candidates {
            if let Some((room, seat)) = self.roomiest(self.returns(program))
                && self.size(program) <= room
            {
                self.admit(program, seat);
                return true;
            }
        }
        false
    }

    pub(super) fn serve_claim(&mut self, seat: usize) {
        let Some(program) = self.claimer(seat) else {
            return;
        };
        if !self.is_ready(seat) || self.size(program) > self.workers[seat].capacity {
            self.of(program).claim = None;
        } else if self.size(program) <= self.room(seat, self.returns(program)) {
            self.admit(program, seat);
        }
    }

    pub(super) fn make_claims(&mut self) {
        loop {
            let mut oldest = self.turns().into_iter().filter_map(|tenant| {
                let lines = [true, false].map(|returning| self.line(tenant.as_ref(), returning));
                lines.concat().into_iter().min_by_key(|p| self.place(*p))
            });
            let Some(oldest) = oldest.next().filter(|p| self.is_overdue(*p)) else {
                return;
            };
            let seats = self.open_seats().into_iter();
            let large = seats.filter(|seat| self.size(oldest) <= self.workers[*seat].capacity);
            let Some(seat) = large.max_by_key(|seat| (self.room(*seat, false), *seat)) else {
                return;
            };
            self.of(oldest).claim = Some(seat);
            self.serve_claim(seat);
        }
    }
}
