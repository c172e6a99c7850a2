//! The scheduler against the same policy written with lists and loops: every decision is equal.

mod common;

use common::config;
use common::naive::{Naive, Verdict, verdicts};
use common::world::{facts, name};
use proptest::prelude::*;
use thunder_core::{
    Arrival, Decision, Millis, PolicyName, RequestId, Scheduler, SchedulerConfig, Seat, Tenant,
    Tokens, Usage, WorkerId, WorkerState,
};

/// Names and weights.
const TENANTS: [(&str, u32); 3] = [("a", 1), ("b", 3), ("c", 10)];

#[derive(Clone, Debug)]
enum Event {
    Asks(Option<u8>, Option<u8>, Tokens),
    Decodes(usize, Tokens),
    Finishes(usize, Tokens),
    Breaks(usize),
    Releases(u8),
    Changes(u32, WorkerState),
    Passes(Millis),
}

fn event() -> impl Strategy<Value = Event> {
    let tokens = prop_oneof![1..200_u64, 200..600_u64, 600..1_300_u64];
    let time = prop_oneof![1..2_000_u64, 2_000..40_000_u64];
    let state = prop_oneof![
        3 => Just(WorkerState::Ready),
        1 => Just(WorkerState::Unready),
        1 => Just(WorkerState::Draining),
        1 => Just(WorkerState::Down),
    ];
    prop_oneof![
        6 => (prop::option::weighted(0.9, 0..14_u8), prop::option::of(0..3_u8), tokens.clone())
            .prop_map(|(program, tenant, prompt)| Event::Asks(program, tenant, prompt)),
        2 => (any::<usize>(), 1..300_u64).prop_map(|(which, tokens)| Event::Decodes(which, tokens)),
        6 => (any::<usize>(), 0..80_u64).prop_map(|(which, tokens)| Event::Finishes(which, tokens)),
        1 => any::<usize>().prop_map(Event::Breaks),
        1 => (0..14_u8).prop_map(Event::Releases),
        1 => (0..3_u32, state).prop_map(|(worker, state)| Event::Changes(worker, state)),
        4 => time.prop_map(Event::Passes),
    ]
}

/// The pieces that the model knows, in all their settings.
fn pieces() -> impl Strategy<Value = SchedulerConfig> {
    (
        prop::option::weighted(0.8, 1_000..60_000_u64),
        prop::option::weighted(0.8, 2_000..100_000_u64),
        prop_oneof![Just(0.0), Just(2.5), Just(20.0)],
        prop_oneof![Just((0.0, 0.0)), Just((0.03, 0.10)), Just((0.10, 0.20))],
        prop_oneof![Just(0.5), Just(0.97), Just(1.0)],
        prop_oneof![2 => Just(u64::MAX / 4), 1 => 10_000..200_000_u64],
    )
        .prop_map(
            |(reservation, slice, steps, (low, high), pressure, hold)| SchedulerConfig {
                reservation_ms: reservation,
                time_slice_ms: slice,
                time_slice_restore_factor: 2.0,
                growth_steps_new: steps,
                growth_steps_paused: steps / 2.0,
                margin_min: low,
                margin_max: high,
                mark_running_above: pressure,
                hold_limit_ms: hold,
                lease_min_ms: u64::MAX / 4,
                idle_timeout_ms: u64::MAX / 4,
                displacement_eta: 0.0,
                origin_affinity: false,
                shared_prefix: false,
                host_tier: false,
                aimd: false,
                ..config(PolicyName::Adaptive)
            },
        )
}

/// Every worker has as many ranks, and worker 0 the largest.
fn seats(mut capacities: Vec<Tokens>, ranks: u16) -> Vec<(Seat, Tokens)> {
    capacities.sort_unstable_by(|a, b| b.cmp(a));
    let workers = (0..).zip(capacities);
    let ranks =
        workers.flat_map(|(worker, capacity)| (0..ranks).map(move |rank| (worker, rank, capacity)));
    ranks
        .map(|(worker, rank, capacity)| (Seat::new(worker, rank), capacity))
        .collect()
}

