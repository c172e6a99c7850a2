//! Whose turn it is when tenants compete for room: weighted max-min fairness of what they occupy.
//!
//! A tenant is whom a program is accounted to: an API key, a team, an RL group. While several wait,
//! the one whose programs occupy least for its weight goes first. Room that none of its waiters can
//! use goes to the next, so fairness leaves no room idle, and it takes nobody's seat: it orders
//! those who wait. Without tenants there is one line for all.
//!
//! For a single resource dominant resource fairness is this max-min fairness. Source: Ghodsi et al.,
//! Dominant Resource Fairness, NSDI 2011. Tokens occupied at every moment, rather than a virtual
//! time, so that a tenant neither saves up by being absent nor pays for room that nobody wanted.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use slab::Slab;

use crate::event::Tenant;
use crate::ids::Tokens;
use crate::program::Class;
use crate::queue::{Waiter, Waiting};

/// Tenants known at a time. Whoever comes beyond is accounted to [`TenantKey::NOBODY`], so that
/// invented names cost no memory and buy no share.
pub(crate) const MOST_TENANTS: usize = 256;

/// Shares are compared in tokens per this much weight, so that they stay whole numbers.
const PER_WEIGHT: u128 = 1_000_000;

/// A tenant's number inside the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TenantKey(usize);

impl TenantKey {
    /// Programs that are accounted to nobody: all of them where fairness is off.
    pub(crate) const NOBODY: Self = Self(0);
}

/// Where a tenant stands in turn: what it occupies for its weight, then since when it is known.
type Turn = (u128, u64, TenantKey);

#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) weight: u32,
    since: u64,
    pub(crate) programs: usize,
    /// What its programs are charged for themselves, on all seats.
    pub(crate) charged: Tokens,
    returning: Waiting,
    new: Waiting,
}

impl Account {
    fn new(name: Option<Arc<str>>, since: u64) -> Self {
        Self {
            name,
            weight: 1,
            since,
            programs: 0,
            charged: 0,
            returning: Waiting::default(),
            new: Waiting::default(),
        }
    }

    pub(crate) fn line(&self, class: Class) -> &Waiting {
        match class {
            Class::Returning => &self.returning,
            Class::New => &self.new,
        }
    }

    /// Programs of it in the global queue.
    pub(crate) fn waiting(&self) -> usize {
        self.returning.len() + self.new.len()
    }

    fn turn(&self, key: TenantKey) -> Turn {
        let share = u128::from(self.charged) * PER_WEIGHT / u128::from(self.weight);
        (share, self.since, key)
    }
}

/// All tenants, each with its lines of the global queue.
#[derive(Debug)]
pub(crate) struct Tenants {
    known: Slab<Account>,
    names: HashMap<Arc<str>, TenantKey>,
    /// Those with somebody in line, the one whose turn it is first.
    turns: BTreeSet<Turn>,
    came: u64,
}

impl Default for Tenants {
    fn default() -> Self {
        let mut known = Slab::new();
        known.insert(Account::new(None, 0));
        Self {
            known,
            names: HashMap::new(),
            turns: BTreeSet::new(),
            came: 0,
        }
    }
}

impl Tenants {
    pub(crate) fn get(&self, key: TenantKey) -> &Account {
        &self.known[key.0]
    }

