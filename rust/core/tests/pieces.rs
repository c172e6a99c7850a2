//! The smaller pieces of the adaptive policy, each alone, with its numbers.

mod common;

use common::{Lab, admits, config, facts, holds, paused};
use thunder_core::{
    Decision, PolicyName, Reason, RequestId, SchedulerConfig, Seat, SeatFacts, Usage,
};

const ZERO: Seat = Seat::new(0, 0);
const ONE: Seat = Seat::new(1, 0);

fn lab(config: SchedulerConfig, of: SeatFacts) -> Lab {
    let mut lab = Lab::new(config);
    lab.up(0, of);
    lab
}

fn calm() -> SchedulerConfig {
    SchedulerConfig {
        displacement_eta: 0.0,
        ..config(PolicyName::Adaptive)
    }
}

/// One turn that answers at once and calls this tool.
fn turn(lab: &mut Lab, program: &str, prompt: u64, tool: &str) {
    let request = lab.ask(program, prompt);
    assert_eq!(admits(&lab.tick()).len(), 1, "{program} has room");
    lab.answer_with(
        request,
        Usage {
            prompt_tokens: Some(prompt),
            completion_tokens: Some(0),
            tool: Some(tool),
            ..Usage::default()
        },
    );
}

// === Misses ===

/// Turns of 5,000 tokens, none of which is found in the cache; the margin in tokens afterwards.
fn margin_after_misses(sessions: bool, aimd: bool) -> u64 {
    let mut lab = lab(
        SchedulerConfig { aimd, ..calm() },
        SeatFacts {
            sessions,
            ..facts(10_000)
        },
    );
    for _ in 0..40 {
        let request = lab.ask("a", 5_000);
        lab.tick();
        lab.wait(2_000);
        lab.answer_with(
            request,
            Usage {
                prompt_tokens: Some(5_000),
                completion_tokens: Some(0),
                cached_tokens: Some(0),
                ..Usage::default()
            },
        );
        lab.tick();
    }
    lab.core.workers()[0].margin_tokens
}

#[test]
fn misses_widen_the_margin_where_the_engine_cannot_be_told() {
    // 5,000 tokens take 262 ms; one such miss every 2 s is 13 % of the time. 300 tokens are the
    // least margin, and 200 come with each of six raises, the first once the rate has built up.
    assert!(margin_after_misses(false, true).abs_diff(300 + 6 * 200) <= 1);
    assert_eq!(
        margin_after_misses(true, true),
        300,
        "sessions can be closed"
    );
    assert_eq!(margin_after_misses(false, false), 300, "switched off");
}

#[test]
fn a_margin_that_misses_widened_shrinks_again_slowly_and_has_a_cap() {
    let mut lab = lab(
        calm(),
        SeatFacts {
            sessions: false,
            ..facts(10_000)
        },
    );
    let mut margins = Vec::new();
    for second in 0..1_000_u64 {
        let request = lab.ask("a", 5_000);
        lab.tick();
        let cached = if second < 300 { 0 } else { 5_000 };
        lab.wait(1_000);
        lab.answer_with(
            request,
            Usage {
                prompt_tokens: Some(5_000),
                completion_tokens: Some(0),
                cached_tokens: Some(cached),
                ..Usage::default()
            },
        );
        lab.tick();
        margins.push(lab.core.workers()[0].margin_tokens);
    }
    assert_eq!(margins[299], 2_000, "20 % and no more");
    assert!(
        margins.windows(2).all(|w| w[1] + 50 >= w[0]),
        "0.5 % at a time"
    );
    assert_eq!(margins[999], 300);
}

// === Displacement ===

#[test]
fn the_more_are_active_the_longer_a_tool_must_take_to_be_displaced() {
    // 4,000 tokens restore in 208 ms. With one other on the seat: 208 · 2 / 0.5 = 832 ms.
    for (waits, gone) in [(832, false), (833, true)] {
        let mut lab = lab(config(PolicyName::Adaptive), facts(10_000));
        for _ in 0..2 {
            turn(&mut lab, "idle", 4_000, "tool");
            lab.wait(waits);
        }
        let other = lab.ask("other", 5_000);
        lab.tick();
        turn(&mut lab, "idle", 4_000, "tool");
        let late = lab.ask("late", 4_000);
        let decisions = lab.tick();
        assert_eq!(paused(&decisions).len() == 1, gone, "a tool of {waits} ms");
        assert_eq!(admits(&decisions) == [(late, ZERO)], gone);
        lab.answer(other, 5_000, 0);
    }
}