/// Tells the core that every rank of a worker changed.
fn change(
    core: &mut Scheduler,
    seats: &[(Seat, Tokens)],
    id: WorkerId,
    to: WorkerState,
    now: Millis,
) {
    let told = match to {
        WorkerState::Ready => {
            let ranks = seats.iter().filter(|(seat, _)| seat.worker == id);
            for (seat, capacity) in ranks {
                core.worker_up(*seat, facts(Some(*capacity), 0, true), now)
                    .expect("valid");
            }
            Ok(())
        }
        WorkerState::Unready => core.worker_unready(id, now),
        WorkerState::Draining => core.worker_draining(id, now),
        WorkerState::Down => core.worker_down(id, now),
    };
    told.expect("the naive model allows it");
}

fn pick(known: &[RequestId], which: usize) -> Option<RequestId> {
    (!known.is_empty()).then(|| known[which % known.len()])
}

proptest! {
    #[test]
    fn lists_and_loops_decide_the_same(
        config in pieces(),
        capacities in prop::collection::vec(800..1_600_u64, 1..4),
        ranks in 1..3_u16,
        tenants in any::<bool>(),
        events in prop::collection::vec(event(), 1..150),
    ) {
        let mut core = Scheduler::new(config.clone()).unwrap();
        let seats = seats(capacities, ranks);
        let mut naive = Naive::new(config, &seats);
        for (seat, capacity) in &seats {
            core.worker_up(*seat, facts(Some(*capacity), 0, true), 0).unwrap();
        }
        let (mut now, mut next) = (0, 0);
        let (mut alive, mut flying) = (Vec::new(), Vec::new());
        for event in events {
            match event {
                Event::Asks(program, tenant, prompt_tokens) => {
                    let id = RequestId(next);
                    next += 1;
                    let program = program.map(name);
                    let program = program.as_deref();
                    let tenant = tenant.filter(|_| tenants).map(|number| TENANTS[usize::from(number)]);
                    let arrival = Arrival {
                        program,
                        tenant: tenant.map(|(name, weight)| Tenant { name, weight }),
                        prompt_tokens,
                        ..Arrival::default()
                    };
                    core.arrive(id, arrival, now).unwrap();
                    naive.asks(id, program, tenant, prompt_tokens, now);
                    alive.push((id, prompt_tokens));
                }
                Event::Decodes(which, tokens) => if let Some(id) = pick(&flying, which) {
                    core.progress(id, tokens, now).unwrap();
                    naive.decodes(id, tokens);
                },
                Event::Finishes(which, completion) => if let Some(id) = pick(&flying, which) {
                    let usage = Usage { completion_tokens: Some(completion), ..Usage::default() };
                    core.finished(id, usage, now).unwrap();
                    naive.finishes(id, completion, now);
                    flying.retain(|other| *other != id);
                    alive.retain(|(other, _)| *other != id);
                },
                Event::Breaks(which) => {
                    let ids: Vec<RequestId> = alive.iter().map(|(id, _)| *id).collect();
                    if let Some(id) = pick(&ids, which) {
                        core.failed(id, now).unwrap();
                        naive.breaks(id, now);
                        flying.retain(|other| *other != id);
                        alive.retain(|(other, _)| *other != id);
                    }
                }
                Event::Releases(program) => {
                    core.release(&name(program), now);
                    naive.releases(&name(program), now);
                }
                Event::Changes(worker, to) => {
                    let known = seats.iter().any(|(seat, _)| seat.worker == WorkerId(worker));
                    let stays = worker == 0 && to == WorkerState::Down;
                    if known && !stays && naive.changes(WorkerId(worker), to) {
                        change(&mut core, &seats, WorkerId(worker), to, now);
                    }
                }
                Event::Passes(ms) => now += ms,
            }
            let decisions: Vec<Decision> = core.tick(now);
            core.check().unwrap();
            let (decided, expected) = (verdicts(&decisions), naive.tick(now));
            prop_assert_eq!(&decided, &expected);
            for verdict in decided {
                match verdict {
                    Verdict::Admit(id, _) => flying.push(id),
                    Verdict::Reject(id) => alive.retain(|(other, _)| *other != id),
                    _ => {}
                }
            }
            for (view, seat) in core.workers().iter().zip(0..) {
                prop_assert_eq!(view.charged_tokens, naive.charged(seat));
            }
        }
    }
}
