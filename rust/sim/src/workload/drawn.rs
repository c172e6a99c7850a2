//! A program of a known kind: its turns, drawn as they come.

use super::{Memory, Turn, Workload, shared};
use crate::random::Random;
use crate::span::{Span, link};

/// See the module.
#[derive(Clone, Debug)]
pub struct Drawn {
    workload: Workload,
    random: Random,
    /// Everything after the shared prefix, as the next prompt will hold it.
    private: Vec<Span>,
    task: Span,
    turns_left: u64,
    turns: u64,
    reusable: u64,
    tool_scale: f64,
}

impl Drawn {
    /// The program that `path` names under `seed`. Its tools take `tool_scale` times as long.
    pub fn new(workload: &Workload, seed: u64, path: &[u64], tool_scale: f64) -> Self {
        let mut random = Random::new(seed, path);
        let turns_left = random.tokens(workload.steps).max(1);
        let own = link(shared(workload).id, random.bits());
        let task = Span {
            id: own,
            tokens: random.tokens(workload.task).max(1),
            partial: false,
        };
        Self {
            workload: *workload,
            random,
            private: vec![task],
            task,
            turns_left,
            turns: 0,
            reusable: workload.shared,
            tool_scale,
        }
    }

    /// Skips to a random turn, as if the earlier ones had run before the world began.
    pub fn begin_midway(&mut self) {
        let skipped = self.random.below(self.turns_left);
        for _ in 0..skipped {
            self.turn();
        }
        // Nothing of its own is in any cache.
        self.reusable = self.workload.shared;
    }

    /// The next turn; None once the program has ended.
    pub fn turn(&mut self) -> Option<Turn> {
        self.turns_left = self.turns_left.checked_sub(1)?;
        self.turns += 1;
        let prefix = shared(&self.workload);
        if let Memory::Grows { rewrite } = self.workload.memory
            && rewrite > 0.0
            && self.random.unit() < rewrite
        {
            let salt = self.random.bits();
            let mut id = prefix.id;
            for span in &mut self.private {
                id = link(id, span.id ^ salt);
                span.id = id;
            }
            self.reusable = self.reusable.min(prefix.tokens);
        }
        let mut prompt = vec![prefix];
        prompt.extend_from_slice(&self.private);
        let prompt_tokens: u64 = prompt.iter().map(|span| span.tokens).sum();
        let output_tokens = self.random.tokens(self.workload.output).max(1);
        let mut conversation = prompt.clone();
        conversation.push(self.next_span(&prompt, output_tokens));
        let observation = self.random.tokens(self.workload.observation).max(1);
        let reusable_tokens = self.reusable;
        self.remember(&conversation, prompt_tokens, observation);
        let (tool, tool_us) = self.use_tool();
        Some(Turn {
            prompt,
            conversation,
            output_tokens,
            reusable_tokens,
            tool: (self.turns_left > 0).then_some(tool),
            tool_us,
        })
    }

    /// What the next prompt holds, and how much of it will have been computed by then.
    fn remember(&mut self, conversation: &[Span], prompt_tokens: u64, observation: u64) {
        match self.workload.memory {
            Memory::Grows { .. } => {
                self.private = conversation[1..].to_vec();
                let next = self.next_span(conversation, observation);
                self.private.push(next);
                // All but the answer's last token, whose KV was not written.
                let answer = conversation.last().map_or(0, |span| span.tokens);
                self.reusable = prompt_tokens + answer - 1;
            }
            Memory::Rebuilt { keep } => {
                let mut kept: Vec<Span> = self.private[1..].to_vec();
                let last = kept.last().copied().unwrap_or(self.task);
                kept.push(self.next_span(&[last], observation));
                let mut cut = false;
                while kept.len() > 1 && kept.iter().map(|span| span.tokens).sum::<u64>() > keep {
                    kept.remove(0);
                    cut = true;
                }
                self.reusable = if cut {
                    shared(&self.workload).tokens + self.task.tokens
                } else {
                    prompt_tokens
                };
                if cut {
                    // What moved up in the prompt has another prefix now.
                    let mut id = link(self.task.id, self.turns);
                    for span in &mut kept {
                        id = link(id, span.id);
                        span.id = id;
                    }
                }
                self.private = vec![self.task];
                self.private.extend(kept);
            }
        }
    }