    /// Everybody, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TenantKey, &Account)> {
        let known = self.known.iter();
        known.map(|(key, account)| (TenantKey(key), account))
    }

    /// The lines of one class, of every tenant that has somebody in line.
    pub(crate) fn lines(&self, class: Class) -> impl Iterator<Item = &Waiting> {
        let turns = self.turns.iter();
        turns.map(move |(_, _, key)| self.get(*key).line(class))
    }

    /// The one of whom somebody waits and whose turn it is.
    pub(crate) fn first(&self) -> Option<TenantKey> {
        self.turns.first().map(|(_, _, key)| *key)
    }

    /// Whose turn it is after this one's.
    pub(crate) fn after(&self, key: TenantKey) -> Option<TenantKey> {
        let turn = self.get(key).turn(key);
        let mut later = self.turns.range((Excluded(turn), Unbounded));
        later.next().map(|(_, _, key)| *key)
    }

    /// Whether another of whom somebody waits goes before this one.
    pub(crate) fn yields(&self, key: TenantKey) -> bool {
        let turn = self.get(key).turn(key);
        self.turns.first().is_some_and(|first| *first < turn)
    }

    /// One more program of this tenant, whose weight is the latest that was said.
    pub(crate) fn join(&mut self, tenant: Option<Tenant<'_>>) -> TenantKey {
        let key = tenant.map_or(TenantKey::NOBODY, |tenant| {
            let key = self.find(tenant.name);
            if key != TenantKey::NOBODY {
                let weight = tenant.weight.max(1);
                self.change(key, |account| account.weight = weight);
            }
            key
        });
        self.known[key.0].programs += 1;
        key
    }

    /// One less. A tenant without programs is forgotten.
    pub(crate) fn leave(&mut self, key: TenantKey) {
        let account = &mut self.known[key.0];
        account.programs -= 1;
        if account.programs == 0 && key != TenantKey::NOBODY {
            let gone = self.known.remove(key.0);
            if let Some(name) = gone.name {
                self.names.remove(&name);
            }
        }
    }

    /// A program's charge went from `before` to `after`.
    pub(crate) fn charge(&mut self, key: TenantKey, before: Tokens, after: Tokens) {
        if before != after {
            self.change(key, |account| {
                account.charged = account.charged - before + after;
            });
        }
    }

    pub(crate) fn insert(&mut self, key: TenantKey, class: Class, waiter: Waiter) {
        self.change(key, |account| match class {
            Class::Returning => account.returning.insert(waiter),
            Class::New => account.new.insert(waiter),
        });
    }

    pub(crate) fn remove(&mut self, key: TenantKey, class: Class, waiter: &Waiter) {
        self.change(key, |account| {
            match class {
                Class::Returning => account.returning.remove(waiter),
                Class::New => account.new.remove(waiter),
            };
        });
    }

    /// Whether those in line, and nobody else, stand where they should.
    pub(crate) fn turns_are_right(&self) -> bool {
        let in_line = self.iter().filter(|(_, account)| account.waiting() > 0);
        let turns: BTreeSet<Turn> = in_line.map(|(key, account)| account.turn(key)).collect();
        turns == self.turns
    }

    fn find(&mut self, name: &str) -> TenantKey {
        if let Some(key) = self.names.get(name) {
            return *key;
        }
        if self.names.len() >= MOST_TENANTS {
            return TenantKey::NOBODY;
        }
        self.came += 1;
        let name: Arc<str> = name.into();
        let account = Account::new(Some(Arc::clone(&name)), self.came);
        let key = TenantKey(self.known.insert(account));
        self.names.insert(name, key);
        key
    }

    /// Changes an account, and its turn with it.
    fn change(&mut self, key: TenantKey, how: impl FnOnce(&mut Account)) {
        let account = &mut self.known[key.0];
        let (before, waited) = (account.turn(key), account.waiting() > 0);
        how(account);
        let (after, waits) = (account.turn(key), account.waiting() > 0);
        if (before, waited) == (after, waits) {
            return;
        }
        if waited {
            self.turns.remove(&before);
        }
        if waits {
            self.turns.insert(after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::ProgramKey;

    fn join(tenants: &mut Tenants, name: &str, weight: u32) -> TenantKey {
        tenants.join(Some(Tenant { name, weight }))
    }

    fn wait(tenants: &mut Tenants, key: TenantKey, place: u64) -> Waiter {
        let program = ProgramKey(usize::try_from(place).unwrap());
        let waiter = Waiter {
            size: 10,
            place,
            program,
        };
        tenants.insert(key, Class::New, waiter);
        waiter
    }

    fn in_turn(tenants: &Tenants) -> Vec<TenantKey> {
        std::iter::successors(tenants.first(), |key| tenants.after(*key)).collect()
    }

    #[test]
    fn who_occupies_least_for_its_weight_goes_first() {
        let mut tenants = Tenants::default();
        let [a, b, c] = [("a", 1), ("b", 3), ("c", 1)].map(|(name, weight)| {
            let key = join(&mut tenants, name, weight);
            wait(&mut tenants, key, u64::from(weight) + key.0 as u64);
            key
        });
        assert_eq!(in_turn(&tenants), [a, b, c], "in order of appearance");
        tenants.charge(a, 0, 100);
        tenants.charge(b, 0, 240);
        tenants.charge(c, 0, 90);
        assert_eq!(in_turn(&tenants), [b, c, a], "80, 90 and 100 per weight");
        tenants.charge(b, 240, 330);
        assert_eq!(in_turn(&tenants), [c, a, b]);
    }

    #[test]
    fn only_who_waits_has_a_turn() {
        let mut tenants = Tenants::default();
        let a = join(&mut tenants, "a", 1);
        tenants.charge(a, 0, 7);
        assert_eq!(tenants.first(), None);
        let waiter = wait(&mut tenants, a, 1);
        assert_eq!(in_turn(&tenants), [a]);
        tenants.remove(a, Class::New, &waiter);
        assert_eq!(tenants.first(), None);
        assert!(tenants.turns_are_right());
    }

    #[test]
    fn invented_names_share_one_account_and_are_forgotten_with_their_programs() {
        let mut tenants = Tenants::default();
        let names: Vec<String> = (0..MOST_TENANTS + 9).map(|n| format!("t{n}")).collect();
        let keys: Vec<TenantKey> = names.iter().map(|n| join(&mut tenants, n, 5)).collect();
        assert_eq!(keys[MOST_TENANTS..], [TenantKey::NOBODY; 9]);
        assert_eq!(tenants.get(TenantKey::NOBODY).weight, 1);
        for key in keys {
            tenants.leave(key);
        }
        assert_eq!((tenants.known.len(), tenants.names.len()), (1, 0));
    }
}
