//! The way back, weight syncs, and workers that come and go.

use thunder_core::{Decision, PolicyName, Reason, Seat, Status, WorkerId};

use crate::common::{Lab, admits, facts, holds, paused};
use crate::{ZERO, program};

// === 10. The way back ===

#[test]
fn a_restore_goes_back_to_an_origin_with_room() {
    let mut lab = Lab::of(PolicyName::Adaptive);
    lab.up(0, facts(1_000));
    let a = lab.ask("a", 500);
    lab.tick();
    lab.answer(a, 500, 0);
    lab.core.pause("a", 0).unwrap();
    let other = lab.ask("other", 150);
    lab.tick();
    lab.up(1, facts(1_000));
    let again = lab.ask("a", 500);
    lab.core.restore("a", 0).unwrap();
    let decisions = lab.tick();
    assert_eq!(
        admits(&decisions),
        [(again, ZERO)],
        "850 of 1,000 free, though 1 has 1,000"
    );
    assert!(decisions.iter().any(|d| matches!(
        d,
        Decision::Restore { reason: Reason::Origin(room), .. } if room.free == 850
    )));
    lab.answer(other, 150, 0);
}

#[test]
fn a_full_origin_is_waited_for_as_long_as_recomputing_would_take() {
    let mut lab = Lab::of(PolicyName::Adaptive);
    lab.up(0, facts(10_000));
    let a = lab.ask("a", 4_000);
    lab.tick();
    lab.answer(a, 4_000, 0);
    lab.core.pause("a", 0).unwrap();
    let other = lab.ask("other", 9_000);
    lab.tick();
    lab.up(1, facts(10_000));
    let again = lab.ask("a", 4_000);
    lab.core.restore("a", 0).unwrap();
    // 4,000 tokens at 50 µs and ½ · 1 ns · 4,000² more: 208 ms.
    assert_eq!(admits(&lab.run_for(207)), []);
    assert_eq!(admits(&lab.run_for(1)), [(again, Seat::new(1, 0))]);
    lab.answer(other, 9_000, 0);
}

#[test]
fn an_origin_whose_cache_was_flushed_is_no_origin() {
    let mut lab = Lab::of(PolicyName::Adaptive);
    lab.up(0, facts(1_000));
    let a = lab.ask("a", 500);
    lab.tick();
    lab.answer(a, 500, 0);
    lab.core.pause("a", 0).unwrap();
    lab.up(1, facts(1_200));
    lab.core.kv_flushed(WorkerId(0), 0).unwrap();
    let again = lab.ask("a", 500);
    lab.core.restore("a", 0).unwrap();
    assert_eq!(lab.admits(), [(again, Seat::new(1, 0))]);
}

// === 18. Weight sync ===

#[test]
fn a_weight_sync_holds_everyone_and_its_end_frees_them() {
    for policy in [PolicyName::Off, PolicyName::Paper, PolicyName::Adaptive] {
        let mut lab = Lab::with(policy, 1_000);
        let a = lab.ask("a", 100);
        lab.tick();
        lab.answer(a, 100, 0);
        lab.core.weight_sync_begin(lab.now);
        let (a, b) = (lab.ask("a", 120), lab.ask("b", 100));
        let decisions = lab.tick();
        assert_eq!(holds(&decisions).len(), 2);
        assert!(decisions.iter().all(|d| d.reason() == &Reason::WeightSync));
        assert_eq!(admits(&lab.run_for(10_000)), []);
        lab.core.weight_sync_end(lab.now);
        let mut admitted = admits(&lab.run_for(5_000));
        admitted.sort_unstable();
        assert_eq!(admitted, [(a, ZERO), (b, ZERO)], "{policy:?}");
    }
}

#[test]
fn a_weight_sync_that_never_ends_is_over_after_five_minutes() {
    let mut lab = Lab::with(PolicyName::Adaptive, 1_000);
    lab.core.weight_sync_begin(0);
    let a = lab.ask("a", 100);
    assert_eq!(admits(&lab.run_for(299_999)), []);
    assert_eq!(admits(&lab.run_for(1)), [(a, ZERO)]);
}

#[test]
fn a_weight_sync_leaves_no_origin() {
    let mut lab = Lab::of(PolicyName::Adaptive);
    lab.up(0, facts(1_000));
    let a = lab.ask("a", 500);
    lab.tick();
    lab.answer(a, 500, 0);
    lab.core.pause("a", 0).unwrap();
    lab.up(1, facts(1_200));
    lab.core.weight_sync_begin(0);
    lab.core.weight_sync_end(0);
    let again = lab.ask("a", 500);
    lab.core.restore("a", 0).unwrap();
    assert_eq!(lab.admits(), [(again, Seat::new(1, 0))]);
}

// === 19. Workers come and go ===

#[test]
fn programs_of_a_worker_that_vanished_go_elsewhere_with_their_size() {
    for policy in [PolicyName::Off, PolicyName::Paper, PolicyName::Adaptive] {
        let mut lab = Lab::with(policy, 1_000);
        let (running, acting) = (lab.ask("running", 300), lab.ask("acting", 200));
        lab.run_for(5_000);
        lab.answer(acting, 200, 50);
        lab.tick();
        lab.up(1, facts(1_000));
        lab.core.worker_down(WorkerId(0), lab.now).unwrap();
        lab.core.bounced(running, lab.now).unwrap();
        let decisions = lab.run_for(5_000);
        assert_eq!(
            admits(&decisions),
            [(running, Seat::new(1, 0))],
            "{policy:?}"
        );
        let view = program(&lab, "acting");
        assert_eq!((view.status, view.context_tokens), (Status::Paused, 250));
        let next = lab.ask("acting", 260);
        assert_eq!(admits(&lab.run_for(5_000)), [(next, Seat::new(1, 0))]);
        assert_eq!(lab.charged(0), 0);
    }
}

#[test]
fn an_unready_worker_keeps_its_programs_and_a_draining_one_loses_them_as_they_turn() {
    for policy in [PolicyName::Off, PolicyName::Paper, PolicyName::Adaptive] {
        let mut lab = Lab::with(policy, 1_000);
        let a = lab.ask("a", 300);
        lab.tick();
        lab.answer(a, 300, 0);
        lab.tick();
        lab.up(1, facts(1_000));
        lab.core.worker_unready(WorkerId(0), lab.now).unwrap();
        let turn = lab.ask("a", 320);
        let decisions = lab.tick();
        assert_eq!(decisions[0].reason(), &Reason::WorkerUnready { seat: ZERO });
        lab.up(0, facts(1_000));
        assert_eq!(
            lab.admits(),
            [(turn, ZERO)],
            "{policy:?}: a flap costs nothing"
        );
        lab.core.worker_draining(WorkerId(0), lab.now).unwrap();
        assert!(paused(&lab.tick()).is_empty(), "not in mid-turn");
        lab.answer(turn, 320, 0);
        assert_eq!(paused(&lab.tick()), ["a"]);
        let turn = lab.ask("a", 340);
        assert_eq!(admits(&lab.run_for(5_000)), [(turn, Seat::new(1, 0))]);
    }
}
