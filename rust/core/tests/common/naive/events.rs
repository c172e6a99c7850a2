//! What happened: requests, answers and ends.

use thunder_core::{Millis, RequestId, Tokens};

use super::{At, Naive, Program, Request};

impl Naive {
    pub fn asks(
        &mut self,
        id: RequestId,
        name: Option<&str>,
        tenant: Option<(&str, u32)>,
        prompt: Tokens,
        now: Millis,
    ) {
        self.now = now;
        let known = self.known().into_iter();
        let mut named = known.filter(|p| name.is_some() && self.is(*p).name.as_deref() == name);
        let program = named.next().unwrap_or_else(|| {
            let program = Program {
                name: name.map(Into::into),
                ..Program::default()
            };
            if let Some(free) = self.free.pop() {
                self.programs[free] = Some(program);
                free
            } else {
                self.programs.push(Some(program));
                self.programs.len() - 1
            }
        });
        self.account_to(program, tenant);
        self.requests.push(Request {
            id,
            program,
            at: At::Undecided,
            arrived: now,
            prompt,
            decoded: 0,
            deferred: false,
        });
    }

    pub fn decodes(&mut self, id: RequestId, tokens: Tokens) {
        let request = self
            .requests
            .iter_mut()
            .find(|r| r.id == id)
            .expect("known");
        request.decoded = request.decoded.max(tokens);
    }

    pub fn finishes(&mut self, id: RequestId, completion: Tokens, now: Millis) {
        self.now = now;
        let request = self
            .requests
            .iter()
            .find(|r| r.id == id)
            .expect("known")
            .clone();
        let (total, program) = (request.prompt + completion, request.program);
        let gained = match self.is(program).steps {
            0 => completion,
            _ => total.saturating_sub(self.is(program).context),
        } as f64;
        if request.at == At::Flying {
            let seat = self.is(program).seat.expect("in flight");
            let growth = &mut self.workers[seat].growth;
            *growth = Some(growth.map_or(gained, |growth| growth + 0.05 * (gained - growth)));
            self.of(program).steps_here += 1;
        }
        let program = self.of(program);
        program.peak = program.peak.max(total);
        program.steps += 1;
        self.ends(&request);
    }

    /// Failed or cancelled.
    pub fn breaks(&mut self, id: RequestId, now: Millis) {
        self.now = now;
        let request = self
            .requests
            .iter()
            .find(|r| r.id == id)
            .expect("known")
            .clone();
        let program = self.of(request.program);
        let sent = matches!(request.at, At::Flying | At::Orphaned);
        if sent && program.context == 0 && program.peak == 0 {
            program.context = request.prompt + request.decoded;
        }
        self.ends(&request);
    }

    pub(super) fn ends(&mut self, request: &Request) {
        self.requests.retain(|r| r.id != request.id);
        let key = request.program;
        if !self.flies(key) && self.is(key).peak > 0 {
            self.of(key).context = self.is(key).peak;
            self.of(key).peak = 0;
        }
        if self.waits(key).is_none() {
            self.of(key).claim = None;
        }
        if self.is_silent(key) {
            self.of(key).turned = true;
        }
        let program = self.is(key);
        let newcomer = program.seat.is_none() && !program.had_seat;
        if self.is_silent(key) && (program.name.is_none() || newcomer) {
            self.forget(key);
        }
    }

    pub(super) fn forget(&mut self, program: usize) {
        self.programs[program] = None;
        self.free.push(program);
        self.forget_tenants();
    }

    pub fn releases(&mut self, name: &str, now: Millis) {
        self.now = now;
        let known = self.known().into_iter();
        let mut named = known.filter(|p| self.is(*p).name.as_deref() == Some(name));
        let Some(program) = named.next() else { return };
        if self.is_silent(program) {
            self.forget(program);
        } else {
            self.of(program).name = None;
        }
    }
}
