//! Known faults of every public implementation, each with its numbers and then its whole kind.

#[path = "../common/mod.rs"]
mod common;
mod limits;
mod places;
mod queue;
mod running;
mod sizes;

use common::{Lab, config, facts};
use thunder_core::{PolicyName, SchedulerConfig, Seat, Tokens};

const ZERO: Seat = Seat::new(0, 0);

fn both() -> [PolicyName; 2] {
    [PolicyName::Paper, PolicyName::Adaptive]
}

/// Adaptive without the pieces that would interfere with another one's numbers.
fn bare() -> SchedulerConfig {
    SchedulerConfig {
        margin_min: 0.0,
        margin_max: 0.0,
        displacement_eta: 0.0,
        ..config(PolicyName::Adaptive)
    }
}

fn bare_lab(capacity: Tokens) -> Lab {
    let mut lab = Lab::new(bare());
    lab.up(0, facts(capacity));
    lab
}

fn program(lab: &Lab, name: &str) -> thunder_core::ProgramView {
    lab.core.program(name, lab.now).expect("known")
}
