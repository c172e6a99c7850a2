//! The adaptive policy as a person would write it down: lists, loops, and sums taken anew each time.
//!
//! It knows nothing of origins, shared prefixes, displacement, leases and workers that change; those
//! pieces are switched off where it is compared.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "each test binary uses its own part; small numbers, and the plainest arithmetic"
)]

use thunder_core::{Decision, Millis, RequestId, SchedulerConfig, Seat, Tokens};

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
    out: Vec<Verdict>,
}

impl Naive {
    pub fn new(config: SchedulerConfig, capacities: &[Tokens]) -> Self {
        let worker = |capacity: &Tokens| Worker {
            capacity: *capacity,
            growth: None,
        };
        Self {
            config,
            now: 0,
            programs: Vec::new(),
            free: Vec::new(),
            requests: Vec::new(),
            workers: capacities.iter().map(worker).collect(),
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

    // === Events ===

    pub fn asks(&mut self, id: RequestId, name: Option<&str>, prompt: Tokens, now: Millis) {
        self.now = now;
        let known = self.known().into_iter();
        let mut named = known.filter(|p| name.is_some() && self.is(*p).name.as_deref() == name);
        let program = named.next().unwrap_or_else(|| {
            let program = Program {
                name: name.map(Into::into),
                ..Program::default()
            };
            if let Some(free) = self.free.pop() {
                self.programs[free] = Some(program);
                free
            } else {
                self.programs.push(Some(program));
                self.programs.len() - 1
            }
        });
        self.requests.push(Request {
            id,
            program,
            at: At::Undecided,
            arrived: now,
            prompt,
            decoded: 0,
            deferred: false,
        });
    }

    pub fn decodes(&mut self, id: RequestId, tokens: Tokens) {
        let request = self
            .requests
            .iter_mut()
            .find(|r| r.id == id)
            .expect("known");
        request.decoded = request.decoded.max(tokens);
    }

    pub fn finishes(&mut self, id: RequestId, completion: Tokens, now: Millis) {
        self.now = now;
        let request = self
            .requests
            .iter()
            .find(|r| r.id == id)
            .expect("known")
            .clone();
        let (total, program) = (request.prompt + completion, request.program);
        let seat = self.is(program).seat.expect("in flight");
        let gained = match self.is(program).steps {
            0 => completion,
            _ => total.saturating_sub(self.is(program).context),
        } as f64;
        let growth = &mut self.workers[seat].growth;
        *growth = Some(growth.map_or(gained, |growth| growth + 0.05 * (gained - growth)));
        let program = self.of(program);
        program.peak = program.peak.max(total);
        program.steps += 1;
        program.steps_here += 1;
        self.ends(&request);
    }

    /// Failed or cancelled.
    pub fn breaks(&mut self, id: RequestId, now: Millis) {
        self.now = now;
        let request = self
            .requests
            .iter()
            .find(|r| r.id == id)
            .expect("known")
            .clone();
        let program = self.of(request.program);
        if request.at == At::Flying && program.context == 0 && program.peak == 0 {
            program.context = request.prompt + request.decoded;
        }
        self.ends(&request);
    }

    fn ends(&mut self, request: &Request) {
        self.requests.retain(|r| r.id != request.id);
        let key = request.program;
        if !self.flies(key) && self.is(key).peak > 0 {
            self.of(key).context = self.is(key).peak;
            self.of(key).peak = 0;
        }
        if self.waits(key).is_none() {
            self.of(key).claim = None;
        }
        if self.is_silent(key) {
            self.of(key).turned = true;
        }
        let program = self.is(key);
        let newcomer = program.seat.is_none() && !program.had_seat;
        if self.is_silent(key) && (program.name.is_none() || newcomer) {
            self.forget(key);
        }
    }

    fn forget(&mut self, program: usize) {
        self.programs[program] = None;
        self.free.push(program);
    }

    pub fn releases(&mut self, name: &str, now: Millis) {
        self.now = now;
        let known = self.known().into_iter();
        let mut named = known.filter(|p| self.is(*p).name.as_deref() == Some(name));
        let Some(program) = named.next() else { return };
        if self.is_silent(program) {
            self.forget(program);
        } else {
            self.of(program).name = None;
        }
    }

    // === Deciding ===

    pub fn tick(&mut self, now: Millis) -> Vec<Verdict> {
        self.now = now;
        let limit = self.config.hold_limit_ms;
        for request in self.requests.clone() {
            if request.at == At::Held && request.arrived + limit <= now {
                self.out.push(Verdict::Reject(request.id));
                self.ends(&request);
            }
        }
        loop {
            let before = format!("{:?}{:?}{:?}", self.programs, self.requests, self.out);
            loop {
                let before = format!("{:?}{:?}", self.requests, self.out);
                self.settle_silent();
                self.take_turns();
                if before == format!("{:?}{:?}", self.requests, self.out) {
                    break;
                }
            }
            for seat in 0..self.workers.len() {
                self.relieve(seat);
            }
            for seat in 0..self.workers.len() {
                self.serve_claim(seat);
            }
            while self.admit_next() {}
            self.make_claims();
            if before == format!("{:?}{:?}{:?}", self.programs, self.requests, self.out) {
                break;
            }
        }
        for request in &mut self.requests {
            if request.at == At::Undecided {
                request.at = At::Held;
                self.out.push(Verdict::Hold(request.id));
            }
        }
        let mut out = std::mem::take(&mut self.out);
        out.sort();
        out
    }

    fn take_turns(&mut self) {
        let mut looked_at = vec![0; self.workers.len()];
        for request in self.requests.clone() {
            if request.at == At::Held
                && request.deferred
                && let Some(seat) = self.is(request.program).seat
            {
                looked_at[seat] += 1;
                if looked_at[seat] > DEFERRED {
                    continue;
                }
            }
            if request.at == At::Flying || !self.requests.iter().any(|r| r.id == request.id) {
                continue;
            }
            let key = request.program;
            if self
                .workers
                .iter()
                .all(|worker| request.prompt > worker.capacity)
            {
                self.out.push(Verdict::Reject(request.id));
                self.ends(&request);
                continue;
            }
            match self.is(key).seat {
                Some(seat) => self.take_turn(&request, seat),
                None => self.queue(key),
            }
        }
    }

    fn take_turn(&mut self, request: &Request, seat: usize) {
        let key = request.program;
        let between = !self.flies(key);
        if between && (self.slice_is_over(key, seat) || self.is(key).marked) {
            self.pause(key);
            self.queue(key);
            return;
        }
        let capacity = self.workers[seat].capacity;
        let size = self.occupies(key, request.prompt);
        let need = size.saturating_sub(self.occupies(key, 0));
        let over = (self.charged(seat) + need).saturating_sub(capacity);
        let victims = self.cheapest(self.acting(seat), over);
        let freed: Tokens = victims.iter().map(|p| self.occupies(*p, 0)).sum();
        if freed >= over && (over == 0 || size <= capacity) {
            for victim in victims {
                self.pause(victim);
            }
            self.send(request.id, seat);
        } else if between {
            self.pause(key);
            self.queue(key);
        } else {
            let held = self.requests.iter_mut().find(|r| r.id == request.id);
            let held = held.expect("known");
            held.deferred = true;
            if held.at == At::Undecided {
                held.at = At::Held;
                self.out.push(Verdict::Hold(request.id));
            }
        }
    }

    fn queue(&mut self, key: usize) {
        let largest = self.workers.iter().map(|w| w.capacity).max().unwrap_or(0);
        if let Some(first) = self.waits(key).cloned()
            && self.is(key).context > largest
        {
            self.of(key).context = first.prompt;
        }
    }

    fn settle_silent(&mut self) {
        for key in self.known() {
            if let Some(seat) = self.is(key).seat
                && self.is_silent(key)
                && (self.is(key).marked || (self.is(key).turned && self.slice_is_over(key, seat)))
            {
                self.pause(key);
            }
            self.of(key).turned = false;
        }
    }

    fn acting(&self, seat: usize) -> Vec<usize> {
        let on = self.on(seat).into_iter();
        on.filter(|p| self.is_silent(*p) && self.is(*p).steps_here > 0)
            .collect()
    }

    fn cost(tokens: Tokens) -> f64 {
        let tokens = tokens as f64;
        500.0 * tokens / 1e3 + 100.0 * tokens * tokens / 2.0 / 1e6
    }

    /// The smallest until it is enough, without the redundant; or one alone if that is cheaper.
    fn cheapest(&self, mut among: Vec<usize>, amount: Tokens) -> Vec<usize> {
        let size = |p: &usize| self.occupies(*p, 0);
        among.sort_by_key(|p| (size(p), *p));
        let mut picks: Vec<usize> = Vec::new();
        for program in &among {
            if picks.iter().map(size).sum::<Tokens>() >= amount {
                break;
            }
            picks.push(*program);
        }
        for at in (0..picks.len()).rev() {
            let rest: Tokens = picks.iter().map(size).sum::<Tokens>() - size(&picks[at]);
            if rest >= amount {
                picks.remove(at);
            }
        }
        let total: f64 = picks.iter().map(|p| Self::cost(size(p))).sum();
        let alone = among.iter().find(|p| size(p) >= amount);
        match alone {
            Some(alone) if Self::cost(size(alone)) < total => vec![*alone],
            _ => picks,
        }
    }

    fn over(&self, seat: usize) -> Tokens {
        if self.on(seat).len() < 2 {
            return 0;
        }
        let limit = self.workers[seat].capacity as f64 * self.config.mark_running_above;
        self.charged(seat).saturating_sub(limit.floor() as Tokens)
    }

    fn relieve(&mut self, seat: usize) {
        for victim in self.cheapest(self.acting(seat), self.over(seat)) {
            self.pause(victim);
        }
        let on = self.on(seat);
        let running = on.iter().copied().filter(|p| !self.is_silent(*p)).collect();
        let wanted = self.cheapest(running, self.over(seat));
        for program in on {
            self.of(program).marked = wanted.contains(&program) && !self.is_silent(program);
        }
    }

    fn margin(&self, seat: usize, returning: bool) -> Tokens {
        let config = &self.config;
        let steps = if returning {
            config.growth_steps_paused
        } else {
            config.growth_steps_new
        };
        let capacity = self.workers[seat].capacity as f64;
        let growth = steps * self.workers[seat].growth.unwrap_or(0.0) * self.on(seat).len() as f64;
        let fraction = (growth / capacity).clamp(config.margin_min, config.margin_max);
        (fraction.min(config.aimd_cap) * capacity).ceil() as Tokens
    }

    fn room(&self, seat: usize, returning: bool) -> Tokens {
        let free = self.workers[seat]
            .capacity
            .saturating_sub(self.charged(seat));
        if self.charged(seat) == 0 {
            free
        } else {
            free.saturating_sub(self.margin(seat, returning))
        }
    }

    /// Waiting programs without a seat.
    fn queued(&self) -> Vec<usize> {
        let all = self.known().into_iter();
        all.filter(|p| self.is(*p).seat.is_none() && self.waits(*p).is_some())
            .collect()
    }

    fn size(&self, program: usize) -> Tokens {
        self.occupies(program, self.waits(program).expect("it waits").prompt)
    }

    fn place(&self, program: usize) -> RequestId {
        self.waits(program).expect("it waits").id
    }

    fn returns(&self, program: usize) -> bool {
        self.is(program).steps > 0
    }

    fn waited(&self, program: usize) -> Millis {
        self.now - self.waits(program).expect("it waits").arrived
    }

    fn is_overdue(&self, program: usize) -> bool {
        let bound = self.config.reservation_ms;
        bound.is_some_and(|bound| self.waited(program) >= bound)
    }

    fn claimer(&self, seat: usize) -> Option<usize> {
        self.queued()
            .into_iter()
            .find(|p| self.is(*p).claim == Some(seat))
    }

    fn roomiest(&self, returning: bool) -> Option<(Tokens, usize)> {
        let seats = (0..self.workers.len()).filter(|seat| self.claimer(*seat).is_none());
        seats.map(|seat| (self.room(seat, returning), seat)).max()
    }

    /// Waiters of one class without a claim.
    fn line(&self, returning: bool) -> Vec<usize> {
        let queued = self.queued().into_iter();
        let unclaimed = queued.filter(|p| self.is(*p).claim.is_none());
        unclaimed
            .filter(|p| self.returns(*p) == returning)
            .collect()
    }

    fn admit_next(&mut self) -> bool {
        let fits = |program: usize, returning: bool| {
            let roomiest = self.roomiest(returning);
            roomiest.is_some_and(|(room, _)| self.size(program) <= room)
        };
        let queued = self.queued().into_iter();
        let claimed = queued.filter(|p| self.is(*p).claim.is_some());
        let promised = claimed
            .filter(|p| fits(*p, false))
            .min_by_key(|p| self.place(*p));
        let mut fitting: Vec<usize> = Vec::new();
        for returning in [true, false] {
            let line = self.line(returning).into_iter();
            fitting.extend(line.filter(|p| fits(*p, returning)));
        }
        let oldest = fitting.into_iter().min_by_key(|p| self.place(*p));
        let overdue = oldest.filter(|p| self.is_overdue(*p));
        let mut candidates: Vec<usize> = promised.or(overdue).into_iter().collect();
        for returning in [true, false] {
            let line = self.line(returning).into_iter();
            candidates.extend(line.min_by_key(|p| (self.size(*p), self.place(*p))));
        }
        for program in candidates {
            if let Some((room, seat)) = self.roomiest(self.returns(program))
                && self.size(program) <= room
            {
                self.admit(program, seat);
                return true;
            }
        }
        false
    }

    fn serve_claim(&mut self, seat: usize) {
        let Some(program) = self.claimer(seat) else {
            return;
        };
        if self.size(program) > self.workers[seat].capacity {
            self.of(program).claim = None;
        } else if self.size(program) <= self.room(seat, self.returns(program)) {
            self.admit(program, seat);
        }
    }

    fn make_claims(&mut self) {
        loop {
            let queued = self.queued().into_iter();
            let unclaimed = queued.filter(|p| self.is(*p).claim.is_none());
            let Some(oldest) = unclaimed.min_by_key(|p| self.place(*p)) else {
                return;
            };
            if !self.is_overdue(oldest) {
                return;
            }
            let seats = (0..self.workers.len()).filter(|seat| self.claimer(*seat).is_none());
            let large = seats.filter(|seat| self.size(oldest) <= self.workers[*seat].capacity);
            let Some(seat) = large.max_by_key(|seat| (self.room(*seat, false), *seat)) else {
                return;
            };
            self.of(oldest).claim = Some(seat);
            self.serve_claim(seat);
        }
    }

    fn slice_is_over(&self, program: usize, seat: usize) -> bool {
        let Some(slice) = self.config.time_slice_ms else {
            return false;
        };
        let restore = Self::cost(self.is(program).context);
        let own = slice.max((self.config.time_slice_restore_factor * restore) as Millis);
        let oldest = || {
            let queued = self.queued().into_iter();
            queued.min_by_key(|p| self.place(*p))
        };
        let waiter = match self.config.reservation_ms {
            Some(_) => self.claimer(seat),
            None => oldest(),
        };
        waiter.is_some_and(|waiter| {
            self.now - self.is(program).seated >= own && self.waited(waiter) >= slice
        })
    }

    fn seat(worker: usize) -> Seat {
        Seat::new(u32::try_from(worker).expect("few"), 0)
    }

    fn admit(&mut self, key: usize, seat: usize) {
        let now = self.now;
        let first = self.place(key);
        let program = self.of(key);
        program.claim = None;
        let returns = program.had_seat;
        program.had_seat = true;
        program.seat = Some(seat);
        program.seated = now;
        program.steps_here = 0;
        program.marked = false;
        if returns && let Some(name) = program.name.clone() {
            self.out.push(Verdict::Restore(name, Self::seat(seat)));
        }
        self.send(first, seat);
    }

    fn send(&mut self, id: RequestId, seat: usize) {
        let request = self
            .requests
            .iter_mut()
            .find(|r| r.id == id)
            .expect("known");
        request.at = At::Flying;
        self.out.push(Verdict::Admit(id, Self::seat(seat)));
    }

    fn pause(&mut self, key: usize) {
        for request in self.requests.iter_mut().filter(|r| r.program == key) {
            request.deferred = false;
        }
        let program = self.of(key);
        program.seat = None;
        program.marked = false;
        if let Some(name) = program.name.clone() {
            self.out.push(Verdict::Pause(name));
        }
    }
}