#[test]
fn a_host_tier_makes_displacing_cheap() {
    let with_host = SeatFacts {
        host_tokens: 20_000,
        ..facts(10_000)
    };
    for (of, host_tier, gone) in [
        (with_host, true, true),
        (with_host, false, false),
        (facts(10_000), true, false),
    ] {
        let mut lab = lab(
            SchedulerConfig {
                host_tier,
                ..config(PolicyName::Adaptive)
            },
            of,
        );
        for _ in 0..3 {
            turn(&mut lab, "idle", 8_000, "tool");
            lab.wait(300);
        }
        turn(&mut lab, "idle", 8_000, "tool");
        let late = lab.ask("late", 8_000);
        // Loading back 8,000 tokens takes 8 ms, computing them 432 ms: twice that is 864 ms.
        assert_eq!(admits(&lab.tick()) == [(late, ZERO)], gone);
    }
}

#[test]
fn a_host_tier_that_lost_what_was_paused_makes_displacing_dear() {
    // 8 ms where all of it survives, 432 ms where nothing does; the tool takes 300 ms, and a program
    // is displaced where its restore takes less than half of that.
    for (found, gone) in [(8_000, true), (0, false)] {
        let mut lab = lab(
            config(PolicyName::Adaptive),
            SeatFacts {
                host_tokens: 20_000,
                ..facts(10_000)
            },
        );
        turn(&mut lab, "idle", 8_000, "tool");
        for _ in 0..20 {
            lab.core.pause("idle", lab.now).expect("known");
            lab.core.restore("idle", lab.now).expect("known");
            lab.wait(300);
            let back = lab.ask("idle", 8_000);
            lab.tick();
            let usage = Usage {
                prompt_tokens: Some(8_000),
                completion_tokens: Some(0),
                cached_tokens: Some(found),
                tool: Some("tool"),
                ..Usage::default()
            };
            lab.answer_with(back, usage);
        }
        let late = lab.ask("late", 8_000);
        assert_eq!(admits(&lab.tick()) == [(late, ZERO)], gone);
    }
}

#[test]
fn a_tool_is_asked_about_again_when_its_age_has_doubled() {
    let mut lab = lab(config(PolicyName::Adaptive), facts(10_000));
    turn(&mut lab, "idle", 8_000, "tool");
    let late = lab.ask("late", 8_000);
    assert_eq!(holds(&lab.tick()), [late]);
    // Nothing is known of the tool, so it is expected to last as long again: 1 s above 864 ms.
    assert_eq!(admits(&lab.run_for(999)), []);
    assert_eq!(admits(&lab.run_for(1)), [(late, ZERO)]);
}

// === Leases ===

#[test]
fn a_lease_outlasts_the_expected_tool_time() {
    let mut lab = lab(calm(), facts(10_000));
    turn(&mut lab, "a", 1_000, "slow");
    for _ in 0..9 {
        lab.run_for(50_000);
        turn(&mut lab, "a", 1_000, "slow");
    }
    // Expected 50 s, and 30 s more.
    assert_eq!(paused(&lab.run_for(79_999)), Vec::<&str>::new());
    let decisions = lab.run_for(1);
    assert_eq!(paused(&decisions), ["a"]);
    let lease = Reason::Lease {
        silent: 80_000,
        lease: 80_000,
    };
    assert_eq!(decisions[0].reason(), &lease);
}

// === Programs that never say goodbye ===

/// Eight programs end without a word, each after two turns; none comes back within its lease.
fn silent_ends(lab: &mut Lab) {
    for name in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        turn(lab, name, 1_000, "bash");
        lab.wait(100);
        let last = lab.ask(name, 1_000);
        lab.tick();
        lab.answer(last, 1_000, 0);
        assert_eq!(paused(&lab.run_for(60_000)), [name]);
    }
}

#[test]
fn who_answered_like_those_that_never_came_back_gives_way_at_once() {
    for known in [false, true] {
        let mut lab = lab(config(PolicyName::Adaptive), facts(10_000));
        if known {
            silent_ends(&mut lab);
        }
        let last = lab.ask("silent", 8_000);
        lab.tick();
        lab.answer(last, 8_000, 0);
        // Eight of nine do not return. They hold the room for 60 s; a ninth of a restore is 192 ms.
        let late = lab.ask("late", 8_000);
        let decisions = lab.tick();
        assert_eq!(paused(&decisions) == ["silent"], known);
        assert_eq!(admits(&decisions) == [(late, ZERO)], known);
    }
}

