//! Known faults of every public implementation, each with its numbers and then its whole kind.

mod common;

use common::{Lab, admits, config, facts, holds, paused};
use thunder_core::{
    Decision, Phase, PolicyName, Reason, Rejection, RequestId, SchedulerConfig, Seat, SeatFacts,
    Status, Tokens, Usage, WorkerId,
};

const ZERO: Seat = Seat::new(0, 0);

fn both() -> [PolicyName; 2] {
    [PolicyName::Paper, PolicyName::Adaptive]
}

/// Adaptive without the pieces that would interfere with another one's numbers.
fn bare() -> SchedulerConfig {
    SchedulerConfig {
        margin_min: 0.0,
        margin_max: 0.0,
        displacement_eta: 0.0,
        ..config(PolicyName::Adaptive)
    }
}

fn bare_lab(capacity: Tokens) -> Lab {
    let mut lab = Lab::new(bare());
    lab.up(0, facts(capacity));
    lab
}

fn program(lab: &Lab, name: &str) -> thunder_core::ProgramView {
    lab.core.program(name, lab.now).expect("known")
}

// === 1. Overflow of ten reasoning programs ===

/// Ten programs of 10 fill C = 100; each then decodes one token, and 110 are charged.
fn ten_of_eleven(policy: PolicyName) -> (Lab, Vec<RequestId>) {
    let mut config = bare();
    config.policy = policy;
    config.mark_running_above = 1.0;
    let mut lab = Lab::new(config);
    lab.up(0, facts(100));
    let requests: Vec<RequestId> = (0..10).map(|n| lab.ask(&n.to_string(), 10)).collect();
    assert_eq!(lab.run_for(5_000).len(), 10);
    for request in &requests {
        lab.core.progress(*request, 1, lab.now).expect("in flight");
    }
    assert_eq!(lab.charged(0), 110);
    (lab, requests)
}

#[test]
fn an_overflow_pauses_as_few_running_programs_as_cover_it() {
    for policy in both() {
        let (mut lab, requests) = ten_of_eleven(policy);
        assert_eq!(
            paused(&lab.run_for(5_000)).len(),
            0,
            "nobody stops in mid-turn"
        );
        for request in requests {
            lab.answer(request, 10, 1);
        }
        assert_eq!(
            paused(&lab.tick()).len(),
            1,
            "{policy:?}: 11 cover an overflow of 10"
        );
    }
}

#[test]
fn marks_vanish_when_the_pressure_ends() {
    for policy in both() {
        let (mut lab, requests) = ten_of_eleven(policy);
        lab.run_for(5_000);
        // Whoever is marked, two others end.
        for (other, request) in requests[..2].iter().enumerate() {
            lab.core.failed(*request, lab.now).expect("in flight");
            lab.core.release(&other.to_string(), lab.now);
            lab.run_for(5_000);
        }
        for request in &requests[2..] {
            lab.answer(*request, 10, 1);
        }
        assert_eq!(paused(&lab.run_for(100)).len(), 0, "{policy:?}");
    }
}

// === 2, 3, 7. What ends a request, and what it leaves ===

#[test]
fn every_way_out_ends_the_request_and_keeps_the_size() {
    type End = fn(&mut Lab, RequestId);
    let ends: [(&str, End); 4] = [
        ("a failure", |lab, id| lab.core.failed(id, lab.now).unwrap()),
        ("a client that left", |lab, id| {
            lab.core.cancelled(id, lab.now).unwrap();
        }),
        ("an answer without usage", |lab, id| {
            lab.answer_with(id, Usage::default());
        }),
        ("a failure in mid-stream", |lab, id| {
            lab.core.progress(id, 50, lab.now).unwrap();
            lab.core.failed(id, lab.now).unwrap();
        }),
    ];
    for policy in [PolicyName::Off, PolicyName::Paper, PolicyName::Adaptive] {
        for (how, end) in ends {
            let mut lab = Lab::with(policy, 10_000);
            let first = lab.ask("a", 500);
            lab.tick();
            lab.answer(first, 500, 100);
            let second = lab.ask("a", 600);
            lab.tick();
            end(&mut lab, second);
            lab.tick();
            let view = program(&lab, "a");
            assert_eq!(view.phase, Phase::Acting, "{how}");
            assert_eq!((view.in_flight, view.waiting), (0, 0), "{how}");
            assert_eq!(view.context_tokens, 600, "{how}");
            assert_eq!(lab.charged(0), 600, "{how}");
            assert!(
                lab.core.failed(second, lab.now).is_err(),
                "{how} ends it once"
            );
        }
    }
}

