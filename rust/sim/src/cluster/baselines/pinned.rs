//! Every program stays where it began: on the engine with the fewest programs then. Nothing is held,
//! so each engine serves first come, first served, as vLLM or `SGLang` behind a sticky gateway.

use std::collections::BTreeMap;

use thunder_core::Millis;

use super::Fleet;
use crate::cluster::router::{Ask, Order, Router};
use crate::engine::Finish;

/// See the module.
pub(in crate::cluster) struct Pinned {
    fleet: Fleet,
    homes: BTreeMap<String, usize>,
    programs: Vec<usize>,
    orders: Vec<Order>,
}

impl Pinned {
    pub(in crate::cluster) fn new(workers: usize) -> Self {
        Self {
            fleet: Fleet::new(workers),
            homes: BTreeMap::new(),
            programs: vec![0; workers],
            orders: Vec::new(),
        }
    }

    fn home(&mut self, program: &str) -> Option<usize> {
        if let Some(&home) = self.homes.get(program) {
            return Some(home);
        }
        let home = self.fleet.least(&self.programs)?;
        self.homes.insert(program.to_owned(), home);
        self.programs[home] += 1;
        Some(home)
    }
}

impl Router for Pinned {
    fn ask(&mut self, ask: &Ask<'_>, _: Millis) {
        let order = match self.home(ask.program) {
            Some(worker) => Order::send(ask.request, worker),
            None => Order::no_worker(ask.request),
        };
        self.orders.push(order);
    }

    fn finished(&mut self, _: u64, _: &Finish, _: Option<&str>, _: Millis) {}

    fn failed(&mut self, _: u64, _: Millis) {}

    fn released(&mut self, program: &str, _: Millis) {
        if let Some(worker) = self.homes.remove(program) {
            self.programs[worker] -= 1;
        }
    }

    fn worker_up(&mut self, worker: usize, _: Millis) {
        self.fleet.set(worker, true);
    }

    fn worker_down(&mut self, worker: usize, _: Millis) {
        self.fleet.set(worker, false);
        self.homes.retain(|_, home| *home != worker);
        self.programs[worker] = 0;
    }

    fn orders(&mut self, _: Millis) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    fn due(&self, _: Millis) -> Option<Millis> {
        (!self.orders.is_empty()).then_some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::{ask, sent};
    use super::*;

    #[test]
    fn programs_spread_by_their_number_and_stay() {
        let mut router = Pinned::new(2);
        for (request, program) in [(1, "a"), (2, "b"), (3, "c"), (4, "b")] {
            ask(&mut router, request, program, 10, 0);
        }
        assert_eq!(sent(&mut router, 0), [(1, 0), (2, 1), (3, 0), (4, 1)]);
        router.released("a", 1);
        router.released("c", 1);
        ask(&mut router, 5, "d", 10, 1);
        assert_eq!(sent(&mut router, 1), [(5, 0)]);
    }

    #[test]
    fn those_of_a_lost_engine_begin_elsewhere_and_wait_where_there_is_none() {
        let mut router = Pinned::new(2);
        ask(&mut router, 1, "a", 10, 0);
        router.worker_down(0, 5);
        ask(&mut router, 2, "a", 10, 5);
        assert_eq!(sent(&mut router, 5), [(1, 0), (2, 1)]);
        router.worker_down(1, 6);
        ask(&mut router, 3, "a", 10, 6);
        assert_eq!(router.orders(6), [Order::no_worker(3)]);
        router.worker_up(0, 7);
        ask(&mut router, 4, "a", 10, 7);
        assert_eq!(sent(&mut router, 7), [(4, 0)]);
    }
}
