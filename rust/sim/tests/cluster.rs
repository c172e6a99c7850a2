//! Days in the cluster: the same twice, and where the published ones were.

mod common;

use common::{day, scheduler, spec};
use thunder_core::{PolicyName, SchedulerConfig};
use thunder_sim::cluster::{RouterSpec, Spec, simulate};

#[test]
fn a_day_repeats_by_its_seed() {
    let once = spec("mini-swe", 40, RouterSpec::Core(scheduler(PolicyName::Off)));
    let other = Spec {
        seed: 2,
        ..once.clone()
    };
    assert_eq!(simulate(&once), simulate(&once));
    assert_ne!(simulate(&once), simulate(&other));
}

#[test]
fn with_room_for_all_no_router_does_better_than_another() {
    let reports = [
        RouterSpec::Pinned,
        RouterSpec::CacheAware,
        RouterSpec::Core(scheduler(PolicyName::Off)),
    ]
    .map(|router| day("mini-swe", 24, router));
    for report in &reports {
        assert_eq!(report.steps, reports[0].steps);
        assert!(report.hit_rate() > 0.95 && report.hit_rate() <= report.ideal_hit_rate());
        assert_eq!((report.recomputed_tokens, report.hold_max_ms), (0, 0));
    }
}

/// Source: Fig. 4 of arXiv 2602.13692, its baseline without scheduling, steps per minute: mini-SWE 222
/// at 24 programs, 275 at 48, 140 at 96; `OpenHands` 153 at 24, 55 at 48, 52 at 96.
#[test]
fn ungated_programs_collapse_where_the_published_ones_did() {
    let steps = |kind, programs| day(kind, programs, RouterSpec::Pinned).steps_per_min;
    for (kind, programs, published, tolerance) in [
        ("mini-swe", 24, 222.0, 0.1),
        ("mini-swe", 48, 275.0, 0.2),
        ("mini-swe", 96, 140.0, 0.35),
        ("openhands", 24, 153.0, 0.1),
        ("openhands", 48, 55.0, 0.2),
        ("openhands", 96, 52.0, 0.2),
    ] {
        let ours = steps(kind, programs);
        let off = (ours / published - 1.0).abs();
        assert!(
            off < tolerance,
            "{kind} at {programs}: {ours:.0} steps/min, published {published}"
        );
    }
}

#[test]
fn a_host_tier_keeps_what_the_device_cannot() {
    let without = spec("openhands", 48, RouterSpec::Pinned);
    let with = Spec {
        hicache_ratio: 2.0,
        ..without.clone()
    };
    let (without, with) = (
        simulate(&without).expect("sound"),
        simulate(&with).expect("sound"),
    );
    assert!(with.cached_host_tokens > 0 && without.cached_host_tokens == 0);
    assert!(
        with.steps > 2 * without.steps,
        "{} against {}",
        with.steps,
        without.steps
    );
}

#[test]
fn programs_go_where_there_are_fewest_and_slow_tools_slow_the_day() {
    let one = spec("mini-swe", 24, RouterSpec::Pinned);
    let two = Spec {
        workers: 2,
        programs: 48,
        ..one.clone()
    };
    let slow = Spec {
        tool_scale: 20.0,
        ..one.clone()
    };
    let [one, two, slow] = [one, two, slow].map(|spec| simulate(&spec).expect("sound"));
    let ratio = two.steps_per_min / one.steps_per_min;
    assert!((1.9..2.1).contains(&ratio), "{ratio:.2}");
    assert!(slow.steps < one.steps);
}

#[test]
fn a_spec_that_makes_no_sense_is_refused_by_name() {
    let sound = spec("mini-swe", 4, RouterSpec::Pinned);
    for (wrong, name) in [
        (
            Spec {
                workers: 0,
                ..sound.clone()
            },
            "workers",
        ),
        (
            Spec {
                tool_scale: f64::NAN,
                ..sound.clone()
            },
            "tool_scale",
        ),
        (
            Spec {
                page_tokens: 0,
                ..sound.clone()
            },
            "page_tokens",
        ),
        (
            Spec {
                router: RouterSpec::Core(SchedulerConfig {
                    tick_ms: 0,
                    ..scheduler(PolicyName::Off)
                }),
                ..sound.clone()
            },
            "tick_ms",
        ),
    ] {
        let error = simulate(&wrong).expect_err("no sense");
        assert!(error.to_string().contains(name), "{error}");
    }
}
