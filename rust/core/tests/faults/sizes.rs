//! Programs and prefixes of unusual size, and capacity that is unknown or of several ranks.

use thunder_core::{Decision, PolicyName, Rejection, RequestId, Seat, SeatFacts, Usage};

use crate::common::{Lab, admits, facts, holds, paused};
use crate::{ZERO, both};

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