    fn next_span(&mut self, chain: &[Span], tokens: u64) -> Span {
        let last = chain.last().map_or(0, |span| span.id);
        Span {
            id: link(last, self.random.bits()),
            tokens,
            partial: false,
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Seconds are cut to hours.
    fn use_tool(&mut self) -> (&'static str, u64) {
        let mut choice = self.random.unit();
        let mut chosen = self.workload.tools[0];
        for tool in self.workload.tools {
            chosen = *tool;
            if choice < tool.share {
                break;
            }
            choice -= tool.share;
        }
        let seconds = self.random.log_normal(chosen.seconds) * self.tool_scale;
        (chosen.kind, (seconds * 1e6) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Means over many programs: private context at a turn, turns, answer, tool seconds.
    #[allow(clippy::cast_precision_loss)]
    fn means(name: &str) -> [f64; 4] {
        let workload = Workload::named(name).expect("known");
        let (mut context, mut turns, mut output, mut tool_us) = (0, 0, 0, 0);
        let programs = 3_000;
        for path in 0..programs {
            let mut program = Drawn::new(workload, 1, &[path], 1.0);
            while let Some(turn) = program.turn() {
                let prompt: u64 = turn.prompt.iter().map(|span| span.tokens).sum();
                context += prompt - workload.shared;
                output += turn.output_tokens;
                tool_us += turn.tool_us;
                turns += 1;
            }
        }
        let each = f64::from(turns);
        [
            context as f64 / each,
            each / programs as f64,
            output as f64 / each,
            tool_us as f64 / each / 1e6,
        ]
    }

    fn close(ours: [f64; 4], fitted: [f64; 4]) {
        for (one, fit) in ours.iter().zip(fitted) {
            assert!(
                (one / fit - 1.0).abs() < 0.12,
                "{ours:.1?}, fitted {fitted:.1?}"
            );
        }
    }

    #[test]
    fn the_kinds_have_the_means_they_were_fitted_to() {
        close(means("mini-swe"), [8_900.0, 26.0, 251.0, 0.57]);
        close(means("openhands"), [16_000.0, 39.0, 287.0, 1.4]);
        close(means("science"), [16_700.0, 25.0, 620.0, 8.0]);
        close(means("r2e-gym"), [29_200.0, 45.0, 390.0, 0.57]);
        close(means("claude-code"), [79_600.0, 66.8, 423.0, 7.8]);
    }

    #[test]
    fn a_growing_program_appends_and_says_what_a_perfect_cache_would_find() {
        let workload = Workload::named("mini-swe").expect("known");
        let mut program = Drawn::new(workload, 3, &[1], 1.0);
        let mut before: Option<Turn> = None;
        while let Some(turn) = program.turn() {
            if let Some(before) = before {
                let kept = before.conversation.len();
                assert_eq!(turn.prompt[..kept], before.conversation[..]);
                let known: u64 = before.conversation.iter().map(|span| span.tokens).sum();
                assert_eq!(turn.reusable_tokens, known - 1);
            }
            before = Some(turn);
        }
        assert_eq!(before.expect("turns").tool, None);
    }

    #[test]
    fn programs_share_the_prefix_of_their_kind_and_nothing_else() {
        let workload = Workload::named("openhands").expect("known");
        let mut prompts = [4, 5].map(|path| Drawn::new(workload, 1, &[path], 1.0).turn());
        let [Some(one), Some(other)] = &mut prompts else {
            panic!("both have a turn")
        };
        assert_eq!(one.prompt[0], other.prompt[0]);
        assert_ne!(one.prompt[1].id, other.prompt[1].id);
    }

    #[test]
    fn a_rebuilt_prompt_stays_within_what_it_keeps() {
        let workload = Workload::named("toolorchestra").expect("known");
        for path in 0..200 {
            let mut program = Drawn::new(workload, 1, &[path], 1.0);
            while let Some(turn) = program.turn() {
                let prompt: u64 = turn.prompt.iter().map(|span| span.tokens).sum();
                assert!(prompt <= 1_200 + 4_000 + 27_000 + 15_000);
                assert!(turn.reusable_tokens <= prompt);
            }
        }
    }
}
