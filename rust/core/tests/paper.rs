//! `policy = paper`: equations 7, 10 and 11, with numbers.

mod common;

use common::{Lab, admits, config, holds, paused};
use thunder_core::{PolicyName, Reason, Seat, Status};

const ZERO: Seat = Seat::new(0, 0);

fn lab(capacity: u64) -> Lab {
    let mut lab = Lab::with(PolicyName::Paper, capacity);
    lab.tick();
    lab
}

#[test]
fn a_newcomer_that_nobody_waits_before_goes_at_once_and_others_at_the_next_step() {
    let mut lab = lab(1_000);
    let a = lab.ask("a", 600);
    assert_eq!(lab.admits(), [(a, ZERO)]);
    let (b, c) = (lab.ask("b", 700), lab.ask("c", 300));
    assert_eq!(holds(&lab.tick()), [b, c]);
    assert_eq!(admits(&lab.run_for(4_999)), []);
    assert_eq!(
        admits(&lab.run_for(1)),
        [(c, ZERO)],
        "the shortest, every 5 s"
    );
}

#[test]
fn an_acting_program_weighs_half_after_a_second() {
    // At 5 s: 800 · 2^-2 = 200 acting and 700 reasoning are 900 of 1,000.
    let mut lab = lab(1_000);
    let a = lab.ask("a", 800);
    lab.tick();
    lab.wait(3_000);
    lab.answer(a, 800, 0);
    let b = lab.ask("b", 700);
    assert_eq!(holds(&lab.tick()), [b]);
    assert_eq!(
        admits(&lab.run_for(2_000)),
        [(b, ZERO)],
        "1,500 tokens, 900 by weight"
    );
    let c = lab.ask("c", 101);
    assert_eq!(holds(&lab.tick()), [c]);
    lab.core.cancelled(c, lab.now).unwrap();
    let d = lab.ask("d", 100);
    assert_eq!(lab.admits(), [(d, ZERO)]);
}

#[test]
fn acting_programs_are_paused_before_reasoning_ones_and_the_shortest_first() {
    let mut lab = lab(1_000);
    for (name, tokens) in [("long", 400), ("short", 250)] {
        let request = lab.ask(name, tokens);
        lab.tick();
        lab.answer(request, tokens, 0);
    }
    let busy = lab.ask("busy", 300);
    lab.tick();
    lab.wait(4_900);
    for name in ["long", "short"] {
        let request = lab.ask(name, 400);
        lab.tick();
        lab.answer(request, 400, 0);
    }
    lab.core.progress(busy, 200, lab.now).unwrap();
    // 500 reasoning, and twice 400 · 2^-0.1: 1,246 of 1,000.
    let decisions = lab.run_for(100);
    assert_eq!(paused(&decisions).len(), 1, "one of 400 covers 246");
    let pressure = decisions[0].reason();
    assert!(
        matches!(pressure, Reason::Pressure { limit: 1_000, .. }),
        "{pressure}"
    );
    let view = lab.core.program("busy", lab.now).unwrap();
    assert_eq!(view.status, Status::Active);
}

#[test]
fn lambdas_bound_pausing_and_restoring() {
    let mut config = config(PolicyName::Paper);
    config.paper_lambda_min = 0.5;
    config.paper_lambda_max = 0.8;
    let mut lab = Lab::new(config);
    lab.up(0, common::facts(1_000));
    lab.tick();
    let a = lab.ask("a", 400);
    assert_eq!(lab.admits(), [(a, ZERO)]);
    let b = lab.ask("b", 101);
    assert_eq!(holds(&lab.tick()), [b], "501 of 500");
    lab.core.cancelled(b, lab.now).unwrap();
    let c = lab.ask("c", 100);
    assert_eq!(lab.admits(), [(c, ZERO)]);
    lab.core.progress(a, 301, lab.now).unwrap();
    assert_eq!(
        paused(&lab.run_for(5_000)),
        Vec::<&str>::new(),
        "801 of 800: marked"
    );
    lab.answer(c, 100, 0);
    assert_eq!(
        paused(&lab.tick()),
        ["c"],
        "the shortest, at the end of its turn"
    );
}

#[test]
fn a_program_goes_where_most_room_is() {
    let mut lab = lab(1_000);
    lab.up(1, common::facts(900));
    let a = lab.ask("a", 300);
    assert_eq!(lab.admits(), [(a, ZERO)]);
    let b = lab.ask("b", 100);
    assert_eq!(lab.admits(), [(b, Seat::new(1, 0))], "900 against 700");
}
