//! Views of the scheduler, for people and the API.

use crate::ids::Millis;
use crate::program::Program;
use crate::scheduler::Scheduler;
use crate::transitions::Status;
use crate::view::{Counts, ProgramView, TenantView, WorkerView};

impl Scheduler {
    /// The program of this name, if it is known.
    pub fn program(&self, program: &str, now: Millis) -> Option<ProgramView> {
        let key = self.book.names.get(program)?;
        self.view(&self.book[*key], now)
    }

    /// All named programs, by name.
    pub fn programs(&self, now: Millis) -> Vec<ProgramView> {
        let programs = self.book.programs.iter();
        let mut views: Vec<ProgramView> = programs
            .filter_map(|(_, program)| self.view(program, now))
            .collect();
        views.sort_unstable_by(|a, b| a.program.cmp(&b.program));
        views
    }

    /// All seats that were ever up, in order.
    pub fn workers(&self) -> Vec<WorkerView> {
        let workers = self.book.workers.values();
        workers
            .map(|worker| WorkerView {
                seat: worker.seat,
                state: worker.state,
                device_tokens: worker.capacity(),
                host_tokens: worker.facts.host_tokens,
                charged_tokens: worker.charged(),
                shared_tokens: worker.shared.once(),
                free_tokens: worker.free(),
                margin_tokens: crate::policy::margin(&self.book.config, worker),
                programs: worker.programs(),
                reasoning: worker.reasoning.len(),
                acting: worker.acting.len(),
                in_flight: worker.in_flight,
            })
            .collect()
    }

    /// All tenants that have programs, in no particular order.
    pub fn tenants(&self) -> Vec<TenantView> {
        let known = self.book.queue.tenants.iter();
        known
            .filter(|(_, account)| account.programs > 0)
            .map(|(_, account)| TenantView {
                tenant: account.name.clone(),
                weight: account.weight,
                charged_tokens: account.charged,
                programs: account.programs,
                waiting: account.waiting(),
            })
            .collect()
    }

    /// How many there are of everything.
    pub fn counts(&self) -> Counts {
        self.book.counts
    }

    fn view(&self, program: &Program, now: Millis) -> Option<ProgramView> {
        let now = now.max(self.book.now);
        let silent = program.is_silent();
        let first = program.waiting.values().next();
        let arrived = first.and_then(|request| self.book.requests.get(request));
        let origin = program.trace.map(|trace| trace.seat);
        Some(ProgramView {
            program: program.name.clone()?,
            generation: program.generation,
            group: program.group.clone(),
            tenant: self.book.queue.tenants.get(program.tenant).name.clone(),
            operator: program.operator,
            phase: program.phase(),
            status: program.status,
            seat: program.seat,
            origin: origin.filter(|_| program.status == Status::Paused),
            context_tokens: program.context,
            in_flight: program.flying.len() + program.orphans as usize,
            waiting: program.waiting.len(),
            steps: program.steps,
            idle_ms: if silent {
                now - program.seen.min(now)
            } else {
                0
            },
            held_ms: arrived.map_or(0, |request| now - request.arrived.min(now)),
        })
    }
}
