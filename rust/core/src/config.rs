//! The scheduler's constants. Their defaults live with the caller, in one place; none are here.

use crate::error::Error;
use crate::ids::Millis;

/// Which policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyName {
    /// Fewest requests in flight, sticky by program: a plain gateway.
    Off,
    /// The published policy (arXiv 2602.13692), equations 7, 10 and 11.
    Paper,
    /// What evidence says is better: room for growth, bounded waiting, leases.
    Adaptive,
}

/// Every constant. [`SchedulerConfig::validate`] says what ranges they have.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each switches one piece of a policy"
)]
pub struct SchedulerConfig {
    /// Which policy decides.
    pub policy: PolicyName,
    /// Adaptive: time between refreshes when nothing happens, and between decisions where
    /// `event_driven` is off.
    pub tick_ms: Millis,
    /// Held requests above which newcomers are rejected.
    pub queue_limit: usize,
    /// A request held longer is rejected.
    pub hold_limit_ms: Millis,
    /// Requests wait this long for a first worker, or for the last one to come back.
    pub no_worker_limit_ms: Millis,
    /// Paper: Δt, the time between decisions.
    pub paper_tick_ms: Millis,
    /// Paper: the half-life of an acting program's weight; f(t) = 2^(-t / half-life).
    pub paper_half_life_ms: Millis,
    /// Paper: pause down to this fraction of capacity.
    pub paper_lambda_max: f64,
    /// Paper: restore up to this fraction of capacity.
    pub paper_lambda_min: f64,
    /// Use freed capacity at once, not at the next tick.
    pub event_driven: bool,
    /// Count a prefix that programs share once per seat.
    pub shared_prefix: bool,
    /// A paused program prefers the seat where its KV may still be.
    pub origin_affinity: bool,
    /// Room for growth left beside a returning program, in steps of the seat's active set.
    pub growth_steps_paused: f64,
    /// The same beside a new program.
    pub growth_steps_new: f64,
    /// Least margin, as a fraction of capacity.
    pub margin_min: f64,
    /// Largest margin for growth, as a fraction of capacity.
    pub margin_max: f64,
    /// η: an idle program is displaced when its expected remaining tool time exceeds its restore
    /// time × active programs / η. 0 never displaces.
    pub displacement_eta: f64,
    /// A program silent this long past its expected tool time gives up its seat.
    pub lease_ms: Millis,
    /// But not before this much silence.
    pub lease_min_ms: Millis,
    /// A program silent this long is forgotten.
    pub idle_timeout_ms: Millis,
    /// Adapt the margin of seats whose engine cannot be told which KV to drop first.
    pub aimd: bool,
    /// Raise it while this fraction of GPU time recomputes what was meant to be kept.
    pub aimd_raise_above: f64,
    /// Lower it below this fraction.
    pub aimd_lower_below: f64,
    /// Largest margin with everything, as a fraction of capacity.
    pub aimd_cap: f64,
    /// After this wait the oldest waiter's room is kept for it.
    pub reservation_ms: Option<Millis>,
    /// After this long on a seat a program yields to one that has waited as long.
    pub time_slice_ms: Option<Millis>,
    /// But never before this many times its own restore time.
    pub time_slice_restore_factor: f64,
    /// Pressure begins above this fraction of capacity.
    pub mark_running_above: f64,
    /// Count the host tier as reach: a restore loads back instead of recomputing.
    pub host_tier: bool,
    /// A weight sync that never ends is over after this.
    pub weight_sync_timeout_ms: Millis,
}

impl SchedulerConfig {
    /// Refuses constants that are out of range or contradict one another.
    pub fn validate(&self) -> Result<(), Error> {
        positive("tick_ms", self.tick_ms)?;
        positive("paper_tick_ms", self.paper_tick_ms)?;
        positive("paper_half_life_ms", self.paper_half_life_ms)?;
        positive("weight_sync_timeout_ms", self.weight_sync_timeout_ms)?;
        if self.queue_limit == 0 {
            return Err(Error::BadConfig("queue_limit must be positive".into()));
        }
        for (name, value) in [
            ("paper_lambda_max", self.paper_lambda_max),
            ("paper_lambda_min", self.paper_lambda_min),
            ("mark_running_above", self.mark_running_above),
        ] {
            within(name, value, f64::MIN_POSITIVE, 1.0)?;
        }
        for (name, value) in [
            ("margin_min", self.margin_min),
            ("margin_max", self.margin_max),
            ("aimd_raise_above", self.aimd_raise_above),
            ("aimd_lower_below", self.aimd_lower_below),
            ("aimd_cap", self.aimd_cap),
        ] {
            within(name, value, 0.0, 1.0)?;
        }
        for (name, value) in [
            ("growth_steps_paused", self.growth_steps_paused),
            ("growth_steps_new", self.growth_steps_new),
            ("displacement_eta", self.displacement_eta),
            ("time_slice_restore_factor", self.time_slice_restore_factor),
        ] {
            within(name, value, 0.0, f64::INFINITY)?;
        }
        for ((low_name, low), (high_name, high)) in [
            (
                ("paper_lambda_min", self.paper_lambda_min),
                ("paper_lambda_max", self.paper_lambda_max),
            ),
            (
                ("margin_min", self.margin_min),
                ("margin_max", self.margin_max),
            ),
            (
                ("aimd_lower_below", self.aimd_lower_below),
                ("aimd_raise_above", self.aimd_raise_above),
            ),
            (("margin_max", self.margin_max), ("aimd_cap", self.aimd_cap)),
        ] {
            if low > high {
                return Err(Error::BadConfig(format!(
                    "{low_name} = {low} must not exceed {high_name} = {high}"
                )));
            }
        }
        Ok(())
    }
}

fn positive(name: &str, value: Millis) -> Result<(), Error> {
    if value == 0 {
        return Err(Error::BadConfig(format!("{name} must be positive")));
    }
    Ok(())
}

fn within(name: &str, value: f64, low: f64, high: f64) -> Result<(), Error> {
    if !(low..=high).contains(&value) || value.is_infinite() {
        let range = if high.is_infinite() {
            "at least 0 and finite".to_owned()
        } else if low > 0.0 {
            format!("above 0 and at most {high}")
        } else {
            format!("between {low} and {high}")
        };
        return Err(Error::BadConfig(format!(
            "{name} = {value} must be {range}"
        )));
    }
    Ok(())
}
