//! What an event and a tick cost, against how much there is.
//!
//! A town of agents lives through its days: each program asks, is answered, runs a tool, asks again,
//! and after some turns another takes its place. The cluster is over-subscribed, so some always wait.
//! An event is measured over the whole stream (arrivals, progress, answers and releases as they come,
//! at 22,000 a second), a tick after each of them. Percentiles, since a shared machine's means say
//! more about its other tenants: `cargo bench -p thunder-core`, one size with `-- /576`.

#![allow(clippy::disallowed_methods, reason = "a stopwatch needs a clock")]

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use thunder_core::{
    Arrival, Decision, Millis, PolicyName, RequestId, Scheduler, SchedulerConfig, Seat, SeatFacts,
    Usage,
};

/// KV capacity of GLM-4.6 FP8 on 8×H100, in tokens.
const CAPACITY: u64 = 615_000;

fn config() -> SchedulerConfig {
    SchedulerConfig {
        policy: PolicyName::Adaptive,
        tick_ms: 1_000,
        queue_limit: 10_000_000,
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

/// Splitmix64: the same town every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

struct Agent {
    name: String,
    context: u64,
    turns: u32,
}

/// Agents around a scheduler. `ready` is who asks next, `running` what is in flight.
struct Town {
    core: Scheduler,
    agents: Vec<Agent>,
    dice: Dice,
    /// Acting agents, in the order in which their tools end.
    ready: VecDeque<usize>,
    running: VecDeque<(RequestId, usize)>,
    /// Who asked what and is not admitted yet.
    asked: std::collections::HashMap<RequestId, usize>,
    next: u64,
    born: u64,
    now: Millis,
    events: u64,
    per_ms: u64,
}

impl Town {
    fn new(workers: u32, programs: usize, events_per_second: u64) -> Self {
        let mut core = Scheduler::new(config()).expect("valid");
        for worker in 0..workers {
            let facts = SeatFacts {
                device_tokens: Some(CAPACITY),
                host_tokens: 2 * CAPACITY,
                write_back: false,
                prefill_us_per_token: 50.0,
                prefill_ns_per_token2: 1.0,
                load_back_us_per_token: 1.05,
                sessions: true,
            };
            core.worker_up(Seat::new(worker, 0), facts, 0)
                .expect("valid");
        }
        let mut town = Self {
            core,
            agents: Vec::new(),
            dice: Dice(7),
            ready: VecDeque::new(),
            running: VecDeque::new(),
            asked: std::collections::HashMap::new(),
            next: 0,
            born: 0,
            now: 1,
            events: 0,
            per_ms: events_per_second.div_ceil(1_000).max(1),
        };
        for agent in 0..programs {
            let newcomer = town.newcomer();
            town.agents.push(newcomer);
            town.ready.push_back(agent);
        }
        // Long enough for every agent to have had a turn or two.
        for _ in 0..4 * programs {
            town.event();
            town.tick();
        }
        town
    }

    fn newcomer(&mut self) -> Agent {
        self.born += 1;
        Agent {
            name: format!("agent-{}", self.born),
            context: 2_000 + self.dice.roll(12_000),
            turns: 0,
        }
    }

    /// One event: an arrival while anyone is ready, an answer otherwise, and progress in between.
    fn event(&mut self) {
        self.events += 1;
        if self.events.is_multiple_of(self.per_ms) {
            self.now += 1;
        }
        match self.dice.roll(5) {
            0 | 1 => self.ask(),
            2 => self.decode(),
            _ => self.answer(),
        }
    }

    fn ask(&mut self) {
        let Some(agent) = self.ready.pop_front() else {
            return self.answer();
        };
        let request = RequestId(self.next);
        self.next += 1;
        let asks = &self.agents[agent];
        let arrival = Arrival {
            program: Some(&asks.name),
            group: None,
            tenant: None,
            prompt_tokens: asks.context,
            prefix: Some(1),
        };
        self.core.arrive(request, arrival, self.now).expect("new");
        self.asked.insert(request, agent);
    }

    fn decode(&mut self) {
        if let Some((request, _)) = self.running.front() {
            self.core
                .progress(*request, 100, self.now)
                .expect("in flight");
        }
    }

    fn answer(&mut self) {
        let Some((request, agent)) = self.running.pop_front() else {
            return;
        };
        let answered = &mut self.agents[agent];
        let usage = Usage {
            prompt_tokens: Some(answered.context),
            completion_tokens: Some(250),
            cached_tokens: Some(answered.context.min(1_600)),
            cached_host_tokens: None,
            tool: Some("bash"),
        };
        self.core
            .finished(request, usage, self.now)
            .expect("in flight");
        answered.context += 250 + 150;
        answered.turns += 1;
        if answered.turns == 26 {
            self.core.release(&self.agents[agent].name, self.now);
            self.agents[agent] = self.newcomer();
        }
        self.ready.push_back(agent);
    }

    fn tick(&mut self) -> usize {
        let decisions = self.core.tick(self.now);
        for decision in &decisions {
            match decision {
                Decision::Admit { request, .. } => {
                    if let Some(agent) = self.asked.remove(request) {
                        self.running.push_back((*request, agent));
                    }
                }
                Decision::Reject { request, .. } => {
                    if let Some(agent) = self.asked.remove(request) {
                        self.ready.push_back(agent);
                    }
                }
                _ => {}
            }
        }
        decisions.len()
    }

    /// What the given share of `count` events, or of the ticks after them, stayed below.
    fn percentile(&mut self, count: u64, what: What, percent: usize) -> Duration {
        let mut spent = Vec::new();
        for _ in 0..count.max(1_000) {
            let before = Instant::now();
            self.event();
            let between = Instant::now();
            black_box(self.tick());
            spent.push(match what {
                What::Event => between - before,
                What::Tick => between.elapsed(),
            });
        }
        spent.sort_unstable();
        spent[spent.len() * percent / 100]
    }
}

#[derive(Clone, Copy)]
enum What {
    Event,
    Tick,
}

const SIZES: [(u32, usize); 5] = [
    (8, 576),
    (10, 1_000),
    (100, 10_000),
    (1_000, 100_000),
    (10_000, 1_000_000),
];

fn costs(criterion: &mut Criterion) {
    for (workers, programs) in SIZES {
        let mut town = None;
        for (name, what, percent) in [
            ("event p50", What::Event, 50),
            ("event p99", What::Event, 99),
            ("tick p50", What::Tick, 50),
            ("tick p99", What::Tick, 99),
        ] {
            let mut group = criterion.benchmark_group(name);
            group
                .sample_size(10)
                .warm_up_time(Duration::from_millis(200))
                .measurement_time(Duration::from_secs(1));
            group.bench_function(BenchmarkId::from_parameter(programs), |bencher| {
                let town = town.get_or_insert_with(|| Town::new(workers, programs, 22_000));
                bencher.iter_custom(|count| {
                    let each = town.percentile(count, what, percent);
                    each * u32::try_from(count).expect("few")
                });
            });
            group.finish();
        }
    }
}

criterion_group!(benches, costs);
criterion_main!(benches);
