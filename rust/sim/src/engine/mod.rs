//! One engine, one DP rank: a queue, a KV pool, and a batch that iterates.
//!
//! Theory of operation. The engine is told the time and does nothing between calls. At an iteration's
//! end it may retract, admit and finish requests; then it lays down the next *segment*: a run of
//! iterations in which the batch stays the same, whose end is known in closed form. A segment ends
//! when a prefill chunk is done, when the first request finishes, when room for one more token
//! runs out, when admission is due again, or, where somebody streams, after `progress_us`. What
//! arrives in the middle cuts the segment at the end of the running iteration, as a real scheduler
//! notices newcomers between iterations. So jumping segments and looping over iterations give the
//! same events.
//!
//! Tokens are in exactly one of three places: cached (locked or evictable, see [`crate::cache`]),
//! private to a request, or free. What a real engine reports as *used* is locked plus private:
//! cache that nobody runs on counts as free (`SGLang`'s `num_used_tokens`).

mod admission;
mod config;
mod report;
mod request;
mod segment;

use std::collections::{BTreeMap, VecDeque};

use crate::cache::{Cache, ROOT};
use crate::model::{PICOS_PER_MICRO, Picos};

pub use config::{ConfigError, EngineConfig, PauseMode};
pub use report::{Counts, Loads};
use request::Request;
pub use request::{Event, EventKind, Finish, Refusal, Submission};
use segment::Segment;

/// See the module.
#[derive(Clone, Debug)]
pub struct Engine {
    config: EngineConfig,
    cache: Cache,
    clock: Picos,
    waiting: VecDeque<Request>,
    prefilling: Vec<Request>,
    decoding: Vec<Request>,
    /// Tokens of KV that requests hold outside the cache, in whole pages.
    private_tokens: u64,
    segment: Option<Segment>,
    /// Share of what it may still generate that admission keeps free for a running request, ppm.
    new_token_ratio: u64,
    iterations: u64,
    /// Admission is due: something changed since it was last tried.
    stirred: bool,
    paused: bool,
    /// Those that run lose their KV at the end of the iteration.
    retract_all: bool,
    /// Copying to the host that the next iteration waits for.
    copying: Picos,
    generations: BTreeMap<u64, u64>,
    events: Vec<Event>,
    counts: Counts,
}

impl Engine {
    /// An idle engine at time 0.
    pub fn new(config: EngineConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let (page, chunk) = (config.page_tokens, config.model.chunk_tokens);
        Ok(Self {
            cache: Cache::new(page, chunk, config.host_tokens, config.write_policy),
            config,
            clock: 0,
            waiting: VecDeque::new(),
            prefilling: Vec::new(),
            decoding: Vec::new(),
            private_tokens: 0,
            segment: None,
            new_token_ratio: admission::RATIO_START,
            iterations: 0,
            stirred: false,
            paused: false,
            retract_all: false,
            copying: 0,
            generations: BTreeMap::new(),
            events: Vec::new(),
            counts: Counts::default(),
        })
    }

    /// How it was set up.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The longest prompt that is taken, tokens.
    pub fn max_prompt_tokens(&self) -> u64 {
        self.config.max_prompt_tokens()
    }

    /// Takes a request in. The output is cut to what fits the pool beside the prompt.
    pub fn submit(&mut self, mut spec: Submission, now_us: u64) -> Result<(), Refusal> {
        let prompt_tokens = spec.prompt.iter().map(|span| span.tokens).sum();
        let limit = self.max_prompt_tokens();
        if prompt_tokens > limit {
            return Err(Refusal::TooLong {
                prompt_tokens,
                limit,
            });
        }
        self.catch_up(now_us);
        if self.holds(spec.request) {
            return Err(Refusal::Duplicate(spec.request));
        }
        // A whole number of pages must hold prompt and output.
        let room = self.config.model.capacity_tokens - prompt_tokens;
        spec.max_tokens = spec.max_tokens.clamp(1, room);
        spec.output_tokens = spec.output_tokens.clamp(1, spec.max_tokens);
        let place = self.place_in_queue(spec.priority);
        let now = self.stir(now_us);
        if self
            .config
            .max_queued
            .is_some_and(|most| self.waiting.len() >= most)
        {
            if place == self.waiting.len() {
                return Err(Refusal::QueueFull);
            }
            if let Some(last) = self.waiting.pop_back() {
                self.counts.displaced += 1;
                self.say(last.spec.request, EventKind::Displaced, now);
            }
        }
        let generation = spec.session.map_or(0, |session| self.generation(session));
        self.counts.submitted += 1;
        self.waiting
            .insert(place, Request::new(spec, generation, now));
        Ok(())
    }

