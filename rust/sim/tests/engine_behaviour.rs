//! What the engine does when the pool, the queue or an operator gets in the way.

use thunder_sim::cache::WritePolicy;
use thunder_sim::engine::{
    Engine, EngineConfig, Event, EventKind, Finish, PauseMode, Refusal, Submission,
};
use thunder_sim::model::Model;
use thunder_sim::span::{Span, link};

fn config(capacity_tokens: u64) -> EngineConfig {
    let mut model = Model::preset("glm-4.6").expect("a preset").clone();
    model.capacity_tokens = capacity_tokens;
    EngineConfig {
        model,
        page_tokens: 1,
        host_tokens: 0,
        write_policy: WritePolicy::Through,
        max_running: 64,
        max_queued: None,
        session_radix: false,
        priority_scheduling: false,
        progress_us: 0,
    }
}

fn engine(config: EngineConfig) -> Engine {
    Engine::new(config).expect("a valid config")
}

/// A request with a prompt nobody else has.
fn request(number: u64, prompt: u64, output: u64) -> Submission {
    let id = link(5, number);
    let prompt = vec![Span {
        id,
        tokens: prompt,
        partial: false,
    }];
    let mut conversation = prompt.clone();
    conversation.push(Span {
        id: link(id, 1),
        tokens: output,
        partial: false,
    });
    Submission {
        request: number,
        prompt,
        conversation,
        output_tokens: output,
        max_tokens: output,
        priority: 0,
        session: None,
        progress: false,
    }
}

/// Everything that happens from now on.
fn run_out(engine: &mut Engine) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(next) = engine.next_event_us() {
        events.extend(engine.advance(next));
        engine.check();
    }
    events
}

fn ends(events: &[Event]) -> Vec<(u64, Finish)> {
    let end = |event: &Event| match event.kind {
        EventKind::Finished(finish) => Some((event.request, finish)),
        _ => None,
    };
    events.iter().filter_map(end).collect()
}

#[test]
fn a_pool_that_runs_dry_retracts_whoever_loses_least_and_all_still_finish() {
    let mut engine = engine(config(2_000));
    // Limits of 900 each are far above what admission reserves once the ratio has decayed.
    engine.submit(request(0, 10, 700), 0).expect("it fits");
    run_out(&mut engine);
    for (number, prompt) in [(1, 500), (2, 520), (3, 480)] {
        let mut spec = request(number, prompt, 300);
        spec.max_tokens = 300;
        engine.submit(spec, 100_000_000).expect("it fits");
    }
    let events = run_out(&mut engine);
    let retracted: Vec<u64> = events
        .iter()
        .filter(|event| event.kind == EventKind::Retracted)
        .map(|event| event.request)
        .collect();
    // Its reserve kept 3 out at first, so it has the least output and loses least by going back.
    assert_eq!(retracted, [3]);
    let ends = ends(&events);
    assert_eq!(ends.len(), 3);
    assert!(
        ends.iter()
            .all(|(_, end)| !end.aborted && end.completion_tokens == 300)
    );
    assert_eq!(ends.iter().map(|(_, end)| end.retractions).sum::<u32>(), 1);
    // Its prompt had stayed as cache or not; its output had to be computed again either way.
    assert!(engine.counts().recomputed > 0);
}

#[test]
fn nobody_overtakes_the_head_of_the_queue() {
    let mut engine = engine(config(2_000));
    engine.submit(request(1, 1_500, 50), 0).expect("it fits");
    engine.submit(request(2, 1_000, 50), 0).expect("it fits");
    engine.submit(request(3, 10, 5), 0).expect("it fits");
    let order: Vec<u64> = ends(&run_out(&mut engine))
        .iter()
        .map(|(number, _)| *number)
        .collect();
    assert_eq!(order, [1, 3, 2], "3 starts with 2, not before it");
    let first = |wanted: u64, events: &[Event]| {
        events
            .iter()
            .find(|event| event.request == wanted)
            .map(|event| event.at_us)
    };
    let mut again = self::engine(config(2_000));
    for (number, prompt, output) in [(1, 1_500, 50), (2, 1_000, 50), (3, 10, 5)] {
        again
            .submit(request(number, prompt, output), 0)
            .expect("it fits");
    }
    let events = run_out(&mut again);
    assert_eq!(first(2, &events), first(3, &events));
}

#[test]
fn a_newcomer_waits_for_the_reserve_of_those_who_run_to_shrink() {
    let mut engine = engine(config(2_000));
    engine.submit(request(1, 100, 1_000), 0).expect("it fits");
    engine.advance(100_000);
    // 1,250 tokens are free at once, but not beside 0.7 of what request 1 may still generate.
    engine
        .submit(request(2, 1_250, 10), 100_000)
        .expect("it waits");
    let events = run_out(&mut engine);
    let at = |wanted: u64, first: bool| {
        let mut about = events.iter().filter(|event| event.request == wanted);
        let found = if first {
            about.next()
        } else {
            about.next_back()
        };
        found.expect("it was heard of").at_us
    };
    assert!(
        at(2, true) > 600_000,
        "not within the first fifty iterations or so"
    );
    assert!(
        at(2, false) < at(1, false),
        "but long before request 1 is over"
    );
    assert_eq!(engine.counts().retractions, 0);
}

