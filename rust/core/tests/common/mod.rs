//! A scheduler to play with: explicit constants, short words for events.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part"
)]

pub mod naive;
pub mod world;

use thunder_core::{
    Arrival, Decision, Memory, Millis, PolicyName, Rank, RequestId, Scheduler, SchedulerConfig,
    Seat, SeatFacts, Tokens, Usage, WorkerId,
};

/// The constants of `config.py`, written out: tests pin them.
pub fn config(policy: PolicyName) -> SchedulerConfig {
    SchedulerConfig {
        policy,
        tick_ms: 1_000,
        queue_limit: 100_000,
        hold_limit_ms: 3_600_000,
        no_worker_limit_ms: 30_000,
        paper_tick_ms: 5_000,
        paper_half_life_ms: 1_000,
        paper_lambda_max: 1.0,
        paper_lambda_min: 1.0,
        event_driven: true,
        shared_prefix: true,
        origin_affinity: true,
        growth_steps_paused: 1.5,
        growth_steps_new: 2.5,
        margin_min: 0.03,
        margin_max: 0.10,
        displacement_eta: 0.5,
        lease_ms: 30_000,
        lease_min_ms: 60_000,
        idle_timeout_ms: 3_600_000,
        aimd: true,
        aimd_raise_above: 0.06,
        aimd_lower_below: 0.03,
        aimd_cap: 0.20,
        reservation_ms: Some(60_000),
        time_slice_ms: Some(600_000),
        time_slice_restore_factor: 100.0,
        mark_running_above: 0.97,
        host_tier: true,
        weight_sync_timeout_ms: 300_000,
    }
}

/// GLM-4.6 FP8 on 8×H100, but for its capacity. Source: the emulated cluster's engine table.
pub fn facts(device_tokens: Tokens) -> SeatFacts {
    SeatFacts {
        device_tokens: Some(device_tokens),
        host_tokens: 0,
        write_back: false,
        prefill_us_per_token: 50.0,
        prefill_ns_per_token2: 1.0,
        load_back_us_per_token: 1.05,
        sessions: true,
    }
}

pub struct Lab {
    pub core: Scheduler,
    pub now: Millis,
    next: u64,
}

impl Lab {
    pub fn new(config: SchedulerConfig) -> Self {
        Self {
            core: Scheduler::new(config).expect("the fixture is valid"),
            now: 0,
            next: 0,
        }
    }

    pub fn of(policy: PolicyName) -> Self {
        Self::new(config(policy))
    }

    /// One worker of this capacity, number 0.
    pub fn with(policy: PolicyName, device_tokens: Tokens) -> Self {
        let mut lab = Self::of(policy);
        lab.up(0, facts(device_tokens));
        lab
    }

    pub fn up(&mut self, worker: u32, facts: SeatFacts) {
        let seat = Seat::new(worker, 0);
        self.core.worker_up(seat, facts, self.now).expect("valid");
    }

    /// Time passes.
    pub fn wait(&mut self, ms: Millis) -> &mut Self {
        self.now += ms;
        self
    }

    pub fn ask(&mut self, program: &str, prompt_tokens: Tokens) -> RequestId {
        self.ask_as(Some(program), prompt_tokens, None)
    }

    pub fn ask_as(
        &mut self,
        program: Option<&str>,
        prompt_tokens: Tokens,
        prefix: Option<u64>,
    ) -> RequestId {
        self.ask_with(Arrival {
            program,
            prompt_tokens,
            prefix,
            ..Arrival::default()
        })
    }

    pub fn ask_with(&mut self, arrival: Arrival<'_>) -> RequestId {
        let request = RequestId(self.next);
        self.next += 1;
        self.core
            .arrive(request, arrival, self.now)
            .expect("a new request");
        request
    }

    pub fn answer(&mut self, request: RequestId, prompt: Tokens, completion: Tokens) {
        self.answer_with(
            request,
            Usage {
                prompt_tokens: Some(prompt),
                completion_tokens: Some(completion),
                ..Usage::default()
            },
        );
    }

    pub fn answer_with(&mut self, request: RequestId, usage: Usage<'_>) {
        self.core
            .finished(request, usage, self.now)
            .expect("in flight");
    }

    pub fn tick(&mut self) -> Vec<Decision> {
        let decisions = self.core.tick(self.now);
        self.core.check().expect("the books add up");
        assert_eq!(self.core.tick(self.now), [], "a second tick does nothing");
        decisions
    }

    /// The requests that this tick admits, and where to.
    pub fn admits(&mut self) -> Vec<(RequestId, Seat)> {
        admits(&self.tick())
    }

    /// Lets the clock run from alarm to alarm, and collects what is decided.
    pub fn run_for(&mut self, ms: Millis) -> Vec<Decision> {
        let end = self.now + ms;
        let mut all = self.tick();
        while let Some(sleep) = self.core.next_tick_ms(self.now) {
            assert!(sleep > 0, "nothing is left to do at this instant");
            if self.now + sleep > end {
                break;
            }
            self.now += sleep;
            all.extend(self.tick());
        }
        self.now = end;
        all
    }

    pub fn charged(&self, worker: u32) -> Tokens {
        let views = self.core.workers();
        let view = views.iter().find(|v| v.seat == Seat::new(worker, 0));
        view.expect("this worker was up").charged_tokens
    }

    pub fn remember(&mut self, program: &str, context_tokens: Tokens, worker: Option<u32>) {
        let memory = Memory {
            context_tokens,
            seat: worker.map(|worker| (WorkerId(worker), Rank(0))),
            ..Memory::default()
        };
        self.core
            .remember(program, memory, self.now)
            .expect("unknown before");
    }
}

pub fn admits(decisions: &[Decision]) -> Vec<(RequestId, Seat)> {
    let admits = decisions.iter().filter_map(|decision| match decision {
        Decision::Admit { request, seat, .. } => Some((*request, *seat)),
        _ => None,
    });
    admits.collect()
}

pub fn holds(decisions: &[Decision]) -> Vec<RequestId> {
    let holds = decisions.iter().filter_map(|decision| match decision {
        Decision::Hold { request, .. } => Some(*request),
        _ => None,
    });
    holds.collect()
}

pub fn paused(decisions: &[Decision]) -> Vec<&str> {
    let pauses = decisions.iter().filter_map(|decision| match decision {
        Decision::Pause { program, .. } => Some(&**program),
        _ => None,
    });
    pauses.collect()
}