#[test]
fn who_called_a_tool_that_always_returns_stays() {
    let mut lab = lab(config(PolicyName::Adaptive), facts(10_000));
    silent_ends(&mut lab);
    turn(&mut lab, "busy", 8_000, "bash");
    lab.ask("late", 8_000);
    assert_eq!(paused(&lab.tick()), Vec::<&str>::new());
}

// === Claims ===

#[test]
fn room_that_a_claim_leaves_is_the_next_overdues_before_it_is_anybodys() {
    let mut lab = lab(calm(), facts(10_000));
    turn(&mut lab, "running", 9_000, "tool");
    let first = lab.ask("first", 4_000);
    lab.tick();
    let second = lab.ask("second", 5_900);
    lab.tick();
    // It keeps its seat; the two that wait for a minute are overdue, the small one is not.
    for _ in 0..7 {
        lab.run_for(10_000);
        turn(&mut lab, "running", 9_000, "tool");
    }
    let small = lab.ask("small", 500);
    assert_eq!(holds(&lab.tick()), [small]);
    lab.core.release("running", lab.now);
    assert_eq!(admits(&lab.tick()), [(first, ZERO)], "5,700 are left");
    assert_eq!(admits(&lab.run_for(30_000)), [], "kept for the second");
    lab.answer(first, 4_000, 0);
    lab.core.release("first", lab.now);
    let admitted = admits(&lab.tick());
    assert_eq!(admitted, [(second, ZERO), (small, ZERO)]);
}

// === Slices ===

#[test]
fn a_program_that_is_dear_to_restore_keeps_its_seat_longer() {
    // 400 tokens at 20 ms a token restore in 8 s; a hundred times that is 800 s.
    let of = SeatFacts {
        prefill_us_per_token: 20_000.0,
        prefill_ns_per_token2: 0.0,
        ..facts(1_000)
    };
    let mut lab = lab(calm(), of);
    let mut a = lab.ask("a", 400);
    lab.tick();
    let large = lab.ask("large", 700);
    for second in 1..2_000 {
        lab.wait(1_000);
        if lab
            .core
            .program("a", lab.now)
            .is_some_and(|view| view.in_flight > 0)
        {
            lab.answer(a, 400, 0);
            a = lab.ask("a", 400);
        }
        if admits(&lab.tick())
            .iter()
            .any(|(request, _)| *request == large)
        {
            assert_eq!(second, 800);
            return;
        }
    }
    panic!("it never yielded");
}

// === Origins ===

/// A program of 4,000 leaves worker 0; `inflow` tokens of others pass there; where does it go?
fn seat_after_inflow(of: SeatFacts, host_tier: bool, inflow: u64) -> Seat {
    let mut lab = lab(
        SchedulerConfig {
            host_tier,
            ..calm()
        },
        of,
    );
    turn(&mut lab, "a", 4_000, "tool");
    lab.core.pause("a", lab.now).expect("known");
    lab.tick();
    let mut passed = 0;
    while passed < inflow {
        let tokens = (inflow - passed).min(5_000);
        turn(&mut lab, "other", tokens, "tool");
        lab.core.release("other", lab.now);
        passed += tokens;
    }
    lab.up(
        1,
        SeatFacts {
            device_tokens: Some(50_000),
            ..of
        },
    );
    let back = lab.ask("a", 4_000);
    lab.core.restore("a", lab.now).expect("known");
    let admitted = admits(&lab.tick());
    assert_eq!(admitted.len(), 1);
    assert_eq!(admitted[0].0, back);
    admitted[0].1
}

#[test]
fn an_origin_lasts_until_as_much_has_flowed_in_as_there_was_to_spare() {
    let device = facts(10_000);
    assert_eq!(seat_after_inflow(device, true, 9_999), ZERO);
    assert_eq!(seat_after_inflow(device, true, 10_000), ONE);
    let through = SeatFacts {
        host_tokens: 20_000,
        ..device
    };
    assert_eq!(
        seat_after_inflow(through, true, 19_999),
        ZERO,
        "the host tier mirrors the device"
    );
    assert_eq!(seat_after_inflow(through, true, 20_000), ONE);
    assert_eq!(seat_after_inflow(through, false, 9_999), ZERO);
    assert_eq!(
        seat_after_inflow(through, false, 10_000),
        ONE,
        "switched off"
    );
    let back = SeatFacts {
        write_back: true,
        ..through
    };
    assert_eq!(
        seat_after_inflow(back, true, 29_999),
        ZERO,
        "what the device evicts, the host takes"
    );
    assert_eq!(seat_after_inflow(back, true, 30_000), ONE);
}

