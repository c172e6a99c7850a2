//! Limits reject; nothing is ever forced in.

use thunder_core::{Decision, PolicyName, Rejection, RequestId, WorkerId};

use crate::common::{Lab, admits, config, facts, holds, paused};
use crate::{ZERO, bare_lab, both};

// === 20. Limits reject; nothing is forced in ===

#[test]
fn a_hold_ends_in_a_rejection_never_in_a_forced_admission() {
    for policy in both() {
        let mut config = config(policy);
        config.hold_limit_ms = 1_800_000;
        config.time_slice_ms = None;
        config.displacement_eta = 0.0;
        let mut lab = Lab::new(config);
        lab.up(0, facts(1_000));
        let whole = lab.ask("whole", 990);
        lab.run_for(5_000);
        let held = lab.ask("held", 500);
        let decisions = lab.run_for(1_800_000);
        assert_eq!(admits(&decisions), []);
        let rejected = decisions.iter().find_map(|decision| match decision {
            Decision::Reject {
                request,
                kind,
                retry_after,
                ..
            } => Some((*request, *kind, *retry_after)),
            _ => None,
        });
        let (request, kind, retry_after) = rejected.expect("the limit acts");
        assert_eq!((request, kind), (held, Rejection::HoldLimit));
        assert!((1_000..=60_000).contains(&retry_after));
        assert!(lab.charged(0) <= 1_000);
        lab.answer(whole, 990, 0);
    }
}

#[test]
fn a_full_queue_turns_newcomers_away_but_nobody_who_has_run() {
    let mut config = config(PolicyName::Adaptive);
    config.queue_limit = 2;
    config.displacement_eta = 0.0;
    let mut lab = Lab::new(config);
    lab.up(0, facts(1_000));
    let old = lab.ask("old", 500);
    lab.tick();
    lab.answer(old, 500, 0);
    lab.core.pause("old", 0).unwrap();
    let whole = lab.ask("whole", 990);
    lab.tick();
    lab.core.restore("old", 0).unwrap();
    let waiting = [lab.ask("x", 500), lab.ask("y", 500)];
    assert_eq!(holds(&lab.tick()), waiting);
    let (turned_away, returning) = (lab.ask("z", 500), lab.ask("old", 510));
    let decisions = lab.tick();
    assert_eq!(holds(&decisions), [returning]);
    assert!(decisions.iter().any(|d| matches!(
        d,
        Decision::Reject { request, kind: Rejection::QueueFull, .. } if *request == turned_away
    )));
    lab.answer(whole, 990, 0);
}

#[test]
fn held_for_too_long_without_a_ready_worker_is_not_the_clients_fault() {
    let mut lab = Lab::of(PolicyName::Adaptive);
    lab.up(0, facts(1_000));
    lab.core.worker_unready(WorkerId(0), 0).unwrap();
    let held = lab.ask("a", 10);
    assert_eq!(unserved(&lab.run_for(3_599_999)), []);
    assert_eq!(unserved(&lab.run_for(1)), [held]);
}

#[test]
fn nobody_waits_long_for_a_fleet_that_is_not_there() {
    for policy in [PolicyName::Off, PolicyName::Paper, PolicyName::Adaptive] {
        let mut lab = Lab::of(policy);
        let early = lab.ask("a", 10);
        assert_eq!(unserved(&lab.run_for(29_999)), []);
        assert_eq!(unserved(&lab.run_for(1)), [early]);
        let late = lab.ask("b", 10);
        assert_eq!(
            unserved(&lab.tick()),
            [late],
            "at once, until a worker is up"
        );

        lab.up(0, facts(1_000));
        let served = lab.ask("c", 10);
        assert_eq!(lab.admits(), [(served, ZERO)]);
        lab.answer(served, 10, 0);
        lab.core.worker_down(WorkerId(0), lab.now).unwrap();
        let patient = lab.ask("c", 20);
        assert_eq!(unserved(&lab.run_for(29_999)), []);
        lab.up(0, facts(1_000));
        // The paper's policy restores when it looks next.
        let looked = lab.run_for(5_000);
        assert_eq!(admits(&looked), [(patient, ZERO)]);
        assert_eq!(unserved(&lab.run_for(60_000)), []);
        lab.answer(patient, 20, 0);

        // While weights are exchanged workers may restart: the wait begins again after it.
        lab.core.worker_down(WorkerId(0), lab.now).unwrap();
        lab.core.weight_sync_begin(lab.now);
        let during = lab.ask("d", 10);
        assert_eq!(unserved(&lab.run_for(299_000)), []);
        lab.core.weight_sync_end(lab.now);
        assert_eq!(unserved(&lab.run_for(30_000)), [during]);
        lab.core.check().unwrap();
    }
}

/// The requests that were turned away because nobody serves.
fn unserved(decisions: &[Decision]) -> Vec<RequestId> {
    let turned_away = decisions.iter().filter_map(|decision| match decision {
        Decision::Reject {
            request,
            kind: Rejection::NoWorker,
            ..
        } => Some(*request),
        _ => None,
    });
    turned_away.collect()
}

#[test]
fn a_returning_turn_is_not_sent_past_capacity() {
    let mut lab = bare_lab(1_000);
    let (a, b) = (lab.ask("a", 400), lab.ask("b", 500));
    lab.tick();
    lab.answer(a, 400, 0);
    lab.tick();
    let grown = lab.ask("a", 600);
    let decisions = lab.tick();
    assert_eq!(admits(&decisions), [], "1,100 of 1,000");
    assert_eq!(paused(&decisions), ["a"], "it gives up its seat instead");
    lab.answer(b, 500, 0);
    let decisions = lab.tick();
    assert_eq!(admits(&decisions), [], "b acts, and keeps its seat");
    lab.core.release("b", 0);
    assert_eq!(lab.admits(), [(grown, ZERO)]);
}

#[test]
fn a_returning_turn_that_has_grown_makes_acting_programs_leave() {
    let mut lab = bare_lab(1_000);
    let (a, b) = (lab.ask("a", 400), lab.ask("b", 500));
    lab.tick();
    lab.answer(a, 400, 0);
    lab.answer(b, 500, 0);
    lab.tick();
    let grown = lab.ask("a", 600);
    let decisions = lab.tick();
    assert_eq!(paused(&decisions), ["b"]);
    assert_eq!(admits(&decisions), [(grown, ZERO)]);
}
