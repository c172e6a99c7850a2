//! Which engines are up, and the choices that every gateway makes among them.

/// Engines by number.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    up: Vec<bool>,
}

impl Fleet {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            up: vec![true; workers],
        }
    }

    pub(super) fn set(&mut self, worker: usize, up: bool) {
        self.up[worker] = up;
    }

    /// Those that are up.
    pub(super) fn workers(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.up.len()).filter(|&worker| self.up[worker])
    }

    /// The one that is up and has the least of `values`; the first of equals.
    pub(super) fn least<T: Ord + Copy>(&self, values: &[T]) -> Option<usize> {
        self.workers().min_by_key(|&worker| values[worker])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_sought_among_those_that_are_up() {
        let mut fleet = Fleet::new(3);
        assert_eq!(fleet.least(&[2, 1, 1]), Some(1));
        fleet.set(1, false);
        assert_eq!(fleet.least(&[2, 1, 1]), Some(2));
        fleet.set(0, false);
        fleet.set(2, false);
        assert_eq!(fleet.least(&[2, 1, 1]), None);
    }
}
