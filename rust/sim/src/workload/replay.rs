//! A recorded session, played again: the same prompts, answers and pauses, turn by turn.
//!
//! What is known of a recorded prompt is how many tokens it shares with the one before. New tokens
//! become pieces of at most [`PIECE`]; what the next prompt shares is kept to the last whole piece.

use std::sync::Arc;

use super::Turn;
use crate::random::Random;
use crate::span::{Span, link};

/// Tokens of a piece: what a cut through it loses is small beside a prompt of 100,000.
const PIECE: u64 = 512;

/// One recorded turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recorded {
    /// Prompt tokens.
    pub prompt: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// Leading prompt tokens that the turn before had too, its answer included.
    pub reuse: u64,
    /// Seconds until the next turn asks.
    pub gap_s: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Replay {
    sessions: Arc<[Vec<Recorded>]>,
    session: usize,
    next: usize,
    random: Random,
    id: u64,
    /// Prompt and answer of the turn before.
    before: Vec<Span>,
    /// Its own earlier turns did not run: nothing of them is cached.
    cold: bool,
    tool_scale: f64,
}

impl Replay {
    pub(super) fn new(
        sessions: Arc<[Vec<Recorded>]>,
        session: usize,
        mut random: Random,
        tool_scale: f64,
    ) -> Self {
        let id = random.bits();
        Self {
            sessions,
            session,
            next: 0,
            random,
            id,
            before: Vec::new(),
            cold: true,
            tool_scale,
        }
    }

    pub(super) fn begin_midway(&mut self) {
        let turns = self.sessions.get(self.session).map_or(0, Vec::len) as u64;
        for _ in 0..self.random.below(turns) {
            self.turn();
        }
        self.cold = true;
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Seconds of a session.
    pub(super) fn turn(&mut self) -> Option<Turn> {
        let session = self.sessions.get(self.session)?;
        let recorded = *session.get(self.next)?;
        self.next += 1;
        let last = self.next == session.len();
        let prompt_tokens = recorded.prompt.max(1);
        let (mut prompt, mut kept) = (Vec::new(), 0);
        for span in &self.before {
            if kept + span.tokens > recorded.reuse.min(prompt_tokens - 1) {
                break;
            }
            kept += span.tokens;
            prompt.push(*span);
        }
        // The answer's last token has no KV yet.
        let whole = prompt.len() == self.before.len() && !prompt.is_empty();
        let reusable_tokens = if self.cold {
            0
        } else {
            kept - u64::from(whole)
        };
        self.cold = false;
        self.append(&mut prompt, prompt_tokens - kept);
        let mut conversation = prompt.clone();
        let output_tokens = recorded.output.max(1);
        self.append(&mut conversation, output_tokens);
        self.before.clone_from(&conversation);
        let gap_us = (recorded.gap_s.clamp(0.0, 86_400.0) * self.tool_scale * 1e6) as u64;
        Some(Turn {
            prompt,
            conversation,
            output_tokens,
            reusable_tokens,
            tool: (!last).then_some("tool"),
            tool_us: gap_us,
        })
    }

    fn append(&mut self, chain: &mut Vec<Span>, mut tokens: u64) {
        while tokens > 0 {
            let held = tokens.min(PIECE);
            tokens -= held;
            let before = chain.last().map_or(self.id, |span| span.id);
            let id = link(before, self.random.bits());
            chain.push(Span {
                id,
                tokens: held,
                partial: false,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Program, Source};
    use super::*;

    fn recorded(prompt: u64, output: u64, reuse: u64) -> Recorded {
        Recorded {
            prompt,
            output,
            reuse,
            gap_s: 1.5,
        }
    }

    fn program(turns: Vec<Recorded>) -> Program {
        Source::Sessions(Arc::from([turns])).program(1, &[0], 2.0)
    }

    #[test]
    fn prompts_and_answers_have_their_recorded_lengths_and_share_what_was_recorded() {
        let mut program = program(vec![
            recorded(10_000, 300, 0),
            recorded(12_000, 100, 10_300),
            recorded(9_000, 50, 5_000),
        ]);
        let turns: Vec<Turn> = std::iter::from_fn(|| program.turn()).collect();
        let tokens = |spans: &[Span]| spans.iter().map(|span| span.tokens).sum::<u64>();
        assert_eq!(
            turns
                .iter()
                .map(|turn| tokens(&turn.prompt))
                .collect::<Vec<_>>(),
            [10_000, 12_000, 9_000]
        );
        assert_eq!(tokens(&turns[1].conversation), 12_100);
        assert_eq!(
            turns[1].prompt[..turns[0].conversation.len()],
            turns[0].conversation[..]
        );
        let reusable: Vec<u64> = turns.iter().map(|turn| turn.reusable_tokens).collect();
        assert_eq!(reusable[..2], [0, 10_299]);
        // 5,000 cut down to whole pieces.
        assert!((5_000 - PIECE..=5_000).contains(&reusable[2]));
        assert_eq!((turns[0].tool, turns[2].tool), (Some("tool"), None));
        assert_eq!(turns[0].tool_us, 3_000_000);
    }

    #[test]
    fn the_same_session_twice_shares_nothing() {
        let source = Source::Sessions(Arc::from([vec![recorded(1_000, 10, 0)]]));
        let first = |path| {
            source
                .program(1, &[path], 1.0)
                .turn()
                .map(|turn| turn.prompt[0].id)
        };
        assert_ne!(first(1), first(2));
        assert_eq!(first(1), first(1));
    }
}
