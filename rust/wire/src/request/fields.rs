//! The fields that concern the router: which carry identity, and which the worker never sees.
//!
//! | fields | the worker | why |
//! |---|---|---|
//! | `program_id`, `job_id`, `docker_ids`, parents, final signals | does not see them | only a scheduler of programs knows them; `docker_ids` and the like have no place in an engine's logs |
//! | `agent_hint`, `nvext.agent_context`, `vllm_xargs.agentic_context` | does not see them | written for routers. vLLM refuses objects in `vllm_xargs` |
//! | `extra_body` | sees what is not listed here | clients that speak raw HTTP send this argument of the openai client literally. No engine reads it |
//! | `session_id`, `rid`, `priority`, `routed_dp_rank` | as the caller says | SGLang knows them, some only from a version on (0.5.16, –, 0.5.6, 0.5.10) |
//! | `session_params` | sees it | the engine keeps history under that id |
//! | `metadata`, `user`, `prompt_cache_key`, `previous_response_id` | sees them | part of the public APIs; answers repeat some of them |
//!
//! A container that holds nothing but fields that go, goes whole.

/// What happens to a field on its way to the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It stays.
    Keep,
    /// It goes.
    Cut,
    /// It goes when the caller says so.
    Ask(Optional),
    /// An object: those of its members go that are listed, and it goes with the last of them.
    Sift,
}

/// A field of the engine's that a caller may want cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Optional {
    /// `session_id`.
    SessionId,
    /// `rid`.
    Rid,
    /// `priority`.
    Priority,
    /// `routed_dp_rank`, or `data_parallel_rank` as it was called before 0.5.10.
    DpRank,
}

impl Optional {
    /// All of them, with the names under which they are spliced in.
    pub const ALL: [(&'static str, Self); 4] = [
        ("session_id", Self::SessionId),
        ("rid", Self::Rid),
        ("priority", Self::Priority),
        ("routed_dp_rank", Self::DpRank),
    ];

    /// The field of this name, if it is one of them.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map(|&(_, field)| field)
    }
}

/// What a field tells the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A program's or parent's name.
    Identity,
    /// The program ends with this request.
    Final,
    /// Ids of the program's containers.
    DockerIds,
    /// An object, or an object as a JSON string, of such fields.
    Container,
}

/// One field.
#[derive(Debug)]
pub(super) struct Rule {
    /// Keys from the top, joined by dots.
    pub(super) path: &'static str,
    pub(super) role: Role,
    pub(super) fate: Fate,
}

const fn rule(path: &'static str, role: Role, fate: Fate) -> Rule {
    Rule { path, role, fate }
}

use Fate::{Ask, Cut, Keep, Sift};
use Role::{Container, DockerIds, Final, Identity};

/// Every field that concerns the router, but for those of the prompt.
pub(super) const RULES: &[Rule] = &[
    rule("program_id", Identity, Cut),
    rule("parent_program_id", Identity, Cut),
    rule("parent_session_id", Identity, Cut),
    rule("job_id", Identity, Cut),
    rule("docker_ids", DockerIds, Cut),
    rule("session_final", Final, Cut),
    rule("trajectory_final", Final, Cut),
    rule("program_done", Final, Cut),
    rule("is_last_step", Final, Cut),
    rule("session_id", Identity, Ask(Optional::SessionId)),
    rule("user", Identity, Keep),
    rule("prompt_cache_key", Identity, Keep),
    rule("previous_response_id", Identity, Keep),
    rule("metadata", Container, Keep),
    rule("metadata.program_id", Identity, Keep),
    rule("metadata.session_id", Identity, Keep),
    rule("metadata.user_id", Identity, Keep),
    rule("session_params", Container, Keep),
    rule("session_params.id", Identity, Keep),
    rule("extra_body", Container, Sift),
    rule("extra_body.program_id", Identity, Cut),
    rule("extra_body.parent_program_id", Identity, Cut),
    rule("extra_body.session_id", Identity, Cut),
    rule("extra_body.parent_session_id", Identity, Cut),
    rule("extra_body.job_id", Identity, Cut),
    rule("extra_body.docker_ids", DockerIds, Cut),
    rule("extra_body.session_final", Final, Cut),
    rule("extra_body.trajectory_final", Final, Cut),
    rule("extra_body.program_done", Final, Cut),
    rule("extra_body.is_last_step", Final, Cut),
    rule("nvext", Container, Sift),
    rule("nvext.agent_context", Container, Cut),
    rule("nvext.agent_context.session_id", Identity, Cut),
    rule("nvext.agent_context.trajectory_id", Identity, Cut),
    rule("nvext.agent_context.parent_session_id", Identity, Cut),
    rule("nvext.agent_context.parent_trajectory_id", Identity, Cut),
    rule("nvext.agent_context.session_final", Final, Cut),
    rule("nvext.agent_context.trajectory_final", Final, Cut),
    rule("vllm_xargs", Container, Sift),
    rule("vllm_xargs.agentic_context", Container, Cut),
    rule("vllm_xargs.agentic_context.program_id", Identity, Cut),
    rule(
        "vllm_xargs.agentic_context.parent_program_id",
        Identity,
        Cut,
    ),
    rule("vllm_xargs.agentic_context.session_id", Identity, Cut),
    rule(
        "vllm_xargs.agentic_context.parent_session_id",
        Identity,
        Cut,
    ),
    rule("vllm_xargs.agentic_context.session_final", Final, Cut),
    rule("vllm_xargs.agentic_context.program_done", Final, Cut),
    rule("vllm_xargs.agentic_context.is_last_step", Final, Cut),
    rule("agent_hint", Container, Cut),
    rule("agent_hint.session_id", Identity, Cut),
    rule("agent_hint.parent_session_id", Identity, Cut),
    rule("agent_hint.session_final", Final, Cut),
];

/// The rule for this key inside the container of this path (empty: the body itself).
pub(super) fn find(container: &str, key: &[u8]) -> Option<(usize, &'static Rule)> {
    let dotted = usize::from(!container.is_empty());
    let length = container.len() + dotted + key.len();
    RULES.iter().enumerate().find(|(_, rule)| {
        rule.path.len() == length
            && rule.path.as_bytes().ends_with(key)
            && rule.path.starts_with(container)
            && !rule.path[container.len() + dotted..].contains('.')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nested_rule_stands_in_a_container() {
        for rule in RULES {
            if let Some((container, key)) = rule.path.rsplit_once('.') {
                let outer = RULES
                    .iter()
                    .find(|outer| outer.path == container)
                    .expect(container);
                assert_eq!(outer.role, Container, "{container}");
                assert_eq!(
                    find(container, key.as_bytes()).map(|(_, found)| found.path),
                    Some(rule.path)
                );
            } else {
                assert_eq!(
                    find("", rule.path.as_bytes()).map(|(_, found)| found.path),
                    Some(rule.path)
                );
            }
        }
    }

    #[test]
    fn a_key_with_a_dot_is_not_a_path() {
        assert!(find("", b"metadata.user_id").is_none());
        assert!(find("nvext", b"agent_context.session_id").is_none());
    }
}
