//! What a real `SGLang` 0.5.23 did, step by step, the model does too.
//!
//! The records are of a CPU engine with a pool of 4,096 tokens, pages of one token and a tiny model;
//! they tell which tokens were found where, not how long it took.

use thunder_sim::cache::WritePolicy;
use thunder_sim::engine::{Engine, EngineConfig, EventKind, Finish, Submission};
use thunder_sim::model::Model;
use thunder_sim::span::{Span, link};

struct Recorder {
    engine: Engine,
    now_us: u64,
    requests: u64,
}

impl Recorder {
    fn new(host_tokens: u64, write_policy: WritePolicy) -> Self {
        let mut model = Model::preset("qwen3-8b").expect("a preset").clone();
        model.capacity_tokens = 4_096;
        let engine = Engine::new(EngineConfig {
            model,
            page_tokens: 1,
            host_tokens,
            write_policy,
            max_running: 8,
            max_queued: None,
            session_radix: true,
            priority_scheduling: false,
            progress_us: 0,
        });
        Self {
            engine: engine.expect("a valid config"),
            now_us: 0,
            requests: 0,
        }
    }

    /// Runs a prompt of program `program` alone: 1,000 tokens of its own, then `more`, then `out`.
    fn run(&mut self, program: u64, more: u64, out: u64) -> Finish {
        let own = link(7, program);
        let mut prompt = vec![Span {
            id: own,
            tokens: 1_000,
            partial: false,
        }];
        if more > 0 {
            prompt.push(Span {
                id: link(own, more),
                tokens: more,
                partial: false,
            });
        }
        let mut conversation = prompt.clone();
        conversation.push(Span {
            id: link(own, 99 + more),
            tokens: out,
            partial: false,
        });
        self.requests += 1;
        let spec = Submission {
            request: self.requests,
            prompt,
            conversation,
            output_tokens: out,
            max_tokens: out,
            priority: 0,
            session: Some(program),
            progress: false,
        };
        self.engine.submit(spec, self.now_us).expect("it fits");
        loop {
            self.now_us = self.engine.next_event_us().expect("it ends");
            for event in self.engine.advance(self.now_us) {
                if let EventKind::Finished(finish) = event.kind {
                    return finish;
                }
            }
        }
    }
}

/// (device, host) tokens found by each of the ten requests, and what had been evicted, loaded back
/// and copied to the host after it; the real engine's counters began at the values of its warm-up.
type Step = ((u64, u64), u64, u64, u64);

fn hicache_exercise(host_tokens: u64, write_policy: WritePolicy) -> Vec<Step> {
    let mut recorder = Recorder::new(host_tokens, write_policy);
    let visits = [
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 0),
        (4, 0),
        (5, 0),
        (0, 0),
        (5, 0),
        (1, 0),
        (0, 200),
    ];
    visits
        .map(|(program, more)| {
            let finish = recorder.run(program, more, 4);
            let counts = recorder.engine.cache_counts();
            recorder.engine.check();
            (
                (finish.cached_device, finish.cached_host),
                counts.evicted,
                counts.loaded_back,
                counts.backed_up,
            )
        })
        .to_vec()
}

/// Recorded counters agree but for a token or three a visit: the real tree splits a node where a
/// prompt must leave its last token to compute, and backs a turn's last tokens up a turn later.
fn assert_close(ours: &[Step], recorded: &[Step]) {
    let near = |a: u64, b: u64| a.abs_diff(b) <= 12;
    for (index, (one, real)) in ours.iter().zip(recorded).enumerate() {
        assert_eq!(one.0, real.0, "found at visit {index}");
        let agree = near(one.1, real.1) && near(one.2, real.2) && near(one.3, real.3);
        assert!(agree, "visit {index}: {one:?}, recorded {real:?}");
    }
}

#[test]
fn write_through_finds_evicted_programs_on_the_host() {
    let recorded = [
        ((0, 0), 0, 0, 1_003),
        ((0, 0), 0, 0, 2_006),
        ((0, 0), 0, 0, 3_009),
        ((0, 0), 0, 0, 4_012),
        ((0, 0), 1_003, 0, 5_015),
        ((0, 0), 2_006, 0, 6_018),
        ((0, 999), 3_009, 999, 6_018),
        ((999, 0), 3_009, 999, 6_018),
        ((0, 999), 4_012, 1_998, 6_018),
        ((1_000, 0), 5_015, 1_998, 6_221),
    ];
    assert_close(&hicache_exercise(8_193, WritePolicy::Through), &recorded);
}

#[test]
fn write_back_copies_to_the_host_only_what_the_device_drops() {
    let recorded = [
        ((0, 0), 0, 0, 0),
        ((0, 0), 0, 0, 0),
        ((0, 0), 0, 0, 0),
        ((0, 0), 0, 0, 0),
        ((0, 0), 1_003, 0, 1_003),
        ((0, 0), 2_006, 0, 2_006),
        ((0, 999), 3_009, 999, 3_009),
        ((999, 0), 3_009, 999, 3_009),
        ((0, 999), 4_012, 1_998, 4_012),
        ((1_000, 0), 5_015, 1_998, 5_015),
    ];
    assert_close(&hicache_exercise(4_916, WritePolicy::Back), &recorded);
}

#[test]
fn a_closed_session_goes_first_though_it_was_used_last() {
    for close in [false, true] {
        let mut recorder = Recorder::new(0, WritePolicy::Through);
        for program in 0..3 {
            assert_eq!(recorder.run(program, 0, 4).cached_device, 0);
        }
        if close {
            recorder.engine.close_session(2, recorder.now_us);
        }
        // 1,500 tokens of a fourth program push one of the three out.
        recorder.run(3, 500, 4);
        let kept = recorder.run(2, 0, 4).cached_device;
        assert_eq!(kept, if close { 0 } else { 999 });
    }
}

#[test]
fn a_turn_leaves_all_its_tokens_but_the_last() {
    // Recorded: after 1,000 + 4 tokens, 1,003 are cached and none are in use.
    let mut recorder = Recorder::new(8_193, WritePolicy::Through);
    recorder.run(0, 0, 4);
    let loads = recorder.engine.loads(recorder.now_us);
    assert_eq!((loads.used_tokens, loads.evictable_tokens), (0, 1_003));
    assert_eq!(loads.host_tokens, 1_003);
}
