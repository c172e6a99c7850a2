//! Seats in order of what a policy looks for: the least loaded, the one with most room.

use std::collections::BTreeSet;

use crate::ids::{Seat, Tokens};
use crate::program::Class;

/// How a seat presents itself to waiters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It takes nobody.
    #[default]
    Out,
    /// It takes everybody: capacity is unknown, or nobody counts it.
    Open { in_flight: u32, programs: usize },
    /// It takes what fits.
    Room {
        /// For a program that returns.
        returning: Tokens,
        /// For a new one.
        new: Tokens,
        /// For one that returns, once its displaceable programs are gone; None without any.
        reclaimed: Option<Tokens>,
    },
}

/// All seats that take someone.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    open: BTreeSet<(u32, usize, Seat)>,
    returning: BTreeSet<(Tokens, Seat)>,
    new: BTreeSet<(Tokens, Seat)>,
    reclaimed: BTreeSet<(Tokens, Seat)>,
}

impl Standings {
    /// Moves a seat from where it stood to where it stands now.
    pub(crate) fn change(&mut self, seat: Seat, from: Standing, to: Standing) {
        if from == to {
            return;
        }
        match from {
            Standing::Out => {}
            Standing::Open {
                in_flight,
                programs,
            } => {
                self.open.remove(&(in_flight, programs, seat));
            }
            Standing::Room {
                returning,
                new,
                reclaimed,
            } => {
                self.returning.remove(&(returning, seat));
                self.new.remove(&(new, seat));
                if let Some(reclaimed) = reclaimed {
                    self.reclaimed.remove(&(reclaimed, seat));
                }
            }
        }
        match to {
            Standing::Out => {}
            Standing::Open {
                in_flight,
                programs,
            } => {
                self.open.insert((in_flight, programs, seat));
            }
            Standing::Room {
                returning,
                new,
                reclaimed,
            } => {
                self.returning.insert((returning, seat));
                self.new.insert((new, seat));
                if let Some(reclaimed) = reclaimed {
                    self.reclaimed.insert((reclaimed, seat));
                }
            }
        }
    }

    /// Seats that take everybody, least loaded first.
    pub(crate) fn open(&self) -> impl Iterator<Item = Seat> + '_ {
        self.open.iter().map(|(_, _, seat)| *seat)
    }

    /// Seats with room for this class, the roomiest first.
    pub(crate) fn roomiest(&self, class: Class) -> impl Iterator<Item = (Tokens, Seat)> + '_ {
        let seats = match class {
            Class::Returning => &self.returning,
            Class::New => &self.new,
        };
        seats.iter().rev().copied()
    }

    /// Seats with displaceable programs, the one with most room without them first.
    pub(crate) fn reclaimable(&self) -> impl Iterator<Item = (Tokens, Seat)> + '_ {
        self.reclaimed.iter().rev().copied()
    }
}
