//! The engine against the simplest model of it: a loop over iterations, no cache, room for all.

use proptest::prelude::*;
use thunder_sim::cache::WritePolicy;
use thunder_sim::engine::{Engine, EngineConfig, EventKind, Submission};
use thunder_sim::model::{Model, PICOS_PER_MICRO, Picos};
use thunder_sim::span::{Span, link};

#[derive(Clone, Debug)]
struct Job {
    arrival_us: u64,
    prompt: u64,
    output: u64,
}

struct Running {
    job: usize,
    filled: u64,
    decoded: u64,
}

/// First-token and end times of each job, µs rounded up, by looping over iterations.
fn loop_over_iterations(model: &Model, jobs: &[Job]) -> Vec<(u64, u64)> {
    let micros = |time: Picos| u64::try_from(time.div_ceil(PICOS_PER_MICRO)).expect("a short day");
    let mut times = vec![(0, 0); jobs.len()];
    let (mut queue, mut running): (Vec<usize>, Vec<Running>) = (Vec::new(), Vec::new());
    let (mut now, mut next): (Picos, usize) = (0, 0);
    while next < jobs.len() || !queue.is_empty() || !running.is_empty() {
        let arrival = |index: usize| Picos::from(jobs[index].arrival_us) * PICOS_PER_MICRO;
        if queue.is_empty() && running.is_empty() {
            now = now.max(arrival(next));
        }
        while next < jobs.len() && arrival(next) <= now {
            queue.push(next);
            next += 1;
        }
        let unfilled: u64 = running
            .iter()
            .map(|one| jobs[one.job].prompt - one.filled)
            .sum();
        let mut chunk = model.chunk_tokens.saturating_sub(unfilled);
        while chunk > 0 && !queue.is_empty() {
            let job = queue.remove(0);
            chunk = chunk.saturating_sub(jobs[job].prompt);
            running.push(Running {
                job,
                filled: 0,
                decoded: 0,
            });
        }
        let decoding: Vec<u64> = running
            .iter()
            .filter(|one| one.decoded > 0)
            .map(|one| jobs[one.job].prompt + one.decoded - 1)
            .collect();
        now += model.iteration(decoding.len());
        now += Picos::from(model.kv_read_ps) * Picos::from(decoding.iter().sum::<u64>());
        let mut left = model.chunk_tokens;
        let mut filled = Vec::new();
        for one in running.iter().filter(|one| one.decoded == 0) {
            let tokens = left.min(jobs[one.job].prompt - one.filled);
            now += model.prefill(tokens, one.filled);
            left -= tokens;
            filled.push(tokens);
        }
        let mut filled = filled.into_iter();
        for one in &mut running {
            if one.decoded > 0 {
                one.decoded += 1;
            } else {
                one.filled += filled.next().expect("one chunk each");
                if one.filled == jobs[one.job].prompt {
                    one.decoded = 1;
                    times[one.job].0 = micros(now);
                }
            }
            if one.decoded == jobs[one.job].output {
                times[one.job].1 = micros(now);
            }
        }
        running.retain(|one| one.decoded < jobs[one.job].output);
    }
    times
}

fn through_the_engine(model: &Model, jobs: &[Job]) -> Vec<(u64, u64)> {
    let mut engine = Engine::new(EngineConfig {
        model: model.clone(),
        page_tokens: 1,
        host_tokens: 0,
        write_policy: WritePolicy::Through,
        max_running: 1_000,
        max_queued: None,
        session_radix: false,
        priority_scheduling: false,
        progress_us: 0,
    })
    .expect("a valid config");
    let mut times = vec![(0, 0); jobs.len()];
    let mut arrivals = jobs.iter().enumerate().peekable();
    loop {
        let arrival = arrivals.peek().map(|(_, job)| job.arrival_us);
        let due = engine.next_event_us();
        let Some(now) = [arrival, due].into_iter().flatten().min() else {
            return times;
        };
        while let Some((index, job)) = arrivals.next_if(|(_, job)| job.arrival_us <= now) {
            let id = link(1, index as u64);
            let prompt = vec![Span {
                id,
                tokens: job.prompt,
                partial: false,
            }];
            let mut conversation = prompt.clone();
            conversation.push(Span {
                id: link(id, 2),
                tokens: job.output,
                partial: false,
            });
            let spec = Submission {
                request: index as u64,
                prompt,
                conversation,
                output_tokens: job.output,
                max_tokens: job.output,
                priority: 0,
                session: None,
                progress: false,
            };
            engine.submit(spec, now).expect("it fits");
        }
        for event in engine.advance(now) {
            let job = usize::try_from(event.request).expect("a small id");
            match event.kind {
                EventKind::FirstToken { .. } => times[job].0 = event.at_us,
                EventKind::Finished(_) => times[job].1 = event.at_us,
                _ => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn with_room_for_all_it_is_a_loop_over_iterations(
        gaps in prop::collection::vec((0..400_000_u64, 1..9_000_u64, 1..300_u64), 1..25),
        preset in prop_oneof![Just("glm-4.6"), Just("minimax-m2.5"), Just("qwen3-8b")],
    ) {
        let mut model = Model::preset(preset).expect("a preset").clone();
        model.capacity_tokens = 10_000_000;
        model.chunk_tokens = 2_048;
        let mut arrival_us = 0;
        let jobs: Vec<Job> = gaps
            .into_iter()
            .map(|(gap, prompt, output)| {
                arrival_us += gap;
                Job { arrival_us, prompt, output }
            })
            .collect();
        prop_assert_eq!(through_the_engine(&model, &jobs), loop_over_iterations(&model, &jobs));
    }
}