#[test]
fn a_newcomer_whose_first_request_fails_keeps_what_it_took_to_get_there() {
    let mut lab = Lab::with(PolicyName::Adaptive, 10_000);
    let first = lab.ask("a", 500);
    lab.tick();
    lab.core.progress(first, 20, 0).unwrap();
    lab.core.failed(first, 0).unwrap();
    lab.tick();
    assert_eq!(program(&lab, "a").context_tokens, 520);
    assert_eq!(lab.charged(0), 520);
}

#[test]
fn a_small_request_beside_a_large_one_ends_neither_the_turn_nor_the_size() {
    for (first_end, second_end) in [(0, 1), (1, 0)] {
        let mut lab = Lab::with(PolicyName::Adaptive, 10_000);
        let requests = [(lab.ask("a", 800), 800), (lab.ask("a", 80), 80)];
        assert_eq!(lab.admits().len(), 2);
        assert_eq!(lab.charged(0), 880);
        let (request, prompt) = requests[first_end];
        lab.answer(request, prompt, 40);
        lab.tick();
        assert_eq!(program(&lab, "a").phase, Phase::Reasoning);
        let (request, prompt) = requests[second_end];
        lab.answer(request, prompt, 40);
        lab.tick();
        let view = program(&lab, "a");
        assert_eq!(view.phase, Phase::Acting);
        assert_eq!(view.context_tokens, 840, "the larger of the two");
    }
}

#[test]
fn a_side_request_with_another_system_prompt_does_not_shrink_the_program() {
    let mut lab = Lab::with(PolicyName::Adaptive, 10_000);
    let main = lab.ask_as(Some("a"), 5_000, Some(1));
    lab.tick();
    lab.answer(main, 5_000, 100);
    let title = lab.ask_as(Some("a"), 80, Some(2));
    lab.tick();
    assert_eq!(
        lab.charged(0),
        5_100,
        "the context still waits for its next turn"
    );
    lab.answer(title, 80, 10);
    lab.tick();
    assert_eq!(program(&lab, "a").context_tokens, 5_100);
    let compacted = lab.ask_as(Some("a"), 900, Some(1));
    lab.tick();
    lab.answer(compacted, 900, 100);
    lab.tick();
    assert_eq!(
        program(&lab, "a").context_tokens,
        1_000,
        "a compacted context does"
    );
}

#[test]
fn eight_requests_under_one_id_all_progress_and_one_release_ends_it() {
    for policy in [PolicyName::Off, PolicyName::Paper, PolicyName::Adaptive] {
        let mut lab = Lab::with(policy, 10_000);
        let requests: Vec<RequestId> = (0..8).map(|_| lab.ask("group", 1_000)).collect();
        assert_eq!(lab.admits().len(), 8);
        assert_eq!(program(&lab, "group").in_flight, 8);
        for request in &requests[..4] {
            lab.answer(*request, 1_000, 10);
        }
        assert!(lab.core.release("group", 0));
        lab.tick();
        assert!(lab.core.program("group", 0).is_none());
        assert_eq!(lab.charged(0), 4_000, "what is under way still counts");
        for request in &requests[4..] {
            lab.answer(*request, 1_000, 10);
        }
        lab.tick();
        assert_eq!(lab.charged(0), 0);
        assert!(!lab.core.release("group", 0));
    }
}

#[test]
fn a_program_may_come_back_after_its_release() {
    let mut lab = Lab::with(PolicyName::Adaptive, 10_000);
    let first = lab.ask("a", 1_000);
    lab.tick();
    let before = program(&lab, "a").generation;
    assert!(lab.core.release("a", 0));
    let second = lab.ask("a", 1_000);
    lab.tick();
    let after = program(&lab, "a");
    assert!(after.generation > before);
    assert_eq!(
        after.in_flight, 1,
        "the earlier run's request is not its own"
    );
    lab.answer(first, 1_000, 1);
    lab.tick();
    assert_eq!(program(&lab, "a").in_flight, 1);
    lab.answer(second, 1_000, 1);
    assert_eq!(program(&lab, "a").steps, 1);
}

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

// === 9. Oversize ===

#[test]
fn a_program_larger_than_every_worker_is_told_so_and_evicts_nobody() {
    for policy in both() {
        let mut lab = Lab::with(policy, 1_000);
        let small: Vec<RequestId> = (0..3).map(|n| lab.ask(&n.to_string(), 300)).collect();
        assert_eq!(lab.run_for(5_000).len(), 3);
        let huge = lab.ask("huge", 1_200);
        let decisions = lab.tick();
        let [
            Decision::Reject {
                request,
                kind: Rejection::Oversize,
                reason,
                ..
            },
        ] = &decisions[..]
        else {
            panic!("{decisions:?}");
        };
        assert_eq!(*request, huge);
        assert_eq!(
            reason.to_string(),
            "needs 1,200, the largest worker has 1,000"
        );
        for request in small {
            lab.answer(request, 300, 0);
        }
        assert_eq!(paused(&lab.run_for(5_000)).len(), 0);
    }
}

