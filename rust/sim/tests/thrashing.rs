//! The model thrashes where a real engine did.
//!
//! Recorded on `SGLang` 0.5.23 with a 24.7 M-parameter model on a CPU and a pool of 4,096 tokens:
//! twelve programs of six turns, prompts of 500 to 1,250 tokens, answers of 30, tools of 0.15 s, and
//! only so many programs active at a time. Seconds to the end and share of prompt tokens found:
//!
//! | active | 12 | 8 | 4 | 3 | 2 |
//! |---|---|---|---|---|---|
//! | seconds | 62.9 | 51.7 | 39.0 | 39.9 | 48.0 |
//! | found | 0.00 | 0.29 | 0.68 | 0.79 | 0.79 |

use std::collections::{BTreeMap, BTreeSet};

use thunder_sim::cache::WritePolicy;
use thunder_sim::engine::{Engine, EngineConfig, EventKind, Submission};
use thunder_sim::model::Model;
use thunder_sim::span::{Span, link};

const PROGRAMS: u64 = 12;
const TURNS: u64 = 6;
const OUTPUT: u64 = 30;
const TOOL_US: u64 = 150_000;

/// The CPU's constants, solved from the runs with 2, 3 and 4 active programs.
fn cpu() -> Model {
    Model {
        name: "24.7M on two cores",
        capacity_tokens: 4_096,
        prefill_ps: 458_000_000,
        prefill_context_ps: 0,
        base_ps: 22_500_000_000,
        experts_ps: 0,
        expert_share: 1.0,
        // Decoding costs 8 ms a request whatever its context, here about 900 tokens.
        kv_read_ps: 9_000_000,
        load_back_ps: 0,
        chunk_tokens: 4_096,
    }
}

/// Seconds to the end, and share of prompt tokens found.
fn run(active: usize) -> (f64, f64) {
    let mut engine = Engine::new(EngineConfig {
        model: cpu(),
        page_tokens: 1,
        host_tokens: 0,
        write_policy: WritePolicy::Through,
        max_running: 64,
        max_queued: None,
        session_radix: false,
        priority_scheduling: false,
        progress_us: 0,
    })
    .expect("a valid config");
    let mut talks: BTreeMap<u64, Vec<Span>> = BTreeMap::new();
    let mut turns: BTreeMap<u64, u64> = BTreeMap::new();
    let mut waiting: Vec<u64> = (0..PROGRAMS).rev().collect();
    let mut ready: BTreeSet<(u64, u64)> = BTreeSet::new();
    ready.extend(
        waiting
            .split_off(waiting.len() - active)
            .into_iter()
            .map(|one| (0, one)),
    );
    let (mut now, mut prompts, mut found) = (0, 0, 0);
    loop {
        let due = [ready.first().map(|(at, _)| *at), engine.next_event_us()];
        let Some(next) = due.into_iter().flatten().min() else {
            break;
        };
        now = next;
        for event in engine.advance(now) {
            let EventKind::Finished(finish) = event.kind else {
                continue;
            };
            let program = event.request;
            prompts += finish.prompt_tokens;
            found += finish.cached_device;
            let done = turns.entry(program).or_default();
            *done += 1;
            if *done < TURNS {
                ready.insert((now + TOOL_US, program));
            } else if let Some(other) = waiting.pop() {
                ready.insert((now, other));
            }
        }
        while let Some((at, program)) = ready.first().copied().filter(|(at, _)| *at <= now) {
            ready.remove(&(at, program));
            let talk = talks.entry(program).or_default();
            let (last, tokens) = talk.last().map_or((program, 500), |span| (span.id, 120));
            talk.push(Span {
                id: link(last, 1),
                tokens,
                partial: false,
            });
            let prompt = talk.clone();
            let last = talk.last().expect("a span").id;
            talk.push(Span {
                id: link(last, 2),
                tokens: OUTPUT,
                partial: false,
            });
            let spec = Submission {
                request: program,
                prompt,
                conversation: talk.clone(),
                output_tokens: OUTPUT,
                max_tokens: OUTPUT,
                priority: 0,
                session: None,
                progress: false,
            };
            engine.submit(spec, now).expect("it fits");
        }
    }
    assert_eq!(prompts, 63_000);
    let small = |value: u64| f64::from(u32::try_from(value).expect("a short day"));
    (small(now) / 1e6, small(found) / small(prompts))
}

#[test]
fn the_model_finds_and_loses_prefixes_where_the_real_engine_did() {
    for (active, seconds, found) in [
        (12, 62.9, 0.0),
        (8, 51.7, 0.29),
        (4, 39.0, 0.68),
        (3, 39.9, 0.79),
        (2, 48.0, 0.79),
    ] {
        let (ours, share): (f64, f64) = run(active);
        assert!(
            (share - found).abs() < 0.1,
            "{active} active: found {share:.3}, recorded {found}"
        );
        let off = (ours / seconds - 1.0).abs();
        assert!(
            off < 0.12,
            "{active} active: {ours:.1} s, recorded {seconds}"
        );
    }
}
