//! What an answer has said so far.

use crate::Dialect;

use super::event::{Count, Counts, Event, Kind};

/// Sequences of one answer that are told apart; the rest are counted with the last.
const MOST_SEQUENCES: usize = 64;

/// No answer calls more kinds of tools than this; a worker that says so costs no more memory.
pub(super) const MOST_TOOLS: usize = 64;

/// Facts about an answer. They are complete once it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseFacts {
    /// Whole SSE events with data.
    pub events: u64,
    /// The message of an error in the very first event, in a stream that began with 200.
    pub first_event_error: Option<String>,
    /// The status that this error names.
    pub first_event_error_code: Option<i64>,
    /// The message of the last error.
    pub error: Option<String>,
    /// The answer said that it is whole.
    pub done: bool,
    /// Tokens of the prompt, cached ones included.
    pub prompt_tokens: Option<u64>,
    /// Tokens generated.
    pub completion_tokens: Option<u64>,
    /// Tokens of the prompt found in any cache.
    pub cached_tokens: Option<u64>,
    /// Those of them that were in the host tier.
    pub cached_host_tokens: Option<u64>,
    /// Those of them that were in storage.
    pub cached_storage_tokens: Option<u64>,
    /// Events that brought generated text: a lower bound of the tokens generated.
    pub decoded_events: u64,
    /// Why generation ended.
    pub finish_reason: Option<String>,
    /// Names of the tools called, in order, without repeats.
    pub tools: Vec<String>,
    /// The id of the answer.
    pub response_id: Option<String>,
    /// The version of the weights that generated it.
    pub weight_version: Option<String>,
    /// Reports of usage: one for all, or one for each sequence of `/generate`.
    reports: Vec<Counts>,
    /// Bits of the sequences that began, and of those that ended.
    begun: u64,
    ended: u64,
}

impl ResponseFacts {
    /// Takes in what one document said.
    pub(super) fn absorb(&mut self, mut event: Event, dialect: Dialect, is_stream: bool) {
        if is_stream {
            self.events += 1;
        }
        if event.is_error() {
            let message = event.message.take().unwrap_or_default();
            if self.events == 1 {
                self.first_event_error = Some(message.clone());
                self.first_event_error_code = event.code;
            }
            self.error = Some(message);
        }
        let is_last = event.kind == Kind::End || !is_stream;
        let finish_reason = event
            .finish_reason
            .take()
            .or_else(|| event.status.take().filter(|_| is_last));
        self.track_end(&event, finish_reason.is_some(), dialect);
        self.done |= event.kind == Kind::End;
        self.finish_reason = finish_reason.or_else(|| self.finish_reason.take());
        let is_delta = if dialect == Dialect::Generate {
            event.has_usage
        } else {
            event.has_text
        };
        self.decoded_events += u64::from(is_stream && is_delta);
        for tool in event.tools {
            if self.tools.len() < MOST_TOOLS && !self.tools.contains(&tool) {
                self.tools.push(tool);
            }
        }
        self.response_id = self.response_id.take().or(event.id);
        self.weight_version = event.weight_version.or_else(|| self.weight_version.take());
        if event.has_usage || event.has_extension {
            let sequence = if dialect == Dialect::Generate {
                event.index.unwrap_or_default()
            } else {
                0
            };
            self.report(sequence, &event.counts, dialect);
        }
    }

    /// Takes in an event that said what the one before it said, but for its text.
    pub(super) fn repeat(&mut self, has_text: bool) {
        self.events += 1;
        self.decoded_events += u64::from(has_text);
    }

    /// The stream is over when every sequence that began has a finish reason.
    fn track_end(&mut self, event: &Event, is_finished: bool, dialect: Dialect) {
        let speaks = match dialect {
            Dialect::Chat | Dialect::Completions => {
                event.choices.is_some_and(|choices| choices > 0)
            }
            Dialect::Generate => event.has_usage,
            Dialect::Messages => is_finished,
            Dialect::Responses => false,
        };
        if !speaks {
            return;
        }
        let bit = 1 << event.index.unwrap_or_default().min(63);
        self.begun |= bit;
        if is_finished {
            self.ended |= bit;
        }
        self.done = self.begun == self.ended;
    }

    fn report(&mut self, sequence: u64, counts: &Counts, dialect: Dialect) {
        let index = usize::try_from(sequence)
            .unwrap_or(usize::MAX)
            .min(MOST_SEQUENCES - 1);
        if self.reports.len() <= index {
            self.reports.resize(index + 1, Counts::default());
        }
        self.reports[index].update(counts);
        let mut total = Counts::default();
        self.reports.iter().for_each(|report| total.add(report));

        // Anthropic's input_tokens leaves out what the cache had.
        let cache_read = total.get(Count::CacheRead);
        let beside = match dialect {
            Dialect::Messages => {
                cache_read.unwrap_or_default() + total.get(Count::CacheCreation).unwrap_or_default()
            }
            _ => 0,
        };
        // No prompt has zero tokens: some releases fill in zeros for "not known".
        self.prompt_tokens = total
            .get(Count::Prompt)
            .map(|input| input.saturating_add(beside))
            .filter(|&all| all > 0);
        self.completion_tokens = total
            .get(Count::Completion)
            .filter(|_| self.prompt_tokens.is_some());
        self.cached_host_tokens = total.get(Count::Host);
        self.cached_storage_tokens = total.get(Count::Storage);
        let tiers = [Count::Device, Count::Host, Count::Storage].map(|tier| total.get(tier));
        let in_tiers = tiers.iter().flatten().copied().reduce(u64::saturating_add);
        self.cached_tokens = total.get(Count::Cached).or(cache_read).or(in_tiers);
    }
}
