//! The seam between the world and whoever decides, and the two simplest who do.

use std::collections::BTreeMap;

use thunder_core::{
    Arrival, Decision, Millis, RequestId, Scheduler, Seat, SeatFacts, Tokens, Usage,
};

use super::spec::{Spec, SpecError};
use crate::cache::WritePolicy;
use crate::engine::Finish;
use crate::span::Span;

/// A turn that asks to be served.
pub(super) struct Ask<'a> {
    pub(super) request: u64,
    pub(super) program: &'a str,
    pub(super) prompt: &'a [Span],
    /// Identity of the prefix that all programs share, if there is one.
    pub(super) prefix: Option<u64>,
}

/// What the world is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Send this request to this engine.
    Send { request: u64, worker: usize },
    /// Refuse it; None: for good.
    Refuse {
        request: u64,
        retry_after: Option<Millis>,
    },
    /// The program lost its place: its KV on this engine may go first.
    Yield { program: String, worker: usize },
}

/// Told what happens, it says what to do. Times are virtual milliseconds.
pub(super) trait Router {
    /// A turn asks.
    fn ask(&mut self, ask: &Ask<'_>, now: Millis);
    /// A running request has so many tokens out.
    fn progress(&mut self, request: u64, decoded: Tokens, now: Millis);
    /// A request was answered.
    fn finished(&mut self, request: u64, finish: &Finish, tool: Option<&str>, now: Millis);
    /// A program is over.
    fn released(&mut self, program: &str, now: Millis);
    /// What to do now.
    fn orders(&mut self, now: Millis) -> Vec<Order>;
    /// Milliseconds until `orders` must be asked though nothing happened.
    fn due(&self, now: Millis) -> Option<Millis>;
}

/// The real scheduler.
pub(super) struct Core {
    scheduler: Scheduler,
}

impl Core {
    #[allow(clippy::cast_precision_loss)] // Rates are small.
    pub(super) fn new(
        spec: &Spec,
        config: thunder_core::SchedulerConfig,
    ) -> Result<Self, SpecError> {
        let refused = |error: thunder_core::Error| SpecError(error.to_string());
        let mut scheduler = Scheduler::new(config).map_err(refused)?;
        for worker in 0..spec.workers {
            let facts = SeatFacts {
                device_tokens: Some(spec.engine().model.capacity_tokens),
                host_tokens: spec.host_tokens(),
                write_back: spec.write_policy == WritePolicy::Back,
                prefill_us_per_token: spec.model.prefill_ps as f64 / 1e6,
                prefill_ns_per_token2: spec.model.prefill_context_ps as f64 / 1e3,
                load_back_us_per_token: spec.model.load_back_ps as f64 / 1e6,
                sessions: spec.sessions,
            };
            let number = u32::try_from(worker).map_err(|_| SpecError("too many workers".into()))?;
            scheduler
                .worker_up(Seat::new(number, 0), facts, 0)
                .map_err(refused)?;
        }
        Ok(Self { scheduler })
    }
}

impl Router for Core {
    fn ask(&mut self, ask: &Ask<'_>, now: Millis) {
        let arrival = Arrival {
            program: Some(ask.program),
            group: None,
            prompt_tokens: ask.prompt.iter().map(|span| span.tokens).sum(),
            prefix: ask.prefix,
        };
        self.scheduler
            .arrive(RequestId(ask.request), arrival, now)
            .expect("a fresh request");
    }

    fn progress(&mut self, request: u64, decoded: Tokens, now: Millis) {
        self.scheduler
            .progress(RequestId(request), decoded, now)
            .expect("it is in flight");
    }

    fn finished(&mut self, request: u64, finish: &Finish, tool: Option<&str>, now: Millis) {
        let usage = Usage {
            prompt_tokens: Some(finish.prompt_tokens),
            completion_tokens: Some(finish.completion_tokens),
            cached_tokens: Some(finish.cached_device + finish.cached_host),
            cached_host_tokens: Some(finish.cached_host),
            tool,
        };
        self.scheduler
            .finished(RequestId(request), usage, now)
            .expect("it is in flight");
    }

    fn released(&mut self, program: &str, now: Millis) {
        self.scheduler.release(program, now);
    }

    fn orders(&mut self, now: Millis) -> Vec<Order> {
        if self.scheduler.next_tick_ms(now) != Some(0) {
            return Vec::new();
        }
        let decisions = self.scheduler.tick(now);
        decisions.into_iter().filter_map(order).collect()
    }

    fn due(&self, now: Millis) -> Option<Millis> {
        self.scheduler.next_tick_ms(now)
    }
}

fn order(decision: Decision) -> Option<Order> {
    let place = |seat: Seat| usize::try_from(seat.worker.0).expect("a small number");
    match decision {
        Decision::Admit { request, seat, .. } => Some(Order::Send {
            request: request.0,
            worker: place(seat),
        }),
        Decision::Reject {
            request,
            kind,
            retry_after,
            ..
        } => {
            let for_good = kind == thunder_core::Rejection::Oversize;
            let retry_after = (!for_good).then_some(retry_after);
            Some(Order::Refuse {
                request: request.0,
                retry_after,
            })
        }
        Decision::Pause { program, seat, .. } => Some(Order::Yield {
            program: program.to_string(),
            worker: place(seat),
        }),
        // A hold is the absence of an admission; environments are not simulated.
        Decision::Hold { .. }
        | Decision::Restore { .. }
        | Decision::Prepare { .. }
        | Decision::Expire { .. } => None,
    }
}

/// Every program stays where it began: on the engine with the fewest programs then.
pub(super) struct Pinned {
    homes: BTreeMap<String, usize>,
    programs: Vec<usize>,
    orders: Vec<Order>,
}

impl Pinned {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            homes: BTreeMap::new(),
            programs: vec![0; workers],
            orders: Vec::new(),
        }
    }
}

impl Router for Pinned {
    fn ask(&mut self, ask: &Ask<'_>, _: Millis) {
        let worker = *self.homes.entry(ask.program.to_owned()).or_insert_with(|| {
            let counts = self.programs.iter().enumerate();
            let emptiest = counts
                .min_by_key(|(_, count)| **count)
                .map_or(0, |(worker, _)| worker);
            self.programs[emptiest] += 1;
            emptiest
        });
        self.orders.push(Order::Send {
            request: ask.request,
            worker,
        });
    }

    fn progress(&mut self, _: u64, _: Tokens, _: Millis) {}

    fn finished(&mut self, _: u64, _: &Finish, _: Option<&str>, _: Millis) {}

    fn released(&mut self, program: &str, _: Millis) {
        if let Some(worker) = self.homes.remove(program) {
            self.programs[worker] -= 1;
        }
    }

    fn orders(&mut self, _: Millis) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    fn due(&self, _: Millis) -> Option<Millis> {
        (!self.orders.is_empty()).then_some(0)
    }
}
