//! `policy = adaptive`: what each piece does, with its numbers.

mod common;

use common::{Lab, admits, config, facts, holds, paused};
use thunder_core::{Decision, PolicyName, Reason, Seat};

fn lab(capacity: u64) -> Lab {
    Lab::with(PolicyName::Adaptive, capacity)
}

#[test]
fn a_program_that_fits_an_empty_worker_runs_whatever_the_margins() {
    let mut lab = lab(1_000);
    let whole = lab.ask("whole", 1_000);
    assert_eq!(lab.admits(), [(whole, Seat::new(0, 0))]);
}

#[test]
fn the_shortest_waiter_gets_freed_room_at_once() {
    let mut lab = lab(1_000);
    let first = lab.ask("first", 900);
    lab.tick();
    let (long, short) = (lab.ask("long", 500), lab.ask("short", 300));
    let decisions = lab.tick();
    assert_eq!(holds(&decisions), [long, short]);
    let hold = decisions
        .iter()
        .find(|d| matches!(d, Decision::Hold { .. }))
        .unwrap();
    assert_eq!(
        hold.reason().to_string(),
        "held: needs 500, worker 0 has 100 of 1,000 free, margin 3 %"
    );
    lab.answer(first, 900, 10);
    assert!(lab.core.release("first", 0));
    let decisions = lab.tick();
    assert_eq!(
        admits(&decisions),
        [(short, Seat::new(0, 0)), (long, Seat::new(0, 0))]
    );
}

#[test]
fn returning_programs_come_before_new_ones() {
    let mut lab = lab(1_000);
    let a = lab.ask("a", 600);
    lab.tick();
    lab.answer(a, 600, 0);
    lab.core.pause("a", lab.now).unwrap();
    let b = lab.ask("b", 900);
    lab.tick();
    let (c, a) = (lab.ask("c", 100), lab.ask("a", 650));
    lab.core.restore("a", lab.now).unwrap();
    lab.tick();
    lab.wait(2_000);
    lab.answer(b, 900, 0);
    lab.core.release("b", lab.now);
    let decisions = lab.tick();
    assert_eq!(
        admits(&decisions)
            .into_iter()
            .map(|(r, _)| r)
            .collect::<Vec<_>>(),
        [a, c]
    );
}

#[test]
fn room_is_kept_for_steps_of_growth() {
    let mut lab = lab(10_000);
    for prompt in [3_000, 3_200] {
        let a = lab.ask("a", prompt);
        lab.tick();
        lab.answer(a, prompt, 200);
    }
    // 2.5 steps of 200 tokens by one program: 500 tokens, 5 %, above the least margin of 3 %.
    let b = lab.ask("b", 6_101);
    assert_eq!(holds(&lab.tick()), [b]);
    lab.core.cancelled(b, lab.now).unwrap();
    let c = lab.ask("c", 6_100);
    assert_eq!(lab.admits(), [(c, Seat::new(0, 0))]);
}

#[test]
fn a_silent_program_gives_up_its_seat_when_its_lease_ends() {
    let mut config = config(PolicyName::Adaptive);
    config.displacement_eta = 0.0;
    config.reservation_ms = None;
    let mut lab = Lab::new(config);
    lab.up(0, facts(1_000));
    let a = lab.ask("a", 900);
    lab.tick();
    lab.answer(a, 900, 0);
    let b = lab.ask("b", 900);
    assert_eq!(holds(&lab.tick()), [b]);
    let decisions = lab.run_for(59_999);
    assert_eq!(admits(&decisions), []);
    let decisions = lab.run_for(1);
    assert_eq!(paused(&decisions), ["a"]);
    assert_eq!(admits(&decisions), [(b, Seat::new(0, 0))]);
}

#[test]
fn an_idle_program_is_displaced_when_its_tool_outlasts_its_restore() {
    // 900 tokens restore in 45 ms here; one active program and η = 0.5 make that 90 ms.
    let mut config = config(PolicyName::Adaptive);
    config.growth_steps_new = 0.0;
    let mut lab = Lab::new(config);
    lab.up(0, facts(1_000));
    let a = lab.ask("a", 900);
    lab.tick();
    lab.answer(a, 900, 0);
    lab.wait(200);
    let a = lab.ask("a", 900);
    lab.tick();
    lab.answer(a, 900, 0);
    let b = lab.ask("b", 900);
    let decisions = lab.tick();
    assert_eq!(paused(&decisions), ["a"]);
    assert_eq!(admits(&decisions), [(b, Seat::new(0, 0))]);
    let displaced = decisions
        .iter()
        .find(|d| matches!(d, Decision::Pause { .. }))
        .unwrap();
    assert_eq!(
        displaced.reason(),
        &Reason::Displaced {
            expected: 200,
            threshold: 90
        }
    );
}
