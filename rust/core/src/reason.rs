//! Why a decision was made, with the numbers behind it. The sentence is written only when asked.

use std::fmt;

use crate::ids::{Millis, Seat, Tokens};

/// A program's need against a seat's room, as they stood when the decision was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Room {
    /// What the program would add to the seat.
    pub need: Tokens,
    /// The seat.
    pub seat: Seat,
    /// Its capacity that nobody is charged for.
    pub free: Tokens,
    /// Its capacity.
    pub capacity: Tokens,
    /// What is kept free for growth, as a fraction of capacity.
    pub margin: f64,
}

/// Why.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Admitted: the seat has the fewest requests in flight.
    LeastLoaded {
        /// The seat.
        seat: Seat,
        /// Its requests in flight before this one.
        in_flight: u32,
    },
    /// Admitted: its program has this seat.
    Seated {
        /// The seat.
        seat: Seat,
    },
    /// Admitted or restored: it fits.
    Fits(Room),
    /// Restored where its KV may still be.
    Origin(Room),
    /// Admitted to the seat that was reserved for it.
    Reserved {
        /// How it fits.
        room: Room,
        /// How long it waited.
        waited: Millis,
    },
    /// Held: it does not fit.
    NoRoom(Room),
    /// Held: freed room goes to older waiters first.
    Behind {
        /// Requests that wait.
        waiting: usize,
    },
    /// Held: a tenant that occupies less for its weight goes first.
    AnotherTurn {
        /// What its own tenant occupies.
        occupied: Tokens,
        /// Its own tenant's weight.
        weight: u32,
        /// What the other occupies.
        other: Tokens,
        /// The other's weight.
        other_weight: u32,
    },
    /// Held: no worker takes new work.
    NoWorker,
    /// Rejected: no worker has been up for too long.
    Deserted,
    /// Held: its program's worker takes no new work for now.
    WorkerUnready {
        /// The seat its program keeps.
        seat: Seat,
    },
    /// Held: the weights are being exchanged.
    WeightSync,
    /// Held or paused: an operator said so.
    Operator,
    /// Held: the only workers left refused it a moment ago.
    Refused,
    /// Paused: the seat's charge passed its limit.
    Pressure {
        /// The seat's charge.
        charged: Tokens,
        /// Where pressure begins.
        limit: Tokens,
        /// Its capacity.
        capacity: Tokens,
    },
    /// Paused: it will be idle for longer than restoring it costs, and someone waits.
    Displaced {
        /// How long it is expected to be idle still.
        expected: Millis,
        /// What that had to exceed.
        threshold: Millis,
    },
    /// Paused: silent beyond its lease.
    Lease {
        /// How long it was silent.
        silent: Millis,
        /// Its lease.
        lease: Millis,
    },
    /// Paused: it had its seat for its slice while another waited as long.
    TimeSlice {
        /// How long it had the seat.
        seated: Millis,
        /// How long the other has waited.
        waited: Millis,
    },
    /// Paused: its worker is draining.
    Draining,
    /// Paused: its worker is gone.
    WorkerDown,
    /// Paused: its worker refused its turn.
    Bounced,
    /// Rejected: too many wait.
    QueueFull {
        /// Requests that wait.
        waiting: usize,
        /// How many may.
        limit: usize,
    },
    /// Rejected: held for too long.
    HoldLimit {
        /// How long it was held.
        held: Millis,
        /// How long it may be.
        limit: Millis,
    },
    /// Rejected: no worker can hold it even when empty.
    Oversize {
        /// What it needs.
        need: Tokens,
        /// The largest worker's capacity.
        largest: Tokens,
    },
    /// Its turn is next.
    Next(Room),
    /// Expired: silent for too long.
    Idle {
        /// How long it was silent.
        silent: Millis,
        /// How long it may be.
        limit: Millis,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeastLoaded { seat, in_flight } => write!(
                f,
                "worker {seat} has the fewest requests in flight: {in_flight}"
            ),
            Self::Seated { seat } => write!(f, "its program runs on worker {seat}"),
            Self::Fits(room) => write!(f, "fits: {room}"),
            Self::Origin(room) => write!(f, "back where its KV may still be: {room}"),
            Self::Reserved { room, waited } => {
                write!(f, "room was kept for it after {}: {room}", Seconds(*waited))
            }
            Self::NoRoom(room) => write!(f, "held: {room}"),
            Self::Behind { waiting } => {
                write!(f, "held: {} wait for freed room", Grouped(*waiting as u64))
            }
            Self::AnotherTurn {
                occupied,
                weight,
                other,
                other_weight,
            } => write!(
                f,
                "held: its tenant occupies {} at weight {weight}, one with {} at weight \
                 {other_weight} goes first",
                Grouped(*occupied),
                Grouped(*other)
            ),
            Self::NoWorker => f.write_str("held: no worker is ready"),
            Self::Deserted => f.write_str("no worker is up, and none came back in time"),
            Self::WorkerUnready { seat } => write!(f, "held: worker {seat} is not ready"),
            Self::WeightSync => f.write_str("held: weights are being exchanged"),
            Self::Operator => f.write_str("paused by an operator"),
            Self::Refused => f.write_str("held: every ready worker just refused it"),
            Self::Pressure {
                charged,
                limit,
                capacity,
            } => write!(
                f,
                "pressure: {} charged of {}, limit {}",
                Grouped(*charged),
                Grouped(*capacity),
                Grouped(*limit)
            ),
            Self::Displaced {
                expected,
                threshold,
            } => write!(
                f,
                "it is expected to be idle for {} more, worth displacing above {}",
                Seconds(*expected),
                Seconds(*threshold)
            ),
            Self::Lease { silent, lease } => write!(
                f,
                "silent for {}, lease {}",
                Seconds(*silent),
                Seconds(*lease)
            ),
            Self::TimeSlice { seated, waited } => write!(
                f,
                "ran for {} while another waited {}",
                Seconds(*seated),
                Seconds(*waited)
            ),
            Self::Draining => f.write_str("its worker is draining"),
            Self::WorkerDown => f.write_str("its worker is down"),
            Self::Bounced => f.write_str("its worker refused its turn"),
            Self::QueueFull { waiting, limit } => write!(
                f,
                "{} requests wait, limit {}",
                Grouped(*waiting as u64),
                Grouped(*limit as u64)
            ),
            Self::HoldLimit { held, limit } => {
                write!(f, "held for {}, limit {}", Seconds(*held), Seconds(*limit))
            }
            Self::Oversize { need, largest } => write!(
                f,
                "needs {}, the largest worker has {}",
                Grouped(*need),
                Grouped(*largest)
            ),
            Self::Next(room) => write!(f, "next in line: {room}"),
            Self::Idle { silent, limit } => write!(
                f,
                "silent for {}, limit {}",
                Seconds(*silent),
                Seconds(*limit)
            ),
        }
    }
}