#[test]
fn a_full_queue_refuses_and_a_higher_priority_takes_the_last_place() {
    let mut settings = config(2_000);
    settings.max_queued = Some(1);
    settings.max_running = 1;
    settings.priority_scheduling = true;
    let mut engine = engine(settings);
    engine.submit(request(1, 100, 50), 0).expect("it fits");
    engine.advance(1_000);
    engine
        .submit(request(2, 100, 50), 1_000)
        .expect("a place in the queue");
    assert_eq!(
        engine.submit(request(3, 100, 50), 1_000),
        Err(Refusal::QueueFull)
    );
    let mut urgent = request(4, 100, 50);
    urgent.priority = 5;
    engine.submit(urgent, 1_000).expect("somebody else's place");
    let events = run_out(&mut engine);
    assert!(
        events
            .iter()
            .any(|event| (event.request, &event.kind) == (2, &EventKind::Displaced))
    );
    let order: Vec<u64> = ends(&events).iter().map(|(number, _)| *number).collect();
    assert_eq!(order, [1, 4]);
}

#[test]
fn what_cannot_fit_is_refused_and_output_is_cut_to_the_pool() {
    let mut engine = engine(config(1_000));
    let refusal = engine.submit(request(1, 995, 5), 0);
    assert_eq!(
        refusal,
        Err(Refusal::TooLong {
            prompt_tokens: 995,
            limit: 994
        })
    );
    engine.submit(request(2, 900, 5_000), 0).expect("it fits");
    assert_eq!(
        engine.submit(request(2, 1, 1), 0),
        Err(Refusal::Duplicate(2))
    );
    let ends = ends(&run_out(&mut engine));
    assert_eq!(ends[0].1.completion_tokens, 100);
}

#[test]
fn an_abort_ends_a_waiting_request_at_once_and_a_running_one_with_its_iteration() {
    let mut engine = engine(config(2_000));
    engine.submit(request(1, 1_000, 500), 0).expect("it fits");
    engine.submit(request(2, 1_000, 500), 0).expect("it fits");
    engine.advance(500_000);
    assert!(engine.abort(2, 500_000) && engine.abort(1, 500_000));
    assert!(!engine.abort(9, 500_000));
    let ended = engine.advance(500_000);
    assert_eq!(
        ends(&ended)
            .iter()
            .map(|(number, _)| *number)
            .collect::<Vec<_>>(),
        [2]
    );
    let next = engine.next_event_us().expect("the iteration ends");
    assert!(
        (500_000..530_000).contains(&next),
        "{next} µs is one iteration away"
    );
    let rest = engine.advance(next);
    let (number, end) = ends(&rest)[0];
    assert!(number == 1 && end.aborted && (1..500).contains(&end.completion_tokens));
    assert!(engine.idle() && engine.next_event_us().is_none());
}

#[test]
fn a_pause_stops_the_clock_of_requests_in_the_way_it_was_asked() {
    for (mode, expected) in [
        (PauseMode::Abort, "aborted"),
        (PauseMode::InPlace, "went on"),
        (PauseMode::Retract, "computed again"),
    ] {
        let mut engine = engine(config(2_000));
        engine.submit(request(1, 1_000, 100), 0).expect("it fits");
        engine.advance(500_000);
        engine.pause(mode, 500_000);
        let mut events = run_out(&mut engine);
        engine
            .submit(request(2, 10, 1), 60_000_000)
            .expect("it waits");
        events.extend(engine.advance(90_000_000));
        assert!(
            engine.next_event_us().is_none(),
            "nothing moves while paused"
        );
        engine.resume(100_000_000);
        events.extend(run_out(&mut engine));
        let ends = ends(&events);
        let first = ends
            .iter()
            .find(|(number, _)| *number == 1)
            .expect("it ends")
            .1;
        let seen = match (first.aborted, first.retractions) {
            (true, 0) => "aborted",
            (false, 0) => "went on",
            (false, 1) => "computed again",
            _ => "something else",
        };
        assert_eq!(seen, expected);
        assert!(
            ends.iter()
                .any(|(number, end)| *number == 2 && !end.aborted)
        );
        let last = events.last().expect("events").at_us;
        assert!(
            last > 100_000_000,
            "request 2 waited for the end of the pause"
        );
    }
}

#[test]
fn used_evictable_and_free_tokens_are_the_pool_at_any_instant() {
    let mut engine = engine(config(3_000));
    for number in 0..6 {
        engine
            .submit(request(number, 700, 400), number * 100_000)
            .expect("it fits");
    }
    for now in (0..20_000_000).step_by(37_000) {
        engine.advance(now);
        let loads = engine.loads(now);
        assert_eq!(
            loads.used_tokens + loads.evictable_tokens + loads.free_tokens,
            3_000
        );
        if loads.running == 0 {
            assert_eq!(loads.used_tokens, 0, "cache between turns is not in use");
        }
    }
    assert!(engine.idle());
    assert!(engine.flush());
    assert_eq!(engine.loads(20_000_000).free_tokens, 3_000);
}

#[test]
fn loading_back_costs_less_than_computing_again_and_more_than_nothing() {
    let time_of_revisit = |host_tokens: u64, evict: bool| {
        let mut settings = config(20_000);
        settings.host_tokens = host_tokens;
        let mut engine = engine(settings);
        engine.submit(request(1, 10_000, 1), 0).expect("it fits");
        run_out(&mut engine);
        if evict {
            engine
                .submit(request(2, 19_000, 1), 10_000_000)
                .expect("it fits");
            run_out(&mut engine);
        }
        engine
            .submit(request(1, 10_000, 1), 20_000_000)
            .expect("it fits");
        run_out(&mut engine)[0].at_us - 20_000_000
    };
    let (kept, loaded, computed) = (
        time_of_revisit(0, false),
        time_of_revisit(60_000, true),
        time_of_revisit(0, true),
    );
    assert!(
        kept < loaded && loaded < computed,
        "{kept} {loaded} {computed}"
    );
    // 10,000 tokens at 1.047 µs.
    assert!((10_000..12_000).contains(&(loaded - kept)));
}
