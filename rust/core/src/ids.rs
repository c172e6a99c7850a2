//! Names of things: requests, workers, ranks, and the two units everything is measured in.

use std::fmt;

/// Milliseconds of any monotonic clock.
pub type Millis = u64;

/// A count of tokens.
pub type Tokens = u64;

/// One exchange with a worker, named by the caller; unique while it is held or in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One inference server, named by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

/// One data-parallel rank of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u16);

/// One (worker, rank) pair: the unit of KV capacity, since every rank has a pool of its own.
///
/// A program that may run has one seat, and all its requests go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat {
    /// The server.
    pub worker: WorkerId,
    /// Its rank, 0 without data parallelism.
    pub rank: Rank,
}

impl Seat {
    /// The seat of this worker and rank.
    pub const fn new(worker: u32, rank: u16) -> Self {
        Self {
            worker: WorkerId(worker),
            rank: Rank(rank),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `3`, and `3.1` for rank 1 of worker 3.
impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Rank(0) => write!(f, "{}", self.worker),
            Rank(rank) => write!(f, "{}.{rank}", self.worker),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_names_its_rank_only_where_there_are_several() {
        assert_eq!(Seat::new(3, 0).to_string(), "3");
        assert_eq!(Seat::new(3, 1).to_string(), "3.1");
    }
}
