//! The adaptive policy as a person would write it down: lists, loops, and sums taken anew each time.
//!
//! It knows nothing of origins, shared prefixes, displacement and leases; those pieces are switched
//! off where it is compared. Workers may change, as long as one of the largest is never down.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "each test binary uses its own part; small numbers, and the plainest arithmetic"
)]

mod deciding;
mod events;
mod line;
mod room;
mod seats;
mod tenants;

use tenants::Tenant;
use thunder_core::{Decision, Millis, RequestId, SchedulerConfig, Seat, Tokens, WorkerState};

/// A decision without its reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Admit(RequestId, Seat),
    Hold(RequestId),
    Reject(RequestId),
    Pause(String),
    Restore(String, Seat),
}

pub fn verdicts(decisions: &[Decision]) -> Vec<Verdict> {
    let verdict = |decision: &Decision| match decision {
        Decision::Admit { request, seat, .. } => Some(Verdict::Admit(*request, *seat)),
        Decision::Hold { request, .. } => Some(Verdict::Hold(*request)),
        Decision::Reject { request, .. } => Some(Verdict::Reject(*request)),
        Decision::Pause { program, .. } => Some(Verdict::Pause(program.to_string())),
        Decision::Restore { program, seat, .. } => {
            Some(Verdict::Restore(program.to_string(), *seat))
        }
        Decision::Prepare { .. } | Decision::Expire { .. } => None,
    };
    let mut all: Vec<Verdict> = decisions.iter().filter_map(verdict).collect();
    all.sort();
    all
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Undecided,
    Held,
    Flying,
    /// Its worker went down under it.
    Orphaned,
}

/// As the core has it: refused turns that are looked at per seat and round.
const DEFERRED: usize = 8;

#[derive(Clone, Debug)]
struct Request {
    id: RequestId,
    program: usize,
    at: At,
    arrived: Millis,
    prompt: Tokens,
    decoded: Tokens,
    /// It was told to wait for the seat that its program has.
    deferred: bool,
}

#[derive(Clone, Debug, Default)]
struct Program {
    name: Option<String>,
    /// None: accounted to nobody.
    tenant: Option<String>,
    seat: Option<usize>,
    had_seat: bool,
    context: Tokens,
    peak: Tokens,
    steps: u64,
    steps_here: u64,
    seated: Millis,
    marked: bool,
    claim: Option<usize>,
    /// Its turn ended since the last tick.
    turned: bool,
}

#[derive(Clone, Debug)]
struct Worker {
    seat: Seat,
    state: WorkerState,
    capacity: Tokens,
    growth: Option<f64>,
}

pub struct Naive {
    config: SchedulerConfig,
    now: Millis,
    programs: Vec<Option<Program>>,
    free: Vec<usize>,
    /// In order of arrival.
    requests: Vec<Request>,
    workers: Vec<Worker>,
    tenants: Vec<Tenant>,
    tenants_ever: u64,
    out: Vec<Verdict>,
}

impl Naive {
    /// These seats are ready, in their order.
    pub fn new(config: SchedulerConfig, seats: &[(Seat, Tokens)]) -> Self {
        let worker = |(seat, capacity): &(Seat, Tokens)| Worker {
            seat: *seat,
            state: WorkerState::Ready,
            capacity: *capacity,
            growth: None,
        };
        Self {
            config,
            now: 0,
            programs: Vec::new(),
            free: Vec::new(),
            requests: Vec::new(),
            workers: seats.iter().map(worker).collect(),
            tenants: Vec::new(),
            tenants_ever: 0,
            out: Vec::new(),
        }
    }

    fn is(&self, program: usize) -> &Program {
        self.programs[program].as_ref().expect("known")
    }

    fn of(&mut self, program: usize) -> &mut Program {
        self.programs[program].as_mut().expect("known")
    }

    fn with(&self, program: usize, at: &[At]) -> Vec<&Request> {
        let requests = self.requests.iter();
        requests
            .filter(|r| r.program == program && at.contains(&r.at))
            .collect()
    }

    fn waits(&self, program: usize) -> Option<&Request> {
        self.with(program, &[At::Undecided, At::Held])
            .first()
            .copied()
    }

    fn flies(&self, program: usize) -> bool {
        !self.with(program, &[At::Flying]).is_empty()
    }

    fn is_silent(&self, program: usize) -> bool {
        self.requests
            .iter()
            .all(|request| request.program != program)
    }

    fn occupies(&self, program: usize, more: Tokens) -> Tokens {
        let flying = self.with(program, &[At::Flying]);
        let footprint: Tokens = flying.iter().map(|r| r.prompt + r.decoded).sum();
        let kept = match self.is(program).name {
            Some(_) => self.is(program).context,
            None => 0,
        };
        kept.max(footprint + more)
    }

    fn known(&self) -> Vec<usize> {
        (0..self.programs.len())
            .filter(|p| self.programs[*p].is_some())
            .collect()
    }

    fn on(&self, seat: usize) -> Vec<usize> {
        let all = self.known().into_iter();
        all.filter(|p| self.is(*p).seat == Some(seat)).collect()
    }

    pub fn charged(&self, seat: usize) -> Tokens {
        self.on(seat).iter().map(|p| self.occupies(*p, 0)).sum()
    }
}
