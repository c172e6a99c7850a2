//! Workers that come, stand aside and go.

use thunder_core::{Tokens, WorkerId, WorkerState};

use super::{At, Naive};

impl Naive {
    fn ranks(&self, worker: WorkerId) -> Vec<usize> {
        let seats = 0..self.workers.len();
        seats
            .filter(|seat| self.workers[*seat].seat.worker == worker)
            .collect()
    }

    pub(super) fn is_ready(&self, seat: usize) -> bool {
        self.workers[seat].state == WorkerState::Ready
    }

    /// The largest that some seat could hold alone.
    pub(super) fn largest(&self) -> Tokens {
        let up = self.workers.iter().filter(|w| w.state != WorkerState::Down);
        up.map(|w| w.capacity).max().expect("one is always up")
    }

    /// Every rank of this worker is told the same. False where that is no transition.
    pub fn changes(&mut self, worker: WorkerId, to: WorkerState) -> bool {
        let ranks = self.ranks(worker);
        let from = self.workers[ranks[0]].state;
        let state = match (from, to) {
            (_, WorkerState::Ready | WorkerState::Down) => to,
            (WorkerState::Down, _) => return false,
            (WorkerState::Draining, _) => from,
            _ => to,
        };
        for seat in ranks {
            self.workers[seat].state = state;
            if state == WorkerState::Down {
                self.abandon(seat);
            }
        }
        true
    }

    fn abandon(&mut self, seat: usize) {
        for program in self.on(seat) {
            let requests = self.requests.iter_mut();
            for request in requests.filter(|r| r.program == program && r.at == At::Flying) {
                request.at = At::Orphaned;
            }
            self.pause(program);
        }
        if let Some(program) = self.claimer(seat) {
            self.of(program).claim = None;
        }
    }
}
