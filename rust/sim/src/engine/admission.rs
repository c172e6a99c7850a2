//! Who runs next, and who is put back when the pool runs dry.
//!
//! First come, first served, as `SGLang`'s default: the head of the queue is admitted once its prompt
//! fits beside a reserve for what everybody may still generate, and nobody overtakes it. The reserve
//! is a share (the *new token ratio*) of the declared limits; it decays while all goes well and jumps
//! when the pool ran dry and somebody had to be retracted.
//!
//! Source: `schedule_policy.py` (`PrefillAdder`) and `schedule_batch.py` (`retract_decode`) of
//! `SGLang` 0.5; ratios there are fractions, here parts per million, so that decay adds up exactly.

use super::{Engine, EventKind, Request};
use crate::cache::ROOT;
use crate::model::Picos;

/// The ratio an engine starts with, ppm (`SGLANG_INIT_NEW_TOKEN_RATIO` = 0.7).
pub(super) const RATIO_START: u64 = 700_000;
/// The ratio it decays to, ppm (0.14 of the first).
pub(super) const RATIO_FLOOR: u64 = 98_000;
/// By how much an iteration of decoding lowers it, ppm: from start to floor in 600.
pub(super) const RATIO_DECAY: u64 = (RATIO_START - RATIO_FLOOR) / 600;
/// Beyond this a declared limit no longer adds to the reserve (`SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION`).
const RESERVE_CLIP: u64 = 4_096;
/// A retraction makes room for so many tokens for each of those who stay.
const RETRACT_STEPS: u64 = 20;
/// A queue that could not be admitted is looked at again after so many iterations, for the reserve
/// may have shrunk enough. A real engine looks at every one.
pub(super) const ADMISSION_INTERVAL: u64 = 16;

impl Engine {
    /// Admits from the head of the queue for as long as there is room.
    pub(super) fn admit(&mut self) {
        self.stirred = false;
        let unfilled: u64 = self
            .prefilling
            .iter()
            .map(|one| one.fill_tokens - one.filled)
            .sum();
        let mut chunk = self.config.model.chunk_tokens.saturating_sub(unfilled);
        while chunk > 0 && self.running() < self.config.max_running {
            let Some(head) = self.waiting.front() else {
                return;
            };
            let limit = (head.fill_tokens - 1) / self.config.page_tokens * self.config.page_tokens;
            let found = self.cache.find(&head.spec.prompt, limit);
            let cached = found.device_tokens + found.host_tokens;
            let needed = found.load_tokens + self.pages(head.fill_tokens) - cached;
            let available =
                self.free_tokens() + self.cache.evictable_tokens() - found.unlocked_tokens;
            let reserve = may_generate(head) + self.reserve();
            if needed + reserve > available && self.running() > 0 {
                return;
            }
            let Some(mut one) = self.waiting.pop_front() else {
                return;
            };
            self.cache.touch(found.deepest);
            self.cache.lock(found.deepest);
            self.make_room(needed);
            self.cache.load_back(found.deepest);
            if one.admitted.is_none() {
                one.admitted = Some(self.clock);
                (one.cached_device, one.cached_host) = (found.device_tokens, found.host_tokens);
                self.counts.cached_device += found.device_tokens;
                self.counts.cached_host += found.host_tokens;
                self.counts.prompt += one.prompt_tokens;
            } else {
                self.counts.recomputed += one.fill_tokens - cached;
            }
            one.node = found.deepest;
            one.in_cache = cached;
            one.filled = cached;
            one.kv_tokens = one.fill_tokens;
            one.load = Picos::from(found.host_tokens) * Picos::from(self.config.model.load_back_ps);
            self.private_tokens += self.private(&one);
            chunk = chunk.saturating_sub(one.fill_tokens - one.filled);
            self.prefilling.push(one);
        }
    }

    /// Retracts until one more token for everybody fits.
    pub(super) fn relieve(&mut self) {
        let room = |engine: &Self| engine.free_tokens() + engine.cache.evictable_tokens();
        if self.growth(1) <= room(self) {
            return;
        }
        while self.decoding.len() > 1 && self.growth(RETRACT_STEPS) > room(self) {
            let victim = self.victim();
            let one = self.decoding.remove(victim);
            self.retract(one);
        }
        while self.growth(1) > room(self) {
            let Some(one) = self.prefilling.pop() else {
                break;
            };
            self.retract(one);
        }
        let decoded: u64 = self
            .decoding
            .iter()
            .map(|one| one.decoded + RETRACT_STEPS)
            .sum();
        let declared: u64 = self.decoding.iter().map(|one| one.spec.max_tokens).sum();
        self.new_token_ratio = (decoded * 1_000_000 / (declared + 1)).clamp(RATIO_FLOOR, 1_000_000);
    }

    /// The one with the least output, and of those the longest prompt: it loses least.
    fn victim(&self) -> usize {
        let loss = |one: &Request| (one.decoded, std::cmp::Reverse(one.prompt_tokens));
        let least = self
            .decoding
            .iter()
            .enumerate()
            .rev()
            .min_by_key(|(_, one)| loss(one));
        least.map_or(0, |(index, _)| index)
    }

    /// Takes the KV of `one` away and puts it back in the queue. Its prompt stays as cache.
    pub(super) fn retract(&mut self, mut one: Request) {
        self.private_tokens -= self.private(&one);
        self.cache.unlock(one.node);
        one.node = ROOT;
        one.in_cache = 0;
        one.kv_tokens = 0;
        one.load = 0;
        one.filled = 0;
        one.fill_tokens = one.prompt_tokens + one.decoded;
        one.retractions += 1;
        self.counts.retractions += 1;
        self.stirred = true;
        self.say(one.spec.request, EventKind::Retracted, self.clock);
        let place = self.place_in_queue(one.spec.priority);
        self.waiting.insert(place, one);
    }

    /// Where a newcomer of this priority stands.
    pub(super) fn place_in_queue(&self, priority: i64) -> usize {
        if self.config.priority_scheduling {
            self.waiting
                .partition_point(|one| one.spec.priority >= priority)
        } else {
            self.waiting.len()
        }
    }

    fn running(&self) -> usize {
        self.prefilling.len() + self.decoding.len()
    }

    /// Tokens to keep free for what those admitted may still generate.
    fn reserve(&self) -> u64 {
        let fresh: u64 = self.prefilling.iter().map(may_generate).sum();
        let going: u64 = self.decoding.iter().map(may_generate).sum();
        fresh + going * self.new_token_ratio / 1_000_000
    }
}

fn may_generate(one: &Request) -> u64 {
    one.spec
        .max_tokens
        .saturating_sub(one.decoded)
        .min(RESERVE_CLIP)
}
