//! Whatever happens, in whatever order: the books add up and every request gets its answer.

mod common;

use common::config;
use common::world::{Event, World, event};
use proptest::prelude::*;
use thunder_core::{Decision, PolicyName, SchedulerConfig};

fn configs() -> impl Strategy<Value = SchedulerConfig> {
    let policy = prop_oneof![
        1 => Just(PolicyName::Off),
        2 => Just(PolicyName::Paper),
        5 => Just(PolicyName::Adaptive),
    ];
    let bound = prop::option::weighted(0.8, 1_000..90_000_u64);
    let slice = prop::option::weighted(0.8, 5_000..300_000_u64);
    (
        policy,
        prop::array::uniform4(prop::bool::weighted(0.8)),
        bound,
        slice,
        prop_oneof![Just(0.0), Just(0.5), Just(10.0)],
        prop_oneof![4 => Just(100_000), 1 => 1..6_usize],
        prop_oneof![3 => Just(3_600_000), 1 => 5_000..100_000_u64],
    )
        .prop_map(
            |(policy, switches, reservation, slice, eta, queue_limit, limit)| {
                let [event_driven, shared_prefix, origin_affinity, host_tier] = switches;
                SchedulerConfig {
                    event_driven,
                    shared_prefix,
                    origin_affinity,
                    host_tier,
                    reservation_ms: reservation,
                    time_slice_ms: slice,
                    displacement_eta: eta,
                    queue_limit,
                    hold_limit_ms: limit,
                    idle_timeout_ms: limit,
                    ..config(policy)
                }
            },
        )
}

fn live(config: SchedulerConfig, events: &[Event]) -> World {
    let mut world = World::new(config);
    for event in events {
        world.happen(event);
        world
            .core
            .check()
            .unwrap_or_else(|error| panic!("after {event:?}: {error}"));
        let decisions = world.tick();
        world.nobody_overfills(&decisions);
    }
    world
}

proptest! {
    #[test]
    fn the_books_add_up_and_nothing_stays_behind(
        config in configs(),
        events in prop::collection::vec(event(12), 1..200),
    ) {
        live(config, &events).empty();
    }

    #[test]
    fn the_same_events_bring_the_same_decisions(
        config in configs(),
        events in prop::collection::vec(event(12), 1..120),
    ) {
        let once: Vec<Decision> = live(config.clone(), &events).decided;
        let again: Vec<Decision> = live(config, &events).decided;
        prop_assert_eq!(once, again);
    }

    #[test]
    fn everyone_is_served_once_those_in_flight_end(
        config in configs(),
        events in prop::collection::vec(event(12), 1..100),
        releases in any::<bool>(),
    ) {
        let patient = SchedulerConfig { hold_limit_ms: u64::MAX / 4, ..config };
        let mut world = live(patient, &events);
        world.happen(&Event::SyncEnds);
        for worker in 0..3 {
            let capacity = Some(1_500);
            world.happen(&Event::Up { worker, capacity, host: 0, sessions: true });
        }
        for program in 0..12 {
            world.happen(&Event::Restores(program));
        }
        let begun = world.now;
        while !world.requests.is_empty() {
            world.tick();
            while world.answer_one() {
                if releases {
                    world.release_silent();
                }
            }
            world.tick();
            if world.core.counts().in_flight > 0 {
                continue;
            }
            let sleep = world.core.next_tick_ms(world.now);
            prop_assert!(sleep.is_some() || world.requests.is_empty(), "it waits for nothing");
            world.now += sleep.unwrap_or(0);
            // Silent programs keep their seats for a lease of a minute or two; tools of up to 800 s
            // were seen, so a lease may be longer, and so may what a waiter waits for.
            prop_assert!(world.now - begun < 3 * 3_600_000, "somebody starves");
        }
    }
}
