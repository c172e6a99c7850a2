//! Segments: runs of iterations over one batch, laid down in closed form and closed at their end.

use super::admission::{ADMISSION_INTERVAL, RATIO_DECAY, RATIO_FLOOR};
use super::{Engine, EventKind, Request};
use crate::model::{PICOS_PER_MICRO, Picos};

/// Iterations during which the batch stays the same.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    start: Picos,
    iterations: u64,
    /// Length of the first iteration.
    first: Picos,
    /// By how much each is longer than the one before: one more token of KV per decoding request.
    slope: Picos,
    /// Prefill tokens of each request in `prefilling`, in order; with any, there is one iteration.
    chunks: Vec<u64>,
}

impl Segment {
    pub(super) fn end(&self) -> Picos {
        self.start + self.elapsed(self.iterations)
    }

    fn elapsed(&self, iterations: u64) -> Picos {
        let n = Picos::from(iterations);
        n * self.first + self.slope * (n * n.saturating_sub(1) / 2)
    }

    /// Whole iterations done by `now`.
    pub(super) fn done_by(&self, now: Picos) -> u64 {
        largest(self.iterations, |n| self.start + self.elapsed(n) <= now)
    }

    /// Ends it with the iteration that runs at `now`.
    pub(super) fn cut(&mut self, now: Picos) {
        let done = self.done_by(now);
        let at_boundary = done > 0 && self.start + self.elapsed(done) == now;
        self.iterations = if at_boundary {
            done
        } else {
            self.iterations.min(done + 1)
        };
    }
}

