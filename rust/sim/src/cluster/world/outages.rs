//! Engines that go and come back.

use super::{Flight, World, engine};
use crate::cluster::router::RETRY_MS;

impl World<'_> {
    /// An engine is gone: its KV, its queue, and what it ran.
    pub(super) fn lose(&mut self, worker: usize) {
        if !std::mem::replace(&mut self.up[worker], false) {
            return;
        }
        let counts = self.engines[worker].counts();
        self.buried.0 += counts.retractions;
        self.buried.1 += counts.recomputed;
        if let Ok(fresh) = engine(self.spec, worker) {
            self.engines[worker] = fresh;
        }
        self.wind(worker);
        self.router.worker_down(worker, self.now_us / 1_000);
        let there = |flight: &Flight| flight.worker == worker;
        let lost = self.flights.iter().filter(|(_, flight)| there(flight));
        let lost: Vec<u64> = lost.map(|(request, _)| *request).collect();
        for request in lost {
            self.fail(request);
        }
    }

    pub(super) fn come_back(&mut self, worker: usize) {
        if !std::mem::replace(&mut self.up[worker], true) {
            self.router.worker_up(worker, self.now_us / 1_000);
        }
    }

    /// A request ended without an answer: its client tries again soon.
    pub(super) fn fail(&mut self, request: u64) {
        self.router.failed(request, self.now_us / 1_000);
        if let Some(flight) = self.flights.remove(&request) {
            self.tally.report.failed += u64::from(self.now_us >= self.warm_us);
            let at_us = self.now_us + RETRY_MS * 1_000;
            self.ready.insert((at_us, flight.slot));
        }
    }
}
