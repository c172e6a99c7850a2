//! The real scheduler as a router of the simulated cluster.

use thunder_core::{
    Arrival, Decision, Millis, RequestId, Scheduler, SchedulerConfig, Seat, SeatFacts, Tokens,
    Usage, WorkerId,
};

use super::router::{Ask, Order, Router};
use super::spec::{Spec, SpecError};
use crate::cache::WritePolicy;
use crate::engine::Finish;

/// See the module.
pub(super) struct Core {
    scheduler: Scheduler,
    facts: Vec<SeatFacts>,
}

impl Core {
    pub(super) fn new(spec: &Spec, config: SchedulerConfig) -> Result<Self, SpecError> {
        let refused = |error: thunder_core::Error| SpecError(error.to_string());
        let mut core = Self {
            scheduler: Scheduler::new(config).map_err(refused)?,
            facts: (0..spec.workers)
                .map(|worker| facts(spec, worker))
                .collect(),
        };
        if u32::try_from(spec.workers).is_err() {
            return Err(SpecError("too many workers".into()));
        }
        for (worker, facts) in core.facts.iter().enumerate() {
            let up = core.scheduler.worker_up(seat(worker), *facts, 0);
            up.map_err(refused)?;
        }
        Ok(core)
    }
}

#[allow(clippy::cast_precision_loss)] // Rates are small.
fn facts(spec: &Spec, worker: usize) -> SeatFacts {
    SeatFacts {
        device_tokens: Some(spec.engine(worker).model.capacity_tokens),
        host_tokens: spec.host_tokens(worker),
        write_back: spec.write_policy == WritePolicy::Back,
        prefill_us_per_token: spec.model.prefill_ps as f64 / 1e6,
        prefill_ns_per_token2: spec.model.prefill_context_ps as f64 / 1e3,
        load_back_us_per_token: spec.model.load_back_ps as f64 / 1e6,
        sessions: spec.sessions,
    }
}

fn number(worker: usize) -> WorkerId {
    WorkerId(u32::try_from(worker).expect("counted when the day began"))
}

fn seat(worker: usize) -> Seat {
    Seat::new(number(worker).0, 0)
}

impl Router for Core {
    fn ask(&mut self, ask: &Ask<'_>, now: Millis) {
        let arrival = Arrival {
            program: Some(ask.program),
            group: None,
            tenant: None,
            prompt_tokens: ask.prompt_tokens(),
            prefix: ask.prefix,
        };
        self.scheduler
            .arrive(RequestId(ask.request), arrival, now)
            .expect("a fresh request");
    }

    fn listens(&self) -> bool {
        true
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

    fn failed(&mut self, request: u64, now: Millis) {
        self.scheduler
            .failed(RequestId(request), now)
            .expect("it is in flight");
    }

    fn released(&mut self, program: &str, now: Millis) {
        self.scheduler.release(program, now);
    }

    fn worker_up(&mut self, worker: usize, now: Millis) {
        self.scheduler
            .worker_up(seat(worker), self.facts[worker], now)
            .expect("facts that were taken before");
    }

    fn worker_down(&mut self, worker: usize, now: Millis) {
        self.scheduler
            .worker_down(number(worker), now)
            .expect("a worker that was up");
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
        Decision::Admit { request, seat, .. } => Some(Order::send(request.0, place(seat))),
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
