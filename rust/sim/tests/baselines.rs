//! What the baselines make of a day, beside each other and beside what was published.

mod common;

use common::{day, scheduler, spec};
use thunder_core::PolicyName;
use thunder_sim::cluster::{BASELINES, Report, RouterSpec, Spec, simulate};

fn baseline(name: &str) -> RouterSpec {
    RouterSpec::baseline(name).expect("known")
}

#[test]
fn with_room_for_all_no_baseline_holds_or_recomputes() {
    let reports = BASELINES.map(|(_, router)| day("mini-swe", 24, router));
    for (report, (name, _)) in reports.iter().zip(BASELINES) {
        assert_eq!(report.steps, reports[0].steps, "{name}");
        assert_eq!(report.recomputed_tokens, 0, "{name}");
        assert_eq!((report.hold_max_ms, report.refused), (0, 0), "{name}");
    }
}

#[test]
fn nobody_beats_the_bound_and_the_bound_recomputes_nothing() {
    for (kind, programs) in [("mini-swe", 96), ("openhands", 72), ("osworld", 72)] {
        let bound = day(kind, programs, baseline("bound"));
        assert_eq!(bound.recomputed_tokens, 0, "{kind}");
        let others = ["pinned", "cache_aware", "thunder_agent", "ttl"].map(baseline);
        let policies = [PolicyName::Paper, PolicyName::Adaptive];
        let policies = policies.map(|policy| RouterSpec::Core(scheduler(policy)));
        for router in others.into_iter().chain(policies) {
            let other = day(kind, programs, router.clone());
            assert!(
                other.steps <= bound.steps,
                "{kind}: {} steps, {} at most: {router:?}",
                other.steps,
                bound.steps
            );
        }
    }
}

/// Source: Table 2 of arXiv 2602.13692 and its Fig. 4: on mini-SWE at 96 programs `ThunderAgent` serves
/// 371 steps per minute where the engine alone serves 140; on `OpenHands` 187 and 52.
#[test]
fn thunder_agent_gains_what_was_published() {
    for (kind, published) in [("mini-swe", 371.0), ("openhands", 187.0)] {
        let ours = day(kind, 96, baseline("thunder_agent")).steps_per_min;
        let off: f64 = ours / published - 1.0;
        assert!(off.abs() < 0.2, "{kind}: {ours:.0}, published {published}");
        assert!(ours > 2.0 * day(kind, 96, baseline("pinned")).steps_per_min);
    }
}

/// Source: the same, Continuum: mini-SWE 303, 282, 214 at 48, 72, 96; `OpenHands` 83, 62, 56.
#[test]
fn pinning_with_a_time_to_live_stands_between_the_engine_and_scheduling() {
    let serves = |router: &str, kind, programs| -> f64 {
        day(kind, programs, baseline(router)).steps_per_min
    };
    for (kind, programs) in [("mini-swe", 96), ("openhands", 72), ("openhands", 96)] {
        let ttl = serves("ttl", kind, programs);
        assert!(
            ttl > 1.2 * serves("pinned", kind, programs),
            "{kind}: {ttl:.0}"
        );
        assert!(
            ttl < 0.9 * serves("thunder_agent", kind, programs),
            "{kind}: {ttl:.0}"
        );
    }
}

#[test]
fn a_baseline_repeats_by_its_seed_and_an_unknown_one_is_none() {
    for (name, router) in BASELINES {
        let spec = Spec {
            workers: 2,
            ..spec("openhands", 60, router)
        };
        let played: [Result<Report, _>; 2] = [simulate(&spec), simulate(&spec)];
        assert_eq!(played[0], played[1], "{name}");
        assert!(
            played[0].as_ref().is_ok_and(|report| report.steps > 0),
            "{name}"
        );
    }
    assert_eq!(RouterSpec::baseline("oracle"), None);
}