/// The largest `n` in `0..=most` for which `fits`, which holds for 0 and is monotone.
fn largest(most: u64, fits: impl Fn(u64) -> bool) -> u64 {
    if fits(most) {
        return most;
    }
    let (mut low, mut high) = (0, most);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

impl Engine {
    /// At an iteration's end: ends what was aborted, admits, relieves the pool, and lays down what
    /// comes next, if anything does.
    pub(super) fn next_segment(&mut self) -> Option<Segment> {
        self.end_aborted();
        if self.paused {
            if std::mem::take(&mut self.retract_all) {
                let running = std::mem::take(&mut self.prefilling).into_iter();
                let running: Vec<_> = running.chain(std::mem::take(&mut self.decoding)).collect();
                for one in running {
                    self.retract(one);
                }
            }
            return None;
        }
        if self.stirred || self.iterations.is_multiple_of(ADMISSION_INTERVAL) {
            self.admit();
        }
        self.relieve();
        if self.prefilling.is_empty() && self.decoding.is_empty() {
            return None;
        }
        let (chunks, prefill) = self.chunks();
        let context: u64 = self.decoding.iter().map(|one| one.kv_tokens).sum();
        let tk = Picos::from(self.config.model.kv_read_ps);
        let mut segment = Segment {
            start: self.clock,
            iterations: 1,
            first: self.config.model.iteration(self.decoding.len())
                + tk * Picos::from(context)
                + prefill
                + std::mem::take(&mut self.copying),
            slope: tk * self.decoding.len() as Picos,
            chunks,
        };
        if segment.chunks.is_empty() && !self.stirred {
            segment.iterations = self.undisturbed(&segment);
        }
        Some(segment)
    }

    /// How many iterations pass before anything but decoding happens.
    fn undisturbed(&self, segment: &Segment) -> u64 {
        let mut most = self
            .decoding
            .iter()
            .map(Request::remaining)
            .min()
            .unwrap_or(1)
            .max(1);
        if !self.waiting.is_empty() {
            most = most.min(ADMISSION_INTERVAL - self.iterations % ADMISSION_INTERVAL);
        }
        if self.decoding.iter().any(|one| one.spec.progress) {
            let step = Picos::from(self.config.progress_us) * PICOS_PER_MICRO;
            most = largest(most, |n| segment.elapsed(n) <= step).max(1);
        }
        let room = self.free_tokens() + self.cache.evictable_tokens();
        largest(most, |n| self.growth(n) <= room).max(1)
    }

    /// Prefill of the next iteration: tokens of each request in order, and the time it takes. Loading
    /// from the host overlaps computing layer by layer, so the longer of the two counts.
    fn chunks(&mut self) -> (Vec<u64>, Picos) {
        let mut left = self.config.model.chunk_tokens;
        let (mut compute, mut load) = (0, 0);
        let mut chunks = Vec::with_capacity(self.prefilling.len());
        for one in &mut self.prefilling {
            let tokens = left.min(one.fill_tokens - one.filled);
            compute += self.config.model.prefill(tokens, one.filled);
            if tokens > 0 {
                load += std::mem::take(&mut one.load);
            }
            left -= tokens;
            chunks.push(tokens);
        }
        (chunks, compute.max(load))
    }

    /// The segment is over, and `clock` stands at its end: books what it did.
    pub(super) fn close_segment(&mut self, segment: &Segment) {
        let n = segment.iterations;
        self.iterations += n;
        if !self.decoding.is_empty() {
            self.new_token_ratio = self
                .new_token_ratio
                .saturating_sub(RATIO_DECAY * n)
                .max(RATIO_FLOOR);
            let growth = self.growth(n);
            self.make_room(growth);
            self.private_tokens += growth;
            self.counts.generated += n * self.decoding.len() as u64;
        }
        for one in &mut self.decoding {
            one.decoded += n;
            one.kv_tokens += n;
        }
        self.sort_out_decoding();
        if !segment.chunks.is_empty() {
            self.counts.prefill_busy += segment.elapsed(n);
            self.book_chunks(&segment.chunks);
        }
    }

    /// Finishes what is done decoding and tells the others' progress.
    fn sort_out_decoding(&mut self) {
        let mut going = Vec::with_capacity(self.decoding.len());
        for one in std::mem::take(&mut self.decoding) {
            if one.done() {
                self.stirred = true;
                self.finish(one, false, self.clock);
                continue;
            }
            if one.spec.progress {
                self.say(
                    one.spec.request,
                    EventKind::Progress {
                        decoded: one.decoded,
                    },
                    self.clock,
                );
            }
            going.push(one);
        }
        self.decoding = going;
    }

    /// Books prefill; a request whose last chunk this was files its prompt and has its first token.
    fn book_chunks(&mut self, chunks: &[u64]) {
        self.stirred = true;
        let mut partial = Vec::new();
        for (mut one, &tokens) in std::mem::take(&mut self.prefilling).into_iter().zip(chunks) {
            one.filled += tokens;
            self.counts.prefilled += tokens;
            if one.filled < one.fill_tokens {
                partial.push(one);
                continue;
            }
            self.private_tokens -= self.private(&one);
            self.cache.unlock(one.node);
            let session = self.live_session(&one);
            (one.node, one.in_cache) =
                self.cache
                    .insert(&one.spec.prompt, one.prompt_tokens, session);
            self.cache.lock(one.node);
            self.private_tokens += self.private(&one);
            self.shed_duplicates();
            one.decoded += 1;
            self.counts.generated += 1;
            if one.decoded == 1 {
                let (cached_device, cached_host) = (one.cached_device, one.cached_host);
                let first = EventKind::FirstToken {
                    cached_device,
                    cached_host,
                };
                self.say(one.spec.request, first, self.clock);
            }
            if one.done() {
                self.finish(one, false, self.clock);
            } else {
                self.decoding.push(one);
            }
        }
        self.prefilling = partial;
    }

    /// Ends the running requests that somebody aborted.
    fn end_aborted(&mut self) {
        if !self.any_aborted() {
            return;
        }
        self.stirred = true;
        let (gone, prefilling) = std::mem::take(&mut self.prefilling)
            .into_iter()
            .partition(|one| one.aborted);
        let (also_gone, decoding): (Vec<_>, _) = std::mem::take(&mut self.decoding)
            .into_iter()
            .partition(|one| one.aborted);
        (self.prefilling, self.decoding) = (prefilling, decoding);
        for one in Vec::into_iter(gone).chain(also_gone) {
            self.finish(one, true, self.clock);
        }
    }

    /// Device room that `n` more tokens for everybody take, in whole pages.
    pub(super) fn growth(&self, n: u64) -> u64 {
        let grown = |one: &Request| self.pages(one.kv_tokens + n) - self.pages(one.kv_tokens);
        self.decoding.iter().map(grown).sum()
    }
}
