//! The scheduler of thunder-router: programs, workers, queue, policy, decisions. No I/O, no clock.
