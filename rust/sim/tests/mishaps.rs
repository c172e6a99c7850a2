//! Days on which not all is well: a worker lost, workers of unequal size, programs never released.

mod common;

use common::{scheduler, spec};
use thunder_core::PolicyName;
use thunder_sim::cluster::{BASELINES, Outage, Report, RouterSpec, Spec, simulate};

/// Everything that a day can be played behind.
fn routers() -> impl Iterator<Item = RouterSpec> {
    let policies = [PolicyName::Off, PolicyName::Paper, PolicyName::Adaptive];
    let policies = policies.map(|policy| RouterSpec::Core(scheduler(policy)));
    let baselines = BASELINES.map(|(_, router)| router);
    policies.into_iter().chain(baselines)
}

/// Two engines with room for all.
fn roomy(router: RouterSpec) -> Spec {
    Spec {
        workers: 2,
        ..spec("mini-swe", 48, router)
    }
}

fn play(spec: &Spec) -> Report {
    simulate(spec).expect("a sound spec")
}

#[test]
fn a_lost_worker_fails_what_it_ran_and_the_other_serves_on() {
    for router in routers() {
        let name = format!("{router:?}");
        let whole = roomy(router);
        let lost = Spec {
            outages: vec![Outage {
                // Behind a cache-aware gateway nearly all are on the first.
                worker: 0,
                from_s: 400,
                until_s: 500,
            }],
            ..whole.clone()
        };
        let (whole, lost) = (play(&whole), play(&lost));
        assert_eq!(whole.failed, 0, "{name}");
        assert!(lost.failed > 5, "{name}: {}", lost.failed);
        // A sixth of the day on half of the engines, and the KV of 24 programs lost.
        let kept = lost.steps_per_min / whole.steps_per_min;
        assert!((0.8..1.0).contains(&kept), "{name}: {kept:.2}");
    }
}

#[test]
fn with_no_worker_left_nothing_is_served_and_all_goes_on_afterwards() {
    for router in routers() {
        let name = format!("{router:?}");
        let away = |from_s, until_s| Spec {
            workers: 1,
            measured_s: 600,
            outages: vec![Outage {
                worker: 0,
                from_s,
                until_s,
            }],
            ..spec("mini-swe", 20, router.clone())
        };
        // The whole measured part, and its first half.
        assert_eq!(play(&away(299, 900)).steps, 0, "{name}");
        let half = play(&away(299, 600));
        assert!(half.steps > 700, "{name}: {}", half.steps);
    }
}

#[test]
fn a_worker_of_half_the_size_gets_less_where_sizes_are_looked_at() {
    let unequal = |router| Spec {
        workers: 2,
        capacities: vec![615_000, 205_000],
        ..spec("mini-swe", 84, router)
    };
    let adaptive = play(&unequal(RouterSpec::Core(scheduler(PolicyName::Adaptive))));
    let pinned = play(&unequal(RouterSpec::Pinned));
    assert!(adaptive.hit_rate() > 0.93, "{:.2}", adaptive.hit_rate());
    assert!(pinned.hit_rate() < 0.85, "{:.2}", pinned.hit_rate());
    let gain = adaptive.steps_per_min / pinned.steps_per_min;
    assert!(gain > 1.15, "{gain:.2}");
}

#[test]
fn capacities_are_counted_in_whole_pages_and_named_where_they_make_no_sense() {
    let spec = |capacities| Spec {
        workers: 2,
        page_tokens: 64,
        capacities,
        ..spec("mini-swe", 4, RouterSpec::Pinned)
    };
    assert!(simulate(&spec(vec![100_001, 90_063])).is_ok());
    let error = simulate(&spec(vec![100_000])).expect_err("one for two");
    assert_eq!(error.to_string(), "capacities: 1 given for 2 workers");
    let error = simulate(&spec(vec![100_000, 64])).expect_err("no engine");
    assert!(
        error.to_string().contains("capacity_tokens = 64"),
        "{error}"
    );
}

#[test]
fn an_outage_that_makes_no_sense_is_refused() {
    for (worker, from_s, until_s) in [(2, 1, 2), (0, 5, 5), (0, 6, 5)] {
        let outage = Outage {
            worker,
            from_s,
            until_s,
        };
        let spec = Spec {
            outages: vec![outage],
            ..roomy(RouterSpec::Pinned)
        };
        let error = simulate(&spec).expect_err("no sense");
        assert!(error.to_string().contains("no outage of worker"), "{error}");
    }
}

#[test]
fn programs_that_never_say_so_do_not_fill_the_cluster() {
    let told = spec(
        "mini-swe",
        72,
        RouterSpec::Core(scheduler(PolicyName::Adaptive)),
    );
    let silent = Spec {
        releases: false,
        ..told.clone()
    };
    let ratio = play(&silent).steps_per_min / play(&told).steps_per_min;
    assert!((0.8..1.02).contains(&ratio), "{ratio:.2}");
}
