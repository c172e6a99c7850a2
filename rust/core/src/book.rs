//! The state of the scheduler: who is where. Events and policies change it through a few moves.
//!
//! `book` holds the collections and the questions, `ledger` what seats are charged, `moves` the
//! changes that decisions stand for. A policy composes moves; it never touches a count.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use slab::Slab;

use crate::config::{PolicyName, SchedulerConfig};
use crate::deadlines::{Alarm, Deadlines};
use crate::decision::Decision;
use crate::error::Error;
use crate::ids::{Millis, RequestId, Seat, Tokens, WorkerId};
use crate::program::{Class, Program, ProgramKey};
use crate::queue::{Place, Waiting};
use crate::request::Request;
use crate::standing::Standings;
use crate::tenant::{TenantKey, Tenants};
use crate::tools::Tools;
use crate::transitions::{Status, WorkerState};
use crate::view::Counts;
use crate::worker::Worker;

/// The global queue: each tenant's lines, and the waiters for whom some seat's room is kept.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) tenants: Tenants,
    pub(crate) claims: Waiting,
}

impl Queue {
    /// The line of those who are accounted to nobody: of all, where there are no tenants.
    pub(crate) fn line(&self, class: Class) -> &Waiting {
        self.tenants.get(TenantKey::NOBODY).line(class)
    }
}

/// Everything the scheduler knows.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) config: SchedulerConfig,
    /// The latest time it was told.
    pub(crate) now: Millis,
    pub(crate) programs: Slab<Program>,
    pub(crate) names: HashMap<Arc<str>, ProgramKey>,
    pub(crate) requests: HashMap<RequestId, Request>,
    pub(crate) workers: BTreeMap<Seat, Worker>,
    pub(crate) queue: Queue,
    pub(crate) standings: Standings,
    pub(crate) deadlines: Deadlines,
    pub(crate) tools: Tools,
    /// Requests that the next tick decides first.
    pub(crate) inbox: Vec<RequestId>,
    /// Programs whose turn just ended.
    pub(crate) turned: Vec<ProgramKey>,
    /// Seats that changed.
    pub(crate) dirty: Vec<Seat>,
    /// Decisions made and not yet taken.
    pub(crate) out: Vec<Decision>,
    /// While weights are exchanged: when to stop believing it.
    pub(crate) sync_until: Option<Millis>,
    /// When a policy that acts at fixed times acts next.
    pub(crate) next_act: Millis,
    pub(crate) counts: Counts,
    /// Whether some seat takes new work.
    pub(crate) any_ready: bool,
    /// While no worker is up: when waiting for one ends.
    pub(crate) deserted_at: Option<Millis>,
    /// The largest program that some seat could hold alone: None without any seat, `Tokens::MAX`
    /// where some capacity is unknown.
    pub(crate) largest: Option<Tokens>,
    /// Requests that were told to wait.
    pub(crate) held: usize,
    /// Mean wait of held requests, however it ended.
    pub(crate) mean_wait: f64,
    pub(crate) places: Place,
    pub(crate) generations: u64,
}

impl Book {
    pub(crate) fn new(mut config: SchedulerConfig) -> Self {
        // Sharing is a piece of the adaptive policy; the published one counts every token.
        config.shared_prefix &= config.policy == PolicyName::Adaptive;
        Self {
            config,
            now: 0,
            programs: Slab::new(),
            names: HashMap::new(),
            requests: HashMap::new(),
            workers: BTreeMap::new(),
            queue: Queue::default(),
            standings: Standings::default(),
            deadlines: Deadlines::default(),
            tools: Tools::new(),
            inbox: Vec::new(),
            turned: Vec::new(),
            dirty: Vec::new(),
            out: Vec::new(),
            sync_until: None,
            next_act: 0,
            counts: Counts::default(),
            any_ready: false,
            deserted_at: None,
            largest: None,
            held: 0,
            mean_wait: 0.0,
            places: 0,
            generations: 0,
        }
    }

    /// Time never runs backwards, whatever the caller's clock does.
    pub(crate) fn clock(&mut self, now: Millis) -> Millis {
        self.now = self.now.max(now);
        self.now
    }

    pub(crate) fn named(&self, name: &str) -> Result<ProgramKey, Error> {
        let known = self.names.get(name).copied();
        known.ok_or_else(|| Error::UnknownProgram(name.to_owned()))
    }

    pub(crate) fn request(&self, request: RequestId) -> Result<&Request, Error> {
        let known = self.requests.get(&request);
        known.ok_or(Error::UnknownRequest(request))
    }

