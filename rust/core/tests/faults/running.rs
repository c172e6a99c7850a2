//! What running programs may cause, and what ends a request.

use thunder_core::{Phase, PolicyName, RequestId, Usage};

use crate::common::{Lab, facts, paused};
use crate::{bare, both, program};

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