    /// Cuts a request short: at once where it waits, at the end of the iteration where it runs.
    /// False where it is not in flight.
    pub fn abort(&mut self, request: u64, now_us: u64) -> bool {
        self.catch_up(now_us);
        if let Some(at) = self
            .waiting
            .iter()
            .position(|one| one.spec.request == request)
        {
            let now = self.stir(now_us);
            if let Some(one) = self.waiting.remove(at) {
                self.finish(one, true, now);
            }
            return true;
        }
        let mut running = self.prefilling.iter_mut().chain(&mut self.decoding);
        let Some(one) = running.find(|one| one.spec.request == request) else {
            return false;
        };
        one.aborted = true;
        self.stir(now_us);
        true
    }

    /// When [`Engine::advance`] has something to do, µs. Every other call may change the answer;
    /// calling `advance` for nothing is harmless.
    pub fn next_event_us(&self) -> Option<u64> {
        if !self.events.is_empty() {
            return Some(self.events[0].at_us);
        }
        match &self.segment {
            Some(segment) => Some(micros(segment.end())),
            None if self.idle() || (self.paused && !self.any_aborted()) => None,
            None => Some(micros(self.clock)),
        }
    }

    /// Lets time pass until `now_us` and tells what happened, in order.
    pub fn advance(&mut self, now_us: u64) -> Vec<Event> {
        self.run(micros_to_picos(now_us) + 1);
        std::mem::take(&mut self.events)
    }

    /// Ends a session: its KV is the first to go. Requests already running leave it closed.
    pub fn close_session(&mut self, session: u64, now_us: u64) {
        self.catch_up(now_us);
        // What the running segment has evicted by now, it chose in the old order.
        let done = self
            .segment
            .as_ref()
            .map_or(0, |one| one.done_by(micros_to_picos(now_us)));
        self.make_room(self.growth(done));
        *self.generations.entry(session).or_insert(0) += 1;
        self.cache.close(session);
    }

    /// Drops the whole cache, both tiers. False, and nothing dropped, while anything is in flight.
    pub fn flush(&mut self) -> bool {
        if !self.idle() {
            return false;
        }
        self.cache.clear();
        true
    }

    /// Stops after the running iteration; new requests wait.
    pub fn pause(&mut self, mode: PauseMode, now_us: u64) {
        self.catch_up(now_us);
        let now = self.stir(now_us);
        self.paused = true;
        match mode {
            PauseMode::InPlace => {}
            PauseMode::Retract => self.retract_all = true,
            PauseMode::Abort => {
                for one in std::mem::take(&mut self.waiting) {
                    self.finish(one, true, now);
                }
                let running = self.prefilling.iter_mut().chain(&mut self.decoding);
                running.for_each(|one| one.aborted = true);
            }
        }
    }

    /// Goes on after [`Engine::pause`].
    pub fn resume(&mut self, now_us: u64) {
        self.catch_up(now_us);
        self.paused = false;
        self.retract_all = false;
        self.stir(now_us);
    }

    /// True between `pause` and `resume`.
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// True where nothing waits and nothing runs.
    pub fn idle(&self) -> bool {
        self.waiting.is_empty() && self.prefilling.is_empty() && self.decoding.is_empty()
    }

    /// Recounts everything from nothing. For tests.
    ///
    /// # Panics
    /// Where a count does not add up.
    pub fn check(&self) {
        let private: u64 = self
            .prefilling
            .iter()
            .chain(&self.decoding)
            .map(|one| self.private(one))
            .sum();
        assert_eq!(private, self.private_tokens, "private tokens");
        assert!(
            self.cache.device_tokens() + private <= self.config.model.capacity_tokens,
            "pool over capacity"
        );
        self.cache.check();
    }