    /// A program that just appeared.
    pub(crate) fn enrol(&mut self, name: Option<&str>) -> ProgramKey {
        let name: Option<Arc<str>> = name.map(Into::into);
        self.generations += 1;
        let program = Program::new(name.clone(), self.generations, self.now);
        let key = ProgramKey(self.programs.insert(program));
        self.queue.tenants.join(None);
        if let Some(name) = name {
            self.names.insert(name, key);
            self.counts.programs += 1;
        }
        key
    }

    /// Changes a program's status, and the counts with it.
    pub(crate) fn set_status(&mut self, key: ProgramKey, to: Status) {
        let from = self[key].status;
        debug_assert!(from.may_become(to), "{from:?} to {to:?}");
        if let Some(count) = self.count_of(from) {
            *count -= 1;
        }
        if let Some(count) = self.count_of(to) {
            *count += 1;
        }
        self[key].status = to;
    }

    /// The count that programs of this status are in.
    pub(crate) fn count_of(&mut self, status: Status) -> Option<&mut usize> {
        match status {
            Status::New => None,
            Status::Active => Some(&mut self.counts.active),
            Status::Paused => Some(&mut self.counts.paused),
        }
    }

    /// The next tick looks at this seat.
    pub(crate) fn touch(&mut self, seat: Seat) {
        if let Some(worker) = self.workers.get_mut(&seat)
            && !worker.dirty
        {
            worker.dirty = true;
            self.dirty.push(seat);
        }
    }

    /// The ranks of a worker that was ever up.
    pub(crate) fn seats_of(&self, worker: WorkerId) -> Result<Vec<Seat>, Error> {
        let ranks = Seat::new(worker.0, 0)..=Seat::new(worker.0, u16::MAX);
        let seats: Vec<Seat> = self.workers.range(ranks).map(|(seat, _)| *seat).collect();
        if seats.is_empty() {
            return Err(Error::UnknownWorker(worker));
        }
        Ok(seats)
    }

    /// After a worker changed: what the seats can do between them.
    pub(crate) fn survey(&mut self) {
        let up = self.workers.values();
        let up = up.filter(|worker| worker.state != WorkerState::Down);
        self.largest = up
            .clone()
            .map(|w| w.capacity().unwrap_or(Tokens::MAX))
            .max();
        self.any_ready = up.clone().any(|worker| worker.state == WorkerState::Ready);
        self.counts.workers = up.count();
        if self.counts.workers == 0 {
            self.desert();
        } else if let Some(at) = self.deserted_at.take() {
            self.deadlines.clear(at, Alarm::Deserted);
        }
    }

    /// No worker is up: waiting for one begins to count, if it has not begun.
    pub(crate) fn desert(&mut self) {
        if self.deserted_at.is_none() {
            let at = self.now.saturating_add(self.config.no_worker_limit_ms);
            self.deserted_at = Some(at);
            self.deadlines.set(at, Alarm::Deserted);
        }
    }

    /// Whether no worker has been up for so long that nobody waits for one any more.
    pub(crate) fn is_deserted(&self) -> bool {
        self.deserted_at.is_some_and(|at| at <= self.now)
    }

    /// The earliest waiting request of a program.
    pub(crate) fn head(&self, key: ProgramKey) -> Option<&Request> {
        let (_, request) = self[key].waiting.first_key_value()?;
        self.requests.get(request)
    }

    /// How long a program has waited: since its earliest waiting request arrived.
    pub(crate) fn waited(&self, key: ProgramKey, now: Millis) -> Millis {
        let head = self.head(key);
        head.map_or(0, |head| now.saturating_sub(head.arrived))
    }

    /// Looks at a program again no later than this. An alarm only ever moves forward in time; one
    /// that rings too early sets itself again.
    pub(crate) fn wake(&mut self, key: ProgramKey, at: Millis) {
        let alarm = self[key].alarm;
        if alarm.is_some_and(|alarm| alarm <= at) {
            return;
        }
        self.silence(key);
        self.deadlines.set(at, Alarm::Program(key));
        self[key].alarm = Some(at);
    }

    /// Takes a program's alarm away.
    pub(crate) fn silence(&mut self, key: ProgramKey) {
        if let Some(at) = self[key].alarm.take() {
            self.deadlines.clear(at, Alarm::Program(key));
        }
    }
}

/// Keys are handed out by the book and dropped with their program, so they are always known.
impl Index<ProgramKey> for Book {
    type Output = Program;

    fn index(&self, key: ProgramKey) -> &Program {
        &self.programs[key.0]
    }
}

impl IndexMut<ProgramKey> for Book {
    fn index_mut(&mut self, key: ProgramKey) -> &mut Program {
        &mut self.programs[key.0]
    }
}
