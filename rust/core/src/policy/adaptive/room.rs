//! How much room a seat has for a newcomer: capacity, less what is charged, less a margin for the
//! growth of those who are there.
//!
//! A program gains context with every step, so a seat that is full today overflows tomorrow, and an
//! overflowing engine recomputes instead of serving. The margin is a number of expected steps of
//! growth of the seat's active set, within bounds. An empty seat needs none: whoever fits it at all
//! may have it.

use crate::config::SchedulerConfig;
use crate::decay::as_float;
use crate::ids::Tokens;
use crate::program::Class;
use crate::reason::Room;
use crate::standing::Standing;
use crate::worker::Worker;

/// What a seat keeps free beside a program of this class, in tokens.
pub(crate) fn margin(config: &SchedulerConfig, worker: &Worker, class: Class) -> Tokens {
    let Some(capacity) = worker.capacity() else {
        return 0;
    };
    let capacity = as_float(capacity);
    let steps = match class {
        Class::Returning => config.growth_steps_paused,
        Class::New => config.growth_steps_new,
    };
    let programs = as_float(worker.programs() as u64);
    let growth = steps * worker.growth.unwrap_or(0.0) * programs;
    let fraction = (growth / capacity).clamp(config.margin_min, config.margin_max);
    let fraction = (fraction + worker.extra_margin).min(config.aimd_cap);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within capacity"
    )]
    let margin = (fraction * capacity).ceil() as Tokens;
    margin
}

/// What a seat has for a program of this class.
pub(super) fn room(config: &SchedulerConfig, worker: &Worker, class: Class) -> Tokens {
    let free = worker.free().unwrap_or(0);
    if worker.charged() == 0 {
        free
    } else {
        free.saturating_sub(margin(config, worker, class))
    }
}

/// How a seat of known capacity presents itself.
pub(super) fn standing(config: &SchedulerConfig, worker: &Worker) -> Standing {
    let returning = room(config, worker, Class::Returning);
    let displaceable = worker.displaceable.tokens();
    Standing::Room {
        returning,
        new: room(config, worker, Class::New),
        reclaimed: (displaceable > 0).then_some(returning + displaceable),
    }
}

/// The numbers behind a decision about this seat.
pub(super) fn explain(
    config: &SchedulerConfig,
    worker: &Worker,
    class: Class,
    need: Tokens,
) -> Room {
    let capacity = worker.capacity().unwrap_or(0);
    let margin = if worker.charged() == 0 {
        0
    } else {
        margin(config, worker, class)
    };
    Room {
        need,
        seat: worker.seat,
        free: worker.free().unwrap_or(0),
        capacity,
        margin: as_float(margin) / as_float(capacity.max(1)),
    }
}
