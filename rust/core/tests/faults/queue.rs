//! What may block, jump or outlast the queue.

use thunder_core::{Decision, PolicyName, Reason, Status};

use crate::common::{Lab, admits, facts, holds, paused};
use crate::{ZERO, bare_lab, both, program};

// === 4, 5. What may block a newcomer ===

#[test]
fn a_cancelled_waiter_leaves_no_trace() {
    for policy in both() {
        let mut lab = Lab::with(policy, 1_000);
        let a = lab.ask("a", 900);
        lab.tick();
        let b = lab.ask("b", 200);
        assert_eq!(holds(&lab.tick()), [b]);
        lab.core.cancelled(b, lab.now).unwrap();
        lab.tick();
        assert!(lab.core.program("b", lab.now).is_none());
        assert_eq!(lab.core.counts().waiting, 0);
        lab.core.release("a", lab.now);
        lab.answer(a, 900, 1);
        let c = lab.ask("c", 900);
        assert_eq!(admits(&lab.run_for(5_000)), [(c, ZERO)], "{policy:?}");
    }
}

#[test]
fn an_idle_paused_program_takes_no_room() {
    for policy in both() {
        let mut lab = Lab::with(policy, 1_000);
        lab.remember("idle", 1_000, None);
        assert_eq!(program(&lab, "idle").status, Status::Paused);
        assert_eq!(lab.tick(), []);
        let b = lab.ask("b", 1_000);
        assert_eq!(lab.admits(), [(b, ZERO)], "{policy:?}");
        assert_eq!(
            program(&lab, "idle").status,
            Status::Paused,
            "nobody restores it"
        );
    }
}

#[test]
fn an_operators_pause_holds_and_takes_no_room() {
    let mut lab = Lab::with(PolicyName::Adaptive, 1_000);
    let a = lab.ask("a", 600);
    lab.tick();
    lab.core.pause("a", 0).unwrap();
    assert_eq!(
        paused(&lab.tick()),
        Vec::<&str>::new(),
        "its turn ends first"
    );
    lab.answer(a, 600, 10);
    lab.core.pause("a", 0).unwrap();
    assert_eq!(paused(&lab.tick()), ["a"]);
    let again = lab.ask("a", 700);
    let decisions = lab.tick();
    assert_eq!(decisions[0].reason(), &Reason::Operator);
    let b = lab.ask("b", 900);
    assert_eq!(lab.admits(), [(b, ZERO)]);
    lab.answer(b, 900, 1);
    lab.core.release("b", 0);
    assert_eq!(lab.admits(), []);
    lab.core.restore("a", 0).unwrap();
    assert_eq!(lab.admits(), [(again, ZERO)]);
}

// === 6. Nobody ever calls release ===

#[test]
fn programs_that_are_never_released_do_not_fill_the_cluster() {
    let mut lab = Lab::with(PolicyName::Adaptive, 1_000);
    for n in 0..200 {
        let request = lab.ask(&n.to_string(), 400);
        let mut admitted = admits(&lab.tick());
        if admitted.is_empty() {
            admitted = admits(&lab.run_for(61_000));
        }
        assert_eq!(admitted, [(request, ZERO)], "program {n}");
        lab.answer(request, 400, 50);
    }
    let decisions = lab.run_for(3_600_000);
    let expired = decisions
        .iter()
        .filter(|d| matches!(d, Decision::Expire { .. }));
    assert!(expired.count() > 0);
    lab.run_for(3_600_000);
    assert_eq!(
        lab.core.counts().programs,
        0,
        "and in the end they are forgotten"
    );
}

// === 8. The large one among small ones ===

#[test]
fn a_large_waiter_among_endless_small_ones_is_served_within_its_bound() {
    let mut lab = bare_lab(1_000);
    let mut alive = Vec::new();
    let mut born = 0;
    let mut served = 0;
    for _ in 0..2 {
        let request = lab.ask(&format!("small-{born}"), 300);
        alive.push((born, request));
        born += 1;
    }
    assert_eq!(lab.admits().len(), 2);
    let large = lab.ask("large", 700);
    assert_eq!(holds(&lab.tick()), [large]);
    // Every second one small program ends and another comes, as in 200 ticks of the fault.
    for second in 0..200 {
        lab.wait(1_000);
        let (name, request) = alive.remove(0);
        lab.answer(request, 300, 0);
        lab.core.release(&format!("small-{name}"), lab.now);
        let newcomer = lab.ask(&format!("small-{born}"), 300);
        alive.push((born, newcomer));
        born += 1;
        let admitted = admits(&lab.tick());
        if admitted.iter().any(|(request, _)| *request == large) {
            assert!(second + 1 == 60, "served after {} s", second + 1);
            assert!(served >= 58, "small ones ran meanwhile: {served}");
            return;
        }
        served += admitted.len();
        if admitted.is_empty() {
            // It waits behind the claim: let the other one end.
            alive.retain(|(_, request)| *request != newcomer);
            lab.core.cancelled(newcomer, lab.now).unwrap();
        }
    }
    panic!("the large one starved");
}

#[test]
fn programs_that_never_end_yield_after_their_slice() {
    let mut lab = bare_lab(1_000);
    let mut turns = vec![("a", lab.ask("a", 300)), ("b", lab.ask("b", 300))];
    lab.tick();
    let large = lab.ask("large", 700);
    lab.tick();
    for second in 0..1_000 {
        lab.wait(1_000);
        for turn in &mut turns {
            if program(&lab, turn.0).in_flight > 0 {
                lab.answer(turn.1, 300, 0);
                turn.1 = lab.ask(turn.0, 300);
            }
        }
        let decisions = lab.tick();
        if admits(&decisions)
            .iter()
            .any(|(request, _)| *request == large)
        {
            assert_eq!(second + 1, 600, "when it has waited a slice");
            return;
        }
    }
    panic!("the large one starved");
}

// === 11. A retry ===

#[test]
fn a_refused_newcomer_keeps_its_place_in_line() {
    let mut lab = bare_lab(1_000);
    let first = lab.ask("first", 400);
    lab.tick();
    let filler = lab.ask("filler", 600);
    lab.tick();
    lab.core.bounced(first, 0).unwrap();
    lab.up(0, facts(600));
    let (younger, twin) = (lab.ask("younger", 300), lab.ask("twin", 400));
    assert_eq!(holds(&lab.tick()), [first, younger, twin]);
    assert_eq!(
        program(&lab, "first").status,
        Status::New,
        "a newcomer still"
    );
    lab.wait(1_000).up(0, facts(1_000));
    assert_eq!(
        lab.admits(),
        [(younger, ZERO)],
        "the shorter newcomer comes first"
    );
    lab.answer(filler, 600, 0);
    lab.core.release("filler", lab.now);
    assert_eq!(
        lab.admits(),
        [(first, ZERO)],
        "and then the one that came first"
    );
    lab.core.cancelled(younger, lab.now).unwrap();
    lab.core.release("younger", lab.now);
    assert_eq!(lab.admits(), [(twin, ZERO)]);
}
