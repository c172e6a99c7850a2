//! Agent programs: how their prompts grow, how much they answer, how long their tools take.
//!
//! Source: distributions fitted to the agent runs that the `ThunderAgent` paper (arXiv 2602.13692)
//! reports and to the code of the agents (truncation of observations, limits of steps). Tool times
//! meet the paper's p95 and p99; tokens and steps were fitted to its cycle times and to where its
//! baselines collapse. Certainty: tools of `science` and `toolorchestra` high, the rest medium, `osworld`
//! low: only its tool time and its mean context are known.

mod drawn;
mod replay;

use crate::random::{LogNormal, Random};
use crate::span::{Span, link};

use std::sync::Arc;

pub use drawn::Drawn;
pub use replay::{Recorded, Replay};

/// One way of using tools: `share` of the calls, of this kind, taking this long (seconds).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tool {
    /// Its kind, as the answer names it.
    pub kind: &'static str,
    /// Share of all calls.
    pub share: f64,
    /// Seconds.
    pub seconds: LogNormal,
}

/// What of one prompt the next one keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Memory {
    /// Everything is appended; with this probability a turn rewrites all but the shared prefix.
    Grows {
        /// Probability of a rewrite, per turn.
        rewrite: f64,
    },
    /// The prompt is made anew from the task and the latest observations, at most so many tokens;
    /// answers are not kept.
    Rebuilt {
        /// Tokens of observations kept.
        keep: u64,
    },
}

/// A kind of program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// Tokens of system prompt and tools that all its programs share.
    pub shared: u64,
    /// Tokens of the task.
    pub task: LogNormal,
    /// Turns of a program.
    pub steps: LogNormal,
    /// Tokens of an answer.
    pub output: LogNormal,
    /// Tokens of an observation.
    pub observation: LogNormal,
    /// What stays in the prompt.
    pub memory: Memory,
    /// Its tools.
    pub tools: &'static [Tool],
}

const fn tool(kind: &'static str, share: f64, median: f64, sigma: f64, most: f64) -> Tool {
    Tool {
        kind,
        share,
        seconds: LogNormal::new(median, sigma, 0.001, most),
    }
}

/// The kinds that are known.
pub const WORKLOADS: [Workload; 7] = [
    Workload {
        name: "mini-swe",
        shared: 1_600,
        task: LogNormal::new(500.0, 0.6, 50.0, 3_000.0),
        steps: LogNormal::new(24.0, 0.42, 4.0, 90.0),
        output: LogNormal::new(175.0, 0.85, 20.0, 4_000.0),
        observation: LogNormal::new(140.0, 1.2, 10.0, 2_600.0),
        memory: Memory::Grows { rewrite: 0.0 },
        tools: &[
            tool("bash", 0.8, 0.15, 0.7, 60.0),
            tool("bash", 0.165, 0.8, 0.7, 60.0),
            tool("bash", 0.035, 5.0, 0.9, 60.0),
        ],
    },
    Workload {
        name: "openhands",
        shared: 5_500,
        task: LogNormal::new(900.0, 0.5, 50.0, 4_000.0),
        steps: LogNormal::new(40.0, 0.35, 6.0, 50.0),
        output: LogNormal::new(200.0, 0.85, 10.0, 8_000.0),
        observation: LogNormal::new(220.0, 1.2, 10.0, 6_000.0),
        memory: Memory::Grows { rewrite: 0.0 },
        tools: &[
            tool("edit", 0.4, 0.07, 0.6, 10.0),
            tool("bash", 0.45, 0.6, 1.0, 30.0),
            tool("tests", 0.15, 3.5, 1.1, 120.0),
        ],
    },
    Workload {
        name: "science",
        shared: 7_000,
        task: LogNormal::new(1_500.0, 0.4, 100.0, 8_000.0),
        steps: LogNormal::new(23.0, 0.42, 6.0, 60.0),
        output: LogNormal::new(400.0, 0.95, 10.0, 8_000.0),
        observation: LogNormal::new(180.0, 1.3, 10.0, 8_000.0),
        memory: Memory::Grows { rewrite: 0.58 },
        tools: &[
            tool("execute_bash", 0.45, 4.0, 1.72, 600.0),
            tool("ipython", 0.15 * 0.93, 1.0, 1.0, 8.0),
            tool("ipython", 0.15 * 0.07, 25.0, 1.0, 600.0),
            tool("str_replace_editor", 0.25, 0.06, 0.65, 10.0),
            tool("task_tracker", 0.15, 0.017, 0.6, 5.0),
        ],
    },
    Workload {
        name: "toolorchestra",
        shared: 1_200,
        task: LogNormal::new(250.0, 0.7, 20.0, 4_000.0),
        steps: LogNormal::new(3.8, 0.35, 1.0, 12.0),
        output: LogNormal::new(2_300.0, 0.95, 50.0, 12_000.0),
        observation: LogNormal::new(5_500.0, 0.4, 500.0, 15_000.0),
        memory: Memory::Rebuilt { keep: 27_000 },
        // The mix of the three is not known: search most often, each at least once in a while.
        tools: &[
            tool("search", 0.48, 2.4, 0.45, 60.0),
            tool("search", 0.02, 18.0, 0.7, 120.0),
            tool("enhance_reasoning", 0.3, 9.5, 0.5, 70.0),
            tool("enhance_reasoning", 0.02, 68.0, 0.07, 90.0),
            tool("answer", 0.17, 9.0, 0.6, 60.0),
            tool("answer", 0.01, 70.0, 0.7, 300.0),
        ],
    },
    Workload {
        name: "r2e-gym",
        shared: 4_000,
        task: LogNormal::new(500.0, 0.6, 50.0, 3_000.0),
        steps: LogNormal::new(42.0, 0.4, 8.0, 80.0),
        output: LogNormal::new(260.0, 0.9, 10.0, 4_000.0),
        observation: LogNormal::new(350.0, 1.2, 10.0, 8_000.0),
        memory: Memory::Grows { rewrite: 0.0 },
        // Its tools' times are not known: mini-SWE-agent's, which runs the same commands.
        tools: &[
            tool("bash", 0.8, 0.15, 0.7, 60.0),
            tool("bash", 0.165, 0.8, 0.7, 60.0),
            tool("bash", 0.035, 5.0, 0.9, 60.0),
        ],
    },
    Workload {
        name: "osworld",
        shared: 2_500,
        task: LogNormal::new(300.0, 0.5, 50.0, 2_000.0),
        steps: LogNormal::new(30.0, 0.3, 8.0, 60.0),
        output: LogNormal::new(150.0, 0.7, 20.0, 2_000.0),
        observation: LogNormal::new(1_000.0, 0.04, 900.0, 1_100.0),
        memory: Memory::Grows { rewrite: 0.0 },
        tools: &[tool("computer", 1.0, 5.15, 0.012, 5.3)],
    },
    // Fitted to 570 recorded sessions (WEKA's Claude Code traces, Apache-2.0): system prompt and tools
    // of 15,000 tokens, prompts of 95,000 in the mean, 48 turns in the median; means are met to 12 %.
    // What the recording waited longer than 10 s for was mostly a person: pauses are cut there.
    Workload {
        name: "claude-code",
        shared: 15_000,
        task: LogNormal::new(8_000.0, 1.4, 500.0, 150_000.0),
        steps: LogNormal::new(48.0, 0.8, 3.0, 150.0),
        output: LogNormal::new(212.0, 1.1, 20.0, 16_000.0),
        observation: LogNormal::new(262.0, 1.6, 10.0, 20_000.0),
        memory: Memory::Grows { rewrite: 0.018 },
        tools: &[Tool {
            kind: "tool",
            share: 1.0,
            seconds: LogNormal::new(10.0, 0.9, 3.0, 10.0),
        }],
    },
];

