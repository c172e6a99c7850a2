//! Random histories, and an observer who believes nothing the scheduler says of itself.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part"
)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use thunder_core::{
    Arrival, Decision, Memory, Millis, PolicyName, Rank, Rejection, RequestId, Scheduler,
    SchedulerConfig, Seat, SeatFacts, Status, Tenant, Tokens, Usage, WorkerId, WorkerState,
};

/// Something that happens. Indexes are taken modulo what there is, so that every history makes
/// sense and every part of one does too: shrinking works.
#[derive(Clone, Debug)]
pub enum Event {
    Up {
        worker: u32,
        capacity: Option<Tokens>,
        host: Tokens,
        sessions: bool,
    },
    Unready(u32),
    Draining(u32),
    Down(u32),
    Flushed(u32),
    SyncBegins,
    SyncEnds,
    Asks {
        program: Option<u8>,
        prompt: Tokens,
        prefix: Option<u64>,
    },
    Decodes {
        which: usize,
        tokens: Tokens,
    },
    Finishes {
        which: usize,
        completion: Tokens,
        cached: Option<u8>,
        tool: Option<u8>,
    },
    Fails(usize),
    Leaves(usize),
    Bounces(usize),
    Releases(u8),
    Pauses(u8),
    Restores(u8),
    Remembers {
        program: u8,
        context: Tokens,
        worker: Option<u32>,
    },
    Passes(Millis),
}

pub fn event(programs: u8) -> impl Strategy<Value = Event> {
    let worker = 0..3_u32;
    let program = 0..programs;
    let tokens = prop_oneof![1..200_u64, 200..700_u64, 700..1_300_u64];
    let capacity = prop_oneof![
        8 => (900..1_500_u64).prop_map(Some),
        1 => Just(None),
        1 => Just(Some(0)),
    ];
    let host = prop_oneof![2 => Just(0), 1 => 500..4_000_u64];
    let pause = prop_oneof![
        4 => 1..50_u64,
        4 => 50..3_000_u64,
        2 => 3_000..70_000_u64,
        1 => 70_000..800_000_u64,
    ];
    prop_oneof![
        2 => (worker.clone(), capacity, host, any::<bool>())
            .prop_map(|(worker, capacity, host, sessions)| Event::Up { worker, capacity, host, sessions }),
        1 => worker.clone().prop_map(Event::Unready),
        1 => worker.clone().prop_map(Event::Draining),
        1 => worker.clone().prop_map(Event::Down),
        1 => worker.clone().prop_map(Event::Flushed),
        1 => Just(Event::SyncBegins),
        2 => Just(Event::SyncEnds),
        24 => (prop::option::weighted(0.9, program.clone()), tokens.clone(), prop::option::of(0..3_u64))
            .prop_map(|(program, prompt, prefix)| Event::Asks { program, prompt, prefix }),
        6 => (any::<usize>(), tokens.clone()).prop_map(|(which, tokens)| Event::Decodes { which, tokens }),
        20 => (any::<usize>(), 1..60_u64, prop::option::of(0..101_u8), prop::option::of(0..3_u8))
            .prop_map(|(which, completion, cached, tool)| Event::Finishes { which, completion, cached, tool }),
        3 => any::<usize>().prop_map(Event::Fails),
        3 => any::<usize>().prop_map(Event::Leaves),
        2 => any::<usize>().prop_map(Event::Bounces),
        4 => program.clone().prop_map(Event::Releases),
        1 => program.clone().prop_map(Event::Pauses),
        2 => program.clone().prop_map(Event::Restores),
        1 => (program, tokens, prop::option::of(worker))
            .prop_map(|(program, context, worker)| Event::Remembers { program, context, worker }),
        24 => pause.prop_map(Event::Passes),
    ]
}

/// Where the observer believes a request to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Believed {
    Undecided,
    Held,
    InFlight(Seat),
}

/// The scheduler and its observer.
pub struct World {
    pub core: Scheduler,
    pub policy: PolicyName,
    pub now: Millis,
    pub requests: BTreeMap<RequestId, (Believed, Tokens)>,
    pub next: u64,
    /// Every decision so far.
    pub decided: Vec<Decision>,
}

pub fn name(program: u8) -> String {
    format!("program-{program}")
}

/// Of three that compete, by the size of the request, so that programs also move between them.
fn tenant(prompt: Tokens) -> Option<Tenant<'static>> {
    let named = |name, weight| Some(Tenant { name, weight });
    match prompt % 9 {
        0..=2 => named("a", 1),
        3..=5 => named("b", 3),
        _ => None,
    }
}

