//! The last token, the last millisecond, and what an answer teaches: each was a mutant that lived.

mod common;

use common::{Lab, admits, config, facts, paused};
use thunder_core::{
    Arrival, Decision, Phase, PolicyName, RequestId, SchedulerConfig, Seat, SeatFacts, Status,
    Tokens, Usage, WorkerId,
};

const ZERO: Seat = Seat::new(0, 0);
const ONE: Seat = Seat::new(1, 0);

/// Adaptive without margins and displacement, whose numbers would interfere.
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

fn retry_after(lab: &mut Lab) -> u64 {
    lab.ask("larger than any worker", 5_000);
    match lab.tick().as_slice() {
        [Decision::Reject { retry_after, .. }] => *retry_after,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rejected_client_is_told_the_mean_wait_of_late() {
    let mut lab = bare_lab(1_000);
    assert_eq!(retry_after(&mut lab), 1_000, "nobody has waited yet");
    lab.ask("a", 900);
    lab.tick();
    for (wait, mean) in [(100_000, 5_000), (200_000, 14_750), (0, 14_012)] {
        let held = lab.ask("b", 500);
        lab.tick();
        lab.wait(wait);
        lab.core.cancelled(held, lab.now).expect("held");
        assert_eq!(retry_after(&mut lab), mean);
    }
}

#[test]
fn something_that_happened_is_decided_at_once() {
    let mut lab = bare_lab(1_000);
    lab.tick();
    assert_eq!(lab.core.next_tick_ms(lab.now), None);
    let request = lab.ask("a", 100);
    assert_eq!(lab.core.next_tick_ms(lab.now), Some(0));
    lab.tick();
    assert_eq!(lab.core.next_tick_ms(lab.now), None);
    lab.answer(request, 100, 0);
    assert_eq!(lab.core.next_tick_ms(lab.now), Some(0));
}

#[test]
fn a_group_is_the_last_one_told() {
    let mut lab = bare_lab(1_000);
    for (id, group) in [(0, "run 1"), (1, "run 2"), (2, "run 2")] {
        let arrival = Arrival {
            program: Some("a"),
            group: Some(group),
            prompt_tokens: 10,
            ..Arrival::default()
        };
        lab.core
            .arrive(RequestId(100 + id), arrival, lab.now)
            .expect("new");
        let view = lab.core.program("a", lab.now).expect("known");
        assert_eq!(view.group.as_deref(), Some(group));
    }
}

#[test]
fn a_request_beside_another_is_not_the_end_of_a_tool() {
    let mut lab = Lab::new(SchedulerConfig {
        lease_ms: 1_000,
        lease_min_ms: 1_000,
        ..bare()
    });
    lab.up(0, facts(1_000));
    let first = lab.ask("a", 100);
    lab.tick();
    lab.answer(first, 100, 0);
    let second = lab.ask("a", 100);
    lab.tick();
    lab.wait(50_000);
    let beside = lab.ask("a", 10);
    lab.tick();
    for request in [second, beside] {
        lab.answer(request, 100, 0);
    }
    lab.tick();
    assert_eq!(paused(&lab.wait(999).tick()), [""; 0]);
    assert_eq!(paused(&lab.wait(1).tick()), ["a"], "no tool took 50 s");
}

// === Misses ===

/// The margin after 40 turns of 5,000 tokens of which this many were found.
fn margin_after(found: Tokens, prefill_us_per_token: f64, restored: bool) -> Tokens {
    let mut lab = Lab::new(SchedulerConfig {
        aimd: true,
        ..bare()
    });
    let engine = SeatFacts {
        sessions: false,
        prefill_us_per_token,
        ..facts(10_000)
    };
    lab.up(0, engine);
    for _ in 0..40 {
        if restored && lab.core.program("a", lab.now).is_some() {
            lab.core.pause("a", lab.now).expect("known");
            lab.core.restore("a", lab.now).expect("known");
        }
        let request = lab.ask("a", 5_000);
        assert_eq!(admits(&lab.tick()), [(request, ZERO)]);
        lab.wait(2_000);
        let usage = Usage {
            prompt_tokens: Some(5_000),
            completion_tokens: Some(0),
            cached_tokens: Some(found),
            ..Usage::default()
        };
        lab.answer_with(request, usage);
        lab.tick();
    }
    lab.core.workers()[0].margin_tokens
}

#[test]
fn what_a_miss_costs_is_what_was_not_found() {
    assert_eq!(margin_after(4_900, 50.0, false), 0, "5 ms of 2 s");
    assert!(margin_after(2_000, 50.0, false) > 0, "160 ms of 2 s");
}

#[test]
fn one_page_may_be_missing_without_a_miss() {
    assert_eq!(margin_after(4_936, 5_000.0, false), 0);
    assert!(margin_after(4_935, 5_000.0, false) > 0);
}

#[test]
fn a_restored_turn_was_not_meant_to_be_kept() {
    assert!(margin_after(0, 50.0, false) > 0);
    assert_eq!(margin_after(0, 50.0, true), 0);
}

// === Places ===

#[test]
fn a_remembered_program_is_seated_where_it_just_fits_a_ready_worker() {
    let mut lab = bare_lab(1_000);
    lab.remember("fills it", 1_000, Some(0));
    lab.remember("too many", 1, Some(0));
    lab.up(1, facts(1_000));
    lab.core
        .worker_unready(WorkerId(1), lab.now)
        .expect("it was up");
    lab.remember("not ready", 1, Some(1));
    lab.tick();
    let status = |name| lab.core.program(name, lab.now).expect("known").status;
    assert_eq!(status("fills it"), Status::Active);
    assert_eq!(status("too many"), Status::Paused);
    assert_eq!(status("not ready"), Status::Paused);
}

/// The seat of a program that was paused on worker 0, after what befell that worker.
fn seat_after(happens: impl FnOnce(&mut Lab)) -> Seat {
    let mut lab = bare_lab(1_000);
    let request = lab.ask("a", 500);
    lab.tick();
    lab.answer(request, 500, 0);
    lab.core.pause("a", lab.now).expect("known");
    lab.tick();
    lab.up(1, facts(5_000));
    happens(&mut lab);
    lab.core.restore("a", lab.now).expect("known");
    lab.ask("a", 600);
    admits(&lab.tick())[0].1
}

#[test]
fn a_worker_that_came_back_from_the_dead_is_nobodys_origin() {
    assert_eq!(seat_after(|_| ()), ZERO);
    let dies = |lab: &mut Lab| {
        lab.core.worker_down(WorkerId(0), lab.now).expect("up");
        lab.up(0, facts(1_000));
    };
    assert_eq!(seat_after(dies), ONE);
}

#[test]
fn a_dead_worker_cannot_drain() {
    let mut lab = bare_lab(1_000);
    lab.core.worker_down(WorkerId(0), lab.now).expect("up");
    assert!(lab.core.worker_draining(WorkerId(0), lab.now).is_err());
    assert!(lab.core.worker_unready(WorkerId(0), lab.now).is_err());
}

#[test]
fn a_request_that_comes_back_from_a_dead_worker_is_whole_again() {
    let mut lab = bare_lab(1_000);
    let request = lab.ask("a", 500);
    lab.tick();
    lab.up(1, facts(1_000));
    lab.core.worker_down(WorkerId(0), lab.now).expect("up");
    lab.core
        .progress(request, 7, lab.now)
        .expect("still under way");
    lab.tick();
    lab.core.bounced(request, lab.now).expect("still under way");
    assert_eq!(lab.admits(), [(request, ONE)]);
    lab.answer(request, 500, 0);
    lab.tick();
    let view = lab.core.program("a", lab.now).expect("known");
    assert_eq!((view.phase, view.in_flight), (Phase::Acting, 0));
}

// === Refusals ===

#[test]
fn a_refusal_is_forgotten_once_the_request_is_elsewhere() {
    let mut lab = bare_lab(1_000);
    let request = lab.ask("a", 500);
    lab.tick();
    lab.up(1, facts(1_000));
    lab.core.bounced(request, lab.now).expect("in flight");
    assert_eq!(lab.admits(), [(request, ONE)]);
    lab.run_for(5_000);
    assert_eq!(lab.core.next_tick_ms(lab.now), None);
}

#[test]
fn a_refusal_is_forgiven_a_second_after_nobody_else_is_left() {
    let mut lab = bare_lab(1_000);
    let request = lab.ask("a", 500);
    lab.tick();
    lab.up(1, facts(1_000));
    let other = lab.ask("b", 900);
    assert_eq!(lab.admits(), [(other, ONE)]);
    lab.core.bounced(request, lab.now).expect("in flight");
    assert_eq!(admits(&lab.run_for(10_000)), []);
    lab.core.worker_unready(WorkerId(1), lab.now).expect("up");
    assert_eq!(admits(&lab.run_for(1_000)), [(request, ZERO)]);
}

// === Promises ===

#[test]
fn a_waiter_as_large_as_the_worker_is_promised_all_of_it() {
    let mut lab = bare_lab(1_000);
    let small = lab.ask("small", 300);
    lab.tick();
    let whole = lab.ask("whole", 1_000);
    lab.tick();
    lab.wait(60_000).tick();
    lab.ask("late", 300);
    assert_eq!(lab.admits(), [], "the room is promised");
    lab.answer(small, 300, 0);
    lab.core.release("small", lab.now);
    assert_eq!(lab.admits(), [(whole, ZERO)]);
}
