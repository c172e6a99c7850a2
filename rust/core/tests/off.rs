//! `policy = off`: a plain gateway that is sticky by program.

mod common;

use common::{Lab, admits, facts, holds};
use thunder_core::{Decision, Error, PolicyName, Reason, RequestId, Seat, WorkerId};

fn lab() -> Lab {
    let mut lab = Lab::of(PolicyName::Off);
    lab.up(0, facts(1_000));
    lab.up(1, facts(1_000));
    lab
}

#[test]
fn a_newcomer_goes_where_fewest_requests_are_in_flight() {
    let mut lab = lab();
    let (a, b, c) = (lab.ask("a", 10), lab.ask("b", 10), lab.ask("c", 10));
    let (zero, one) = (Seat::new(0, 0), Seat::new(1, 0));
    assert_eq!(lab.admits(), [(a, zero), (b, one), (c, zero)]);
    let d = lab.ask("d", 9_999_999);
    assert_eq!(lab.admits(), [(d, one)], "nothing is measured");
}

#[test]
fn a_program_stays_where_it_is() {
    let mut lab = lab();
    let first = lab.ask("a", 10);
    let second = lab.ask("a", 10);
    assert_eq!(
        lab.admits(),
        [(first, Seat::new(0, 0)), (second, Seat::new(0, 0))]
    );
    lab.answer(first, 10, 5);
    lab.answer(second, 10, 5);
    lab.wait(3_000_000);
    let third = lab.ask("a", 20);
    assert_eq!(lab.admits(), [(third, Seat::new(0, 0))]);
}

#[test]
fn nothing_waits_unless_no_worker_is_ready() {
    let mut lab = Lab::of(PolicyName::Off);
    let request = lab.ask("a", 10);
    let decisions = lab.tick();
    assert_eq!(holds(&decisions), [request]);
    assert_eq!(decisions[0].reason(), &Reason::NoWorker);
    lab.wait(10).up(4, facts(1_000));
    assert_eq!(lab.admits(), [(request, Seat::new(4, 0))]);
}

#[test]
fn a_worker_that_vanishes_sends_its_programs_on() {
    let mut lab = lab();
    let (a, b) = (lab.ask("a", 10), lab.ask("b", 10));
    lab.tick();
    lab.core.worker_down(WorkerId(0), 5).unwrap();
    lab.core.bounced(a, 5).unwrap();
    let decisions = lab.tick();
    assert_eq!(admits(&decisions), [(a, Seat::new(1, 0))]);
    lab.answer(b, 10, 1);
    lab.answer(a, 10, 1);
    assert_eq!(lab.core.counts().in_flight, 0);
    lab.core.check().unwrap();
}

#[test]
fn a_refused_request_tries_the_others_first_and_the_same_again_later() {
    let mut lab = lab();
    let a = lab.ask("a", 10);
    lab.tick();
    lab.core.bounced(a, 1).unwrap();
    assert_eq!(lab.admits(), [(a, Seat::new(1, 0))]);
    lab.core.bounced(a, 2).unwrap();
    let decisions = lab.tick();
    assert_eq!(holds(&decisions), [a]);
    assert_eq!(decisions[0].reason(), &Reason::Refused);
    let decisions = lab.run_for(2_000);
    assert_eq!(admits(&decisions).len(), 1);
}

#[test]
fn requests_without_a_program_leave_nothing_behind() {
    let mut lab = lab();
    let (a, b) = (lab.ask_as(None, 10, None), lab.ask_as(None, 10, None));
    assert_eq!(lab.admits().len(), 2);
    lab.answer(a, 10, 1);
    lab.core.failed(b, 1).unwrap();
    lab.tick();
    assert_eq!(lab.core.counts().active, 0);
    assert_eq!(lab.charged(0) + lab.charged(1), 0);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut lab = lab();
    let a = lab.ask("a", 10);
    let unknown = RequestId(99);
    assert_eq!(
        lab.core.failed(unknown, 0),
        Err(Error::UnknownRequest(unknown))
    );
    assert!(matches!(
        lab.core.progress(a, 5, 0),
        Err(Error::BadTransition { .. })
    ));
    assert_eq!(
        lab.core.worker_unready(WorkerId(7), 0),
        Err(Error::UnknownWorker(WorkerId(7)))
    );
    assert_eq!(
        lab.core.pause("nobody", 0),
        Err(Error::UnknownProgram("nobody".to_owned()))
    );
    assert!(!lab.core.release("nobody", 0));
    let decisions = lab.tick();
    assert!(matches!(decisions[0], Decision::Admit { .. }));
}
