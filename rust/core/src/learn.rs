//! What a whole answer teaches: a program's size, a seat's growth, shared prefixes, misses.

use crate::book::Book;
use crate::event::Usage;
use crate::ids::{Millis, RequestId, Seat, Tokens};
use crate::program::ProgramKey;
use crate::tools::ToolKind;

/// Weight of the latest step in a seat's mean growth.
const GROWTH_WEIGHT: f64 = 0.05;

/// Weight of the latest restore in the share that survives pauses.
const SURVIVAL_WEIGHT: f64 = 0.05;

/// Caches keep whole pages, so this much of a kept context may be missing without a miss.
const PAGE: Tokens = 64;

/// Beyond any context, and far from overflow when summed.
pub(crate) const MOST_TOKENS: Tokens = 1 << 40;

/// One answer, with estimates where its usage said nothing.
struct Answer {
    key: ProgramKey,
    seat: Option<Seat>,
    prompt: Tokens,
    completion: Tokens,
    cached: Option<Tokens>,
    /// Tokens of its prompt that were meant to be in the seat's cache.
    kept: Option<Tokens>,
    prefix: Option<u64>,
}

impl Book {
    /// Writes down what an answer says, before its request is forgotten.
    pub(crate) fn learn(&mut self, request: RequestId, usage: Usage<'_>, now: Millis) {
        let Some(entry) = self.requests.get(&request) else {
            return;
        };
        let prompt = usage.prompt_tokens.unwrap_or(entry.prompt).min(MOST_TOKENS);
        let completion = usage.completion_tokens.unwrap_or(entry.decoded);
        let answer = Answer {
            key: entry.program,
            seat: entry.flies_at(),
            prompt,
            completion: completion.min(MOST_TOKENS),
            cached: usage.cached_tokens.map(|cached| cached.min(prompt)),
            kept: entry.kept,
            prefix: entry.prefix,
        };
        if let Some(seat) = answer.seat {
            self.learn_about_seat(seat, &answer, now);
            crate::policy::taught(self, seat, now);
        }
        self.learn_about_program(&answer, usage.tool);
    }

    fn learn_about_seat(&mut self, seat: Seat, answer: &Answer, now: Millis) {
        let program = &self.programs[answer.key.0];
        let Some(worker) = self.workers.get_mut(&seat) else {
            return;
        };
        let total = answer.prompt + answer.completion;
        let gained = if program.steps == 0 {
            answer.completion
        } else {
            total.saturating_sub(program.context)
        };
        worker.learn_growth(gained);
        let expected = answer.kept.unwrap_or(0).min(answer.prompt);
        let cached = answer.cached.unwrap_or(expected);
        worker.inflow += total - cached;
        if let (Some(cached), Some(_)) = (answer.cached, answer.kept)
            && cached + PAGE < expected
        {
            let wasted = worker.recompute_ms(expected) - worker.recompute_ms(cached);
            worker.recomputed.add(wasted, now);
        }
        let alone = program.flying.len() == 1;
        let returned = program.steps > 0
            && program.steps_here == 0
            && program.trace.is_some_and(|trace| trace.seat == seat);
        if let (true, true, Some(cached)) = (returned, alone, answer.cached) {
            worker.learn_survival(cached, program.context.min(answer.prompt));
        }
        let first = program.steps == 0 && program.context == 0;
        if let (true, true, Some(prefix), Some(cached)) =
            (first, alone, answer.prefix, answer.cached)
            && program.prefix == answer.prefix
        {
            worker.shared.observe(prefix, cached);
        }
    }

    /// A silent program did not come back within its lease.
    pub(crate) fn lapse(&mut self, key: ProgramKey) {
        self[key].lapsed = true;
        let tool = self[key].tool;
        self.tools.lapsed(tool);
    }

    fn learn_about_program(&mut self, answer: &Answer, tool: Option<&str>) {
        let tool = tool.map_or(ToolKind::UNNAMED, |name| self.tools.kind(name));
        let epoch = answer.seat.and_then(|seat| self.workers.get(&seat));
        let epoch = epoch.map(|worker| worker.epoch);
        let program = &mut self[answer.key];
        let total = answer.prompt + answer.completion;
        let continues =
            answer.prefix.is_none() || program.prefix.is_none() || answer.prefix == program.prefix;
        if continues || total >= program.context {
            program.peak = program.peak.max(total);
        }
        program.steps += 1;
        if answer.seat.is_some() {
            program.steps_here += 1;
        }
        program.epoch = epoch;
        program.tool = tool;
    }
}

impl crate::worker::Worker {
    /// A program that was paused here came back, and this much of what it had was found.
    fn learn_survival(&mut self, found: Tokens, had: Tokens) {
        let whole = found + PAGE >= had;
        let share = if whole {
            1.0
        } else {
            crate::decay::as_float(found) / crate::decay::as_float(had)
        };
        self.survival += SURVIVAL_WEIGHT * (share - self.survival);
    }

    fn learn_growth(&mut self, gained: Tokens) {
        let gained = crate::decay::as_float(gained);
        self.growth = match self.growth {
            Some(growth) => Some(growth + GROWTH_WEIGHT * (gained - growth)),
            None => Some(gained),
        };
    }
}