#[test]
fn a_program_that_needs_a_whole_worker_gets_the_largest_alone() {
    let mut lab = Lab::of(PolicyName::Adaptive);
    lab.up(0, facts(1_000));
    lab.up(1, facts(2_000));
    let small = lab.ask("small", 100);
    assert_eq!(lab.admits(), [(small, Seat::new(1, 0))]);
    let whole = lab.ask("whole", 1_990);
    let mut decisions = lab.run_for(60_000);
    assert_eq!(holds(&decisions), [whole]);
    let late = lab.ask("late", 100);
    assert_eq!(lab.admits(), [(late, ZERO)], "its seat is kept free");
    lab.answer(small, 100, 0);
    lab.core.release("small", lab.now);
    decisions = lab.tick();
    assert_eq!(admits(&decisions), [(whole, Seat::new(1, 0))]);
    assert!(paused(&decisions).is_empty());
}

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

// === 12. A prefix that all share ===

#[test]
fn ten_programs_that_share_nine_hundred_tokens_all_fit_three_thousand() {
    let mut lab = Lab::with(PolicyName::Adaptive, 3_000);
    let mut asked = Vec::new();
    for n in 0..10 {
        asked.push(lab.ask_as(Some(&n.to_string()), 1_000, Some(42)));
    }
    let mut admitted = 0;
    for (n, request) in asked.into_iter().enumerate() {
        admitted += lab.admits().len();
        let cached = if n == 0 { 0 } else { 900 };
        lab.answer_with(
            request,
            Usage {
                prompt_tokens: Some(1_000),
                completion_tokens: Some(0),
                cached_tokens: Some(cached),
                ..Usage::default()
            },
        );
    }
    admitted += lab.admits().len();
    assert_eq!(admitted, 10);
    for n in 0..10 {
        lab.ask_as(Some(&n.to_string()), 1_000, Some(42));
    }
    lab.tick();
    assert_eq!(lab.charged(0), 1_900, "900 once and ten times 100");
}

#[test]
fn sharing_is_never_assumed() {
    let mut lab = Lab::with(PolicyName::Adaptive, 3_000);
    for n in 0..10 {
        lab.ask_as(Some(&n.to_string()), 1_000, Some(42));
    }
    assert_eq!(
        lab.admits().len(),
        2,
        "two of 1,000 and a margin, until something was observed"
    );
}

// === 13, 14. Capacity ===

#[test]
fn unknown_and_zero_capacity_mean_pass_through() {
    for policy in both() {
        for device_tokens in [None, Some(0)] {
            let mut lab = Lab::of(policy);
            let unknown = SeatFacts {
                device_tokens,
                ..facts(0)
            };
            lab.up(0, unknown);
            for n in 0..50 {
                lab.ask(&n.to_string(), 1_000_000);
            }
            assert_eq!(lab.admits().len(), 50, "{policy:?} {device_tokens:?}");
            lab.run_for(100_000);
        }
    }
}

#[test]
fn capacity_that_becomes_known_is_counted_from_then_on() {
    let mut lab = Lab::of(PolicyName::Adaptive);
    lab.up(
        0,
        SeatFacts {
            device_tokens: None,
            ..facts(0)
        },
    );
    let a = lab.ask("a", 600);
    assert_eq!(lab.admits(), [(a, ZERO)]);
    lab.up(0, facts(1_000));
    let b = lab.ask("b", 600);
    assert_eq!(holds(&lab.tick()), [b]);
}

#[test]
fn every_rank_has_a_budget_of_its_own() {
    let mut lab = Lab::of(PolicyName::Adaptive);
    for rank in 0..2 {
        lab.core
            .worker_up(Seat::new(0, rank), facts(1_000), 0)
            .unwrap();
    }
    let requests = [lab.ask("a", 900), lab.ask("b", 900), lab.ask("c", 900)];
    let decisions = lab.tick();
    let seats: Vec<Seat> = admits(&decisions)
        .into_iter()
        .map(|(_, seat)| seat)
        .collect();
    assert_eq!(seats.len(), 2);
    assert!(seats.contains(&Seat::new(0, 0)) && seats.contains(&Seat::new(0, 1)));
    assert_eq!(holds(&decisions), [requests[2]]);
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
