//! One engine, a few programs, and what the public code does with them.

use super::*;
use crate::cluster::baselines::rig::{ask, finish, sent};

/// One engine of 1,000 tokens with `count` reasoning programs of 300.
fn busy(count: u64) -> ThunderAgent {
    let mut router = ThunderAgent::new(&[1_000]);
    for request in 0..count {
        ask(&mut router, request, &request.to_string(), 300, 0);
    }
    router
}

#[test]
fn a_new_program_starts_at_once_only_if_it_fits_and_nobody_waits() {
    let mut router = busy(3);
    // Each counts 400.
    assert_eq!(sent(&mut router, 0), [(0, 0), (1, 0)]);
    ask(&mut router, 10, "small", 50, 1);
    assert_eq!(sent(&mut router, 1), []);
    router.released("0", 2);
    assert_eq!(sent(&mut router, 4_999), []);
    // At the check: the shortest first, and both fit.
    assert_eq!(sent(&mut router, 5_000), [(2, 0), (10, 0)]);
}

#[test]
fn acting_programs_are_paused_shortest_first_until_it_fits() {
    let mut router = busy(2);
    finish(&mut router, 0, 300, 40, 1);
    finish(&mut router, 1, 300, 600, 1);
    // 440 + 1,000 are registered. Without the shorter one it fits.
    let orders = router.orders(5_000);
    assert!(orders.contains(&Order::Yield {
        program: "0".to_owned(),
        worker: 0
    }));
    assert_eq!(orders.len(), 3, "two sent before, one paused: {orders:?}");
    // Its next turn waits, and when the other is released it goes on.
    ask(&mut router, 5, "0", 400, 6_000);
    assert_eq!(sent(&mut router, 6_000), []);
    router.released("1", 7_000);
    assert_eq!(sent(&mut router, 10_000), [(5, 0)]);
}

#[test]
fn an_overflow_of_reasoning_programs_marks_them_all_though_one_would_do() {
    let mut router = busy(2);
    sent(&mut router, 0);
    router.progress(0, 250, 1_000);
    router.orders(5_000);
    for request in 0..2 {
        finish(&mut router, request, 300, 250, 6_000);
    }
    let yields = router.orders(6_000);
    assert_eq!(yields.len(), 2, "{yields:?}");
}

#[test]
fn idle_paused_programs_come_last_and_take_room() {
    let mut router = busy(2);
    sent(&mut router, 0);
    finish(&mut router, 0, 300, 0, 1);
    finish(&mut router, 1, 300, 500, 1);
    router.orders(5_000);
    // The first is paused and silent; a new one of 500 asks before anything is free.
    ask(&mut router, 9, "new", 500, 5_100);
    router.released("1", 5_200);
    assert_eq!(sent(&mut router, 10_000), [(9, 0)]);
    // 600 and 400: the idle one was resumed too, so there is no room left.
    assert_eq!(router.room(0), 0);
}

#[test]
fn after_half_an_hour_a_request_is_let_in_whatever_room_there_is() {
    let mut router = busy(3);
    sent(&mut router, 0);
    assert_eq!(sent(&mut router, FORCED_AFTER_MS - 1), []);
    assert_eq!(router.due(FORCED_AFTER_MS - 1), Some(1));
    assert_eq!(sent(&mut router, FORCED_AFTER_MS), [(2, 0)]);
    assert_eq!(router.room(0), -200);
}

#[test]
fn a_restored_program_goes_where_there_is_most_room_not_where_it_was() {
    let mut router = ThunderAgent::new(&[1_000, 1_200]);
    ask(&mut router, 1, "a", 400, 0);
    ask(&mut router, 2, "b", 400, 0);
    assert_eq!(sent(&mut router, 0), [(1, 0), (2, 1)]);
    finish(&mut router, 1, 400, 600, 1);
    router.orders(5_000);
    ask(&mut router, 3, "a", 500, 5_001);
    // 1,000 free on the first, 700 on the second.
    assert_eq!(sent(&mut router, 10_000), [(3, 0)]);
    finish(&mut router, 3, 500, 500, 10_001);
    router.released("b", 10_002);
    router.orders(15_000);
    ask(&mut router, 4, "a", 500, 15_001);
    assert_eq!(sent(&mut router, 20_000), [(4, 1)]);
}
