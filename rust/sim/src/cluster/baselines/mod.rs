//! What the scheduler is compared with, written for comparison from papers and observed behaviour.
//!
//! Each is one file and one [`Router`](super::router::Router); they share nothing but [`Fleet`].

mod cache_aware;
mod fleet;
mod pinned;
mod thunder_agent;
mod ttl;

pub(super) use cache_aware::CacheAware;
use fleet::Fleet;
pub(super) use pinned::Pinned;
pub(super) use thunder_agent::ThunderAgent;
pub(super) use ttl::TtlPinning;

#[cfg(test)]
mod rig {
    //! A router without a world: requests by hand, and what it ordered.

    use super::super::router::{Ask, Order, Router};
    use crate::engine::Finish;
    use crate::span::{Span, link};
    use thunder_core::{Millis, Tokens};

    /// Where each request was sent at `now`.
    pub(super) fn sent(router: &mut dyn Router, now: Millis) -> Vec<(u64, usize)> {
        let orders = router.orders(now).into_iter();
        let sent = orders.filter_map(|order| match order {
            Order::Send { request, worker } => Some((request, worker)),
            Order::Refuse { .. } | Order::Yield { .. } => None,
        });
        sent.collect()
    }

    /// A program asks with a prompt of 1,000 tokens that all share, if it has as many, and its own.
    pub(super) fn ask(
        router: &mut dyn Router,
        request: u64,
        program: &str,
        tokens: Tokens,
        now: Millis,
    ) {
        let own = program.bytes().fold(1, |id, byte| link(id, byte.into()));
        let span = |id, tokens| Span {
            id,
            tokens,
            partial: false,
        };
        let prompt = match tokens.checked_sub(1_000) {
            Some(rest) if rest > 0 => vec![span(7, 1_000), span(own, rest)],
            _ => vec![span(own, tokens)],
        };
        let ask = Ask {
            request,
            program,
            prompt: &prompt,
            prefix: None,
        };
        router.ask(&ask, now);
    }

    /// A request is answered with `output` tokens.
    pub(super) fn finish(
        router: &mut dyn Router,
        request: u64,
        prompt: Tokens,
        output: Tokens,
        now: Millis,
    ) {
        let finish = Finish {
            aborted: false,
            prompt_tokens: prompt,
            completion_tokens: output,
            cached_device: 0,
            cached_host: 0,
            retractions: 0,
            queue_us: 0,
        };
        router.finished(request, &finish, Some("bash"), now);
    }
}