pub fn facts(capacity: Option<Tokens>, host: Tokens, sessions: bool) -> SeatFacts {
    SeatFacts {
        device_tokens: capacity,
        host_tokens: host,
        write_back: host % 2 == 1,
        prefill_us_per_token: 500.0,
        prefill_ns_per_token2: 100.0,
        load_back_us_per_token: 10.0,
        sessions,
    }
}

impl World {
    pub fn new(config: SchedulerConfig) -> Self {
        let policy = config.policy;
        Self {
            core: Scheduler::new(config).expect("valid"),
            policy,
            now: 0,
            requests: BTreeMap::new(),
            next: 0,
            decided: Vec::new(),
        }
    }

    fn pick(&self, which: usize, in_flight: Option<bool>) -> Option<RequestId> {
        let fits = |state: &Believed| match in_flight {
            None => true,
            Some(wanted) => wanted == matches!(state, Believed::InFlight(_)),
        };
        let known: Vec<RequestId> = self
            .requests
            .iter()
            .filter(|(_, (state, _))| fits(state))
            .map(|(id, _)| *id)
            .collect();
        (!known.is_empty()).then(|| known[which % known.len()])
    }

    /// Lets it happen. What makes no sense now is skipped.
    pub fn happen(&mut self, event: &Event) {
        let now = self.now;
        let core = &mut self.core;
        match *event {
            Event::Up {
                worker,
                capacity,
                host,
                sessions,
            } => {
                let facts = facts(capacity, host, sessions);
                core.worker_up(Seat::new(worker, 0), facts, now)
                    .expect("valid");
            }
            Event::Unready(worker) => drop(core.worker_unready(WorkerId(worker), now)),
            Event::Draining(worker) => drop(core.worker_draining(WorkerId(worker), now)),
            Event::Down(worker) => drop(core.worker_down(WorkerId(worker), now)),
            Event::Flushed(worker) => drop(core.kv_flushed(WorkerId(worker), now)),
            Event::SyncBegins => core.weight_sync_begin(now),
            Event::SyncEnds => core.weight_sync_end(now),
            Event::Asks {
                program,
                prompt,
                prefix,
            } => {
                let id = RequestId(self.next);
                self.next += 1;
                let program = program.map(name);
                let arrival = Arrival {
                    program: program.as_deref(),
                    tenant: tenant(prompt),
                    prompt_tokens: prompt,
                    prefix,
                    ..Arrival::default()
                };
                core.arrive(id, arrival, now).expect("a new request");
                assert!(core.arrive(id, arrival, now).is_err(), "twice");
                self.requests.insert(id, (Believed::Undecided, prompt));
            }
            Event::Decodes { which, tokens } => {
                if let Some(id) = self.pick(which, Some(true)) {
                    self.core.progress(id, tokens, now).expect("in flight");
                }
            }
            Event::Finishes {
                which,
                completion,
                cached,
                tool,
            } => {
                if let Some(id) = self.pick(which, Some(true)) {
                    let (_, prompt) = self.requests.remove(&id).expect("picked");
                    let tool = tool.map(|tool| format!("tool-{tool}"));
                    let usage = Usage {
                        prompt_tokens: Some(prompt),
                        completion_tokens: Some(completion),
                        cached_tokens: cached.map(|percent| prompt * Tokens::from(percent) / 100),
                        cached_host_tokens: None,
                        tool: tool.as_deref(),
                    };
                    self.core.finished(id, usage, now).expect("in flight");
                    assert!(self.core.finished(id, usage, now).is_err(), "it ended");
                }
            }
            Event::Fails(which) => {
                if let Some(id) = self.pick(which, None) {
                    self.requests.remove(&id);
                    self.core.failed(id, now).expect("known");
                }
            }
            Event::Leaves(which) => {
                if let Some(id) = self.pick(which, None) {
                    self.requests.remove(&id);
                    self.core.cancelled(id, now).expect("known");
                }
            }
            Event::Bounces(which) => {
                if let Some(id) = self.pick(which, Some(true)) {
                    self.core.bounced(id, now).expect("in flight");
                    self.requests.get_mut(&id).expect("picked").0 = Believed::Undecided;
                }
            }
            Event::Releases(program) => drop(core.release(&name(program), now)),
            Event::Pauses(program) => drop(core.pause(&name(program), now)),
            Event::Restores(program) => drop(core.restore(&name(program), now)),
            Event::Remembers {
                program,
                context,
                worker,
            } => {
                let memory = Memory {
                    context_tokens: context,
                    seat: worker.map(|worker| (WorkerId(worker), Rank(0))),
                    idle_ms: 10,
                    operator: context % 7 == 0,
                    ..Memory::default()
                };
                drop(core.remember(&name(program), memory, now));
            }
            Event::Passes(ms) => self.now += ms,
        }
    }

