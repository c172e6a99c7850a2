//! One exchange, from its arrival to its end.

use crate::ids::{Millis, Seat, Tokens, WorkerId};
use crate::program::ProgramKey;
use crate::queue::Place;
use crate::transitions::RequestState;

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) program: ProgramKey,
    pub(crate) state: RequestState,
    /// Its place in line, kept however often it bounces.
    pub(crate) place: Place,
    pub(crate) arrived: Millis,
    /// Since when it waits: its arrival, or its last bounce.
    pub(crate) since: Millis,
    pub(crate) prompt: Tokens,
    pub(crate) decoded: Tokens,
    pub(crate) prefix: Option<u64>,
    /// Workers that refused it; it does not go there again while others serve.
    pub(crate) refused_by: Vec<WorkerId>,
    /// It continues a program that kept its seat, so this much of its prompt was meant to be
    /// cached there.
    pub(crate) kept: Option<Tokens>,
}

impl Request {
    /// Tokens that it occupies in flight.
    pub(crate) const fn footprint(&self) -> Tokens {
        self.prompt + self.decoded
    }

    /// Where it is in flight.
    pub(crate) const fn flies_at(&self) -> Option<Seat> {
        match self.state {
            RequestState::InFlight(seat) => Some(seat),
            _ => None,
        }
    }

    /// Whether it was refused by the worker of this seat.
    pub(crate) fn refuses(&self, seat: Seat) -> bool {
        self.refused_by.contains(&seat.worker)
    }
}