    /// Closes and lays down segments for as long as one ends before `horizon`.
    fn run(&mut self, horizon: Picos) {
        loop {
            match self.segment.take() {
                Some(segment) if segment.end() >= horizon => {
                    self.segment = Some(segment);
                    return;
                }
                Some(segment) => {
                    self.clock = segment.end();
                    self.close_segment(&segment);
                }
                None if self.idle() || self.clock >= horizon => return,
                None => {}
            }
            self.segment = self.next_segment();
            if self.segment.is_none() {
                return;
            }
        }
    }

    /// Does what was due before `now_us`, so that what comes now comes in order. Not what is due at
    /// that very instant: those who arrive together are looked at together.
    fn catch_up(&mut self, now_us: u64) {
        self.run(micros_to_picos(now_us));
    }

    /// Something outside the batch changes at `now_us`: the running iteration is the last before the
    /// batch is looked at again. Returns that instant.
    fn stir(&mut self, now_us: u64) -> Picos {
        let now = micros_to_picos(now_us);
        self.stirred = true;
        match &mut self.segment {
            Some(segment) => segment.cut(now),
            None => self.clock = self.clock.max(now),
        }
        now
    }

    fn holds(&self, request: u64) -> bool {
        self.waiting
            .iter()
            .chain(&self.prefilling)
            .chain(&self.decoding)
            .any(|one| one.spec.request == request)
    }

    fn any_aborted(&self) -> bool {
        self.prefilling
            .iter()
            .chain(&self.decoding)
            .any(|one| one.aborted)
    }

    fn generation(&self, session: u64) -> u64 {
        self.generations.get(&session).copied().unwrap_or(0)
    }

    fn free_tokens(&self) -> u64 {
        self.config.model.capacity_tokens - self.cache.device_tokens() - self.private_tokens
    }

    /// Whole pages that `tokens` of KV take.
    fn pages(&self, tokens: u64) -> u64 {
        tokens.next_multiple_of(self.config.page_tokens)
    }

    /// Tokens that `one` holds outside the cache, in whole pages.
    fn private(&self, one: &Request) -> u64 {
        self.pages(one.kv_tokens) - one.in_cache
    }

    /// Drops cache until `tokens` are free. The caller knows that there is enough of it.
    fn make_room(&mut self, tokens: u64) {
        let free = self.free_tokens();
        if tokens > free {
            let copied = self.cache.evict(tokens - free);
            self.copying += Picos::from(copied) * Picos::from(self.config.model.load_back_ps);
        }
    }

    /// Files what `one` computed and takes it out of the books.
    fn finish(&mut self, mut one: Request, aborted: bool, at: Picos) {
        self.private_tokens -= self.private(&one);
        self.cache.unlock(one.node);
        let kv = one.kv_tokens;
        let session = self.live_session(&one);
        if one.decoded > 0 && one.filled == one.fill_tokens {
            self.cache.insert(&one.spec.conversation, kv, session);
            self.shed_duplicates();
        }
        one.node = ROOT;
        self.counts.finished += 1;
        self.counts.aborted += u64::from(aborted);
        let finish = Finish {
            aborted,
            prompt_tokens: one.prompt_tokens,
            completion_tokens: one.decoded,
            cached_device: one.cached_device,
            cached_host: one.cached_host,
            retractions: one.retractions,
            queue_us: micros(one.admitted.unwrap_or(at).saturating_sub(one.submitted)),
        };
        self.say(one.spec.request, EventKind::Finished(finish), at);
    }

    /// A short last block that another request still runs on stays beside the full one that replaces
    /// it: should the pool be full, cache gives way.
    fn shed_duplicates(&mut self) {
        let held = self.cache.device_tokens() + self.private_tokens;
        self.cache
            .evict(held.saturating_sub(self.config.model.capacity_tokens));
    }

    /// The session to tag its KV with, unless it was closed since the request came.
    fn live_session(&self, one: &Request) -> Option<u64> {
        one.spec.session.filter(|&session| {
            self.config.session_radix && self.generation(session) == one.generation
        })
    }

    fn say(&mut self, request: u64, kind: EventKind, at: Picos) {
        self.events.push(Event {
            at_us: micros(at),
            request,
            kind,
        });
    }
}

fn micros_to_picos(us: u64) -> Picos {
    Picos::from(us) * PICOS_PER_MICRO
}

/// Picoseconds as microseconds, rounded up: nothing is told before it happened.
fn micros(time: Picos) -> u64 {
    u64::try_from(time.div_ceil(PICOS_PER_MICRO)).unwrap_or(u64::MAX)
}