    /// Answers one request that is in flight. False: there is none.
    pub fn answer_one(&mut self) -> bool {
        let any = self.pick(0, Some(true)).is_some();
        self.happen(&Event::Finishes {
            which: 0,
            completion: 1,
            cached: None,
            tool: None,
        });
        any
    }

    /// Releases every program with nothing under way.
    pub fn release_silent(&mut self) {
        for view in self.core.programs(self.now) {
            if view.in_flight + view.waiting == 0 {
                self.core.release(&view.program, self.now);
            }
        }
    }

    /// Ticks, and holds every decision against what the observer knows.
    pub fn tick(&mut self) -> Vec<Decision> {
        let before = self.core.workers();
        let decisions = self.core.tick(self.now);
        self.core.check().unwrap_or_else(|error| panic!("{error}"));
        for decision in &decisions {
            self.observe(decision, &before);
        }
        let undecided = self
            .requests
            .values()
            .filter(|(s, _)| *s == Believed::Undecided);
        assert_eq!(undecided.count(), 0, "every request gets an answer at once");
        assert_eq!(self.core.tick(self.now), [], "a second tick does nothing");
        self.decided.extend(decisions.iter().cloned());
        decisions
    }

    fn observe(&mut self, decision: &Decision, _before: &[thunder_core::WorkerView]) {
        match decision {
            Decision::Admit { request, seat, .. } => {
                let (state, _) = self.requests.get_mut(request).expect("admits what waits");
                assert!(!matches!(state, Believed::InFlight(_)), "admitted twice");
                *state = Believed::InFlight(*seat);
                let views = self.core.workers();
                let view = views.iter().find(|view| view.seat == *seat).expect("up");
                assert_eq!(view.state, WorkerState::Ready, "nothing is sent elsewhere");
            }
            Decision::Hold { request, .. } => {
                let (state, _) = self.requests.get_mut(request).expect("holds what waits");
                assert_eq!(*state, Believed::Undecided, "held twice");
                *state = Believed::Held;
            }
            Decision::Reject { request, kind, .. } => {
                let (state, prompt) = self.requests.remove(request).expect("rejects what waits");
                assert!(!matches!(state, Believed::InFlight(_)), "too late");
                if *kind == Rejection::Oversize {
                    let views = self.core.workers();
                    let up = views.iter().filter(|view| view.state != WorkerState::Down);
                    for view in up {
                        assert!(view.device_tokens.is_some_and(|tokens| tokens < prompt));
                    }
                }
            }
            Decision::Pause { program, .. } => {
                assert!(
                    program.starts_with("program-"),
                    "only named programs are told"
                );
            }
            Decision::Restore { .. } | Decision::Prepare { .. } | Decision::Expire { .. } => {}
        }
    }

    /// After a tick: nobody is seated past what a seat has, unless decoding took it there.
    pub fn nobody_overfills(&self, decisions: &[Decision]) {
        if self.policy != PolicyName::Adaptive {
            return;
        }
        let views = self.core.workers();
        for decision in decisions {
            if let Decision::Admit { seat, .. } = decision {
                let view = views.iter().find(|view| view.seat == *seat).expect("up");
                if let Some(capacity) = view.device_tokens {
                    assert!(
                        view.charged_tokens <= capacity,
                        "{} charged of {capacity}",
                        view.charged_tokens
                    );
                }
            }
        }
    }

    /// Ends everything, and sees that nothing stays behind.
    pub fn empty(&mut self) {
        for id in self.requests.keys().copied().collect::<Vec<_>>() {
            self.core.cancelled(id, self.now).expect("known");
        }
        self.requests.clear();
        for view in self.core.programs(self.now) {
            assert!(self.core.release(&view.program, self.now));
            assert!(view.in_flight == 0 && view.waiting == 0);
            assert_eq!(view.seat.is_some(), view.status == Status::Active);
        }
        self.tick();
        let counts = self.core.counts();
        let all =
            counts.programs + counts.active + counts.paused + counts.waiting + counts.in_flight;
        assert_eq!(all, 0, "{counts:?}");
        for view in self.core.workers() {
            assert_eq!(view.charged_tokens + view.shared_tokens, 0);
            assert_eq!(view.programs, 0);
        }
    }
}