// === Relief ===

#[test]
fn whoever_is_alone_may_fill_the_seat() {
    let mut lab = lab(calm(), facts(1_000));
    let a = lab.ask("a", 900);
    lab.tick();
    lab.core.progress(a, 95, lab.now).expect("in flight");
    lab.tick();
    lab.answer(a, 900, 95);
    assert_eq!(paused(&lab.tick()), Vec::<&str>::new(), "995 of 1,000");
    let again = lab.ask("a", 1_000);
    assert_eq!(lab.admits(), [(again, ZERO)]);
}

#[test]
fn pressure_begins_at_ninety_seven_percent() {
    for (decoded, pauses) in [(70, 0), (71, 1)] {
        let mut lab = lab(calm(), facts(1_000));
        turn(&mut lab, "idle", 400, "tool");
        let busy = lab.ask("busy", 500);
        lab.tick();
        lab.core
            .progress(busy, decoded, lab.now)
            .expect("in flight");
        assert_eq!(paused(&lab.tick()).len(), pauses, "{decoded} decoded");
    }
}

// === Sharing ===

#[test]
fn only_a_first_turn_tells_what_others_left() {
    let mut lab = lab(calm(), facts(10_000));
    let mut asked: Vec<RequestId> = Vec::new();
    for name in ["a", "b"] {
        asked.push(lab.ask_as(Some(name), 1_000, Some(1)));
    }
    lab.tick();
    for request in asked {
        lab.answer(request, 1_000, 0);
    }
    // Its own cache, found in its second turn, is nobody else's.
    for name in ["a", "b"] {
        let request = lab.ask_as(Some(name), 1_000, Some(1));
        lab.tick();
        lab.answer_with(
            request,
            Usage {
                prompt_tokens: Some(1_000),
                completion_tokens: Some(0),
                cached_tokens: Some(1_000),
                ..Usage::default()
            },
        );
    }
    lab.tick();
    assert_eq!(lab.charged(0), 2_000);
}

#[test]
fn nobody_is_seated_on_a_seat_that_overflows_even_for_nothing() {
    let mut lab = lab(calm(), facts(2_000));
    for (name, cached) in [("a", 0), ("b", 400)] {
        let request = lab.ask_as(Some(name), 500, Some(1));
        lab.tick();
        lab.answer_with(
            request,
            Usage {
                prompt_tokens: Some(500),
                completion_tokens: Some(0),
                cached_tokens: Some(cached),
                ..Usage::default()
            },
        );
    }
    let running: Vec<RequestId> = ["a", "b"]
        .map(|name| lab.ask_as(Some(name), 500, Some(1)))
        .into();
    assert_eq!(admits(&lab.tick()).len(), 2);
    let shared = lab.ask_as(Some("c"), 300, Some(1));
    assert_eq!(lab.admits(), [(shared, ZERO)], "all of it is there already");
    lab.core
        .progress(running[0], 1_600, lab.now)
        .expect("in flight");
    let shared = lab.ask_as(Some("d"), 300, Some(1));
    assert_eq!(
        holds(&lab.tick()),
        [shared],
        "it would still add its own tokens as it decodes"
    );
}

// === Preparing ===

#[test]
fn the_next_in_line_is_told_once() {
    let mut lab = lab(calm(), facts(1_000));
    let whole = lab.ask("whole", 900);
    lab.tick();
    for name in ["x", "y"] {
        lab.ask(name, if name == "x" { 300 } else { 400 });
    }
    let told = |decisions: &[Decision]| -> Vec<String> {
        let told = decisions.iter().filter_map(|decision| match decision {
            Decision::Prepare { program, .. } => Some(program.to_string()),
            _ => None,
        });
        told.collect()
    };
    assert_eq!(told(&lab.tick()), ["x"]);
    assert_eq!(told(&lab.run_for(1_000)), Vec::<String>::new());
    lab.answer(whole, 900, 0);
}
