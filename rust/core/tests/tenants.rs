//! Tenants that compete for room: who occupies least for its weight goes first.

mod common;

use common::{Lab, admits, holds};
use thunder_core::{Arrival, Decision, PolicyName, RequestId, Tenant, Tokens};

/// Asks for programs `{tenant}{n}` of 100 tokens, `count` of them.
fn flood(lab: &mut Lab, tenant: &str, weight: u32, count: u64) {
    for number in 0..count {
        ask(lab, &format!("{tenant}{number}"), tenant, weight, 100);
    }
}

fn ask(lab: &mut Lab, program: &str, name: &str, weight: u32, prompt_tokens: Tokens) -> RequestId {
    let arrival = Arrival {
        program: Some(program),
        tenant: Some(Tenant { name, weight }),
        prompt_tokens,
        ..Arrival::default()
    };
    lab.ask_with(arrival)
}

/// What each tenant occupies, by name.
fn occupied(lab: &Lab) -> Vec<(String, Tokens)> {
    let mut all: Vec<_> = lab
        .core
        .tenants()
        .into_iter()
        .map(|view| {
            (
                view.tenant.as_deref().unwrap_or("").to_owned(),
                view.charged_tokens,
            )
        })
        .collect();
    all.sort();
    all
}

fn lab(policy: PolicyName) -> Lab {
    let config = thunder_core::SchedulerConfig {
        margin_min: 0.0,
        growth_steps_new: 0.0,
        growth_steps_paused: 0.0,
        mark_running_above: 1.0,
        ..common::config(policy)
    };
    let mut lab = Lab::new(config);
    lab.up(0, common::facts(1_200));
    lab
}

#[test]
fn who_asks_first_and_most_does_not_get_everything() {
    let mut lab = lab(PolicyName::Adaptive);
    flood(&mut lab, "many", 1, 100);
    flood(&mut lab, "few", 1, 6);
    lab.tick();
    assert_eq!(occupied(&lab), [("few".into(), 600), ("many".into(), 600)]);
}

#[test]
fn room_is_shared_by_weight() {
    let mut lab = lab(PolicyName::Adaptive);
    flood(&mut lab, "light", 1, 30);
    flood(&mut lab, "heavy", 3, 30);
    lab.tick();
    assert_eq!(
        occupied(&lab),
        [("heavy".into(), 900), ("light".into(), 300)]
    );
}

#[test]
fn what_one_cannot_use_goes_to_the_others() {
    let mut lab = lab(PolicyName::Adaptive);
    flood(&mut lab, "a", 1, 2);
    flood(&mut lab, "b", 1, 30);
    lab.tick();
    assert_eq!(occupied(&lab), [("a".into(), 200), ("b".into(), 1_000)]);
}

#[test]
fn a_latecomer_gets_the_next_room_and_the_others_are_told_why_they_wait() {
    let mut lab = lab(PolicyName::Adaptive);
    flood(&mut lab, "early", 1, 20);
    let seated = admits(&lab.tick());
    assert_eq!(seated.len(), 12);
    let late = ask(&mut lab, "late0", "late", 1, 100);
    let next = ask(&mut lab, "early99", "early", 1, 50);
    let decisions = lab.tick();
    assert_eq!(holds(&decisions), [late, next]);
    let told = decisions
        .iter()
        .find(|d| matches!(d, Decision::Hold { request, .. } if *request == next));
    assert_eq!(
        told.expect("held").reason().to_string(),
        "held: its tenant occupies 1,200 at weight 1, one with 0 at weight 1 goes first"
    );
    lab.core.release("early0", lab.now);
    lab.answer(seated[0].0, 100, 0);
    assert_eq!(lab.admits()[0].0, late, "though the other is shorter");
}

#[test]
fn a_tenant_whose_waiters_are_all_overdue_does_not_crowd_out_another() {
    let mut lab = lab(PolicyName::Adaptive);
    flood(&mut lab, "old", 1, 30);
    let seated = admits(&lab.tick());
    lab.run_for(100_000);
    let fresh = ask(&mut lab, "fresh0", "fresh", 1, 100);
    lab.tick();
    // One seat, one claim: it was given before the newcomer came, and is served first.
    for (request, _) in &seated[..2] {
        lab.core.cancelled(*request, lab.now).expect("in flight");
    }
    for program in ["old0", "old1"] {
        lab.core.release(program, lab.now);
    }
    let admitted: Vec<RequestId> = lab.admits().into_iter().map(|(id, _)| id).collect();
    assert!(admitted.contains(&fresh), "{admitted:?}");
}

#[test]
fn a_program_belongs_to_whom_its_latest_request_names() {
    let mut lab = lab(PolicyName::Adaptive);
    let first = ask(&mut lab, "p", "a", 1, 300);
    lab.tick();
    lab.answer(first, 300, 0);
    ask(&mut lab, "p", "b", 1, 300);
    lab.tick();
    assert_eq!(occupied(&lab), [("b".into(), 300)]);
    lab.core.release("p", lab.now);
}

#[test]
fn the_published_policy_knows_no_tenants() {
    let mut lab = lab(PolicyName::Paper);
    flood(&mut lab, "a", 1, 3);
    lab.tick();
    assert_eq!(lab.core.tenants().len(), 1);
    assert_eq!(lab.core.program("a0", lab.now).expect("known").tenant, None);
}