impl Workload {
    /// The kind of this name, if it is known.
    pub fn named(name: &str) -> Option<&'static Workload> {
        WORKLOADS.iter().find(|workload| workload.name == name)
    }
}

/// The prefix that all programs of a kind share.
fn shared(workload: &Workload) -> Span {
    let id = workload
        .name
        .bytes()
        .fold(0, |id, byte| link(id, u64::from(byte)));
    Span {
        id,
        tokens: workload.shared,
        partial: false,
    }
}

/// Where programs come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// They are drawn, all of this kind.
    Kind(Workload),
    /// They are recorded sessions, picked at random and played again.
    Sessions(Arc<[Vec<Recorded>]>),
}

impl Source {
    /// The program that `path` names under `seed`. Its tools take `tool_scale` times as long.
    pub fn program(&self, seed: u64, path: &[u64], tool_scale: f64) -> Program {
        match self {
            Self::Kind(workload) => Program::Drawn(Drawn::new(workload, seed, path, tool_scale)),
            Self::Sessions(sessions) => {
                let mut random = Random::new(seed, path);
                let index = random.below(sessions.len() as u64);
                let session = usize::try_from(index).map_or(0, |index| index);
                Program::Replay(Replay::new(
                    Arc::clone(sessions),
                    session,
                    random,
                    tool_scale,
                ))
            }
        }
    }

    /// Identity of the prefix that all its programs share, as a router sees it, if there is one.
    pub fn prefix(&self) -> Option<u64> {
        match self {
            Self::Kind(workload) => Some(shared(workload).id),
            Self::Sessions(_) => None,
        }
    }
}

/// One turn of a program: what it asks, what it will get, and what its tool then takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// The prompt.
    pub prompt: Vec<Span>,
    /// Prompt and answer as one chain.
    pub conversation: Vec<Span>,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// Tokens of the prompt that an earlier turn has had computed: what a perfect cache would find.
    pub reusable_tokens: u64,
    /// Kind of the tool that the answer calls; None at the end of the program.
    pub tool: Option<&'static str>,
    /// How long that tool takes, µs.
    pub tool_us: u64,
}

/// One program under way.
#[derive(Clone, Debug)]
pub enum Program {
    /// Drawn.
    Drawn(Drawn),
    /// Recorded.
    Replay(Replay),
}

impl Program {
    /// The next turn; None once the program has ended.
    pub fn turn(&mut self) -> Option<Turn> {
        match self {
            Self::Drawn(program) => program.turn(),
            Self::Replay(program) => program.turn(),
        }
    }

    /// Skips to a random turn, as if the earlier ones had run before the world began.
    pub fn begin_midway(&mut self) {
        match self {
            Self::Drawn(program) => program.begin_midway(),
            Self::Replay(program) => program.begin_midway(),
        }
    }
}
