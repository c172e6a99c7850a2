//! Properties of the engine over random days: what must hold whatever comes in.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use thunder_sim::cache::WritePolicy;
use thunder_sim::engine::{Engine, EngineConfig, Event, EventKind, PauseMode, Submission};
use thunder_sim::model::Model;
use thunder_sim::span::{Span, link};

#[derive(Clone, Debug)]
enum Act {
    Turn {
        program: u64,
        new: u64,
        out: u64,
        max: u64,
        priority: i64,
    },
    Abort(u64),
    Close(u64),
    Wait(u64),
    Flush,
    Pause(PauseMode),
    Resume,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0..6_u64, 1..400_u64, 1..120_u64, 0..300_u64, 0..3_i64).prop_map(
            |(program, new, out, slack, priority)| Act::Turn { program, new, out, max: out + slack, priority }
        ),
        1 => (0..40_u64).prop_map(Act::Abort),
        1 => (0..6_u64).prop_map(Act::Close),
        8 => (0..2_000_000_u64).prop_map(Act::Wait),
        1 => Just(Act::Flush),
        1 => prop_oneof![Just(PauseMode::Abort), Just(PauseMode::Retract), Just(PauseMode::InPlace)].prop_map(Act::Pause),
        2 => Just(Act::Resume),
    ]
}

fn config(
    page: u64,
    host: u64,
    write_policy: WritePolicy,
    sessions: bool,
    priority: bool,
) -> EngineConfig {
    let mut model = Model::preset("glm-4.6").expect("a preset").clone();
    model.capacity_tokens = 2_048;
    model.chunk_tokens = 256;
    EngineConfig {
        model,
        page_tokens: page,
        host_tokens: host,
        write_policy,
        max_running: 4,
        max_queued: Some(6),
        session_radix: sessions,
        priority_scheduling: priority,
        progress_us: 0,
    }
}

fn setup() -> impl Strategy<Value = EngineConfig> {
    (
        prop_oneof![Just(1_u64), Just(16), Just(64)],
        prop_oneof![Just(0_u64), Just(1_500), Just(4_096)],
        prop_oneof![Just(WritePolicy::Through), Just(WritePolicy::Back)],
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(page, host, policy, sessions, priority)| {
            config(page, host, policy, sessions, priority)
        })
}

/// One program's conversation so far, as spans; all programs share the first.
#[derive(Clone, Default)]
struct Conversation(Vec<Span>);

impl Conversation {
    fn turn(&mut self, program: u64, new: u64, out: u64) -> (Vec<Span>, Vec<Span>) {
        if self.0.is_empty() {
            self.0.push(Span {
                id: 1,
                tokens: 100,
                partial: false,
            });
        }
        let last = self.0.last().expect("the shared span").id;
        self.0.push(Span {
            id: link(last, program + 100 + (new << 32)),
            tokens: new,
            partial: false,
        });
        let prompt = self.0.clone();
        let last = self.0.last().expect("the shared span").id;
        self.0.push(Span {
            id: link(last, program + 200 + (out << 32)),
            tokens: out,
            partial: false,
        });
        (prompt, self.0.clone())
    }
}

/// Plays `acts`; `streaming` makes everybody want progress after every token, which makes the engine
/// iterate one by one.
fn play(config: &EngineConfig, acts: &[Act], streaming: bool) -> Vec<Event> {
    let mut engine = Engine::new(config.clone()).expect("a valid config");
    let mut talks: BTreeMap<u64, Conversation> = BTreeMap::new();
    let (mut now, mut request, mut events) = (0, 0, Vec::new());
    for act in acts {
        match *act {
            Act::Turn {
                program,
                new,
                out,
                max,
                priority,
            } => {
                let talk = talks.entry(program).or_default();
                if talk.0.iter().map(|span| span.tokens).sum::<u64>() + new + out > 1_500 {
                    *talk = Conversation::default();
                }
                let (prompt, conversation) = talk.turn(program, new, out);
                request += 1;
                let _ = engine.submit(
                    Submission {
                        request,
                        prompt,
                        conversation,
                        output_tokens: out,
                        max_tokens: max,
                        priority,
                        session: Some(program),
                        progress: streaming,
                    },
                    now,
                );
            }
            Act::Abort(id) => {
                engine.abort(id, now);
            }
            Act::Close(program) => engine.close_session(program, now),
            Act::Wait(us) => {
                now += us;
                events.extend(engine.advance(now));
            }
            Act::Flush => {
                engine.flush();
            }
            Act::Pause(mode) => engine.pause(mode, now),
            Act::Resume => engine.resume(now),
        }
        engine.check();
    }
    engine.resume(now);
    while let Some(next) = engine.next_event_us() {
        assert!(next <= now + 600_000_000, "it never ends");
        events.extend(engine.advance(next.max(now)));
        now = next.max(now);
        engine.check();
    }
    assert!(engine.idle());
    let loads = engine.loads(now);
    assert_eq!((loads.used_tokens, loads.running, loads.waiting), (0, 0, 0));
    events
}

fn without_progress(events: Vec<Event>) -> Vec<Event> {
    events
        .into_iter()
        .filter(|event| !matches!(event.kind, EventKind::Progress { .. }))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_once_and_tokens_add_up(config in setup(), acts in prop::collection::vec(act(), 1..60)) {
        let events = play(&config, &acts, false);
        let mut ended = BTreeSet::new();
        let mut last = 0;
        for event in &events {
            prop_assert!(event.at_us >= last, "events are in order");
            last = event.at_us;
            match event.kind {
                EventKind::Finished(finish) => {
                    prop_assert!(ended.insert(event.request), "ended twice");
                    let cached = finish.cached_device + finish.cached_host;
                    prop_assert!(cached < finish.prompt_tokens, "cached more than the prompt");
                    prop_assert!(cached % config.page_tokens == 0, "cached part of a page");
                    prop_assert!(finish.aborted || finish.completion_tokens >= 1);
                }
                EventKind::Displaced => {
                    prop_assert!(ended.insert(event.request));
                }
                _ => prop_assert!(!ended.contains(&event.request), "heard of after its end"),
            }
        }
    }

    #[test]
    fn the_same_day_gives_the_same_events(config in setup(), acts in prop::collection::vec(act(), 1..40)) {
        prop_assert_eq!(play(&config, &acts, false), play(&config, &acts, false));
    }

    /// Copies to the host that block eviction are charged to the next segment, so write-back is out.
    #[test]
    fn jumping_segments_and_iterating_one_by_one_agree(
        mut config in setup(),
        acts in prop::collection::vec(act(), 1..60),
    ) {
        config.write_policy = WritePolicy::Through;
        let jumped = play(&config, &acts, false);
        let stepped = without_progress(play(&config, &acts, true));
        prop_assert_eq!(jumped, stepped);
    }
}