/// `needs 41,200, worker 3 has 38,900 of 615,000 free, margin 5 %`
impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "needs {}, worker {} has {} of {} free, margin {:.0} %",
            Grouped(self.need),
            self.seat,
            Grouped(self.free),
            Grouped(self.capacity),
            self.margin * 100.0
        )
    }
}

/// A number with commas between thousands.
struct Grouped(u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (at, digit) in digits.char_indices() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// Milliseconds, told in seconds.
struct Seconds(Millis);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} s", self.0 / 1000, self.0 % 1000 / 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_explained_with_its_numbers() {
        let room = Room {
            need: 41_200,
            seat: Seat::new(3, 0),
            free: 38_900,
            capacity: 615_000,
            margin: 0.05,
        };
        assert_eq!(
            Reason::NoRoom(room).to_string(),
            "held: needs 41,200, worker 3 has 38,900 of 615,000 free, margin 5 %"
        );
    }

    #[test]
    fn thousands_are_grouped() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345_678, "12,345,678"),
        ] {
            assert_eq!(Grouped(number).to_string(), text);
        }
    }

    #[test]
    fn times_are_told_in_seconds() {
        let reason = Reason::Lease {
            silent: 61_250,
            lease: 60_000,
        };
        assert_eq!(reason.to_string(), "silent for 61.2 s, lease 60.0 s");
    }
}
